//! Shared memory of another file.
//!
//! The shared memory goes by the name of the file. Suppose a file is renamed, and a backup gets its name, while a
//! process still has the renamed one open. Then the next process finds the shared memory of that one. Its versions,
//! its end and its free map are not those of the backup, and a commit would write over pages in use. So the first
//! handle tells which file it has, and others that have another one are refused until it is closed.

use crate::core::Core;
use crate::error::{Error, Result};
use crate::shared::FILE;

impl Core {
    /// Tells other handles which file it is.
    pub(crate) fn tell_file(&self) -> Result<()> {
        self.store(FILE, self.storage.identity())
    }

    /// Refuses shared memory that is known to be of another file.
    pub(crate) fn must_be_this_file(&self) -> Result<()> {
        let (theirs, own) = (self.load(FILE)?, self.storage.identity());
        match theirs == own || theirs == 0 || own == 0 {
            true => Ok(()),
            false => Err(Error::OtherFile),
        }
    }
}
