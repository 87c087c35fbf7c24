//! Whether a database that was just opened will be refused, and why. This is known before the first
//! lock, so that the error of `sqlite3_open` itself can say it.
//!
//! No lock is taken, so a passing state must not be believed. Between the looks at its header and
//! its log, a database may become guarded, or stop being guarded. Then its change counter differs,
//! and it is looked at again.

use super::claim::Claim;
use super::database::Database;
use super::header::{Header, READ_VERSION_AT, WAL_VERSION, guarded_by, page_size};
use super::{convert, discard};
use crate::log::{ErrorKind, Log, LogError};
use crate::mode::JournalMode;
use crate::storage::Access;

/// How often to look at a database that others are changing.
const LOOKS: u32 = 3;

impl Database {
    /// Why the first lock would be refused because of the URI or the log. `None` if it would not
    /// be, or if that is unknown.
    pub fn refusal(&self) -> Option<LogError> {
        if let Some(error) = self.uri_error() {
            return Some(error);
        }
        if self.takes_no_lock || discard::is_wanted() || convert::is_converting() {
            return None;
        }
        for _ in 0..LOOKS {
            let before = self.read_header().ok()?;
            let error = self.would_refuse(before.as_ref())?;
            if self.read_header().ok()? == before {
                return Some(error);
            }
        }
        None
    }

    /// The error in the URI that the database was opened with.
    pub(super) fn uri_error(&self) -> Option<LogError> {
        let message = self.requested.uri_error.as_ref()?;
        let path = &self.paths.database;
        Some(LogError::new(ErrorKind::CantOpen, path, message.clone()))
    }

    /// A database with a log is refused under a second name: its log would be another one, and neither would
    /// see the other's commits.
    pub(super) fn refuse_other_name(&self, header: &Header) -> Result<(), LogError> {
        let has_log = header[READ_VERSION_AT] == WAL_VERSION || guarded_by(header).is_some();
        let claim = self.claim.as_ref().filter(|_| has_log);
        let Some(other) = claim.and_then(Claim::other_name) else {
            return Ok(());
        };
        let other = other.display();
        let why = format!(
            "this process has the file open as {other}, and SQLite keeps a log for each name of a file: open it \
             as {other}, or copy it: \"onewrite backup {other} COPY\""
        );
        Err(LogError::new(
            ErrorKind::CantOpen,
            &self.paths.database,
            why,
        ))
    }

    fn would_refuse(&self, header: Option<&Header>) -> Option<LogError> {
        let named = header.map_or(Ok(()), |header| self.refuse_other_name(header));
        if let Err(error) = named {
            return Some(error);
        }
        let present = self.present_log();
        if let Some(header) = header
            && let Some(id) = guarded_by(header)
        {
            if present.is_ok_and(|log| log.is_some_and(|log| log.id == id)) {
                return None;
            }
            let page = page_size(header).ok()?;
            let mut open = self
                .open_log(&self.paths.log, JournalMode::Waldio, page)
                .ok()?;
            open.access = Access::ReadOnly;
            let opened = Log::open_guarded(&open, id);
            return opened.err().filter(LogError::is_unreadable);
        }
        let error = match present {
            Ok(None) => return None,
            Ok(Some(log)) if log.is_empty() => return None,
            Ok(Some(_)) => self.leftover_error(),
            // It is used in SQLite's own WAL.
            Err(e) if e.kind() == ErrorKind::Denied && header.is_some_and(is_in_wal) => {
                return None;
            }
            Err(e) if e.is_unreadable() => e,
            Err(_) => return None,
        };
        let is_refused = self.read_only || !self.holds_nothing(header).ok()?;
        is_refused.then_some(error)
    }
}

fn is_in_wal(header: &Header) -> bool {
    header[READ_VERSION_AT] == WAL_VERSION
}
