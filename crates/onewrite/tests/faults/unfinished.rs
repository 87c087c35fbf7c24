//! What SQLite before 3.53 writes where a transaction overwrites a frame of its own and a `ROLLBACK TO`
//! then goes back behind it: a commit without checksums. The linked SQLite does not, so that its calls
//! are made here. `crates/torture/tests/extension/wal_faults.rs` has SQLite make them.

use super::stock::{LAYOUTS, Stock};
use onewrite::wal::{FrameHeader, FrameNo, PageNo};

/// Three committed frames, and a transaction of which frame 9 was written twice before it was rolled back
/// behind frame 5.
fn rolled_back(layout: onewrite::mode::Layout) -> Stock {
    let mut stock = Stock::new(layout);
    stock.transaction(1..=3);
    assert_eq!(stock.commit(3), None, "{layout}: nothing was left");
    assert_eq!(stock.last_commit(), Some(3), "{layout}");
    stock.writer.transaction_may_begin();
    for frame in 4..=9 {
        stock.frame(frame, false, true);
    }
    stock.overwrite_page(9);
    stock
}

/// SQLite goes on from the checksum of frame 8, which is unfinished, or rolled back: the commits that follow
/// go on from the log's, and so does the wal-index.
#[test]
fn the_checksum_that_sqlite_goes_on_from_is_the_logs() {
    for layout in LAYOUTS {
        for commit in [6, 7, 8, 9, 12] {
            let mut stock = rolled_back(layout);
            for frame in 6..=commit {
                stock.frame(frame, frame == commit, false);
            }
            stock.go_on_from(8);
            stock.finish(9, commit);
            assert_eq!(stock.commit(commit), None, "{layout}, {commit} frames");
            assert_eq!(stock.last_commit(), Some(commit), "{layout}");
            stock.writer.transaction_may_begin();
            stock.frame(commit + 1, true, true);
            assert_eq!(stock.commit(commit + 1), None, "{layout}");
            assert_eq!(stock.last_commit(), Some(commit + 1), "{layout}");
        }
    }
}

/// A VFS between may answer for the log.
#[test]
fn a_commit_that_sqlite_leaves_without_checksums_is_recovered() {
    for layout in LAYOUTS {
        let mut stock = rolled_back(layout);
        // Back behind frame 5, and on from there: frame 9, from which SQLite would begin, is never reached.
        for frame in 6..=7 {
            stock.frame(frame, frame == 7, false);
        }
        let resealed = stock.commit(7).expect("SQLite has another checksum");
        assert_eq!(resealed.commit, FrameNo(7), "{layout}");
        assert_eq!(stock.last_commit(), Some(7), "{layout}");
        // The next one goes on from what the wal-index says.
        stock.checksum = resealed.checksum;
        stock.writer.transaction_may_begin();
        stock.frame(8, true, true);
        stock.commit(8);
        assert_eq!(stock.last_commit(), Some(8), "{layout}");
    }
}

/// Here SQLite comes to the frame that it has overwritten, and finishes the headers from there on, the
/// commit's too: those before it are left. And there is more of them than is gathered.
#[test]
fn a_large_commit_that_sqlite_finishes_in_part_is_recovered() {
    for layout in LAYOUTS {
        for asks in [true, false] {
            let mut stock = Stock::new(layout);
            stock.transaction(1..=3);
            stock.commit(3);
            stock.writer.transaction_may_begin();
            for frame in 4..=900 {
                stock.frame(frame, false, true);
            }
            stock.overwrite_page(790);
            for frame in 6..=800 {
                stock.frame(frame, frame == 800, false);
            }
            if asks {
                stock.go_on_from(789);
            }
            stock.finish(790, 800);
            assert_eq!(stock.commit(800).is_none(), asks, "{layout}");
            assert_eq!(stock.last_commit(), Some(800), "{layout}");
            stock.writer.transaction_may_begin();
        }
    }
}

/// A commit is filled up to a sector, `xSync` comes in the middle of the last frame, and a VFS between
/// SQLite and ours keeps its rest back until the next transaction.
#[test]
fn the_rest_of_a_sector_may_come_with_the_next_transaction() {
    for layout in LAYOUTS {
        let mut stock = Stock::new(layout);
        stock.transaction(1..=3);
        // Frame 4 is as frame 3, and ends the transaction once more.
        let page = Stock::page_of(3);
        let header = FrameHeader::build(PageNo(3), 20, &stock.header, stock.checksum, &page);
        stock.checksum = header.checksum;
        let at = stock.page.frame_range(FrameNo(4)).start;
        stock.write(&header.to_bytes(), at);
        stock.write(&page[..200], at + 24);
        stock.commit(4);
        assert_eq!(stock.last_commit(), Some(3), "{layout}");
        stock.writer.transaction_may_begin();
        stock.write(&page[200..], at + 224);
        stock.frame(5, true, true);
        stock.commit(5);
        assert_eq!(stock.last_commit(), Some(5), "{layout}");
    }
}

/// A transaction that was to commit and did not leaves its commit frame behind, as complete as the next
/// one's is not yet when its header comes.
#[test]
fn a_commit_that_failed_leaves_nothing_to_the_next() {
    for layout in LAYOUTS {
        let mut stock = Stock::new(layout);
        let begun = stock.checksum;
        stock.transaction(1..=4);
        // It is not published; the next one writes the same frames.
        stock.checksum = begun;
        stock.writer.transaction_may_begin();
        stock.write(&stock.header.bytes.clone(), 0);
        stock.transaction(1..=3);
        stock.commit(3);
        assert_eq!(stock.last_commit(), Some(3), "{layout}");
    }
}
