//! Words that users write (a pragma's value, a URI parameter, an environment variable).
//!
//! One table for each kind of value. It is used to read a word, to print it, for the error about an
//! unknown word, and for the tables in the documents.

use std::fmt;

/// A word and the value it stands for.
#[derive(Clone, Copy, Debug)]
pub struct Word<T> {
    /// The word that is printed.
    pub word: &'static str,
    /// Other words for the same value; they are read, but never printed.
    pub also: &'static [&'static str],
    /// The value.
    pub value: T,
    /// Its meaning, in one line of the documents.
    pub meaning: &'static str,
}

impl<T: Copy> Word<T> {
    /// A word without other spellings.
    pub const fn new(word: &'static str, value: T, meaning: &'static str) -> Word<T> {
        Word {
            word,
            also: &[],
            value,
            meaning,
        }
    }

    /// The same, with other spellings.
    pub const fn or(self, also: &'static [&'static str]) -> Word<T> {
        Word { also, ..self }
    }

    fn is_said_by(&self, said: &str) -> bool {
        // Like SQLite, this compares case-insensitively.
        let mut all = [self.word].into_iter().chain(self.also.iter().copied());
        all.any(|word| word.eq_ignore_ascii_case(said))
    }
}

/// Other spellings of "on", as SQLite reads a boolean.
pub const ON: &[&str] = &["1", "yes", "true"];
/// Other spellings of "off".
pub const OFF: &[&str] = &["0", "no", "false"];

/// Whether a word means "off".
pub fn says_off(said: &str) -> bool {
    said.eq_ignore_ascii_case("off") || OFF.iter().any(|off| said.eq_ignore_ascii_case(off))
}

/// The value that a word stands for.
///
/// # Errors
/// A word that is not in the table.
pub fn value_of<T: Copy>(words: &[Word<T>], said: &str) -> Result<T, UnknownWord> {
    let found = words.iter().find(|word| word.is_said_by(said));
    found.map(|word| word.value).ok_or_else(|| {
        let known: Vec<&str> = words.iter().map(|word| word.word).collect();
        UnknownWord::new(said, listed(&known, "or"))
    })
}

/// The word for a value.
pub fn word_for<T: PartialEq>(words: &[Word<T>], value: &T) -> Option<&'static str> {
    let found = words.iter().find(|word| word.value == *value);
    found.map(|word| word.word)
}

/// "a, b or c".
pub fn listed(names: &[&str], last: &str) -> String {
    match names {
        [] => String::new(),
        [name] => (*name).to_owned(),
        [names @ .., name] => format!("{} {last} {name}", names.join(", ")),
    }
}

/// A word that a setting does not take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownWord {
    /// The word that was written.
    pub said: String,
    /// The words that the setting takes.
    pub known: String,
}

impl UnknownWord {
    /// See the fields.
    pub fn new(said: &str, known: impl Into<String>) -> UnknownWord {
        UnknownWord {
            said: said.to_owned(),
            known: known.into(),
        }
    }
}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown value '{}': use {}", self.said, self.known)
    }
}

impl std::error::Error for UnknownWord {}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCH: [Word<bool>; 2] = [
        Word::new("on", true, "").or(ON),
        Word::new("off", false, "").or(OFF),
    ];

    #[test]
    fn every_spelling_is_read_and_one_is_printed() {
        for said in ["on", "ON", "1", "Yes", "true"] {
            assert_eq!(value_of(&SWITCH, said), Ok(true), "{said}");
        }
        for said in ["off", "0", "no", "False"] {
            assert_eq!(value_of(&SWITCH, said), Ok(false), "{said}");
            assert!(says_off(said));
        }
        assert_eq!(word_for(&SWITCH, &true), Some("on"));
    }

    #[test]
    fn an_unknown_word_is_answered_with_the_known_ones() {
        let error = value_of(&SWITCH, "perhaps").map_err(|e| e.to_string());
        let text = "unknown value 'perhaps': use on or off";
        assert_eq!(error, Err(text.to_owned()));
        assert_eq!(listed(&["a", "b", "c"], "and"), "a, b and c");
    }
}
