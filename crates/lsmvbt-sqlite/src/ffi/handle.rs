//! An engine's connection as the C part holds it, and the list of engines.

use std::cell::RefCell;
use std::ffi::{CStr, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Once, PoisonError, RwLock, RwLockReadGuard};

use ::lsmvbt::Change;

use super::code;
use super::file::DatabaseFile;
use super::note::note;
use super::sqlite;
use crate::engine::{Connection, Durability, Engine, Error, Place, Result};
use crate::lsmvbt::Lsmvbt;

/// The engines, by their numbers. They are never removed.
static ENGINES: RwLock<Vec<&'static dyn Engine>> = RwLock::new(Vec::new());

/// LS-MVBT is always there.
static BUILT_IN: Once = Once::new();

fn engines() -> RwLockReadGuard<'static, Vec<&'static dyn Engine>> {
    BUILT_IN.call_once(|| register(Box::new(Lsmvbt)));
    ENGINES.read().unwrap_or_else(PoisonError::into_inner)
}

/// Adds an engine. It can own databases that are opened from now on.
pub fn register(engine: Box<dyn Engine>) {
    let engine: &'static dyn Engine = Box::leak(engine);
    match ENGINES.write() {
        Ok(mut engines) => engines.push(engine),
        Err(poisoned) => poisoned.into_inner().push(engine),
    }
}

/// The engine with a number.
pub(super) fn engine(number: c_int) -> Option<&'static dyn Engine> {
    usize::try_from(number)
        .ok()
        .and_then(|number| engines().get(number).copied())
}

/// The number of the first engine for which `holds` is true; -1 if there is none.
pub(super) fn engine_where(holds: impl Fn(&dyn Engine) -> bool) -> c_int {
    let at = engines().iter().position(|engine| holds(*engine));
    at.and_then(|at| c_int::try_from(at).ok()).unwrap_or(-1)
}

/// `EngineDb` of `c/engine.h`.
pub struct Handle {
    inner: RefCell<Inner>,
}

/// A connection, or a file that has no connection yet.
pub(super) struct Inner {
    engine: &'static dyn Engine,
    state: State,
    pub durability: Durability,
    /// Pages that the connection may hold, once SQLite has set the number.
    cache_pages: Option<usize>,
    /// The file that the owner of the state works on.
    pub file: DatabaseFile,
    path: PathBuf,
    /// The database connection, which notes errors.
    sqlite: *mut c_void,
}

enum State {
    /// No database is there, or nothing has looked at it.
    New(Box<Place>),
    Open(Box<dyn Connection>),
}

impl Handle {
    /// `sqlite` is the database connection. It outlives this one, and every call holds its mutex.
    pub(super) fn new(engine: &'static dyn Engine, place: Place, sqlite: *mut c_void) -> Self {
        let (file, path) = (place.file.clone(), place.path.clone());
        let state = State::New(Box::new(place));
        Self {
            inner: RefCell::new(Inner {
                engine,
                state,
                durability: Durability::default(),
                cache_pages: None,
                file,
                path,
                sqlite,
            }),
        }
    }

    /// Runs `work`, and turns errors and panics into result codes. All calls of the C part come here, but
    /// for those that [`Handle::moving`] takes. So after each of them, whatever has failed, the connection
    /// holds no version that it does not read.
    pub(super) fn run(&self, work: impl FnOnce(&mut Inner) -> Result<c_int>) -> c_int {
        self.moving(|inner| {
            let code = work(inner).unwrap_or_else(|error| inner.code_of(&error));
            if let Some(connection) = inner.connection() {
                connection.let_go();
            }
            Ok(code)
        })
    }

    /// The same for work at a cursor of an open transaction that gives up no version: a move, or a change of
    /// a value in place.
    #[inline]
    pub(super) fn moving(&self, work: impl FnOnce(&mut Inner) -> Result<c_int>) -> c_int {
        let result = catch_unwind(AssertUnwindSafe(|| {
            let Ok(mut inner) = self.inner.try_borrow_mut() else {
                sqlite::log(code::MISUSE, "called from within its own call");
                return code::MISUSE;
            };
            work(&mut inner).unwrap_or_else(|error| inner.code_of(&error))
        }));
        result.unwrap_or(code::INTERNAL)
    }
}

impl Inner {
    /// The connection, if there is one yet.
    pub fn connection(&mut self) -> Option<&mut (dyn Connection + 'static)> {
        match &mut self.state {
            State::Open(connection) => Some(&mut **connection),
            State::New(_) => None,
        }
    }

    /// The connection, where SQLite has begun a transaction that must have opened it.
    pub fn opened(&mut self) -> Result<&mut (dyn Connection + 'static)> {
        self.connection()
            .ok_or_else(|| Error::Misuse("no transaction".to_owned()))
    }

    pub fn is_new(&self) -> bool {
        match &self.state {
            State::New(place) => place.file.size().is_ok_and(|size| size == 0),
            State::Open(_) => false,
        }
    }

