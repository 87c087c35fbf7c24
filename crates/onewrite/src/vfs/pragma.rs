//! Pragmas: `journal_mode`, as far as it concerns our modes, and `onewrite_*`.
//!
//! SQLite asks the VFS before it acts on a pragma itself (`SQLITE_FCNTL_PRAGMA`), while the statement
//! is being prepared: also for EXPLAIN, and again when the statement is prepared anew. So every
//! pragma here does the same when it is asked twice.

use std::ffi::c_int;

use super::database::{Database, Settings, code_of};
use super::host::{Connection, SqlError};
use super::inner::LockLevel;
use super::{ffi, status};
use crate::log::LogError;
use crate::mode::{CheckpointPolicy, Compressing, GroupSynch, InitPolicy, JournalMode, Layout};
use crate::storage::DirectIo;

/// What becomes of a pragma.
pub enum Answer {
    /// SQLite goes on with it.
    Pass,
    /// The pragma's result.
    Text(String),
    /// The statement fails.
    Fail(Failure),
}

/// Why a pragma fails: SQLite's result code, which tells an application whether trying again would
/// help, and a message.
pub struct Failure {
    pub code: c_int,
    /// Empty: SQLite's own words for the code.
    pub message: String,
}

impl Failure {
    /// The switch does not suit the moment or the database; nothing has gone wrong.
    pub(super) fn is_no_fault(&self) -> bool {
        matches!(
            self.code & 0xff,
            ffi::SQLITE_ERROR | ffi::SQLITE_BUSY | ffi::SQLITE_READONLY
        )
    }

    /// Somebody else's lock is in the way.
    pub(super) fn busy(message: String) -> Failure {
        Failure {
            code: ffi::SQLITE_BUSY,
            message,
        }
    }
}

/// A wrong word, or a wrong moment: trying again does not help.
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

/// What of two a word says, as SQLite reads a boolean.
fn switch_word(name: &str, value: &str, or: &str) -> Result<bool, String> {
    match value.to_ascii_lowercase().as_str() {
        "on" | "1" | "yes" | "true" => Ok(true),
        "off" | "0" | "no" | "false" => Ok(false),
        _ => Err(format!(
            "onewrite_{name}: unknown value '{value}': use on, off{or}"
        )),
    }
}

pub(super) fn no_group_synch_in(mode: JournalMode) -> String {
    let why = match mode {
        JournalMode::Direct => ", where stock connections read the log at any moment",
        _ => "",
    };
    format!("onewrite_group_synch: not in journal mode {mode}{why}; use journal_mode=waldio")
}

fn no_compression_in(mode: JournalMode) -> String {
    format!("journal mode {mode} does not compress pages; journal_mode=onewrite and swal do")
}

pub(super) fn no_remapping_in(mode: JournalMode) -> String {
    format!(
        "onewrite_checkpoint: the log of journal mode {mode} does not hold pages as the database does; \
         use journal_mode=onewrite or waldio"
    )
}

impl Database {
    /// Answers `PRAGMA name` or `PRAGMA name=value`.
    pub fn pragma(&self, name: &str, value: Option<&str>) -> Answer {
        let name = name.to_ascii_lowercase();
        match name.as_str() {
            "journal_mode" => self.in_known_words(self.journal_mode(value)),
            "synchronous" => {
                if let Some(value) = value {
                    self.synchronous_changed(value);
                }
                Answer::Pass
            }
            "onewrite_status" => self.status_pragma(),
            "onewrite_reserve_bytes" => self.reserve_bytes(value),
            "onewrite_make_default" => match super::make_default(self.host) {
                true => Answer::Text("onewrite".into()),
                false => Answer::Fail("onewrite cannot be made the default VFS".into()),
            },
            _ => match (name.strip_prefix("onewrite_"), value) {
                (Some(setting), None) => self.setting(setting),
                (Some(setting), Some(value)) => match self.set(setting, value) {
                    Ok(()) => self.setting(setting),
                    Err(message) => Answer::Fail(message.into()),
                },
                (None, _) => Answer::Pass,
            },
        }
    }

    fn synchronous_changed(&self, value: &str) {
        if let Some(writer) = self.writer.borrow_mut().as_mut() {
            writer.synchronous_changed();
        }
        let below_full = [
            "0", "off", "no", "false", "1", "normal", "on", "yes", "true",
        ];
        let value = value.to_ascii_lowercase();
        self.reads_relaxed.set(below_full.contains(&value.as_str()));
    }

    fn setting(&self, name: &str) -> Answer {
        let settings = self.settings.get();
        Answer::Text(match name {
            "layout" => {
                let in_use = self.log().map(|log| log.geometry().layout());
                in_use
                    .or(settings.layout)
                    .unwrap_or(Layout::Embedded)
                    .to_string()
            }
            "sync" => settings.commit.sync.to_string(),
            "init" => settings.init.to_string(),
            "group_synch" => settings
                .commit
                .group_synch
                .map_or("off".into(), |group| group.to_string()),
            "group_commit" => match settings.commit.group_commit {
                None => "auto",
                Some(true) => "on",
                Some(false) => "off",
            }
            .into(),
            "read_durable" => match settings.read_durable {
                true => "on",
                false => "off",
            }
            .into(),
            "compression" => settings.commit.compressing.with.to_string(),
            "differences" => settings.commit.compressing.differences.to_string(),
            "checkpoint" => settings.checkpoint.to_string(),
            "direct_io" => match settings.direct {
                DirectIo::Auto => "auto".into(),
                DirectIo::Never => "off".into(),
            },
            _ => return Answer::Fail(unknown_setting(name).into()),
        })
    }

