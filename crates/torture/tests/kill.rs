//! kill -9 at random moments: every acknowledged commit survives, and nothing else appears. The
//! tests also show that the checks find planted faults.

mod common;

use common::{expect_broken, expect_clean, number};
use onewrite_torture::failure::Promise;
use serde_json::Value;

fn expect_work_and_checks(report: &Value, least_kills: u64) {
    assert!(number(report, "kills") >= least_kills, "{report}");
    assert!(
        number(report, "checks_dead") > 0 && number(report, "acknowledged") > 10,
        "{report}"
    );
}

#[test]
fn waldio_loses_nothing_and_keeps_stock_out() {
    let report = expect_clean("kill --mode waldio --kills 60 --max-seconds 90");
    expect_work_and_checks(&report, 20);
    assert!(number(&report, "stock_checks") > 0, "{report}");
}

#[test]
fn onewrite_and_swal_lose_nothing() {
    for mode in ["onewrite", "onewrite --synchronous normal", "swal"] {
        let report = expect_clean(&format!("kill --mode {mode} --kills 40 --max-seconds 60"));
        expect_work_and_checks(&report, 15);
    }
}

#[test]
fn threads_and_processes_that_share_flushes_lose_nothing() {
    let run = "kill --mode onewrite --writers 3 --threads 3 --kills 30 --max-seconds 60";
    expect_work_and_checks(&expect_clean(run), 10);
}

#[cfg(feature = "lsmvbt")]
#[test]
fn lsmvbt_loses_nothing() {
    for durability in [
        "full --torn double",
        "normal --torn double",
        "full --torn trust",
        "normal --torn trust",
    ] {
        let arguments =
            format!("kill --mode lsmvbt --kills 30 --synchronous {durability} --max-seconds 60");
        expect_work_and_checks(&expect_clean(&arguments), 10);
    }
}

#[test]
fn waldio_at_normal_and_off_loses_nothing() {
    for level in ["normal", "off"] {
        let arguments =
            format!("kill --mode waldio --kills 40 --synchronous {level} --max-seconds 60");
        expect_work_and_checks(&expect_clean(&arguments), 10);
    }
}

#[test]
fn direct_loses_nothing_whoever_recovers() {
    let report = expect_clean("kill --mode direct --stock --threads 2 --kills 40 --max-seconds 60");
    expect_work_and_checks(&report, 15);
}

#[test]
fn direct_at_normal_and_off_loses_nothing() {
    for level in ["normal", "off"] {
        let arguments =
            format!("kill --mode direct --kills 20 --synchronous {level} --max-seconds 60");
        expect_work_and_checks(&expect_clean(&arguments), 8);
    }
}

#[test]
fn stock_modes_pass_through_our_vfs() {
    for mode in ["wal", "delete"] {
        let report = expect_clean(&format!("kill --mode {mode} --kills 15 --max-seconds 60"));
        expect_work_and_checks(&report, 8);
    }
}

#[test]
fn commits_acknowledged_too_early_are_seen_by_readers() {
    expect_broken(
        "kill --mode wal --engine stock --kills 60 --lie early-acknowledgement",
        &[
            Promise::SnapshotsAreFresh,
            Promise::AcknowledgedCommitsSurvive,
        ],
    );
}

#[test]
fn commits_acknowledged_too_early_are_missed_after_a_kill() {
    expect_broken(
        "kill --mode wal --engine stock --kills 200 --lie early-acknowledgement \
         --writers 1 --readers 0",
        &[Promise::AcknowledgedCommitsSurvive],
    );
}

#[test]
fn half_a_transaction_is_seen() {
    expect_broken(
        "kill --mode wal --engine stock --kills 60 --lie half-commit",
        &[Promise::SnapshotsAreWhole],
    );
}

#[test]
fn a_lost_commit_is_seen() {
    expect_broken(
        "kill --mode wal --engine stock --kills 60 --lie dropped-commit",
        &[
            Promise::AcknowledgedCommitsSurvive,
            Promise::SnapshotsAreFresh,
        ],
    );
}

#[test]
fn a_commit_that_was_rolled_back_is_seen() {
    expect_broken(
        "kill --mode wal --engine stock --kills 60 --lie unknown-commit",
        &[Promise::NothingElseAppears],
    );
}
