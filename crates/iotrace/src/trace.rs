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
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::attribute::{self, Known, Metadata, Timed};
use crate::collector::{Collector, Gathered};
use crate::device::{BlockDevice, Counters};
use crate::events::{Decoders, Inode};
use crate::io::{File, Io, Task};
use crate::known::{Search, Sectors};
use crate::names::Watch;
use crate::scratch::FileSystem;
use crate::tracefs::{Instance, Tracefs};
use crate::{Error, btrfs, ext4, files, ring, xfs};

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
    /// The present moment: counters that were the same just before and just after it.
    ///
    /// # Errors
    /// If they never stand still, or cannot be read.
    pub fn now(device: &BlockDevice) -> Result<Self, Error> {
        let mut before = device.counters()?;
        for _ in 0..TRIES {
            let at_ns = now_ns();
            let after = device.counters()?;
            if before == after {
                return Ok(Self {
                    at_ns,
                    counters: after,
                });
            }
            before = after;
        }
        Err(Error::Unavailable(format!(
            "{}: the counters never stood still",
            device.name()
        )))
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
pub struct Tracer {
    // The collector reads from the instance and has to end before it.
    collector: Collector,
    instance: Instance,
    decoders: Decoders,
    known: Known,
    file_system: FileSystem,
    root: PathBuf,
    node: PathBuf,
    device: BlockDevice,
    names: Names,
    notes: Vec<String>,
}

/// How the name of a new inode is known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    /// With the inode, in the file system's events.
    InEvents,
    /// From fanotify.
    Watched,
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer")
            .field("instance", &self.instance)
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
        let names = match target.file_system {
            FileSystem::Ext4 => {
                let layout = ext4::Layout::read(&node).map_err(no_access)?;
                layout.add_events(&mut decoders, &instance, &filter)?;
                known.journal = layout.journal;
                known.journal_inode = Some(Inode::of(EXT4_JOURNAL));
                known.metadata = Metadata::TheRest;
                Names::Watched
            }
            FileSystem::Xfs => {
                let layout = xfs::Layout::read(&node).map_err(no_access)?;
                layout.add_events(&mut decoders, &instance, &filter)?;
                known.journal = vec![layout.log];
                known.metadata = Metadata::Marked;
                Names::InEvents
            }
            FileSystem::Btrfs => {
                let layout = btrfs::Layout::read(&node).map_err(no_access)?;
                layout.add_events(&mut decoders, &instance)?;
                known.chunks = layout.chunks;
                known.metadata = Metadata::Marked;
                tree = btrfs::tree_of(target.root);
                Names::Watched
            }
        };
        let mut notes = Vec::new();
        let watch = match names {
            Names::InEvents => None,
            Names::Watched => Watch::new(target.root)
                .map_err(|error| notes.push(error.to_string()))
                .ok(),
        };
        let collector = Collector::start(instance.readers()?, watch)?;
        let mut tracer = Self {
            collector,
            instance,
            decoders,
            known,
            file_system: target.file_system,
            root: target.root.to_owned(),
            node,
            device: target.device.clone(),
            names,
            notes,
        };
        // On from here: what changes while files are looked at is in the events.
        tracer.instance.start()?;
        tracer.look(target, tree)?;
        Ok(tracer)
    }

    fn look(&mut self, target: &Target<'_>, tree: u64) -> Result<(), Error> {
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
        (self.known.files, self.known.dirs) = (found.files, found.dirs);
        if let Some(missing) = found.missing {
            self.notes.push(format!(
                "{missing}: what such files write is unknown, or has no name"
            ));
            if self.known.metadata == Metadata::TheRest {
                self.known.metadata = Metadata::Uncertain;
            }
        }
        Ok(())
    }

    /// The device that is traced.
    pub fn device(&self) -> &BlockDevice {
        &self.device
    }

    /// Ends.
    ///
    /// # Errors
    /// If what was gathered cannot be read.
    pub fn finish(self) -> Result<Recording, Error> {
        self.instance.stop()?;
        let processes = self.instance.processes();
        let gathered = self.collector.finish()?;
        let (mut known, mut notes) = (self.known, self.notes);
        if self.file_system == FileSystem::Btrfs {
            known.chunks.join(btrfs::Layout::read(&self.node)?.chunks);
        }
        let (events, lost) = parse(&gathered, &self.decoders)?;
        if gathered.too_much {
            notes.push(
                "more than 1 GiB of trace: what came after that is missing; trace for a shorter time"
                    .to_owned(),
            );
        }
        if gathered.names.lost {
            notes.push("the kernel lost names of new files".to_owned());
        }
        if self.names == Names::Watched {
            known.created = gathered.names.by_inode();
        }
        let journal = known.journal.clone();
        let replayed = attribute::replay(known, &events);
        let mut tasks = replayed.tasks;
        for task in &mut tasks {
            task.pid = processes.get(&task.tid).copied();
        }
        Ok(Recording {
            ios: replayed.ios,
            files: files::tell(replayed.files, &replayed.paths, &self.root),
            tasks,
            journal,
            lost,
            notes,
        })
    }
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

