//! Treats a device without FUA as one with FUA.
//!
//! A loop device offers no FUA. The kernel turns a write-through write (RWF_DSYNC) into a write and
//! a flush, and the flush covers everything before it. On a device with FUA only that write's own
//! blocks become durable. So this module finds the flushes of a recording that stand for FUA, and
//! limits them to those blocks.
//!
//! *How it finds them.* The engine announces each call on its log before the call ([`Tell`]), and
//! every note names its thread. When a thread sends a note, its previous call has returned. After
//! the note on a write-through write, its bytes arrive, and then its flush. Several threads may
//! write through at once. Then one flush follows for each of them, and each flush covers what has
//! arrived from all of them.
//!
//! *When in doubt, a flush stays a flush.* A device with FUA still gets flushes. To take one of
//! them for FUA would report losses that cannot happen. So nothing is changed while another thread
//! is in a call that may flush. Nothing is changed either if something else was written meanwhile
//! (a checkpoint, the page cache, a file system's journal). The same holds if the next write is one
//! that a file system sends with a flush before it.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::time::Duration;

use onewrite::storage::Durability;
use onewrite::storage::observer::{Call, Observer, Route};
use onewrite_flash::history::{Event, History, Position};

use super::protocol::{Channel, Note, Thread};

/// Notes each call of the engine on a log.
pub struct Tell(pub Channel);

impl Observer for Tell {
    fn before(&self, _path: &Path, call: &Call<'_>) -> io::Result<()> {
        TELLING.with(|telling| drop(telling.set(EndOfThread(self.0.clone()))));
        let note = match call {
            Call::Write {
                bytes,
                durability: Durability::WriteThrough,
                route: Route::Direct,
                ..
            } => Note::WriteThrough {
                bytes: bytes.len() as u64,
            },
            Call::Flush | Call::SyncDirectory | Call::Initialize { .. } => Note::LogFlush,
            _ => Note::LogCall,
        };
        let told = self.0.note(note);
        told.map_err(|failure| io::Error::other(failure.to_string()))
    }

    /// The clock stands still, so that `auto` writes through. The cuts are to hit that path.
    fn clock(&self) -> Option<Duration> {
        Some(Duration::ZERO)
    }
}

thread_local!(static TELLING: OnceCell<EndOfThread> = const { OnceCell::new() });

/// Notes at the end of an engine thread that its last call has returned.
struct EndOfThread(Channel);

impl Drop for EndOfThread {
    fn drop(&mut self) {
        // If the orchestrator is gone, nobody needs the note.
        let _ = self.0.note(Note::LogCall);
    }
}

/// The write-through writes under way.
struct UnderWay {
    /// The position where the first of them began.
    from: Position,
    threads: HashSet<Thread>,
    /// Those of their bytes that have not arrived.
    missing: u64,
    /// The flushes that will come for them, at most.
    flushes: usize,
    /// Something else was written.
    others: bool,
}

/// Changes the flushes of `history` that stand for FUA. `notes` are the meanings of its marks, each
/// with the thread that sent it.
pub fn assume(history: &mut History, notes: &[(Note, Thread)]) {
    let mut found = Vec::new();
    let mut under_way: Option<UnderWay> = None;
    let mut flushing: HashSet<Thread> = HashSet::new();
    for (index, event) in history.events().iter().enumerate() {
        match event {
            Event::Mark(mark) => {
                let Some((note, thread)) = notes.get(*mark as usize) else {
                    continue;
                };
                flushing.remove(thread);
                ended(&mut under_way, *thread);
                match note {
                    Note::LogFlush => drop(flushing.insert(*thread)),
                    Note::WriteThrough { bytes } => {
                        begun(&mut under_way, *thread, *bytes, Position(index + 1));
                    }
                    _ => {}
                }
            }
            Event::Write { .. } | Event::Zero { .. } => {
                if let Some(under_way) = &mut under_way {
                    let bytes = event.range().map_or(0, |(_, bytes)| bytes);
                    under_way.others |= bytes > under_way.missing;
                    under_way.missing = under_way.missing.saturating_sub(bytes);
                }
            }
            Event::Flush(_) => {
                let Some(writes) = &mut under_way else {
                    continue;
                };
                let next = history.events()[index..]
                    .iter()
                    .find(|e| e.range().is_some());
                if !writes.others && flushing.is_empty() && !next.is_some_and(comes_with_a_flush) {
                    found.push((index, writes.from));
                }
                writes.flushes -= 1;
                if writes.flushes == 0 {
                    under_way = None;
                }
            }
        }
    }
    for (flush, from) in found {
        history.assume_fua(flush, from);
    }
}

