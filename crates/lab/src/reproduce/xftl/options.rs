//! The options of `reproduce xftl` that shape its devices and their use. Each figure says which of
//! them it varies itself.

use super::conditions::Conditions;
use super::controllers::{BOARD, Controller, Ftl, Parts};
use super::nand::Nand;
use super::trial::{Fill, Fullness};
use super::{random, restart, space, validity};

/// Pages that a transaction updates, unless the user sets them: slide 23's picture of I/O activities
/// has this number. Slide 22 has 1 to 20, and does not say where its factors are from.
const UPDATES: u32 = 5;

/// The device of figures that do not vary it, unless the user sets it.
pub(super) const USUAL: Fullness = Fullness {
    host_mib: 128,
    spare_percent: 30,
    fill: Fill::Percent(FILL),
};
/// Percent of the host's pages that hold something, unless the user sets it.
const FILL: u32 = 80;
/// MiB of a small device.
const SMALL_MIB: u32 = 96;
/// Sizes of the figure `space`, in MiB.
pub(super) const SIZES: [u32; 3] = [128, 512, 2048];
/// From here on a run takes minutes.
const LARGE_MIB: u32 = 1_024;

/// The axes of a device. A figure that varies one of them ignores it.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Device {
    /// X-FTL's device: MiB for the host, of one or several [default: 128; of space
    /// 128,512,2048; of tpcc 260, which its database needs]
    #[arg(long, value_name = "MIB", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(80..=65536))]
    pub(super) size: Vec<u32>,

    /// The same: percent of its NAND kept back, at least [default: 30]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=90))]
    spare: Option<u32>,

    /// The same: percent of its pages that hold something [default: 80]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    fill: Option<u32>,

    /// Of the figure activities: percent of valid pages in the blocks that garbage collection
    /// empties, the same in each mode, as measured [default: 30,45]
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=95))]
    validity: Vec<u32>,

    /// Pages that a transaction of partsupply updates, in space, activities, controllers and restart, and
    /// that fio writes between two fsyncs in fsck; the figure updates has 1, 5, 10 and 20 [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=20))]
    updates: Option<u32>,

    /// FTLs of the figures flush and space [default: all], and of restart and fsck [default: board]
    #[arg(long, value_enum, value_delimiter = ',')]
    ftl: Vec<Ftl>,

    /// NAND of all figures: the board's, or of today (docs/xftl.md) [default: board]
    #[arg(long, value_enum, value_delimiter = ',')]
    nand: Vec<Nand>,

    /// Of the figure space: seeds of a device near a claim's edge; others have one
    #[arg(long, value_name = "N", default_value_t = space::SEEDS, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub(super) seeds: u32,

    /// Of the figure fio: jobs at a time, each with a file of its own [default: 1,4]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=random::MOST_JOBS))]
    numjobs: Vec<u32>,

    #[command(flatten)]
    pub(super) conditions: Conditions,

    #[command(flatten)]
    pub(super) parts: Parts,

    /// Power cuts of each mode in the figures restart and fsck; the seed spreads them over the run
    #[arg(long, value_name = "N", default_value_t = restart::CUTS, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(super) cuts: u32,

    /// Of the figure restart: on a device that was in use, as --fill and --precondition say, and not on
    /// a new one. Transactional files then give back what fills it when they are mounted
    #[arg(long)]
    pub(super) in_use: bool,

    /// Sizes of the figure `space` alone, in MiB, if no size is given; [`SIZES`] if there are none.
    #[arg(skip)]
    pub(super) space: Vec<u32>,
}

impl Device {
    /// Of the figure `space` only the sizes that take little time.
    pub fn without_large(&mut self) {
        self.space = SIZES.into_iter().filter(|size| *size < LARGE_MIB).collect();
    }

    /// One small device of two FTLs, unless the user names others, and one seed.
    pub fn small(&mut self) {
        self.seeds = 1;
        if self.size.is_empty() {
            self.size.push(SMALL_MIB);
        }
        if self.ftl.is_empty() {
            self.ftl = vec![Ftl::Board, Ftl::Journal];
        }
    }

    fn fullness(&self, host_mib: u32) -> Fullness {
        Fullness {
            host_mib,
            spare_percent: self.spare.unwrap_or(USUAL.spare_percent),
            fill: Fill::Percent(self.fill.unwrap_or(FILL)),
        }
    }

    /// The validities of the figure activities.
    pub(super) fn validities(&self) -> &[u32] {
        match self.validity.is_empty() {
            true => &validity::WANTED,
            false => &self.validity,
        }
    }

    /// The FTLs that were asked for, or all.
    pub(super) fn controllers(&self) -> Vec<Controller> {
        let all = match self.ftl.is_empty() {
            true => &Ftl::ALL[..],
            false => &self.ftl,
        };
        let ftls = all.iter().map(|ftl| ftl.controller());
        ftls.flat_map(|controller| self.on_each(controller))
            .collect()
    }

    /// The same setting on each NAND, with the parts that were asked for.
    fn on_each(&self, controller: Controller) -> Vec<Controller> {
        let nand = match self.nand.is_empty() {
            true => &[Nand::Board][..],
            false => &self.nand,
        };
        let on = |nand: &Nand| controller.on(*nand).with(self.parts);
        nand.iter().map(on).collect()
    }

    /// The numbers of fio's jobs.
    pub(super) fn jobs(&self) -> &[u32] {
        match self.numjobs.is_empty() {
            true => &random::JOBS,
            false => &self.numjobs,
        }
    }

    pub(super) fn updates(&self) -> u32 {
        self.updates.unwrap_or(UPDATES)
    }

    /// The FTLs of the figures restart and fsck.
    pub(super) fn restarted(&self) -> Vec<Controller> {
        match self.ftl.is_empty() {
            true => self.boards(),
            false => self.controllers(),
        }
    }

    /// The devices, in words.
    pub(super) fn shape(&self) -> String {
        let chips = self.boards().into_iter().map(|board| {
            let chips = board.nand.chips();
            format!(
                "pages of {} KiB, {} a block, NAND {}",
                chips.page_bytes >> 10,
                chips.pages_per_block,
                chips.timing
            )
        });
        let chips: Vec<String> = chips.collect();
        let entries = self.parts.table;
        format!(
            "{}; {entries} entries of the X-L2P table; {}",
            chips.join("; "),
            self.conditions.description()
        )
    }

    pub(super) fn boards(&self) -> Vec<Controller> {
        self.on_each(BOARD)
    }

    /// Of each size that was asked for, or of these.
    pub(super) fn each(&self, usual: &[u32]) -> Vec<Fullness> {
        let sizes = if self.size.is_empty() {
            usual
        } else {
            &self.size
        };
        sizes.iter().map(|size| self.fullness(*size)).collect()
    }
}
