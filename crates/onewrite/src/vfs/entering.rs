//! Entering a mode: the file that remembers it is there before SQLite's own header of WAL mode is. So
//! no moment looks like a WAL that a program has chosen. The interleavings: `docs/durability.md`,
//! G39 and G40.

use super::database::{Database, Switch};
use super::header::{Header, READ_VERSION_AT, WAL_VERSION, is_of_a_database};
use super::inner::LockLevel;
use crate::log::{ErrorKind, LogError, LogHeader, LogId};
use crate::mode::{JournalMode, Layout};
use crate::storage::{Access, Create, DirectIo, Durability, LogFile};

impl Database {
    /// Called before each write of the database. Where it brings the database into WAL mode on the
    /// way to one of our modes, the mode is remembered first, durably. Nobody else can look
    /// meanwhile: SQLite holds EXCLUSIVE.
    pub fn mark_switch(&self, bytes: &[u8], offset: u64) -> Result<(), LogError> {
        let Switch::To(mode) = self.switch.get() else {
            return Ok(());
        };
        let header = bytes.first_chunk().filter(|_| offset == 0);
        let Some(header) = header.filter(|header| enters_wal(header)) else {
            return Ok(());
        };
        if self.lock.get() != LockLevel::EXCLUSIVE || self.has_moved() {
            return Ok(());
        }
        let layout = self
            .layout_of_new_log(header, mode, None)
            .map_err(|why| LogError::new(ErrorKind::Unsuited, &self.paths.log, why))?;
        // A file that is there belongs to an earlier mode, maybe of a removed database.
        self.forget_mode()?;
        self.write_mark(mode, layout)
    }

    /// The database is in a mode that has no log of its own. Its mark is there, unless another
    /// connection was on the way to another mode.
    pub(super) fn assure_mark(&self, mode: JournalMode) -> Result<(), LogError> {
        let is_marked = self.present_log()?.is_some_and(|log| log.mode == mode);
        match is_marked || self.has_moved() {
            true => Ok(()),
            false => self.write_mark(mode, Layout::Stock),
        }
    }

    /// Writes the file that remembers a mode.
    fn write_mark(&self, mode: JournalMode, layout: Layout) -> Result<(), LogError> {
        let path = &self.paths.log;
        let id = LogId::random()
            .map_err(|e| LogError::io(ErrorKind::CantOpen, path, "make an id for", &e))?;
        let header = LogHeader::empty(mode, layout, None, id).to_bytes();
        let new = Create::IfMissing(self.permissions()?);
        let file = LogFile::open(path, new, Access::ReadWrite, DirectIo::Never)?;
        file.write_at(&header, 0, Durability::None)?;
        file.truncate(header.len() as u64)?;
        file.flush()?;
        Ok(file.sync_directory()?)
    }
}

fn enters_wal(header: &Header) -> bool {
    is_of_a_database(header) && header[READ_VERSION_AT] == WAL_VERSION
}
