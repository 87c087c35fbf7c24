//! `onewrite salvage`. The system's own sqlite3 reads the results.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use onewrite_iotrace::scratch::{Mounted, private_mounts};
use serde_json::{Value, json};

use super::writer::{FOUR_COMMITS, Then, Writer};
use super::{companion, lossy, onewrite, run, snapshot};

const MODES: [(&str, &str); 9] = super::verify::MODES;

struct Case {
    directory: tempfile::TempDir,
    results: tempfile::TempDir,
}

impl Case {
    fn new() -> Case {
        Case {
            directory: tempfile::tempdir().expect("a temporary directory"),
            results: tempfile::tempdir().expect("a temporary directory"),
        }
    }

    fn killed(mode: &str, layout: &str, sql: &str) -> Case {
        let case = Case::new();
        Writer::start(&case.database(), mode, layout, sql, Then::Wait).kill();
        case
    }

    fn database(&self) -> PathBuf {
        self.directory.path().join("test.db")
    }

    fn file(&self, suffix: &str) -> PathBuf {
        companion(&self.database(), suffix)
    }

    /// The file that holds the frames.
    fn log(&self) -> PathBuf {
        let ours = self.file("-onewrite");
        match fs::metadata(&ours).is_ok_and(|log| log.len() > 128) {
            true => ours,
            false => self.file("-wal"),
        }
    }

    fn output(&self) -> PathBuf {
        self.results.path().join("saved.db")
    }

    /// Salvages, and checks that the input is unchanged. Returns the document and the exit code.
    fn salvage(&self, from: &Path, more: &[&str]) -> (Value, i32) {
        let (code, out, err) = self.try_it(from, more);
        let document = serde_json::from_str(&out);
        (
            document.unwrap_or_else(|e| panic!("{e}: {code} {out} {err}")),
            code,
        )
    }

    fn try_it(&self, from: &Path, more: &[&str]) -> (i32, String, String) {
        let before = snapshot(self.directory.path());
        let _ = fs::remove_file(self.output());
        let (from, output) = (from.to_str().expect("UTF-8"), self.output());
        let words = [
            "salvage",
            from,
            "-o",
            output.to_str().expect("UTF-8"),
            "--json",
        ];
        let ended = run(onewrite(&[&words, more].concat()));
        assert_eq!(snapshot(self.directory.path()), before, "it reads only");
        let code = ended.status.code().expect("no signal");
        let made = fs::read_dir(self.results.path())
            .expect("a directory")
            .count();
        assert_eq!(made, usize::from(code < 2), "the result alone, or nothing");
        (code, lossy(&ended.stdout), lossy(&ended.stderr))
    }

    /// Nothing is made; returns the reason.
    fn refused(&self, from: &Path, more: &[&str]) -> String {
        let (code, out, err) = self.try_it(from, more);
        assert_eq!((code, out.as_str()), (2, ""), "{err}");
        err
    }

    /// The answer of the system's own sqlite3 about the result.
    fn ask(&self, sql: &str) -> String {
        let asked = Command::new("sqlite3").arg(self.output()).arg(sql).output();
        let asked = asked.expect("sqlite3 is installed");
        lossy(&asked.stdout).trim().to_owned() + lossy(&asked.stderr).trim()
    }

    fn remove(&self, suffixes: &[&str]) {
        for suffix in suffixes {
            let _ = fs::remove_file(self.file(suffix));
        }
    }
}

/// The content of the result after [`FOUR_COMMITS`].
const WHOLE: &str = "ok\n3|one,two,three\ndelete";
const ASK: &str = "PRAGMA integrity_check; SELECT count(*), group_concat(value) FROM (SELECT * FROM t ORDER BY id);
    PRAGMA journal_mode";

