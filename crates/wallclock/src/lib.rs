//! A wall clock of its own for one program. `onewrite-lab soak` preloads this library
//! (`LD_PRELOAD`) into its workers and lets their clocks jump.
//!
//! The environment variable `ONEWRITE_WALL_CLOCK` names a file. Its first eight bytes are the
//! nanoseconds by which the program's clock is ahead, in the byte order of this machine. A write to
//! the file changes the clock at once. The functions of the C library that read the wall clock add
//! this number. CLOCK_MONOTONIC and file times stay as they are.
//!
//! The kernel knows nothing of the jump. So a wait until a time of the wall clock ends too early or
//! too late. Go reads the clock without the C library, and sees the machine's.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicI64, AtomicPtr, Ordering};

const SECOND: i64 = 1_000_000_000;
/// The C11 name for the wall clock, in `timespec_get`.
const TIME_UTC: c_int = 1;

/// The number in the file; null before the first look.
static AHEAD: AtomicPtr<AtomicI64> = AtomicPtr::new(ptr::null_mut());
/// Without a file.
static NOT_AHEAD: AtomicI64 = AtomicI64::new(0);

fn ahead() -> i64 {
    let mut number = AHEAD.load(Ordering::Acquire);
    if number.is_null() {
        // Two threads may both map it.
        number = map().unwrap_or((&raw const NOT_AHEAD).cast_mut());
        AHEAD.store(number, Ordering::Release);
    }
    // SAFETY: the static, or a page that stays mapped. Others change it with one aligned write.
    unsafe { (*number).load(Ordering::Relaxed) }
}

fn map() -> Option<*mut AtomicI64> {
    // SAFETY: libc functions with valid arguments. Nothing else uses the descriptor.
    unsafe {
        let path = libc::getenv(c"ONEWRITE_WALL_CLOCK".as_ptr());
        if path.is_null() {
            return None;
        }
        let file = libc::open(path, libc::O_RDONLY | libc::O_CLOEXEC);
        let page = libc::mmap(
            ptr::null_mut(),
            size_of::<i64>(),
            libc::PROT_READ,
            libc::MAP_SHARED,
            file,
            0,
        );
        libc::close(file);
        (page != libc::MAP_FAILED).then_some(page.cast())
    }
}

/// The time of a clock of the kernel, in a form that `libc` has for this machine.
fn kernel_time(clock: libc::clockid_t, time: *mut libc::timespec) -> c_int {
    // SAFETY: the kernel checks the pointer.
    unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) as c_int }
}

/// The wall clock, in nanoseconds.
fn wall_clock() -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    kernel_time(libc::CLOCK_REALTIME, &mut time);
    time.tv_sec * SECOND + time.tv_nsec + ahead()
}

/// `clock_gettime(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> c_int {
    let code = kernel_time(clock, time);
    let is_wall_clock = matches!(
        clock,
        libc::CLOCK_REALTIME
            | libc::CLOCK_REALTIME_COARSE
            | libc::CLOCK_REALTIME_ALARM
            | libc::CLOCK_TAI
    );
    if code == 0 && is_wall_clock {
        // SAFETY: the kernel has written there.
        unsafe {
            let now = (*time).tv_sec * SECOND + (*time).tv_nsec + ahead();
            (*time).tv_sec = now.div_euclid(SECOND);
            (*time).tv_nsec = now.rem_euclid(SECOND);
        }
    }
    code
}

/// `gettimeofday(2)`. The time zone is obsolete, and stays as it is.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gettimeofday(
    time: *mut libc::timeval,
    _zone: *mut libc::timezone,
) -> c_int {
    let now = wall_clock();
    // SAFETY: the caller's.
    if let Some(time) = unsafe { time.as_mut() } {
        time.tv_sec = now.div_euclid(SECOND);
        time.tv_usec = now.rem_euclid(SECOND) / 1000;
    }
    0
}

/// `time(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn time(time: *mut libc::time_t) -> libc::time_t {
    let now = wall_clock().div_euclid(SECOND);
    // SAFETY: the caller's.
    if let Some(time) = unsafe { time.as_mut() } {
        *time = now;
    }
    now
}

/// `timespec_get(3)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn timespec_get(time: *mut libc::timespec, base: c_int) -> c_int {
    if base != TIME_UTC {
        return 0;
    }
    // SAFETY: the caller's.
    match unsafe { clock_gettime(libc::CLOCK_REALTIME, time) } {
        0 => base,
        _ => 0,
    }
}
