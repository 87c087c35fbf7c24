//! LS-MVBT as an engine of SQLite: `crates/lsmvbt` on the file that SQLite's VFS has opened.
//!
//! A cursor of LS-MVBT belongs to one view of the database. A cursor of SQLite belongs to a
//! connection, whose view changes when it begins to write, commits, or rolls back. Before that the
//! glue has saved the cursors' places. So a seek makes a new cursor if the view has changed.

mod diff;
pub(crate) mod pragmas;
mod stored;
mod vacuum;

use std::cmp::Ordering;
use std::ffi::CStr;
use std::io;

use ::lsmvbt::{
    Abbreviation, Db, Found, Optimizations, Options, Payloads, Snapshot, Sought, TreeId, Version,
};

use crate::engine::{
    Comparison, Connection, CursorId, Durability, Engine, Error, Place, Result, Row, Seek, TreeKind,
};
use crate::ffi::{code, code_of_vfs};
use stored::Stored;
use vacuum::Vacuuming;

/// The engine.
pub(crate) struct Lsmvbt;

const _: () = assert!(::lsmvbt::READABLE_BEHIND >= crate::engine::READABLE_BEHIND);

impl Engine for Lsmvbt {
    fn name(&self) -> &'static CStr {
        c"lsmvbt"
    }

    fn magic(&self) -> [u8; 16] {
        *::lsmvbt::MAGIC
    }

    fn owns(&self, magic: &[u8]) -> bool {
        // All but the digit of the format version.
        magic.starts_with(&::lsmvbt::MAGIC[..14])
    }

    fn open(&self, place: Place) -> Result<Box<dyn Connection>> {
        let options = Options {
            read_only: place.read_only,
            new_in_place: place.is_copy,
            ..Options::default()
        };
        let stored = Stored::new(place.file, place.path.clone());
        stored.claim_name().map_err(error)?;
        let mut db = Db::open(Box::new(stored), options).map_err(error)?;
        if !place.read_only && make_schema(&mut db)? {
            // SQLite syncs its journals' directory, and with it the database's name. There is no
            // journal here, and under another VFS there may be no directory.
            let directory = place.path.parent().map(std::fs::File::open);
            if let Some(Ok(directory)) = directory {
                let _ = directory.sync_all();
            }
        }
        Ok(Box::new(Session {
            db,
            snapshot: None,
            pinned: None,
            optimizations: Optimizations::default(),
            view: Version(0),
            seen: None,
            data_version: 1,
            vacuuming: Vacuuming::default(),
            cursors: Vec::new(),
        }))
    }
}

/// Makes tree 1, the schema's table. It always exists, except in a new database and in one whose
/// making was cut short. True if this call made it.
fn make_schema(db: &mut Db) -> Result<bool> {
    let is_there = |db: &mut Db, view| Ok(!db.tree_ids(view).map_err(error)?.is_empty());
    let newest = db.snapshot().map_err(error)?;
    if is_there(db, newest.version())? {
        return Ok(false);
    }
    drop(newest);
    let view = db.begin_write().map_err(error)?;
    if is_there(db, view)? {
        db.rollback().map_err(error)?;
        return Ok(false);
    }
    let tree = db.create_tree(::lsmvbt::TreeKind::Integer).map_err(error)?;
    if tree != TreeId(SCHEMA) {
        return Err(Error::Damaged(format!(
            "the first tree has the number {}",
            tree.0
        )));
    }
    db.commit(::lsmvbt::Durability::Flush).map_err(error)?;
    Ok(true)
}

/// The root of `sqlite_schema`.
const SCHEMA: u32 = 1;

/// A connection.
struct Session {
    db: Db,
    /// The version that it reads, or read before it began to write.
    snapshot: Option<Snapshot>,
    /// An earlier version that it reads instead of the newest.
    pinned: Option<Snapshot>,
    optimizations: Optimizations,
    /// The view for a cursor that seeks now.
    view: Version,
    /// The newest version that it has seen or made.
    seen: Option<Version>,
    data_version: u32,
    vacuuming: Vacuuming,
    /// Closed ones stay for the next that are opened.
    cursors: Vec<Position>,
}

