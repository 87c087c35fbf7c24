//! A VFS over SQLite's own that records what reaches the files. The only unsafe code of the test.
#![allow(unsafe_code)]

use super::record::{self, Event, Opener, Reach};
use rusqlite::ffi::{
    SQLITE_OK, SQLITE_OPEN_CREATE, SQLITE_OPEN_MAIN_DB, SQLITE_OPEN_MAIN_JOURNAL, SQLITE_OPEN_WAL,
    sqlite3_file, sqlite3_int64, sqlite3_io_methods, sqlite3_vfs, sqlite3_vfs_find,
    sqlite3_vfs_register,
};
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::OnceLock;

/// A file that is recorded. The file of the VFS underneath follows it in the same allocation.
#[repr(C)]
struct Recorded {
    base: sqlite3_file,
    path: *mut PathBuf,
}

struct Below(*mut sqlite3_vfs);

// SAFETY: SQLite itself shares its VFS between threads.
unsafe impl Send for Below {}
// SAFETY: as above; it is never changed.
unsafe impl Sync for Below {}

static BELOW: OnceLock<Below> = OnceLock::new();

fn below_vfs() -> *mut sqlite3_vfs {
    BELOW.get().expect("registered").0
}

/// Registers the VFS `recorder` as the default one.
pub fn register() {
    // SAFETY: null asks for the default VFS, which lives as long as the process; the new one is
    // leaked, and shares the name of none.
    unsafe {
        assert_eq!(rusqlite::ffi::sqlite3_initialize(), SQLITE_OK);
        let below = sqlite3_vfs_find(ptr::null());
        assert!(!below.is_null());
        assert!(BELOW.set(Below(below)).is_ok(), "registered once");
        let mut vfs = *below;
        vfs.szOsFile += size_of::<Recorded>() as c_int;
        vfs.zName = c"recorder".as_ptr();
        vfs.pNext = ptr::null_mut();
        vfs.xOpen = Some(open);
        vfs.xDelete = Some(delete);
        let vfs = Box::leak(Box::new(vfs));
        assert_eq!(sqlite3_vfs_register(vfs, 1), SQLITE_OK);
    }
}

/// # Safety
/// `name` is a C string.
unsafe fn path_of(name: *const c_char) -> PathBuf {
    // SAFETY: by this function's contract.
    PathBuf::from(OsStr::from_bytes(
        unsafe { CStr::from_ptr(name) }.to_bytes(),
    ))
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
        let wanted = SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_WAL;
        let open = (*below_vfs()).xOpen.expect("a method");
        if name.is_null() || flags & wanted == 0 {
            return open(below_vfs(), name, file, flags, out_flags);
        }
        let ours = file.cast::<Recorded>();
        let below = ours.add(1).cast::<sqlite3_file>();
        (*below).pMethods = ptr::null();
        (*ours).base.pMethods = ptr::null();
        let path = path_of(name);
        if flags & SQLITE_OPEN_CREATE != 0 {
            record::add(&path, |file| Some(Event::Open(file, Opener::Sqlite)));
        }
        let code = open(below_vfs(), name, below, flags, out_flags);
        if code == SQLITE_OK {
            (*ours).path = Box::into_raw(Box::new(path));
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
    // SAFETY: a name from SQLite; passed on as it came.
    unsafe {
        let path = path_of(name);
        let delete = (*below_vfs()).xDelete.expect("a method");
        record::add(&path, |file| Some(Event::Remove(file)));
        let code = delete(below_vfs(), name, sync_directory);
        if code == SQLITE_OK && sync_directory != 0 {
            record::add(&path, |_| Some(Event::SyncDirectory));
        }
        code
    }
}

/// # Safety
/// `file` is one that `open` opened.
unsafe fn parts<'a>(file: *mut sqlite3_file) -> (&'a PathBuf, *mut sqlite3_file) {
    // SAFETY: by this function's contract.
    unsafe {
        let ours = file.cast::<Recorded>();
        (&*(*ours).path, ours.add(1).cast())
    }
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite closes a file once.
    unsafe {
        let (_, below) = parts(file);
        let code = (*(*below).pMethods).xClose.expect("a method")(below);
        drop(Box::from_raw((*file.cast::<Recorded>()).path));
        code
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
        let bytes = std::slice::from_raw_parts(data.cast::<u8>(), size as usize);
        record::add(path, |file| {
            Some(Event::Write {
                file,
                offset: offset as u64,
                bytes: bytes.into(),
                reach: Reach::Buffered,
            })
        });
        (*(*below).pMethods).xWrite.expect("a method")(below, data, size, offset)
    }
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: sqlite3_int64) -> c_int {
    // SAFETY: a file of ours.
    unsafe {
        let (path, below) = parts(file);
        record::add(path, |file| Some(Event::Truncate(file, size as u64)));
        (*(*below).pMethods).xTruncate.expect("a method")(below, size)
    }
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: a file of ours.
    unsafe {
        let (path, below) = parts(file);
        record::add(path, |file| Some(Event::Flush(file)));
        (*(*below).pMethods).xSync.expect("a method")(below, flags)
    }
}

/// Methods that change nothing that is recorded.
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
    read => xRead(out: *mut c_void, size: c_int, offset: sqlite3_int64) -> c_int;
    file_size => xFileSize(out: *mut sqlite3_int64) -> c_int;
    lock => xLock(level: c_int) -> c_int;
    unlock => xUnlock(level: c_int) -> c_int;
    check_reserved_lock => xCheckReservedLock(out: *mut c_int) -> c_int;
    file_control => xFileControl(op: c_int, argument: *mut c_void) -> c_int;
    sector_size => xSectorSize() -> c_int;
    device_characteristics => xDeviceCharacteristics() -> c_int;
    shm_map => xShmMap(region: c_int, size: c_int, extend: c_int, out: *mut *mut c_void) -> c_int;
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
