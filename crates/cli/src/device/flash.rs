//! `--device ftl`: the FTL of `crates/flash` as a command line names it, and the cost of runs.
//!
//! The file system is on the plain FTL, without transactions: its kernel knows none. So mode `xftl`
//! cannot run here.

use onewrite_flash::disk::{Disk, Pace};
use onewrite_flash::ftl::{Config, Ftl, Statistics};
use onewrite_flash::latencies::{ByKind, Latencies};
use onewrite_flash::nand::timing::Timing;
use onewrite_flash::nand::{Geometry, Operations};
use serde::{Deserialize, Serialize};

use crate::ftl::choices::Choices;
use crate::ftl::device::{CopiesArg, FlushArg, MapArg, SEED, one_of, within};

/// Entries of the X-L2P table, which nobody fills.
const TABLE: u32 = 64;

const SECONDS_OF_A_YEAR: f64 = 365.25 * 86_400.0;

/// Transactions a second for which years are told, if no rate was asked for.
pub const USUAL_RATE: u32 = 1;

/// Whether the device takes its time.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Time {
    /// It takes the NAND's time
    Real,
    /// It answers at once; counts are the same
    None,
}

/// A flash device, as `--device ftl:OPTIONS` says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FlashModel {
    /// As the user gave it.
    pub name: String,
    /// The kind of NAND.
    pub nand: String,
    timing: Timing,
    page_bytes: u32,
    pages_per_block: u32,
    channels: u32,
    ways: u32,
    /// Percent of the NAND kept back for garbage collection.
    spare: u32,
    /// Writes of a flush in addition to the host's pages.
    flush: FlushArg,
    /// Blocks for garbage collection's copies.
    copies: CopiesArg,
    /// Dies that the pieces of the page map go to.
    map: MapArg,
    choices: Choices,
    /// Pages of the write buffer.
    buffer: u32,
    /// Requests in flight at most.
    queue: u32,
    /// Percent of the pages that hold something before the first run.
    full: u32,
    time: Time,
}

impl FlashModel {
    /// The model of a name, if it is `ftl` or begins with `ftl:`.
    pub fn find(name: &str) -> Option<Result<Self, String>> {
        let options = match name.strip_prefix("ftl") {
            Some("") => "",
            Some(rest) => rest.strip_prefix(':')?,
            None => return None,
        };
        Some(Self::parse(name, options))
    }

    fn parse(name: &str, options: &str) -> Result<Self, String> {
        let mut model = Self {
            name: name.to_owned(),
            nand: String::new(),
            timing: timing("openssd")?,
            page_bytes: 8192,
            pages_per_block: 128,
            channels: 4,
            ways: 1,
            spare: 12,
            flush: FlushArg::Nothing,
            copies: CopiesArg::Apart,
            map: MapArg::OneDie,
            choices: Choices::USUAL,
            buffer: 64,
            queue: 1,
            full: 80,
            time: Time::Real,
        };
        "openssd".clone_into(&mut model.nand);
        for option in options.split(',').filter(|option| !option.is_empty()) {
            model
                .set(option)
                .map_err(|error| format!("{option:?}: {error}"))?;
        }
        Ok(model)
    }

