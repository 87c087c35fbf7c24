//! Pragmas: `journal_mode`, as far as it concerns our modes, and `onewrite_*`.
//!
//! SQLite asks the VFS before it acts on a pragma itself (`SQLITE_FCNTL_PRAGMA`), while the statement
//! is being prepared: also for EXPLAIN, and again when the statement is prepared anew. So every
//! pragma here does the same when it is asked twice.

use std::env;
use std::ffi::c_int;

use super::database::{Database, Settings, Switch, code_of};
use super::host::{Connection, SqlError};
use super::inner::LockLevel;
use super::{convert, ffi, host, status};
use crate::log::{Layout, LogError};
use crate::mode::{Compressing, GroupSynch, InitPolicy, JournalMode, UpgradeOfWal, is_stock_mode};
use crate::storage::DirectIo;
use crate::wal::FRAME_HEADER_BYTES;

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
    fn is_no_fault(&self) -> bool {
        matches!(
            self.code & 0xff,
            ffi::SQLITE_ERROR | ffi::SQLITE_BUSY | ffi::SQLITE_READONLY
        )
    }

    /// Somebody else's lock is in the way.
    fn busy(message: String) -> Failure {
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

fn no_group_synch_in(mode: JournalMode) -> String {
    let why = match mode {
        JournalMode::Direct => ", where stock connections read the log at any moment",
        _ => "",
    };
    format!("onewrite_group_synch: not in journal mode {mode}{why}; use journal_mode=waldio")
}

fn no_compression_in(mode: JournalMode) -> String {
    format!("journal mode {mode} does not compress pages; journal_mode=onewrite and swal do")
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
            "onewrite_make_default" => match super::make_default() {
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

    fn connection_and_schema(&self) -> Result<Option<(Connection, String)>, SqlError> {
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
    fn settle(&self) -> Result<(), SqlError> {
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

    fn journal_mode(&self, value: Option<&str>) -> Answer {
        if self.switch.get() != Switch::Idle {
            // A statement of our own, on the way from one mode to another.
            return Answer::Pass;
        }
        let Some(word) = value.map(str::to_ascii_lowercase) else {
            return match self.settle() {
                Ok(()) => match self.mode() {
                    // SQLite sees its own WAL, and says so.
                    Some(mode) if self.upgrade_of_wal() == Some(mode) => Answer::Pass,
                    Some(mode) => Answer::Text(mode.to_string()),
                    None => Answer::Pass,
                },
                Err(e) => Answer::Fail(self.why(e)),
            };
        };
        if let Some(mode) = JournalMode::from_name(&word) {
            self.mode_was_named.set(true);
            return self.switch_to(mode);
        }
        if !is_stock_mode(&word) {
            // SQLite ignores such a word, and then tells the mode; so do we.
            return self.journal_mode(None);
        }
        if word == "wal"
            && let Some(mode) = self.upgrade_of_wal()
            && let Some(answer) = self.upgrade_wal(mode)
        {
            return answer;
        }
        self.mode_was_named.set(true);
        if word != "wal" {
            self.may_leave_wal.set(true);
        }
        match self.leave_for(&word) {
            Ok(()) => Answer::Pass,
            Err(message) => Answer::Fail(message),
        }
    }

    /// The mode that the environment puts in the place of SQLite's own WAL: `ONEWRITE_UPGRADE_WAL` is
    /// its name, or 1 for the one that `ONEWRITE_JOURNAL_MODE` names.
    fn upgrade_of_wal(&self) -> Option<JournalMode> {
        if convert::is_converting() {
            return None;
        }
        match env::var("ONEWRITE_UPGRADE_WAL").ok()?.parse() {
            Ok(UpgradeOfWal::To(mode)) => Some(mode),
            Ok(UpgradeOfWal::ToWanted) => self.wanted,
            // Told when the database was opened.
            Ok(UpgradeOfWal::No) | Err(_) => None,
        }
    }

    /// The application asks for WAL, knows nothing of us, and may well compare the answer: so it is
    /// "wal". Where the switch is not possible the database gets what was asked for, and the reason
    /// goes to SQLite's log; `None`.
    fn upgrade_wal(&self, mode: JournalMode) -> Option<Answer> {
        match self.switch_to(mode) {
            Answer::Fail(failure) if self.mode().is_none() && failure.is_no_fault() => {
                let database = self.paths.database.display();
                host::log(
                    ffi::SQLITE_WARNING,
                    &format!("{database}: wal instead of {mode}: {}", failure.message),
                );
                None
            }
            // Without a schema's name the pragma is for every attached database: SQLite goes on with
            // those, and finds that this one is in WAL mode.
            Answer::Text(_) => Some(Answer::Pass),
            other => Some(other),
        }
    }

    /// What an application is to be told that it is in.
    fn known_name(&self, mode: JournalMode) -> &'static str {
        match self.upgrade_of_wal() {
            Some(upgrade) if upgrade == mode => "wal",
            _ => mode.name(),
        }
    }

    /// An application that knows nothing of us is told of a failure in SQLite's words, and SQLite's log
    /// in ours.
    fn in_known_words(&self, answer: Answer) -> Answer {
        match answer {
            Answer::Fail(failure)
                if self.upgrade_of_wal().is_some() && failure.code != ffi::SQLITE_ERROR =>
            {
                host::log(failure.code, &failure.message);
                Answer::Fail(Failure {
                    message: String::new(),
                    ..failure
                })
            }
            answer => answer,
        }
    }

    /// Why a statement of ours failed: SQLite's code, and the most telling words.
    fn why(&self, error: SqlError) -> Failure {
        Failure {
            code: error.code,
            message: self.last_error.take().unwrap_or(error.message),
        }
    }

    fn switch_to(&self, mode: JournalMode) -> Answer {
        self.last_error.replace(None);
        match self.try_switch_to(mode) {
            Ok(()) => Answer::Text(mode.to_string()),
            Err(message) => Answer::Fail(message),
        }
    }

    fn try_switch_to(&self, mode: JournalMode) -> Result<(), Failure> {
        let (connection, schema) = self
            .connection_and_schema()
            .map_err(|e| self.why(e))?
            .ok_or("the connection is not known to the VFS")?;
        self.settle().map_err(|e| self.why(e))?;
        if self.mode() == Some(mode) {
            return Ok(());
        }
        if !connection.is_autocommit() {
            return Err(format!("cannot change into {mode} mode from within a transaction").into());
        }
        if self.read_only {
            return Err(
                format!("cannot change into {mode} mode: the database is read-only").into(),
            );
        }
        self.check_suits(mode, connection, &schema)?;
        self.leave_for("delete")?;
        let pragma = |word| connection.query(&format!("PRAGMA {schema}.journal_mode={word}"));
        // From SQLite's own WAL by way of DELETE, so that the way in is always the same.
        self.switch.set(Switch::ToStock);
        let left = self.expect_mode(pragma("delete"), "delete");
        self.switch.set(Switch::Idle);
        left?;
        self.switch.set(Switch::To(mode));
        let entered = self
            .expect_mode(pragma("wal"), "wal")
            .and_then(|()| self.enter(mode, connection, &schema));
        self.switch.set(Switch::Idle);
        if entered.is_err() && self.mode().is_none() {
            // The database says WAL by now, and no log of ours came of it.
            self.switch.set(Switch::ToStock);
            let _ = pragma("delete");
            self.switch.set(Switch::Idle);
        }
        entered
    }

    /// The database is in WAL mode on disk: the next look at it opens our log.
    fn enter(
        &self,
        mode: JournalMode,
        connection: Connection,
        schema: &str,
    ) -> Result<(), Failure> {
        let looked = connection.query(&format!("PRAGMA {schema}.schema_version"));
        looked.map_err(|e| self.why(e))?;
        if self.mode() != Some(mode) || self.writer.borrow().is_none() {
            return Err(Failure::busy(self.last_error.take().unwrap_or_else(|| {
                format!("cannot change into {mode} mode: another connection is using the database")
            })));
        }
        match mode.is_guarded() {
            true => Ok(()),
            false => Ok(self.remember_mode(mode)?),
        }
    }

    fn expect_mode(
        &self,
        result: Result<Option<String>, SqlError>,
        word: &str,
    ) -> Result<(), Failure> {
        match result.map_err(|e| self.why(e))? {
            Some(found) if found == word => Ok(()),
            found => Err(Failure::busy(format!(
                "cannot change the journal mode: it stays {}: another connection may be using the \
                 database",
                found.as_deref().unwrap_or("unknown")
            ))),
        }
    }

    /// A mode must be able to carry the database's pages. An empty database is made to suit it.
    fn check_suits(
        &self,
        mode: JournalMode,
        connection: Connection,
        schema: &str,
    ) -> Result<(), Failure> {
        let settings = self.settings.get();
        if !mode.has_layouts() {
            return match (settings.layout, settings.commit.group_synch) {
                (Some(layout), _) if layout != Layout::Embedded => Err(format!(
                    "journal mode {mode} has a layout of its own: onewrite_layout={layout} is for \
                     journal mode waldio"
                )
                .into()),
                (_, Some(_)) => Err(no_group_synch_in(mode).into()),
                (_, None) => Ok(()),
            };
        }
        if !matches!(settings.layout, None | Some(Layout::Embedded)) {
            return Ok(());
        }
        let needed = FRAME_HEADER_BYTES as u8;
        let mut header = [0; super::guard::HEADER_BYTES];
        match self.inner.read(&mut header, 0) {
            ffi::SQLITE_OK if header[20] >= needed => Ok(()),
            ffi::SQLITE_OK => Err(format!(
                "journal mode waldio keeps each frame's header in {needed} reserved bytes of its \
                 page, and this database reserves {}: convert it with PRAGMA \
                 onewrite_reserve_bytes={needed}; PRAGMA journal_mode=delete; VACUUM; or use PRAGMA \
                 onewrite_layout=page4k first",
                header[20]
            )
            .into()),
            ffi::SQLITE_IOERR_SHORT_READ => {
                connection.reserve_bytes(schema, i32::from(needed));
                Ok(())
            }
            code => Err(Failure {
                code,
                message: format!("cannot read the database header: SQLite's VFS says {code}"),
            }),
        }
    }

    /// Leaves a mode of ours by way of DELETE, and forgets it. SQLite goes on from there.
    fn leave_for(&self, word: &str) -> Result<(), Failure> {
        self.settle().map_err(|e| self.why(e))?;
        let Some(mode) = self.mode() else {
            return match self.read_only || !self.paths.log.exists() {
                true => Ok(()),
                // A remembered mode that is not in use, because it could not be.
                false => self.forget_unused(word),
            };
        };
        let (connection, schema) = self
            .connection_and_schema()
            .map_err(|e| self.why(e))?
            .ok_or("the connection is not known to the VFS")?;
        if !connection.is_autocommit() {
            return Err(format!(
                "cannot change out of {} mode from within a transaction",
                self.known_name(mode)
            )
            .into());
        }
        self.switch.set(Switch::ToStock);
        self.unguard_failure.replace(None);
        let left = connection.query(&format!("PRAGMA {schema}.journal_mode=delete"));
        self.switch.set(Switch::Idle);
        let left = self
            .expect_mode(left, "delete")
            .and_then(|()| self.check_unguarded());
        left.map_err(|e| Failure {
            message: format!("cannot change from {mode} to {word} mode: {}", e.message),
            ..e
        })?;
        match mode.is_guarded() {
            true => Ok(()),
            false => self.forget_unused(word),
        }
    }

    /// SQLite ignores an error of `xDelete`, and says "delete" all the same.
    fn check_unguarded(&self) -> Result<(), Failure> {
        let Some((code, message)) = self.unguard_failure.take() else {
            return Ok(());
        };
        // With `locking_mode=EXCLUSIVE` there would be no first lock, which finds the guard again.
        self.must_look_again
            .set(self.is_guarded() && self.lock.get() != LockLevel::NONE);
        Err(Failure { code, message })
    }

    fn forget_unused(&self, word: &str) -> Result<(), Failure> {
        match self.forget_unused_mode()? {
            true => Ok(()),
            false => Err(Failure::busy(format!(
                "cannot change to {word} mode: another connection has changed the journal mode just \
                 now"
            ))),
        }
    }
}

fn unknown_setting(name: &str) -> String {
    format!(
        "there is no PRAGMA onewrite_{name}: there are onewrite_status, onewrite_layout, \
         onewrite_sync, onewrite_init, onewrite_compression, onewrite_differences, \
         onewrite_group_commit, onewrite_read_durable, onewrite_group_synch, onewrite_direct_io, \
         onewrite_reserve_bytes and onewrite_make_default"
    )
}
