//! A database's methods.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;

use super::shm::{db_shm_lock, db_shm_map, db_shm_unmap};
use super::{
    await_snapshot, failed, in_buffer, names, out_buffer, shielded, stays_loaded, with_writer,
};
use crate::vfs::background::{self, Service};
use crate::vfs::claim::{Claim, Taken};
use crate::vfs::database::{Database, Opened, Paths};
use crate::vfs::events::{Event, teller};
use crate::vfs::ffi::{self, SQLITE_NOTFOUND, SQLITE_OK, sqlite3_file, sqlite3_io_methods};
use crate::vfs::host::{self, Connection, Host};
use crate::vfs::inner::{Inner, LockLevel};
use crate::vfs::pragma::Answer;
use crate::vfs::settings::{self, Uri};
use crate::vfs::stall::Counts;
use crate::vfs::{convert, header, linger};

/// One of our database files. The file of the VFS underneath follows it in the same allocation.
#[repr(C)]
pub struct DatabaseFile {
    base: sqlite3_file,
    database: *mut Database,
}

/// Opens a main database: `xOpen` of the VFS.
///
/// # Safety
/// SQLite passes memory of szOsFile bytes, and a name.
pub unsafe fn open(
    host: &'static Host,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: by this function's contract; the file underneath follows ours.
    unsafe {
        let ours = file.cast::<DatabaseFile>();
        let below = ours.add(1).cast::<sqlite3_file>();
        (*below).pMethods = ptr::null();
        (*ours).base.pMethods = ptr::null();
        let path = host::path(name);
        let mut claim = match claim_of(&path, host) {
            Ok(claim) => claim,
            Err(code) => return code,
        };
        let uri = |parameter: &str| {
            let parameter = CString::new(parameter).ok()?;
            host::uri_parameter(name, &parameter)
        };
        let names = host::uri_names(name);
        let is_new = claim.is_none() && flags & ffi::SQLITE_OPEN_CREATE != 0;
        let is_refused = is_new && settings::is_wrong(&uri, &names);
        let opened_as = match open_below(host, name, below, flags, is_refused) {
            Ok(opened_as) => opened_as,
            Err(code) => return code,
        };
        if !out_flags.is_null() {
            *out_flags = shown(&path, opened_as);
        }
        if claim.is_none() {
            // The file was made just now.
            claim = match Claim::of(&path, host) {
                Ok(claim) => claim,
                Err(taken) => {
                    Inner::new(below).close();
                    return refused(&taken);
                }
            };
        }
        let mut database = Box::new(Database::new(Opened {
            host,
            claim,
            inner: Inner::new(below),
            paths: Paths::of(path),
            read_only: opened_as & ffi::SQLITE_OPEN_READONLY != 0,
            takes_no_lock: settings::is_set(&uri, "immutable") || settings::is_set(&uri, "nolock"),
            may_only_read_index: settings::is_set(&uri, "readonly_shm"),
            wanted: settings::wanted_mode(&uri),
            wanted_by_uri: settings::mode_of_uri(&uri),
            upgrade_by_uri: settings::upgrade_of_uri(&uri),
        }));
        let applied = apply_settings(&database, &uri);
        let applied = applied.and_then(|()| settings::check_names(&names));
        if let Err(code) = note_uri_error(&mut database, applied, is_refused) {
            return code;
        }
        (*ours).base.pMethods = match database.inner.methods().iVersion {
            1 => &raw const DATABASE_METHODS[0],
            2 => &raw const DATABASE_METHODS[1],
            _ => &raw const DATABASE_METHODS[2],
        };
        database.await_lingering();
        let database = Box::into_raw(database);
        (*ours).database = database;
        // `db_close` forgets it.
        names::enter(host::wal_name(name), database);
        SQLITE_OK
    }
}

