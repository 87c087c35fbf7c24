//! Events for an operator: `docs/reference/events.md`.

mod child;
mod forks;
mod hostile;
mod rotation;
#[path = "../common/rows.rs"]
mod rows;
mod scenes;

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use child::{end, play, start};
use rusqlite::{Connection, OpenFlags};

/// How long a planted wait lasts.
const PLANTED: Duration = Duration::from_millis(300);
/// A phase may take longer than the planted one on a busy machine.
const MOST_TRIES: usize = 10;

fn connect(path: &Path) -> Connection {
    onewrite::register().expect("the VFS onewrite");
    let vfs = onewrite::VFS_NAME;
    let db = Connection::open_with_flags_and_vfs(path, OpenFlags::default(), vfs);
    let db = db.expect("a connection");
    db.busy_timeout(Duration::from_secs(120))
        .expect("a timeout");
    db
}

fn sql(db: &Connection, statement: &str) -> String {
    rows::query(db, statement).unwrap_or_else(|e| panic!("{statement}: {e}"))
}

fn made(path: &Path, mode: &str) -> Connection {
    let db = connect(path);
    if mode == "waldio" {
        sql(&db, "PRAGMA onewrite_layout=page4k");
    }
    assert_eq!(sql(&db, &format!("PRAGMA journal_mode={mode}")), mode);
    sql(&db, "CREATE TABLE t(x)");
    db
}

type Event = HashMap<String, String>;

/// The fields of a line.
fn parse(line: &str) -> Event {
    let mut fields = Event::new();
    let mut rest = line.trim_start_matches("onewrite: ");
    while let Some((name, value)) = rest.split_once('=') {
        let (value, behind) = match value.strip_prefix('"') {
            Some(quoted) => quoted
                .split_once("\" ")
                .or_else(|| quoted.strip_suffix('"').map(|it| (it, ""))),
            None => Some(value.split_once(' ').unwrap_or((value, ""))),
        }
        .unwrap_or_else(|| panic!("not a line: {line}"));
        fields.insert(name.to_owned(), value.to_owned());
        rest = behind;
    }
    assert!(rest.is_empty(), "not a line: {line}");
    fields
}

fn events(text: &str, name: &str) -> Vec<Event> {
    let all = text.lines().filter(|line| line.contains("event="));
    all.map(parse)
        .filter(|event| event["event"] == name)
        .collect()
}

/// Runs a scene whose events go to a file. Returns the file's text.
fn told(scene: &str, database: &Path, variables: &[(&str, &str)]) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("log");
    let name = log.to_str().expect("a name");
    play(
        scene,
        database,
        &[&[("ONEWRITE_LOG", name)], variables].concat(),
    );
    fs::read_to_string(&log).unwrap_or_default()
}

fn number(event: &Event, field: &str) -> u64 {
    let value = event
        .get(field)
        .unwrap_or_else(|| panic!("{field} in {event:?}"));
    value
        .parse()
        .unwrap_or_else(|_| panic!("{field} in {event:?}"))
}

#[test]
fn a_mode_that_is_entered_is_told_and_commits_are_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("the db");
    let text = told("commits", &path, &[]);
    let entered = events(&text, "mode_entered");
    assert_eq!(entered.len(), 1, "{text}");
    assert_eq!(entered[0]["mode"], "onewrite");
    assert_eq!(entered[0]["layout"], "packed");
    assert_eq!(entered[0]["database"], path.to_str().expect("a name"));
    assert!(entered[0]["time"].ends_with('Z') && number(&entered[0], "pid") > 0);
    assert_eq!(text.lines().count(), 1, "300 commits: {text}");
}

#[test]
fn a_mode_that_is_refused_is_told_with_the_reason() {
    let directory = tempfile::tempdir().expect("a directory");
    let text = told("refused", &directory.path().join("db"), &[]);
    let refused = events(&text, "mode_refused");
    assert_eq!(refused.len(), 1, "{text}");
    assert_eq!(refused[0]["mode"], "onewrite");
    assert!(refused[0]["why"].contains("within a transaction"), "{text}");
}