/// A cursor of SQLite, with the engine's cursor once it has been positioned.
struct Position {
    tree: TreeId,
    cursor: Option<::lsmvbt::Cursor>,
    is_open: bool,
}

/// Converts an error of the engine to one of the glue.
fn error(error: ::lsmvbt::Error) -> Error {
    match error {
        ::lsmvbt::Error::Busy => Error::Busy,
        ::lsmvbt::Error::StaleSnapshot { .. } => Error::StaleSnapshot,
        ::lsmvbt::Error::ReadOnly => Error::ReadOnly,
        ::lsmvbt::Error::NeedsRecovery => Error::NeedsRecovery(error.to_string()),
        ::lsmvbt::Error::NoMemory => Error::NoMemory,
        ::lsmvbt::Error::NotADatabase => Error::NotADatabase,
        ::lsmvbt::Error::Compare(code) => Error::Compare(code),
        ::lsmvbt::Error::NoSuchTree(tree) => Error::NoSuchTree(tree.0),
        ::lsmvbt::Error::TooBig(what) => Error::TooBig(what),
        ::lsmvbt::Error::Io { ref source, .. } if source.kind() == io::ErrorKind::StorageFull => {
            Error::Full
        }
        ::lsmvbt::Error::Io { ref source, .. } => match code_of_vfs(source) {
            Some(code) => Error::Vfs(code, error.to_string()),
            None => Error::Io(error.to_string()),
        },
        ::lsmvbt::Error::OtherFile => Error::Vfs(code::CANTOPEN, error.to_string()),
        ::lsmvbt::Error::Poisoned => Error::Io(error.to_string()),
        ::lsmvbt::Error::NewerFormat { .. } => Error::Newer(error.to_string()),
        ::lsmvbt::Error::Damaged { .. } | ::lsmvbt::Error::WrongKind(_) => {
            Error::Damaged(error.to_string())
        }
        ::lsmvbt::Error::NoSuchVersion { .. }
        | ::lsmvbt::Error::NoVersionAt { .. }
        | ::lsmvbt::Error::NoTimes => Error::Refused(error.to_string()),
        other => Error::Misuse(other.to_string()),
    }
}

impl Position {
    fn closed(tree: TreeId) -> Self {
        Self {
            tree,
            cursor: None,
            is_open: false,
        }
    }
}

fn no_such_cursor() -> Error {
    Error::Misuse("no such cursor".to_owned())
}

fn nowhere() -> Error {
    Error::Misuse("the cursor stands on no entry".to_owned())
}

impl Session {
    fn position(&self, cursor: CursorId) -> Result<&Position> {
        let position = self.cursors.get(cursor as usize);
        position.filter(|p| p.is_open).ok_or_else(no_such_cursor)
    }

    /// The engine's cursor, which has been positioned, and the database.
    fn positioned(&mut self, cursor: CursorId) -> Result<(&mut Db, &mut ::lsmvbt::Cursor)> {
        let Self { db, cursors, .. } = self;
        let position = cursors.get_mut(cursor as usize);
        let position = position.filter(|p| p.is_open).ok_or_else(no_such_cursor)?;
        Ok((db, position.cursor.as_mut().ok_or_else(nowhere)?))
    }

    /// The engine's cursor at the current view, about to be positioned, and the database.
    fn seeking(&mut self, cursor: CursorId) -> Result<(&mut Db, &mut ::lsmvbt::Cursor)> {
        let Self {
            db, cursors, view, ..
        } = self;
        let position = cursors.get_mut(cursor as usize);
        let position = position.filter(|p| p.is_open).ok_or_else(no_such_cursor)?;
        if position
            .cursor
            .as_ref()
            .is_none_or(|cursor| cursor.view() != *view)
        {
            position.cursor = Some(db.cursor(*view, position.tree).map_err(error)?);
        }
        let cursor = position.cursor.as_mut().ok_or_else(nowhere)?;
        Ok((db, cursor))
    }

    /// A connection that may only read finds no tree at all where another one is just making the file, or has
    /// died at it: the database is empty.
    fn or_no_schema<T>(&mut self, found: Result<T>, nothing: T) -> Result<T> {
        match found {
            Err(Error::NoSuchTree(SCHEMA))
                if self.db.tree_ids(self.view).map_err(error)?.is_empty() =>
            {
                Ok(nothing)
            }
            found => found,
        }
    }

