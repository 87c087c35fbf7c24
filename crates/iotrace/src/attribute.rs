//! Tells written sectors apart by what they were written for.
//!
//! The events are replayed in the order in which they happened: the file system's say which inode owns
//! which sectors at that moment, also of files that are gone by the end, as rollback journals are; the
//! block layer's say which sectors were written. Files are known by the names under which they were
//! created. What belongs to no file and not to the file system's journal is its metadata.

use std::collections::HashMap;
use std::ops::Range;

use crate::device::SECTOR_BYTES;
use crate::events::{Event, InodeKind};
use crate::extents::Extents;
use crate::meter::ByFile;

/// What a range of sectors is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The file system's journal.
    FsJournal,
    /// SQLite's log or rollback journal.
    Log,
    /// The database file.
    Database,
    /// Another file.
    Other,
}

impl Purpose {
    /// What a file is for, by its name and that of the database. Further databases of the same workload
    /// have that name, a full stop and a number.
    pub(crate) fn of_name(name: &str, database: &str) -> Self {
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

/// An event and when it happened, in nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Debug)]
pub(crate) struct Timed {
    pub(crate) at_ns: u64,
    pub(crate) event: Event,
}

/// What is known before the first event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// The sectors of the file system's journal.
    pub(crate) journal: Vec<Range<u64>>,
    /// Regular files that exist already, by inode.
    pub(crate) files: HashMap<u64, Purpose>,
    /// The inode of the database's directory.
    pub(crate) dir: u64,
    /// What the files created in that directory are for, in the order in which they are created;
    /// for file systems that report the inodes of new files without their names.
    pub(crate) created: Vec<Purpose>,
    /// The name of the database file.
    pub(crate) database: String,
}

/// What was written in a span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    /// Requests that carried data.
    pub(crate) writes: u64,
    /// Their bytes.
    pub(crate) by_file: ByFile,
}

/// Replays `events`, which must be in the order of time, and adds up what was written in each window,
/// from after its first moment to its last. `Err` says what does not fit together.
pub(crate) fn replay(
    known: Known,
    events: &[Timed],
    windows: &[(u64, u64)],
) -> Result<Vec<Written>, String> {
    let mut state = State::new(known);
    let mut sums = vec![Written::default(); windows.len()];
    for Timed { at_ns, event } in events {
        match event {
            Event::Written(sectors) => {
                let pieces = state.owners.owners(sectors.clone());
                for (sum, (from, to)) in sums.iter_mut().zip(windows) {
                    if from < at_ns && at_ns <= to {
                        sum.add(&pieces);
                    }
                }
            }
            Event::Mapped { inode, sectors } => state.map(*inode, sectors.clone()),
            Event::Freed(sectors) => state.owners.free(sectors.clone()),
            Event::Created { inode, dir, kind } => state.create(*inode, *dir, *kind)?,
            Event::Named { inode, dir, name } => state.name(*inode, *dir, name),
        }
    }
    if state.created.next().is_some() {
        return Err("a file was created that the file system reported no inode for".to_owned());
    }
    Ok(sums)
}

struct State {
    owners: Extents<Purpose>,
    files: HashMap<u64, Purpose>,
    dir: u64,
    created: std::vec::IntoIter<Purpose>,
    database: String,
}

impl State {
    fn new(known: Known) -> Self {
        let mut owners = Extents::default();
        for sectors in known.journal {
            owners.give(sectors, Purpose::FsJournal);
        }
        let created = known.created.into_iter();
        Self {
            owners,
            files: known.files,
            dir: known.dir,
            created,
            database: known.database,
        }
    }

    fn map(&mut self, inode: u64, sectors: Range<u64>) {
        match self.files.get(&inode) {
            Some(purpose) => self.owners.give(sectors, *purpose),
            None => self.owners.free(sectors),
        }
    }

    fn create(&mut self, inode: u64, dir: u64, kind: InodeKind) -> Result<(), String> {
        let purpose = if dir == self.dir {
            self.created
                .next()
                .ok_or("an inode was allocated for a file of unknown name")?
        } else {
            Purpose::Other
        };
        match kind {
            InodeKind::File => self.files.insert(inode, purpose),
            InodeKind::Other => self.files.remove(&inode),
        };
        Ok(())
    }

    fn name(&mut self, inode: u64, dir: u64, name: &str) {
        let ours = dir == self.dir;
        let purpose = if ours {
            Purpose::of_name(name, &self.database)
        } else {
            Purpose::Other
        };
        self.files.insert(inode, purpose);
    }
}