#[test]
fn a_killed_database_comes_to_what_recovery_makes_of_it() {
    let sql = format!(
        "{FOUR_COMMITS} PRAGMA wal_checkpoint(TRUNCATE); CREATE TABLE big(a); CREATE INDEX i ON big(a);
         INSERT INTO big SELECT randomblob(3000) FROM (VALUES(1),(2),(3),(4),(5),(6),(7),(8),(9));
         PRAGMA wal_checkpoint(RESTART); DELETE FROM big WHERE rowid % 2; UPDATE t SET value = 'TWO' WHERE id = 2;"
    );
    for (mode, layout) in MODES {
        let case = Case::killed(mode, layout, &sql);
        let (said, code) = case.salvage(&case.database(), &[]);
        assert_eq!(
            (code, &said["integrity_check"]),
            (0, &json!("ok")),
            "{mode} {layout}: {said:#}"
        );
        assert!(
            said["applied"]["transactions"].as_u64() >= Some(2),
            "{said:#}"
        );
        let saved = case.ask(".dump");
        assert!(saved.contains("TWO"), "{saved}");
        let told = run(onewrite(&[
            "detach",
            case.database().to_str().expect("UTF-8"),
        ]));
        let is_stock = ["direct", "wal"].contains(&mode);
        assert!(told.status.success() || is_stock, "{}", lossy(&told.stderr));
        let recovered = Command::new("sqlite3")
            .arg(case.database())
            .arg(".dump")
            .output();
        assert_eq!(
            saved,
            lossy(&recovered.expect("it").stdout).trim(),
            "{mode} {layout}"
        );
    }
}

#[test]
fn a_log_alone_that_was_never_checkpointed_is_the_whole_database() {
    for (mode, layout) in MODES {
        let case = Case::killed(mode, layout, FOUR_COMMITS);
        let lost = case.directory.path().join("lost.log");
        fs::rename(case.log(), &lost).expect("renamed");
        case.remove(&["", "-onewrite", "-wal", "-shm", "-onewrite-shm"]);
        let (said, code) = case.salvage(&lost, &[]);
        // Page 1 was in the database before it had this mode.
        if said["missing_pages"] == 0 {
            assert_eq!(code, 0, "{mode} {layout}: {said:#}");
            assert_eq!(case.ask(ASK), WHOLE, "{mode} {layout}");
        } else {
            panic!("{mode} {layout}: {said:#}");
        }
    }
}

#[test]
fn a_log_that_was_set_aside_finds_its_database_again() {
    for (mode, layout) in [("onewrite", "auto"), ("waldio", "embedded")] {
        let case = Case::killed(mode, layout, FOUR_COMMITS);
        let (found, _) = super::inspect_json(&case.database(), &[]);
        let id = found["database"]["log_id"]
            .as_str()
            .expect("an id")
            .to_owned();
        let aside = case.file(&format!("-onewrite-orphan-{id}"));
        fs::rename(case.file("-onewrite"), &aside).expect("renamed");
        let (said, code) = case.salvage(&case.database(), &[]);
        assert_eq!((code, &said["proof"]), (0, &json!("id")), "{said:#}");
        assert_eq!(case.ask(ASK), WHOLE);
        fs::rename(&aside, case.file("-onewrite")).expect("renamed");
        let (said, code) = case.salvage(&case.file("-onewrite"), &[]);
        assert_eq!(
            (code, &said["proof"]),
            (0, &json!("id")),
            "by the log's name: {said:#}"
        );
        assert_eq!(case.ask(ASK), WHOLE);
    }
}

/// `cp backup.db app.db` over a killed database.
#[test]
fn a_foreign_log_is_tried_on_request_and_taken_only_where_the_result_is_whole() {
    let case = Case::new();
    let layout = "sector";
    Writer::start(&case.database(), "waldio", layout, FOUR_COMMITS, Then::Wait).finish();
    let copy = fs::read(case.database()).expect("the database");
    let insert = "INSERT INTO t VALUES(4, 'four');";
    Writer::start(&case.database(), "waldio", layout, insert, Then::Wait).kill();
    fs::write(case.database(), &copy).expect("the database");
    let log = case.file("-onewrite");
    let named = ["--log", log.to_str().expect("UTF-8")];
    let (said, code) = case.salvage(&case.database(), &[]);
    assert_eq!(
        (code, &said["applied"]),
        (1, &Value::Null),
        "not used: {said:#}"
    );
    assert!(
        said["notes"][0]
            .as_str()
            .is_some_and(|note| note.contains("--log"))
    );
    assert_eq!(case.ask("SELECT count(*) FROM t"), "3");
    let (said, code) = case.salvage(&case.database(), &named);
    assert_eq!(
        (code, &said["proof"]),
        (1, &json!("integrity_check")),
        "{said:#}"
    );
    assert_eq!(
        case.ask("PRAGMA integrity_check; SELECT count(*) FROM t"),
        "ok\n4"
    );
    // A completely different database.
    let sql = "PRAGMA page_size=4096; CREATE TABLE other(a); CREATE INDEX i ON other(a);
        INSERT INTO other VALUES(zeroblob(9000)); CREATE TABLE more(a); INSERT INTO more VALUES(1)";
    fs::remove_file(case.database()).expect("the database");
    let other = rusqlite::Connection::open(case.database()).expect("a database");
    other.execute_batch(sql).expect("stock SQLite");
    drop(other);
    let why = case.refused(&case.database(), &named);
    assert!(why.contains("not the log of this database"), "{why}");
    let other = rusqlite::Connection::open(case.database()).expect("a database");
    other
        .execute_batch("PRAGMA page_size=1024; VACUUM")
        .expect("stock SQLite");
    drop(other);
    let why = case.refused(&case.database(), &named);
    assert!(why.contains("1024"), "{why}");
}

