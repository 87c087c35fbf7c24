//! At `synchronous=NORMAL` a commit goes into the page cache, and a system call makes the kernel
//! begin to write it to the device.
//!
//! That call costs more than the commit's own write, and it waits where the device has all the
//! requests that it takes. So it is made for many commits at once. A commit that finds none in the
//! last [`BEGIN`] makes it itself. The others leave it to a thread, which makes it at the latest
//! after that time. Each call is for the whole file, so it also covers what another process has
//! left, and was killed.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::commit::SharedLog;
use crate::log::{Log, LogError};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Instant, Mutex, MutexGuard};
use crate::waits::{BEGIN, IDLE};

/// So many bytes wait for the thread at most, should it not get a processor.
const MOST_BYTES: u64 = 4 << 20;

/// The commits of this process that the kernel has not begun to write.
#[derive(Default)]
pub struct WriteBack {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    /// Whether a call was made since the last look at this.
    has_begun: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    /// Bytes of the commits that wait for the thread.
    bytes: u64,
    /// When the kernel was last told.
    begun: Option<Instant>,
    thread: Thread,
    /// How often the thread was asked to end.
    stops: u64,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Thread {
    #[default]
    None,
    /// Waits for commits: must be woken.
    Idle,
    /// Will look by itself.
    Timing,
}

impl WriteBack {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of the commits that wait for the thread.
    pub fn not_begun_bytes(&self) -> u64 {
        self.waiting().bytes
    }

    /// Whether a call was made since the last look. The kernel may be writing the last block, and some
    /// file systems let a write into such a page wait for the device.
    pub fn has_begun_since(&self) -> bool {
        self.has_begun.swap(false, Ordering::Relaxed)
    }

    /// A commit of so many bytes is in the page cache: begins to write it, or leaves that to the
    /// thread.
    ///
    /// # Errors
    /// The kernel could not begin.
    pub fn note(&self, log: &Arc<SharedLog>, bytes: u64) -> Result<(), LogError> {
        let mut waiting = self.waiting();
        waiting.bytes += bytes;
        let is_left = match waiting.thread {
            Thread::Timing => waiting.bytes < MOST_BYTES,
            thread => waiting.is_soon() && self.start_or_wake(log, thread, waiting.stops),
        };
        if is_left {
            waiting.thread = Thread::Timing;
            return Ok(());
        }
        self.begin(&mut waiting);
        drop(waiting);
        Ok(log.file().begin_write_back()?)
    }

    fn begin(&self, waiting: &mut Waiting) {
        waiting.bytes = 0;
        waiting.begun = Some(Instant::now());
        self.has_begun.store(true, Ordering::Relaxed);
    }

    fn start_or_wake(&self, log: &Arc<SharedLog>, thread: Thread, stops: u64) -> bool {
        if thread == Thread::Idle {
            self.changed.notify_one();
            return true;
        }
        let its_log = Arc::clone(log);
        log.in_background(move || its_log.write_back.begin_what_waits(&its_log, stops))
    }

    /// Ends the thread when the last connection closes. A commit of a connection that opens
    /// meanwhile starts another.
    pub fn stop_thread(&self) {
        self.waiting().stops += 1;
        self.changed.notify_one();
    }

    /// The thread's work. `stops` is the number when it was started: it may be asked to end before it
    /// runs.
    fn begin_what_waits(&self, log: &Log, stops: u64) {
        let mut waiting = self.waiting();
        loop {
            let stops_now = waiting.stops != stops;
            let rest = waiting.rest_of_pause();
            if waiting.bytes > 0 && (stops_now || rest.is_zero()) {
                self.begin(&mut waiting);
                drop(waiting);
                // The kernel keeps an error for the next flush.
                let _ = log.file().begin_write_back();
                waiting = self.waiting();
            } else if stops_now {
                waiting.thread = Thread::None;
                return;
            } else if !rest.is_zero() {
                waiting = self.wait(waiting, rest).0;
            } else {
                waiting.thread = Thread::Idle;
                let (woken, timed_out) = self.wait(waiting, IDLE);
                waiting = woken;
                if timed_out && waiting.bytes == 0 {
                    waiting.thread = Thread::None;
                    return;
                }
            }
        }
    }

    fn wait<'a>(
        &self,
        waiting: MutexGuard<'a, Waiting>,
        time: Duration,
    ) -> (MutexGuard<'a, Waiting>, bool) {
        let woken = self.changed.wait_timeout(waiting, time);
        let (guard, result) = woken.unwrap_or_else(PoisonError::into_inner);
        (guard, result.timed_out())
    }
}

impl Waiting {
    /// The rest of the time between two calls.
    fn rest_of_pause(&self) -> Duration {
        self.begun.map_or(Duration::ZERO, |begun| {
            BEGIN.saturating_sub(Instant::now() - begun)
        })
    }

    fn is_soon(&self) -> bool {
        !self.rest_of_pause().is_zero()
    }
}
