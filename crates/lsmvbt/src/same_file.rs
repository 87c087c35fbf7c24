//! Shared memory of another file.
//!
//! The shared memory goes by the name of the file. Suppose a file is renamed, and a backup gets its name, while a
//! connection still has the renamed one open. Then a new connection of another process finds the shared memory of
//! the renamed one. Where locks are those of the process, one of the same process clears it. Either way versions,
//! the end and the free map would be of one file, and commits go to another.
//!
//! So the first handle tells which file it has. Whoever has another one is refused: a new handle when it opens, an
//! old one with each word that it would write, and with those by which it finds a version or a page.

use crate::core::Core;
use crate::error::{Error, Result};
use crate::shared::{self, FILE};

impl Core {
    /// Tells other handles which file it is.
    pub(crate) fn tell_file(&mut self) -> Result<()> {
        let own = self.storage.identity();
        self.store(FILE, own)?;
        self.is_told = own != 0;
        Ok(())
    }

    /// Learns of which file the shared memory is.
    pub(crate) fn learn_file(&mut self) -> Result<()> {
        self.must_be_this_file()?;
        let own = self.storage.identity();
        self.is_told = own != 0 && shared::load(&*self.storage, FILE)? == own;
        Ok(())
    }

    /// Makes sure that the words to which a commit writes are there. Memory that another file's handle has
    /// emptied is shorter than what is mapped.
    pub(crate) fn reserve_words(&self, hwm: u32) -> Result<()> {
        if self.is_told {
            self.must_be_this_file()?;
        }
        shared::reserve(&*self.storage, hwm)
    }

    /// Refuses shared memory that is known to be of another file, or that was of this one and is not now.
    pub(crate) fn must_be_this_file(&self) -> Result<()> {
        let (theirs, own) = (shared::load(&*self.storage, FILE)?, self.storage.identity());
        let is_unknown = !self.is_told && (theirs == 0 || own == 0);
        match theirs == own || is_unknown {
            true => Ok(()),
            false => Err(Error::OtherFile),
        }
    }
}
