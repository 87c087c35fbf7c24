//! Checks of the database, in processes of their own: the ledger, the sum, the lists, the index.
//!
//! A check notes the acknowledged transactions first and takes its snapshot then. So each of them
//! must be in the snapshot, once, and those of one worker's life in their order.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use serde::{Deserialize, Serialize};

use super::cuts::Cuts;
use super::job::{ACCOUNTS, BALANCE, Job, Role, now, wall_clock};
use super::worker;
use crate::history::{self, Outcome, Transaction};

/// The findings of a check.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Found {
    pub sqlite: String,
    pub acknowledged: u64,
    /// Rows by worker's life that were written while its wall clock was wrong.
    pub wrong_clock: BTreeMap<u64, u64>,
    /// The number of findings of each kind, and one of them in words.
    pub wrong: BTreeMap<String, (u64, String)>,
}

impl Found {
    fn note(&mut self, kind: &str, what: impl FnOnce() -> String) {
        let entry = self.wrong.entry(kind.to_owned());
        entry.or_insert_with(|| (0, what())).0 += 1;
    }
}

/// Runs a job of this program: prints a JSON document.
///
/// # Errors
/// The database cannot be opened or read.
pub fn run(job: &Job) -> Result<(), String> {
    let found = match job.role {
        Role::Create => create(job),
        Role::ReadAll => read_all(job),
        _ => check(job),
    };
    let found = found?;
    let text = serde_json::to_string(&found).map_err(|error| error.to_string())?;
    println!("{text}");
    Ok(())
}

fn text(error: rusqlite::Error) -> String {
    error.to_string()
}

fn create(job: &Job) -> Result<Found, String> {
    worker::load(job)?;
    let connection = worker::connect(job).map_err(text)?;
    let tables = format!(
        "BEGIN;
         CREATE TABLE account(id INTEGER PRIMARY KEY, balance INT);
         CREATE TABLE ledger(id INTEGER PRIMARY KEY AUTOINCREMENT, process INT, seq INT, debit INT,
                             credit INT, amount INT, note BLOB, at INT DEFAULT (unixepoch()),
                             UNIQUE(process, seq));
         CREATE TABLE list(k INTEGER PRIMARY KEY, v TEXT);
         WITH RECURSIVE n(i) AS (VALUES(0) UNION ALL SELECT i + 1 FROM n WHERE i < {ACCOUNTS} - 1)
         INSERT INTO account SELECT i, {BALANCE} FROM n;
         COMMIT;"
    );
    connection.execute_batch(&tables).map_err(text)?;
    Ok(Found {
        sqlite: rusqlite::version().to_owned(),
        ..Found::default()
    })
}

/// Reads all lists in one transaction, and writes it into the history.
fn read_all(job: &Job) -> Result<Found, String> {
    worker::load(job)?;
    let connection = worker::connect(job).map_err(text)?;
    let began = now();
    let mut statement = connection
        .prepare("SELECT k, v FROM list ORDER BY k")
        .map_err(text)?;
    let rows = statement.query_map([], |row| {
        let (key, list): (i64, String) = (row.get(0)?, row.get(1)?);
        Ok((format!("[:r {key} nil]"), format!("[:r {key} [{list}]]")))
    });
    let rows: rusqlite::Result<Vec<_>> = rows.map_err(text)?.collect();
    let (asked, read): (Vec<_>, Vec<_>) = rows.map_err(text)?.into_iter().unzip();
    let line = |kind: &str, reads: &[String], time| {
        let (process, reads) = (job.process, reads.join(" "));
        format!(
            "{{:type :{kind}, :process {process}, :f :txn, :value [{reads}], :time {time}, :seq 1}}\n"
        )
    };
    let lines = line("invoke", &asked, began) + &line("ok", &read, now());
    fs::write(&job.history, lines).map_err(|error| error.to_string())?;
    Ok(Found::default())
}

fn open(job: &Job) -> Result<Connection, String> {
    if job.role == Role::Check {
        worker::load(job)?;
        return worker::connect(job).map_err(text);
    }
    // A copy is a stock database.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let connection = Connection::open_with_flags(&job.copy, flags).map_err(text)?;
    let patience = Duration::from_millis(job.busy_ms);
    connection.busy_timeout(patience).map_err(text)?;
    Ok(connection)
}

fn check(job: &Job) -> Result<Found, String> {
    let promised = promised(&job.histories, job.until)?;
    let connection = open(job)?;
    let mut found = Found {
        sqlite: rusqlite::version().to_owned(),
        acknowledged: promised.len() as u64,
        ..Found::default()
    };
    connection.execute_batch("BEGIN").map_err(text)?;
    check_sum(&connection, job, &mut found).map_err(text)?;
    check_ledger(&connection, &promised, &mut found).map_err(text)?;
    count_wrong_clocks(&connection, job, &mut found).map_err(text)?;
    check_lists(&connection, &promised, &mut found).map_err(text)?;
    if job.integrity {
        let sql = "PRAGMA integrity_check";
        let answer: String = connection
            .query_row(sql, [], |row| row.get(0))
            .map_err(text)?;
        if answer != "ok" {
            found.note("integrity", || answer);
        }
    }
    connection.execute_batch("COMMIT").map_err(text)?;
    Ok(found)
}

