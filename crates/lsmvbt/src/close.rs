//! Closing: a clean header, so that the next open reads no marked region.
//!
//! The last handle leaves it. If a handle has the database open that only reads, it may be the last,
//! and cannot. Then every handle that writes leaves a clean header when it closes.

use crate::core::Core;
use crate::double::leave_small_slots;
use crate::error::{Error, Result};
use crate::header::Marks;
use crate::shared::{CURRENT, FREED, NEXT, ONLY_READ, POISON, READY, SETTLED};
use crate::storage::{Lock, LockMode};

/// Whether other handles have the database open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Others {
    None,
    Some,
}

impl Core {
    /// Closes the handle, and rolls back its transaction.
    pub(crate) fn close(&mut self) -> Result<()> {
        let ended = self.end();
        // Whatever failed: a lock that stayed would keep all others from being the last.
        let closed = match self.lock_patiently(Lock::RECOVER, LockMode::Exclusive) {
            Ok(()) => {
                let closed = self.close_locked();
                self.unlock(Lock::RECOVER, LockMode::Exclusive)?;
                closed
            }
            // As after a kill: the next handle that is alone leaves a clean header.
            Err(e) => self.unlock(Lock::OPEN, LockMode::Shared).and(Err(e)),
        };
        ended.and(closed)
    }

    /// Ends what the handle has open: its transaction, its unflushed commits, its snapshots.
    fn end(&mut self) -> Result<()> {
        // A hint, so that it fails is no error.
        let _ = self.has_its_turn();
        let rolled_back = match self.txn {
            Some(_) => self.rollback(),
            None => Ok(()),
        };
        let flushed = match self.txn.is_none() && self.space.keeps_any_back() {
            true => self.flush(),
            false => Ok(()),
        };
        let flushed = match flushed {
            // Another handle writes, or has failed to flush: recovery decides what is durable.
            Err(Error::Busy | Error::Poisoned) => Ok(()),
            flushed => flushed,
        };
        let mut snapshots = std::mem::take(&mut self.snapshots).into_iter();
        let unmarked = snapshots.try_for_each(|snapshot| self.unmark(snapshot.mark));
        rolled_back.and(flushed).and(unmarked)
    }

    fn close_locked(&mut self) -> Result<()> {
        self.unlock(Lock::OPEN, LockMode::Shared)?;
        if self.options.read_only {
            return Ok(());
        }
        if !self.lock_now(Lock::OPEN, LockMode::Exclusive)? {
            return self.leave_clean();
        }
        let closed = self.write_clean_header(Others::None);
        self.store(READY, 0)?;
        self.unlock(Lock::OPEN, LockMode::Exclusive)?;
        closed
    }

    /// Leaves a clean header next to other handles, if one of them may be the last and only read. One
    /// that is writing now leaves it in turn.
    fn leave_clean(&mut self) -> Result<()> {
        if self.load(ONLY_READ)? == 0 || !self.lock_now(Lock::WRITE, LockMode::Exclusive)? {
            return Ok(());
        }
        let left = self.write_clean_header(Others::Some);
        self.unlock(Lock::WRITE, LockMode::Exclusive)?;
        left
    }

    fn write_clean_header(&mut self, others: Others) -> Result<()> {
        // Not before this handle has the lock, WRITE or OPEN alone: a writer may have failed until
        // then. After that nobody writes, so nobody can fail.
        if self.load(POISON)? != 0 {
            return Ok(());
        }
        // Another handle may have changed the setting for torn pages, by which a late page comes home.
        self.look_as_writer()?;
        let current = self.load(CURRENT)?;
        let has_healed = self.load(FREED)? != 0;
        if self.header.marks.is_empty() && self.header.floor == current && !has_healed {
            return Ok(());
        }
        self.write_again()?;
        self.bring_home()?;
        // It also covers the pages that `double` has written in place.
        self.flush_storage()?;
        self.now_durable(current)?;
        self.release_quarantine()?;
        if others == Others::None {
            self.heal_at_close()?;
        }
        let mut header = self.header.clone();
        // Numbers of rolled-back transactions are used up too: spilled pages carry them.
        let floor = self.load(NEXT)?.saturating_sub(1).max(current);
        header.floor = floor;
        header.settled = floor;
        header.marks = Marks::Some(Default::default());
        header.reserved = 0;
        let mut free = self.space.map.clone();
        if others == Others::None {
            leave_small_slots(&mut header, &mut free);
        }
        self.write_header(header, Some(&free))?;
        self.flush_storage()?;
        self.store(SETTLED, floor)
    }
}