    fn set(&mut self, option: &str) -> Result<(), String> {
        let Some((key, value)) = option.split_once('=') else {
            return match option {
                // The OpenSSD board, as its own firmware drives it: docs/xftl.md.
                "board" => {
                    (self.channels, self.ways) = (2, 4);
                    (self.flush, self.copies) = (FlushArg::Whole, CopiesArg::AmongHost);
                    self.map = MapArg::Striped;
                    Ok(())
                }
                _ => Err(
                    "there is no such option (there are board, and with = nand, flush, copies, map, gc, used, planes, \
                     map-cache, gc-ahead, pages, bit-errors, scrub, \
                     scrub-reads, \
                     spare, full, buffer, queue, channels, ways, page-size, pages-per-block, time)"
                        .to_owned(),
                ),
            };
        };
        match key {
            "nand" => {
                self.timing = timing(value)?;
                value.clone_into(&mut self.nand);
            }
            "flush" => self.flush = one_of(value)?,
            "copies" => self.copies = one_of(value)?,
            "map" => self.map = one_of(value)?,
            "time" => self.time = one_of(value)?,
            "spare" => self.spare = within(value, 1, 90)?,
            "full" => self.full = within(value, 0, 100)?,
            "buffer" => self.buffer = within(value, 1, 1_000_000)?,
            "queue" => self.queue = within(value, 1, 256)?,
            "channels" => self.channels = within(value, 1, 64)?,
            "ways" => self.ways = within(value, 1, 16)?,
            "page-size" => self.page_bytes = within(value, 512, 65_536)?,
            "pages-per-block" => self.pages_per_block = within(value, 4, 4096)?,
            _ => {
                let chosen = self.choices.set(key, value);
                return chosen.unwrap_or_else(|| Err("there is no such option".to_owned()));
            }
        }
        Ok(())
    }

    /// The device in a few words.
    pub fn description(&self) -> String {
        let flush = match self.flush {
            FlushArg::Nothing => "a flush writes no map",
            FlushArg::Changed => "a flush writes the changed map",
            FlushArg::Journal => "a flush writes a journal of the map",
            FlushArg::Whole => "a flush writes the whole map",
        };
        let copies = match self.copies {
            CopiesArg::Apart => "copies apart",
            CopiesArg::AmongHost => "copies among the host's pages",
        };
        let map = match self.map {
            MapArg::OneDie => "",
            MapArg::Striped => " to all dies",
        };
        let dies = self.channels * self.ways;
        format!(
            "NAND {}, {dies} die{}, {flush}{map}, {copies}{}, {} % spare, {} % full",
            self.nand,
            if dies == 1 { "" } else { "s" },
            self.choices.description(),
            self.spare,
            self.full
        )
    }

    /// Pages of an erase block.
    pub fn pages_per_block(&self) -> u32 {
        self.pages_per_block
    }

    /// Whether it takes its time.
    pub fn takes_time(&self) -> bool {
        self.time == Time::Real
    }

    /// The NAND with room for this many bytes.
    fn shape(&self, bytes: u64) -> Result<(Geometry, Config), String> {
        let page = u64::from(self.page_bytes);
        if !bytes.is_multiple_of(page) {
            return Err(format!("{bytes} bytes are not whole pages of {page}"));
        }
        let pages = u32::try_from(bytes / page).map_err(|_| "it has too many pages".to_owned())?;
        let config = self.choices.of(Config {
            table_capacity: TABLE,
            flush: self.flush.into(),
            copies: self.copies.into(),
            map: self.map.into(),
            ..Config::new(pages)
        });
        let with = |blocks| {
            let geometry = Geometry {
                page_bytes: self.page_bytes,
                pages_per_block: self.pages_per_block,
                ..Geometry::openssd(blocks)
            };
            let geometry = geometry.with_channels(self.channels, self.ways);
            geometry.with_planes(self.choices.planes)
        };
        let geometry = config.fitting(self.spare, with);
        Ok((geometry.map_err(|error| error.to_string())?, config))
    }

    /// Bytes of the NAND of a device of `bytes` bytes.
    pub fn nand_bytes(&self, bytes: u64) -> Result<u64, String> {
        Ok(self.shape(bytes)?.0.bytes())
    }

    /// The new device.
    pub fn make(&self, bytes: u64) -> Result<Disk, String> {
        let (geometry, config) = self.shape(bytes)?;
        let nand = self.choices.nand(geometry, self.timing.clone())?;
        let (ftl, _) = Ftl::open(nand, config).map_err(|error| error.to_string())?;
        let disk = Disk::new(ftl, self.buffer as usize, Pace::Virtual);
        Ok(match self.queue() {
            1 => disk,
            depth => disk.with_queue(depth),
        })
    }

