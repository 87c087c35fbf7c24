//! Pragmas: `journal_mode`, as far as it concerns our modes, and `onewrite_*`.
//!
//! SQLite asks the VFS before it acts on a pragma itself (`SQLITE_FCNTL_PRAGMA`), while the
//! statement is being prepared. It asks also for EXPLAIN, and again when the statement is prepared
//! again. So every pragma here has the same effect when it is asked twice.

use std::ffi::c_int;

use super::database::{Database, code_of};
use super::host::{Connection, SqlError};
use super::inner::LockLevel;
use super::settings::{self, SETTINGS, Setting};
use super::{environment, ffi, metrics, status};
use crate::log::LogError;
use crate::mode::JournalMode;
use crate::mode::words::listed;

/// The outcome of a pragma.
pub enum Answer {
    /// SQLite continues with it.
    Pass,
    /// SQLite continues with this digit as the pragma's value.
    PassAs(u8),
    /// The pragma's result.
    Text(String),
    /// The statement fails.
    Fail(Failure),
}

/// Why a pragma fails: a message, and SQLite's result code, which tells an application whether
/// another try may succeed.
pub struct Failure {
    pub code: c_int,
    /// Empty: SQLite's own text for the code.
    pub message: String,
}

impl Failure {
    /// Whether the switch only does not fit the moment or the database, without a fault.
    pub(super) fn is_no_fault(&self) -> bool {
        matches!(
            self.code & 0xff,
            ffi::SQLITE_ERROR | ffi::SQLITE_BUSY | ffi::SQLITE_READONLY
        )
    }

    /// Another connection's lock is in the way.
    pub(super) fn busy(message: String) -> Failure {
        Failure {
            code: ffi::SQLITE_BUSY,
            message,
        }
    }
}

/// A wrong word, or a wrong moment: another try does not help.
impl From<String> for Failure {
    fn from(message: String) -> Failure {
        Failure {
            code: ffi::SQLITE_ERROR,
            message,
        }
    }
}

impl From<&str> for Failure {
    fn from(message: &str) -> Failure {
        message.to_owned().into()
    }
}

impl From<LogError> for Failure {
    fn from(error: LogError) -> Failure {
        Failure {
            code: code_of(error.kind()),
            message: error.to_string(),
        }
    }
}

/// One of our pragmas that sets nothing.
pub(super) struct Command {
    pub pragma: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// The values that `run` gets. Others are refused.
    takes: fn(&str) -> bool,
    run: fn(&Database, Option<&str>) -> Answer,
}

/// All of them; the others are [`SETTINGS`].
pub(super) static COMMANDS: [Command; 5] = [
    Command {
        pragma: "onewrite_status",
        help: "what is in use and why, as one JSON object",
        takes: |_| false,
        run: |database, _| database.status_pragma(),
    },
    Command {
        pragma: "onewrite_metrics",
        help: "counters, ages and commit latency, as text for Prometheus",
        takes: |_| false,
        run: |database, _| database.metrics_pragma(),
    },
    Command {
        pragma: "onewrite_help",
        help: "the pragmas, their values, and what is set, as text",
        takes: |_| false,
        run: |database, _| Answer::Text(help(database)),
    },
    Command {
        pragma: "onewrite_reserve_bytes",
        help: "SQLite's reserved bytes of each page, 0 to 255; VACUUM applies them",
        takes: |_| true,
        run: Database::reserve_bytes,
    },
    Command {
        pragma: "onewrite_make_default",
        help: "opens the databases of this process with onewrite where no VFS is named",
        // No value ends it.
        takes: |value| {
            ["on", "1", "yes", "true"]
                .iter()
                .any(|on| on.eq_ignore_ascii_case(value))
        },
        run: |database, _| match super::make_default(database.host) {
            true => Answer::Text("onewrite".into()),
            false => Answer::Fail("onewrite cannot be made the default VFS".into()),
        },
    },
];

