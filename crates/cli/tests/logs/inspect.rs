//! `onewrite inspect`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use onewrite_torture::random::{Random, fresh_seed};
use serde_json::{Value, json};

use super::writer::{FOUR_COMMITS, Then, Writer};
use super::{companion, inspect_json, lossy, onewrite, run, snapshot};

const LAYOUTS: [&str; 5] = ["embedded", "sector", "page4k", "page8k", "gathered"];

struct Case {
    directory: tempfile::TempDir,
    files: AtomicU32,
}

impl Case {
    fn new() -> Case {
        Case {
            directory: tempfile::tempdir().expect("a temporary directory"),
            files: AtomicU32::new(0),
        }
    }

    fn database(&self) -> PathBuf {
        self.directory.path().join("test.db")
    }

    fn log(&self) -> PathBuf {
        companion(&self.database(), "-onewrite")
    }

    /// A log whose writer was killed after `sql`.
    fn killed(layout: &str, sql: &str) -> Case {
        let case = Case::new();
        Writer::start(&case.database(), "waldio", layout, sql, Then::Wait).kill();
        case
    }

    /// The report of `inspect` on these bytes as a log.
    fn of_bytes(&self, bytes: &[u8], suffix: &str) -> (Value, i32) {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        let path = self.directory.path().join(format!("copy{number}{suffix}"));
        fs::write(&path, bytes).expect("a file");
        let found = inspect_json(&path, &[]);
        fs::remove_file(&path).expect("the file");
        found
    }
}

#[test]
fn a_log_of_every_layout_is_shown_while_it_is_in_use_and_after_a_kill() {
    for layout in LAYOUTS {
        let case = Case::new();
        let writer = Writer::start(&case.database(), "waldio", layout, FOUR_COMMITS, Then::Wait);
        let (live, code) = inspect_json(&case.database(), &["--all"]);
        assert_eq!(code, 0, "{live:#}");
        assert_eq!(live["kind"], "database");
        assert_eq!(live["database"]["guarded"], true);
        assert_eq!(live["database"]["log_id"], live["log"]["header"]["id"]);
        assert_eq!(live["log"]["in_use"], true);
        writer.kill();
        let before = snapshot(case.directory.path());
        let (log, code) = inspect_json(&case.log(), &["--all"]);
        assert_eq!((code, &log["damaged"]), (0, &json!(false)), "{log:#}");
        assert_eq!(log["kind"], "log");
        let log = &log["log"];
        assert_eq!(log["in_use"], false);
        assert_eq!(log["header"]["layout"], layout);
        assert_eq!(log["header"]["mode"], "waldio");
        assert_eq!(log["totals"]["transactions"], 4);
        assert_eq!(log["valid_frames"], log["committed"]["frame"]);
        assert_eq!(log["end"]["reason"], "zeros");
        assert_eq!(log["frames"], live["log"]["frames"]);
        let frames = log["frames"].as_array().expect("frames");
        assert_eq!(json!(frames.len()), log["valid_frames"]);
        let commits = frames.iter().filter(|frame| frame["commit_pages"] != 0);
        assert_eq!(commits.count(), 4);
        assert!(frames.iter().all(|frame| frame["state"] == "valid"));
        assert_eq!(
            snapshot(case.directory.path()),
            before,
            "inspect changes nothing"
        );
    }
}

#[test]
fn frames_of_before_a_restart_are_another_generation() {
    // In `gathered` the first header of a block is written with zeros after it.
    for layout in LAYOUTS.into_iter().filter(|layout| *layout != "gathered") {
        let sql = format!(
            "{FOUR_COMMITS} PRAGMA wal_checkpoint(RESTART); INSERT INTO t VALUES(4, 'four');"
        );
        let case = Case::killed(layout, &sql);
        let (found, code) = inspect_json(&case.log(), &[]);
        assert_eq!(code, 0, "{found:#}");
        let log = &found["log"];
        assert_eq!(log["totals"]["transactions"], 1);
        assert_eq!(log["end"]["reason"], "other-generation");
        assert_ne!(log["end"]["salts"], log["wal_header"]["salts"]);
        assert!(
            log["behind"]["other_generation"].as_u64() >= Some(3),
            "{log:#}"
        );
        let frames = log["frames"].as_array().expect("frames");
        let last = frames.last().expect("a frame");
        assert_eq!(
            last["state"], "other-generation",
            "it is seen why the log ends"
        );
    }
}

