//! The settings of a connection: one table.
//!
//! Everything that names a setting comes from it: the pragmas, the URI parameters, the environment
//! variables, `onewrite_status`, `onewrite_help`, the error texts and `docs/reference/settings.md`. A new
//! setting is a row here, a field in [`Settings`], and the code that obeys it.

mod choice;
#[cfg(test)]
mod page;
mod wanted;

use serde::{Serialize, Serializer};

use super::database::Database;
use super::environment;
use crate::commit::CommitConfig;
use crate::log::Log;
use crate::mode::policy::LAYOUTS;
use crate::mode::words::{OFF, ON, Word, listed};
use crate::mode::{
    CheckpointPolicy, Compression, Differences, Floor, Goal, GroupSynch, InitPolicy, JournalMode,
    Layout, Linger, Region, StallLimit, SyncPolicy,
};
use crate::storage::DirectIo;
use choice::{Choice, Optional, Takes};
use wanted::UPGRADE_IN_URI;
pub(super) use wanted::{
    check_modes, is_set, is_wrong, mode_of_uri, upgrade_of_uri, wanted_mode, warn_of_unsuited,
};

/// The beginning of every setting's name.
const PREFIX: &str = "onewrite_";

/// The floor of `synchronous`. In `onewrite_status` the name has the level that holds.
pub(super) const SYNCHRONOUS: &str = "onewrite_synchronous";

/// The settings of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// `onewrite_layout`; `None` keeps the log's present one.
    pub layout: Option<Layout>,
    pub init: InitPolicy,
    pub commit: CommitConfig,
    pub direct: DirectIo,
    /// `onewrite_read_durable`.
    pub read_durable: bool,
    /// `onewrite_checkpoint`.
    pub checkpoint: CheckpointPolicy,
    /// `onewrite_region`; `None` is the log's own.
    pub region: Option<Region>,
    /// `onewrite_background_checkpoint`; `None` leaves it to the mode.
    pub background: Option<bool>,
    /// `onewrite_linger`.
    pub linger: Option<Linger>,
    /// `onewrite_stall_log`.
    pub stall_log: Option<StallLimit>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            layout: None,
            init: InitPolicy::default(),
            commit: CommitConfig::default(),
            direct: DirectIo::Auto,
            read_durable: true,
            checkpoint: CheckpointPolicy::default(),
            region: None,
            background: None,
            linger: None,
            stall_log: None,
        }
    }
}

/// The parameters of the URI that a database is opened with, by name.
pub(super) type Uri<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A row of the table.
pub struct Setting {
    /// The pragma, which is the URI parameter too.
    pub pragma: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// The values that it takes, and the field that holds them. The default is the field's default.
    takes: &'static dyn Takes,
    /// Whether the environment can set it, by the pragma's name in capitals.
    in_environment: bool,
    /// Whether it shapes a new log, so that it must be set before `journal_mode`.
    shapes_log: bool,
    /// The modes that obey it.
    modes: fn(JournalMode) -> bool,
    /// The value in `onewrite_status` under the setting's name: the one in use, or null.
    in_use: fn(&Setting, &Database) -> Shown,
}

/// The value of a setting in `onewrite_status`.
#[derive(Serialize)]
#[serde(untagged)]
enum Shown {
    Null,
    Flag(bool),
    Word(String),
}

impl From<bool> for Shown {
    fn from(flag: bool) -> Shown {
        Shown::Flag(flag)
    }
}

impl From<String> for Shown {
    fn from(word: String) -> Shown {
        Shown::Word(word)
    }
}

impl<T: Into<Shown>> From<Option<T>> for Shown {
    fn from(value: Option<T>) -> Shown {
        value.map_or(Shown::Null, T::into)
    }
}

