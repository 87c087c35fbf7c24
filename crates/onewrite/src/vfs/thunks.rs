//! The functions that SQLite calls: of the VFS, of a database, of a log.
//!
//! Each finds its object, calls the safe code, and turns the result into one of SQLite's codes. A
//! panic does not leave them: it becomes an error of the call.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::env;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::{Mutex, OnceLock};

use super::database::{Database, Paths, Settings, Switch};
use super::ffi::{
    self, Api, SQLITE_NOTFOUND, SQLITE_OK, Untyped, sqlite3_file, sqlite3_io_methods, sqlite3_vfs,
};
use super::host::{self, Connection, Host};
use super::inner::{Inner, LockLevel, Mapping};
use super::pragma::Answer;
use super::{RegisterError, VFS_NAME, convert, guard};
use crate::commit::Writer;
use crate::log::LogError;
use crate::mode::{JournalMode, UpgradeOfWal};
use crate::sync;

/// A database file of ours. The file of the VFS underneath follows it in the same allocation.
#[repr(C)]
struct DatabaseFile {
    base: sqlite3_file,
    database: *mut Database,
}

/// A log of ours: it belongs to a database, which SQLite closes after it.
#[repr(C)]
struct LogHandle {
    base: sqlite3_file,
    database: *const Database,
}

/// Which database a log's name belongs to. SQLite passes the same pointer whenever it means the log
/// of one connection's database.
#[derive(Clone, Copy)]
struct Named(*const Database);

// SAFETY: a pointer is followed only by the thread that uses the connection it belongs to.
unsafe impl Send for Named {}

static LOG_NAMES: Mutex<Option<HashMap<usize, Named>>> = Mutex::new(None);

struct Registered(Box<sqlite3_vfs>);

// SAFETY: SQLite itself shares a VFS between threads; we never change it once it is registered.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

static VFS: OnceLock<Registered> = OnceLock::new();

/// The default VFS when ours was registered.
fn base() -> Option<&'static sqlite3_vfs> {
    // SAFETY: a registered VFS lives as long as the process.
    host::get().map(|host| unsafe { &*host.base })
}

pub fn base_name() -> Option<&'static CStr> {
    // SAFETY: a VFS's name is a C string that lives as long as it.
    base().map(|base| unsafe { CStr::from_ptr(base.zName) })
}

/// Registers the VFS `onewrite` with the SQLite whose functions these are; once is enough, more is
/// allowed.
///
/// # Errors
/// See [`RegisterError`].
pub fn register(api: Api, make_default: bool) -> Result<(), RegisterError> {
    if VFS.get().is_none() {
        let host = host::get().map_or_else(
            || {
                // SAFETY: null asks for the default VFS.
                let base = unsafe { (api.vfs_find)(ptr::null()) };
                Host { api, base }
            },
            |host| Host {
                api: host.api,
                base: host.base,
            },
        );
        if host.base.is_null() {
            return Err(RegisterError::NoBase);
        }
        let base = host::set(host).base;
        // SAFETY: the default VFS is alive.
        let base = unsafe { &*base };
        let ours = sqlite3_vfs {
            iVersion: base.iVersion.min(3),
            szOsFile: base.szOsFile + size_of::<DatabaseFile>() as c_int,
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
            mxPathname: base.mxPathname,
        };
        let _ = VFS.set(Registered(Box::new(ours)));
    }
    register_again(make_default)
}

fn register_again(make_default: bool) -> Result<(), RegisterError> {
    let (Some(host), Some(vfs)) = (host::get(), VFS.get()) else {
        return Err(RegisterError::NoBase);
    };
    let vfs = ptr::from_ref::<sqlite3_vfs>(&vfs.0).cast_mut();
    // SAFETY: the VFS is static. SQLite links it into its list, which it guards itself.
    match unsafe { (host.api.vfs_register)(vfs, c_int::from(make_default)) } {
        SQLITE_OK => Ok(()),
        code => Err(RegisterError::Refused(code)),
    }
}

/// Makes `onewrite` the VFS of every database that is opened from now on without another's name.
pub fn make_default() -> bool {
    register_again(true).is_ok()
}