    /// Reads the newest version.
    fn look(&mut self) -> Result<()> {
        let snapshot = match &self.pinned {
            Some(pinned) => self.db.snapshot_at(pinned.version()),
            None => self.db.snapshot(),
        }
        .map_err(error)?;
        self.view = snapshot.version();
        self.snapshot = Some(snapshot);
        Ok(())
    }

    fn lose(&mut self, cursor: CursorId) {
        if let Some(position) = self.cursors.get_mut(cursor as usize) {
            position.cursor = None;
        }
    }
}

fn found(seek: ::lsmvbt::Seek) -> Seek {
    match seek {
        ::lsmvbt::Seek::Empty => Seek::Empty,
        ::lsmvbt::Seek::Exact => Seek::At(Ordering::Equal),
        ::lsmvbt::Seek::Smaller => Seek::At(Ordering::Less),
        ::lsmvbt::Seek::Larger => Seek::At(Ordering::Greater),
    }
}

fn waits_for(durability: Durability) -> ::lsmvbt::Durability {
    match durability {
        Durability::Flush => ::lsmvbt::Durability::Flush,
        Durability::Later => ::lsmvbt::Durability::Later,
    }
}

/// SQLite's comparison in the engine's form.
struct BySqlite<'a>(&'a mut dyn Comparison);

fn comparison_failed(error: Error) -> ::lsmvbt::Error {
    match error {
        Error::Compare(code) => ::lsmvbt::Error::Compare(code),
        _ => ::lsmvbt::Error::TooBig("a record"),
    }
}

impl Sought for BySqlite<'_> {
    fn compare(&mut self, stored: &[u8]) -> ::lsmvbt::Result<Ordering> {
        self.0.compare(stored).map_err(comparison_failed)
    }

    fn search(&mut self, keys: Payloads<'_>, from: usize) -> ::lsmvbt::Result<Found> {
        self.0.search(keys, from).map_err(comparison_failed)
    }

    fn abbreviation(&self) -> Option<Abbreviation> {
        self.0.abbreviation()
    }

    fn abbreviate(&self, keys: Payloads<'_>) -> Vec<u64> {
        self.0.abbreviate(keys)
    }
}

impl Connection for Session {
    fn begin_read(&mut self) -> Result<()> {
        self.look()?;
        if self.seen.is_some_and(|seen| seen != self.view) {
            self.data_version = self.data_version.wrapping_add(1);
        }
        self.seen = Some(self.view);
        Ok(())
    }

    fn begin_write(&mut self) -> Result<()> {
        if self.pinned.is_some() {
            return Err(Error::ReadOnly);
        }
        let was_idle = self.snapshot.is_none();
        if was_idle {
            self.begin_read()?;
        }
        let snapshot = self
            .snapshot
            .as_ref()
            .ok_or_else(|| Error::Misuse("no snapshot".to_owned()))?;
        match self.db.begin_write_from(snapshot) {
            Ok(version) => {
                self.view = version;
                Ok(())
            }
            Err(problem) => {
                if was_idle {
                    self.snapshot = None;
                }
                Err(error(problem))
            }
        }
    }

    fn prepare(&mut self) -> Result<()> {
        self.db.prepare().map_err(error)
    }

    fn write(&mut self, durability: Durability) -> Result<()> {
        self.db.write(waits_for(durability)).map_err(error)
    }

    fn flush(&mut self) -> Result<()> {
        self.db.flush().map_err(error)
    }

    fn commit(&mut self, durability: Durability) -> Result<()> {
        // Where no mark is available, statements that go on have no snapshot until they end.
        let version = self
            .db
            .commit_and_read(waits_for(durability), &mut self.snapshot)
            .map_err(error)?;
        self.seen = Some(version);
        self.view = version;
        Ok(())
    }

    fn rollback(&mut self) -> Result<()> {
        // A commit that found the disk full has rolled back already.
        if self.db.write_version().is_some() {
            self.db.rollback().map_err(error)?;
        }
        match &self.snapshot {
            Some(snapshot) => self.view = snapshot.version(),
            None => self.look()?,
        }
        Ok(())
    }

