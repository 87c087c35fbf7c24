//! What a device did between two moments, and for which files.
//!
//! The caller takes a [`Mark`] at each boundary and asks for the [`Figures`] between two of them.
//! [`Meter::settle`] is a boundary that nothing crosses: everything written before it has reached the
//! device and nothing is under way. [`Meter::mark`] is the present moment, whatever is under way;
//! what has been completed by then belongs before it.
//!
//! The device's own counters are the truth. A trace tells their bytes apart; where it does not add up
//! to exactly what was counted, there are no figures by file, and a note says why.

use std::fs::{self, File};
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::Error;
use crate::attribute::{self, Known, Purpose, Timed, Written};
use crate::collector::Collector;
use crate::device::{BlockDevice, Counters};
use crate::events::Decoders;
use crate::scratch::FileSystem;
use crate::tracefs::{Instance, Tracefs};
use crate::{ext4, ring, xfs};

/// How long a device may take to become idle after a sync.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often a mark is tried again because a request completed while it was taken.
const TRIES: u32 = 1_000;

/// A moment, and what the device had completed by then.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// The device's counters at that moment.
    pub counters: Counters,
}

/// Bytes written, by what they were written for. Together they are all bytes written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ByFile {
    /// The file system's own journal or log.
    pub fs_journal_bytes: u64,
    /// Other metadata of the file system: inodes, bitmaps, directories, extent trees, superblock.
    pub fs_metadata_bytes: u64,
    /// SQLite's log or rollback journal.
    pub log_bytes: u64,
    /// The database file.
    pub database_bytes: u64,
    /// Other files.
    pub other_bytes: u64,
}

impl ByFile {
    /// All bytes written.
    pub fn total(&self) -> u64 {
        self.fs_journal_bytes
            + self.fs_metadata_bytes
            + self.log_bytes
            + self.database_bytes
            + self.other_bytes
    }
}

/// What a device completed between two marks.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// The device's own counters.
    pub counters: Counters,
    /// Write requests that carried data; `None` where they could not be traced.
    pub writes: Option<u64>,
    /// The bytes by file; `None` where they could not be traced.
    pub by_file: Option<ByFile>,
}

/// Watches one device that holds one file system with one database.
#[derive(Debug)]
pub struct Meter {
    device: BlockDevice,
    dir: File,
    trace: Result<Trace, Error>,
}

/// What is to be watched.
#[derive(Clone, Copy, Debug)]
pub struct Watched<'a> {
    /// The device, which nothing else may use.
    pub device: &'a BlockDevice,
    /// The type of the file system on it.
    pub file_system: FileSystem,
    /// Where that is mounted.
    pub root: &'a Path,
    /// The database, which need not exist yet. Nothing but the database and what SQLite keeps
    /// beside it may be created in its directory while it is watched.
    pub database: &'a Path,
    /// The tracing directory; without it there are counters, but no bytes by file.
    pub tracefs: Option<&'a Tracefs>,
}

impl Meter {
    /// Begins to watch. If there is no tracing, the device is watched without: a note of
    /// [`Meter::finish`] says why.
    pub fn new(watched: &Watched<'_>) -> Result<Self, Error> {
        let dir = watched.database.parent().unwrap_or(watched.root);
        let dir = File::open(dir).map_err(Error::io("open", dir))?;
        Ok(Self {
            device: watched.device.clone(),
            dir,
            trace: Trace::start(watched),
        })
    }

    /// Writes out everything the file system has in memory and waits until the device is idle.
    pub fn settle(&self) -> Result<Mark, Error> {
        // The first may leave something for the second: writing file data makes metadata to write.
        for _ in 0..2 {
            rustix::fs::syncfs(&self.dir)
                .map_err(Error::io("syncfs", Path::new(self.device.name())))?;
        }
        self.device.wait_idle(PATIENCE)?;
        self.mark()
    }

    /// The present moment: counters that were the same just before and just after it.
    pub fn mark(&self) -> Result<Mark, Error> {
        let mut before = self.device.counters()?;
        for _ in 0..TRIES {
            let at_ns = now_ns();
            let after = self.device.counters()?;
            if before == after {
                return Ok(Mark {
                    at_ns,
                    counters: after,
                });
            }
            before = after;
        }
        Err(Error::Unavailable(format!(
            "{}: the counters never stood still",
            self.device.name()
        )))
    }

    /// What was completed between the marks of each pair, in the order given, and what the reader
    /// should know about it.
    pub fn finish(self, windows: &[(Mark, Mark)]) -> (Vec<Figures>, Vec<String>) {
        let counted = windows
            .iter()
            .map(|(from, to)| to.counters.since(from.counters));
        let spans: Vec<_> = windows
            .iter()
            .map(|(from, to)| (from.at_ns, to.at_ns))
            .collect();
        let told_apart = self
            .trace
            .as_ref()
            .is_ok_and(|trace| trace.names != Names::Unknown);
        let mut notes = Vec::new();
        let written = match self.trace.and_then(|trace| trace.finish(&spans)) {
            Ok(written) => written.into_iter().map(Some).collect(),
            Err(error) => {
                notes.push(format!("writes not counted, and no bytes by file: {error}"));
                vec![None; spans.len()]
            }
        };
        let figures = counted.zip(written).map(|(counters, written)| {
            let written = written.filter(|written| agrees(counters, written, &mut notes));
            let by_file = written
                .filter(|_| told_apart)
                .map(|written| written.by_file);
            Figures {
                counters,
                writes: written.map(|written| written.writes),
                by_file,
            }
        });
        let figures = figures.collect();
        if !told_apart && notes.is_empty() {
            notes.push("bytes are not told apart by file on this file system".to_owned());
        }
        (figures, notes)
    }
}

