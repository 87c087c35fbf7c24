//! A program below `onewrite run` in containers, as `docs/containers.md` describes them.

#[path = "../common/mod.rs"]
mod common;
mod container;

use std::fs;
use std::os::unix::fs::{FileExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use common::{can_make, onewrite, path, python, text};
use container::{Container, Ended, ONEWRITE, Plan, TOOLS, Volume};
use onewrite::storage::{Access, Create, DirectIo, LogFile};
use onewrite_iotrace::scratch::{FileSystem, Options, Scratch};
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

/// A user without rights.
const NOBODY: u32 = 65534;

/// Inserts rows, each in a transaction of its own, and acknowledges each on standard output. Its
/// words: its name, the database, how many rows (0: no end), and the answer to SIGTERM.
const WRITER: &str = r#"
import json, signal, sqlite3, sys
name, path, rows, answer = sys.argv[1:]
if answer == "close":
    def stop(*_):
        raise SystemExit
    signal.signal(signal.SIGTERM, stop)
db = sqlite3.connect(path, timeout=100, isolation_level=None)
try:
    db.execute("PRAGMA synchronous=FULL")
    db.execute("CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, writer TEXT, n INTEGER)")
    print(db.execute("PRAGMA onewrite_status").fetchone()[0].replace("\n", " "), flush=True)
    n = 0
    while n != int(rows) or n == 0:
        n += 1
        db.execute("INSERT INTO t(writer, n) VALUES (?, ?)", (name, n))
        print(n, flush=True)
finally:
    db.close()
"#;

/// Names the directories in which a file can be made.
const WRITABLE: &str = r#"
import errno, sys
for directory in sys.argv[1:]:
    try:
        open(directory + "/onewrite-test", "w").close()
        print(directory)
    except OSError as e:
        assert e.errno == errno.EROFS, e
"#;

/// A host of containers: a file system for their volumes, with direct I/O whatever the machine has.
struct Host {
    scratch: Scratch,
    root: PathBuf,
    python: PathBuf,
}

impl Host {
    /// `None` where a test cannot make one; says why.
    fn new() -> Option<Host> {
        let python = python("sys")?;
        if !can_make(FileSystem::Ext4) {
            return None;
        }
        let scratch = Scratch::create(&Options {
            file_system: FileSystem::Ext4,
            bytes: 64 << 20,
            parent: &std::env::temp_dir(),
            stop: &AtomicBool::new(false),
        });
        let scratch = scratch.expect("a scratch file system");
        let root = scratch.root().join("root");
        fs::create_dir(&root).expect("a directory");
        Some(Host {
            scratch,
            root,
            python,
        })
    }

    /// A directory that a user owns.
    fn directory(&self, name: &str, user: u32) -> PathBuf {
        let directory = self.scratch.root().join(name);
        fs::create_dir_all(&directory).expect("a directory");
        chown(&directory, Some(user), Some(user)).expect("an owner");
        directory
    }

    fn plan<'a>(&'a self, volume: Volume<'a>, point: &'a str, user: u32) -> Plan<'a> {
        Plan {
            root: &self.root,
            volume,
            point,
            user,
        }
    }

    /// The words for a writer below `onewrite run`.
    fn writer<'a>(&'a self, words: [&'a str; 4]) -> Vec<&'a str> {
        let run = [ONEWRITE, "run", "--", path(&self.python), "-c", WRITER];
        [&run[..], &words].concat()
    }
}

/// The status that a writer prints first.
fn status(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))
}

/// The rows that a writer acknowledges until `last`.
fn acknowledged(container: &mut Container, last: i64) {
    while container.line().parse::<i64>().expect("a number") < last {}
}

/// The last row that a writer acknowledged before it ended.
fn last_of(ended: &Ended) -> i64 {
    let last = ended.lines.last().expect("acknowledged rows");
    last.parse().expect("a number")
}

