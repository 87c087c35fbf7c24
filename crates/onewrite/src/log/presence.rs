//! Who has the log open: a shared lock for each process, held as long as the log is open.
//!
//! A process that holds the lock exclusively is alone. It may make the shared memory anew, or keep
//! published frames to itself (group synch).

use super::shared::Shared;
use super::{ErrorKind, Locks, Log, LogError, OpenLog};
use crate::storage::{Access, LockByte, LockKind, MOMENT, Patience, try_within};

impl Log {
    /// Says to other processes that this one uses the log: nobody may keep published frames to
    /// itself from here on.
    pub(super) fn join(&mut self, open: &OpenLog<'_>) -> Result<(), LogError> {
        self.check_poison_of_others()?;
        let writes = open.access == Access::ReadWrite;
        let alone = writes
            && self
                .file
                .try_lock(LockByte::Presence, LockKind::Exclusive)?;
        if alone {
            // Nobody comes in before the lock is shared again.
            self.open_beside(open, true)?;
        }
        self.lock_presence(open.patience)?;
        if !alone {
            self.open_beside(open, false)?;
            self.check_poison_of_others()?;
        }
        Ok(())
    }

    /// Opens what the log's processes share. `alone`: nobody else has it.
    fn open_beside(&mut self, open: &OpenLog<'_>, alone: bool) -> Result<(), LogError> {
        let shared = Shared::open(open.path, open.access, open.new_file, alone);
        self.shared = shared.unwrap_or_else(|_| Shared::private());
        if self.locks == Locks::InAFileOfTheirOwn && open.access == Access::ReadWrite {
            self.file.lock_in_own_file(open.new_file, alone)?;
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

    /// Who has the lock exclusively writes a group soon, and is asked not to begin another.
    fn lock_presence(&self, patience: &dyn Patience) -> Result<(), LogError> {
        let file = &self.file;
        let lock = || file.try_lock(LockByte::Presence, LockKind::Shared);
        if lock()? {
            return Ok(());
        }
        file.try_lock(LockByte::Knock, LockKind::Shared)?;
        let locked = try_within(MOMENT, patience, || {
            // If its group cannot be written it keeps the lock.
            self.check_poison_of_others()?;
            Ok::<_, LogError>(lock()?)
        });
        file.unlock(LockByte::Knock)?;
        match locked? {
            true => Ok(()),
            false => Err(file.busy(LockByte::Presence).into()),
        }
    }

    /// Lets a group's frames stay unwritten for a while: only where no other process has the log open, nor waits
    /// until it can. Shared again by [`Log::show`].
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

    /// Others may look again. Nobody is waited for: a lock that is held exclusively can be shared at once.
    pub(crate) fn show(&self) -> Result<(), LogError> {
        match self.file.try_lock(LockByte::Presence, LockKind::Shared)? {
            true => Ok(()),
            false => Err(self.file.busy(LockByte::Presence).into()),
        }
    }

    /// Whether somebody else has the log open.
    ///
    /// # Errors
    /// The lock that says so cannot be asked for.
    pub fn is_used_elsewhere(&self) -> Result<bool, LogError> {
        let others = self
            .file
            .is_locked_by_other(LockByte::Presence, LockKind::Exclusive);
        Ok(others?)
    }
}
