//! `onewrite bench`: a published workload at its full length, reported as `compare` does.

use clap::Subcommand;
use onewrite_workload::plan::Op;

use super::{Args, Common, OpArg, files};
use crate::Outcome;

/// The text about the workloads below the options of `bench --help`.
pub const AFTER_HELP: &str = "\
Workloads:
  mail, messenger, message, sns
           four applications of a phone, generated to the characteristics that S-WAL (IEEE TCE 2018, \
table III) published of their SQLite transactions in four weeks: 32,392, 7,301, 7,740 and 15,998 \
transactions in 1, 3, 6 and 20 database files. The traces themselves were never published. Full \
length, one thread; --count runs fewer, in proportion.
  partsupply
           X-FTL's (SIGMOD '13) random updates of TPC-H's partsupp, which has 60,000 rows of 220 bytes. Each \
of 1,000 transactions, or of --count, changes --updates rows (1 to 20 in the paper).
  ycsb-a to ycsb-f
           YCSB's core workloads (SoCC '10): 1,000 operations, or --count, on 10,000 records of 10 fields \
of 100 bytes. Each operation is a transaction; some only read.

  tpcc, tpcc-read
           TPC-C's nine tables and five transactions: 1 warehouse or --warehouses, 1,000 transactions or --count, --threads terminals. tpcc has the specification's mix; in tpcc-read, 95 of 100 transactions only read. TPC-C's conditions of consistency are checked after every run. No keying and think times: no rate here is a tpmC.
  web      a web server's short transactions: 8 writers (--threads), and 8 readers (--readers) that check every snapshot that they read.

  file     Mobibench's file part, see `onewrite bench file --help`.

Reports, modes and all other options are those of `onewrite compare`, which also takes these \
workloads as --op.

Examples:
  onewrite bench mail --modes persist,wal,swal,onewrite
  onewrite bench ycsb-a --threads 8 --count 20000
  onewrite bench tpcc --warehouses 2 --threads 4 --modes wal,onewrite
  onewrite bench web --threads 32 --modes durable --steady --aged
  onewrite bench message --device emmc --count 1000 --json";

/// The options of `onewrite bench`.
#[derive(clap::Args, Debug)]
pub struct BenchArgs {
    #[command(subcommand)]
    workload: Workload,
}

#[derive(Debug, Subcommand)]
enum Workload {
    /// S-WAL's Mail: 32,392 transactions in one file
    Mail(Run),
    /// S-WAL's Messenger: 7,301 transactions in 3 files
    Messenger(Run),
    /// S-WAL's Message (SMS): 7,740 transactions in 6 files
    Message(Run),
    /// S-WAL's SNS: 15,998 transactions in 20 files
    Sns(Run),
    /// X-FTL's random updates of TPC-H's partsupp
    Partsupply(Run),
    /// TPC-C's five transactions in its own mix
    Tpcc(Run),
    /// TPC-C's transactions in a mix that mostly reads
    TpccRead(Run),
    /// A web server: 8 writers with short transactions, with 8 readers
    Web(Run),
    /// YCSB's workload A: reads and updates
    YcsbA(Run),
    /// YCSB's workload B: reads, and some updates
    YcsbB(Run),
    /// YCSB's workload C: reads
    YcsbC(Run),
    /// YCSB's workload D: reads of new records, and some inserts
    YcsbD(Run),
    /// YCSB's workload E: scans, and some inserts
    YcsbE(Run),
    /// YCSB's workload F: reads, and reads followed by an update
    YcsbF(Run),
    /// Mobibench's file part: records written or read without SQLite
    #[command(after_long_help = files::AFTER_HELP)]
    File(files::FileArgs),
}

/// The options of a workload that uses SQLite.
#[derive(clap::Args, Clone, Debug)]
struct Run {
    /// Transactions [default: those of the published workload, or 1000]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    count: Option<u32>,

    #[command(flatten)]
    common: Common,
}

/// Runs the command.
pub fn run(args: &BenchArgs) -> Outcome {
    let (op, run) = match &args.workload {
        Workload::File(args) => return files::run(args),
        Workload::Mail(run) => (OpArg::Mail, run),
        Workload::Messenger(run) => (OpArg::Messenger, run),
        Workload::Message(run) => (OpArg::Message, run),
        Workload::Sns(run) => (OpArg::Sns, run),
        Workload::Partsupply(run) => (OpArg::Partsupply, run),
        Workload::Tpcc(run) => (OpArg::Tpcc, run),
        Workload::TpccRead(run) => (OpArg::TpccRead, run),
        Workload::Web(run) => (OpArg::Web, run),
        Workload::YcsbA(run) => (OpArg::YcsbA, run),
        Workload::YcsbB(run) => (OpArg::YcsbB, run),
        Workload::YcsbC(run) => (OpArg::YcsbC, run),
        Workload::YcsbD(run) => (OpArg::YcsbD, run),
        Workload::YcsbE(run) => (OpArg::YcsbE, run),
        Workload::YcsbF(run) => (OpArg::YcsbF, run),
    };
    let published = Op::from(op).trace_length();
    let mut common = run.common.clone();
    // As applications run it: the log is reused, and checkpoints are part of the run.
    common.autocheckpoint = common
        .autocheckpoint
        .or(Some(super::SQLITES_AUTOCHECKPOINT));
    if common.max_rounds.is_none() {
        common.repeat = common.repeat.or(Some(1));
    }
    super::run(&Args {
        op,
        count: run.count.or(published).or(Some(super::DEFAULT_COUNT)),
        common,
    })
}
