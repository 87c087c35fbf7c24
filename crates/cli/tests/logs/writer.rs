//! A process that writes a database through the engine, until it is killed or may close. It is this
//! same test program; an environment variable makes it the writer.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rusqlite::{Connection, OpenFlags};

const DATABASE: &str = "ONEWRITE_TEST_WRITER_DATABASE";
const SQL: &str = "ONEWRITE_TEST_WRITER_SQL";
const ENDLESS: &str = "ONEWRITE_TEST_WRITER_ENDLESS";

/// A table, and three transactions in it.
pub const FOUR_COMMITS: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, value TEXT);
    INSERT INTO t VALUES(1, 'one'); INSERT INTO t VALUES(2, 'two'); INSERT INTO t VALUES(3, 'three');";

/// The writer's work after its SQL.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Stays idle, with the database open.
    Wait,
    /// Inserts row after row into table t.
    Insert,
}

/// A writer that has run its SQL.
pub struct Writer {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Writer {
    /// Starts a writer that sets the journal mode and the layout, runs `sql`, and then does `then`.
    pub fn start(database: &Path, mode: &str, layout: &str, sql: &str, then: Then) -> Writer {
        let sql = format!(
            "PRAGMA onewrite_layout={layout}; PRAGMA journal_mode={mode};
             PRAGMA wal_autocheckpoint=0; {sql}"
        );
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args(["writer::be_the_writer", "--exact", "--nocapture"])
            .env(DATABASE, database)
            .env(SQL, sql)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        super::without_wishes(&mut command);
        if then == Then::Insert {
            command.env(ENDLESS, "1");
        }
        let mut child = command.spawn().expect("the writer starts");
        let lines = BufReader::new(child.stdout.take().expect("its output"));
        let mut writer = Writer { child, lines };
        writer.wait_for("ready");
        writer
    }

    /// Waits for the next inserted row; returns its number.
    pub fn next_row(&mut self) -> i64 {
        self.wait_for("row").parse().expect("a row's number")
    }

    fn wait_for(&mut self, word: &str) -> String {
        loop {
            let mut line = String::new();
            let n = self.lines.read_line(&mut line).expect("its output");
            assert!(n > 0, "the writer has ended");
            // The test harness prints its own lines, and may not end them.
            if let Some((_, rest)) = line.trim().split_once(&format!("writer: {word}")) {
                return rest.trim().to_owned();
            }
        }
    }

    /// Its process.
    #[allow(dead_code)] // not every test that includes this module needs it
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// kill -9. Returns the last row that the writer reported as durable.
    pub fn kill(mut self) -> i64 {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
        let mut last = 0;
        for line in (&mut self.lines).lines() {
            let line = line.expect("its output");
            let row = line.trim().strip_prefix("writer: row ").map(str::parse);
            last = row.and_then(Result::ok).unwrap_or(last);
        }
        last
    }

    /// Lets it close the database.
    pub fn finish(mut self) {
        drop(self.child.stdin.take());
        // Its remaining output must not block it.
        std::io::copy(&mut self.lines, &mut std::io::sink()).expect("its output");
        assert!(self.child.wait().expect("it ends").success());
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test by itself: see the module.
#[test]
fn be_the_writer() {
    let Some(database) = std::env::var_os(DATABASE) else {
        return;
    };
    onewrite::register().expect("the VFS");
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let connection = Connection::open_with_flags_and_vfs(database, flags, onewrite::VFS_NAME);
    let connection = connection.expect("a database");
    let sql = std::env::var(SQL).expect("SQL");
    connection.execute_batch(&sql).expect(&sql);
    say("ready", 0);
    if std::env::var_os(ENDLESS).is_none() {
        let mut line = String::new();
        std::io::stdin()
            .read_line(&mut line)
            .expect("standard input");
        connection
            .close()
            .map_err(|(_, e)| e)
            .expect("a clean close");
        return;
    }
    loop {
        let insert = "INSERT INTO t(value) VALUES('another') RETURNING id";
        let row: i64 = connection
            .query_row(insert, [], |row| row.get(0))
            .expect(insert);
        say("row", row);
    }
}

fn say(word: &str, number: i64) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nwriter: {word} {number}").expect("standard output");
    out.flush().expect("standard output");
}
