//! An engine in memory, to test the glue with. It is as simple as an engine can be, and no other
//! process can reach it. Trees are persistent vectors, so that a snapshot or a savepoint is a copy
//! of the whole, at no cost.
//!
//! The data live as long as the process. The file holds 16 bytes, by which the glue knows its
//! engine.

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::ffi::CStr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use imbl::{OrdMap, Vector};
use lsmvbt_sqlite::{
    Comparison, Connection, CursorId, Durability, Engine, Error, Place, READABLE_BEHIND, Result,
    Row, Seek, TreeKind,
};

/// The name of the engine.
pub const NAME: &str = "model";
const MAGIC: &[u8; 16] = b"glue test model\0";

/// Registers the engine, once.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| lsmvbt_sqlite::register(Box::new(Model::default())));
}

thread_local! {
    static FAILS: Cell<bool> = const { Cell::new(false) };
}

/// The next look of this thread at a database's header fails.
pub fn fail_at_the_header() {
    FAILS.set(true);
}

#[derive(Default)]
struct Model {
    stores: Mutex<HashMap<PathBuf, Arc<Store>>>,
}

/// A database: its newest commit, and whether a connection writes.
struct Store {
    inner: Mutex<Committed>,
}

struct Committed {
    version: u32,
    state: State,
    written: bool,
}

#[derive(Clone)]
struct State {
    trees: OrdMap<u32, Tree>,
    meta: [u32; 16],
}

#[derive(Clone)]
struct Tree {
    kind: TreeKind,
    entries: Vector<Entry>,
}

/// An entry; the bytes that must be readable follow its payload.
#[derive(Clone)]
struct Entry {
    rowid: i64,
    padded: Arc<[u8]>,
}

impl Entry {
    fn new(rowid: i64, payload: &[u8], zeros: u32) -> Self {
        let mut padded = payload.to_vec();
        padded.resize(payload.len() + zeros as usize + READABLE_BEHIND, 0);
        Self {
            rowid,
            padded: padded.into(),
        }
    }

    fn payload(&self) -> &[u8] {
        &self.padded[..self.padded.len() - READABLE_BEHIND]
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine for Model {
    fn name(&self) -> &'static CStr {
        c"model"
    }

    fn magic(&self) -> [u8; 16] {
        *MAGIC
    }

    fn open(&self, place: Place) -> Result<Box<dyn Connection>> {
        let io = |error: std::io::Error| Error::Io(error.to_string());
        let mut stores = lock(&self.stores);
        let mut magic = [0; 16];
        if place.file.read_at(0, &mut magic).map_err(io)? == 0 {
            if place.read_only {
                return Err(Error::ReadOnly);
            }
            place.file.write_at(0, MAGIC).map_err(io)?;
            let table = Tree {
                kind: TreeKind::Table,
                entries: Vector::new(),
            };
            let state = State {
                trees: OrdMap::unit(1, table),
                meta: [0; 16],
            };
            let inner = Mutex::new(Committed {
                version: 1,
                state,
                written: false,
            });
            stores.insert(place.path.clone(), Arc::new(Store { inner }));
        } else if magic != *MAGIC {
            return Err(Error::NotADatabase);
        }
        let store = stores
            .get(&place.path)
            .cloned()
            .ok_or(Error::NotADatabase)?;
        let view = lock(&store.inner).state.clone();
        Ok(Box::new(Session {
            store,
            base: view.clone(),
            view,
            version: 0,
            seen: 0,
            data_version: 1,
            mode: Mode::Idle,
            savepoints: Vec::new(),
            cursors: HashMap::new(),
            next_cursor: 0,
        }))
    }
}

#[derive(PartialEq, Eq)]
enum Mode {
    Idle,
    Reading,
    Writing,
}

struct Session {
    store: Arc<Store>,
    /// Its view, with its own changes.
    view: State,
    /// The state when it began to write.
    base: State,
    /// The number of the commit `base`.
    version: u32,
    /// The newest commit of others that it has seen.
    seen: u32,
    data_version: u32,
    mode: Mode,
    savepoints: Vec<State>,
    cursors: HashMap<CursorId, Position>,
    next_cursor: CursorId,
}

struct Position {
    tree: u32,
    at: Option<(usize, Entry)>,
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.mode == Mode::Writing {
            lock(&self.store.inner).written = false;
        }
    }
}

