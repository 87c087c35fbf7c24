//! The part of SQLite's own interface that the tests and the shell need, for Rust.

use std::cmp::Ordering;
use std::ffi::{CStr, CString, c_char, c_double, c_int, c_uint, c_void};
use std::fmt;
use std::ptr::NonNull;

use super::code;

mod backup;

pub use backup::Backup;

/// `sqlite3`, `sqlite3_stmt`, `sqlite3_blob`, `sqlite3_backup`.
#[repr(C)]
struct Opaque {
    _private: [u8; 0],
}

unsafe extern "C" {
    fn sqlite3_blob_close(blob: *mut Opaque) -> c_int;
    fn sqlite3_blob_open(
        db: *mut Opaque,
        name: *const c_char,
        table: *const c_char,
        column: *const c_char,
        row: i64,
        flags: c_int,
        blob: *mut *mut Opaque,
    ) -> c_int;
    fn sqlite3_blob_bytes(blob: *mut Opaque) -> c_int;
    fn sqlite3_blob_read(
        blob: *mut Opaque,
        buffer: *mut c_void,
        size: c_int,
        offset: c_int,
    ) -> c_int;
    fn sqlite3_blob_reopen(blob: *mut Opaque, row: i64) -> c_int;
    fn sqlite3_blob_write(
        blob: *mut Opaque,
        data: *const c_void,
        size: c_int,
        offset: c_int,
    ) -> c_int;
    fn sqlite3_busy_timeout(db: *mut Opaque, milliseconds: c_int) -> c_int;
    fn sqlite3_changes64(db: *mut Opaque) -> i64;
    fn sqlite3_close_v2(db: *mut Opaque) -> c_int;
    fn sqlite3_column_blob(statement: *mut Opaque, column: c_int) -> *const c_void;
    fn sqlite3_column_bytes(statement: *mut Opaque, column: c_int) -> c_int;
    fn sqlite3_column_count(statement: *mut Opaque) -> c_int;
    fn sqlite3_column_double(statement: *mut Opaque, column: c_int) -> c_double;
    fn sqlite3_column_int64(statement: *mut Opaque, column: c_int) -> i64;
    fn sqlite3_column_text(statement: *mut Opaque, column: c_int) -> *const c_char;
    fn sqlite3_column_type(statement: *mut Opaque, column: c_int) -> c_int;
    fn sqlite3_complete(sql: *const c_char) -> c_int;
    fn sqlite3_create_collation_v2(
        db: *mut Opaque,
        name: *const c_char,
        encoding: c_int,
        context: *mut c_void,
        compare: unsafe extern "C" fn(
            *mut c_void,
            c_int,
            *const c_void,
            c_int,
            *const c_void,
        ) -> c_int,
        destroy: unsafe extern "C" fn(*mut c_void),
    ) -> c_int;
    fn sqlite3_deserialize(
        db: *mut Opaque,
        schema: *const c_char,
        image: *mut c_void,
        size: i64,
        room: i64,
        flags: c_uint,
    ) -> c_int;
    fn sqlite3_errmsg(db: *mut Opaque) -> *const c_char;
    fn sqlite3_extended_errcode(db: *mut Opaque) -> c_int;
    fn sqlite3_finalize(statement: *mut Opaque) -> c_int;
    fn sqlite3_free(memory: *mut c_void);
    fn sqlite3_libversion() -> *const c_char;
    fn sqlite3_log(code: c_int, format: *const c_char, ...);
    fn sqlite3_malloc64(size: u64) -> *mut c_void;
    fn sqlite3_open_v2(
        path: *const c_char,
        db: *mut *mut Opaque,
        flags: c_int,
        vfs: *const c_char,
    ) -> c_int;
    fn sqlite3_prepare_v2(
        db: *mut Opaque,
        sql: *const c_char,
        size: c_int,
        statement: *mut *mut Opaque,
        tail: *mut *const c_char,
    ) -> c_int;
    fn sqlite3_serialize(
        db: *mut Opaque,
        name: *const c_char,
        size: *mut i64,
        flags: c_uint,
    ) -> *mut c_void;
    fn sqlite3_step(statement: *mut Opaque) -> c_int;
}