/// Opens the file below, and returns the flags that it was opened with. If the database will be refused for its
/// URI, no file is made: a temporary one takes its place, so that the refusal has our words. The error is
/// SQLite's code.
///
/// # Safety
/// As for [`open`]; `below` is memory for a file of the VFS underneath.
unsafe fn open_below(
    host: &'static Host,
    name: *const c_char,
    below: *mut sqlite3_file,
    flags: c_int,
    is_refused: bool,
) -> Result<c_int, c_int> {
    let (name, flags) = match is_refused {
        true => (ptr::null(), ffi::SQLITE_OPEN_TEMPORARY),
        false => (name, flags),
    };
    let mut opened_as = flags;
    // SAFETY: by this function's contract.
    match unsafe { ((*host.base).xOpen)(host.base, name, below, flags, &raw mut opened_as) } {
        SQLITE_OK => Ok(opened_as),
        code => Err(code),
    }
}

/// Notes that the first lock is to be refused: an error from here would be in SQLite's own words. Without
/// locks, and with a temporary file in its place, the database is closed. The error is SQLite's code.
fn note_uri_error(
    database: &mut Database,
    applied: Result<(), String>,
    is_refused: bool,
) -> Result<(), c_int> {
    match applied {
        Ok(()) if !is_refused => return Ok(()),
        Err(message) if !database.takes_no_lock => {
            database.requested.uri_error = Some(message);
            return Ok(());
        }
        Ok(()) => {}
        Err(message) => host::log(ffi::SQLITE_CANTOPEN, &message),
    }
    database.inner.close();
    Err(ffi::SQLITE_CANTOPEN)
}

/// The error is SQLite's code.
fn claim_of(path: &Path, host: &'static Host) -> Result<Option<Claim>, c_int> {
    let claimed = match Claim::of(path, host) {
        // Perhaps only one of our own connections has it.
        Err(_) if linger::end_in_other_hosts(host, path) => Claim::of(path, host),
        claimed => claimed,
    };
    let claim = claimed.map_err(|taken| refused(&taken))?;
    match claim
        .as_ref()
        .is_some_and(|it| linger::is_inherited(it.file()))
    {
        true => Err(not_locked(path)),
        false => Ok(claim),
    }
}

/// SQLite would take the locks of the parent for its own.
fn not_locked(path: &Path) -> c_int {
    let why = "its parent process forked while it closed the database, so SQLite cannot lock it in this \
               process: start a new program (exec) to open it";
    host::log(ffi::SQLITE_CANTOPEN, &format!("{}: {why}", path.display()));
    ffi::SQLITE_CANTOPEN
}

fn refused(taken: &Taken) -> c_int {
    host::log(ffi::SQLITE_CANTOPEN, &taken.to_string());
    ffi::SQLITE_CANTOPEN
}

fn apply_settings(database: &Database, uri: Uri<'_>) -> Result<(), String> {
    if database.served.is_some() {
        // It has those of the application's connection.
        return Ok(());
    }
    if !convert::is_converting() {
        warn_of_literal_name(database);
        settings::check_modes(database, uri)?;
    }
    database.apply_settings(uri)?;
    settings::warn_of_unsuited(database);
    Ok(())
}

/// A program that opens no URIs makes a file of the URI's name, in a stock mode.
fn warn_of_literal_name(database: &Database) {
    let path = &database.paths.database;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.starts_with("file:") && name.contains('?') {
        database.warn(&format!(
            "{}: the program opens no URIs, and took this one for a file's name: give it the path alone, and \
             choose the mode by PRAGMA journal_mode or ONEWRITE_JOURNAL_MODE",
            path.display()
        ));
    }
}

/// # Safety
/// `file` is a database that [`open`] opened.
pub(super) unsafe fn database<'a>(file: *mut sqlite3_file) -> &'a Database {
    // SAFETY: by this function's contract.
    let database = unsafe { &*(*file.cast::<DatabaseFile>()).database };
    host::enter(database.host);
    database
}

