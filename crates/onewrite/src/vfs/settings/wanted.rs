//! The journal mode that the URI or the environment asks for.

use super::super::convert;
use super::super::database::Database;
use super::super::environment::{self, JOURNAL_MODE, UPGRADE_WAL};
use super::{
    SETTINGS, Setting, Settings, Uri, check_names, no_group_synch_in, no_layout_in, no_remapping_in,
};
use crate::commit::CommitConfig;
use crate::mode::policy::LAYOUTS;
use crate::mode::words::{ON, value_of};
use crate::mode::{CheckpointPolicy, GroupSynch, JournalMode, Layout, UpgradeOfWal};

/// The journal mode that the URI (`journal_mode=`), or else the environment, asks for.
pub fn wanted_mode(uri: Uri<'_>) -> Option<JournalMode> {
    if convert::is_converting() {
        return None;
    }
    let word = uri("journal_mode").or_else(|| JOURNAL_MODE.text())?;
    JournalMode::wanted(&word).ok().flatten()
}

/// Checks the words of the environment, and the mode in the URI.
///
/// # Errors
/// An unknown word in the URI, or a mode that its settings are not for. The database would stay in a stock
/// mode, and a program that does not ask would not notice.
pub fn check_modes(database: &Database, uri: Uri<'_>) -> Result<(), String> {
    environment::unknown_words().for_each(|message| database.warn(&message));
    if let Some(word) = uri(UPGRADE_IN_URI) {
        let upgrade: Result<UpgradeOfWal, _> = word.parse();
        upgrade.map_err(|e| format!("{UPGRADE_IN_URI}: {e}"))?;
    }
    if let Some(why) = senseless_upgrade(database, uri) {
        database.warn(&why);
    }
    if let Some(word) = uri("journal_mode") {
        let wanted = JournalMode::wanted(&word).map_err(|e| format!("journal_mode: {e}"))?;
        return wanted.map_or(Ok(()), |mode| shaped_by(uri).suit(mode));
    }
    if let Some(word) = JOURNAL_MODE.text().filter(|word| !word.is_empty())
        && let Err(e) = JournalMode::wanted(&word)
    {
        database.warn(&format!("{}: {e}", JOURNAL_MODE.name));
    }
    Ok(())
}

/// The URI parameter that counts more than `ONEWRITE_UPGRADE_WAL`.
pub const UPGRADE_IN_URI: &str = "onewrite_upgrade_wal";

/// The mode in the URI for an application that asks for WAL.
pub fn upgrade_of_uri(uri: Uri<'_>) -> Option<UpgradeOfWal> {
    uri(UPGRADE_IN_URI)?.parse().ok()
}

/// Whether the URI has a name, a value or a pair of these that no database takes, so that each is refused.
/// `names` are those of its parameters.
pub fn is_wrong(uri: Uri<'_>, names: &[String]) -> bool {
    let takes = |it: &Setting| uri(it.pragma).is_none_or(|said| it.takes.knows(&said));
    let is_mode = |word: String| match JournalMode::wanted(&word) {
        Ok(wanted) => wanted.is_none_or(|mode| shaped_by(uri).suit(mode).is_ok()),
        Err(_) => false,
    };
    check_names(names).is_err()
        || !uri("journal_mode").is_none_or(is_mode)
        || uri(UPGRADE_IN_URI).is_some_and(|word| word.parse::<UpgradeOfWal>().is_err())
        || !SETTINGS.iter().all(takes)
}

/// The journal mode of the URI alone.
pub fn mode_of_uri(uri: Uri<'_>) -> Option<JournalMode> {
    JournalMode::from_name(&uri("journal_mode")?)
}

/// The settings in the URI that not every mode can have.
fn shaped_by(uri: Uri<'_>) -> Settings {
    let usual = Settings::default();
    let word = |pragma| uri(pragma).unwrap_or_default();
    Settings {
        layout: value_of(&LAYOUTS, &word("onewrite_layout")).unwrap_or(usual.layout),
        checkpoint: value_of(&CheckpointPolicy::WORDS, &word("onewrite_checkpoint"))
            .unwrap_or(usual.checkpoint),
        commit: CommitConfig {
            group_synch: GroupSynch::parse(&word("onewrite_group_synch")).unwrap_or_default(),
            ..usual.commit
        },
        ..usual
    }
}

impl Settings {
    /// Whether a new log of this mode can have them.
    ///
    /// # Errors
    /// The first setting that it cannot have, and the way out.
    pub(in super::super) fn suit(&self, mode: JournalMode) -> Result<(), String> {
        if self.checkpoint.needs_gathered() && !mode.may_have(Layout::Gathered) {
            return Err(format!("onewrite_checkpoint: {}", no_remapping_in(mode)));
        }
        if mode == JournalMode::Waldio {
            return Ok(());
        }
        match (self.layout, self.commit.group_synch) {
            (Some(layout), _) if layout != Layout::Embedded && !mode.may_have(layout) => {
                Err(format!("onewrite_layout: {}", no_layout_in(mode, layout)))
            }
            (_, Some(_)) => Err(format!("onewrite_group_synch: {}", no_group_synch_in(mode))),
            _ => Ok(()),
        }
    }
}

/// Warns where the database will not enter the requested mode because of its settings. Of those in a URI that
/// names the mode, this is an error.
pub fn warn_of_unsuited(database: &Database) {
    let mode = database
        .requested
        .mode
        .filter(|_| !convert::is_converting());
    if let Some(mode) = mode
        && let Err(why) = database.settings.get().suit(mode)
    {
        database.warn(&format!("{why}; so no database enters {mode}"));
    }
}

/// Why the upgrade of WAL has no effect, if that cannot be intended.
fn senseless_upgrade(database: &Database, uri: Uri<'_>) -> Option<String> {
    let (name, word) = match uri(UPGRADE_IN_URI) {
        Some(word) => (UPGRADE_IN_URI, word),
        None => (UPGRADE_WAL.name, UPGRADE_WAL.text()?),
    };
    match word.parse() {
        Err(e) => Some(format!("{name}: {e}; WAL stays SQLite's own")),
        Ok(UpgradeOfWal::ToWanted)
            if database.requested.mode.is_none() && uri("journal_mode").is_none() =>
        {
            let why = match JOURNAL_MODE.text().filter(|word| !word.is_empty()) {
                None => "is not set".to_owned(),
                Some(word) => format!("is {word}"),
            };
            Some(format!(
                "{name}: 1 needs a mode of onewrite in {}, which {why}; WAL stays SQLite's own",
                JOURNAL_MODE.name
            ))
        }
        Ok(_) => None,
    }
}

/// Whether one of SQLite's own parameters is set, as SQLite reads a boolean.
pub fn is_set(uri: Uri<'_>, parameter: &str) -> bool {
    uri(parameter).is_some_and(|value| {
        let mut words = ["on"].iter().chain(ON);
        let is_word = words.any(|word| value.eq_ignore_ascii_case(word));
        is_word || value.parse::<i64>().is_ok_and(|number| number != 0)
    })
}
