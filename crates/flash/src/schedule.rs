//! The times at which a device of a [`Latency`] answers.
//!
//! A device works on one request for each channel at the same time. A further request waits for the
//! first free channel. A flush waits for everything before it, and takes the time for all writes
//! since the last flush. Everything after it waits for it: no device is known to program while it
//! empties its cache. A flush without a write since the last one takes no time. The kernel does not
//! send such a flush to an eMMC (`written_flag` in its driver), and other devices answer it at
//! once.
//!
//! *FUA.* A loop device has none: the kernel turns a FUA write into a write and a flush. So a flush
//! after a single write request since the last flush counts as part of a write-through write. That
//! may be the commit block of a file system's journal. Both together take the time of a FUA write,
//! if the model has one. An fdatasync after a single overwrite looks the same and gets the same
//! time, although a real device would write and flush. Its measured time is too good, by at most
//! the saving of FUA.
//!
//! Nothing sleeps here: [`Schedule::answer_at`] says until when the caller must sleep.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::latency::Latency;

/// A request of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A read of this many bytes.
    Read(u64),
    /// A write of this many bytes.
    Write(u64),
    /// A range is discarded or zeroed.
    Zero,
    /// The content of the cache becomes durable.
    Flush,
}

/// See the module.
#[derive(Debug)]
pub struct Schedule {
    latency: Latency,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// While it is off, nothing takes time.
    is_on: bool,
    /// When each channel is free.
    channels: Vec<Instant>,
    /// Bytes and requests written since the last flush.
    cached_bytes: u64,
    cached_requests: u64,
}

impl Schedule {
    /// The schedule of an idle device. It takes no time until it is switched on.
    pub fn new(latency: Latency) -> Self {
        let state = State {
            is_on: false,
            channels: vec![Instant::now(); latency.channels as usize],
            cached_bytes: 0,
            cached_requests: 0,
        };
        Self {
            latency,
            state: Mutex::new(state),
        }
    }

    /// The model.
    pub fn latency(&self) -> &Latency {
        &self.latency
    }

    /// From now on requests take their time.
    pub fn switch_on(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_on = true;
    }

    /// When to answer a request that arrives at `now`; not before `now`.
    pub fn answer_at(&self, now: Instant, request: Request) -> Instant {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.is_on {
            return now;
        }
        let model = &self.latency;
        match request {
            Request::Read(bytes) => state.on_a_channel(now, model.read.of(bytes)),
            Request::Write(bytes) => {
                state.cached_bytes += bytes;
                state.cached_requests += 1;
                state.on_a_channel(now, model.program.of(bytes))
            }
            Request::Zero => {
                state.cached_requests += 1;
                state.on_a_channel(now, model.program.of(0))
            }
            Request::Flush => state.flush(now, model),
        }
    }
}

impl State {
    fn on_a_channel(&mut self, now: Instant, time: Duration) -> Instant {
        match self.channels.iter_mut().min() {
            Some(free) => {
                *free = now.max(*free) + time;
                *free
            }
            None => now + time,
        }
    }

