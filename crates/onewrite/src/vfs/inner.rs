//! The file underneath one of our databases, in the VFS underneath ours.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use super::ffi::{self, sqlite3_file, sqlite3_io_methods};
use crate::sync::{long_step, step};
use crate::wal::{Checksum, FrameNo, INDEX_HEADER_WORDS, IndexHeader, IndexView};

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
    index: Cell<*const u32>,
    mapping: Cell<Mapping>,
}

/// A copy with a wrong checksum is being written, or was when its writer died.
const INDEX_LOOKS: usize = 64;

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

    /// A word of the mapped wal-index.
    fn index_word(&self, word: usize) -> u32 {
        self.index_place(word).load(Ordering::Relaxed)
    }

    fn index_place(&self, word: usize) -> &AtomicU32 {
        // SAFETY: `index` is mapped and not null here, aligned, and its header has 34 words. Other
        // processes write it, hence atomic.
        unsafe { AtomicU32::from_ptr(self.index.get().cast_mut().add(word)) }
    }

    fn index_copy(&self, from: usize) -> IndexHeader {
        IndexHeader::new(std::array::from_fn(|word| self.index_word(from + word)))
    }

    /// The present view of the wal-index; `None` while it is not mapped or not valid.
    ///
    /// It has two copies of its header. SQLite writes the second, then the first, each with a
    /// checksum. While one is being written, the other is whole. A copy with a wrong checksum is
    /// ignored: it could name a generation that never existed.
    pub fn index_view(&self) -> Option<IndexView> {
        if self.index.get().is_null() {
            return None;
        }
        for _ in 0..INDEX_LOOKS {
            let copies = [self.index_copy(0), self.index_copy(INDEX_HEADER_WORDS)];
            // Later reads of the log must not return older data.
            fence(Ordering::Acquire);
            if let Some(whole) = copies.iter().find(|copy| copy.is_whole()) {
                return Some(whole.view());
            }
            if copies.iter().all(IndexHeader::is_unset) {
                break;
            }
        }
        None
    }

    /// Whether the wal-index is mapped, valid or not.
    pub fn has_index(&self) -> bool {
        !self.index.get().is_null()
    }

    /// How many frames checkpoints have written to the database (`nBackfill`).
    pub fn backfilled(&self) -> Option<FrameNo> {
        (!self.index.get().is_null()).then(|| FrameNo(self.index_word(24)))
    }

    /// Sets `nBackfill` to 0, if it still has this value: checkpoints then copy once more.
    pub fn forget_backfill(&self, known: FrameNo) {
        if self.can_write_index() {
            let place = self.index_place(24);
            // If it has changed, another connection was first.
            let _ = place.compare_exchange(known.0, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Whether the wal-index is mapped, and not read-only.
    pub fn can_write_index(&self) -> bool {
        !self.index.get().is_null() && self.mapping.get() == Mapping::Writable
    }

    /// How far a checkpoint may have got (`nBackfillAttempted`).
    pub fn backfill_attempted(&self) -> Option<FrameNo> {
        (!self.index.get().is_null()).then(|| FrameNo(self.index_word(32)))
    }

    /// The wal-index's present header; `None` if it is not mapped, not writable or not valid. The
    /// caller holds the write lock.
    pub fn index_header(&self) -> Option<IndexHeader> {
        self.index_view()?;
        if self.mapping.get() == Mapping::ReadOnly {
            return None;
        }
        let header = self.index_copy(0);
        (header == self.index_copy(INDEX_HEADER_WORDS)).then_some(header)
    }

    /// Makes the wal-index describe a restarted log, without frames, as SQLite's `walRestartHdr`
    /// does: the first salt goes up by one, the second is `salt`. Other connections see another
    /// header, and drop their cached pages. The caller holds the write lock, and excludes readers
    /// of the log.
    pub fn restart_index(&self, before: &IndexHeader, salt: [u8; 4]) {
        if self.index.get().is_null() || self.mapping.get() == Mapping::ReadOnly {
            return;
        }
        const UNUSED: u32 = 0xffff_ffff;
        // nBackfill, aReadMark[1 to 4], nBackfillAttempted.
        for (word, value) in [
            (24, 0),
            (26, 0),
            (27, UNUSED),
            (28, UNUSED),
            (29, UNUSED),
            (32, 0),
        ] {
            self.put_index_word(word, value);
        }
        self.publish(&before.restarted(salt));
    }

    /// Puts another checksum of the last frame into the wal-index's header: that of the log, if
    /// SQLite has published a different one. The caller holds the write lock.
    pub fn correct_index(&self, sum: Checksum) {
        if let Some(header) = self.index_header() {
            self.publish(&header.with_frame_checksum(sum));
        }
    }

    /// Writes the header as SQLite's `walIndexWriteHdr` does: the second copy first. So a process
    /// that reads both finds them equal, or looks again.
    fn publish(&self, header: &IndexHeader) {
        for copy in [INDEX_HEADER_WORDS, 0] {
            fence(Ordering::SeqCst);
            for (word, value) in header.words().into_iter().enumerate() {
                self.put_index_word(copy + word, value);
            }
        }
        fence(Ordering::SeqCst);
    }

    fn put_index_word(&self, word: usize, value: u32) {
        self.index_place(word).store(value, Ordering::Relaxed);
    }

    /// Makes both copies of the wal-index header invalid, so that every connection, in every
    /// process, recovers from the log before it reads again. The caller holds the write lock.
    pub fn invalidate_index(&self) {
        if self.index.get().is_null() || self.mapping.get() == Mapping::ReadOnly {
            return;
        }
        for word in 0..24 {
            self.put_index_word(word, 0);
        }
    }
}
