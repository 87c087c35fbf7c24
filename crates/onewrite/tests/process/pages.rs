//! Pages that processes share, so that none unpacks what another one has logged (N12 to N15 of
//! docs/durability.md).

use super::children::{DATABASE, child, this_program};
use super::{open, sql};
use rusqlite::Connection;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// Where the slots' headers begin in `-onewrite-shm`, their bytes, and where their pages begin.
const SLOTS_AT: u64 = 64 << 10;
const HEADER: u64 = 32;
const SLOTS: u64 = 256;
const PAGES_AT: u64 = SLOTS_AT + SLOTS * HEADER;
const PAGE: u64 = 4096;

/// Rows that both processes change.
const ROWS: i64 = 400;

fn status(db: &Connection) -> serde_json::Value {
    serde_json::from_str(&sql(db, "PRAGMA onewrite_status")).expect("JSON")
}

fn count(status: &serde_json::Value, what: &str) -> u64 {
    status["shared_pages"][what].as_u64().expect("a count")
}

fn connection(path: &Path) -> Connection {
    let db = open(path);
    sql(&db, "PRAGMA busy_timeout=60000");
    sql(&db, "PRAGMA journal_mode=onewrite");
    db
}

fn database(directory: &Path) -> (std::path::PathBuf, Connection) {
    let path = directory.join("db");
    let db = open(&path);
    sql(&db, "PRAGMA page_size=4096");
    drop(db);
    let db = connection(&path);
    sql(&db, "PRAGMA wal_autocheckpoint=0");
    db.execute_batch("CREATE TABLE t(k INTEGER PRIMARY KEY, n INTEGER, v TEXT)")
        .expect("a table");
    let rows = format!(
        "WITH RECURSIVE k(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM k WHERE k < {ROWS})
         INSERT INTO t SELECT k, 0, printf('%.*c', 100, 'x') FROM k"
    );
    db.execute_batch(&rows).expect("rows");
    (path, db)
}

/// Adds one to some rows of several pages, and returns the sum of all.
fn add(db: &Connection, round: i64) -> i64 {
    let which = format!("k % 37 = {}", round % 37);
    db.execute_batch(&format!("UPDATE t SET n = n + 1 WHERE {which}"))
        .expect("a commit");
    sum(db)
}

fn sum(db: &Connection) -> i64 {
    sql(db, "SELECT sum(n) FROM t").parse().expect("a number")
}

/// How many rows a round changes.
fn changed(round: i64) -> i64 {
    (1..=ROWS).filter(|k| k % 37 == round % 37).count() as i64
}

/// Another process with the same database. It commits when it is told to.
struct Other {
    child: Child,
    stdin: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl Other {
    fn new(path: &Path) -> Other {
        let mut command = child(&this_program(), "pages::commits_when_it_is_told_to", path);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("this program runs");
        let stdin = child.stdin.take().expect("a pipe");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        Other {
            child,
            stdin,
            lines,
        }
    }

    /// Its answer: a line of JSON.
    fn ask(&mut self, round: i64) -> serde_json::Value {
        writeln!(self.stdin, "{round}").expect("it reads");
        let mut line = String::new();
        // The harness prints, too, perhaps without the end of a line.
        while !line.contains('{') {
            line.clear();
            let read = self.lines.read_line(&mut line).expect("text");
            assert!(read > 0, "it has ended");
        }
        serde_json::from_str(&line[line.find('{').expect("JSON")..]).expect("JSON")
    }

    /// Commits a round there, and returns the sum and how many pages it has found.
    fn commit(&mut self, round: i64) -> (i64, u64) {
        let answer = self.ask(round);
        let found = answer["found"].as_u64().expect("a count");
        (answer["sum"].as_i64().expect("a sum"), found)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "a child of another test"]
fn commits_when_it_is_told_to() {
    let path = std::env::var_os(DATABASE).expect("set by the parent");
    let db = connection(Path::new(&path));
    for line in std::io::stdin().lines() {
        let round = line.expect("a line").parse().expect("a round");
        let sum = add(&db, round);
        let found = count(&status(&db), "found");
        println!("{{\"sum\": {sum}, \"found\": {found}}}");
    }
}

/// Both commit in turns. After each of our commits `meddle` is called, before the other one reads.
fn alternate(db: &Connection, other: &mut Other, rounds: i64, meddle: impl Fn(i64)) -> u64 {
    let mut sum = sum(db);
    let mut found = 0;
    for round in 0..rounds {
        sum += changed(2 * round);
        assert_eq!(add(db, 2 * round), sum, "round {round}");
        meddle(round);
        sum += changed(2 * round + 1);
        let (theirs, now) = other.commit(2 * round + 1);
        assert_eq!(theirs, sum, "round {round}");
        found = now;
    }
    assert_eq!(self::sum(db), sum);
    assert_eq!(sql(db, "PRAGMA integrity_check"), "ok");
    found
}

#[test]
fn one_process_alone_shares_no_pages() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (path, db) = database(directory.path());
    let second = connection(&path);
    for round in 0..50 {
        let sum = add(&db, round);
        assert_eq!(self::sum(&second), sum);
    }
    let status = status(&db);
    assert_eq!((count(&status, "put"), count(&status, "found")), (0, 0));
    let shared = std::fs::metadata(directory.path().join("db-onewrite-shm"));
    assert_eq!(shared.expect("the shared words").len(), 4096);
}

#[test]
fn what_another_process_has_logged_is_found_unpacked() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (path, db) = database(directory.path());
    let mut other = Other::new(&path);
    let theirs = alternate(&db, &mut other, 60, |_| {});
    let ours = status(&db);
    // Some 11 pages change in each round.
    assert!(theirs > 100, "{theirs} pages found there");
    assert!(count(&ours, "found") > 100, "{ours}");
    assert!(count(&ours, "put") > 100, "{ours}");
}

