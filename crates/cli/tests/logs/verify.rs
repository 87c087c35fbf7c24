//! `onewrite verify`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;

use onewrite_torture::random::{Random, fresh_seed};
use serde_json::{Value, json};

use super::case::Case;
use super::writer::{FOUR_COMMITS, Then, Writer};
use super::{companion, lossy, onewrite, run, snapshot, stock};

/// Journal modes, and the layouts that their logs may have.
pub const MODES: [(&str, &str); 9] = [
    ("onewrite", "auto"),
    ("swal", "auto"),
    ("direct", "auto"),
    ("wal", "auto"),
    ("waldio", "embedded"),
    ("waldio", "sector"),
    ("waldio", "page4k"),
    ("waldio", "page8k"),
    ("waldio", "gathered"),
];

impl Case {
    /// The command's report on the database, which it leaves unchanged.
    fn verify(&self, more: &[&str]) -> (Value, i32) {
        let before = snapshot(self.directory.path());
        let found = verify_json(&self.database(), more);
        assert_eq!(snapshot(self.directory.path()), before);
        found
    }

    /// It is not whole, for exactly one reason: returns that.
    fn problem(&self) -> String {
        let (found, code) = self.verify(&[]);
        assert_eq!(
            (code, &found["verdict"]),
            (1, &json!("broken")),
            "{found:#}"
        );
        let problems = found["problems"].as_array().expect("problems");
        assert_eq!(problems.len(), 1, "{found:#}");
        problems[0]["what"].as_str().expect("words").to_owned()
    }
}

fn verify_json(file: &Path, more: &[&str]) -> (Value, i32) {
    let file = file.to_str().expect("a path in UTF-8");
    let output = run(onewrite(&[&["verify", file, "--json"], more].concat()));
    let document = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| {
        panic!(
            "{e}: {:?} {:?}",
            lossy(&output.stdout),
            lossy(&output.stderr)
        )
    });
    (document, output.status.code().expect("no signal"))
}

#[test]
fn a_database_of_every_mode_is_whole_in_use_and_after_a_kill() {
    for (mode, layout) in MODES {
        let case = Case::new();
        let writer = Writer::start(&case.database(), mode, layout, FOUR_COMMITS, Then::Wait);
        let (live, code) = verify_json(&case.database(), &[]);
        assert_eq!(
            (code, &live["in_use"]),
            (0, &json!(true)),
            "{mode} {layout}: {live:#}"
        );
        writer.kill();
        let (dead, code) = case.verify(&[]);
        assert_eq!(
            (code, &dead["in_use"]),
            (0, &json!(false)),
            "{mode} {layout}: {dead:#}"
        );
        assert_eq!(dead["verdict"], "whole");
        let is_guarded = dead["database"]["guarded"] == true;
        let tells = |found: &Value| found["notes"].to_string().contains("onewrite detach");
        assert_eq!(
            (tells(&live), tells(&dead)),
            (false, is_guarded),
            "{dead:#}"
        );
        // The switch to the mode may have left its own transaction.
        assert!(
            dead["recovery"]["transactions"].as_u64() >= Some(4),
            "{dead:#}"
        );
        let (quick, code) = case.verify(&["--quick"]);
        assert_eq!((code, &quick["recovery"]), (0, &Value::Null), "{quick:#}");
    }
}

#[test]
fn a_database_that_was_closed_is_whole() {
    for (mode, layout) in MODES {
        let case = Case::new();
        Writer::start(&case.database(), mode, layout, FOUR_COMMITS, Then::Wait).finish();
        let (found, code) = case.verify(&[]);
        assert_eq!((code, &found["verdict"]), (0, &json!("whole")), "{found:#}");
        assert_eq!(found["recovery"], Value::Null, "{found:#}");
    }
}

#[test]
fn a_log_that_is_being_written_is_never_broken() {
    for (mode, layout) in MODES {
        let case = Case::new();
        let sql = format!("{FOUR_COMMITS} PRAGMA wal_autocheckpoint=20;");
        let mut writer = Writer::start(&case.database(), mode, layout, &sql, Then::Insert);
        let first = writer.next_row();
        for _ in 0..15 {
            let (found, code) = verify_json(&case.database(), &[]);
            assert_eq!(
                (code, &found["in_use"]),
                (0, &json!(true)),
                "{mode} {layout}: {found:#}"
            );
        }
        assert!(writer.next_row() > first, "it goes on");
    }
}

