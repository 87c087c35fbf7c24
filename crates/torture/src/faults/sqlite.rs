//! Settings of the linked SQLite that must precede its first use: its log, and a memory allocator
//! that can refuse. Both are process-wide, so only workers use them.
#![allow(unsafe_code)]

use crate::failure::Failure;
use rusqlite::ffi;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn note(code: c_int, message: &str) {
    // An event that tells of no failure, such as that a mode was entered.
    if code == ffi::SQLITE_NOTICE {
        return;
    }
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    if log.len() < 20 {
        log.push(format!("({code}) {message}"));
    }
}

/// Prints the messages through `sqlite3_log` from now on, because a result code alone seldom
/// explains a failure.
///
/// # Errors
/// SQLite is in use already.
pub fn print_log() -> Result<(), Failure> {
    send_log_to(|code, message| eprintln!("SQLite: ({code}) {message}"))
}

/// Collects the messages through `sqlite3_log` from now on.
///
/// # Errors
/// SQLite is in use already.
pub fn collect_log() -> Result<(), Failure> {
    send_log_to(note)
}

fn send_log_to(callback: fn(c_int, &str)) -> Result<(), Failure> {
    // SAFETY: nothing of SQLite was used before, and the callbacks use nothing of SQLite.
    unsafe { rusqlite::trace::config_log(Some(callback)) }
        .map_err(|e| Failure::Harness(format!("SQLITE_CONFIG_LOG: {e}")))
}

/// Takes the messages since the last call.
pub fn take_log() -> Vec<String> {
    std::mem::take(&mut LOG.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The allocation to refuse next: counts down to 0. Negative: none.
static REFUSE_IN: AtomicI64 = AtomicI64::new(-1);
/// Whether all later allocations are refused, too.
static REFUSE_ALL: AtomicBool = AtomicBool::new(false);
/// The number of refused allocations.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// SQLite's own allocator, after [`refuse_memory`] has put ours in front of it.
static PLAIN: OnceLock<Plain> = OnceLock::new();

/// The two functions of an allocator that can refuse.
struct Plain {
    allocate: unsafe extern "C" fn(c_int) -> *mut c_void,
    allocate_again: unsafe extern "C" fn(*mut c_void, c_int) -> *mut c_void,
}

fn is_refused() -> bool {
    let refuse = match REFUSE_IN.load(Ordering::Relaxed) {
        0 => REFUSE_ALL.load(Ordering::Relaxed),
        at @ 1.. => {
            REFUSE_IN.store(at - 1, Ordering::Relaxed);
            at == 1
        }
        _ => false,
    };
    REFUSED.fetch_add(u64::from(refuse), Ordering::Relaxed);
    refuse
}

unsafe extern "C" fn allocate(size: c_int) -> *mut c_void {
    match PLAIN.get() {
        // SAFETY: the argument is passed on unchanged.
        Some(plain) if !is_refused() => unsafe { (plain.allocate)(size) },
        _ => std::ptr::null_mut(),
    }
}

unsafe extern "C" fn allocate_again(memory: *mut c_void, size: c_int) -> *mut c_void {
    match PLAIN.get() {
        // SAFETY: the arguments are passed on unchanged.
        Some(plain) if !is_refused() => unsafe { (plain.allocate_again)(memory, size) },
        _ => std::ptr::null_mut(),
    }
}

/// Puts an allocator that can refuse in front of SQLite's own.
///
/// # Errors
/// SQLite is in use already.
pub fn make_memory_refusable() -> Result<(), Failure> {
    let failed = |what: &str, code| Failure::Harness(format!("SQLITE_CONFIG_{what}: {code}"));
    // SAFETY: plain function pointers and one data pointer, for which zero is a value.
    let mut methods: ffi::sqlite3_mem_methods = unsafe { std::mem::zeroed() };
    // SAFETY: GETMALLOC fills the structure; nothing of SQLite was used before.
    let code = unsafe { ffi::sqlite3_config(ffi::SQLITE_CONFIG_GETMALLOC, &raw mut methods) };
    if code != ffi::SQLITE_OK {
        return Err(failed("GETMALLOC", code));
    }
    let (Some(allocate_plain), Some(allocate_plain_again)) = (methods.xMalloc, methods.xRealloc)
    else {
        return Err(failed("GETMALLOC", code));
    };
    PLAIN.get_or_init(|| Plain {
        allocate: allocate_plain,
        allocate_again: allocate_plain_again,
    });
    methods.xMalloc = Some(allocate);
    methods.xRealloc = Some(allocate_again);
    // SAFETY: SQLite copies the structure.
    match unsafe { ffi::sqlite3_config(ffi::SQLITE_CONFIG_MALLOC, &raw const methods) } {
        ffi::SQLITE_OK => Ok(()),
        code => Err(failed("MALLOC", code)),
    }
}

/// Refuses the allocation with this number from now on, counted from 1. If `for_good`, refuses all
/// after it, too.
pub fn refuse_memory(nth: i64, for_good: bool) {
    REFUSE_ALL.store(for_good, Ordering::Relaxed);
    REFUSED.store(0, Ordering::Relaxed);
    REFUSE_IN.store(nth, Ordering::Relaxed);
}

/// Ends the refusals; returns how many there were.
pub fn grant_memory() -> u64 {
    REFUSE_IN.store(-1, Ordering::Relaxed);
    REFUSED.swap(0, Ordering::Relaxed)
}
