//! What the orchestrator and its worker say to each other: one JSON document a line, over the worker's
//! standard input and output.
//!
//! The orchestrator answers the device's requests and must not wait for the device itself, so
//! everything that mounts, writes or reads happens in a worker. A worker's notes are answered before
//! it goes on, so that a note stands in the history before anything that follows it.

use std::io::{self, BufRead, BufReader, Stdin, Stdout, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use onewrite_torture::failure::Failure;
use onewrite_torture::ledger::Event;
use onewrite_torture::model::Commit;
use serde::{Deserialize, Serialize};

use super::workload::Workload;

/// A file system to make and mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum FileSystemArg {
    /// ext4 as it is mounted by default: data=ordered
    Ext4,
    /// ext4 with data=journal
    Ext4DataJournal,
    /// XFS
    Xfs,
    /// Btrfs
    Btrfs,
}

/// A deliberate defect, to show that the checks see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Broken {
    /// The engine writes at commit and never flushes
    NoFlush,
    /// The device answers flushes and does nothing
    DeviceIgnoresFlushes,
    /// The log starts again while the checkpoint is still in the page cache
    EarlyReuse,
    /// The log's extents are unwritten, and a commit flushes the device but no file-system metadata
    UnwrittenExtents,
    /// As unwritten-extents, but with extents that were initialized: nothing may be found
    InitializedExtents,
    /// A commit is written, and acknowledged when a write-through write to another file has returned:
    /// nothing may be found without --fua, and must be with it
    TrustsWriteThrough,
}

/// What stays the same for all orders to one worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setup {
    pub file_system: FileSystemArg,
    pub node: PathBuf,
    pub mount_point: PathBuf,
    /// As `--mode` takes it.
    pub mode: String,
    /// The engine is shown a device with FUA, and tells its calls on logs.
    pub fua: bool,
    pub broken: Option<Broken>,
}

/// Transactions to run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Work {
    pub workload: Workload,
    pub transactions: u32,
    pub seed: u64,
}

/// How a check opens the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Opening {
    /// Through the VFS onewrite, with no pragma.
    Plain,
    /// As the application does, journal mode and all.
    AsApplication,
    /// Through stock SQLite.
    Stock,
}

/// What to check of the mounted device.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Check {
    pub opening: Opening,
    /// Show a guarded database to stock SQLite first.
    pub show_to_stock: bool,
    /// Go on with this work, as the application would.
    pub then: Option<Work>,
}

/// From the orchestrator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Order {
    /// The first order to a worker.
    Begin(Setup),
    /// Make the file system on the device.
    Make,
    /// Mount, work, close, unmount.
    Record(Work),
    /// Mount, check, close, unmount.
    Check(Check),
}

/// What a writer meant, and what SQLite said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    Intent,
    Acknowledged,
    /// A reader has seen it.
    Read,
    Withdrawn,
}

/// A commit, by its place in the one order and the digest of all up to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Point {
    pub tick: i64,
    pub chain: i64,
}

/// A thread of the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Thread(pub u64);

impl Thread {
    /// The one that asks.
    fn current() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        thread_local!(static OWN: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
        Self(OWN.with(|own| *own))
    }
}

/// Something that belongs into the history.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Note {
    /// The tables are there, and acknowledged.
    Created,
    Commit {
        what: What,
        writer: u32,
        point: Point,
    },
    /// A checkpoint of the whole log, or the last close, begins.
    CheckpointBegins,
    /// It is complete: everything acknowledged before it began is in the database for good.
    CheckpointDone,
    /// All connections are closed; what follows is the unmount.
    Closed,
    /// So many bytes are about to be written to a log, and durable when that returns.
    WriteThrough { bytes: u64 },
    /// A log is about to be flushed, or something of it that comes with a flush.
    LogFlush,
    /// Something else is about to happen to a log.
    LogCall,
}

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The tables are there.
    pub tables: bool,
    /// The last commit.
    pub last: Point,
    /// The last commit that the attached database mirrors, where there is one.
    pub mirror: Option<Point>,
    /// The database was guarded.
    pub guarded: bool,
}

/// From the worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// Wants an answer: an empty line.
    Note(Note, Thread),
    Done,
    Found(Found),
    Failed(Failure),
}

/// The worker's end.
#[derive(Clone)]
pub struct Channel(Arc<Mutex<Ends>>);

struct Ends {
    input: BufReader<Stdin>,
    output: Stdout,
}

impl Channel {
    /// Standard input and output, which belong to the protocol from now on.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Ends {
            input: BufReader::new(io::stdin()),
            output: io::stdout(),
        })))
    }

    /// The next order; `None` when the orchestrator is done or gone.
    pub fn order(&self) -> Result<Option<Order>, Failure> {
        let mut ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut line = String::new();
        match ends.input.read_line(&mut line)? {
            0 => Ok(None),
            _ => serde_json::from_str(&line)
                .map(Some)
                .map_err(|error| Failure::Harness(format!("an order that is none: {error}"))),
        }
    }

    /// Sends a reply.
    pub fn reply(&self, reply: &Reply) -> Result<(), Failure> {
        let mut ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        send(&mut ends, reply)
    }

    /// Sends a note, and waits until it stands in the history.
    pub fn note(&self, note: Note) -> Result<(), Failure> {
        let mut ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        send(&mut ends, &Reply::Note(note, Thread::current()))?;
        let mut line = String::new();
        match ends.input.read_line(&mut line)? {
            0 => Err(Failure::Harness("the orchestrator is gone".to_owned())),
            _ => Ok(()),
        }
    }
}

fn send(ends: &mut Ends, reply: &Reply) -> Result<(), Failure> {
    let mut line = serde_json::to_string(reply)
        .map_err(|error| Failure::Harness(format!("cannot encode a reply: {error}")))?;
    line.push('\n');
    ends.output.write_all(line.as_bytes())?;
    Ok(ends.output.flush()?)
}

impl Note {
    /// A note about a commit, as the transactions tell it.
    pub fn of(event: Event, commit: &Commit) -> Option<Self> {
        let what = match event {
            Event::Intent => What::Intent,
            Event::Acknowledged => What::Acknowledged,
            Event::Withdrawn => What::Withdrawn,
            Event::Settled => return None,
        };
        Some(Self::Commit {
            what,
            writer: commit.writer.0,
            point: Point {
                tick: commit.tick.0,
                chain: commit.chain,
            },
        })
    }
}