impl Written {
    fn add(&mut self, pieces: &[(Option<Purpose>, u64)]) {
        self.writes += 1;
        for (purpose, sectors) in pieces {
            let by_file = &mut self.by_file;
            let bytes = match purpose {
                None => &mut by_file.fs_metadata_bytes,
                Some(Purpose::FsJournal) => &mut by_file.fs_journal_bytes,
                Some(Purpose::Log) => &mut by_file.log_bytes,
                Some(Purpose::Database) => &mut by_file.database_bytes,
                Some(Purpose::Other) => &mut by_file.other_bytes,
            };
            *bytes += sectors * SECTOR_BYTES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: u64 = 11;

    fn known(created: &[&str]) -> Known {
        Known {
            journal: Vec::from([1000..2000, 3000..3008]),
            files: HashMap::from([(99, Purpose::Other)]),
            dir: DIR,
            created: created
                .iter()
                .map(|name| Purpose::of_name(name, "test.db"))
                .collect(),
            database: "test.db".to_owned(),
        }
    }

    fn timed(events: Vec<Event>) -> Vec<Timed> {
        (1..)
            .zip(events)
            .map(|(at_ns, event)| Timed { at_ns, event })
            .collect()
    }

    fn created(inode: u64) -> Event {
        Event::Created {
            inode,
            dir: DIR,
            kind: InodeKind::File,
        }
    }

    fn mapped(inode: u64, sectors: Range<u64>) -> Event {
        Event::Mapped { inode, sectors }
    }

    #[test]
    fn every_database_of_a_workload_is_one_and_so_is_its_log() {
        for (name, purpose) in [
            ("a.db", Purpose::Database),
            ("a.db-wal", Purpose::Log),
            ("a.db.2", Purpose::Database),
            ("a.db.20-onewrite", Purpose::Log),
            ("a.db.3-journal", Purpose::Log),
            ("a.db-shm", Purpose::Other),
            ("a.db.2-shm", Purpose::Other),
            ("a.db.", Purpose::Other),
            ("a.db.x", Purpose::Other),
            ("a.db2", Purpose::Other),
            ("b.db.2", Purpose::Other),
        ] {
            assert_eq!(Purpose::of_name(name, "a.db"), purpose, "{name}");
        }
    }

    #[test]
    fn each_sector_belongs_to_who_had_it_when_it_was_written() {
        let events = timed(vec![
            created(12),
            mapped(12, 0..8),
            created(13),
            mapped(13, 8..16),
            Event::Written(0..16),
            Event::Written(1000..1008),
            // The rollback journal is deleted, and a directory gets its blocks.
            Event::Freed(8..16),
            Event::Written(8..16),
            mapped(DIR, 8..16),
            Event::Written(8..16),
            // The next one has the same inode and other blocks; then another file has those.
            created(13),
            mapped(13, 16..24),
            Event::Written(16..24),
            mapped(99, 16..24),
            Event::Written(16..24),
        ]);
        let known = known(&["test.db", "test.db-journal", "test.db-journal"]);
        let sums = replay(known, &events, &[(0, 100), (4, 5), (5, 6)]).unwrap();
        assert_eq!(sums[0].writes, 6);
        assert_eq!(
            sums[0].by_file,
            ByFile {
                fs_journal_bytes: 4096,
                fs_metadata_bytes: 8192,
                log_bytes: 8192,
                database_bytes: 4096,
                other_bytes: 4096,
            }
        );
        assert_eq!((sums[1].writes, sums[1].by_file.total()), (1, 8192));
        assert_eq!(
            (sums[2].writes, sums[2].by_file.fs_journal_bytes),
            (1, 4096)
        );
    }

    #[test]
    fn names_and_inodes_must_agree_in_number() {
        let one = timed(vec![created(12)]);
        assert!(
            replay(known(&[]), &one, &[])
                .unwrap_err()
                .contains("unknown name")
        );
        assert!(
            replay(known(&["a", "b"]), &one, &[])
                .unwrap_err()
                .contains("no inode")
        );
        let elsewhere = timed(vec![Event::Created {
            inode: 5,
            dir: 2,
            kind: InodeKind::File,
        }]);
        assert_eq!(replay(known(&[]), &elsewhere, &[]), Ok(vec![]));
    }

    #[test]
    fn a_file_system_may_report_the_name_itself() {
        let named = |name: &str, dir| Event::Named {
            inode: 12,
            dir,
            name: name.to_owned(),
        };
        let events = timed(vec![
            named("test.db-wal", DIR),
            mapped(12, 0..8),
            Event::Written(0..8),
            named("test.db-wal", 2),
            mapped(12, 8..16),
            Event::Written(8..16),
        ]);
        let sums = replay(known(&[]), &events, &[(0, 100)]).unwrap();
        assert_eq!(
            (sums[0].by_file.log_bytes, sums[0].by_file.other_bytes),
            (4096, 4096)
        );
    }

    #[test]
    fn a_name_says_what_a_file_is_for() {
        let of = |name| Purpose::of_name(name, "test.db");
        assert_eq!(of("test.db"), Purpose::Database);
        for log in ["test.db-wal", "test.db-journal", "test.db-onewrite"] {
            assert_eq!(of(log), Purpose::Log);
        }
        for other in ["test.db-shm", "test.db2", "other-wal", "wal"] {
            assert_eq!(of(other), Purpose::Other);
        }
    }
}
