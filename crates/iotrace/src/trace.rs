//! Everything that a device does, I/O by I/O: what for, for whom, and how long it took.
//!
//! [`Tracer::start`] begins, [`Tracer::finish`] ends and gives a [`Recording`]. In between the caller takes
//! a [`Mark`] at each moment that matters. The device's own counters are the truth: [`crate::summary`]
//! holds a recording's sums against them. Nothing is left behind: the tracing instance goes with the
//! tracer, however it ends.

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

/// How often a mark is tried again because a request completed while it was taken.
const TRIES: u32 = 1_000;

/// The inode of ext4's journal.
const EXT4_JOURNAL: u64 = 8;

/// A moment, and what the device had completed by then.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// The device's counters at that moment.
    pub counters: Counters,
}

impl Mark {
    /// The present moment: counters that were the same just before and just after it, with nothing under way. The kernel
    /// tells of a completed request, and wakes who waits for it, before it has counted it; until then it is under way. On
    /// a device that is never idle the last moment at which they stood still is taken.
    ///
    /// # Errors
    /// If they never stand still, or cannot be read.
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

    /// A moment at which everything written before it has reached the device and nothing is under way.
    /// `dir` is any directory of the file system on it.
    ///
    /// # Errors
    /// If the device does not become idle within a minute, or the file system cannot be synced.
    pub fn settled(device: &BlockDevice, dir: &fs::File) -> Result<Self, Error> {
        // The first may leave something for the second: writing file data makes metadata to write.
        for _ in 0..2 {
            rustix::fs::syncfs(dir).map_err(Error::io("syncfs", Path::new(device.name())))?;
        }
        device.wait_idle(PATIENCE)?;
        Self::now(device)
    }
}

/// What is to be traced.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The device.
    pub device: &'a BlockDevice,
    /// The type of the file system on it.
    pub file_system: FileSystem,
    /// Where that is mounted: all of it, not a directory of it.
    pub root: &'a Path,
    /// A directory whose files are looked at before others.
    pub first: Option<&'a Path>,
    /// How long the files that exist are looked at. What is missed then can only be told apart in part.
    pub look_at_most: Duration,
    /// The tracing directory.
    pub tracefs: &'a Tracefs,
}

/// A trace that was ended.
#[derive(Debug)]
pub struct Recording {
    /// What the device completed, in the order in which it did.
    pub ios: Vec<Io>,
    /// Files that own sectors; more than those of the I/Os.
    pub files: Vec<File>,
    /// Who asked for I/O.
    pub tasks: Vec<Task>,
    /// The sectors of the file system's journal, where that has a place.
    pub journal: Vec<Range<u64>>,
    /// Events that the kernel had no room for: there was I/O, or a change of who owns what, that is not in
    /// the recording.
    pub lost: u64,
    /// What a reader should know about what could not be told.
    pub notes: Vec<String>,
}

/// A trace under way.
pub struct Tracer(Watching<Vec<Io>>);

/// A trace under way whose I/Os are given to `K`. Where they need not be told apart all at once, which the
/// file system decides, that happens while the trace lasts, in bounded memory.
pub(crate) struct Watching<K: Keep + 'static> {
    // The collector reads from the instance and has to end before it.
    collector: Collector<K>,
    instance: Instance,
    /// What the I/Os are told apart with, where that waits for the end.
    at_end: Option<(Decoders, Known, K)>,
    journal: Vec<Range<u64>>,
    file_system: FileSystem,
    root: PathBuf,
    node: PathBuf,
    device: BlockDevice,
    notes: Vec<String>,
}

/// A trace that was ended.
pub(crate) struct Ended<K> {
    /// Who was given the I/Os.
    pub(crate) kept: K,
    /// As [`Recording`] has it.
    pub(crate) files: Vec<File>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) journal: Vec<Range<u64>>,
    pub(crate) lost: u64,
    pub(crate) notes: Vec<String>,
}

/// When I/Os are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// When the trace has ended.
    AtEnd,
    /// While it lasts, when so much has come.
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
    /// If something that it takes is missing: a right, an event or field of this kernel's, a file system
    /// that can be read.
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
    /// If what was gathered cannot be read.
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

impl<K: Keep + 'static> Watching<K> {
    /// As [`Tracer::start`].
    pub(crate) fn start(target: &Target<'_>, kept: K, when: When) -> Result<Self, Error> {
        if !target.device.has_requests() {
            return Err(Error::Unavailable(format!(
                "{} has no requests of its own that could be traced: it passes them on to other devices, \
                 as device mapper (LVM, encryption) and software RAID do; trace a file system that lies \
                 directly on a disk or a partition",
                target.device.name()
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
        let watch = match target.file_system {
            // Its events have the names.
            FileSystem::Xfs => None,
            FileSystem::Ext4 | FileSystem::Btrfs => Watch::new(target.root)
                .map_err(|error| notes.push(error.to_string()))
                .ok(),
        };
        let held = match when {
            When::AtEnd => Held::default(),
            When::Meanwhile(held) => held,
        };
        let collector = Collector::start(instance.readers()?, watch, held)?;
        // On from here: what changes while files are looked at is in the events.
        instance.start()?;
        notes.extend(look(target, tree, &mut known)?);
        let journal = known.journal.clone();
        let mut at_end = None;
        match (when, target.file_system) {
            (When::Meanwhile(_), FileSystem::Ext4 | FileSystem::Xfs) => {
                collector.digest_with(Digest::new(decoders, known, kept));
            }
            // Where Btrfs put new chunks is on the device only at the end.
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
        let (mut gathered, digest) = self.collector.finish()?;
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
        digest.take(&mut gathered, u64::MAX, usize::MAX)?;
        if gathered.too_much {
            notes.push(
                "more than 1 GiB of trace: what came after that is missing; trace for a shorter time"
                    .to_owned(),
            );
        }
        if gathered.names.lost {
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
            // The kernel's counters and its marks tell of the same events.
            lost: gathered.lost.max(digest.lost),
            notes,
        })
    }
}

/// Looks at the files that exist; returns what the reader should know about it.
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

/// Says the way out where the device may not be read: its superblock has to be.
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