    /// Requests in flight at most.
    pub fn queue(&self) -> usize {
        self.queue as usize
    }

    /// Makes it a device in use, which takes its time from now on.
    pub fn begin(&self, disk: &Disk) -> Result<(), String> {
        if self.full > 0 {
            disk.use_up(self.full, self.choices.used.into(), SEED)
                .map_err(|error| error.to_string())?;
        }
        if self.takes_time() {
            disk.take_time();
        }
        Ok(())
    }
}

fn timing(name: &str) -> Result<Timing, String> {
    Timing::find(name).map_err(|error| error.to_string())
}

/// The work that a device has done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Work {
    statistics: Statistics,
    nand: Operations,
    page_bytes: u32,
    /// Pages of the NAND.
    pages: u32,
    endurance: u32,
    latencies: ByKind<Latencies>,
}

impl Work {
    /// Of a disk whose buffer is flushed first, so that everything is counted.
    pub fn of(disk: &Disk) -> Result<Self, String> {
        onewrite_flash::medium::Medium::flush(disk).map_err(|error| error.to_string())?;
        let work = disk.with(|ftl| Self {
            statistics: ftl.statistics(),
            nand: ftl.nand().operations(),
            page_bytes: ftl.page_bytes(),
            pages: ftl.nand().geometry().pages(),
            endurance: ftl.nand().timing().endurance,
            latencies: ByKind::default(),
        });
        let mut work = work.ok_or_else(|| "the device is gone".to_owned())?;
        work.latencies = disk.latencies();
        Ok(work)
    }
}

/// The cost of a run to the flash, with the checkpoint and the file system's later writes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cost {
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Commands and pages.
    pub statistics: Statistics,
    /// The NAND's operations.
    pub nand: Operations,
    /// Pages programmed for each page that the host wrote.
    pub write_amplification: Option<f64>,
    /// Pages programmed for each transaction.
    pub programs_per_op: f64,
    /// Transactions until every block was erased as often as it can be, if wear is level; null if
    /// nothing was programmed.
    pub life_transactions: Option<f64>,
    /// Transactions a second of `life_years`.
    pub life_rate: u32,
    /// How long that is.
    pub life_years: Option<f64>,
    /// The latencies of requests, in the device's own time.
    pub latency_us: ByKind<Option<Percentiles>>,
}

/// Of the requests of one kind, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Percentiles {
    /// How many.
    pub requests: u64,
    /// The median.
    pub p50: f64,
    /// One in a hundred takes longer.
    pub p99: f64,
    /// One in a thousand takes longer.
    pub p999: f64,
    /// The longest, at most a 32nd too high.
    pub max: f64,
}

impl Percentiles {
    /// `None` without a request.
    fn of(latencies: &Latencies) -> Option<Self> {
        let us = |part| latencies.quantile(part).map(|ns| ns as f64 / 1e3);
        Some(Self {
            requests: latencies.requests(),
            p50: us(0.5)?,
            p99: us(0.99)?,
            p999: us(0.999)?,
            max: us(1.0)?,
        })
    }
}

impl Cost {
    /// Of `count` transactions, of which `rate` are done in a second of the device's life.
    pub fn of(before: &Work, after: &Work, count: u32, rate: u32) -> Self {
        let nand = after.nand.since(&before.nand);
        let statistics = after.statistics.since(&before.statistics);
        let per_op = nand.programs as f64 / f64::from(count.max(1));
        let all = f64::from(after.pages) * f64::from(after.endurance);
        let life = (nand.programs > 0).then(|| all / per_op);
        Self {
            page_bytes: after.page_bytes,
            statistics,
            nand,
            write_amplification: (statistics.host_writes > 0)
                .then(|| nand.programs as f64 / statistics.host_writes as f64),
            programs_per_op: per_op,
            life_transactions: life,
            life_rate: rate,
            life_years: life.map(|life| life / f64::from(rate.max(1)) / SECONDS_OF_A_YEAR),
            latency_us: after
                .latencies
                .since(&before.latencies)
                .map(Percentiles::of),
        }
    }
}

