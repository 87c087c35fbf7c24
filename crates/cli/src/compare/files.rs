//! `onewrite bench file`: Mobibench's file part, each way of writing in turn on the same files.

use std::process::ExitCode;

use clap::ValueEnum;
use onewrite_flash::latency::Latency;
use onewrite_iotrace::age::Aged;
use onewrite_iotrace::meter::{ByFile, Figures, Meter};
use onewrite_workload::Error;
use onewrite_workload::files::{Access, FilePlan, Way};
use onewrite_workload::latency::Percentiles;
use onewrite_workload::team::{Control, Finished};
use serde::Serialize;

use super::report::{Device, PerOp};
use crate::output::OutputArgs;
use crate::place::{self, Place, Where};
use crate::progress::Progress;
use crate::text_table::{NONE, TextTable};
use crate::{Outcome, interrupt};

/// Explains the options of `bench file --help`.
pub const AFTER_HELP: &str = "\
Each thread has its own file, filled and synced before the run. A record is one system call at a \
multiple of its size. With mmap it is a copy to or from a mapping of the file, followed by nothing, \
msync(MS_ASYNC) or msync(MS_SYNC). Device figures count the requests that the device completed from the first record to \
the return of the last. Data that the page cache still held then is reported apart (lazily). Every record is \
checked afterwards.

Examples:
  onewrite bench file
  onewrite bench file --access random-write --ways fdatasync,mmap --device emmc --threads 4";

/// The options of `onewrite bench file`.
#[derive(clap::Args, Clone, Debug)]
pub struct FileArgs {
    #[command(flatten)]
    place: Where,

    /// The use of the records: writes or reads, and their order
    #[arg(long, value_enum, default_value_t = AccessArg::SequentialWrite)]
    access: AccessArg,

    /// Ways of writing, in turn
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "write,o-sync,fsync,fdatasync,o-direct,o-direct-o-sync,mmap,mmap-ms-async,mmap-ms-sync"
    )]
    ways: Vec<WayArg>,

    /// Records in all, over every thread
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    count: u32,

    /// Threads, each with a file
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,

    /// Bytes of a record
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(512..=16_777_216))]
    record_size: u32,

    /// Bytes of each file, in KiB
    #[arg(long, default_value_t = 1024, value_name = "KIB", value_parser = clap::value_parser!(u32).range(1..=67_108_864))]
    file_kib: u32,

    /// The seed of random places
    #[arg(long, default_value_t = 1)]
    seed: u64,

    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum AccessArg {
    SequentialWrite,
    RandomWrite,
    SequentialRead,
    RandomRead,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum WayArg {
    Write,
    OSync,
    Fsync,
    Fdatasync,
    ODirect,
    ODirectOSync,
    Mmap,
    MmapMsAsync,
    MmapMsSync,
}

impl From<AccessArg> for Access {
    fn from(arg: AccessArg) -> Self {
        match arg {
            AccessArg::SequentialWrite => Self::SequentialWrite,
            AccessArg::RandomWrite => Self::RandomWrite,
            AccessArg::SequentialRead => Self::SequentialRead,
            AccessArg::RandomRead => Self::RandomRead,
        }
    }
}

impl From<WayArg> for Way {
    fn from(arg: WayArg) -> Self {
        match arg {
            WayArg::Write => Self::Write,
            WayArg::OSync => Self::OSync,
            WayArg::Fsync => Self::Fsync,
            WayArg::Fdatasync => Self::Fdatasync,
            WayArg::ODirect => Self::ODirect,
            WayArg::ODirectOSync => Self::ODirectOSync,
            WayArg::Mmap => Self::Mmap,
            WayArg::MmapMsAsync => Self::MmapMsAsync,
            WayArg::MmapMsSync => Self::MmapMsSync,
        }
    }
}

/// The document of `--json`. As in `compare`, fields are added and never renamed.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) version: u32,
    pub(super) filesystem: String,
    pub(super) device: Option<String>,
    pub(super) device_model: Option<Latency>,
    pub(super) aged: Option<Aged>,
    pub(super) kernel: String,
    pub(super) access: Access,
    pub(super) count: u32,
    pub(super) threads: u32,
    pub(super) record_bytes: u32,
    pub(super) file_bytes: u64,
    pub(super) seed: u64,
    pub(super) runs: Vec<Run>,
    /// Ways that could not be run, such as direct I/O where there is none.
    pub(super) failed: Vec<Failed>,
    pub(super) notes: Vec<String>,
}

