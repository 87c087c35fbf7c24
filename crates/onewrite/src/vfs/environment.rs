//! The variables `ONEWRITE_*`. All of them are read here.
//!
//! A program with raised privileges (set-user-ID, set-group-ID, file capabilities) must not obey
//! the user that starts it. It ignores the variables, as `secure_getenv(3)` does.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use super::SETTINGS;
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
             program gets the answer \"wal\". A database that remembers one of these modes stays in it. \
             `onewrite_upgrade_wal=` in the URI takes the same values, and counts more",
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
    values: &[
        (
            "stderr",
            "what onewrite writes to SQLite's log goes to standard error, too: most drivers hide that log",
        ),
        (
            "an absolute path",
            "it goes to the end of this file, a line each, see [Events](events.md)",
        ),
        (
            "journald",
            "it goes to systemd's journal; `journald:` and a path names another socket of a journal",
        ),
        (
            "sqlite",
            "it goes to SQLite's log alone, as without the variable",
        ),
    ],
};

/// All of them.
pub const ALL: [Variable; 4] = [JOURNAL_MODE, UPGRADE_WAL, MAKE_DEFAULT, LOG];

/// The words of a variable that is on or off.
const SWITCH: [Word<bool>; 2] = [
    Word::new("1", true, "on").or(&["on", "true", "yes"]),
    Word::new("0", false, "off").or(&["off", "false", "no", ""]),
];

/// Where events go, in addition to SQLite's log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sink {
    /// Nowhere.
    None,
    /// Standard error.
    Stderr,
    /// The end of this file.
    File(PathBuf),
    /// The journal with its socket here.
    Journal(PathBuf),
}

/// The socket of systemd's journal.
const JOURNAL: &str = "/run/systemd/journal/socket";

/// The words of [`LOG`], and its other forms.
const LOGS: [Word<Option<&str>>; 3] = [
    Word::new("stderr", Some(""), "to standard error, too"),
    Word::new("journald", Some(JOURNAL), "to systemd's journal, too"),
    Word::new("sqlite", None, "to SQLite's log alone").or(&["off", "0", "no", "false", ""]),
];

impl Sink {
    fn of(word: &str) -> Result<Sink, UnknownWord> {
        if let Some(socket) = word
            .strip_prefix("journald:")
            .filter(|it| it.starts_with('/'))
        {
            return Ok(Sink::Journal(socket.into()));
        }
        if word.starts_with('/') {
            return Ok(Sink::File(word.into()));
        }
        Ok(match words::value_of(&LOGS, word)? {
            None => Sink::None,
            Some("") => Sink::Stderr,
            Some(socket) => Sink::Journal(socket.into()),
        })
    }
}

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

/// Where events go, in addition to SQLite's log.
///
/// # Errors
/// An unknown word in [`LOG`].
pub fn sink() -> Result<Sink, UnknownWord> {
    match LOG.text() {
        None => Ok(Sink::None),
        Some(word) => Sink::of(&word).map_err(|e| UnknownWord {
            known: format!("{}, or an absolute path", e.known),
            ..e
        }),
    }
}

/// An error for each variable of the whole process whose word is unknown, or whose name is misspelt.
pub fn unknown_words() -> impl Iterator<Item = String> {
    let found = [(MAKE_DEFAULT, makes_default().err()), (LOG, sink().err())];
    found
        .into_iter()
        .filter_map(|(variable, word)| Some(format!("{}: {}", variable.name, word?)))
        .chain(misspelt_names())
}

/// The names of our variables begin with this.
const PREFIX: &str = "ONEWRITE_";

fn misspelt_names() -> impl Iterator<Item = String> {
    let names: Vec<String> = match has_raised_privileges() {
        true => Vec::new(),
        false => env::vars_os()
            .filter_map(|(name, _)| name.into_string().ok())
            .filter(|name| name.starts_with(PREFIX))
            .collect(),
    };
    names.into_iter().filter_map(|name| {
        let meant = meant_by(&name)?;
        Some(format!("{name}: no variable has this name: use {meant}"))
    })
}

/// The variable that an unknown name is close to. Other programs have variables with our prefix,
/// so a name that is close to none means none.
fn meant_by(name: &str) -> Option<String> {
    let known = || {
        let settings = SETTINGS.iter().filter_map(|setting| setting.variable());
        ALL.iter().map(|it| it.name.to_owned()).chain(settings)
    };
    if known().any(|it| it == name) {
        return None;
    }
    let is_close = |it: &String| {
        let letters = it.len() - PREFIX.len();
        let wrong = strsim::osa_distance(name, it);
        wrong <= 2 && 2 * wrong < letters
    };
    known().find(is_close)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_means_the_closest_variable() {
        for (name, meant) in [
            ("ONEWRITE_SYNCHRONUS", Some("ONEWRITE_SYNCHRONOUS")),
            ("ONEWRITE_JOURNALMODE", Some("ONEWRITE_JOURNAL_MODE")),
            ("ONEWRITE_JOURNAL_MOED", Some("ONEWRITE_JOURNAL_MODE")),
            ("ONEWRITE_LOGS", Some("ONEWRITE_LOG")),
            ("ONEWRITE_LAB", None),
            ("ONEWRITE_PRELOAD_LIBRARY", None),
        ] {
            assert_eq!(meant_by(name).as_deref(), meant, "{name}");
        }
    }

    /// So a variable that is right is never taken for another.
    #[test]
    fn a_known_name_is_not_misspelt() {
        for variable in &ALL {
            assert_eq!(meant_by(variable.name), None);
        }
        for variable in SETTINGS.iter().filter_map(|it| it.variable()) {
            assert_eq!(meant_by(&variable), None);
        }
    }

    #[test]
    fn the_log_goes_where_the_word_says() {
        for (word, sink) in [
            ("stderr", Sink::Stderr),
            ("off", Sink::None),
            ("/var/log/app", Sink::File("/var/log/app".into())),
            ("journald", Sink::Journal(JOURNAL.into())),
            ("journald:/run/other", Sink::Journal("/run/other".into())),
        ] {
            assert_eq!(Sink::of(word), Ok(sink), "{word}");
        }
        for wrong in ["paper", "journald:socket", "app.log", "./app.log"] {
            assert!(Sink::of(wrong).is_err(), "{wrong}");
        }
    }
}
