//! A device's I/O between two moments, by the files of one database.
//!
//! The caller takes a [`Mark`] at each boundary and asks for the [`Figures`] between two of them.
//! No I/O crosses the boundary of [`Meter::settle`]: everything written before it has reached the
//! device, and nothing is in flight. By contrast, [`Meter::mark`] is the present moment, even with
//! I/O in flight. I/O completed by then belongs before it.
//!
//! The device's own counters are the truth. A [`crate::trace`] classifies their bytes. If it does
//! not add up to exactly the counted bytes, there are no figures by file, and a note says why. Only
//! the sums between marks are kept of the trace, so that a watch of any length needs bounded
//! memory. On Btrfs the I/Os can only be classified at the end, so at most 1 GiB of trace is kept.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use crate::Error;
use crate::collector::Held;
use crate::device::{BlockDevice, Counters};
use crate::io::File as Named;
use crate::scratch::{FileSystem, Scratch};
use crate::sums::{Marks, Span, Sums};
use crate::trace::{Ended, Target, Watching, When};
use crate::tracefs::Tracefs;

pub use crate::trace::Mark;

/// The longest search for existing files: our own file system has few.
const LOOK_AT_MOST: Duration = Duration::from_secs(60);

/// Bytes written, by purpose. Together they are all bytes written.
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

/// The I/O that a device completed between two marks.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// The device's own counters.
    pub counters: Counters,
    /// Write requests with data; `None` if they could not be traced.
    pub writes: Option<u64>,
    /// The bytes by file; `None` if they could not be traced.
    pub by_file: Option<ByFile>,
}

/// Watches one device that holds one file system with one database.
pub struct Meter {
    device: BlockDevice,
    dir: File,
    /// The database's directory below the file system's root, and its name.
    database: (PathBuf, String),
    marks: Marks,
    watching: Result<Watching<Sums>, Error>,
}

/// The device and the database to watch.
#[derive(Clone, Copy, Debug)]
pub struct Watched<'a> {
    /// The device, which nothing else may use.
    pub device: &'a BlockDevice,
    /// The type of the file system on it.
    pub file_system: FileSystem,
    /// Its mount point.
    pub root: &'a Path,
    /// The database, which need not exist yet. During the watch only the database and SQLite's
    /// files next to it may be created in its directory.
    pub database: &'a Path,
    /// The tracing directory. Without it there are counters, but no bytes by file.
    pub tracefs: Option<&'a Tracefs>,
}

impl<'a> Watched<'a> {
    /// A scratch file system with a database.
    pub fn scratch(
        scratch: &'a Scratch,
        file_system: FileSystem,
        database: &'a Path,
        tracefs: Option<&'a Tracefs>,
    ) -> Self {
        Self {
            device: scratch.device(),
            file_system,
            root: scratch.root(),
            database,
            tracefs,
        }
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter")
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

impl Meter {
    /// Begins to watch. Without tracing, the device is still watched: a note of [`Meter::finish`]
    /// says why there is no trace.
    pub fn new(watched: &Watched<'_>) -> Result<Self, Error> {
        Self::holding(watched, Held::default())
    }

    fn holding(watched: &Watched<'_>, held: Held) -> Result<Self, Error> {
        let dir = watched.database.parent().unwrap_or(watched.root);
        let name = watched.database.file_name().unwrap_or_default();
        let below = dir.strip_prefix(watched.root).unwrap_or(dir).to_owned();
        let no_trace = || Error::Unavailable("there is no tracing directory".to_owned());
        let marks = Marks::default();
        let start = |tracefs| {
            let target = Target {
                device: watched.device,
                file_system: watched.file_system,
                root: watched.root,
                first: None,
                look_at_most: LOOK_AT_MOST,
                tracefs,
            };
            let sums = Sums::between(marks.clone());
            Watching::start(&target, sums, When::Meanwhile(held))
        };
        Ok(Self {
            device: watched.device.clone(),
            dir: File::open(dir).map_err(Error::io("open", dir))?,
            database: (below, name.to_string_lossy().into_owned()),
            watching: watched.tracefs.ok_or_else(no_trace).and_then(start),
            marks,
        })
    }

    /// Writes out everything that the file system has in memory and waits until the device is idle.
    pub fn settle(&self) -> Result<Mark, Error> {
        self.noted(Mark::settled(&self.device, &self.dir))
    }

    /// The present moment, with counters that were the same just before and just after it.
    pub fn mark(&self) -> Result<Mark, Error> {
        self.noted(Mark::now(&self.device))
    }

    fn noted(&self, mark: Result<Mark, Error>) -> Result<Mark, Error> {
        mark.inspect(|mark| self.marks.add(mark))
    }

    /// The I/O completed between the marks of each pair, in the given order, and notes for the
    /// reader. Both marks of a pair come from this meter.
    pub fn finish(self, windows: &[(Mark, Mark)]) -> (Vec<Figures>, Vec<String>) {
        let ended = self.watching.and_then(Watching::finish).and_then(whole);
        let (ended, mut notes) = match ended {
            Ok(ended) => (Some(ended), Vec::new()),
            Err(error) => (None, vec![not_told(&error)]),
        };
        let figures = windows.iter().map(|(from, to)| {
            let counters = to.counters.since(from.counters);
            let written = ended.as_ref().map(|ended| {
                let purposes = Purposes {
                    files: &ended.files,
                    database: &self.database,
                };
                purposes.written(&ended.kept.of(from, to))
            });
            let written = written.filter(|written| agrees(counters, written, &mut notes));
            Figures {
                counters,
                writes: written.map(|written| written.writes),
                by_file: written.map(|written| written.by_file),
            }
        });
        (figures.collect(), notes)
    }
}

fn not_told(error: &dyn std::fmt::Display) -> String {
    format!("writes not counted, and no bytes by file: {error}")
}

/// A recording without gaps: figures never come from a part of the I/Os.
fn whole(ended: Ended<Sums>) -> Result<Ended<Sums>, Error> {
    let missing = match (ended.lost, ended.notes.first()) {
        (0, None) => return Ok(ended),
        (0, Some(note)) => note.clone(),
        (lost, _) => format!("the kernel's trace buffer lost {lost} events"),
    };
    Err(Error::Unavailable(missing))
}

/// The bytes written in a span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Written {
    /// Requests with data.
    writes: u64,
    /// Their bytes.
    by_file: ByFile,
    /// Bytes without a known owner.
    unknown_bytes: u64,
}

/// The purpose of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// SQLite's log or rollback journal.
    Log,
    /// The database file.
    Database,
    /// Another file.
    Other,
}

