//! The content of a database after a fault and a kill, as stock SQLite and ours see it.
//!
//! A process of its own answers one question a line. It lives for many inspections, and the harness
//! notices if it hangs or dies.

use super::sqlite;
use crate::failure::Failure;
use crate::processes::{die_with_parent, this_program};
use rusqlite::{Connection, OpenFlags};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// One inspection of a directory's database.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Question {
    /// The database, which our SQLite recovers and closes.
    pub database: PathBuf,
    /// A copy of it and of the files next to it, for stock SQLite to try.
    pub for_stock: PathBuf,
}

/// The content that one SQLite sees.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct View {
    /// SQLite's result code of the first failure; 0 if there was none.
    pub code: i32,
    /// SQLite's message.
    pub message: String,
    /// The number of rows in each batch.
    pub batches: BTreeMap<i64, i64>,
    /// Rows with wrong content.
    pub wrong_rows: i64,
    /// The result of `PRAGMA integrity_check`.
    pub integrity: String,
    /// The result of `PRAGMA journal_mode`.
    pub mode: String,
}

/// The answer.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Facts {
    /// Header byte 19 says that the database is guarded.
    pub guarded: bool,
    /// Stock SQLite, before our SQLite opens it.
    pub stock_first: View,
    /// Stock SQLite has changed a guarded database or its log.
    pub stock_changed: bool,
    /// Our SQLite, which recovers.
    pub ours: View,
    /// SQLite's code for a transaction through our VFS after that.
    pub commit: i32,
    /// Header byte 19 still says so after the clean close.
    pub guarded_after_close: bool,
    /// Stock SQLite after the clean close.
    pub stock_last: View,
}

/// The checker: answers until its standard input ends.
///
/// # Errors
/// Errors of the harness.
pub fn serve() -> Result<(), Failure> {
    die_with_parent()?;
    sqlite::collect_log()?;
    onewrite::register().map_err(|e| Failure::Harness(e.to_string()))?;
    for line in std::io::stdin().lock().lines() {
        let question: Question = serde_json::from_str(&line?)
            .map_err(|e| Failure::Harness(format!("a question: {e}")))?;
        let answer = serde_json::to_string(&answer(&question))
            .map_err(|e| Failure::Harness(format!("an answer: {e}")))?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

fn answer(question: &Question) -> Facts {
    let mut facts = Facts {
        guarded: is_guarded(&question.for_stock),
        ..Facts::default()
    };
    let before = facts.guarded.then(|| bytes_of(&question.for_stock));
    facts.stock_first = view(&question.for_stock, "unix", &mut |_| 0);
    facts.stock_changed = before.is_some_and(|before| before != bytes_of(&question.for_stock));
    let mut code = 0;
    facts.ours = view(&question.database, onewrite::VFS_NAME, &mut |connection| {
        let sql = "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, batch INTEGER, i INTEGER, \
                   size INTEGER, body TEXT); INSERT INTO t(batch, i, size, body) \
                   VALUES (9000, 0, 1, '9000000')";
        code = connection
            .execute_batch(sql)
            .map_or_else(|e| code_of(&e).0, |()| 0);
        code
    });
    facts.commit = code;
    facts.guarded_after_close = is_guarded(&question.database);
    facts.stock_last = view(&question.database, "unix", &mut |_| 0);
    facts
}

/// Whether byte 19 of the header says so, and the log exists. Nobody has the database open.
fn is_guarded(database: &Path) -> bool {
    let mut header = [0; onewrite::DATABASE_HEADER_BYTES];
    fs::File::open(database)
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut header))
        .is_ok_and(|()| onewrite::guarded_by(&header).is_some())
}

fn bytes_of(database: &Path) -> Vec<Option<Vec<u8>>> {
    ["", "-onewrite"]
        .map(|suffix| {
            let mut path = database.as_os_str().to_owned();
            path.push(suffix);
            fs::read(path).ok()
        })
        .into()
}

fn code_of(error: &rusqlite::Error) -> (i32, String) {
    match error {
        rusqlite::Error::SqliteFailure(error, message) => (
            error.extended_code,
            message.clone().unwrap_or_else(|| error.to_string()),
        ),
        other => (1, other.to_string()),
    }
}

fn view(database: &Path, vfs: &str, then: &mut dyn FnMut(&Connection) -> i32) -> View {
    sqlite::take_log();
    let mut view = View::default();
    if let Err(error) = look(database, vfs, then, &mut view) {
        (view.code, view.message) = code_of(&error);
        view.message.push_str(&format!(" {:?}", sqlite::take_log()));
    }
    view
}

fn look(
    database: &Path,
    vfs: &str,
    then: &mut dyn FnMut(&Connection) -> i32,
    view: &mut View,
) -> rusqlite::Result<()> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags_and_vfs(database, flags, vfs)?;
    connection.busy_timeout(Duration::from_secs(2))?;
    if vfs != onewrite::VFS_NAME {
        // The power stays on here.
        connection.execute_batch("PRAGMA synchronous=OFF")?;
    }
    let one = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, String>(0));
    view.integrity = one("PRAGMA integrity_check")?;
    view.mode = one("PRAGMA journal_mode")?;
    let exists: i64 = connection.query_row(
        "SELECT count(*) FROM sqlite_schema WHERE name = 't'",
        [],
        |row| row.get(0),
    )?;
    if exists > 0 {
        let sql = "SELECT batch, count(*), count(*) FILTER \
                   (WHERE body IS NOT printf('%0*d', size, batch * 1000 + i)) FROM t GROUP BY batch";
        let mut statement = connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            view.batches.insert(row.get(0)?, row.get(1)?);
            view.wrong_rows += row.get::<_, i64>(2)?;
        }
    }
    then(&connection);
    connection.close().map_err(|(_, error)| error)
}

/// A running checker.
pub struct Checker {
    child: Child,
    stdin: Option<ChildStdin>,
    answers: mpsc::Receiver<String>,
}

impl Checker {
    /// Starts a checker; its standard error goes to `log`.
    ///
    /// # Errors
    /// The checker cannot be started.
    pub fn start(log: &Path) -> Result<Self, Failure> {
        let mut command = this_program(&["fault-checker".to_owned()], log)?;
        let mut child = command.stdin(Stdio::piped()).spawn()?;
        let (send, answers) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    if send.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Self {
            stdin: child.stdin.take(),
            child,
            answers,
        })
    }

    /// The answer; `None` if it did not come in time, or the checker died.
    ///
    /// # Errors
    /// Errors of the harness.
    pub fn ask(&mut self, question: &Question, limit: Duration) -> Result<Option<Facts>, Failure> {
        let mut line = serde_json::to_string(question)
            .map_err(|e| Failure::Harness(format!("a question: {e}")))?;
        line.push('\n');
        let asked = self
            .stdin
            .as_mut()
            .is_some_and(|stdin| stdin.write_all(line.as_bytes()).is_ok());
        if !asked {
            return Ok(None);
        }
        match self.answers.recv_timeout(limit) {
            Ok(answer) => serde_json::from_str(&answer)
                .map(Some)
                .map_err(|e| Failure::Harness(format!("an answer: {e}: {answer}"))),
            Err(_) => Ok(None),
        }
    }
}

impl Drop for Checker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
