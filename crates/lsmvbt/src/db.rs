//! The public handle. Its promises stand here; the modules below implement them.

use std::time::Duration;

use crate::core::Core;
use crate::cursor::{Cursor, Seek};
use crate::error::{Error, Result};
use crate::history::History;
use crate::payloads::Sought;
use crate::snapshot::Snapshot;
use crate::storage::Storage;
use crate::tree::catalog::METAS;
use crate::tree::edit::NewEntry;
use crate::tree::search::Target;
use crate::types::{
    Change, Durability, Options, Stats, Status, TreeId, TreeKind, Vacuumed, Version,
};
use crate::vacuum::Vacuum;

/// A handle on a database: at most one write transaction, any number of snapshots.
///
/// Several handles, of one process or several, may have the same database open. At most one of them
/// has a write transaction, and readers never wait for it. A handle belongs to one thread at a
/// time.
///
/// # Views
/// Every read takes the [`Version`] it reads at. That is [`Snapshot::version`] of a held snapshot,
/// or [`Db::write_version`] inside a write transaction, which shows its own changes.
pub struct Db {
    pub(crate) core: Core,
    closed: bool,
}

impl Drop for Db {
    fn drop(&mut self) {
        if !self.closed {
            // No caller can get the error. Commits stay committed, and the next open recovers.
            let _ = self.core.close();
        }
    }
}

impl Db {
    /// Opens a database; an empty file becomes one. Recovers it when no handle has it open and it
    /// was not closed cleanly.
    ///
    /// # Errors
    /// `NotADatabase`, `NewerFormat`, `Damaged`, `Io`; `Busy` when another handle is recovering.
    pub fn open(storage: Box<dyn Storage>, options: Options) -> Result<Db> {
        Ok(Db {
            core: Core::open(storage, options)?,
            closed: false,
        })
    }

    /// Ends the handle as its process's death does: nothing is written, and its locks are free.
    #[doc(hidden)]
    pub fn abandon(mut self) {
        self.closed = true;
    }

    /// Closes the handle, and rolls back an open transaction. The last handle writes a clean
    /// header, so that the next open need not read the marked regions. Dropping the handle does the
    /// same, without returning errors.
    pub fn close(mut self) -> Result<()> {
        self.closed = true;
        self.core.close()
    }

    // ---- reading

    /// The newest version, of any process. One load of shared memory.
    pub fn current_version(&self) -> Result<Version> {
        Ok(Version(self.core.current()?))
    }

    /// Pages in the file in use or free. One load of shared memory.
    pub fn pages(&self) -> Result<u32> {
        Ok(self.core.load(crate::shared::HWM)? as u32)
    }

    /// A cursor over a tree at a view. It is not positioned.
    pub fn cursor(&mut self, view: Version, tree: TreeId) -> Result<Cursor> {
        Cursor::new(&mut self.core, view, tree)
    }

    /// The value of a key in a [`TreeKind::Bytes`] tree.
    pub fn get(&mut self, view: Version, tree: TreeId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut cursor = self.cursor(view, tree)?;
        if cursor.seek(self, key)? == Seek::Exact {
            Ok(Some(cursor.value(self)?))
        } else {
            Ok(None)
        }
    }

    /// The value of a key in a [`TreeKind::Integer`] tree.
    pub fn get_integer(
        &mut self,
        view: Version,
        tree: TreeId,
        key: i64,
    ) -> Result<Option<Vec<u8>>> {
        let mut cursor = self.cursor(view, tree)?;
        if cursor.seek_integer(self, key)? == Seek::Exact {
            Ok(Some(cursor.value(self)?))
        } else {
            Ok(None)
        }
    }

    /// All trees of a version, in the order of their numbers.
    pub fn trees(&mut self, view: Version) -> Result<Vec<(TreeId, TreeKind)>> {
        let mut trees = Vec::new();
        for (tree, root) in self.core.roots(view.0)? {
            trees.push((TreeId(tree), self.core.kind_of(root, tree)?));
        }
        Ok(trees)
    }