#[test]
fn a_recovery_is_told_with_its_frames() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let (is_good, _) = end(start("killed", &path, &[]));
    assert!(!is_good, "it kills itself");
    let text = told("read", &path, &[]);
    let recovered = events(&text, "recovered");
    assert_eq!(recovered.len(), 1, "{text}");
    assert!(number(&recovered[0], "frames") >= 2, "{text}");
    number(&recovered[0], "us");
}

#[test]
fn poison_is_told_once_with_the_failure() {
    let directory = tempfile::tempdir().expect("a directory");
    let text = told("poisoned", &directory.path().join("db"), &[]);
    let poisoned = events(&text, "poisoned");
    assert_eq!(poisoned.len(), 1, "{text}");
    assert!(poisoned[0]["why"].contains("flush failed"), "{text}");
    // The failures themselves are messages.
    assert!(!events(&text, "message").is_empty(), "{text}");
}

#[test]
fn a_reader_that_holds_a_checkpoint_up_is_named() {
    for mode in ["onewrite", "direct", "waldio"] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let db = made(&path, mode);
        sql(&db, "INSERT INTO t VALUES('old')");
        sql(&db, "BEGIN");
        sql(&db, "SELECT * FROM t");
        let text = told("checkpoint", &path, &[]);
        let held = events(&text, "checkpoint_held");
        // The second checkpoint comes within the minute.
        assert_eq!(held.len(), 1, "{mode}: {text}");
        assert_eq!(number(&held[0], "pid"), u64::from(std::process::id()));
        let program = fs::read_to_string("/proc/self/comm").expect("a name");
        assert_eq!(held[0]["program"], program.trim_end());
        assert!(number(&held[0], "left") >= 1);
        assert_eq!(
            held[0]["readers"],
            format!("{}:{}", std::process::id(), program.trim_end())
        );
        let status = sql(&db, "PRAGMA onewrite_status");
        let named = format!("\"readers_behind\":[{{\"pid\":{}", std::process::id());
        assert!(status.contains(&named), "{mode}: {status}");
    }
}

#[test]
fn lines_of_many_threads_do_not_mix() {
    let directory = tempfile::tempdir().expect("a directory");
    let text = told("many", &directory.path().join("db"), &[]);
    let entered = events(&text, "mode_entered");
    assert_eq!(entered.len(), text.lines().count());
    let databases: std::collections::HashSet<_> =
        entered.iter().map(|event| &event["database"]).collect();
    assert_eq!(databases.len(), 100, "{text}");
}

#[test]
fn where_no_event_can_go_nothing_fails() {
    let directory = tempfile::tempdir().expect("a directory");
    let pipe = directory.path().join("pipe");
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).expect("a pipe");
    let pipe = pipe.to_str().expect("a name");
    let nowhere = directory.path().join("none/log");
    let socket = format!("journald:{}", nowhere.display());
    let places = [
        pipe,
        "/dev/full",
        nowhere.to_str().expect("a name"),
        directory.path().to_str().expect("a name"),
        &socket,
    ];
    for (number, place) in places.into_iter().enumerate() {
        let path = directory.path().join(number.to_string());
        play("enter", &path, &[("ONEWRITE_LOG", place)]);
    }
}

