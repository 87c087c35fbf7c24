//! The database file as SQLite's VFS has opened it: a VFS below SQLite is below the engine too.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::names::Claim;
use super::{ahead, code};

/// `sqlite3_file`.
#[repr(C)]
pub(super) struct RawFile {
    _private: [u8; 0],
}

// `c/glue_file.c`.
unsafe extern "C" {
    fn lsmvbt_file_read(file: *mut RawFile, buffer: *mut c_void, size: c_int, offset: i64)
    -> c_int;
    fn lsmvbt_file_descriptor(file: *mut RawFile) -> c_int;
    fn lsmvbt_file_has_moved(file: *mut RawFile) -> c_int;
    fn lsmvbt_file_write(
        file: *mut RawFile,
        data: *const c_void,
        size: c_int,
        offset: i64,
    ) -> c_int;
    fn lsmvbt_file_truncate(file: *mut RawFile, size: i64) -> c_int;
    fn lsmvbt_file_sync(file: *mut RawFile, fullfsync: c_int) -> c_int;
    fn lsmvbt_file_size(file: *mut RawFile, size: *mut i64) -> c_int;
    fn lsmvbt_file_shm_map(
        file: *mut RawFile,
        region: c_int,
        size: c_int,
        memory: *mut *mut c_void,
    ) -> c_int;
    fn lsmvbt_file_shm_lock(
        file: *mut RawFile,
        lock: c_int,
        exclusive: c_int,
        release: c_int,
    ) -> c_int;
    fn lsmvbt_file_shm_unmap(file: *mut RawFile);
    fn lsmvbt_file_writes(file: *mut RawFile) -> c_int;
}

/// Bytes of a region of shared memory: a page of memory, because SQLite's VFS writes to every page
/// of a new region. Where pages are larger, the size that SQLite's own wal-index asks for; its VFS
/// maps several of those at once.
fn region_bytes() -> usize {
    match rustix::param::page_size() {
        4096 => 4096,
        _ => 32 * 1024,
    }
}

/// Stands for the number of a file that has lost its name: no other file has it.
pub(super) const MOVED: u64 = u64::MAX;

/// The largest read or write in one call to a VFS, in bytes: the most that SQLite itself asks for.
/// SQLite's own VFS for Unix writes nothing of 128 KiB, and returns that the disk is full.
const AT_ONCE: usize = 64 * 1024;

/// The promise of a VFS about aligned writes of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VfsWrites {
    /// It promises all or nothing.
    Whole,
    /// It is one of SQLite's own for Unix, whose files are as the kernel shows them.
    AsTheKernel,
    /// It says nothing.
    Unknown,
}

/// Whose the locks and the shared memory of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shares {
    /// Those of the VFS, with all connections.
    WithAll,
    /// This connection's own: `immutable=1` promises that nothing writes the file.
    WithNone,
}

/// The database file, its locks and its shared memory. Copies are the same file; the last of them
/// releases the shared memory.
#[derive(Clone)]
pub struct DatabaseFile {
    shared: Arc<Shared>,
}

struct Shared {
    file: *mut RawFile,
    shares: Shares,
    fullfsync: AtomicBool,
    region_bytes: usize,
    regions: Mutex<Vec<Option<NonNull<AtomicU64>>>>,
    /// Given up after the memory, when `drop` has ended.
    claim: Mutex<Option<Claim>>,
}

// SAFETY: any thread may use a sqlite3_file, one at a time. SQLite's mutex of the connection
// ensures that, since every call comes from within a call of SQLite's. The regions are memory that
// lives until the file is unmapped.
unsafe impl Send for Shared {}
// SAFETY: as above; a mutex guards the rest that threads share.
unsafe impl Sync for Shared {}

impl Drop for Shared {
    fn drop(&mut self) {
        // Also after a failed call: the VFS may already have counted this file among the users.
        let words = self.words();
        let Ok(regions) = self.regions.get_mut() else {
            return;
        };
        if self.shares == Shares::WithNone {
            for region in regions.drain(..).flatten() {
                let region = NonNull::slice_from_raw_parts(region, words);
                // SAFETY: `own_region` made it of so many words, and nothing uses it any more.
                drop(unsafe { Box::from_raw(region.as_ptr()) });
            }
        } else if !regions.is_empty() {
            // SAFETY: the file is open: the C part closes it after the connection.
            unsafe { lsmvbt_file_shm_unmap(self.file) };
        }
    }
}