#[test]
fn an_escaped_page_is_shown_as_escaped() {
    let case = Case::new();
    let start = |sql| Writer::start(&case.database(), "waldio", "embedded", sql, Then::Wait);
    start(FOUR_COMMITS).finish();
    // A backup from a database without reserved bytes leaves such bytes at the end of the second
    // page.
    let mut database = fs::read(case.database()).expect("the database");
    database[8192 - 24..8192].fill(0xee);
    fs::write(case.database(), database).expect("the database");
    start("INSERT INTO t VALUES(4, 'four');").kill();
    let (found, code) = inspect_json(&case.log(), &[]);
    assert_eq!(code, 0, "{found:#}");
    assert_eq!(found["log"]["totals"]["escaped"], 1);
    let frames = found["log"]["frames"].as_array().expect("frames");
    let escaped = frames.iter().find(|frame| frame["escaped"] == true);
    let escaped = escaped.expect("an escaped frame");
    assert_eq!(
        (&escaped["page"], &escaped["state"]),
        (&json!(2), &json!("valid"))
    );
    // Its entry is in the side block after the header block.
    let mut bytes = fs::read(case.log()).expect("the log");
    let number = escaped["frame"].as_u64().expect("a number") as usize;
    bytes[4096 + (number - 1) * 32 + 24] ^= 1;
    let (found, code) = case.of_bytes(&bytes, "-onewrite");
    assert_eq!(
        (code, &found["log"]["end"]["reason"]),
        (1, &json!("no-side-entry"))
    );
}

#[test]
fn a_torn_last_frame_is_named_with_its_place() {
    for layout in LAYOUTS {
        let case = Case::killed(layout, FOUR_COMMITS);
        let (whole, _) = inspect_json(&case.log(), &["--all"]);
        let frames = whole["log"]["frames"].as_array().expect("frames");
        let last = frames.last().expect("a frame");
        let offset = last["offset"].as_u64().expect("an offset");
        let mut bytes = fs::read(case.log()).expect("the log");
        let page = offset as usize + if layout == "page4k" { 4096 } else { 24 };
        bytes[page + 300] ^= 1;
        let (torn, code) = case.of_bytes(&bytes, "-onewrite");
        assert_eq!((code, &torn["damaged"]), (1, &json!(true)), "{torn:#}");
        assert_eq!(torn["log"]["end"]["reason"], "checksum-mismatch");
        assert_eq!(torn["log"]["totals"]["transactions"], 3);
        assert_eq!(torn["problems"][0]["offset"], offset);
        let what = torn["problems"][0]["what"].as_str().expect("words");
        assert!(
            what.contains("checksum-mismatch") && what.contains("drops at least 1 transaction "),
            "{what}"
        );
    }
}

#[test]
fn every_flipped_byte_of_the_header_is_damage() {
    let case = Case::killed("embedded", FOUR_COMMITS);
    let bytes = fs::read(case.log()).expect("the log");
    let short = &bytes[..8 * 4096];
    for at in 0..128 {
        let mut damaged = short.to_vec();
        damaged[at] ^= 0x10;
        let (found, code) = case.of_bytes(&damaged, "-onewrite");
        assert_eq!(code, 1, "byte {at}: {found:#}");
        assert_eq!(
            found["problems"].as_array().map(Vec::len),
            Some(1),
            "byte {at}"
        );
        assert_eq!(found["log"]["header"], Value::Null, "byte {at}");
        assert!(found["problems"][0]["offset"].as_u64() <= Some(128));
    }
}

