//! The begin of a frame that fills a sector behind a commit, where its rest comes in a later transaction.
//!
//! SQLite calls `xSync` in the middle of such a frame and writes the rest before it publishes. But a VFS
//! over ours may keep writes back until `xSync` (SQLite's own crash tests do): then the rest comes with the
//! next transaction's, or, where the process ends, never. So the begin is kept here, and the log holds whole
//! frames only: SQLite's own log ends in such a frame, and whoever reads it is told so; ours goes on with
//! prepared blocks, and what stands there would pass for the rest.

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
        let fills_a_sector =
            self.transaction.phase.awaits_sync() && frame > self.transaction.commit;
        if !fills_a_sector {
            return;
        }
        self.begun = self.run.frame(frame).map(|bytes| BegunFrame {
            frame,
            generation: self.transaction.generation,
            bytes: bytes.to_vec(),
            known,
        });
    }

    /// The last bytes of a frame have come.
    pub(super) fn forget_begun(&mut self, frame: FrameNo) {
        self.begun.take_if(|begun| begun.frame == frame);
    }

    /// The gathered frames are about to be written: without the one that is begun.
    pub(super) fn leave_out_begun(&mut self) {
        if let Some(begun) = &self.begun
            && begun.generation == self.transaction.generation
            && begun.frame == self.run.last()
        {
            self.run.truncate(begun.frame);
        }
    }

    /// The begin of a frame that is gone on with at byte `within`. Of any other frame nothing is to come.
    pub(super) fn take_begun(&mut self, frame: FrameNo, within: usize) -> Option<Vec<u8>> {
        let goes_on = |begun: &BegunFrame| {
            begun.frame == frame
                && begun.known == within
                && begun.generation == self.transaction.generation
        };
        self.begun.take().filter(goes_on).map(|begun| begun.bytes)
    }
}
