//! The host's SQLite, called through its function table: connections, messages, file names.
//!
//! Pointers from SQLite are followed only here, in `inner` and in `thunks`. Its interface to the
//! rest of the module is safe to call.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Mutex;

use super::events;
use super::ffi::{self, Api, sqlite3, sqlite3_file, sqlite3_vfs};
use crate::storage::Patience;
use crate::sync;

/// One SQLite of this process: its functions, the VFS underneath ours, and ours.
///
/// A process may hold several, as shared libraries or linked into it. Each has one `Host`, to which
/// the `pAppData` of its VFS points. A host is never freed. An unloaded SQLite leaves its host
/// behind, and nothing calls through it any more, because only that SQLite would.
pub struct Host {
    pub api: Api,
    pub base: *mut sqlite3_vfs,
    pub ours: *mut sqlite3_vfs,
}

// SAFETY: function pointers, and VFSs that SQLite itself shares between threads.
unsafe impl Send for Host {}
// SAFETY: as above; nothing is changed after registration.
unsafe impl Sync for Host {}

static HOSTS: Mutex<Vec<&'static Host>> = Mutex::new(Vec::new());

thread_local! {
    /// It has no destructor, so that it exists as long as the thread does.
    static CURRENT: Cell<Option<&'static Host>> = const { Cell::new(None) };
}

impl Host {
    /// Whether this SQLite may be used by several threads at once: it was not built with
    /// `SQLITE_THREADSAFE=0`, and not set to `SQLITE_CONFIG_SINGLETHREAD`.
    pub fn allows_threads(&self) -> bool {
        let mut db = ptr::null_mut();
        let flags = ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_FULLMUTEX;
        // SAFETY: the connection is closed before this returns; SQLite takes a null, if memory is
        // short.
        unsafe {
            let name = c":memory:".as_ptr();
            let code = (self.api.open_v2)(name, &raw mut db, flags, (*self.base).zName);
            let has_mutex = code == ffi::SQLITE_OK && !(self.api.db_mutex)(db).is_null();
            (self.api.close_v2)(db);
            has_mutex
        }
    }

    /// Whether the VFS underneath is SQLite's own. Another one may expect all calls from one thread.
    pub fn is_over_sqlites_own(&self) -> bool {
        let name = self.base_name().to_bytes();
        name == b"unix" || name.starts_with(b"unix-")
    }

    /// The name of the VFS underneath.
    pub fn base_name(&self) -> &CStr {
        // SAFETY: a VFS's name is a C string that lives as long as it.
        unsafe { CStr::from_ptr((*self.base).zName) }
    }
}

/// Makes the host of a SQLite, with a VFS that `make` derives from the one underneath. Returns an
/// existing host if it was made with the same.
pub fn host_for(
    api: Api,
    base: *mut sqlite3_vfs,
    make: impl FnOnce(&sqlite3_vfs) -> sqlite3_vfs,
) -> &'static Host {
    let mut hosts = sync::lock_static(&HOSTS);
    // SAFETY: the VFS underneath is registered.
    let mut vfs = make(unsafe { &*base });
    let fits = |host: &&&Host| {
        // SAFETY: our VFS is never freed.
        let before = unsafe { &*host.ours };
        // A SQLite that was unloaded and loaded again at the same address has all of it unchanged.
        host.api.is_same(&api)
            && host.base == base
            && (before.szOsFile, before.iVersion) == (vfs.szOsFile, vfs.iVersion)
    };
    if let Some(host) = hosts.iter().find(fits) {
        return host;
    }
    let host = Box::leak(Box::new(Host {
        api,
        base,
        ours: ptr::null_mut(),
    }));
    vfs.pAppData = ptr::from_mut(host).cast();
    host.ours = Box::into_raw(Box::new(vfs));
    hosts.push(host);
    host
}

/// The SQLite that has called this thread; outside of its calls, the first one.
pub fn get() -> Option<&'static Host> {
    CURRENT
        .get()
        .or_else(|| sync::lock_static(&HOSTS).first().copied())
}

/// Notes which SQLite calls.
pub fn enter(host: &'static Host) {
    CURRENT.set(Some(host));
}

/// Does some work in the name of another SQLite. After it this thread is in the one that it was in.
pub fn within<T>(host: Option<&'static Host>, work: impl FnOnce() -> T) -> T {
    let outer = CURRENT.replace(host);
    let done = work();
    CURRENT.set(outer);
    done
}

/// Does some work that may use other SQLites. After it this thread is in the one that it was in.
pub fn as_before<T>(work: impl FnOnce() -> T) -> T {
    within(CURRENT.get(), work)
}

