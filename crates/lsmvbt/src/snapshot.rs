//! Snapshots of a handle.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::core::Taken;
use crate::db::Db;
use crate::error::{Error, Result};
use crate::types::{Durability, Version};

/// A version that stays readable while this is held, across any number of writes.
///
/// It keeps dead entries, and so pages, from reuse: hold it no longer than needed. Dropping
/// releases it, at the handle's next call. Snapshots of one handle at the same version share one
/// read mark.
#[derive(Debug)]
pub struct Snapshot {
    version: Version,
    live: Arc<AtomicBool>,
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.live.store(false, Ordering::Release);
    }
}

impl Snapshot {
    /// The version it shows: the view to read at.
    pub fn version(&self) -> Version {
        self.version
    }
}

impl Db {
    /// A snapshot of the newest version (of the base of the write transaction, if one is open).
    pub fn snapshot(&mut self) -> Result<Snapshot> {
        self.core.check_poison()?;
        self.core.release_snapshots()?;
        let (version, mark) = self.core.mark_newest()?;
        if self.core.txn.is_none() {
            self.core.sync_cache()?;
        }
        Ok(self.hand_out(version, mark))
    }

    /// Time travel: a snapshot of an earlier version that is still kept (see [`Db::set_history`]), or
    /// of which this handle holds a snapshot.
    ///
    /// # Errors
    /// `NoSuchVersion`; `Busy` when other handles were faster a hundred times.
    pub fn snapshot_at(&mut self, version: Version) -> Result<Snapshot> {
        self.core.check_poison()?;
        self.core.release_snapshots()?;
        let held = self.core.snapshots.iter().find(|t| t.version == version.0);
        if let Some(mark) = held.map(|t| t.mark) {
            if self.core.txn.is_none() {
                self.core.sync_cache()?;
            }
            self.core.mark_again(mark);
            return Ok(self.hand_out(version.0, mark));
        }
        // First without a mark: those of others may leave none for a version that is not there.
        self.must_be_kept(version)?;
        let mut mark = None;
        for _ in 0..100 {
            mark = self.core.mark_version(version.0)?;
            if mark.is_some() {
                break;
            }
        }
        let mark = mark.ok_or(Error::Busy)?;
        if let Err(e) = self.must_be_kept(version) {
            self.core.unmark(mark)?;
            return Err(e);
        }
        if self.core.txn.is_none() {
            self.core.sync_cache()?;
        }
        Ok(self.hand_out(version.0, mark))
    }

    /// Refuses a version that cannot be read: it is yet to come, or no longer kept.
    fn must_be_kept(&mut self, version: Version) -> Result<()> {
        let current = Version(self.core.current()?);
        let oldest = Version(self.core.oldest_kept()?);
        if (oldest..=current).contains(&version) {
            return Ok(());
        }
        Err(Error::NoSuchVersion {
            asked: version,
            oldest,
            current,
        })
    }

    /// Releases the marks of dropped snapshots at once. Otherwise a handle that then stays idle
    /// would keep their garbage.
    ///
    /// # Errors
    /// Those of the storage.
    pub fn release_dropped(&mut self) -> Result<()> {
        self.core.release_snapshots()
    }

    /// As [`Db::commit`], and replaces a snapshot by one of the commit, which is taken before another handle can
    /// write. The earlier one is given up before anything is written, so that the commit need not keep what only
    /// that one shows. It stays where nothing was changed. There is none after an error, and where no read mark
    /// could be taken because others were just taking theirs.
    ///
    /// # Errors
    /// Those of [`Db::commit`].
    pub fn commit_and_read(
        &mut self,
        durability: Durability,
        snapshot: &mut Option<Snapshot>,
    ) -> Result<Version> {
        if !self.core.txn()?.dirty.is_empty() {
            *snapshot = None;
        }
        let (version, mark) = self.core.commit_marked(durability, true)?;
        if let Some(mark) = mark {
            *snapshot = Some(self.hand_out(version, mark));
        }
        Ok(Version(version))
    }

    fn hand_out(&mut self, version: u64, mark: usize) -> Snapshot {
        let live = Arc::new(AtomicBool::new(true));
        self.core.snapshots.push(Taken {
            version,
            mark,
            live: live.clone(),
        });
        Snapshot {
            version: Version(version),
            live,
        }
    }
}