/// The place of the last frame's slot, of a killed or idle waldio database in layout `sector`.
fn last_slot(case: &Case) -> (usize, usize) {
    let (found, _) = super::inspect_json(&case.file("-onewrite"), &["--all"]);
    let frames = found["log"]["frames"].as_array().expect("frames");
    let last = frames.iter().rfind(|frame| frame["state"] == "valid");
    let at = last.expect("a frame")["offset"].as_u64().expect("a number");
    let bytes = found["log"]["slot_bytes"].as_u64().expect("a number");
    (at as usize, bytes as usize)
}

#[test]
fn what_stands_behind_the_last_commit_is_work_under_way_while_it_is_in_use() {
    let case = Case::new();
    let writer = Writer::start(
        &case.database(),
        "waldio",
        "sector",
        FOUR_COMMITS,
        Then::Wait,
    );
    let (at, slot) = last_slot(&case);
    // A commit frame of this generation that follows from nothing, as a failed commit leaves it.
    let mut log = fs::read(case.file("-onewrite")).expect("the log");
    log.copy_within(at..at + slot, at + 2 * slot);
    fs::write(case.file("-onewrite"), &log).expect("the log");
    let (found, code) = verify_json(&case.database(), &[]);
    assert_eq!((code, &found["in_use"]), (0, &json!(true)), "{found:#}");
    writer.kill();
    // The wal-index was kept up to the kill.
    let (found, code) = case.verify(&[]);
    assert_eq!((code, &found["verdict"]), (0, &json!("whole")), "{found:#}");
    assert!(
        found["notes"].to_string().contains("never acknowledged"),
        "{found:#}"
    );
    // After a power cut it may be older than the log.
    fs::remove_file(case.file("-onewrite-shm")).expect("the shared page");
    assert!(case.problem().contains("drops at least 1 transaction "));
}

#[test]
fn a_group_that_is_kept_back_is_no_damage() {
    let case = Case::new();
    let sql = format!("PRAGMA onewrite_group_synch='1000,10000'; {FOUR_COMMITS}");
    let writer = Writer::start(&case.database(), "waldio", "sector", &sql, Then::Wait);
    let (found, code) = verify_json(&case.database(), &[]);
    assert_eq!((code, &found["in_use"]), (0, &json!(true)), "{found:#}");
    writer.finish();
}

#[test]
fn without_permission_it_could_not_look() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: takes root");
        return;
    }
    let case = Case::killed("onewrite", "auto");
    let open = |path: &Path, mode| {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(path, permissions).expect("permissions");
    };
    open(case.directory.path(), 0o755);
    let program = case.directory.path().join("onewrite");
    onewrite_common::files::copy_program(env!("CARGO_BIN_EXE_onewrite"), &program);
    open(&program, 0o755);
    for suffix in ["-onewrite", ""] {
        open(&case.file(suffix), 0o600);
        let database = case.database();
        let mut command = std::process::Command::new(&program);
        command
            .args(["verify", database.to_str().expect("UTF-8")])
            .uid(65_534)
            .gid(65_534);
        let output = run(command);
        let said = lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.to_lowercase().contains("permission"), "{said}");
    }
}

#[test]
fn damage_to_what_is_committed_is_found_while_it_is_in_use() {
    let case = Case::new();
    let writer = Writer::start(
        &case.database(),
        "waldio",
        "sector",
        FOUR_COMMITS,
        Then::Wait,
    );
    let (at, _) = last_slot(&case);
    let mut log = fs::read(case.file("-onewrite")).expect("the log");
    log[at + 300] ^= 1;
    fs::write(case.file("-onewrite"), &log).expect("the log");
    let (found, code) = verify_json(&case.database(), &[]);
    let what = found["problems"][0]["what"].as_str().expect("words");
    assert_eq!((code, &found["in_use"]), (1, &json!(true)));
    assert!(what.contains("wal-index says"), "{what}");
    drop(writer);
}