/// The events in the order of time, and how many were lost.
fn parse(gathered: &Gathered, decoders: &Decoders) -> Result<(Vec<Timed>, u64), Error> {
    let bad = |text: String| Error::Unavailable(format!("the trace cannot be read: {text}"));
    let (mut events, mut lost) = (Vec::new(), gathered.lost);
    for bytes in &gathered.sub_buffers {
        let sub_buffer = ring::parse(bytes).map_err(bad)?;
        // The kernel says so, and not always how many.
        lost = lost.max(u64::from(sub_buffer.lost));
        events.extend(sub_buffer.events.into_iter().filter_map(|raw| {
            let event = decoders.decode(raw.record)?;
            Some(Timed {
                at_ns: raw.at_ns,
                event,
            })
        }));
    }
    // Stable: the events of one CPU at the same moment stay in their order.
    events.sort_by_key(|timed| timed.at_ns);
    Ok((events, lost))
}

/// What holds a directory: device, file system, and where that is mounted.
#[derive(Clone, Debug)]
pub struct Place {
    /// The device.
    pub device: BlockDevice,
    /// Its file system.
    pub file_system: FileSystem,
    /// Where all of it is mounted.
    pub root: PathBuf,
}

impl Place {
    /// What holds `path`.
    ///
    /// # Errors
    /// If that is no file system that can be traced; the message says what it is, and the way out.
    pub fn of_path(path: &Path) -> Result<Self, Error> {
        let path = fs::canonicalize(path).map_err(Error::io("find", path))?;
        let mounts = mounts()?;
        let holding = mounts.iter().filter(|mount| path.starts_with(&mount.point));
        // Of equal ones the last hides the others.
        let holding = holding.max_by_key(|mount| mount.point.as_os_str().len());
        let mount = holding.ok_or_else(|| unknown(&path.display(), "no mount"))?;
        Self::of_mount(mount, &mounts)
    }

    /// What is on the device at `node`, for example `/dev/sda2`.
    ///
    /// # Errors
    /// If it is not mounted, or holds no file system that can be traced.
    pub fn of_device(node: &Path) -> Result<Self, Error> {
        let meta = fs::metadata(node).map_err(Error::io("find", node))?;
        if !meta.file_type().is_block_device() {
            let text = "it is no block device; name a disk or partition, such as /dev/sda2";
            return Err(Error::Unavailable(format!("{}: {text}", node.display())));
        }
        let device = BlockDevice::from_node(node)?;
        let mounts = mounts()?;
        let number = device.kernel_number();
        let on_device = |mount: &&Mount| {
            mount.device == number
                || BlockDevice::from_node(&mount.source).is_ok_and(|found| found == device)
        };
        let mount = mounts.iter().find(on_device).ok_or_else(|| {
            Error::Unavailable(format!(
                "{} is not mounted: mount its file system, or name the disk or partition that is",
                node.display()
            ))
        })?;
        Self::of_mount(mount, &mounts)
    }