impl DatabaseFile {
    /// Takes the file that the pager has open.
    ///
    /// # Safety
    /// The file must be open until the last copy is dropped.
    pub(super) unsafe fn new(file: *mut RawFile, shares: Shares) -> Self {
        Self {
            shared: Arc::new(Shared {
                file,
                shares,
                fullfsync: AtomicBool::new(false),
                region_bytes: region_bytes(),
                regions: Mutex::new(Vec::new()),
                claim: Mutex::new(None),
            }),
        }
    }

    /// Reads at an offset, and returns the number of bytes read. Bytes past the end stay zero.
    ///
    /// # Errors
    /// Those of the VFS.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut there = 0;
        for part in buffer.chunks_mut(AT_ONCE) {
            let read = self.read_part(offset + there as u64, part)?;
            there += read;
            if read < part.len() {
                break;
            }
        }
        buffer[there..].fill(0);
        Ok(there)
    }

    fn read_part(&self, offset: u64, part: &mut [u8]) -> io::Result<usize> {
        let size = length(part.len())?;
        let buffer = part.as_mut_ptr().cast();
        // SAFETY: the buffer is `size` bytes long.
        let code = unsafe { lsmvbt_file_read(self.shared.file, buffer, size, place(offset)?) };
        if code != code::IOERR_SHORT_READ {
            return result("read", code).map(|()| part.len());
        }
        let there = self.size()?.saturating_sub(offset);
        Ok(usize::try_from(there).map_or(part.len(), |there| there.min(part.len())))
    }

    /// The descriptor, if the VFS has one to show.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the file is open.
        let descriptor = unsafe { lsmvbt_file_descriptor(self.shared.file) };
        // SAFETY: SQLite keeps it open as long as the file.
        (descriptor >= 0).then(|| unsafe { BorrowedFd::borrow_raw(descriptor) })
    }

    /// Begins to read these offsets and lengths, where that is possible and they are not in the page cache.
    pub fn will_read(&self, ranges: &[(u64, u64)]) {
        if let Some(file) = self.descriptor() {
            ahead::read(file, ranges);
        }
    }

    /// The number of the inode of the file, which was opened by this path; 0 if the VFS does not tell.
    #[must_use]
    pub fn identity(&self, path: &Path) -> u64 {
        if let Some(file) = self.descriptor() {
            return rustix::fs::fstat(file).map_or(0, |about| about.st_ino);
        }
        let by_name = path.metadata().map_or(0, |about| about.ino());
        // Asked afterwards: then it was this file's name when the number was read.
        // SAFETY: the file is open.
        match unsafe { lsmvbt_file_has_moved(self.shared.file) } {
            0 => by_name,
            1 => MOVED,
            _ => 0,
        }
    }

    /// Claims the shared memory of this name for the file of this identity. False if this process has
    /// another file open by it: then nothing of the memory may be touched.
    #[must_use]
    pub fn claim(&self, path: &Path, identity: u64) -> bool {
        if self.shared.shares == Shares::WithNone || identity == 0 {
            return true;
        }
        let claim = self.shared.claim.lock();
        let mut claim = claim.unwrap_or_else(PoisonError::into_inner);
        if claim.is_none() {
            *claim = Claim::of(path, identity);
        }
        claim.is_some()
    }

    /// Whether the file system writes a page again in its place, as far as it says.
    #[must_use]
    pub fn writes_in_place(&self) -> bool {
        self.descriptor().is_none_or(::lsmvbt::writes_in_place)
    }

    /// Writes all of `data`.
    ///
    /// # Errors
    /// Those of the VFS.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        for (number, part) in data.chunks(AT_ONCE).enumerate() {
            let size = length(part.len())?;
            let at = place(offset + (number * AT_ONCE) as u64)?;
            // SAFETY: the data are `size` bytes long.
            let code =
                unsafe { lsmvbt_file_write(self.shared.file, part.as_ptr().cast(), size, at) };
            result("write", code)?;
        }
        Ok(())
    }

    /// Makes the file so many bytes long, which are fewer.
    ///
    /// # Errors
    /// Those of the VFS.
    pub fn truncate(&self, size: u64) -> io::Result<()> {
        // SAFETY: the file is open.
        result("truncate", unsafe {
            lsmvbt_file_truncate(self.shared.file, place(size)?)
        })
    }

    /// Makes what was written durable.
    ///
    /// # Errors
    /// Those of the VFS.
    pub fn sync(&self) -> io::Result<()> {
        let fullfsync = self.shared.fullfsync.load(Ordering::Relaxed);
        // SAFETY: the file is open.
        result("sync", unsafe {
            lsmvbt_file_sync(self.shared.file, fullfsync.into())
        })
    }

    /// Whether the VFS syncs as `PRAGMA fullfsync` asks for.
    pub(super) fn set_fullfsync(&self, fullfsync: bool) {
        self.shared.fullfsync.store(fullfsync, Ordering::Relaxed);
    }

    /// Asks the VFS about aligned writes of 4 KiB.
    #[must_use]
    pub fn writes(&self) -> VfsWrites {
        // SAFETY: the file is open.
        match unsafe { lsmvbt_file_writes(self.shared.file) } {
            1 => VfsWrites::Whole,
            2 => VfsWrites::AsTheKernel,
            _ => VfsWrites::Unknown,
        }
    }

    /// Bytes of the file.
    ///
    /// # Errors
    /// Those of the VFS.
    pub fn size(&self) -> io::Result<u64> {
        let mut size = 0;
        // SAFETY: the file is open.
        result("size", unsafe {
            lsmvbt_file_size(self.shared.file, &raw mut size)
        })?;
        u64::try_from(size).map_err(io::Error::other)
    }

    /// Tries to take one of the eight locks; false if another connection holds it.
    ///
    /// # Errors
    /// Those of the VFS.
    pub fn lock(&self, lock: u8, exclusive: bool) -> io::Result<bool> {
        if self.shared.shares == Shares::WithNone {
            return Ok(true);
        }
        // A VFS locks shared memory that is mapped. It cannot map while another connection makes
        // the memory.
        match self.word(0) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            mapped => mapped.map(drop)?,
        }
        // SAFETY: the file is open.
        match unsafe { lsmvbt_file_shm_lock(self.shared.file, lock.into(), exclusive.into(), 0) } {
            code if code & 0xff == code::BUSY => Ok(false),
            code => result("lock", code).map(|()| true),
        }
    }

    /// Releases a lock.
    ///
    /// # Errors
    /// Those of the VFS.
    pub fn unlock(&self, lock: u8, exclusive: bool) -> io::Result<()> {
        if self.shared.shares == Shares::WithNone {
            return Ok(());
        }
        // SAFETY: the file is open.
        result("unlock", unsafe {
            lsmvbt_file_shm_lock(self.shared.file, lock.into(), exclusive.into(), 1)
        })
    }

    /// Calls `work` with a word of the shared memory.
    ///
    /// # Errors
    /// Those of the VFS.
    pub fn with_word<T>(&self, word: usize, work: impl FnOnce(&AtomicU64) -> T) -> io::Result<T> {
        let word = self.word(word)?;
        // SAFETY: the word lies in a region that stays mapped while `self` lives, aligned to 8
        // bytes, and all users access it atomically.
        Ok(work(unsafe { word.as_ref() }))
    }

    /// A word of the shared memory.
    ///
    /// # Errors
    /// Those of the VFS.
    pub fn load(&self, word: usize) -> io::Result<u64> {
        self.with_word(word, |word| word.load(Ordering::SeqCst))
    }

    /// Words of the shared memory from `first` on, with one look for each region.
    ///
    /// # Errors
    /// Those of the VFS.
    pub fn load_all(&self, first: usize, words: &mut [u64]) -> io::Result<()> {
        let of_region = self.shared.region_bytes / size_of::<AtomicU64>();
        let mut done = 0;
        while done < words.len() {
            let base = self.word(first + done)?;
            let there = of_region - (first + done) % of_region;
            for (at, to) in words[done..].iter_mut().take(there).enumerate() {
                // SAFETY: as in `with_word`; `at` is below the number of words in the region behind
                // this one.
                *to = unsafe { base.add(at).as_ref() }.load(Ordering::SeqCst);
            }
            done += there;
        }
        Ok(())
    }

    fn word(&self, word: usize) -> io::Result<NonNull<AtomicU64>> {
        let words = self.shared.words();
        let (region, at) = (word / words, word % words);
        let mut regions = self
            .shared
            .regions
            .lock()
            .map_err(|_| io::Error::other("shared memory: an earlier panic"))?;
        if regions.len() <= region {
            regions.resize(region + 1, None);
        }
        let base = match regions[region] {
            Some(base) => base,
            None => self.map_up_to(&mut regions, region)?,
        };
        // SAFETY: `at` is below the number of words in the region.
        Ok(unsafe { base.add(at) })
    }

    /// Maps a region, and those below it: a commit reads the last word that it may write before it
    /// writes a page. Stores to the words before it must have their space on the disk, too.
    fn map_up_to(
        &self,
        regions: &mut [Option<NonNull<AtomicU64>>],
        region: usize,
    ) -> io::Result<NonNull<AtomicU64>> {
        for (number, there) in regions.iter_mut().enumerate().take(region + 1) {
            if there.is_none() {
                *there = Some(match self.shared.shares {
                    Shares::WithAll => self.shared.map_region(number)?,
                    Shares::WithNone => self.shared.own_region(),
                });
            }
        }
        regions[region].ok_or_else(|| io::Error::other("shared memory: no region"))
    }
}