const OPEN_READWRITE: c_int = 0x2;
const OPEN_CREATE: c_int = 0x4;
const OPEN_URI: c_int = 0x40;

/// Writes to SQLite's log.
pub(super) fn log(code: c_int, text: &str) {
    let text = CString::new(text.replace('\0', "?")).unwrap_or_default();
    // SAFETY: the format takes one C string.
    unsafe { sqlite3_log(code, c"%s".as_ptr(), text.as_ptr()) };
}

/// A copy in memory that SQLite frees; null if there is none.
pub(super) fn allocated(text: &CStr) -> *mut c_char {
    let bytes = text.to_bytes_with_nul();
    // SAFETY: the memory is as long as the bytes copied into it.
    unsafe {
        let memory = sqlite3_malloc64(bytes.len() as u64).cast::<u8>();
        if !memory.is_null() {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), memory, bytes.len());
        }
        memory.cast()
    }
}

/// A copy of values in memory that SQLite frees; null if there is none, or no value.
pub(super) fn allocated_array<T: Copy>(values: &[T]) -> *mut T {
    if values.is_empty() {
        return std::ptr::null_mut();
    }
    // SAFETY: the memory is as long as the values copied into it, and aligned for any type.
    unsafe {
        let memory = sqlite3_malloc64(size_of_val(values) as u64).cast::<T>();
        if !memory.is_null() {
            std::ptr::copy_nonoverlapping(values.as_ptr(), memory, values.len());
        }
        memory
    }
}

/// The version of SQLite.
#[must_use]
pub fn version() -> String {
    // SAFETY: SQLite returns a C string that stays.
    unsafe { CStr::from_ptr(sqlite3_libversion()) }
        .to_string_lossy()
        .into_owned()
}

/// Whether a text ends with a whole statement.
#[must_use]
pub fn complete(sql: &str) -> bool {
    // SAFETY: a C string.
    c_string(sql).is_ok_and(|sql| unsafe { sqlite3_complete(sql.as_ptr()) != 0 })
}

/// An error of SQLite's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The extended result code.
    pub code: i32,
    /// SQLite's message.
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

impl std::error::Error for Error {}

impl Error {
    fn words(what: &str) -> Self {
        Self {
            code: code::MISUSE,
            message: what.to_owned(),
        }
    }
}

/// A result of SQLite's.
pub type Result<T> = std::result::Result<T, Error>;

/// A value of a column.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// NULL.
    Null,
    /// An integer.
    Integer(i64),
    /// A floating-point number.
    Real(f64),
    /// A text; bytes that are not UTF-8 are replaced.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => Ok(()),
            Self::Integer(value) => write!(f, "{value}"),
            Self::Real(value) => write!(f, "{value:?}"),
            Self::Text(value) => f.write_str(value),
            Self::Blob(value) => {
                f.write_str("x'")?;
                value.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                f.write_str("'")
            }
        }
    }
}

/// A connection to a database.
pub struct Connection {
    db: NonNull<Opaque>,
}

// SAFETY: SQLite is compiled with SQLITE_THREADSAFE=1.
unsafe impl Send for Connection {}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: open, and closed once.
        unsafe { sqlite3_close_v2(self.db.as_ptr()) };
    }
}

impl Connection {
    /// Opens a database, or makes it if it does not exist; `name` is a path or a URI.
    ///
    /// # Errors
    /// SQLite's.
    pub fn open(name: &str) -> Result<Self> {
        let name = c_string(name)?;
        let mut db = std::ptr::null_mut();
        let flags = OPEN_READWRITE | OPEN_CREATE | OPEN_URI;
        // SAFETY: a C string, and a pointer that may be written.
        let code = unsafe { sqlite3_open_v2(name.as_ptr(), &raw mut db, flags, std::ptr::null()) };
        // A failed open also gives a connection, which has the message.
        let connection = Self {
            db: NonNull::new(db).ok_or_else(|| Error::words("out of memory"))?,
        };
        connection.check(code)?;
        Ok(connection)
    }

