//! The region through which a log moves forward (`onewrite_region`).

use std::fmt;

use super::words::UnknownWord;

const MIB: u64 = 1 << 20;
const UNITS: [(&str, u64); 2] = [("m", MIB), ("g", 1024 * MIB)];
const SMALLEST: u64 = MIB;
const LARGEST: u64 = 64 * 1024 * MIB;

/// Blocks in reserve for a log, which a thread makes again as the log takes them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region(u64);

impl Region {
    /// The form of a value, and its meaning.
    pub const FORM: (&'static str, &'static str) = (
        "'SIZE'",
        "in a file without a name, made again as the log takes it: a number and M or G; 1M to 64G (the paper: \
         150M)",
    );
    /// The word for none.
    pub const AUTO: &'static str = "auto";
    const KNOWN: &'static str = "'SIZE' such as 150M, from 1M to 64G, or auto";

    /// Bytes.
    pub fn bytes(self) -> u64 {
        self.0
    }

    /// Parses `'150M'`, `'2G'` or `auto`.
    ///
    /// # Errors
    /// Anything else.
    pub fn parse(word: &str) -> Result<Option<Region>, UnknownWord> {
        let lower = word.trim().to_ascii_lowercase();
        if lower == Region::AUTO {
            return Ok(None);
        }
        let bytes = UNITS.iter().find_map(|(unit, bytes)| {
            let number = lower.strip_suffix(unit)?.trim_end();
            number.parse::<u64>().ok()?.checked_mul(*bytes)
        });
        match bytes {
            Some(bytes) if (SMALLEST..=LARGEST).contains(&bytes) => Ok(Some(Region(bytes))),
            _ => Err(UnknownWord::new(word, Region::KNOWN)),
        }
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}M", self.0 / MIB)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_read_as_it_is_printed() {
        for (said, printed, mib) in [
            ("150M", "150M", 150),
            (" 2 g ", "2048M", 2048),
            ("1m", "1M", 1),
        ] {
            let region = Region::parse(said).expect(said).expect("a region");
            assert_eq!(
                (region.to_string().as_str(), region.bytes()),
                (printed, mib * MIB)
            );
            assert_eq!(Region::parse(printed), Ok(Some(region)));
        }
        assert_eq!(Region::parse("AUTO"), Ok(None));
        for wrong in [
            "",
            "150",
            "0M",
            "65G",
            "150K",
            "-1M",
            "99999999999999999999G",
        ] {
            assert!(Region::parse(wrong).is_err(), "{wrong}");
        }
    }
}
