//! `onewrite detach`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use onewrite_iotrace::scratch::{Mounted, private_mounts};
use rusqlite::{Connection, OpenFlags};

use super::writer::{FOUR_COMMITS, Then, Writer};
use super::{companion, lossy, number, onewrite, run, snapshot, stock};

struct Case {
    directory: tempfile::TempDir,
    database: PathBuf,
}

impl Case {
    fn new() -> Case {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Case {
            database: directory.path().join("test.db"),
            directory,
        }
    }

    /// A database whose writer was killed after four commits.
    fn killed() -> Case {
        let case = Case::new();
        Writer::start(
            &case.database,
            "waldio",
            "embedded",
            FOUR_COMMITS,
            Then::Wait,
        )
        .kill();
        case
    }

    fn log(&self) -> PathBuf {
        companion(&self.database, "-onewrite")
    }

    /// The log that was set aside.
    fn kept(&self) -> PathBuf {
        let entries = fs::read_dir(self.directory.path()).expect("a directory");
        let mut paths = entries.map(|entry| entry.expect("an entry").path());
        let kept = paths.find(|path| path.to_string_lossy().contains("-onewrite-orphan-"));
        kept.expect("it is kept")
    }

    fn detach(&self, more: &[&str]) -> Output {
        let database = self.database.to_str().expect("a path in UTF-8");
        run(onewrite(&[&["detach", database], more].concat()))
    }

    fn detached(&self, more: &[&str]) -> String {
        let output = self.detach(more);
        let (out, err) = (lossy(&output.stdout), lossy(&output.stderr));
        assert!(output.status.success(), "{out}{err}");
        assert!(out.contains("integrity_check: ok"), "{out}");
        self.check_is_stock();
        out
    }

    /// It fails, and no file has changed. Returns its message.
    fn refused(&self, more: &[&str]) -> String {
        let before = snapshot(self.directory.path());
        let output = self.detach(more);
        assert_eq!(output.status.code(), Some(1), "{}", lossy(&output.stdout));
        assert_eq!(snapshot(self.directory.path()), before);
        lossy(&output.stderr)
    }

    /// Not guarded, and with no file next to it except stock SQLite's own.
    fn check_is_stock(&self) {
        let header = header(&self.database);
        assert_eq!((header[18], header[19]), (2, 2));
        assert_eq!(header[72..80], [0; 8]);
        assert_eq!(
            header[24..28],
            header[92..96],
            "the change counter's two copies"
        );
        let entries = fs::read_dir(self.directory.path()).expect("a directory");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let is_kept = |name: &std::ffi::OsString| {
            let name = name.to_string_lossy();
            name.starts_with("test.db-onewrite-orphan-")
        };
        let own: Vec<_> = names.filter(|name| !is_kept(name)).collect();
        assert_eq!(own, ["test.db"]);
    }
}

fn header(database: &Path) -> Vec<u8> {
    let mut bytes = fs::read(database).expect("a database");
    bytes.truncate(100);
    bytes
}

fn counter(header: &[u8]) -> u32 {
    u32::from_be_bytes([header[24], header[25], header[26], header[27]])
}

#[test]
fn after_a_kill_every_acknowledged_row_is_in_a_stock_database() {
    for (mode, layout) in [
        ("waldio", "embedded"),
        ("waldio", "page8k"),
        ("direct", "embedded"),
    ] {
        let case = Case::new();
        let mut writer = Writer::start(&case.database, mode, layout, FOUR_COMMITS, Then::Insert);
        while writer.next_row() < 100 {}
        let last = writer.kill();
        assert_eq!(header(&case.database)[19] == 0xa1, mode == "waldio");
        let told = case.detached(&[]);
        assert!(
            told.contains("recovered") && told.contains("to the database"),
            "{told}"
        );
        let connection = stock(&case.database).expect("a stock database");
        let rows = number(&connection, "SELECT count(*) FROM t");
        assert!(rows >= last.max(100), "{rows} rows, {last} acknowledged");
        assert_eq!(number(&connection, "SELECT max(id) FROM t"), rows);
    }
}

#[test]
fn what_it_says_it_recovered_is_what_the_log_held() {
    let case = Case::killed();
    let (found, _) = super::inspect_json(&case.log(), &[]);
    let told = case.detached(&[]);
    let frames = &found["log"]["committed"]["frame"];
    assert!(
        told.contains(&format!("recovered {frames} frames of 4 transactions")),
        "{told}"
    );
    let pages = &found["log"]["totals"]["distinct_pages"];
    assert!(told.contains(&format!("wrote {pages} page")), "{told}");
}