    /// Waits this long for locks.
    ///
    /// # Errors
    /// SQLite's.
    pub fn busy_timeout(&self, milliseconds: i32) -> Result<()> {
        // SAFETY: the connection is open.
        self.check(unsafe { sqlite3_busy_timeout(self.db.as_ptr(), milliseconds) })
    }

    /// Rows changed by the last statement that changes rows.
    #[must_use]
    pub fn changes(&self) -> i64 {
        // SAFETY: the connection is open.
        unsafe { sqlite3_changes64(self.db.as_ptr()) }
    }

    /// Runs statements to their ends, and returns the rows of all of them.
    ///
    /// # Errors
    /// SQLite's, of the first statement that fails.
    pub fn query(&self, sql: &str) -> Result<Vec<Vec<Value>>> {
        let mut rows = Vec::new();
        self.each(sql, |row| rows.push(row))?;
        Ok(rows)
    }

    /// Runs statements to their ends.
    ///
    /// # Errors
    /// SQLite's, of the first statement that fails.
    pub fn execute(&self, sql: &str) -> Result<()> {
        self.each(sql, |_| {})
    }

    /// Runs statements to their ends, and shows every row.
    ///
    /// # Errors
    /// SQLite's, of the first statement that fails.
    pub fn each(&self, sql: &str, mut show: impl FnMut(Vec<Value>)) -> Result<()> {
        let sql = c_string(sql)?;
        let mut rest = sql.as_c_str();
        while !rest.is_empty() {
            let (statement, tail) = self.prepare(rest)?;
            rest = tail;
            if let Some(mut statement) = statement {
                while statement.step()? {
                    show(statement.row());
                }
            }
        }
        Ok(())
    }

