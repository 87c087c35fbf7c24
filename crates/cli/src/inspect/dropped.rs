//! Commits that the next open of a database would drop: SQLite recovers a log without a word.

use std::fmt;
use std::path::{Path, PathBuf};

use onewrite::DATABASE_HEADER_BYTES;
use onewrite::log::scan::{OpenedLog, Survey, Writers};
use onewrite::storage::{LockByte, LockKind, LogFile};
use onewrite_common::files::companion;

use super::header::DatabaseHeader;
use super::judge::{Lost, Owner};
use super::look::log_of;
use crate::regular::open_regular;

/// The place that recovery does not pass, and commits behind it.
pub struct Dropped {
    log: PathBuf,
    end: u32,
    why: Why,
}

enum Why {
    Lost(Lost),
    /// Something there cannot be read.
    Unread(String),
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (log, end) = (self.log.display(), self.end);
        match &self.why {
            Why::Lost(lost) => write!(
                f,
                "{log}: frame {end} does not follow: recovery ends there{lost}: a write was torn or lost before its \
                 commit was durable, or the log was damaged"
            ),
            Why::Unread(what) => write!(f, "{log}: {what}"),
        }
    }
}

/// The commits that a recovery would drop; `None` where there are none, others have the database open, or
/// the log cannot be read. An open tells of the last.
pub fn by_recovery(database: &Path) -> Option<Dropped> {
    let owner = Owner::of_database(database);
    let file = owner.file()?;
    let (log, guard) = log_in_force(database)?;
    let opened = OpenedLog::at(&log).ok()??;
    let is_its_own = opened.header.as_ref().map(|header| header.id) == guard;
    if !is_its_own || has_users(&owner, &opened.file) {
        return None;
    }
    let (geometry, wal) = (opened.geometry, opened.wal);
    let survey =
        Survey::with_database(&opened.file, geometry, wal, Writers::Maybe, Some(&file)).ok()?;
    // Somebody may have opened it meanwhile: that recovered the log, and may have started it again.
    let again = OpenedLog::at(&log).ok()??;
    let is_the_same = again.wal == wal && again.header == opened.header;
    if survey.grew || !is_the_same || has_users(&Owner::of_database(database), &again.file) {
        return None;
    }
    let published = owner.published.filter(|it| it.salts == wal.salts.0);
    let end = survey.end.map_or(survey.valid + 1, |end| end.frame.0);
    let why = match &survey.unread {
        Some(what) => Why::Unread(what.clone()),
        None => Why::Lost(Lost::of(&survey, published)?),
    };
    Some(Dropped { log, end, why })
}

fn has_users(owner: &Owner, log: &LogFile) -> bool {
    owner.has_users
        || log
            .is_locked_by_other(LockByte::Presence, LockKind::Exclusive)
            .unwrap_or(true)
}

/// The log that an open would recover, and the guard that names it: SQLite's own has none.
fn log_in_force(database: &Path) -> Option<(PathBuf, Option<onewrite::log::LogId>)> {
    let mut head = [0; DATABASE_HEADER_BYTES];
    std::io::Read::read_exact(&mut open_regular(database).ok()?, &mut head).ok()?;
    let guard = DatabaseHeader::parse(&head)?.guard;
    Some(match guard {
        Some(_) => (log_of(database), guard),
        None => (companion(database, "-wal"), None),
    })
}
