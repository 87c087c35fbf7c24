//! The document of `onewrite compare --json`.
//!
//! A contract with its parsers: fields may be added, never renamed. A figure that was not measured
//! is null, never estimated.

use onewrite_flash::latency::Latency;
use onewrite_iotrace::age::Aged;
use onewrite_iotrace::meter::{ByFile, Figures};
use onewrite_workload::latency::Percentiles;
use onewrite_workload::plan::{Op, Order};
use onewrite_workload::raw::Rates;
use serde::Serialize;
use serde_json::{Map, Value};

use super::ratios::Ratios;
use crate::device::flash::{Cost, FlashModel};

/// The whole document.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Version of this format.
    pub version: u32,
    /// Type of the file system that the databases were on.
    pub filesystem: String,
    /// `loop` for a scratch file system, else the kernel's name of the block device; null if there
    /// is none.
    pub device: Option<String>,
    /// The device's latency model, as its file has it; null for a device without a model.
    pub device_model: Option<Latency>,
    /// The flash of `--device ftl`; null for another device.
    pub flash_model: Option<FlashModel>,
    /// How that file system was aged; null if it was not, or is no scratch file system.
    pub aged: Option<Aged>,
    /// Release of the kernel.
    pub kernel: String,
    /// Version of the SQLite library.
    pub sqlite: String,
    /// The system call with which stock modes make a file durable: `fdatasync` or `fsync`.
    pub sqlite_sync: &'static str,
    /// The abilities of the device, measured between the runs.
    pub raw: Raw,
    /// One for each mode and repetition, in their order.
    pub runs: Vec<Run>,
    /// Ratios to stock WAL over the rounds; null without it or without another mode.
    pub ratios: Option<Ratios>,
    /// The command's peak memory, in KiB; the processes that it started report their own.
    pub peak_rss_kib: Option<u64>,
    /// Modes that could not be run.
    pub failed: Vec<Failed>,
    /// Notes for the reader of these figures.
    pub notes: Vec<String>,
}

/// A mode that could not be run, and why.
#[derive(Debug, Serialize)]
pub struct Failed {
    /// The mode as the user gave it.
    pub mode: String,
    /// Why.
    pub error: String,
}

/// Raw rates in writes a second: the median of several measurements.
#[derive(Debug, Serialize)]
pub struct Raw {
    /// Durable 4 KiB direct overwrites; null where there is no direct I/O.
    pub direct_dsync_4k_per_s: Option<f64>,
    /// 4 KiB direct overwrites without durability.
    pub direct_4k_per_s: Option<f64>,
    /// Appends of 4,120 bytes with fdatasync.
    pub append_fdatasync_per_s: Option<f64>,
    /// The slowest measurement of each.
    pub min: RawRates,
    /// The fastest measurement of each.
    pub max: RawRates,
    /// Measurements: before the first run, and after every run of the least rounds.
    pub samples: usize,
    /// Writes of each kind in a measurement; on a slow device as many as fit into half a second, at
    /// least 50.
    pub writes_per_sample: u32,
}

/// Raw rates: one end of their range, or one measurement.
#[derive(Debug, Default, Serialize)]
pub struct RawRates {
    /// As in [`Raw`].
    pub direct_dsync_4k_per_s: Option<f64>,
    /// As in [`Raw`].
    pub direct_4k_per_s: Option<f64>,
    /// As in [`Raw`].
    pub append_fdatasync_per_s: Option<f64>,
}

impl Raw {
    /// Median and range of the measurements.
    pub fn of(samples: &[Rates], writes_per_sample: u32) -> Self {
        let sorted = |rate: fn(&Rates) -> Option<f64>| {
            let mut rates: Vec<f64> = samples.iter().filter_map(rate).collect();
            rates.sort_by(f64::total_cmp);
            rates
        };
        let dsync = sorted(|rates| rates.direct_dsync_4k);
        let direct = sorted(|rates| rates.direct_4k);
        let append = sorted(|rates| Some(rates.append_fdatasync));
        let bound = |pick: fn(&[f64]) -> Option<&f64>| RawRates {
            direct_dsync_4k_per_s: pick(&dsync).copied(),
            direct_4k_per_s: pick(&direct).copied(),
            append_fdatasync_per_s: pick(&append).copied(),
        };
        Self {
            direct_dsync_4k_per_s: onewrite_common::median(&dsync),
            direct_4k_per_s: onewrite_common::median(&direct),
            append_fdatasync_per_s: onewrite_common::median(&append),
            min: bound(<[f64]>::first),
            max: bound(<[f64]>::last),
            samples: samples.len(),
            writes_per_sample,
        }
    }
}

