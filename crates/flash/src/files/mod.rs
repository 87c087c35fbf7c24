//! Transactional files: a small file system whose files' changes are transactions of X-FTL.
//!
//! All writes to a file since the last `fsync` are one transaction: its pages and its inode.
//! `fsync` is commit(t). [`Files::abort`] is abort(t): it restores the file, including its size. So
//! the file system needs no journal, and is as consistent as one that journals both data and
//! metadata. Creating, removing and renaming a file are separate transactions, done when the call
//! returns. Several files can share a transaction ([`Files::share`]): they are committed or aborted
//! together.
//!
//! There is one directory. A name that begins with a zero byte belongs to a file that was removed
//! while it was open; mounting removes it. At first a transaction's pages stay in memory, as in a
//! page cache. Beyond a number of pages they go to the device, uncommitted.
//!
//! Some bytes need not last longer than the mount: for example, a counter that shows processes with
//! an open file that it has changed. Lazy writes ([`Files::write_lazily`]) belong to the
//! transaction like all others, but do not cause the write of a page. Memory holds them alongside
//! the page until the page is written for another reason, or the file system is unmounted
//! ([`Files::settle`]). After a power cut the bytes are as they were on the device.
//!
//! The inodes determine which chunks are free. A chunk is reused only when its old content is not
//! needed even after a power cut, and it then reads as zeros.
//!
//! ```text
//! mod          formatting and mounting
//! names        files and their names
//! transaction  commit, abort, share
//! data         reading and writing
//! layout       the bytes
//! fuse         the kernel's side
//! ```

mod data;
pub mod fuse;
mod layout;
mod names;
mod transaction;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::ftl::{Ftl, FtlError, Lpn, Tid};
pub use layout::FileNo;
use layout::{ChunkNo, Inode, Layout, MAX_NAME};
use transaction::Transaction;

/// Pages of a transaction that are kept in memory.
const PAGES_IN_MEMORY: usize = 256;
/// The most pages with lazily written bytes; memory holds them.
const LAZY_PAGES: usize = 64;

/// Why an operation was not done.
#[derive(Debug, PartialEq, Eq)]
pub enum FilesError {
    /// There is no such file.
    NotFound,
    /// A file has that name.
    Exists,
    /// No name, or one that is too long.
    Name,
    /// No inode or chunk is free, the file would be too long, or the device's X-L2P table is full.
    NoSpace,
    /// Lazy writes are switched off.
    Refused,
    /// The file shares a transaction with others, whose writes would be lost.
    Busy,
    /// The device does not hold our file system.
    Format(&'static str),
    /// The device failed.
    Device(FtlError),
}

impl From<FtlError> for FilesError {
    fn from(error: FtlError) -> Self {
        match error {
            FtlError::TableFull { .. } => Self::NoSpace,
            error => Self::Device(error),
        }
    }
}

impl fmt::Display for FilesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("there is no such file"),
            Self::Exists => f.write_str("there is a file of that name"),
            Self::Name => write!(f, "a file's name has 1 to {MAX_NAME} bytes"),
            Self::NoSpace => f.write_str("no room: inodes, chunks, or entries of the X-L2P table"),
            Self::Busy => f.write_str("the file shares a transaction with others"),
            Self::Refused => f.write_str("lazy writes are switched off"),
            Self::Format(what) => write!(f, "the device holds no file system of ours: {what}"),
            Self::Device(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for FilesError {}

/// The window of inodes to read ahead, in which an idle die can read one meanwhile.
const SOON: usize = 16;

/// See the module.
#[derive(Debug)]
pub struct Files {
    ftl: Ftl,
    layout: Layout,
    /// As committed.
    committed: BTreeMap<FileNo, Inode>,
    /// The current state, as everybody sees it.
    current: BTreeMap<FileNo, Inode>,
    transactions: BTreeMap<Tid, Transaction>,
    /// The transaction of a file.
    joined: BTreeMap<FileNo, Tid>,
    free: BTreeSet<ChunkNo>,
    /// Pages that differ from the device: with lazily written and committed bytes.
    lazy: BTreeMap<Lpn, Vec<u8>>,
    /// Whether lazy writes stay in memory.
    lazy_writes: LazyWrites,
}

/// What becomes of writes that need not outlive the mount ([`Files::write_lazily`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LazyWrites {
    /// They stay in memory. X-FTL's paper has nothing of the kind.
    InMemory,
    /// They are refused, so that the host writes whole pages instead.
    Refused,
}

impl Files {
    /// Makes an empty file system.
    ///
    /// # Errors
    /// If the device is too small, or fails.
    pub fn format(mut ftl: Ftl) -> Result<Self, FilesError> {
        let layout = Layout::of(ftl.page_bytes(), ftl.pages());
        if layout.page_bytes < 512 || layout.chunks == 0 {
            return Err(FilesError::NoSpace);
        }
        for file in 0..layout.inodes {
            ftl.trim(layout.inode_page(FileNo(file)))?;
        }
        ftl.write(Lpn(0), &layout.superblock())?;
        ftl.flush()?;
        Self::mount(ftl)
    }

