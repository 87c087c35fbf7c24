//! Events for an operator, of a fixed list ([`EVENTS`], `docs/reference/events.md`).
//!
//! An event goes to SQLite's error log, and where `ONEWRITE_LOG` says ([`sink`]). To write one
//! cannot fail, waits for nobody, and calls nothing of SQLite but `sqlite3_log`. No commit writes
//! one, unless it fails or takes longer than `onewrite_stall_log`. Repetitions are limited
//! ([`limit`]). It takes no lock, so a child of fork may write events.

pub mod later;
mod limit;
mod line;
#[cfg(test)]
mod page;
mod sink;
pub mod teller;

use std::ffi::c_int;
use std::fmt::Display;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::time::Duration;

use super::environment;
use super::ffi;
use limit::LIMITS;
pub use sink::print;

/// An event of the list.
pub struct Kind {
    /// Its name: the value of `event=`.
    pub name: &'static str,
    /// When it is written.
    pub when: &'static str,
    /// Its fields with their meanings, in their order. `database` and `repeated` may be in all.
    pub fields: &'static [(&'static str, &'static str)],
    /// SQLite's result code for its log.
    code: c_int,
    /// The priority, as in syslog(3).
    priority: u8,
    /// One process writes it at most once in this time about a database.
    every: Duration,
}

const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

pub static MODE_ENTERED: Kind = Kind {
    name: "mode_entered",
    when: "a process opens the log of a database in one of our modes",
    fields: &[
        ("mode", "the journal mode"),
        ("layout", "the log's layout"),
        (
            "sync",
            "what a commit at FULL does: `onewrite_sync`, decided",
        ),
        ("filesystem", "the file system of the log"),
        ("device", "its device"),
    ],
    code: ffi::SQLITE_NOTICE,
    priority: 6,
    every: MINUTE,
};

pub static MODE_REFUSED: Kind = Kind {
    name: "mode_refused",
    when: "a database does not get the mode that was asked for, or that it remembers",
    fields: &[
        ("mode", "that mode; empty if this user cannot read it"),
        ("why", "the reason, an English sentence"),
    ],
    code: ffi::SQLITE_WARNING,
    priority: 4,
    every: MINUTE,
};

pub static RECOVERED: Kind = Kind {
    name: "recovered",
    when: "SQLite has read the log to make a new wal-index, as after a kill",
    fields: &[
        ("frames", "frames of committed transactions that it found"),
        ("us", "how long it took, in microseconds"),
    ],
    code: ffi::SQLITE_NOTICE,
    priority: 5,
    every: SECOND,
};

pub static POISONED: Kind = Kind {
    name: "poisoned",
    when: "a write or a flush of published commits failed: the log takes no more commits until every \
           connection has closed it",
    fields: &[("why", "the failure, an English sentence")],
    code: ffi::SQLITE_IOERR,
    priority: 2,
    every: MINUTE,
};

pub static CHECKPOINT_HELD: Kind = Kind {
    name: "checkpoint_held",
    when: "a checkpoint could not copy all frames, because of readers of an older state",
    fields: &[
        ("left", "frames that it had to leave in the log"),
        (
            "frame",
            "the last frame that the oldest of these readers sees",
        ),
        (
            "pid",
            "the process of that reader; absent if this user cannot see it",
        ),
        ("program", "the name of its program"),
        (
            "readers",
            "all processes that hold the checkpoint up, as `PID:PROGRAM`, with spaces between",
        ),
    ],
    code: ffi::SQLITE_NOTICE,
    priority: 4,
    every: MINUTE,
};

pub static COMMIT_STALLED: Kind = Kind {
    name: "commit_stalled",
    when: "a commit, or the checkpoint that follows it, took longer than `onewrite_stall_log`",
    fields: &[
        (
            "us",
            "how long it took, in microseconds: the sum of the phases",
        ),
        ("limit_us", "`onewrite_stall_log`, in microseconds"),
        (
            "main",
            "the longest phase: the name of a field below, without `_us`",
        ),
        (
            "write_lock_us",
            "waiting for its turn to write, and for the log to restart",
        ),
        (
            "busy_us",
            "SQLite's busy timeout, while another connection had the write lock; a busy handler of the \
             program is not seen",
        ),
        ("write_us", "writes to the log that were not durable yet"),
        ("flush_us", "durable writes to the log, and its flushes"),
        (
            "group_us",
            "waiting for the flush of another connection, or for others to join",
        ),
        ("growth_us", "new blocks for the log"),
        ("checkpoint_us", "the checkpoint that followed the commit"),
        (
            "other_us",
            "the rest: work of the processor, and waiting for one",
        ),
    ],
    code: ffi::SQLITE_NOTICE,
    priority: 4,
    every: SECOND,
};

