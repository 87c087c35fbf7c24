//! A connection of a simulated process. It performs the operations of a program.

use crate::history::{Change, History, ROWS, Seen};
use crate::image::{Api, Db, Statement};
use crate::mode::Mode;
use crate::script::{Checkpoint, Op, Setting};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_int};
use std::ptr;

/// The history, shared by processes that take turns. It is borrowed for a moment, never over a call
/// into SQLite.
pub type Ledger = RefCell<History>;

const OK: c_int = 0;
const BUSY: c_int = 5;
const LOCKED: c_int = 6;
const PROTOCOL: c_int = 15;
const ROW: c_int = 100;
const DONE: c_int = 101;

/// Why a statement ends without success.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stop {
    /// Another connection holds a lock.
    Busy,
    /// A state that must not occur.
    Wrong(String),
}

impl From<String> for Stop {
    fn from(message: String) -> Stop {
        Stop::Wrong(message)
    }
}

const READ: &str = "SELECT v FROM t ORDER BY id";
const COUNT: &str = "SELECT count(*), coalesce(sum(a), 0) FROM u";

macro_rules! statements {
    ($($name:ident = $sql:expr,)*) => {
        /// Prepared statements.
        #[derive(Clone, Copy)]
        struct Statements { $($name: Statement,)* }

        impl Statements {
            fn prepare(prepare: impl Fn(&str) -> Result<Statement, Stop>) -> Result<Statements, Stop> {
                Ok(Statements { $($name: prepare($sql)?,)* })
            }

            fn all(&self) -> impl Iterator<Item = Statement> {
                [$(self.$name,)*].into_iter()
            }
        }
    };
}

statements! {
    begin = "BEGIN",
    begin_immediate = "BEGIN IMMEDIATE",
    commit = "COMMIT",
    rollback = "ROLLBACK",
    savepoint = "SAVEPOINT s",
    rollback_to = "ROLLBACK TO s",
    release = "RELEASE s",
    read = READ,
    count = COUNT,
    update = "UPDATE t SET v = ?1 WHERE id = ?2",
    scribble = "UPDATE t SET v = -v - 1, pad = pad || 'x' WHERE id > 5",
    fill = "INSERT INTO u(a, pad) SELECT -1, pad FROM t",
    fill_again = "UPDATE u SET pad = pad || 'y' WHERE id > (SELECT max(id) - 2 FROM u)",
    insert = "INSERT INTO u(a, pad) SELECT ?1, pad FROM t WHERE id = 0",
}

/// See the module.
#[derive(Clone, Copy)]
pub struct Connection {
    api: Api,
    process: usize,
    db: Db,
    statements: Option<Statements>,
}

// ---- Plain calls ----

impl Connection {
    pub fn closed(api: Api, process: usize) -> Connection {
        Connection {
            api,
            process,
            db: ptr::null_mut(),
            statements: None,
        }
    }

    pub fn is_open(&self) -> bool {
        self.statements.is_some()
    }

    fn failed(&self, code: c_int, what: &str) -> Stop {
        if matches!(code & 0xff, BUSY | LOCKED) {
            return Stop::Busy;
        }
        // SAFETY: an opened connection, or null, for which SQLite reports "out of memory".
        let (extended, message) = unsafe {
            let message = CStr::from_ptr((self.api.message)(self.db));
            ((self.api.extended)(self.db), message.to_string_lossy())
        };
        if code & 0xff == PROTOCOL {
            return Stop::Wrong(format!("P{}: {what}: locking protocol", self.process));
        }
        Stop::Wrong(format!(
            "P{}: {what}: {code} ({extended}): {message}",
            self.process
        ))
    }

    fn prepare(&self, sql: &str) -> Result<Statement, Stop> {
        let mut statement = ptr::null_mut();
        let text = CString::new(sql).expect("no zero in it");
        // SAFETY: an open connection, and a C string.
        let code = unsafe {
            (self.api.prepare)(self.db, text.as_ptr(), -1, &raw mut statement, ptr::null())
        };
        match code {
            OK => Ok(statement),
            code => Err(self.failed(code, sql)),
        }
    }

