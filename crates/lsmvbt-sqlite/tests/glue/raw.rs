//! SQLite's connections and backups as a program in C has them. Nothing here keeps a caller from closing
//! a connection too early, or from using a backup in two threads. Two programs of tests use it, neither
//! all of it.
#![allow(unsafe_code, dead_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

unsafe extern "C" {
    fn sqlite3_backup_finish(backup: *mut c_void) -> c_int;
    fn sqlite3_backup_init(
        to: *mut c_void,
        to_name: *const c_char,
        from: *mut c_void,
        from_name: *const c_char,
    ) -> *mut c_void;
    fn sqlite3_busy_handler(
        db: *mut c_void,
        handler: Option<unsafe extern "C" fn(*mut c_void, c_int) -> c_int>,
        context: *mut c_void,
    ) -> c_int;
    fn sqlite3_progress_handler(
        db: *mut c_void,
        operations: c_int,
        handler: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
        context: *mut c_void,
    );
    fn sqlite3_interrupt(db: *mut c_void);
    fn sqlite3_db_config(db: *mut c_void, op: c_int, ...) -> c_int;
    fn sqlite3_backup_step(backup: *mut c_void, pages: c_int) -> c_int;
    fn sqlite3_close(db: *mut c_void) -> c_int;
    fn sqlite3_close_v2(db: *mut c_void) -> c_int;
    fn sqlite3_errmsg(db: *mut c_void) -> *const c_char;
    fn sqlite3_exec(
        db: *mut c_void,
        sql: *const c_char,
        row: *const c_void,
        context: *const c_void,
        message: *mut *mut c_char,
    ) -> c_int;
    fn sqlite3_extended_errcode(db: *mut c_void) -> c_int;
    fn sqlite3_open_v2(
        name: *const c_char,
        db: *mut *mut c_void,
        flags: c_int,
        vfs: *const c_char,
    ) -> c_int;
    fn sqlite3_set_authorizer(
        db: *mut c_void,
        asked: unsafe extern "C" fn(
            *mut c_void,
            c_int,
            *const c_char,
            *const c_char,
            *const c_char,
            *const c_char,
        ) -> c_int,
        context: *mut c_void,
    ) -> c_int;
    fn sqlite3_trace_v2(
        db: *mut c_void,
        mask: c_uint,
        traced: unsafe extern "C" fn(c_uint, *mut c_void, *mut c_void, *mut c_void) -> c_int,
        context: *mut c_void,
    ) -> c_int;
}

/// `SQLITE_OPEN_...`.
pub const READONLY: c_int = 0x1;
pub const CREATE: c_int = 0x2 | 0x4;
pub const NOMUTEX: c_int = 0x8000;
pub const FULLMUTEX: c_int = 0x1_0000;
const URI: c_int = 0x40;
/// `SQLITE_DBCONFIG_RESET_DATABASE`.
const RESET_DATABASE: c_int = 1009;

/// The name of the main database.
pub const MAIN: Option<&CStr> = Some(c"main");

/// A connection.
#[derive(Clone, Copy)]
pub struct Db(*mut c_void);

/// A backup.
#[derive(Clone, Copy)]
pub struct Backup(*mut c_void);

// SAFETY: the tests use them from several threads where SQLite allows it.
unsafe impl Send for Backup {}
// SAFETY: the same.
unsafe impl Sync for Backup {}

fn name(name: Option<&CStr>) -> *const c_char {
    name.map_or(null(), CStr::as_ptr)
}

impl Db {
    /// No connection.
    pub const NONE: Self = Self(null_mut());

    pub fn open(name: &str, flags: c_int) -> Self {
        let name = CString::new(name).expect("a name");
        let mut db = null_mut();
        // SAFETY: a C string, and a pointer that may be written.
        let code = unsafe { sqlite3_open_v2(name.as_ptr(), &raw mut db, flags | URI, null()) };
        assert_eq!(code, 0, "{name:?}");
        Self(db)
    }

    /// Has a VACUUM empty the database, or not.
    pub fn reset(self, on: bool) {
        let none = null_mut::<c_int>();
        // SAFETY: a connection; this operation takes an int, and a pointer that may be null.
        let code = unsafe { sqlite3_db_config(self.0, RESET_DATABASE, c_int::from(on), none) };
        assert_eq!(code, 0);
    }

    /// Runs SQL; SQLite's code.
    pub fn run(self, sql: &str) -> c_int {
        let sql = CString::new(sql).expect("SQL");
        // SAFETY: the connection is open; a C string, and no callback.
        unsafe { sqlite3_exec(self.0, sql.as_ptr(), null(), null(), null_mut()) }
    }

