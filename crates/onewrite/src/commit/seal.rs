//! Frames that SQLite publishes unfinished, and how the log finishes them.
//!
//! If a transaction overwrites one of its own frames, SQLite leaves salts and checksums zero in the
//! frames that follow. When it commits, it writes those headers again, from the overwritten frame
//! on. Up to some version (3.49 has it, 3.50.2 has not) it forgets that a `ROLLBACK TO` may have
//! gone back before the overwritten frame since. Then frames before it are committed with zeros for
//! checksums. That SQLite reads them as long as its wal-index lives, but no recovery finds them,
//! nor any commit after them.
//!
//! So the log finishes these headers. When all frames are there, SQLite reads back one checksum,
//! that of the frame before the overwritten one, and continues from it ([`Writer::read_checksum`]).
//! Before the answer, the log finishes the headers up to that frame. So the answer is right, and so
//! is everything that SQLite derives from it, including the wal-index. If the transaction ends
//! before that frame, the answer is the checksum of its last one.
//!
//! A VFS above ours may answer that read by itself. Then the headers are finished before the commit
//! is written, and SQLite continues from another checksum than the log's. The right one, for the
//! wal-index, comes from [`Writer::take_resealed`].

use crate::commit::Writer;
use crate::log::{ErrorKind, LogError};
use crate::wal::{
    Checksum, FRAME_CHECKSUM, FRAME_HEADER_BYTES, FrameHeader, FrameNo, IndexView, WalHeader, array,
};

/// The headers of a transaction that are still to come; see the module.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Unfinished {
    /// The frame whose header came last, if its page is still to come.
    header_of: Option<FrameNo>,
    /// The first frame that the transaction has overwritten: SQLite writes headers again from
    /// there.
    overwritten_from: Option<FrameNo>,
    /// The first frame with an unfinished header.
    unsealed_from: Option<FrameNo>,
    /// The transaction's last frame, if the last piece completed it.
    complete: Option<FrameNo>,
}

/// A commit after which SQLite continues from another checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resealed {
    /// Its last frame.
    pub commit: FrameNo,
    /// The log's checksum there.
    pub checksum: Checksum,
}

impl Unfinished {
    /// Notes a written piece of a frame: its header, or its page.
    pub(super) fn note(&mut self, frame: FrameNo, within: usize, piece: &[u8]) {
        self.complete = None;
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

    /// Notes that all frames of the transaction are there.
    pub(super) fn note_complete(&mut self, commit: FrameNo) {
        self.complete = Some(commit);
    }

    /// The log restarts in the middle of a transaction that was rolled back to its start.
    pub(super) fn restart(&mut self) {
        self.header_of = None;
        self.unsealed_from = None;
    }

    /// The first frame that SQLite will not finish, once the commit frame is written. `is_sealed`
    /// tells whether the commit frame is finished.
    pub(super) fn left_by(&self, commit: FrameNo, is_sealed: bool) -> Option<FrameNo> {
        let (from, again) = (self.unsealed_from?, self.overwritten_from?);
        let is_last_chance = is_sealed || commit < again;
        (from < again && from <= commit && is_last_chance).then_some(from)
    }
}

impl Writer {
    /// `xRead` of only a frame's checksum, right after the transaction's last frame. SQLite is
    /// about to finish the headers after that one, and continues from what it reads. `false` for
    /// any other read.
    pub(super) fn read_checksum(
        &mut self,
        out: &mut [u8],
        offset: u64,
        index: Option<IndexView>,
    ) -> Result<bool, LogError> {
        let place = self.log.geometry().page().locate(offset);
        let commit = self.unfinished.complete;
        let commit = commit.filter(|_| self.transaction.is_under_way());
        let (Some((before, within)), Some(commit)) = (place, commit) else {
            return Ok(false);
        };
        if within != FRAME_CHECKSUM.start || out.len() != FRAME_CHECKSUM.len() {
            return Ok(false);
        }
        // Frames after the commit frame do not count.
        let last = before.min(commit);
        let unsealed = self.unfinished.unsealed_from.filter(|from| *from <= last);
        if let Some(from) = unsealed {
            self.seal(from, last, index)?;
            // SQLite finishes the others.
            self.unfinished.unsealed_from = None;
        }
        let mut frame = vec![0; self.log.geometry().page().frame_bytes()];
        self.read_whole_frame(last, &mut frame, index)?;
        out.copy_from_slice(&frame[FRAME_CHECKSUM]);
        self.resealed = None;
        Ok(true)
    }

