use super::*;
use crate::storage::AlignedBuf;
use crate::wal::{PageSize, Salts};
use proptest::prelude::*;

const LAYOUTS: [Layout; 6] = [
    Layout::Stock,
    Layout::Embedded,
    Layout::Sector,
    Layout::Page4k,
    Layout::Page8k,
    Layout::Gathered,
];

fn page_size(bytes: u32) -> PageSize {
    PageSize::new(bytes).expect("a page size")
}

/// A log in memory, written as the engine writes it.
struct Built {
    bytes: Vec<u8>,
    geometry: Geometry,
    wal: WalHeader,
    last: FrameNo,
    checksum: Checksum,
}

impl Built {
    fn new(layout: Layout, page: u32, generation: u8) -> Built {
        let page = page_size(match layout {
            Layout::Gathered => page.max(4096),
            _ => page,
        });
        let geometry = Geometry::new(layout, page, 1).expect("a geometry");
        let wal = WalHeader::build(page, 0, Salts([generation; 8]));
        Built {
            bytes: Vec::new(),
            geometry,
            checksum: wal.checksum(),
            wal,
            last: FrameNo(0),
        }
    }

    /// The log restarts; its content stays.
    fn restart(&mut self, generation: u8) {
        self.wal = WalHeader::build(self.geometry.page(), 1, Salts([generation; 8]));
        self.checksum = self.wal.checksum();
        self.last = FrameNo(0);
    }

    /// Appends one transaction, and records how many pages the database has after it. `tail` is the
    /// content of its pages' reserved bytes.
    fn commit(&mut self, pages: &[u32], tail: u8) {
        let size = self.geometry.page().bytes();
        let mut frames = Vec::new();
        for (i, &no) in pages.iter().enumerate() {
            let mut page = vec![no as u8 ^ 0x5a; size];
            page[size - FRAME_HEADER_BYTES..].fill(tail);
            let commit = if i + 1 == pages.len() { 9 } else { 0 };
            let header = FrameHeader::build(PageNo(no), commit, &self.wal, self.checksum, &page);
            self.checksum = header.checksum;
            frames.extend_from_slice(&header.to_bytes());
            frames.extend_from_slice(&page);
        }
        let first = self.last.plus(1);
        self.last = self.last.plus(pages.len() as u32);
        let mut out = AlignedBuf::new();
        let present = self.bytes.clone();
        let mut load = |at: u64, block: &mut [u8]| {
            let n = present.as_slice().read_at(block, at)?;
            block[n..].fill(0);
            Ok(())
        };
        let encoded = self
            .geometry
            .encode(first, &frames, self.last, &mut load, &mut out);
        let (at, side) = encoded.expect("no I/O");
        if let Some(side) = side {
            self.put(side.offset, side.bytes.as_slice());
        }
        self.put(at, out.as_slice());
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        let end = at as usize + bytes.len();
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[at as usize..end].copy_from_slice(bytes);
    }

    fn survey(&self) -> Survey {
        self.survey_of(&self.bytes)
    }

    fn survey_of(&self, bytes: &[u8]) -> Survey {
        Survey::of(bytes, self.geometry, self.wal, Writers::None).expect("no I/O")
    }
}

/// Two transactions of 2 and 3 frames over 4 pages.
fn small(layout: Layout, page: u32) -> Built {
    let mut log = Built::new(layout, page, 7);
    log.commit(&[1, 2], 0);
    log.commit(&[1, 3, 4], 0);
    log
}

#[test]
fn every_layout_and_page_size_is_read_to_its_end() {
    for layout in LAYOUTS {
        for page in [512, 1024, 4096, 8192, 65_536] {
            let survey = small(layout, page).survey();
            assert_eq!(survey.valid, 5, "{layout} {page}");
            assert_eq!(survey.transactions, 2);
            let last = Commit {
                frame: FrameNo(5),
                pages: 9,
            };
            assert_eq!(survey.committed, Some(last));
            assert_eq!(survey.distinct_pages(), Some(4));
            assert_eq!(survey.pages_to_checkpoint(), Some(4));
            assert!(survey.end.is_none_or(|end| end.verdict == Verdict::Zeros));
        }
    }
}