    /// Runs unprepared SQL without rows.
    pub fn exec(&self, sql: &str) -> Result<(), Stop> {
        let text = CString::new(sql).expect("no zero in it");
        // SAFETY: as above.
        let code = unsafe {
            (self.api.exec)(
                self.db,
                text.as_ptr(),
                ptr::null(),
                ptr::null(),
                ptr::null(),
            )
        };
        match code {
            OK => Ok(()),
            code => Err(self.failed(code, sql)),
        }
    }

    /// The first column of the first row, as text.
    pub fn text(&self, sql: &str) -> Result<String, Stop> {
        let statement = self.prepare(sql)?;
        // SAFETY: a statement of this connection, which this block finalizes.
        unsafe {
            let code = (self.api.step)(statement);
            let text = (self.api.text)(statement, 0);
            let text = match text.is_null() {
                true => String::new(),
                false => CStr::from_ptr(text).to_string_lossy().into_owned(),
            };
            let failure = (code != ROW && code != DONE).then(|| self.failed(code, sql));
            (self.api.finalize)(statement);
            failure.map_or(Ok(text), Err)
        }
    }

    fn statements(&self) -> &Statements {
        self.statements.as_ref().expect("an open connection")
    }

    /// Runs a statement with these values, and gives each row to `row`.
    fn run(
        &self,
        statement: Statement,
        values: &[i64],
        what: &str,
        mut row: impl FnMut(&dyn Fn(c_int) -> i64),
    ) -> Result<(), Stop> {
        let api = &self.api;
        // SAFETY: a statement of this connection.
        unsafe {
            for (number, value) in values.iter().enumerate() {
                (api.bind)(statement, number as c_int + 1, *value);
            }
            loop {
                match (api.step)(statement) {
                    ROW => row(&|column| (api.column)(statement, column)),
                    DONE => break,
                    code => {
                        let failure = self.failed(code, what);
                        (api.reset)(statement);
                        return Err(failure);
                    }
                }
            }
            (api.reset)(statement);
        }
        Ok(())
    }

    fn simple(&self, statement: Statement, what: &str) -> Result<(), Stop> {
        self.run(statement, &[], what, |_| ())
    }

    pub fn open(&mut self, mode: Mode, setting: Setting) -> Result<(), Stop> {
        // SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI
        const FLAGS: c_int = 0x2 | 0x4 | 0x40;
        // SAFETY: C strings, and a place for the connection.
        let code =
            unsafe { (self.api.open)(mode.uri().as_ptr(), &raw mut self.db, FLAGS, ptr::null()) };
        if code != OK {
            return Err(self.failed(code, "open"));
        }
        // SAFETY: an open connection.
        unsafe {
            (self.api.busy_timeout)(self.db, setting.busy_timeout);
            (self.api.autocheckpoint)(self.db, setting.autocheckpoint);
        }
        if setting.small_cache {
            self.exec("PRAGMA cache_size = 4")?;
        }
        if setting.limits_journal {
            self.exec("PRAGMA journal_size_limit = 0")?;
        }
        Ok(())
    }

    /// Prepares the statements that programs need.
    pub fn make_ready(&mut self) -> Result<(), Stop> {
        self.statements = Some(Statements::prepare(|sql| self.prepare(sql))?);
        Ok(())
    }

    pub fn close(&mut self) -> Result<(), Stop> {
        if let Some(statements) = self.statements.take() {
            for statement in statements.all() {
                // SAFETY: statements of this connection, not used any more.
                unsafe { (self.api.finalize)(statement) };
            }
        }
        // SAFETY: an open connection, or null.
        let code = unsafe { (self.api.close)(self.db) };
        let failure = (code != OK).then(|| self.failed(code, "close"));
        self.db = ptr::null_mut();
        failure.map_or(Ok(()), Err)
    }
}

// ---- Steps of programs ----

