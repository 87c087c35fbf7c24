//! `onewrite trace`: every I/O of a device while a command runs, or for a time. Each I/O has its
//! purpose, its file, its process, and its duration.
//!
//! `watch` finds the device and traces it. `insert` runs its own transactions instead of a command.
//! `report` is the JSON document, and `table` the text for people. `show` puts documents of earlier
//! traces side by side. `events` is the list of I/Os,
//! and `picture` the drawing. The formats are in docs/trace.md.

mod events;
mod insert;
mod page;
mod picture;
mod report;
mod show;
mod table;
mod watch;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::ArgGroup;
use onewrite_iotrace::io::FileId;
use onewrite_iotrace::summary::Summary;
use onewrite_iotrace::trace::{Mark, Recording};
use onewrite_plot::Picture;

use crate::arguments::{Modes, ScratchArg};
use crate::output::OutputArgs;
use crate::{Outcome, interrupt};
use report::Report;

pub use picture::draw;

/// Explains the figures below the options of `trace --help`.
pub const AFTER_HELP: &str = "\
The kinds of I/O:
  file-system journal   ext4's journal, XFS's log, Btrfs's log trees
  file-system metadata  inodes, bitmaps, directories, trees, superblocks
  database              a file that begins as SQLite's do, or that has one of the following next to it
  log                   DB-onewrite, and stock SQLite's DB-wal
  rollback journal      DB-journal, and DB-mj... for several databases
  wal-index             DB-shm
  other file            by its name
  unknown               not known from the trace; nothing is guessed

The trace counts everything that the device does in that time, for any process; one table is by process. \
If a program writes a page without waiting, a thread of the kernel writes it to the device later. That page \
then counts for that thread. With a command or --insert, earlier writes are synced first. The trace ends when \
the command has ended: it does not have the data that the file system then still holds in memory.

The time of a request has two stages, as btt prints them: from the block layer's queue to the driver, and \
from the driver to completion. A request is sequential if it begins where the one before it ended, of any \
process; otherwise the device seeks.

The figures are compared with the device's own counters (/sys/block/DEVICE/stat). The last line says \
whether they are equal. Events that the kernel had no room for are reported. A trace needs root, a kernel \
with tracefs, and ext4, XFS or Btrfs on a disk or partition (no LVM, no RAID).

--insert makes a database in each of these modes, inserts --count rows of 100 bytes, one a transaction, \
and traces those inserts, as WALDIO (USENIX ATC 2015) does in figures 2, 11 and 12. Modes are those of compare.

Examples:
  onewrite trace -- python3 app.py
  onewrite trace --dir /var/lib/app --seconds 10 --plot io.svg
  onewrite trace --scratch ext4 --setup 'sh make.sh' -- sqlite3 a.db 'INSERT INTO t VALUES (1)'
  onewrite trace --scratch ext4 --insert delete,wal,onewrite --plot insert.svg
  onewrite trace --json -- python3 app.py > before.json
  onewrite trace --show before.json,after.json";

/// The longest trace, in seconds.
const MOST_SECONDS: f64 = 7.0 * 24.0 * 3600.0;

/// The options of `onewrite trace`.
#[derive(clap::Args, Clone, Debug)]
#[command(override_usage = "onewrite trace [OPTIONS] -- COMMAND...\n       \
                            onewrite trace [OPTIONS] --seconds N\n       \
                            onewrite trace [OPTIONS] --insert MODES\n       \
                            onewrite trace --show FILE,FILE...")]
#[command(group(ArgGroup::new("what").required(true).args(["command", "seconds", "insert", "show"])))]
pub struct Args {
    /// Trace the device that holds this directory [default: the current one]
    #[arg(long, conflicts_with_all = ["device", "scratch"])]
    dir: Option<PathBuf>,

    /// Trace this disk or partition, whose file system is mounted
    #[arg(long, value_name = "DEV", conflicts_with = "scratch")]
    device: Option<PathBuf>,

    /// Make and mount a file system of this type on a loop device, run the command in it, and
    /// remove it afterwards
    #[arg(long, value_enum, value_name = "TYPE")]
    scratch: Option<ScratchArg>,

    /// Keep the scratch image there while it is in use [default: $TMPDIR or /tmp]
    #[arg(long, value_name = "DIR", requires = "scratch")]
    scratch_dir: Option<PathBuf>,

    /// Trace for this time instead of during a command
    #[arg(long, value_name = "N", value_parser = seconds)]
    seconds: Option<f64>,

    /// Trace rows inserted in these journal modes, separated by commas; with --scratch
    #[arg(long, value_name = "MODES", requires = "scratch")]
    insert: Option<Modes>,

