//! The waits of a commit, by phase (`onewrite_stall_log`).
//!
//! A [`Watch`] measures this thread from its beginning to its end. The places that wait are wrapped
//! in [`measured`]. Without a watch that costs one look at a thread's variable, with one it costs
//! two looks at the clock. A phase inside another one counts as its own alone, so the sum of the
//! phases is never more than the time of the watch.

use std::cell::Cell;
use std::thread_local;
use std::time::Duration;

use crate::sync::Instant;

/// The phases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Its turn to write, and the log's restart or a checkpoint before that.
    WriteLock,
    /// SQLite's busy timeout, after the write lock was refused.
    Busy,
    /// Writes to the log that are not durable yet.
    Write,
    /// Durable writes to the log, and its flushes.
    Flush,
    /// Another's flush, and others that join the own one.
    Group,
    /// New blocks for the log.
    Growth,
    /// The checkpoint that follows the commit.
    Checkpoint,
}

impl Phase {
    /// All of them, in the order of [`Waited`].
    pub const ALL: [Phase; 7] = [
        Phase::WriteLock,
        Phase::Busy,
        Phase::Write,
        Phase::Flush,
        Phase::Group,
        Phase::Growth,
        Phase::Checkpoint,
    ];

    /// Its name in events.
    pub fn name(self) -> &'static str {
        match self {
            Phase::WriteLock => "write_lock",
            Phase::Busy => "busy",
            Phase::Write => "write",
            Phase::Flush => "flush",
            Phase::Group => "group",
            Phase::Growth => "growth",
            Phase::Checkpoint => "checkpoint",
        }
    }

    /// Whether the phases inside it count as this one.
    fn is_whole(self) -> bool {
        matches!(self, Phase::Growth | Phase::Checkpoint)
    }
}

/// The time of each phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Waited([Duration; Phase::ALL.len()]);

impl Waited {
    /// Adds to a phase.
    pub fn add(&mut self, phase: Phase, took: Duration) {
        self.0[phase as usize] += took;
    }

    /// Adds all phases of another.
    pub fn add_all(&mut self, other: &Waited) {
        for phase in Phase::ALL {
            self.add(phase, other.of(phase));
        }
    }

    /// The time of a phase.
    pub fn of(&self, phase: Phase) -> Duration {
        self.0[phase as usize]
    }

    /// The time of all phases.
    pub fn sum(&self) -> Duration {
        self.0.iter().sum()
    }
}

/// The waits of a watch so far.
#[derive(Clone, Copy, Default)]
struct Seen {
    waited: Waited,
    /// The time of the phases inside the one that is measured now.
    inside: Duration,
}

thread_local! {
    /// Of this thread's watch. Without a destructor, so that it exists as long as the thread.
    static SEEN: Cell<Option<Seen>> = const { Cell::new(None) };
}

/// Watches this thread; see the module.
pub struct Watch(());

impl Watch {
    /// Begins; `None` if this thread has one already.
    pub fn begin() -> Option<Watch> {
        if SEEN.get().is_some() {
            return None;
        }
        SEEN.set(Some(Seen::default()));
        Some(Watch(()))
    }

    /// The waits so far.
    pub fn waited(&self) -> Waited {
        SEEN.get().unwrap_or_default().waited
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        SEEN.set(None);
    }
}

/// Does `work`, whose time counts as this phase.
pub fn measured<T>(phase: Phase, work: impl FnOnce() -> T) -> T {
    let Some(before) = SEEN.get() else {
        return work();
    };
    let began = Instant::now();
    SEEN.set((!phase.is_whole()).then_some(Seen {
        inside: Duration::ZERO,
        ..before
    }));
    let done = work();
    let took = Instant::now() - began;
    let within = SEEN.get().unwrap_or(Seen {
        inside: Duration::ZERO,
        ..before
    });
    let mut waited = within.waited;
    waited.add(phase, took.saturating_sub(within.inside));
    SEEN.set(Some(Seen {
        waited,
        inside: before.inside + took,
    }));
    done
}

#[cfg(all(test, not(any(shuttle, loom))))]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_millis(3);

    fn pause() {
        std::thread::sleep(PAUSE);
    }

    #[test]
    fn without_a_watch_nothing_is_measured() {
        measured(Phase::Flush, pause);
        let watch = Watch::begin().expect("the only one");
        assert_eq!(watch.waited(), Waited::default());
        assert!(Watch::begin().is_none());
        drop(watch);
        assert!(Watch::begin().is_some());
    }

    #[test]
    fn a_phase_inside_another_counts_once() {
        let began = Instant::now();
        let watch = Watch::begin().expect("the only one");
        measured(Phase::Group, || {
            pause();
            measured(Phase::Flush, || {
                pause();
                measured(Phase::Write, pause);
            });
            measured(Phase::Flush, pause);
        });
        measured(Phase::Growth, || measured(Phase::Flush, pause));
        let waited = watch.waited();
        let total = began.elapsed();
        for (phase, least) in [
            (Phase::Group, PAUSE),
            (Phase::Flush, 2 * PAUSE),
            (Phase::Write, PAUSE),
            (Phase::Growth, PAUSE),
        ] {
            assert!(waited.of(phase) >= least, "{phase:?}: {waited:?}");
        }
        assert!(waited.sum() <= total, "{waited:?} in {total:?}");
        assert_eq!(waited.of(Phase::Checkpoint), Duration::ZERO);
    }

    #[test]
    fn the_phases_are_in_their_places() {
        for (place, phase) in Phase::ALL.into_iter().enumerate() {
            assert_eq!(phase as usize, place, "{}", phase.name());
        }
    }
}
