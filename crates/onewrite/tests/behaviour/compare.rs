//! The same random script on stock WAL and on each of our modes. Both must answer every statement
//! the same.

use super::random::{Random, seed};
use super::{GATHERED, MODES, Mode, companion, open, open_flags, outcome, sql};
use rusqlite::{Connection, OpenFlags};
use std::path::{Path, PathBuf};

/// Connections to one database.
struct Bench {
    path: PathBuf,
    connections: [Option<Connection>; 3],
}

/// An empty table and its index, with reserved bytes, so that page contents match in every layout.
fn new_database(path: &Path, page: u32) -> Connection {
    let db = open(path);
    sql(&db, &format!("PRAGMA page_size={page}"));
    sql(&db, "PRAGMA onewrite_reserve_bytes=24");
    sql(
        &db,
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v INTEGER, w TEXT)",
    );
    sql(&db, "CREATE INDEX by_v ON t(v)");
    db
}

const READER: usize = 2;
/// A small cache, so that large transactions spill.
const SMALL_CACHE: &str = "PRAGMA cache_size=10";

impl Bench {
    fn new(path: PathBuf, mode: Option<Mode>, page: u32) -> Bench {
        let db = new_database(&path, page);
        let name = mode.map_or("wal", |mode| {
            for pragma in mode.before {
                sql(&db, pragma);
            }
            mode.name
        });
        assert_eq!(sql(&db, &format!("PRAGMA journal_mode={name}")), name);
        drop(db);
        Bench {
            path,
            connections: [None, None, None],
        }
    }

    fn connection(&mut self, which: usize) -> &Connection {
        let path = &self.path;
        self.connections[which].get_or_insert_with(|| {
            let flags = match which {
                READER => OpenFlags::SQLITE_OPEN_READ_ONLY,
                _ => OpenFlags::SQLITE_OPEN_READ_WRITE,
            };
            let db = open_flags(path, "onewrite", flags).expect("a connection");
            sql(&db, "PRAGMA busy_timeout=0");
            db
        })
    }

    fn run(&mut self, step: &Step) -> String {
        match step {
            Step::Run(which, statement) => {
                let is_new = self.connections[*which].is_none();
                let db = self.connection(*which);
                match is_new {
                    // Another connection may hold the database exclusively, also in stock SQLite.
                    true => format!("{} {}", outcome(db, SMALL_CACHE), outcome(db, statement)),
                    false => outcome(db, statement),
                }
            }
            Step::Close(which) => {
                self.close(*which);
                "closed".to_owned()
            }
            Step::Crash => self.crash(),
        }
    }

    /// Where a reader is the last to close, a writer in our VFS empties the log, and stock SQLite
    /// leaves its frames there. A writer opens and closes the database after the reader, so that
    /// both continue alike.
    fn close(&mut self, which: usize) {
        let was_open = self.connections[which].take().is_some();
        let is_last = self.connections.iter().all(Option::is_none);
        if which == READER && was_open && is_last {
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
            let writer = open_flags(&self.path, "onewrite", flags).expect("a connection");
            outcome(&writer, "SELECT count(*) FROM t");
        }
    }

    /// The contents of a copy of the files, taken now and recovered.
    fn crash(&self) -> String {
        let copy = companion(&self.path, ".copy");
        super::copy(&self.path, &copy);
        let db = open(&copy);
        let found = format!(
            "{} {}",
            outcome(&db, DIGEST),
            outcome(&db, "PRAGMA integrity_check")
        );
        drop(db);
        for suffix in ["", "-wal", "-shm", "-onewrite", "-journal"] {
            let _ = std::fs::remove_file(companion(&copy, suffix));
        }
        found
    }
}

/// `SQLITE_IOERR_WRITE`.
const CANNOT_WRITE: &str = "error 778:";

const DIGEST: &str = "SELECT count(*), total(id * v), total(length(w)), max(w), \
    total(unicode(substr(w, 1 + id % 50))) FROM t";

