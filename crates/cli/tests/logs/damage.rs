//! Damage in the middle of a killed database's log: `verify`, `salvage` and `detach` miss what stands behind it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::verify::MODES;
use super::writer::{Then, Writer};
use super::{companion, lossy, onewrite, run};

/// Rows, each of them a commit.
const ROWS: u64 = 30;

/// A database that was killed, and copies of it.
struct Killed {
    directory: tempfile::TempDir,
    mode: &'static str,
}

impl Killed {
    fn new((mode, layout): (&'static str, &'static str)) -> Killed {
        let killed = Killed {
            directory: tempfile::tempdir().expect("a temporary directory"),
            mode,
        };
        let rows: Vec<String> = (1..=ROWS)
            .map(|row| format!("INSERT INTO t VALUES({row}, hex(randomblob(40)));"))
            .collect();
        let sql = format!(
            "CREATE TABLE t(id INTEGER PRIMARY KEY, value TEXT); {}",
            rows.concat()
        );
        Writer::start(&killed.database(), mode, layout, &sql, Then::Wait).kill();
        killed
    }

    fn database(&self) -> PathBuf {
        self.directory.path().join("test.db")
    }

    fn log(&self) -> PathBuf {
        match self.mode {
            "direct" | "wal" => companion(&self.database(), "-wal"),
            _ => companion(&self.database(), "-onewrite"),
        }
    }

    /// The places of its frames, in bytes.
    fn frames(&self) -> Vec<usize> {
        let (found, _) = super::inspect_json(&self.log(), &["--all"]);
        let log = [&found["log"], &found["wal"]];
        let frames = log.iter().find_map(|log| log["frames"].as_array());
        frames
            .expect("frames")
            .iter()
            .filter(|frame| frame["state"] == "valid")
            .map(|frame| frame["offset"].as_u64().expect("a number") as usize)
            .collect()
    }

    /// A copy without files that are memory, or with them, and with changed bytes in its log.
    fn copy(&self, with_memory: bool, change: impl FnOnce(&mut Vec<u8>)) -> Copied {
        let to = tempfile::tempdir().expect("a temporary directory");
        for entry in fs::read_dir(self.directory.path()).expect("a directory") {
            let from = entry.expect("an entry").path();
            let is_memory = from.to_string_lossy().ends_with("-shm");
            if with_memory || !is_memory {
                let name = from.file_name().expect("a name");
                fs::copy(&from, to.path().join(name)).expect("a copy");
            }
        }
        let log = to.path().join(self.log().file_name().expect("a name"));
        let mut bytes = fs::read(&log).expect("the log");
        change(&mut bytes);
        fs::write(&log, bytes).expect("the log");
        Copied { directory: to }
    }
}

struct Copied {
    directory: tempfile::TempDir,
}

impl Copied {
    fn database(&self) -> PathBuf {
        self.directory.path().join("test.db")
    }

    fn log(&self, killed: &Killed) -> PathBuf {
        let log = killed.log();
        self.directory.path().join(log.file_name().expect("a name"))
    }

    fn said(&self, words: &[&str]) -> (Value, i32) {
        let output = run(onewrite(words));
        let said = serde_json::from_slice(&output.stdout);
        let said = said.unwrap_or_else(|e| panic!("{e}: {words:?} {}", lossy(&output.stderr)));
        (said, output.status.code().expect("no signal"))
    }

    fn verify(&self) -> (Value, i32) {
        self.said(&["verify", self.database().to_str().expect("UTF-8"), "--json"])
    }

    /// The one reason why the log is not whole.
    fn problem(&self) -> String {
        let (found, code) = self.verify();
        assert_eq!(code, 1, "{found:#}");
        let problems = found["problems"].as_array().expect("problems");
        assert_eq!(problems.len(), 1, "{found:#}");
        problems[0]["what"].as_str().expect("words").to_owned()
    }