/// Runs the safe code behind a call; a panic becomes SQLite's "internal error".
fn shielded(work: impl FnOnce() -> c_int) -> c_int {
    const SQLITE_INTERNAL: c_int = 2;
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        host::log(
            SQLITE_INTERNAL,
            "a bug: please report the panic printed to standard error",
        );
        SQLITE_INTERNAL
    })
}

// ---- The VFS ----

/// # Safety
/// `name` is null or a pointer that SQLite passed to a VFS method.
unsafe fn named(name: *const c_char) -> Option<&'static Database> {
    let names = sync::lock_static(&LOG_NAMES);
    let named = names.as_ref()?.get(&name.addr()).copied()?;
    // SAFETY: the entry is removed before the database is freed.
    Some(unsafe { &*named.0 })
}

unsafe extern "C" fn vfs_open(
    _vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    shielded(|| {
        let Some(host) = host::get() else {
            return ffi::SQLITE_CANTOPEN;
        };
        // SAFETY: SQLite passes memory of szOsFile bytes, and a name unless the file is temporary.
        unsafe {
            if flags & ffi::SQLITE_OPEN_MAIN_DB != 0 && !name.is_null() {
                return open_database(host, name, file, flags, out_flags);
            }
            if flags & ffi::SQLITE_OPEN_WAL != 0
                && let Some(database) = named(name)
            {
                match database.settle_exclusively() {
                    Ok(()) if database.open_writer() => {
                        return open_log(database, file, flags, out_flags);
                    }
                    Ok(()) => {}
                    Err(e) => {
                        (*file).pMethods = ptr::null();
                        return database.fail(&e);
                    }
                }
            }
            ((*host.base).xOpen)(host.base, name, file, flags, out_flags)
        }
    })
}

/// # Safety
/// As for `vfs_open`.
unsafe fn open_database(
    host: &Host,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: see `vfs_open`; the file underneath lies behind ours.
    unsafe {
        let ours = file.cast::<DatabaseFile>();
        let below = ours.add(1).cast::<sqlite3_file>();
        (*below).pMethods = ptr::null();
        (*ours).base.pMethods = ptr::null();
        let mut opened_as = flags;
        let code = ((*host.base).xOpen)(host.base, name, below, flags, &raw mut opened_as);
        if !out_flags.is_null() {
            *out_flags = opened_as;
        }
        if code != SQLITE_OK {
            return code;
        }
        let database = Box::new(Database {
            inner: Inner::new(below),
            connection: Cell::new(None),
            paths: Paths::of(host::path(name)),
            read_only: opened_as & ffi::SQLITE_OPEN_READONLY != 0,
            lock: Cell::new(LockLevel::NONE),
            settings: Cell::new(Settings::default()),
            switch: Cell::new(Switch::Idle),
            wanted: wanted_mode(name),
            mode_was_named: Cell::new(false),
            conversion_tried: Cell::new(false),
            writer_tried: Cell::new(false),
            leftover_checked: Cell::new(false),
            log: RefCell::new(None),
            writer: RefCell::new(None),
            holds_write_lock: Cell::new(false),
            index_invalidated: Cell::new(false),
            index_failed: Cell::new(false),
            unguard_failure: RefCell::new(None),
            must_look_again: Cell::new(false),
            last_error: RefCell::new(None),
        });
        if let Err(message) = apply_uri_settings(&database, name) {
            host::log(ffi::SQLITE_CANTOPEN, &message);
            database.inner.close();
            return ffi::SQLITE_CANTOPEN;
        }
        (*ours).base.pMethods = match database.inner.methods().iVersion {
            1 => &raw const DATABASE_METHODS[0],
            2 => &raw const DATABASE_METHODS[1],
            _ => &raw const DATABASE_METHODS[2],
        };
        let database = Box::into_raw(database);
        (*ours).database = database;
        let mut names = sync::lock_static(&LOG_NAMES);
        names
            .get_or_insert_default()
            .insert(host::wal_name(name).addr(), Named(database));
        SQLITE_OK
    }
}