#[derive(Debug)]
enum Step {
    Run(usize, String),
    Close(usize),
    Crash,
}

fn step(random: &mut Random) -> Step {
    let which = match random.below(8) {
        0 => READER,
        1 | 2 => 1,
        _ => 0,
    };
    let (a, b) = (random.below(1000), random.below(1000));
    let letter = char::from(b'a' + random.below(26) as u8);
    let rows = |count: u64, length: u64| {
        format!(
            "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM c WHERE i<{count}) INSERT \
             INTO t(v, w) SELECT (i*{a}+{b})%1000, printf('%d.%.*c', i, {length}, '{letter}') FROM c"
        )
    };
    let statement = match random.below(46) {
        0..=7 => rows(1, 50 + b),
        8..=9 => rows(2 + a % 20, 100 + b),
        10 => rows(200, 300),
        11 => rows(1200, 900),
        12..=14 => format!(
            "UPDATE t SET v = v + {a}, w = w || '{letter}' WHERE id % 40 = {}",
            b % 40
        ),
        15 => format!("UPDATE t SET v = v + {a}"),
        16 => format!("DELETE FROM t WHERE id % 9 = {}", b % 9),
        17 => format!("DELETE FROM t WHERE id > {b}"),
        18..=20 => "BEGIN".to_owned(),
        21 => "BEGIN IMMEDIATE".to_owned(),
        22..=24 => "COMMIT".to_owned(),
        25 => "ROLLBACK".to_owned(),
        26..=27 => "SAVEPOINT s".to_owned(),
        28 => "ROLLBACK TO s".to_owned(),
        29 => "RELEASE s".to_owned(),
        30 => "PRAGMA wal_checkpoint(PASSIVE)".to_owned(),
        31 => "PRAGMA wal_checkpoint(FULL)".to_owned(),
        32 => "PRAGMA wal_checkpoint(RESTART)".to_owned(),
        // With a read-only database, stock SQLite still opens the log for writing, and truncates
        // it.
        33 if which == READER => "PRAGMA user_version".to_owned(),
        33 => "PRAGMA wal_checkpoint(TRUNCATE)".to_owned(),
        34 => format!(
            "PRAGMA journal_size_limit={}",
            [0, 10_000, 1_000_000, -1i64][a as usize % 4]
        ),
        35 => format!(
            "PRAGMA wal_autocheckpoint={}",
            [0, 5, 100, 1000][a as usize % 4]
        ),
        36 => "VACUUM".to_owned(),
        37 => format!("PRAGMA page_size={}", [512, 1024, 4096][a as usize % 3]),
        38 => format!(
            "PRAGMA locking_mode={}",
            ["EXCLUSIVE", "NORMAL", "NORMAL"][a as usize % 3]
        ),
        39 => format!(
            "PRAGMA synchronous={}",
            ["NORMAL", "FULL", "FULL", "OFF"][a as usize % 4]
        ),
        40 => format!("PRAGMA user_version={a}"),
        41 => "PRAGMA integrity_check".to_owned(),
        42 => format!(
            "SELECT w FROM t WHERE v BETWEEN {} AND {a} LIMIT 3",
            a.saturating_sub(20)
        ),
        43 => return Step::Close(which),
        44 => return Step::Crash,
        _ => DIGEST.to_owned(),
    };
    Step::Run(which, statement)
}