#[test]
fn without_its_log_the_database_is_as_its_last_checkpoint_left_it() {
    let sql = format!("{FOUR_COMMITS} PRAGMA wal_checkpoint(TRUNCATE); DELETE FROM t;");
    let case = Case::killed("onewrite", "auto", &sql);
    case.remove(&["-onewrite"]);
    let (said, code) = case.salvage(&case.database(), &[]);
    assert_eq!(
        (code, &said["integrity_check"]),
        (1, &json!("ok")),
        "{said:#}"
    );
    assert!(
        said["notes"][0]
            .as_str()
            .is_some_and(|note| note.contains("missing"))
    );
    assert_eq!(case.ask(ASK), WHOLE);
}

#[test]
fn what_stands_behind_a_torn_frame_is_left_out_and_said() {
    for (mode, layout) in [
        ("waldio", "sector"),
        ("waldio", "gathered"),
        ("direct", "auto"),
    ] {
        let case = Case::killed(mode, layout, FOUR_COMMITS);
        let (found, _) = super::inspect_json(&case.log(), &["--all"]);
        let log = if mode == "direct" {
            &found["wal"]
        } else {
            &found["log"]
        };
        let frames = log["frames"].as_array().expect("frames");
        let valid: Vec<_> = frames
            .iter()
            .filter(|frame| frame["state"] == "valid")
            .collect();
        let torn = valid[valid.len() - 2]["offset"].as_u64().expect("a number") as usize;
        let mut bytes = fs::read(case.log()).expect("the log");
        bytes[torn + 500] ^= 1;
        fs::write(case.log(), bytes).expect("the log");
        let (said, code) = case.salvage(&case.database(), &[]);
        assert_eq!(
            (code, &said["applied"]["dropped_transactions"]),
            (1, &json!(2)),
            "{said:#}"
        );
        assert_eq!(said["applied"]["ended_by"]["what"], "checksum-mismatch");
        assert_eq!(
            case.ask("PRAGMA integrity_check; SELECT group_concat(value) FROM t"),
            "ok\none"
        );
    }
}

/// Text and blobs, long ones, every size of integer, NULL, defaults of a later column, computed
/// columns. Also a table without rowids, names in quotes, a view, a trigger, deleted rows.
const ODD: &str = r#"
    CREATE TABLE "odd ""names""(x"(id INTEGER PRIMARY KEY, a, [b c] TEXT, d AS (a + 1), e AS (a * 2) STORED);
    INSERT INTO "odd ""names""(x"(id, a, [b c]) VALUES(1, 0, NULL), (2, -1, 'x'), (-3, 300, 'y'),
        (9223372036854775807, 70000, ''), (5, 20000000, x'00ff'), (6, 5000000000, 'z'), (7, 1e300, 1.5);
    CREATE TABLE wr(k TEXT, n INT, v, PRIMARY KEY(n, k)) WITHOUT ROWID;
    WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < 300)
        INSERT INTO wr SELECT 'key ' || n, n % 7, CASE n % 3 WHEN 0 THEN zeroblob(n * 20) ELSE n END FROM i;
    CREATE TABLE long(a, b);
    INSERT INTO long VALUES(hex(zeroblob(40000)), 'first'), (zeroblob(9), 'second');
    ALTER TABLE long ADD COLUMN c DEFAULT 'added';
    INSERT INTO long VALUES(1, 2, 3);
    CREATE TABLE copy AS SELECT 1 AS one, 'two' AS two;
    CREATE UNIQUE INDEX long_b ON long(b);
    CREATE VIEW v AS SELECT count(*) AS n FROM long;
    CREATE TABLE seen(n); CREATE TRIGGER t_long AFTER INSERT ON long BEGIN INSERT INTO seen VALUES(1); END;
    CREATE TABLE many(id INTEGER PRIMARY KEY, word TEXT, blob BLOB);
    WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < 2000)
        INSERT INTO many SELECT n, 'word ' || n, zeroblob(n % 50) FROM i;
    DELETE FROM many WHERE id BETWEEN 500 AND 1500;"#;

