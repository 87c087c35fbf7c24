//! Bit errors, which grow with wear, with time and with reads, and the limit of error correction.
//!
//! A page has wrong bits in proportion to the erases of its block, to the block's reads since it
//! was erased (read disturb), and to the time since it was first programmed (retention). Some pages
//! have up to half as many again, others as few as half: that depends on page and erase. Error
//! correction repairs some bits in each KiB. Beyond it the page cannot be read until its block is
//! erased.
//!
//! Cai et al. measured the shape. Errors of 2Y-nm MLC grow linearly with reads, and faster with wear
//! and with age ("Read Disturb Errors in MLC NAND Flash Memory", DSN 2015). Here the
//! three causes add up. The rates are the user's: no source for a certain chip was found.

use serde::{Deserialize, Serialize};

/// Bits in a KiB.
const KIB_BITS: f64 = 8192.0;
const NS_OF_A_DAY: f64 = 86_400e9;

/// The rates are wrong bits in 10^9.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BitErrors {
    /// Wrong bits in each KiB that error correction repairs.
    pub corrects: u32,
    /// For each erase of the block.
    pub per_erase: f64,
    /// For each read of a page of the block since it was erased.
    pub per_read: f64,
    /// For each day since the block's first page was programmed.
    pub per_day: f64,
}

/// The life of a block so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stress {
    pub(super) erases: u32,
    pub(super) reads: u32,
    pub(super) age_ns: u64,
}

impl BitErrors {
    /// Reads a rate file, TOML.
    ///
    /// # Errors
    /// A message about the mistake.
    pub fn parse(text: &str) -> Result<Self, String> {
        let errors: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        match errors.is_possible() {
            true => Ok(errors),
            false => {
                Err("rates are between 0 and 1000000000, and corrects is at least 1".to_owned())
            }
        }
    }

    pub(super) fn is_possible(&self) -> bool {
        let rates = [self.per_erase, self.per_read, self.per_day];
        self.corrects > 0 && rates.iter().all(|rate| (0.0..=1e9).contains(rate))
    }

    /// Wrong bits in a KiB of a page.
    pub(super) fn bits(&self, page: u32, stress: Stress) -> u32 {
        let rate = self.per_erase * f64::from(stress.erases)
            + self.per_read * f64::from(stress.reads)
            + self.per_day * (stress.age_ns as f64 / NS_OF_A_DAY);
        let weak = onewrite_common::random::mixed(u64::from(page) << 32 | u64::from(stress.erases));
        let weak = 0.5 + (weak % 1024) as f64 / 1024.0;
        // `as` saturates.
        (KIB_BITS * rate / 1e9 * weak) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ERRORS: BitErrors = BitErrors {
        corrects: 40,
        per_erase: 1_000.0,
        per_read: 10.0,
        per_day: 20_000.0,
    };

    #[test]
    fn errors_grow_with_wear_with_reads_and_with_time() {
        let mean = |erases: u32, reads: u32, days: u64| {
            let age_ns = days * 86_400_000_000_000;
            let stress = Stress {
                erases,
                reads,
                age_ns,
            };
            let bits = (0..1000).map(|page| ERRORS.bits(page, stress));
            f64::from(bits.sum::<u32>()) / 1000.0
        };
        assert!(mean(0, 0, 0) < f64::EPSILON);
        // 8,192 bits times 10^-6 a wear, 10^-8 a read and 2 * 10^-5 a day.
        for (erases, reads, days, expected) in [
            (3_000, 0, 0, 24.6),
            (0, 300_000, 0, 24.6),
            (0, 0, 150, 24.6),
            (1_500, 150_000, 75, 36.9),
        ] {
            let found = mean(erases, reads, days);
            assert!((found - expected).abs() < 1.0, "{found} {expected}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said() {
        let good = "corrects = 40\nper_erase = 1\nper_read = 0.5\nper_day = 0\n";
        assert_eq!(BitErrors::parse(good).unwrap().corrects, 40);
        assert!(BitErrors::parse(&good.replace("40", "0")).is_err());
        assert!(BitErrors::parse(&good.replace("0.5", "-0.5")).is_err());
        let unknown = BitErrors::parse(&good.replace("per_day", "per_week")).unwrap_err();
        assert!(unknown.contains("per_week"), "{unknown}");
    }
}