/// Some differences are not errors: bytes of the log, and the name of the mode.
fn compare(directory: &Path, mode: Mode, page: u32, random: &mut Random, steps: usize) {
    let mut theirs = Bench::new(directory.join("stock.db"), None, page);
    let mut ours = Bench::new(directory.join("ours.db"), Some(mode), page);
    let mut before = Vec::new();
    for _ in 0..steps {
        let step = step(random);
        let depends = depends_on_marks(&step, &theirs);
        let (expected, found) = (theirs.run(&step), ours.run(&step));
        before.push(format!("{step:?} -> {}", short(&found)));
        let depends =
            depends || is_refused_copy(&step, &expected) || is_refused_copy(&step, &found);
        if !depends && comparable(&step, &expected) != comparable(&step, &found) {
            let log = outcome(ours.connection(0), "PRAGMA onewrite_status");
            let last = before.len().saturating_sub(40);
            panic!(
                "{mode:?}, pages of {page}:\n  {}\nstock: {expected}\nours:  {found}\n{log}",
                before[last..].join("\n  ")
            );
        }
        if expected.contains(CANNOT_WRITE) != found.contains(CANNOT_WRITE) {
            // After this error SQLite rolls the reader's transaction back.
            let rollback = Step::Run(READER, "ROLLBACK".to_owned());
            theirs.run(&rollback);
            ours.run(&rollback);
        }
        // A lock that a connection never releases blocks most of a script.
        if before.len() % 120 == 0 {
            for which in 0..theirs.connections.len() {
                theirs.close(which);
                ours.close(which);
            }
        }
    }
    let (expected, found) = (theirs.run(&Step::Crash), ours.run(&Step::Crash));
    assert_eq!(expected, found, "at the end");
}

/// Whether this checkpoint waits for readers that need the log, while another connection is in a
/// transaction. A reader needs it unless all was copied when it began. A thread copies for us, some time
/// after stock SQLite does.
fn depends_on_marks(step: &Step, bench: &Bench) -> bool {
    let Step::Run(who, statement) = step else {
        return false;
    };
    let in_transaction = |db: &Connection| !db.is_autocommit();
    let others = bench.connections.iter().enumerate();
    let mut others = others.filter(|(which, _)| which != who);
    let waits = ["(RESTART)", "(TRUNCATE)"].map(|how| statement.contains(how));
    waits.contains(&true) && others.any(|(_, db)| db.as_ref().is_some_and(in_transaction))
}

/// Whether a checkpoint of the reader found frames to copy, which it cannot write. The other side may
/// have copied them, and is busy or not: a thread checkpoints for us, some time after the commit for which
/// stock SQLite does it. Besides, our log writes the header of a new generation together with its first
/// frames. A reader that closes last cannot clear up. Then a generation may come back whose frames are in
/// the database already, as in stock SQLite after a crash.
fn is_refused_copy(step: &Step, outcome: &str) -> bool {
    matches!(step, Step::Run(READER, statement) if statement.contains("wal_checkpoint("))
        && outcome.contains(CANNOT_WRITE)
}

/// Leaves out how many frames a checkpoint met, but not whether it copied them all.
fn comparable(step: &Step, outcome: &str) -> String {
    let Step::Run(_, statement) = step else {
        return outcome.to_owned();
    };
    let numbers: Vec<&str> = outcome.trim().split('|').collect();
    match (statement.contains("wal_checkpoint("), &numbers[..]) {
        (true, [busy, frames, done]) => format!("{busy} {}", frames == done),
        _ => outcome.to_owned(),
    }
}

fn short(text: &str) -> &str {
    text.get(..100).unwrap_or(text)
}

/// Runs random scripts for one mode, with several page sizes.
fn scripts(mode: Mode) {
    let name = format!("{} {:?}", mode.name, mode.before);
    let mut random = Random::new(seed(&name));
    let steps = std::env::var("ONEWRITE_STEPS").map_or(600, |n| n.parse().expect("a number"));
    let pages = match GATHERED.contains(&mode) {
        true => [4096, 8192, 65_536],
        false => [512, 1024, 4096],
    };
    for page in pages {
        let directory = tempfile::tempdir().expect("a directory");
        compare(directory.path(), mode, page, &mut random, steps);
    }
}

#[test]
fn embedded_answers_as_stock_wal() {
    scripts(MODES[0]);
}

#[test]
fn sector_answers_as_stock_wal() {
    scripts(MODES[1]);
}

#[test]
fn page4k_answers_as_stock_wal() {
    scripts(MODES[2]);
}

#[test]
fn page8k_answers_as_stock_wal() {
    scripts(MODES[3]);
}