    /// Sets what `onewrite_<name>` stands for; also for URI parameters.
    pub fn set(&self, name: &str, value: &str) -> Result<(), String> {
        let in_words = |e: crate::mode::UnknownWord| format!("onewrite_{name}: {e}");
        match name {
            "layout" => {
                // `auto` leaves it to the log, or to the mode.
                let layout: Option<Layout> = match value.eq_ignore_ascii_case("auto") {
                    true => None,
                    false => Some(value.parse().map_err(in_words)?),
                };
                self.only_before_the_log("layout", |log| {
                    layout.is_none_or(|layout| log.geometry().layout() == layout)
                })?;
                self.change(|settings| settings.layout = layout);
            }
            "init" => {
                let init: InitPolicy = value.parse().map_err(in_words)?;
                self.only_before_the_log("init", |log| match init {
                    InitPolicy::Auto => true,
                    InitPolicy::Always(init) => log.init() == init,
                })?;
                self.change(|settings| settings.init = init);
            }
            "direct_io" => {
                let direct = match value.to_ascii_lowercase().as_str() {
                    "auto" | "on" | "1" => DirectIo::Auto,
                    "off" | "0" => DirectIo::Never,
                    _ => {
                        return Err(format!(
                            "onewrite_direct_io: unknown value '{value}': use auto or off"
                        ));
                    }
                };
                self.only_before_the_log("direct_io", |log| {
                    log.file().direct().is_some() == (direct == DirectIo::Auto)
                })?;
                self.change(|settings| settings.direct = direct);
            }
            "checkpoint" => {
                let policy: CheckpointPolicy = value.parse().map_err(in_words)?;
                if policy.needs_gathered() {
                    let refuses = self.mode().filter(|mode| !mode.may_have(Layout::Gathered));
                    if let Some(mode) = refuses {
                        return Err(no_remapping_in(mode));
                    }
                    self.only_before_the_log("checkpoint", |log| {
                        log.geometry().layout() == Layout::Gathered
                    })?;
                }
                self.change(|settings| settings.checkpoint = policy);
            }
            "sync" => {
                let sync = value.parse().map_err(in_words)?;
                self.change(|settings| settings.commit.sync = sync);
                self.apply_commit_settings()?;
            }
            "group_synch" => {
                let group = GroupSynch::parse(value).map_err(in_words)?;
                let refuses = self.mode().filter(|mode| !mode.may_group());
                if let Some(mode) = refuses.filter(|_| group.is_some()) {
                    return Err(no_group_synch_in(mode));
                }
                self.change(|settings| settings.commit.group_synch = group);
                self.apply_commit_settings()?;
            }
            "group_commit" => {
                let wanted = match value.eq_ignore_ascii_case("auto") {
                    true => None,
                    false => Some(switch_word(name, value, " or auto")?),
                };
                let refuses = self.mode().filter(|mode| !mode.may_group_commits());
                if let (Some(mode), Some(true)) = (refuses, wanted) {
                    return Err(format!(
                        "onewrite_group_commit: not in journal mode {mode}, where stock connections \
                         read the log at any moment; use journal_mode=onewrite"
                    ));
                }
                self.change(|settings| settings.commit.group_commit = wanted);
                self.apply_commit_settings()?;
            }
            "read_durable" => {
                let wanted = switch_word(name, value, "")?;
                self.change(|settings| settings.read_durable = wanted);
            }
            "compression" => {
                let with = value.parse().map_err(in_words)?;
                self.set_compressing(name, |how| Compressing { with, ..how })?;
            }
            "differences" => {
                let differences = value.parse().map_err(in_words)?;
                self.set_compressing(name, |how| Compressing { differences, ..how })?;
            }
            _ => return Err(unknown_setting(name)),
        }
        Ok(())
    }

    /// Every record tells how it is compressed, so that this may change at any time.
    fn set_compressing(
        &self,
        name: &str,
        change: impl FnOnce(Compressing) -> Compressing,
    ) -> Result<(), String> {
        if let Some(mode) = self.mode().filter(|mode| !mode.compresses()) {
            return Err(format!("onewrite_{name}: {}", no_compression_in(mode)));
        }
        self.change(|settings| {
            settings.commit.compressing = change(settings.commit.compressing);
        });
        self.apply_commit_settings()
    }

    /// A log is what it was made as: settings that shape it come before it is in use.
    fn only_before_the_log(
        &self,
        name: &str,
        same: impl FnOnce(&crate::log::Log) -> bool,
    ) -> Result<(), String> {
        match self.log() {
            Some(log) if !same(&log) => Err(format!(
                "onewrite_{name}: the log is in use: PRAGMA journal_mode=delete, then set it, then \
                 PRAGMA journal_mode={}",
                log.mode()
            )),
            _ => Ok(()),
        }
    }

    fn apply_commit_settings(&self) -> Result<(), String> {
        let mut writer = self.writer.borrow_mut();
        let Some(writer) = writer.as_mut() else {
            return Ok(());
        };
        writer.drain().map_err(|e| e.to_string())?;
        writer.config = self.settings.get().commit;
        Ok(())
    }

    fn change(&self, change: impl FnOnce(&mut Settings)) {
        let mut settings = self.settings.get();
        change(&mut settings);
        self.settings.set(settings);
    }

    fn status_pragma(&self) -> Answer {
        // A status without the database's mode would be of little use; but it must be given also
        // where the database cannot be read.
        let _ = self.settle();
        Answer::Text(status::json(self))
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

fn unknown_setting(name: &str) -> String {
    format!(
        "there is no PRAGMA onewrite_{name}: there are onewrite_status, onewrite_layout, \
         onewrite_sync, onewrite_init, onewrite_compression, onewrite_differences, \
         onewrite_group_commit, onewrite_read_durable, onewrite_group_synch, onewrite_checkpoint, \
         onewrite_direct_io, onewrite_reserve_bytes and onewrite_make_default"
    )
}
