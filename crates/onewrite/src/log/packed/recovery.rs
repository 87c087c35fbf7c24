//! What recovery keeps between one frame and the next. SQLite asks for one after the other, of a log that
//! nobody writes: so the log is read in large pieces, and a frame that later ones refer to is unpacked
//! once. Called by [`super`]; given up as soon as anything is written, or read as published.

use super::window::Window;
use crate::log::memory::MAX_BYTES;
use crate::wal::FrameNo;

/// What recovery has read: of a log that nobody writes, from its begin to its end, frame after frame.
pub struct Recovery {
    /// Where it reads.
    pub window: Window,
    /// The frames that differences refer to.
    pub bases: Bases,
}

/// The frames that differences refer to, and the pages of those that were read. Whether they are published
/// is not known yet.
pub struct Bases {
    /// In order.
    frames: Vec<FrameNo>,
    /// For each frame its page, where it is kept.
    pages: Vec<Option<Box<[u8]>>>,
    bytes: usize,
}

impl Bases {
    /// Frames, in any order, that nothing was read of yet.
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

    /// Keeps the page of a frame that others refer to; what is kept stays bounded.
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
