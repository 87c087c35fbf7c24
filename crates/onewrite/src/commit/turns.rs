//! Whose turn it is to write.
//!
//! A connection that wants to write takes its *turn* first, before SQLite's read lock. Then its
//! snapshot is that of the last commit, and the write lock is free when it asks for it. Otherwise
//! SQLite would refuse it, and it would sleep in the busy handler. A turn is only a courtesy: a
//! wait for it lasts at most `TURN`, and holds no lock of the database.
//!
//! A turn of a small transaction is shorter than putting a thread to sleep and waking it. So the
//! first waiter spins for a moment before it sleeps; the others sleep at once. That holds within a process,
//! and among processes. Where turns last longer, hardly anybody spins: see `looks.rs`.
//!
//! At `synchronous=NORMAL` a commit waits for nothing, so its connection comes back at once. Handing over
//! each time would cost more than the commits. So such a connection has a *slice* of time, in which it
//! wakes nobody. After it, the turn is kept for those who sleep. One of them looks by itself when the
//! slice is over, for the connection may not have come back.

use std::sync::PoisonError;
use std::time::Duration;

use crate::commit::looks::Looks;
use crate::commit::stuck::Stuck;
use crate::log::Log;
use crate::log::shared::{Committer, Contention};
use crate::storage::{LockByte, LockKind};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Instant, Mutex, MutexGuard, ThreadId, spin_until, this_thread};
use crate::waits::{LOOK, SLICE, TURN, TURN_SPIN};

/// The turns of a log's writers in this process, and among processes.
#[derive(Default)]
pub struct Turns {
    turn: Mutex<Turn>,
    freed: Condvar,
    /// Whether a connection has the turn, for the waiter that spins.
    is_taken: AtomicBool,
    /// Whether a waiter spins.
    is_watched: AtomicBool,
    looks: Looks,
    looks_among_processes: Looks,
    /// Another process has the turn, and does not end it.
    stuck: Stuck,
}

/// When a connection hands its turn over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandsOver {
    /// After each commit, for which it then waits.
    EachTime,
    /// When its slice is over.
    BySlices,
}

#[derive(Default)]
struct Turn {
    holder: Option<(Committer, ThreadId)>,
    /// Whether the holder has it among all processes.
    among_processes: bool,
    /// Threads that sleep until it is free.
    asleep: usize,
    /// The last connection that had a slice, and its end.
    slice: Option<(Committer, Instant)>,
    /// Whether one of the sleeping threads looks by itself when the slice is over.
    is_timed: bool,
    /// Whether a slice was over while others slept, and none of them has had its turn since.
    is_kept: bool,
}

impl Turn {
    fn is_anothers(&self, committer: Committer) -> bool {
        self.holder.is_some_and(|(holder, _)| holder != committer)
    }

    /// The end of the slice of `committer`, if that is not over.
    fn slice_of(&self, committer: Committer) -> Option<Instant> {
        let (whose, end) = self.slice?;
        (whose == committer && Instant::now() < end).then_some(end)
    }

    fn is_this_threads(&self) -> bool {
        self.holder
            .is_some_and(|(_, thread)| thread == this_thread())
    }
}

impl Turns {
    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give(&self, turn: &mut Turn, committer: Committer) {
        turn.holder = Some((committer, this_thread()));
        self.is_taken.store(true, Ordering::Relaxed);
    }

    /// Whether another connection of this process has the turn.
    pub fn is_anothers(&self, committer: Committer) -> bool {
        self.turn().is_anothers(committer)
    }

    /// Waits for the turn to write, at most `TURN`. Does not wait for a connection of the same
    /// thread, which cannot end its turn meanwhile.
    pub fn take(&self, log: &Log, committer: Committer, hands_over: HandsOver) {
        let end = Instant::now() + TURN;
        let mut turn = self.turn();
        let spins = hands_over == HandsOver::EachTime;
        if spins && turn.is_anothers(committer) && !turn.is_this_threads() {
            drop(turn);
            self.watch();
            turn = self.turn();
        }
        let mut has_slept = false;
        while turn.is_anothers(committer) || turn.is_kept && !has_slept {
            let now = Instant::now();
            if now >= end || turn.is_this_threads() {
                return;
            }
            turn = self.sleep(turn, end - now, now);
            has_slept = true;
        }
        turn.is_kept = false;
        if hands_over == HandsOver::BySlices && turn.slice_of(committer).is_none() {
            turn.slice = Some((committer, Instant::now() + SLICE));
        }
        self.give(&mut turn, committer);
        let among_processes =
            !turn.among_processes && log.shared().contention() == Contention::Processes;
        drop(turn);
        if among_processes && self.take_among_processes(log, end, hands_over) {
            let mut turn = self.turn();
            turn.among_processes = true;
            // Another connection may have written meanwhile without a turn, and have ended it. If nobody
            // had it now, nobody would end it among the processes.
            if turn.holder.is_none() {
                self.give(&mut turn, committer);
            }
        }
    }

