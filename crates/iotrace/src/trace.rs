//! All I/Os of a device, one by one: their purpose, their task, and how long they took.
//!
//! [`Tracer::start`] begins; [`Tracer::finish`] ends and gives a [`Recording`]. In between the
//! caller takes a [`Mark`] at each moment that matters. The device's own counters are the truth:
//! [`crate::summary`] compares a recording's sums with them. Nothing is left behind: the tracing
//! instance goes with the tracer, however it ends.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::attribute::{Known, Metadata};
use crate::collector::{Collector, Held};
use crate::device::{BlockDevice, Counters};
use crate::digest::{Digest, Keep};
use crate::events::{Decoders, Inode};
use crate::io::{File, Io, Task};
use crate::known::{Search, Sectors};
use crate::names::Watch;
use crate::scratch::FileSystem;
use crate::tracefs::{Instance, Tracefs};
use crate::{Error, btrfs, ext4, files, xfs};

pub use crate::mounts::Place;

/// How long a device may take to become idle after a sync.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often to retry a mark because a request completed meanwhile.
const TRIES: u32 = 1_000;

/// The inode of ext4's journal.
const EXT4_JOURNAL: u64 = 8;

/// A moment, and the I/O that the device had completed by then.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// The device's counters at that moment.
    pub counters: Counters,
}

impl Mark {
    /// The present moment. The counters were the same just before and just after it, with nothing
    /// in flight. The kernel reports a completed request, and wakes its waiter, before it counts
    /// it. Until then the request is in flight. On a device that is never idle, this is the last
    /// moment of unchanged counters.
    ///
    /// # Errors
    /// If the counters never stand still, or cannot be read.
    pub fn now(device: &BlockDevice) -> Result<Self, Error> {
        let mut before = device.counters()?;
        let mut still = None;
        for _ in 0..TRIES {
            let at_ns = now_ns();
            let is_idle = device.is_idle()?;
            let after = device.counters()?;
            if before == after {
                still = Some(Self {
                    at_ns,
                    counters: after,
                });
                if is_idle {
                    break;
                }
                std::thread::sleep(Duration::from_micros(50));
            }
            before = after;
        }
        still.ok_or_else(|| {
            let name = device.name();
            Error::Unavailable(format!("{name}: the counters never stood still"))
        })
    }

    /// A moment at which everything written before it has reached the device and nothing is in
    /// flight. `dir` is any directory of the file system on it.
    ///
    /// # Errors
    /// If the device does not become idle within a minute, or the file system cannot be synced.
    pub fn settled(device: &BlockDevice, dir: &fs::File) -> Result<Self, Error> {
        // The first sync may leave work for the second: writing file data makes metadata to write.
        for _ in 0..2 {
            rustix::fs::syncfs(dir).map_err(Error::io("syncfs", Path::new(device.name())))?;
        }
        device.wait_idle(PATIENCE)?;
        Self::now(device)
    }
}

/// The device and the file system to trace.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The device.
    pub device: &'a BlockDevice,
    /// The type of the file system on it.
    pub file_system: FileSystem,
    /// The mount point of the whole file system, not of a directory in it.
    pub root: &'a Path,
    /// A directory whose files are looked at before others.
    pub first: Option<&'a Path>,
    /// The longest search for existing files. I/O of files that it misses can only be classified in
    /// part.
    pub look_at_most: Duration,
    /// The tracing directory.
    pub tracefs: &'a Tracefs,
}

/// A trace that has ended.
#[derive(Debug, Default)]
pub struct Recording {
    /// The I/Os that the device completed, in that order.
    pub ios: Vec<Io>,
    /// Files that own sectors; more than those of the I/Os.
    pub files: Vec<File>,
    /// The tasks that asked for I/O.
    pub tasks: Vec<Task>,
    /// The sectors of the file system's journal, if it has a place.
    pub journal: Vec<Range<u64>>,
    /// Events that the kernel had no room for. The recording lacks some I/O, or some change of
    /// ownership.
    pub lost: u64,
    /// Notes for the reader about I/O that could not be classified.
    pub notes: Vec<String>,
}

/// A running trace.
pub struct Tracer(Watching<Vec<Io>>);

