//! Stock SQLite and ours on one database, and the files of a crash in stock SQLite.

mod common;

use common::{expect_broken, expect_clean, number};
use onewrite_torture::failure::Promise;

#[test]
fn stock_and_waldio_race_without_harm() {
    let report = expect_clean("races --mode waldio --count 200 --max-seconds 90");
    assert!(number(&report, "races") >= 50, "{report}");
    assert!(number(&report, "guarded") > 0, "{report}");
}

#[test]
fn stock_and_direct_share_one_log() {
    let report = expect_clean("races --mode direct --count 100 --max-seconds 60");
    assert!(number(&report, "races") >= 30, "{report}");
    let commits = (
        number(&report, "commits_of_ours"),
        number(&report, "commits_of_stock"),
    );
    assert!(commits.0 > 0 && commits.1 > 0, "{report}");
}

#[test]
fn a_byte_that_stock_changes_is_seen() {
    expect_broken(
        "races --mode waldio --count 100 --scribble --max-seconds 60",
        &[Promise::GuardedBytesStay],
    );
}

#[test]
fn after_a_crash_stock_is_kept_out_until_ours_has_recovered() {
    let report = expect_clean("crash --mode waldio --crashes 5");
    assert_eq!(number(&report, "crashes"), 5);
    if report["stock"]
        .as_array()
        .is_none_or(|stock| stock.len() < 2)
    {
        common::skip("the sqlite3 shell is not installed: stock was the linked SQLite alone");
    }
}
