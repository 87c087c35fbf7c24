//! The file underneath one of our databases, in the VFS underneath ours.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::AtomicU32;

use super::ffi::{self, sqlite3_file, sqlite3_io_methods};
use crate::sync::{long_step, step};
use crate::wal::{FrameNo, INDEX_WORDS, IndexView, WalIndex, WritableIndex};

/// SQLite's locks on a database file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LockLevel(pub c_int);

impl LockLevel {
    pub const NONE: LockLevel = LockLevel(0);
    pub const SHARED: LockLevel = LockLevel(1);
    pub const EXCLUSIVE: LockLevel = LockLevel(4);
}

/// See the module. Its methods return SQLite's result codes.
pub struct Inner {
    file: *mut sqlite3_file,
    /// The first region of the wal-index, while it is mapped.
    index: Cell<*const [AtomicU32; INDEX_WORDS]>,
    mapping: Cell<Mapping>,
}

/// How SQLite has mapped the wal-index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mapping {
    Writable,
    ReadOnly,
}

impl Inner {
    /// # Safety
    /// `file` was opened by the VFS underneath, and stays open for as long as this lives.
    pub unsafe fn new(file: *mut sqlite3_file) -> Inner {
        Inner {
            file,
            index: Cell::new(ptr::null()),
            mapping: Cell::new(Mapping::ReadOnly),
        }
    }

    pub fn methods(&self) -> &sqlite3_io_methods {
        // SAFETY: an open file has methods.
        unsafe { &*(*self.file).pMethods }
    }

    pub fn file(&self) -> *mut sqlite3_file {
        self.file
    }

    pub fn close(&self) -> c_int {
        self.index.set(ptr::null());
        // SAFETY: the file is open; no code uses it afterwards.
        unsafe { (self.methods().xClose)(self.file) }
    }

    pub fn read(&self, out: &mut [u8], offset: i64) -> c_int {
        step();
        // SAFETY: the buffer has the length that is passed.
        unsafe {
            (self.methods().xRead)(
                self.file,
                out.as_mut_ptr().cast(),
                out.len() as c_int,
                offset,
            )
        }
    }

    pub fn write(&self, data: &[u8], offset: i64) -> c_int {
        step();
        // SAFETY: as in `read`.
        unsafe {
            (self.methods().xWrite)(self.file, data.as_ptr().cast(), data.len() as c_int, offset)
        }
    }

    /// The file's size in bytes; the error is SQLite's code.
    pub fn size(&self) -> Result<u64, c_int> {
        let mut size = 0;
        // SAFETY: the file is open; there is room for one integer.
        match unsafe { (self.methods().xFileSize)(self.file, &raw mut size) } {
            ffi::SQLITE_OK => Ok(size as u64),
            code => Err(code),
        }
    }

    pub fn sync(&self) -> c_int {
        step();
        // SAFETY: the file is open.
        unsafe { (self.methods().xSync)(self.file, ffi::SQLITE_SYNC_NORMAL) }
    }

    /// Whether some connection is in a transaction that writes.
    pub fn is_reserved(&self) -> bool {
        let mut found = 0;
        // SAFETY: the file is open; there is room for one integer.
        let code = unsafe { (self.methods().xCheckReservedLock)(self.file, &raw mut found) };
        code == ffi::SQLITE_OK && found != 0
    }

    pub fn lock(&self, level: LockLevel) -> c_int {
        match level {
            // The first lock.
            LockLevel::SHARED => long_step(),
            _ => step(),
        }
        // SAFETY: the file is open.
        unsafe { (self.methods().xLock)(self.file, level.0) }
    }

    pub fn unlock(&self, level: LockLevel) -> c_int {
        step();
        // SAFETY: the file is open.
        unsafe { (self.methods().xUnlock)(self.file, level.0) }
    }

    pub fn control(&self, op: c_int, argument: *mut c_void) -> c_int {
        // SAFETY: the argument came from SQLite together with `op`.
        unsafe { (self.methods().xFileControl)(self.file, op, argument) }
    }

    /// Whether the path now leads to another file, or to none; `None` if the VFS underneath does
    /// not report it.
    pub fn has_moved(&self) -> Option<bool> {
        let mut moved: c_int = 0;
        let code = self.control(ffi::SQLITE_FCNTL_HAS_MOVED, (&raw mut moved).cast());
        (code == ffi::SQLITE_OK).then_some(moved != 0)
    }

    /// The system's error number of the last failed call; 0 if the VFS underneath does not report
    /// it.
    pub fn last_errno(&self) -> i32 {
        let mut errno = 0;
        self.control(ffi::SQLITE_FCNTL_LAST_ERRNO, (&raw mut errno).cast());
        errno
    }

    pub fn shm_lock(&self, offset: c_int, count: c_int, flags: c_int) -> c_int {
        step();
        // SAFETY: the file is open.
        unsafe { (self.methods().xShmLock)(self.file, offset, count, flags) }
    }

    /// Notes where SQLite has mapped the first region of the wal-index.
    ///
    /// # Safety
    /// The region is that of SQLite's wal-index, and stays mapped until [`Inner::unmapped`].
    pub unsafe fn mapped(&self, region: *const c_void, mapping: Mapping) {
        self.index.set(region.cast());
        self.mapping.set(mapping);
    }

    pub fn unmapped(&self) {
        self.index.set(ptr::null());
    }

    /// The wal-index, while it is mapped, valid or not.
    pub fn index(&self) -> Option<WalIndex<'_>> {
        let words = self.index.get();
        // SAFETY: `words` is null, or the first words of a mapped region of 32 KiB, aligned. Other
        // processes write them: hence atomic.
        unsafe { words.as_ref() }.map(WalIndex::new)
    }

    /// The wal-index, while it is mapped and not read-only.
    pub fn writable_index(&self) -> Option<WritableIndex<'_>> {
        let is_writable = self.mapping.get() == Mapping::Writable;
        self.index().filter(|_| is_writable).map(WritableIndex)
    }

    /// The present view of the wal-index; `None` while it is not mapped or not valid.
    pub fn index_view(&self) -> Option<IndexView> {
        self.index()?.view()
    }

    /// How many frames checkpoints have written to the database, while the wal-index is mapped.
    pub fn backfilled(&self) -> Option<FrameNo> {
        self.index().map(|index| index.backfilled())
    }

    /// Makes the wal-index invalid, if it is writable. The caller holds the write lock.
    pub fn invalidate_index(&self) {
        if let Some(index) = self.writable_index() {
            index.invalidate();
        }
    }
}
