//! `onewrite compare`: the same transactions under each journal mode, and the cost of each mode.
//!
//! `place` finds or makes the file system. [`rounds`] runs all modes until their ratios are decided;
//! [`session`] runs one of them from set-up to close. `processes` shares a run out over several
//! processes. [`ratios`] compares paired rounds by the statistics of [`paired`]. [`report`] is the
//! JSON document, `table` the text. Every mode gets a fresh database and the same transactions.

mod bench;
pub mod files;
mod files_page;
pub mod page;
pub mod paired;
mod processes;
pub mod ratios;
pub mod report;
pub mod rounds;
pub mod session;
mod table;
pub mod warm_up;

use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use onewrite_workload::mode::Synchronous;
use onewrite_workload::plan::{Op, Order, Plan};
use onewrite_workload::raw::RawBench;

use crate::arguments::{Modes, SynchronousArg};
use crate::output::OutputArgs;
use crate::place::{self, Place, Where};
use crate::progress::Progress;
use crate::{Outcome, interrupt};
use ratios::Ratios;
use report::{Report, Run};
use rounds::{Comparison, Rounds};

pub use processes::run_worker;

pub use bench::{AFTER_HELP as BENCH_AFTER_HELP, BenchArgs, run as run_bench};

/// Explains the figures below the options of `compare --help`.
pub const AFTER_HELP: &str = "\
The kinds of transactions (--op):
  insert, update, delete
           Mobibench's: one row of a table (id INTEGER PRIMARY KEY, value TEXT, created INTEGER). In the \
schema's terms, a record of 100 bytes has 8 bytes id, 84 bytes value and 8 bytes created. 1 frame on stock \
WAL.
  indexed  one row inserted into a table (id INTEGER PRIMARY KEY, name TEXT, phone INTEGER, body \
TEXT, created INTEGER) with an index on name and one on phone; --record-size is the size of body. 3 \
frames on stock WAL.
  mail, messenger, message, sns
           the next transaction of a phone's application, generated to the characteristics in S-WAL's \
table III: 1, 3, 6 and 20 database files, reads before some transactions, one to several rows in each. \
One thread. `onewrite bench` runs them at full length.
  partsupply
           X-FTL's: --updates random rows of 60,000, each of 220 bytes.
  ycsb-a to ycsb-f
           an operation of YCSB's core workloads on 10,000 records of 1,000 bytes; some only read.
  scan     reads all of these records, in the order of their keys.
  tpcc, tpcc-read
           one of TPC-C's five transactions, in the specification's mix, or with tpcc-read in a mix where 95 of 100 read; --warehouses. TPC-C's conditions of consistency are checked after the run.
  web      one of a web server's short transactions: 8 writers and 8 readers, or --threads and --readers. A reader that sees half a transaction is an error.
  app      one message, stored as a messenger or mail application does: a row in each of one to three \
indexed tables (numbers, and texts of words), updates of its conversation's counters, and in one of 20 a \
BLOB of 1 to 8 KiB. 64 conversations and 1,000 messages exist before. 6 frames on stock WAL.

Device figures count everything that the device completed from the beginning of the first transaction to \
the end of the last. Before that, the file system is synced and the device idle. Data that the file system \
still had in memory afterwards, the set-up (database, preallocation, initial rows), a checkpoint and the \
close are measured in the same way for every mode, and reported apart. With --autocheckpoint N, checkpoints \
happen inside the run instead.

Device figures are exact, and need a device without other users: --scratch, which needs root. Elsewhere \
only rates and latencies are available.

A steady state: --steady checkpoints every 1000 pages of log. It first executes enough transactions to fill the log twice and to make a database of 256 KiB, so that the log is reused. It gives SQLite a cache of at most a quarter of the database. --autocheckpoint, --warm-up and --cache-kib set each of these. Every run in the JSON has `state`: sizes of database, cache and log when the measurement began, and of the log when it ended. --aged ages the scratch file system in rounds. A round allocates files until no more fit, and deletes random ones until 60 % are in use. The rounds end when a new file of 8 MiB is in at least 12 pieces; the notes have the result.

Rounds: a round runs each mode once; the order changes from round to round. `times wal` is the ratio of \
the rates in the same rounds, and its interval holds the true ratio in 95 of 100 comparisons. Without \
--repeat, rounds follow until no interval reaches more than 3 % below 1 and more than 3 % above. There are 20 \
at most, and none begins that would end after 40 seconds. Where that does not decide, a line says so.