/// The database behind a file, if the file has our methods: another copy of this library may be in
/// the process.
///
/// # Safety
/// `file` is open.
pub unsafe fn of_ours<'a>(file: *mut sqlite3_file) -> Option<&'a Database> {
    // SAFETY: by this function's contract.
    unsafe {
        let methods = (*file).pMethods;
        let is_ours = DATABASE_METHODS.iter().any(|ours| ptr::eq(ours, methods));
        is_ours.then(|| database(file))
    }
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
        pub unsafe extern "C" fn $name(file: *mut sqlite3_file, $($argument: $type),*) -> $ret {
            // SAFETY: SQLite calls with one of our databases; passed on as it came.
            unsafe {
                let inner = &database(file).inner;
                (inner.methods().$method)(inner.file(), $($argument),*)
            }
        }
    )*};
}

pass_to_inner! {
    db_file_size => xFileSize(out: *mut i64) -> c_int;
    db_check_reserved_lock => xCheckReservedLock(out: *mut c_int) -> c_int;
    db_sector_size => xSectorSize() -> c_int;
    db_shm_barrier => xShmBarrier() -> ();
    db_unfetch => xUnfetch(offset: i64, page: *mut c_void) -> c_int;
}

/// How SQLite sees the file. The connection of the thread that checkpoints is read-only to it, so a
/// statement that would write is refused at once (BG18). A checkpoint does not ask.
fn shown(path: &Path, opened_as: c_int) -> c_int {
    match background::served(path) {
        Some(served) if served.by == Service::Checkpoints => {
            opened_as & !ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_READONLY
        }
        _ => opened_as,
    }
}

unsafe extern "C" fn db_close(file: *mut sqlite3_file) -> c_int {
    shielded(|| {
        // SAFETY: SQLite closes a file once, after its log.
        let mut database = unsafe { Box::from_raw((*file.cast::<DatabaseFile>()).database) };
        host::enter(database.host);
        names::forget(&raw const *database);
        database.end_turn();
        // It no longer has that log open, and must not find itself.
        let is_own = database.served.take().is_some();
        let left_guarded = database.must_end_guard();
        let code = database.inner.close();
        if left_guarded {
            convert::end_guard(database.host, &database.paths);
        }
        database.untold.take().into_iter().for_each(Event::tell);
        if !is_own && !teller::await_told() {
            // The callback returns into SQLite, which the application may unload.
            stays_loaded(database.host);
        }
        code
    })
}

unsafe extern "C" fn db_read(
    file: *mut sqlite3_file,
    out: *mut c_void,
    size: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: SQLite passes a buffer of `size` bytes.
    let (database, out) = unsafe { (database(file), out_buffer(out, size)) };
    if let Err(code) = await_snapshot(database) {
        return code;
    }
    let code = database.inner.read(out, offset);
    if offset < header::HEADER_BYTES as i64 && database.hides(out, offset as u64) {
        header::hide(out, offset as u64);
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
        let (database, data) = unsafe { (database(file), in_buffer(data, size)) };
        database.is_flushed.set(false);
        if database.guard.must_look_again.get() {
            return ffi::SQLITE_IOERR_WRITE;
        }
        if database.puts_off(data, offset as u64) {
            return SQLITE_OK;
        }
        if let Err(e) = database.mark_switch(data, offset as u64) {
            return failed(database, &e);
        }
        if let Err(code) = database.begin_atomic() {
            return code;
        }
        if offset == 0 && database.counts_lazily(data) {
            return SQLITE_OK;
        }
        if offset == 0
            && database.is_guarded()
            && let Some(id) = database.log().and_then(|log| log.id())
        {
            let mut page = data.to_vec();
            header::keep(&mut page, id);
            return database.inner.write(&page, 0);
        }
        database.give_up_atomic(database.inner.write(data, offset))
    })
}

