//! `dlopen` without `RTLD_DEEPBIND`. With that flag a module finds SQLite's functions in SQLite itself
//! before it finds ours. PHP loads its modules so.
//!
//! The C library must see its caller: with it, it searches the caller's own directories for a library
//! (`DT_RUNPATH`). So this is a jump, which leaves the caller's return address and stack as they are.
//! A program that loads no module so, gets the C library's function with its own arguments.

use std::arch::naked_asm;
use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The C library's `dlopen`, or that of a library that is preloaded after this one.
static NEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Finds [`NEXT`], at the first call. Another thread finds the same.
extern "C" fn find() -> *mut c_void {
    // SAFETY: a name that ends with a zero byte. Every C library has this function.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"dlopen".as_ptr()) };
    NEXT.store(found, Ordering::Release);
    found
}

/// # Safety
/// As for dlopen(3).
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn dlopen(_file: *const c_char, _flags: c_int) -> *mut c_void {
    naked_asm!(
        "endbr64",
        "and esi, {keep}",
        "mov rax, [rip + {next}]",
        "test rax, rax",
        "jnz 2f",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {find}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "2:",
        "jmp rax",
        keep = const !libc::RTLD_DEEPBIND,
        next = sym NEXT,
        find = sym find,
    )
}

/// # Safety
/// As for dlopen(3).
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn dlopen(_file: *const c_char, _flags: c_int) -> *mut c_void {
    naked_asm!(
        "hint #34", // bti c
        "and w1, w1, {keep}",
        "adrp x16, {next}",
        "ldr x16, [x16, :lo12:{next}]",
        "cbnz x16, 2f",
        "stp x29, x30, [sp, #-32]!",
        "stp x0, x1, [sp, #16]",
        "bl {find}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "2:",
        "br x16",
        keep = const !libc::RTLD_DEEPBIND,
        next = sym NEXT,
        find = sym find,
    )
}