The same load: without --rate each thread begins its next transaction when the one before is committed, so a faster mode is under a higher load. Where one thread goes on while others \
sleep, p99 is that thread's. With --rate transactions become due at random moments (a Poisson process), as from clients that do not wait for each other, and a latency counts from then. \
The report says which modes could not keep up: their latencies grow with the length of the run.

The raw rates are those of plain system calls on the same file system. They are measured before \
the first run and after every run, because other work on the machine affects both. The table has medians \
with their range; the JSON has for each run those just before and just after it.

--device keeps the scratch file system in memory that answers as late as a device would, not in a loop device's image. A small file gives the times of reads, writes and flushes; a flush stalls the requests behind it. nvme, emmc and sd are built in, with their sources. none adds no time, and shows the time of the path to that memory. docs/devices.md has the format. The raw rates are measured there too.

--device ftl puts it on flash below an FTL (docs/xftl.md) instead, and says what each mode costs the flash: pages of the host, of the FTL's map, moved by garbage collection; erases; and the years that the flash lasts at 1 transaction a second, or --rate, if wear is level. These figures have the checkpoint, and what the file system wrote later. Twice the flash lasts twice as long. Options follow a colon, separated by commas:
  flush=nothing|journal|changed|whole  the map's pages that a flush writes [nothing]
  copies=apart|among-host      where garbage collection copies to [apart]
  map=one-die|striped          the dies that write the map [one-die]
  gc=greedy|cost-benefit       the block that garbage collection empties [greedy]
  board                        the OpenSSD board: flush=whole,copies=among-host,map=striped,channels=2,ways=4
  nand=openssd|emmc|tlc|tlc-3d|slc-cache|FILE   times and endurance [openssd]
  spare=PERCENT                kept back for garbage collection [12]
  full=PERCENT                 of the pages that hold something before the first run [80]
  used=programmed|steady       a used device was programmed 1.5 times over, or until amplification is steady [programmed]
  planes=NUMBER                of each die, which program pages together [1]
  map-cache=ENTRIES            of the page map in memory; 0 is all [0]
  gc-ahead=BLOCKS              free beyond the reserve that garbage collection makes ahead of need [4]
  pages=independent|paired     whether a cell has two pages; then the FTL pads [independent]
  bit-errors=FILE              rates of bit errors; scrub=PERCENT and scrub-reads=READS move blocks before
  buffer=PAGES                 the write buffer [64]
  queue=REQUESTS               in flight at most [1]
  channels, ways, page-size, pages-per-block
  time=real|none               whether it takes the flash's time; counts are the same [real]

Modes (or durable, for all that a crash leaves intact): delete, truncate, persist, memory, wal and off are SQLite's own and run through its own VFS. \
A mode can be varied: waldio:layout=page8k,sync=normal,group_synch=4/2
  layout       embedded, sector, page4k, page8k, gathered
  sync         full, persistent, normal, auto
  init         zero-fill, write-zeroes, unwritten, auto
  compression  auto, lz4, zstd, none (onewrite and swal)
  goal         balanced, speed, bytes (onewrite and swal, with compression auto)
  differences  on, off (onewrite and swal)
  group_synch  frames/milliseconds
  checkpoint   copy, exchange, clone, auto (onewrite and waldio)
  synchronous  off, normal, full, extra (any mode)
  page_size    1024 to 65536 (any mode)
  locking_mode normal, exclusive (any mode)

Examples:
  onewrite compare
  onewrite compare --dir /mnt/card --modes wal,waldio --op update
  onewrite compare --scratch ext4 --modes wal:synchronous=full,waldio --synchronous normal --json
  onewrite compare --device emmc --modes wal,waldio,onewrite --threads 8
  onewrite compare --device ftl:board,time=none --modes delete,wal,onewrite --autocheckpoint 1000
  onewrite compare --scratch ext4 --aged --steady --op update --count 10000";

/// The note on the figures of generated workloads.
const GENERATED: &str =
    "generated to published characteristics (S-WAL, IEEE TCE 2018, table III), not recorded";

/// Pages of log after which SQLite checkpoints by default.
const SQLITES_AUTOCHECKPOINT: u32 = 1000;

/// The default number of transactions.
const DEFAULT_COUNT: u32 = 1000;

