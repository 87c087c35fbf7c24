//! A VFS between ours and SQLite's own, the default one, whose calls on databases can be made to fail. It
//! also keeps what a device would hold of a database's header, as kernels have it: a flush that fails
//! drops what was written before, though it can still be read. The only unsafe code of the test.
#![allow(unsafe_code)]

use rusqlite::ffi::{
    SQLITE_OK, SQLITE_OPEN_MAIN_DB, sqlite3_file, sqlite3_int64, sqlite3_io_methods, sqlite3_vfs,
    sqlite3_vfs_find, sqlite3_vfs_register,
};
use std::collections::HashMap;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

const HEADER_BYTES: usize = onewrite::DATABASE_HEADER_BYTES;

/// What can fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    Sync,
    /// `xWrite` of the header alone, or of a part of it.
    WriteHeader,
    /// `xRead` of the header alone.
    ReadHeader,
    /// `xShmMap`.
    Map,
}

/// Which of the calls fail.
#[derive(Clone, Copy)]
enum Turn {
    Nth(u32),
    /// From the first to the last.
    Always,
    /// This one and all after it.
    From(u32),
}

struct Rule {
    method: Method,
    code: c_int,
    turn: Turn,
    seen: u32,
    fired: u32,
}

#[derive(Default)]
struct State {
    rules: HashMap<PathBuf, Rule>,
    headers: HashMap<PathBuf, Header>,
    /// Files that were deleted, and whether durably.
    deleted: HashMap<PathBuf, bool>,
}

