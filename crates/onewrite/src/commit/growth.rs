//! The log grows before a commit needs the blocks ([`crate::log::space`]).

use std::sync::Arc;

use crate::commit::Writer;

impl Writer {
    /// A commit is published: prepares the next chunk of a `-onewrite` log, if few blocks are left.
    pub(super) fn prepare_ahead(&self) {
        if self.log.is_running_low(self.end_of_run()) {
            let log = Arc::clone(&self.log);
            self.log.in_background(move || log.prepare_next_chunk());
        }
    }

    /// SQLite's write lock is about to be released: lets SQLite's own log grow, if few blocks are left.
    /// Without the lock a stock connection might write there, or truncate the file.
    pub fn grow_ahead(&self) {
        if !self.run_is_out || !self.log.grow_ahead(self.end_of_run()) {
            return;
        }
        let log = Arc::clone(&self.log);
        if !self.log.in_background(move || log.flush_growth()) {
            self.log.leave_growth();
        }
    }
}