/// Raw rates of the measurements just before and just after a run.
#[derive(Debug, Default, Serialize)]
pub struct RawAround {
    /// Before the run.
    pub before: RawRates,
    /// After the run.
    pub after: RawRates,
}

impl RawAround {
    /// From the two measurements.
    pub fn of(before: Rates, after: Rates) -> Self {
        let rates = |rates: Rates| RawRates {
            direct_dsync_4k_per_s: rates.direct_dsync_4k,
            direct_4k_per_s: rates.direct_4k,
            append_fdatasync_per_s: Some(rates.append_fdatasync),
        };
        Self {
            before: rates(before),
            after: rates(after),
        }
    }
}

/// One mode, run once.
#[derive(Debug, Serialize)]
pub struct Run {
    /// The mode as the user gave it, variations included.
    pub mode: String,
    /// The journal mode that the connection reports.
    pub journal_mode: String,
    /// The kind of each transaction.
    pub op: Op,
    /// Transactions in all.
    pub count: u32,
    /// Threads of each process.
    pub threads: u32,
    /// Processes.
    pub processes: u32,
    /// Threads that only read.
    pub readers: u32,
    /// Transactions a second that became due, at random moments. Null if each worker began the next
    /// at once.
    pub rate: Option<u32>,
    /// Warehouses; null for an op other than TPC-C's.
    pub warehouses: Option<u32>,
    /// `PRAGMA synchronous` in force.
    pub synchronous: &'static str,
    /// Bytes of a row in the schema's terms; null for an op with its own sizes.
    pub record_size: Option<usize>,
    /// The order of updates and deletes.
    pub order: Order,
    /// The seed of values and random orders.
    pub seed: u64,
    /// Which repetition, from 1.
    pub repeat: u32,
    /// From the beginning of the first transaction to the end of the last.
    pub elapsed_s: f64,
    /// Transactions a second.
    pub ops_per_s: f64,
    /// User and system time of the working processes, during the run.
    pub cpu_s: f64,
    /// Latency of a transaction in microseconds: from its beginning, or with a rate from when it
    /// was due, until its COMMIT has returned.
    pub latency_us: Percentiles,
    /// The same for each kind of transaction, where an op has several. `read` counts the readers'
    /// work, which is in no other figure.
    pub kinds: Vec<Kind>,
    /// The state at the beginning of the run, and the log at its end.
    pub state: State,
    /// The raw rates measured just before and just after: the abilities of the machine at that
    /// time.
    pub raw_around: RawAround,
    /// The device's work from the first transaction to the end of the last.
    pub device: Option<Device>,
    /// The files that those bytes belong to; their sum is `device.write_bytes`.
    pub by_file: Option<ByFile>,
    /// `device` divided by the number of transactions.
    pub per_op: Option<PerOp>,
    /// The cost to the flash of `--device ftl`: of the run, the file system's later writes and the
    /// checkpoint.
    pub flash: Option<Cost>,
    /// Before the run: database, journal mode, table, initial rows, and a checkpoint.
    pub setup: Phase,
    /// After the run: data that the file system still had in memory.
    pub after: Phase,
    /// After that: a full checkpoint.
    pub checkpoint: Phase,
    /// Closing the last connection.
    pub close: Phase,
    /// Whether the database holds the transactions' data.
    pub checked: Checked,
    /// Every setting in force, as the connection reports it after the run.
    pub pragmas: Map<String, Value>,
}

/// One kind of transaction.
#[derive(Debug, Serialize)]
pub struct Kind {
    /// Its name.
    pub kind: String,
    /// The number of transactions.
    pub count: u64,
    /// Transactions a second.
    pub per_s: f64,
    /// Latency in microseconds.
    pub latency_us: Percentiles,
}

/// The freshness of a database, its cache and its log: those of the first file, if there are
/// several.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct State {
    /// Transactions executed before the measured ones.
    pub warm_up: u32,
    /// The database when the measurement began, in KiB; this includes pages that only the log
    /// holds.
    pub database_kib: u64,
    /// SQLite's cache of each connection, in KiB.
    pub cache_kib: u64,
    /// The log's file when the measurement began, in KiB; null for a mode without one.
    pub log_kib_before: Option<u64>,
    /// The same when it ended.
    pub log_kib_after: Option<u64>,
    /// The part of stock WAL's log, of 1, that was written when ext4 had no more room for its extents
    /// in the inode. Null for other modes.
    pub log_past_inode: Option<f64>,
}

