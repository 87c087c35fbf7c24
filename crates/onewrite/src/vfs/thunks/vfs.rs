//! The VFS itself: its registration, and the methods that take a file's name.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use super::names::named;
use super::{database, log, opened, shielded, syscalls};
use crate::vfs::database::Switch;
use crate::vfs::ffi::{self, Api, SQLITE_NOTFOUND, SQLITE_OK, Untyped, sqlite3_file, sqlite3_vfs};
use crate::vfs::host::{self, Host};
use crate::vfs::locks::Held;
use crate::vfs::{RegisterError, VFS_NAME, stall, super_journal};

/// The host that one of our VFSs is registered with. It is now this thread's current host.
///
/// # Safety
/// `vfs` was registered by [`register`].
unsafe fn host_of(vfs: *mut sqlite3_vfs) -> &'static Host {
    // SAFETY: by this function's contract; hosts are never freed.
    let host = unsafe { &*(*vfs).pAppData.cast::<Host>() };
    host::enter(host);
    host
}

/// Registers the VFS `onewrite` with the SQLite of these functions. Once is enough, and more is
/// allowed. Each other SQLite of the process gets its own VFS.
///
/// # Errors
/// See [`RegisterError`].
pub fn register(api: Api, make_default: bool) -> Result<(), RegisterError> {
    // SQLite itself says what is registered, because it may have been unloaded and loaded again.
    // Another copy of this library may also have registered; then its VFS is used, and stays the
    // default if it is. SAFETY: a name, and null for the default VFS.
    let (present, base) = unsafe {
        (
            (api.vfs_find)(VFS_NAME.as_ptr()),
            (api.vfs_find)(ptr::null()),
        )
    };
    let ours = match (present.is_null(), base.is_null()) {
        (false, _) => present,
        (true, true) => return Err(RegisterError::NoBase),
        (true, false) => {
            syscalls::install(&api);
            host::host_for(api, base, over).ours
        }
    };
    opened::watch(&api);
    enlist(&api, ours, make_default || ours == base)
}

fn enlist(api: &Api, vfs: *mut sqlite3_vfs, make_default: bool) -> Result<(), RegisterError> {
    // SAFETY: a VFS that is never freed. SQLite links it into its list, which it guards itself.
    match unsafe { (api.vfs_register)(vfs, c_int::from(make_default)) } {
        SQLITE_OK => Ok(()),
        code => Err(RegisterError::Refused(code)),
    }
}

/// Makes `onewrite` the default VFS of this SQLite, for databases that it opens from now on.
pub fn make_default(host: &Host) -> bool {
    enlist(&host.api, host.ours, true).is_ok()
}

/// Our VFS above another. Its `pAppData` is set later.
fn over(base: &sqlite3_vfs) -> sqlite3_vfs {
    sqlite3_vfs {
        iVersion: base.iVersion.min(3),
        szOsFile: base.szOsFile + size_of::<database::DatabaseFile>() as c_int,
        mxPathname: base.mxPathname,
        pNext: ptr::null_mut(),
        zName: VFS_NAME.as_ptr(),
        pAppData: ptr::null_mut(),
        xOpen: vfs_open,
        xDelete: vfs_delete,
        xAccess: vfs_access,
        xFullPathname: base.xFullPathname.map(|_| vfs_full_pathname as _),
        xDlOpen: base.xDlOpen.map(|_| vfs_dl_open as _),
        xDlError: base.xDlError.map(|_| vfs_dl_error as _),
        xDlSym: base.xDlSym.map(|_| vfs_dl_sym as _),
        xDlClose: base.xDlClose.map(|_| vfs_dl_close as _),
        xRandomness: base.xRandomness.map(|_| vfs_randomness as _),
        xSleep: base.xSleep.map(|_| vfs_sleep as _),
        xCurrentTime: base.xCurrentTime.map(|_| vfs_current_time as _),
        xGetLastError: base.xGetLastError.map(|_| vfs_get_last_error as _),
        xCurrentTimeInt64: base.xCurrentTimeInt64.map(|_| vfs_current_time_int64 as _),
        xSetSystemCall: base.xSetSystemCall.map(|_| vfs_set_system_call as _),
        xGetSystemCall: base.xGetSystemCall.map(|_| vfs_get_system_call as _),
        xNextSystemCall: base.xNextSystemCall.map(|_| vfs_next_system_call as _),
    }
}