/// The tables of [`ODD`], for comparison.
const TABLES: [&str; 6] = [r#""odd ""names""(x""#, "wr", "long", "copy", "many", "seen"];

#[test]
fn rows_are_recovered_one_by_one_where_a_page_is_damaged() {
    for encoding in ["UTF-8", "UTF-16le", "UTF-16be"] {
        let case = Case::new();
        let sql = format!("PRAGMA encoding='{encoding}'; {ODD}");
        let db = rusqlite::Connection::open(case.database()).expect("a database");
        db.execute_batch(&sql).expect("stock SQLite");
        let content = |db: &rusqlite::Connection, table: &str| {
            let sql = format!("SELECT * FROM {table}");
            let mut statement = db.prepare(&sql).expect(&sql);
            let columns = statement.column_count();
            let rows = statement.query_map([], |row| {
                let value = |at| row.get::<_, rusqlite::types::Value>(at);
                (0..columns).map(value).collect::<Result<Vec<_>, _>>()
            });
            let rows: Result<Vec<_>, _> = rows.expect("rows").collect();
            rows.expect("rows")
        };
        let before = TABLES.map(|table| content(&db, table));
        let root = super::number(
            &db,
            "SELECT rootpage FROM sqlite_schema WHERE name = 'long_b'",
        );
        let size = super::number(&db, "PRAGMA page_size") as usize;
        drop(db);
        // An index is damaged: every row still exists.
        let mut bytes = fs::read(case.database()).expect("the database");
        let whole = bytes.clone();
        bytes[(root as usize - 1) * size..root as usize * size].fill(0xff);
        fs::write(case.database(), &bytes).expect("the database");
        let (said, code) = case.salvage(&case.database(), &[]);
        assert_eq!(
            (code, &said["integrity_check"]),
            (1, &json!("ok")),
            "{said:#}"
        );
        let rows = &said["rows"];
        assert_eq!(
            (&rows["schema"], &rows["lost_and_found"]),
            (&json!(true), &json!(0)),
            "{said:#}"
        );
        assert_eq!(rows["not_made"], json!([]), "{said:#}");
        for table in rows["tables"].as_array().expect("tables") {
            assert_eq!(table["complete"], true, "{said:#}");
        }
        let saved = rusqlite::Connection::open(case.output()).expect("the result");
        assert_eq!(
            TABLES.map(|table| content(&saved, table)),
            before,
            "{encoding}"
        );
        assert_eq!(super::number(&saved, "SELECT n FROM v"), 3);
        drop(saved);
        fs::write(case.database(), &whole).expect("the database");
        assert_eq!(case.salvage(&case.database(), &[]).1, 0);
        // Without page 1 nothing says whose rows they are.
        let tables = |said: &Value| said["rows"]["tables"].as_array().map_or(0, Vec::len);
        let mut bytes = whole.clone();
        bytes[100..size].fill(0);
        fs::write(case.database(), &bytes).expect("the database");
        let (said, code) = case.salvage(&case.database(), &[]);
        assert_eq!(
            (code, tables(&said), &said["rows"]["schema"]),
            (1, 0, &json!(false)),
            "{said:#}"
        );
        let many = "SELECT count(*) FROM lost_and_found WHERE nfield = 3 AND c1 = 'word ' || id";
        assert_eq!(case.ask(many), "999");
    }
}

#[test]
fn a_log_without_the_database_gives_the_rows_of_the_pages_in_it() {
    let sql = "PRAGMA page_size=1024; CREATE TABLE t(id INTEGER PRIMARY KEY, value TEXT);
        WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < 4000)
            INSERT INTO t SELECT n, 'word ' || n FROM i;
        PRAGMA wal_checkpoint(TRUNCATE);";
    for (mode, layout) in [
        ("onewrite", "auto"),
        ("waldio", "embedded"),
        ("direct", "auto"),
    ] {
        // The log has the schema, and the table's root.
        let with_schema = format!(
            "{sql} UPDATE t SET value = 'new' WHERE id IN (7, 2000); CREATE TABLE u(a);
            INSERT INTO u VALUES('here'); INSERT INTO t SELECT max(id) + 1, 'last' FROM t"
        );
        let case = Case::killed(mode, layout, &with_schema);
        let (said, code) = case.salvage(&case.log(), &[]);
        if mode != "direct" {
            assert_eq!(
                (code, &said["proof"]),
                (0, &json!("id")),
                "its database is there: {said:#}"
            );
        }
        let lost = case.directory.path().join("lost.log");
        fs::rename(case.log(), &lost).expect("renamed");
        let (said, code) = case.salvage(&lost, &[]);
        assert_eq!(code, 1, "{mode}: {said:#}");
        assert!(said["missing_pages"].as_u64() > Some(10), "{said:#}");
        assert_eq!(
            case.ask("PRAGMA integrity_check; SELECT a FROM u"),
            "ok\nhere",
            "{said:#}"
        );
        let all = "SELECT count(*) FROM (SELECT id, value FROM t UNION ALL SELECT id, c1 FROM lost_and_found)
            WHERE value IN ('new', 'last')";
        assert_eq!(case.ask(all), "3", "{mode}: {said:#}");
        // The log has neither.
        let case = Case::killed(
            mode,
            layout,
            &format!("{sql} UPDATE t SET value = 'new' WHERE id IN (7, 2000)"),
        );
        let lost = case.directory.path().join("lost.log");
        fs::rename(case.log(), &lost).expect("renamed");
        let (said, code) = case.salvage(&lost, &[]);
        assert_eq!(
            (code, &said["rows"]["schema"]),
            (1, &json!(false)),
            "{said:#}"
        );
        assert_eq!(
            case.ask("SELECT group_concat(id) FROM lost_and_found WHERE c1 = 'new'"),
            "7,2000"
        );
    }
}