    /// The first statement of some SQL, ready to step; none if there is only a comment.
    ///
    /// # Errors
    /// SQLite's.
    pub fn statement(&self, sql: &str) -> Result<Option<Statement<'_>>> {
        let sql = c_string(sql)?;
        self.prepare(&sql).map(|(statement, _)| statement)
    }

    fn prepare<'a>(&self, sql: &'a CStr) -> Result<(Option<Statement<'_>>, &'a CStr)> {
        let (mut raw, mut tail) = (std::ptr::null_mut(), std::ptr::null());
        // SAFETY: a C string, and pointers that may be written.
        let code = unsafe {
            sqlite3_prepare_v2(
                self.db.as_ptr(),
                sql.as_ptr(),
                -1,
                &raw mut raw,
                &raw mut tail,
            )
        };
        self.check(code)?;
        // SAFETY: the tail points into the string passed in.
        let tail = unsafe { CStr::from_ptr(tail) };
        Ok((
            NonNull::new(raw).map(|raw| Statement {
                raw,
                connection: self,
            }),
            tail,
        ))
    }

    /// Opens a BLOB of the main database for reading and writing.
    ///
    /// # Errors
    /// SQLite's.
    pub fn blob(&self, table: &str, column: &str, row: i64, writable: bool) -> Result<Blob<'_>> {
        let (table, column) = (c_string(table)?, c_string(column)?);
        let mut raw = std::ptr::null_mut();
        // SAFETY: C strings, and a pointer that may be written.
        let code = unsafe {
            sqlite3_blob_open(
                self.db.as_ptr(),
                c"main".as_ptr(),
                table.as_ptr(),
                column.as_ptr(),
                row,
                writable.into(),
                &raw mut raw,
            )
        };
        self.check(code)?;
        let raw = NonNull::new(raw).ok_or_else(|| Error::words("no BLOB"))?;
        Ok(Blob {
            raw,
            connection: self,
        })
    }

    /// Makes a collation, or replaces the one of this name.
    ///
    /// # Errors
    /// SQLite's.
    pub fn create_collation(&self, name: &str, collation: Collation) -> Result<()> {
        const UTF8: c_int = 1;
        let name = c_string(name)?;
        let context = Box::into_raw(Box::new(collation)).cast();
        // SAFETY: a C string. Both functions take this context. It is released once, also if this
        // fails.
        let code = unsafe {
            let db = self.db.as_ptr();
            let made = sqlite3_create_collation_v2(
                db,
                name.as_ptr(),
                UTF8,
                context,
                collate,
                forget_collation,
            );
            if made != code::OK {
                forget_collation(context);
            }
            made
        };
        self.check(code)
    }

    /// Copies the main database of another connection over this one's, as `sqlite3_backup` does.
    ///
    /// # Errors
    /// SQLite's.
    pub fn backup_from(&self, other: &Connection) -> Result<()> {
        let backup = self.backup(other, "main")?;
        while backup.step(-1)? {}
        backup.finish()
    }

    /// Begins to copy a database of another connection over the main one of this one.
    ///
    /// # Errors
    /// SQLite's.
    pub fn backup<'a>(&'a self, other: &'a Connection, schema: &str) -> Result<Backup<'a>> {
        Backup::new(self, other, schema)
    }

    /// Makes a database one in memory, with this image.
    ///
    /// # Errors
    /// SQLite's.
    pub fn deserialize(&self, schema: &str, image: &[u8]) -> Result<()> {
        /// SQLite frees the image, and may make it larger.
        const OWNED: c_uint = 1 | 2;
        let schema = CString::new(schema).map_err(|_| Error::words("a zero in a name"))?;
        let size = image.len() as i64;
        let image = allocated_array(image);
        // SAFETY: the image was allocated by SQLite, which frees it also after an error.
        self.check(unsafe {
            let (db, image) = (self.db.as_ptr(), image.cast());
            sqlite3_deserialize(db, schema.as_ptr(), image, size, size, OWNED)
        })
    }

    /// A database as bytes.
    ///
    /// # Errors
    /// SQLite's.
    pub fn serialize(&self, schema: &str) -> Result<Vec<u8>> {
        let schema = CString::new(schema).map_err(|_| Error::words("a zero in a name"))?;
        let mut size = 0;
        // SAFETY: SQLite returns the size of its memory, which is freed once.
        unsafe {
            let memory = sqlite3_serialize(self.db.as_ptr(), schema.as_ptr(), &raw mut size, 0);
            let Ok(size) = usize::try_from(size) else {
                return Err(self.error());
            };
            if memory.is_null() {
                return Err(self.error());
            }
            let bytes = std::slice::from_raw_parts(memory.cast::<u8>(), size).to_vec();
            sqlite3_free(memory);
            Ok(bytes)
        }
    }

    fn check(&self, code: c_int) -> Result<()> {
        if code == code::OK {
            Ok(())
        } else {
            Err(self.error())
        }
    }

    fn error(&self) -> Error {
        // SAFETY: the connection is open, and SQLite returns a C string.
        unsafe {
            let message = CStr::from_ptr(sqlite3_errmsg(self.db.as_ptr()))
                .to_string_lossy()
                .into_owned();
            Error {
                code: sqlite3_extended_errcode(self.db.as_ptr()),
                message,
            }
        }
    }
}

/// A prepared statement.
pub struct Statement<'a> {
    raw: NonNull<Opaque>,
    connection: &'a Connection,
}

impl Drop for Statement<'_> {
    fn drop(&mut self) {
        // SAFETY: finalized once.
        unsafe { sqlite3_finalize(self.raw.as_ptr()) };
    }
}

impl Statement<'_> {
    /// Goes to the next row; false if there is none.
    ///
    /// # Errors
    /// SQLite's.
    pub fn step(&mut self) -> Result<bool> {
        // SAFETY: the statement is not finalized.
        match unsafe { sqlite3_step(self.raw.as_ptr()) } {
            code::ROW => Ok(true),
            code::DONE => Ok(false),
            _ => Err(self.connection.error()),
        }
    }

    /// The current row.
    #[must_use]
    pub fn row(&self) -> Vec<Value> {
        // SAFETY: the statement is not finalized.
        let columns = unsafe { sqlite3_column_count(self.raw.as_ptr()) };
        (0..columns).map(|column| self.value(column)).collect()
    }

    fn value(&self, column: c_int) -> Value {
        let raw = self.raw.as_ptr();
        // SAFETY: the statement is not finalized, and the column is one of its own. SQLite's
        // pointer has the number of bytes that SQLite returns, until the next call for the column.
        unsafe {
            match sqlite3_column_type(raw, column) {
                1 => Value::Integer(sqlite3_column_int64(raw, column)),
                2 => Value::Real(sqlite3_column_double(raw, column)),
                3 => {
                    let text = sqlite3_column_text(raw, column).cast::<u8>();
                    let text = copied(text, sqlite3_column_bytes(raw, column));
                    Value::Text(String::from_utf8_lossy(&text).into_owned())
                }
                4 => {
                    let blob = sqlite3_column_blob(raw, column).cast::<u8>();
                    Value::Blob(copied(blob, sqlite3_column_bytes(raw, column)))
                }
                _ => Value::Null,
            }
        }
    }
}