    /// The numbers of all trees of a version, in order. Reads the catalog only.
    pub fn tree_ids(&mut self, view: Version) -> Result<Vec<TreeId>> {
        let roots = self.core.roots(view.0)?;
        Ok(roots.into_iter().map(|(tree, _)| TreeId(tree)).collect())
    }

    /// One of 16 numbers that are versioned with the data (`index` 0 to 15). Never set: 0.
    pub fn meta(&mut self, view: Version, index: usize) -> Result<u32> {
        if index >= METAS {
            return Err(Error::TooBig("the number of the meta value"));
        }
        self.core.meta(view.0, index)
    }

    /// All of these numbers, in one look at their page.
    pub fn metas(&mut self, view: Version) -> Result<[u32; METAS]> {
        self.core.metas(view.0)
    }

    /// Entries of a tree, counted one leaf at a time.
    pub fn count(&mut self, view: Version, tree: TreeId) -> Result<u64> {
        self.core.count(view.0, tree.0)
    }

    /// The rows that differ between two `Integer` trees, each at a version, in the order of their
    /// keys. `None` is a tree without rows. If both are one tree, each of its pages is read once. Then
    /// only rows of leaves that have changed since the older version are compared. The caller holds
    /// a [`Snapshot`] of each version.
    ///
    /// # Errors
    /// `WrongKind`, `NoSuchTree`.
    pub fn diff(
        &mut self,
        old: Option<(Version, TreeId)>,
        new: Option<(Version, TreeId)>,
    ) -> Result<Vec<Change>> {
        self.core.diff(old, new)
    }

    /// Walks all of a version. Verifies checksums, structure, the order of integer keys, and that
    /// no page in use is free. Returns one line per finding; none: all is well. Unreachable pages
    /// from crashes are no finding: see [`Db::reclaim`].
    pub fn check(&mut self) -> Result<Vec<String>> {
        self.core.check()
    }

    // ---- writing

    /// Begins a write transaction on the newest version.
    ///
    /// # Errors
    /// `Busy` if another handle is writing.
    pub fn begin_write(&mut self) -> Result<Version> {
        Ok(Version(self.core.begin_write(None)?))
    }

    /// As [`Db::begin_write`], but only without writes since the snapshot.
    ///
    /// # Errors
    /// `StaleSnapshot` if there was one, `Busy`.
    pub fn begin_write_from(&mut self, snapshot: &Snapshot) -> Result<Version> {
        Ok(Version(self.core.begin_write(Some(snapshot.version().0))?))
    }

    /// The version that the open write transaction is making, if one is open: the view of its own
    /// changes.
    pub fn write_version(&self) -> Option<Version> {
        self.core.txn.as_ref().map(|t| Version(t.version))
    }

    /// Makes a tree. The number is the smallest free one.
    pub fn create_tree(&mut self, kind: TreeKind) -> Result<TreeId> {
        Ok(TreeId(self.core.changing(|core| core.create_tree(kind))?))
    }

    /// Removes a tree. Its pages are free when no reader can see them any more.
    pub fn drop_tree(&mut self, tree: TreeId) -> Result<()> {
        self.core.changing(|core| core.drop_tree(tree.0))
    }

    /// Removes all entries of a tree, which stays. Its pages go as with [`Db::drop_tree`].
    pub fn clear_tree(&mut self, tree: TreeId) -> Result<()> {
        self.core.changing(|core| core.clear_tree(tree.0))
    }

    /// Sets one of the 16 numbers.
    pub fn set_meta(&mut self, index: usize, value: u32) -> Result<()> {
        if index >= METAS {
            return Err(Error::TooBig("the number of the meta value"));
        }
        self.core.changing(|core| core.set_meta(index, value))
    }

    /// Inserts or replaces in a [`TreeKind::Bytes`] tree.
    pub fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<()> {
        let new = NewEntry::Bytes(key, value);
        self.put_entry(tree, &new, &mut Target::Bytes(key))
    }

