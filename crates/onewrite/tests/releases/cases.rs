//! The kinds of databases that a release leaves, and the rows in them.

use std::collections::BTreeMap;

use rusqlite::Connection;

use super::sql;

/// A mode, and how its log is written.
pub struct Case {
    pub name: &'static str,
    pub mode: &'static str,
    /// Pragmas before the table is made.
    pub before: &'static [&'static str],
    /// Whether it has the large row. Its frames make the packed file larger, so few cases have it.
    has_large: bool,
}

/// How the writer left the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Its last connection was closed.
    Closed,
    /// It was killed with commits in the log.
    Killed,
    /// It was killed in the middle of a checkpoint by block remapping.
    Remapping,
}

impl State {
    pub const ALL: [State; 3] = [State::Closed, State::Killed, State::Remapping];

    pub fn word(self) -> &'static str {
        match self {
            State::Closed => "closed",
            State::Killed => "killed",
            State::Remapping => "remapping",
        }
    }
}

/// Space for the frame header in each page.
const RESERVED: &str = "PRAGMA onewrite_reserve_bytes=24";

const fn case(name: &'static str, mode: &'static str, before: &'static [&'static str]) -> Case {
    Case {
        name,
        mode,
        before,
        has_large: false,
    }
}

const fn with_large(case: Case) -> Case {
    Case {
        has_large: true,
        ..case
    }
}

/// The case whose checkpoints exchange blocks: it is written on an XFS.
pub const EXCHANGE: &str = "onewrite-exchange";

/// The case whose pages use their reserved bytes, so that frames are escaped.
pub const ESCAPED: &str = "waldio-escaped";

pub const CASES: [Case; 19] = [
    case("wal", "wal", &[]),
    with_large(case("direct", "direct", &[])),
    with_large(case(
        "waldio-embedded",
        "waldio",
        &[RESERVED, "PRAGMA onewrite_layout=embedded"],
    )),
    case(
        ESCAPED,
        "waldio",
        &[RESERVED, "PRAGMA onewrite_layout=embedded"],
    ),
    case(
        "waldio-sector",
        "waldio",
        &["PRAGMA onewrite_layout=sector"],
    ),
    case(
        "waldio-page4k",
        "waldio",
        &["PRAGMA onewrite_layout=page4k"],
    ),
    case(
        "waldio-page8k",
        "waldio",
        &["PRAGMA onewrite_layout=page8k"],
    ),
    case(
        "waldio-gathered",
        "waldio",
        &["PRAGMA onewrite_layout=gathered"],
    ),
    case("swal", "swal", &[]),
    case("swal-zstd", "swal", &["PRAGMA onewrite_compression=zstd"]),
    case("swal-none", "swal", &["PRAGMA onewrite_compression=none"]),
    with_large(case("onewrite", "onewrite", &[])),
    case(
        "onewrite-lz4",
        "onewrite",
        &["PRAGMA onewrite_compression=lz4"],
    ),
    case(
        "onewrite-zstd",
        "onewrite",
        &["PRAGMA onewrite_compression=zstd"],
    ),
    case(
        "onewrite-none",
        "onewrite",
        &["PRAGMA onewrite_compression=none"],
    ),
    case(
        "onewrite-bytes",
        "onewrite",
        &["PRAGMA onewrite_goal=bytes"],
    ),
    case(
        "onewrite-whole",
        "onewrite",
        &["PRAGMA onewrite_differences=off"],
    ),
    case(
        "onewrite-small-pages",
        "onewrite",
        &["PRAGMA page_size=1024"],
    ),
    with_large(case(
        EXCHANGE,
        "onewrite",
        &[
            "PRAGMA onewrite_checkpoint=exchange",
            "PRAGMA onewrite_init=unwritten",
        ],
    )),
];

impl Case {
    pub fn named(name: &str) -> Option<&'static Case> {
        CASES.iter().find(|case| case.name == name)
    }

    pub fn states(&self) -> &'static [State] {
        match self.name == EXCHANGE {
            true => &State::ALL,
            false => &[State::Closed, State::Killed],
        }
    }

    /// The transaction with this number, from 1: it adds a row and changes one.
    pub fn transaction(&self, db: &Connection, n: u32) {
        let added = (n, format!("row {n}"), self.content(n, n));
        let changed = (self.content(changed_by(n), n), changed_by(n));
        let done = (|| {
            db.execute_batch("BEGIN IMMEDIATE")?;
            db.execute("INSERT INTO t VALUES(?1, ?2, ?3)", added)?;
            db.execute("UPDATE t SET data = ?1 WHERE id = ?2", changed)?;
            db.execute_batch("COMMIT")
        })();
        done.unwrap_or_else(|e| panic!("transaction {n}: {e}"));
    }

    /// The database has exactly the rows of the transactions 1 to `last`.
    pub fn check(&self, db: &Connection, last: u32) {
        let mut expected = BTreeMap::new();
        for n in 1..=last {
            expected.insert(n, (format!("row {n}"), self.content(n, n)));
            if let Some((_, data)) = expected.get_mut(&changed_by(n)) {
                *data = self.content(changed_by(n), n);
            }
        }
        let mut statement = db.prepare("SELECT id, name, data FROM t").expect("a query");
        let found = statement
            .query_map((), |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))
            .and_then(Iterator::collect::<rusqlite::Result<BTreeMap<u32, (String, String)>>>)
            .unwrap_or_else(|e| panic!("the rows: {e}"));
        assert!(found.keys().eq(expected.keys()), "{:?}", found.keys());
        for (id, row) in &expected {
            assert!(found.get(id) == Some(row), "row {id} is another");
        }
        assert_eq!(sql(db, "PRAGMA integrity_check"), "ok");
    }

    /// A row as a transaction wrote it. It repeats a few words, so that the packed files are small.
    fn content(&self, id: u32, by: u32) -> String {
        let bytes = match id {
            LARGE if self.has_large => 270_000,
            id if id % 10 == 0 => 6_000,
            id => 100 + id as usize * 37 % 400,
        };
        let words = format!("row {id} by {by}, ");
        words.repeat(bytes / words.len())
    }

    /// Whether stock SQLite may not use a killed one before recovery.
    pub fn is_guarded(&self) -> bool {
        !matches!(self.mode, "wal" | "direct")
    }

    /// The name of its file.
    pub fn file(&self, state: State) -> String {
        format!("{}.{}.zst", self.name, state.word())
    }
}

/// Transactions that every database has.
pub const TRANSACTIONS: u32 = 20;

/// After this one the log starts again, with old frames behind the new ones.
pub const RESTARTS_AT: u32 = 12;

/// This row has more pages than the engine collects in memory.
const LARGE: u32 = 15;

/// The row that a transaction changes.
fn changed_by(n: u32) -> u32 {
    n / 3 + 1
}

pub fn make_table(db: &Connection) {
    sql(
        db,
        "CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT UNIQUE, data TEXT)",
    );
}