/// Stock SQLite finds every acknowledged row of a writer, and at most the next one.
fn assert_rows(database: &Path, writer: &str, acknowledged: i64) {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let db = Connection::open_with_flags_and_vfs(database, flags, "unix").expect("a database");
    let check: String = db
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .expect("a check");
    assert_eq!(check, "ok");
    let sql = "SELECT count(*), count(DISTINCT n), coalesce(max(n), 0) FROM t WHERE writer = ?";
    let (rows, distinct, last): (i64, i64, i64) = db
        .query_row(sql, [writer], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .expect(sql);
    assert_eq!((rows, distinct), (last, last), "{writer}");
    let written = acknowledged..=acknowledged + 1;
    assert!(written.contains(&last), "{writer}: {last} in {written:?}");
}

/// `onewrite SUBCOMMAND DATABASE`, outside of the containers.
fn outside(subcommand: &str, database: &Path, code: i32) -> String {
    let output = onewrite(subcommand, &[path(database)]);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    said
}

#[test]
fn with_a_read_only_root_a_program_commits_and_sigterm_closes_the_database() {
    let Some(host) = Host::new() else { return };
    let volume = host.directory("volume", NOBODY);
    let database = volume.join("app.db");
    let plan = host.plan(Volume::Bind(&volume), "/mnt", NOBODY);
    let python = [path(&host.python), "-c", WRITABLE];
    let places = ["/", "/tmp", "/var/tmp", "/dev/shm", TOOLS, "/mnt"];
    assert_eq!(plan.succeed(&[&python[..], &places].concat()), ["/mnt"]);

    let mut container = plan.start(&host.writer(["one", "/mnt/app.db", "0", "close"]));
    let status = status(&container.line());
    assert_eq!(status["mode"], "onewrite", "{status:#}");
    assert_eq!(status["direct_io"], true, "{status:#}");
    acknowledged(&mut container, 20);
    let ended = container.stop();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.errors);
    assert_rows(&database, "one", last_of(&ended));
    assert!(outside("verify", &database, 0).contains("a stock database"));

    // For a program that SIGTERM ends at once, `run` closes the database. Nothing is lost.
    let mut container = plan.start(&host.writer(["two", "/mnt/app.db", "0", "die"]));
    container.line();
    acknowledged(&mut container, 20);
    let ended = container.stop();
    assert_eq!(ended.status.code(), Some(128 + 15), "{}", ended.errors);
    assert!(outside("verify", &database, 0).contains("a stock database"));
    assert_rows(&database, "two", last_of(&ended));
}

#[test]
fn two_containers_on_one_volume_lose_no_acknowledged_row_when_both_are_killed() {
    let Some(host) = Host::new() else { return };
    let volume = host.directory("volume", 0);
    let database = volume.join("app.db");
    // The volume's mount point, and so the database's path, is another one in each.
    let places = [
        ("one", "/mnt", "/mnt/app.db"),
        ("two", "/srv", "/srv/app.db"),
    ];
    let mut containers = places.map(|(name, point, database)| {
        let plan = host.plan(Volume::Bind(&volume), point, 0);
        let mut container = plan.start(&host.writer([name, database, "0", "die"]));
        let status = status(&container.line());
        assert_eq!(status["mode"], "onewrite", "{status:#}");
        assert_eq!(status["shared_memory"], true, "{status:#}");
        container
    });
    for container in &mut containers {
        acknowledged(container, 50);
    }
    // Both write: each has a row after the other's.
    for container in &mut containers {
        let next: i64 = container.line().parse().expect("a number");
        acknowledged(container, next + 10);
    }
    let ended = containers.map(Container::kill);
    outside("verify", &database, 0);
    outside("detach", &database, 0);
    for ((name, ..), ended) in places.iter().zip(&ended) {
        assert_rows(&database, name, last_of(ended));
    }
}

#[test]
fn a_container_in_memory_works_and_says_so() {
    let Some(host) = Host::new() else { return };
    let plan = host.plan(Volume::Memory, "/mnt", 0);
    let script = r#""$@" && exec /opt/onewrite doctor /mnt --json"#;
    let writer = host.writer(["one", "/mnt/app.db", "20", "close"]);
    let lines = plan.succeed(&[&["sh", "-euc", script, "sh"], &writer[..]].concat());
    let status = status(&lines[0]);
    assert_eq!(status["mode"], "onewrite", "{status:#}");
    let why_not = status["direct_io_why_not"].as_str();
    assert!(
        why_not.is_some_and(|why| why.contains("tmpfs")),
        "{status:#}"
    );
    assert_eq!(lines[20], "20");
    let found: Value = serde_json::from_str(&lines[21..].join("\n")).expect("a document");
    let advice = &found["recommendation"];
    assert_eq!(advice["mode"], "wal", "{advice:#}");
    let reason = advice["reason"].as_str().expect("words");
    assert!(reason.contains("nothing survives a power cut"), "{reason}");
}

