//! Transactional files: a small file system whose files' changes are transactions of X-FTL.
//!
//! Everything that is written to a file since the last `fsync` is one transaction: its pages and its
//! inode. `fsync` is commit(t), and [`Files::abort`] is abort(t): the file is then, size and all, what it was. So the
//! file system needs no journal, and is as consistent as one that journals data and metadata both.
//! Creating, removing and renaming files are transactions of their own, done when the call returns.
//! Several files can share a transaction ([`Files::share`]): they are committed or aborted together.
//!
//! There is one directory. A name that begins with a zero byte is that of a file which was removed while it was
//! open, and goes when the file system is mounted. What a transaction has written is kept in memory at first, as in a page cache; beyond
//! a number of pages it is written to the device, uncommitted.
//!
//! Some bytes need not be what they are for longer than the file system is mounted: a counter by which whoever has the
//! file open knows that it has changed. Written lazily ([`Files::write_lazily`]) they are part of the transaction as all
//! others, but do not make a page be written: they are kept beside it, in memory, until it is written for another reason, or the file
//! system is unmounted ([`Files::settle`]). A power cut leaves them as they were on the device.
//!
//! Which chunks are free is known from the inodes. A chunk is handed out again only when nobody
//! needs what is in it even after a power cut, and reads as zeros.
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
/// Pages that have lazily written bytes, at most: they are kept in memory.
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
    /// No inode or chunk is free, the file would be too long for its inode, or the device's X-L2P table has no entry left.
    NoSpace,
    /// What is on the device is no file system of ours.
    Format(&'static str),
    /// The device.
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
            Self::Format(what) => write!(f, "the device holds no file system of ours: {what}"),
            Self::Device(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for FilesError {}

/// Inodes among which one is looked for, when they are read, that an idle die can read meanwhile.
const SOON: usize = 16;

/// See the module.
#[derive(Debug)]
pub struct Files {
    ftl: Ftl,
    layout: Layout,
    /// As committed.
    committed: BTreeMap<FileNo, Inode>,
    /// As everybody sees them.
    current: BTreeMap<FileNo, Inode>,
    transactions: BTreeMap<Tid, Transaction>,
    /// Which transaction a file is in.
    joined: BTreeMap<FileNo, Tid>,
    free: BTreeSet<ChunkNo>,
    /// Pages that are not on the device as they are: with what was written lazily, and committed.
    lazy: BTreeMap<Lpn, Vec<u8>>,
}

impl Files {
    /// Makes an empty file system.
    ///
    /// # Errors
    /// The device is too small, or fails.
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
    /// There is none; the device fails.
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

    /// The device below, for faults and statistics; what is written there breaks files.
    pub fn ftl_mut(&mut self) -> &mut Ftl {
        &mut self.ftl
    }

    /// Writes to the device what was written lazily and committed, but for pages that an active transaction has written.
    ///
    /// # Errors
    /// The device.
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

    /// Takes the device out; what was not committed is lost.
    pub fn into_ftl(self) -> Ftl {
        self.ftl
    }

    /// Bytes of a file.
    ///
    /// # Errors
    /// There is no such file.
    pub fn size(&self, file: FileNo) -> Result<u64, FilesError> {
        self.inode(file).map(|inode| inode.bytes)
    }

    fn inode(&self, file: FileNo) -> Result<&Inode, FilesError> {
        self.current.get(&file).ok_or(FilesError::NotFound)
    }

    /// Bytes of chunks: in all, and free.
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
