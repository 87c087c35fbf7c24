//! `onewrite_stall_log`: the time that a connection's commit takes, by phase.
//!
//! [`waits::stall`](crate::waits::stall) measures inside our calls. A commit is several of them: for
//! its lock, for each write, for the flush, and maybe for the checkpoint behind it. The time of the
//! program between two calls counts as nothing. The time of a commit is that of the phases in its
//! calls, and of the rest of the calls that make it durable. SQLite's busy timeout before it and the
//! checkpoint behind it are added. Each moment is in one event at most.

use std::cell::Cell;
use std::ffi::c_int;
use std::thread_local;
use std::time::Duration;

use super::database::Database;
use super::events::{COMMIT_STALLED, Event};
use crate::mode::StallLimit;
use crate::sync::Instant;
use crate::waits::STALL_OVER;
use crate::waits::stall::{Phase, Waited, Watch};

/// The waits of a connection for its next commit.
#[derive(Default)]
pub struct Stall {
    total: Cell<Duration>,
    waited: Cell<Waited>,
    /// When the last wait ended.
    last: Cell<Option<Instant>>,
    /// Whether the commit has ended: only its own checkpoint may still be part of it.
    has_ended: Cell<bool>,
    /// When the checkpoint behind the commit began.
    checkpoint: Cell<Option<Instant>>,
}

/// The part of a call that counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Counts {
    /// The phases in it.
    Phases,
    /// All of it.
    All,
}

/// The busy timeout of this thread's connection that was refused the write lock.
#[derive(Clone, Copy)]
struct Refused {
    connection: u64,
    slept: Duration,
    /// When it slept last.
    last: Instant,
}

thread_local! {
    static REFUSED: Cell<Option<Refused>> = const { Cell::new(None) };
}

/// SQLite sleeps.
pub fn sleeping(sleep: impl FnOnce() -> c_int) -> c_int {
    let Some(refused) = REFUSED.get() else {
        return sleep();
    };
    let began = Instant::now();
    let code = sleep();
    let last = Instant::now();
    REFUSED.set(Some(Refused {
        slept: refused.slept + (last - began),
        last,
        ..refused
    }));
    code
}

impl Stall {
    fn add(&self, total: Duration, waited: &Waited) {
        if total.is_zero() {
            return;
        }
        let mut all = self.waited.get();
        all.add_all(waited);
        self.waited.set(all);
        self.total.set(self.total.get() + total);
        self.last.set(Some(Instant::now()));
    }

    fn add_phase(&self, phase: Phase, took: Duration) {
        let mut waited = Waited::default();
        waited.add(phase, took);
        self.add(took, &waited);
    }

    fn forget(&self) {
        self.total.set(Duration::ZERO);
        self.waited.set(Waited::default());
        self.last.set(None);
        self.has_ended.set(false);
    }

    /// A connection may have given up, or rolled back: then its waits are not of the next commit.
    fn forget_what_is_over(&self) {
        let is_over = |last| Instant::now() - last > STALL_OVER;
        if self.has_ended.get() || self.last.get().is_some_and(is_over) {
            self.forget();
        }
    }

    /// The checkpoint behind a commit begins. Everything in it is one phase.
    pub fn begin_checkpoint(&self, limit: Option<StallLimit>) {
        self.checkpoint.set(limit.map(|_| Instant::now()));
    }
}

impl Database {
    /// Does the work of a call that may belong to a commit.
    pub fn watched<T>(&self, counts: Counts, work: impl FnOnce() -> T) -> T {
        if self.settings.get().stall_log.is_none() || self.stall.checkpoint.get().is_some() {
            return work();
        }
        // A statement of our own, or another database of the transaction, is inside.
        let Some(watch) = Watch::begin() else {
            return work();
        };
        let began = (counts == Counts::All).then(Instant::now);
        let done = work();
        let waited = watch.waited();
        let took = began.map_or(Duration::ZERO, |began| Instant::now() - began);
        self.stall.add(took.max(waited.sum()), &waited);
        done
    }

    /// A transaction may begin with this call.
    pub fn stall_may_begin(&self) {
        if !self.held.write.get() {
            self.stall.forget_what_is_over();
        }
    }

    /// The write lock was refused: SQLite may sleep, and try again.
    pub(super) fn stall_is_refused(&self) {
        if self.settings.get().stall_log.is_none() {
            return;
        }
        let now = Instant::now();
        let before = self.stall_refused(now);
        REFUSED.set(Some(Refused {
            connection: self.committer.0,
            slept: before.map_or(Duration::ZERO, |it| it.slept),
            last: now,
        }));
    }

    /// The sleep of this connection just now.
    fn stall_refused(&self, now: Instant) -> Option<Refused> {
        REFUSED.get().filter(|refused| {
            refused.connection == self.committer.0 && now - refused.last <= STALL_OVER
        })
    }

    /// The write lock was taken.
    pub(super) fn stall_has_lock(&self) {
        if REFUSED.get().is_some() {
            let slept = self.stall_refused(Instant::now()).map(|it| it.slept);
            REFUSED.set(None);
            self.stall.add_phase(Phase::Busy, slept.unwrap_or_default());
        }
    }

    /// The write lock was released without a commit.
    pub fn stall_without_commit(&self) {
        self.stall.forget();
    }

    /// A commit has ended, well or not.
    pub fn stall_commit_ended(&self) {
        self.tell_of_stall();
        self.stall.has_ended.set(true);
    }

    /// The checkpoint behind a commit has ended.
    pub(super) fn end_own_checkpoint(&self) {
        if let Some(began) = self.stall.checkpoint.take() {
            let took = Instant::now() - began;
            self.stall.add_phase(Phase::Checkpoint, took);
            self.tell_of_stall();
        }
    }

    fn tell_of_stall(&self) {
        let total = self.stall.total.get();
        let Some(limit) = self.settings.get().stall_log else {
            return;
        };
        if total <= limit.time() {
            return;
        }
        let event = stalled(&self.paths.database, limit, total, &self.stall.waited.get());
        self.stall.forget();
        event.tell();
    }
}

fn stalled(
    database: &std::path::Path,
    limit: StallLimit,
    total: Duration,
    waited: &Waited,
) -> Event {
    let us = total.as_micros();
    let of = |phase| waited.of(phase).as_micros();
    let other = us.saturating_sub(Phase::ALL.into_iter().map(of).sum());
    let longest = Phase::ALL.into_iter().max_by_key(|phase| of(*phase));
    let main = match longest {
        Some(phase) if of(phase) >= other => phase.name(),
        _ => "other",
    };
    let event = Event::new(&COMMIT_STALLED, database)
        .with("us", us)
        .with("limit_us", limit.time().as_micros())
        .with("main", main);
    let event = Phase::ALL
        .into_iter()
        .fold(event, |event, phase| event.with(field(phase), of(phase)));
    // A commit that is much slower than the one before is written, too.
    event.with("other_us", other).apart_from(us.ilog2())
}

fn field(phase: Phase) -> &'static str {
    match phase {
        Phase::WriteLock => "write_lock_us",
        Phase::Busy => "busy_us",
        Phase::Write => "write_us",
        Phase::Flush => "flush_us",
        Phase::Group => "group_us",
        Phase::Growth => "growth_us",
        Phase::Checkpoint => "checkpoint_us",
    }
}