    /// SQLite's code for an error. SQLite's log gets the file and the details. SQLite's own message
    /// gets them where it would be no more than the code's text. (Busy has no details: programs
    /// compare its text, and the busy handler tries again.)
    pub fn code_of(&self, error: &Error) -> c_int {
        let code = plain_code(error);
        let path = self.path.display();
        let text = format!("{path}: {error}{}", way_out(error));
        match error {
            Error::Busy | Error::StaleSnapshot | Error::InTheWay(_) | Error::Compare(_) => {}
            Error::ReadOnly | Error::NoMemory | Error::Refused(_) | Error::Misuse(_) => {
                sqlite::log(code, &text)
            }
            // SAFETY: the connection is open, and this call holds its mutex: see `Handle::new`.
            _ => unsafe { note(self.sqlite, code, &text) },
        }
        code
    }

    /// Begins a transaction. Reading a missing database makes nothing: it reads nothing.
    pub fn begin(&mut self, write: bool) -> Result<()> {
        if let State::New(place) = &self.state {
            if !write && self.is_new() {
                return Ok(());
            }
            let place = (**place).clone();
            self.open(place)?;
        }
        let connection = self.opened()?;
        if !write {
            return connection.begin_read();
        }
        connection.begin_write()?;
        // SQLite's savepoint -1, the transaction's own beginning.
        let begun = connection.savepoint();
        if begun.is_err() {
            // SQLite will not: for it no transaction has begun.
            let _ = connection.rollback();
        }
        begun
    }

    fn open(&mut self, place: Place) -> Result<()> {
        let mut connection = self.engine.open(place)?;
        if let Some(pages) = self.cache_pages {
            connection.set_cache_pages(pages);
        }
        self.state = State::Open(connection);
        Ok(())
    }

    /// Holds at most `pages` pages from now on, or from when it is opened.
    pub fn set_cache_pages(&mut self, pages: usize) {
        self.cache_pages = Some(pages);
        if let Some(connection) = self.connection() {
            connection.set_cache_pages(pages);
        }
    }

    /// Runs a pragma of the engine. A database that must still be made answers to none: the C part
    /// makes it before it sets anything.
    pub fn pragma(&mut self, name: &str, value: Option<&str>) -> Result<Option<String>> {
        if let State::New(place) = &self.state {
            if self.is_new() {
                return Ok(None);
            }
            let place = (**place).clone();
            self.open(place)?;
        }
        self.opened()?.pragma(name, value)
    }

    /// The rows of a table that differ between two versions.
    pub fn diff(&mut self, table: &str, from: &str, to: Option<&str>) -> Result<Vec<Change>> {
        if let State::New(place) = &self.state {
            if self.is_new() {
                return Err(Error::Refused("the database is empty".to_owned()));
            }
            let place = (**place).clone();
            self.open(place)?;
        }
        self.opened()?.diff(table, from, to)
    }

    /// Opens savepoints until there are `count`, not counting the one at the beginning.
    pub fn open_savepoints(&mut self, count: usize) -> Result<()> {
        let connection = self.opened()?;
        while connection.savepoints() <= count {
            connection.savepoint()?;
        }
        Ok(())
    }

    /// Goes back to SQLite's savepoint, -1 being the beginning. One that is not open changes
    /// nothing.
    pub fn rollback_to(&mut self, number: c_int) -> Result<()> {
        let connection = self.opened()?;
        match usize::try_from(i64::from(number) + 1) {
            Ok(number) if number < connection.savepoints() => connection.rollback_to(number),
            _ => Ok(()),
        }
    }

    /// Ends SQLite's savepoint. One that is not open changes nothing.
    pub fn release(&mut self, number: c_int) -> Result<()> {
        let connection = self.opened()?;
        match usize::try_from(i64::from(number) + 1) {
            Ok(number) if number < connection.savepoints() => connection.release(number),
            _ => Ok(()),
        }
    }
}

/// SQLite's code for an error.
fn plain_code(error: &Error) -> c_int {
    match error {
        Error::Busy | Error::InTheWay(_) => code::BUSY,
        Error::StaleSnapshot => code::BUSY_SNAPSHOT,
        Error::Compare(code) => *code,
        Error::ReadOnly => code::READONLY,
        Error::NeedsRecovery(_) => code::READONLY_RECOVERY,
        Error::NotADatabase | Error::Newer(_) => code::NOTADB,
        Error::Damaged(_) | Error::NoSuchTree(_) => code::CORRUPT,
        Error::Full => code::FULL,
        Error::NoMemory => code::NOMEM,
        Error::Io(_) => code::IOERR,
        Error::Vfs(code, _) => *code,
        Error::TooBig(_) => code::TOOBIG,
        Error::Refused(_) => code::ERROR,
        Error::Misuse(_) => code::MISUSE,
    }
}

/// The user's way out of an error. It follows the reason.
fn way_out(error: &Error) -> &'static str {
    match error {
        Error::NotADatabase => ": open it with the SQLite that wrote it, or restore a copy",
        Error::Damaged(_) => ": see PRAGMA integrity_check, and restore a copy",
        Error::Full => ": make room, and repeat what failed",
        Error::ReadOnly => ": open it for writing, and set lsmvbt_version to 0",
        _ => "",
    }
}

/// Names of engines are compared as SQLite compares names.
pub(super) fn named(engine: &dyn Engine, name: &CStr) -> bool {
    engine
        .name()
        .to_bytes()
        .eq_ignore_ascii_case(name.to_bytes())
}
