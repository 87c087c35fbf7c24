//! SQLite's own WAL faults with the installed SQLite (Debian's 3.40.1 has both), in processes that
//! use our VFS. The faults are commits without checksums, and a log that starts again alongside a
//! checkpoint. The tests also make a wal-index invalid or half-written while a reader uses it, as
//! during another process's recovery.

use super::{Fixture, printed};
use crate::common::{extension, python, skip};
use sqlite_source::sqlite_source;
use std::path::PathBuf;
use std::process::Command;

#[path = "../../../onewrite/tests/common/sqlite_source.rs"]
mod sqlite_source;

const MODES: [&str; 4] = ["waldio", "onewrite", "swal", "direct"];

/// Plays a scenario of `wal_faults.py` in each mode.
fn run_script(scenario: &str) {
    let Some(python) = python() else { return };
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/extension/wal_faults.py");
    for mode in MODES {
        let fixture = Fixture::new();
        let mut command = Command::new(&python);
        command
            .arg(&script)
            .arg(extension())
            .arg(fixture.database());
        let said = printed(command.args([scenario, mode]));
        assert_eq!(said, "done", "{mode}");
    }
}

#[test]
fn a_reader_goes_on_while_others_recover() {
    run_script("invalid");
}

#[test]
fn a_header_that_is_being_written_is_not_believed() {
    run_script("torn");
}

#[test]
fn commits_that_sqlite_leaves_without_checksums_are_kept_and_nobody_recovers() {
    run_script("resealed");
}

#[test]
fn with_exclusive_locking_they_are_kept_too() {
    run_script("resealed-exclusive");
}

#[test]
fn the_status_names_the_faults_of_the_sqlite_that_runs() {
    run_script("status");
}

/// Links a C program with the installed SQLite, because only that one has the fault.
fn linked(fixture: &Fixture, source: &str) -> Option<PathBuf> {
    let program = fixture.directory.path().join("program");
    let output = Command::new("cc")
        .arg(
            PathBuf::from(env!("CARGO_MANIFEST_DIR"))
                .join("tests/extension")
                .join(source),
        )
        .arg("-I")
        .arg(sqlite_source())
        .arg("-o")
        .arg(&program)
        .arg("-l:libsqlite3.so.0")
        .output()
        .expect("cc, which the bundled SQLite was compiled with");
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        skip(&format!("no libsqlite3.so.0 to link with: {why}"));
        return None;
    }
    Some(program)
}

#[test]
fn where_a_vfs_over_ours_hides_the_checksum_the_wal_index_is_put_right() {
    let fixture = Fixture::new();
    let Some(program) = linked(&fixture, "wal_over.c") else {
        return;
    };
    for mode in MODES {
        let fixture = Fixture::new();
        let run = |what: &str| {
            let mut command = Command::new(&program);
            command.arg(extension()).arg(fixture.database());
            printed(command.args([mode, what]))
        };
        assert_eq!(
            run("write"),
            "8 0",
            "{mode}: the last commit, and recoveries"
        );
        assert_eq!(run("read"), "8 ok", "{mode}");
    }
}

#[test]
fn a_log_does_not_start_again_next_to_a_checkpoint() {
    let fixture = Fixture::new();
    let Some(program) = linked(&fixture, "wal_reset.c") else {
        return;
    };
    // Through our VFS, SQLite's own mode is safe as well.
    for mode in MODES.into_iter().chain(["wal"]) {
        let fixture = Fixture::new();
        let mut command = Command::new(&program);
        command.arg(extension()).arg(fixture.database()).arg(mode);
        assert_eq!(printed(&mut command), "done", "{mode}");
    }
}
