//! Connections and statements that live as long as a trace says. A statement may be half-way while
//! others run, and may outlive its connection. Borrows cannot express that. SQLite itself keeps a
//! connection until its last statement is gone.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{CStr, CString, c_int, c_void};
use std::fmt;
use std::ptr;
use std::rc::Rc;

use onewrite_record::event::{DONE, ROW, Value};
use onewrite_record::rows::{Kind, Row};
use rusqlite::ffi;

use crate::clock;

/// SQLite's primary result codes that this module distinguishes.
pub const BUSY: u32 = 5;
/// Another connection of a shared cache holds a table.
pub const LOCKED: u32 = 6;

/// An error from SQLite.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The primary result code.
    pub code: u32,
    /// SQLite's message.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (code {})", self.message, self.code)
    }
}

impl std::error::Error for Failure {}

/// The transaction that a connection is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transaction {
    /// None.
    None,
    /// That of statements with rows that were not read yet.
    OfStatements,
    /// One that has begun and does not have the write lock.
    Reads,
    /// One with the write lock.
    Writes,
}

/// Is called where a call finds a lock. It waits, and returns whether to try again.
pub type OnBusy = Box<dyn FnMut() -> bool>;

struct Handle {
    db: *mut ffi::sqlite3,
    commits: *mut u64,
    on_busy: Cell<*mut OnBusy>,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(&self.db).finish()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: this type opened it, and nothing else uses it: statements hold the handle too.
        unsafe {
            ffi::sqlite3_close(self.db);
            drop(Box::from_raw(self.commits));
            if !self.on_busy.get().is_null() {
                drop(Box::from_raw(self.on_busy.get()));
            }
        }
    }
}

/// A connection. It closes when it and all of its statements are dropped.
#[derive(Clone, Debug)]
pub struct Connection(Rc<Handle>);

impl Connection {
    /// Opens a database with these flags of `sqlite3_open_v2` and this VFS.
    ///
    /// # Errors
    /// SQLite's.
    pub fn open(name: &[u8], flags: i32, vfs: &str) -> Result<Self, Failure> {
        let bad = |_| Failure {
            code: 1,
            message: "a zero byte in a name".to_owned(),
        };
        let name = CString::new(name).map_err(bad)?;
        let vfs = CString::new(vfs).map_err(bad)?;
        let mut db = ptr::null_mut();
        // SAFETY: strings that end, and a place for the connection, which is closed if it cannot be
        // used.
        let handle = unsafe {
            let code = ffi::sqlite3_open_v2(name.as_ptr(), &mut db, flags, vfs.as_ptr());
            let handle = Handle {
                db,
                commits: Box::into_raw(Box::new(0)),
                on_busy: Cell::new(ptr::null_mut()),
            };
            if code != ffi::SQLITE_OK {
                return Err(failure(handle.db, code));
            }
            handle
        };
        let connection = Self(Rc::new(handle));
        connection.prepare_functions();
        Ok(connection)
    }

    /// Counts commits, and makes random numbers repeatable.
    fn prepare_functions(&self) {
        let flags = ffi::SQLITE_UTF8 | ffi::SQLITE_INNOCUOUS;
        // SAFETY: the hook's argument lives as long as the connection; names end.
        unsafe {
            ffi::sqlite3_commit_hook(self.0.db, Some(committed), self.0.commits.cast());
            for (name, arguments, call) in [
                (c"random", 0, random as unsafe extern "C" fn(_, _, _)),
                (c"randomblob", 1, randomblob),
            ] {
                ffi::sqlite3_create_function_v2(
                    self.0.db,
                    name.as_ptr(),
                    arguments,
                    flags,
                    ptr::null_mut(),
                    Some(call),
                    None,
                    None,
                    None,
                );
            }
        }
    }

    /// Makes a call that finds a lock wait with this. Without it the call fails at once. It can be
    /// set once.
    pub fn on_busy(&self, wait: OnBusy) {
        if !self.0.on_busy.get().is_null() {
            return;
        }
        let wait = Box::into_raw(Box::new(wait));
        self.0.on_busy.set(wait);
        // SAFETY: the argument lives as long as the connection.
        unsafe { ffi::sqlite3_busy_handler(self.0.db, Some(busy), wait.cast()) };
    }

