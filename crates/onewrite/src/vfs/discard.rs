//! Giving up a log, for `onewrite detach --discard`. The log is missing, damaged, or that of
//! another database, so that the database no longer opens. The log is kept under another name.
//!
//! A connection of our own does the work under SQLite's EXCLUSIVE lock, at the moment when it would
//! decide the database's mode ([`super::guard`]).

use std::cell::RefCell;
use std::fmt;
use std::path::{Path, PathBuf};

use super::{ffi, host, linger};
use crate::log::LogId;

/// The log that the database gave up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Discarded {
    /// The log that the database was guarded for; `None` if it was not guarded.
    pub guard: Option<LogId>,
    /// The log's new name; `None` if there was no log, or none that could have content.
    pub kept_as: Option<PathBuf>,
}

/// Why a log could not be given up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DiscardError {
    /// Another connection has the database open.
    InUse,
    /// Anything else, in words.
    Failed(String),
}

impl fmt::Display for DiscardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiscardError::InUse => f.write_str(
                "the database is in use: close it, or wait until the time of onewrite_linger is over",
            ),
            DiscardError::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for DiscardError {}

/// How the connections of this thread treat a log.
enum Order {
    /// Use it.
    Keep,
    /// Give it up.
    Discard,
    /// It was given up.
    Done(Discarded),
    /// It could not be given up, with the reason.
    Failed(String),
}

thread_local! {
    static ORDER: RefCell<Order> = const { RefCell::new(Order::Keep) };
}

/// Whether this thread opens the database in order to give up its log.
pub(super) fn is_wanted() -> bool {
    ORDER
        .try_with(|order| matches!(*order.borrow(), Order::Discard))
        .unwrap_or(false)
}

/// Reports that the log is given up, and the database unguarded.
pub(super) fn done(discarded: Discarded) {
    leave(Order::Done(discarded));
}

/// Reports that the log cannot be given up; SQLite has only a code for that.
pub(super) fn failed(why: String) {
    leave(Order::Failed(why));
}

/// Leaves an order, and returns the one before. An ending thread has no orders.
fn leave(order: Order) -> Order {
    ORDER
        .try_with(|present| present.replace(order))
        .unwrap_or(Order::Keep)
}

/// Makes a stock database of the one at `database`, without its log: **transactions that are only
/// in the log are lost to it**. The log is set aside as `<db>-onewrite-orphan-<id>`, as those of
/// removed databases are. The VFS must be registered. When this returns, all of it is on the
/// device.
///
/// # Errors
/// The database is in use, cannot be written, or is not a database.
pub fn discard_log(database: &Path) -> Result<Discarded, DiscardError> {
    let Some(host) = host::get() else {
        return Err(DiscardError::Failed("SQLite is not available".to_owned()));
    };
    // Its close needs the log.
    linger::end(database);
    leave(Order::Discard);
    let queried = host::with_connection(host, database, super::VFS_NAME, |query| {
        query("PRAGMA busy_timeout=1000")?;
        query("PRAGMA schema_version")
    });
    match (leave(Order::Keep), queried) {
        // Errors of SQLite on the remaining database do not matter here.
        (Order::Done(discarded), _) => Ok(discarded),
        (Order::Failed(why), _) => Err(DiscardError::Failed(why)),
        (_, Err(e)) if e.code & 0xff == ffi::SQLITE_BUSY => Err(DiscardError::InUse),
        (_, Err(e)) => Err(DiscardError::Failed(e.message)),
        (_, Ok(_)) => Err(DiscardError::Failed("SQLite did not open it".to_owned())),
    }
}