/// How SQLite's locks on a database are held. `is_locked`: whether a connection has locked it.
pub fn locks_on(host: &Host, database: &Path, is_locked: bool) -> Held {
    syscalls::held_on(&host.api, database, is_locked)
}

/// Our own connections may be open when the application has closed all of its.
pub fn stays_loaded(host: &Host) {
    syscalls::stays_loaded(&host.api);
}

/// `xSetSystemCall`. A caller that restores SQLite's own calls does not mean to remove ours,
/// through which locks are held.
unsafe extern "C" fn vfs_set_system_call(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    call: Option<Untyped>,
) -> c_int {
    // SAFETY: one of our VFSs, passed on as it came, to a method that exists.
    let (host, code) = unsafe {
        let host = host_of(vfs);
        match (*host.base).xSetSystemCall {
            Some(set) => (host, set(host.base, name, call)),
            None => return SQLITE_NOTFOUND,
        }
    };
    if call.is_none() {
        syscalls::install(&host.api);
    }
    code
}

/// `xSleep`: SQLite's busy timeout sleeps here, and `sqlite3_sleep` where this is the default VFS.
unsafe extern "C" fn vfs_sleep(vfs: *mut sqlite3_vfs, microseconds: c_int) -> c_int {
    // SAFETY: one of our VFSs, passed on as it came.
    unsafe {
        let base = host_of(vfs).base;
        match (*base).xSleep {
            Some(sleep) => stall::sleeping(|| sleep(base, microseconds)),
            None => 0,
        }
    }
}

unsafe extern "C" fn vfs_open(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    shielded(|| {
        // SAFETY: SQLite passes the VFS, memory of szOsFile bytes, and a name unless the file is temporary.
        unsafe {
            let host = host_of(vfs);
            if flags & ffi::SQLITE_OPEN_MAIN_DB != 0 && !name.is_null() {
                return database::open(host, name, file, flags, out_flags);
            }
            if flags & ffi::SQLITE_OPEN_WAL != 0
                && let Some(database) = named(name)
            {
                let settled = database.settle_exclusively();
                match settled.and_then(|()| database.assure_guard()) {
                    Ok(()) if database.open_writer() => {
                        return log::open(database, file, flags, out_flags);
                    }
                    Ok(()) => {}
                    Err(e) => {
                        (*file).pMethods = ptr::null();
                        return database.fail(&e);
                    }
                }
            }
            if flags & ffi::SQLITE_OPEN_SUPER_JOURNAL != 0 && !name.is_null() {
                super_journal::opens(host::path(name));
            }
            ((*host.base).xOpen)(host.base, name, file, flags, out_flags)
        }
    })
}

/// Whether a rollback journal belongs to a database in one of our modes. Then it was hot, or a
/// switch needed it. Below `synchronous=EXTRA` SQLite does not make its deletion durable. If it
/// came back after a power cut, it would roll back later commits of the log.
///
/// # Safety
/// `name` is a C string.
unsafe fn is_journal_of_ours(name: *const c_char) -> bool {
    // SAFETY: by this function's contract.
    let path = unsafe { host::path(name) }.into_os_string();
    let database = path.as_bytes().strip_suffix(b"-journal");
    database.is_some_and(|database| {
        let log = [database, b"-onewrite"].concat();
        std::path::Path::new(std::ffi::OsStr::from_bytes(&log)).exists()
    })
}

