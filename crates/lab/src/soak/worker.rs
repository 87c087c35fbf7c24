//! The worker in Rust, on the SQLite that is linked into this program.
//!
//! A worker runs transactions of one to four operations on lists, at random times:
//!
//! - A transaction of reads alone is a read transaction. Some hold their snapshot for seconds and
//!   read everything again. Each compares the sum of all accounts.
//! - Any other transaction appends to lists, reads them, transfers money between two accounts and
//!   writes a row of the ledger. Some fill the cache within a savepoint and roll back to it. Some
//!   roll back altogether.
//!
//! Each line of the history is one write(2), before the transaction begins and after it has ended.
//! `:ok` is acknowledged. `:fail` has not happened. After an error of COMMIT other than BUSY the
//! worker cannot know, which is `:info`; so is an invocation without an end.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use onewrite_torture::random::Random;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, params};

use super::job::{Job, now, wall_clock};

const APPEND: &str =
    "INSERT INTO list VALUES(?1, ?2) ON CONFLICT(k) DO UPDATE SET v = v || ' ' || excluded.v";

/// An operation of a transaction.
#[derive(Clone, Debug)]
enum Operation {
    Append(u64, u64),
    /// A read; without a list until it is done.
    Read(u64, Option<String>),
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Invoke,
    Ok,
    Fail,
    Info,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Invoke => "invoke",
            Self::Ok => "ok",
            Self::Fail => "fail",
            Self::Info => "info",
        }
    }
}

struct Worker {
    job: Job,
    random: Random,
    history: File,
    notes: File,
    seq: u64,
}

/// Makes the VFS `onewrite` of the job's library available to the whole process.
pub fn load(job: &Job) -> Result<(), String> {
    let Some(library) = &job.library else {
        return Ok(());
    };
    let load = || {
        let connection = Connection::open_in_memory()?;
        // SAFETY: the library is the engine's own, named by the user who started the run.
        #[allow(unsafe_code)]
        unsafe {
            connection.load_extension_enable()?;
            connection.load_extension(library, None::<&str>)
        }
    };
    load().map_err(|error| format!("cannot load {}: {error}", library.display()))
}

/// Opens the database in the job's mode.
pub fn connect(job: &Job) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let connection = match job.library {
        Some(_) => Connection::open_with_flags_and_vfs(&job.database, flags, "onewrite")?,
        None => Connection::open_with_flags(&job.database, flags)?,
    };
    connection.busy_timeout(Duration::from_millis(job.busy_ms))?;
    let pragma = format!("PRAGMA journal_mode={}", job.mode);
    let mode: String = connection.query_row(&pragma, [], |row| row.get(0))?;
    if mode != job.mode {
        let failure = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_ERROR);
        let text = format!("journal_mode is {mode}");
        return Err(rusqlite::Error::SqliteFailure(failure, Some(text)));
    }
    connection.execute_batch(&format!("PRAGMA synchronous={}", job.synchronous))?;
    Ok(connection)
}

fn is_busy(error: &rusqlite::Error) -> bool {
    use ErrorCode::{DatabaseBusy, DatabaseLocked};
    matches!(
        error.sqlite_error_code(),
        Some(DatabaseBusy | DatabaseLocked)
    )
}

fn code(error: &rusqlite::Error) -> i32 {
    error.sqlite_error().map_or(0, |error| error.extended_code)
}

fn edn(operations: &[Operation]) -> String {
    let mut text = String::from("[");
    for (number, operation) in operations.iter().enumerate() {
        let space = if number == 0 { "" } else { " " };
        // Writing to a string cannot fail.
        let _ = match operation {
            Operation::Append(key, value) => write!(text, "{space}[:append {key} {value}]"),
            Operation::Read(key, None) => write!(text, "{space}[:r {key} nil]"),
            Operation::Read(key, Some(list)) => write!(text, "{space}[:r {key} [{list}]]"),
        };
    }
    text.push(']');
    text
}

