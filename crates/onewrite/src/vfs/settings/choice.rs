//! The kinds of values that a setting takes.

use super::super::database::Database;
use super::{Setting, Settings};
use crate::mode::words::{UnknownWord, Word, value_of, word_for};
use std::fmt::Display;

/// The values of a setting, and the field of [`Settings`] that holds them.
pub(super) trait Takes: Sync {
    /// The words, or the form of a value that is not a word, with their meanings.
    fn values(&self) -> Vec<(&'static str, &'static str)>;

    /// The word for the present value.
    fn printed(&self, settings: &Settings) -> String;

    /// Whether it takes this value at all.
    fn knows(&self, said: &str) -> bool;

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

    fn knows(&self, said: &str) -> bool {
        value_of(self.words, said).is_ok()
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

/// A value of some form, or the word for none.
pub(super) struct Optional<T: 'static> {
    /// The word for none, and its meaning.
    pub none: (&'static str, &'static str),
    /// The form of a value, and its meaning.
    pub form: (&'static str, &'static str),
    pub parse: fn(&str) -> Result<Option<T>, UnknownWord>,
    pub get: fn(&Settings) -> Option<T>,
    pub put: fn(&mut Settings, Option<T>),
    /// Whether the database can take a value now.
    pub check: fn(&Setting, &Database) -> Result<(), String>,
}

impl<T: Display> Takes for Optional<T> {
    fn values(&self) -> Vec<(&'static str, &'static str)> {
        vec![self.none, self.form]
    }

    fn printed(&self, settings: &Settings) -> String {
        let value = (self.get)(settings);
        value.map_or(self.none.0.to_owned(), |value| value.to_string())
    }

    fn knows(&self, said: &str) -> bool {
        (self.parse)(said).is_ok()
    }

    fn put(
        &self,
        setting: &Setting,
        database: &Database,
        mut settings: Settings,
        said: &str,
    ) -> Result<Settings, String> {
        let value = (self.parse)(said).map_err(|e| setting.named(&e.to_string()))?;
        if value.is_some() {
            (self.check)(setting, database)?;
        }
        (self.put)(&mut settings, value);
        Ok(settings)
    }
}