/// The table.
pub static SETTINGS: [Setting; 16] = [
    Setting {
        pragma: SYNCHRONOUS,
        help: "a level of `synchronous` below which no commit falls, whatever the program says",
        takes: &Choice {
            words: &Floor::WORDS,
            get: |settings| settings.commit.floor,
            put: |settings, floor| settings.commit.floor = floor,
            check: |_, database, floor| database.check_floor(floor),
        },
        in_environment: true,
        shapes_log: false,
        modes: any_mode,
        in_use: as_set,
    },
    Setting {
        pragma: "onewrite_sync",
        help: "what a commit at synchronous=FULL does",
        takes: &Choice {
            words: &SyncPolicy::WORDS,
            get: |settings| settings.commit.sync,
            put: |settings, sync| settings.commit.sync = sync,
            check: |_, _, _| Ok(()),
        },
        in_environment: false,
        shapes_log: false,
        modes: any_mode,
        in_use: as_set,
    },
    Setting {
        pragma: "onewrite_group_commit",
        help: "whether durable commits of several connections share a write and a flush",
        takes: &Choice {
            words: &[
                Word::new("auto", None, "on in `onewrite` and `direct`, else off"),
                Word::new("on", Some(true), "they do").or(ON),
                Word::new("off", Some(false), "they do not").or(OFF),
            ],
            get: |settings| settings.commit.group_commit,
            put: |settings, wanted| settings.commit.group_commit = wanted,
            check: |_, _, _| Ok(()),
        },
        in_environment: false,
        shapes_log: false,
        modes: any_mode,
        in_use: |_, database| {
            let commit = database.settings.get().commit;
            let groups = |mode| commit.groups_commits(mode);
            on_or_off(database.mode().is_some_and(groups))
                .to_owned()
                .into()
        },
    },
    Setting {
        pragma: "onewrite_read_durable",
        help: "whether a statement that only reads waits, at FULL, until the commits that it is \
               about to see are durable",
        takes: &Choice {
            words: &[
                Word::new("on", true, "it waits").or(ON),
                Word::new("off", false, "it does not").or(OFF),
            ],
            get: |settings| settings.read_durable,
            put: |settings, waits| settings.read_durable = waits,
            check: |_, _, _| Ok(()),
        },
        in_environment: false,
        shapes_log: false,
        modes: any_mode,
        in_use: as_set,
    },
    Setting {
        pragma: "onewrite_group_synch",
        help: "whether a COMMIT returns before its write; a crash can lose these commits",
        takes: &Optional {
            none: ("off", "every COMMIT writes"),
            form: GroupSynch::FORM,
            parse: GroupSynch::parse,
            get: |settings| settings.commit.group_synch,
            put: |settings, group| settings.commit.group_synch = group,
            check: |setting, database| setting.only_in_its_modes(database, no_group_synch_in),
        },
        in_environment: false,
        shapes_log: false,
        modes: JournalMode::may_defer_durability,
        in_use: |_, database| {
            let group = database.settings.get().commit.group_synch;
            group.map(|group| group.to_string()).into()
        },
    },
    Setting {
        pragma: "onewrite_compression",
        help: "how pages are compressed",
        takes: &Choice {
            words: &Compression::WORDS,
            get: |settings| settings.commit.compressing.with,
            put: |settings, with| settings.commit.compressing.with = with,
            // Each record gives its own compression, so this may change at any time.
            check: |setting, database, _| setting.only_in_its_modes(database, no_compression_in),
        },
        in_environment: true,
        shapes_log: false,
        modes: JournalMode::compresses,
        in_use: where_pages_are_compressed,
    },
    Setting {
        pragma: "onewrite_goal",
        help: "how much processor time a commit may spend to save blocks, with compression `auto`",
        takes: &Choice {
            words: &Goal::WORDS,
            get: |settings| settings.commit.compressing.goal,
            put: |settings, goal| settings.commit.compressing.goal = goal,
            check: |setting, database, _| setting.only_in_its_modes(database, no_compression_in),
        },
        in_environment: true,
        shapes_log: false,
        modes: JournalMode::compresses,
        in_use: where_pages_are_compressed,
    },
    Setting {
        pragma: "onewrite_differences",
        help: "whether a page that was logged before is held as its difference from that",
        takes: &Choice {
            words: &Differences::WORDS,
            get: |settings| settings.commit.compressing.differences,
            put: |settings, held| settings.commit.compressing.differences = held,
            check: |setting, database, _| setting.only_in_its_modes(database, no_compression_in),
        },
        in_environment: false,
        shapes_log: false,
        modes: JournalMode::compresses,
        in_use: where_pages_are_compressed,
    },
    Setting {
        pragma: "onewrite_checkpoint",
        help: "how a checkpoint brings pages from the log into the database",
        takes: &Choice {
            words: &CheckpointPolicy::WORDS,
            get: |settings| settings.checkpoint,
            put: |settings, policy| settings.checkpoint = policy,
            check: |setting, database, policy| {
                if !policy.needs_gathered() {
                    return Ok(());
                }
                setting.only_in_its_modes(database, no_remapping_in)?;
                setting.only_before_the_log(database, |log| {
                    log.geometry().layout() == Layout::Gathered
                })
            },
        },
        in_environment: true,
        shapes_log: true,
        modes: |mode| mode.may_have(Layout::Gathered),
        in_use: as_set,
    },
    Setting {
        pragma: "onewrite_region",
        help: "the consecutive blocks that a log takes after a checkpoint, with checkpoint `forward`",
        takes: &Optional {
            none: (Region::AUTO, "24 MiB at the end of the log, made once"),
            form: Region::FORM,
            parse: Region::parse,
            get: |settings| settings.region,
            put: |settings, region| settings.region = region,
            check: |setting, database| setting.only_in_its_modes(database, no_remapping_in),
        },
        in_environment: true,
        shapes_log: false,
        modes: |mode| mode.may_have(Layout::Gathered),
        in_use: as_set,
    },
    Setting {
        pragma: "onewrite_background_checkpoint",
        help: "whether a thread runs the automatic checkpoints, so that no commit does",
        takes: &Choice {
            words: &[
                Word::new(
                    "auto",
                    None,
                    "on in `onewrite` and `swal` with SQLite's own VFS underneath, else off",
                ),
                Word::new("on", Some(true), "a thread of the process does").or(ON),
                Word::new(
                    "off",
                    Some(false),
                    "a commit that reaches `wal_autocheckpoint` does",
                )
                .or(OFF),
            ],
            get: |settings| settings.background,
            put: |settings, wanted| settings.background = wanted,
            check: |_, _, _| Ok(()),
        },
        in_environment: true,
        shapes_log: false,
        modes: any_mode,
        in_use: |_, database| {
            on_or_off(database.checkpoints_by_thread())
                .to_owned()
                .into()
        },
    },
    Setting {
        pragma: "onewrite_linger",
        help: "when the database is closed: the process may keep it open after its last connection",
        takes: &Optional {
            none: ("off", "with its last connection"),
            form: Linger::FORM,
            parse: Linger::parse,
            get: |settings| settings.linger,
            put: |settings, linger| settings.linger = linger,
            check: |setting, database| setting.only_in_its_modes(database, no_linger_in),
        },
        in_environment: true,
        shapes_log: false,
        modes: JournalMode::is_guarded,
        in_use: |_, database| {
            let linger = database.settings.get().linger;
            let linger = linger.filter(|_| database.is_guarded());
            linger.map(|linger| linger.to_string()).into()
        },
    },
    Setting {
        pragma: "onewrite_layout",
        help: "how frames lie in the log",
        takes: &Choice {
            words: &LAYOUTS,
            get: |settings| settings.layout,
            put: |settings, layout| settings.layout = layout,
            check: |setting, database, layout| {
                if let (Some(mode), Some(layout)) = (database.mode(), layout)
                    && !mode.may_have(layout)
                {
                    return Err(setting.named(&no_layout_in(mode, layout)));
                }
                setting.only_before_the_log(database, |log| {
                    layout.is_none_or(|layout| log.geometry().layout() == layout)
                })
            },
        },
        in_environment: true,
        shapes_log: true,
        modes: |mode| mode.may_have(Layout::Gathered),
        in_use: |_, database| {
            let log = database.log();
            log.map(|log| log.geometry().layout().to_string()).into()
        },
    },
    Setting {
        pragma: "onewrite_init",
        help: "how the log's blocks are made ready for writes that allocate nothing",
        takes: &Choice {
            words: &InitPolicy::WORDS,
            get: |settings| settings.init,
            put: |settings, init| settings.init = init,
            check: |setting, database, init| {
                setting.only_before_the_log(database, |log| match init {
                    InitPolicy::Auto => true,
                    InitPolicy::Always(init) => log.init() == init,
                })
            },
        },
        in_environment: false,
        shapes_log: true,
        modes: any_mode,
        in_use: |_, database| database.log().map(|log| log.init().to_string()).into(),
    },
    Setting {
        pragma: "onewrite_direct_io",
        help: "whether the log is written past the page cache",
        takes: &Choice {
            words: &[
                Word::new("auto", DirectIo::Auto, "where the file system can do it")
                    .or(&["on", "1", "yes", "true"]),
                Word::new("off", DirectIo::Never, "never").or(OFF),
            ],
            get: |settings| settings.direct,
            put: |settings, direct| settings.direct = direct,
            check: |setting, database, direct| {
                setting.only_before_the_log(database, |log| {
                    log.file().direct().is_some() == (direct == DirectIo::Auto)
                })
            },
        },
        in_environment: false,
        shapes_log: true,
        modes: JournalMode::writes_directly,
        in_use: |_, database| {
            let log = database.log();
            log.map(|log| log.file().direct().is_some()).into()
        },
    },
    Setting {
        pragma: "onewrite_stall_log",
        help: "from which time on a commit writes an event that says what it waited for",
        takes: &Optional {
            none: ("off", "no commit writes an event"),
            form: StallLimit::FORM,
            parse: StallLimit::parse,
            get: |settings| settings.stall_log,
            put: |settings, limit| settings.stall_log = limit,
            check: |_, _| Ok(()),
        },
        in_environment: true,
        shapes_log: false,
        modes: any_mode,
        in_use: |_, database| {
            let limit = database.settings.get().stall_log;
            limit.map(|limit| limit.to_string()).into()
        },
    },
];

