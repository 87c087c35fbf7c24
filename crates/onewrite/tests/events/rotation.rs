//! A log file that `logrotate` renames, or copies and cuts, while a process writes events.

use std::fs;
use std::path::Path;

use super::child::play;
use super::{events, made};

/// The variable that the process has, too.
const LOG: &str = "ONEWRITE_LOG";

/// The scene of these tests; `false` for another's.
pub fn scene(name: &str, path: &Path) -> bool {
    let how: fn(&Path) = match name {
        "renamed" => rename,
        "cut" => copy_and_cut,
        _ => return false,
    };
    let log = std::env::var_os(LOG).expect("a log");
    for round in 0..3 {
        drop(made(&path.with_extension(round.to_string()), "onewrite"));
        how(Path::new(&log));
    }
    drop(made(&path.with_extension("last"), "onewrite"));
    true
}

/// The next free name of an old log.
fn old(log: &Path) -> std::path::PathBuf {
    let mut names = (1..).map(|number| log.with_extension(number.to_string()));
    names.find(|name| !name.exists()).expect("a free name")
}

/// As `nocreate` does: the file is missing until somebody makes it.
fn rename(log: &Path) {
    fs::rename(log, old(log)).expect("renamed");
}

/// As `copytruncate` does.
fn copy_and_cut(log: &Path) {
    fs::copy(log, old(log)).expect("copied");
    let file = fs::OpenOptions::new().write(true).open(log);
    file.expect("the log").set_len(0).expect("cut");
}

/// Nothing stays open between two events, and a line goes to the end of the file.
#[test]
fn each_event_is_in_the_file_of_its_time_whole_and_once() {
    for how in ["renamed", "cut"] {
        let directory = tempfile::tempdir().expect("a directory");
        let log = directory.path().join("events.log");
        let place = log.to_str().expect("a name");
        play(how, &directory.path().join("db"), &[(LOG, place)]);
        for (file, database) in [
            ("1", "db.0"),
            ("2", "db.1"),
            ("3", "db.2"),
            ("log", "db.last"),
        ] {
            let text = fs::read_to_string(log.with_extension(file)).expect("text");
            let entered = events(&text, "mode_entered");
            assert_eq!(entered.len(), 1, "{how}, {file}: {text}");
            assert!(entered[0]["database"].ends_with(database), "{how}: {text}");
            // After a hole of zeros this would not be the begin.
            assert!(text.starts_with("time="), "{how}, {file}: {text}");
        }
    }
}