    /// Inserts or replaces in a [`TreeKind::Integer`] tree.
    pub fn put_integer(&mut self, tree: TreeId, key: i64, value: &[u8]) -> Result<()> {
        let new = NewEntry::Integer(key, value);
        self.put_entry(tree, &new, &mut Target::Integer(key))
    }

    /// Inserts a key into a [`TreeKind::Custom`] tree, or replaces the one that compares equal.
    /// `sought` gives the order of a stored key relative to the new one.
    pub fn put_custom(&mut self, tree: TreeId, key: &[u8], sought: &mut dyn Sought) -> Result<()> {
        self.put_entry(tree, &NewEntry::Custom(key), &mut Target::Custom(sought))
    }

    /// Removes a key of a [`TreeKind::Bytes`] tree; false if there is none.
    pub fn delete(&mut self, tree: TreeId, key: &[u8]) -> Result<bool> {
        self.delete_target(tree, TreeKind::Bytes, &mut Target::Bytes(key))
    }

    /// Removes a key of a [`TreeKind::Integer`] tree; false if there is none.
    pub fn delete_integer(&mut self, tree: TreeId, key: i64) -> Result<bool> {
        self.delete_target(tree, TreeKind::Integer, &mut Target::Integer(key))
    }

    /// Removes the current entry of a cursor. The cursor must be of the write transaction's view
    /// and not stale. Afterwards it stands between the neighbors: `next` goes to the one after,
    /// `prev` to the one before (a `Custom` cursor must seek again).
    pub fn delete_at(&mut self, cursor: &mut Cursor) -> Result<()> {
        let (mut path, at) = cursor.path(&self.core)?;
        self.core.changing(|core| {
            core.delete_entry(cursor.tree().0, &mut path, at)?;
            core.spill_if_needed()
        })
    }

    /// As [`Db::delete_at`], and ends the cursor. A page that the transaction has changed already is
    /// then not copied: nothing else holds it.
    pub fn delete_with(&mut self, cursor: Cursor) -> Result<()> {
        let tree = cursor.tree().0;
        let (mut path, at) = cursor.path(&self.core)?;
        drop(cursor);
        self.core.changing(|core| {
            core.delete_entry(tree, &mut path, at)?;
            core.spill_if_needed()
        })
    }

    /// Changes a part of the value of a cursor's entry, in an `Integer` tree. The cursor must be of the
    /// write transaction's view and not stale; it must seek again afterwards. The first such change
    /// of an entry in a transaction copies the value. The others touch only the pages that they
    /// change.
    ///
    /// # Errors
    /// `TooBig` when the range passes the value's end.
    pub fn overwrite_at(&mut self, cursor: &Cursor, offset: u32, data: &[u8]) -> Result<()> {
        let tree = cursor.tree();
        let (path, at) = cursor.path(&self.core)?;
        let Some((page, _)) = path.last().copied() else {
            return Err(Error::CursorInvalid);
        };
        let offset = offset as usize;
        let changing = |core: &mut Core| core.overwrite_payload(page, at, offset, data);
        if self.core.changing(changing)? {
            return Ok(());
        }
        let mut whole = cursor.value(self)?;
        // The range has been checked.
        if let Some(part) = whole.get_mut(offset..offset + data.len()) {
            part.copy_from_slice(data);
        }
        self.put_integer(tree, cursor.integer_key()?, &whole)
    }

    // ---- the end of a transaction

    /// Opens a savepoint within the transaction and returns its number: 0 for the outermost.
    pub fn savepoint(&mut self) -> Result<usize> {
        self.core.savepoint()
    }

    /// The number of open savepoints.
    pub fn savepoints(&self) -> usize {
        self.core.txn.as_ref().map_or(0, |t| t.savepoints.len())
    }

    /// Undoes all changes since savepoint `number`, which stays open; those inside it are gone.
    pub fn rollback_to(&mut self, number: usize) -> Result<()> {
        self.core.rollback_to(number)
    }

    /// Forgets savepoint `number` and those inside it; the changes since then stay.
    pub fn release(&mut self, number: usize) -> Result<()> {
        self.core.release_savepoint(number)
    }

