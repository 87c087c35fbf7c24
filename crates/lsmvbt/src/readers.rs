//! Read marks: the versions being read by any handle.
//!
//! There are five marks in shared memory, each with its own lock. A mark has the oldest and the
//! newest version read under it. A reader takes a mark with exactly its version, or sets an unused
//! one. When all are in use, it widens one to its version: less exact, never wrong. So there is no limit
//! to the number of readers, nor to that of their versions. After that it checks whether its version
//! is still the newest one, or one that is kept. If so, every writer that begins later sees the mark.
//! A running one keeps the version: it is its base, or in the history as of its beginning.
//!
//! A mark is only widened by a handle that holds its lock, so that no other handle sets or clears it
//! meanwhile. Its ends move apart atomically, so that of several handles none takes back what
//! another needs.
//!
//! A writer tries the lock of a mark. If it gets the lock, no handle reads there (a dead process's
//! lock is free), and it clears the mark.

use crate::core::Core;
use crate::error::{Error, Result};
use crate::shared::{CURRENT, MARK_HIGH, MARK_LOW};
use crate::storage::{Lock, LockMode, READERS};

/// A mark that this handle holds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    count: u32,
    low: u64,
    high: u64,
}

/// Versions whose dead entries must stay.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keep {
    ranges: Vec<(u64, u64)>,
}

impl Keep {
    pub(crate) fn add(&mut self, low: u64, high: u64) {
        self.ranges.push((low, high));
    }

    /// True if any of them sees an entry of this lifetime.
    pub(crate) fn sees(&self, start: u64, end: u64) -> bool {
        self.ranges
            .iter()
            .any(|(low, high)| *low < end && *high >= start)
    }

    /// The oldest of them.
    pub(crate) fn oldest(&self) -> u64 {
        self.ranges.iter().map(|r| r.0).min().unwrap_or(0)
    }
}

fn lock_of(mark: usize) -> Lock {
    Lock(Lock::READ.0 + mark as u8)
}

impl Core {
    fn try_lock(&self, lock: Lock, mode: LockMode) -> Result<bool> {
        self.storage
            .lock(lock, mode)
            .map_err(Error::io("taking a lock"))
    }

    pub(crate) fn unlock(&self, lock: Lock, mode: LockMode) -> Result<()> {
        self.storage
            .unlock(lock, mode)
            .map_err(Error::io("giving back a lock"))
    }

    fn mark(&self, i: usize) -> Result<(u64, u64)> {
        Ok((self.load(MARK_LOW + i)?, self.load(MARK_HIGH + i)?))
    }

    /// Takes a mark for the newest version; returns the version and the mark.
    pub(crate) fn mark_newest(&mut self) -> Result<(u64, usize)> {
        for _ in 0..1000 {
            let version = self.load(CURRENT)?;
            let Some(mark) = self.mark_version(version)? else {
                continue;
            };
            if self.load(CURRENT)? == version {
                return Ok((version, mark));
            }
            self.unmark(mark)?;
        }
        Err(Error::Busy)
    }

    /// Takes a mark that covers a version; `None` if another handle was faster: try again.
    pub(crate) fn mark_version(&mut self, version: u64) -> Result<Option<usize>> {
        for (i, held) in self.held.iter_mut().enumerate() {
            if held.count > 0 && held.low <= version && version <= held.high {
                held.count += 1;
                return Ok(Some(i));
            }
        }
        for i in 0..READERS {
            if self.held[i].count == 0
                && self.mark(i)? == (version, version)
                && self.share(i, version)?
            {
                return Ok(Some(i));
            }
        }
        for i in 0..READERS {
            if self.held[i].count == 0 && self.try_lock(lock_of(i), LockMode::Exclusive)? {
                self.store(MARK_LOW + i, version)?;
                self.store(MARK_HIGH + i, version)?;
                self.unlock(lock_of(i), LockMode::Exclusive)?;
                return Ok(self.share(i, version)?.then_some(i));
            }
        }
        self.widen_mark(version)
    }

    /// Takes a mark that this handle holds once more.
    pub(crate) fn mark_again(&mut self, mark: usize) {
        self.held[mark].count += 1;
    }

    fn share(&mut self, i: usize, version: u64) -> Result<bool> {
        if !self.try_lock(lock_of(i), LockMode::Shared)? {
            return Ok(false);
        }
        let (low, high) = self.mark(i)?;
        if low == 0 || low > version || high < version {
            self.unlock(lock_of(i), LockMode::Shared)?;
            return Ok(false);
        }
        self.held[i] = Held {
            count: 1,
            low: version,
            high: version,
        };
        Ok(true)
    }

    /// The mark to widen, so that few versions come between: the newest of those that begin at this
    /// version or below, otherwise the oldest.
    fn nearest_mark(&self, version: u64) -> Result<Option<usize>> {
        let mut best: Option<((bool, u64), usize)> = None;
        for i in 0..READERS {
            let (low, _) = self.mark(i)?;
            let distance = (low > version, low.abs_diff(version));
            if low != 0 && best.is_none_or(|b| distance < b.0) {
                best = Some((distance, i));
            }
        }
        Ok(best.map(|b| b.1))
    }

    fn widen_mark(&mut self, version: u64) -> Result<Option<usize>> {
        let Some(i) = self.nearest_mark(version)? else {
            return Ok(None);
        };
        if self.held[i].count == 0 && !self.try_lock(lock_of(i), LockMode::Shared)? {
            return Ok(None);
        }
        self.storage
            .shm_max(MARK_HIGH + i, version)
            .and_then(|()| self.storage.shm_min(MARK_LOW + i, version))
            .map_err(Error::io("writing shared memory"))?;
        let (low, high) = self.mark(i)?;
        if low == 0 || low > version || high < version {
            if self.held[i].count == 0 {
                self.unlock(lock_of(i), LockMode::Shared)?;
            }
            return Ok(None);
        }
        let held = &mut self.held[i];
        if held.count == 0 {
            *held = Held {
                count: 0,
                low: version,
                high: version,
            };
        }
        held.count += 1;
        held.low = held.low.min(version);
        held.high = held.high.max(version);
        Ok(Some(i))
    }

    /// Releases a mark.
    pub(crate) fn unmark(&mut self, mark: usize) -> Result<()> {
        self.held[mark].count -= 1;
        if self.held[mark].count == 0 {
            self.unlock(lock_of(mark), LockMode::Shared)?;
        }
        Ok(())
    }

    /// The ranges of versions being read now. Clears marks without a holder. The caller must hold
    /// WRITE.
    pub(crate) fn marks_in_use(&mut self) -> Result<Vec<(u64, u64)>> {
        let mut ranges = Vec::new();
        for i in 0..READERS {
            if self.mark(i)?.0 == 0 {
                continue;
            }
            if self.held[i].count == 0 && self.try_lock(lock_of(i), LockMode::Exclusive)? {
                self.store(MARK_LOW + i, 0)?;
                self.store(MARK_HIGH + i, 0)?;
                self.unlock(lock_of(i), LockMode::Exclusive)?;
                continue;
            }
            let (low, high) = self.mark(i)?;
            if low != 0 {
                ranges.push((low, high));
            }
        }
        Ok(ranges)
    }
}