impl Purpose {
    /// A file's purpose, by its name and that of the database. Further databases of the same
    /// workload have that name, a full stop and a number.
    fn of_name(name: &str, database: &str) -> Self {
        let kind = name.strip_prefix(database).map(|rest| {
            let number = rest.strip_prefix('.').unwrap_or_default();
            let kind = number.trim_start_matches(|digit: char| digit.is_ascii_digit());
            if kind.len() < number.len() {
                kind
            } else {
                rest
            }
        });
        match kind {
            Some("") => Self::Database,
            Some("-wal" | "-journal" | "-onewrite") => Self::Log,
            _ => Self::Other,
        }
    }
}

/// Sums by purpose.
struct Purposes<'a> {
    files: &'a [Named],
    database: &'a (PathBuf, String),
}

impl Purposes<'_> {
    fn written(&self, span: &Span) -> Written {
        let mut written = Written {
            writes: span.writes,
            by_file: ByFile {
                fs_journal_bytes: span.fs_journal_bytes,
                fs_metadata_bytes: span.fs_metadata_bytes,
                ..ByFile::default()
            },
            unknown_bytes: span.unknown_bytes,
        };
        for (file, bytes) in &span.files {
            let by_file = &mut written.by_file;
            let file = self.files.get(file.0 as usize);
            *match file.map(|file| self.purpose(Path::new(&file.path))) {
                Some(Purpose::Log) => &mut by_file.log_bytes,
                Some(Purpose::Database) => &mut by_file.database_bytes,
                Some(Purpose::Other) => &mut by_file.other_bytes,
                None => &mut written.unknown_bytes,
            } += bytes;
        }
        written
    }

    fn purpose(&self, path: &Path) -> Purpose {
        let (dir, database) = self.database;
        match path.file_name() {
            Some(name) if path.parent() == Some(dir) => {
                Purpose::of_name(&name.to_string_lossy(), database)
            }
            _ => Purpose::Other,
        }
    }
}

/// Whether the trace's figures add up to the device's counters.
fn agrees(counters: Counters, written: &Written, notes: &mut Vec<String>) -> bool {
    let (traced, unknown) = (written.by_file.total(), written.unknown_bytes);
    let agrees = traced == counters.write_bytes;
    if !agrees {
        notes.push(not_told(&format_args!(
            "the device counted {} bytes, the trace {traced}{}",
            counters.write_bytes,
            match unknown {
                0 => String::new(),
                unknown => format!(" and {unknown} of nothing known"),
            }
        )));
    }
    agrees
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::scratch::Options;

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
        // With everything held to the end, and with almost nothing held.
        let hasty = Held {
            bytes: 0,
            delay: Duration::from_millis(50),
        };
        for (file_system, held) in FileSystem::ALL
            .into_iter()
            .flat_map(|file_system| [(file_system, Held::default()), (file_system, hasty)])
        {
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
            let watched = Watched::scratch(&scratch, file_system, &database, Some(&tracefs));
            let meter = Meter::holding(&watched, held).unwrap();
            let empty = meter.settle().unwrap();
            write(&database, MIB);
            for round in 1..=20 {
                // Each time, the blocks and perhaps the inode of the previous one are available
                // again.
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
        let written = Written {
            writes: 1,
            by_file,
            unknown_bytes: 0,
        };
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
    fn every_database_of_a_workload_is_one_and_so_is_its_log() {
        for (name, purpose) in [
            ("a.db", Purpose::Database),
            ("a.db-wal", Purpose::Log),
            ("a.db-journal", Purpose::Log),
            ("a.db-onewrite", Purpose::Log),
            ("a.db.2", Purpose::Database),
            ("a.db.20-onewrite", Purpose::Log),
            ("a.db.3-journal", Purpose::Log),
            ("a.db-shm", Purpose::Other),
            ("a.db.2-shm", Purpose::Other),
            ("a.db.", Purpose::Other),
            ("a.db.x", Purpose::Other),
            ("a.db2", Purpose::Other),
            ("b.db.2", Purpose::Other),
            ("other-wal", Purpose::Other),
            ("wal", Purpose::Other),
        ] {
            assert_eq!(Purpose::of_name(name, "a.db"), purpose, "{name}");
        }
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
