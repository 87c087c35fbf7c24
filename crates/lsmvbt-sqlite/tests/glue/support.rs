//! Databases to test with.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use lsmvbt_sqlite::sqlite::{Connection, Value};
use tempfile::TempDir;

use crate::model;

/// The engines that are compared with stock SQLite.
pub const OTHERS: [&str; 2] = [model::NAME, "lsmvbt"];
/// The engines that everything runs on.
pub const ENGINES: [&str; 3] = ["stock", model::NAME, "lsmvbt"];

/// Turns each function into a test for every engine but stock.
macro_rules! on_other_engines {
    ($($test:ident)*) => {
        mod model {
            $(#[test] fn $test() { super::$test(crate::model::NAME) })*
        }
        mod lsmvbt {
            $(#[test] fn $test() { super::$test("lsmvbt") })*
        }
    };
}
pub(crate) use on_other_engines;

/// A directory with databases of every engine.
pub struct Setup {
    directory: TempDir,
}

impl Setup {
    pub fn new() -> Self {
        Self::in_directory(tempfile::tempdir())
    }

    /// For a test whose waits are short: where others write much, a flush of a disk may take seconds.
    pub fn in_memory() -> Self {
        Self::in_directory(tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()))
    }

    fn in_directory(directory: std::io::Result<TempDir>) -> Self {
        model::install();
        Self {
            directory: directory.expect("a directory"),
        }
    }

    pub fn path(&self, name: &str) -> String {
        self.directory
            .path()
            .join(name)
            .to_str()
            .expect("UTF-8")
            .to_owned()
    }

    /// The URI of a database of an engine.
    pub fn uri(&self, name: &str, engine: &str) -> String {
        format!("file:{}?engine={engine}", self.path(name))
    }

    /// Opens a database of an engine, or makes it if necessary.
    pub fn open(&self, name: &str, engine: &str) -> Connection {
        let connection = Connection::open(&self.uri(name, engine)).expect("a database");
        connection
            .execute("PRAGMA foreign_keys = ON")
            .expect("foreign keys");
        connection
    }
}

/// The one value of a query, as text.
pub fn one(connection: &Connection, sql: &str) -> String {
    let rows = connection
        .query(sql)
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    rows.first()
        .and_then(|row| row.first())
        .map_or_else(|| "(no row)".to_owned(), Value::to_string)
}

/// Runs SQL that must succeed.
pub fn run(connection: &Connection, sql: &str) {
    connection
        .execute(sql)
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// The message of SQL that must fail.
pub fn refused(connection: &Connection, sql: &str) -> String {
    connection.query(sql).map_or_else(
        |error| error.message,
        |rows| panic!("{sql}: not refused: {rows:?}"),
    )
}

/// The answers to a script, statement by statement: rows, changes, or the error.
pub fn transcript(connection: &Connection, script: &[&str]) -> Vec<String> {
    script
        .iter()
        .map(|sql| match connection.query(sql) {
            Ok(rows) => format!("{sql}: {rows:?} {}", connection.changes()),
            Err(error) => format!("{sql}: {error}"),
        })
        .collect()
}

/// Runs a script on every engine, which must give the same, and returns the answers.
pub fn alike(setup: &Setup, name: &str, script: &[&str]) -> Vec<String> {
    let on = |engine: &str| {
        let connection = setup.open(&format!("{name}.{engine}"), engine);
        let said = transcript(&connection, script);
        assert_eq!(
            one(&connection, "PRAGMA integrity_check"),
            "ok",
            "{name} on {engine}"
        );
        said
    };
    let stock = on("stock");
    for engine in OTHERS {
        for (stock, other) in stock.iter().zip(&on(engine)) {
            assert_eq!(stock, other, "{name} on {engine}: stock SQLite first");
        }
    }
    stock
}

/// SQLite's shell on a database, in a process of its own.
pub struct Shell {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Shell {
    pub fn of(path: &str) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_lsmvbt-sqlite3"))
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        Self {
            input: process.stdin.take().expect("its input"),
            output: BufReader::new(process.stdout.take().expect("its output")),
            process,
        }
    }

    /// Has it run statements that print nothing. An error is not seen.
    pub fn write(&mut self, sql: &str) {
        writeln!(self.input, "{sql}").expect("it is read");
    }

    /// The line that statements print.
    pub fn says(&mut self, sql: &str) -> String {
        self.write(sql);
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    pub fn kill(mut self) {
        self.process.kill().expect("killed");
        self.process.wait().expect("gone");
    }

    /// Has it end.
    pub fn ends(self) {
        let Self {
            mut process, input, ..
        } = self;
        drop(input);
        process.wait().expect("it ends");
    }
}
