//! Whether a database that was just opened is going to be refused, and why: known before the first lock, so that
//! it can be said in the error of `sqlite3_open` itself.
//!
//! No lock is taken, so nothing is believed that may be passing by. A database that is guarded, or stops being so,
//! between the looks at its header and its log has another change counter then, and is looked at again.

use super::database::Database;
use super::header::{Header, guarded_by, page_size};
use super::{convert, discard};
use crate::log::{ErrorKind, Log, LogError};
use crate::mode::JournalMode;

/// So often a database is looked at that others are changing.
const LOOKS: u32 = 3;

impl Database {
    /// Why the first lock would be refused for the log's sake. `None` where it would not, or that cannot be told.
    pub fn refusal(&self) -> Option<LogError> {
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

    fn would_refuse(&self, header: Option<&Header>) -> Option<LogError> {
        let present = self.present_log();
        if let Some(header) = header
            && let Some(id) = guarded_by(header)
        {
            if present.is_ok_and(|log| log.is_some_and(|log| log.id == id)) {
                return None;
            }
            let page = page_size(header).ok()?;
            let open = self
                .open_log(&self.paths.log, JournalMode::Waldio, page)
                .ok()?;
            let opened = Log::open_guarded(&open, id);
            return opened.err().filter(|e| e.kind() == ErrorKind::CantOpen);
        }
        let error = match present {
            Ok(None) => return None,
            Ok(Some(log)) if log.is_empty() => return None,
            Ok(Some(_)) => self.leftover_error(),
            Err(e) if e.kind() == ErrorKind::CantOpen => e,
            Err(_) => return None,
        };
        let is_refused = self.read_only || !self.holds_nothing(header).ok()?;
        is_refused.then_some(error)
    }
}
