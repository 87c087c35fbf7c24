//! A VFS between ours and SQLite's default one. A test sees the calls on files there, and may make
//! them fail. A `Watch` decides in safe code; all the unsafe code is here.
#![allow(unsafe_code)]

use rusqlite::ffi::{
    SQLITE_OK, sqlite3_file, sqlite3_int64, sqlite3_io_methods, sqlite3_vfs, sqlite3_vfs_find,
    sqlite3_vfs_register,
};
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;

/// Passes a call on to the VFS underneath, and returns its result code.
pub trait Call: FnOnce() -> c_int {}

impl<F: FnOnce() -> c_int> Call for F {}

/// Handles the calls; by default they are passed on. SQLite gets the returned code. It must be an
/// error if the call was not passed on.
pub trait Watch: 'static {
    /// The VFS's name.
    const NAME: &CStr;
    /// The kinds of files whose calls come here, as flags of `xOpen`. Deletions of every kind come
    /// here.
    const FILES: c_int;

    fn open(_path: &Path, _flags: c_int, call: impl Call) -> c_int {
        call()
    }

    fn delete(_path: &Path, _durably: bool, call: impl Call) -> c_int {
        call()
    }

    fn read(_path: &Path, _offset: u64, _size: usize, call: impl Call) -> c_int {
        call()
    }

    fn write(_path: &Path, _offset: u64, _bytes: &[u8], call: impl Call) -> c_int {
        call()
    }

    fn truncate(_path: &Path, _size: u64, call: impl Call) -> c_int {
        call()
    }

    fn sync(_path: &Path, call: impl Call) -> c_int {
        call()
    }

    fn lock(_path: &Path, _level: c_int, call: impl Call) -> c_int {
        call()
    }

    fn unlock(_path: &Path, _level: c_int, call: impl Call) -> c_int {
        call()
    }

    fn shm_map(_path: &Path, call: impl Call) -> c_int {
        call()
    }

    fn file_control(_path: &Path, _op: c_int, call: impl Call) -> c_int {
        call()
    }
}

