//! Work on a database that needs a separate connection, while ours holds no lock. It is recovery by
//! stock SQLite, or conversion to the mode that the URI or the environment asks for. Or it is the
//! guard of a read-only connection, which can neither set nor clear it.

use std::cell::Cell;

use super::database::Paths;
use super::ffi;
use super::host::{self, Host, SqlError};
use super::settings::{Settings, pragmas_that_shape_a_log};
use crate::mode::JournalMode;
use crate::sync;
use crate::waits::{DATABASE_LOCK, Try, try_times};

sync::thread_local! {
    /// The connection that converts must not itself be converted.
    static CONVERTING: Cell<bool> = const { Cell::new(false) };
    /// While this thread ends a guard.
    static ENDING: Cell<Option<Left>> = const { Cell::new(None) };
}

/// Whether the connection that was to end a guard has left it.
#[derive(Clone, Copy)]
struct Left(bool);

/// Whether this thread is opening a database in order to convert it.
pub fn is_converting() -> bool {
    CONVERTING.with(Cell::get)
}

/// Whether this thread ends a guard.
pub fn is_ending() -> bool {
    ENDING.with(Cell::get).is_some()
}

/// Runs `work`, whose connections are our own.
pub fn in_our_own_connection<T>(work: impl FnOnce() -> T) -> T {
    let outer = CONVERTING.with(|it| it.replace(true));
    let done = work();
    CONVERTING.with(|it| it.set(outer));
    done
}

/// Lets stock SQLite roll back a hot journal, or recover and checkpoint a `-wal` file, with its own
/// code through its own VFS. The log is gone afterwards, unless others use it: then the database is
/// busy.
pub fn recover_with_stock(host: &'static Host, paths: &Paths) -> Result<(), SqlError> {
    let base = host.base_name();
    let recovered = host::with_connection(host, &paths.database, base, |query| {
        query("SELECT count(*) FROM sqlite_schema").map(drop)
    });
    recovered.inspect_err(|e| {
        host::log(
            e.code,
            &format!(
                "{}: recovery by stock SQLite: {}",
                paths.database.display(),
                e.message
            ),
        );
    })
}

/// Converts the database to one of our modes, with a log shaped by these settings. If that is not
/// possible now, the database stays as it is, which is correct but slower.
pub fn convert(
    host: &'static Host,
    paths: &Paths,
    mode: JournalMode,
    settings: &Settings,
) -> Result<(), SqlError> {
    CONVERTING.with(|it| it.set(true));
    let converted = host::with_connection(host, &paths.database, super::VFS_NAME, |query| {
        for pragma in pragmas_that_shape_a_log(settings) {
            query(&pragma)?;
        }
        let switch = format!("PRAGMA journal_mode={mode}");
        // Connections that open a new database together refuse each other the lock for a moment.
        let mut refused = None;
        let switched = try_times(&DATABASE_LOCK, |_| match query(&switch) {
            Err(e) if e.code & 0xff == ffi::SQLITE_BUSY => {
                refused = Some(e);
                Ok(Try::Later)
            }
            other => other.map(Try::Done),
        })?;
        match (switched, refused) {
            (None, Some(e)) => Err(e),
            _ => Ok(()),
        }
    });
    CONVERTING.with(|it| it.set(false));
    converted
}

/// Does some work while a connection that can write has the database open in its mode. `false` if
/// there is no such connection, or if the work returns it.
pub fn while_a_writer_is_open(
    host: &'static Host,
    paths: &Paths,
    work: impl FnOnce() -> bool,
) -> bool {
    let outer = CONVERTING.with(|it| it.replace(true));
    let done = host::with_connection(host, &paths.database, super::VFS_NAME, |query| {
        query("SELECT count(*) FROM sqlite_schema")?;
        Ok(work())
    });
    CONVERTING.with(|it| it.set(outer));
    done.unwrap_or(false)
}

/// Ends the guard of a database that its last connection could not end: it cannot write, or others
/// closed at the same moment. A connection that can write opens and closes the database for that, and
/// again if others close just then, too. If no connection can write, the database stays guarded.
pub fn end_guard(host: &'static Host, paths: &Paths) {
    if is_ending() {
        // The caller below tries again.
        return ENDING.with(|it| it.set(Some(Left(true))));
    }
    let ended = in_our_own_connection(|| {
        try_times(&DATABASE_LOCK, |_| {
            ENDING.with(|it| it.set(Some(Left(false))));
            let ended = host::with_connection(host, &paths.database, super::VFS_NAME, |query| {
                // SQLite silently opens a file that it may not write as read-only.
                query("BEGIN IMMEDIATE")?;
                query("ROLLBACK").map(drop)
            });
            match (ended, ENDING.with(Cell::take)) {
                (Err(e), _) if e.code & 0xff != ffi::SQLITE_BUSY => Err(e),
                (_, Some(Left(true))) => Ok(Try::Later),
                // If it was busy, another connection uses it, and will end the guard.
                _ => Ok(Try::Done(())),
            }
        })
    });
    let why = match ended {
        Ok(Some(())) => return,
        Ok(None) => "others closed it each time".to_owned(),
        Err(e) => e.message,
    };
    let database = paths.database.display();
    host::log(
        ffi::SQLITE_WARNING,
        &format!(
            "{database}: other SQLite programs cannot open this database yet. Its newest transactions are \
             in its log, and this connection could not end that ({why}). Run \"onewrite detach \
             {database}\", or open and close the database through onewrite as a user that can write it"
        ),
    );
}