/// Layout, mode or id are damaged, or their checksum: SQLite's own header proves the frames.
#[test]
fn a_damaged_header_costs_nothing_where_sqlites_own_is_whole() {
    for (mode, layout) in MODES
        .into_iter()
        .filter(|(mode, _)| !["direct", "wal"].contains(mode))
    {
        for at in [3, 14, 19, 100, 125] {
            let case = Case::killed(mode, layout, FOUR_COMMITS);
            let mut bytes = fs::read(case.log()).expect("the log");
            bytes[at] ^= 1;
            fs::write(case.log(), bytes).expect("the log");
            let (said, code) = case.salvage(&case.database(), &[]);
            assert_eq!(
                (code, &said["proof"]),
                (0, &json!("id")),
                "{mode} {layout} {at}: {said:#}"
            );
            assert_eq!(case.ask(ASK), WHOLE, "{mode} {layout} {at}");
        }
    }
    // Without that header the chain of checksums has no beginning.
    let case = Case::killed("onewrite", "auto", FOUR_COMMITS);
    let mut bytes = fs::read(case.log()).expect("the log");
    bytes[57] ^= 1;
    fs::write(case.log(), bytes).expect("the log");
    let why = case.refused(&case.log(), &[]);
    assert!(why.contains("CRC-32C"), "{why}");
}