#[test]
fn files_that_do_not_belong_together_are_told_with_the_way_to_keep_what_they_hold() {
    let (case, other) = (
        Case::killed("waldio", "embedded"),
        Case::killed("onewrite", "auto"),
    );
    let own = fs::read(case.file("-onewrite")).expect("the log");
    fs::copy(other.file("-onewrite"), case.file("-onewrite")).expect("a copy");
    let mut said = vec![case.problem()];
    assert!(said[0].contains("another"), "{}", said[0]);
    fs::remove_file(case.file("-onewrite")).expect("the log");
    said.push(case.problem());
    assert!(said[1].contains("missing"), "{}", said[1]);
    // Another database was copied over a killed one.
    fs::write(case.file("-onewrite"), &own).expect("the log");
    let guarded = fs::read(case.database()).expect("the database");
    let closed = Case::new();
    let (mode, layout) = ("waldio", "embedded");
    Writer::start(&closed.database(), mode, layout, FOUR_COMMITS, Then::Wait).finish();
    fs::copy(closed.database(), case.database()).expect("a copy");
    said.push(case.problem());
    assert!(said[2].contains("not guarded"), "{}", said[2]);
    fs::write(case.database(), &guarded).expect("the database");
    for suffix in ["-wal", "-journal"] {
        let stray = case.file(suffix);
        let bytes: &[u8] = match suffix {
            "-wal" => &own[32..64],
            _ => &[0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7, 0, 0],
        };
        fs::write(&stray, bytes).expect("a file");
        said.push(case.problem());
        fs::remove_file(&stray).expect("the file");
    }
    fs::write(case.file("-onewrite-orphan-0123456789abcdef"), &own).expect("a log");
    said.push(case.problem());
    assert!(said[5].contains("4 transactions"), "{}", said[5]);
    let (quick, code) = case.verify(&["--quick"]);
    let (frames, what) = (
        &quick["orphans"][0]["frames"],
        &quick["problems"][0]["what"],
    );
    assert_eq!((code, frames), (1, &Value::Null), "{quick:#}");
    said.push(what.as_str().expect("words").to_owned());
    assert!(said[6].contains("were not read"), "{}", said[6]);
    for what in said {
        assert!(what.contains("onewrite salvage"), "{what}");
        for bad in [
            "delete",
            "remove",
            "discard",
            "move it away",
            "move the log",
        ] {
            assert!(!what.contains(bad), "{bad:?} in {what}");
        }
    }
}

/// Zeros in place of the beginning of a file.
fn zero(file: &Path, bytes: usize) {
    let mut content = fs::read(file).expect("the file");
    content[..bytes].fill(0);
    fs::write(file, content).expect("the file");
}

#[test]
fn a_log_that_has_lost_its_header_is_not_said_to_be_empty() {
    for (mode, layout) in MODES.into_iter().filter(|(mode, _)| *mode != "wal") {
        let case = Case::killed(mode, layout);
        let suffix = if mode == "direct" {
            "-wal"
        } else {
            "-onewrite"
        };
        let log = case.file(suffix);
        zero(&log, 4096);
        let empty = |found: &Value| found["notes"].to_string().contains("the log is empty\"");
        for file in [case.database(), log.clone()] {
            let (found, code) = verify_json(&file, &[]);
            assert!(!empty(&found), "{mode} {layout}: {found:#}");
            if mode == "direct" {
                // It may also be a first commit in which the power failed.
                assert!(found["notes"].to_string().contains("keep a copy"));
                continue;
            }
            let what = found["problems"][0]["what"].as_str().expect("words");
            assert_eq!(
                (code, found["problems"].as_array().map(Vec::len)),
                (1, Some(1))
            );
            assert!(what.contains("lost its header"), "{what}");
        }
        let size = fs::metadata(&log).expect("the log").len();
        zero(&log, size as usize);
        let (found, code) = verify_json(&log, &[]);
        assert_eq!(
            (code, empty(&found)),
            (0, true),
            "{mode} {layout}: {found:#}"
        );
        if mode != "direct" {
            let (found, _) = verify_json(&case.database(), &[]);
            assert!(!empty(&found), "{mode} {layout}: {found:#}");
        }
    }
}

