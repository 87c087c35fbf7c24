//! The variables `ONEWRITE_*`. All of them are read here.
//!
//! A program with raised privileges (set-user-ID, set-group-ID, file capabilities) must not obey
//! the user that starts it. It ignores the variables, as `secure_getenv(3)` does.

use std::env;
use std::ffi::OsString;

use crate::mode::words::{self, UnknownWord, Word};
use crate::storage::has_raised_privileges;

/// A variable that is not a setting; those are in [`SETTINGS`](super::SETTINGS).
pub struct Variable {
    pub name: &'static str,
    /// Its values, as the documents show them, and the effect of each.
    pub values: &'static [(&'static str, &'static str)],
}

pub const JOURNAL_MODE: Variable = Variable {
    name: "ONEWRITE_JOURNAL_MODE",
    values: &[
        (
            "a journal mode of onewrite",
            "the mode of databases whose program names none",
        ),
        (
            "one of SQLite's own",
            "leaves the database to the program, as without the variable",
        ),
    ],
};

pub const UPGRADE_WAL: Variable = Variable {
    name: "ONEWRITE_UPGRADE_WAL",
    values: &[
        (
            "a journal mode of onewrite",
            "that mode, or the one of `journal_mode=` in the URI, where the program asks for WAL; the \
             program gets the answer \"wal\". A database that remembers one of these modes stays in it",
        ),
        (
            "1",
            "the same, with the mode that `ONEWRITE_JOURNAL_MODE` or `journal_mode=` in the URI names",
        ),
        ("0", "WAL stays SQLite's own"),
    ],
};

pub const MAKE_DEFAULT: Variable = Variable {
    name: "ONEWRITE_MAKE_DEFAULT",
    values: &[
        (
            "1 (also `on`, `true`, `yes`)",
            "`onewrite` is the VFS of every database that is opened without another's name",
        ),
        ("0", "it is not, as without the variable"),
    ],
};

pub const LOG: Variable = Variable {
    name: "ONEWRITE_LOG",
    values: &[(
        "stderr",
        "what onewrite writes to SQLite's log goes to standard error, too: most drivers hide that log",
    )],
};

/// All of them.
pub const ALL: [Variable; 4] = [JOURNAL_MODE, UPGRADE_WAL, MAKE_DEFAULT, LOG];

/// The words of a variable that is on or off.
const SWITCH: [Word<bool>; 2] = [
    Word::new("1", true, "on").or(&["on", "true", "yes"]),
    Word::new("0", false, "off").or(&["off", "false", "no", ""]),
];

/// The words of [`LOG`].
const LOGS: [Word<bool>; 2] = [
    Word::new("stderr", true, "to standard error, too"),
    Word::new("sqlite", false, "to SQLite's log alone").or(&["off", "0", "no", "false", ""]),
];

impl Variable {
    /// Its value as text.
    pub fn text(&self) -> Option<String> {
        value_of(self.name)
    }
}

/// Whether [`MAKE_DEFAULT`] is on.
///
/// # Errors
/// A word that means neither on nor off.
pub fn makes_default() -> Result<bool, UnknownWord> {
    let word = MAKE_DEFAULT.text();
    word.map_or(Ok(false), |word| words::value_of(&SWITCH, &word))
}

/// Whether messages go to standard error, too.
///
/// # Errors
/// An unknown word in [`LOG`].
pub fn logs_to_stderr() -> Result<bool, UnknownWord> {
    let word = LOG.text();
    word.map_or(Ok(false), |word| words::value_of(&LOGS, &word))
}

/// An error for each variable of the whole process whose word is unknown.
pub fn unknown_words() -> impl Iterator<Item = String> {
    let found = [(MAKE_DEFAULT, makes_default()), (LOG, logs_to_stderr())];
    found
        .into_iter()
        .filter_map(|(variable, word)| Some(format!("{}: {}", variable.name, word.err()?)))
}

/// The value of a variable. Bytes that are not UTF-8 belong to no word, and are replaced.
pub fn value_of(name: &str) -> Option<String> {
    Some(read(name)?.to_string_lossy().into_owned())
}

fn read(name: &str) -> Option<OsString> {
    match has_raised_privileges() {
        true => None,
        false => env::var_os(name),
    }
}