impl Connection {
    /// Performs one operation. If another process holds a lock, it ends early without an error.
    pub fn perform(
        &mut self,
        op: Op,
        mode: Mode,
        setting: Setting,
        history: &Ledger,
    ) -> Result<(), Stop> {
        if !self.is_open() && !matches!(op, Op::Reopen | Op::Close) {
            return Ok(());
        }
        let done = match op {
            Op::Write(change) => self.write(Begin::Immediate, change, history),
            Op::ReadWrite(change) => self.write(Begin::Reading, change, history),
            Op::Savepoint(change) => self.write(Begin::Savepoint, change, history),
            Op::Read(times) => self.read(times, history),
            Op::Checkpoint(how) => self.checkpoint(how),
            Op::Reopen => self.reopen(mode, setting),
            Op::Close => match self.is_open() {
                true => self.close(),
                false => Ok(()),
            },
        };
        let is_in_transaction =
            // SAFETY: an open connection.
            !self.db.is_null() && unsafe { (self.api.get_autocommit)(self.db) } == 0;
        if done.is_err() && is_in_transaction && self.is_open() {
            match self.simple(self.statements().rollback, "ROLLBACK") {
                Err(stop @ Stop::Wrong(_)) if done == Err(Stop::Busy) => return Err(stop),
                _ => {}
            }
        }
        match done {
            Err(Stop::Busy) => Ok(()),
            other => other,
        }
    }

    fn reopen(&mut self, mode: Mode, setting: Setting) -> Result<(), Stop> {
        if self.is_open() {
            self.close()?;
        }
        for _ in 0..3 {
            let opened = self.open(mode, setting).and_then(|()| self.make_ready());
            match opened {
                Err(Stop::Busy) => self.close()?,
                other => return other,
            }
        }
        // The connection stays closed, and the rest of the program is skipped.
        Ok(())
    }

    fn checkpoint(&self, how: Checkpoint) -> Result<(), Stop> {
        let (mut log, mut copied) = (0, 0);
        // SAFETY: an open connection, and places for two numbers.
        let code = unsafe {
            (self.api.checkpoint)(
                self.db,
                ptr::null(),
                how as c_int,
                &raw mut log,
                &raw mut copied,
            )
        };
        match code {
            OK => Ok(()),
            code => Err(self.failed(code, "checkpoint")),
        }
    }

    /// Reads the whole snapshot.
    fn look(&self) -> Result<Seen, Stop> {
        let statements = self.statements();
        self.look_with(statements.read, statements.count)
    }

    fn look_with(&self, read: Statement, count: Statement) -> Result<Seen, Stop> {
        let mut seen = Seen::default();
        self.run(read, &[], "read", |column| seen.rows.push(column(0)))?;
        self.run(count, &[], "count", |column| {
            (seen.inserted, seen.sum) = (column(0), column(1));
        })?;
        Ok(seen)
    }

    pub fn read(&self, times: u8, history: &Ledger) -> Result<(), Stop> {
        let least = history.borrow().acknowledged();
        let who = format!("P{}", self.process);
        self.simple(self.statements().begin, "BEGIN")?;
        let mut first = None;
        for _ in 0..times {
            let seen = self.look()?;
            history.borrow_mut().check(&who, least, &seen)?;
            match &first {
                None => first = Some(seen),
                Some(first) if *first != seen => {
                    let message = format!("{who}: a snapshot changed from {first:?} to {seen:?}");
                    return Err(Stop::Wrong(message));
                }
                Some(_) => {}
            }
        }
        self.simple(self.statements().commit, "COMMIT")
    }

    fn write(&self, how: Begin, change: Change, history: &Ledger) -> Result<(), Stop> {
        let statements = *self.statements();
        let least = history.borrow().acknowledged();
        match how {
            Begin::Reading => self.simple(statements.begin, "BEGIN")?,
            _ => self.simple(statements.begin_immediate, "BEGIN IMMEDIATE")?,
        }
        let mut seen = self.look()?;
        let who = format!("P{}", self.process);
        let mut before = history.borrow_mut().check(&who, least, &seen)?;
        if how == Begin::Reading {
            // Takes the write lock. If this succeeds, nobody else has written since the read.
            let now = self.run(statements.update, &[before, 0], "UPDATE", |_| ());
            now?;
            seen = self.look()?;
            before = seen.rows.first().copied().unwrap_or(0);
        }
        let number = before + 1;
        history.borrow_mut().begin(self.process, before, change)?;
        let done = self.change(how, change, number).and_then(|()| {
            history.borrow_mut().committing(self.process, number)?;
            self.simple(statements.commit, "COMMIT")
        });
        match done {
            Ok(()) => Ok(history.borrow_mut().committed(self.process, number)?),
            Err(stop) => {
                history.borrow_mut().withdrawn(self.process, number);
                Err(stop)
            }
        }
    }

