//! What recovery keeps between one frame and the next. SQLite asks for one after the other, of a log that
//! nobody writes: so the log is read in large pieces, and a frame that later ones refer to is unpacked
//! once. Called by [`super`]; given up as soon as anything is written, or read as published.

use std::collections::{HashMap, HashSet};

use super::window::Window;
use crate::log::memory::MAX_BYTES;
use crate::wal::FrameNo;

/// What recovery has read: of a log that nobody writes, from its begin to its end, frame after frame.
pub struct Recovery {
    /// Where it reads.
    pub window: Window,
    /// The frames that differences refer to.
    pub bases: HashSet<FrameNo>,
    /// Those of them that were read. Whether they are published is not known yet.
    pub wholes: Wholes,
}

/// Pages of frames.
#[derive(Default)]
pub struct Wholes {
    pages: HashMap<FrameNo, Box<[u8]>>,
    bytes: usize,
}

impl Wholes {
    /// The page of a frame.
    pub fn get(&self, frame: FrameNo) -> Option<&[u8]> {
        self.pages.get(&frame).map(|page| &page[..])
    }

    /// Keeps the page of a frame; what is kept stays bounded.
    pub fn insert(&mut self, frame: FrameNo, page: &[u8]) {
        if self.bytes + page.len() > MAX_BYTES {
            *self = Wholes::default();
        }
        if self.pages.insert(frame, page.into()).is_none() {
            self.bytes += page.len();
        }
    }
}