/// Whether the trace's figures add up to what the device counted.
fn agrees(counters: Counters, written: &Written, notes: &mut Vec<String>) -> bool {
    let traced = written.by_file.total();
    let agrees = traced == counters.write_bytes;
    if !agrees {
        notes.push(format!(
            "writes not counted, and no bytes by file: the device counted {} bytes, the trace {traced}",
            counters.write_bytes
        ));
    }
    agrees
}

/// A trace under way.
struct Trace {
    // The collector reads from the instance and has to end before it.
    collector: Collector,
    instance: Instance,
    decoders: Decoders,
    known: Known,
    names: Names,
}

/// How the name of an inode is known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    /// Inodes are reported in the order in which names are created.
    InOrder,
    /// With the inode.
    InEvents,
    /// Not at all: bytes are not told apart by file.
    Unknown,
}

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trace")
            .field("instance", &self.instance)
            .finish_non_exhaustive()
    }
}

impl Trace {
    fn start(watched: &Watched<'_>) -> Result<Self, Error> {
        let no_trace = || Error::Unavailable("there is no tracing directory".to_owned());
        let tracefs = watched.tracefs.ok_or_else(no_trace)?;
        let dir = watched.database.parent().unwrap_or(watched.root);
        let name = watched.database.file_name().unwrap_or_default();
        let filter = format!("dev == {}", watched.device.kernel_number());
        let node = PathBuf::from("/dev").join(watched.device.name());
        let instance = tracefs.instance()?;
        let mut decoders = Decoders::default();
        decoders.add_block(&instance, &filter)?;
        let journal = match watched.file_system {
            FileSystem::Ext4 => {
                let layout = ext4::Layout::read(&node)?;
                layout.add_events(&mut decoders, &instance, &filter)?;
                layout.journal
            }
            FileSystem::Xfs => {
                let layout = xfs::Layout::read(&node)?;
                layout.add_events(&mut decoders, &instance, &filter)?;
                vec![layout.log]
            }
            // Its blocks move at every write and its trees hold data and metadata alike: only the
            // requests are counted.
            FileSystem::Btrfs => Vec::new(),
        };
        let known = Known {
            journal,
            files: regular_files(watched.root)?,
            dir: fs::metadata(dir).map_err(Error::io("stat", dir))?.ino(),
            created: Vec::new(),
            database: name.to_string_lossy().into_owned(),
        };
        let collector = Collector::start(instance.readers()?, dir)?;
        instance.start()?;
        let names = match watched.file_system {
            FileSystem::Ext4 => Names::InOrder,
            FileSystem::Xfs => Names::InEvents,
            FileSystem::Btrfs => Names::Unknown,
        };
        Ok(Self {
            collector,
            instance,
            decoders,
            known,
            names,
        })
    }

    fn finish(self, spans: &[(u64, u64)]) -> Result<Vec<Written>, Error> {
        self.instance.stop()?;
        let gathered = self.collector.finish()?;
        let bad = |text: String| Error::Unavailable(format!("the trace cannot be read: {text}"));
        let mut events = Vec::new();
        for bytes in &gathered.sub_buffers {
            let sub_buffer = ring::parse(bytes).map_err(bad)?;
            if sub_buffer.lost {
                return Err(Error::Unavailable(
                    "the kernel lost trace events".to_owned(),
                ));
            }
            events.extend(sub_buffer.events.into_iter().filter_map(|raw| {
                let event = self.decoders.decode(raw.record)?;
                Some(Timed {
                    at_ns: raw.at_ns,
                    event,
                })
            }));
        }
        // Stable: the events of one CPU at the same moment stay in their order.
        events.sort_by_key(|timed| timed.at_ns);
        let mut known = self.known;
        if self.names == Names::InOrder {
            let purpose = |name: &String| Purpose::of_name(name, &known.database);
            known.created = gathered.created.iter().map(purpose).collect();
        }
        attribute::replay(known, &events, spans).map_err(bad)
    }
}

