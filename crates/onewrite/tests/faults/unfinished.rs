//! SQLite before 3.53 can write a commit without checksums. It does so where a transaction
//! overwrites one of its own frames, and a `ROLLBACK TO` then goes back behind it. The linked
//! SQLite does not, so its calls are made here. `crates/torture/tests/extension/wal_faults.rs` has
//! SQLite make them.

use super::stock::{LAYOUTS, Stock};
use onewrite::mode::Layout;
use onewrite::wal::{FrameHeader, FrameNo, History, PageNo};

/// Three committed frames, and a transaction that wrote frame 9 twice and was then rolled back
/// behind frame 5.
fn rolled_back(layout: Layout) -> Stock {
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

/// SQLite continues from the checksum of frame 8, which is unfinished or rolled back. The commits
/// that follow continue from the log's, and so does the wal-index.
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

/// A VFS in between may answer for the log.
#[test]
fn a_commit_that_sqlite_leaves_without_checksums_is_recovered() {
    for layout in LAYOUTS {
        let mut stock = rolled_back(layout);
        // Back behind frame 5, and on from there. Frame 9, from which SQLite would begin, is never
        // reached.
        for frame in 6..=7 {
            stock.frame(frame, frame == 7, false);
        }
        let resealed = stock.commit(7).expect("SQLite has another checksum");
        assert_eq!(resealed.commit, FrameNo(7), "{layout}");
        assert_eq!(stock.last_commit(), Some(7), "{layout}");
        // The next commit continues from the wal-index's checksum.
        stock.checksum = resealed.checksum;
        stock.writer.transaction_may_begin();
        stock.frame(8, true, true);
        stock.commit(8);
        assert_eq!(stock.last_commit(), Some(8), "{layout}");
    }
}

/// SQLite fills the sector behind such a commit, which recovery leaves out. Another commit comes in the
/// place of the filling.
#[test]
fn what_fills_a_sector_behind_such_a_commit_gives_way_to_the_next_one() {
    for layout in LAYOUTS {
        let mut stock = rolled_back(layout);
        for frame in 6..=7 {
            stock.frame(frame, frame == 7, false);
        }
        stock.frame(8, true, true);
        let resealed = stock.commit(8).expect("SQLite has another checksum");
        assert_eq!(stock.last_commit(), Some(7), "{layout}");
        let filling = resealed.commit.plus(1);
        assert_eq!(filling, FrameNo(8), "{layout}");
        assert!(!stock.remembers(8), "{layout}");
        // A leader of another process has looked before the wal-index became invalid. It notes only now
        // what it has flushed.
        let before = History {
            recovery: stock.published.recovery - 1,
            ..stock.published.history()
        };
        let log = std::sync::Arc::clone(stock.writer.log());
        log.set_durable(filling, before);
        assert!(log.is_durable(before, filling), "{layout}");
        assert!(
            !log.is_durable(stock.published.history(), filling),
            "{layout}"
        );
        stock.published.last_frame = resealed.commit;
        stock.recover(7);
        stock.checksum = resealed.checksum;
        stock.writer.transaction_may_begin();
        stock.frame_with(8, 11, true);
        stock.commit(8);
        assert_eq!(stock.last_commit(), Some(8), "{layout}");
        assert_eq!(stock.read_page(8), Stock::page_of(11), "{layout}");
        stock.writer.transaction_may_begin();
        stock.frame(9, true, true);
        stock.commit(9);
        assert_eq!(stock.last_commit(), Some(9), "{layout}");
    }
}

/// Here SQLite reaches the frame that it has overwritten. It finishes the headers from there on,
/// including the commit's, and leaves those before. There are more of them than are gathered.
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

/// A commit is filled up to a sector, and `xSync` comes in the middle of the last frame. A VFS
/// between SQLite and ours keeps the rest of that frame back until the next transaction.
#[test]
fn the_rest_of_a_sector_may_come_with_the_next_transaction() {
    for layout in LAYOUTS {
        let mut stock = Stock::new(layout);
        stock.transaction(1..=3);
        // Frame 4 is like frame 3, and ends the transaction once more.
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

/// A transaction that failed to commit leaves a complete commit frame behind. The next one's is
/// still incomplete when its header comes.
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
