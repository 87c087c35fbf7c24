//! The journal mode that the URI or the environment asks for.

use super::super::convert;
use super::super::database::Database;
use super::super::environment::{self, JOURNAL_MODE, UPGRADE_WAL};
use super::{SETTINGS, Setting, Uri, check_names};
use crate::mode::words::ON;
use crate::mode::{JournalMode, UpgradeOfWal};

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
/// An unknown word in the URI.
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
        return match JournalMode::wanted(&word) {
            Ok(_) => Ok(()),
            Err(e) => Err(format!("journal_mode: {e}")),
        };
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

/// Whether the URI has a name or a value that no database takes, so that each is refused. `names` are those
/// of its parameters.
pub fn is_wrong(uri: Uri<'_>, names: &[String]) -> bool {
    let takes = |it: &Setting| uri(it.pragma).is_none_or(|said| it.takes.knows(&said));
    let is_mode = |word: String| JournalMode::wanted(&word).is_ok();
    check_names(names).is_err()
        || !uri("journal_mode").is_none_or(is_mode)
        || uri(UPGRADE_IN_URI).is_some_and(|word| word.parse::<UpgradeOfWal>().is_err())
        || !SETTINGS.iter().all(takes)
}

/// The journal mode of the URI alone.
pub fn mode_of_uri(uri: Uri<'_>) -> Option<JournalMode> {
    JournalMode::from_name(&uri("journal_mode")?)
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
