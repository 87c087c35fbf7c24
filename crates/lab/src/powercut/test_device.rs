//! One device with its worker process: records histories, and has crash images checked.

use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use onewrite_flash::device::{Device, FlushHandling};
use onewrite_flash::history::{Event, History, Position};
use onewrite_flash::host::Host;
use onewrite_flash::image::Image;
use onewrite_torture::failure::{Failure, Promise};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::fua;
use super::protocol::{
    Broken, Check, FileSystemArg, Found, Note, Order, Reply, Setup, Thread, Work,
};
use onewrite_cli::interrupt;

/// The limit for an order. A longer one counts as hung.
const PATIENCE: Duration = Duration::from_secs(180);

/// The reason why a device could not carry out an order.
#[derive(Debug)]
pub enum Stop {
    /// A promise was broken, or the harness failed.
    Failed(Failure),
    /// The user asked to stop.
    Interrupted,
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

fn harness(what: &str, error: impl std::fmt::Display) -> Stop {
    Stop::Failed(Failure::Harness(format!("{what}: {error}")))
}

/// The recording of an order.
#[derive(Default)]
pub struct Recorded {
    pub history: History,
    /// The meanings of the history's marks.
    pub notes: Vec<Note>,
}

/// See the module.
pub struct TestDevice {
    // In the order in which they must be dropped.
    worker: Option<Worker>,
    host: Host,
    _directory: tempfile::TempDir,
    device: Device,
    setup: Setup,
    /// The freshly made file system.
    empty: Image,
    never_torn: Vec<Range<u64>>,
}

impl TestDevice {
    /// Makes a device with a fresh file system on it. The calling thread must be in a private mount
    /// namespace.
    pub fn new(mut setup: Setup, parent: &Path) -> Result<Self, Stop> {
        let device = Device::new(setup.file_system.device_bytes());
        let host = Host::new(device.clone(), parent)
            .map_err(|error| harness("cannot make a device", error))?;
        let directory = tempfile::Builder::new()
            .prefix("onewrite-powercut-")
            .tempdir_in(parent)
            .map_err(|error| harness("cannot make a mount point", error))?;
        setup.node = host.node().to_owned();
        setup.mount_point = directory.path().to_owned();
        let mut made = Self {
            worker: None,
            host,
            _directory: directory,
            device,
            setup,
            empty: Image::default(),
            never_torn: Vec::new(),
        };
        match made.obey(&Order::Make, &mut |_, _| {})? {
            Reply::Done => {}
            other => return Err(harness("mkfs", format!("{other:?}"))),
        }
        made.empty = made.device.content();
        made.never_torn = superblocks(made.setup.file_system, &made.empty);
        Ok(made)
    }

    /// The ranges of the file system that no power cut may tear.
    pub fn never_torn(&self) -> &[Range<u64>] {
        &self.never_torn
    }

    /// The freshly made file system, on which every history begins.
    pub fn empty(&self) -> &Image {
        &self.empty
    }

    /// Whether the engine sees a device with FUA, and commits are cut accordingly.
    pub fn has_fua(&self) -> bool {
        self.setup.fua
    }

    /// The defect.
    pub fn broken(&self) -> Option<Broken> {
        self.setup.broken
    }

    /// Runs `work` on an empty file system and records it.
    pub fn record(&mut self, work: Work) -> Result<Recorded, Stop> {
        if self.setup.broken == Some(Broken::DeviceIgnoresFlushes) {
            self.device.handle_flushes(FlushHandling::Ignored);
        }
        self.load(self.empty.clone())?;
        let (recorded, reply) = self.recorded(&Order::Record(work));
        self.device.handle_flushes(FlushHandling::Obeyed);
        match reply? {
            Reply::Done => {}
            other => return Err(harness("record", format!("{other:?}"))),
        }
        Ok(recorded)
    }

    /// Has a crash image checked, and records recovery's writes. Returns the recording whether or
    /// not the check finds something.
    pub fn check(&mut self, image: Image, check: Check) -> (Recorded, Result<Found, Stop>) {
        let (recorded, reply) = match self.load(image) {
            Ok(()) => self.recorded(&Order::Check(check)),
            Err(stop) => (Recorded::default(), Err(stop)),
        };
        let found = reply.and_then(|reply| match reply {
            Reply::Found(found) => Ok(found),
            other => Err(harness("check", format!("{other:?}"))),
        });
        (recorded, found)
    }

    /// Puts a medium under the loop device.
    fn load(&self, image: Image) -> Result<(), Stop> {
        self.host
            .drop_cache()
            .map_err(|error| harness("the device's cache", error))?;
        self.device.load(image);
        Ok(())
    }

    fn recorded(&mut self, order: &Order) -> (Recorded, Result<Reply, Stop>) {
        let device = self.device.clone();
        let mut notes = Vec::new();
        device.record();
        let reply = self.obey(order, &mut |note, thread| {
            device.mark(notes.len() as u64);
            notes.push((note, thread));
        });
        let mut history = device.stop();
        if self.setup.fua {
            fua::assume(&mut history, &notes);
        }
        let notes = notes.into_iter().map(|(note, _)| note).collect();
        (Recorded { history, notes }, reply)
    }