/// Writes a message to SQLite's error log (`SQLITE_CONFIG_LOG`), and where events go.
pub fn log(code: c_int, message: &str) {
    events::message(code, message);
}

/// Writes a line to SQLite's error log, and nowhere else.
pub fn log_line(code: c_int, line: &str) {
    let (Some(host), Ok(text)) = (get(), CString::new(format!("onewrite: {line}"))) else {
        return;
    };
    // SAFETY: a constant format with one string.
    unsafe { (host.api.log)(code, c"%s".as_ptr(), text.as_ptr()) }
    // The application gets the message, and may have used another SQLite.
    enter(host);
}

/// A copy of `text` in memory of the calling SQLite, which frees it; null if no memory is left.
pub fn sqlite_string(text: &str) -> *mut c_char {
    get().map_or(ptr::null_mut(), |host| {
        // SAFETY: SQLite's own function.
        copied(text, |bytes| unsafe { (host.api.malloc64)(bytes as u64) })
    })
}

/// A copy of `text` in memory from `allocate`; null if that returns null.
pub fn copied(text: &str, allocate: impl FnOnce(usize) -> *mut c_void) -> *mut c_char {
    let bytes = text.as_bytes();
    // SAFETY: the memory has room for the text and its terminator.
    unsafe {
        let copy = allocate(bytes.len() + 1).cast::<u8>();
        if !copy.is_null() {
            ptr::copy_nonoverlapping(bytes.as_ptr(), copy, bytes.len());
            *copy.add(bytes.len()) = 0;
        }
        copy.cast()
    }
}

/// The text behind a pointer from SQLite; `None` if it is null or not UTF-8.
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

/// The names of the parameters of that URI, in its order.
///
/// # Safety
/// As for [`uri_parameter`].
pub unsafe fn uri_names(name: *const c_char) -> Vec<String> {
    let Some(host) = get() else {
        return Vec::new();
    };
    // SAFETY: by this function's contract. SQLite answers null behind the last one.
    let nth = |n| unsafe { text((host.api.uri_key)(name, n)).map(str::to_owned) };
    (0..c_int::MAX).map_while(nth).collect()
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
    host: &'static Host,
    /// SQLite keeps the connection here as long as the file is open. With a shared cache it is the
    /// connection that used the file last: see [`super::database::Database::is_shared`].
    slot: *const *mut sqlite3,
    file: *mut sqlite3_file,
}

/// The statement that has committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Committed {
    /// One that ends a transaction, and has written nothing itself.
    Commit,
    /// The address of one that has written.
    Writer(usize),
}

/// A SQLite function that calls the application's busy handler, if there is one.
type AskBusyHandler = unsafe extern "C" fn(*mut c_void) -> c_int;

/// The busy handler of the connection that a database file belongs to (`SQLITE_FCNTL_BUSYHANDLER`),
/// including `busy_timeout`.
#[derive(Default)]
pub struct BusyHandler(Cell<Option<(AskBusyHandler, *mut c_void)>>);

// SAFETY: SQLite uses a connection's file from one thread at a time, and so does this.
unsafe impl Send for BusyHandler {}
// SAFETY: as above.
unsafe impl Sync for BusyHandler {}

impl BusyHandler {
    /// # Safety
    /// `pair` came with `SQLITE_FCNTL_BUSYHANDLER`: a function and its argument, which live as long
    /// as the file is open. It is not called after `xClose`.
    pub unsafe fn set(&self, pair: *const *mut c_void) {
        // SAFETY: by this function's contract; a function's pointer may be null.
        let (ask, argument) = unsafe { (*pair.cast::<Option<AskBusyHandler>>(), *pair.add(1)) };
        self.0.set(ask.map(|ask| (ask, argument)));
    }
}

impl Patience for BusyHandler {
    fn goes_on(&self) -> bool {
        let handler = self.0.get();
        // SAFETY: this thread is inside a call from SQLite on the connection, as when SQLite calls
        // the handler.
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
    pub unsafe fn new(
        host: &'static Host,
        slot: *const *mut sqlite3,
        file: *mut sqlite3_file,
    ) -> Connection {
        Connection { host, slot, file }
    }

    /// Distinguishes connections that are open at the same time.
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
        unsafe { (self.host.api.get_autocommit)(self.handle()) != 0 }
    }

    /// Whether a statement that writes is running.
    pub fn is_writing(self) -> bool {
        // SAFETY: a statement that is alive.
        self.runs(|host, statement| unsafe { (host.api.stmt_readonly)(statement) } == 0)
    }

