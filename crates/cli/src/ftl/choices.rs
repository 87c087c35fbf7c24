//! The parts of a flash device that are there by choice, for `ftl create` and `--device ftl`.
//!
//! Without a choice the device is the usual one. `docs/xftl.md` describes each, with its source.

use onewrite_flash::ftl::{CollectsBy, Config, Scrub};
use onewrite_flash::nand::timing::Timing;
use onewrite_flash::nand::{BitErrors, Geometry, Nand};
use onewrite_flash::used::Until;
use serde::{Deserialize, Serialize};

use super::device::{one_of, within};

/// The most blocks that garbage collection may make ahead of need.
pub const GC_AHEAD_MOST: u32 = 1_024;

/// See the module.
#[derive(clap::Args, Clone, Debug, Serialize, Deserialize)]
pub struct Choices {
    /// The block that garbage collection empties (docs/xftl.md)
    #[arg(long, value_enum, default_value_t = GcArg::Greedy)]
    pub gc: GcArg,

    /// The end of the use that fills a device (docs/devices.md)
    #[arg(long, value_enum, default_value_t = UsedArg::Programmed)]
    pub used: UsedArg,

    /// Planes of each die, which program pages together (docs/xftl.md)
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4))]
    pub planes: u32,

    /// Entries of the page map in the controller's memory; 0 is all of them (docs/xftl.md)
    #[arg(long, default_value_t = 0)]
    pub map_cache: u32,

    /// Free blocks beyond the reserve that garbage collection makes ahead of need, on each plane of a
    /// die; 0 is none (docs/xftl.md)
    #[arg(long, value_name = "BLOCKS", default_value_t = Config::GC_AHEAD, value_parser = clap::value_parser!(u32).range(0..=GC_AHEAD_MOST as i64))]
    pub gc_ahead: u32,

    /// Whether a cell has two pages, so that a power cut may take both (docs/xftl.md)
    #[arg(long, value_enum, default_value_t = PagesArg::Independent)]
    pub pages: PagesArg,

    /// Rates of bit errors, TOML (docs/xftl.md)
    #[arg(long, value_name = "FILE", value_parser = bit_errors)]
    pub bit_errors: Option<BitErrors>,

    /// Move a block at this percentage of the errors that can be corrected; 0 is never
    #[arg(long, default_value_t = 30, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub scrub: u32,

    /// Move a block after as many reads; 0 is never
    #[arg(long, default_value_t = 0, value_name = "READS")]
    pub scrub_reads: u32,
}

/// Whether pages are paired, on the command line.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PagesArg {
    /// A power cut takes only the page that is programmed
    Independent,
    /// It may take the lower page of the same cells, too; the FTL pads
    Paired,
}

/// The rates in a file.
fn bit_errors(path: &str) -> Result<BitErrors, String> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))?;
    BitErrors::parse(&text).map_err(|error| format!("{path}: {error}"))
}

/// [`CollectsBy`] on the command line.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GcArg {
    /// The one with the fewest valid pages
    Greedy,
    /// The one with the most free space for its copies and its age
    CostBenefit,
}

impl From<GcArg> for CollectsBy {
    fn from(gc: GcArg) -> Self {
        match gc {
            GcArg::Greedy => Self::Greedy,
            GcArg::CostBenefit => Self::CostBenefit,
        }
    }
}

/// [`Until`] on the command line.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UsedArg {
    /// The NAND was programmed one and a half times over
    Programmed,
    /// Write amplification is steady
    Steady,
}

impl From<UsedArg> for Until {
    fn from(used: UsedArg) -> Self {
        match used {
            UsedArg::Programmed => Self::Programmed,
            UsedArg::Steady => Self::Steady,
        }
    }
}

impl Choices {
    /// No choice.
    pub const USUAL: Self = Self {
        gc: GcArg::Greedy,
        used: UsedArg::Programmed,
        planes: 1,
        map_cache: 0,
        gc_ahead: Config::GC_AHEAD,
        pages: PagesArg::Independent,
        bit_errors: None,
        scrub: 30,
        scrub_reads: 0,
    };

    /// Sets one by its name in `--device ftl:`. `None` if there is none of that name.
    pub fn set(&mut self, key: &str, value: &str) -> Option<Result<(), String>> {
        match key {
            "gc" => Some(one_of(value).map(|gc| self.gc = gc)),
            "used" => Some(one_of(value).map(|used| self.used = used)),
            "planes" => Some(within(value, 1, 4).map(|planes| self.planes = planes)),
            "map-cache" => Some(within(value, 0, u32::MAX).map(|entries| self.map_cache = entries)),
            "gc-ahead" => {
                Some(within(value, 0, GC_AHEAD_MOST).map(|blocks| self.gc_ahead = blocks))
            }
            "pages" => Some(one_of(value).map(|pages| self.pages = pages)),
            "bit-errors" => Some(bit_errors(value).map(|errors| self.bit_errors = Some(errors))),
            "scrub" => Some(within(value, 0, 100).map(|percent| self.scrub = percent)),
            "scrub-reads" => Some(within(value, 0, u32::MAX).map(|reads| self.scrub_reads = reads)),
            _ => None,
        }
    }

    /// The configuration with these choices.
    pub fn of(&self, config: Config) -> Config {
        Config {
            collects: self.gc.into(),
            cached_entries: self.map_cache,
            gc_ahead: self.gc_ahead,
            pairs: self.pages == PagesArg::Paired,
            scrub: match self.bit_errors {
                Some(_) => Scrub {
                    percent: self.scrub,
                    reads: self.scrub_reads,
                },
                None => Scrub::default(),
            },
            ..config
        }
    }

    /// The NAND with these choices.
    pub fn nand(&self, geometry: Geometry, timing: Timing) -> Result<Nand, String> {
        let mut nand = Nand::new(geometry, timing)?;
        if self.pages == PagesArg::Paired {
            nand = nand.with_pairs()?;
        }
        Ok(match self.bit_errors {
            Some(errors) => nand.with_bit_errors(errors),
            None => nand,
        })
    }

    /// What was chosen, in words that follow others.
    pub fn description(&self) -> String {
        let mut text = String::new();
        if self.gc == GcArg::CostBenefit {
            text.push_str(", garbage collected by cost and benefit");
        }
        if self.planes > 1 {
            text.push_str(&format!(", {} planes", self.planes));
        }
        if self.map_cache > 0 {
            text.push_str(&format!(
                ", {} entries of the map in memory",
                self.map_cache
            ));
        }
        if self.gc_ahead != Config::GC_AHEAD {
            text.push_str(&format!(", {} blocks made ahead of need", self.gc_ahead));
        }
        if self.pages == PagesArg::Paired {
            text.push_str(", paired pages");
        }
        if self.bit_errors.is_some() {
            text.push_str(&format!(", bit errors, scrubbed at {} %", self.scrub));
        }
        text
    }
}
