//! The database file as LS-MVBT sees it: the one that SQLite's VFS has opened, with its locks and its shared
//! memory.

use std::cell::OnceCell;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering::SeqCst;

use ::lsmvbt::{AtomicWrites, Facts, Lock, LockMode, Storage, Writes};

use crate::ffi::{DatabaseFile, VfsWrites};

/// The file, and what it promises.
pub(super) struct Stored {
    file: DatabaseFile,
    path: PathBuf,
    /// Once somebody has asked: the kernel's part of the answer takes ten system calls.
    atomic: OnceCell<AtomicWrites>,
    /// Likewise.
    in_place: OnceCell<bool>,
    /// Likewise.
    identity: OnceCell<u64>,
}

impl Stored {
    /// The file that the VFS has opened, and its path.
    pub(super) fn new(file: DatabaseFile, path: PathBuf) -> Self {
        Self {
            file,
            path,
            atomic: OnceCell::new(),
            in_place: OnceCell::new(),
            identity: OnceCell::new(),
        }
    }

    /// Takes the shared memory of the file's name, which it may then use.
    ///
    /// # Errors
    /// This process has another file open by that name.
    pub(super) fn claim_name(&self) -> ::lsmvbt::Result<()> {
        match self.file.claim(&self.path, self.identity()) {
            true => Ok(()),
            false => Err(::lsmvbt::Error::OtherFile),
        }
    }

    fn judge(&self) -> AtomicWrites {
        match self.file.writes() {
            VfsWrites::Whole => AtomicWrites {
                bytes: ::lsmvbt::PAGE_SIZE as u32,
                reason: "trust: the VFS writes 4,096 bytes atomically".to_owned(),
            },
            VfsWrites::AsTheKernel => Facts::of(&self.path).judge(Writes::Buffered),
            VfsWrites::Unknown => {
                AtomicWrites::none("double: the VFS promises nothing of 4,096 bytes")
            }
        }
    }
}

impl Storage for Stored {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(offset, buf)
    }

    fn will_read(&self, ranges: &[(u64, u64)]) {
        self.file.will_read(ranges);
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_at(offset, data)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.file.truncate(size)
    }

    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn identity(&self) -> u64 {
        *self.identity.get_or_init(|| self.file.identity(&self.path))
    }

    fn writes_in_place(&self) -> bool {
        *self.in_place.get_or_init(|| self.file.writes_in_place())
    }

    fn atomic_writes(&self) -> AtomicWrites {
        self.atomic.get_or_init(|| self.judge()).clone()
    }

    fn lock(&self, lock: Lock, mode: LockMode) -> io::Result<bool> {
        self.file.lock(lock.0, mode == LockMode::Exclusive)
    }

    fn unlock(&self, lock: Lock, mode: LockMode) -> io::Result<()> {
        self.file.unlock(lock.0, mode == LockMode::Exclusive)
    }

    fn shm_load(&self, word: usize) -> io::Result<u64> {
        self.file.with_word(word, |word| word.load(SeqCst))
    }

    fn shm_load_all(&self, first: usize, words: &mut [u64]) -> io::Result<()> {
        self.file.load_all(first, words)
    }

    fn shm_store(&self, word: usize, value: u64) -> io::Result<()> {
        self.file.with_word(word, |word| word.store(value, SeqCst))
    }

    fn shm_max(&self, word: usize, value: u64) -> io::Result<()> {
        self.file
            .with_word(word, |word| word.fetch_max(value, SeqCst))
            .map(|_| ())
    }

    fn shm_min(&self, word: usize, value: u64) -> io::Result<()> {
        self.file
            .with_word(word, |word| word.fetch_min(value, SeqCst))
            .map(|_| ())
    }
}
