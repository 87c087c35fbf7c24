//! The start of a frame that fills a sector after a commit, if its rest comes in a later
//! transaction.
//!
//! SQLite calls `xSync` in the middle of such a frame, and writes the rest before it publishes. But
//! a VFS above ours may hold writes back until `xSync` (SQLite's own crash tests do). Then the rest
//! comes with the next transaction or, if the process ends, never. So the start is kept here, and
//! the log holds only whole frames. SQLite's own log ends in such a frame, and a reader gets a
//! short read. Our log continues with prepared blocks, and their content would pass for the rest.

use crate::commit::Writer;
use crate::wal::{FrameNo, History};

/// See the module.
pub(super) struct PartialFrame {
    frame: FrameNo,
    history: Option<History>,
    /// The frame; the first `known` bytes have come.
    bytes: Vec<u8>,
    known: usize,
}

impl Writer {
    /// Keeps a frame of which only so many bytes have come.
    pub(super) fn keep_partial(&mut self, frame: FrameNo, known: usize) {
        let fills_a_sector =
            self.transaction.phase.awaits_sync() && frame > self.transaction.commit;
        if !fills_a_sector {
            return;
        }
        self.partial = self.run.frame(frame).map(|bytes| PartialFrame {
            frame,
            history: self.transaction.history,
            bytes: bytes.to_vec(),
            known,
        });
    }

    /// The last bytes of a frame have come.
    pub(super) fn forget_partial(&mut self, frame: FrameNo) {
        self.partial.take_if(|partial| partial.frame == frame);
    }

    /// Called before the collected frames are written: leaves out the partial one.
    pub(super) fn leave_out_partial(&mut self) {
        if let Some(partial) = &self.partial
            && partial.history == self.transaction.history
            && partial.frame == self.run.last()
        {
            self.run.truncate(partial.frame);
        }
    }

    /// The start of a frame that continues at byte `within`. No rest is expected of any other
    /// frame.
    pub(super) fn take_partial(&mut self, frame: FrameNo, within: usize) -> Option<Vec<u8>> {
        let goes_on = |partial: &PartialFrame| {
            partial.frame == frame
                && partial.known == within
                && partial.history == self.transaction.history
        };
        self.partial
            .take()
            .filter(goes_on)
            .map(|partial| partial.bytes)
    }
}