#[test]
fn every_prefix_is_described() {
    let case = Case::killed("sector", FOUR_COMMITS);
    let bytes = fs::read(case.log()).expect("the log");
    let (whole, _) = inspect_json(&case.log(), &[]);
    let valid = whole["log"]["valid_frames"].as_u64().expect("a number");
    let slot = whole["log"]["slot_bytes"].as_u64().expect("a number");
    let edges = (0..=valid + 1).flat_map(|i| {
        let edge = 4096 + i * slot;
        [edge - 513, edge - 1, edge, edge + 1, edge + 24, edge + 512]
    });
    let mut before = 0;
    for len in (0..140).chain(edges) {
        let (found, code) = case.of_bytes(&bytes[..len as usize], "-onewrite");
        match len {
            0 => assert_eq!((code, &found["kind"]), (0, &json!("empty"))),
            1..128 => assert_eq!((code, &found["problems"][0]["offset"]), (1, &json!(len))),
            _ => {
                let frames = found["log"]["valid_frames"].as_u64().expect("a number");
                assert!(frames >= before || len < 140, "{len}: {frames}");
                assert_eq!(
                    frames,
                    (len.saturating_sub(4096) / slot).min(valid),
                    "{len}"
                );
                // Inside a frame it was cut, or ended by a full disk: only a wal-index would know which.
                let within = len > 4096 && len < 4096 + valid * slot && (len - 4096) % slot != 0;
                let ends = found["log"]["end"]["reason"] == "cut-short";
                assert!(within || !ends, "{len}: {found:#}");
                assert_eq!(code != 0, len % 512 != 0 || within, "{len}: {found:#}");
                before = frames;
            }
        }
    }
}

#[test]
fn any_bytes_are_described() {
    let seed = std::env::var("ONEWRITE_SEED")
        .map_or_else(|_| fresh_seed(), |text| text.parse().expect("a number"));
    println!("repeat with ONEWRITE_SEED={seed}");
    let mut random = Random::new(seed);
    let case = Case::killed("embedded", FOUR_COMMITS);
    let log = fs::read(case.log()).expect("the log");
    let suffixes = ["", "-onewrite", "-wal", ".db"];
    for round in 0..150 {
        let len = random.below(20_000) as usize;
        let mut bytes: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        let begin: &[u8] = match random.below(6) {
            0 => b"",
            1 => b"onewrite",
            2 => &[0x37, 0x7f, 0x06, 0x82, 0, 0x2d, 0xe2, 0x18],
            3 => b"SQLite format 3\0",
            4 => &log[..128],
            _ => &log[..4096 + random.below(16_384) as usize],
        };
        bytes.splice(..begin.len().min(bytes.len()), begin.iter().copied());
        let suffix = suffixes[random.below(4) as usize];
        let (found, code) = case.of_bytes(&bytes, suffix);
        assert!(code == 0 || code == 1, "round {round}: {code}");
        let problems = found["problems"].as_array().expect("problems");
        assert_eq!(
            (code == 1, &found["damaged"]),
            (!problems.is_empty(), &json!(code == 1))
        );
    }
}

#[test]
fn what_is_no_log_at_all_is_said_to_be_none() {
    let case = Case::new();
    let (found, code) = case.of_bytes(b"neither this nor that", ".txt");
    assert_eq!((code, &found["kind"]), (1, &json!("unknown")));
    let (found, code) = case.of_bytes(b"not even nearly a log", "-onewrite");
    assert_eq!((code, &found["kind"]), (1, &json!("log")));
    let problem = &found["problems"][0];
    assert_eq!(problem["offset"], 0, "it is no log that is cut short");
    assert!(problem["what"].to_string().contains("not an onewrite log"));
    let (found, _) = case.of_bytes(b"onewrite", "-onewrite");
    assert_eq!(found["problems"][0]["offset"], 8, "it is cut short there");
    let (found, code) = case.of_bytes(&[0; 8192], "-onewrite");
    assert_eq!(
        (code, &found["kind"]),
        (0, &json!("log")),
        "made, and never written"
    );
    let output = run(onewrite(&["inspect", "/nonexistent/file"]));
    assert_eq!(output.status.code(), Some(1));
    assert!(lossy(&output.stderr).contains("/nonexistent/file"));
    let output = run(onewrite(&["inspect", "/dev/zero"]));
    assert_eq!(output.status.code(), Some(1), "a device is not read");
}

#[test]
fn a_newer_version_is_named() {
    let case = Case::killed("embedded", FOUR_COMMITS);
    let mut bytes = fs::read(case.log()).expect("the log");
    super::make_newer(&mut bytes);
    let (found, code) = case.of_bytes(&bytes, "-onewrite");
    let what = found["problems"][0]["what"].as_str().expect("words");
    assert_eq!((code, &found["problems"][0]["offset"]), (1, &json!(8)));
    assert!(
        what.contains("version 9") && what.contains("newer"),
        "{what}"
    );
}