    /// Transactions committed so far that could write, whether they wrote or not.
    pub fn commits(&self) -> u64 {
        // SAFETY: it lives as long as the connection, and nothing else reads it now.
        unsafe { *self.0.commits }
    }

    /// Pages written to files so far, to the log or to the database.
    pub fn pages_written(&self) -> i64 {
        let (mut now, mut most) = (0, 0);
        // SAFETY: an open connection, and places for both numbers.
        unsafe {
            let what = ffi::SQLITE_DBSTATUS_CACHE_WRITE;
            ffi::sqlite3_db_status(self.0.db, what, &mut now, &mut most, 0);
        }
        i64::from(now)
    }

    /// Whether the connection is outside a transaction.
    pub fn autocommit(&self) -> bool {
        // SAFETY: an open connection.
        unsafe { ffi::sqlite3_get_autocommit(self.0.db) != 0 }
    }

    /// The transaction that the connection is in.
    pub fn transaction(&self) -> Transaction {
        // SAFETY: an open connection; null stands for all of its databases.
        let state = unsafe { ffi::sqlite3_txn_state(self.0.db, ptr::null()) };
        match (self.autocommit(), state) {
            (_, ffi::SQLITE_TXN_WRITE) => Transaction::Writes,
            (true, ffi::SQLITE_TXN_NONE) => Transaction::None,
            (true, _) => Transaction::OfStatements,
            (false, _) => Transaction::Reads,
        }
    }

    /// Whether the last call could not write because another connection had committed after the
    /// snapshot of this one's open transaction.
    pub fn is_outdated(&self) -> bool {
        // SAFETY: an open connection.
        let code = unsafe { ffi::sqlite3_extended_errcode(self.0.db) };
        code == ffi::SQLITE_BUSY_SNAPSHOT && !self.autocommit()
    }

    /// Prepares the first statement of a text: `None` if it is empty. Returns the offset of its
    /// end.
    ///
    /// # Errors
    /// SQLite's.
    pub fn prepare(&self, sql: &[u8]) -> Result<(Option<Statement>, usize), Failure> {
        let length = c_int::try_from(sql.len()).map_err(|_| Failure {
            code: 18,
            message: "the statement is too long".to_owned(),
        })?;
        let (mut statement, mut tail) = (ptr::null_mut(), ptr::null());
        // SAFETY: the slice has this number of bytes.
        let code = unsafe {
            let sql = sql.as_ptr().cast();
            ffi::sqlite3_prepare_v2(self.0.db, sql, length, &mut statement, &mut tail)
        };
        if code != ffi::SQLITE_OK {
            return Err(self.failure(code));
        }
        let used = match tail.is_null() {
            true => sql.len(),
            false => (tail as usize)
                .saturating_sub(sql.as_ptr() as usize)
                .min(sql.len()),
        };
        let statement = (!statement.is_null()).then(|| Statement {
            statement,
            connection: self.clone(),
        });
        Ok((statement, used))
    }

    /// Runs one statement and returns the first column of its first row as text.
    ///
    /// # Errors
    /// SQLite's.
    pub fn ask(&self, sql: &str) -> Result<Option<String>, Failure> {
        let (Some(statement), _) = self.prepare(sql.as_bytes())? else {
            return Ok(None);
        };
        let mut answer = None;
        loop {
            match statement.step() {
                ROW => {
                    if answer.is_none() {
                        answer = statement.text(0);
                    }
                }
                DONE => return Ok(answer),
                _ => return Err(statement.failure()),
            }
        }
    }

    fn failure(&self, code: c_int) -> Failure {
        // SAFETY: an open connection.
        unsafe { failure(self.0.db, code) }
    }
}

