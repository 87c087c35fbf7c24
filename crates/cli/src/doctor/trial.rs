//! Measures the rate of durable writes at the place.

use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget};
use onewrite::storage::pace::{self, Pace, Way};
use onewrite::storage::{
    Access, AlignedBuf, Capabilities, Create, DirectIo, Durability, Init, LogFile, NewFile,
};
use onewrite_workload::raw::RawBench;
use serde::Serialize;

use crate::{directory, interrupt};

/// Writes of each kind in a measurement.
const WRITES: u32 = 1_000;

/// Bytes of one write.
const BLOCK_BYTES: usize = 4096;

/// Bytes on which both ways of a durable write are timed.
const PACE_BYTES: u64 = 128 << 10;

/// Measurements of each kind, unless one takes long.
const SAMPLES: usize = 3;

/// No sample begins after this long: a slow card is not measured three times.
const ENOUGH: Duration = Duration::from_secs(5);

/// Writes a second, medians of `samples` measurements of `writes_per_sample` writes each.
#[derive(Clone, Debug, Serialize)]
pub struct Rates {
    /// Durable 4 KiB overwrites of initialized blocks with direct I/O; null where there is none.
    pub direct_dsync_4k_per_s: Option<f64>,
    /// The same without durability.
    pub direct_4k_per_s: Option<f64>,
    /// Durable 4 KiB overwrites of initialized blocks through the page cache, with fdatasync.
    pub buffered_fdatasync_4k_per_s: Option<f64>,
    /// Appends of 4,120 bytes with fdatasync, like those of a growing log.
    pub append_fdatasync_per_s: Option<f64>,
    /// The time of one durable write in the two ways that `onewrite_sync=auto` chooses from; null
    /// without direct I/O.
    pub durable: Option<Durable>,
    /// Measurements of each kind.
    pub samples: usize,
    /// Writes of each kind in one of them.
    pub writes_per_sample: u32,
}

/// Two ways of one durable write, and the one that a new log here would use.
#[derive(Clone, Debug, Serialize)]
pub struct Durable {
    /// Their medians.
    #[serde(flatten)]
    pub pace: Pace,
    /// `persistent` or `full`, as in `onewrite_sync`.
    pub auto: &'static str,
    /// Why.
    pub why: String,
}

/// Measures in a new directory inside `dir`, and removes it again.
pub fn measure(dir: &Path, found: &Capabilities) -> Result<Rates, String> {
    let name = dir.display();
    let scratch = tempfile::Builder::new()
        .prefix("onewrite-doctor-")
        .tempdir_in(dir)
        .map_err(|error| format!("cannot make a directory in {name}: {error}"))?;
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.set_message(format!("measuring durable writes in {name}"));
    if !bar.is_hidden() {
        bar.enable_steady_tick(Duration::from_millis(100));
    }
    let rates = samples(dir, scratch.path(), found);
    bar.finish_and_clear();
    let path = scratch.path().to_owned();
    scratch
        .close()
        .map_err(|error| format!("cannot remove {}: {error}", path.display()))?;
    rates
}

/// Measures in `scratch`, which is inside `dir`.
fn samples(dir: &Path, scratch: &Path, found: &Capabilities) -> Result<Rates, String> {
    let bench = RawBench::prepare(scratch, WRITES)
        .map_err(|error| directory::explain(dir, &error))?
        .stopped_by(interrupt::requested());
    let log = log_file(scratch).map_err(|error| directory::explain(dir, &error))?;
    let (mut dsync, mut direct) = (Vec::new(), Vec::new());
    let (mut buffered, mut append) = (Vec::new(), Vec::new());
    let begin = Instant::now();
    while append.len() < SAMPLES && (append.is_empty() || begin.elapsed() < ENOUGH) {
        let raw = bench.measure().map_err(|error| error.to_string())?;
        // An O_DIRECT that opens is not yet direct I/O: data=journal sends it through the cache.
        if found.direct.is_ok() {
            dsync.extend(raw.direct_dsync_4k);
            direct.extend(raw.direct_4k);
        }
        append.push(raw.append_fdatasync);
        buffered.push(overwrite(&log)?);
    }
    Ok(Rates {
        durable: durable(scratch).map_err(|error| directory::explain(dir, &error))?,
        samples: append.len(),
        writes_per_sample: bench.writes(),
        direct_dsync_4k_per_s: median(dsync),
        direct_4k_per_s: median(direct),
        buffered_fdatasync_4k_per_s: median(buffered),
        append_fdatasync_per_s: median(append),
    })
}

/// Times both ways as the engine does.
fn durable(dir: &Path) -> Result<Option<Durable>, onewrite::storage::StorageError> {
    let new = NewFile {
        mode: 0o600,
        owner: None,
    };
    let path = dir.join("onewrite-doctor-pace");
    let log = LogFile::open(&path, Create::New(new), Access::ReadWrite, DirectIo::Auto)?;
    if log.direct().is_none() {
        return Ok(None);
    }
    log.initialize(0..PACE_BYTES, Init::ZeroFill)?;
    let timed = pace::time(&log, 0..PACE_BYTES)?;
    let same = pace::why_the_same(log.capabilities(), true);
    Ok(timed.map(|pace| Durable {
        pace,
        auto: match same.map_or(pace.way(), |_| Way::WriteThrough) {
            Way::WriteThrough => "persistent",
            Way::WriteAndFlush => "full",
        },
        why: same.map_or_else(|| pace.to_string(), str::to_owned),
    }))
}

/// A preallocated log, written as the engine does without direct I/O.
fn log_file(dir: &Path) -> Result<LogFile, onewrite::storage::StorageError> {
    let new = NewFile {
        mode: 0o600,
        owner: None,
    };
    let path = dir.join("onewrite-doctor-log");
    let log = LogFile::open(&path, Create::New(new), Access::ReadWrite, DirectIo::Never)?;
    let bytes = u64::from(WRITES) * BLOCK_BYTES as u64;
    log.initialize(0..bytes, Init::ZeroFill)?;
    log.sync_directory()?;
    Ok(log)
}

fn overwrite(log: &LogFile) -> Result<f64, String> {
    let block = AlignedBuf::zeroed(BLOCK_BYTES);
    let begin = Instant::now();
    for at in 0..u64::from(WRITES) {
        if interrupt::is_requested() {
            return Err("stopped".to_owned());
        }
        log.write_at(&block, at * BLOCK_BYTES as u64, Durability::WriteThrough)
            .map_err(|error| error.to_string())?;
    }
    Ok(f64::from(WRITES) / begin.elapsed().as_secs_f64().max(1e-9))
}

fn median(mut rates: Vec<f64>) -> Option<f64> {
    rates.sort_by(f64::total_cmp);
    onewrite_common::median(&rates)
}
