//! The log of a database that nobody has open: it remembers the mode, keeps blocks for the next commits, and
//! says whether the database's header is known to be on the device without the guard.

use std::sync::atomic::Ordering;

use super::{Log, LogError, LogHeader};
use crate::mode::Layout;
use crate::storage::{Durability, Short};

impl Log {
    /// Whether nobody has written anything since this process made the log: it is empty, durably.
    pub fn is_untouched(&self) -> bool {
        self.untouched.load(Ordering::Acquire) && matches!(self.has_content(), Ok(false))
    }

    /// The log is empty, durably, and its database of so many bytes a stock one, durably: says so in the
    /// header, and gives back blocks that a database of this size does not need. Nothing of that need be
    /// durable. Under EXCLUSIVE, by the last connection.
    ///
    /// # Errors
    /// An I/O error.
    pub fn rest(&self, database: u64) -> Result<(), LogError> {
        let Some(id) = self.id else { return Ok(()) };
        let (layout, page) = (self.geometry.layout(), self.geometry.page());
        let header = LogHeader {
            at_rest: true,
            pace: self.pace,
            ..LogHeader::empty(self.mode, layout, Some(page), id)
        };
        self.write_header(&header, Durability::None)?;
        if layout == Layout::Gathered {
            // Its blocks change places with the database's, and the region behind them is made apart.
            return Ok(());
        }
        let kept = self.space.at_rest(&self.geometry, database);
        Ok(self.space.shrink(&self.file, &Short, kept)?)
    }
}