#[test]
fn initialized_blocks_behind_the_frames_are_zeros() {
    for layout in LAYOUTS {
        let mut log = small(layout, 1024);
        let end = log.geometry.end_of(FrameNo(10));
        log.bytes.resize(end as usize, 0);
        let survey = log.survey();
        assert_eq!((survey.valid, survey.behind.present), (5, 0), "{layout}");
        assert!(survey.behind.zeros >= 5, "{layout}");
        assert_eq!(survey.end.map(|end| end.verdict), Some(Verdict::Zeros));
        assert_eq!(survey.bytes_beyond(), end - survey.used_bytes);
    }
}

#[test]
fn frames_of_before_a_restart_end_the_log() {
    for layout in LAYOUTS {
        let mut log = small(layout, 4096);
        log.restart(8);
        log.commit(&[2], 0);
        let survey = log.survey();
        assert_eq!(survey.valid, 1, "{layout}");
        if layout == Layout::Stock {
            // Frame 2 shares a block with frame 1, and the bytes after the new frame in that block
            // are not kept.
            continue;
        }
        if layout == Layout::Gathered {
            // Their headers share a block, too.
            let end = survey.end.expect("frame 2 is there");
            assert_eq!(end.verdict, Verdict::NoFrame);
            continue;
        }
        let end = survey.end.expect("frame 2 is there");
        assert_eq!(end.verdict, Verdict::OtherGeneration, "{layout}");
        assert_eq!(end.header.salts, Salts([7; 8]));
        assert_eq!(survey.behind.other_generation, 4);
        assert_eq!(survey.behind.present_commits, 0);
    }
}

#[test]
fn a_torn_frame_ends_the_log_and_its_transaction_does_not_count() {
    for layout in LAYOUTS {
        let mut log = small(layout, 4096);
        let at = log.geometry.page_offset(FrameNo(4)) as usize + 100;
        log.bytes[at] ^= 1;
        let survey = log.survey();
        assert_eq!(survey.valid, 3, "{layout}");
        assert_eq!(survey.committed.map(|c| c.frame), Some(FrameNo(2)));
        assert_eq!(survey.pages_to_checkpoint(), Some(2));
        let end = survey.end.expect("frame 4 is there");
        assert_eq!((end.frame, end.verdict), (FrameNo(4), Verdict::Mismatch));
        assert_eq!(
            (survey.behind.present, survey.behind.present_commits),
            (2, 1)
        );
    }
}

#[test]
fn escaped_frames_are_read_with_their_entries_over_many_sections() {
    let mut log = Built::new(Layout::Embedded, 512, 7);
    for n in 0..300 {
        log.commit(&[n + 1], if n % 3 == 0 { 1 } else { 0 });
    }
    let survey = log.survey();
    assert_eq!((survey.valid, survey.escaped), (300, 100));
    assert_eq!(survey.distinct_pages(), Some(300));
    let entry = log.geometry.entry_offset(FrameNo(130)) as usize;
    log.bytes[entry + 24] ^= 1;
    let survey = log.survey();
    assert_eq!(survey.valid, 129);
    let end = survey.end.expect("frame 130 is there");
    assert_eq!(end.verdict, Verdict::NoEntry);
    assert!(end.is_escaped && end.is_present_commit());
}

#[test]
fn every_prefix_ends_where_its_last_whole_frame_does() {
    for layout in LAYOUTS {
        let log = small(layout, 512);
        let mut before = 0;
        for len in 0..=log.bytes.len() {
            let prefix = &log.bytes[..len];
            let survey = log.survey_of(prefix);
            assert!(survey.valid >= before, "{layout} {len}");
            let whole = log.geometry.capacity(len as u64).min(5);
            assert_eq!(survey.valid, whole, "{layout} {len}");
            before = survey.valid;
            assert!(
                Scan::new(prefix, log.geometry, log.wal, Writers::None)
                    .expect("no I/O")
                    .count()
                    <= 64
            );
        }
        assert_eq!(before, 5, "{layout}");
    }
}