unsafe extern "C" fn db_truncate(file: *mut sqlite3_file, size: i64) -> c_int {
    shielded(|| {
        // SAFETY: one of our databases.
        let database = unsafe { database(file) };
        database.is_flushed.set(false);
        if let Err(e) = database.finish_pages() {
            return failed(database, &e);
        }
        // SAFETY: passed on as it came.
        unsafe {
            match database.begin_atomic() {
                Ok(()) => {
                    let methods = database.inner.methods();
                    database.give_up_atomic((methods.xTruncate)(database.inner.file(), size))
                }
                Err(code) => code,
            }
        }
    })
}

unsafe extern "C" fn db_sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    shielded(|| {
        // SAFETY: as for `db_truncate`.
        unsafe {
            let database = database(file);
            match database.sync_atomic() {
                Ok(true) => SQLITE_OK,
                Ok(false) => {
                    let code = (database.inner.methods().xSync)(database.inner.file(), flags);
                    database.playback_synced(code);
                    if code == SQLITE_OK {
                        let is_alone = database.lock.get() == LockLevel::EXCLUSIVE;
                        database.is_flushed.set(is_alone);
                        database.remapper.note_sync();
                    }
                    code
                }
                Err(code) => database.give_up_atomic(code),
            }
        }
    })
}

unsafe extern "C" fn db_lock(file: *mut sqlite3_file, level: c_int) -> c_int {
    shielded(|| {
        // SAFETY: one of our databases.
        let database = unsafe { database(file) };
        let level = LockLevel(level);
        let code = match database.lock.get() {
            LockLevel::NONE if level == LockLevel::SHARED => database.lock_shared(),
            _ => database.lock_further(level),
        };
        database.tell_untold();
        code
    })
}

unsafe extern "C" fn db_unlock(file: *mut sqlite3_file, level: c_int) -> c_int {
    shielded(|| {
        // SAFETY: one of our databases.
        let database = unsafe { database(file) };
        if let Err(code) = database.abort_atomic() {
            return code;
        }
        database.is_flushed.set(false);
        if LockLevel(level) == LockLevel::NONE {
            database.end_turn();
            database.snapshots.last.set(None);
            database.guard.must_look_again.set(false);
            database.guard.kept_out.set(None);
            database.guard.looked.set(None);
            // While the lock is held: a connection that has the log open has the database open.
            database.let_go_of_log();
        }
        let code = database.inner.unlock(LockLevel(level));
        database.lock.set(database.lock.get().min(LockLevel(level)));
        database.tell_untold();
        code
    })
}

