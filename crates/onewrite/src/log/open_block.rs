//! The block at the log's end that the next commit of a group may share with those before it. Its
//! word is in the page of [`super::shared`].
//!
//! The commits of a group are written through the page cache, and a leader flushes for all. Until
//! then the block in which the last of them ends can take the next one, too, and goes to the device
//! once. The word has one of these values:
//!
//! - 0: the next batch begins a block;
//! - a batch, *open*: it was written through the page cache, and no flush has begun that must cover
//!   its last block;
//! - a batch, *held*: a writer is writing behind it.
//!
//! Only the process that has SQLite's write lock opens and holds a block. Any process closes it: a
//! leader between its look at the wal-index and its flush. So a block whose commits a flush makes
//! durable is not written again. A leader waits for a writer that holds the block, for a
//! [`MOMENT`]. `docs/durability.md`, J21 to J28, has the argument.

use crate::log::packed::LastBatch;
use crate::storage::SharedWords;
use crate::sync::atomic::Ordering;
use crate::sync::fence;
use crate::waits::{MOMENT, Short, try_within};

const STATE: u64 = 3;
const OPEN: u64 = 1;
const HELD: u64 = 2;

/// See the module. Without writable words there is never a block to share.
#[derive(Clone, Copy)]
pub struct OpenBlock<'a> {
    pub(super) words: Option<&'a SharedWords>,
}

/// A writer holds the block behind this batch.
#[derive(Debug)]
pub struct Held(LastBatch);

/// The CRC of a batch covers its generation, and the batches before it. Where it ends is a part of the
/// word for the unlikely case that two have the same CRC.
fn word(batch: LastBatch, state: u64) -> u64 {
    u64::from(batch.crc) << 32 | u64::from((batch.end >> 4 << 2) as u32) | state
}

impl OpenBlock<'_> {
    /// Whether the block behind this batch is open. Under the write lock.
    pub fn is_open(self, batch: LastBatch) -> bool {
        let Some(words) = self.words else {
            return false;
        };
        batch.leaves_room() && words.open_block.load(Ordering::Acquire) == word(batch, OPEN)
    }

    /// Holds the block behind this batch for a write, if it is still open. Under the write lock.
    pub fn hold(self, batch: LastBatch) -> Option<Held> {
        let held = self.words?.open_block.compare_exchange(
            word(batch, OPEN),
            word(batch, HELD),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        held.is_ok().then_some(Held(batch))
    }

    /// A batch was written through the page cache, in blocks of its own or behind the held one. It is not
    /// published yet. A leader that has waited too long has closed the block: then it stays closed.
    pub fn wrote(self, batch: LastBatch, held: Option<Held>) {
        let Some(words) = self.words else { return };
        let open = match batch.leaves_room() {
            true => word(batch, OPEN),
            false => 0,
        };
        match held {
            None => words.open_block.store(open, Ordering::Release),
            Some(Held(before)) => {
                let _ = words.open_block.compare_exchange(
                    word(before, HELD),
                    open,
                    Ordering::AcqRel,
                    Ordering::Acquire,
                );
            }
        }
    }

    /// The next batch begins a block: what is at the end now is durable, or will be without a
    /// leader. Under the write lock. So nobody else writes, and a block that is held is of a process
    /// that died.
    pub fn close_as_writer(self) {
        if let Some(words) = self.words
            && words.open_block.load(Ordering::Relaxed) != 0
        {
            words.open_block.store(0, Ordering::Release);
        }
    }

    /// The next batch begins a block: a flush is about to begin, after a look at what is published.
    pub fn close(self) {
        let Some(words) = self.words else { return };
        // The block of every commit that the look has found is found here. It pairs with the fence in
        // `Shared::set_deferred`.
        fence(Ordering::Acquire);
        let close = |now| {
            words
                .open_block
                .compare_exchange(now, 0, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
        };
        let closed = || {
            let now = words.open_block.load(Ordering::Acquire);
            Ok::<_, ()>(now == 0 || now & STATE == OPEN && close(now))
        };
        if try_within(MOMENT, &Short, closed) != Ok(true) {
            // The writer is stopped or dead.
            words.open_block.store(0, Ordering::Release);
        }
    }
}

#[cfg(all(test, not(any(shuttle, loom))))]
mod tests {
    use super::*;

    fn batch(end: u64) -> LastBatch {
        LastBatch { crc: 7, end }
    }

    fn block(words: &SharedWords) -> OpenBlock<'_> {
        OpenBlock { words: Some(words) }
    }

    #[test]
    fn a_block_is_shared_until_a_flush_begins() {
        let words = SharedWords::default();
        let block = block(&words);
        assert!(!block.is_open(batch(4160)) && block.hold(batch(4160)).is_none());
        block.wrote(batch(4160), None);
        assert!(block.is_open(batch(4160)));
        let held = block.hold(batch(4160));
        assert!(held.is_some() && !block.is_open(batch(4160)));
        block.wrote(batch(4240), held);
        assert!(block.is_open(batch(4240)) && !block.is_open(batch(4160)));
        block.close();
        assert!(block.hold(batch(4240)).is_none());
    }

    #[test]
    fn only_the_batch_that_was_written_last_has_a_block_to_share() {
        let words = SharedWords::default();
        let block = block(&words);
        block.wrote(batch(4160), None);
        for other in [
            batch(4176),
            batch(8256),
            LastBatch {
                crc: 8,
                ..batch(4160)
            },
        ] {
            assert!(!block.is_open(other) && block.hold(other).is_none());
        }
        block.wrote(batch(8192), None);
        assert!(!block.is_open(batch(8192)), "it is full");
        block.wrote(batch(4160), None);
        block.close_as_writer();
        assert!(!block.is_open(batch(4160)));
    }

    #[test]
    fn a_block_that_a_leader_has_closed_is_not_opened_by_the_writer_that_held_it() {
        let words = SharedWords::default();
        let block = block(&words);
        block.wrote(batch(4160), None);
        let held = block.hold(batch(4160));
        // As after a wait of a leader.
        block.close();
        block.wrote(batch(4240), held);
        assert!(!block.is_open(batch(4240)));
    }
}