/// The journal mode that the URI (`journal_mode=`), or else the environment
/// (`ONEWRITE_JOURNAL_MODE`), ask for.
///
/// # Safety
/// `name` is that of a main database, from SQLite.
unsafe fn wanted_mode(name: *const c_char) -> Option<JournalMode> {
    if convert::is_converting() {
        return None;
    }
    // SAFETY: by this function's contract.
    let uri = unsafe { host::uri_parameter(name, c"journal_mode") };
    let word = uri.or_else(|| env::var("ONEWRITE_JOURNAL_MODE").ok())?;
    JournalMode::wanted(&word).unwrap_or_else(|e| {
        host::log(ffi::SQLITE_WARNING, &format!("journal_mode: {e}"));
        None
    })
}

/// # Safety
/// As for `wanted_mode`.
unsafe fn apply_uri_settings(database: &Database, name: *const c_char) -> Result<(), String> {
    let settings = [
        (c"onewrite_layout", "layout"),
        (c"onewrite_sync", "sync"),
        (c"onewrite_init", "init"),
        (c"onewrite_group_synch", "group_synch"),
        (c"onewrite_direct_io", "direct_io"),
    ];
    if let Some(message) = senseless_upgrade(database) {
        host::log(
            ffi::SQLITE_WARNING,
            &format!("ONEWRITE_UPGRADE_WAL: {message}"),
        );
    }
    if let Ok(layout) = env::var("ONEWRITE_LAYOUT")
        && let Err(message) = database.set("layout", &layout)
    {
        host::log(ffi::SQLITE_WARNING, &format!("ONEWRITE_LAYOUT: {message}"));
    }
    for (parameter, setting) in settings {
        // SAFETY: by this function's contract.
        if let Some(value) = unsafe { host::uri_parameter(name, parameter) } {
            database.set(setting, &value)?;
        }
    }
    Ok(())
}

/// Why `ONEWRITE_UPGRADE_WAL` upgrades nothing, where that cannot be what was meant.
fn senseless_upgrade(database: &Database) -> Option<String> {
    let upgrade = env::var("ONEWRITE_UPGRADE_WAL").ok()?.parse();
    match upgrade {
        Err(e) => Some(format!("{e}; WAL stays SQLite's own")),
        Ok(UpgradeOfWal::ToWanted)
            if database.wanted.is_none() && env::var_os("ONEWRITE_JOURNAL_MODE").is_none() =>
        {
            Some("1 is for the mode that ONEWRITE_JOURNAL_MODE names, and that is not set".into())
        }
        Ok(_) => None,
    }
}

/// # Safety
/// As for `vfs_open`; the database outlives its log, which SQLite closes first.
unsafe fn open_log(
    database: &Database,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: by this function's contract.
    unsafe {
        let ours = file.cast::<LogHandle>();
        (*ours).base.pMethods = &raw const LOG_METHODS;
        (*ours).database = database;
        if !out_flags.is_null() {
            *out_flags = flags;
        }
    }
    SQLITE_OK
}

unsafe extern "C" fn vfs_delete(
    _vfs: *mut sqlite3_vfs,
    name: *const c_char,
    sync_directory: c_int,
) -> c_int {
    shielded(|| {
        // SAFETY: a name from SQLite.
        let database = unsafe { named(name) };
        // Without a wal-index SQLite does not know what is in the log. After a full disk has kept it
        // from making one it takes the log for an empty one when it closes, and would delete it.
        if let Some(database) = database.filter(|d| d.index_failed.get()) {
            host::log(
                ffi::SQLITE_IOERR_DELETE,
                &format!(
                    "{}: its log stays: the wal-index could not be mapped, and what is in the log \
                     may not be in the database",
                    database.paths.database.display()
                ),
            );
            return ffi::SQLITE_IOERR_DELETE;
        }
        if let Some(database) = database.filter(|d| d.is_guarded()) {
            return match database.delete_log() {
                Ok(()) => SQLITE_OK,
                Err(e) => {
                    let code = database.fail(&e);
                    database
                        .unguard_failure
                        .replace(Some((code, e.to_string())));
                    code
                }
            };
        }
        let Some(host) = host::get() else {
            return ffi::SQLITE_IOERR;
        };
        // SAFETY: passed on as it came.
        unsafe { ((*host.base).xDelete)(host.base, name, sync_directory) }
    })
}