    pub fn close(self) -> c_int {
        // SAFETY: the connection is open.
        unsafe { sqlite3_close(self.0) }
    }

    pub fn close_v2(self) -> c_int {
        // SAFETY: the connection is open.
        unsafe { sqlite3_close_v2(self.0) }
    }

    /// The code and the text of the last error.
    pub fn error(self) -> (c_int, String) {
        // SAFETY: the connection is open, and SQLite returns a C string.
        unsafe {
            let text = CStr::from_ptr(sqlite3_errmsg(self.0)).to_string_lossy();
            (sqlite3_extended_errcode(self.0), text.into_owned())
        }
    }

    /// Calls `asked` between the steps of a statement; true ends it. The handler stays until another one
    /// takes its place.
    pub fn on_progress(self, asked: &mut dyn FnMut() -> bool) {
        let asked: Box<&mut dyn FnMut() -> bool> = Box::new(asked);
        let context = Box::into_raw(asked).cast();
        // SAFETY: the test keeps `asked` until it has called `leave_alone`.
        unsafe { sqlite3_progress_handler(self.0, 100, Some(progress), context) };
    }

    /// Calls `asked` with the number of the call where another connection has a lock; true waits on.
    pub fn on_busy(self, asked: &mut dyn FnMut(c_int) -> bool) {
        let asked: Box<&mut dyn FnMut(c_int) -> bool> = Box::new(asked);
        let context = Box::into_raw(asked).cast();
        // SAFETY: as in `on_progress`.
        unsafe { sqlite3_busy_handler(self.0, Some(busy), context) };
    }

    /// Without both handlers from now on.
    pub fn leave_alone(self) {
        // SAFETY: the connection is open.
        unsafe {
            sqlite3_progress_handler(self.0, 0, None, null_mut());
            sqlite3_busy_handler(self.0, None, null_mut());
        }
    }

    /// Ends the statement that runs.
    pub fn interrupt(self) {
        // SAFETY: the connection is open.
        unsafe { sqlite3_interrupt(self.0) }
    }

    pub fn backup_from(self, to: Option<&CStr>, from: Self, of: Option<&CStr>) -> Option<Backup> {
        // SAFETY: connections that are open, or none; C strings, or none.
        let backup = unsafe { sqlite3_backup_init(self.0, name(to), from.0, name(of)) };
        (!backup.is_null()).then_some(Backup(backup))
    }

    /// From now on, counts the questions to an authorizer, which denies everything, and the statements
    /// that are traced.
    pub fn watch(self, seen: &'static AtomicUsize) {
        let context: *mut c_void = std::ptr::from_ref(seen).cast_mut().cast();
        // SAFETY: both functions take this context, which lives as long as the process.
        unsafe {
            assert_eq!(sqlite3_set_authorizer(self.0, deny, context), 0);
            assert_eq!(sqlite3_trace_v2(self.0, 1, traced, context), 0);
        }
    }
}

unsafe extern "C" fn progress(asked: *mut c_void) -> c_int {
    // SAFETY: `on_progress` has given it, and the test still has the function.
    let asked = unsafe { &mut *asked.cast::<&mut dyn FnMut() -> bool>() };
    c_int::from(asked())
}

unsafe extern "C" fn busy(asked: *mut c_void, call: c_int) -> c_int {
    // SAFETY: as in `progress`, of `on_busy`.
    let asked = unsafe { &mut *asked.cast::<&mut dyn FnMut(c_int) -> bool>() };
    c_int::from(asked(call))
}

unsafe extern "C" fn deny(
    seen: *mut c_void,
    _: c_int,
    _: *const c_char,
    _: *const c_char,
    _: *const c_char,
    _: *const c_char,
) -> c_int {
    // SAFETY: `watch` has given it.
    unsafe { &*seen.cast::<AtomicUsize>() }.fetch_add(1, Ordering::Relaxed);
    1
}

unsafe extern "C" fn traced(_: c_uint, seen: *mut c_void, _: *mut c_void, _: *mut c_void) -> c_int {
    // SAFETY: `watch` has given it.
    unsafe { &*seen.cast::<AtomicUsize>() }.fetch_add(1, Ordering::Relaxed);
    0
}

impl Backup {
    /// No backup.
    pub const NONE: Self = Self(null_mut());

    pub fn step(self, pages: c_int) -> c_int {
        // SAFETY: it is not finished.
        unsafe { sqlite3_backup_step(self.0, pages) }
    }

    pub fn finish(self) -> c_int {
        // SAFETY: it is finished once, or none.
        unsafe { sqlite3_backup_finish(self.0) }
    }
}
