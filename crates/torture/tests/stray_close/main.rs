//! A program closes a file of a database without SQLite: a copy, a backup library, a read of the
//! header. POSIX drops the locks that SQLite holds on the file. Our locks must hold.

#[path = "../common/mod.rs"]
mod common;
mod forked;
mod in_transactions;
mod program;

use program::{Kind, Library, Program};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A journal mode, and the suffix of its log.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Mode {
    name: &'static str,
    log: &'static str,
}

const WAL: Mode = Mode {
    name: "wal",
    log: "-wal",
};
/// Modes with a log and a wal-index.
const LOGGED: [Mode; 5] = [
    WAL,
    Mode {
        name: "direct",
        log: "-wal",
    },
    Mode {
        name: "waldio",
        log: "-onewrite",
    },
    Mode {
        name: "onewrite",
        log: "-onewrite",
    },
    Mode {
        name: "swal",
        log: "-onewrite",
    },
];
const ROLLBACK: [&str; 3] = ["delete", "truncate", "persist"];

impl Mode {
    fn is_guarded(self) -> bool {
        self.log == "-onewrite"
    }

    /// The files of a database that a program may close, by their suffixes.
    fn files(self) -> [&'static str; 3] {
        ["", "-shm", self.log]
    }
}

struct Fixture {
    directory: TempDir,
}

impl Fixture {
    fn new() -> Fixture {
        Fixture {
            directory: tempfile::tempdir().expect("a temporary directory"),
        }
    }

    fn database(&self) -> PathBuf {
        self.file("")
    }

    fn file(&self, suffix: &str) -> PathBuf {
        self.directory.path().join(format!("app.db{suffix}"))
    }
}

/// A process with a database of five rows.
fn five_rows(library: Library, mode: &str, database: &Path) -> Program {
    let mut writer = Program::with(library, Kind::Ours, database);
    assert_eq!(writer.must(&format!("PRAGMA journal_mode={mode}")), mode);
    writer.must("PRAGMA synchronous=FULL");
    writer.must("CREATE TABLE t(id INTEGER PRIMARY KEY)");
    insert_five(&mut writer);
    writer
}

fn insert_five(writer: &mut Program) {
    for _ in 0..5 {
        writer.must("INSERT INTO t DEFAULT VALUES");
    }
}

/// Checks the rows for a process that opens the database after all others are gone.
fn assert_rows(kind: Kind, database: &Path, rows: u32, what: &str) {
    let mut reader = Program::with(Library::Linked, kind, database);
    assert_eq!(
        reader.sql("SELECT count(*) FROM t"),
        rows.to_string(),
        "{what}"
    );
    assert_eq!(reader.must("PRAGMA integrity_check"), "ok", "{what}");
    reader.close();
}

