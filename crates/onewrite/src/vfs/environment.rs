//! The variables `ONEWRITE_*`. Every one is read here.
//!
//! A program with raised privileges (set-user-ID, set-group-ID, file capabilities) does not do what
//! the user says who starts it: there the variables are ignored, as `secure_getenv(3)` does.

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