    /// Does what can be refused before anything is written: the header, the place of the commit
    /// record, slots. Optional; a change after this makes it necessary again, and [`Db::commit`] does it.
    /// Only [`Db::write`] finds a full disk.
    pub fn prepare(&mut self) -> Result<()> {
        self.core.prepare()
    }

    /// Writes the transaction: everything of [`Db::commit`] that can fail. Only a commit, which then
    /// publishes it, or a rollback may follow. Optional, for a commit together with other databases.
    /// After a crash in between, the transaction is committed.
    ///
    /// # Errors
    /// Those of [`Db::commit`].
    pub fn write(&mut self, durability: Durability) -> Result<()> {
        self.core.write(durability)
    }

    /// Commits. The new version is that of [`Db::write_version`], or the base when nothing was
    /// changed.
    ///
    /// # Errors
    /// `Io` before anything was written: the transaction is still open. Where there is no room for
    /// its new pages, it is rolled back, and over. After that, it is over and its outcome unknown,
    /// and every later call of any handle returns `Poisoned`.
    pub fn commit(&mut self, durability: Durability) -> Result<Version> {
        Ok(Version(self.core.commit(durability)?))
    }

    /// Undoes the transaction.
    pub fn rollback(&mut self) -> Result<()> {
        self.core.txn()?;
        self.core.rollback()
    }

    /// Flushes the commits made with [`Durability::Later`].
    pub fn flush(&mut self) -> Result<()> {
        self.core.flush()
    }

    // ---- the database as a whole

    /// Keeps the `versions` newest versions readable by [`Db::snapshot_at`] (0: none but the
    /// newest; off). Stored in the file. Must not be called inside a write transaction.
    pub fn set_history(&mut self, versions: u64) -> Result<()> {
        self.core.set_history(History::Versions(versions))
    }

    /// Keeps the versions of the last `seconds` readable, instead of a number of them. A jump of the
    /// clock takes an eighth of that time at most, and a pause without commits adds to it. Stored in
    /// the file. Must not be called inside a write transaction.
    ///
    /// One commit in each 64th part of that time writes the directory as one page more. 0 seconds are
    /// no history.
    pub fn set_history_time(&mut self, seconds: u32) -> Result<()> {
        self.core.set_history(match seconds {
            0 => History::Versions(0),
            _ => History::Seconds(seconds),
        })
    }

    /// The version that was the newest at a time, in seconds since 1970, with a history of
    /// [`Db::set_history_time`]. It is never younger than `time`. It may be the one that was the
    /// newest up to a 64th part of the history, or a second, before. If the clock was set back, the
    /// newest version that fits counts.
    ///
    /// # Errors
    /// `NoTimes`, `NoVersionAt`.
    pub fn version_at(&mut self, time: u32) -> Result<Version> {
        self.core.version_at(time).map(Version)
    }

    /// Finds unreachable pages from crashes and frees them at once. Transactions do so in steps. Reads
    /// everything, and needs a database without readers, transactions and history (`Busy`). Returns
    /// their number.
    pub fn reclaim(&mut self) -> Result<u32> {
        self.core.reclaim()
    }

    /// Makes the file shorter. Packs sparse pages, moves those at the end to free ones, and gives the end
    /// back. Takes transactions of a bounded number of pages each. Reads everything. Not within a write
    /// transaction.
    ///
    /// Where a reader or the history keeps earlier versions, it only gives back what is free at the end,
    /// and says so.
    ///
    /// # Errors
    /// `Busy` if another handle is writing: [`Db::vacuum_step`] can go on. All steps so far stay. A full
    /// disk.
    pub fn vacuum(&mut self) -> Result<Vacuumed> {
        self.vacuum_by(Vacuum::all())
    }

    /// Makes the file shorter by so many pages at most. Moves pages, and packs none.
    ///
    /// # Errors
    /// As [`Db::vacuum`].
    pub fn vacuum_part(&mut self, pages: u32) -> Result<Vacuumed> {
        self.vacuum_by(Vacuum::part(pages))
    }

