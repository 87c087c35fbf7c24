//! The functions for the C part, in the order of `c/engine.h`.
//!
//! Every function trusts the C part in the same points, which are the reasons in the SAFETY
//! comments. A connection comes from `lsmvbt_open` and was not passed to `lsmvbt_close`. Pointers
//! to results may be written. Buffers have the sizes passed with them.

use std::cmp::Ordering;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_uchar, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ::lsmvbt::{Abbreviation, Found, Payloads, Span};

use super::code;
use super::file::{DatabaseFile, RawFile, Shares};
use super::handle::{Handle, Inner, engine, engine_where, named};
use super::rows::moving;
use super::sqlite;
use crate::engine::{Comparison, CursorId, Durability, Error, Place, Result, Row, Seek, TreeKind};

/// `EngineSought`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EngineSought {
    compare: unsafe extern "C" fn(*mut c_void, *const c_uchar, c_uint, *mut c_int) -> c_int,
    search: unsafe extern "C" fn(
        *mut c_void,
        *const c_uchar,
        *const Span,
        c_uint,
        *mut c_uint,
        *mut c_int,
    ) -> c_int,
    abbreviate: unsafe extern "C" fn(c_uint, *const c_uchar, *const Span, c_uint, *mut u64),
    context: *mut c_void,
    kind: c_uint,
    number: u64,
}

/// The cursor in a database that does not exist yet: its trees are empty.
pub(super) const NOWHERE: CursorId = CursorId::MAX;

/// Runs `work` on a connection.
///
/// # Safety
/// `db` is a connection.
pub(super) unsafe fn run(db: *mut Handle, work: impl FnOnce(&mut Inner) -> Result<c_int>) -> c_int {
    // SAFETY: the caller's promise. A shared reference suffices: Handle guards its own state.
    unsafe { &*db }.run(work)
}

/// As [`run`], for work without a result of its own.
///
/// # Safety
/// `db` is a connection.
pub(super) unsafe fn doing(db: *mut Handle, work: impl FnOnce(&mut Inner) -> Result<()>) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { run(db, |inner| work(inner).map(|()| code::OK)) }
}