#[test]
fn a_database_in_an_own_layer_survives_a_kill_and_ends_with_its_container() {
    let Some(host) = Host::new() else { return };
    let image = host.directory("image", 0);
    let made = Connection::open(image.join("app.db")).expect("a database");
    let sql = "CREATE TABLE t(id INTEGER PRIMARY KEY, writer TEXT, n INTEGER);
               INSERT INTO t(writer, n) VALUES('image', 1)";
    made.execute_batch(sql).expect(sql);
    drop(made);
    let own = ["first", "second"].map(|name| {
        for part in ["upper", "work"] {
            host.directory(&format!("{name}/{part}"), 0);
        }
        host.directory(name, 0)
    });
    let [first, second] = [0, 1].map(|nth| {
        let layers = Volume::Layers {
            image: &image,
            own: &own[nth],
        };
        host.plan(layers, "/mnt", 0)
    });
    let mut container = first.start(&host.writer(["one", "/mnt/app.db", "0", "die"]));
    let status = status(&container.line());
    assert_eq!(status["mode"], "onewrite", "{status:#}");
    assert_eq!(status["direct_io"], true, "{status:#}");
    acknowledged(&mut container, 20);
    let last = last_of(&container.kill());

    let rows = |plan: &Plan<'_>| -> (i64, i64) {
        plan.succeed(&[ONEWRITE, "verify", "--quick", "/mnt/app.db"]);
        let count = "SELECT count(*) FILTER (WHERE writer = 'image'), coalesce(max(n), 0) FROM t";
        let sql = format!(
            "import sqlite3; d = sqlite3.connect('/mnt/app.db'); assert \
             d.execute('PRAGMA integrity_check').fetchone() == ('ok',); \
             print(*d.execute(\"{count}\").fetchone())"
        );
        let run = [ONEWRITE, "run", "--", path(&host.python), "-c", &sql];
        let lines = plan.succeed(&run);
        let (image, last) = lines[0].split_once(' ').expect("two numbers");
        (
            image.parse().expect("a number"),
            last.parse().expect("a number"),
        )
    };
    // Started again it has its layer again. Another container of the image has one of its own.
    let (of_image, found) = rows(&first);
    assert!(
        of_image == 1 && (last..=last + 1).contains(&found),
        "{found} after {last}"
    );
    assert_eq!(rows(&second), (1, 1));

    let found = second.succeed(&[ONEWRITE, "doctor", "/mnt"]).join("\n");
    assert!(
        found.contains("the device under this overlay is not known"),
        "{found}"
    );
}

#[test]
fn a_probe_next_to_a_writer_is_content_until_the_log_is_damaged() {
    let Some(host) = Host::new() else { return };
    let volume = host.directory("volume", NOBODY);
    let log = volume.join("app.db-onewrite");
    let plan = host.plan(Volume::Bind(&volume), "/mnt", NOBODY);
    // It writes nothing and locks nothing: it needs no more than to read.
    let probe = host.plan(Volume::ReadOnly(&volume), "/srv", NOBODY);
    let probe = || probe.run(&[ONEWRITE, "verify", "--quick", "/srv/app.db"]);
    let assert_probe = |code: i32, says: &str| {
        let ended = probe();
        let said = ended.lines.join("\n") + &ended.errors;
        assert_eq!(ended.status.code(), Some(code), "{said}");
        assert!(said.contains(says), "{said}");
    };
    assert_probe(2, "app.db");
    let mut container = plan.start(&host.writer(["one", "/mnt/app.db", "0", "die"]));
    container.line();
    for _ in 0..5 {
        let next: i64 = container.line().parse().expect("a number");
        assert_probe(0, "whole, in use");
        acknowledged(&mut container, next + 1);
    }
    // As a process marks the log when a flush has failed.
    let file = LogFile::open(&log, Create::Never, Access::ReadWrite, DirectIo::Never);
    let file = file.expect("the log");
    file.lock_poison();
    assert_probe(1, "poisoned");
    drop(file);
    container.kill();
    assert_probe(0, "was not closed");
    let file = fs::OpenOptions::new().write(true).open(&log);
    let file = file.expect("the log");
    file.write_all_at(&[0xff; 4], 12).expect("damage");
    assert_probe(1, "NOT WHOLE");
    fs::remove_file(&log).expect("the log");
    assert_probe(1, "missing");
}

/// The log would be made in the container's own layer, and end with it.
#[test]
fn with_a_read_only_root_a_database_s_file_alone_is_refused_and_stays_as_it_is() {
    let Some(host) = Host::new() else { return };
    let database = host.directory("volume", 0).join("app.db");
    let made = Connection::open(&database).expect("a database");
    made.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, writer TEXT, n INTEGER)")
        .expect("a table");
    drop(made);
    let before = fs::read(&database).expect("the database");
    // A file that every image has.
    let place = "/etc/passwd";
    let plan = host.plan(Volume::Bind(&database), place, 0);
    let ended = plan.run(&host.writer(["one", place, "1", "close"]));
    assert!(!ended.status.success(), "{:?}", ended.lines);
    let said = ended.errors;
    assert!(said.contains("unable to open database file"), "{said}");
    assert!(fs::read(&database).expect("the database") == before);
}