#[test]
fn a_database_and_its_log_must_belong_together() {
    let case = Case::killed("embedded", FOUR_COMMITS);
    let other = Case::killed("embedded", FOUR_COMMITS);
    let own = fs::read(case.log()).expect("the log");
    let problem = |database: &Path| {
        let (found, code) = inspect_json(database, &[]);
        assert_eq!(code, 1, "{found:#}");
        found["problems"][0]["what"]
            .as_str()
            .expect("words")
            .to_owned()
    };
    fs::copy(other.log(), case.log()).expect("a copy");
    assert!(problem(&case.database()).contains("another database"));
    fs::remove_file(case.log()).expect("the log");
    assert!(problem(&case.database()).contains("missing"));
    // A stock database with a foreign log next to it.
    fs::write(case.log(), own).expect("the log");
    let mut database = fs::read(case.database()).expect("the database");
    database[19] = 2;
    database[72..80].fill(0);
    fs::write(case.database(), database).expect("the database");
    assert!(problem(&case.database()).contains("not guarded"));
}

#[test]
fn a_database_being_written_is_shown_and_not_disturbed() {
    let case = Case::new();
    let sql = format!("{FOUR_COMMITS} PRAGMA wal_autocheckpoint=50;");
    let mut writer = Writer::start(&case.database(), "waldio", "embedded", &sql, Then::Insert);
    let first = writer.next_row();
    for _ in 0..30 {
        let (found, code) = inspect_json(&case.database(), &["--frames", "5"]);
        assert_eq!(code, 0, "{found:#}");
        assert_eq!(found["log"]["in_use"], true);
    }
    assert!(writer.next_row() > first, "it goes on");
    let last = writer.kill();
    let output = run(onewrite(&[
        "detach",
        case.database().to_str().expect("UTF-8"),
    ]));
    assert!(output.status.success(), "{}", lossy(&output.stderr));
    let database = super::stock(&case.database()).expect("a stock database");
    assert!(super::number(&database, "SELECT max(id) FROM t") >= last);
}

#[test]
fn a_log_of_stock_sqlite_is_shown() {
    let case = Case::new();
    let database = case.database();
    let connection = rusqlite::Connection::open(&database).expect("a database");
    let sql = format!("PRAGMA journal_mode=wal; PRAGMA wal_autocheckpoint=0; {FOUR_COMMITS}");
    connection.execute_batch(&sql).expect("stock SQLite");
    // Another process may look; this one must not, while it has a connection.
    let (found, code) = inspect_json(&database, &["--all"]);
    assert_eq!(code, 0, "{found:#}");
    assert_eq!(found["database"]["guarded"], false);
    assert_eq!(found["log"], Value::Null);
    assert_eq!(found["wal"]["totals"]["transactions"], 4);
    let pages = super::number(&connection, "PRAGMA page_count");
    assert_eq!(found["wal"]["committed"]["database_pages"], pages);
    let mut wal = fs::read(companion(&database, "-wal")).expect("the log");
    wal[20] ^= 1;
    let (found, code) = case.of_bytes(&wal, "-wal");
    assert_eq!(code, 1);
    let what = found["problems"][0]["what"].as_str().expect("words");
    assert!(what.contains("checksum"), "{what}");
}

#[test]
fn people_are_told_the_same() {
    let case = Case::killed("embedded", FOUR_COMMITS);
    let text = |more: &[&str]| {
        let database = case.database();
        let file = database.to_str().expect("a path in UTF-8");
        let output = run(onewrite(&[&["inspect", file], more].concat()));
        assert!(output.status.success(), "{}", lossy(&output.stderr));
        lossy(&output.stdout)
    };
    let shown = text(&[]);
    for words in [
        "guarded",
        "layout embedded",
        "4 transactions",
        "valid",
        "zeros",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let rows = |shown: &str| {
        shown
            .lines()
            .filter(|line| line.ends_with("  valid"))
            .count()
    };
    assert!(rows(&shown) >= 4);
    assert_eq!(rows(&text(&["--frames", "2"])), 2);
    assert_eq!(rows(&text(&["--frames", "0"])), 0);
}