unsafe extern "C" fn vfs_access(
    _vfs: *mut sqlite3_vfs,
    name: *const c_char,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    shielded(|| {
        if flags == ffi::SQLITE_ACCESS_EXISTS
            // SAFETY: a name from SQLite.
            && let Some(database) = unsafe { named(name) }.filter(|d| d.is_guarded())
            && let Some(log) = database.log()
        {
            let exists = match log.logical_size() {
                // Who leaves the mode must open even an empty log, in order to delete it: that is
                // what ends the guard.
                Ok(size) => size > 0 || database.switch.get() == Switch::ToStock,
                Err(e) => return database.fail(&e),
            };
            // SAFETY: SQLite passes room for one integer.
            unsafe { *out = c_int::from(exists) };
            return SQLITE_OK;
        }
        let Some(host) = host::get() else {
            return ffi::SQLITE_IOERR;
        };
        // SAFETY: passed on as it came.
        unsafe { ((*host.base).xAccess)(host.base, name, flags, out) }
    })
}

/// Methods of the VFS that are passed on as they come.
macro_rules! pass_to_base {
    ($($name:ident => $method:ident($($argument:ident: $type:ty),*) -> $ret:ty = $absent:expr;)*) => {$(
        unsafe extern "C" fn $name(_vfs: *mut sqlite3_vfs, $($argument: $type),*) -> $ret {
            match host::get() {
                // SAFETY: passed on as it came, to a method that is there.
                Some(host) => unsafe { pass_to_base!(@call host, $method, ($($argument),*), $absent) },
                None => $absent,
            }
        }
    )*};
    (@call $host:ident, $method:ident, ($($argument:ident),*), $absent:expr) => {
        match (*$host.base).$method {
            Some(method) => method($host.base, $($argument),*),
            None => $absent,
        }
    };
}

pass_to_base! {
    vfs_dl_open => xDlOpen(name: *const c_char) -> *mut c_void = ptr::null_mut();
    vfs_dl_error => xDlError(size: c_int, out: *mut c_char) -> () = ();
    vfs_dl_sym => xDlSym(library: *mut c_void, name: *const c_char) -> Option<Untyped> = None;
    vfs_dl_close => xDlClose(library: *mut c_void) -> () = ();
    vfs_current_time_int64 => xCurrentTimeInt64(out: *mut i64) -> c_int = ffi::SQLITE_ERROR;
    vfs_set_system_call => xSetSystemCall(name: *const c_char, call: Option<Untyped>) -> c_int = SQLITE_NOTFOUND;
    vfs_get_system_call => xGetSystemCall(name: *const c_char) -> Option<Untyped> = None;
    vfs_next_system_call => xNextSystemCall(name: *const c_char) -> *const c_char = ptr::null();
    vfs_full_pathname => xFullPathname(name: *const c_char, size: c_int, out: *mut c_char) -> c_int = ffi::SQLITE_CANTOPEN;
    vfs_randomness => xRandomness(size: c_int, out: *mut c_char) -> c_int = 0;
    vfs_sleep => xSleep(microseconds: c_int) -> c_int = 0;
    vfs_current_time => xCurrentTime(out: *mut f64) -> c_int = ffi::SQLITE_ERROR;
    vfs_get_last_error => xGetLastError(size: c_int, out: *mut c_char) -> c_int = 0;
}

// ---- A database ----

/// # Safety
/// `file` is a database that `open_database` opened.
unsafe fn database<'a>(file: *mut sqlite3_file) -> &'a Database {
    // SAFETY: by this function's contract.
    unsafe { &*(*file.cast::<DatabaseFile>()).database }
}