    /// The log is whole, and ends inside this frame. `salvage` says so, too.
    fn ends_inside(&self, frame: usize) {
        let words = format!("inside frame {frame}");
        let says = |said: &Value| {
            let notes = said["notes"].as_array().expect("notes").iter();
            let mut notes = notes.filter_map(Value::as_str);
            assert!(notes.any(|note| note.contains(&words)), "{said:#}");
        };
        let (found, code) = self.verify();
        assert_eq!((code, &found["verdict"]), (0, &json!("whole")), "{found:#}");
        says(&found);
        let (said, code, _) = self.salvage();
        assert_eq!(
            (code, &said["is_incomplete"]),
            (0, &json!(false)),
            "{said:#}"
        );
        says(&said);
    }

    /// The document, the exit code, and the rows of the result.
    fn salvage(&self) -> (Value, i32, u64) {
        let out = self.directory.path().join("saved.db");
        let (from, to) = (self.database(), out.to_str().expect("UTF-8").to_owned());
        let (said, code) = self.said(&[
            "salvage",
            from.to_str().expect("UTF-8"),
            "-o",
            &to,
            "--json",
        ]);
        let rows = rows_of(&out);
        fs::remove_file(&out).expect("the result");
        (said, code, rows)
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn rows_of(database: &Path) -> u64 {
    let asked = Command::new("sqlite3")
        .arg(database)
        .arg("SELECT count(*) FROM t")
        .output();
    let asked = lossy(&asked.expect("sqlite3 is installed").stdout);
    asked.trim().parse().unwrap_or(0)
}

#[test]
fn commits_behind_a_damaged_place_are_missed_in_every_mode() {
    for mode in MODES {
        let killed = Killed::new(mode);
        let frames = killed.frames();
        for with_memory in [true, false] {
            for nth in [frames.len() / 3, frames.len() * 2 / 3, frames.len() - 1] {
                let at = frames[nth] + 20;
                let change =
                    |log: &mut Vec<u8>| log[at..at + 8].iter_mut().for_each(|b| *b ^= 0x5a);
                let copy = killed.copy(with_memory, change);
                let what = copy.problem();
                let told = what.contains("transaction") || what.contains("damaged");
                assert!(told, "{mode:?} {nth} {with_memory}: {what}");
                if with_memory && !what.contains("kind") {
                    assert!(what.contains("wal-index says"), "{mode:?} {nth}: {what}");
                }
                let (said, code, rows) = copy.salvage();
                assert_eq!(code, 1, "{mode:?} {nth} {with_memory}: {said:#}");
                assert!(rows < ROWS, "{mode:?} {nth}: {said:#}");
                assert!(rows + 2 >= nth as u64 / 2 / 2, "{mode:?} {nth}: {said:#}");
                assert!(!said["applied"]["ended_by"].is_null(), "{said:#}");
            }
        }
    }
}

/// A whole block is gone, and with it what says that a batch was there.
#[test]
fn commits_behind_a_block_of_zeros_are_counted() {
    let killed = Killed::new(("onewrite", "auto"));
    let at = killed.frames()[20] / 4096 * 4096;
    let copy = killed.copy(false, |log| log[at..at + 4096].fill(0));
    let what = copy.problem();
    assert!(
        what.contains("is zeros") && what.contains("and drops "),
        "{what}"
    );
    let (said, code, _) = copy.salvage();
    let dropped = said["applied"]["dropped_transactions"].as_u64();
    assert!(code == 1 && dropped > Some(10), "{said:#}");
}

/// Nothing stands behind the end, but the wal-index knows of more.
#[test]
fn frames_that_only_the_wal_index_knows_are_missed() {
    for mode in [
        ("onewrite", "auto"),
        ("swal", "auto"),
        ("waldio", "sector"),
        ("direct", "auto"),
    ] {
        let killed = Killed::new(mode);
        let at = killed.frames()[20].next_multiple_of(4096);
        let copy = killed.copy(true, |log| log[at..].fill(0));
        let what = copy.problem();
        assert!(
            what.contains("wal-index says that frames up to"),
            "{mode:?}: {what}"
        );
        let (said, code, _) = copy.salvage();
        assert_eq!(code, 1, "{said:#}");
        assert!(
            said["applied"]["published_frame"].as_u64() > Some(20),
            "{said:#}"
        );
    }
}

/// The wal-index knows the commits behind the end of a file. Without it nobody does. A write that found
/// no space leaves the same bytes as a file that was cut short, so that may be either.
#[test]
fn a_log_that_ends_inside_a_frame_lacks_only_what_the_wal_index_knows() {
    for mode in [("direct", "auto"), ("wal", "auto"), ("waldio", "sector")] {
        let killed = Killed::new(mode);
        let places = killed.frames();
        let begun = 512;
        let copy = killed.copy(true, |log| log.truncate(places[20] + begun));
        let what = copy.problem();
        assert!(
            what.contains("wal-index says that frames up to"),
            "{mode:?}: {what}"
        );
        assert_eq!(copy.salvage().1, 1);
        let copy = killed.copy(false, |log| log.truncate(places[20] + begun));
        let what = copy.problem();
        assert!(what.contains("no wal-index is left"), "{mode:?}: {what}");
        assert_eq!(copy.salvage().1, 1);
        let ends_at = places[places.len() - 1] + (places[1] - places[0]);
        let copy = killed.copy(true, |log| {
            let next = log[places[0]..places[0] + begun].to_vec();
            log.truncate(ends_at);
            log.extend(next);
        });
        copy.ends_inside(places.len() + 1);
        assert_eq!(copy.salvage().2, ROWS, "{mode:?}");
    }
}

/// A large transaction that found no space leaves a part of a block at the end of the file. Nothing is lost.
#[test]
fn a_log_that_ends_inside_a_block_lacks_only_what_the_wal_index_knows() {
    for mode in [
        ("onewrite", "auto"),
        ("waldio", "auto"),
        ("waldio", "page4k"),
    ] {
        let killed = Killed::new(mode);
        let begun = 554;
        let grow = |log: &mut Vec<u8>| log.extend_from_within(4096..4096 + begun);
        let copy = killed.copy(true, grow);
        let (found, code) = copy.verify();
        assert_eq!((code, &found["verdict"]), (0, &json!("whole")), "{found:#}");
        let note = |note: &Value| note.as_str().is_some_and(|n| n.contains("full disk"));
        let notes = found["notes"].as_array().expect("notes");
        assert!(notes.iter().any(note), "{mode:?}: {found:#}");
        let database = copy.database();
        let output = run(onewrite(&["status", database.to_str().expect("UTF-8")]));
        let said = lossy(&output.stdout);
        let is_right = output.status.code() == Some(0) && said.contains("needs recovery");
        assert!(is_right, "{mode:?}: {said}");
        let (said, code, rows) = copy.salvage();
        assert_eq!((code, rows), (0, ROWS), "{mode:?}: {said:#}");
        let what = killed.copy(false, grow).problem();
        assert!(what.contains("no wal-index is left"), "{mode:?}: {what}");
    }
}

/// Not even the first frame is proven: the database alone is not everything.
#[test]
fn a_log_whose_first_frame_is_damaged_is_not_an_empty_one() {
    for mode in [("onewrite", "auto"), ("swal", "auto"), ("waldio", "sector")] {
        let killed = Killed::new(mode);
        let at = killed.frames()[0] + 20;
        let copy = killed.copy(false, |log| {
            log[at..at + 8].iter_mut().for_each(|b| *b ^= 0x5a)
        });
        copy.problem();
        let output = copy.directory.path().join("saved.db");
        let (from, to) = (copy.database(), output.to_str().expect("UTF-8").to_owned());
        let salvaged = run(onewrite(&[
            "salvage",
            from.to_str().expect("UTF-8"),
            "-o",
            &to,
        ]));
        assert_ne!(
            salvaged.status.code(),
            Some(0),
            "{mode:?}: {}",
            lossy(&salvaged.stdout)
        );
    }
}

#[test]
fn a_damaged_kind_costs_only_what_stands_behind_it() {
    const KIND_AT: usize = 24;
    let killed = Killed::new(("swal", "auto"));
    let frames = killed.frames();
    let (nth, &at) = frames
        .iter()
        .enumerate()
        .skip(frames.len() / 2)
        .find(|(_, at)| *at % 512 + 28 <= 512)
        .expect("a header within a sector");
    let copy = killed.copy(true, |log| {
        log[at + KIND_AT] = 0x60 | log[at + KIND_AT] & 0xf
    });
    let what = copy.problem();
    for words in ["kind 6", "newer onewrite", "damaged", "onewrite salvage"] {
        assert!(what.contains(words), "{words}: {what}");
    }
    let (said, code, rows) = copy.salvage();
    assert_eq!(code, 1, "{said:#}");
    assert_eq!(
        said["applied"]["ended_by"]["what"], "unknown-kind",
        "{said:#}"
    );
    assert_eq!(said["applied"]["ended_by"]["frame"], nth + 1);
    assert!(rows > 5 && rows < ROWS, "{said:#}");
    assert!(
        said["notes"].to_string().contains("newer onewrite"),
        "{said:#}"
    );
}

/// A recovery would drop commits without a word, and the backup would take the place of a better one.
#[test]
fn a_backup_is_refused_where_recovery_would_drop_commits() {
    for mode in MODES {
        let killed = Killed::new(mode);
        let frames = killed.frames();
        let at = frames[frames.len() / 2] + 20;
        let change = move |log: &mut Vec<u8>| log[at..at + 8].iter_mut().for_each(|b| *b ^= 0x5a);
        // A shell says so, and recovers.
        let copy = killed.copy(true, change);
        let shell = run(onewrite(&["shell", text(&copy.database()), "SELECT 1"]));
        let said = lossy(&shell.stderr);
        assert!(said.contains(text(&copy.log(&killed))), "{mode:?}: {said}");
        let copy = killed.copy(true, change);
        let (database, log) = (copy.database(), copy.log(&killed));
        let before = fs::read(&log).expect("the log");
        let file = copy.directory.path().join("backup.db");
        fs::write(&file, "an earlier one").expect("a file");
        let refused = run(onewrite(&[
            "backup",
            "--force",
            text(&database),
            text(&file),
        ]));
        let said = lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{mode:?}: {said}");
        assert!(
            said.contains(text(&log)) && said.contains("none was made"),
            "{said}"
        );
        assert_eq!(fs::read(&file).expect("the file"), b"an earlier one");
        assert!(fs::read(&log).expect("the log") == before, "{mode:?}");
        // With a word for it, what recovery leaves.
        let words = [
            "backup",
            "--recover",
            "--force",
            text(&database),
            text(&file),
        ];
        let done = run(onewrite(&words));
        let said = lossy(&done.stderr);
        assert!(
            done.status.success() && said.contains(text(&log)),
            "{mode:?}: {said}"
        );
        assert!((1..ROWS).contains(&rows_of(&file)), "{mode:?}");
    }
}

#[test]
fn detach_says_what_recovery_has_dropped() {
    for mode in [
        ("onewrite", "auto"),
        ("swal", "auto"),
        ("waldio", "embedded"),
    ] {
        let killed = Killed::new(mode);
        let at = killed.frames()[20] + 30;
        let copy = killed.copy(true, |log| log[at] ^= 1);
        let (said, code) =
            copy.said(&["detach", copy.database().to_str().expect("UTF-8"), "--json"]);
        assert_eq!(code, 1, "{mode:?}: {said:#}");
        assert!(
            said["recovered"]["dropped_transactions"].as_u64() > Some(5),
            "{said:#}"
        );
        assert!(
            said["recovered"]["published_frame"].as_u64() > Some(20),
            "{said:#}"
        );
        assert_eq!(said["integrity_check"], json!("ok"));
    }
}

/// A process is killed while it commits, again and again: recovery loses nothing, and nothing is amiss.
#[test]
fn a_log_is_whole_after_every_kill() {
    for (mode, layout) in [
        ("onewrite", "auto"),
        ("swal", "auto"),
        ("waldio", "embedded"),
    ] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let database = directory.path().join("test.db");
        let mut sql = "CREATE TABLE t(id INTEGER PRIMARY KEY, value TEXT);";
        for round in 0..6 {
            let mut writer = Writer::start(&database, mode, layout, sql, Then::Insert);
            sql = "";
            let wanted = writer.next_row() + 3;
            while writer.next_row() < wanted {}
            writer.kill();
            let name = database.to_str().expect("UTF-8");
            let verified = run(onewrite(&["verify", name]));
            let said = lossy(&verified.stdout);
            assert!(verified.status.success(), "{mode} round {round}: {said}");
        }
    }
}