/// Every regular file below a directory, by inode.
fn regular_files(root: &Path) -> Result<std::collections::HashMap<u64, Purpose>, Error> {
    let mut files = std::collections::HashMap::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).map_err(Error::io("list", &dir))? {
            let entry = entry.map_err(Error::io("list", &dir))?;
            let kind = entry
                .file_type()
                .map_err(Error::io("stat", &entry.path()))?;
            if kind.is_dir() {
                dirs.push(entry.path());
            } else if kind.is_file() {
                files.insert(entry.ino(), Purpose::Other);
            }
        }
    }
    Ok(files)
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::scratch::{Options, Scratch};

    const MIB: usize = 1 << 20;

    fn write(path: &Path, bytes: usize) {
        let mut file = File::create(path).unwrap();
        file.write_all(&vec![7; bytes]).unwrap();
        file.sync_all().unwrap();
    }

    fn can_make(file_system: FileSystem) -> bool {
        let root = rustix::process::geteuid().is_root();
        if !root || file_system.missing().is_some() {
            println!("skipped: needs root and {}", file_system.name());
            return false;
        }
        true
    }

    #[test]
    fn every_byte_is_told_apart_also_of_files_that_are_gone() {
        for file_system in [FileSystem::Ext4, FileSystem::Xfs] {
            if !can_make(file_system) {
                continue;
            }
            let (parent, stop) = (tempfile::tempdir().unwrap(), AtomicBool::new(false));
            let options = Options {
                file_system,
                bytes: 512 << 20,
                parent: parent.path(),
                stop: &stop,
            };
            let scratch = Scratch::create(&options).unwrap();
            let tracefs = Tracefs::open(&scratch.host_dir().join("tracing")).unwrap();
            let dir = scratch.root().join("dir");
            fs::create_dir(&dir).unwrap();
            let before = dir.join("before");
            write(&before, MIB);
            let database = dir.join("a.db");
            let (journal, other) = (dir.join("a.db-journal"), dir.join("notes"));
            let watched = Watched {
                device: scratch.device(),
                file_system,
                root: scratch.root(),
                database: &database,
                tracefs: Some(&tracefs),
            };
            let meter = Meter::new(&watched).unwrap();
            let empty = meter.settle().unwrap();
            write(&database, MIB);
            for round in 1..=20 {
                // Each time the blocks, and perhaps the inode, of the one before can be had again.
                write(&journal, round * 8192);
                fs::remove_file(&journal).unwrap();
            }
            let written = meter.settle().unwrap();
            write(&other, 64 << 10);
            write(&before, 128 << 10);
            let last = meter.settle().unwrap();
            let (figures, notes) =
                meter.finish(&[(empty, written), (written, last), (empty, last)]);
            assert!(notes.is_empty(), "{notes:?}");
            let [first, second, both] = figures[..] else {
                panic!("{figures:?}")
            };
            let (first_by, second_by) = (first.by_file.unwrap(), second.by_file.unwrap());
            assert_eq!(first_by.database_bytes, MIB as u64, "{first_by:?}");
            assert_eq!(first_by.log_bytes, 210 * 8192, "{first_by:?}");
            assert_eq!(
                (first_by.other_bytes, second_by.other_bytes),
                (0, 192 << 10)
            );
            assert!(first_by.fs_journal_bytes > 0 && second_by.log_bytes == 0);
            assert_eq!(both.by_file.unwrap().total(), both.counters.write_bytes);
            assert_eq!(
                both.writes,
                first.writes.zip(second.writes).map(|(a, b)| a + b)
            );
            drop(tracefs);
            scratch.remove().unwrap();
        }
    }

    #[test]
    fn a_trace_that_does_not_add_up_is_not_believed() {
        let by_file = ByFile {
            log_bytes: 4096,
            ..ByFile::default()
        };
        let written = Written { writes: 1, by_file };
        let mut notes = Vec::new();
        let counters = Counters {
            write_bytes: 4096,
            ..Counters::default()
        };
        assert!(agrees(counters, &written, &mut notes) && notes.is_empty());
        let counters = Counters {
            write_bytes: 8192,
            ..counters
        };
        assert!(!agrees(counters, &written, &mut notes));
        assert_eq!(
            notes,
            [
                "writes not counted, and no bytes by file: the device counted 8192 bytes, the trace 4096"
            ]
        );
    }

    #[test]
    fn without_tracing_the_counters_are_left() {
        if !can_make(FileSystem::Ext4) {
            return;
        }
        let (parent, stop) = (tempfile::tempdir().unwrap(), AtomicBool::new(false));
        let (file_system, parent) = (FileSystem::Ext4, parent.path());
        let options = Options {
            file_system,
            bytes: 512 << 20,
            parent,
            stop: &stop,
        };
        let scratch = Scratch::create(&options).unwrap();
        let database = scratch.root().join("a.db");
        let watched = Watched {
            device: scratch.device(),
            file_system,
            root: scratch.root(),
            database: &database,
            tracefs: None,
        };
        let meter = Meter::new(&watched).unwrap();
        let from = meter.settle().unwrap();
        write(&database, MIB);
        let to = meter.settle().unwrap();
        let (figures, notes) = meter.finish(&[(from, to)]);
        assert!(figures[0].counters.write_bytes >= MIB as u64);
        assert!(figures[0].writes.is_none() && figures[0].by_file.is_none());
        assert!(
            notes[0].contains("there is no tracing directory"),
            "{notes:?}"
        );
    }
}
