//! SQLite's file locks, held so that they survive `close`.
//!
//! POSIX drops all locks of a process on a file when the process closes any descriptor of it. So
//! SQLite's calls of `fcntl` come here; `thunks/syscalls.rs` puts us into its table of system
//! calls. Its locks become open-file-description locks, on one description per file. They are on
//! the same bytes, and exclude other processes' POSIX locks as before. The argument is in
//! `docs/durability.md`, L1 to L14.
//!
//! SQLite counts the locks of its connections by inode, and calls `fcntl` for all of them on any
//! descriptor of the inode. So this module has one [`Node`] per inode, found by descriptor.

mod held;
mod node;
#[cfg(all(test, not(shuttle)))]
mod tests;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use crate::storage::{OfdCommand, OfdConflict, OfdRange, OfdType, descriptor_of, open_descriptors};
use node::Node;
pub use node::Why;

/// Device and inode.
type Inode = (u64, u64);

/// A lock that SQLite requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    pub kind: OfdType,
    pub range: OfdRange,
}

/// The result of `fcntl` for SQLite.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Not for us: the call goes to the system unchanged.
    PassOn,
    /// It succeeded; the conflicting lock, if that was the question.
    Done(Option<OfdConflict>),
    /// It failed with this error number.
    Failed(i32),
}