    fn change(&self, how: Begin, change: Change, number: i64) -> Result<(), Stop> {
        let statements = self.statements();
        let set = |row: i64| self.run(statements.update, &[number, row], "UPDATE", |_| ());
        set(0)?;
        let rows = (1..16).filter(|row| change.rows & 1 << row != 0);
        let (first, rest): (Vec<i64>, Vec<i64>) = match how {
            Begin::Savepoint => rows.partition(|row| *row < 4),
            _ => (rows.collect(), Vec::new()),
        };
        for row in first {
            set(row)?;
        }
        if how == Begin::Savepoint {
            self.simple(statements.savepoint, "SAVEPOINT")?;
            // New pages go to the log. The last of them are written once more, over their old
            // frames.
            self.simple(statements.scribble, "UPDATE")?;
            self.simple(statements.fill, "INSERT")?;
            for _ in 0..2 {
                self.look()?;
                self.simple(statements.fill_again, "UPDATE")?;
            }
            self.look()?;
            self.simple(statements.rollback_to, "ROLLBACK TO")?;
            self.simple(statements.release, "RELEASE")?;
        }
        for row in rest {
            set(row)?;
        }
        for _ in 0..change.inserts {
            self.run(statements.insert, &[number], "INSERT", |_| ())?;
        }
        Ok(())
    }

    /// Checks that everything is there, and nothing is broken. No other process runs.
    pub fn check_all(&self, history: &Ledger) -> Result<(), Stop> {
        let least = history.borrow().acknowledged();
        let (read, count) = (self.prepare(READ)?, self.prepare(COUNT)?);
        let seen = self.look_with(read, count)?;
        for statement in [read, count] {
            // SAFETY: statements of this connection, not used any more.
            unsafe { (self.api.finalize)(statement) };
        }
        history
            .borrow_mut()
            .check("the next process", least, &seen)?;
        match self.text("PRAGMA integrity_check")?.as_str() {
            "ok" => Ok(()),
            broken => Err(Stop::Wrong(format!("integrity_check: {broken}"))),
        }
    }
}

/// How a writing transaction begins and continues.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begin {
    Immediate,
    Reading,
    Savepoint,
}

// ---- Beginnings ----

impl Connection {
    /// Creates the database.
    pub fn make(&mut self, mode: Mode, setting: Setting) -> Result<(), Stop> {
        self.open(mode, setting)?;
        self.exec("PRAGMA page_size = 1024")?;
        let became = self.text(&format!("PRAGMA journal_mode = {}", mode.pragma()))?;
        if became != mode.pragma() {
            let message = format!("journal mode {} instead of {}", became, mode.pragma());
            return Err(Stop::Wrong(message));
        }
        self.exec(
            "CREATE TABLE t(id INTEGER PRIMARY KEY, v INTEGER, pad TEXT);
             CREATE TABLE u(id INTEGER PRIMARY KEY, a INTEGER, pad TEXT);
             CREATE INDEX ua ON u(a)",
        )?;
        for row in 0..ROWS {
            let pad = format!("row {row} ").repeat(90);
            self.exec(&format!("INSERT INTO t VALUES({row}, 0, '{pad}')"))?;
        }
        self.exec("PRAGMA wal_checkpoint(TRUNCATE)")
    }

    pub fn set_autocheckpoint(&self, frames: c_int) {
        if !self.db.is_null() {
            // SAFETY: an open connection.
            unsafe { (self.api.autocheckpoint)(self.db, frames) };
        }
    }

    /// Begins to read, and stays in the transaction.
    pub fn hold(&self) -> Result<(), Stop> {
        self.simple(self.statements().begin, "BEGIN")?;
        self.look().map(|_| ())
    }

    /// Ends that transaction.
    pub fn let_go(&self) -> Result<(), Stop> {
        self.simple(self.statements().commit, "COMMIT")
    }
}