    /// Finishes the headers from `from` to the commit frame, which SQLite will not.
    pub(super) fn seal_commit(
        &mut self,
        from: FrameNo,
        commit: FrameNo,
        index: Option<IndexView>,
    ) -> Result<(), LogError> {
        self.unfinished = Unfinished::default();
        self.note_commit();
        // SQLite may have finished the commit frame, and not those before it. If the log begins to
        // be written before the last header is right, that frame must not pass for a commit.
        if let Some(bytes) = self.run.frame_mut(commit) {
            bytes[8..FRAME_HEADER_BYTES].fill(0);
        }
        let checksum = self.seal(from, commit, index)?;
        self.resealed = Some(Resealed { commit, checksum });
        self.unfinished.note_complete(commit);
        Ok(())
    }

    /// Finishes the headers from `from` to `last`, and returns the checksum there.
    fn seal(
        &mut self,
        from: FrameNo,
        last: FrameNo,
        index: Option<IndexView>,
    ) -> Result<Checksum, LogError> {
        let damaged = |what| self.log.error(ErrorKind::Corrupt, what);
        let header = WalHeader::parse(&self.read_wal_header()?)
            .ok_or_else(|| damaged("its WAL header is not a valid header of SQLite"))?;
        let mut frame_bytes = vec![0; self.log.geometry().page().frame_bytes()];
        let mut sum = header.checksum();
        if from.0 > 1 {
            self.read_whole_frame(FrameNo(from.0 - 1), &mut frame_bytes, index)?;
            sum = FrameHeader::parse(&array(&frame_bytes[..FRAME_HEADER_BYTES])).checksum;
        }
        for frame in (from.0..=last.0).map(FrameNo) {
            self.read_whole_frame(frame, &mut frame_bytes, index)?;
            let (head, page) = frame_bytes.split_at(FRAME_HEADER_BYTES);
            let head = FrameHeader::parse(&array(head));
            let head = FrameHeader::build(head.page, head.commit_pages, &header, sum, page);
            sum = head.checksum;
            self.write_piece(frame, 0, &head.to_bytes(), &|| index)?;
        }
        Ok(sum)
    }

    /// Whether a frame fills a sector behind such a commit, which is collected. Recovery leaves the filling
    /// out. Where a batch ends a transaction, the next one begins behind all of it. So the commit gets a
    /// batch of its own.
    pub(super) fn fills_behind_resealed(&self, frame: FrameNo) -> bool {
        self.log.packed().is_some()
            && self.resealed.is_some_and(|resealed| {
                frame > resealed.commit && self.run.contains(resealed.commit)
            })
    }

    /// The frames after this commit, up to `last`, fill a sector. No recovery finds them, as their checksums
    /// follow another one than the log's. So other frames come in their places, in the same generation.
    /// The wal-index is about to be made invalid, and the next recovery begins another history. Nothing of
    /// this one is believed in that: neither a page, nor a place in the log, nor a mark. Under the write
    /// lock.
    pub fn forget_filling(&mut self, commit: FrameNo) {
        self.log.set_committed(commit);
        self.run_is_known = true;
    }

    /// The commit for which the published wal-index has a wrong checksum; returned once.
    pub fn take_resealed(&mut self, index: Option<IndexView>) -> Option<Resealed> {
        let is_published = index.is_some_and(|index| self.has_published(&index));
        self.resealed.take().filter(|_| is_published)
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
            // Rolled back to frame 3, and written again from there.
            (4..=commit).for_each(|number| frame(&mut unfinished, number, UNSEALED));
            let reaches = commit >= 9;
            let first = unfinished.left_by(FrameNo(commit), false);
            assert_eq!(first, (!reaches).then_some(FrameNo(4)));
            (9..=commit).for_each(|number| unfinished.note(FrameNo(number), 0, &SEALED));
            assert_eq!(unfinished.left_by(FrameNo(commit), true), Some(FrameNo(4)));
        }
    }
}
