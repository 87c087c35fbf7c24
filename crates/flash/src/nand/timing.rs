//! The times of NAND, from a small TOML file.
//!
//! ```toml
//! description = "what it is"
//! sources = ["who measured what"]
//! read_us = 250             # microseconds from cells into the page register
//! program_us = 1300         # from the page register into cells
//! erase_us = 1500           # of a block
//! transfer_mb_per_s = 156   # megabytes (10^6) a second between page register and controller
//! endurance = 3000          # times that a block can be erased
//! ```

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::model;

/// The built-in kinds of NAND: name, and the text of the file.
pub const BUILT_IN: [(&str, &str); 6] = [
    ("openssd", include_str!("../../models/nand/openssd.toml")),
    (
        "openssd-virtual",
        include_str!("../../models/nand/openssd-virtual.toml"),
    ),
    ("emmc", include_str!("../../models/nand/emmc.toml")),
    ("tlc", include_str!("../../models/nand/tlc.toml")),
    ("tlc-3d", include_str!("../../models/nand/tlc-3d.toml")),
    (
        "slc-cache",
        include_str!("../../models/nand/slc-cache.toml"),
    ),
];

/// The longest time of an operation, in microseconds.
const MAX_US: f64 = 10_000_000.0;

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timing {
    /// The chip that it stands for.
    pub description: String,
    /// The sources of the numbers.
    pub sources: Vec<String>,
    /// Microseconds from the cells into the page register.
    pub read_us: f64,
    /// Microseconds from the page register into the cells.
    pub program_us: f64,
    /// Microseconds to erase a block.
    pub erase_us: f64,
    /// Megabytes (10^6 bytes) a second between page register and controller.
    pub transfer_mb_per_s: f64,
    /// Times that a block can be erased.
    pub endurance: u32,
}

impl Timing {
    /// The built-in timing with this name.
    pub fn built_in(name: &str) -> Option<Self> {
        let (_, text) = BUILT_IN.iter().find(|(known, _)| *known == name)?;
        // A test checks that each of them can be parsed.
        Self::parse(text).ok()
    }

    /// The built-in timing of that name, or the timing in the file of that name.
    ///
    /// # Errors
    /// If there is no such name or file, or the file is not a timing.
    pub fn find(name: &str) -> Result<Self, Error> {
        model::find(name, "NAND", &BUILT_IN, |_, text| Self::parse(text))
    }

    /// Reads a timing from the text of a file.
    ///
    /// # Errors
    /// A message about the mistake.
    pub fn parse(text: &str) -> Result<Self, String> {
        let timing: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        for (name, us) in [
            ("read_us", timing.read_us),
            ("program_us", timing.program_us),
            ("erase_us", timing.erase_us),
        ] {
            if !(0.0..=MAX_US).contains(&us) {
                return Err(format!("{name} = {us} is not between 0 and {MAX_US}"));
            }
        }
        if !(0.001..=1e9).contains(&timing.transfer_mb_per_s) {
            let rate = timing.transfer_mb_per_s;
            return Err(format!(
                "transfer_mb_per_s = {rate} is not between 0.001 and 1000000000"
            ));
        }
        match (timing.endurance, timing.sources.is_empty()) {
            (0, _) => Err("endurance = 0: nothing could ever be erased".to_owned()),
            (_, true) => Err("it has no sources: say where the numbers are from".to_owned()),
            _ => Ok(timing),
        }
    }

    /// Nanoseconds to move this many bytes.
    pub(crate) fn transfer_ns(&self, bytes: u64) -> u64 {
        (bytes as f64 * 1e3 / self.transfer_mb_per_s) as u64
    }
}

/// Nanoseconds of this many microseconds.
pub(crate) fn ns(us: f64) -> u64 {
    (us * 1e3) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_that_is_built_in_can_be_read_and_names_its_sources() {
        for (name, text) in BUILT_IN {
            let timing = Timing::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(!timing.sources.is_empty(), "{name}");
            assert_eq!(Timing::find(name).unwrap(), timing);
        }
        assert!(Timing::find("no/such/file").is_err());
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said() {
        let good = BUILT_IN[0].1;
        for (from, to, said) in [
            ("read_us = 250", "read_us = -1", "read_us = -1"),
            ("read_us = 250", "read_us = nan", "read_us = NaN"),
            ("erase_us", "erase_ms", "erase_ms"),
            ("= 156", "= 0", "transfer_mb_per_s = 0"),
            ("endurance = 3000", "endurance = 0", "endurance"),
        ] {
            assert!(good.contains(from), "{from}");
            let error = Timing::parse(&good.replace(from, to)).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
