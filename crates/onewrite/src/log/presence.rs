//! The processes that have the log open: each holds a shared lock as long as the log is open.
//!
//! A process that holds the lock exclusively is alone. It may replace the shared memory, or hide
//! published frames (group synch).

use super::shared::Shared;
use super::{ErrorKind, Locks, Log, LogError, OpenLog};
use crate::storage::{Access, LockByte, LockKind, MOMENT, Patience, lock_path, try_within};

impl Log {
    /// Tells other processes that this one uses the log. From here on no process may hide published
    /// frames.
    pub(super) fn join(&mut self, open: &OpenLog<'_>) -> Result<(), LogError> {
        self.check_poison_of_others()?;
        let writes = open.access == Access::ReadWrite;
        let alone = writes
            && self
                .file
                .try_lock(LockByte::Presence, LockKind::Exclusive)?;
        if alone {
            // No other process can open it before the lock is shared again.
            self.open_shared(open, true)?;
        }
        self.lock_presence(open.patience)?;
        if !alone {
            self.open_shared(open, false)?;
            self.check_poison_of_others()?;
        }
        Ok(())
    }

    /// Opens the state that the log's processes share. `alone`: no other process has it open.
    fn open_shared(&mut self, open: &OpenLog<'_>, alone: bool) -> Result<(), LogError> {
        let shared = Shared::open(open.companions_of, open.access, open.new_file, alone);
        self.shared = shared.unwrap_or_else(|_| Shared::private());
        if self.locks == Locks::InAFileOfTheirOwn && open.access == Access::ReadWrite {
            let path = lock_path(open.companions_of);
            self.file.lock_in_own_file(path, open.new_file, alone)?;
            if self.batches_share_blocks() && !self.shared.is_shared() {
                self.file.note_missing_page()?;
            }
        }
        Ok(())
    }

    fn check_poison_of_others(&self) -> Result<(), LogError> {
        match self
            .file
            .is_locked_by_other(LockByte::Poison, LockKind::Shared)?
        {
            false => Ok(()),
            true => Err(self.error(
                ErrorKind::Poisoned,
                "another process could not write this log: close every connection, then open it \
                 again to recover",
            )),
        }
    }

    /// The exclusive holder of the lock writes a group soon; this asks it not to begin another.
    fn lock_presence(&self, patience: &dyn Patience) -> Result<(), LogError> {
        let file = &self.file;
        let lock = || file.try_lock(LockByte::Presence, LockKind::Shared);
        if lock()? {
            return Ok(());
        }
        file.try_lock(LockByte::Knock, LockKind::Shared)?;
        let locked = try_within(MOMENT, patience, || {
            // If it cannot write its group, it keeps the lock.
            self.check_poison_of_others()?;
            Ok::<_, LogError>(lock()?)
        });
        file.unlock(LockByte::Knock)?;
        match locked? {
            true => Ok(()),
            false => Err(file.busy(LockByte::Presence).into()),
        }
    }

    /// Lets a group's frames stay unwritten for a while. Only if no other process has the log open,
    /// or waits to open it. [`Log::show`] shares it again.
    pub(crate) fn hide(&self) -> Result<bool, LogError> {
        let is_awaited = self
            .file
            .is_locked_by_other(LockByte::Knock, LockKind::Exclusive)?;
        let is_hidden = !is_awaited
            && self
                .file
                .try_lock(LockByte::Presence, LockKind::Exclusive)?;
        Ok(is_hidden)
    }

    /// Lets others look again. It never waits: an exclusive lock can be shared at once.
    pub(crate) fn show(&self) -> Result<(), LogError> {
        match self.file.try_lock(LockByte::Presence, LockKind::Shared)? {
            true => Ok(()),
            false => Err(self.file.busy(LockByte::Presence).into()),
        }
    }

    /// Whether another process has the log open.
    ///
    /// # Errors
    /// The state of the lock cannot be read.
    pub fn is_used_elsewhere(&self) -> Result<bool, LogError> {
        let others = self
            .file
            .is_locked_by_other(LockByte::Presence, LockKind::Exclusive);
        Ok(others?)
    }
}
