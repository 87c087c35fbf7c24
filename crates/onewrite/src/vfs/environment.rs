//! The variables `ONEWRITE_*`. All of them are read here.
//!
//! A program with raised privileges (set-user-ID, set-group-ID, file capabilities) must not obey
//! the user that starts it. It ignores the variables, as `secure_getenv(3)` does.

use std::env;
use std::ffi::OsString;

use crate::storage::has_raised_privileges;

/// A variable's value.
pub fn variable(name: &str) -> Option<OsString> {
    match has_raised_privileges() {
        true => None,
        false => env::var_os(name),
    }
}

/// A variable's value, if it is UTF-8.
pub fn text(name: &str) -> Option<String> {
    variable(name)?.into_string().ok()
}