impl Session {
    fn tree(&self, tree: u32) -> Result<&Tree> {
        self.view.trees.get(&tree).ok_or(Error::NoSuchTree(tree))
    }

    fn tree_mut(&mut self, tree: u32) -> Result<&mut Tree> {
        assert!(
            self.mode == Mode::Writing,
            "a change outside of a write transaction"
        );
        self.view
            .trees
            .get_mut(&tree)
            .ok_or(Error::NoSuchTree(tree))
    }

    fn position(&self, cursor: CursorId) -> Result<&Position> {
        self.cursors
            .get(&cursor)
            .ok_or_else(|| Error::Misuse("no such cursor".to_owned()))
    }

    fn tree_of(&self, cursor: CursorId) -> Result<u32> {
        Ok(self.position(cursor)?.tree)
    }

    /// The current entry of a cursor, and its place, which must still be the entry's.
    fn here(&self, cursor: CursorId) -> Result<(usize, &Entry)> {
        let (index, entry) = self
            .position(cursor)?
            .at
            .as_ref()
            .ok_or_else(|| Error::Misuse("stands nowhere".to_owned()))?;
        Ok((*index, entry))
    }

    /// As [`Session::here`]; the tree must not have changed under the cursor.
    fn undisturbed(&self, cursor: CursorId) -> Result<usize> {
        let (index, entry) = self.here(cursor)?;
        let there = self.tree(self.tree_of(cursor)?)?.entries.get(index);
        assert!(
            there.is_some_and(|there| Arc::ptr_eq(&there.padded, &entry.padded)),
            "the glue lets a tree change under a cursor"
        );
        Ok(index)
    }

    fn go(&mut self, cursor: CursorId, index: Option<usize>) -> Result<bool> {
        let tree = self.tree(self.tree_of(cursor)?)?;
        let at = index.and_then(|index| Some((index, tree.entries.get(index)?.clone())));
        let found = at.is_some();
        self.cursors
            .get_mut(&cursor)
            .ok_or_else(|| Error::Misuse("no such cursor".to_owned()))?
            .at = at;
        Ok(found)
    }

    /// The place of an entry, or the place where it would be.
    fn find(
        &self,
        tree: u32,
        mut compare: impl FnMut(&Entry) -> Result<Ordering>,
    ) -> Result<std::result::Result<usize, usize>> {
        let entries = &self.tree(tree)?.entries;
        let (mut low, mut high) = (0, entries.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match compare(&entries[middle])? {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(Ok(middle)),
            }
        }
        Ok(Err(low))
    }

    fn seek(
        &mut self,
        cursor: CursorId,
        compare: impl FnMut(&Entry) -> Result<Ordering>,
    ) -> Result<Seek> {
        let tree = self.tree_of(cursor)?;
        let size = self.tree(tree)?.entries.len();
        let (index, order) = match self.find(tree, compare)? {
            Ok(index) => (index, Ordering::Equal),
            Err(index) if index < size => (index, Ordering::Greater),
            Err(index) => (index.wrapping_sub(1), Ordering::Less),
        };
        Ok(if self.go(cursor, Some(index))? {
            Seek::At(order)
        } else {
            Seek::Empty
        })
    }

    /// Leaves the cursor nowhere.
    fn insert(
        &mut self,
        cursor: CursorId,
        entry: Entry,
        place: std::result::Result<usize, usize>,
    ) -> Result<()> {
        let tree = self.tree_of(cursor)?;
        let entries = &mut self.tree_mut(tree)?.entries;
        match place {
            Ok(index) => drop(entries.set(index, entry)),
            Err(index) => entries.insert(index, entry),
        }
        self.go(cursor, None).map(|_| ())
    }
}

impl Connection for Session {
    fn begin_read(&mut self) -> Result<()> {
        assert!(self.mode == Mode::Idle, "reads already");
        let inner = lock(&self.store.inner);
        (self.version, self.view) = (inner.version, inner.state.clone());
        drop(inner);
        if self.version != self.seen {
            self.data_version += 1;
            self.seen = self.version;
        }
        self.mode = Mode::Reading;
        Ok(())
    }