/// Whether the database holds the transactions' data.
#[derive(Debug, Serialize)]
pub struct Checked {
    /// Rows in the table, or in all tables if the op has several.
    pub rows: u64,
    /// `ok`, or the findings of `PRAGMA integrity_check`.
    pub integrity_check: String,
    /// `ok`, or the first difference between the rows and the stored data.
    pub content: String,
    /// The same checks by stock SQLite after the last connection was closed: `ok` or the problem.
    pub stock_after_close: String,
}

impl Checked {
    /// The first problem found.
    pub fn problem(&self) -> Option<&str> {
        [
            &self.content,
            &self.integrity_check,
            &self.stock_after_close,
        ]
        .into_iter()
        .map(String::as_str)
        .find(|finding| *finding != "ok")
    }
}

/// The completed work of a device.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Device {
    /// Bytes written.
    pub write_bytes: u64,
    /// Write requests that carried data; null if they could not be told apart from those without.
    pub writes: Option<u64>,
    /// Flushes of the device's cache.
    pub flushes: u64,
    /// Write requests by the device's own counter, which includes requests that only flush.
    pub write_requests: u64,
}

/// A device's figures for one transaction.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PerOp {
    /// Bytes written.
    pub write_bytes: f64,
    /// Write requests that carried data.
    pub writes: Option<f64>,
    /// Flushes of the device's cache.
    pub flushes: f64,
}

/// A step before or after the run.
#[derive(Clone, Debug, Serialize)]
pub struct Phase {
    /// Bytes written to the device, including those that the file system wrote lazily afterwards.
    pub write_bytes: Option<u64>,
    /// Write requests that carried data, in the same time.
    pub writes: Option<u64>,
    /// Flushes of the device's cache until the step returned; null for `after`, whose flushes come
    /// from the measurement's own syncs.
    pub flushes: Option<u64>,
    /// The time of the step; null for `after`.
    pub elapsed_s: Option<f64>,
    /// The files that those bytes belong to.
    pub by_file: Option<ByFile>,
}

impl Device {
    /// From the meter's figures.
    pub fn of(figures: &Figures) -> Self {
        Self {
            write_bytes: figures.counters.write_bytes,
            writes: figures.writes,
            flushes: figures.counters.flushes,
            write_requests: figures.counters.write_requests,
        }
    }

    /// For one of `count` transactions.
    pub fn per_op(&self, count: u32) -> PerOp {
        let count = f64::from(count.max(1));
        PerOp {
            write_bytes: self.write_bytes as f64 / count,
            writes: self.writes.map(|writes| writes as f64 / count),
            flushes: self.flushes as f64 / count,
        }
    }
}

impl Phase {
    /// From the meter's figures, if there was one, and the step's own flushes.
    pub fn of(figures: Option<&Figures>, flushes: Option<u64>, elapsed_s: Option<f64>) -> Self {
        Self {
            write_bytes: figures.map(|figures| figures.counters.write_bytes),
            writes: figures.and_then(|figures| figures.writes),
            flushes,
            elapsed_s,
            by_file: figures.and_then(|figures| figures.by_file),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_rates_are_medians_with_their_range() {
        let sample = |rate| Rates {
            direct_dsync_4k: Some(rate),
            direct_4k: None,
            append_fdatasync: rate * 2.0,
        };
        let raw = Raw::of(&[sample(30.0), sample(10.0), sample(20.0)], 1000);
        assert_eq!(raw.direct_dsync_4k_per_s, Some(20.0));
        assert_eq!(raw.direct_4k_per_s, None);
        assert_eq!(raw.append_fdatasync_per_s, Some(40.0));
        assert_eq!(raw.min.direct_dsync_4k_per_s, Some(10.0));
        assert_eq!(raw.max.append_fdatasync_per_s, Some(60.0));
        assert_eq!(
            Raw::of(&[sample(1.0), sample(2.0)], 1000).direct_dsync_4k_per_s,
            Some(1.5)
        );
        assert_eq!(Raw::of(&[], 1000).append_fdatasync_per_s, None);
    }
}