/// An open BLOB.
pub struct Blob<'a> {
    raw: NonNull<Opaque>,
    connection: &'a Connection,
}

impl Drop for Blob<'_> {
    fn drop(&mut self) {
        // SAFETY: closed once.
        unsafe { sqlite3_blob_close(self.raw.as_ptr()) };
    }
}

impl Blob<'_> {
    /// Bytes in it.
    #[must_use]
    pub fn size(&self) -> usize {
        // SAFETY: the BLOB is open.
        usize::try_from(unsafe { sqlite3_blob_bytes(self.raw.as_ptr()) }).unwrap_or(0)
    }

    /// Reads a part of it.
    ///
    /// # Errors
    /// SQLite's.
    pub fn read(&self, offset: i32, size: usize) -> Result<Vec<u8>> {
        let mut buffer = vec![0; size];
        let size = c_int::try_from(size).map_err(|_| Error::words("too big"))?;
        // SAFETY: the buffer is `size` bytes long.
        let code = unsafe {
            sqlite3_blob_read(self.raw.as_ptr(), buffer.as_mut_ptr().cast(), size, offset)
        };
        self.check(code).map(|()| buffer)
    }

    /// Changes a part of it.
    ///
    /// # Errors
    /// SQLite's.
    pub fn write(&self, offset: i32, data: &[u8]) -> Result<()> {
        let size = c_int::try_from(data.len()).map_err(|_| Error::words("too big"))?;
        // SAFETY: the data are `size` bytes long.
        self.check(unsafe {
            sqlite3_blob_write(self.raw.as_ptr(), data.as_ptr().cast(), size, offset)
        })
    }

    /// Goes to another row.
    ///
    /// # Errors
    /// SQLite's.
    pub fn reopen(&self, row: i64) -> Result<()> {
        // SAFETY: the BLOB is open.
        self.check(unsafe { sqlite3_blob_reopen(self.raw.as_ptr(), row) })
    }

    fn check(&self, code: c_int) -> Result<()> {
        if code == code::OK {
            Ok(())
        } else {
            Err(Error {
                code,
                ..self.connection.error()
            })
        }
    }
}

/// The order of two texts.
pub type Collation = Box<dyn FnMut(&[u8], &[u8]) -> Ordering>;

/// # Safety
/// `context` is a [`Collation`] in a box; both texts have the sizes before them.
unsafe extern "C" fn collate(
    context: *mut c_void,
    left_size: c_int,
    left: *const c_void,
    right_size: c_int,
    right: *const c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let (left, right) = unsafe {
        (
            copied(left.cast(), left_size),
            copied(right.cast(), right_size),
        )
    };
    // SAFETY: the caller's promise.
    let collation = unsafe { &mut *context.cast::<Collation>() };
    collation(&left, &right) as c_int
}

/// # Safety
/// `context` is a [`Collation`] in a box that nothing uses any more.
unsafe extern "C" fn forget_collation(context: *mut c_void) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(context.cast::<Collation>()) });
}

/// # Safety
/// `from` has `size` bytes, or there are none.
unsafe fn copied(from: *const u8, size: c_int) -> Vec<u8> {
    match usize::try_from(size) {
        // SAFETY: the caller's promise.
        Ok(size) if size > 0 && !from.is_null() => {
            unsafe { std::slice::from_raw_parts(from, size) }.to_vec()
        }
        _ => Vec::new(),
    }
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::words("a NUL in SQL or a name"))
}
