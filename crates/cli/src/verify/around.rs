//! The surroundings of a database: set-aside logs, a hot journal, and a file shorter than its
//! header says.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use onewrite::log::name::{longest_name, orphan_prefix};
use onewrite::log::scan::{OpenedLog, Survey, Writers};

use super::report::{Orphan, Report};
use crate::inspect::look::companion;
use crate::inspect::report::{Database, Problem};
use crate::inspect::{advice, counted, users};
use crate::regular::open_regular;

/// At most this many set-aside logs are read; the others are counted.
const MOST_ORPHANS: usize = 100;

/// The magic number of a rollback journal. SQLite zeroes it in a journal that it keeps.
const JOURNAL_MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];

/// Adds the findings around the database at `path`.
pub fn look(path: &Path, report: &mut Report) -> io::Result<()> {
    if report.database().is_some() {
        journal(path, report)?;
        size(path, report);
        index(path, report);
    }
    orphans(path, report)
}

fn journal(path: &Path, report: &mut Report) -> io::Result<()> {
    let journal = companion(path, "-journal");
    if !is_hot_journal(&journal)? {
        return Ok(());
    }
    if report.database().is_some_and(|found| found.guarded) {
        report.problem(&journal, None, advice::stock_file_next_to_guard());
        return Ok(());
    }
    let what = match report.in_use {
        true => "a transaction is under way",
        false => "a transaction was cut off; opening the database rolls it back",
    };
    report.notes.push(format!("{}: {what}", journal.display()));
    Ok(())
}

/// Whether a rollback journal exists that SQLite would play back.
///
/// # Errors
/// It cannot be read.
pub fn is_hot_journal(journal: &Path) -> io::Result<bool> {
    let mut magic = [0; 8];
    match open_regular(journal).and_then(|mut file| file.read_exact(&mut magic)) {
        Ok(()) => Ok(magic == JOURNAL_MAGIC),
        Err(e) if is_absent(&e) => Ok(false),
        Err(e) => Err(named(journal, e)),
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof
    )
}

fn named(path: &Path, e: io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("{}: {e}", path.display()))
}

fn size(path: &Path, report: &mut Report) {
    if report.in_use || report.has_frames() {
        return;
    }
    if let Some(problem) = report.database().and_then(|it| cut_short(path, it)) {
        report.add(problem);
    }
}

/// Without frames in a log, the file has all pages that its header counts. The problem, if it has
/// not. Nobody has it open.
pub fn cut_short(path: &Path, database: &Database) -> Option<Problem> {
    let is_counted = database.change_counter == database.version_valid_for;
    let page_size = u64::from(database.page_size.unwrap_or(0));
    let (wanted, size) = (u64::from(database.pages) * page_size, database.size);
    (is_counted && size < wanted).then(|| Problem {
        file: path.to_owned(),
        offset: Some(size),
        what: format!("cut short: {size} bytes, but its header counts {wanted}"),
    })
}

fn index(path: &Path, report: &mut Report) {
    if report.in_use || report.has_wal() {
        return;
    }
    let left = report.database().and_then(|it| left_index(path, it));
    report.notes.extend(left.map(|left| left.note));
}

/// A wal-index without a log.
pub struct LeftIndex {
    /// About it, for the reader.
    pub note: String,
    /// It names commits of a log that is not there.
    pub lacks_log: bool,
}

/// The last to close a database in WAL mode removes the wal-index together with the log. A program
/// that may only read cannot. Looks for a wal-index alone: nobody has the database open, and it has
/// no log of SQLite's own.
pub fn left_index(path: &Path, database: &Database) -> Option<LeftIndex> {
    let index = companion(path, "-shm");
    if database.write_version != 2 || database.guarded || !index.exists() {
        return None;
    }
    let lacks_log = !users::names_no_commit(path);
    let what = match lacks_log {
        true => {
            "the -shm is there, but the -wal is not, or is empty: the database was not closed in \
             order, or by a program that keeps these files. If somebody deleted the -wal, its \
             transactions are lost"
        }
        false => "left by a program that may only read, or was killed. It names no commit",
    };
    Some(LeftIndex {
        note: format!("{}: {what}", index.display()),
        lacks_log,
    })
}

fn orphans(path: &Path, report: &mut Report) -> io::Result<()> {
    let paths = match set_aside(path) {
        // A user of the database may lack the permission to list its directory.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            report
                .notes
                .push(format!("{e}: set-aside logs were not searched for"));
            return Ok(());
        }
        paths => paths?,
    };
    for (nth, path) in paths.iter().enumerate() {
        if nth == MOST_ORPHANS {
            let more = counted((paths.len() - nth) as u64, "more log");
            report.notes.push(format!("{more} set aside, not read"));
            break;
        }
        let orphan = orphan(path, report.is_quick());
        let what = match (orphan.frames, orphan.transactions) {
            (Some(0), _) => {
                report
                    .notes
                    .push(format!("{}: set aside, and empty", path.display()));
                report.orphans.push(orphan);
                continue;
            }
            (Some(_), Some(transactions)) => {
                format!("holds {}", counted(transactions, "transaction"))
            }
            _ if report.is_quick() && orphan.id.is_some() => "its frames were not read".to_owned(),
            _ => "cannot be read as a log".to_owned(),
        };
        let what = format!(
            "set aside from a database that was here before: {what}. \"onewrite salvage {} -o OUT\" reads it",
            path.display()
        );
        report.problem(path, None, what);
        report.orphans.push(orphan);
    }
    Ok(())
}

/// The logs that were set aside from databases of this name.
///
/// # Errors
/// The directory cannot be listed.
pub fn set_aside(path: &Path) -> io::Result<Vec<PathBuf>> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let Some(name) = path.file_name() else {
        return Ok(Vec::new());
    };
    let begin = orphan_prefix(name, longest_name(path));
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(|e| named(directory, e))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        if name.starts_with(begin.as_encoded_bytes()) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// A log that was set aside. `quick`: only its header is read.
fn orphan(path: &Path, quick: bool) -> Orphan {
    let log = OpenedLog::at(path);
    let survey = match &log {
        Ok(Some(_)) if quick => None,
        Ok(Some(log)) => Survey::of(&log.file, log.geometry, log.wal, Writers::None).ok(),
        Ok(None) => Some(Survey::default()),
        Err(_) => None,
    };
    let header = log.ok().flatten().and_then(|log| log.header);
    Orphan {
        path: path.to_owned(),
        id: header.map(|header| header.id.to_string()),
        frames: survey
            .as_ref()
            .map(|survey| survey.committed.map_or(0, |commit| commit.frame.0)),
        transactions: survey.map(|survey| survey.transactions),
    }
}
