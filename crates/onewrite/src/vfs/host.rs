//! The host's SQLite, called through its function table: connections, messages, file names.
//!
//! The one place, with `inner` and `thunks`, where pointers from SQLite are followed. What it
//! offers to the rest of the module is safe to call.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;

use super::ffi::{self, Api, sqlite3, sqlite3_file, sqlite3_vfs};
use crate::storage::Patience;

/// The functions of SQLite, and the VFS underneath ours.
pub struct Host {
    pub api: Api,
    pub base: *mut sqlite3_vfs,
}

// SAFETY: function pointers, and a VFS that SQLite itself shares between threads.
unsafe impl Send for Host {}
// SAFETY: as above; nothing is changed after registration.
unsafe impl Sync for Host {}

static HOST: OnceLock<Host> = OnceLock::new();

/// Sets the host once; later calls keep the first.
pub fn set(host: Host) -> &'static Host {
    HOST.get_or_init(|| host)
}

/// The host, once the VFS is registered.
pub fn get() -> Option<&'static Host> {
    HOST.get()
}

/// Writes to SQLite's error log (`SQLITE_CONFIG_LOG`).
pub fn log(code: c_int, message: &str) {
    let (Some(host), Ok(text)) = (get(), CString::new(format!("onewrite: {message}"))) else {
        return;
    };
    // SAFETY: a constant format with one string.
    unsafe { (host.api.log)(code, c"%s".as_ptr(), text.as_ptr()) }
}

/// A copy of `text` in memory of SQLite's, for SQLite to free; null where there is none left.
pub fn sqlite_string(text: &str) -> *mut c_char {
    let bytes = text.as_bytes();
    let Some(host) = get() else {
        return ptr::null_mut();
    };
    // SAFETY: the memory has room for the text and its terminator.
    unsafe {
        let copy = (host.api.malloc64)(bytes.len() as u64 + 1).cast::<u8>();
        if !copy.is_null() {
            ptr::copy_nonoverlapping(bytes.as_ptr(), copy, bytes.len());
            *copy.add(bytes.len()) = 0;
        }
        copy.cast()
    }
}

/// The text behind a pointer from SQLite; `None` for null or what is not UTF-8.
///
/// # Safety
/// `text` is null or points to a C string that lives for `'a`.
pub unsafe fn text<'a>(text: *const c_char) -> Option<&'a str> {
    // SAFETY: by this function's contract.
    (!text.is_null())
        .then(|| unsafe { CStr::from_ptr(text) }.to_str().ok())
        .flatten()
}

