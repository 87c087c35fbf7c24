//! Hints to the processor: lines that a search reads soon.
//!
//! A search in memory mostly waits for lines that are not in the processor's cache, one after the other:
//! each says where the next one is. Those whose place is known early are fetched at the same time.
//! A hint, unlike a read, never holds up what comes after it.

#![allow(unsafe_code)]

/// Bytes of a line of the cache, on the processors that [`hint`] is for.
const LINE: usize = 64;

/// Has the processor fetch the lines that the values are in.
#[inline]
pub(crate) fn prefetch<T>(values: &[T]) {
    let from = values.as_ptr().cast::<u8>();
    let within_line = from.addr() % LINE;
    let line = from.wrapping_sub(within_line);
    for at in (0..within_line + size_of_val(values)).step_by(LINE) {
        hint(line.wrapping_add(at));
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn hint(at: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: it has no effect on the program's state, and does not fail at any address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
}

/// Stable Rust has none for other processors.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn hint(_: *const u8) {}
