//! The variables that `onewrite record` and `onewrite run` set. Every one is read here.
//!
//! The dynamic linker preloads nothing into a program with raised privileges, unless the library is in a
//! trusted directory; and such a program may load it as an extension. There the variables are ignored: they
//! name a library to load, and files to write.

use std::env;
use std::ffi::OsString;

/// A variable's value.
pub fn variable(name: &str) -> Option<OsString> {
    // SAFETY: it reads what the kernel gave this process.
    match unsafe { libc::getauxval(libc::AT_SECURE) } {
        0 => env::var_os(name),
        _ => None,
    }
}
