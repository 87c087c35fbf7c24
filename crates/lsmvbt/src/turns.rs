//! Turns: a vacuum takes the writer's lock many times, and others want to write in between.
//!
//! The engine waits for no lock. A handle that is refused tries again, with SQLite's busy handler after 1 to
//! 100 ms. A vacuum that took the lock again at once would be faster nearly always. So a refused handle
//! writes its number to one of [`WAITERS`] words of shared memory, and clears it when it has the lock. A
//! vacuum waits between two steps until those that it finds there have had the lock.
//!
//! The words are hints, and nothing else depends on them. Handles whose numbers share a word overwrite each
//! other: then the last of them has its turn first. One that has died or given up costs one pause of
//! [`LONGEST`], which clears its word. Releases before these words neither write nor read them.

use std::time::{Duration, Instant};

use crate::core::Core;
use crate::error::{Error, Result};
use crate::shared::{WAITERS, WAITING};
use crate::storage::{Lock, LockMode};

/// The longest pause. SQLite's busy handler tries again after 100 ms at most.
const LONGEST: Duration = Duration::from_millis(120);
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// The number of a handle. No other one has it, also after a fork, and where containers share the file.
fn number_of_handle() -> u64 {
    // It is for a hint, so without random numbers any one will do.
    getrandom::u64().unwrap_or_default().max(1)
}

impl Core {
    fn own_word(&self) -> usize {
        WAITING + (self.number % WAITERS as u64) as usize
    }

    /// This handle was refused.
    pub(crate) fn waits_for_its_turn(&mut self) -> Result<()> {
        self.is_waiting = true;
        if self.number == 0 {
            self.number = number_of_handle();
        }
        self.store(self.own_word(), self.number)
    }

    /// This handle has the lock.
    pub(crate) fn has_its_turn(&mut self) -> Result<()> {
        match std::mem::take(&mut self.is_waiting) {
            true => self.clear(self.own_word(), self.number),
            false => Ok(()),
        }
    }

    fn clear(&self, word: usize, number: u64) -> Result<()> {
        match self.load(word)? == number {
            true => self.store(word, 0),
            false => Ok(()),
        }
    }

    /// The words of other handles, with their numbers.
    fn others_waiting(&self) -> Result<Vec<(usize, u64)>> {
        let mut waiting = Vec::new();
        for word in WAITING..WAITING + WAITERS {
            let number = self.load(word)?;
            if number != 0 && number != self.number {
                waiting.push((word, number));
            }
        }
        Ok(waiting)
    }

    /// A vacuum has begun, and has kept nobody waiting. These may have given up long ago.
    pub(crate) fn forget_waiting(&self) -> Result<()> {
        for (word, number) in self.others_waiting()? {
            self.clear(word, number)?;
        }
        Ok(())
    }

    /// Between two steps: waits until the handles that were refused have had the lock, and it is free again.
    /// Returns at once if there are none.
    pub(crate) fn let_others_write(&self) -> Result<()> {
        if self.txn.is_some() {
            // The look for a free lock would give the transaction's own back.
            return Err(Error::Transaction("a write transaction is open already"));
        }
        let mut waiting = self.others_waiting()?;
        if waiting.is_empty() {
            return Ok(());
        }
        let until = Instant::now() + LONGEST;
        while Instant::now() < until {
            std::thread::sleep(BETWEEN_LOOKS);
            let mut still = Vec::new();
            for (word, number) in waiting {
                if self.load(word)? == number {
                    still.push((word, number));
                }
            }
            waiting = still;
            if waiting.is_empty() && self.nobody_writes()? {
                return Ok(());
            }
        }
        // Those that have not come say so again when they do.
        for (word, number) in waiting {
            self.clear(word, number)?;
        }
        Ok(())
    }

    fn nobody_writes(&self) -> Result<bool> {
        let taking = Error::io("taking the write lock");
        let is_free = self.storage.lock(Lock::WRITE, LockMode::Exclusive);
        if !is_free.map_err(taking)? {
            return Ok(false);
        }
        self.unlock(Lock::WRITE, LockMode::Exclusive)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Db, Error, MemoryFile, Options};

    fn open(file: &MemoryFile) -> Db {
        Db::open(file.storage(), Options::default()).unwrap()
    }

    /// One that was refused is waited for until it has come, and once if it does not.
    #[test]
    fn a_handle_that_gives_up_is_waited_for_once() {
        let file = MemoryFile::new();
        let (mut a, mut b) = (open(&file), open(&file));
        let waiting = |db: &Db| db.core.others_waiting().unwrap().len();
        for comes in [true, false] {
            a.begin_write().unwrap();
            assert!(matches!(b.begin_write(), Err(Error::Busy)));
            a.rollback().unwrap();
            assert_eq!((waiting(&a), waiting(&b)), (1, 0));
            if comes {
                b.begin_write().unwrap();
                b.rollback().unwrap();
                assert_eq!(waiting(&a), 0);
            }
            a.let_others_write().unwrap();
            assert_eq!(waiting(&a), 0, "{comes}");
        }
    }

    /// One that closes waits no longer.
    #[test]
    fn a_handle_that_closes_is_not_waited_for() {
        let file = MemoryFile::new();
        let (mut a, mut b) = (open(&file), open(&file));
        a.begin_write().unwrap();
        assert!(matches!(b.begin_write(), Err(Error::Busy)));
        assert!(matches!(a.let_others_write(), Err(Error::Transaction(_))));
        a.rollback().unwrap();
        assert_eq!(a.core.others_waiting().unwrap().len(), 1);
        b.close().unwrap();
        assert!(a.core.others_waiting().unwrap().is_empty());
    }

    /// Nobody was kept waiting by a vacuum that has just begun.
    #[test]
    fn a_vacuum_does_not_wait_for_those_of_before() {
        let file = MemoryFile::new();
        let (mut a, mut b) = (open(&file), open(&file));
        a.begin_write().unwrap();
        assert!(matches!(b.begin_write(), Err(Error::Busy)));
        a.rollback().unwrap();
        let mut vacuum = crate::Vacuum::all();
        assert!(a.vacuum_step(&mut vacuum).unwrap().is_none());
        assert!(a.core.others_waiting().unwrap().is_empty());
    }
}
