//! A run: consecutive frames, header and page each, as SQLite wrote them.

use std::ops::Range;

use crate::wal::{FRAME_HEADER_BYTES, FrameHeader, FrameNo, PageNo, PageSize, array, be32};

/// See the module.
#[derive(Debug)]
pub struct Run {
    page: PageSize,
    first: FrameNo,
    /// The frames, and behind them what earlier runs have left: new frames need no cleared memory.
    room: Vec<u8>,
    /// Bytes of the frames.
    used: usize,
    /// Their number: each question about a frame asks for it, and a division takes long.
    frames: u32,
}

impl Run {
    /// A run without frames; the first pushed one sets where it begins.
    pub fn new(page: PageSize) -> Run {
        Run {
            page,
            first: FrameNo(1),
            room: Vec::new(),
            used: 0,
            frames: 0,
        }
    }

    /// Forgets the frames, and frees the memory of a large run.
    pub fn clear(&mut self) {
        (self.used, self.frames) = (0, 0);
        self.room.truncate(super::KEPT_BYTES);
        self.room.shrink_to(super::KEPT_BYTES);
    }

    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Bytes of all frames.
    pub fn len(&self) -> usize {
        self.used
    }

    pub fn frames(&self) -> u32 {
        self.frames
    }

    pub fn first(&self) -> FrameNo {
        self.first
    }

    /// The last frame. Of an empty run, the one before the first.
    pub fn last(&self) -> FrameNo {
        FrameNo((self.first.0 + self.frames()).saturating_sub(1))
    }

    pub fn bytes(&self) -> &[u8] {
        &self.room[..self.used]
    }

    /// Bytes of the frames from `first` to `last`, as far as they are in the run.
    pub fn between(&self, first: FrameNo, last: FrameNo) -> &[u8] {
        let end = self.range(last).map_or(self.used, |range| range.end);
        let start = self.range(first).map_or(0, |range| range.start);
        self.bytes().get(start..end).unwrap_or_default()
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

    /// Adds a frame at the end and returns it. Its header is zero, its page is any bytes: the caller
    /// overwrites them, and has checked [`Run::accepts`].
    pub fn push(&mut self, frame: FrameNo) -> &mut [u8] {
        if self.is_empty() {
            self.first = frame;
        }
        let start = self.used;
        self.used += self.page.frame_bytes();
        self.frames += 1;
        if self.room.len() < self.used {
            self.room.resize(self.used, 0);
        }
        let frame = &mut self.room[start..self.used];
        frame[..FRAME_HEADER_BYTES].fill(0);
        frame
    }

    /// Drops `frame` and all after it.
    pub fn truncate(&mut self, frame: FrameNo) {
        self.frames = self.frames.min(frame.0.saturating_sub(self.first.0));
        self.used = self.frames as usize * self.page.frame_bytes();
    }

    /// Adds the frames of another run, which begins where this one ends.
    pub fn append(&mut self, other: &Run) {
        if self.is_empty() {
            self.first = other.first;
        }
        self.room.truncate(self.used);
        self.room.extend_from_slice(other.bytes());
        self.used = self.room.len();
        self.frames += other.frames;
    }

    /// A frame, header and page.
    pub fn frame(&self, frame: FrameNo) -> Option<&[u8]> {
        self.range(frame).and_then(|range| self.bytes().get(range))
    }

    pub fn frame_mut(&mut self, frame: FrameNo) -> Option<&mut [u8]> {
        self.range(frame).and_then(|range| self.room.get_mut(range))
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

    /// Every frame with its page's number and bytes.
    pub fn pages(&self) -> impl Iterator<Item = (FrameNo, PageNo, &[u8])> {
        self.bytes()
            .chunks_exact(self.page.frame_bytes())
            .zip(0u32..)
            .map(|(frame, i)| {
                let (header, page) = frame.split_at(FRAME_HEADER_BYTES);
                (self.first.plus(i), PageNo(be32(header, 0)), page)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_in_used_memory_is_no_commit_before_its_header_comes() {
        let page = PageSize::new(512).expect("a page size");
        let mut run = Run::new(page);
        let mut other = Run::new(page);
        for (frames, byte) in [(3, 1), (5, 2), (2, 3)] {
            for frame in (7..7 + frames).map(FrameNo) {
                assert!(run.accepts(frame));
                let bytes = run.push(frame);
                assert_eq!(bytes[..FRAME_HEADER_BYTES], [0; FRAME_HEADER_BYTES]);
                bytes.fill(byte);
            }
            assert_eq!((run.frames(), run.last()), (frames, FrameNo(6 + frames)));
            assert_eq!(
                run.bytes(),
                vec![byte; frames as usize * page.frame_bytes()]
            );
            other.append(&run);
            other.append(&run);
            assert_eq!(other.first(), FrameNo(7));
            assert_eq!(other.bytes(), [run.bytes(), run.bytes()].concat());
            run.truncate(FrameNo(8));
            assert_eq!((run.frames(), run.frame(FrameNo(8))), (1, None));
            other.clear();
            run.clear();
            assert!(run.is_empty() && run.bytes().is_empty());
        }
    }
}
