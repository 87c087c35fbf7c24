//! The transaction that a connection writes: its phase, and the knowledge about it.
//!
//! ```text
//!          frame              commit frame         xSync           frame after the commit
//! Ended ----------> Open ------------------> Complete -------> Synced <---------------> Filled
//!                                                                        xSync
//! ```
//!
//! From every phase the end of the transaction leads to `Ended`. At `synchronous=NORMAL` no `xSync`
//! comes. SQLite calls `xSync` of a commit once, and then writes the rest of a frame that fills the
//! device's sector.

use crate::commit::Writer;
use crate::wal::{FrameNo, History, IndexView, Salts, array};

/// The connection's position in its transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Phase {
    /// No transaction is being written. The last one is remembered until the next begins.
    #[default]
    Ended,
    /// Frames come.
    Open,
    /// The commit frame is complete: `xSync`, or publication, is next.
    Complete,
    /// `xSync` of the commit has come: publication is next.
    Synced,
    /// As `Synced`, and a further frame has come since, which no `xSync` may follow.
    Filled,
}

impl Phase {
    /// Whether a commit frame was written, and no `xSync` since.
    pub(super) fn awaits_sync(self) -> bool {
        matches!(self, Phase::Complete | Phase::Filled)
    }

    /// Whether `xSync` of the commit has come.
    pub(super) fn is_synced(self) -> bool {
        matches!(self, Phase::Synced | Phase::Filled)
    }

    /// The phase after a commit frame, or after one behind it that fills a sector.
    pub(super) fn after_commit_frame(self) -> Phase {
        match self {
            Phase::Ended | Phase::Open | Phase::Complete => Phase::Complete,
            Phase::Synced | Phase::Filled => Phase::Filled,
        }
    }

    /// The phase after `xSync` of a commit; `None` if no commit awaits one.
    pub(super) fn after_sync(self) -> Option<Phase> {
        self.awaits_sync().then_some(Phase::Synced)
    }
}

/// See the module. It is unchanged after its end, because the frames may still be written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Transaction {
    pub(super) phase: Phase,
    /// The history of its frames.
    pub(super) history: Option<History>,
    /// The last frame that it has written, even if that no longer counts.
    pub(super) live_until: FrameNo,
    /// Whether a part of it went through the page cache.
    pub(super) spilled: bool,
    /// Its commit frame, once that has come.
    pub(super) commit: FrameNo,
}

impl Transaction {
    /// A transaction whose first frame is about to be written.
    pub(super) fn begin(first: FrameNo, history: Option<History>) -> Transaction {
        Transaction {
            phase: Phase::Open,
            history,
            live_until: FrameNo(first.0.saturating_sub(1)),
            spilled: false,
            commit: FrameNo(0),
        }
    }

    /// Whether it is being written.
    pub(super) fn is_under_way(&self) -> bool {
        self.phase != Phase::Ended
    }

    /// The history of its frames, while it is being written.
    pub(super) fn present_history(&self) -> Option<History> {
        self.history.filter(|_| self.is_under_way())
    }

    /// Whether a frame is one that it has written, while it is being written.
    pub(super) fn has_written(&self, frame: FrameNo) -> bool {
        self.is_under_way() && frame <= self.live_until
    }
}

/// The durability of the connection's last commit, up to its last frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Promise {
    /// Unknown, or already noted elsewhere.
    #[default]
    None,
    /// It is durable, and about to be published.
    Durable(History, FrameNo),
    /// It is published before it is durable, or will be.
    Deferred(History, FrameNo),
}

impl Promise {
    /// A durable commit that was not published is void: the same frames may be written again.
    pub(super) fn forget_durable(&mut self) {
        if matches!(self, Promise::Durable(..)) {
            *self = Promise::None;
        }
    }

    /// No connection waits for a deferred commit that was rolled back.
    pub(super) fn forget_deferred(&mut self) {
        if matches!(self, Promise::Deferred(..)) {
            *self = Promise::None;
        }
    }

    /// Takes the position of a durable commit.
    pub(super) fn take_durable(&mut self) -> Option<(History, FrameNo)> {
        let Promise::Durable(history, frame) = *self else {
            return None;
        };
        *self = Promise::None;
        Some((history, frame))
    }

    /// Takes the position of a deferred commit.
    pub(super) fn take_deferred(&mut self) -> Option<(History, FrameNo)> {
        let Promise::Deferred(history, frame) = *self else {
            return None;
        };
        *self = Promise::None;
        Some((history, frame))
    }
}

impl Writer {
    /// The history that a transaction begins in.
    pub(super) fn present_history(&self, index: Option<IndexView>) -> Option<History> {
        let salts = match (self.header, index) {
            (Some(header), _) => Some(Salts(array(&header[16..24]))),
            (None, Some(index)) => Some(index.salts),
            (None, None) => self.log.header_salts(),
        };
        let recovery = index.map_or(0, |index| index.recovery);
        salts.map(|salts| History { salts, recovery })
    }

    /// The generation that the collected frames belong to.
    pub(super) fn run_salts(&self) -> Option<Salts> {
        let header = self.run.frame(self.run.first())?;
        Some(Salts(array(&header[8..16])))
    }

    /// The history of the collected frames. Nobody recovers the wal-index while they are written.
    pub(super) fn run_history(&self) -> Option<History> {
        let recovery = self.transaction.history.map_or(0, |of| of.recovery);
        Some(History {
            salts: self.run_salts()?,
            recovery,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_awaits_one_sync_and_a_frame_behind_it_none_that_must_come() {
        let open = Transaction::begin(FrameNo(4), None);
        assert_eq!((open.phase, open.live_until), (Phase::Open, FrameNo(3)));
        assert_eq!(open.phase.after_sync(), None, "of a checkpoint");
        let complete = open.phase.after_commit_frame();
        assert_eq!(complete.after_commit_frame(), Phase::Complete);
        let synced = complete.after_sync();
        assert_eq!(synced, Some(Phase::Synced));
        assert_eq!(Phase::Synced.after_sync(), None);
        let filled = Phase::Synced.after_commit_frame();
        assert!(filled.is_synced() && filled.awaits_sync());
    }

    #[test]
    fn only_a_promise_of_its_kind_is_forgotten() {
        let (salts, frame) = (Salts([1; 8]).into(), FrameNo(3));
        let mut promise = Promise::Deferred(salts, frame);
        promise.forget_durable();
        assert_eq!(promise.take_durable(), None);
        assert_eq!(promise.take_deferred(), Some((salts, frame)));
        assert_eq!(promise, Promise::None);
        promise = Promise::Durable(salts, frame);
        promise.forget_deferred();
        assert_eq!(promise.take_deferred(), None);
        promise.forget_durable();
        assert_eq!(promise, Promise::None);
    }
}