/// A watched file. The file of the VFS underneath follows it in the same allocation.
#[repr(C)]
struct Watched {
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

/// Registers it as the default VFS.
pub fn register<W: Watch>() {
    // SAFETY: null asks for the default VFS, which lives as long as the process. The new one is
    // leaked, and its name is unique.
    unsafe {
        assert_eq!(rusqlite::ffi::sqlite3_initialize(), SQLITE_OK);
        let below = sqlite3_vfs_find(ptr::null());
        assert!(!below.is_null());
        assert!(BELOW.set(Below(below)).is_ok(), "registered once");
        let mut vfs = *below;
        vfs.szOsFile += size_of::<Watched>() as c_int;
        vfs.zName = W::NAME.as_ptr();
        vfs.pNext = ptr::null_mut();
        vfs.xOpen = Some(open::<W>);
        vfs.xDelete = Some(delete::<W>);
        let vfs = Box::leak(Box::new(vfs));
        assert_eq!(sqlite3_vfs_register(vfs, 1), SQLITE_OK);
    }
}

/// # Safety
/// `name` is a C string.
unsafe fn path_of(name: *const c_char) -> PathBuf {
    // SAFETY: by this function's contract.
    let name = unsafe { CStr::from_ptr(name) };
    PathBuf::from(OsStr::from_bytes(name.to_bytes()))
}

unsafe extern "C" fn open<W: Watch>(
    _vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite passes memory for szOsFile bytes. A file of no interest is opened right in it.
    unsafe {
        let open = (*below_vfs()).xOpen.expect("a method");
        if name.is_null() || flags & W::FILES == 0 {
            return open(below_vfs(), name, file, flags, out_flags);
        }
        let ours = file.cast::<Watched>();
        let below = ours.add(1).cast::<sqlite3_file>();
        (*below).pMethods = ptr::null();
        (*ours).base.pMethods = ptr::null();
        let path = path_of(name);
        let code = W::open(&path, flags, || {
            open(below_vfs(), name, below, flags, out_flags)
        });
        if code == SQLITE_OK {
            (*ours).path = Box::into_raw(Box::new(path));
            (*ours).base.pMethods = methods::<W>();
        }
        code
    }
}

unsafe extern "C" fn delete<W: Watch>(
    _vfs: *mut sqlite3_vfs,
    name: *const c_char,
    sync_directory: c_int,
) -> c_int {
    // SAFETY: a name from SQLite, passed on as it came.
    unsafe {
        let delete = (*below_vfs()).xDelete.expect("a method");
        W::delete(&path_of(name), sync_directory != 0, || {
            delete(below_vfs(), name, sync_directory)
        })
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

unsafe extern "C" fn read<W: Watch>(
    file: *mut sqlite3_file,
    out: *mut c_void,
    size: c_int,
    offset: sqlite3_int64,
) -> c_int {
    // SAFETY: one of our files, passed on as it came.
    unsafe {
        let (path, below) = parts(file);
        W::read(path, offset as u64, size as usize, || {
            (*(*below).pMethods).xRead.expect("a method")(below, out, size, offset)
        })
    }
}

unsafe extern "C" fn write<W: Watch>(
    file: *mut sqlite3_file,
    data: *const c_void,
    size: c_int,
    offset: sqlite3_int64,
) -> c_int {
    // SAFETY: one of our files, and `size` bytes.
    unsafe {
        let (path, below) = parts(file);
        let bytes = std::slice::from_raw_parts(data.cast(), size as usize);
        W::write(path, offset as u64, bytes, || {
            (*(*below).pMethods).xWrite.expect("a method")(below, data, size, offset)
        })
    }
}

unsafe extern "C" fn truncate<W: Watch>(file: *mut sqlite3_file, size: sqlite3_int64) -> c_int {
    // SAFETY: one of our files, passed on as it came.
    unsafe {
        let (path, below) = parts(file);
        W::truncate(path, size as u64, || {
            (*(*below).pMethods).xTruncate.expect("a method")(below, size)
        })
    }
}

unsafe extern "C" fn sync<W: Watch>(file: *mut sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: one of our files, passed on as it came.
    unsafe {
        let (path, below) = parts(file);
        W::sync(path, || {
            (*(*below).pMethods).xSync.expect("a method")(below, flags)
        })
    }
}

unsafe extern "C" fn lock<W: Watch>(file: *mut sqlite3_file, level: c_int) -> c_int {
    // SAFETY: one of our files, passed on as it came.
    unsafe {
        let (path, below) = parts(file);
        W::lock(path, level, || {
            (*(*below).pMethods).xLock.expect("a method")(below, level)
        })
    }
}

unsafe extern "C" fn unlock<W: Watch>(file: *mut sqlite3_file, level: c_int) -> c_int {
    // SAFETY: one of our files, passed on as it came.
    unsafe {
        let (path, below) = parts(file);
        W::unlock(path, level, || {
            (*(*below).pMethods).xUnlock.expect("a method")(below, level)
        })
    }
}

unsafe extern "C" fn shm_map<W: Watch>(
    file: *mut sqlite3_file,
    region: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: one of our files, passed on as it came.
    unsafe {
        let (path, below) = parts(file);
        // A call that is not passed on maps nothing.
        *out = ptr::null_mut();
        W::shm_map(path, || {
            (*(*below).pMethods).xShmMap.expect("a method")(below, region, size, extend, out)
        })
    }
}

unsafe extern "C" fn file_control<W: Watch>(
    file: *mut sqlite3_file,
    op: c_int,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: one of our files, passed on as it came.
    unsafe {
        let (path, below) = parts(file);
        W::file_control(path, op, || {
            (*(*below).pMethods).xFileControl.expect("a method")(below, op, argument)
        })
    }
}

/// Methods that no test watches.
macro_rules! pass {
    ($($name:ident => $method:ident($($argument:ident: $type:ty),*) -> $ret:ty;)*) => {$(
        unsafe extern "C" fn $name(file: *mut sqlite3_file, $($argument: $type),*) -> $ret {
            // SAFETY: one of our files, passed on as it came.
            unsafe {
                let (_, below) = parts(file);
                (*(*below).pMethods).$method.expect("a method")(below, $($argument),*)
            }
        }
    )*};
}

pass! {
    file_size => xFileSize(out: *mut sqlite3_int64) -> c_int;
    check_reserved_lock => xCheckReservedLock(out: *mut c_int) -> c_int;
    sector_size => xSectorSize() -> c_int;
    device_characteristics => xDeviceCharacteristics() -> c_int;
    shm_lock => xShmLock(offset: c_int, count: c_int, flags: c_int) -> c_int;
    shm_barrier => xShmBarrier() -> ();
    shm_unmap => xShmUnmap(delete: c_int) -> c_int;
    fetch => xFetch(offset: sqlite3_int64, size: c_int, out: *mut *mut c_void) -> c_int;
    unfetch => xUnfetch(offset: sqlite3_int64, page: *mut c_void) -> c_int;
}

fn methods<W: Watch>() -> &'static sqlite3_io_methods {
    const {
        &sqlite3_io_methods {
            iVersion: 3,
            xClose: Some(close),
            xRead: Some(read::<W>),
            xWrite: Some(write::<W>),
            xTruncate: Some(truncate::<W>),
            xSync: Some(sync::<W>),
            xFileSize: Some(file_size),
            xLock: Some(lock::<W>),
            xUnlock: Some(unlock::<W>),
            xCheckReservedLock: Some(check_reserved_lock),
            xFileControl: Some(file_control::<W>),
            xSectorSize: Some(sector_size),
            xDeviceCharacteristics: Some(device_characteristics),
            xShmMap: Some(shm_map::<W>),
            xShmLock: Some(shm_lock),
            xShmBarrier: Some(shm_barrier),
            xShmUnmap: Some(shm_unmap),
            xFetch: Some(fetch),
            xUnfetch: Some(unfetch),
        }
    }
}