    fn begin_write(&mut self) -> Result<()> {
        let was_idle = self.mode == Mode::Idle;
        if was_idle {
            self.begin_read()?;
        }
        assert!(self.mode == Mode::Reading, "writes already");
        let mut inner = lock(&self.store.inner);
        let problem = if inner.written {
            Some(Error::Busy)
        } else if inner.version != self.version {
            Some(Error::StaleSnapshot)
        } else {
            inner.written = true;
            None
        };
        drop(inner);
        if let Some(error) = problem {
            if was_idle {
                self.mode = Mode::Idle;
            }
            return Err(error);
        }
        self.base = self.view.clone();
        self.mode = Mode::Writing;
        Ok(())
    }

    fn prepare(&mut self) -> Result<()> {
        assert!(self.mode == Mode::Writing);
        Ok(())
    }

    fn commit(&mut self, _durability: Durability) -> Result<()> {
        assert!(self.mode == Mode::Writing);
        let mut inner = lock(&self.store.inner);
        inner.version += 1;
        inner.state = self.view.clone();
        inner.written = false;
        (self.version, self.seen) = (inner.version, inner.version);
        self.mode = Mode::Reading;
        self.savepoints.clear();
        Ok(())
    }

    fn rollback(&mut self) -> Result<()> {
        assert!(self.mode == Mode::Writing);
        self.view = self.base.clone();
        lock(&self.store.inner).written = false;
        self.mode = Mode::Reading;
        self.savepoints.clear();
        Ok(())
    }

    fn end_read(&mut self) {
        assert!(self.mode != Mode::Writing);
        self.mode = Mode::Idle;
    }

    fn savepoints(&self) -> usize {
        self.savepoints.len()
    }

    fn savepoint(&mut self) -> Result<()> {
        self.savepoints.push(self.view.clone());
        Ok(())
    }

    fn rollback_to(&mut self, number: usize) -> Result<()> {
        self.view = self.savepoints[number].clone();
        self.savepoints.truncate(number + 1);
        Ok(())
    }

    fn release(&mut self, number: usize) -> Result<()> {
        self.savepoints.truncate(number);
        Ok(())
    }

    fn metas(&mut self) -> Result<[u32; 16]> {
        assert!(self.mode != Mode::Idle);
        match FAILS.take() {
            true => Err(Error::Io("the header cannot be read".to_owned())),
            false => Ok(self.view.meta),
        }
    }

    fn set_meta(&mut self, index: usize, value: u32) -> Result<()> {
        assert!(self.mode == Mode::Writing);
        self.view.meta[index] = value;
        Ok(())
    }

    fn data_version(&mut self) -> u32 {
        self.data_version
    }

    fn create_tree(&mut self, kind: TreeKind) -> Result<u32> {
        assert!(self.mode == Mode::Writing);
        let tree = self.last_tree()? + 1;
        self.view.trees.insert(
            tree,
            Tree {
                kind,
                entries: Vector::new(),
            },
        );
        Ok(tree)
    }

    fn drop_tree(&mut self, tree: u32) -> Result<()> {
        self.tree_mut(tree)?;
        self.view.trees.remove(&tree);
        Ok(())
    }

    fn clear_tree(&mut self, tree: u32) -> Result<u64> {
        let entries = &mut self.tree_mut(tree)?.entries;
        let removed = entries.len() as u64;
        entries.clear();
        Ok(removed)
    }

    fn last_tree(&mut self) -> Result<u32> {
        Ok(self.view.trees.get_max().map_or(1, |(tree, _)| *tree))
    }

    fn count(&mut self, tree: u32) -> Result<u64> {
        Ok(self.tree(tree)?.entries.len() as u64)
    }

    fn check(&mut self) -> Result<Vec<String>> {
        let mut findings = Vec::new();
        for (number, tree) in &self.view.trees {
            let rising = tree
                .entries
                .iter()
                .zip(tree.entries.iter().skip(1))
                .all(|(a, b)| a.rowid < b.rowid);
            if tree.kind == TreeKind::Table && !rising {
                findings.push(format!("tree {number} is out of order"));
            }
        }
        Ok(findings)
    }

