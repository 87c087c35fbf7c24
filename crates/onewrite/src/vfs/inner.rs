//! The file underneath a database of ours, in the VFS underneath ours.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{Ordering, fence};

use super::ffi::{self, sqlite3_file, sqlite3_io_methods};
use crate::commit::IndexView;
use crate::sync::{long_step, step};
use crate::wal::{FrameNo, Salts, checksum};

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

/// Words of one copy of the wal-index' header.
const INDEX_HEADER_WORDS: usize = 12;

/// SQLite's `WalIndexHdr`: version, unused, change counter, flags and page size, last frame, pages,
/// checksum of the last frame, salts, checksum of the words before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexHeader {
    words: [u32; INDEX_HEADER_WORDS],
}

impl IndexHeader {
    /// The header of a log that begins anew.
    fn restarted(&self, salt: [u8; 4]) -> IndexHeader {
        let mut words = self.words;
        words[4] = 0;
        // Salts stand there as bytes, big-endian.
        let first = u32::from_be_bytes(words[8].to_ne_bytes()).wrapping_add(1);
        words[8] = u32::from_ne_bytes(first.to_be_bytes());
        words[9] = u32::from_ne_bytes(salt);
        let bytes: Vec<u8> = words[..10]
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        let sum = checksum(cfg!(target_endian = "big"), [0, 0], &bytes);
        words[10..].copy_from_slice(&sum);
        IndexHeader { words }
    }
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
        // SAFETY: the file is open; nobody uses it afterwards.
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

    /// The system's error number of the last call that failed; 0 where the VFS underneath does not tell.
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

    fn index_word(&self, word: usize) -> u32 {
        // SAFETY: `index` is mapped and not null here, and its header has 34 words. Other
        // processes write it: hence volatile.
        unsafe { ptr::read_volatile(self.index.get().add(word)) }
    }

    /// What the wal-index says now; `None` while it is not mapped or not valid.
    ///
    /// The header is that of SQLite's "WAL-Index File Format": word 3 begins with `isInit`, words 4,
    /// 6-7 and 8-9 are `mxFrame`, `aFrameCksum` and `aSalt`.
    pub fn index_view(&self) -> Option<IndexView> {
        if self.index.get().is_null() || self.index_word(3).to_ne_bytes()[0] == 0 {
            return None;
        }
        loop {
            let salts = self.index_salts();
            let mut checksum = [0; 8];
            checksum[..4].copy_from_slice(&self.index_word(6).to_be_bytes());
            checksum[4..].copy_from_slice(&self.index_word(7).to_be_bytes());
            let last_frame = FrameNo(self.index_word(4));
            // The log may have started again in between.
            if self.index_salts() == salts {
                return Some(IndexView {
                    salts,
                    last_frame,
                    checksum,
                });
            }
        }
    }

    fn index_salts(&self) -> Salts {
        let mut salts = [0; 8];
        salts[..4].copy_from_slice(&self.index_word(8).to_ne_bytes());
        salts[4..].copy_from_slice(&self.index_word(9).to_ne_bytes());
        Salts(salts)
    }

    /// How many frames checkpoints have written to the database (`nBackfill`).
    pub fn backfilled(&self) -> Option<FrameNo> {
        (!self.index.get().is_null()).then(|| FrameNo(self.index_word(24)))
    }

    /// Whether the wal-index is mapped, and not for reading alone.
    pub fn can_write_index(&self) -> bool {
        !self.index.get().is_null() && self.mapping.get() == Mapping::Writable
    }

    /// How far a checkpoint may have come (`nBackfillAttempted`).
    pub fn backfill_attempted(&self) -> Option<FrameNo> {
        (!self.index.get().is_null()).then(|| FrameNo(self.index_word(32)))
    }

    /// The wal-index' header as it stands; `None` where it is not mapped, not writable or not valid. The
    /// caller holds the write lock.
    pub fn index_header(&self) -> Option<IndexHeader> {
        self.index_view()?;
        if self.mapping.get() == Mapping::ReadOnly {
            return None;
        }
        let copy = |from: usize| std::array::from_fn(|word| self.index_word(from + word));
        let words: [u32; INDEX_HEADER_WORDS] = copy(0);
        (words == copy(INDEX_HEADER_WORDS)).then_some(IndexHeader { words })
    }

    /// Makes the wal-index say that the log begins anew, without frames, as SQLite's `walRestartHdr` does:
    /// the first salt goes up by one, the second is `salt`. Other connections see another header, and
    /// forget their pages. The caller holds the write lock, and keeps readers of the log out.
    pub fn restart_index(&self, before: &IndexHeader, salt: [u8; 4]) {
        if self.index.get().is_null() || self.mapping.get() == Mapping::ReadOnly {
            return;
        }
        let words = before.restarted(salt).words;
        let put = |word: usize, value: u32| {
            // SAFETY: as in `index_word`; the locks keep everybody else out.
            unsafe { ptr::write_volatile(self.index.get().cast_mut().add(word), value) }
        };
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
            put(word, value);
        }
        fence(Ordering::SeqCst);
        // The second copy first, as SQLite does: who reads both finds them equal, or looks again.
        for (word, value) in words.into_iter().enumerate() {
            put(INDEX_HEADER_WORDS + word, value);
        }
        fence(Ordering::SeqCst);
        for (word, value) in words.into_iter().enumerate() {
            put(word, value);
        }
    }

    /// Makes both copies of the wal-index header invalid, so that every connection, in every
    /// process, recovers from the log before it reads again. The caller holds the write lock.
    pub fn invalidate_index(&self) {
        if self.index.get().is_null() || self.mapping.get() == Mapping::ReadOnly {
            return;
        }
        for word in 0..24 {
            // SAFETY: as in `index_word`; the write lock keeps other writers out.
            unsafe { ptr::write_volatile(self.index.get().cast_mut().add(word), 0) }
        }
    }
}