/// On a slow device the default is less: so many seconds of its durable writes for each mode, and at
/// least [`LEAST_COUNT`]. A newcomer's first comparison, of seven modes, then takes under a minute.
const ENOUGH_S: f64 = 2.0;

/// See [`ENOUGH_S`].
const LEAST_COUNT: u32 = 100;

/// Rounds at most, if nobody says how many.
const MOST_ROUNDS: u32 = 20;

/// How long these rounds take at most, once each mode has run.
const WITHIN: Duration = Duration::from_secs(40);

/// The options of `onewrite compare`.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The kind of each transaction, see below
    #[arg(long, value_enum, default_value_t = OpArg::Insert)]
    op: OpArg,

    /// Transactions in all, over every thread and process [default: 1000, fewer on a device with less
    /// than 500 durable writes a second]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    count: Option<u32>,

    #[command(flatten)]
    common: Common,
}

/// The common options of `compare` and `bench`.
#[derive(clap::Args, Clone, Debug)]
struct Common {
    #[command(flatten)]
    place: Where,

    /// Journal modes, separated by commas; each may have variations, see below
    #[arg(
        long,
        default_value = "delete,truncate,persist,wal,direct,waldio,onewrite"
    )]
    modes: Modes,

    /// Threads of each process, each with a connection of its own [default: 1, and 8 for `web`]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,

    /// Processes, each with that many threads
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    processes: u32,

    /// Transactions that become due in a second, in all, at random moments. Latencies count from
    /// then [default: each thread begins the next at once]
    #[arg(long, value_name = "PER_SECOND", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    rate: Option<u32>,

    /// Bytes of a row in the schema's terms: 8 for id, 8 for created, the rest for value. With
    /// indexed, the bytes of its body; app has its own sizes
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(17..=1_000_000))]
    record_size: u32,

    /// Rows that a transaction of partsupply changes
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    updates: u32,

    /// Warehouses of tpcc and tpcc-read; each is some 600,000 rows, 77 MB
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    warehouses: u32,

    /// Threads that read next to the writers, only with web [default: 8]
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=1024))]
    readers: Option<u32>,

    /// Measure a steady state: checkpoints every 1000 pages, a warm-up that fills the log twice, a
    /// database larger than its cache; see below
    #[arg(long)]
    steady: bool,

    /// Transactions before the measured ones [default: 0; with --steady enough to fill the log
    /// twice and to make a database of 256 KiB]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(0..=100_000_000))]
    warm_up: Option<u32>,

    /// PRAGMA cache_size of every connection, in KiB [default: SQLite's 2000; with --steady a
    /// quarter of the database if that is less]
    #[arg(long, value_name = "KIB", value_parser = clap::value_parser!(u32).range(16..=1_073_741_824))]
    cache_kib: Option<u32>,

    /// PRAGMA synchronous of every mode that does not set it
    #[arg(long, value_enum, default_value_t = SynchronousArg::Full)]
    synchronous: SynchronousArg,

    /// The order of updates and deletes: by id as Mobibench does, or shuffled
    #[arg(long, value_enum, default_value_t = OrderArg::Id)]
    order: OrderArg,

    /// Seed of the values and the shuffled order
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Checkpoint after this many pages of log, inside the run; 0 leaves it to the end [default: 0,
    /// and 1000 for `bench` and with --steady]
    #[arg(long, value_name = "PAGES", value_parser = clap::value_parser!(u32).range(0..=1_000_000_000))]
    autocheckpoint: Option<u32>,

    /// Run all modes this many times; the table shows the run with the median rate [default: once for
    /// bench; for compare see Rounds]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: Option<u32>,

    /// After --repeat, run all modes again until the ratios to wal are decided, at most this often
    /// in all [default: --repeat]
    #[arg(long, value_name = "ROUNDS", value_parser = clap::value_parser!(u32).range(1..=1000))]
    max_rounds: Option<u32>,

    #[command(flatten)]
    output: OutputArgs,
}

impl Common {
    /// Whether the warm-up's length follows from the workload.
    fn sizes_warm_up(&self) -> bool {
        self.steady && self.warm_up.is_none()
    }