/// A running trace that gives its I/Os to `K`. The file system decides whether they must be
/// classified all at once. If not, that happens during the trace, in bounded memory.
pub(crate) struct Watching<K: Keep + 'static> {
    // The collector reads from the instance and must end before it.
    collector: Collector<K>,
    instance: Instance,
    /// The data to classify I/Os with, if that waits for the end.
    at_end: Option<(Decoders, Known, K)>,
    journal: Vec<Range<u64>>,
    file_system: FileSystem,
    root: PathBuf,
    node: PathBuf,
    device: BlockDevice,
    notes: Vec<String>,
}

/// A trace that has ended.
pub(crate) struct Ended<K> {
    /// The receiver of the I/Os.
    pub(crate) kept: K,
    /// As [`Recording`] has it.
    pub(crate) files: Vec<File>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) journal: Vec<Range<u64>>,
    pub(crate) lost: u64,
    pub(crate) notes: Vec<String>,
}

/// When to classify I/Os.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// When the trace has ended.
    AtEnd,
    /// During the trace, once this much has come.
    Meanwhile(Held),
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer")
            .field("instance", &self.0.instance)
            .finish_non_exhaustive()
    }
}

impl Tracer {
    /// Begins.
    ///
    /// # Errors
    /// If something that it needs is missing: a right, an event or field of this kernel, a file
    /// system that can be read.
    pub fn start(target: &Target<'_>) -> Result<Self, Error> {
        Watching::start(target, Vec::new(), When::AtEnd).map(Self)
    }

    /// The device that is traced.
    pub fn device(&self) -> &BlockDevice {
        &self.0.device
    }

    /// Ends.
    ///
    /// # Errors
    /// If the collected records cannot be read.
    pub fn finish(self) -> Result<Recording, Error> {
        let ended = self.0.finish()?;
        Ok(Recording {
            ios: ended.kept,
            files: ended.files,
            tasks: ended.tasks,
            journal: ended.journal,
            lost: ended.lost,
            notes: ended.notes,
        })
    }
}

/// Watches for new names of files, unless the file system's events have the names.
fn watch(target: &Target<'_>, notes: &mut Vec<String>) -> Option<Watch> {
    match target.file_system {
        FileSystem::Xfs => None,
        FileSystem::Ext4 | FileSystem::Btrfs => Watch::new(target.root)
            .map_err(|error| notes.push(error.to_string()))
            .ok(),
    }
}

