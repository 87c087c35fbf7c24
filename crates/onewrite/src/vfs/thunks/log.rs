//! A log's methods. SQLite treats it as its own `-wal` file: no locks, no shared memory, no mapping.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use super::database::{db_fetch, db_shm_barrier, db_unfetch};
use super::shm::{db_shm_lock, db_shm_map, db_shm_unmap};
use super::{await_snapshot, failed, in_buffer, out_buffer, shielded, with_writer};
use crate::vfs::database::Database;
use crate::vfs::ffi::{self, SQLITE_NOTFOUND, SQLITE_OK, sqlite3_file, sqlite3_io_methods};
use crate::vfs::host;
use crate::vfs::stall::Counts;
use crate::wal::{FRAME_HEADER_BYTES, FrameNo, be32};

/// The offset in a frame's header of the database's pages after a commit; 0 in other frames.
const PAGES_AT: usize = 4;

/// One of our logs. It belongs to a database, which SQLite closes after it.
#[repr(C)]
struct LogHandle {
    base: sqlite3_file,
    database: *const Database,
}

/// Opens a log: `xOpen` of the VFS.
///
/// # Safety
/// SQLite passes memory of szOsFile bytes; the database outlives its log, which SQLite closes first.
pub unsafe fn open(
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
            *out_flags = match database.may_not_write_log() {
                true => flags & !ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_READONLY,
                false => flags,
            };
        }
    }
    SQLITE_OK
}

/// # Safety
/// `file` is a log that [`open`] opened.
unsafe fn log_database<'a>(file: *mut sqlite3_file) -> &'a Database {
    // SAFETY: by this function's contract.
    let database = unsafe { &*(*file.cast::<LogHandle>()).database };
    host::enter(database.host);
    database
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
    // Version 1 does not have them, but the structure needs them.
    xShmMap: db_shm_map,
    xShmLock: db_shm_lock,
    xShmBarrier: db_shm_barrier,
    xShmUnmap: db_shm_unmap,
    xFetch: db_fetch,
    xUnfetch: db_unfetch,
};

unsafe extern "C" fn log_close(file: *mut sqlite3_file) -> c_int {
    shielded(|| {
        // SAFETY: one of our logs.
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
        // SAFETY: one of our logs, and a buffer of `size` bytes.
        let (database, out) = unsafe { (log_database(file), out_buffer(out, size)) };
        if let Err(code) = await_snapshot(database) {
            return code;
        }
        let place = frame_of(database, out.len(), offset as u64);
        let index = match place {
            Some((_, Part::Page)) => database.view_of_reads(),
            _ => Ok(database.inner.index_view()),
        };
        let index = match index {
            Ok(index) => index,
            Err(e) => return failed(database, &e),
        };
        let code = with_writer(database, |writer| writer.read(out, offset as u64, index));
        database.remapper.note_read(match place {
            Some((frame, Part::Page)) if code == SQLITE_OK => Some(frame),
            _ => None,
        });
        let checked = match place.filter(|_| code == SQLITE_OK) {
            // Recovery reads like this.
            Some((frame, Part::Whole)) => database.repair(frame, out),
            Some((frame, Part::Page)) => database.check_page(frame, out),
            None => return code,
        };
        match checked {
            Ok(()) => SQLITE_OK,
            Err(e) => failed(database, &e),
        }
    })
}

/// The part of a frame that is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    Page,
}

/// The frame of a read, if the read is of all of it or of its page.
fn frame_of(database: &Database, bytes: usize, offset: u64) -> Option<(FrameNo, Part)> {
    let log = database.log.borrow();
    let page = log.as_ref()?.geometry().page();
    match page.locate(offset)? {
        (frame, 0) if bytes == page.frame_bytes() => Some((frame, Part::Whole)),
        (frame, FRAME_HEADER_BYTES) if bytes == page.bytes() => Some((frame, Part::Page)),
        _ => None,
    }
}

unsafe extern "C" fn log_write(
    file: *mut sqlite3_file,
    data: *const c_void,
    size: c_int,
    offset: i64,
) -> c_int {
    shielded(|| {
        // SAFETY: one of our logs, and `size` bytes.
        let (database, data) = unsafe { (log_database(file), in_buffer(data, size)) };
        if is_commit(database, data, offset as u64)
            && let Err(e) = database.check_before_commit()
        {
            return failed(database, &e);
        }
        let view = || database.inner.index_view();
        let looks_rarely = database.looks_rarely();
        database.watched(Counts::Phases, || {
            with_writer(database, |writer| {
                writer.looks_rarely = looks_rarely;
                writer.write(data, offset as u64, &view)?;
                writer.hold_floor(&view, &|| database.alone_in_transaction())
            })
        })
    })
}

/// Whether a write begins with the header of a frame that ends a transaction.
fn is_commit(database: &Database, data: &[u8], offset: u64) -> bool {
    let log = database.log.borrow();
    let place = log
        .as_ref()
        .and_then(|log| log.geometry().page().locate(offset));
    let header = data.first_chunk::<FRAME_HEADER_BYTES>();
    matches!((place, header), (Some((_, 0)), Some(header)) if be32(header, PAGES_AT) != 0)
}

unsafe extern "C" fn log_truncate(file: *mut sqlite3_file, size: i64) -> c_int {
    shielded(|| {
        // SAFETY: one of our logs.
        let database = unsafe { log_database(file) };
        with_writer(database, |writer| writer.truncate(size as u64))
    })
}

unsafe extern "C" fn log_sync(file: *mut sqlite3_file, _flags: c_int) -> c_int {
    shielded(|| {
        // SAFETY: one of our logs.
        let database = unsafe { log_database(file) };
        let index = database.inner.index_view();
        database.watched(Counts::All, || {
            with_writer(database, |writer| {
                writer.sync(index, &|| database.alone_in_transaction())
            })
        })
    })
}

unsafe extern "C" fn log_file_size(file: *mut sqlite3_file, out: *mut i64) -> c_int {
    shielded(|| {
        // SAFETY: one of our logs, and room for one integer.
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