#[test]
fn what_is_wrong_in_shared_memory_is_not_believed() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (path, db) = database(directory.path());
    let mut other = Other::new(&path);
    alternate(&db, &mut other, 5, |_| {});
    let shared = File::options()
        .write(true)
        .read(true)
        .open(directory.path().join("db-onewrite-shm"))
        .expect("the shared words");
    let bytes = shared.metadata().expect("a file").len();
    assert_eq!(bytes, PAGES_AT + SLOTS * PAGE);
    let word = |slot: u64, at: u64| {
        let mut word = [0; 8];
        let at = SLOTS_AT + slot * HEADER + at;
        shared.read_exact_at(&mut word, at).expect("a header");
        u64::from_ne_bytes(word)
    };
    let set = |slot: u64, at: u64, value: u64| {
        let at = SLOTS_AT + slot * HEADER + at;
        let value = value.to_ne_bytes();
        shared.write_all_at(&value, at).expect("a header");
    };
    let spoil = |slot: u64| {
        let at = PAGES_AT + slot * PAGE;
        shared
            .write_all_at(&[7; PAGE as usize], at)
            .expect("a page");
    };
    alternate(&db, &mut other, 60, |round| {
        for slot in 0..SLOTS {
            match round % 5 {
                // A process was killed when it had begun to put a page there.
                0 => {
                    set(slot, 0, word(slot, 0) | 1);
                    spoil(slot);
                }
                // A stray write.
                1 => spoil(slot),
                // The salts, or the number, of another frame.
                2 => set(slot, 8, word((slot + 1) % SLOTS, 8) ^ 1),
                3 => set(slot, 16, word(slot, 16).wrapping_add(SLOTS)),
                _ => {}
            }
        }
    });
    // Slots that were spoiled are used again.
    let before = count(&status(&db), "found");
    alternate(&db, &mut other, 20, |_| {});
    assert!(count(&status(&db), "found") > before);
}

#[test]
fn frames_of_the_same_numbers_in_a_log_that_restarts_are_told_apart() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (path, db) = database(directory.path());
    let mut other = Other::new(&path);
    let mut restarts = 0;
    let mut last = 0;
    for _ in 0..10 {
        alternate(&db, &mut other, 5, |_| {});
        let done = sql(&db, "PRAGMA wal_checkpoint(RESTART)");
        assert_eq!(done, "0", "busy");
        let theirs = alternate(&db, &mut other, 1, |_| {});
        let frames = status(&db)["frames"].as_u64().expect("a count");
        restarts += u64::from(frames < 60);
        assert!(theirs >= last);
        last = theirs;
    }
    assert!(restarts >= 9 && last > 50, "{restarts} restarts, {last}");
}

/// A store into a mapped file waits where its file system is frozen, and ends the process where btrfs is full.
#[test]
fn reading_what_was_read_before_changes_no_shared_memory() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (_, db) = database(directory.path());
    // More frames than a process remembers, and than SQLite's cache holds.
    sql(&db, "PRAGMA cache_size=5");
    db.execute_batch(
        "CREATE TABLE big(k INTEGER PRIMARY KEY, v);
         WITH RECURSIVE k(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM k WHERE k < 4000)
         INSERT INTO big SELECT k, zeroblob(1500) FROM k",
    )
    .expect("rows");
    let read = || sql(&db, "SELECT sum(length(v)) FROM big");
    let words = || {
        let all = std::fs::read(directory.path().join("db-onewrite-shm"));
        all.expect("the shared words")[..4096].to_vec()
    };
    read();
    let before = words();
    std::thread::sleep(std::time::Duration::from_millis(60));
    read();
    assert!(words() == before, "a reader has stored something");
}