/// In `direct` the log is SQLite's own, which has another lock.
#[test]
fn while_it_is_in_use_nothing_is_done_in_any_mode() {
    for mode in ["onewrite", "swal", "direct"] {
        let case = Case::new();
        let _writer = Writer::start(&case.database, mode, "auto", FOUR_COMMITS, Then::Wait);
        let why = case.refused(&[]);
        assert!(why.contains("in use"), "{mode}: {why}");
    }
}

#[test]
fn while_it_is_in_use_nothing_is_done() {
    let case = Case::new();
    let layout = "embedded";
    let writer = Writer::start(&case.database, "waldio", layout, FOUR_COMMITS, Then::Wait);
    for more in [&[][..], &["--discard"]] {
        let why = case.refused(more);
        assert!(why.contains("in use"), "{why}");
    }
    writer.finish();
    // It closed cleanly, and the log only remembers the mode.
    assert_eq!(header(&case.database)[19], 2);
    case.detached(&[]);
    assert_eq!(
        number(
            &stock(&case.database).expect("a database"),
            "SELECT count(*) FROM t"
        ),
        3
    );
}

#[test]
fn a_missing_log_is_given_up_only_on_request() {
    let case = Case::killed();
    fs::remove_file(case.log()).expect("the log");
    let why = case.refused(&[]);
    assert!(
        why.contains("missing") && why.contains("--discard"),
        "{why}"
    );
    let before = counter(&header(&case.database));
    let told = case.detached(&["--discard"]);
    assert!(told.contains("without the log"), "{told}");
    assert!(
        counter(&header(&case.database)) > before,
        "idle connections must notice"
    );
}

#[test]
fn the_json_document_says_what_was_done() {
    let json = |case: &Case, more: &[&str]| -> serde_json::Value {
        let output = case.detach(&[&["--json"], more].concat());
        let err = lossy(&output.stderr);
        assert!(output.status.success(), "{err}");
        serde_json::from_slice(&output.stdout).expect("one JSON document")
    };
    let case = Case::killed();
    let said = json(&case, &[]);
    assert_eq!(said["version"], 1);
    assert_eq!(said["done"], "recovered");
    assert_eq!(said["recovered"]["transactions"], 4);
    assert_eq!(said["recovered"]["dropped_frames"], 0);
    assert_eq!(said["given_up"], serde_json::Value::Null);
    assert_eq!(said["journal_mode"], "wal");
    assert_eq!(said["integrity_check"], "ok");
    case.check_is_stock();
    let said = json(&case, &[]);
    assert_eq!(said["done"], "nothing");
    assert_eq!(said["recovered"], serde_json::Value::Null);
    let case = Case::killed();
    fs::remove_file(case.log()).expect("the log");
    let said = json(&case, &["--discard"]);
    assert_eq!(said["done"], "discarded");
    assert_eq!(said["given_up"]["was_guarded"], true);
    assert_eq!(said["given_up"]["frames"], serde_json::Value::Null);
    let why = said["given_up"]["why"].as_str();
    assert!(why.is_some_and(|why| why.contains("missing")), "{why:?}");
}

#[test]
fn while_it_is_in_use_a_missing_log_is_not_given_up() {
    let case = Case::new();
    let layout = "embedded";
    let writer = Writer::start(&case.database, "waldio", layout, FOUR_COMMITS, Then::Wait);
    fs::remove_file(case.log()).expect("the log");
    let why = case.refused(&["--discard"]);
    assert!(why.contains("in use"), "{why}");
    drop(writer);
    case.detached(&["--discard"]);
}

#[test]
fn a_log_is_not_given_up_while_stock_sqlite_would_replay_another() {
    for suffix in ["-wal", "-journal"] {
        let case = Case::killed();
        let log = fs::read(case.log()).expect("the log");
        fs::write(companion(&case.database, suffix), "something").expect("a file");
        // It is also refused with its log: SQLite would read the other one afterwards.
        assert!(case.refused(&[]).contains(suffix));
        fs::remove_file(case.log()).expect("the log");
        let why = case.refused(&["--discard"]);
        assert!(
            why.contains(suffix) && why.contains("rename that file"),
            "{why}"
        );
        fs::remove_file(companion(&case.database, suffix)).expect("the file");
        fs::write(case.log(), log).expect("the log");
        case.detached(&[]);
    }
}