    /// Mounts one.
    ///
    /// # Errors
    /// If there is none, or the device fails.
    pub fn mount(mut ftl: Ftl) -> Result<Self, FilesError> {
        let layout = Layout::of(ftl.page_bytes(), ftl.pages());
        if *ftl.read(Lpn(0))? != *layout.superblock() {
            return Err(FilesError::Format(
                "its superblock is not one for this device",
            ));
        }
        let mut committed = BTreeMap::new();
        let mut free: BTreeSet<ChunkNo> = (0..layout.chunks).map(ChunkNo).collect();
        for file in (0..layout.inodes).map(FileNo) {
            let soon = (file.0..layout.inodes).take(SOON).map(FileNo);
            soon.for_each(|soon| ftl.load(layout.inode_page(soon)));
            let page = ftl.read(layout.inode_page(file))?;
            let inode = Inode::decode(&page, &layout);
            let inode = inode.map_err(|()| FilesError::Format("an inode cannot be understood"))?;
            let Some(inode) = inode else { continue };
            for chunk in inode.chunks.iter().flatten() {
                if !free.remove(chunk) {
                    return Err(FilesError::Format("two files have the same chunk"));
                }
            }
            committed.insert(file, inode);
        }
        let mut files = Self {
            ftl,
            layout,
            current: committed.clone(),
            committed,
            transactions: BTreeMap::new(),
            joined: BTreeMap::new(),
            free: BTreeSet::new(),
            lazy: BTreeMap::new(),
            lazy_writes: LazyWrites::InMemory,
        };
        // A power cut may have come between a file's end and the trim of its pages.
        files.give_back(free.into_iter().collect())?;
        let is_removed = |inode: &Inode| inode.name.first() == Some(&0);
        let removed = files.current.iter().filter(|(_, inode)| is_removed(inode));
        let removed: Vec<FileNo> = removed.map(|(file, _)| *file).collect();
        for file in removed {
            files.remove(file)?;
        }
        Ok(files)
    }

    /// The device below.
    pub fn ftl(&self) -> &Ftl {
        &self.ftl
    }

    /// The device below, for faults and statistics. A write there breaks files.
    pub fn ftl_mut(&mut self) -> &mut Ftl {
        &mut self.ftl
    }

    /// Writes lazy, committed bytes to the device, except pages that an active transaction has
    /// written.
    ///
    /// # Errors
    /// If the device fails.
    pub fn settle(&mut self) -> Result<(), FilesError> {
        for (lpn, page) in self.lazy.clone() {
            match self.ftl.write(lpn, &page) {
                Ok(()) => drop(self.lazy.remove(&lpn)),
                Err(FtlError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.ftl.flush()?)
    }

    /// What becomes of lazy writes from now on.
    pub fn write_lazy(&mut self, writes: LazyWrites) {
        self.lazy_writes = writes;
    }

    /// Takes the device out; uncommitted changes are lost.
    pub fn into_ftl(self) -> Ftl {
        self.ftl
    }

    /// Bytes of a file.
    ///
    /// # Errors
    /// If there is no such file.
    pub fn size(&self, file: FileNo) -> Result<u64, FilesError> {
        self.inode(file).map(|inode| inode.bytes)
    }

    fn inode(&self, file: FileNo) -> Result<&Inode, FilesError> {
        self.current.get(&file).ok_or(FilesError::NotFound)
    }

    /// Bytes of chunks: total, and free.
    pub fn space(&self) -> (u64, u64) {
        let chunk = u64::from(self.layout.chunk_pages) * self.layout.page_bytes as u64;
        (
            u64::from(self.layout.chunks) * chunk,
            self.free.len() as u64 * chunk,
        )
    }
}

#[cfg(test)]
mod tests;