    /// The statement that commits now. SQLite calls its hook (`sqlite3_wal_hook`) when a statement has run
    /// to its end. `None` if it will not: the backup API commits without a statement, and a blob with one of
    /// its own, without SQL, which is finalized. And one that is being reset has returned a row (`RETURNING`),
    /// which a statement that runs to its end has not.
    pub fn committing(self) -> Option<Committed> {
        // SAFETY: a statement that is alive.
        let writes = |host: &Host, it| unsafe { (host.api.stmt_readonly)(it) } == 0;
        match self.first_that_runs(writes) {
            // SAFETY: as above.
            Some(writer) if unsafe { (self.host.api.data_count)(writer) } > 0 => None,
            // SAFETY: as above.
            Some(writer) if unsafe { (self.host.api.sql)(writer) }.is_null() => None,
            Some(writer) => Some(Committed::Writer(writer.addr())),
            None => self.is_running().then_some(Committed::Commit),
        }
    }

    /// Whether the statement that has committed is still there. Nothing calls the hook once it is finalized:
    /// `INSERT OR FAIL` may have failed, and kept its first rows.
    pub fn has_still(self, committed: Committed) -> bool {
        match committed {
            Committed::Commit => true,
            Committed::Writer(address) => self.finds(|_, it| it.addr() == address).is_some(),
        }
    }

    /// Whether such a statement is running.
    fn runs(self, is_such: impl Fn(&Host, *mut ffi::sqlite3_stmt) -> bool) -> bool {
        self.first_that_runs(is_such).is_some()
    }

    fn first_that_runs(
        self,
        is_such: impl Fn(&Host, *mut ffi::sqlite3_stmt) -> bool,
    ) -> Option<*mut ffi::sqlite3_stmt> {
        self.finds(|host, statement| {
            // SAFETY: a statement that is alive.
            unsafe { (host.api.stmt_busy)(statement) != 0 && is_such(host, statement) }
        })
    }

    /// The first such statement.
    fn finds(
        self,
        is_such: impl Fn(&Host, *mut ffi::sqlite3_stmt) -> bool,
    ) -> Option<*mut ffi::sqlite3_stmt> {
        let host = self.host;
        let mut statement = ptr::null_mut();
        loop {
            // SAFETY: the connection is alive, and its statements are not freed while SQLite is in a
            // call of this thread: it holds the connection's mutex.
            statement = unsafe { (host.api.next_stmt)(self.handle(), statement) };
            if statement.is_null() {
                return None;
            }
            if is_such(host, statement) {
                return Some(statement);
            }
        }
    }

    /// Whether several threads may use this SQLite. A connection with a mutex says so; without one
    /// SQLite is asked.
    pub fn allows_threads(self) -> bool {
        // SAFETY: the connection is alive.
        let has_mutex = unsafe { !(self.host.api.db_mutex)(self.handle()).is_null() };
        has_mutex || self.host.allows_threads()
    }

    /// Whether a statement is running.
    pub fn is_running(self) -> bool {
        self.runs(|_, _| true)
    }

