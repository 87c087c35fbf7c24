//! Rules that the tests leave out, one at a time, to see that the absence is found. Only a test
//! build can leave one out.

use super::Ftl;

/// A rule that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Commit switches the root, but the X-L2P table with the transaction was not flushed.
    NoTableFlush,
    /// The root is written before the pages that it points to are on the medium.
    NoWaitBeforeSwitch,
    /// Garbage collection does not keep the pages of active transactions.
    ActiveNotKept,
    /// Garbage collection does not keep the old versions of pages that active transactions have written.
    UndoNotKept,
    /// Recovery does not drop the pages of active transactions.
    ActiveRecovered,
    /// Recovery does not complete committed transactions.
    CommittedNotRecovered,
    /// A block is erased before the writes that made its pages invalid are on the medium.
    NoWaitBeforeErase,
    /// A block is marked bad before its pages are elsewhere on the medium.
    NoWaitBeforeGivingUp,
    /// A trimmed page is invalid at once.
    TrimNotHeld,
    /// Recovery takes the page that it finds last, whatever its sequence number.
    SequenceIgnored,
    /// Pieces of the map count before the copies that they name are on the medium.
    CopiesNotWaitedFor,
    /// A root names a transaction's page that garbage collection has moved, and whose copy is not
    /// on the medium.
    MovedNotWaitedFor,
    /// A transaction's pages, and those that undoing it needs, are copied while its commit's root
    /// is being programmed.
    CopiedDuringCommit,
    /// The journal of the map lacks an entry that recovery takes to be in it.
    JournalIncomplete,
    /// A block that holds old and new pieces of the map becomes free before the new ones count.
    InvalidFirst,
    /// A root names a piece of the map that was written back and has changed since.
    StaleWrittenBack,
    /// Pairs of pages that were waited for are not complete.
    NoPadding,
    /// They are complete on the first plane of each die only.
    OnePlanePadded,
    /// Blocks with many bit errors are not moved.
    NoScrub,
    /// Recovery takes a page with too many bit errors for the end of its block.
    ErrorEndsBlock,
    /// A failed program counts as a good one.
    FailureIgnored,
}

impl Ftl {
    /// Whether a test leaves this rule out.
    #[cfg(test)]
    pub(crate) fn leaves_out(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// No rule is left out.
    #[cfg(not(test))]
    pub(crate) fn leaves_out(&self, _: Flaw) -> bool {
        false
    }
}
