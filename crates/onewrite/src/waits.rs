//! All waiting times, and the functions that wait. A process may be stopped, or frozen with its
//! container, while it holds any lock, so every wait has a bound. The rules are W1 to W34 of
//! `docs/durability.md`, which also has a table of these times.

pub mod stall;

use std::time::Duration;

use crate::sync::{Instant, sleep};

/// Defines the times, and a list of them for the documents.
macro_rules! times {
    ($($(#[$doc:meta])* $name:ident = $value:expr;)*) => {
        $($(#[$doc])* pub const $name: Duration = $value;)*

        #[cfg(test)]
        const TIMES: &[(&str, Duration)] = &[$((stringify!($name), $name)),*];
    };
}

const fn us(time: u64) -> Duration {
    Duration::from_micros(time)
}

const fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

times! {
    // Locks.

    /// The wait for a lock that others hold only for a moment, whatever the application has set.
    /// After it the busy handler decides.
    MOMENT = ms(500);
    /// The first pause between two tries for a lock; each is twice as long as the one before.
    FIRST_PAUSE = us(50);
    /// The longest of these pauses.
    LONGEST_PAUSE = ms(1);
    /// Another process did not release the lock on the log's size in time. Until this much later,
    /// no one waits longer for it than necessary.
    STUCK_LOCK = ms(1000);
    /// The least pause between two tries for SQLite's lock on the database, which a stock connection
    /// may hold for long.
    DATABASE_PAUSE = us(200);
    /// The most by which such a pause grows with each try. It is different for every thread.
    DATABASE_SPREAD = us(500);

    // Bytes that another process is writing now.

    /// The pause before a torn header of a log is read again.
    TORN_HEADER = us(200);
    /// The pause before a torn frame of a log is read again.
    TORN_FRAME = ms(2);

    // Writers that take turns and share flushes.

    /// Committers count as active together if they took turns within this time.
    TOGETHER = ms(50);
    /// The commits that a flush for a group has released may come again for the time of eight flushes. Each
    /// counts as at least [`TOGETHER`], and all of them as at most this.
    COME_BACK = ms(10_000);
    /// The longest wait for a turn to write, and for the log's restart.
    TURN = ms(25);
    /// How long a waiter spins for the end of a turn. A turn of a small transaction is over sooner
    /// than a thread falls asleep.
    TURN_SPIN = us(30);
    /// At `synchronous=NORMAL` a connection writes for so long before it hands its turn to those who sleep.
    SLICE = us(200);
    /// Another process may die in its turn or in its flush: a waiter checks this often. In a wait for a
    /// flush each pause is twice as long as the one before.
    LOOK = ms(1);
    /// The longest of these pauses.
    LONGEST_LOOK = ms(16);
    /// After this long, a waiter stops waiting for another process's flush and issues its own. The
    /// next one does so at once, until the lock is released. So flushes stay few.
    STUCK_FLUSH = ms(500);
    /// The longest wait for the log's restart, if a shorter one failed before.
    OVERDUE = ms(250);
    /// The pause between two looks, in a wait for the log's restart.
    RESTART_PAUSE = us(100);
    /// A commit that has ended needs a moment to begin its checkpoint. If nothing was under way for
    /// longer, nothing will let the log restart.
    RESTART_OVER = ms(1);
    /// The threads that write groups (group synch), that checkpoint, and that tell the kernel to begin to
    /// write, end after so long without work.
    IDLE = ms(2000);
    /// After a pause of this length, the waits before it do not count for the next commit
    /// (`onewrite_stall_log`).
    STALL_OVER = ms(1000);
    /// A database that lingers may be replaced at its path: its thread looks this often.
    LINGER_LOOK = ms(1000);
    /// A close waits no longer for a message of our threads to be written to SQLite's log.
    TOLD = ms(500);
    /// `exit` waits no longer for databases that linger to be closed, and until our threads are out of SQLite.
    AT_EXIT = ms(5000);
    /// A close, and a checkpoint of the application, wait no longer for our threads to open connections.
    TO_OPEN = ms(5000);
    /// `fork` waits no longer until our threads are out of SQLite.
    AT_FORK = ms(5000);
    /// After so long without a commit, the thread that checkpoints takes the moment for a quiet one.
    QUIET = ms(200);

    // Looks at files.

    /// The least pause between two looks of a connection at `synchronous=NORMAL`: at the database's path
    /// and header, and at the log's size.
    LOOK_AT_NORMAL = ms(10);

    // Work on the device.

    /// The log grows by steps, each with a flush, that take about so long: a commit may wait for one.
    GROWTH_STEP = ms(4);
    /// At `synchronous=NORMAL` this often a call makes the kernel begin to write.
    BEGIN = ms(10);
    /// `onewrite_sync=auto` begins no further pair of writes after this time.
    TIMING = ms(50);
    /// The longest that the calls of a checkpoint by remapping may take, by the model, before it
    /// copies instead: readers and writers wait for it.
    REMAPPING = ms(2000);
}

/// Whether a waiter continues beyond a [`MOMENT`].
pub trait Patience: Send + Sync {
    /// Returns when another try makes sense; `false` ends the wait.
    fn goes_on(&self) -> bool;
}

/// Waits for a [`MOMENT`], and no longer.
#[derive(Clone, Copy, Debug)]
pub struct Short;

impl Patience for Short {
    fn goes_on(&self) -> bool {
        false
    }
}

/// Tries repeatedly: for a `moment`, and then for as long as patience lasts. Returns whether it
/// succeeded.
///
/// # Errors
/// Those of `attempt`.
pub fn try_within<E>(
    moment: Duration,
    patience: &dyn Patience,
    mut attempt: impl FnMut() -> Result<bool, E>,
) -> Result<bool, E> {
    let mut pause = FIRST_PAUSE;
    let end = Instant::now() + moment;
    while !attempt()? {
        // In the model time does not pass by itself, and no process is stopped.
        if cfg!(any(shuttle, loom)) || Instant::now() < end {
            sleep(pause);
            pause = LONGEST_PAUSE.min(pause * 2);
        } else if !patience.goes_on() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The result of one of several tries.
pub enum Try<T> {
    Done(T),
    /// A change came: try again at once.
    Again,
    /// Try again after a pause.
    Later,
}

/// How often to try, and the pause between two tries.
pub struct Tries {
    pub most: u32,
    /// The pause, by the number of the try, from 0.
    pub pause: fn(u32) -> Duration,
}

/// For SQLite's lock on the database.
pub const DATABASE_LOCK: Tries = Tries {
    most: 20,
    pause: database_pause,
};
/// For a process that has lost its SQLite locks, and still has the log open.
pub const LOG_IN_USE: Tries = Tries {
    most: 10,
    pause: database_pause,
};
/// For a header of a log that another process is writing.
pub const HEADER: Tries = Tries {
    most: 51,
    pause: |_| TORN_HEADER,
};
/// For a frame that another process is writing.
pub const FRAME: Tries = Tries {
    most: 5,
    pause: |_| TORN_FRAME,
};

/// Tries until it succeeds, or the tries are used up: then `None`.
///
/// # Errors
/// Those of `attempt`, which gets the number of the try, from 0.
pub fn try_times<T, E>(
    tries: &Tries,
    mut attempt: impl FnMut(u32) -> Result<Try<T>, E>,
) -> Result<Option<T>, E> {
    for number in 0..tries.most {
        match attempt(number)? {
            Try::Done(value) => return Ok(Some(value)),
            Try::Later if number + 1 < tries.most => sleep((tries.pause)(number)),
            Try::Again | Try::Later => {}
        }
    }
    Ok(None)
}

/// 0.2 to 10 ms, longer with every try and different for every thread.
fn database_pause(number: u32) -> Duration {
    let mut random = [0; 2];
    let _ = getrandom::fill(&mut random);
    let spread = DATABASE_SPREAD.as_micros() as u64;
    DATABASE_PAUSE + us(u64::from(number) * (u64::from(u16::from_be_bytes(random)) % spread))
}

#[cfg(all(test, not(any(shuttle, loom))))]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU32, Ordering};

    struct Times(AtomicU32);

    impl Patience for Times {
        fn goes_on(&self) -> bool {
            self.0.fetch_sub(1, Ordering::Relaxed) > 1
        }
    }

    #[test]
    fn a_wait_ends_when_patience_does() {
        let began = Instant::now();
        let times = Times(AtomicU32::new(3));
        let tried = try_within(MOMENT, &times, || Ok::<_, ()>(false));
        assert_eq!((tried, times.0.into_inner()), (Ok(false), 0));
        assert!(Instant::now() - began >= MOMENT);
        assert_eq!(
            try_within(Duration::ZERO, &Short, || Ok::<_, ()>(false)),
            Ok(false)
        );
    }

    #[test]
    fn what_can_be_had_is_taken_and_an_error_ends_the_wait() {
        let tries = Cell::new(0);
        let third = || Ok::<_, ()>(tries.replace(tries.get() + 1) == 2);
        assert_eq!(try_within(MOMENT, &Short, third), Ok(true));
        assert_eq!(try_within(MOMENT, &Short, || Err::<bool, _>(7)), Err(7));
    }

    #[test]
    fn tries_are_counted_and_the_pauses_between_them_are_short() {
        let tries = Tries {
            most: 4,
            pause: |_| Duration::ZERO,
        };
        let mut made = 0;
        let mut never = |number| {
            assert_eq!(number, made);
            made += 1;
            Ok::<_, ()>(if number == 1 { Try::Again } else { Try::Later })
        };
        assert_eq!(try_times(&tries, &mut never), Ok(None::<()>));
        assert_eq!(made, 4);
        let third = |number| {
            Ok::<_, ()>(if number == 2 {
                Try::Done(7)
            } else {
                Try::Later
            })
        };
        assert_eq!(try_times(&tries, third), Ok(Some(7)));
        assert_eq!(try_times(&tries, |_| Err::<Try<()>, _>(3)), Err(3));
        let longest = DATABASE_PAUSE + DATABASE_SPREAD * DATABASE_LOCK.most;
        for number in 0..DATABASE_LOCK.most {
            let pause = (DATABASE_LOCK.pause)(number);
            assert!((DATABASE_PAUSE..longest).contains(&pause), "{pause:?}");
        }
    }

    /// A row of the table has a time's name and its value, as `Debug` prints it.
    #[test]
    fn the_documents_have_every_time_as_it_is() {
        let page = include_str!("../../../docs/durability.md");
        let row = |(name, time): &(&str, Duration)| format!("| `{name}` | {time:?} |");
        let missing: Vec<String> = TIMES
            .iter()
            .map(row)
            .filter(|row| !page.contains(row))
            .collect();
        assert!(missing.is_empty(), "docs/durability.md lacks {missing:#?}");
        let rows = page.lines().filter(|line| {
            let name = line
                .strip_prefix("| `")
                .and_then(|line| line.split_once("` | "));
            name.is_some_and(|(name, rest)| {
                name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
                    && rest.starts_with(|c: char| c.is_ascii_digit())
            })
        });
        assert_eq!(
            rows.count(),
            TIMES.len(),
            "docs/durability.md has a time that is none"
        );
    }
}