    /// Sleeps until it is woken, at most for so long. The first thread that sleeps wakes when the slice is
    /// over.
    fn sleep<'a>(
        &self,
        mut turn: MutexGuard<'a, Turn>,
        most: Duration,
        now: Instant,
    ) -> MutexGuard<'a, Turn> {
        let slice_end = turn.slice.map(|(_, end)| end).filter(|end| *end > now);
        let looks_at = slice_end.filter(|_| !turn.is_timed);
        turn.is_timed |= looks_at.is_some();
        turn.asleep += 1;
        let time = looks_at.map_or(most, |end| most.min(end - now));
        let woken = self.freed.wait_timeout(turn, time);
        turn = woken.unwrap_or_else(PoisonError::into_inner).0;
        turn.asleep -= 1;
        turn.is_timed &= looks_at.is_none();
        turn
    }

    /// Spins for the end of the turn for a moment, unless another waiter does.
    fn watch(&self) {
        if self.is_watched.swap(true, Ordering::Relaxed) {
            return;
        }
        if self.looks.are_worth_it() {
            let has_ended = || !self.is_taken.load(Ordering::Relaxed);
            spin_until(TURN_SPIN, has_ended);
            self.looks.note(has_ended());
        }
        self.is_watched.store(false, Ordering::Relaxed);
    }

    /// The same for a turn of another process: after `seen` releases. Returns whether it has ended.
    fn watch_among_processes(&self, log: &Log, seen: u32) -> bool {
        if !self.looks_among_processes.are_worth_it() {
            return false;
        }
        let has_ended = log.shared().watch_for_release(seen, TURN_SPIN);
        if let Some(has_ended) = has_ended {
            self.looks_among_processes.note(has_ended);
        }
        has_ended == Some(true)
    }

    /// Notes that `committer` has the write lock, whether it waited for its turn or not.
    pub fn claim(&self, committer: Committer) {
        self.give(&mut self.turn(), committer);
    }

    /// Ends the turn of `committer`, if it has it.
    pub fn end(&self, log: &Log, committer: Committer, hands_over: HandsOver) {
        let mut turn = self.turn();
        if turn
            .holder
            .take_if(|(holder, _)| *holder == committer)
            .is_none()
        {
            return;
        }
        self.is_taken.store(false, Ordering::Relaxed);
        let among_processes = std::mem::take(&mut turn.among_processes);
        let comes_back = hands_over == HandsOver::BySlices && turn.slice_of(committer).is_some();
        turn.is_kept = hands_over == HandsOver::BySlices && !comes_back && turn.asleep > 0;
        let wakes = turn.asleep > 0 && !(comes_back && turn.is_timed);
        drop(turn);
        if among_processes {
            // If it fails, the lock ends with the process.
            let _ = log.file().unlock(LockByte::Turn);
            log.shared().note_release();
        }
        if wakes {
            self.freed.notify_one();
        }
    }

    /// `false` if it is not free in time.
    fn take_among_processes(&self, log: &Log, end: Instant, hands_over: HandsOver) -> bool {
        let first_seen = log.shared().releases();
        // The turn for whose end this waiter has looked. It does so once for each: one may last long.
        let mut looked_for = None;
        loop {
            let seen = log.shared().releases();
            match log.file().try_lock(LockByte::Turn, LockKind::Exclusive) {
                Ok(true) => return true,
                Ok(false) if self.stuck.is(seen) => return false,
                Ok(false) => {}
                // Then continue without it: it is only a courtesy.
                Err(_) => return false,
            }
            let now = Instant::now();
            if now >= end {
                // No process got the turn in all of that time.
                self.stuck.note(first_seen);
                return false;
            }
            let looks = hands_over == HandsOver::EachTime && looked_for.replace(seen) != Some(seen);
            if looks && self.watch_among_processes(log, seen) {
                continue;
            }
            log.shared().wait_for_release(seen, LOOK.min(end - now));
        }
    }
}

#[cfg(all(test, not(any(shuttle, loom))))]
mod tests {
    use super::*;
    use crate::log::OpenLog;
    use crate::mode::Layout;
    use std::path::{Path, PathBuf};

