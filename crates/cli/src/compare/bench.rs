//! `onewrite bench`: a published workload at its full length, reported as `compare` does.

use clap::ValueEnum;
use onewrite_workload::plan::Op;

use super::{Args, Common, OpArg};
use crate::Outcome;

/// What the workloads are, below the options of `bench --help`.
pub const AFTER_HELP: &str = "\
Workloads:
  mail, messenger, message, sns
           four applications of a phone, generated to the characteristics that S-WAL (IEEE TCE 2018, \
table III) published of what they asked SQLite for in four weeks: 32,392, 7,301, 7,740 and 15,998 \
transactions in 1, 3, 6 and 20 database files. The traces themselves were never published. Full \
length, one thread; --count makes fewer, in proportion.
  partsupply
           X-FTL's (SIGMOD '13) random updates of TPC-H's partsupp: 60,000 rows of 220 bytes, --updates of \
them (1 to 20 in the paper) in each of 1,000 transactions, or --count.
  ycsb-a to ycsb-f
           YCSB's core workloads (SoCC '10): 1,000 operations, or --count, on 10,000 records of 10 fields \
of 100 bytes; each is a transaction, some only read.

Reports, modes and all other options are those of `onewrite compare`, which also takes these \
workloads as --op.

Examples:
  onewrite bench mail --modes persist,wal,swal,onewrite
  onewrite bench ycsb-a --threads 8 --count 20000
  onewrite bench message --device emmc --count 1000 --json";

/// Pages of log after which SQLite checkpoints, unless it is told otherwise.
const SQLITES_AUTOCHECKPOINT: u32 = 1000;

/// The options of `onewrite bench`.
#[derive(clap::Args, Debug)]
pub struct BenchArgs {
    /// What is run, see below
    #[arg(value_enum)]
    workload: Workload,

    /// Transactions [default: those of the workload as it was published]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    count: Option<u32>,

    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Workload {
    Mail,
    Messenger,
    Message,
    Sns,
    Partsupply,
    YcsbA,
    YcsbB,
    YcsbC,
    YcsbD,
    YcsbE,
    YcsbF,
}

impl From<Workload> for OpArg {
    fn from(workload: Workload) -> Self {
        match workload {
            Workload::Mail => Self::Mail,
            Workload::Messenger => Self::Messenger,
            Workload::Message => Self::Message,
            Workload::Sns => Self::Sns,
            Workload::Partsupply => Self::Partsupply,
            Workload::YcsbA => Self::YcsbA,
            Workload::YcsbB => Self::YcsbB,
            Workload::YcsbC => Self::YcsbC,
            Workload::YcsbD => Self::YcsbD,
            Workload::YcsbE => Self::YcsbE,
            Workload::YcsbF => Self::YcsbF,
        }
    }
}

/// Runs the command.
pub fn run(args: &BenchArgs) -> Outcome {
    let op = OpArg::from(args.workload);
    let published = Op::from(op).trace_length();
    let mut common = args.common.clone();
    // As applications run it: the log is reused, and checkpoints are part of the run.
    common.autocheckpoint = common.autocheckpoint.or(Some(SQLITES_AUTOCHECKPOINT));
    super::run(&Args {
        op,
        count: args.count.or(published).unwrap_or(super::DEFAULT_COUNT),
        common,
    })
}