unsafe extern "C" fn db_device_characteristics(file: *mut sqlite3_file) -> c_int {
    // SAFETY: one of our databases.
    let database = unsafe { database(file) };
    // SAFETY: passed on as it came.
    let flags = unsafe { (database.inner.methods().xDeviceCharacteristics)(database.inner.file()) };
    // SQLite asks the database for this when it means the log: whether frames that share a sector
    // with new ones are safe. In our guarded layouts no two frames share a sector.
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
        // SAFETY: one of our databases; the argument is what SQLite documents for `op`.
        unsafe {
            let database = database(file);
            match op {
                ffi::SQLITE_FCNTL_PRAGMA => pragma(database, argument.cast()),
                ffi::SQLITE_FCNTL_PDB => {
                    let connection =
                        Connection::new(database.host, argument.cast_const().cast(), file);
                    database.note_connection(connection);
                    database.inner.control(op, argument)
                }
                ffi::SQLITE_FCNTL_BUSYHANDLER => {
                    database.patience.set(argument.cast_const().cast());
                    database.inner.control(op, argument)
                }
                ffi::SQLITE_FCNTL_HAS_MOVED if database.ends_where_it_was() => {
                    // Otherwise SQLite would close it without its last checkpoint.
                    *argument.cast::<c_int>() = 0;
                    SQLITE_OK
                }
                ffi::FCNTL_DATABASE => {
                    *argument.cast::<*mut sqlite3_file>() = file;
                    SQLITE_OK
                }
                ffi::SQLITE_FCNTL_PERSIST_WAL
                    if *argument.cast::<c_int>() < 0
                        && (database.is_guarded() || database.is_leaving_a_log()) =>
                {
                    // SQLite must "delete" the log: to end the guard, where our log stays in any
                    // case, and to drop its cached pages.
                    *argument.cast::<c_int>() = 0;
                    SQLITE_OK
                }
                ffi::SQLITE_FCNTL_COMMIT_PHASETWO => match commit_is_published(database) {
                    SQLITE_OK => database.inner.control(op, argument),
                    code => code,
                },
                ffi::SQLITE_FCNTL_SYNC => {
                    let super_journal = argument.cast_const().cast::<c_char>();
                    let super_journal =
                        (!super_journal.is_null()).then(|| host::path(super_journal));
                    match database.all_written(super_journal.as_deref()) {
                        Ok(()) => database.inner.control(op, argument),
                        Err(code) => database.give_up_atomic(code),
                    }
                }
                ffi::SQLITE_FCNTL_CKPT_START => {
                    let code = with_writer(database, |writer| {
                        writer.drain()?;
                        database.await_published()
                    });
                    if code != SQLITE_OK {
                        return code;
                    }
                    database.begin_remapping();
                    database.inner.control(op, argument)
                }
                ffi::SQLITE_FCNTL_CKPT_DONE => {
                    if let Some(log) = database.log() {
                        log.latency.note_checkpoint();
                    }
                    database.inner.control(op, argument)
                }
                ffi::SQLITE_FCNTL_VFSNAME => {
                    let code = database.inner.control(op, argument);
                    prefix_vfs_name(database.host, argument.cast());
                    code
                }
                _ => database.inner.control(op, argument),
            }
        }
    })
}

/// `SQLITE_FCNTL_COMMIT_PHASETWO`: returns when the commit is durable.
fn commit_is_published(database: &Database) -> c_int {
    if let Err(code) = database.commit_atomic() {
        // SQLite no longer has a journal, and may keep its lock.
        return database.give_up_atomic(code);
    }
    let index = database.inner.index_view();
    let code = database.watched(Counts::All, || {
        with_writer(database, |writer| {
            writer.published(index)?;
            writer.await_own(&|| database.inner.index_view())?;
            writer.note_commit_ended();
            Ok(())
        })
    });
    database.stall_commit_ended();
    database.note_commit(code == SQLITE_OK);
    code
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
        database.has_just_committed.set(false);
        if name.eq_ignore_ascii_case("wal_autocheckpoint") {
            database.quiet.forget();
        }
        let answer = database.pragma(&name, value.as_deref());
        if let Answer::PassAs(digit) = answer {
            // SQLite goes on with this copy of the value. A value is one character or longer.
            let value = *arguments.add(2);
            if !value.is_null() && *value != 0 {
                *value = digit as c_char;
                *value.add(1) = 0;
            }
        }
        match answer {
            Answer::Pass | Answer::PassAs(_) => database
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
unsafe fn prefix_vfs_name(host: &Host, name: *mut *mut c_char) {
    // SAFETY: by this function's contract.
    unsafe {
        let below = host::text(*name).unwrap_or_default();
        let ours = host::sqlite_string(&format!("onewrite/{below}"));
        (host.api.free)((*name).cast());
        *name = ours;
    }
}

pub unsafe extern "C" fn db_fetch(
    file: *mut sqlite3_file,
    offset: i64,
    size: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: one of our databases; SQLite passes room for a pointer.
    unsafe {
        let database = database(file);
        if offset == 0 && database.is_guarded() {
            // Page 1 holds the guard: it must be read, not mapped.
            *out = ptr::null_mut();
            return SQLITE_OK;
        }
        if let Err(code) = await_snapshot(database) {
            return code;
        }
        (database.inner.methods().xFetch)(database.inner.file(), offset, size, out)
    }
}
