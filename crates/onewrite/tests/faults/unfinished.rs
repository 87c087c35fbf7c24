//! What SQLite before 3.53 writes where a transaction overwrites a frame of its own and a `ROLLBACK TO`
//! then goes back behind it: a commit without checksums. The linked SQLite does not, so that its writes
//! are made here.

use onewrite::commit::{CommitConfig, IndexView, Writer};
use onewrite::log::scan::survey_file;
use onewrite::log::shared::Committer;
use onewrite::log::{Layout, Log, OpenLog};
use onewrite::mode::{InitPolicy, JournalMode};
use onewrite::storage::{Access, DirectIo, NewFile};
use onewrite::wal::{Checksum, FrameHeader, FrameNo, PageNo, PageSize, Salts, WalHeader};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

/// The smallest page that every layout takes.
const PAGE_BYTES: usize = 4096;

/// SQLite's side of a log of its own.
struct Stock {
    path: PathBuf,
    page: PageSize,
    header: WalHeader,
    writer: Writer,
    published: IndexView,
    checksum: Checksum,
    /// Holds the log; dropped, and so deleted, last.
    _directory: tempfile::TempDir,
}

fn big_endian(checksum: Checksum) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&checksum[0].to_be_bytes());
    bytes[4..].copy_from_slice(&checksum[1].to_be_bytes());
    bytes
}

impl Stock {
    fn new(layout: Layout) -> Stock {
        let directory = super::directory();
        let path = directory.path().join("db-onewrite");
        let page = PageSize::new(PAGE_BYTES as u32).expect("a page size");
        let open = OpenLog {
            path: &path,
            mode: match layout {
                Layout::Packed => JournalMode::Onewrite,
                Layout::Compressed => JournalMode::Swal,
                _ => JournalMode::Waldio,
            },
            page,
            access: Access::ReadWrite,
            new_file: NewFile {
                mode: 0o600,
                owner: None,
            },
            init: InitPolicy::Auto,
            direct: DirectIo::Auto,
        };
        let log = Arc::new(Log::create(&open, layout).expect("a log"));
        let config = CommitConfig::default();
        let header = WalHeader::build(page, 0, Salts(*b"unfinish"));
        let mut stock = Stock {
            path,
            page,
            header,
            writer: Writer::new(log, config, Committer(1)),
            published: IndexView {
                salts: header.salts,
                last_frame: FrameNo(0),
                checksum: big_endian(header.checksum()),
            },
            checksum: header.checksum(),
            _directory: directory,
        };
        stock.writer.transaction_may_begin();
        stock.write(&header.bytes, 0);
        stock
    }

    fn write(&mut self, bytes: &[u8], at: u64) {
        let before = Some(self.published);
        self.writer.write(bytes, at, before).expect("a write");
    }

    fn page_of(frame: u32) -> [u8; PAGE_BYTES] {
        let mut page = [frame as u8; PAGE_BYTES];
        // What `embedded` keeps for itself.
        page[PAGE_BYTES - 24..].fill(0);
        page
    }

    /// A frame, finished or, once the transaction has overwritten one of its own, not.
    fn frame(&mut self, frame: u32, commit: bool, is_finished: bool) {
        let page = Stock::page_of(frame);
        let pages = if commit { 20 } else { 0 };
        let number = PageNo(frame);
        let header = FrameHeader::build(number, pages, &self.header, self.checksum, &page);
        let mut bytes = header.to_bytes();
        match is_finished {
            true => self.checksum = header.checksum,
            false => bytes[8..].fill(0),
        }
        let at = self.page.frame_range(FrameNo(frame)).start;
        self.write(&bytes, at);
        self.write(&page, at + 24);
    }

    /// Finished frames, the last of which ends the transaction.
    fn transaction(&mut self, frames: RangeInclusive<u32>) {
        let last = *frames.end();
        for frame in frames {
            self.frame(frame, frame == last, true);
        }
    }

    fn overwrite_page(&mut self, frame: u32) {
        let at = self.page.frame_range(FrameNo(frame)).start;
        self.write(&Stock::page_of(frame), at + 24);
    }

    /// SQLite writes the headers again that it knows to be unfinished.
    fn finish(&mut self, from: u32, commit: u32) {
        for frame in from..=commit {
            let pages = if frame == commit { 500 } else { 0 };
            let page = Stock::page_of(frame);
            let header =
                FrameHeader::build(PageNo(frame), pages, &self.header, self.checksum, &page);
            self.checksum = header.checksum;
            let at = self.page.frame_range(FrameNo(frame)).start;
            self.write(&header.to_bytes(), at);
        }
    }

    /// The end of a commit; whether the log wants the wal-index to be made anew.
    fn commit(&mut self, last: u32) -> bool {
        let synced = self.writer.sync(Some(self.published), &|| true);
        synced.expect("a flush");
        self.published.last_frame = FrameNo(last);
        self.published.checksum = big_endian(self.checksum);
        let resealed = self.writer.take_resealed();
        let ended = self.writer.transaction_ends(Some(self.published));
        ended.expect("the end of the transaction");
        self.writer
            .published(Some(self.published))
            .expect("a commit");
        resealed
    }

    /// What recovery finds.
    fn last_commit(&self) -> Option<u32> {
        let survey = survey_file(&self.path).expect("the log")?;
        survey.committed.map(|commit| commit.frame.0)
    }
}

const LAYOUTS: [Layout; 7] = [
    Layout::Embedded,
    Layout::Sector,
    Layout::Page4k,
    Layout::Page8k,
    Layout::Compressed,
    Layout::Packed,
    Layout::Gathered,
];

#[test]
fn a_commit_that_sqlite_leaves_without_checksums_is_recovered() {
    for layout in LAYOUTS {
        let mut stock = Stock::new(layout);
        stock.transaction(1..=3);
        assert!(!stock.commit(3), "{layout}: nothing was left");
        assert_eq!(stock.last_commit(), Some(3), "{layout}");
        stock.writer.transaction_may_begin();
        for frame in 4..=9 {
            stock.frame(frame, false, true);
        }
        stock.overwrite_page(9);
        // Back behind frame 5, and on from there: frame 9, from which SQLite would begin, is never reached.
        for frame in 6..=7 {
            stock.frame(frame, frame == 7, false);
        }
        assert!(
            stock.commit(7),
            "{layout}: the wal-index says another checksum"
        );
        assert_eq!(stock.last_commit(), Some(7), "{layout}");
    }
}

/// Here SQLite comes to the frame that it has overwritten, and finishes the headers from there on, the
/// commit's too: those before it are left. And there is more of them than is gathered.
#[test]
fn a_large_commit_that_sqlite_finishes_in_part_is_recovered() {
    for layout in LAYOUTS {
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
        stock.finish(790, 800);
        assert!(stock.commit(800), "{layout}");
        assert_eq!(stock.last_commit(), Some(800), "{layout}");
        stock.writer.transaction_may_begin();
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
