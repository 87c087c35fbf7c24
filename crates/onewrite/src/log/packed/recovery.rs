//! The state that recovery keeps between frames. SQLite asks for one frame after the other, in a
//! log that no process writes. So the log is read in large pieces, and a frame that later ones
//! refer to is decompressed only once. Called by [`super`]. The state is dropped as soon as a frame
//! is written, or read as published.

use super::window::Window;
use crate::log::memory::MAX_BYTES;
use crate::wal::FrameNo;

/// The data that recovery has read, frame after frame, of a log that no process writes.
pub struct Recovery {
    /// Where it reads.
    pub window: Window,
    /// The frames that differences refer to.
    pub bases: Bases,
}

/// The frames that differences refer to, and the pages of those that were read. It is not yet known
/// whether they are published.
pub struct Bases {
    /// Sorted.
    frames: Vec<FrameNo>,
    /// For each frame its page, if it is kept.
    pages: Vec<Option<Box<[u8]>>>,
    bytes: usize,
}

impl Bases {
    /// Frames in any order, of which none was read yet.
    pub fn new(mut frames: Vec<FrameNo>) -> Bases {
        frames.sort_unstable();
        frames.dedup();
        let pages = frames.iter().map(|_| None).collect();
        Bases {
            frames,
            pages,
            bytes: 0,
        }
    }

    /// The page of a frame.
    pub fn page(&self, frame: FrameNo) -> Option<&[u8]> {
        let index = self.frames.binary_search(&frame).ok()?;
        self.pages[index].as_deref()
    }

    /// Keeps the page of a frame that others refer to, within a bound.
    pub fn read(&mut self, frame: FrameNo, page: &[u8]) {
        let Ok(index) = self.frames.binary_search(&frame) else {
            return;
        };
        if self.bytes + page.len() > MAX_BYTES {
            self.pages.fill(None);
            self.bytes = 0;
        }
        if self.pages[index].replace(page.into()).is_none() {
            self.bytes += page.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_referred_to_is_kept_and_no_more_than_fits() {
        let mut bases = Bases::new(vec![FrameNo(9), FrameNo(2), FrameNo(9), FrameNo(5)]);
        bases.read(FrameNo(1), &[1; 512]);
        bases.read(FrameNo(2), &[2; 512]);
        bases.read(FrameNo(9), &[9; 512]);
        assert_eq!(bases.page(FrameNo(1)), None);
        assert_eq!(bases.page(FrameNo(2)), Some(&[2; 512][..]));
        assert_eq!(bases.page(FrameNo(5)), None);
        assert_eq!(bases.page(FrameNo(9)), Some(&[9; 512][..]));
        let large = vec![5; MAX_BYTES];
        bases.read(FrameNo(5), &large);
        assert_eq!(bases.page(FrameNo(5)), Some(&large[..]));
        assert_eq!(bases.page(FrameNo(9)), None);
    }
}