    fn end_read(&mut self) {
        self.snapshot = None;
        self.let_go();
    }

    fn let_go(&mut self) {
        // The next call, or the end of the process, releases the rest.
        let _ = self.db.release_dropped();
    }

    fn savepoints(&self) -> usize {
        self.db.savepoints()
    }

    fn savepoint(&mut self) -> Result<()> {
        self.db.savepoint().map(|_| ()).map_err(error)
    }

    fn rollback_to(&mut self, number: usize) -> Result<()> {
        self.db.rollback_to(number).map_err(error)
    }

    fn release(&mut self, number: usize) -> Result<()> {
        self.db.release(number).map_err(error)
    }

    fn metas(&mut self) -> Result<[u32; 16]> {
        self.db.metas(self.view).map_err(error)
    }

    fn set_meta(&mut self, index: usize, value: u32) -> Result<()> {
        self.db.set_meta(index, value).map_err(error)
    }

    fn pragma(&mut self, name: &str, value: Option<&str>) -> Result<Option<String>> {
        self.run_pragma(name, value)
    }

    fn begin_vacuum(&mut self, pages: Option<u32>) {
        self.vacuuming = Vacuuming::new(pages);
    }

    fn vacuum(&mut self) -> Result<bool> {
        self.vacuum_in_place()
    }

    fn vacuum_waits_no_longer(&mut self) {
        self.vacuuming.give_up();
    }

    fn free_pages(&mut self) -> Result<u32> {
        Ok(self.db.status().map_err(error)?.free_pages)
    }

    fn removable_pages(&mut self) -> u32 {
        self.db.removable_pages().unwrap_or(0)
    }

    fn diff(&mut self, table: &str, from: &str, to: Option<&str>) -> Result<Vec<::lsmvbt::Change>> {
        self.diff_of(table, from, to)
    }

    fn data_version(&mut self) -> u32 {
        self.data_version
    }

    fn create_tree(&mut self, kind: TreeKind) -> Result<u32> {
        let kind = match kind {
            TreeKind::Table => ::lsmvbt::TreeKind::Integer,
            TreeKind::Index => ::lsmvbt::TreeKind::Custom,
        };
        self.db.create_tree(kind).map(|tree| tree.0).map_err(error)
    }

    fn drop_tree(&mut self, tree: u32) -> Result<()> {
        self.db.drop_tree(TreeId(tree)).map_err(error)
    }

    fn clear_tree(&mut self, tree: u32) -> Result<u64> {
        let entries = self.count(tree)?;
        self.db.clear_tree(TreeId(tree)).map_err(error)?;
        Ok(entries)
    }

    fn last_tree(&mut self) -> Result<u32> {
        let trees = self.db.tree_ids(self.view).map_err(error)?;
        let last = trees.last().map_or(SCHEMA, |tree| tree.0);
        Ok(last.max(self.db.pages().map_err(error)?))
    }

    fn count(&mut self, tree: u32) -> Result<u64> {
        let count = self.db.count(self.view, TreeId(tree));
        self.or_no_schema(count.map_err(error), 0)
    }

    fn check(&mut self) -> Result<Vec<String>> {
        self.db.check().map_err(error)
    }

    fn open_cursor(&mut self, tree: u32, _kind: TreeKind) -> Result<CursorId> {
        let tree = TreeId(tree);
        let closed = || self.cursors.iter().enumerate().filter(|(_, p)| !p.is_open);
        // A statement that runs again finds its cursors with their known paths.
        let same = closed().find(|(_, p)| p.tree == tree);
        let at = match same.or_else(|| closed().next()) {
            Some((at, _)) => at,
            None => self.cursors.len(),
        };
        let cursor = CursorId::try_from(at).map_err(|_| Error::TooBig("the number of cursors"))?;
        if at == self.cursors.len() {
            self.cursors.push(Position::closed(tree));
        }
        let position = &mut self.cursors[at];
        if position.tree != tree {
            *position = Position::closed(tree);
        }
        position.is_open = true;
        Ok(cursor)
    }

    fn close_cursor(&mut self, cursor: CursorId) {
        if let Some(position) = self.cursors.get_mut(cursor as usize) {
            position.is_open = false;
            // Within a write transaction the tree's number may become another tree's.
            position.cursor.take_if(|cursor| !cursor.is_of_snapshot());
        }
    }