/// A way that could not be run, and why.
#[derive(Debug, Serialize)]
pub(super) struct Failed {
    pub(super) way: Way,
    pub(super) error: String,
}

/// One way, run once.
#[derive(Debug, Serialize)]
pub struct Run {
    pub(super) way: Way,
    pub(super) elapsed_s: f64,
    /// Records a second.
    pub ops_per_s: f64,
    pub(super) cpu_s: f64,
    pub(super) latency_us: Percentiles,
    /// The device's work from the first record to the return of the last.
    pub device: Option<Device>,
    /// The files that those bytes belong to.
    pub by_file: Option<ByFile>,
    pub(super) per_op: Option<PerOp>,
    /// Bytes that were written later, when the file system was synced.
    pub(super) after_write_bytes: Option<u64>,
    /// `ok`, or the first record that differs from its last write.
    pub checked: String,
    /// The part of the first file, of 1, that was written when ext4 had no more room for its extents
    /// in the inode, if it was written from beginning to end. Null where the file system does not
    /// say.
    pub past_inode: Option<f64>,
}

impl FileArgs {
    fn plan(&self, way: Way) -> FilePlan {
        let records = u64::from(self.file_kib) * 1024 / u64::from(self.record_size);
        FilePlan {
            access: self.access.into(),
            way,
            count: self.count,
            record_bytes: self.record_size as usize,
            records: u32::try_from(records).unwrap_or(u32::MAX).max(1),
            threads: self.threads.min(self.count),
            seed: self.seed,
        }
    }
}

/// Runs the command.
pub fn run(args: &FileArgs) -> Outcome {
    args.output.check()?;
    interrupt::install()?;
    let progress = Progress::default();
    let files = u64::from(args.threads) * u64::from(args.file_kib) * 1024;
    let place = place::choose(&args.place, place::bytes_with(files), &progress)?;
    let measured = measure(args, &place, &progress);
    drop(progress);
    // The place is taken down before the report, even after an error. The measured figures are
    // shown anyway.
    let removed = place.remove();
    let shown = show(args, &measured?);
    removed.and(shown)
}

fn measure(args: &FileArgs, place: &Place, progress: &Progress) -> Result<Report, String> {
    let mut notes = place.notes.clone();
    let (mut runs, mut failed) = (Vec::new(), Vec::new());
    for way in args.ways.iter().copied().map(Way::from) {
        match one(&args.plan(way), place, progress) {
            Ok((run, said)) => {
                runs.push(run);
                notes.extend(said);
            }
            Err(error) if interrupt::is_requested() => return Err(error),
            Err(error) => failed.push(Failed { way, error }),
        }
    }
    notes.dedup();
    Ok(Report {
        version: 1,
        filesystem: place.file_system.clone(),
        device: place.device_name(),
        device_model: place.device_model(),
        aged: place.aged,
        kernel: place::kernel_release(),
        access: args.access.into(),
        count: args.count,
        threads: args.threads,
        record_bytes: args.record_size,
        file_bytes: u64::from(args.file_kib) * 1024,
        seed: args.seed,
        runs,
        failed,
        notes,
    })
}

/// Runs one way once. Returns the measurement, and notes about it for the reader.
pub fn one(
    plan: &FilePlan,
    place: &Place,
    progress: &Progress,
) -> Result<(Run, Vec<String>), String> {
    let text = |error: Error| error.to_string();
    progress.say(&format!("{}: files", plan.way.name()));
    // No database: every file counts as another one.
    let meter = place.meter(&place.root().join("no-database"))?;
    let settle = || meter.as_ref().map(Meter::settle).transpose();
    let mark = || meter.as_ref().map(Meter::mark).transpose();
    let failed = |error: onewrite_iotrace::Error| error.to_string();
    let prepared = plan.prepare(place.root()).map_err(text)?;
    settle().map_err(failed)?;
    progress.say(plan.way.name());
    let (control, mut from) = (Control::default(), None);
    let gate = || {
        from = mark().map_err(|error| Error::Wrong(error.to_string()))?;
        Ok(())
    };
    let stop = interrupt::requested();
    let work = || prepared.run(&control, stop, gate).map_err(text);
    let finished = progress.during(u64::from(plan.count), &control, work)?;
    let returned = mark().map_err(failed)?;
    let settled = settle().map_err(failed)?;
    let checked = prepared.check().map_err(text)?;
    let first = prepared.paths().first();
    let past_inode = first.and_then(|path| onewrite_iotrace::part_past_inode(path).ok());
    drop(prepared);
    let (mut figures, said) = match (meter, from, returned, settled) {
        (Some(meter), Some(from), Some(returned), Some(settled)) => {
            meter.finish(&[(from, returned), (returned, settled)])
        }
        _ => (Vec::new(), Vec::new()),
    };
    let after = (figures.len() > 1).then(|| figures.swap_remove(1));
    let run = Run {
        past_inode,
        ..described(plan, &finished, figures.pop(), after.as_ref(), checked)
    };
    Ok((run, said))
}