    fn rounds(&self) -> Rounds {
        let least = self.repeat.unwrap_or(1);
        let (most, within) = match (self.repeat, self.max_rounds) {
            (None, None) => (MOST_ROUNDS, Some(WITHIN)),
            (_, None) => (least, None),
            (_, Some(most)) => (most, None),
        };
        Rounds {
            least,
            most,
            within,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OpArg {
    Insert,
    Update,
    Delete,
    Indexed,
    App,
    Mail,
    Messenger,
    Message,
    Sns,
    Partsupply,
    Tpcc,
    TpccRead,
    Web,
    YcsbA,
    YcsbB,
    YcsbC,
    YcsbD,
    YcsbE,
    YcsbF,
    Scan,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OrderArg {
    Id,
    Random,
}

impl From<OpArg> for Op {
    fn from(arg: OpArg) -> Self {
        match arg {
            OpArg::Insert => Self::Insert,
            OpArg::Update => Self::Update,
            OpArg::Delete => Self::Delete,
            OpArg::Indexed => Self::Indexed,
            OpArg::App => Self::App,
            OpArg::Mail => Self::Mail,
            OpArg::Messenger => Self::Messenger,
            OpArg::Message => Self::Message,
            OpArg::Sns => Self::Sns,
            OpArg::Partsupply => Self::Partsupply,
            OpArg::Tpcc => Self::Tpcc,
            OpArg::TpccRead => Self::TpccRead,
            OpArg::Web => Self::Web,
            OpArg::YcsbA => Self::YcsbA,
            OpArg::YcsbB => Self::YcsbB,
            OpArg::YcsbC => Self::YcsbC,
            OpArg::YcsbD => Self::YcsbD,
            OpArg::YcsbE => Self::YcsbE,
            OpArg::YcsbF => Self::YcsbF,
            OpArg::Scan => Self::Scan,
        }
    }
}

impl Args {
    fn plan(&self) -> Result<Plan, String> {
        let workers = self.threads() * self.common.processes;
        let op = Op::from(self.op);
        if self.readers() > 0 && !op.has_readers() {
            return Err(format!("--readers: {} has none, web has", op.name()));
        }
        if self.readers() > 0 && self.common.processes > 1 {
            return Err("--readers are threads of one process: no --processes".to_owned());
        }
        let count = self.count.unwrap_or(DEFAULT_COUNT);
        if count < workers {
            return Err(format!(
                "--count {count} has fewer transactions than there are workers ({workers})"
            ));
        }
        if let (Some(repeat), Some(most)) = (self.common.repeat, self.common.max_rounds)
            && most < repeat
        {
            return Err(format!(
                "--max-rounds {most} is fewer rounds than --repeat {repeat}"
            ));
        }
        if op.trace_length().is_some() && workers > 1 {
            return Err(format!(
                "{} has one application's transactions in their order: use one thread and one process",
                op.name()
            ));
        }
        Ok(Plan {
            op,
            count: count.saturating_add(self.common.warm_up.unwrap_or(0)),
            warm_up: self.common.warm_up.unwrap_or(0),
            record_size: self.common.record_size as usize,
            updates: self.common.updates,
            warehouses: self.common.warehouses,
            order: match self.common.order {
                OrderArg::Id => Order::Id,
                OrderArg::Random => Order::Random,
            },
            seed: self.common.seed,
            workers,
            readers: self.readers(),
            rate: self.common.rate,
        })
    }

    /// The needs of a scratch file system.
    fn room(&self, plan: &Plan) -> place::Room {
        place::Room {
            op: plan.op,
            count: plan.count,
            record_size: self.common.record_size,
            autocheckpoint: self.autocheckpoint(),
            warehouses: self.common.warehouses,
        }
    }

    /// Threads of each process.
    fn threads(&self) -> u32 {
        let web = Op::from(self.op).has_readers();
        self.common.threads.unwrap_or(if web { 8 } else { 1 })
    }

    /// Threads that only read.
    fn readers(&self) -> u32 {
        let web = Op::from(self.op).has_readers() && self.common.processes == 1;
        self.common.readers.unwrap_or(if web { 8 } else { 0 })
    }

    /// Pages of log after which a checkpoint follows; 0 is never.
    fn autocheckpoint(&self) -> u32 {
        let default = if self.common.steady {
            SQLITES_AUTOCHECKPOINT
        } else {
            0
        };
        self.common.autocheckpoint.unwrap_or(default)
    }

    fn terms(&self) -> session::Terms {
        session::Terms {
            synchronous: self.synchronous(),
            autocheckpoint: self.autocheckpoint(),
            threads: self.threads(),
            processes: self.common.processes,
            steady: self.common.steady,
            cache_kib: self.common.cache_kib,
        }
    }

    fn synchronous(&self) -> Synchronous {
        self.common.synchronous.into()
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    let mut plan = match args.plan() {
        Ok(plan) => plan,
        Err(message) => {
            eprintln!("onewrite: {message}");
            return Ok(ExitCode::from(2));
        }
    };
    args.common.output.check()?;
    interrupt::install()?;
    let progress = Progress::default();
    if args.common.sizes_warm_up() {
        progress.say("sizing the warm-up");
        plan = warm_up::sized(&plan, args.autocheckpoint())?;
    }
    let room = args.room(&plan).bytes();
    let place = place::choose(&args.common.place, room, &progress)?;
    let compared = compare(args, &plan, &place, &progress);
    drop(progress);
    // The place is taken down before the report, even after an error. The measured figures are
    // shown anyway.
    let removed = place.remove();
    let shown = show(args, &compared?);
    removed.and(shown)
}

/// All rounds of all modes, with the raw rates between them.
fn compare(args: &Args, plan: &Plan, place: &Place, progress: &Progress) -> Result<Report, String> {
    let workers = args.threads() * args.common.processes;
    let bench = rounds::raw_bench(place, args.count.unwrap_or(DEFAULT_COUNT) / workers)?;
    let (plan, fewer) = fitting(args, plan, &bench)?;
    let comparison = Comparison {
        plan: &plan,
        terms: args.terms(),
        modes: &args.common.modes.0,
        rounds: args.common.rounds(),
        is_open: &Ratios::is_open,
    };
    let mut report = comparison.measure(place, Some(&bench), progress)?;
    report.notes.extend(fewer);
    if plan.op.trace_length().is_some() {
        report
            .notes
            .push(format!("{}: {GENERATED}", plan.op.name()));
    }
    report.notes.extend(plan.rate.map(|rate| {
        format!(
            "{rate} transactions a second became due, at random moments; latencies count from then"
        )
    }));
    Ok(report)
}

/// The plan, with fewer transactions and a note where nobody said how many and the device is slow.
fn fitting(
    args: &Args,
    plan: &Plan,
    bench: &RawBench<'_>,
) -> Result<(Plan, Option<String>), String> {
    let common = &args.common;
    let is_free = args.count.is_none() && common.rate.is_none() && !common.steady;
    if !is_free || common.warm_up.is_some() {
        return Ok((plan.clone(), None));
    }
    let rates = bench.measure().map_err(|error| error.to_string())?;
    // The slower one is what most modes come to.
    let overwrite = rates.direct_dsync_4k.unwrap_or(f64::INFINITY);
    let durable = overwrite.min(rates.append_fdatasync);
    let count = count_for(durable, args.threads() * common.processes);
    let note = (count < DEFAULT_COUNT).then(|| {
        format!(
            "{count} transactions, and not {DEFAULT_COUNT}, because this device makes {durable:.0} durable writes a second; \
             --count sets them"
        )
    });
    let count = count.min(plan.count);
    Ok((
        Plan {
            count,
            ..plan.clone()
        },
        note,
    ))
}

/// The transactions for a device with so many durable writes a second.
fn count_for(durable: f64, workers: u32) -> u32 {
    let fitting = (durable * ENOUGH_S) as u32;
    fitting.clamp(LEAST_COUNT, DEFAULT_COUNT).max(workers)
}

/// Prints the report and turns its result into an exit code.
fn show(args: &Args, report: &Report) -> Outcome {
    let output = &args.common.output;
    output.show(report, || table::render(report), || page::page(report))?;
    let mut code = ExitCode::SUCCESS;
    for failed in &report.failed {
        eprintln!("onewrite: {}: {}", failed.mode, failed.error);
        code = ExitCode::FAILURE;
    }
    for Run { mode, checked, .. } in &report.runs {
        if let Some(problem) = checked.problem() {
            eprintln!("onewrite: {mode}: the database is wrong: {problem}");
            code = ExitCode::FAILURE;
        }
    }
    Ok(interrupt::exit_code(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_device_gets_fewer_transactions() {
        for (durable, workers, count) in [
            (30_000.0, 1, DEFAULT_COUNT),
            (500.0, 1, DEFAULT_COUNT),
            (156.4, 1, 312),
            (3.0, 1, LEAST_COUNT),
            (3.0, 200, 200),
        ] {
            assert_eq!(count_for(durable, workers), count, "{durable}");
        }
    }
}
