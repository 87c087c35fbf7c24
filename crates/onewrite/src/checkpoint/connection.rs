//! The services that remapping needs of the connection that checkpoints or reads.

use std::path::Path;

use super::Counters;
use crate::log::{Log, LogError};
use crate::mode::{CheckpointPolicy, Region};
use crate::wal::{FrameNo, IndexHeader, IndexView};

/// SQLite's locks in the wal-index that a checkpoint takes by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IndexLocks {
    /// WRITE.
    Writers,
    /// READ 1 to 4: the locks of connections that read from the log.
    Readers,
}

/// SQLite's wal-index, as the connection has mapped it.
pub trait Index {
    /// Takes the locks exclusively. `false` if another connection holds one of them.
    fn lock(&self, locks: IndexLocks) -> bool;
    /// Releases them.
    fn unlock(&self, locks: IndexLocks);
    /// The state of the wal-index; `None` while it is invalid or not mapped.
    fn view(&self) -> Option<IndexView>;
    /// Its header, if the connection can write it. The caller holds WRITE.
    fn header(&self) -> Option<IndexHeader>;
    /// Number of frames that checkpoints have written to the database.
    fn backfilled(&self) -> Option<FrameNo>;
    /// Number of frames that a checkpoint may have written.
    fn backfill_attempted(&self) -> Option<FrameNo>;
    /// Whether the connection can write it.
    fn can_write(&self) -> bool;
    /// Makes every connection recover before it reads again. The caller holds WRITE.
    fn invalidate(&self);
    /// Makes it describe a log without frames. The caller holds all locks of [`IndexLocks`].
    fn restart(&self, before: &IndexHeader, salt: [u8; 4]);
}

/// The connection, while it has its log open.
pub trait Connection {
    /// The wal-index.
    fn index(&self) -> &dyn Index;
    /// The log.
    fn log(&self) -> &Log;
    /// The counts of the log's checkpoints.
    fn counters(&self) -> &Counters;
    /// `onewrite_checkpoint`.
    fn policy(&self) -> CheckpointPolicy;
    /// `onewrite_region`.
    fn region(&self) -> Option<Region>;
    /// The database's path.
    fn database(&self) -> &Path;
    /// Whether the VFS underneath is SQLite's own. Another VFS may store other bytes in the file.
    fn is_on_sqlites_vfs(&self) -> bool;
    /// Whether the path still names the file that SQLite has open.
    fn is_at_its_path(&self) -> bool;
    /// Whether the connection has the database EXCLUSIVE.
    fn is_exclusive(&self) -> bool;
    /// Whether SQLite has taken WRITE for this connection.
    fn holds_write_lock(&self) -> bool;
    /// Whether a transaction is being written. SQLite reads its frames back, which may not be in
    /// the file yet.
    fn writes(&self) -> bool;
    /// Reads the page of a frame that `view` has.
    ///
    /// # Errors
    /// The frame is missing; an I/O error.
    fn read_logged(&self, frame: FrameNo, view: IndexView, page: &mut [u8])
    -> Result<(), LogError>;
    /// Reads a page of the database. `false` if the database ends before it.
    ///
    /// # Errors
    /// An I/O error.
    fn read_database(&self, page: &mut [u8], offset: u64) -> Result<bool, LogError>;
    /// Writes a page of the database.
    ///
    /// # Errors
    /// An I/O error.
    fn write_database(&self, page: &[u8], offset: u64) -> Result<(), LogError>;
    /// Makes the region that the log moves forward through, in the background.
    fn prepare_region(&self);
    /// Reports an error that no call of SQLite reports.
    fn report(&self, error: &LogError);
}