    /// Sends an order and waits for its result. If a worker failed to answer, the next order gets a
    /// new one.
    fn obey(&mut self, order: &Order, note: &mut dyn FnMut(Note, Thread)) -> Result<Reply, Stop> {
        let mut worker = match self.worker.take() {
            Some(worker) => worker,
            None => Worker::start(&self.setup)?,
        };
        worker.send(order)?;
        loop {
            match worker.receive()? {
                Reply::Note(text, thread) => {
                    note(text, thread);
                    worker.acknowledge()?;
                }
                reply => {
                    self.worker = Some(worker);
                    return match reply {
                        Reply::Failed(failure) => Err(failure.into()),
                        reply => Ok(reply),
                    };
                }
            }
        }
    }
}

impl Recorded {
    /// The number of flushes that stand for FUA.
    pub fn write_throughs(&self) -> usize {
        use onewrite_flash::history::Covers::WritesSince;
        let events = self.history.events().iter();
        events
            .filter(|event| matches!(event, Event::Flush(WritesSince(_))))
            .count()
    }

    /// The position where the last connection was closed, or the end.
    pub fn closed(&self) -> Position {
        let marks = self.history.marks(self.history.end());
        let closed = marks
            .filter(|(_, mark)| matches!(self.notes.get(*mark as usize), Some(Note::Closed)))
            .last();
        closed.map_or(self.history.end(), |(position, _)| position)
    }
}

/// Superblocks with a checksum. The file system reads them before it replays its journal, and
/// relies on its device not to tear them. They are ext4's (1 KiB in the first block), that of its
/// journal, and Btrfs's copies (4 KiB each). The superblock of XFS is one sector.
pub fn superblocks(file_system: FileSystemArg, image: &Image) -> Vec<Range<u64>> {
    const BLOCK: u64 = 4096;
    // Documentation/filesystems/ext4/journal.rst: h_magic, and h_blocktype 4, superblock v2.
    const JOURNAL: [u8; 8] = [0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 4];
    let starts = match file_system {
        FileSystemArg::Ext4 | FileSystemArg::Ext4DataJournal => {
            let journals = image
                .blocks()
                .filter(|(_, block)| block.starts_with(&JOURNAL));
            let starts = journals.map(|(number, _)| number * BLOCK);
            std::iter::once(0).chain(starts).collect()
        }
        FileSystemArg::Btrfs => vec![64 << 10, 64 << 20],
        FileSystemArg::Xfs => vec![],
    };
    let block = |start| start..start + BLOCK;
    starts.into_iter().map(block).collect()
}

/// A worker process.
struct Worker {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
    buffer: Vec<u8>,
}

impl Worker {
    fn start(setup: &Setup) -> Result<Self, Stop> {
        let program = std::env::current_exe().map_err(|error| harness("this program", error))?;
        let mut child = Command::new(program)
            .arg("powercut-worker")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // The orchestrator handles Ctrl-C.
            .process_group(0)
            .spawn()
            .map_err(|error| harness("cannot start a worker", error))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(harness("a worker", "it has no pipes"));
        };
        let mut worker = Self {
            child,
            input,
            output,
            buffer: Vec::new(),
        };
        worker.send(&Order::Begin(setup.clone()))?;
        Ok(worker)
    }

    fn send(&mut self, order: &Order) -> Result<(), Stop> {
        let mut line = serde_json::to_string(order).map_err(|error| harness("an order", error))?;
        line.push('\n');
        self.input
            .write_all(line.as_bytes())
            .map_err(|error| harness("the worker is gone", error))
    }

    fn acknowledge(&mut self) -> Result<(), Stop> {
        self.input
            .write_all(b"\n")
            .map_err(|error| harness("the worker is gone", error))
    }

    fn receive(&mut self) -> Result<Reply, Stop> {
        let begin = Instant::now();
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return serde_json::from_slice(&line).map_err(|error| harness("a reply", error));
            }
            self.fill(begin)?;
        }
    }

    fn fill(&mut self, begin: Instant) -> Result<(), Stop> {
        if interrupt::is_requested() {
            return Err(Stop::Interrupted);
        }
        if begin.elapsed() > PATIENCE {
            let detail = format!("the worker has not answered for {} s", PATIENCE.as_secs());
            return Err(Failure::broken(Promise::Progress, detail).into());
        }
        let wait = Timespec {
            tv_sec: 0,
            tv_nsec: 200_000_000,
        };
        let mut ready = [PollFd::new(&self.output, PollFlags::IN)];
        if !matches!(poll(&mut ready, Some(&wait)), Ok(1..)) {
            return Ok(());
        }
        let mut bytes = [0; 4096];
        match self.output.read(&mut bytes) {
            Ok(0) => Err(Failure::broken(Promise::Progress, self.epitaph()).into()),
            Ok(n) => {
                self.buffer.extend_from_slice(&bytes[..n]);
                Ok(())
            }
            Err(error) => Err(harness("the worker's output", error)),
        }
    }

    fn epitaph(&mut self) -> String {
        match self.child.wait() {
            Ok(status) => format!("the worker ended: {status}"),
            Err(error) => format!("the worker ended: {error}"),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The worker may be dead already. Waiting for it releases its mounts in either case.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