#[test]
fn pages_that_are_in_neither_file_are_missed() {
    let case = Case::new();
    let sql =
        "CREATE TABLE t(a); INSERT INTO t VALUES(zeroblob(90000)); PRAGMA wal_checkpoint(TRUNCATE);
        INSERT INTO t VALUES('more');";
    for (mode, layout) in [("onewrite", "auto"), ("direct", "auto")] {
        Writer::start(&case.database(), mode, layout, sql, Then::Wait).kill();
        assert_eq!(case.verify(&[]).1, 0);
        let file = fs::OpenOptions::new().write(true).open(case.database());
        file.expect("the database")
            .set_len(5 * 4096)
            .expect("shorter");
        assert!(case.problem().contains("cut short"));
        for entry in fs::read_dir(case.directory.path()).expect("a directory") {
            fs::remove_file(entry.expect("an entry").path()).expect("a file");
        }
    }
    let connection = rusqlite::Connection::open(case.database()).expect("a database");
    connection
        .execute_batch("CREATE TABLE t(a); CREATE TABLE u(a)")
        .expect("tables");
    drop(connection);
    assert_eq!(case.verify(&[]).1, 0);
    let file = fs::OpenOptions::new().write(true).open(case.database());
    file.expect("the database")
        .set_len(2 * 4096)
        .expect("shorter");
    assert!(case.problem().contains("cut short"));
}

/// An exchange moves a page from the log to the database, where recovery looks for it.
#[test]
fn a_page_that_an_exchange_has_moved_is_found_in_the_database() {
    let case = Case::killed("waldio", "gathered");
    let (at, slot) = last_slot(&case);
    let mut log = fs::read(case.file("-onewrite")).expect("the log");
    let (found, _) = super::inspect_json(&case.file("-onewrite"), &["--all"]);
    let frames = found["log"]["frames"].as_array().expect("frames");
    let last = frames.iter().rfind(|frame| frame["state"] == "valid");
    let page = last.expect("a frame")["page"].as_u64().expect("a number") as usize;
    assert!(page > 1, "page 1 is never exchanged");
    let mut database = fs::read(case.database()).expect("the database");
    database.resize(database.len().max(page * slot), 0);
    for byte in 0..slot {
        std::mem::swap(&mut log[at + byte], &mut database[(page - 1) * slot + byte]);
    }
    fs::write(case.file("-onewrite"), &log).expect("the log");
    fs::write(case.database(), &database).expect("the database");
    let (found, code) = case.verify(&[]);
    assert_eq!(code, 0, "{found:#}");
    assert_eq!(found["recovery"]["transactions"], 4);
    let told = run(onewrite(&[
        "detach",
        case.database().to_str().expect("UTF-8"),
    ]));
    assert!(told.status.success(), "{}", lossy(&told.stderr));
    let rows = super::number(
        &stock(&case.database()).expect("it"),
        "SELECT count(*) FROM t",
    );
    assert_eq!(rows, 3, "recovery agrees");
}

#[test]
fn what_cannot_be_looked_at_is_another_exit_code() {
    let case = Case::new();
    let (found, code) = verify_json(&case.database(), &[]);
    assert_eq!((code, &found["verdict"]), (2, &json!("unread")));
    fs::create_dir(case.database()).expect("a directory");
    assert_eq!(verify_json(&case.database(), &[]).1, 2);
    fs::remove_dir(case.database()).expect("the directory");
    // A log that is no file.
    let connection = rusqlite::Connection::open(case.database()).expect("a database");
    connection
        .execute_batch("CREATE TABLE t(a)")
        .expect("a table");
    drop(connection);
    fs::create_dir(case.file("-onewrite")).expect("a directory");
    assert_eq!(verify_json(&case.database(), &[]).1, 2);
}

#[test]
fn a_newer_version_and_any_bytes_are_described() {
    let case = Case::killed("onewrite", "auto");
    let whole = fs::read(case.file("-onewrite")).expect("the log");
    let mut log = whole.clone();
    super::make_newer(&mut log);
    fs::write(case.file("-onewrite"), &log).expect("the log");
    assert!(case.problem().contains("newer"));
    let seed = std::env::var("ONEWRITE_SEED")
        .map_or_else(|_| fresh_seed(), |text| text.parse().expect("a number"));
    println!("repeat with ONEWRITE_SEED={seed}");
    let mut random = Random::new(seed);
    let database = fs::read(case.database()).expect("the database");
    for _ in 0..60 {
        let (mut log, mut database) = (whole[..3 * 4096].to_vec(), database.clone());
        for _ in 0..random.below(4) {
            let at = random.below(log.len() as u64) as usize;
            log[at] = random.next() as u8;
            let at = random.below(100) as usize;
            database[at] = random.next() as u8;
        }
        log.truncate(random.below(log.len() as u64 + 1) as usize);
        fs::write(case.file("-onewrite"), &log).expect("the log");
        fs::write(case.database(), &database).expect("the database");
        let (found, code) = case.verify(&[]);
        assert!(code < 2, "{found:#}");
    }
}