fn any_mode(_: JournalMode) -> bool {
    true
}

fn as_set(setting: &Setting, database: &Database) -> Shown {
    setting.takes.printed(&database.settings.get()).into()
}

fn where_pages_are_compressed(setting: &Setting, database: &Database) -> Shown {
    match database.mode().is_some_and(JournalMode::compresses) {
        true => as_set(setting, database),
        false => Shown::Null,
    }
}

fn on_or_off(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

fn no_group_synch_in(mode: JournalMode) -> String {
    let why = match mode {
        JournalMode::Direct => ", where stock connections read the log at any moment",
        _ => "",
    };
    format!("not in journal mode {mode}{why}; use journal_mode=waldio")
}

fn no_compression_in(mode: JournalMode) -> String {
    format!("journal mode {mode} does not compress pages; journal_mode=onewrite and swal do")
}

pub(super) fn no_linger_in(mode: JournalMode) -> String {
    format!(
        "not in journal mode {mode}, which has no guard: a database that is put in its place would get its log"
    )
}

fn no_layout_in(mode: JournalMode, layout: Layout) -> String {
    format!("journal mode {mode} has a layout of its own; {layout} is for journal_mode=waldio")
}

fn no_remapping_in(mode: JournalMode) -> String {
    format!(
        "the log of journal mode {mode} does not hold pages as the database does; use \
         journal_mode=onewrite or waldio"
    )
}

impl Setting {
    /// The setting of this pragma.
    pub fn of(pragma: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| setting.pragma == pragma)
    }

    /// Its name in `onewrite_status`.
    pub fn name(&self) -> &'static str {
        self.pragma.trim_start_matches(PREFIX)
    }

    /// The words that it takes with their meanings, or the form of a value that is not a word.
    pub fn values(&self) -> Vec<(&'static str, &'static str)> {
        self.takes.values()
    }

    pub(super) fn variable(&self) -> Option<String> {
        self.in_environment
            .then(|| self.pragma.to_ascii_uppercase())
    }

    fn only_in_its_modes(
        &self,
        database: &Database,
        why_not: fn(JournalMode) -> String,
    ) -> Result<(), String> {
        match database.mode().filter(|mode| !(self.modes)(*mode)) {
            Some(mode) => Err(self.named(&why_not(mode))),
            None => Ok(()),
        }
    }

    /// A log keeps the settings that it was made with: those that shape it come before it is in
    /// use.
    fn only_before_the_log(
        &self,
        database: &Database,
        same: impl FnOnce(&Log) -> bool,
    ) -> Result<(), String> {
        match database.log() {
            Some(log) if !same(&log) => Err(self.named(&format!(
                "the log is in use: PRAGMA journal_mode=delete, then set it, then PRAGMA \
                 journal_mode={}",
                log.mode()
            ))),
            _ => Ok(()),
        }
    }

    fn named(&self, message: &str) -> String {
        format!("{}: {message}", self.pragma)
    }
}

