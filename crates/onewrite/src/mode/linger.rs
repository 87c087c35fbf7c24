//! How long a process keeps a database open after its last connection (`onewrite_linger`).

use std::fmt;
use std::time::Duration;

use super::time;
use super::words::UnknownWord;

const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(3600);

/// The time between the close of the application's last connection and that of the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Linger(Duration);

impl Linger {
    /// The form of a value, and its meaning.
    pub const FORM: (&'static str, &'static str) = (
        "'TIME'",
        "so long after its last connection: a number and ms or s, or a number of milliseconds; 1ms to \
         3600s",
    );
    const KNOWN: &'static str = "'TIME' such as 5s, from 1ms to 3600s, or off";

    /// The time.
    pub fn time(self) -> Duration {
        self.0
    }

    /// Parses `'5s'`, `5000` or `off`.
    ///
    /// # Errors
    /// Anything else.
    pub fn parse(word: &str) -> Result<Option<Linger>, UnknownWord> {
        let time = time::setting(word, SHORTEST..=LONGEST, Linger::KNOWN)?;
        Ok(time.map(Linger))
    }
}

impl fmt::Display for Linger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        time::write(f, self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_as_it_is_printed() {
        for (said, printed) in [
            ("5s", "5s"),
            ("5000", "5s"),
            (" 250 MS", "250ms"),
            ("3600s", "3600s"),
        ] {
            let linger = Linger::parse(said).expect(said).expect("a time");
            assert_eq!(linger.to_string(), printed);
            assert_eq!(Linger::parse(printed), Ok(Some(linger)));
        }
        assert_eq!(Linger::parse("off"), Ok(None));
        for wrong in ["", "1h", "999us", "3601s"] {
            assert!(Linger::parse(wrong).is_err(), "{wrong}");
        }
    }
}
