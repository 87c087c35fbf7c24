//! Group synch loses at most the newest frames, by count and by time, and never out of order.

mod common;

use common::{expect_broken, expect_clean, number};
use onewrite_torture::failure::Promise;

#[test]
fn group_synch_loses_four_frames_at_most_and_only_alone() {
    let report = expect_clean("group-synch --mode waldio --group-synch 4,2 --kills 60");
    assert!(number(&report, "kills_in_company") > 0, "{report}");
    // A test that never loses a commit could not tell 4 from 4,000.
    assert!(number(&report, "lost") > 0, "{report}");
    assert!(number(&report, "most_lost") <= 4, "{report}");
}

#[test]
fn waldio_without_group_synch_loses_nothing() {
    for level in ["full", "normal"] {
        let arguments = format!("group-synch --mode waldio --synchronous {level} --kills 20");
        assert_eq!(number(&expect_clean(&arguments), "lost"), 0);
    }
}

#[test]
fn more_lost_commits_than_the_bound_are_seen() {
    expect_broken(
        "group-synch --mode wal --engine stock --kills 60 --hoard 12",
        &[Promise::GroupSynchBound],
    );
}