    /// Show the documents of earlier traces (--json) side by side, separated by commas, and trace
    /// nothing
    #[arg(long, value_name = "FILES", value_delimiter = ',', conflicts_with_all = ["dir", "device", "scratch", "setup", "per", "events", "plot"])]
    show: Vec<PathBuf>,

    /// Rows that --insert inserts, one a transaction
    #[arg(long, default_value_t = 1, requires = "insert", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: u32,

    /// Run this before the trace begins, with sh
    #[arg(long, value_name = "COMMAND", conflicts_with = "insert")]
    setup: Option<String>,

    /// Also show figures divided by this: the number of inserts, or commits, that the command makes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    per: Option<u64>,

    /// Look at existing files for at most this time before the trace begins; missed files may show
    /// as unknown
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(0..=86_400))]
    look: u32,

    #[command(flatten)]
    output: OutputArgs,

    /// Write each I/O to this file, as one JSON object a line
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,

    /// Draw the writes by place and time into this file: .svg, or .png in a build with
    /// `--features png`
    #[arg(long, value_name = "FILE", value_parser = picture_file)]
    plot: Option<PathBuf>,

    /// The command to run and trace until it ends
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    match seconds > 0.0 && seconds <= MOST_SECONDS {
        true => Ok(seconds),
        false => Err(format!("it must be more than 0 and at most {MOST_SECONDS}")),
    }
}

fn picture_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    Picture::is_png(&path).map_err(|error| error.to_string())?;
    Ok(path)
}

impl Args {
    fn look_at_most(&self) -> Duration {
        Duration::from_secs(u64::from(self.look))
    }
}

/// One trace, ended.
pub struct Traced {
    /// The traced work, in words.
    pub what: String,
    /// The journal mode, with --insert.
    pub mode: Option<String>,
    /// The divisor of the figures.
    pub per: Option<u64>,
    /// The file system's type.
    pub file_system: &'static str,
    /// The device's name in the kernel.
    pub device: String,
    /// Everything that the kernel reported.
    pub recording: Recording,
    /// The beginning of the traced work.
    pub from: Mark,
    /// Its end.
    pub to: Mark,
    /// The end of the command, if there was one.
    pub ended: Option<Ended>,
}

/// The end of a command.
#[derive(Clone, Copy)]
pub struct Ended {
    code: Option<i32>,
    signal: Option<i32>,
}

impl Traced {
    /// Its sums, compared with the device's counters.
    pub fn summary(&self) -> Summary {
        self.recording.summary(&self.from, &self.to)
    }

    fn path(&self, file: FileId) -> &str {
        let file = self.recording.files.get(file.0 as usize);
        file.map_or("", |file| file.path.as_str())
    }

    /// The exit code of this program: as in a shell, 128 plus the signal if one killed the command.
    fn code(&self) -> u8 {
        let Some(ended) = self.ended else { return 0 };
        let of_signal = ended.signal.map(|signal| 128 + signal);
        let code = ended.code.or(of_signal).unwrap_or(1);
        u8::try_from(code).unwrap_or(1)
    }
}

/// Traces what the user asked for and reports it. The exit code is that of the command.
pub fn run(args: &Args) -> Outcome {
    args.output.check()?;
    if !args.show.is_empty() {
        show::show(&args.show, &args.output)?;
        return Ok(ExitCode::SUCCESS);
    }
    interrupt::install()?;
    if !rustix::process::geteuid().is_root() {
        return Err(
            "tracing needs root: run it with sudo (without root, `onewrite compare --dir` \
                    measures rates)"
                .to_owned(),
        );
    }
    // A path that cannot be written must fail before the work.
    for file in [&args.events, &args.plot].into_iter().flatten() {
        writable(file)?;
    }
    let (traced, removed) = watch::all(args)?;
    let report = Report::of(&traced);
    if let Some(file) = &args.events {
        events::write(file, &traced)?;
    }
    if let Some(file) = &args.plot {
        let drawn = picture::draw(&traced).and_then(|picture| picture.save(file));
        drawn.map_err(|error| error.to_string())?;
    }
    let page = || page::page(&traced, &report);
    args.output.show(&report, || table::render(&traced), page)?;
    removed?;
    let code = traced.iter().map(Traced::code).max().unwrap_or(0);
    Ok(interrupt::exit_code(ExitCode::from(code)))
}

fn writable(file: &Path) -> Result<(), String> {
    let open = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(file);
    open.map(drop)
        .map_err(|error| crate::directory::cannot_write(file, &error))
}