const fn database_methods(version: c_int) -> sqlite3_io_methods {
    sqlite3_io_methods {
        iVersion: version,
        xClose: db_close,
        xRead: db_read,
        xWrite: db_write,
        xTruncate: db_truncate,
        xSync: db_sync,
        xFileSize: db_file_size,
        xLock: db_lock,
        xUnlock: db_unlock,
        xCheckReservedLock: db_check_reserved_lock,
        xFileControl: db_file_control,
        xSectorSize: db_sector_size,
        xDeviceCharacteristics: db_device_characteristics,
        xShmMap: db_shm_map,
        xShmLock: db_shm_lock,
        xShmBarrier: db_shm_barrier,
        xShmUnmap: db_shm_unmap,
        xFetch: db_fetch,
        xUnfetch: db_unfetch,
    }
}

/// One table for each version that the file underneath may have.
static DATABASE_METHODS: [sqlite3_io_methods; 3] = [
    database_methods(1),
    database_methods(2),
    database_methods(3),
];

/// Methods of a database that are passed on as they come.
macro_rules! pass_to_inner {
    ($($name:ident => $method:ident($($argument:ident: $type:ty),*) -> $ret:ty;)*) => {$(
        unsafe extern "C" fn $name(file: *mut sqlite3_file, $($argument: $type),*) -> $ret {
            // SAFETY: SQLite calls with a database of ours; passed on as it came.
            unsafe {
                let inner = &database(file).inner;
                (inner.methods().$method)(inner.file(), $($argument),*)
            }
        }
    )*};
}

pass_to_inner! {
    db_truncate => xTruncate(size: i64) -> c_int;
    db_sync => xSync(flags: c_int) -> c_int;
    db_file_size => xFileSize(out: *mut i64) -> c_int;
    db_check_reserved_lock => xCheckReservedLock(out: *mut c_int) -> c_int;
    db_sector_size => xSectorSize() -> c_int;
    db_shm_barrier => xShmBarrier() -> ();
    db_unfetch => xUnfetch(offset: i64, page: *mut c_void) -> c_int;
}

unsafe extern "C" fn db_close(file: *mut sqlite3_file) -> c_int {
    shielded(|| {
        // SAFETY: SQLite closes a file once, after its log.
        let database = unsafe { Box::from_raw((*file.cast::<DatabaseFile>()).database) };
        let mut names = sync::lock_static(&LOG_NAMES);
        let this = ptr::from_ref(&*database);
        names
            .get_or_insert_default()
            .retain(|_, named| named.0 != this);
        drop(names);
        database.inner.close()
    })
}

unsafe extern "C" fn db_read(
    file: *mut sqlite3_file,
    out: *mut c_void,
    size: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: SQLite passes a buffer of `size` bytes.
    let (database, out) = unsafe {
        (
            database(file),
            std::slice::from_raw_parts_mut(out.cast::<u8>(), size as usize),
        )
    };
    let code = database.inner.read(out, offset);
    // Whoever reads without a lock has not been told of the guard yet, and shall not meet it either: a
    // VFS over ours may do that.
    if offset < guard::HEADER_BYTES as i64
        && (database.is_guarded() || guard::stands_in(out, offset as u64))
    {
        guard::hide(out, offset as u64);
    }
    code
}

unsafe extern "C" fn db_write(
    file: *mut sqlite3_file,
    data: *const c_void,
    size: c_int,
    offset: i64,
) -> c_int {
    shielded(|| {
        // SAFETY: SQLite passes `size` bytes.
        let (database, data) = unsafe {
            (
                database(file),
                std::slice::from_raw_parts(data.cast::<u8>(), size as usize),
            )
        };
        if database.must_look_again.get() {
            return ffi::SQLITE_IOERR_WRITE;
        }
        if offset == 0
            && database.is_guarded()
            && let Some(id) = database.log().and_then(|log| log.id())
        {
            let mut page = data.to_vec();
            guard::keep(&mut page, id);
            return database.inner.write(&page, 0);
        }
        database.inner.write(data, offset)
    })
}

