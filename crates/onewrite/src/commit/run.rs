//! A run: consecutive frames, header and page each, as SQLite wrote them.

use std::ops::Range;

use crate::wal::{FRAME_HEADER_BYTES, FrameHeader, FrameNo, PageSize, array};

/// See the module.
#[derive(Debug)]
pub struct Run {
    page: PageSize,
    first: FrameNo,
    bytes: Vec<u8>,
}

impl Run {
    /// A run without frames; the first pushed one sets where it begins.
    pub fn new(page: PageSize) -> Run {
        Run {
            page,
            first: FrameNo(1),
            bytes: Vec::new(),
        }
    }

    /// Forgets the frames, and frees the memory of a large run.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(super::KEPT_BYTES);
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes of all frames.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn frames(&self) -> u32 {
        (self.bytes.len() / self.page.frame_bytes()) as u32
    }

    pub fn first(&self) -> FrameNo {
        self.first
    }

    /// The last frame. Of an empty run, the one before the first.
    pub fn last(&self) -> FrameNo {
        FrameNo((self.first.0 + self.frames()).saturating_sub(1))
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes of the frames from `first` to `last`, as far as they are in the run.
    pub fn between(&self, first: FrameNo, last: FrameNo) -> &[u8] {
        let end = self.range(last).map_or(self.bytes.len(), |range| range.end);
        let start = self.range(first).map_or(0, |range| range.start);
        self.bytes.get(start..end).unwrap_or_default()
    }

    fn range(&self, frame: FrameNo) -> Option<Range<usize>> {
        let index = frame.0.checked_sub(self.first.0)?;
        let start = index as usize * self.page.frame_bytes();
        (index < self.frames()).then(|| start..start + self.page.frame_bytes())
    }

    pub fn contains(&self, frame: FrameNo) -> bool {
        self.range(frame).is_some()
    }

    /// Whether the frame may be pushed: any frame on an empty run, else the next.
    pub fn accepts(&self, frame: FrameNo) -> bool {
        self.is_empty() || frame == self.last().plus(1)
    }

    /// Adds a frame of zeros at the end and returns it. The caller has checked [`Run::accepts`].
    pub fn push(&mut self, frame: FrameNo) -> &mut [u8] {
        if self.is_empty() {
            self.first = frame;
        }
        let start = self.bytes.len();
        self.bytes.resize(start + self.page.frame_bytes(), 0);
        &mut self.bytes[start..]
    }

    /// Drops `frame` and all after it.
    pub fn truncate(&mut self, frame: FrameNo) {
        let keep = frame.0.saturating_sub(self.first.0) as usize * self.page.frame_bytes();
        self.bytes.truncate(keep);
    }

    /// Adds the frames of another run, which begins where this one ends.
    pub fn append(&mut self, other: &Run) {
        if self.is_empty() {
            self.first = other.first;
        }
        self.bytes.extend_from_slice(&other.bytes);
    }

    /// A frame, header and page.
    pub fn frame(&self, frame: FrameNo) -> Option<&[u8]> {
        self.range(frame).and_then(|range| self.bytes.get(range))
    }

    pub fn frame_mut(&mut self, frame: FrameNo) -> Option<&mut [u8]> {
        self.range(frame)
            .and_then(|range| self.bytes.get_mut(range))
    }

    /// Whether the frame ends a transaction.
    pub fn is_commit(&self, frame: FrameNo) -> bool {
        let header = self.frame(frame).map(array::<FRAME_HEADER_BYTES>);
        header.is_some_and(|header| FrameHeader::parse(&header).commit_pages != 0)
    }

    /// Whether the frame has its salts and checksums. SQLite leaves them zero while it knows that
    /// it must compute them again.
    pub fn is_sealed(&self, frame: FrameNo) -> bool {
        self.frame(frame)
            .is_some_and(|bytes| bytes[8..FRAME_HEADER_BYTES] != [0; FRAME_HEADER_BYTES - 8])
    }

    /// Every frame with its page.
    pub fn pages(&self) -> impl Iterator<Item = (FrameNo, &[u8])> {
        self.bytes
            .chunks_exact(self.page.frame_bytes())
            .zip(0u32..)
            .map(|(frame, i)| (self.first.plus(i), &frame[FRAME_HEADER_BYTES..]))
    }
}