#[test]
fn the_journal_gets_fields_and_is_not_waited_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("socket");
    let journal = UnixDatagram::bind(&path).expect("a socket");
    let place = format!("journald:{}", path.display());
    // Nobody reads meanwhile, and the queue has room for fewer.
    play(
        "many",
        &directory.path().join("db"),
        &[("ONEWRITE_LOG", &place)],
    );
    journal.set_nonblocking(true).expect("a socket");
    let mut bytes = [0; 8192];
    let mut entries = Vec::new();
    while let Ok(n) = journal.recv(&mut bytes) {
        entries.push(String::from_utf8_lossy(&bytes[..n]).into_owned());
    }
    assert!(!entries.is_empty());
    for entry in entries {
        let lines: Vec<&str> = entry.lines().collect();
        assert!(
            lines[0].starts_with("MESSAGE=event=mode_entered mode=onewrite"),
            "{entry}"
        );
        for line in [
            "PRIORITY=6",
            "SYSLOG_IDENTIFIER=onewrite",
            "ONEWRITE_EVENT=mode_entered",
            "ONEWRITE_MODE=onewrite",
        ] {
            assert!(lines.contains(&line), "{line} in {entry}");
        }
    }
}

#[test]
fn the_file_is_for_the_user_and_its_group() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("log");
    let name = log.to_str().expect("a name");
    play(
        "enter",
        &directory.path().join("db"),
        &[("ONEWRITE_LOG", name)],
    );
    let mode = fs::metadata(&log).expect("a file").permissions().mode();
    assert_eq!(mode & 0o137, 0, "{mode:o}");
}

const PHASES: [&str; 8] = [
    "write_lock_us",
    "busy_us",
    "write_us",
    "flush_us",
    "group_us",
    "growth_us",
    "checkpoint_us",
    "other_us",
];

/// Plays a scene until one of its slow commits has this main phase. All of them must add up.
fn names_the_phase(scene: &str, phase: &str) {
    let field = format!("{phase}_us");
    for _ in 0..MOST_TRIES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let text = told(scene, &path, &[("ONEWRITE_STALL_LOG", "100ms")]);
        let stalled = events(&text, "commit_stalled");
        for event in &stalled {
            let sum: u64 = PHASES.iter().map(|phase| number(event, phase)).sum();
            assert!(sum <= number(event, "us"), "{event:?}");
            // Each phase loses less than a microsecond.
            assert!(sum + 8 >= number(event, "us"), "{event:?}");
            assert!(number(event, "us") > 100_000, "{event:?}");
            assert_eq!(number(event, "limit_us"), 100_000);
            let longest = PHASES.iter().map(|phase| number(event, phase)).max();
            let main = format!("{}_us", event["main"]);
            assert_eq!(Some(number(event, &main)), longest, "{event:?}");
        }
        let planted = PLANTED.as_micros() as u64 / 2;
        let is_it = |event: &&Event| event["main"] == phase && number(event, &field) >= planted;
        if stalled.iter().any(|event| is_it(&event)) {
            return;
        }
        println!("once more: {text}");
    }
    panic!("no commit of {scene} is told to have waited for {phase}");
}

#[test]
fn a_slow_flush_is_named() {
    names_the_phase("flush", "flush");
}

#[test]
fn another_connection_with_the_write_lock_is_named() {
    names_the_phase("busy", "busy");
}

#[test]
fn the_growth_of_the_log_is_named() {
    names_the_phase("growth", "growth");
}

#[test]
fn the_checkpoint_of_a_commit_is_named() {
    names_the_phase("own_checkpoint", "checkpoint");
}

#[test]
fn the_wait_for_a_leader_is_named() {
    names_the_phase("group", "group");
}

/// In the first second every commit is beyond the limit.
#[test]
fn of_several_slow_commits_the_slowest_is_there() {
    let directory = tempfile::tempdir().expect("a directory");
    let limit = [("ONEWRITE_STALL_LOG", "1us")];
    let text = told("flush", &directory.path().join("db"), &limit);
    let stalled = events(&text, "commit_stalled");
    let planted = PLANTED.as_micros() as u64;
    assert!(
        stalled.iter().any(|event| number(event, "us") >= planted),
        "{text}"
    );
}

#[test]
fn a_commit_within_the_limit_is_not_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let limit = [("ONEWRITE_STALL_LOG", "3600s")];
    let text = told("flush", &directory.path().join("db"), &limit);
    assert_eq!(events(&text, "commit_stalled").len(), 0, "{text}");
}