    const FIRST: Committer = Committer(1 << 32 | 1);
    const OTHER: Committer = Committer(1 << 32 | 2);

    fn path_in(directory: &Path) -> PathBuf {
        directory.join("db-onewrite")
    }

    fn log(directory: &Path) -> Log {
        let path = path_in(directory);
        Log::create(&OpenLog::for_test(&path), Layout::Packed).expect("a log")
    }

    /// Writes once.
    fn write(turns: &Turns, log: &Log, hands_over: HandsOver) {
        turns.take(log, FIRST, hands_over);
        assert!(turns.is_anothers(OTHER));
        turns.end(log, FIRST, hands_over);
        assert!(!turns.is_anothers(OTHER));
    }

    #[test]
    fn a_slice_that_is_over_is_followed_by_the_turn_of_a_sleeper() {
        let directory = tempfile::tempdir().expect("a directory");
        let log = log(directory.path());
        let turns = Turns::default();
        turns.turn().asleep = 1;
        let slice = (FIRST, Instant::now() + Duration::from_secs(3600));
        turns.turn().slice = Some(slice);
        write(&turns, &log, HandsOver::BySlices);
        assert!(!turns.turn().is_kept, "it may come back");
        turns.turn().slice = Some((FIRST, Instant::now()));
        turns.take(&log, FIRST, HandsOver::BySlices);
        turns.turn().slice = Some((FIRST, Instant::now()));
        turns.end(&log, FIRST, HandsOver::BySlices);
        assert!(turns.turn().is_kept);
        // The one that wrote until now waits like any other, and as long.
        let began = Instant::now();
        write(&turns, &log, HandsOver::BySlices);
        assert!(Instant::now() - began >= TURN);
        write(&turns, &log, HandsOver::EachTime);
        assert!(!turns.turn().is_kept, "it is anybody's");
    }

    #[test]
    fn a_sleeper_has_its_turn_though_the_other_wakes_nobody() {
        let directory = tempfile::tempdir().expect("a directory");
        let log = log(directory.path());
        let turns = Turns::default();
        turns.take(&log, FIRST, HandsOver::BySlices);
        turns.turn().slice = Some((FIRST, Instant::now() + Duration::from_millis(5)));
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                turns.take(&log, OTHER, HandsOver::BySlices);
                turns.is_anothers(FIRST)
            });
            while turns.turn().asleep == 0 && !sleeper.is_finished() {
                std::thread::yield_now();
            }
            // As a connection that does not come back.
            turns.end(&log, FIRST, HandsOver::BySlices);
            let has_turn = sleeper.join().expect("no panic");
            assert!(has_turn);
        });
    }

    /// The other one was allowed to write without a turn, and has ended it before the first one had the
    /// turn among the processes.
    #[test]
    fn a_turn_among_processes_ends_though_another_connection_wrote_meanwhile() {
        let directory = tempfile::tempdir().expect("a directory");
        let log = log(directory.path());
        // Its locks are those of another process.
        let theirs = Log::open_guarded(
            &OpenLog::for_test(&path_in(directory.path())),
            log.id().expect("an id"),
        );
        let theirs = theirs.expect("the same log");
        let lock = || theirs.file().try_lock(LockByte::Turn, LockKind::Exclusive);
        assert!(lock().expect("a lock"));
        let turns = Turns::default();
        // On a busy machine the first one may wait for longer than a turn, and go without.
        let is_in_time = (0..100).any(|_| {
            let begin = Instant::now();
            // That counts for some turns. A try that lasts longer is not in time.
            for committer in [FIRST, Committer(2 << 32 | 1)] {
                log.shared().note_committer(committer);
            }
            std::thread::scope(|scope| {
                let first = scope.spawn(|| turns.take(&log, FIRST, HandsOver::EachTime));
                while !turns.is_anothers(OTHER) {
                    std::thread::yield_now();
                }
                turns.claim(OTHER);
                turns.end(&log, OTHER, HandsOver::EachTime);
                theirs.file().unlock(LockByte::Turn).expect("unlocked");
                theirs.shared().note_release();
                first.join().expect("no panic");
            });
            let is_in_time = begin.elapsed() < TURN;
            if !is_in_time {
                turns.end(&log, FIRST, HandsOver::EachTime);
                assert!(lock().expect("an answer"), "nobody has it");
            }
            is_in_time
        });
        assert!(is_in_time, "each try took longer than a turn");
        assert!(!lock().expect("an answer"), "the first one has the turn");
        turns.end(&log, FIRST, HandsOver::EachTime);
        assert!(lock().expect("an answer"), "nobody has it");
    }
}