fn described(
    plan: &FilePlan,
    finished: &Finished,
    figures: Option<Figures>,
    after: Option<&Figures>,
    checked: String,
) -> Run {
    let elapsed_s = finished.last.seconds_since(finished.first);
    let device = figures.as_ref().map(Device::of);
    Run {
        way: plan.way,
        elapsed_s,
        ops_per_s: f64::from(plan.count) / elapsed_s.max(1e-9),
        cpu_s: finished.cpu_nanos as f64 / 1e9,
        latency_us: finished.latencies.percentiles(),
        device,
        by_file: figures.and_then(|figures| figures.by_file),
        per_op: device.map(|device| device.per_op(plan.count)),
        after_write_bytes: after.map(|after| after.counters.write_bytes),
        checked,
        past_inode: None,
    }
}

fn show(args: &FileArgs, report: &Report) -> Outcome {
    let page = || super::files_page::page(report);
    args.output.show(report, || rendered(report), page)?;
    let mut code = ExitCode::SUCCESS;
    for Failed { way, error } in &report.failed {
        eprintln!("onewrite: {}: {error}", way.name());
        code = ExitCode::FAILURE;
    }
    for run in report.runs.iter().filter(|run| run.checked != "ok") {
        eprintln!("onewrite: {}: {}", run.way.name(), run.checked);
        code = ExitCode::FAILURE;
    }
    Ok(code)
}

/// A number of threads in words.
pub(super) fn threads(number: u32) -> String {
    match number {
        1 => "1 thread".to_owned(),
        number => format!("{number} threads"),
    }
}

fn rendered(report: &Report) -> String {
    let heads = [
        "way",
        "ops/s",
        "p50\nus",
        "p99\nus",
        "device\nKiB/op",
        "writes\n/op",
        "flushes\n/op",
        "fs journal\nKiB/op",
        "lazily\nafter MiB",
    ];
    let mut table = TextTable::new(1, heads);
    let none = || NONE.to_owned();
    let kib = |bytes: f64| format!("{:.1}", bytes / 1024.0);
    for run in &report.runs {
        let per_op = run.per_op.as_ref();
        let journal = run
            .by_file
            .map(|by| by.fs_journal_bytes as f64 / f64::from(report.count));
        table.row([
            run.way.name().to_owned(),
            format!("{:.0}", run.ops_per_s),
            run.latency_us.p50.to_string(),
            run.latency_us.p99.to_string(),
            per_op.map_or_else(none, |per_op| kib(per_op.write_bytes)),
            per_op
                .and_then(|per_op| per_op.writes)
                .map_or_else(none, |n| format!("{n:.2}")),
            per_op.map_or_else(none, |per_op| format!("{:.2}", per_op.flushes)),
            journal.map_or_else(none, kib),
            run.after_write_bytes
                .map_or_else(none, |bytes| format!("{:.1}", bytes as f64 / 1_048_576.0)),
        ]);
    }
    let (count, bytes) = (report.count, report.record_bytes);
    let mut text = format!(
        "{count} records of {bytes} bytes, {}, {}\n{table}\n",
        report.access.name(),
        threads(report.threads)
    );
    text.push_str(&format!("{}, Linux {}\n", report.filesystem, report.kernel));
    for note in &report.notes {
        text.push_str(&format!("{note}\n"));
    }
    text
}