#[test]
fn the_log_of_another_database_is_never_replayed() {
    let (case, other) = (Case::killed(), Case::killed());
    fs::copy(other.log(), case.log()).expect("a copy");
    let why = case.refused(&[]);
    assert!(why.contains("belongs to another database"), "{why}");
    let log = fs::read(case.log()).expect("the log");
    let told = case.detached(&["--discard"]);
    assert!(told.contains("frames of 4 transactions"), "{told}");
    let kept = case.kept();
    assert!(
        told.contains(&format!("onewrite salvage {} -o", kept.display())),
        "{told}"
    );
    let whole = fs::read(&kept).expect("the log");
    assert_eq!(whole[..32768], log[..32768], "it is kept as it was");
    let connection = stock(&case.database).expect("a stock database");
    assert_eq!(number(&connection, "SELECT count(*) FROM sqlite_schema"), 0);
}

#[test]
fn a_damaged_log_is_given_up_only_on_request() {
    let case = Case::killed();
    let mut log = fs::read(case.log()).expect("the log");
    log[40] ^= 1;
    fs::write(case.log(), log).expect("the log");
    let why = case.refused(&[]);
    assert!(
        why.contains("CRC-32C") && why.contains("--discard"),
        "{why}"
    );
    case.detached(&["--discard"]);
    assert!(case.kept().is_file(), "a damaged one may be of use");
}

#[test]
fn a_log_of_a_newer_version_is_left_to_a_newer_onewrite() {
    let case = Case::killed();
    let mut log = fs::read(case.log()).expect("the log");
    super::make_newer(&mut log);
    fs::write(case.log(), log).expect("the log");
    for more in [&[][..], &["--discard"]] {
        let why = case.refused(more);
        assert!(why.contains("newer onewrite"), "{why}");
    }
}

#[test]
fn a_log_that_can_be_recovered_is_not_discarded() {
    let case = Case::killed();
    let told = case.detached(&["--discard"]);
    assert!(told.contains("not needed"), "{told}");
    assert_eq!(
        number(
            &stock(&case.database).expect("a database"),
            "SELECT count(*) FROM t"
        ),
        3
    );
}

#[test]
fn a_log_left_by_another_database_of_that_name_is_set_aside_on_request() {
    let case = Case::killed();
    fs::remove_file(&case.database).expect("the database");
    let sql = "PRAGMA journal_mode=wal; CREATE TABLE other(a); INSERT INTO other VALUES(7);";
    let connection = rusqlite::Connection::open(&case.database).expect("a database");
    connection.execute_batch(sql).expect("stock SQLite");
    drop(connection);
    let _ = fs::remove_file(companion(&case.database, "-shm"));
    let why = case.refused(&[]);
    assert!(why.contains("another database"), "{why}");
    case.detached(&["--discard"]);
    assert_eq!(
        number(
            &stock(&case.database).expect("a database"),
            "SELECT a FROM other"
        ),
        7
    );
    let saved = case.directory.path().join("saved.db");
    let words = [&case.kept(), &saved].map(|path| path.to_str().expect("UTF-8").to_owned());
    let output = run(onewrite(&["salvage", &words[0], "-o", &words[1]]));
    assert!(output.status.success(), "{}", lossy(&output.stderr));
    assert_eq!(
        number(&stock(&saved).expect("it"), "SELECT count(*) FROM t"),
        3
    );
}

#[test]
fn a_log_that_was_never_written_is_removed() {
    for bytes in [&[][..], &[0; 8192]] {
        let case = Case::new();
        let connection = rusqlite::Connection::open(&case.database).expect("a database");
        let sql = "PRAGMA journal_mode=wal; CREATE TABLE t(a)";
        connection.execute_batch(sql).expect("stock SQLite");
        drop(connection);
        fs::write(case.log(), bytes).expect("the log");
        case.detached(&[]);
    }
}

