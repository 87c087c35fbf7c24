//! The log of a closed database. It remembers the mode, and keeps blocks for the next commits. It
//! also says whether the database's header is known to be on the device without the guard.

use std::sync::atomic::Ordering;

use super::{Log, LogError, LogHeader};
use crate::mode::Layout;
use crate::storage::{Durability, Short};

impl Log {
    /// Whether the log is durably empty, and unchanged since this process made it.
    pub fn is_untouched(&self) -> bool {
        self.untouched.load(Ordering::Acquire) && matches!(self.has_content(), Ok(false))
    }

    /// The log is durably empty, and its database of so many bytes is durably a stock one. Notes
    /// that in the header, and frees blocks that a database of this size does not need. None of
    /// that need be durable. Under EXCLUSIVE, by the last connection.
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
            // Its blocks are exchanged with the database's, and the region after them is made
            // separately.
            return Ok(());
        }
        let kept = self.space.at_rest(&self.geometry, database);
        Ok(self.space.shrink(&self.file, &Short, kept)?)
    }
}
