//! The kinds of values that a setting takes.

use super::super::database::Database;
use super::{Setting, Settings, no_group_synch_in, no_linger_in, no_remapping_in};
use crate::mode::words::{Word, value_of, word_for};
use crate::mode::{GroupSynch, Linger, Region, StallLimit};

/// The values of a setting, and the field of [`Settings`] that holds them.
pub(super) trait Takes: Sync {
    /// The words, or the form of a value that is not a word, with their meanings.
    fn values(&self) -> Vec<(&'static str, &'static str)>;

    /// The word for the present value.
    fn printed(&self, settings: &Settings) -> String;

    /// The settings with this value.
    ///
    /// # Errors
    /// The setting does not take this value, or not now.
    fn put(
        &self,
        setting: &Setting,
        database: &Database,
        settings: Settings,
        said: &str,
    ) -> Result<Settings, String>;
}

/// One of several words.
pub(super) struct Choice<T: 'static> {
    pub words: &'static [Word<T>],
    pub get: fn(&Settings) -> T,
    pub put: fn(&mut Settings, T),
    /// Whether the database can take the value now.
    pub check: fn(&Setting, &Database, T) -> Result<(), String>,
}

impl<T: Copy + PartialEq + Sync> Takes for Choice<T> {
    fn values(&self) -> Vec<(&'static str, &'static str)> {
        let words = self.words.iter();
        words.map(|word| (word.word, word.meaning)).collect()
    }

    fn printed(&self, settings: &Settings) -> String {
        let value = (self.get)(settings);
        word_for(self.words, &value).unwrap_or("?").to_owned()
    }

    fn put(
        &self,
        setting: &Setting,
        database: &Database,
        mut settings: Settings,
        said: &str,
    ) -> Result<Settings, String> {
        let value = value_of(self.words, said).map_err(|e| setting.named(&e.to_string()))?;
        (self.check)(setting, database, value)?;
        (self.put)(&mut settings, value);
        Ok(settings)
    }
}

/// The bounds of group synch, or `off`.
pub(super) struct Groups;

impl Takes for Groups {
    fn values(&self) -> Vec<(&'static str, &'static str)> {
        vec![("off", "every COMMIT writes"), GroupSynch::FORM]
    }

    fn printed(&self, settings: &Settings) -> String {
        let group = settings.commit.group_synch;
        group.map_or("off".to_owned(), |group| group.to_string())
    }

    fn put(
        &self,
        setting: &Setting,
        database: &Database,
        mut settings: Settings,
        said: &str,
    ) -> Result<Settings, String> {
        let group = GroupSynch::parse(said).map_err(|e| setting.named(&e.to_string()))?;
        if group.is_some() {
            setting.only_in_its_modes(database, no_group_synch_in)?;
        }
        settings.commit.group_synch = group;
        Ok(settings)
    }
}

/// The time from which a commit counts as slow, or `off`.
pub(super) struct Stalls;

impl Takes for Stalls {
    fn values(&self) -> Vec<(&'static str, &'static str)> {
        vec![("off", "no commit writes an event"), StallLimit::FORM]
    }

    fn printed(&self, settings: &Settings) -> String {
        let limit = settings.stall_log;
        limit.map_or("off".to_owned(), |limit| limit.to_string())
    }

    fn put(
        &self,
        setting: &Setting,
        _database: &Database,
        mut settings: Settings,
        said: &str,
    ) -> Result<Settings, String> {
        settings.stall_log = StallLimit::parse(said).map_err(|e| setting.named(&e.to_string()))?;
        Ok(settings)
    }
}

/// The size of a log's region, or `auto`.
pub(super) struct Regions;

impl Takes for Regions {
    fn values(&self) -> Vec<(&'static str, &'static str)> {
        let own = "24 MiB at the end of the log, made once";
        vec![(Region::AUTO, own), Region::FORM]
    }

    fn printed(&self, settings: &Settings) -> String {
        let region = settings.region;
        region.map_or(Region::AUTO.to_owned(), |region| region.to_string())
    }

    fn put(
        &self,
        setting: &Setting,
        database: &Database,
        mut settings: Settings,
        said: &str,
    ) -> Result<Settings, String> {
        let region = Region::parse(said).map_err(|e| setting.named(&e.to_string()))?;
        if region.is_some() {
            setting.only_in_its_modes(database, no_remapping_in)?;
        }
        settings.region = region;
        Ok(settings)
    }
}

/// The time for which a database stays open after its last connection, or `off`.
pub(super) struct Lingers;

impl Takes for Lingers {
    fn values(&self) -> Vec<(&'static str, &'static str)> {
        vec![("off", "with its last connection"), Linger::FORM]
    }

    fn printed(&self, settings: &Settings) -> String {
        let linger = settings.linger;
        linger.map_or("off".to_owned(), |linger| linger.to_string())
    }

    fn put(
        &self,
        setting: &Setting,
        database: &Database,
        mut settings: Settings,
        said: &str,
    ) -> Result<Settings, String> {
        let linger = Linger::parse(said).map_err(|e| setting.named(&e.to_string()))?;
        if linger.is_some() {
            setting.only_in_its_modes(database, no_linger_in)?;
        }
        settings.linger = linger;
        Ok(settings)
    }
}
