//! Frames that SQLite publishes unfinished, and what is done about it.
//!
//! Where a transaction overwrites a frame of its own, SQLite leaves salts and checksums zero in what
//! follows, and writes those headers again, from the overwritten frame on, when it commits. Up to
//! some version (3.46 has it, 3.53 has not) it forgets that a `ROLLBACK TO` may have gone back behind
//! the overwritten frame since: then frames before it are committed with zeros for checksums. That
//! SQLite reads them as long as its wal-index lives, but no recovery finds them, nor any commit after
//! them.
//!
//! So the log does what SQLite has left undone: it computes these headers before the commit is written.
//! SQLite goes on from another checksum than the one that now stands there; so when the transaction is
//! published the wal-index is made invalid, and the next connection to read recovers it from the log.
//! (In `locking_mode=EXCLUSIVE` SQLite does not look at the wal-index again: there it stays as SQLite
//! has it, and such a commit is not recovered after a crash.)

use crate::commit::{IndexView, Writer};
use crate::log::{ErrorKind, LogError};
use crate::wal::{FRAME_HEADER_BYTES, FrameHeader, FrameNo, WalHeader, array};

/// What of a transaction's headers is still to come; see the module.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Unfinished {
    /// The frame whose header came last, if its page is still to come.
    header_of: Option<FrameNo>,
    /// The first frame that the transaction has overwritten: SQLite writes headers again from there.
    overwritten_from: Option<FrameNo>,
    /// The first frame with an unfinished header.
    unsealed_from: Option<FrameNo>,
}

impl Unfinished {
    /// A piece of a frame is written: its header, or its page.
    pub(super) fn note(&mut self, frame: FrameNo, within: usize, piece: &[u8]) {
        if within == 0 {
            self.header_of = Some(frame);
            let is_unsealed = piece.len() >= FRAME_HEADER_BYTES
                && piece[8..FRAME_HEADER_BYTES] == [0; FRAME_HEADER_BYTES - 8];
            if is_unsealed {
                self.unsealed_from = Some(self.unsealed_from.map_or(frame, |f| f.min(frame)));
            }
        } else if self.header_of.take() != Some(frame) {
            self.overwritten_from = Some(self.overwritten_from.map_or(frame, |f| f.min(frame)));
        }
    }

    /// The log starts again in the middle of a transaction that was rolled back to its beginning.
    pub(super) fn restart(&mut self) {
        self.header_of = None;
        self.unsealed_from = None;
    }

    /// The first frame that SQLite will not finish, once the commit frame is written; `is_sealed`
    /// tells whether the commit frame is finished.
    pub(super) fn left_by(&self, commit: FrameNo, is_sealed: bool) -> Option<FrameNo> {
        let (from, again) = (self.unsealed_from?, self.overwritten_from?);
        let is_last_chance = is_sealed || commit < again;
        (from < again && from <= commit && is_last_chance).then_some(from)
    }
}

impl Writer {
    /// Finishes the headers from `from` to the commit frame.
    pub(super) fn seal(
        &mut self,
        from: FrameNo,
        commit: FrameNo,
        index: Option<IndexView>,
    ) -> Result<(), LogError> {
        self.unfinished = Unfinished::default();
        self.resealed = true;
        // Neither grouped nor made durable by a write-through write alone.
        self.spilled = true;
        self.commit_written = true;
        // SQLite may have finished the commit frame, and not those before it. Where the log begins to be
        // written before the last header is right, that frame must not pass for a commit.
        if let Some(bytes) = self.run.frame_mut(commit) {
            bytes[8..FRAME_HEADER_BYTES].fill(0);
        }
        let damaged = |what| self.log.error(ErrorKind::Corrupt, what);
        let header = WalHeader::parse(&self.read_wal_header()?)
            .ok_or_else(|| damaged("its WAL header is not one of SQLite's"))?;
        let mut frame_bytes = vec![0; self.log.geometry().page().frame_bytes()];
        let mut sum = header.checksum();
        if from.0 > 1 {
            self.read_whole_frame(FrameNo(from.0 - 1), &mut frame_bytes, index)?;
            sum = FrameHeader::parse(&array(&frame_bytes[..FRAME_HEADER_BYTES])).checksum;
        }
        for frame in (from.0..=commit.0).map(FrameNo) {
            self.read_whole_frame(frame, &mut frame_bytes, index)?;
            let (head, page) = frame_bytes.split_at(FRAME_HEADER_BYTES);
            let head = FrameHeader::parse(&array(head));
            let head = FrameHeader::build(head.page, head.commit_pages, &header, sum, page);
            sum = head.checksum;
            self.write_piece(frame, 0, &head.to_bytes(), index)?;
        }
        Ok(())
    }

    /// Whether the log has finished headers of this transaction.
    pub(super) fn is_resealed(&self) -> bool {
        self.resealed
    }

    /// Whether SQLite's wal-index says another checksum than the log, since the last call: it is to be
    /// made invalid once the transaction is published.
    pub fn take_resealed(&mut self) -> bool {
        std::mem::take(&mut self.resealed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEALED: [u8; 24] = [1; 24];
    const UNSEALED: [u8; 24] = [0; 24];
    const PAGE: [u8; 512] = [7; 512];

    fn frame(unfinished: &mut Unfinished, number: u32, header: [u8; 24]) {
        unfinished.note(FrameNo(number), 0, &header);
        unfinished.note(FrameNo(number), 24, &PAGE);
    }

    #[test]
    fn a_transaction_that_overwrites_nothing_leaves_nothing() {
        let mut unfinished = Unfinished::default();
        (1..9).for_each(|number| frame(&mut unfinished, number, SEALED));
        assert_eq!(unfinished.left_by(FrameNo(8), true), None);
    }

    #[test]
    fn what_sqlite_will_finish_is_left_to_it() {
        let mut unfinished = Unfinished::default();
        (1..5).for_each(|number| frame(&mut unfinished, number, SEALED));
        unfinished.note(FrameNo(3), 24, &PAGE);
        (5..9).for_each(|number| frame(&mut unfinished, number, UNSEALED));
        assert_eq!(unfinished.left_by(FrameNo(8), false), None);
        for number in 3..9 {
            unfinished.note(FrameNo(number), 0, &SEALED);
        }
        assert_eq!(unfinished.left_by(FrameNo(8), true), None);
    }

    #[test]
    fn frames_before_the_overwritten_one_are_left_once_nobody_will_finish_them() {
        for commit in [6, 12] {
            let mut unfinished = Unfinished::default();
            (1..10).for_each(|number| frame(&mut unfinished, number, SEALED));
            unfinished.note(FrameNo(9), 24, &PAGE);
            // Rolled back to frame 3, and written anew from there.
            (4..=commit).for_each(|number| frame(&mut unfinished, number, UNSEALED));
            let reaches = commit >= 9;
            let first = unfinished.left_by(FrameNo(commit), false);
            assert_eq!(first, (!reaches).then_some(FrameNo(4)));
            (9..=commit).for_each(|number| unfinished.note(FrameNo(number), 0, &SEALED));
            assert_eq!(unfinished.left_by(FrameNo(commit), true), Some(FrameNo(4)));
        }
    }
}