/// Works until the process is killed.
///
/// # Errors
/// The extension or the files of the worker cannot be opened or written.
pub fn run(job: Job) -> Result<(), String> {
    load(&job)?;
    let open = |path: &Path| {
        let file = File::options().append(true).create(true).open(path);
        file.map_err(|error| format!("{}: {error}", path.display()))
    };
    let mut worker = Worker {
        random: Random::new(job.seed),
        history: open(&job.history)?,
        notes: open(&job.notes)?,
        seq: 0,
        job,
    };
    worker.work().map_err(|error| error.to_string())
}

impl Worker {
    fn work(&mut self) -> std::io::Result<()> {
        let mut connection = None;
        loop {
            let pause = 2.0 * self.share() / self.job.rate;
            std::thread::sleep(Duration::from_secs_f64(pause));
            let open = match connection.take() {
                Some(open) => Ok(open),
                None => self.open(),
            };
            match open.and_then(|open| self.keep_up(open)) {
                Ok(open) => connection = self.step(open)?,
                Err(error) => self.note("open", &error)?,
            }
        }
    }

    /// A number from 0 to 1.
    fn share(&mut self) -> f64 {
        self.random.below(1 << 20) as f64 / f64::from(1 << 20)
    }

    fn open(&mut self) -> rusqlite::Result<Connection> {
        let connection = connect(&self.job)?;
        let pages = self.random.choose(&[50, 200, 1000]);
        let settings = format!("PRAGMA wal_autocheckpoint={pages}; PRAGMA cache_size=50");
        connection.execute_batch(&settings)?;
        Ok(connection)
    }

    /// See [`Job::upkeep`].
    fn keep_up(&mut self, connection: Connection) -> rusqlite::Result<Connection> {
        if self.random.one_in(100) {
            let statement = self.random.choose(&self.job.upkeep).as_str();
            let mut statement = connection.prepare(statement)?;
            let mut rows = statement.query([])?;
            while rows.next()?.is_some() {}
        }
        Ok(connection)
    }

    /// The time for the history.
    fn time(&self) -> u64 {
        match self.job.by_wall_clock {
            Some(ahead) => wall_clock().saturating_sub(ahead),
            None => now(),
        }
    }

    fn record(&mut self, kind: Kind, operations: &[Operation]) -> std::io::Result<()> {
        let line = format!(
            "{{:type :{}, :process {}, :f :txn, :value {}, :time {}, :seq {}}}\n",
            kind.name(),
            self.job.process,
            edn(operations),
            self.time(),
            self.seq
        );
        self.history.write_all(line.as_bytes())
    }

    fn note(&mut self, kind: &str, error: &rusqlite::Error) -> std::io::Result<()> {
        let text = error.to_string().replace('\n', " ");
        let line = format!("{} {kind} {} {text}\n", now(), code(error));
        self.notes.write_all(line.as_bytes())
    }

    fn plan(&mut self) -> Vec<Operation> {
        let epoch = now() / (self.job.epoch_s * 1_000_000_000);
        let is_read = self.share() < 0.35;
        let length = self.random.between(1, 4);
        let plan = |number| {
            let key = epoch * 100 + self.random.below(self.job.keys);
            if is_read || self.random.below(10) < 4 {
                return Operation::Read(key, None);
            }
            let value = self.job.process * 1_000_000 + self.seq * 10 + number;
            Operation::Append(key, value)
        };
        (0..length).map(plan).collect()
    }

    /// Runs a transaction. Returns the connection unless it cannot be used any more.
    fn step(&mut self, connection: Connection) -> std::io::Result<Option<Connection>> {
        self.seq += 1;
        let operations = self.plan();
        self.record(Kind::Invoke, &operations)?;
        let is_read = operations
            .iter()
            .all(|operation| matches!(operation, Operation::Read(..)));
        let result = match is_read {
            true => self.read(&connection, &operations),
            false => self.write(&connection, &operations),
        };
        let (kind, done) = match result {
            Ok(done) => done,
            Err(error) => {
                self.note("statement", &error)?;
                (Kind::Fail, operations)
            }
        };
        let connection = self.given_up(connection)?;
        self.record(kind, &done)?;
        Ok(connection)
    }

    /// Ends what is left of a transaction. A connection that cannot is closed.
    fn given_up(&mut self, connection: Connection) -> std::io::Result<Option<Connection>> {
        if connection.is_autocommit() {
            return Ok(Some(connection));
        }
        match connection.execute_batch("ROLLBACK") {
            Ok(()) => Ok(Some(connection)),
            Err(error) => {
                self.note("rollback", &error)?;
                Ok(None)
            }
        }
    }

