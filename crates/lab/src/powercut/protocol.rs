//! The protocol between the orchestrator and its worker: one JSON document a line, over the
//! worker's standard input and output.
//!
//! The orchestrator answers the device's requests and must not wait for the device itself. So the
//! worker does everything that mounts, writes or reads. The orchestrator answers each note before
//! the worker goes on. So a note stands in the history before anything that follows it.

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

/// A deliberate defect. It shows that the checks can find it.
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
    /// As unwritten-extents, but with initialized extents: the checks must find nothing
    InitializedExtents,
    /// A written commit is acknowledged when a write-through write to another file has returned.
    /// The checks must find nothing without --fua, and must find it with --fua
    TrustsWriteThrough,
}

/// The settings that stay the same for all orders to one worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setup {
    pub file_system: FileSystemArg,
    pub node: PathBuf,
    pub mount_point: PathBuf,
    /// The journal mode, in the form that `--mode` takes.
    pub mode: String,
    /// The engine sees a device with FUA, and announces its calls on logs.
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

/// The checks to run on the mounted device.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Check {
    pub opening: Opening,
    /// Show a guarded database to stock SQLite first.
    pub show_to_stock: bool,
    /// Continue with this work, as the application would.
    pub then: Option<Work>,
}

/// An order from the orchestrator.
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

/// The content of a note on a commit: the writer's intent, or SQLite's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    Intent,
    Acknowledged,
    /// A reader has seen the commit.
    Read,
    Withdrawn,
}

/// A commit: its position in the total order, and the digest of all commits up to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Point {
    pub tick: i64,
    pub chain: i64,
}

/// A thread of the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Thread(pub u64);

impl Thread {
    /// The calling thread.
    fn current() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        thread_local!(static OWN: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
        Self(OWN.with(|own| *own))
    }
}

/// A note that belongs in the history.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Note {
    /// The tables exist, and their creation is acknowledged.
    Created,
    Commit {
        what: What,
        writer: u32,
        point: Point,
    },
    /// A checkpoint of the whole log, or the last close, begins.
    CheckpointBegins,
    /// The checkpoint is complete: everything acknowledged before it began is in the database for
    /// good.
    CheckpointDone,
    /// All connections are closed; the unmount follows.
    Closed,
    /// This many bytes are about to be written to a log, and are durable when the call returns.
    WriteThrough { bytes: u64 },
    /// A log is about to be flushed, or a call on it that includes a flush is about to start.
    LogFlush,
    /// Another call on a log is about to start.
    LogCall,
}

/// The findings of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The tables exist.
    pub tables: bool,
    /// The last commit.
    pub last: Point,
    /// The last commit that the attached database mirrors, if there is one.
    pub mirror: Option<Point>,
    /// The database was guarded.
    pub guarded: bool,
}

/// A reply from the worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// Expects an answer: an empty line.
    Note(Note, Thread),
    Done,
    Found(Found),
    Failed(Failure),
}

/// The worker's end of the protocol.
#[derive(Clone)]
pub struct Channel(Arc<Mutex<Ends>>);

struct Ends {
    input: BufReader<Stdin>,
    output: Stdout,
}

impl Channel {
    /// Takes standard input and output, which belong to the protocol from now on.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Ends {
            input: BufReader::new(io::stdin()),
            output: io::stdout(),
        })))
    }

    /// Receives the next order; `None` when the orchestrator is done or gone.
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
    /// A note about a commit, from the event that the transactions report.
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