    fn vacuum_by(&mut self, mut vacuum: Vacuum) -> Result<Vacuumed> {
        loop {
            if let Some(done) = self.core.vacuum_step(&mut vacuum)? {
                return Ok(done);
            }
            self.let_others_write()?;
        }
    }

    /// The next step of a vacuum: one transaction, of a bounded number of pages. Its result after the
    /// last one, `None` before. Others may write between two steps, also this handle. To end a vacuum
    /// early loses nothing.
    ///
    /// # Errors
    /// `Busy` if another handle is writing: call it again. After other errors a new vacuum can begin.
    pub fn vacuum_step(&mut self, vacuum: &mut Vacuum) -> Result<Option<Vacuumed>> {
        self.core.vacuum_step(vacuum)
    }

    /// Between two steps of a vacuum: waits until other handles that were refused meanwhile have begun to
    /// write, 120 ms at most. Returns at once if nobody was.
    pub fn let_others_write(&self) -> Result<()> {
        self.core.let_others_write()
    }

    /// Pages by which [`Db::vacuum_part`] could make the file shorter, as far as
    /// is known without reading it. Within a write transaction.
    pub fn removable_pages(&mut self) -> Result<u32> {
        self.core.txn()?;
        Ok(self.core.removable())
    }

    /// The current state of the database.
    pub fn status(&mut self) -> Result<Status> {
        self.core.status()
    }

    /// Says whether [`Torn::Auto`](crate::Torn::Auto) is `Trust` or `Double` here, and why.
    pub fn torn_auto(&self) -> String {
        self.core.storage.atomic_writes().reason
    }

    /// The work of this handle so far.
    pub fn stats(&self) -> Stats {
        self.core.stats
    }

    /// Changes the five switches from now on. Not inside a write transaction.
    pub fn set_optimizations(&mut self, optimizations: crate::types::Optimizations) -> Result<()> {
        if self.core.txn.is_some() {
            return Err(Error::Transaction("a write transaction is open"));
        }
        self.core.options.optimizations = optimizations;
        Ok(())
    }

    /// Changes [`Options::cache_pages`] of this handle.
    pub fn set_cache_pages(&mut self, pages: usize) {
        self.core.options.cache_pages = pages;
        self.core.cache.set_limit(pages);
    }

    /// Changes [`Options::recovery_pages`] of this handle. It holds from the next time on that this
    /// handle chooses the size of regions.
    pub fn set_recovery_pages(&mut self, pages: u32) {
        self.core.options.recovery_pages = pages;
    }

    /// [`Options::recovery_pages`] of this handle.
    pub fn recovery_pages(&self) -> u32 {
        self.core.options.recovery_pages
    }

    /// Changes [`Options::later`] of this handle.
    pub fn set_later(&mut self, later: Duration) {
        self.core.options.later = later;
    }

    /// Sets the effect of a power cut on a page write, for all handles until the last is closed.
    /// (The first handle's [`Options::torn`] decides for all later ones.)
    ///
    /// # Errors
    /// `Busy` if another handle is writing; not inside a write transaction.
    pub fn set_torn(&mut self, torn: crate::types::Torn) -> Result<()> {
        self.core.set_torn(torn)
    }

    fn put_entry(
        &mut self,
        tree: TreeId,
        new: &NewEntry<'_>,
        target: &mut Target<'_>,
    ) -> Result<()> {
        self.core.changing(|core| {
            core.put(tree.0, new, target)?;
            core.spill_if_needed()
        })
    }

    fn delete_target(
        &mut self,
        tree: TreeId,
        kind: TreeKind,
        target: &mut Target<'_>,
    ) -> Result<bool> {
        let view = self.core.version()?;
        let root = self.core.root(tree.0, view)?;
        if self.core.kind_of(root, tree.0)? != kind {
            return Err(Error::WrongKind(tree));
        }
        let (mut path, place) = self.core.way(tree.0, target)?;
        let Some(at) = place.exact else {
            return Ok(false);
        };
        self.core.changing(|core| {
            core.delete_entry(tree.0, &mut path, at)?;
            core.spill_if_needed()
        })?;
        Ok(true)
    }
}