    fn open_cursor(&mut self, tree: u32, kind: TreeKind) -> Result<CursorId> {
        assert!(self.mode != Mode::Idle);
        if self.tree(tree)?.kind != kind {
            return Err(Error::Damaged(format!("tree {tree} is of the other kind")));
        }
        self.next_cursor += 1;
        self.cursors
            .insert(self.next_cursor, Position { tree, at: None });
        Ok(self.next_cursor)
    }

    fn close_cursor(&mut self, cursor: CursorId) {
        assert!(
            self.cursors.remove(&cursor).is_some(),
            "a cursor is closed twice"
        );
    }

    fn first(&mut self, cursor: CursorId) -> Result<bool> {
        self.go(cursor, Some(0))
    }

    fn last(&mut self, cursor: CursorId) -> Result<bool> {
        let size = self.tree(self.tree_of(cursor)?)?.entries.len();
        self.go(cursor, size.checked_sub(1))
    }

    fn next(&mut self, cursor: CursorId) -> Result<bool> {
        let index = self.undisturbed(cursor)?;
        self.go(cursor, Some(index + 1))
    }

    fn previous(&mut self, cursor: CursorId) -> Result<bool> {
        let index = self.undisturbed(cursor)?;
        self.go(cursor, index.checked_sub(1))
    }

    fn seek_rowid(&mut self, cursor: CursorId, rowid: i64) -> Result<Seek> {
        self.seek(cursor, |entry| Ok(entry.rowid.cmp(&rowid)))
    }

    fn seek_record(&mut self, cursor: CursorId, sought: &mut dyn Comparison) -> Result<Seek> {
        self.seek(cursor, |entry| sought.compare(entry.payload()))
    }

    fn row(&self, cursor: CursorId) -> Result<Row<'_>> {
        let (_, entry) = self.here(cursor)?;
        let payload = entry.payload();
        let total = u32::try_from(payload.len()).map_err(|_| Error::TooBig("a payload"))?;
        // As if the rest of a long payload lay elsewhere.
        let local = if payload.len() > 1000 {
            &payload[..100]
        } else {
            payload
        };
        Ok(Row::new(entry.rowid, local, total))
    }

    fn read(&mut self, cursor: CursorId, offset: u32, buffer: &mut [u8]) -> Result<()> {
        let (_, entry) = self.here(cursor)?;
        buffer.copy_from_slice(&entry.payload()[offset as usize..][..buffer.len()]);
        Ok(())
    }

    fn insert_row(&mut self, cursor: CursorId, rowid: i64, data: &[u8], zeros: u32) -> Result<()> {
        let place = self.find(self.tree_of(cursor)?, |entry| Ok(entry.rowid.cmp(&rowid)))?;
        self.insert(cursor, Entry::new(rowid, data, zeros), place)
    }

    fn insert_record(
        &mut self,
        cursor: CursorId,
        record: &[u8],
        sought: &mut dyn Comparison,
    ) -> Result<()> {
        let place = self.find(self.tree_of(cursor)?, |entry| {
            sought.compare(entry.payload())
        })?;
        self.insert(cursor, Entry::new(0, record, 0), place)
    }

    fn overwrite(&mut self, cursor: CursorId, offset: u32, data: &[u8]) -> Result<()> {
        let index = self.undisturbed(cursor)?;
        let (_, entry) = self.here(cursor)?;
        let mut payload = entry.payload().to_vec();
        payload[offset as usize..][..data.len()].copy_from_slice(data);
        let entry = Entry::new(entry.rowid, &payload, 0);
        self.insert(cursor, entry, Ok(index))?;
        self.go(cursor, Some(index)).map(|_| ())
    }

    fn delete(&mut self, cursor: CursorId) -> Result<()> {
        let index = self.undisturbed(cursor)?;
        let tree = self.tree_of(cursor)?;
        self.tree_mut(tree)?.entries.remove(index);
        self.go(cursor, None).map(|_| ())
    }
}