/// The writing transactions that were acknowledged before `until` and that no power cut voids.
fn promised(histories: &Path, until: u64) -> Result<Vec<Transaction>, String> {
    let cuts = Cuts::read(histories)?;
    let mut promised = Vec::new();
    for path in history_files(histories)? {
        let bytes = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let read = history::parse(&String::from_utf8_lossy(&bytes));
        let is_promised = |transaction: &Transaction| {
            let end = transaction.completed.unwrap_or(u64::MAX);
            transaction.outcome == Outcome::Ok
                && transaction.has_appends()
                && end < until
                && !cuts.void(end)
        };
        promised.extend(read.transactions.into_iter().filter(is_promised));
    }
    Ok(promised)
}

/// The files of the workers' histories.
pub fn history_files(directory: &Path) -> Result<Vec<std::path::PathBuf>, String> {
    let entries =
        fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut paths: Vec<_> = paths
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("worker-") && name.ends_with(".edn")
        })
        .collect();
    paths.sort();
    Ok(paths)
}

fn check_sum(connection: &Connection, job: &Job, found: &mut Found) -> rusqlite::Result<()> {
    let sql = "SELECT sum(balance) FROM account";
    let total: i64 = connection.query_row(sql, [], |row| row.get(0))?;
    if total != job.total {
        found.note("sum", || format!("the sum of all accounts is {total}"));
    }
    Ok(())
}

fn check_ledger(
    connection: &Connection,
    promised: &[Transaction],
    found: &mut Found,
) -> rusqlite::Result<()> {
    let mut statement =
        connection.prepare("SELECT process, seq FROM ledger NOT INDEXED ORDER BY id")?;
    let mut rows = statement.query([])?;
    let mut last: HashMap<i64, i64> = HashMap::new();
    let mut there: HashSet<(i64, i64)> = HashSet::new();
    while let Some(row) = rows.next()? {
        let (process, seq) = (row.get(0)?, row.get(1)?);
        if last
            .insert(process, seq)
            .is_some_and(|before| before >= seq)
        {
            found.note("order", || format!("row {seq} of process {process}"));
        }
        if !there.insert((process, seq)) {
            found.note("twice", || format!("row {seq} of process {process}"));
        }
    }
    for transaction in promised {
        let (process, seq) = (transaction.process, transaction.seq.unwrap_or(0) as i64);
        if !there.contains(&(process, seq)) {
            found.note("missing", || format!("row {seq} of process {process}"));
        }
    }
    let sql = "SELECT count(*) FROM ledger INDEXED BY sqlite_autoindex_ledger_1 WHERE process >= 0";
    let indexed: i64 = connection.query_row(sql, [], |row| row.get(0))?;
    if indexed != there.len() as i64 {
        found.note("index", || {
            format!("{indexed} entries, {} rows", there.len())
        });
    }
    Ok(())
}

/// Counts the rows from before the run or from the future. The clock of this process is right.
fn count_wrong_clocks(
    connection: &Connection,
    job: &Job,
    found: &mut Found,
) -> rusqlite::Result<()> {
    let sql =
        "SELECT process, count(*) FROM ledger WHERE at NOT BETWEEN ?1 AND ?2 GROUP BY process";
    let mut statement = connection.prepare(sql)?;
    let seconds = |time: u64| (time / 1_000_000_000).cast_signed();
    let mut rows = statement.query([seconds(job.began) - 1, seconds(wall_clock()) + 1])?;
    while let Some(row) = rows.next()? {
        let (process, count): (i64, i64) = (row.get(0)?, row.get(1)?);
        found
            .wrong_clock
            .insert(process.cast_unsigned(), count.cast_unsigned());
    }
    Ok(())
}

fn check_lists(
    connection: &Connection,
    promised: &[Transaction],
    found: &mut Found,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare("SELECT k, v FROM list")?;
    let mut rows = statement.query([])?;
    let mut there = HashSet::new();
    while let Some(row) = rows.next()? {
        let (key, list): (i64, String) = (row.get(0)?, row.get(1)?);
        for word in list.split(' ') {
            match word.parse::<i64>() {
                Ok(value) if there.insert((key, value)) => {}
                _ => found.note("list", || format!("{word} in the list of {key}")),
            }
        }
    }
    for (key, value) in promised.iter().flat_map(Transaction::appends) {
        if !there.contains(&(key, value)) {
            found.note("lost append", || format!("{value} of key {key}"));
        }
    }
    Ok(())
}