struct Header {
    written: [u8; HEADER_BYTES],
    on_device: [u8; HEADER_BYTES],
    /// Bytes written since the last flush, whether that succeeded or not.
    dirty: [bool; HEADER_BYTES],
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

struct Held(MutexGuard<'static, Option<State>>);

impl Held {
    fn state(&mut self) -> &mut State {
        self.0.get_or_insert_default()
    }
}

fn held() -> Held {
    Held(STATE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Calls on one database that fail. Ends when it goes out of scope.
pub struct Failing(PathBuf);

impl Failing {
    fn set(database: &Path, method: Method, code: c_int, turn: Turn) -> Failing {
        let rule = Rule {
            method,
            code,
            turn,
            seen: 0,
            fired: 0,
        };
        held().state().rules.insert(database.to_owned(), rule);
        Failing(database.to_owned())
    }

    /// The next one.
    pub fn once(database: &Path, method: Method, code: c_int) -> Failing {
        Failing::nth(database, method, code, 1)
    }

    /// The `nth`, from 1.
    pub fn nth(database: &Path, method: Method, code: c_int, nth: u32) -> Failing {
        Failing::set(database, method, code, Turn::Nth(nth))
    }

    /// The `nth` and all after it.
    pub fn from(database: &Path, method: Method, code: c_int, nth: u32) -> Failing {
        Failing::set(database, method, code, Turn::From(nth))
    }

    /// All.
    pub fn always(database: &Path, method: Method, code: c_int) -> Failing {
        Failing::set(database, method, code, Turn::Always)
    }

    /// Whether one has failed.
    pub fn has_come(&self) -> bool {
        let mut held = held();
        held.state()
            .rules
            .get(&self.0)
            .is_some_and(|rule| rule.fired > 0)
    }
}

impl Drop for Failing {
    fn drop(&mut self) {
        held().state().rules.remove(&self.0);
    }
}

fn failure(path: &Path, method: Method) -> Option<c_int> {
    let mut held = held();
    let rule = held.state().rules.get_mut(path)?;
    if rule.method != method {
        return None;
    }
    rule.seen += 1;
    let fails = match rule.turn {
        Turn::Nth(nth) => rule.seen == nth,
        Turn::From(nth) => rule.seen >= nth,
        Turn::Always => true,
    };
    rule.fired += u32::from(fails);
    fails.then_some(rule.code)
}

/// Keeps what the device holds of a database's header, from now on: what the file holds now.
pub fn watch_header(database: &Path) {
    let bytes = super::bytes(database);
    let now: [u8; HEADER_BYTES] = *bytes.first_chunk().expect("a header");
    let header = Header {
        written: now,
        on_device: now,
        dirty: [false; HEADER_BYTES],
    };
    held().state().headers.insert(database.to_owned(), header);
}

/// What a power cut would leave of it.
pub fn header_on_device(database: &Path) -> [u8; HEADER_BYTES] {
    held()
        .state()
        .headers
        .get(database)
        .expect("watched")
        .on_device
}

/// Whether the last deletion of a file was to be durable; `None` where there was none.
pub fn was_deleted_durably(path: &Path) -> Option<bool> {
    held().state().deleted.get(path).copied()
}

fn note_write(path: &Path, bytes: &[u8], offset: usize) {
    let mut held = held();
    let Some(header) = held.state().headers.get_mut(path) else {
        return;
    };
    for (at, &byte) in bytes.iter().enumerate() {
        if offset + at < HEADER_BYTES {
            header.written[offset + at] = byte;
        }
    }
    if offset < HEADER_BYTES {
        // The kernel writes whole blocks.
        header.dirty = [true; HEADER_BYTES];
    }
}

fn note_sync(path: &Path, code: c_int) {
    let mut held = held();
    let Some(header) = held.state().headers.get_mut(path) else {
        return;
    };
    if std::mem::replace(&mut header.dirty, [false; HEADER_BYTES])[0] && code == SQLITE_OK {
        header.on_device = header.written;
    }
}

/// A file of ours. That of the VFS underneath follows it in the same allocation.
#[repr(C)]
struct Watched {
    base: sqlite3_file,
    path: *mut PathBuf,
}

struct Base(*mut sqlite3_vfs);

// SAFETY: SQLite itself shares its VFS between threads.
unsafe impl Send for Base {}
// SAFETY: as above; it is never changed.
unsafe impl Sync for Base {}

static BASE: OnceLock<Base> = OnceLock::new();

fn base() -> *mut sqlite3_vfs {
    BASE.get().expect("registered").0
}

/// Registers it as the default one.
pub fn register() {
    // SAFETY: null asks for the default VFS, which lives as long as the process; the new one is
    // leaked, and shares the name of none.
    unsafe {
        assert_eq!(rusqlite::ffi::sqlite3_initialize(), SQLITE_OK);
        let default = sqlite3_vfs_find(ptr::null());
        assert!(!default.is_null());
        assert!(BASE.set(Base(default)).is_ok(), "registered once");
        let mut vfs = *default;
        vfs.szOsFile += size_of::<Watched>() as c_int;
        vfs.zName = c"below".as_ptr();
        vfs.pNext = ptr::null_mut();
        vfs.xOpen = Some(open);
        vfs.xDelete = Some(delete);
        let vfs = Box::leak(Box::new(vfs));
        assert_eq!(sqlite3_vfs_register(vfs, 1), SQLITE_OK);
    }
}

unsafe extern "C" fn open(
    _vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite passes memory for szOsFile bytes; a file of no interest is opened right in it.
    unsafe {
        let open = (*base()).xOpen.expect("a method");
        if name.is_null() || flags & SQLITE_OPEN_MAIN_DB == 0 {
            return open(base(), name, file, flags, out_flags);
        }
        let ours = file.cast::<Watched>();
        let below = ours.add(1).cast::<sqlite3_file>();
        (*below).pMethods = ptr::null();
        (*ours).base.pMethods = ptr::null();
        let code = open(base(), name, below, flags, out_flags);
        if code == SQLITE_OK {
            let path = OsStr::from_bytes(CStr::from_ptr(name).to_bytes());
            (*ours).path = Box::into_raw(Box::new(PathBuf::from(path)));
            (*ours).base.pMethods = &raw const METHODS;
        }
        code
    }
}

unsafe extern "C" fn delete(
    _vfs: *mut sqlite3_vfs,
    name: *const c_char,
    sync_directory: c_int,
) -> c_int {
    // SAFETY: SQLite passes a name; passed on as it came.
    unsafe {
        let path = PathBuf::from(OsStr::from_bytes(CStr::from_ptr(name).to_bytes()));
        held().state().deleted.insert(path, sync_directory != 0);
        (*base()).xDelete.expect("a method")(base(), name, sync_directory)
    }
}

/// # Safety
/// `file` is one that `open` opened.
unsafe fn parts<'a>(file: *mut sqlite3_file) -> (&'a Path, *mut sqlite3_file) {
    // SAFETY: by this function's contract.
    unsafe {
        let ours = file.cast::<Watched>();
        (&*(*ours).path, ours.add(1).cast())
    }
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite closes a file once.
    unsafe {
        let (_, below) = parts(file);
        let code = (*(*below).pMethods).xClose.expect("a method")(below);
        drop(Box::from_raw((*file.cast::<Watched>()).path));
        code
    }
}

unsafe extern "C" fn read(
    file: *mut sqlite3_file,
    out: *mut c_void,
    size: c_int,
    offset: sqlite3_int64,
) -> c_int {
    // SAFETY: a file of ours; passed on as it came.
    unsafe {
        let (path, below) = parts(file);
        if offset == 0
            && size as usize == HEADER_BYTES
            && let Some(code) = failure(path, Method::ReadHeader)
        {
            return code;
        }
        (*(*below).pMethods).xRead.expect("a method")(below, out, size, offset)
    }
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    data: *const c_void,
    size: c_int,
    offset: sqlite3_int64,
) -> c_int {
    // SAFETY: a file of ours, and `size` bytes.
    unsafe {
        let (path, below) = parts(file);
        let (length, at) = (size as usize, offset as usize);
        if at + length <= HEADER_BYTES
            && let Some(code) = failure(path, Method::WriteHeader)
        {
            return code;
        }
        note_write(path, std::slice::from_raw_parts(data.cast(), length), at);
        (*(*below).pMethods).xWrite.expect("a method")(below, data, size, offset)
    }
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: a file of ours.
    unsafe {
        let (path, below) = parts(file);
        let code = match failure(path, Method::Sync) {
            Some(code) => code,
            None => (*(*below).pMethods).xSync.expect("a method")(below, flags),
        };
        note_sync(path, code);
        code
    }
}

unsafe extern "C" fn shm_map(
    file: *mut sqlite3_file,
    region: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: a file of ours; passed on as it came.
    unsafe {
        let (path, below) = parts(file);
        if let Some(code) = failure(path, Method::Map) {
            *out = ptr::null_mut();
            return code;
        }
        (*(*below).pMethods).xShmMap.expect("a method")(below, region, size, extend, out)
    }
}

/// Methods that never fail on purpose.
macro_rules! pass {
    ($($name:ident => $method:ident($($argument:ident: $type:ty),*) -> $ret:ty;)*) => {$(
        unsafe extern "C" fn $name(file: *mut sqlite3_file, $($argument: $type),*) -> $ret {
            // SAFETY: a file of ours; passed on as it came.
            unsafe {
                let (_, below) = parts(file);
                (*(*below).pMethods).$method.expect("a method")(below, $($argument),*)
            }
        }
    )*};
}

pass! {
    truncate => xTruncate(size: sqlite3_int64) -> c_int;
    file_size => xFileSize(out: *mut sqlite3_int64) -> c_int;
    lock => xLock(level: c_int) -> c_int;
    unlock => xUnlock(level: c_int) -> c_int;
    check_reserved_lock => xCheckReservedLock(out: *mut c_int) -> c_int;
    file_control => xFileControl(op: c_int, argument: *mut c_void) -> c_int;
    sector_size => xSectorSize() -> c_int;
    device_characteristics => xDeviceCharacteristics() -> c_int;
    shm_lock => xShmLock(offset: c_int, count: c_int, flags: c_int) -> c_int;
    shm_barrier => xShmBarrier() -> ();
    shm_unmap => xShmUnmap(delete: c_int) -> c_int;
    fetch => xFetch(offset: sqlite3_int64, size: c_int, out: *mut *mut c_void) -> c_int;
    unfetch => xUnfetch(offset: sqlite3_int64, page: *mut c_void) -> c_int;
}

static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 3,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: Some(fetch),
    xUnfetch: Some(unfetch),
};
