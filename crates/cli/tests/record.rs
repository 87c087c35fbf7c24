//! `onewrite record`, `replay` and `run` on programs: what is recorded comes to the same in all modes.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Once;

use common::{path, text};
use serde_json::Value;

/// `onewrite` with these words, the libraries beside it.
fn onewrite(words: &[&str]) -> Output {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        // A build of one package has other features than one of all, and would change the libraries
        // under other tests: only where the whole workspace was not built before.
        if std::env::var_os("ONEWRITE_BUILT").is_none() {
            let packages = ["build", "-p", "onewrite-preload", "-p", "onewrite"];
            let built = Command::new(env!("CARGO")).args(packages).status();
            assert!(built.expect("cargo").success());
        }
    });
    Command::new(env!("CARGO_BIN_EXE_onewrite"))
        .args(words)
        .output()
        .expect("the command")
}

/// A Python with a dynamically linked SQLite, and what is installed for it.
fn python() -> Option<PathBuf> {
    let told = std::env::var_os("ONEWRITE_PYTHON").map(PathBuf::from);
    let names = told
        .into_iter()
        .chain(["/usr/bin/python3".into(), "python3".into()]);
    let check = "import _sqlite3; m = open('/proc/self/maps').read(); assert 'libsqlite3.so' in m";
    let found = names.into_iter().find(|name| {
        let tried = Command::new(name).args(["-c", check]).output();
        tried.is_ok_and(|output| output.status.success())
    });
    if found.is_none() {
        println!("SKIPPED: no python3 with a dynamically linked SQLite");
    }
    found
}

/// Records a program that gets the database's path as its last word, in a directory.
fn record(dir: &Path, program: &[&str]) -> PathBuf {
    let (trace, database) = (dir.join("app.trace"), dir.join("app.db"));
    let words = [
        &["record", "-o", path(&trace), "--"],
        program,
        &[path(&database)],
    ]
    .concat();
    let output = onewrite(&words);
    assert!(
        output.status.success(),
        "{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    trace
}

/// Replays a trace in a directory, and returns the document.
fn replay(dir: &Path, trace: &Path, modes: &str) -> Value {
    let words = [
        "replay",
        path(trace),
        "--modes",
        modes,
        "--dir",
        path(dir),
        "--json",
    ];
    let output = onewrite(&words);
    let document: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    assert_eq!(output.status.success(), is_right(&document), "{document:#}");
    document
}

fn is_right(document: &Value) -> bool {
    document["same_in_all_modes"] == true && document["same_as_recorded"] != false
}

const ALL: &str = "delete,truncate,wal,direct,waldio,swal,onewrite";

/// Values of every type, a cursor that is read while its table is written, a refused row, several
/// databases, what is random and what is the time, all of Python's ways to send statements.
const APPLICATION: &str = r#"
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.executescript("CREATE TABLE t (id INTEGER PRIMARY KEY, a, at DEFAULT CURRENT_TIMESTAMP); CREATE INDEX i ON t (a);")
for n in range(40):
    db.execute("INSERT INTO t (a) VALUES (?)", ([None, n, n / 7, "text \u00e9 %d" % n, bytes([n] * n)][n % 5],))
    if n % 4 == 0:
        db.commit()
db.commit()
for row in db.execute("SELECT id FROM t WHERE id < 20"):
    db.execute("UPDATE t SET a = ? WHERE id = ?", ("changed", row[0] + 15))
db.rollback()
db.execute("ATTACH ? AS other", (sys.argv[1] + ".other",))
db.execute("CREATE TABLE other.o AS SELECT id, a, at FROM t")
db.execute("DETACH other")
try:
    db.execute("INSERT INTO t (id) VALUES (1)")
except sqlite3.IntegrityError as error:
    print(error)
db.execute("INSERT INTO t (a) SELECT hex(randomblob(8)) FROM t")
db.commit()
print(db.execute("SELECT count(*), datetime('now') > '2020' FROM t").fetchone())
half = db.execute("SELECT id FROM t")
half.fetchone()
other = sqlite3.connect(sys.argv[1])
print(other.execute("SELECT typeof(a), count(*) FROM t GROUP BY 1").fetchall())
half.close()
other.close()
db.close()
"#;

#[test]
fn a_program_comes_to_the_same_in_every_mode() {
    let Some(python) = python() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let trace = record(dir.path(), &[path(&python), "-c", APPLICATION]);
    let document = replay(dir.path(), &trace, ALL);
    assert_eq!(document["same_in_all_modes"], true, "{document:#}");
    let runs = document["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 7);
    for run in runs {
        // randomblob's rows are in the first database; the other has what was recorded.
        let databases = run["checked"]["databases"].as_array().expect("databases");
        assert_eq!(databases.len(), 2, "{run:#}");
        assert_eq!(databases[1]["same_as_recorded"], true, "{run:#}");
        let differ = &run["checked"]["differ_from_recorded"];
        assert_eq!(differ["count"], differ["expected"], "{run:#}");
        assert!(
            run["checked"]["compared_with_recorded"].as_u64() > Some(50),
            "{run:#}"
        );
        assert_eq!(run["statements"], runs[0]["statements"]);
        assert_eq!(run["commits"], runs[0]["commits"]);
    }
}