#[test]
fn direct_answers_as_stock_wal() {
    scripts(MODES[4]);
}

#[test]
fn swal_answers_as_stock_wal() {
    scripts(MODES[5]);
}

#[test]
fn onewrite_answers_as_stock_wal() {
    scripts(MODES[6]);
}

#[test]
fn swal_without_compression_answers_as_stock_wal() {
    scripts(MODES[7]);
}

/// Only the connection that sets it compresses with zstd, so records of two kinds mix.
#[test]
fn onewrite_with_zstd_answers_as_stock_wal() {
    scripts(MODES[8]);
}

#[test]
fn gathered_answers_as_stock_wal() {
    scripts(GATHERED[0]);
}

#[test]
fn exchange_answers_as_stock_wal() {
    scripts(GATHERED[1]);
}

/// Compares bytes, not answers to SQL: the database file itself, after the same work.
#[test]
fn reserved_bytes_that_are_in_use_come_through_every_layout() {
    let mut random = Random::new(seed("reserved bytes"));
    for page in [512, 4096, 65_536] {
        let work: Vec<String> = (0..40)
            .map(|_| {
                loop {
                    let Step::Run(_, statement) = step(&mut random) else {
                        continue;
                    };
                    let kinds = ["WITH", "UPDATE", "DELETE"];
                    if kinds.iter().any(|kind| statement.starts_with(kind)) {
                        break statement;
                    }
                }
            })
            .collect();
        let directory = tempfile::tempdir().expect("a directory");
        let file = |mode: Option<Mode>, name: &str| {
            let path = directory.path().join(name);
            used_reserved_bytes(&path, page);
            let db = match mode {
                Some(mode) => super::open_in(&path, mode),
                None => {
                    let db = open(&path);
                    sql(&db, "PRAGMA journal_mode=wal");
                    db
                }
            };
            sql(&db, "PRAGMA cache_size=10");
            sql(&db, "PRAGMA wal_autocheckpoint=0");
            for statement in &work {
                sql(&db, statement);
            }
            let log = companion(&path, "-onewrite");
            let escaped = onewrite::log::scan::survey_file(&log).ok().flatten();
            assert_eq!(sql(&db, "PRAGMA integrity_check"), "ok");
            drop(db);
            let mut bytes = std::fs::read(&path).expect("the database");
            // The change counters also count changes of our guard.
            bytes[24..28].fill(0);
            bytes[92..96].fill(0);
            (bytes, escaped.map_or(0, |survey| survey.escaped))
        };
        let (expected, _) = file(None, "stock");
        assert!(
            expected
                .chunks(page as usize)
                .any(|page| page.ends_with(&[0xc5; 24]))
        );
        for mode in MODES {
            let (found, escaped) =
                file(Some(mode), &format!("{}-{}", mode.name, mode.before.len()));
            assert!(found == expected, "{mode:?}, pages of {page}");
            let embeds = mode
                .before
                .iter()
                .any(|pragma| pragma.ends_with("embedded"));
            assert_eq!(escaped > 0, embeds, "{escaped} escaped frames in {mode:?}");
            for suffix in ["", "-onewrite"] {
                let name = format!("{}-{}{suffix}", mode.name, mode.before.len());
                let _ = std::fs::remove_file(directory.path().join(name));
            }
        }
    }
}

/// A database whose pages use their reserved bytes, as a backup from one with fewer reserved bytes
/// would.
fn used_reserved_bytes(path: &Path, page: u32) {
    let db = new_database(path, page);
    sql(
        &db,
        "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM c WHERE i<300) INSERT INTO t(v, \
         w) SELECT i, printf('%.*c', 200, 'a') FROM c",
    );
    drop(db);
    let mut bytes = std::fs::read(path).expect("the database");
    for page in bytes.chunks_exact_mut(page as usize) {
        let tail = page.len() - 24;
        page[tail..].fill(0xc5);
    }
    std::fs::write(path, bytes).expect("the database");
}