#[test]
fn a_full_disk_and_the_user_end_it_and_nothing_is_left() {
    let case = Case::new();
    let (mode, sql) = (
        "waldio",
        "CREATE TABLE t(a); INSERT INTO t VALUES(zeroblob(3000000))",
    );
    Writer::start(&case.database(), mode, "sector", sql, Then::Wait).kill();
    let nothing = |directory: &Path| fs::read_dir(directory).expect("a directory").count() == 0;
    if rustix::process::geteuid().is_root() {
        private_mounts().expect("a mount namespace");
        let (source, small) = (Path::new("onewrite-test"), case.results.path());
        let mounted = Mounted::with_options(source, small, "tmpfs", Some(c"size=1m"));
        let mounted = mounted.expect("a file system");
        let why = case.refused(&case.database(), &[]);
        assert!(why.contains("no space is left"), "{why}");
        assert!(nothing(small));
        mounted.unmount().expect("unmounted");
    } else {
        println!("SKIPPED: a small file system takes root");
    }
    // Long enough to be stopped: it is all zeros.
    let file = fs::OpenOptions::new()
        .write(true)
        .open(case.database())
        .expect("the database");
    file.set_len(64 << 30).expect("a sparse file");
    let output = case.output();
    let (from, to) = (case.database(), output.to_str().expect("UTF-8").to_owned());
    let mut child = onewrite(&["salvage", from.to_str().expect("UTF-8"), "-o", &to])
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    let image = companion(&output, "-onewrite-partial").join("image");
    while fs::metadata(&image).map_or(0, |image| image.len()) < 1 << 20 {
        assert!(
            child.try_wait().expect("a child").is_none(),
            "it ended by itself"
        );
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("a signal");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    assert!(nothing(case.results.path()));
}

#[test]
fn a_transaction_that_was_cut_off_is_taken_back_on_the_copy() {
    let case = Case::new();
    let sql = "PRAGMA cache_size=5; CREATE TABLE t(id INTEGER PRIMARY KEY, value);
        WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < 500)
            INSERT INTO t SELECT n, hex(zeroblob(200)) FROM i;
        BEGIN; UPDATE t SET value = 'half'; SELECT 1;";
    // SELECT gives a row, which ends the batch: the transaction stays open.
    let case_sql = sql.replace(" SELECT 1;", "");
    Writer::start(&case.database(), "delete", "auto", &case_sql, Then::Wait).kill();
    assert!(fs::metadata(case.file("-journal")).is_ok_and(|journal| journal.len() > 0));
    let (said, code) = case.salvage(&case.database(), &[]);
    assert_eq!((code, &said["rolled_back"]), (0, &json!(true)), "{said:#}");
    assert_eq!(
        case.ask("PRAGMA integrity_check; SELECT count(*) FROM t WHERE value = 'half'"),
        "ok\n0"
    );
}

#[test]
fn a_database_in_use_is_refused_with_the_command_for_it() {
    for (mode, layout) in MODES {
        let case = Case::new();
        let writer = Writer::start(&case.database(), mode, layout, FOUR_COMMITS, Then::Wait);
        let output = case.output();
        let words = [
            "salvage",
            case.database().to_str().expect("UTF-8"),
            "-o",
            output.to_str().expect("UTF-8"),
        ]
        .map(str::to_owned);
        let refused = run(onewrite(&words.each_ref().map(String::as_str)));
        let why = lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{mode}: {why}");
        assert!(
            why.contains("in use") && why.contains("onewrite backup"),
            "{why}"
        );
        assert!(!output.exists());
        writer.finish();
    }
}

#[test]
fn nothing_is_overwritten_and_what_is_no_database_is_said_to_be_none() {
    let case = Case::killed("onewrite", "auto", FOUR_COMMITS);
    let output = case.output();
    let words = ["salvage", "", "-o", output.to_str().expect("UTF-8")];
    let of = |from: &Path| {
        let mut words = words;
        words[1] = from.to_str().expect("UTF-8");
        let ended = run(onewrite(&words));
        (ended.status.code(), lossy(&ended.stderr))
    };
    fs::write(&output, "precious").expect("a file");
    let (code, why) = of(&case.database());
    assert!(code == Some(2) && why.contains("already"), "{why}");
    assert_eq!(fs::read(&output).expect("the file"), b"precious");
    fs::remove_file(&output).expect("the file");
    let none = case.directory.path().join("none");
    for (bytes, expected) in [
        (None, "no such file"),
        (Some(&b""[..]), "neither a database nor a log"),
        (Some(&[7; 5000]), "none"),
        (Some(b"SQLite format 3\0"), "none"),
    ] {
        if let Some(bytes) = bytes {
            fs::write(&none, bytes).expect("a file");
        }
        let (code, why) = of(&none);
        assert_eq!(code, Some(2), "{why}");
        assert!(why.contains(expected), "{why}");
        assert!(!output.exists());
    }
    let mut log = fs::read(case.file("-onewrite")).expect("the log");
    super::make_newer(&mut log);
    fs::write(&none, &log).expect("a file");
    let (code, why) = of(&none);
    assert!(code == Some(2) && why.contains("newer"), "{why}");
}