/// Whether a URI names only settings that exist, among its parameters that begin as ours do.
///
/// # Errors
/// The first that is none, as text.
pub(super) fn check_names(names: &[String]) -> Result<(), String> {
    let is_unknown = |name: &&String| {
        name.starts_with(PREFIX) && Setting::of(name).is_none() && *name != UPGRADE_IN_URI
    };
    match names.iter().find(is_unknown) {
        None => Ok(()),
        Some(name) => {
            let all: Vec<&str> = SETTINGS.iter().map(|setting| setting.pragma).collect();
            let all = listed(&all, "or");
            Err(format!("unknown URI parameter {name}: use {all}"))
        }
    }
}

impl Database {
    /// The answer of a setting's pragma.
    pub(super) fn setting(&self, setting: &Setting) -> String {
        let in_use = (setting.in_use)(setting, self);
        match (setting.name(), in_use) {
            // The log's own layout, even if this connection has not asked for one.
            ("layout", Shown::Word(layout)) => layout,
            _ => setting.takes.printed(&self.settings.get()),
        }
    }

    /// Sets a setting; also for URI parameters and the environment.
    pub(super) fn set(&self, setting: &Setting, value: &str) -> Result<(), String> {
        let before = self.settings.get();
        let settings = setting.takes.put(setting, self, before, value)?;
        self.settings.set(settings);
        self.note_whose_file();
        let mut writer = self.writer.borrow_mut();
        if let Some(writer) = writer.as_mut()
            && writer.config != settings.commit
        {
            // Waiting commits are written as they were promised.
            writer.drain().map_err(|e| e.to_string())?;
            writer.config = settings.commit;
        }
        Ok(())
    }

