//! The databases that were found, and what their own files say about commits.
//!
//! SQLite counts transactions itself: in the wal-index (`iChange`) in WAL mode, in the database's
//! header (the change counter) in a rollback mode. This code reads both once a second. It opens the
//! files through `/proc/PID/root`, so that it finds those of containers.

use std::fs;
use std::io::{ErrorKind, Read};
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use onewrite::log::LogHeader;
use onewrite::log::header::HEADER_BYTES;
use onewrite_common::files::companion;

use crate::inspect::{DatabaseHeader, users};
use crate::regular::open_regular;

/// A file's identity while it exists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileId {
    /// The device number of its file system, as `stat` has it.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
}

impl FileId {
    /// The identity of the file at a path.
    pub fn of(path: &Path) -> Option<Self> {
        let meta = fs::metadata(path).ok()?;
        Some(Self {
            device: meta.st_dev(),
            inode: meta.st_ino(),
        })
    }
}

/// A path as a process sees it, for this process.
pub fn seen_by(pid: u32, path: &Path) -> PathBuf {
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let below = path.strip_prefix("/").unwrap_or(path);
    match root.join(below) {
        through if through.exists() => through,
        _ => path.to_owned(),
    }
}

/// Changes between two looks at most. A change counter that went back seems to be further ahead.
const MOST_CHANGES: u32 = u32::MAX / 2;

/// Where the number of commits comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// SQLite's own count in the wal-index.
    WalIndex,
    /// SQLite's own count in the database's header.
    ChangeCounter,
    /// The flushes, because SQLite's own count was not there all the time.
    Flushes,
}

/// The contents of a database's files at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Sample {
    is_rollback: bool,
    change_counter: u32,
    /// The identity of the wal-index, and its last commit.
    index: Option<(FileId, users::Published)>,
}

/// See the module.
pub struct Database {
    /// Its path, as the program that was found first sees it.
    pub path: PathBuf,
    /// The device that holds it, as the kernel holds its number in memory; 0 without one.
    pub device: u32,
    /// The name of that device.
    pub device_name: Option<String>,
    /// The type of its file system.
    pub file_system: String,
    /// The journal mode.
    pub mode: String,
    /// Bytes of a page.
    pub page_size: u32,
    /// Bytes of the log or the rollback journal on disk.
    pub log_bytes: u64,
    /// The commits that SQLite counted since the database was found.
    pub commits: u64,
    /// Frames in the log of `framed_commits` commits.
    pub frames: u64,
    /// Commits whose frames were counted.
    pub framed_commits: u64,
    /// Whether the wal-index was removed or replaced meanwhile, so that commits may be missing.
    pub has_gaps: bool,
    /// Whether `scan` shows it.
    pub is_wanted: bool,
    /// Its file was there, and is no more: it is not looked at again.
    pub is_gone: bool,
    opener: u32,
    /// The rollback journal was missing at a look: it is deleted after each commit.
    is_deleting: bool,
    sample: Option<Sample>,
    /// Those that held a checkpoint up when that was last seen.
    pub holders: Vec<users::Reader>,
    /// The last frame at that time.
    pub held_at: u32,
    /// Looks that saw a checkpoint held up.
    pub held_looks: u64,
    marks: ([u8; 8], Vec<users::Mark>),
}

impl Database {
    /// The database at `path` that process `pid` has open.
    pub fn new(pid: u32, path: PathBuf) -> Self {
        Self {
            path,
            device: 0,
            device_name: None,
            file_system: String::new(),
            mode: String::new(),
            page_size: 0,
            log_bytes: 0,
            commits: 0,
            frames: 0,
            framed_commits: 0,
            has_gaps: false,
            is_wanted: true,
            is_gone: false,
            opener: pid,
            is_deleting: false,
            sample: None,
            holders: Vec::new(),
            held_at: 0,
            held_looks: 0,
            marks: Default::default(),
        }
    }

    /// Its path for this process.
    pub fn here(&self) -> PathBuf {
        seen_by(self.opener, &self.path)
    }

    /// Another process has it open; the first may have ended.
    pub fn opened_by(&mut self, pid: u32) {
        if !Path::new("/proc").join(self.opener.to_string()).exists() {
            self.opener = pid;
        }
    }

