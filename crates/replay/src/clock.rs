//! The time at which a statement was recorded, and numbers that are not random.
//!
//! SQLite asks its VFS for the time. So every connection of a replay opens with a copy of SQLite's
//! own VFS that has another clock. It is the default VFS, and `onewrite` builds on it too. With it
//! `datetime('now')` returns the same in every mode, and what was recorded.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr;
use std::sync::OnceLock;

use rusqlite::ffi::{self, sqlite3_vfs};

/// The name of the VFS.
pub const VFS_NAME: &str = "onewrite-replay";

/// Milliseconds from the beginning of the Julian calendar's day 0 to 1970.
const UNIX_EPOCH_MS: i64 = 210_866_760_000_000;

const MS_PER_DAY: f64 = 86_400_000.0;

thread_local! {
    /// Milliseconds since 1970.
    static NOW_MS: Cell<i64> = const { Cell::new(0) };
    /// The seed of the next random number.
    static SEED: Cell<u64> = const { Cell::new(1) };
}

/// Sets the time, in nanoseconds since 1970, and the seed of random numbers, for this thread.
pub fn set(at: u64, seed: u64) {
    NOW_MS.with(|now| now.set((at / 1_000_000) as i64));
    SEED.with(|place| place.set(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1));
}

/// The next number in place of a random one.
pub(crate) fn next_random() -> u64 {
    SEED.with(|place| {
        let mut word = place.get();
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        place.set(word);
        word.wrapping_mul(0x2545_F491_4F6C_DD1D)
    })
}

/// Makes it the default VFS, on which `onewrite` builds. Call this before anything else registers
/// `onewrite` in this process.
///
/// # Errors
/// SQLite has no VFS, or refuses.
pub fn register() -> Result<(), String> {
    static VFS: OnceLock<Result<(), String>> = OnceLock::new();
    let made = VFS.get_or_init(|| {
        // SAFETY: a registered VFS lives as long as the process. The copy is used as the original
        // is, with its own data, and never freed.
        unsafe {
            let base = ffi::sqlite3_vfs_find(c"unix".as_ptr());
            let base = base.as_ref().ok_or("this SQLite has no VFS \"unix\"")?;
            let ours = Box::leak(Box::new(*base));
            ours.zName = c"onewrite-replay".as_ptr();
            ours.pNext = ptr::null_mut();
            ours.xCurrentTime = Some(current_time);
            ours.xCurrentTimeInt64 = Some(current_time_int64);
            let code = ffi::sqlite3_vfs_register(ours, 1);
            match code {
                ffi::SQLITE_OK => Ok(()),
                code => Err(format!("SQLite refused a VFS: result code {code}")),
            }
        }
    });
    match made {
        Err(why) => Err(why.clone()),
        Ok(()) => onewrite::register().map_err(|error| error.to_string()),
    }
}

fn julian_ms() -> i64 {
    UNIX_EPOCH_MS + NOW_MS.with(Cell::get)
}

unsafe extern "C" fn current_time_int64(_vfs: *mut sqlite3_vfs, out: *mut i64) -> c_int {
    // SAFETY: SQLite passes a place for it.
    unsafe { *out = julian_ms() };
    ffi::SQLITE_OK
}

unsafe extern "C" fn current_time(_vfs: *mut sqlite3_vfs, out: *mut f64) -> c_int {
    // SAFETY: SQLite passes a place for it.
    unsafe { *out = julian_ms() as f64 / MS_PER_DAY };
    ffi::SQLITE_OK
}
