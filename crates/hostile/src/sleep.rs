//! Sleeping takes no time, in every program with this crate: these functions take the place of the C
//! library's.
//!
//! SQLite and the engine read again, after a pause, what another process may be about to write:
//! SQLite a wal-index up to 100 times, in ten seconds. In these programs nobody else writes, so
//! after a pause the bytes are the same. The same code runs, the same number of times.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint, c_void};

/// For `std::thread::sleep`. Nothing is left of the time, so `_left` stays as it is.
#[unsafe(no_mangle)]
extern "C" fn clock_nanosleep(_: c_int, _: c_int, _: *const c_void, _left: *mut c_void) -> c_int {
    0
}

/// For SQLite.
#[unsafe(no_mangle)]
extern "C" fn nanosleep(_: *const c_void, _left: *mut c_void) -> c_int {
    0
}

/// For a SQLite that is compiled without `nanosleep`.
#[unsafe(no_mangle)]
extern "C" fn usleep(_: c_uint) -> c_int {
    0
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    /// The limit is far from both: an hour of sleep, and the time of a call.
    #[test]
    fn sleeping_takes_no_time() {
        let begun = Instant::now();
        std::thread::sleep(Duration::from_secs(1800));
        // SAFETY: a function without preconditions.
        unsafe { rusqlite::ffi::sqlite3_sleep(1_800_000) };
        assert!(begun.elapsed() < Duration::from_secs(900));
    }
}