/// # Safety
/// A connection that is not closed, or null.
unsafe fn failure(db: *mut ffi::sqlite3, code: c_int) -> Failure {
    // SAFETY: by this function's contract; SQLite has a text for null too.
    let message = unsafe { CStr::from_ptr(ffi::sqlite3_errmsg(db)) };
    Failure {
        code: code as u32 & 0xFF,
        message: message.to_string_lossy().into_owned(),
    }
}

/// # Safety
/// Called by SQLite with the counter.
unsafe extern "C" fn committed(counter: *mut c_void) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { *counter.cast::<u64>() += 1 };
    0
}

/// # Safety
/// Called by SQLite with an [`OnBusy`], which nothing else uses.
unsafe extern "C" fn busy(wait: *mut c_void, _tries: c_int) -> c_int {
    // SAFETY: by this function's contract.
    c_int::from(unsafe { (*wait.cast::<OnBusy>())() })
}

unsafe extern "C" fn random(
    context: *mut ffi::sqlite3_context,
    _count: c_int,
    _arguments: *mut *mut ffi::sqlite3_value,
) {
    // SAFETY: SQLite's own context.
    unsafe { ffi::sqlite3_result_int64(context, clock::next_random() as i64) };
}

unsafe extern "C" fn randomblob(
    context: *mut ffi::sqlite3_context,
    _count: c_int,
    arguments: *mut *mut ffi::sqlite3_value,
) {
    // SAFETY: SQLite's own context and its one argument.
    unsafe {
        let length = ffi::sqlite3_value_int64(*arguments).clamp(1, 1_000_000_000);
        let bytes: Vec<u8> = (0..length).map(|_| clock::next_random() as u8).collect();
        let transient = ffi::SQLITE_TRANSIENT();
        ffi::sqlite3_result_blob64(context, bytes.as_ptr().cast(), length as u64, transient);
    }
}

/// A statement, which keeps its connection.
#[derive(Debug)]
pub struct Statement {
    statement: *mut ffi::sqlite3_stmt,
    connection: Connection,
}

impl Drop for Statement {
    fn drop(&mut self) {
        // SAFETY: this type prepared it, and drops it once; the connection is still there.
        unsafe { ffi::sqlite3_finalize(self.statement) };
    }
}

impl Statement {
    /// Its connection.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Clears all values and binds these, from the first parameter on.
    ///
    /// # Errors
    /// SQLite's.
    pub fn bind(&self, values: &[Value]) -> Result<(), Failure> {
        // SAFETY: a statement that this type owns.
        unsafe { ffi::sqlite3_clear_bindings(self.statement) };
        for (at, value) in values.iter().enumerate() {
            let code = self.bind_one(at as c_int + 1, value);
            if code != ffi::SQLITE_OK {
                return Err(self.connection.failure(code));
            }
        }
        Ok(())
    }

    fn bind_one(&self, at: c_int, value: &Value) -> c_int {
        let (statement, transient) = (self.statement, ffi::SQLITE_TRANSIENT());
        // SAFETY: a statement that this type owns; SQLite copies the values.
        unsafe {
            match value {
                Value::Null => ffi::sqlite3_bind_null(statement, at),
                Value::Integer(number) => ffi::sqlite3_bind_int64(statement, at, *number),
                Value::Real(number) => ffi::sqlite3_bind_double(statement, at, *number),
                Value::Zeros(count) => ffi::sqlite3_bind_zeroblob64(statement, at, *count),
                Value::Text(bytes) => {
                    let length = bytes.len() as u64;
                    let bytes = match bytes.is_empty() {
                        true => c"".as_ptr(),
                        false => bytes.as_ptr().cast(),
                    };
                    let utf8 = ffi::SQLITE_UTF8 as u8;
                    ffi::sqlite3_bind_text64(statement, at, bytes, length, transient, utf8)
                }
                Value::Blob(bytes) if bytes.is_empty() => {
                    ffi::sqlite3_bind_zeroblob64(statement, at, 0)
                }
                Value::Blob(bytes) => {
                    let (bytes, length) = (bytes.as_ptr().cast(), bytes.len() as u64);
                    ffi::sqlite3_bind_blob64(statement, at, bytes, length, transient)
                }
            }
        }
    }