fn begun(under_way: &mut Option<UnderWay>, thread: Thread, bytes: u64, from: Position) {
    let writes = under_way.get_or_insert_with(|| UnderWay {
        from,
        threads: HashSet::new(),
        missing: 0,
        flushes: 0,
        others: false,
    });
    writes.threads.insert(thread);
    writes.missing += bytes;
    writes.flushes += 1;
}

/// The thread has finished its write-through write, if it was in one.
fn ended(under_way: &mut Option<UnderWay>, thread: Thread) {
    if let Some(writes) = under_way {
        writes.threads.remove(&thread);
        if writes.threads.is_empty() {
            *under_way = None;
        }
    }
}

/// Whether a file system sends this write with a flush before it (REQ_PREFLUSH). Then the flush
/// covered everything.
fn comes_with_a_flush(event: &Event) -> bool {
    /// Magic number and block type of the commit block of ext4's journal.
    const COMMIT: [u8; 8] = [0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 2];
    /// A record in the log of XFS.
    const XFS: [u8; 4] = [0xFE, 0xED, 0xBA, 0xBE];
    /// The offset of Btrfs's superblock.
    const BTRFS: u64 = 64 << 10;
    match event {
        Event::Write { offset, data } => {
            data.starts_with(&COMMIT) || data.starts_with(&XFS) || *offset == BTRFS
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onewrite_flash::history::Covers;

    /// Plays events, one letter each. `a` to `c`: threads 0 to 2 note a write-through write of a
    /// block. `A` to `C`: they note something else. `X`: thread 0 notes a flush. `w`: a block is
    /// written, `j`: the journal's commit block, `f`: a flush.
    fn play(script: &str) -> String {
        let (mut history, mut notes) = (History::default(), Vec::new());
        for letter in script.bytes() {
            let mut note = |note, thread: u8| {
                notes.push((note, Thread(u64::from(thread))));
                Event::Mark(notes.len() as u64 - 1)
            };
            let write = |first: &[u8]| {
                let mut data = vec![1; 4096];
                data[..first.len()].copy_from_slice(first);
                let data = data.into();
                Event::Write { offset: 0, data }
            };
            let event = match letter {
                b'a'..=b'c' => note(Note::WriteThrough { bytes: 4096 }, letter - b'a'),
                b'A'..=b'C' => note(Note::LogCall, letter - b'A'),
                b'X' => note(Note::LogFlush, 0),
                b'w' => write(&[]),
                b'j' => write(&[0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 2]),
                _ => Event::Flush(Covers::Everything),
            };
            history.push(event, 0);
        }
        assume(&mut history, &notes);
        let flushes = history.events().iter().filter_map(|event| match event {
            Event::Flush(Covers::Everything) => Some("all".to_owned()),
            Event::Flush(Covers::WritesSince(from)) => Some(from.0.to_string()),
            _ => None,
        });
        flushes.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_flush_of_a_write_through_write_covers_that_write_alone() {
        assert_eq!(play("wawfA"), "2");
        assert_eq!(play("wawfAwfawf"), "2 all 8");
        assert_eq!(play("awf"), "1");
    }

    #[test]
    fn what_comes_behind_the_write_keeps_its_flush() {
        assert_eq!(play("awffA"), "1 all");
        assert_eq!(play("awfwfA"), "1 all");
        assert_eq!(play("awAf"), "all");
    }

    #[test]
    fn a_flush_that_may_be_of_another_thread_stays_one() {
        assert_eq!(play("awwfA"), "all");
        assert_eq!(play("awfj"), "all");
        assert_eq!(play("awfAwj"), "1");
        assert_eq!(play("XbwfB"), "all");
        assert_eq!(play("XAbwfB"), "3");
    }

    #[test]
    fn writes_of_several_threads_share_what_has_arrived() {
        assert_eq!(play("abwwffAB"), "1 1");
        assert_eq!(play("abwfwfAB"), "1 1");
        // One flush for both writes; the next one belongs to something else.
        assert_eq!(play("abwwfABf"), "1 all");
        assert_eq!(play("awbfAwfB"), "1 1");
        assert_eq!(play("abcwwwwfff"), "all all all");
    }
}