impl<K: Keep + 'static> Watching<K> {
    /// As [`Tracer::start`].
    pub(crate) fn start(target: &Target<'_>, kept: K, when: When) -> Result<Self, Error> {
        if !target.device.has_requests() {
            return Err(Error::Unavailable(format!(
                "{} has no requests of its own that could be traced: it passes them on to other devices, \
                 as device mapper (LVM, encryption) and software RAID do; trace a file system that lies \
                 directly on a disk or a partition",
                target.device.described()
            )));
        }
        let span = target.device.span()?;
        let filter = format!("dev == {}", target.device.kernel_number());
        let node = PathBuf::from("/dev").join(target.device.name());
        let instance = target.tracefs.instance()?;
        instance.record_processes();
        let mut decoders = Decoders::default();
        decoders.add_block(&instance, span)?;
        let mut known = Known {
            has_fua: target.device.has_fua(),
            is_part: target.device.is_partition(),
            ..Known::default()
        };
        let mut tree = 0;
        match target.file_system {
            FileSystem::Ext4 => {
                let layout = ext4::Layout::read(&node).map_err(no_access)?;
                layout.add_events(&mut decoders, &instance, &filter)?;
                known.journal = layout.journal;
                known.journal_inode = Some(Inode::of(EXT4_JOURNAL));
                known.metadata = Metadata::TheRest;
            }
            FileSystem::Xfs => {
                let layout = xfs::Layout::read(&node).map_err(no_access)?;
                layout.add_events(&mut decoders, &instance, &filter)?;
                known.journal = vec![layout.log];
                known.metadata = Metadata::Marked;
            }
            FileSystem::Btrfs => {
                let layout = btrfs::Layout::read(&node).map_err(no_access)?;
                layout.add_events(&mut decoders, &instance)?;
                known.chunks = layout.chunks;
                known.metadata = Metadata::Marked;
                tree = btrfs::tree_of(target.root);
            }
        }
        let mut notes = Vec::new();
        let watch = watch(target, &mut notes);
        let held = match when {
            When::AtEnd => Held::default(),
            When::Meanwhile(held) => held,
        };
        let collector = Collector::start(instance.readers()?, watch, held)?;
        // Tracing is on from here: the events have every change during the search for files.
        instance.start()?;
        notes.extend(look(target, tree, &mut known)?);
        let journal = known.journal.clone();
        let mut at_end = None;
        match (when, target.file_system) {
            (When::Meanwhile(_), FileSystem::Ext4 | FileSystem::Xfs) => {
                collector.digest_with(Digest::new(decoders, known, kept));
            }
            // Only at the end does the device show where Btrfs put new chunks.
            (When::AtEnd, _) | (_, FileSystem::Btrfs) => at_end = Some((decoders, known, kept)),
        }
        Ok(Self {
            collector,
            instance,
            at_end,
            journal,
            file_system: target.file_system,
            root: target.root.to_owned(),
            node,
            device: target.device.clone(),
            notes,
        })
    }

    /// As [`Tracer::finish`].
    pub(crate) fn finish(self) -> Result<Ended<K>, Error> {
        self.instance.stop()?;
        let processes = self.instance.processes();
        let (mut collected, digest) = self.collector.finish()?;
        let digest = match (digest, self.at_end) {
            (Some(digest), _) => digest,
            (None, Some((decoders, mut known, kept))) => {
                if self.file_system == FileSystem::Btrfs {
                    known.chunks.join(btrfs::Layout::read(&self.node)?.chunks);
                }
                Digest::new(decoders, known, kept)
            }
            (None, None) => {
                let text = "the trace was ended before it had begun";
                return Err(Error::Unavailable(text.to_owned()));
            }
        };
        let (mut digest, mut notes) = (digest, self.notes);
        digest.take(&mut collected, u64::MAX, usize::MAX)?;
        if collected.too_much {
            notes.push(
                "more than 1 GiB of trace: what came after that is missing; trace for a shorter time"
                    .to_owned(),
            );
        }
        if collected.names.lost {
            notes.push("the kernel lost names of new files".to_owned());
        }
        let (seen, paths, mut tasks) = digest.replay.end();
        for task in &mut tasks {
            task.pid = processes.get(&task.tid).copied();
        }
        Ok(Ended {
            kept: digest.kept,
            files: files::tell(seen, &paths, &self.root),
            tasks,
            journal: self.journal,
            // The kernel's counters and its marks report the same events.
            lost: collected.lost.max(digest.lost),
            notes,
        })
    }
}

/// Looks at the existing files; returns a note for the reader.
fn look(target: &Target<'_>, tree: u64, known: &mut Known) -> Result<Option<String>, Error> {
    let search = Search {
        root: target.root,
        tree,
        sectors: match target.file_system {
            FileSystem::Btrfs => Sectors::Reported,
            FileSystem::Ext4 | FileSystem::Xfs => Sectors::Needed,
        },
        at_most: target.look_at_most,
        first: target.first,
    };
    let found = search.run()?;
    (known.files, known.dirs) = (found.files, found.dirs);
    Ok(found.missing.map(|missing| {
        if known.metadata == Metadata::TheRest {
            known.metadata = Metadata::Uncertain;
        }
        format!("{missing}: what such files write is unknown, or has no name")
    }))
}

/// Says what to do if the device, whose superblock is needed, may not be read.
fn no_access(error: Error) -> Error {
    match &error {
        Error::Io { path, source, .. } if source.kind() == ErrorKind::PermissionDenied => {
            Error::Unavailable(format!(
                "{error}: the superblock says where the journal lies; a container must be given the \
                 device (docker run --device {})",
                path.display()
            ))
        }
        _ => error,
    }
}

/// The present moment of `CLOCK_MONOTONIC`, in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// Processes by their threads.
pub(crate) type Processes = HashMap<u32, u32>;