impl Shared {
    /// Words of a region.
    fn words(&self) -> usize {
        self.region_bytes / size_of::<AtomicU64>()
    }

    /// A region that all connections share.
    fn map_region(&self, region: usize) -> io::Result<NonNull<AtomicU64>> {
        let mut memory = std::ptr::null_mut();
        let number = c_int::try_from(region).map_err(io::Error::other)?;
        // SAFETY: the file is open, and `memory` may be written.
        let code = unsafe {
            lsmvbt_file_shm_map(
                self.file,
                number,
                length(self.region_bytes)?,
                &raw mut memory,
            )
        };
        if code & 0xff == code::READONLY || code == code::CANTOPEN {
            return Err(io::Error::other(VfsError::NoSharedMemory(code)));
        }
        result("shared memory", code)?;
        NonNull::new(memory.cast::<AtomicU64>())
            .filter(|base| base.is_aligned())
            .ok_or_else(|| io::Error::other("shared memory: no region"))
    }

    /// A region of this connection's own, zeros.
    fn own_region(&self) -> NonNull<AtomicU64> {
        let words: Box<[AtomicU64]> = (0..self.words()).map(|_| AtomicU64::new(0)).collect();
        NonNull::from(Box::leak(words)).cast()
    }
}

fn length(bytes: usize) -> io::Result<c_int> {
    c_int::try_from(bytes).map_err(io::Error::other)
}