    fn first(&mut self, cursor: CursorId) -> Result<bool> {
        let found = self.seeking(cursor);
        let found = found.and_then(|(db, cursor)| cursor.first(db).map_err(error));
        self.or_no_schema(found, false)
    }

    fn last(&mut self, cursor: CursorId) -> Result<bool> {
        let found = self.seeking(cursor);
        let found = found.and_then(|(db, cursor)| cursor.last(db).map_err(error));
        self.or_no_schema(found, false)
    }

    fn next(&mut self, cursor: CursorId) -> Result<bool> {
        let (db, cursor) = self.positioned(cursor)?;
        cursor.next(db).map_err(error)
    }

    fn previous(&mut self, cursor: CursorId) -> Result<bool> {
        let (db, cursor) = self.positioned(cursor)?;
        cursor.prev(db).map_err(error)
    }

    fn skip(&mut self, cursor: CursorId, by: i32) -> Result<()> {
        let (db, cursor) = self.positioned(cursor)?;
        cursor.skip(db, by as isize).map_err(error)
    }

    fn set_cache_pages(&mut self, pages: usize) {
        self.db.set_cache_pages(pages);
    }

    fn seek_rowid(&mut self, cursor: CursorId, rowid: i64) -> Result<Seek> {
        let sought = self.seeking(cursor);
        let sought = sought
            .and_then(|(db, cursor)| cursor.seek_integer(db, rowid).map(found).map_err(error));
        self.or_no_schema(sought, Seek::Empty)
    }

    fn seek_record(&mut self, cursor: CursorId, sought: &mut dyn Comparison) -> Result<Seek> {
        let (db, cursor) = self.seeking(cursor)?;
        cursor
            .seek_with(db, &mut BySqlite(sought))
            .map(found)
            .map_err(error)
    }

    fn row(&self, cursor: CursorId) -> Result<Row<'_>> {
        let cursor = self.position(cursor)?.cursor.as_ref().ok_or_else(nowhere)?;
        if let Some(around) = cursor.around() {
            return Ok(Row::among(&around));
        }
        let (rowid, local, total) = cursor.here().map_err(error)?;
        Ok(Row::new(rowid, local, total))
    }

    fn read(&mut self, cursor: CursorId, offset: u32, buffer: &mut [u8]) -> Result<()> {
        let (db, cursor) = self.positioned(cursor)?;
        cursor.read(db, offset, buffer).map_err(error)
    }

    fn insert_row(&mut self, cursor: CursorId, rowid: i64, data: &[u8], zeros: u32) -> Result<()> {
        let tree = self.position(cursor)?.tree;
        self.lose(cursor);
        if zeros == 0 {
            return self.db.put_integer(tree, rowid, data).map_err(error);
        }
        let mut whole = Vec::new();
        whole
            .try_reserve_exact(data.len() + zeros as usize)
            .map_err(|_| Error::NoMemory)?;
        whole.extend_from_slice(data);
        whole.resize(data.len() + zeros as usize, 0);
        self.db.put_integer(tree, rowid, &whole).map_err(error)
    }

    fn insert_record(
        &mut self,
        cursor: CursorId,
        record: &[u8],
        sought: &mut dyn Comparison,
    ) -> Result<()> {
        let tree = self.position(cursor)?.tree;
        self.lose(cursor);
        self.db
            .put_custom(tree, record, &mut BySqlite(sought))
            .map_err(error)
    }

    fn overwrite(&mut self, cursor: CursorId, offset: u32, data: &[u8]) -> Result<()> {
        let (db, there) = self.positioned(cursor)?;
        let rowid = there.integer_key().map_err(error)?;
        db.overwrite_at(there, offset, data).map_err(error)?;
        self.seek_rowid(cursor, rowid).map(|_| ())
    }

    fn delete(&mut self, cursor: CursorId) -> Result<()> {
        self.positioned(cursor)?;
        let there = self.cursors.get_mut(cursor as usize);
        let there = there.and_then(|position| position.cursor.take());
        self.db
            .delete_with(there.ok_or_else(nowhere)?)
            .map_err(error)
    }
}
