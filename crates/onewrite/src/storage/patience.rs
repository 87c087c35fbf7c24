//! Waiting for what another process holds. Every such wait has a bound: a process may be stopped,
//! or frozen with its container, while it holds any lock.

use std::time::Duration;

use crate::sync::{Instant, sleep};

/// How long to wait for a lock that others hold only for a moment, whatever the application has
/// set.
pub const MOMENT: Duration = Duration::from_millis(500);
/// The first pause between two tries, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(1)];

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
    let [mut pause, longest] = PAUSES;
    let end = Instant::now() + moment;
    while !attempt()? {
        // In the model time does not pass by itself, and no process is stopped.
        if cfg!(shuttle) || Instant::now() < end {
            sleep(pause);
            pause = longest.min(pause * 2);
        } else if !patience.goes_on() {
            return Ok(false);
        }
    }
    Ok(true)
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
}
