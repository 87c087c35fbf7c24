//! Stock SQLite on a guarded database. It must report "file is not a database" for every read and
//! write, and must not change a byte.

use crate::checks::unexpected;
use crate::database::{Database, Engine, Synchronous, value_name};
use crate::failure::{Failure, Promise};
use crate::files::{self, Image, Watched};
use crate::session::{Session, SqlErrorKind, shell};
use crate::setup::Setup;
use std::path::Path;

/// Statements that must be refused.
const REFUSED: [&str; 8] = [
    "SELECT count(*) FROM items",
    "BEGIN IMMEDIATE",
    "UPDATE clock SET tick = tick + 1",
    "PRAGMA user_version=7",
    "CREATE TABLE intruder(a)",
    "PRAGMA journal_mode=wal",
    "VACUUM",
    "PRAGMA integrity_check",
];

/// Statements that a connection may answer from memory, without the file.
const HARMLESS: [&str; 3] = [
    "PRAGMA journal_mode=delete",
    "PRAGMA wal_checkpoint(TRUNCATE)",
    "PRAGMA journal_mode",
];

/// Tries everything on `session`, which may be new or may have been idle with its cache.
///
/// # Errors
/// [`Promise::StockIsRefused`], with the first statement that was not refused.
pub fn expect_refusals(session: &mut dyn Session) -> Result<(), Failure> {
    for sql in REFUSED.iter().chain(&HARMLESS) {
        match session.run(sql, &[]) {
            Err(error) if error.kind == SqlErrorKind::NotADatabase => {}
            Ok(()) if HARMLESS.contains(sql) => {}
            Ok(()) => {
                let detail = format!("`{sql}` went through on a guarded database");
                return Err(Failure::broken(Promise::StockIsRefused, detail));
            }
            Err(error) => {
                let detail = format!("of a guarded database stock says {error}");
                return Err(Failure::broken(Promise::StockIsRefused, detail));
            }
        }
    }
    Ok(())
}

/// The subcommand `probe`: a new stock connection tries everything.
///
/// # Errors
/// [`Promise::StockIsRefused`].
pub fn run(path: &Path, engine: Engine) -> Result<(), Failure> {
    let database = Database {
        db: path.to_owned(),
        engine,
        mode: None,
        synchronous: Synchronous::Full,
        group_synch: None,
        checkpoint: None,
        torn: None,
        busy_timeout: 2000,
    };
    // The pragmas of an ordinary connection would already be refused.
    let mut session = database.open()?;
    expect_refusals(session.as_mut())?;
    session.close().map_err(|error| unexpected(&error))
}

/// Whether the database is guarded at this moment.
///
/// # Errors
/// Errors of the file system.
pub fn is_guarded(database: &Path) -> Result<bool, Failure> {
    Ok(files::header(database)?.is_some_and(|header| header.is_guarded()))
}

/// Requires a stock header after a clean close.
///
/// # Errors
/// [`Promise::CleanCloseIsStock`].
pub fn expect_stock_header(database: &Path) -> Result<(), Failure> {
    match files::header(database)? {
        Some(header) if header.read_version <= 2 => Ok(()),
        header => {
            let detail = format!("all have closed, and the header is {header:?}");
            Err(Failure::broken(Promise::CleanCloseIsStock, detail))
        }
    }
}

/// The stock SQLites of this machine.
pub fn stock_engines() -> Vec<Engine> {
    let mut engines = vec![Engine::Stock];
    if shell::is_installed() {
        engines.push(Engine::Shell);
    }
    engines
}

/// Lets new stock processes try everything on a guarded database, and compares its bytes.
///
/// # Errors
/// [`Promise::StockIsRefused`], [`Promise::GuardedBytesStay`].
pub fn expect_refused(setup: &Setup, database: &Path, watched: Watched) -> Result<(), Failure> {
    watch(database, watched, || {
        stock_engines().into_iter().try_for_each(|engine| {
            let arguments = [
                "probe".to_owned(),
                "--db".to_owned(),
                database.display().to_string(),
                "--engine".to_owned(),
                value_name(engine),
            ];
            setup
                .run(&format!("probe through {engine:?}"), &arguments)
                .map(drop)
        })
    })
}

/// Compares a guarded database's bytes before and after `attempts`.
///
/// # Errors
/// Failures of `attempts`; [`Promise::GuardedBytesStay`].
pub fn watch(
    database: &Path,
    watched: Watched,
    attempts: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let before = Image::take(database)?;
    let result = attempts();
    let after = Image::take(database)?;
    // Changed bytes are the graver failure, so they come first.
    match before.difference(&after, watched) {
        Some(detail) => Err(Failure::broken(Promise::GuardedBytesStay, detail)),
        None => result,
    }
}