#[test]
fn an_empty_file_is_whole_and_said_to_be_empty_unless_a_log_next_to_it_holds_transactions() {
    let case = Case::new();
    fs::write(case.database(), "").expect("a file");
    let text = |database: &Path| {
        let database = database.to_str().expect("UTF-8");
        lossy(&run(onewrite(&["verify", database])).stdout)
    };
    let (found, code) = case.verify(&[]);
    let is = (code, &found["kind"], &found["verdict"]);
    assert_eq!(is, (0, &json!("empty"), &json!("whole")), "{found:#}");
    let told = text(&case.database());
    for words in ["whole, empty", "0 bytes", "valid database without tables"] {
        assert!(told.contains(words), "{words}: {told}");
    }
    // An empty log is no database.
    fs::write(case.file("-onewrite"), "").expect("a file");
    assert_eq!(case.verify(&[]).1, 0);
    let told = text(&case.file("-onewrite"));
    assert!(
        told.contains("the log is empty") && !told.contains("database"),
        "{told}"
    );
    fs::remove_file(case.file("-onewrite")).expect("the file");
    for (mode, suffix) in [
        ("onewrite", "-onewrite"),
        ("waldio", "-onewrite"),
        ("wal", "-wal"),
    ] {
        let killed = Case::killed(mode, "auto");
        fs::copy(killed.file(suffix), case.file(suffix)).expect("a copy");
        let problem = case.problem();
        assert!(problem.contains("transactions"), "{problem}");
        assert!(problem.contains("onewrite salvage"), "{problem}");
        let (quick, code) = case.verify(&["--quick"]);
        assert_eq!(code, 1, "{quick:#}");
        assert!(text(&case.database()).contains("NOT WHOLE, empty"));
        fs::remove_file(case.file(suffix)).expect("the log");
    }
    // The log that remembers a mode holds nothing.
    let closed = Case::new();
    Writer::start(
        &closed.database(),
        "onewrite",
        "auto",
        FOUR_COMMITS,
        Then::Wait,
    )
    .finish();
    fs::copy(closed.file("-onewrite"), case.file("-onewrite")).expect("a copy");
    assert_eq!(case.verify(&[]).1, 0);
}

#[test]
fn a_name_that_is_not_utf8_is_read_and_written_in_json() {
    use std::os::unix::ffi::OsStrExt;
    let case = Case::killed("onewrite", "auto");
    let name = case
        .directory
        .path()
        .join(std::ffi::OsStr::from_bytes(b"\xff.db"));
    let json_of = |command: &str| {
        let mut started = onewrite(&[command, "--json"]);
        started.arg(&name);
        let output = run(started);
        let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| {
            panic!("{command}: {e}: {}", lossy(&output.stderr));
        });
        (document, output.status.code())
    };
    let (found, code) = json_of("verify");
    assert_eq!((code, &found["verdict"]), (Some(2), &json!("unread")));
    for suffix in ["", "-onewrite"] {
        fs::copy(case.file(suffix), companion(&name, suffix)).expect("a copy");
    }
    for command in ["verify", "inspect", "detach"] {
        let (found, code) = json_of(command);
        assert_eq!(code, Some(0), "{command}: {found:#}");
    }
}

#[test]
fn people_are_told_the_same() {
    let case = Case::killed("waldio", "embedded");
    let output = run(onewrite(&[
        "verify",
        case.database().to_str().expect("UTF-8"),
    ]));
    let told = lossy(&output.stdout);
    assert!(output.status.success(), "{told}");
    for words in [
        "whole",
        "guarded for the log",
        "4 transactions",
        "checksums",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
}
