//! The time from which a commit counts as slow (`onewrite_stall_log`).

use std::fmt;
use std::time::Duration;

use super::words::{UnknownWord, says_off};

/// The units, with their length in microseconds; longest first.
const UNITS: [(&str, u64); 3] = [("s", 1_000_000), ("ms", 1_000), ("us", 1)];
const LONGEST: u64 = 3_600_000_000;

/// A commit that takes longer writes an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StallLimit(Duration);

impl StallLimit {
    /// The form of a value, and its meaning.
    pub const FORM: (&'static str, &'static str) = (
        "'TIME'",
        "a commit that takes longer does: a number and us, ms or s, or a number of milliseconds; 1us to \
         3600s",
    );
    const KNOWN: &'static str = "'TIME' such as 50ms, from 1us to 3600s, or off";

    /// The limit.
    pub fn time(self) -> Duration {
        self.0
    }

    /// Parses `'50ms'`, `50` or `off`.
    ///
    /// # Errors
    /// Anything else.
    pub fn parse(word: &str) -> Result<Option<StallLimit>, UnknownWord> {
        if says_off(word) {
            return Ok(None);
        }
        let lower = word.trim().to_ascii_lowercase();
        let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = match &lower[digits.len()..] {
            "" => Some(1_000),
            name => UNITS.iter().find(|(unit, _)| *unit == name).map(|it| it.1),
        };
        let number = digits.trim_end().parse::<u64>().ok();
        let us = number
            .zip(unit)
            .and_then(|(number, us)| number.checked_mul(us));
        match us {
            Some(us @ 1..=LONGEST) => Ok(Some(StallLimit(Duration::from_micros(us)))),
            _ => Err(UnknownWord::new(word, StallLimit::KNOWN)),
        }
    }
}

impl fmt::Display for StallLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = self.0.as_micros() as u64;
        let fits = |(_, length): &&(&str, u64)| us.is_multiple_of(*length);
        let (unit, length) = UNITS.iter().find(fits).unwrap_or(&("us", 1));
        write!(f, "{}{unit}", us / length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_read_as_it_is_printed() {
        for (said, printed) in [
            ("50ms", "50ms"),
            ("50", "50ms"),
            (" 50 MS ", "50ms"),
            ("1500us", "1500us"),
            ("2000ms", "2s"),
            ("3600s", "3600s"),
        ] {
            let limit = StallLimit::parse(said).expect(said).expect("a limit");
            assert_eq!(limit.to_string(), printed);
            assert_eq!(StallLimit::parse(printed), Ok(Some(limit)));
        }
        for off in ["off", "0", "no"] {
            assert_eq!(StallLimit::parse(off), Ok(None));
        }
        for wrong in [
            "",
            "ms",
            "-1ms",
            "1h",
            "0ms",
            "3601s",
            "99999999999999999999",
            "1.5s",
        ] {
            assert!(StallLimit::parse(wrong).is_err(), "{wrong}");
        }
    }
}
