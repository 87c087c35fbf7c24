//! The time from which a commit counts as slow (`onewrite_stall_log`).

use std::fmt;
use std::time::Duration;

use super::time;
use super::words::UnknownWord;

const SHORTEST: Duration = Duration::from_micros(1);
const LONGEST: Duration = Duration::from_secs(3600);

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
        let time = time::setting(word, SHORTEST..=LONGEST, StallLimit::KNOWN)?;
        Ok(time.map(StallLimit))
    }
}

impl fmt::Display for StallLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        time::write(f, self.0)
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