/// As [`run`], for work whose result goes to `out`.
///
/// # Safety
/// `db` is a connection; `out` may be written.
unsafe fn giving<T>(
    db: *mut Handle,
    out: *mut T,
    work: impl FnOnce(&mut Inner) -> Result<T>,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { doing(db, |inner| work(inner).map(|value| out.write(value))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_engine_of_file(magic: *const c_uchar) -> c_int {
    // SAFETY: 16 bytes, according to engine.h.
    let magic = unsafe { std::slice::from_raw_parts(magic, 16) };
    engine_where(|engine| engine.owns(magic))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_engine_named(name: *const c_char) -> c_int {
    // SAFETY: a C string.
    let name = unsafe { CStr::from_ptr(name) };
    engine_where(|engine| named(engine, name))
}

#[unsafe(no_mangle)]
extern "C" fn lsmvbt_engine_of_new() -> c_int {
    use std::os::unix::ffi::OsStringExt;
    let name = std::env::var_os("LSMVBT_SQLITE_DEFAULT")
        .and_then(|name| CString::new(name.into_vec()).ok());
    name.map_or(-1, |name| engine_where(|engine| named(engine, &name)))
}

#[unsafe(no_mangle)]
extern "C" fn lsmvbt_engine_name(number: c_int) -> *const c_char {
    engine(number)
        .map_or(c"stock", |engine| engine.name())
        .as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_open(
    number: c_int,
    sqlite: *mut c_void,
    file: *mut RawFile,
    path: *const c_char,
    read_only: c_int,
    immutable: c_int,
    is_copy: c_int,
    out: *mut *mut Handle,
) -> c_int {
    let Some(engine) = engine(number) else {
        return code::INTERNAL;
    };
    // SAFETY: a C string.
    let path = PathBuf::from(OsStr::from_bytes(
        unsafe { CStr::from_ptr(path) }.to_bytes(),
    ));
    let shares = match immutable {
        0 => Shares::WithAll,
        _ => Shares::WithNone,
    };
    // SAFETY: the C part closes the file after the connection.
    let file = unsafe { DatabaseFile::new(file, shares) };
    let handle = Box::new(Handle::new(
        engine,
        Place {
            path,
            read_only: read_only != 0,
            is_copy: is_copy != 0,
            file,
        },
        sqlite,
    ));
    // SAFETY: `out` may be written.
    unsafe { out.write(Box::into_raw(handle)) };
    code::OK
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_close(db: *mut Handle) {
    // SAFETY: it came from `lsmvbt_open`, and is returned once.
    let handle = unsafe { Box::from_raw(db) };
    // A panic must not pass into C; the process drops the remains when it ends.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(handle)));
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_is_new(db: *mut Handle) -> c_int {
    let mut is_new = false;
    // SAFETY: a connection.
    let result = unsafe { giving(db, &raw mut is_new, |inner| Ok(inner.is_new())) };
    c_int::from(result == code::OK && is_new)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_begin(db: *mut Handle, write: c_int) -> c_int {
    // SAFETY: a connection.
    unsafe { doing(db, |inner| inner.begin(write != 0)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_prepare(db: *mut Handle) -> c_int {
    // SAFETY: a connection.
    unsafe { doing(db, |inner| inner.opened()?.prepare()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_write(db: *mut Handle) -> c_int {
    // SAFETY: a connection.
    unsafe {
        doing(db, |inner| {
            let durability = inner.durability;
            inner.opened()?.write(durability)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_commit(db: *mut Handle) -> c_int {
    // SAFETY: a connection.
    unsafe {
        doing(db, |inner| {
            let durability = inner.durability;
            inner.opened()?.commit(durability)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_rollback(db: *mut Handle) -> c_int {
    // SAFETY: a connection.
    unsafe { doing(db, |inner| inner.opened()?.rollback()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_flush(db: *mut Handle) -> c_int {
    // SAFETY: a connection.
    unsafe {
        doing(db, |inner| {
            if inner.is_new() {
                return Ok(());
            }
            // It may be this connection's first look at the database.
            inner.begin(false)?;
            let connection = inner.opened()?;
            connection.end_read();
            connection.flush()
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_end_read(db: *mut Handle) {
    // SAFETY: a connection.
    unsafe {
        doing(db, |inner| {
            if let Some(connection) = inner.connection() {
                connection.end_read();
            }
            Ok(())
        });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_savepoint_open(db: *mut Handle, count: c_int) -> c_int {
    // SAFETY: a connection.
    unsafe {
        doing(db, |inner| {
            inner.open_savepoints(usize::try_from(count).unwrap_or(0))
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_savepoint_rollback(db: *mut Handle, number: c_int) -> c_int {
    // SAFETY: a connection.
    unsafe { doing(db, |inner| inner.rollback_to(number)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_savepoint_release(db: *mut Handle, number: c_int) -> c_int {
    // SAFETY: a connection.
    unsafe { doing(db, |inner| inner.release(number)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_set_synchronous(db: *mut Handle, level: c_int, fullfsync: c_int) {
    // SAFETY: a connection.
    unsafe {
        doing(db, |inner| {
            inner.file.set_fullfsync(fullfsync != 0);
            inner.durability = if level >= 3 {
                Durability::Flush
            } else {
                Durability::Later
            };
            Ok(())
        });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_set_cache_pages(db: *mut Handle, pages: c_uint) {
    // SAFETY: a connection.
    unsafe {
        doing(db, |inner| {
            inner.set_cache_pages(pages as usize);
            Ok(())
        });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_metas(db: *mut Handle, values: *mut [c_uint; 16]) -> c_int {
    // SAFETY: a connection; `values` may be written.
    unsafe {
        giving(db, values, |inner| {
            inner
                .connection()
                .map_or(Ok([0; 16]), |connection| connection.metas())
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_set_meta(db: *mut Handle, index: c_int, value: c_uint) -> c_int {
    let index = usize::try_from(index).unwrap_or(usize::MAX);
    // SAFETY: a connection.
    unsafe { doing(db, |inner| inner.opened()?.set_meta(index, value)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_data_version(db: *mut Handle) -> c_uint {
    let mut version = 0;
    // SAFETY: a connection.
    unsafe {
        giving(db, &raw mut version, |inner| {
            Ok(inner
                .connection()
                .map_or(0, |connection| connection.data_version()))
        });
    }
    version
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_create_tree(db: *mut Handle, table: c_int, tree: *mut c_uint) -> c_int {
    // SAFETY: a connection; `tree` may be written.
    unsafe { giving(db, tree, |inner| inner.opened()?.create_tree(kind(table))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_drop_tree(db: *mut Handle, tree: c_uint) -> c_int {
    // SAFETY: a connection.
    unsafe { doing(db, |inner| inner.opened()?.drop_tree(tree)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_clear_tree(db: *mut Handle, tree: c_uint, removed: *mut i64) -> c_int {
    // SAFETY: a connection; `removed` may be written.
    unsafe {
        giving(db, removed, |inner| {
            inner.opened()?.clear_tree(tree).map(number)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_last_tree(db: *mut Handle) -> c_uint {
    let mut last = 1;
    // SAFETY: a connection.
    unsafe {
        giving(db, &raw mut last, |inner| {
            inner
                .connection()
                .map_or(Ok(1), |connection| connection.last_tree())
        });
    }
    last
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_count(db: *mut Handle, tree: c_uint, entries: *mut i64) -> c_int {
    // SAFETY: a connection; `entries` may be written.
    unsafe {
        giving(db, entries, |inner| {
            inner
                .connection()
                .map_or(Ok(0), |connection| connection.count(tree))
                .map(number)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_check(
    db: *mut Handle,
    limit: c_int,
    found: *mut c_int,
    text: *mut *mut c_char,
) -> c_int {
    let limit = usize::try_from(limit).unwrap_or(0);
    // SAFETY: a connection; `found` and `text` may be written.
    unsafe {
        run(db, |inner| {
            let findings = inner
                .connection()
                .map_or(Ok(Vec::new()), |connection| connection.check())?;
            found.write(c_int::try_from(findings.len().min(limit)).unwrap_or(c_int::MAX));
            if findings.is_empty() || limit == 0 {
                return Ok(code::OK);
            }
            let lines = findings[..findings.len().min(limit)]
                .join("\n")
                .replace('\0', "?");
            let copy = sqlite::allocated(&CString::new(lines).unwrap_or_default());
            text.write(copy);
            Ok(if copy.is_null() {
                code::NOMEM
            } else {
                code::OK
            })
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_cursor_open(
    db: *mut Handle,
    tree: c_uint,
    table: c_int,
    cursor: *mut c_uint,
) -> c_int {
    // SAFETY: a connection; `cursor` may be written.
    unsafe {
        giving(db, cursor, |inner| {
            inner.connection().map_or(Ok(NOWHERE), |connection| {
                connection.open_cursor(tree, kind(table))
            })
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_cursor_close(db: *mut Handle, cursor: c_uint) {
    // SAFETY: a connection.
    unsafe {
        doing(db, |inner| {
            match inner.connection() {
                Some(connection) if cursor != NOWHERE => connection.close_cursor(cursor),
                _ => {}
            }
            Ok(())
        });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_seek_rowid(
    db: *mut Handle,
    cursor: c_uint,
    rowid: i64,
    order: *mut c_int,
    row: *mut Row<'static>,
) -> c_int {
    // SAFETY: a connection; `order` and `row` may be written.
    unsafe {
        moving(db, cursor, row, |inner| {
            let seek = inner.opened()?.seek_rowid(cursor, rowid)?;
            Ok(arrived(seek, order))
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_seek_record(
    db: *mut Handle,
    cursor: c_uint,
    sought: *const EngineSought,
    order: *mut c_int,
    row: *mut Row<'static>,
) -> c_int {
    // SAFETY: a connection; `order` and `row` may be written; `sought` is one.
    unsafe {
        moving(db, cursor, row, |inner| {
            let seek = inner
                .opened()?
                .seek_record(cursor, &mut Comparing(*sought))?;
            Ok(arrived(seek, order))
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_read(
    db: *mut Handle,
    cursor: c_uint,
    offset: c_uint,
    size: c_uint,
    buffer: *mut c_void,
) -> c_int {
    // SAFETY: a connection; the buffer has `size` bytes, and any byte is a valid u8.
    unsafe {
        doing(db, |inner| {
            std::ptr::write_bytes(buffer.cast::<u8>(), 0, size as usize);
            let buffer = std::slice::from_raw_parts_mut(buffer.cast::<u8>(), size as usize);
            inner.opened()?.read(cursor, offset, buffer)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_insert_row(
    db: *mut Handle,
    cursor: c_uint,
    rowid: i64,
    data: *const c_void,
    size: c_uint,
    zeros: c_uint,
) -> c_int {
    // SAFETY: a connection; `data` has `size` bytes.
    unsafe {
        doing(db, |inner| {
            inner
                .opened()?
                .insert_row(cursor, rowid, bytes(data, size), zeros)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_insert_record(
    db: *mut Handle,
    cursor: c_uint,
    record: *const c_void,
    size: c_uint,
    sought: *const EngineSought,
) -> c_int {
    // SAFETY: a connection; `record` has `size` bytes; `sought` is one.
    unsafe {
        doing(db, |inner| {
            let record = bytes(record, size);
            inner
                .opened()?
                .insert_record(cursor, record, &mut Comparing(*sought))
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_overwrite(
    db: *mut Handle,
    cursor: c_uint,
    offset: c_uint,
    size: c_uint,
    data: *const c_void,
    row: *mut Row<'static>,
) -> c_int {
    // SAFETY: a connection; `row` may be written; `data` has `size` bytes.
    unsafe {
        moving(db, cursor, row, |inner| {
            inner
                .opened()?
                .overwrite(cursor, offset, bytes(data, size))?;
            Ok(true)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lsmvbt_delete(db: *mut Handle, cursor: c_uint) -> c_int {
    // SAFETY: a connection.
    unsafe { doing(db, |inner| inner.opened()?.delete(cursor)) }
}

/// Writes the order of the entry relative to the sought one; false if there is no entry.
///
/// # Safety
/// `order` may be written.
unsafe fn arrived(seek: Seek, order: *mut c_int) -> bool {
    match seek {
        Seek::Empty => false,
        Seek::At(found) => {
            // SAFETY: the caller's promise.
            unsafe { order.write(found as c_int) };
            true
        }
    }
}

/// The C part's comparison, whose functions take its context for as long as this is used.
struct Comparing(EngineSought);

impl Comparison for Comparing {
    fn compare(&mut self, record: &[u8]) -> Result<Ordering> {
        let EngineSought {
            compare, context, ..
        } = self.0;
        let size = c_uint::try_from(record.len()).map_err(|_| Error::TooBig("a record"))?;
        let mut order = 0;
        // SAFETY: the promise of `Comparing`; the engine promises readable bytes after the record.
        match unsafe { compare(context, record.as_ptr(), size, &raw mut order) } {
            code::OK => Ok(order.cmp(&0)),
            code => Err(Error::Compare(code)),
        }
    }

    fn search(&mut self, records: Payloads<'_>, from: usize) -> Result<Found> {
        let EngineSought {
            search, context, ..
        } = self.0;
        let (bytes, spans) = (records.bytes().as_ptr(), records.spans());
        let too_many = |_| Error::TooBig("a page");
        let count = c_uint::try_from(spans.len()).map_err(too_many)?;
        let mut not_larger = c_uint::try_from(from).map_err(too_many)?;
        let mut equal = 0;
        // SAFETY: the promise of `Comparing`; the number of spans is right, and they lie in the
        // bytes.
        let result = unsafe {
            search(
                context,
                bytes,
                spans.as_ptr(),
                count,
                &raw mut not_larger,
                &raw mut equal,
            )
        };
        match result {
            code::OK => Ok(Found {
                not_larger: not_larger as usize,
                equal: equal != 0,
            }),
            code => Err(Error::Compare(code)),
        }
    }

    fn abbreviation(&self) -> Option<Abbreviation> {
        let EngineSought { kind, number, .. } = self.0;
        let sought = number;
        (kind != 0).then_some(Abbreviation { kind, sought })
    }

    fn abbreviate(&self, records: Payloads<'_>) -> Vec<u64> {
        let EngineSought {
            abbreviate, kind, ..
        } = self.0;
        let (bytes, spans) = (records.bytes().as_ptr(), records.spans());
        let Ok(count) = c_uint::try_from(spans.len()) else {
            return Vec::new();
        };
        let mut numbers = vec![0; spans.len()];
        // SAFETY: the number of spans, which lie in the bytes, and of numbers is right.
        unsafe { abbreviate(kind, bytes, spans.as_ptr(), count, numbers.as_mut_ptr()) };
        numbers
    }
}

fn kind(table: c_int) -> TreeKind {
    if table == 0 {
        TreeKind::Index
    } else {
        TreeKind::Table
    }
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The bytes from C; without any, the pointer may be null.
///
/// # Safety
/// `data` has `size` bytes, for as long as the slice is used.
unsafe fn bytes<'a>(data: *const c_void, size: c_uint) -> &'a [u8] {
    if size == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size as usize) }
}