unsafe extern "C" fn db_lock(file: *mut sqlite3_file, level: c_int) -> c_int {
    shielded(|| {
        // SAFETY: a database of ours.
        let database = unsafe { database(file) };
        let level = LockLevel(level);
        if database.lock.get() == LockLevel::NONE && level == LockLevel::SHARED {
            return database.lock_shared();
        }
        let code = database.inner.lock(level);
        if code == SQLITE_OK {
            database.lock.set(database.lock.get().max(level));
        }
        code
    })
}

unsafe extern "C" fn db_unlock(file: *mut sqlite3_file, level: c_int) -> c_int {
    shielded(|| {
        // SAFETY: a database of ours.
        let database = unsafe { database(file) };
        let code = database.inner.unlock(LockLevel(level));
        database.lock.set(database.lock.get().min(LockLevel(level)));
        if database.lock.get() == LockLevel::NONE {
            database.must_look_again.set(false);
            database.log.replace(None);
        }
        code
    })
}

unsafe extern "C" fn db_device_characteristics(file: *mut sqlite3_file) -> c_int {
    // SAFETY: a database of ours.
    let database = unsafe { database(file) };
    // SAFETY: passed on as it came.
    let flags = unsafe { (database.inner.methods().xDeviceCharacteristics)(database.inner.file()) };
    // SQLite asks the database for this when it means the log: whether frames that share a sector
    // with new ones are safe. In our guarded layouts no two frames share one.
    let apart = if database.is_guarded() {
        ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
    } else {
        0
    };
    flags | apart
}

unsafe extern "C" fn db_file_control(
    file: *mut sqlite3_file,
    op: c_int,
    argument: *mut c_void,
) -> c_int {
    shielded(|| {
        // SAFETY: a database of ours; the argument is what SQLite documents for `op`.
        unsafe {
            let database = database(file);
            match op {
                ffi::SQLITE_FCNTL_PRAGMA => pragma(database, argument.cast()),
                ffi::SQLITE_FCNTL_PDB => {
                    let connection = Connection::new(argument.cast_const().cast(), file);
                    database.connection.set(Some(connection));
                    database.inner.control(op, argument)
                }
                ffi::FCNTL_DATABASE => {
                    *argument.cast::<*mut sqlite3_file>() = file;
                    SQLITE_OK
                }
                ffi::SQLITE_FCNTL_PERSIST_WAL if database.is_guarded() => {
                    // The log stays in any case; but SQLite must "delete" it to end the guard.
                    *argument.cast::<c_int>() = 0;
                    SQLITE_OK
                }
                ffi::SQLITE_FCNTL_COMMIT_PHASETWO => {
                    let index = database.inner.index_view();
                    let code = with_writer(database, |writer| writer.published(index));
                    match code {
                        SQLITE_OK => database.inner.control(op, argument),
                        code => code,
                    }
                }
                ffi::SQLITE_FCNTL_CKPT_START => {
                    let code = with_writer(database, |writer| writer.drain());
                    match code {
                        SQLITE_OK => database.inner.control(op, argument),
                        code => code,
                    }
                }
                ffi::SQLITE_FCNTL_VFSNAME => {
                    let code = database.inner.control(op, argument);
                    prefix_vfs_name(argument.cast());
                    code
                }
                _ => database.inner.control(op, argument),
            }
        }
    })
}

/// # Safety
/// `arguments` is what `SQLITE_FCNTL_PRAGMA` passes: room for a result, name, value or null.
unsafe fn pragma(database: &Database, arguments: *mut *mut c_char) -> c_int {
    // SAFETY: by this function's contract.
    unsafe {
        let Some(name) = host::text(*arguments.add(1)) else {
            return SQLITE_NOTFOUND;
        };
        let (name, value) = (
            name.to_owned(),
            host::text(*arguments.add(2)).map(str::to_owned),
        );
        match database.pragma(&name, value.as_deref()) {
            Answer::Pass => database
                .inner
                .control(ffi::SQLITE_FCNTL_PRAGMA, arguments.cast()),
            Answer::Text(text) => {
                *arguments = host::sqlite_string(&text);
                // Without it SQLite would answer with no row at all.
                match (*arguments).is_null() {
                    true => ffi::SQLITE_NOMEM,
                    false => SQLITE_OK,
                }
            }
            Answer::Fail(failure) => {
                if !failure.message.is_empty() {
                    *arguments = host::sqlite_string(&failure.message);
                }
                failure.code
            }
        }
    }
}

