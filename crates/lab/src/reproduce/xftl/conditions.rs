//! The conditions of a run that neither the slides nor another source states: what comes before the
//! measured part, SQLite's cache, and the size of fio's files. Each is an option with a default.

use onewrite_flash::used::PROGRAMMED;
use serde::Serialize;

/// Transactions of warm-up, unless the user sets them: garbage collection then also reaches blocks
/// of the transactions' own pages.
const WARM_UP: u32 = 600;
/// MiB of SQLite's cache: it holds every database here.
const CACHE_MIB: u32 = 400;
/// MiB of fio's files.
const FILES_MIB: u32 = 24;

/// See the module.
#[derive(clap::Args, Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Conditions {
    /// X-FTL: transactions of warm-up before the measured part; more where the measured part would
    /// not begin a checkpoint cycle. RL Benchmark and fio have none
    #[arg(long, value_name = "N", default_value_t = WARM_UP, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub warm_up: u32,

    /// The same: preconditioning, the percent of the NAND's pages that are programmed before a run;
    /// with 0 the device is filled and nothing is rewritten
    #[arg(long, value_name = "PERCENT", default_value_t = PROGRAMMED, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub precondition: u32,

    /// The same: MiB of SQLite's cache, divided among the files of an application
    #[arg(long, value_name = "MIB", default_value_t = CACHE_MIB, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub cache_size: u32,

    /// Of the figure fio: MiB of all its files
    #[arg(long, value_name = "MIB", default_value_t = FILES_MIB, value_parser = clap::value_parser!(u32).range(8..=65_536))]
    pub file_size: u32,
}

impl Default for Conditions {
    fn default() -> Self {
        Self::USUAL
    }
}

impl Conditions {
    /// The defaults.
    pub const USUAL: Self = Self {
        warm_up: WARM_UP,
        precondition: PROGRAMMED,
        cache_size: CACHE_MIB,
        file_size: FILES_MIB,
    };

    /// All of them, in words.
    pub fn description(self) -> String {
        format!(
            "{} transactions of warm-up, {} % of the NAND programmed before, SQLite's cache {} MiB, fio's files {} MiB",
            self.warm_up, self.precondition, self.cache_size, self.file_size
        )
    }
}
