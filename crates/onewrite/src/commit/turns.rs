//! Whose turn it is to write.
//!
//! A connection that wants to write takes its *turn* first, before SQLite's read lock. Then its
//! snapshot is that of the last commit, and the write lock is free when it asks for it. Otherwise
//! SQLite would refuse it, and it would sleep in the busy handler. A turn is only a courtesy: a
//! wait for it lasts at most `TURN`, and holds no lock of the database.
//!
//! A turn of a small transaction is shorter than putting a thread to sleep and waking it. So the
//! first waiter spins for a moment before it sleeps; the others sleep at once.

use std::sync::PoisonError;

use crate::commit::stuck::Stuck;
use crate::log::Log;
use crate::log::shared::{Committer, Contention};
use crate::storage::{LockByte, LockKind};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Instant, Mutex, MutexGuard, ThreadId, spin_until, this_thread};
use crate::waits::{LOOK, TURN, TURN_SPIN};

/// The turns of a log's writers in this process, and among processes.
#[derive(Default)]
pub struct Turns {
    turn: Mutex<Turn>,
    freed: Condvar,
    /// Whether a connection has the turn, for the waiter that spins.
    is_taken: AtomicBool,
    /// Whether a waiter spins.
    is_watched: AtomicBool,
    /// Another process has the turn, and does not end it.
    stuck: Stuck,
}

#[derive(Default)]
struct Turn {
    holder: Option<(Committer, ThreadId)>,
    /// Whether the holder has it among all processes.
    among_processes: bool,
    /// Threads that sleep until it is free.
    asleep: usize,
}

impl Turn {
    fn is_anothers(&self, committer: Committer) -> bool {
        self.holder.is_some_and(|(holder, _)| holder != committer)
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
    pub fn take(&self, log: &Log, committer: Committer) {
        let end = Instant::now() + TURN;
        let mut turn = self.turn();
        if turn.is_anothers(committer) && !turn.is_this_threads() {
            drop(turn);
            self.watch();
            turn = self.turn();
        }
        while turn.is_anothers(committer) {
            let now = Instant::now();
            if now >= end || turn.is_this_threads() {
                return;
            }
            turn.asleep += 1;
            let woken = self.freed.wait_timeout(turn, end - now);
            turn = woken.unwrap_or_else(PoisonError::into_inner).0;
            turn.asleep -= 1;
        }
        self.give(&mut turn, committer);
        let among_processes =
            !turn.among_processes && log.shared().contention() == Contention::Processes;
        drop(turn);
        if among_processes && self.take_among_processes(log, end) {
            self.turn().among_processes = true;
        }
    }

    /// Spins for the end of the turn for a moment, unless another waiter does.
    fn watch(&self) {
        if !self.is_watched.swap(true, Ordering::Relaxed) {
            spin_until(TURN_SPIN, || !self.is_taken.load(Ordering::Relaxed));
            self.is_watched.store(false, Ordering::Relaxed);
        }
    }

    /// Notes that `committer` has the write lock, whether it waited for its turn or not.
    pub fn claim(&self, committer: Committer) {
        self.give(&mut self.turn(), committer);
    }

    /// Ends the turn of `committer`, if it has it.
    pub fn end(&self, log: &Log, committer: Committer) {
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
        let is_awaited = turn.asleep > 0;
        drop(turn);
        if among_processes {
            // If it fails, the lock ends with the process.
            let _ = log.file().unlock(LockByte::Turn);
            log.shared().note_release();
        }
        if is_awaited {
            self.freed.notify_one();
        }
    }

    /// `false` if it is not free in time.
    fn take_among_processes(&self, log: &Log, end: Instant) -> bool {
        let first_seen = log.shared().releases();
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
            log.shared().wait_for_release(seen, LOOK.min(end - now));
        }
    }
}