/// # Safety
/// `name` is what `SQLITE_FCNTL_VFSNAME` passes: a place for a string of SQLite's memory.
unsafe fn prefix_vfs_name(name: *mut *mut c_char) {
    // SAFETY: by this function's contract.
    unsafe {
        let below = host::text(*name).unwrap_or_default();
        let ours = host::sqlite_string(&format!("onewrite/{below}"));
        if let Some(host) = host::get() {
            (host.api.free)((*name).cast());
        }
        *name = ours;
    }
}

unsafe extern "C" fn db_shm_map(
    file: *mut sqlite3_file,
    region: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: a database of ours; the mapping lasts until xShmUnmap.
    unsafe {
        let database = database(file);
        let inner = &database.inner;
        let code = (inner.methods().xShmMap)(inner.file(), region, size, extend, out);
        if region == 0 {
            let is_mapped = matches!(code, SQLITE_OK | ffi::SQLITE_READONLY);
            database.index_failed.set(!is_mapped);
            match code {
                SQLITE_OK => inner.mapped(*out, Mapping::Writable),
                // `readonly_shm=1`, or no permission: mapped all the same, and kept up by others.
                ffi::SQLITE_READONLY => inner.mapped(*out, Mapping::ReadOnly),
                _ => inner.unmapped(),
            }
        }
        code
    }
}

unsafe extern "C" fn db_shm_lock(
    file: *mut sqlite3_file,
    offset: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    shielded(|| {
        const WRITE_LOCK: c_int = 0;
        // SAFETY: a database of ours.
        let database = unsafe { database(file) };
        if offset != WRITE_LOCK {
            return database.inner.shm_lock(offset, count, flags);
        }
        let mut ended = SQLITE_OK;
        if flags & ffi::SQLITE_SHM_UNLOCK != 0 && database.holds_write_lock.replace(false) {
            let index = database.inner.index_view();
            let mut resealed = false;
            ended = with_writer(database, |writer| {
                resealed = writer.take_resealed();
                writer.transaction_ends(index)
            });
            if resealed {
                database.inner.invalidate_index();
            }
        }
        let code = database.inner.shm_lock(offset, count, flags);
        if code == SQLITE_OK && flags & ffi::SQLITE_SHM_UNLOCK == 0 {
            database.holds_write_lock.set(true);
            if let Some(writer) = database.writer.borrow_mut().as_mut() {
                writer.transaction_may_begin();
            }
        }
        if code == SQLITE_OK { ended } else { code }
    })
}

unsafe extern "C" fn db_shm_unmap(file: *mut sqlite3_file, delete: c_int) -> c_int {
    // SAFETY: a database of ours.
    unsafe {
        let inner = &database(file).inner;
        inner.unmapped();
        (inner.methods().xShmUnmap)(inner.file(), delete)
    }
}

unsafe extern "C" fn db_fetch(
    file: *mut sqlite3_file,
    offset: i64,
    size: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: a database of ours; SQLite passes room for a pointer.
    unsafe {
        let database = database(file);
        if offset == 0 && database.is_guarded() {
            // Page 1 holds the guard: it must be read, not mapped.
            *out = ptr::null_mut();
            return SQLITE_OK;
        }
        (database.inner.methods().xFetch)(database.inner.file(), offset, size, out)
    }
}

// ---- A log ----

/// # Safety
/// `file` is a log that `open_log` opened.
unsafe fn log_database<'a>(file: *mut sqlite3_file) -> &'a Database {
    // SAFETY: by this function's contract.
    unsafe { &*(*file.cast::<LogHandle>()).database }
}

/// Does something with the open log, if there is one.
fn with_writer(
    database: &Database,
    work: impl FnOnce(&mut Writer) -> Result<(), LogError>,
) -> c_int {
    let done = match database.writer.borrow_mut().as_mut() {
        Some(writer) => work(writer),
        None => Ok(()),
    };
    match done {
        Ok(()) => SQLITE_OK,
        Err(e) => {
            database.spread_poison();
            database.fail(&e)
        }
    }
}