#[cfg(test)]
mod tests {
    use onewrite_flash::medium::Medium;

    use super::*;

    #[test]
    fn options_change_the_device_and_mistakes_are_told() {
        let model = |name: &str| FlashModel::find(name).expect("a flash device");
        let by_benefit = model("ftl:gc=cost-benefit").expect("a model");
        let said = by_benefit.description();
        assert!(said.contains("by cost and benefit"), "{said}");
        for (name, ahead) in [("ftl", 4), ("ftl:gc-ahead=0", 0), ("ftl:gc-ahead=16", 16)] {
            let model = model(name).expect("a model");
            let (_, config) = model.shape(64 << 20).expect("a shape");
            assert_eq!(config.gc_ahead, ahead);
            let told = format!(", {ahead} blocks made ahead of need");
            assert_eq!(model.description().contains(&told), ahead != 4);
        }
        let board = model("ftl:board,spare=30").expect("a model");
        assert_eq!((board.channels, board.ways, board.spare), (2, 4, 30));
        let said = board.description();
        assert!(
            said.contains("whole map") && said.contains("among the host"),
            "{said}"
        );
        assert!(model("ftl").expect("a model").takes_time());
        assert!(!model("ftl:time=none").expect("a model").takes_time());
        for (name, said) in [
            ("ftl:what", "there is no such option"),
            ("ftl:what=1", "there is no such option"),
            ("ftl:spare=0", "from 1 to 90"),
            ("ftl:flush=often", "often"),
            ("ftl:gc=lazy", "lazy"),
            ("ftl:gc-ahead=1025", "from 0 to 1024"),
            ("ftl:nand=paper", "no NAND is called that"),
        ] {
            let error = model(name).expect_err(name);
            assert!(error.contains(said), "{error}");
        }
        assert!(FlashModel::find("ftls").is_none());
        assert!(FlashModel::find("emmc").is_none());
    }

    #[test]
    fn a_device_has_the_bytes_asked_for_and_the_spare() {
        let model = FlashModel::find("ftl:spare=30,pages-per-block=32").expect("flash");
        let model = model.expect("a model");
        for mib in [16_u64, 100, 513] {
            let bytes = mib << 20;
            let nand = model.nand_bytes(bytes).expect("a shape");
            assert!(nand * 70 / 100 >= bytes, "{mib}: {nand}");
            assert!(nand < bytes * 2 + (64 << 20), "{mib}: {nand}");
            assert_eq!(model.make(bytes).expect("a device").bytes(), bytes);
        }
        assert!(model.make(1000).is_err());
    }

    #[test]
    fn a_cost_adds_up() {
        let model = FlashModel::find("ftl:board,pages-per-block=32").expect("flash");
        let disk = model.expect("a model").make(16 << 20).expect("a device");
        let before = Work::of(&disk).expect("its work");
        for page in 0..100 {
            disk.write(page * 8192, &[1; 8192]).expect("a write");
        }
        let after = Work::of(&disk).expect("its work");
        let cost = Cost::of(&before, &after, 50, 2);
        assert_eq!(cost.statistics.host_writes, 100);
        assert_eq!(cost.nand.programs, cost.statistics.programs());
        let life = f64::from(after.pages) * 3000.0 / (cost.nand.programs as f64 / 50.0);
        assert_eq!(cost.life_transactions, Some(life));
        assert_eq!(cost.life_years, Some(life / 2.0 / SECONDS_OF_A_YEAR));
        let write = cost.latency_us.write.expect("writes");
        assert_eq!(write.requests, 100);
        assert!(write.p50 <= write.p99 && write.p999 <= write.max);
        assert!(cost.latency_us.read.is_none());
        let nothing = Cost::of(&after, &after, 1, 1);
        assert_eq!(
            (nothing.life_years, nothing.write_amplification),
            (None, None)
        );
    }
}
