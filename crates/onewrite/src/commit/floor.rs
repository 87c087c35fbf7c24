//! `onewrite_synchronous`: a commit that SQLite does not sync becomes as durable as at
//! `synchronous=FULL`.
//!
//! SQLite at NORMAL writes a commit's last frame and publishes it, without an `xSync` in between. So
//! the end of that write takes the place of `xSync`. The same code runs there. An error still rolls
//! the transaction back, and the commit may join a group. The transaction is as it will be published
//! once its commit frame has a checksum: see [`super::seal`] and `docs/durability.md`, C9 to C12.

use super::Writer;
use crate::log::LogError;
use crate::storage::Durability;
use crate::wal::IndexView;

impl Writer {
    /// Called after each `xWrite` of the log. `view` as for [`Writer::write`], `alone_in_transaction` as
    /// for [`Writer::sync`].
    ///
    /// # Errors
    /// As for [`Writer::sync`].
    pub fn hold_floor(
        &mut self,
        view: &dyn Fn() -> Option<IndexView>,
        alone_in_transaction: &dyn Fn() -> bool,
    ) -> Result<(), LogError> {
        let commit = self.transaction.commit;
        let is_due = self.owes_sync
            && !self.expects_sync
            && self.run.is_commit(commit)
            && self.run.is_sealed(commit);
        if !is_due {
            return Ok(());
        }
        self.company.note_commit(self.log.shared());
        self.sync_commit(view(), alone_in_transaction)?;
        self.owes_sync = false;
        Ok(())
    }

    /// An `xSync` was expected and did not come, and the commit is published: others may have read
    /// it. Before COMMIT returns it is durable.
    pub(super) fn hold_floor_late(&mut self) -> Result<(), LogError> {
        self.write_out(Durability::None)?;
        self.log.check_poison_everywhere()?;
        self.log.file().flush()?;
        if let Some(history) = self.run_history() {
            self.log.set_durable(self.transaction.commit, history);
        }
        Ok(())
    }
}