    /// Applies the environment's settings, then the URI's.
    ///
    /// # Errors
    /// A value in the URI that the setting does not take. One in the environment is only a warning.
    pub(super) fn apply_settings(&self, uri: Uri<'_>) -> Result<(), String> {
        for setting in &SETTINGS {
            if let Some(variable) = setting.variable()
                && let Some(value) = environment::value_of(&variable)
                && let Err(message) = self.set(setting, &value)
            {
                self.warn(&format!("{variable}: {message}"));
            }
        }
        for setting in &SETTINGS {
            if let Some(value) = uri(setting.pragma) {
                self.set(setting, &value)?;
            }
        }
        Ok(())
    }
}

/// The statements by which another connection sets the settings that shape a log, to the values
/// here.
pub(super) fn pragmas_that_shape_a_log(settings: &Settings) -> impl Iterator<Item = String> {
    let shaping = SETTINGS.iter().filter(|setting| setting.shapes_log);
    shaping.map(|setting| {
        let value = setting.takes.printed(settings);
        format!("PRAGMA {}='{value}'", setting.pragma)
    })
}

/// The settings as `onewrite_status` shows them.
pub(super) struct InUse<'a>(pub &'a Database);

impl Serialize for InUse<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let told = SETTINGS.iter().filter(|one| one.pragma != SYNCHRONOUS);
        serializer.collect_map(told.map(|setting| {
            let value = (setting.in_use)(setting, self.0);
            (setting.name(), value)
        }))
    }
}

/// The settings as `PRAGMA onewrite_help` prints them: the present value, the values, the help.
pub(super) fn help(database: &Database) -> String {
    let lines = SETTINGS.iter().map(|setting| {
        let values = setting.values();
        let values: Vec<&str> = values.iter().map(|(word, _)| *word).collect();
        format!(
            "{}={} ({}): {}\n",
            setting.pragma,
            database.setting(setting),
            values.join(" | "),
            setting.help
        )
    });
    lines.collect()
}
