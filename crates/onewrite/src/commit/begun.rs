//! The begin of a frame that fills a sector behind a commit, where its rest comes in a later transaction.
//!
//! SQLite calls `xSync` in the middle of such a frame and writes the rest before it publishes. But a VFS
//! over ours may keep writes back until `xSync` (SQLite's own crash tests do): then the rest comes with the
//! next transaction's. With fixed positions the begin stands in the file by then; a log without them
//! holds whole frames only, and so the begin is kept here.

use crate::commit::Writer;
use crate::wal::{FrameNo, Salts};

/// See the module.
pub(super) struct BegunFrame {
    frame: FrameNo,
    generation: Option<Salts>,
    /// The frame, of which as many bytes have come as `known` says.
    bytes: Vec<u8>,
    known: usize,
}

impl Writer {
    /// So many bytes of a frame have come, and not all.
    pub(super) fn keep_begun(&mut self, frame: FrameNo, known: usize) {
        let fills_a_sector = self.commit_written && frame > self.commit_frame;
        if !fills_a_sector || self.log.packed().is_none() {
            return;
        }
        self.begun = self.run.frame(frame).map(|bytes| BegunFrame {
            frame,
            generation: self.generation,
            bytes: bytes.to_vec(),
            known,
        });
    }

    /// The begin of a frame that is gone on with at byte `within`. Of any other frame nothing is to come.
    pub(super) fn take_begun(&mut self, frame: FrameNo, within: usize) -> Option<Vec<u8>> {
        let goes_on = |begun: &BegunFrame| {
            begun.frame == frame && begun.known == within && begun.generation == self.generation
        };
        self.begun.take().filter(goes_on).map(|begun| begun.bytes)
    }
}