/// Opens the database, reads, and closes it as if it were the last one.
fn visit(library: Library, kind: Kind, mode: Mode, database: &Path, what: &str) {
    let mut visitor = Program::with(library, kind, database);
    let seen = visitor.sql("SELECT count(*) FROM t");
    if kind == Kind::Stock && mode.is_guarded() {
        assert!(seen.contains("not a database"), "{what}: {seen}");
    } else {
        assert_eq!(seen, "5", "{what}");
    }
    visitor.close();
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum End {
    Kill,
    Close,
}

/// A has five rows and closes a file without SQLite; B opens, reads and closes; A commits five
/// more.
fn all_ten_are_there(library: Library, mode: Mode) {
    for suffix in mode.files() {
        for kind in [Kind::Ours, Kind::Stock] {
            for end in [End::Kill, End::Close] {
                let what = format!("{library:?}, {mode:?}, {suffix:?}, {kind:?}, {end:?}");
                let fixture = Fixture::new();
                let database = fixture.database();
                let mut writer = five_rows(library, mode.name, &database);
                writer.stray(&fixture.file(suffix));
                visit(library, kind, mode, &database, &what);
                insert_five(&mut writer);
                match end {
                    End::Kill => writer.kill(),
                    End::Close => writer.close(),
                }
                if !mode.is_guarded() {
                    assert_rows(Kind::Stock, &database, 10, &what);
                }
                assert_rows(Kind::Ours, &database, 10, &what);
            }
        }
    }
}

fn with_both(work: impl Fn(Library)) {
    for library in Library::present() {
        work(library);
    }
}

#[test]
fn all_ten_are_there_in_wal() {
    with_both(|library| all_ten_are_there(library, LOGGED[0]));
}

#[test]
fn all_ten_are_there_in_direct() {
    with_both(|library| all_ten_are_there(library, LOGGED[1]));
}

#[test]
fn all_ten_are_there_in_waldio() {
    with_both(|library| all_ten_are_there(library, LOGGED[2]));
}

#[test]
fn all_ten_are_there_in_onewrite() {
    with_both(|library| all_ten_are_there(library, LOGGED[3]));
}

#[test]
fn all_ten_are_there_in_swal() {
    with_both(|library| all_ten_are_there(library, LOGGED[4]));
}

/// A reader closes a file without SQLite; then two writers come and go.
#[test]
fn a_reader_sees_what_is_committed_after_its_stray_close() {
    with_both(|library| {
        for mode in LOGGED {
            for suffix in mode.files() {
                let what = format!("{library:?}, {mode:?}, {suffix:?}");
                let fixture = Fixture::new();
                let database = fixture.database();
                five_rows(library, mode.name, &database).close();
                let mut reader = Program::with(library, Kind::Ours, &database);
                assert_eq!(reader.must("SELECT count(*) FROM t"), "5", "{what}");
                reader.stray(&fixture.file(suffix));
                for rows in [10, 15] {
                    let mut writer = Program::with(library, Kind::Ours, &database);
                    insert_five(&mut writer);
                    writer.close();
                    let seen = reader.sql("SELECT count(*) FROM t");
                    assert_eq!(seen, rows.to_string(), "{what}");
                }
                reader.close();
                assert_rows(Kind::Ours, &database, 15, &what);
            }
        }
    });
}

#[test]
fn the_status_says_how_locks_are_held() {
    with_both(|library| {
        let fixture = Fixture::new();
        let mut writer = five_rows(library, "onewrite", &fixture.database());
        let status = writer.must("PRAGMA onewrite_status");
        assert!(
            status.contains(r#""locks":"ofd","locks_why_not":null"#),
            "{status}"
        );
    });
}

/// A program loads the extension when it has the database already open, as a stock one.
#[test]
fn a_program_that_loads_it_late_works_and_sees_the_reason() {
    with_both(|library| {
        let fixture = Fixture::new();
        let database = fixture.database();
        let mut program = Program::with(library, Kind::Stock, &database);
        program.must("PRAGMA journal_mode=wal");
        program.must("CREATE TABLE t(id INTEGER PRIMARY KEY)");
        program.say("load");
        program.open("onewrite", &database);
        insert_five(&mut program);
        let status = program.must("PRAGMA onewrite_status");
        assert!(status.contains(r#""locks":"posix""#), "{status}");
        assert!(status.contains("before onewrite was loaded"), "{status}");
        program.must("BEGIN IMMEDIATE");
        let mut other = Program::with(library, Kind::Stock, &database);
        let refused = other.sql("INSERT INTO t DEFAULT VALUES");
        assert_eq!(refused, "ERROR database is locked");
        program.must("COMMIT");
        other.must("INSERT INTO t DEFAULT VALUES");
        other.close();
        // Both connections of the program are closed, so none of the old locks is left.
        program.close();
        assert_eq!(program.must("SELECT count(*) FROM t"), "6");
        program.close();
        program.open("onewrite", &database);
        assert_eq!(program.must("SELECT count(*) FROM t"), "6");
        let status = program.must("PRAGMA onewrite_status");
        assert!(status.contains(r#""locks":"ofd""#), "{status}");
        program.stray(&database);
        visit_and_leave(library, &database);
        insert_five(&mut program);
        program.kill();
        assert_rows(Kind::Stock, &database, 11, "loaded late");
    });
}

fn visit_and_leave(library: Library, database: &Path) {
    let mut visitor = Program::with(library, Kind::Stock, database);
    visitor.must("SELECT count(*) FROM t");
    visitor.close();
}