pub static MESSAGE: Kind = Kind {
    name: "message",
    when: "anything else: an error, or a warning. In SQLite's log and on standard error it is the text \
           alone",
    fields: &[
        ("code", "SQLite's result code"),
        ("text", "an English sentence"),
    ],
    code: ffi::SQLITE_WARNING,
    priority: 4,
    every: SECOND,
};

/// All of them.
pub static EVENTS: [&Kind; 7] = [
    &MODE_ENTERED,
    &MODE_REFUSED,
    &RECOVERED,
    &POISONED,
    &CHECKPOINT_HELD,
    &COMMIT_STALLED,
    &MESSAGE,
];

/// An event that is about to be written.
pub struct Event {
    kind: &'static Kind,
    fields: Vec<(&'static str, String)>,
    /// Of the database and what else tells repetitions apart.
    key: u64,
}

impl Event {
    /// Without fields.
    pub fn new(kind: &'static Kind, database: &Path) -> Event {
        let mut hasher = DefaultHasher::new();
        (kind.name, database).hash(&mut hasher);
        Event {
            kind,
            fields: vec![("database", database.display().to_string())],
            key: hasher.finish(),
        }
    }

    /// With a field of the kind's list.
    pub fn with(mut self, name: &'static str, value: impl Display) -> Event {
        debug_assert!(
            self.kind.fields.iter().any(|(known, _)| *known == name),
            "{} has no field {name}",
            self.kind.name
        );
        // The database is the last: SQLite cuts long lines.
        let last = self.fields.len() - 1;
        self.fields.insert(last, (name, value.to_string()));
        self
    }

    /// The same event with another number does not count as its repetition.
    pub fn apart_from(mut self, number: u32) -> Event {
        let mut hasher = DefaultHasher::new();
        (self.key, number).hash(&mut hasher);
        self.key = hasher.finish();
        self
    }

    /// Whether it may be written now, and it is time to find out what it says: at most once a second. If
    /// it may not be written, it counts as left out.
    pub fn is_due(kind: &'static Kind, database: &Path) -> bool {
        let event = Event::new(kind, database);
        LIMITS.is_due(event.key, kind.every) && LIMITS.passes(!event.key, SECOND).is_some()
    }

    /// Writes it, unless the same was written a moment ago.
    pub fn tell(mut self) {
        let Some(missed) = LIMITS.passes(self.key, self.kind.every) else {
            return;
        };
        if missed > 0 {
            self.fields.push(("repeated", missed.to_string()));
        }
        let line = line::of(self.kind.name, &self.fields);
        later::log_line(self.kind.code, &line);
        sink::write(self.kind, &self.fields, &line);
    }
}

/// Writes a message.
pub fn message(code: c_int, text: &str) {
    later::log_line(code, text);
    if matches!(environment::sink(), Ok(environment::Sink::None) | Err(_)) {
        return;
    }
    let mut hasher = DefaultHasher::new();
    (MESSAGE.name, code, text).hash(&mut hasher);
    // SQLite's log has each of them, as it has its own.
    if let Some(missed) = LIMITS.passes(hasher.finish(), MESSAGE.every) {
        let mut fields = vec![("code", code.to_string()), ("text", text.to_owned())];
        if missed > 0 {
            fields.push(("repeated", missed.to_string()));
        }
        sink::write(&MESSAGE, &fields, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_words_and_each_is_there_once() {
        let is_plain = |name: &str| name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        for (place, kind) in EVENTS.iter().enumerate() {
            assert!(is_plain(kind.name), "{}", kind.name);
            let first = EVENTS.iter().position(|other| other.name == kind.name);
            assert_eq!(first, Some(place));
            for (name, meaning) in kind.fields {
                assert!(is_plain(name) && !meaning.is_empty(), "{name}");
            }
        }
    }

    #[test]
    fn the_database_is_the_last_field() {
        let event = Event::new(&RECOVERED, Path::new("/db")).with("frames", 7);
        let event = event.with("us", 8);
        let line = line::of(event.kind.name, &event.fields);
        assert_eq!(line, "event=recovered frames=7 us=8 database=/db");
    }
}