#[test]
fn the_wish_of_the_environment_does_not_bring_the_mode_back() {
    for missing in [false, true] {
        let case = Case::killed();
        if missing {
            fs::remove_file(case.log()).expect("the log");
        }
        let database = case.database.to_str().expect("a path in UTF-8");
        let mut command = onewrite(&["detach", "--discard", database]);
        command
            .env("ONEWRITE_JOURNAL_MODE", "waldio")
            .env("ONEWRITE_UPGRADE_WAL", "1")
            .env("ONEWRITE_MAKE_DEFAULT", "1");
        let output = run(command);
        assert!(output.status.success(), "{}", lossy(&output.stderr));
        case.check_is_stock();
    }
}

#[test]
fn what_is_no_database_of_ours_is_left_alone() {
    let case = Case::new();
    fs::write(&case.database, "no database").expect("a file");
    assert!(case.refused(&[]).contains("not a database"));
    fs::remove_file(&case.database).expect("the file");
    assert!(
        case.refused(&["--discard"])
            .contains("there is no such file")
    );
    let connection = rusqlite::Connection::open(&case.database).expect("a database");
    connection
        .execute_batch("CREATE TABLE t(a)")
        .expect("stock SQLite");
    drop(connection);
    let before = snapshot(case.directory.path());
    let output = case.detach(&["--discard"]);
    assert!(output.status.success());
    assert!(lossy(&output.stdout).contains("stock database already"));
    assert_eq!(snapshot(case.directory.path()), before);
}

/// The database is refused with the reason and the way out, and our mode opens it as before.
#[test]
fn on_a_full_file_system_it_says_so_and_our_mode_opens_the_database_afterwards() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: takes root");
        return;
    }
    private_mounts().expect("a mount namespace");
    // Rows that a checkpoint has no room for.
    let sql =
        format!("{FOUR_COMMITS} CREATE TABLE u(a); INSERT INTO u VALUES(randomblob(400000));");
    for mode in ["onewrite", "waldio", "direct"] {
        let case = Case::new();
        Writer::start(&case.database, mode, "auto", &sql, Then::Wait).kill();
        let closed = Case::new();
        Writer::start(&closed.database, mode, "auto", &sql, Then::Wait).finish();
        for (from, suffixes) in [
            (
                &case,
                &[
                    "",
                    "-onewrite",
                    "-wal",
                    "-shm",
                    "-onewrite-shm",
                    "-onewrite-lock",
                ][..],
            ),
            (&case, &["", "-onewrite", "-wal"]),
            (&closed, &["", "-onewrite"]),
        ] {
            let small = Case::new();
            let size = Some(c"size=9m");
            let place = small.directory.path();
            let mounted = Mounted::with_options(Path::new("onewrite-test"), place, "tmpfs", size);
            let mounted = mounted.expect("a file system");
            for suffix in suffixes {
                let file = companion(&from.database, suffix);
                if file.exists() {
                    fs::copy(file, companion(&small.database, suffix)).expect("a copy");
                }
            }
            let was_guarded = header(&small.database)[19] == 0xa1;
            fill(&place.join("fill"));
            let output = small.detach(&[]);
            let said = lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{mode} {suffixes:?}: {said}");
            for words in [
                "test.db: ",
                "left on its file system",
                "free some, and run this again",
            ] {
                assert!(said.contains(words), "{mode} {suffixes:?}: {words}: {said}");
            }
            assert_eq!(header(&small.database)[19] == 0xa1, was_guarded);
            fs::remove_file(place.join("fill")).expect("the file");
            rows_through_our_mode(&small.database, mode);
            let told = small.detach(&[]);
            assert!(told.status.success(), "{}", lossy(&told.stderr));
            mounted.unmount().expect("unmounted");
        }
    }
}

/// Writes a file until no space is left.
fn fill(path: &Path) {
    use std::io::Write;
    let mut file = fs::File::create(path).expect("a file");
    while file.write_all(&[1; 4096]).is_ok() {}
}

fn rows_through_our_mode(database: &Path, mode: &str) {
    onewrite::register().expect("the VFS");
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let ours = Connection::open_with_flags_and_vfs(database, flags, onewrite::VFS_NAME);
    let ours = ours.expect("a database");
    let rows = [
        number(&ours, "SELECT count(*) FROM t"),
        number(&ours, "SELECT count(*) FROM u"),
    ];
    assert_eq!(rows, [3, 1], "{mode}");
    let used: String = ours
        .query_row("PRAGMA journal_mode", [], |row| row.get(0))
        .expect("the mode");
    assert_eq!(used, mode);
    ours.close().map_err(|(_, e)| e).expect("a clean close");
}