    fn apply(
        connection: &Connection,
        operations: &[Operation],
    ) -> rusqlite::Result<Vec<Operation>> {
        let apply = |operation: &Operation| match operation {
            Operation::Append(key, value) => {
                let mut statement = connection.prepare_cached(APPEND)?;
                statement.execute(params![*key as i64, value.to_string()])?;
                Ok(operation.clone())
            }
            Operation::Read(key, _) => {
                let mut statement =
                    connection.prepare_cached("SELECT CAST(v AS TEXT) FROM list WHERE k = ?1")?;
                let list = statement.query_row([*key as i64], |row| row.get(0));
                Ok(Operation::Read(
                    *key,
                    Some(list.optional()?.unwrap_or_default()),
                ))
            }
        };
        operations.iter().map(apply).collect()
    }

    fn read(
        &mut self,
        connection: &Connection,
        operations: &[Operation],
    ) -> rusqlite::Result<(Kind, Vec<Operation>)> {
        connection.execute_batch("BEGIN")?;
        let mut done = Self::apply(connection, operations)?;
        if self.share() < self.job.long_readers {
            std::thread::sleep(Duration::from_millis(self.random.between(500, 4000)));
            // The snapshot must not have moved.
            done.extend(Self::apply(connection, operations)?);
        }
        let sql = "SELECT sum(balance) FROM account";
        let total: i64 = connection.query_row(sql, [], |row| row.get(0))?;
        if total != self.job.total {
            let line = format!("{} wrong 0 a snapshot has the sum {total}\n", now());
            // A lost note is no reason to go on as if nothing were wrong.
            if self.notes.write_all(line.as_bytes()).is_err() {
                std::process::abort();
            }
        }
        connection.execute_batch("COMMIT")?;
        Ok((Kind::Ok, done))
    }

    fn write(
        &mut self,
        connection: &Connection,
        operations: &[Operation],
    ) -> rusqlite::Result<(Kind, Vec<Operation>)> {
        // A deferred transaction reads first, and may fail when it begins to write.
        let begin = match self.random.one_in(3) {
            true => "BEGIN",
            false => "BEGIN IMMEDIATE",
        };
        connection.execute_batch(begin)?;
        let done = Self::apply(connection, operations)?;
        self.transfer(connection)?;
        let rolled_back = if self.job.lie { 40 } else { 4 };
        if self.random.below(100) < rolled_back {
            connection.execute_batch("ROLLBACK")?;
            return Ok(match self.job.lie {
                true => (Kind::Ok, done),
                false => (Kind::Fail, operations.to_vec()),
            });
        }
        match connection.execute_batch("COMMIT") {
            Ok(()) => Ok((Kind::Ok, done)),
            // After BUSY nothing is committed. After other errors the worker does not know.
            Err(error) if is_busy(&error) => Err(error),
            Err(error) => {
                // The note is for people; the history has the result.
                let _ = self.note("commit", &error);
                Ok((Kind::Info, operations.to_vec()))
            }
        }
    }

    fn transfer(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let accounts = self.job.accounts as u64;
        let debit = self.random.below(accounts) as i64;
        let credit = self.random.below(accounts) as i64;
        let amount = self.random.below(50) as i64;
        for (account, change) in [(debit, -amount), (credit, amount)] {
            connection
                .prepare_cached("UPDATE account SET balance = balance + ?1 WHERE id = ?2")?
                .execute([change, account])?;
        }
        if self.random.one_in(5) {
            connection.execute_batch(
                "SAVEPOINT s; UPDATE ledger SET amount = amount + 1 \
                 WHERE id > (SELECT max(id) FROM ledger) - 200; ROLLBACK TO s; RELEASE s",
            )?;
        }
        let note = vec![b'n'; self.random.between(10, 300) as usize];
        connection
            .prepare_cached(
                "INSERT INTO ledger(process, seq, debit, credit, amount, note) \
                 VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![
                self.job.process as i64,
                self.seq as i64,
                debit,
                credit,
                amount,
                note
            ])?;
        Ok(())
    }
}