    fn of_mount(mount: &Mount, mounts: &[Mount]) -> Result<Self, Error> {
        let kinds = FileSystem::ALL.into_iter();
        let file_system = kinds.clone().find(|kind| kind.name() == mount.kind);
        let file_system =
            file_system.ok_or_else(|| unknown(&mount.point.display(), &mount.kind))?;
        let device = match file_system {
            // Its directories have device numbers that are no device's.
            FileSystem::Btrfs => BlockDevice::from_node(&mount.source)?,
            _ => BlockDevice::from_kernel_number(mount.device)?,
        };
        let whole = |other: &&Mount| other.device == mount.device && other.inside == Path::new("/");
        let root = mounts.iter().filter(whole).find(|other| {
            // Not hidden by another mount.
            let number = fs::metadata(&other.point).map(|meta| meta.st_dev());
            let here = fs::metadata(&mount.point).map(|meta| meta.st_dev());
            number.ok() == here.ok()
        });
        Ok(Self {
            device,
            file_system,
            root: root.unwrap_or(mount).point.clone(),
        })
    }
}

fn unknown(what: &dyn fmt::Display, kind: &str) -> Error {
    Error::Unavailable(format!(
        "{what} is on {kind}: only ext4, XFS and Btrfs can be traced; name a directory on one of those \
         with --dir, or take a scratch file system with --scratch ext4"
    ))
}

/// A line of the mount table.
#[derive(Debug)]
struct Mount {
    /// As the kernel holds it in memory.
    device: u32,
    /// Which of the file system's directories is mounted.
    inside: PathBuf,
    point: PathBuf,
    kind: String,
    source: PathBuf,
}

fn mounts() -> Result<Vec<Mount>, Error> {
    let path = Path::new("/proc/self/mountinfo");
    let text = fs::read_to_string(path).map_err(Error::io("read", path))?;
    Ok(text.lines().filter_map(parse_mount).collect())
}

fn parse_mount(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let before: Vec<&str> = before.split(' ').collect();
    let mut after = after.split(' ');
    let (major, minor) = before.get(2)?.split_once(':')?;
    Some(Mount {
        device: major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?,
        inside: PathBuf::from(unescape(before.get(3)?)),
        point: PathBuf::from(unescape(before.get(4)?)),
        kind: after.next()?.to_owned(),
        source: PathBuf::from(unescape(after.next()?)),
    })
}

/// The mount table writes some characters as a backslash and three octal digits.
fn unescape(text: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n")];
    let plain = escapes
        .into_iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
    plain.replace("\\134", "\\")
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// Processes by their threads.
pub(crate) type Processes = HashMap<u32, u32>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_lost_is_counted() {
        let sub_buffer = |flags: u64| [7u64.to_le_bytes(), flags.to_le_bytes()].concat();
        let lost = |sub_buffers: Vec<Vec<u8>>, overrun| {
            let gathered = Gathered {
                sub_buffers,
                lost: overrun,
                ..Gathered::default()
            };
            parse(&gathered, &Decoders::default()).unwrap().1
        };
        assert_eq!(lost(vec![sub_buffer(0)], 0), 0);
        assert_eq!(lost(vec![sub_buffer(0)], 3), 3);
        // The kernel's mark on the buffer after the gap, whatever its counters say.
        assert_eq!(lost(vec![sub_buffer(0), sub_buffer(1 << 31)], 0), 1);
        assert_eq!(lost(vec![sub_buffer(1 << 31)], 5), 5);
    }

    #[test]
    fn a_line_of_the_mount_table_is_read() {
        let line = "36 35 98:0 /sub /mnt/a\\040b rw shared:1 - ext3 /dev/root rw,errors=continue";
        let mount = parse_mount(line).unwrap();
        assert_eq!(mount.device, 98 << 20);
        assert_eq!(mount.inside, Path::new("/sub"));
        assert_eq!(mount.point, Path::new("/mnt/a b"));
        assert_eq!(
            (mount.kind.as_str(), mount.source),
            ("ext3", PathBuf::from("/dev/root"))
        );
        assert!(parse_mount("36 35 98 / / rw - ext4 /dev/a rw").is_none());
        assert!(parse_mount("").is_none());
    }
}
