//! The shared memory, word by word, through which handles inform each other.
//!
//! | word | what |
//! | --- | --- |
//! | 0 | ready: [`MAGIC`] once the rest is valid |
//! | 1 | newest version |
//! | 2 | newest durable version |
//! | 3 | next version |
//! | 4 | the version whose pages are being written, 0 if none; stays if the writer dies |
//! | 5 | cache epoch: one more whenever pages changed without passing the ring (recovery, undone spills) |
//! | 6 | poisoned: 1 after a failed write or flush |
//! | 7 | pages ever put into the ring |
//! | 8 | high-water mark |
//! | 9 | newest version whose slot need not be redone |
//! | 10 | `seq` of the header on disk |
//! | 11 | the slot that the next commit takes, of `double` |
//! | 12 | the setting of all handles for page writes: 1 [`crate::Torn::Trust`], 2 [`crate::Torn::Double`] |
//! | 13 | number of changes to the free map here |
//! | 14 | 1 while a flush is under way, and until what only the page cache may hold is written again: see [`crate::again`] |
//! | 15 | `seq` of the newest header that a flush has covered |
//! | 16-20 | read marks: the oldest version read under each; 0 if unused |
//! | 24-28 | the newest version read under each |
//! | 29-30 | versions that the open has found lost: the last one before them, and their last one; 0: none |
//! | 31 | lives of the database that have ended since all of it was healed, this one if a writer has died in it included; 0: nothing is left to heal, see [`crate::heal`] |
//! | 32 | 1 once a handle has opened it that may only read: see [`crate::close`] |
//! | 33 | commits of `double` since the size of its slots was last considered |
//! | 34 | pages of a slot that the largest of these took |
//! | 35 | 1 if a walk has freed pages, until a header has them in its free map: see [`crate::heal`] |
//! | 36-43 | numbers of handles that were refused the writer's lock; 0: none, see [`crate::turns`] |
//! | 44 | the page that is late, times 2^32, and the page that carries its change; 0: none, see [`crate::late`] |
//! | 45 | commits with a late page since the floor has moved |
//! | 46 | the page that stays in a slot, times 2^32, and the head that has its image; 0: none, see [`crate::stays`] |
//! | 47 | which file it is: [`crate::Storage::identity`] |
//! | 64-511 | free bitmap, a bit a page: includes pages freed since the newest durable commit, so use it after a flush |
//! | 512-2559 | ring of pages written, for other handles' caches |
//! | 2560- | free bitmap of page 28672 on |
//!
//! So the part that a small database needs when it is opened fits into 4 KiB.

use crate::error::{Error, Result};
use crate::storage::Storage;

/// Its last digit is one more when a release that has the database open could no longer read what
/// this one writes. Neither joins the other then.
pub(crate) const MAGIC: u64 = 0x4c53_4d56_4254_000b;
pub(crate) const READY: usize = 0;
pub(crate) const CURRENT: usize = 1;
pub(crate) const DURABLE: usize = 2;
pub(crate) const NEXT: usize = 3;
pub(crate) const WRITING: usize = 4;
pub(crate) const EPOCH: usize = 5;
pub(crate) const POISON: usize = 6;
pub(crate) const RING_HEAD: usize = 7;
pub(crate) const HWM: usize = 8;
pub(crate) const SETTLED: usize = 9;
pub(crate) const HEADER_SEQ: usize = 10;
pub(crate) const SLOT: usize = 11;
pub(crate) const TORN: usize = 12;
pub(crate) const FREE_SEQ: usize = 13;
pub(crate) const AGAIN: usize = 14;
pub(crate) const HEADER_DURABLE: usize = 15;
pub(crate) const MARK_LOW: usize = 16;
pub(crate) const MARK_HIGH: usize = 24;
pub(crate) const LOST_AFTER: usize = 29;
pub(crate) const LOST_TO: usize = 30;
pub(crate) const UNHEALED: usize = 31;
pub(crate) const ONLY_READ: usize = 32;
pub(crate) const SLOT_COMMITS: usize = 33;
pub(crate) const SLOT_LARGEST: usize = 34;
pub(crate) const FREED: usize = 35;
/// The first of these words, and their number.
pub(crate) const WAITING: usize = 36;
pub(crate) const WAITERS: usize = 8;
pub(crate) const LATE: usize = 44;
pub(crate) const LATE_COMMITS: usize = 45;
pub(crate) const STAYS: usize = 46;
pub(crate) const FILE: usize = 47;
/// The start of the free bitmap, its first words, and the place where it goes on.
const FREE: usize = 64;
const FREE_WORDS: usize = 448;
const FREE_REST: usize = RING + RING_LEN as usize;
const RING: usize = FREE + FREE_WORDS;
/// Pages that the ring remembers.
pub(crate) const RING_LEN: u64 = 2048;

/// The place of a word of the free bitmap.
pub(crate) fn free_word(number: usize) -> usize {
    if number < FREE_WORDS {
        FREE + number
    } else {
        FREE_REST + number - FREE_WORDS
    }
}

/// The first words of the free bitmap, as many as `words` has.
pub(crate) fn free_words(s: &dyn Storage, words: &mut [u64]) -> Result<()> {
    let (head, rest) = words.split_at_mut(words.len().min(FREE_WORDS));
    s.shm_load_all(FREE, head)
        .and_then(|()| s.shm_load_all(FREE_REST, rest))
        .map_err(Error::io("reading shared memory"))
}

/// Reads a word.
pub(crate) fn load(s: &dyn Storage, word: usize) -> Result<u64> {
    s.shm_load(word).map_err(Error::io("reading shared memory"))
}

/// Writes a word.
pub(crate) fn store(s: &dyn Storage, word: usize, value: u64) -> Result<()> {
    s.shm_store(word, value)
        .map_err(Error::io("writing shared memory"))
}

/// Makes sure that the words to which a commit writes are there: its shared memory lies in a file,
/// and the disk may be full.
pub(crate) fn reserve(s: &dyn Storage, hwm: u32) -> Result<()> {
    load(s, FREE_REST - 1)?;
    load(s, free_word(hwm as usize / 64))?;
    Ok(())
}

/// Publishes the changed pages to the other handles.
pub(crate) fn announce(s: &dyn Storage, pages: &[u32]) -> Result<u64> {
    let mut head = load(s, RING_HEAD)?;
    if pages.len() as u64 > RING_LEN / 4 {
        store(s, EPOCH, load(s, EPOCH)? + 1)?;
        return Ok(head);
    }
    for page in pages {
        store(s, RING + (head % RING_LEN) as usize, u64::from(*page))?;
        head += 1;
    }
    store(s, RING_HEAD, head)?;
    Ok(head)
}

/// The pages put into the ring since `from`, and its head; `None` if the ring no longer has some.
pub(crate) fn announced(s: &dyn Storage, from: u64) -> Result<(u64, Option<Vec<u32>>)> {
    let head = load(s, RING_HEAD)?;
    let behind = |head: u64| head.wrapping_sub(from) > RING_LEN / 2;
    if behind(head) {
        return Ok((head, None));
    }
    let mut pages = Vec::with_capacity((head - from) as usize);
    for at in from..head {
        pages.push(load(s, RING + (at % RING_LEN) as usize)? as u32);
    }
    // A writer may have gone on meanwhile; it is never more than a quarter ahead of the head.
    let now = load(s, RING_HEAD)?;
    Ok((head, (!behind(now)).then_some(pages)))
}
