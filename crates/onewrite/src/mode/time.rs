//! Times as users write them: a number and a unit.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::words::{UnknownWord, says_off};

/// The units, with their length in microseconds; longest first.
const UNITS: [(&str, u64); 3] = [("s", 1_000_000), ("ms", 1_000), ("us", 1)];

/// The time within `bounds` that a setting says, or none for `off`. `known` lists the words.
pub(super) fn setting(
    word: &str,
    bounds: RangeInclusive<Duration>,
    known: &'static str,
) -> Result<Option<Duration>, UnknownWord> {
    if says_off(word) {
        return Ok(None);
    }
    match parse(word) {
        Some(time) if bounds.contains(&time) => Ok(Some(time)),
        _ => Err(UnknownWord::new(word, known)),
    }
}

/// The time that a word stands for. A number alone is one of milliseconds.
fn parse(word: &str) -> Option<Duration> {
    let lower = word.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let us = match &lower[digits.len()..] {
        "" => 1_000,
        name => UNITS.iter().find(|(unit, _)| *unit == name)?.1,
    };
    let number = digits.trim_end().parse::<u64>().ok()?;
    number.checked_mul(us).map(Duration::from_micros)
}

/// Writes a time in the longest unit that fits it.
pub(super) fn write(f: &mut fmt::Formatter<'_>, time: Duration) -> fmt::Result {
    let us = time.as_micros() as u64;
    let fits = |(_, length): &&(&str, u64)| us.is_multiple_of(*length);
    let (unit, length) = UNITS.iter().find(fits).unwrap_or(&("us", 1));
    write!(f, "{}{unit}", us / length)
}
