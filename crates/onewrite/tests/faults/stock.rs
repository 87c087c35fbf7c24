//! Makes what SQLite writes to its log, frame by frame, so that a test can stop where SQLite would
//! not.

use onewrite::commit::{CommitConfig, Resealed, SharedLog, Writer};
use onewrite::log::scan::survey_file;
use onewrite::log::shared::Committer;
use onewrite::log::{Log, OpenLog};
use onewrite::mode::{InitPolicy, JournalMode, Layout};
use onewrite::storage::{Access, DirectIo, NewFile};
use onewrite::wal::{
    Checksum, FRAME_CHECKSUM, FrameHeader, FrameNo, IndexView, PageNo, PageSize, Salts, WalHeader,
};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

/// The smallest page that every layout takes.
pub const PAGE_BYTES: usize = 4096;

/// SQLite's side of one log.
pub struct Stock {
    pub path: PathBuf,
    pub page: PageSize,
    pub header: WalHeader,
    pub writer: Writer,
    pub published: IndexView,
    pub checksum: Checksum,
    /// Holds the log. It is dropped, and so deleted, last.
    _directory: tempfile::TempDir,
}

fn big_endian(checksum: Checksum) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&checksum[0].to_be_bytes());
    bytes[4..].copy_from_slice(&checksum[1].to_be_bytes());
    bytes
}

impl Stock {
    pub fn new(layout: Layout) -> Stock {
        let directory = super::directory();
        let path = directory.path().join("db-onewrite");
        let page = PageSize::new(PAGE_BYTES as u32).expect("a page size");
        let open = OpenLog {
            path: &path,
            companions_of: &path,
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
            patience: &onewrite::storage::Short,
        };
        let log = Log::create(&open, layout).expect("a log");
        let log = Arc::new(SharedLog::from(log));
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
                recovery: 0,
            },
            checksum: header.checksum(),
            _directory: directory,
        };
        stock.writer.transaction_may_begin();
        stock.write(&header.bytes, 0);
        stock
    }

    pub fn write(&mut self, bytes: &[u8], at: u64) {
        let before = Some(self.published);
        self.writer.write(bytes, at, &|| before).expect("a write");
    }

    pub fn page_of(frame: u32) -> [u8; PAGE_BYTES] {
        let mut page = [frame as u8; PAGE_BYTES];
        // `embedded` keeps these bytes for itself.
        page[PAGE_BYTES - 24..].fill(0);
        page
    }

    /// Writes a frame. It is unfinished once the transaction has overwritten one of its own frames.
    pub fn frame(&mut self, frame: u32, commit: bool, is_finished: bool) {
        let page = Stock::page_of(frame);
        self.put(frame, &page, commit, is_finished);
    }

    /// As [`Stock::frame`], with the page of another one. It ends a transaction.
    pub fn frame_with(&mut self, frame: u32, page: u32, is_finished: bool) {
        self.put(frame, &Stock::page_of(page), true, is_finished);
    }

    fn put(&mut self, frame: u32, page: &[u8; PAGE_BYTES], commit: bool, is_finished: bool) {
        let pages = if commit { 20 } else { 0 };
        let number = PageNo(frame);
        let header = FrameHeader::build(number, pages, &self.header, self.checksum, page);
        let mut bytes = header.to_bytes();
        match is_finished {
            true => self.checksum = header.checksum,
            false => bytes[8..].fill(0),
        }
        let at = self.page.frame_range(FrameNo(frame)).start;
        self.write(&bytes, at);
        self.write(page, at + 24);
    }

    pub fn read_page(&mut self, frame: u32) -> [u8; PAGE_BYTES] {
        let mut page = [0; PAGE_BYTES];
        let at = self.page.frame_range(FrameNo(frame)).start + 24;
        let read = self.writer.read(&mut page, at, Some(self.published));
        read.expect("a page");
        page
    }

    /// Whether the process has the frame in its memory, for a reader that begins now.
    pub fn remembers(&self, frame: u32) -> bool {
        let memory = self.writer.log().memory();
        memory
            .view(FrameNo(frame), self.published.history(), |_| ())
            .is_some()
    }

    /// Finished frames, the last of which ends the transaction.
    pub fn transaction(&mut self, frames: RangeInclusive<u32>) {
        let last = *frames.end();
        for frame in frames {
            self.frame(frame, frame == last, true);
        }
    }

    pub fn overwrite_page(&mut self, frame: u32) {
        let at = self.page.frame_range(FrameNo(frame)).start;
        self.write(&Stock::page_of(frame), at + 24);
    }

    /// SQLite writes again the headers that it knows to be unfinished.
    pub fn finish(&mut self, from: u32, commit: u32) {
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

    /// SQLite reads the checksum from which it continues.
    pub fn go_on_from(&mut self, frame: u32) {
        let at = self.page.frame_range(FrameNo(frame)).start + FRAME_CHECKSUM.start as u64;
        let mut sum = [0; 8];
        let read = self.writer.read(&mut sum, at, Some(self.published));
        read.expect("a checksum");
        let (first, second) = sum.split_at(4);
        self.checksum = [first, second].map(|word| u32::from_be_bytes(word.try_into().expect("4")));
    }

    /// Ends a commit. Returns the log's checksum, if the published one differs.
    pub fn commit(&mut self, last: u32) -> Option<Resealed> {
        let synced = self.writer.sync(Some(self.published), &|| true);
        synced.expect("a flush");
        self.published.last_frame = FrameNo(last);
        self.published.checksum = big_endian(self.checksum);
        let resealed = self.writer.take_resealed(Some(self.published));
        let ended = self.writer.transaction_ends(Some(self.published));
        ended.expect("the end of the transaction");
        let has_filling = resealed.filter(|resealed| resealed.commit < FrameNo(last));
        if let Some(resealed) = has_filling {
            self.writer.forget_filling(resealed.commit);
        }
        self.writer
            .published(Some(self.published))
            .expect("a commit");
        // The wal-index is not valid then, and the next connection recovers.
        self.published.recovery += u32::from(has_filling.is_some());
        resealed
    }

    /// SQLite recovers the log, up to this frame.
    pub fn recover(&mut self, last: u32) {
        self.writer.recovery_begins(self.header.salts);
        self.writer.size().expect("a size");
        let mut frame = vec![0; self.page.frame_bytes()];
        for no in 1..=last + 1 {
            let at = self.page.frame_range(FrameNo(no)).start;
            // Behind the last one it meets what does not follow.
            let read = self.writer.read(&mut frame, at, None);
            assert!(read.is_ok() || no > last, "{read:?}");
        }
        assert_eq!(self.published.last_frame, FrameNo(last));
        self.writer.recovered(Some(self.published));
    }

    /// The last commit that recovery finds.
    pub fn last_commit(&self) -> Option<u32> {
        let survey = survey_file(&self.path).expect("the log")?;
        survey.committed.map(|commit| commit.frame.0)
    }
}

/// Every layout with its own log.
pub const LAYOUTS: [Layout; 7] = [
    Layout::Embedded,
    Layout::Sector,
    Layout::Page4k,
    Layout::Page8k,
    Layout::Compressed,
    Layout::Packed,
    Layout::Gathered,
];