    /// The number of the connection's databases with an open write transaction.
    pub fn written_databases(self) -> usize {
        let host = self.host;
        let mut written = 0;
        for index in 0.. {
            // SAFETY: the connection is alive; SQLite returns null after the last database.
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

    /// The schema name (`main`, or as it was attached) of our file, quoted for SQL. `None` while it
    /// is being attached or opened.
    ///
    /// # Errors
    /// SQLite's code, if it cannot say: memory may be short.
    pub fn schema(self) -> Result<Option<String>, c_int> {
        let host = self.host;
        for index in 0.. {
            // SAFETY: the connection is alive; SQLite returns null after the last database.
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

    /// The connection's `wal_autocheckpoint` in frames, if SQLite's own automatic checkpoint is on.
    /// It is not while the application has a hook of its own (`sqlite3_wal_hook`).
    pub fn autocheckpoint(self) -> Option<u32> {
        let frames = self.query("PRAGMA wal_autocheckpoint").ok()??;
        frames.parse().ok().filter(|frames| *frames > 0)
    }

    /// Whether SQLite itself uses our file, and not a VFS over ours.
    pub fn uses_our_file(self) -> bool {
        let host = self.host;
        for index in 0.. {
            // SAFETY: the connection is alive; SQLite returns null after the last database.
            let name = unsafe { (host.api.db_name)(self.handle(), index) };
            if name.is_null() {
                break;
            }
            let mut file: *mut sqlite3_file = ptr::null_mut();
            // SAFETY: SQLite itself stores one pointer.
            let code = unsafe {
                let file = (&raw mut file).cast();
                let op = ffi::SQLITE_FCNTL_FILE_POINTER;
                (host.api.file_control)(self.handle(), name, op, file)
            };
            if code == ffi::SQLITE_OK && file == self.file {
                return true;
            }
        }
        false
    }

    /// Requests reserved bytes at the end of every page: at once for an empty database, otherwise
    /// from the next `VACUUM` on. A negative number only queries. Returns the previous request.
    pub fn reserve_bytes(self, schema: &str, bytes: c_int) -> c_int {
        let mut value = bytes;
        let name = schema.trim_matches('"').replace("\"\"", "\"");
        if let Ok(name) = CString::new(name) {
            // SAFETY: the operation reads and writes one integer.
            unsafe {
                (self.host.api.file_control)(
                    self.handle(),
                    name.as_ptr(),
                    ffi::SQLITE_FCNTL_RESERVE_BYTES,
                    (&raw mut value).cast(),
                );
            }
        }
        value
    }

    /// Runs a statement on this connection. Returns the first column of its first row, if there is
    /// one.
    pub fn query(self, sql: &str) -> Result<Option<String>, SqlError> {
        // SAFETY: the connection is alive.
        unsafe { query(self.host, self.handle(), sql) }
    }
}

/// A connection of our own. It is closed when this is dropped, by any thread.
///
/// It has a private cache. A connection with shared cache holds the cache's mutex while it calls
/// us. With `sqlite3_enable_shared_cache`, a shared cache would make this connection wait for that
/// mutex.
pub struct OwnConnection {
    host: &'static Host,
    db: *mut sqlite3,
}

// SAFETY: a SQLite with mutexes lets any thread use a connection, and one does at a time. Where a
// SQLite has none, no connection goes to another thread.
unsafe impl Send for OwnConnection {}

impl OwnConnection {
    /// Opens `path` for reading and writing.
    pub fn open(host: &'static Host, path: &Path, vfs: &CStr) -> Result<OwnConnection, SqlError> {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| SqlError {
            code: ffi::SQLITE_CANTOPEN,
            message: "the path has a NUL".to_owned(),
        })?;
        let mut db = ptr::null_mut();
        // SAFETY: SQLite stores a connection, or null. It is closed when the result is dropped.
        let code = unsafe {
            let flags = ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_PRIVATECACHE;
            (host.api.open_v2)(name.as_ptr(), &raw mut db, flags, vfs.as_ptr())
        };
        let opened = OwnConnection { host, db };
        match code {
            ffi::SQLITE_OK => Ok(opened),
            code => Err(SqlError {
                code,
                // SAFETY: the connection, or null.
                message: unsafe { errmsg(host, db) },
            }),
        }
    }

    /// As [`Connection::query`].
    pub fn query(&self, sql: &str) -> Result<Option<String>, SqlError> {
        // SAFETY: the connection is open.
        unsafe { query(self.host, self.db, sql) }
    }
}

impl Drop for OwnConnection {
    fn drop(&mut self) {
        // SAFETY: nothing uses the connection any more; SQLite takes a null.
        unsafe { (self.host.api.close_v2)(self.db) };
        enter(self.host);
    }
}

/// Opens our own connection to `path` while `work` runs.
pub fn with_connection<T>(
    host: &'static Host,
    path: &Path,
    vfs: &CStr,
    work: impl FnOnce(&dyn Fn(&str) -> Result<Option<String>, SqlError>) -> Result<T, SqlError>,
) -> Result<T, SqlError> {
    let connection = OwnConnection::open(host, path, vfs)?;
    work(&|sql| connection.query(sql))
}

/// Has `work` called when the process ends by `exit`. `false` if there is no memory.
pub fn at_exit(work: extern "C" fn()) -> bool {
    // SAFETY: the function is in this library, which stays loaded.
    unsafe { libc::atexit(work) == 0 }
}

/// # Safety
/// `db` is an open connection, or null.
unsafe fn errmsg(host: &Host, db: *mut sqlite3) -> String {
    // SAFETY: by this function's contract; sqlite3_errmsg takes null.
    let message = unsafe { text((host.api.errmsg)(db)) };
    message.unwrap_or("unknown error").to_owned()
}

/// # Safety
/// `db` is an open connection of this SQLite.
unsafe fn query(
    host: &'static Host,
    db: *mut sqlite3,
    sql: &str,
) -> Result<Option<String>, SqlError> {
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
    // A function of the application may have used another SQLite.
    enter(host);
    match code {
        ffi::SQLITE_OK => Ok(found),
        // SAFETY: by this function's contract.
        code => Err(SqlError {
            code,
            message: unsafe { errmsg(host, db) },
        }),
    }
}
