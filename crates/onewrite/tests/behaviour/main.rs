//! The behavior that an application sees: the same as with stock WAL, except timing.

mod at_rest;
mod checkpoints;
mod child;
mod closing;
mod compare;
mod damage;
mod deletion;
mod dropped;
mod floor;
mod full;
mod grouping;
mod idle_stock;
mod limits;
mod metrics;
mod normal;
mod orphan;
mod permissions;
mod places;
#[path = "../common/random.rs"]
mod random;
mod readonly;
mod recovering;
mod reference;
mod replaced;
mod requested;
#[path = "../common/rows.rs"]
mod rows;
#[path = "../common/scratch.rs"]
mod scratch;
mod settings;
mod several;
mod switching;
mod taken;

use onewrite_common::files::companion;
use rusqlite::{Connection, OpenFlags};
use std::ffi::CString;
use std::path::Path;
use std::time::Duration;

/// One of our modes, and the settings that make a database ready for it.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Mode {
    name: &'static str,
    /// Pragmas to run before entering the mode.
    before: &'static [&'static str],
}

const MODES: [Mode; 10] = [
    Mode {
        name: "waldio",
        before: &["PRAGMA onewrite_layout=embedded"],
    },
    Mode {
        name: "waldio",
        before: &["PRAGMA onewrite_layout=sector"],
    },
    Mode {
        name: "waldio",
        before: &["PRAGMA onewrite_layout=page4k"],
    },
    Mode {
        name: "waldio",
        before: &["PRAGMA onewrite_layout=page8k"],
    },
    Mode {
        name: "direct",
        before: &[],
    },
    Mode {
        name: "swal",
        before: &[],
    },
    Mode {
        name: "onewrite",
        before: &[],
    },
    Mode {
        name: "swal",
        before: &[
            "PRAGMA onewrite_compression=none",
            "PRAGMA onewrite_differences=off",
        ],
    },
    Mode {
        name: "onewrite",
        before: &["PRAGMA onewrite_compression=zstd"],
    },
    Mode {
        name: "onewrite",
        before: &["PRAGMA onewrite_goal=bytes"],
    },
];

/// Modes for pages of whole blocks.
const GATHERED: [Mode; 2] = [
    Mode {
        name: "waldio",
        before: &["PRAGMA onewrite_layout=gathered"],
    },
    Mode {
        name: "onewrite",
        before: &["PRAGMA onewrite_checkpoint=exchange"],
    },
];

/// The modes with a log of their own.
fn guarded() -> impl Iterator<Item = Mode> {
    MODES.into_iter().filter(|mode| mode.name != "direct")
}

/// WALDIO with default settings.
const WALDIO: Mode = Mode {
    name: "waldio",
    before: &[],
};

fn open_flags(path: &Path, vfs: &str, flags: OpenFlags) -> rusqlite::Result<Connection> {
    onewrite::register().expect("the VFS onewrite");
    let vfs = CString::new(vfs).expect("a name");
    let db = Connection::open_with_flags_and_vfs(path, flags, vfs.as_c_str())?;
    // A connection that cannot get a lock reports it at once.
    db.busy_timeout(Duration::ZERO)?;
    Ok(db)
}

fn open(path: &Path) -> Connection {
    open_flags(path, "onewrite", OpenFlags::default()).expect("a connection")
}

fn stock(path: &Path) -> Connection {
    open_flags(path, "unix", OpenFlags::default()).expect("a stock connection")
}

/// Opens a database and switches it to a mode.
fn open_in(path: &Path, mode: Mode) -> Connection {
    let db = open(path);
    for pragma in mode.before {
        sql(&db, pragma);
    }
    let found = sql(&db, &format!("PRAGMA journal_mode={}", mode.name));
    assert_eq!(found, mode.name);
    db
}

/// All rows of a statement, or the error's code. `|` separates columns, a space separates rows.
fn outcome(db: &Connection, statement: &str) -> String {
    rows::query(db, statement).unwrap_or_else(|e| failure(&e))
}

/// The answer that a new connection gets, or its error.
fn answer(path: &Path, statement: &str) -> String {
    match open_flags(path, "onewrite", OpenFlags::default()) {
        Ok(db) => outcome(&db, statement),
        Err(e) => failure(&e),
    }
}

fn failure(e: &rusqlite::Error) -> String {
    match e.sqlite_error() {
        Some(error) => format!("error {}: {e}", error.extended_code),
        None => format!("error: {e}"),
    }
}

/// The rows of a statement that must not fail.
fn sql(db: &Connection, statement: &str) -> String {
    let found = outcome(db, statement);
    assert!(!found.starts_with("error"), "{statement}: {found}");
    found
}

/// The `onewrite_status` of a database.
fn status(db: &Connection) -> serde_json::Value {
    serde_json::from_str(&sql(db, "PRAGMA onewrite_status")).expect("JSON")
}

/// Copies a database and its log as a crash would leave them, without the wal-index.
fn copy(from: &Path, to: &Path) {
    for suffix in ["", "-wal", "-onewrite", "-journal"] {
        let (from, to) = (companion(from, suffix), companion(to, suffix));
        let _ = std::fs::remove_file(&to);
        if from.exists() {
            // Another process copies: closing a descriptor here would drop SQLite's locks.
            let status = std::process::Command::new("cp")
                .args([&from, &to])
                .status()
                .expect("cp");
            assert!(status.success());
        }
    }
    let _ = std::fs::remove_file(companion(to, "-shm"));
}