    /// Whether it is in a rollback mode.
    pub fn is_rollback(&self) -> bool {
        self.sample
            .as_ref()
            .is_some_and(|sample| sample.is_rollback)
    }

    /// Looks at its files. Counts the commits since the last look. If this is the first look, those
    /// of a wal-index that was made after `begin`.
    pub fn look(&mut self, begin: SystemTime) {
        if self.is_gone {
            return;
        }
        let here = self.here();
        let Some(header) = DatabaseHeader::read(&here) else {
            let file = fs::symlink_metadata(&here);
            self.is_gone = file.is_err_and(|error| error.kind() == ErrorKind::NotFound);
            return;
        };
        let index = companion(&here, "-shm");
        let sample = Sample {
            is_rollback: header.write_version != 2 && header.guard.is_none(),
            change_counter: header.change_counter,
            index: FileId::of(&index).and_then(|id| Some((id, users::published(&here)?))),
        };
        self.page_size = header.page_size.map_or(0, |page| page.bytes() as u32);
        let is_new = |path: &Path| fs::metadata(path).and_then(|meta| meta.created());
        let before = self.sample.take().or_else(|| {
            let is_new = is_new(&index).is_ok_and(|made| made >= begin);
            is_new.then(Sample::default)
        });
        if let Some(before) = before {
            self.count(&before, &sample);
        }
        (self.mode, self.log_bytes) = mode(&here, &header);
        if sample.is_rollback {
            self.is_deleting |= self.mode == "delete";
            if self.is_deleting {
                self.mode = "delete".to_owned();
            }
        }
        self.look_at_readers(&here, sample.index.is_some());
        self.sample = Some(sample);
    }

    /// A reader of a moment holds nothing up: only a read mark that is behind at two looks counts.
    fn look_at_readers(&mut self, here: &Path, has_index: bool) {
        let progress = has_index.then(|| users::progress(here)).flatten();
        let Some(progress) = progress else {
            self.marks = Default::default();
            return;
        };
        let (salts, before) = &self.marks;
        let is_old = |mark: &&users::Mark| *salts == progress.salts && before.contains(mark);
        let old: Vec<_> = progress.behind.iter().filter(is_old).copied().collect();
        if !old.is_empty() {
            self.holders = users::readers_with(here, &old);
            self.held_at = progress.last_frame;
            self.held_looks += 1;
        }
        self.marks = (progress.salts, progress.behind);
    }

    fn count(&mut self, before: &Sample, now: &Sample) {
        match (&before.index, &now.index) {
            (Some((one, old)), Some((other, new))) if one == other => {
                let commits = new.changes.checked_sub(old.changes);
                let commits = u64::from(commits.unwrap_or(new.changes));
                self.commits += commits;
                if old.salts == new.salts && new.last_frame >= old.last_frame {
                    self.frames += u64::from(new.last_frame - old.last_frame);
                    self.framed_commits += commits;
                }
            }
            (old, Some((_, new))) => {
                self.has_gaps |= old.is_some();
                self.commits += u64::from(new.changes);
            }
            (Some(_), None) => self.has_gaps = true,
            (None, None) if before.is_rollback && now.is_rollback => {
                let commits = now.change_counter.wrapping_sub(before.change_counter);
                match commits <= MOST_CHANGES {
                    true => self.commits += u64::from(commits),
                    // Another file has the name, or an earlier one was written over it.
                    false => self.has_gaps = true,
                }
            }
            (None, None) => {}
        }
    }

    /// The number of commits, and where it comes from. `log_flushes` and `database_flushes` are
    /// those that programs waited for.
    pub fn counted(&self, log_flushes: u64, database_flushes: u64) -> (u64, Source) {
        let of_flushes = match self.is_rollback() {
            true => database_flushes,
            false => log_flushes,
        };
        let has_index = self.sample.as_ref().is_some_and(|s| s.index.is_some());
        let own = match self.is_rollback() {
            // In exclusive locking mode SQLite changes the counter once.
            true => (self.commits > 0 && !self.has_gaps).then_some(Source::ChangeCounter),
            false => (has_index && !self.has_gaps).then_some(Source::WalIndex),
        };
        match own {
            Some(source) => (self.commits, source),
            None => (self.commits.max(of_flushes), Source::Flushes),
        }
    }

