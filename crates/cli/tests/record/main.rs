//! `onewrite record`, `replay` and `run` on programs: recorded SQL has the same results in all
//! modes.

#[path = "../common/mod.rs"]
mod common;
mod programs;
mod stopped;
mod threads;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{path, python, text};
use onewrite_record::file::MAGIC;
use rustix::process::{Pid, Signal};
use serde_json::Value;

/// `onewrite` with these words, and the libraries next to it.
fn onewrite(words: &[&str]) -> Output {
    common::build_libraries();
    Command::new(env!("CARGO_BIN_EXE_onewrite"))
        .args(words)
        .output()
        .expect("the command")
}

/// Records a program that gets the database's path as its last word, in a directory.
fn record(dir: &Path, program: &[&str]) -> PathBuf {
    let database = dir.join("app.db");
    record_command(dir, &[program, &[path(&database)]].concat())
}

/// Records a command; the trace is in a directory.
fn record_command(dir: &Path, command: &[&str]) -> PathBuf {
    let trace = dir.join("app.trace");
    let words = [&["record", "-o", path(&trace), "--"], command].concat();
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

/// Asserts that every mode had the same results, equal to the recorded ones, in databases that are
/// not empty.
fn assert_right(document: &Value) {
    assert_eq!(document["same_in_all_modes"], true, "{document:#}");
    assert_eq!(document["same_as_recorded"], true, "{document:#}");
    for run in document["runs"].as_array().expect("runs") {
        assert!(run["commits"].as_u64() > Some(0), "{run:#}");
        for database in run["checked"]["databases"].as_array().expect("databases") {
            assert_eq!(database["same_as_recorded"], true, "{run:#}");
        }
    }
}

const ALL: &str = "delete,truncate,wal,direct,waldio,swal,onewrite";

/// Values of every type, a cursor that is read while its table is written, a refused row, several
/// databases. Also random values, the time, and all of Python's ways to send statements.
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
    let Some(python) = python("sys") else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let trace = record(dir.path(), &[path(&python), "-c", APPLICATION]);
    let document = replay(dir.path(), &trace, ALL);
    assert_eq!(document["same_in_all_modes"], true, "{document:#}");
    let runs = document["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 7);
    for run in runs {
        // randomblob's rows are in the first database; the other equals the recording.
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

/// Threads and forked processes that write one database, each waiting for the others' locks.
const CROWD: &str = r#"
import os, sqlite3, sys, threading
path = sys.argv[1]
first = sqlite3.connect(path)
first.executescript("PRAGMA journal_mode=WAL; CREATE TABLE t (who, n)")
first.close()
def work(who):
    db = sqlite3.connect(path, timeout=60, isolation_level=None)
    for n in range(15):
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO t VALUES (?, ?)", (who, n))
        db.execute("COMMIT")
    db.close()
children = []
for process in range(2):
    pid = os.fork()
    if pid == 0:
        threads = [threading.Thread(target=work, args=("%d.%d" % (process, k),)) for k in range(2)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        os._exit(0)
    children.append(pid)
assert all(os.waitpid(pid, 0)[1] == 0 for pid in children)
last = sqlite3.connect(path)
assert last.execute("SELECT count(*) FROM t").fetchone() == (60,)
last.close()
"#;

#[test]
fn threads_and_processes_are_recorded_and_come_to_the_same() {
    let Some(python) = python("sys") else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let trace = record(dir.path(), &[path(&python), "-c", CROWD]);
    let document = replay(dir.path(), &trace, "delete,wal,onewrite");
    assert_right(&document);
    assert_eq!(document["recorded"]["processes"], 3, "{document:#}");
    assert_eq!(document["recorded"]["connections"], 6, "{document:#}");
    for run in document["runs"].as_array().expect("runs") {
        assert_eq!(run["commits"], 61, "{run:#}");
    }
}

#[test]
fn a_database_that_was_there_before_is_in_the_trace_with_its_log() {
    let Some(python) = python("sys") else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let before = rusqlite::Connection::open(dir.path().join("app.db")).expect("a database");
    let made = "PRAGMA journal_mode=wal; PRAGMA wal_autocheckpoint=0; CREATE TABLE u (a); \
                INSERT INTO u VALUES (1), (2)";
    before.execute_batch(made).expect("a table");
    let program = "import sqlite3, sys; d = sqlite3.connect(sys.argv[1]); \
                   d.execute('INSERT INTO u SELECT a + 2 FROM u'); d.commit(); \
                   assert d.execute('SELECT sum(a) FROM u').fetchone() == (10,)";
    let trace = record(dir.path(), &[path(&python), "-c", program]);
    drop(before);
    assert_right(&replay(dir.path(), &trace, "delete,wal,waldio,onewrite"));
}

#[test]
fn a_masked_trace_shows_no_value_and_comes_to_the_same() {
    let Some(python) = python("sys") else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let (trace, database) = (dir.path().join("m.trace"), dir.path().join("m.db"));
    let program = "import sqlite3, sys; d = sqlite3.connect(sys.argv[1]); \
                   d.execute('CREATE TABLE person (name TEXT UNIQUE)'); \
                   d.execute('INSERT INTO person VALUES (?)', ('Rumpelstiltskin',)); \
                   d.execute(\"INSERT INTO person VALUES ('Schneewittchen')\"); d.commit(); \
                   assert d.execute(\"SELECT count(*) FROM person WHERE name='Rumpelstiltskin'\").fetchone() == (1,)";
    let words = [
        "record",
        "--mask",
        "-o",
        path(&trace),
        "--",
        path(&python),
        "-c",
        program,
        path(&database),
    ];
    let output = onewrite(&words);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let mut reader =
        onewrite_record::file::Reader::new(std::fs::File::open(&trace).expect("a trace"))
            .expect("a trace");
    let mut all = String::new();
    while let Some(event) = reader.next_event().expect("whole") {
        let mut bytes = Vec::new();
        event.put(&mut bytes);
        all.push_str(&String::from_utf8_lossy(&bytes));
    }
    assert!(
        all.contains("INSERT INTO person") && !all.contains("Rumpel") && !all.contains("Schnee"),
        "{all}"
    );
    let document = replay(dir.path(), &trace, "wal,onewrite");
    assert_eq!(document["same_in_all_modes"], true, "{document:#}");
    assert_eq!(document["same_as_recorded"], true, "{document:#}");
    assert_eq!(document["recorded"]["masked"], true);
}

#[test]
fn a_killed_program_leaves_a_trace_up_to_its_last_commit() {
    let Some(python) = python("sys") else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let (trace, database) = (dir.path().join("k.trace"), dir.path().join("k.db"));
    let program = "import os, sqlite3, sys; d = sqlite3.connect(sys.argv[1], isolation_level=None); \
                   d.execute('CREATE TABLE t (a)'); \
                   [d.execute('INSERT INTO t VALUES (?)', (n,)) for n in range(20)]; \
                   os.kill(os.getpid(), 9)";
    let words = [
        "record",
        "-o",
        path(&trace),
        "--",
        path(&python),
        "-c",
        program,
        path(&database),
    ];
    let output = onewrite(&words);
    assert_eq!(
        output.status.code(),
        Some(128 + 9),
        "{}",
        text(&output.stderr)
    );
    let document = replay(dir.path(), &trace, "wal,onewrite");
    assert_right(&document);
    assert_eq!(document["runs"][0]["commits"], 21);
}

#[test]
fn a_full_disk_disturbs_the_trace_and_not_the_program() {
    let Some(python) = python("sys") else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let database = dir.path().join("f.db");
    let program = "import sqlite3, sys; d = sqlite3.connect(sys.argv[1]); d.execute('CREATE TABLE t (a)'); \
                   [d.execute('INSERT INTO t VALUES (?)', ('%d' % n * 5000,)) for n in range(200)]; d.commit(); \
                   print(d.execute('SELECT count(*) FROM t').fetchone()[0])";
    let words = [
        "record",
        "-o",
        "/dev/full",
        "--",
        path(&python),
        "-c",
        program,
        path(&database),
    ];
    let output = onewrite(&words);
    assert_eq!(text(&output.stdout), "200\n", "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("/dev/full") && said.contains("not disturbed"),
        "{said}"
    );
}

#[test]
fn a_program_without_a_dynamic_sqlite_is_told_of() {
    let dir = tempfile::tempdir().expect("a directory");
    let trace = dir.path().join("n.trace");
    for words in [
        &["record", "-o", path(&trace), "--", "true"][..],
        &["run", "--", "true"],
    ] {
        let output = onewrite(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        let said = text(&output.stderr);
        assert!(
            said.contains("linked statically") && said.contains("libsqlite3.so"),
            "{said}"
        );
    }
    assert!(!trace.exists());
}

#[test]
fn a_trace_without_a_statement_is_told_of() {
    let dir = tempfile::tempdir().expect("a directory");
    let (script, trace) = (dir.path().join("empty.sql"), dir.path().join("n.trace"));
    std::fs::write(&script, "").expect("a script");
    let output = onewrite(&["import", "-o", path(&trace), path(&script)]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output = onewrite(&["replay", path(&trace)]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("there is no statement in it"));
}

/// It ends as in a shell, and an existing trace stays as it is.
#[test]
fn a_program_that_cannot_be_started_is_named_and_leaves_no_trace() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("not-executable");
    std::fs::write(&file, "#!/bin/sh\n").expect("a file");
    let (none, kept) = (dir.path().join("none.trace"), dir.path().join("kept.trace"));
    let earlier = [&MAGIC[..], b"an earlier run"].concat();
    std::fs::write(&kept, &earlier).expect("a trace");
    for (program, code) in [
        ("/no/such/program", 127),
        ("no-such-program", 127),
        (path(&file), 126),
    ] {
        for words in [
            &["record", "-o", path(&none), "--"][..],
            &["record", "-o", path(&kept), "--"],
            &["run", "--"],
        ] {
            let output = onewrite(&[words, &[program]].concat());
            assert_eq!(output.status.code(), Some(code), "{words:?} {program}");
            let said = text(&output.stderr);
            assert!(said.contains(&format!("cannot start {program}")), "{said}");
        }
    }
    assert!(!none.exists());
    assert!(std::fs::read(&kept).expect("the trace") == earlier);
}

/// The longer trace leaves nothing after the shorter one.
#[test]
fn a_shorter_trace_takes_the_place_of_a_longer_one() {
    let Some(python) = python("sys") else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let longer = [&MAGIC[..], &vec![b'x'; 1 << 20]].concat();
    std::fs::write(dir.path().join("app.trace"), longer).expect("a file");
    let program = "import sqlite3, sys; d = sqlite3.connect(sys.argv[1]); \
                   d.execute('CREATE TABLE t (a)'); d.execute('INSERT INTO t VALUES (1)'); d.commit()";
    let trace = record(dir.path(), &[path(&python), "-c", program]);
    let length = std::fs::metadata(&trace).expect("the trace").len();
    assert!(length < 1 << 20, "{length}");
    assert_right(&replay(dir.path(), &trace, "wal"));
}

/// For a program that becomes another user, preloading fails for root as for anyone.
#[test]
fn a_setuid_program_is_named_as_one() {
    use std::os::unix::fs::{PermissionsExt, chown};
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: a program of another user's takes root");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join("program");
    onewrite_common::files::copy_program("/bin/true", &program);
    chown(&program, Some(65_534), Some(65_534)).expect("another owner");
    let mode = std::fs::Permissions::from_mode(0o4755);
    std::fs::set_permissions(&program, mode).expect("its mode");
    let trace = dir.path().join("app.trace");
    std::fs::write(&trace, "of an earlier run").expect("a trace");
    for words in [&["run", "--"][..], &["record", "-o", path(&trace), "--"]] {
        let output = onewrite(&[words, &[path(&program)]].concat());
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(said.contains("program is setuid or setgid"), "{said}");
    }
    let kept = std::fs::read_to_string(&trace).expect("the trace");
    assert_eq!(kept, "of an earlier run");
}

/// As `docker stop` and systemd do.
#[test]
fn a_signal_to_the_command_reaches_the_program() {
    common::build_libraries();
    let dir = tempfile::tempdir().expect("a directory");
    let trace = dir.path().join("app.trace");
    let script = "trap 'exit 42' TERM; echo ready; while :; do sleep 0.05; done";
    for words in [&["run", "--"][..], &["record", "-o", path(&trace), "--"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onewrite"));
        command.args(words).args(["sh", "-c", script]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("its output");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        let pid = Pid::from_child(&child);
        rustix::process::kill_process(pid, Signal::TERM).expect("a signal");
        let end = Instant::now() + Duration::from_secs(30);
        let status = loop {
            match child.try_wait().expect("its status") {
                Some(status) => break Some(status),
                None if Instant::now() > end => break None,
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        if status.is_none() {
            child.kill().expect("its end");
        }
        let code = status.map(|status| status.code());
        assert_eq!(code, Some(Some(42)), "{words:?}");
    }
}

#[test]
fn lists_and_scripts_are_imported_and_come_to_the_same() {
    let dir = tempfile::tempdir().expect("a directory");
    let (list, script) = (dir.path().join("list.json"), dir.path().join("script.sql"));
    let init = r#"[{"sql": "CREATE TABLE t (k int, v)"}, {"sql": "INSERT INTO t VALUES (1, 'a'), (2, 'b')"}]"#;
    let benchmark = r#"[{"op": "query", "sql": "UPDATE t SET v='c' WHERE k = 1"}, {"delta": 5, "op": "break"},
                        {"op": "query", "sql": "SELECT * FROM t"}, {"op": "query", "sql": "UPDATE t SET v=0 WHERE k = 9"}]"#;
    std::fs::write(
        &list,
        format!(r#"{{"benchmark": {benchmark}, "init": {init}}}"#),
    )
    .expect("a file");
    std::fs::write(
        &script,
        "CREATE TABLE t (a);\nBEGIN; INSERT INTO t VALUES (';');\nCOMMIT;\nSELECT * FROM no;",
    )
    .expect("a file");
    for (file, statements, commits) in [(&list, 3, 1), (&script, 5, 2)] {
        let trace = dir.path().join("import.trace");
        let output = onewrite(&["import", "-o", path(&trace), path(file)]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let document = replay(dir.path(), &trace, "wal,waldio,onewrite");
        assert_eq!(document["same_in_all_modes"], true, "{document:#}");
        assert_eq!(document["same_as_recorded"], Value::Null);
        assert_eq!(document["recorded"]["statements"], statements);
        assert_eq!(document["runs"][2]["commits"], commits, "{document:#}");
    }
}

#[test]
fn a_program_that_loads_the_extension_is_recorded() {
    let Some(python) = python("sys") else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let (trace, socket) = (dir.path().join("c.trace"), dir.path().join("socket"));
    // Builds the libraries.
    assert!(onewrite(&["--version"]).status.success());
    let library =
        Path::new(env!("CARGO_BIN_EXE_onewrite")).with_file_name("libonewrite_preload.so");
    let mut recorder = Command::new(env!("CARGO_BIN_EXE_onewrite"))
        .args(["record", "-o", path(&trace), "--connect", path(&socket)])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the command");
    let begin = std::time::Instant::now();
    while !socket.exists() && begin.elapsed().as_secs() < 30 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let program = "import sqlite3, sys; l = sqlite3.connect(':memory:'); l.enable_load_extension(True); \
                   l.load_extension(sys.argv[2]); d = sqlite3.connect(sys.argv[1]); \
                   d.execute('CREATE TABLE t (a UNIQUE)'); \
                   [d.execute('INSERT INTO t VALUES (?)', (v,)) for v in (1, 'x', b'y', None)]; d.commit(); \
                   d.execute('SELECT * FROM t').fetchall(); d.close()";
    let database = dir.path().join("c.db");
    let words = ["-c", program, path(&database), path(&library)];
    let ran = Command::new(&python)
        .args(words)
        .env("ONEWRITE_RECORD", &socket)
        .output();
    let ran = ran.expect("python");
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&recorder),
        rustix::process::Signal::INT,
    )
    .expect("the recorder is there");
    let status = recorder.wait().expect("its end");
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    assert!(status.success());
    let document = replay(dir.path(), &trace, "wal,onewrite");
    assert_right(&document);
    assert_eq!(document["runs"][0]["commits"], 2, "{document:#}");
}

/// `onewrite run` loads the extension, which knows why an SQLite cannot be its host.
#[test]
fn what_the_extension_says_when_it_fails_reaches_the_user() {
    let Some(python) = python("sys") else { return };
    let dir = tempfile::tempdir().expect("a directory");
    // Builds the libraries.
    assert!(onewrite(&["--version"]).status.success());
    let preload =
        Path::new(env!("CARGO_BIN_EXE_onewrite")).with_file_name("libonewrite_preload.so");
    let (source, library) = (dir.path().join("fails.c"), dir.path().join("fails.so"));
    // `sqlite3_mprintf` is number 69 of SQLite's table.
    let fails = "typedef char *(*Print)(const char *, ...);\n\
                 int sqlite3_onewrite_init(void *db, char **error, void **routines) {\n\
                 (void)db; *error = ((Print)routines[69])(\"needs a newer one\"); return 1; }\n";
    std::fs::write(&source, fails).expect("a source file");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o", path(&library), path(&source)])
        .status();
    assert!(compiled.expect("a C compiler").success());
    let ran = Command::new(&python)
        .args(["-c", "import sqlite3; sqlite3.connect(':memory:')"])
        .env("LD_PRELOAD", preload)
        .env("ONEWRITE_RUN_EXTENSION", &library)
        .output()
        .expect("python");
    assert!(ran.status.success());
    let said = text(&ran.stderr);
    assert!(
        said.contains("runs without onewrite") && said.contains("needs a newer one"),
        "{said}"
    );
}

/// A user may take `-o` for the database.
#[test]
fn a_file_that_is_no_trace_is_not_overwritten() {
    let dir = tempfile::tempdir().expect("a directory");
    let database = dir.path().join("app.db");
    let script = dir.path().join("script.sql");
    std::fs::write(&script, "SELECT 1;").expect("a script");
    rusqlite::Connection::open(&database)
        .and_then(|db| db.execute_batch("CREATE TABLE t(x); INSERT INTO t VALUES (1);"))
        .expect("a database");
    let before = std::fs::read(&database).expect("a database");
    for words in [
        &["record", "-o", path(&database), "--", "true"][..],
        &["record", "-o", path(&database), "--connect", "socket"],
        &["import", "-o", path(&database), path(&script)],
    ] {
        let output = onewrite(words);
        assert!(!output.status.success());
        let said = text(&output.stderr);
        assert!(
            said.contains("app.db is no trace, and is not overwritten"),
            "{said}"
        );
        assert!(std::fs::read(&database).expect("a database") == before);
    }
}

#[test]
fn an_earlier_trace_stays_where_nothing_is_recorded() {
    let dir = tempfile::tempdir().expect("a directory");
    let (trace, script) = (dir.path().join("a.trace"), dir.path().join("script.sql"));
    std::fs::write(&script, "SELECT 1;").expect("a script");
    let output = onewrite(&["import", "-o", path(&trace), path(&script)]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let before = std::fs::read(&trace).expect("a trace");
    let output = onewrite(&["record", "-o", path(&trace), "--", "true"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(std::fs::read(&trace).expect("a trace") == before);
}
