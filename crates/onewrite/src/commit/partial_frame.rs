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
pub(super) struct PartialFrame {
    frame: FrameNo,
    generation: Option<Salts>,
    /// The frame, of which as many bytes have come as `known` says.
    bytes: Vec<u8>,
    known: usize,
}

impl Writer {
    /// So many bytes of a frame have come, and not all.
    pub(super) fn keep_partial(&mut self, frame: FrameNo, known: usize) {
        let fills_a_sector =
            self.transaction.phase.awaits_sync() && frame > self.transaction.commit;
        if !fills_a_sector {
            return;
        }
        self.partial = self.run.frame(frame).map(|bytes| PartialFrame {
            frame,
            generation: self.transaction.generation,
            bytes: bytes.to_vec(),
            known,
        });
    }

    /// The last bytes of a frame have come.
    pub(super) fn forget_partial(&mut self, frame: FrameNo) {
        self.partial.take_if(|partial| partial.frame == frame);
    }

    /// The collected frames are about to be written: without the one that is partial.
    pub(super) fn leave_out_partial(&mut self) {
        if let Some(partial) = &self.partial
            && partial.generation == self.transaction.generation
            && partial.frame == self.run.last()
        {
            self.run.truncate(partial.frame);
        }
    }

    /// The begin of a frame that is gone on with at byte `within`. Of any other frame nothing is to come.
    pub(super) fn take_partial(&mut self, frame: FrameNo, within: usize) -> Option<Vec<u8>> {
        let goes_on = |partial: &PartialFrame| {
            partial.frame == frame
                && partial.known == within
                && partial.generation == self.transaction.generation
        };
        self.partial
            .take()
            .filter(goes_on)
            .map(|partial| partial.bytes)
    }
}