impl Database {
    /// Answers `PRAGMA name` or `PRAGMA name=value`.
    pub fn pragma(&self, name: &str, value: Option<&str>) -> Answer {
        let name = name.to_ascii_lowercase();
        match name.as_str() {
            "journal_mode" => {
                let answer = self.journal_mode(value);
                match value.and_then(JournalMode::from_name) {
                    // An application that names one of our modes knows our words.
                    Some(_) => answer,
                    None => self.in_known_words(answer),
                }
            }
            "synchronous" => value.map_or(Answer::Pass, |value| self.set_synchronous(value)),
            _ if name.starts_with("onewrite_") => self.pragma_of_ours(&name, value),
            _ => Answer::Pass,
        }
    }

    fn pragma_of_ours(&self, name: &str, value: Option<&str>) -> Answer {
        if let Some(command) = COMMANDS.iter().find(|command| command.pragma == name) {
            return match value.filter(|value| !(command.takes)(value)) {
                Some(value) => Answer::Fail(
                    format!("{name}: unknown value '{value}': leave the value out").into(),
                ),
                None => (command.run)(self, value),
            };
        }
        let Some(setting) = Setting::of(name) else {
            return Answer::Fail(unknown_pragma(name).into());
        };
        if let Some(Err(message)) = value.map(|value| self.set(setting, value)) {
            return Answer::Fail(message.into());
        }
        if setting.pragma == settings::SYNCHRONOUS
            && value.is_some()
            && let Err(failure) = self.raise_to_floor()
        {
            return Answer::Fail(failure);
        }
        Answer::Text(self.setting(setting))
    }

    fn status_pragma(&self) -> Answer {
        self.enter_requested_if_new();
        // A status without the database's mode would be of little use. But it must work even if the
        // database cannot be read.
        let is_readable = self.settle().is_ok();
        Answer::Text(status::json(self, is_readable))
    }

    fn metrics_pragma(&self) -> Answer {
        // As for the status.
        let _ = self.settle();
        Answer::Text(metrics::text(self))
    }

    fn reserve_bytes(&self, value: Option<&str>) -> Answer {
        let (connection, schema) = match self.connection_and_schema() {
            Ok(Some(both)) => both,
            Ok(None) => {
                return Answer::Fail("onewrite_reserve_bytes: the connection is not known".into());
            }
            Err(e) => return Answer::Fail(self.why(e)),
        };
        let wanted = match value.map(str::parse::<i32>) {
            None => -1,
            Some(Ok(bytes @ 0..=255)) => bytes,
            Some(_) => return Answer::Fail("onewrite_reserve_bytes takes 0 to 255 bytes".into()),
        };
        connection.reserve_bytes(&schema, wanted);
        Answer::Text(connection.reserve_bytes(&schema, -1).to_string())
    }

    pub(super) fn connection_and_schema(&self) -> Result<Option<(Connection, String)>, SqlError> {
        let Some(connection) = self.connection.get() else {
            return Ok(None);
        };
        let schema = connection.schema().map_err(|code| SqlError {
            code,
            message: String::new(),
        })?;
        Ok(schema.map(|schema| (connection, schema)))
    }

    /// Makes SQLite look at the database once, so that its mode is known.
    pub(super) fn settle(&self) -> Result<(), SqlError> {
        if self.lock.get() != LockLevel::NONE {
            return Ok(());
        }
        let Some((connection, schema)) = self.connection_and_schema()? else {
            return Ok(());
        };
        connection
            .query(&format!("PRAGMA {schema}.schema_version"))
            .map(drop)
    }
}

fn unknown_pragma(name: &str) -> String {
    let settings = SETTINGS.iter().map(|setting| setting.pragma);
    let commands = COMMANDS.iter().map(|command| command.pragma);
    let all: Vec<&str> = settings.chain(commands).collect();
    format!("unknown PRAGMA {name}: use {}", listed(&all, "or"))
}

fn help(database: &Database) -> String {
    let commands = COMMANDS.iter().map(|command| {
        let Command { pragma, help, .. } = command;
        format!("{pragma}: {help}\n")
    });
    let variables = environment::ALL.iter().flat_map(|variable| {
        let each = |(value, effect): &(_, _)| format!("{}={value}: {effect}\n", variable.name);
        variable.values.iter().map(each)
    });
    let text: String = commands.chain(variables).collect();
    (settings::help(database) + &text).trim_end().to_owned()
}
