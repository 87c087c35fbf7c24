//! A database and its log, changed, through real SQLite: opened, read, checked, checkpointed,
//! written, closed, and given to stock SQLite.
//!
//! SQLite's answer is known where only the log was changed and no checksum was repaired. It must be
//! a committed state: the one that `log::scan` finds in the log. If the log's header was changed,
//! SQLite must refuse to open the database, and no byte may change. Otherwise any answer is right,
//! and only crashes, hangs and reports of a sanitizer count.

mod base;
mod check;

pub use onewrite_common::files::companion;
use std::fs;
use std::path::{Path, PathBuf};

#[cfg(feature = "tools")]
pub use base::connect;
pub use base::{Base, bases};

use crate::bytes::Bytes;
use crate::change::{change, mend_header, mend_log, mend_stock_log, overwrite};

/// The files of a database. An empty log stands for a missing one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The database itself.
    pub database: Vec<u8>,
    /// `-onewrite`.
    pub log: Vec<u8>,
    /// `-wal`.
    pub wal: Vec<u8>,
    /// `-journal`.
    pub journal: Vec<u8>,
}

impl Files {
    /// As they were made.
    pub fn of(base: &Base) -> Self {
        Self {
            database: base.database.clone(),
            log: base.log.clone(),
            wal: base.wal.clone(),
            journal: Vec::new(),
        }
    }

    /// The file that holds the frames.
    fn frames_of(&mut self, base: &Base) -> &mut Vec<u8> {
        match base.is_guarded {
            true => &mut self.log,
            false => &mut self.wal,
        }
    }

    /// Reads the files of the database at `path`.
    pub fn read(path: &Path) -> Self {
        let read = |suffix| fs::read(companion(path, suffix)).unwrap_or_default();
        Self {
            database: read(""),
            log: read("-onewrite"),
            wal: read("-wal"),
            journal: read("-journal"),
        }
    }

    /// Writes the files into a directory; returns the path of the database.
    pub fn write(&self, directory: &Path) -> PathBuf {
        let path = directory.join("db");
        let files = [
            ("", &self.database),
            ("-onewrite", &self.log),
            ("-wal", &self.wal),
            ("-journal", &self.journal),
        ];
        for (suffix, bytes) in files {
            if !bytes.is_empty() {
                fs::write(companion(&path, suffix), bytes).expect("a file");
            }
        }
        path
    }
}

/// A directory for one run, in memory where possible.
pub fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a directory")
}

/// The changes to the files that the files themselves do not show.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    /// Checksums were corrected.
    mended: bool,
    /// A file of another database was put there.
    foreign: bool,
}

/// See the module.
pub fn run(data: &[u8]) {
    let mut input = Bytes::new(data);
    let bases = bases();
    let base = &bases[input.below(bases.len())];
    let how = check::How::of(&mut input);
    let mut files = Files::of(base);
    let mut done = Done::default();
    for _ in 0..24 {
        if input.is_empty() {
            break;
        }
        one(base, &mut files, &mut done, &mut input);
    }
    check::check(base, &files, done, &how);
}

fn one(base: &Base, files: &mut Files, done: &mut Done, input: &mut Bytes<'_>) {
    let kind = input.byte();
    match kind {
        0..110 => change(files.frames_of(base), &base.places, input),
        110..125 => change(
            &mut files.log,
            &[0, 8, 12, 16, 20, 24, 32, 40, 48, 56],
            input,
        ),
        125..155 => change(&mut files.database, &[16, 18, 24, 28, 72, 92], input),
        155..175 => {
            mend_header(&mut files.log);
            done.mended = true;
        }
        175..205 => {
            match base.is_guarded {
                true => mend_log(&mut files.log, kind.is_multiple_of(4)),
                false => mend_stock_log(&mut files.wal, kind.is_multiple_of(4)),
            }
            done.mended = true;
        }
        205..215 => {
            let id = files.log.get(24..32).unwrap_or_default().to_vec();
            overwrite(&mut files.database, 72, &id);
            overwrite(&mut files.database, 19, &[0xa1]);
            done.mended = true;
        }
        215..225 => {
            files.log = bases()[input.below(bases().len())].log.clone();
            // A file that only stores the mode fits any database.
            done.foreign |= !base.is_guarded;
        }
        225..232 => {
            files.wal = bases()[input.below(bases().len())].wal.clone();
            done.foreign = true;
        }
        232..238 => {
            files.journal = input.take(64).to_vec();
            files.journal.resize(input.number(), 0);
            overwrite(
                &mut files.journal,
                0,
                &[0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7],
            );
            done.foreign = true;
        }
        _ => match kind % 4 {
            0 => files.log.clear(),
            1 => files.wal.clear(),
            2 => files.database.truncate(input.number()),
            _ => files.log = vec![0; input.number()],
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOW: [u8; 2] = [0, 0];

    fn panics(base: &Base, files: &Files) -> bool {
        let how = check::How::of(&mut Bytes::new(&HOW));
        let checked = std::panic::catch_unwind(|| check::check(base, files, Done::default(), &how));
        checked.is_err()
    }

    /// SQLite reads frames with correct checksums even if nobody committed them. The check finds
    /// this when it assumes that no checksum was repaired.
    #[test]
    fn data_that_was_never_committed_is_seen() {
        // Rows are stored unchanged in a log, except in one that compresses.
        let in_place = |base: &&Base| {
            let header = onewrite::log::LogHeader::parse(&base.log);
            header.is_ok_and(|header| header.layout.has_fixed_positions())
        };
        for base in bases().iter().filter(in_place) {
            let mut files = Files::of(base);
            assert!(!panics(base, &files), "{}", base.name);
            let log = files.frames_of(base);
            let rows = log.windows(30).enumerate();
            let rows: Vec<usize> = rows
                .filter(|(_, bytes)| *bytes == [b'a'; 30])
                .map(|(at, _)| at)
                .collect();
            assert!(!rows.is_empty());
            rows.into_iter().for_each(|at| log[at] = b'X');
            assert!(
                !panics(base, &files),
                "{}: frames that do not fit",
                base.name
            );
            match base.is_guarded {
                true => mend_log(files.frames_of(base), false),
                false => mend_stock_log(files.frames_of(base), false),
            }
            assert!(panics(base, &files), "{}: not seen", base.name);
        }
    }

    #[test]
    fn a_change_of_a_refused_database_is_seen() {
        let base = &bases()[0];
        let mut files = Files::of(base);
        files.log.truncate(100);
        assert!(!panics(base, &files));
        let mut other = base.clone();
        other.log.truncate(100);
        // Here the base is cut and the files are whole: the check wrongly expects a refusal, and
        // fails.
        assert!(panics(&other, &Files::of(base)));
    }
}