    /// Pages that a commit changes, on average.
    pub fn pages_per_commit(&self, database_bytes: u64, commits: u64) -> Option<f64> {
        if self.framed_commits > 0 {
            return Some(self.frames as f64 / self.framed_commits as f64);
        }
        let is_known = self.is_rollback() && commits > 0 && self.page_size > 0;
        let pages = database_bytes as f64 / f64::from(self.page_size.max(1));
        is_known.then(|| (pages / commits as f64).max(1.0))
    }
}

/// The journal mode, and the bytes of the log or the journal.
fn mode(here: &Path, header: &DatabaseHeader) -> (String, u64) {
    let bytes = |suffix: &str| {
        fs::metadata(companion(here, suffix))
            .ok()
            .map(|meta| meta.len())
    };
    if header.write_version != 2 && header.guard.is_none() {
        let journal = bytes("-journal");
        let name = match journal {
            Some(0) => "truncate",
            Some(_) if is_zeroed(&companion(here, "-journal")) => "persist",
            _ => "delete",
        };
        return (name.to_owned(), journal.unwrap_or(0));
    }
    let ours = remembered(&companion(here, "-onewrite"));
    let wal = bytes("-wal");
    match ours {
        Some(name) if name == "direct" && header.guard.is_none() => (name, wal.unwrap_or(0)),
        // Without a guard it is closed and remembers the mode, unless stock SQLite has opened it since.
        Some(name) if header.guard.is_some() || wal.is_none() => {
            (name, bytes("-onewrite").unwrap_or(0))
        }
        _ => ("wal".to_owned(), wal.unwrap_or(0)),
    }
}

/// The mode that a log of onewrite names.
fn remembered(log: &Path) -> Option<String> {
    let mut head = [0; HEADER_BYTES];
    let mut file = open_regular(log).ok()?;
    let read = file.read(&mut head).ok()?;
    let header = LogHeader::parse(head.get(..read)?).ok()?;
    Some(header.mode.name().to_owned())
}

/// Whether a rollback journal begins with zeros, as `persist` leaves it after a commit.
fn is_zeroed(journal: &Path) -> bool {
    let mut head = [1; 8];
    let read = open_regular(journal).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && head == [0; 8]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(inode: u64, changes: u32, last_frame: u32) -> Option<(FileId, users::Published)> {
        let id = FileId { device: 1, inode };
        let published = users::Published {
            salts: [1; 8],
            last_frame,
            changes,
            is_recent: false,
        };
        Some((id, published))
    }

    fn database() -> Database {
        Database::new(1, PathBuf::from("/none"))
    }

    fn sample(index: Option<(FileId, users::Published)>) -> Sample {
        Sample {
            index,
            ..Sample::default()
        }
    }

    #[test]
    fn the_wal_index_counts_commits_and_a_new_one_begins_at_zero() {
        let mut database = database();
        database.count(&sample(index(7, 10, 100)), &sample(index(7, 15, 110)));
        assert_eq!((database.commits, database.frames), (5, 10));
        assert!(!database.has_gaps);
        // Recovery starts the count again, in the same file.
        database.count(&sample(index(7, 15, 110)), &sample(index(7, 3, 3)));
        assert_eq!(database.commits, 8);
        database.count(&sample(index(7, 3, 3)), &sample(index(8, 2, 2)));
        assert_eq!((database.commits, database.has_gaps), (10, true));
        database.sample = Some(sample(index(8, 2, 2)));
        assert_eq!(database.counted(12, 0), (12, Source::Flushes));
    }

    #[test]
    fn the_change_counter_counts_commits_of_a_rollback_mode_and_may_wrap() {
        let rollback = |change_counter| Sample {
            is_rollback: true,
            change_counter,
            index: None,
        };
        let mut database = database();
        database.count(&rollback(u32::MAX), &rollback(3));
        database.sample = Some(rollback(3));
        assert_eq!(database.counted(0, 9), (4, Source::ChangeCounter));
        database.commits = 0;
        assert_eq!(database.counted(0, 9), (9, Source::Flushes));
        // An earlier copy was written over it.
        database.count(&rollback(50), &rollback(20));
        assert_eq!(database.counted(0, 9), (9, Source::Flushes));
        database.count(&rollback(20), &rollback(22));
        assert_eq!(database.counted(0, 1), (2, Source::Flushes));
    }
}