unsafe extern "C" fn vfs_delete(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    sync_directory: c_int,
) -> c_int {
    shielded(|| {
        // SAFETY: one of our VFSs, and a name from SQLite.
        let (host, database) = unsafe { (host_of(vfs), named(name)) };
        // Without a wal-index SQLite does not know the log's content. If a full disk kept it from
        // making one, it treats the log as empty when it closes, and would delete it.
        if let Some(database) = database.filter(|d| d.index.map_failed.get()) {
            host::log(
                ffi::SQLITE_IOERR_DELETE,
                &format!(
                    "{}: the log is kept: the wal-index could not be mapped, and what is in the log \
                     may not be in the database",
                    database.paths.database.display()
                ),
            );
            return ffi::SQLITE_IOERR_DELETE;
        }
        if let Some(database) = database {
            let is_guarded = database.is_guarded();
            let prepared = match is_guarded {
                true => database.delete_log(),
                false => database.forget_wal(),
            };
            if let Err(e) = prepared {
                let code = database.fail(&e);
                database
                    .guard
                    .unguard_failure
                    .replace(Some((code, e.to_string())));
                return code;
            }
            if is_guarded {
                return SQLITE_OK;
            }
        }
        // SAFETY: a name from SQLite.
        if sync_directory != 0
            && let Err(code) = super_journal::commit(&unsafe { host::path(name) })
        {
            return code;
        }
        // SAFETY: a name from SQLite.
        let sync_directory = match sync_directory == 0 && unsafe { is_journal_of_ours(name) } {
            true => 1,
            false => sync_directory,
        };
        // SAFETY: passed on as it came.
        let code = unsafe { ((*host.base).xDelete)(host.base, name, sync_directory) };
        if let Some(database) = database
            && !matches!(code, SQLITE_OK | ffi::SQLITE_IOERR_DELETE_NOENT)
        {
            // SQLite continues as if the log were gone, and so uses it again at once.
            let wal = database.paths.wal.display();
            let message = format!("{wal}: cannot be deleted: SQLite's VFS says {code}");
            database
                .guard
                .unguard_failure
                .replace(Some((code, message)));
        }
        code
    })
}

unsafe extern "C" fn vfs_access(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    shielded(|| {
        // SAFETY: one of our VFSs.
        let host = unsafe { host_of(vfs) };
        if flags == ffi::SQLITE_ACCESS_EXISTS
            // SAFETY: a name from SQLite.
            && let Some(database) = unsafe { named(name) }.filter(|d| d.is_guarded())
            && let Some(log) = database.log()
        {
            let exists = match log.has_content() {
                // A connection that leaves the mode must open even an empty log, in order to delete
                // it. The deletion ends the guard.
                Ok(has_content) => has_content || database.switch.get() == Switch::ToStock,
                Err(e) => return database.fail(&e),
            };
            // SAFETY: SQLite passes room for one integer.
            unsafe { *out = c_int::from(exists) };
            return SQLITE_OK;
        }
        // SAFETY: passed on as it came.
        unsafe { ((*host.base).xAccess)(host.base, name, flags, out) }
    })
}

/// Methods of the VFS that are passed on as they come.
macro_rules! pass_to_base {
    ($($name:ident => $method:ident($($argument:ident: $type:ty),*) -> $ret:ty = $absent:expr;)*) => {$(
        unsafe extern "C" fn $name(vfs: *mut sqlite3_vfs, $($argument: $type),*) -> $ret {
            // SAFETY: one of our VFSs, passed on as it came.
            unsafe {
                let base = host_of(vfs).base;
                match (*base).$method {
                    Some(method) => method(base, $($argument),*),
                    None => $absent,
                }
            }
        }
    )*};
}

pass_to_base! {
    vfs_dl_open => xDlOpen(name: *const c_char) -> *mut c_void = ptr::null_mut();
    vfs_dl_error => xDlError(size: c_int, out: *mut c_char) -> () = ();
    vfs_dl_sym => xDlSym(library: *mut c_void, name: *const c_char) -> Option<Untyped> = None;
    vfs_dl_close => xDlClose(library: *mut c_void) -> () = ();
    vfs_current_time_int64 => xCurrentTimeInt64(out: *mut i64) -> c_int = ffi::SQLITE_ERROR;
    vfs_get_system_call => xGetSystemCall(name: *const c_char) -> Option<Untyped> = None;
    vfs_next_system_call => xNextSystemCall(name: *const c_char) -> *const c_char = ptr::null();
    vfs_full_pathname => xFullPathname(name: *const c_char, size: c_int, out: *mut c_char) -> c_int = ffi::SQLITE_CANTOPEN;
    vfs_randomness => xRandomness(size: c_int, out: *mut c_char) -> c_int = 0;
    vfs_current_time => xCurrentTime(out: *mut f64) -> c_int = ffi::SQLITE_ERROR;
    vfs_get_last_error => xGetLastError(size: c_int, out: *mut c_char) -> c_int = 0;
}