    fn flush(&mut self, now: Instant, model: &Latency) -> Instant {
        let busy = self.channels.iter().copied().max().unwrap_or(now).max(now);
        let bytes = self.cached_bytes;
        let time = match (self.cached_requests, model.fua) {
            (0, _) => Duration::ZERO,
            // The write has already taken its part of that.
            (1, Some(fua)) => fua.of(bytes).saturating_sub(model.program.of(bytes)),
            _ => model.flush.of(bytes),
        };
        (self.cached_bytes, self.cached_requests) = (0, 0);
        let answer = busy + time;
        self.channels.fill(answer);
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(channels: u32) -> Schedule {
        of(channels, "")
    }

    fn of(channels: u32, fua: &str) -> Schedule {
        let text = format!(
            "description = 'a'\nsources = ['b']\nchannels = {channels}\n\
             [program]\nus = 100\nmb_per_s = 10\n[read]\nus = 50\n[flush]\nus = 1000\nmb_per_s = 10\n\
             {fua}"
        );
        let schedule = Schedule::new(Latency::parse("test", &text).unwrap());
        schedule.switch_on();
        schedule
    }

    /// Microseconds from `begin` to the answer of a request that arrives `at` microseconds after
    /// `begin`. The schedule already exists at `begin`.
    fn answered(schedule: &Schedule, begin: Instant, at: u64, request: Request) -> u64 {
        let now = begin + Duration::from_micros(at);
        let answer = schedule.answer_at(now, request);
        (answer - begin).as_micros() as u64
    }

    #[test]
    fn requests_wait_for_a_free_channel() {
        let (one, two) = (schedule(1), schedule(2));
        let begin = Instant::now();
        let at = |schedule: &Schedule, at, request| answered(schedule, begin, at, request);
        assert_eq!(at(&one, 1000, Request::Write(1000)), 1200);
        assert_eq!(at(&one, 1000, Request::Write(0)), 1300);
        assert_eq!(at(&one, 1000, Request::Read(9999)), 1350);
        assert_eq!(at(&one, 2000, Request::Zero), 2100);
        assert_eq!(at(&two, 1000, Request::Write(1000)), 1200);
        assert_eq!(at(&two, 1000, Request::Write(0)), 1100);
        assert_eq!(at(&two, 1000, Request::Read(0)), 1150);
        assert_eq!(at(&two, 1000, Request::Read(0)), 1200);
    }

    #[test]
    fn a_flush_waits_for_what_is_before_it_and_stalls_what_is_behind() {
        let schedule = schedule(4);
        let begin = Instant::now();
        let at = |at, request| answered(&schedule, begin, at, request);
        assert_eq!(at(1000, Request::Write(1000)), 1200);
        // 1000 us, and 100 for the 1,000 bytes.
        assert_eq!(at(1000, Request::Flush), 2300);
        for _ in 0..4 {
            assert_eq!(at(1500, Request::Read(0)), 2350);
        }
        assert_eq!(at(1500, Request::Read(0)), 2400);
    }

    #[test]
    fn a_flush_of_nothing_waits_and_takes_no_time() {
        let schedule = schedule(1);
        let begin = Instant::now();
        let at = |at, request| answered(&schedule, begin, at, request);
        assert_eq!(at(1000, Request::Flush), 1000);
        assert_eq!(at(1000, Request::Write(0)), 1100);
        assert_eq!(at(1000, Request::Flush), 2100);
        assert_eq!(at(1000, Request::Read(0)), 2150);
        assert_eq!(at(1000, Request::Flush), 2150);
    }

    #[test]
    fn a_flush_behind_a_single_write_is_a_write_through() {
        let schedule = of(1, "[fua]\nus = 700\nmb_per_s = 10");
        let begin = Instant::now();
        let at = |at, request| answered(&schedule, begin, at, request);
        assert_eq!(at(1000, Request::Write(1000)), 1200);
        assert_eq!(at(1200, Request::Flush), 1800);
        // Two writes are two writes.
        assert_eq!(at(3000, Request::Write(0)), 3100);
        assert_eq!(at(3000, Request::Write(0)), 3200);
        assert_eq!(at(3200, Request::Flush), 4200);
    }

    #[test]
    fn nothing_takes_time_before_it_is_switched_on() {
        let model = schedule(1).latency().clone();
        let schedule = Schedule::new(model);
        let begin = Instant::now();
        for request in [
            Request::Write(4096),
            Request::Flush,
            Request::Read(1),
            Request::Zero,
        ] {
            assert_eq!(answered(&schedule, begin, 5, request), 5);
        }
        schedule.switch_on();
        // Earlier writes are not in the cache of the modelled device.
        assert_eq!(answered(&schedule, begin, 9, Request::Flush), 9);
        assert_eq!(answered(&schedule, begin, 9, Request::Write(0)), 109);
    }
}