static LOG_METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 1,
    xClose: log_close,
    xRead: log_read,
    xWrite: log_write,
    xTruncate: log_truncate,
    xSync: log_sync,
    xFileSize: log_file_size,
    xLock: log_lock,
    xUnlock: log_lock,
    xCheckReservedLock: log_check_reserved_lock,
    xFileControl: log_file_control,
    xSectorSize: log_sector_size,
    xDeviceCharacteristics: log_device_characteristics,
    // Not there in version 1; the structure needs them all the same.
    xShmMap: db_shm_map,
    xShmLock: db_shm_lock,
    xShmBarrier: db_shm_barrier,
    xShmUnmap: db_shm_unmap,
    xFetch: db_fetch,
    xUnfetch: db_unfetch,
};

unsafe extern "C" fn log_close(file: *mut sqlite3_file) -> c_int {
    shielded(|| {
        // SAFETY: a log of ours.
        let database = unsafe { log_database(file) };
        let code = with_writer(database, |writer| writer.drain());
        database.writer.replace(None);
        code
    })
}

unsafe extern "C" fn log_read(
    file: *mut sqlite3_file,
    out: *mut c_void,
    size: c_int,
    offset: i64,
) -> c_int {
    shielded(|| {
        // SAFETY: a log of ours, a buffer of `size` bytes.
        let (database, out) = unsafe {
            (
                log_database(file),
                std::slice::from_raw_parts_mut(out.cast::<u8>(), size as usize),
            )
        };
        let index = database.inner.index_view();
        with_writer(database, |writer| writer.read(out, offset as u64, index))
    })
}

unsafe extern "C" fn log_write(
    file: *mut sqlite3_file,
    data: *const c_void,
    size: c_int,
    offset: i64,
) -> c_int {
    shielded(|| {
        // SAFETY: a log of ours, `size` bytes.
        let (database, data) = unsafe {
            (
                log_database(file),
                std::slice::from_raw_parts(data.cast::<u8>(), size as usize),
            )
        };
        let index = database.inner.index_view();
        with_writer(database, |writer| writer.write(data, offset as u64, index))
    })
}

unsafe extern "C" fn log_truncate(file: *mut sqlite3_file, size: i64) -> c_int {
    shielded(|| {
        // SAFETY: a log of ours.
        let database = unsafe { log_database(file) };
        with_writer(database, |writer| writer.truncate(size as u64))
    })
}

unsafe extern "C" fn log_sync(file: *mut sqlite3_file, _flags: c_int) -> c_int {
    shielded(|| {
        // SAFETY: a log of ours.
        let database = unsafe { log_database(file) };
        let index = database.inner.index_view();
        with_writer(database, |writer| writer.sync(index))
    })
}

unsafe extern "C" fn log_file_size(file: *mut sqlite3_file, out: *mut i64) -> c_int {
    shielded(|| {
        // SAFETY: a log of ours, room for one integer.
        let (database, out) = unsafe { (log_database(file), &mut *out) };
        with_writer(database, |writer| {
            *out = i64::try_from(writer.size()?).unwrap_or(i64::MAX);
            Ok(())
        })
    })
}

/// SQLite takes no file locks on its log.
unsafe extern "C" fn log_lock(_file: *mut sqlite3_file, _level: c_int) -> c_int {
    SQLITE_OK
}

unsafe extern "C" fn log_check_reserved_lock(_file: *mut sqlite3_file, out: *mut c_int) -> c_int {
    // SAFETY: SQLite passes room for one integer.
    unsafe { *out = 0 };
    SQLITE_OK
}

unsafe extern "C" fn log_file_control(_: *mut sqlite3_file, _: c_int, _: *mut c_void) -> c_int {
    SQLITE_NOTFOUND
}

unsafe extern "C" fn log_sector_size(_file: *mut sqlite3_file) -> c_int {
    4096
}

unsafe extern "C" fn log_device_characteristics(_file: *mut sqlite3_file) -> c_int {
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}