    /// The next row, the end, or an error's primary result code.
    pub fn step(&self) -> u32 {
        // SAFETY: a statement that this type owns.
        let code = unsafe { ffi::sqlite3_step(self.statement) };
        code as u32 & 0xFF
    }

    /// Returns it to its beginning.
    pub fn reset(&self) {
        // SAFETY: a statement that this type owns. The result is that of the last step.
        unsafe { ffi::sqlite3_reset(self.statement) };
    }

    /// The error of the last call.
    pub fn failure(&self) -> Failure {
        // SAFETY: an open connection.
        let code = unsafe { ffi::sqlite3_errcode(self.connection.0.db) };
        self.connection.failure(code)
    }

    /// The current row, each value in its own type.
    pub fn row(&self) -> Row {
        let mut row = Row::default();
        // SAFETY: a statement that this type owns, and columns that it has.
        unsafe {
            for column in 0..ffi::sqlite3_data_count(self.statement) {
                match ffi::sqlite3_column_type(self.statement, column) {
                    ffi::SQLITE_INTEGER => {
                        let number = ffi::sqlite3_column_int64(self.statement, column);
                        row.add(Kind::Integer, &number.to_be_bytes());
                    }
                    ffi::SQLITE_FLOAT => {
                        let number = ffi::sqlite3_column_double(self.statement, column);
                        row.add(Kind::Real, &number.to_bits().to_be_bytes());
                    }
                    ffi::SQLITE_TEXT => row.add(Kind::Text, self.bytes_of_text(column)),
                    ffi::SQLITE_BLOB => row.add(Kind::Blob, self.bytes_of_blob(column)),
                    _ => row.add(Kind::Null, &[]),
                }
            }
        }
        row
    }

    /// The current row, as `sqlite3_exec` would show it.
    pub fn row_as_text(&self) -> Row {
        let mut row = Row::default();
        // SAFETY: a statement that this type owns, and columns that it has.
        unsafe {
            for column in 0..ffi::sqlite3_data_count(self.statement) {
                match ffi::sqlite3_column_type(self.statement, column) {
                    ffi::SQLITE_NULL => row.add(Kind::Null, &[]),
                    _ => {
                        // A C string: up to the first zero byte.
                        let bytes = self.bytes_of_text(column);
                        let end = bytes.iter().position(|byte| *byte == 0);
                        row.add(Kind::Text, &bytes[..end.unwrap_or(bytes.len())]);
                    }
                }
            }
        }
        row
    }

    /// A column of the current row, as text; `None` for NULL.
    pub fn text(&self, column: i32) -> Option<String> {
        // SAFETY: a statement that this type owns; SQLite answers NULL for a missing column.
        let kind = unsafe { ffi::sqlite3_column_type(self.statement, column) };
        (kind != ffi::SQLITE_NULL)
            .then(|| String::from_utf8_lossy(self.bytes_of_text(column)).into_owned())
    }

    fn bytes_of_text(&self, column: i32) -> &[u8] {
        // SAFETY: valid until the next call that changes this value. The length is requested after
        // it.
        unsafe {
            let text = ffi::sqlite3_column_text(self.statement, column);
            slice(text, ffi::sqlite3_column_bytes(self.statement, column))
        }
    }

    fn bytes_of_blob(&self, column: i32) -> &[u8] {
        // SAFETY: as above.
        unsafe {
            let blob = ffi::sqlite3_column_blob(self.statement, column);
            slice(
                blob.cast(),
                ffi::sqlite3_column_bytes(self.statement, column),
            )
        }
    }
}

/// # Safety
/// `length` bytes are there, or the pointer is null.
unsafe fn slice<'a>(bytes: *const u8, length: c_int) -> &'a [u8] {
    match bytes.is_null() || length <= 0 {
        true => &[],
        // SAFETY: by this function's contract.
        false => unsafe { std::slice::from_raw_parts(bytes, length as usize) },
    }
}