impl Answer {
    fn of_error(error: &io::Error) -> Answer {
        Answer::Failed(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// How the locks of a database are held.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Held {
    /// None was requested yet.
    NotYet,
    Ofd,
    Posix(Why),
}

/// One of SQLite's descriptors.
#[derive(Clone)]
struct Known {
    node: Arc<Node>,
    writes: bool,
}

/// Each is sorted by its key. Vectors, because maps take more code.
#[derive(Default)]
struct Maps {
    has_begun: bool,
    /// Descriptors from before SQLite's calls came here. SQLite may hold POSIX locks on their
    /// files.
    open_before: Vec<(i32, Inode)>,
    descriptors: Vec<(i32, Known)>,
    nodes: Vec<(Inode, Weak<Node>)>,
}

/// The index of a key, or where it would be.
fn find<K: Ord + Copy, V>(sorted: &[(K, V)], key: K) -> Result<usize, usize> {
    sorted.binary_search_by_key(&key, |(key, _)| *key)
}

/// The locks of one SQLite. A child of fork starts with an empty table, because it has none of its
/// parent's locks.
pub struct Table {
    maps: Mutex<Maps>,
    is_over: AtomicBool,
    next: OnceLock<Box<Table>>,
}

impl Maps {
    /// Starts when the first of SQLite's calls comes here.
    #[inline]
    fn begin(&mut self) {
        if !self.has_begun {
            self.has_begun = true;
            self.note_open();
        }
    }

    fn note_open(&mut self) {
        let numbers = open_descriptors().into_iter();
        let inode_of = |number| descriptor_of(number).map(|(device, inode, _)| (device, inode));
        for number in numbers {
            if let (Ok(inode), Err(at)) = (inode_of(number), find(&self.open_before, number)) {
                self.open_before.insert(at, (number, inode));
            }
        }
    }

    /// Whether a descriptor from before still has this file open. Code other than SQLite closes its
    /// descriptors unseen, and then a new file may get the inode.
    fn was_open_before(&mut self, inode: Inode) -> bool {
        let is_open = |number| {
            descriptor_of(number).is_ok_and(|(device, number, _)| (device, number) == inode)
        };
        self.open_before
            .retain(|(number, before)| *before != inode || is_open(*number));
        self.open_before.iter().any(|(_, before)| *before == inode)
    }

    fn know(&mut self, fd: BorrowedFd<'_>) -> io::Result<Known> {
        let number = fd.as_raw_fd();
        let place = match find(&self.descriptors, number) {
            Ok(index) => return Ok(self.descriptors[index].1.clone()),
            Err(place) => place,
        };
        let (device, inode, writes) = descriptor_of(number)?;
        let node = self.node_of((device, inode));
        let known = Known { node, writes };
        self.descriptors.insert(place, (number, known.clone()));
        Ok(known)
    }

    fn present_node(&self, inode: Inode) -> Option<Arc<Node>> {
        let index = find(&self.nodes, inode).ok()?;
        self.nodes[index].1.upgrade()
    }

    fn node_of(&mut self, inode: Inode) -> Arc<Node> {
        if let Some(node) = self.present_node(inode) {
            return node;
        }
        let was_open_before = self.was_open_before(inode);
        let node = Arc::new(Node::new(inode, was_open_before));
        let entry = (inode, Arc::downgrade(&node));
        match find(&self.nodes, inode) {
            Ok(index) => self.nodes[index] = entry,
            Err(place) => self.nodes.insert(place, entry),
        }
        node
    }

    /// Returns the node, so that if this was its last descriptor, it is dropped without the maps'
    /// lock.
    fn forget(&mut self, number: i32) -> Option<Known> {
        if let Ok(index) = find(&self.open_before, number) {
            self.open_before.remove(index);
        }
        let index = find(&self.descriptors, number).ok()?;
        let (_, known) = self.descriptors.remove(index);
        if Arc::strong_count(&known.node) == 1
            && let Ok(index) = find(&self.nodes, known.node.inode)
        {
            self.nodes.remove(index);
        }
        Some(known)
    }
}

impl Table {
    pub const fn new() -> Table {
        Table {
            maps: Mutex::new(Maps {
                has_begun: false,
                open_before: Vec::new(),
                descriptors: Vec::new(),
                nodes: Vec::new(),
            }),
            is_over: AtomicBool::new(false),
            next: OnceLock::new(),
        }
    }

    fn maps(&self) -> MutexGuard<'_, Maps> {
        let mut table = self;
        while table.is_over.load(Ordering::Acquire) {
            table = table.next.get_or_init(|| Box::new(Table::new()));
        }
        table.maps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called in a child of fork. Takes no lock, because a thread of the parent may have held it.
    pub fn forked(&self) {
        let mut table = Some(self);
        while let Some(part) = table {
            let was_over = part.is_over.swap(true, Ordering::AcqRel);
            table = part.next.get().map(Box::as_ref).filter(|_| was_over);
        }
    }

    /// Called before SQLite opens a file.
    pub fn before_open(&self) {
        self.maps().begin();
    }

    /// SQLite has opened a descriptor of this number, or is about to close it: earlier knowledge of
    /// it is void. SQLite closes one only while it holds no lock on the file, because that drops
    /// all POSIX locks on it.
    pub fn forget(&self, number: i32) {
        let forgotten = {
            let mut maps = self.maps();
            maps.begin();
            maps.forget(number)
        };
        drop(forgotten);
    }

    /// Answers a call of SQLite's `fcntl` on `fd`, for a lock.
    pub fn answer(&self, fd: BorrowedFd<'_>, command: OfdCommand, request: Request) -> Answer {
        let known = {
            let mut maps = self.maps();
            maps.begin();
            maps.know(fd)
        };
        match known {
            Ok(known) => known.node.answer(fd, known.writes, command, request),
            // The system reports the error.
            Err(e) if e.raw_os_error() == Some(libc::EBADF) => Answer::PassOn,
            // A lock of the other kind could conflict with one that we already hold on the same
            // file. Errors that SQLite reads as a conflicting lock would mislead here.
            Err(_) => Answer::Failed(libc::EIO),
        }
    }

    /// How the locks on a file are held. `is_locked`: whether a connection has locked it.
    pub fn held_on(&self, path: &Path, is_locked: bool) -> Held {
        let Ok(file) = std::fs::metadata(path) else {
            return Held::NotYet;
        };
        let inode = (file.dev(), file.ino());
        let (node, was_open_before) = {
            let mut maps = self.maps();
            let was_open_before = maps.was_open_before(inode);
            (maps.present_node(inode), was_open_before)
        };
        match node {
            Some(node) if node.is_ofd() => Held::Ofd,
            Some(node) => node.why_posix().map_or(Held::NotYet, Held::Posix),
            None if !is_locked => Held::NotYet,
            None if was_open_before => Held::Posix(Why::OpenBefore),
            None => Held::Posix(Why::NoTable),
        }
    }
}