#[test]
fn every_flipped_byte_ends_the_log_at_its_frame() {
    for layout in LAYOUTS {
        let log = small(layout, 512);
        for frame in 1..=5 {
            let frame = FrameNo(frame);
            let header = log.geometry.header_offset(frame);
            let page = log.geometry.page_offset(frame);
            let page_bytes = match layout {
                Layout::Embedded => 512 - FRAME_HEADER_BYTES as u64,
                _ => 512,
            };
            for at in (header..header + 24).chain(page..page + page_bytes) {
                let mut damaged = log.bytes.clone();
                damaged[at as usize] ^= 0x10;
                assert_eq!(log.survey_of(&damaged).valid, frame.0 - 1, "{layout} {at}");
            }
        }
    }
}

/// A sparse file that claims to be as large as a file can be.
struct Endless(Vec<u8>);

impl LogBytes for Endless {
    fn size(&self) -> io::Result<u64> {
        Ok(i64::MAX as u64)
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        let n = self.0.as_slice().read_at(out, offset)?;
        out[n..].fill(0);
        Ok(out.len())
    }
}

#[test]
fn a_file_that_claims_to_be_endless_is_read_to_a_bound() {
    let log = small(Layout::Embedded, 65_536);
    let endless = Endless(log.bytes.clone());
    let survey = Survey::of(&endless, log.geometry, log.wal, Writers::None).expect("no I/O");
    assert_eq!(survey.valid, 5);
    assert!(survey.behind.zeros <= MAX_BEHIND_BYTES / 65_536);
}

/// A log to which another process appends during the walk: the second look at frame 3 finds it.
struct Growing<'a> {
    before: &'a [u8],
    after: &'a [u8],
    end: u64,
    reads_at_end: std::cell::Cell<u32>,
}

impl LogBytes for Growing<'_> {
    fn size(&self) -> io::Result<u64> {
        self.after.size()
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        if offset == self.end {
            self.reads_at_end.set(self.reads_at_end.get() + 1);
        }
        let grown = offset > self.end || self.reads_at_end.get() > 1;
        let now = if grown { self.after } else { self.before };
        now.read_at(out, offset)
    }
}

#[test]
fn frames_that_come_while_it_is_read_are_no_damage() {
    let mut log = Built::new(Layout::Embedded, 1024, 7);
    log.commit(&[1, 2], 0);
    let before = {
        let end = log.geometry.end_of(FrameNo(20)) as usize;
        log.bytes.resize(end, 0);
        log.bytes.clone()
    };
    log.commit(&[3], 0);
    log.commit(&[4], 0);
    let growing = Growing {
        before: &before,
        after: &log.bytes,
        end: log.geometry.slot(FrameNo(3)),
        reads_at_end: std::cell::Cell::new(0),
    };
    let survey = Survey::of(&growing, log.geometry, log.wal, Writers::Maybe).expect("no I/O");
    assert_eq!((survey.valid, survey.behind.present_commits), (2, 1));
    assert!(survey.grew);
}

// A failure prints the values it shrank to; PROPTEST_RNG_SEED fixes the random numbers.
proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_bytes_are_read_to_an_end(
        layout in 0..5_usize,
        page in 9..=16_u32,
        mut bytes in proptest::collection::vec(any::<u8>(), 0..20_000),
        start in 0..3000_usize,
        with_salts in any::<bool>(),
    ) {
        let log = small(LAYOUTS[layout], 1 << page);
        // Random bytes over a real log, or alone.
        let mut file = if with_salts { log.bytes.clone() } else { Vec::new() };
        let at = start.min(file.len());
        file.truncate(at);
        file.append(&mut bytes);
        let survey = log.survey_of(&file);
        prop_assert!(survey.valid <= 5);
        prop_assert!(survey.used_bytes <= survey.size.max(log.geometry.slot(FrameNo(1))));
        prop_assert!(survey.pages_to_checkpoint().is_some());
    }
}