/// The path behind a file name from SQLite.
///
/// # Safety
/// `name` points to a C string.
pub unsafe fn path(name: *const c_char) -> PathBuf {
    // SAFETY: by this function's contract.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// A parameter of the URI that a database was opened with.
///
/// # Safety
/// `name` is the file name that SQLite passed to `xOpen` for a main database.
pub unsafe fn uri_parameter(name: *const c_char, parameter: &CStr) -> Option<String> {
    let host = get()?;
    // SAFETY: by this function's contract.
    unsafe { text((host.api.uri_parameter)(name, parameter.as_ptr())).map(str::to_owned) }
}

/// The name under which SQLite will open the `-wal` file of a main database, as an address: SQLite
/// passes this very pointer to `xOpen`, `xAccess` and `xDelete`.
///
/// # Safety
/// As for [`uri_parameter`].
pub unsafe fn wal_name(name: *const c_char) -> *const c_char {
    // SAFETY: by this function's contract.
    get().map_or(ptr::null(), |host| unsafe { (host.api.filename_wal)(name) })
}

/// The connection that a database file belongs to (`SQLITE_FCNTL_PDB`).
#[derive(Clone, Copy)]
pub struct Connection {
    /// SQLite keeps the connection here for as long as the file is open; with a shared cache the
    /// one that uses it now.
    slot: *const *mut sqlite3,
    file: *mut sqlite3_file,
}

/// A function of SQLite's that calls the application's busy handler, if there is one.
type AskBusyHandler = unsafe extern "C" fn(*mut c_void) -> c_int;

/// The busy handler of the connection that a database file belongs to (`SQLITE_FCNTL_BUSYHANDLER`), `busy_timeout` too.
#[derive(Default)]
pub struct BusyHandler(Cell<Option<(AskBusyHandler, *mut c_void)>>);

impl BusyHandler {
    /// # Safety
    /// `pair` is what came with `SQLITE_FCNTL_BUSYHANDLER`: a function and its argument, which live for as long as the
    /// file is open. It is not asked after `xClose`.
    pub unsafe fn set(&self, pair: *const *mut c_void) {
        // SAFETY: by this function's contract; a function's pointer may be null.
        let (ask, argument) = unsafe { (*pair.cast::<Option<AskBusyHandler>>(), *pair.add(1)) };
        self.0.set(ask.map(|ask| (ask, argument)));
    }
}

impl Patience for BusyHandler {
    fn goes_on(&self) -> bool {
        let handler = self.0.get();
        // SAFETY: SQLite is in a call of this thread on the connection, as when it asks itself.
        handler.is_some_and(|(ask, argument)| unsafe { ask(argument) } != 0)
    }
}

/// An SQL statement's failure: SQLite's code and message.
#[derive(Clone, Debug)]
pub struct SqlError {
    pub code: c_int,
    pub message: String,
}

impl Connection {
    /// # Safety
    /// `slot` came with `SQLITE_FCNTL_PDB` on `file`, and neither is used after `xClose`.
    pub unsafe fn new(slot: *const *mut sqlite3, file: *mut sqlite3_file) -> Connection {
        Connection { slot, file }
    }

    /// Tells connections that are open at the same time from each other.
    pub fn number(&self) -> usize {
        self.handle() as usize
    }

    fn handle(self) -> *mut sqlite3 {
        // SAFETY: see the field.
        unsafe { *self.slot }
    }

    /// Whether no transaction is open.
    pub fn is_autocommit(self) -> bool {
        // SAFETY: the connection lives as long as its file is open.
        get().is_some_and(|host| unsafe { (host.api.get_autocommit)(self.handle()) } != 0)
    }

    /// Whether a statement is running that writes.
    pub fn is_writing(self) -> bool {
        // SAFETY: a statement that is alive.
        self.runs(|host, statement| unsafe { (host.api.stmt_readonly)(statement) } == 0)
    }

    /// Whether such a statement is running.
    fn runs(self, is_such: impl Fn(&Host, *mut ffi::sqlite3_stmt) -> bool) -> bool {
        let Some(host) = get() else { return false };
        let mut statement = ptr::null_mut();
        loop {
            // SAFETY: the connection is alive, and its statements are not freed while SQLite is in a
            // call of this thread: it holds the connection's mutex.
            unsafe {
                statement = (host.api.next_stmt)(self.handle(), statement);
                if statement.is_null() {
                    return false;
                }
                if (host.api.stmt_busy)(statement) != 0 && is_such(host, statement) {
                    return true;
                }
            }
        }
    }

    /// Whether a statement is running.
    pub fn is_running(self) -> bool {
        self.runs(|_, _| true)
    }

    /// In how many databases of the connection a write transaction is open.
    pub fn written_databases(self) -> usize {
        let Some(host) = get() else { return 0 };
        let mut written = 0;
        for index in 0.. {
            // SAFETY: the connection is alive; SQLite returns null behind the last database.
            unsafe {
                let name = (host.api.db_name)(self.handle(), index);
                if name.is_null() {
                    break;
                }
                let state = (host.api.txn_state)(self.handle(), name);
                written += usize::from(state == ffi::SQLITE_TXN_WRITE);
            }
        }
        written
    }

    /// The schema name (`main`, or as it was attached) of our file, quoted for SQL. `None` while it is
    /// being attached, or opened.
    ///
    /// # Errors
    /// SQLite's code, where it cannot say: memory may be short.
    pub fn schema(self) -> Result<Option<String>, c_int> {
        let Some(host) = get() else { return Ok(None) };
        for index in 0.. {
            // SAFETY: the connection is alive; SQLite returns null behind the last database.
            let name = unsafe { (host.api.db_name)(self.handle(), index) };
            if name.is_null() {
                break;
            }
            let mut found: *mut c_void = ptr::null_mut();
            // SAFETY: the operation stores one pointer.
            let code = unsafe {
                let found = (&raw mut found).cast();
                (host.api.file_control)(self.handle(), name, ffi::FCNTL_DATABASE, found)
            };
            if code & 0xff == ffi::SQLITE_NOMEM || code & 0xff == ffi::SQLITE_IOERR {
                return Err(code);
            }
            if found == self.file.cast() {
                // SAFETY: the name is SQLite's, and copied at once.
                let name = unsafe { text(name) };
                return Ok(name.map(|name| format!("\"{}\"", name.replace('"', "\"\""))));
            }
        }
        Ok(None)
    }

    /// Asks for reserved bytes at the end of every page: at once for an empty database, else from
    /// the next `VACUUM` on. A negative number only asks. Returns what was asked for before.
    pub fn reserve_bytes(self, schema: &str, bytes: c_int) -> c_int {
        let mut value = bytes;
        let name = schema.trim_matches('"').replace("\"\"", "\"");
        if let (Some(host), Ok(name)) = (get(), CString::new(name)) {
            // SAFETY: the operation reads and writes one integer.
            unsafe {
                (host.api.file_control)(
                    self.handle(),
                    name.as_ptr(),
                    ffi::SQLITE_FCNTL_RESERVE_BYTES,
                    (&raw mut value).cast(),
                );
            }
        }
        value
    }

    /// Runs a statement on this connection; the first column of its first row, if there is one.
    pub fn query(self, sql: &str) -> Result<Option<String>, SqlError> {
        // SAFETY: the connection is alive.
        unsafe { query(self.handle(), sql) }
    }
}

/// Opens a connection of our own to `path`, for as long as `work` runs.
pub fn with_connection<T>(
    path: &Path,
    vfs: &CStr,
    work: impl FnOnce(&dyn Fn(&str) -> Result<Option<String>, SqlError>) -> Result<T, SqlError>,
) -> Result<T, SqlError> {
    let unusable = |message: &str| SqlError {
        code: ffi::SQLITE_CANTOPEN,
        message: message.to_owned(),
    };
    let host = get().ok_or_else(|| unusable("no SQLite"))?;
    let name =
        CString::new(path.as_os_str().as_bytes()).map_err(|_| unusable("the path has a NUL"))?;
    let mut db = ptr::null_mut();
    // SAFETY: the connection is closed before this returns, and used by this thread alone.
    unsafe {
        let code = (host.api.open_v2)(
            name.as_ptr(),
            &raw mut db,
            ffi::SQLITE_OPEN_READWRITE,
            vfs.as_ptr(),
        );
        let result = match code {
            ffi::SQLITE_OK => work(&|sql| query(db, sql)),
            code => Err(SqlError {
                code,
                message: errmsg(db),
            }),
        };
        (host.api.close_v2)(db);
        result
    }
}

/// # Safety
/// `db` is an open connection, or null.
unsafe fn errmsg(db: *mut sqlite3) -> String {
    // SAFETY: by this function's contract; sqlite3_errmsg takes null.
    let message = get().and_then(|host| unsafe { text((host.api.errmsg)(db)) });
    message.unwrap_or("unknown error").to_owned()
}

/// # Safety
/// `db` is an open connection.
unsafe fn query(db: *mut sqlite3, sql: &str) -> Result<Option<String>, SqlError> {
    unsafe extern "C" fn first_column(
        found: *mut c_void,
        columns: c_int,
        values: *mut *mut c_char,
        _names: *mut *mut c_char,
    ) -> c_int {
        // SAFETY: `found` is the Option below; SQLite passes as many values as columns.
        unsafe {
            let found = &mut *found.cast::<Option<String>>();
            if found.is_none() && columns > 0 {
                *found = text(*values).map(str::to_owned);
            }
        }
        0
    }
    let misuse = |message: &str| SqlError {
        code: ffi::SQLITE_ERROR,
        message: message.to_owned(),
    };
    let host = get().ok_or_else(|| misuse("no SQLite"))?;
    let sql = CString::new(sql).map_err(|_| misuse("the statement has a NUL"))?;
    let mut found: Option<String> = None;
    // SAFETY: by this function's contract; the callback gets the Option of this frame.
    let code = unsafe {
        (host.api.exec)(
            db,
            sql.as_ptr(),
            Some(first_column),
            (&raw mut found).cast(),
            ptr::null_mut(),
        )
    };
    match code {
        ffi::SQLITE_OK => Ok(found),
        // SAFETY: by this function's contract.
        code => Err(SqlError {
            code,
            message: unsafe { errmsg(db) },
        }),
    }
}
