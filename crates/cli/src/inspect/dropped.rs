//! Commits that the next open of a database would drop: SQLite recovers a log without a word.

use std::fmt;
use std::path::{Path, PathBuf};

use onewrite::log::scan::{OpenedLog, Writers};
use onewrite_common::files::companion;

use super::judge::{Lost, Owner};
use super::look::log_of;

/// What a recovery would drop.
pub struct Dropped {
    log: PathBuf,
    /// The place that it does not pass.
    end: u32,
    why: Why,
}

enum Why {
    Lost(Lost),
    /// What it cannot read.
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
/// its log cannot be read. An open tells of the last.
pub fn by_recovery(database: &Path) -> Option<Dropped> {
    let owner = Owner::of_database(database);
    if owner.has_users {
        return None;
    }
    let logs = [log_of(database), companion(database, "-wal")];
    logs.into_iter().find_map(|log| {
        let opened = OpenedLog::at(&log).ok()??;
        let survey = opened.survey(Writers::Maybe).ok()?;
        let is_of_log = |salts| salts == opened.wal.salts.0;
        let published = owner.published.filter(|it| is_of_log(it.salts));
        if survey.grew {
            return None;
        }
        let end = survey.end.map_or(survey.valid + 1, |end| end.frame.0);
        let why = match &survey.unread {
            Some(what) => Why::Unread(what.clone()),
            None => Why::Lost(Lost::of(&survey, published)?),
        };
        Some(Dropped { log, end, why })
    })
}
