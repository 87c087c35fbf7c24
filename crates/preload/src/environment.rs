//! The variables that `onewrite record` and `onewrite run` set. All of them are read here.
//!
//! The dynamic linker preloads nothing into a program with raised privileges, unless the library is
//! in a trusted directory. Such a program may also load the library as an extension. In both cases
//! the variables are ignored: they name a library to load, and files to write.

use std::env;
use std::ffi::OsString;

/// A variable's value.
pub fn variable(name: &str) -> Option<OsString> {
    // SAFETY: it reads a value that the kernel gave this process.
    match unsafe { libc::getauxval(libc::AT_SECURE) } {
        0 => env::var_os(name),
        _ => None,
    }
}