fn place(offset: u64) -> io::Result<i64> {
    i64::try_from(offset).map_err(io::Error::other)
}

fn result(what: &str, code: c_int) -> io::Result<()> {
    match code {
        code::OK => Ok(()),
        code if code & 0xff == code::BUSY => Err(io::Error::new(
            io::ErrorKind::WouldBlock,
            format!("{what}: another connection is at it"),
        )),
        code::FULL => Err(io::Error::new(
            io::ErrorKind::StorageFull,
            format!("{what}: the disk is full"),
        )),
        code => Err(io::Error::other(VfsError::Refused(what.to_owned(), code))),
    }
}

/// An error of the VFS, with its result code.
#[derive(Debug)]
enum VfsError {
    /// It refused this request.
    Refused(String, c_int),
    /// The file of the shared memory cannot be made, or cannot be written.
    NoSharedMemory(c_int),
}

impl fmt::Display for VfsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(what, code) => write!(f, "{what}: the VFS says {code}"),
            Self::NoSharedMemory(_) => f.write_str(
                "the file of this name with -shm behind it cannot be made or written, and readers need \
                 it too: let them write it, or open the database with immutable=1 if nothing writes it",
            ),
        }
    }
}

impl std::error::Error for VfsError {}

/// The result code from the VFS, if the error is one of its own.
#[must_use]
pub fn code_of_vfs(error: &io::Error) -> Option<i32> {
    match error.get_ref()?.downcast_ref::<VfsError>()? {
        VfsError::Refused(_, code) | VfsError::NoSharedMemory(code) => Some(*code),
    }
}
