//! A bank on the installed SQLite: nothing is lost under kills, checkpoints, long readers and
//! `ROLLBACK TO`. The tests also show that the checks find planted faults.

mod common;

use common::{expect_broken, expect_clean, extension, number, python};
use onewrite_torture::failure::Promise;
use std::path::Path;

fn soak(python: &Path, arguments: &str) -> String {
    let (extension, python) = (extension(), python.display());
    let extension = extension.display();
    format!("soak --extension {extension} --python {python} {arguments}")
}

#[test]
fn a_bank_on_the_installed_sqlite_loses_nothing() {
    let Some(python) = python() else { return };
    for mode in ["onewrite", "waldio"] {
        let report = expect_clean(&soak(&python, &format!("--mode {mode} --seconds 10")));
        let is_work = number(&report, "acknowledged") > 10 && number(&report, "checks") > 0;
        assert!(is_work, "{report}");
    }
}

#[test]
fn rows_that_were_acknowledged_and_taken_back_are_missed() {
    let Some(python) = python() else { return };
    let arguments = soak(&python, "--mode wal --stock --seconds 5 --lie");
    expect_broken(&arguments, &[Promise::AcknowledgedCommitsSurvive]);
}
