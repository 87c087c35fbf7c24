//! A log whose database is gone: somebody has removed the database, or put another in its place. It is never
//! replayed into the one that is there, and never deleted.
//!
//! Next to a database that is new or empty, where no table ever was, the log is set aside under another name,
//! `<db>-onewrite-orphan-<id>`, and the database is used. Next to one that has content somebody must decide, for
//! it may be an old copy of the log's own: that database is refused.
//!
//! The name is changed under EXCLUSIVE, so that no connection to this database is using the log, and nobody can
//! make a new one. A connection to the *removed* database may use the log still. It goes on with the file that
//! it has open, under the new name. The interleavings: `docs/durability.md`, O1 to O8.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FallocateFlags, RenameFlags};
use rustix::io::Errno;

use super::beside::{file_begins_with_content, open_beside};
use super::database::Database;
use super::ffi;
use super::guard::Look;
use super::header::{Header, guarded_by, holds_no_table, page_size};
use super::host;
use super::inner::LockLevel;
use crate::log::header::HEADER_BYTES;
use crate::log::{ErrorKind, LogError, LogHeader};
use crate::storage::{self, Access, Create, DirectIo, LockByte, LockKind, LogFile};

/// So many logs are kept next to a database at most.
const MAX_ORPHANS: usize = 1000;
/// Zeros are looked for in pieces of so many bytes, a file system's block, and in so many bytes in all.
const BLOCK: usize = 4096;
const MOST_READ: u64 = 64 << 20;

/// The path of a log, with what its name goes on with when it is set aside.
fn orphan_name(log: &Path) -> OsString {
    let mut name = log.file_name().unwrap_or_default().to_owned();
    name.push("-orphan-");
    name
}

impl Database {
    /// Under SHARED: sets a log aside whose database is gone, if this database is new or empty. Returns what
    /// comes of the look at the lock where others keep us from it.
    pub(super) fn set_orphan_aside(
        &self,
        header: Option<&Header>,
    ) -> Result<Option<Look>, LogError> {
        if self.leftover_checked.get() || self.read_only || !self.is_leftover(header)? {
            return Ok(None);
        }
        if !self.holds_nothing(header)? {
            return Ok(None);
        }
        match self.inner.lock(LockLevel::EXCLUSIVE) {
            ffi::SQLITE_OK => {}
            code if code & 0xff == ffi::SQLITE_BUSY => return Ok(Some(Look::Refused)),
            code => return Err(self.inner_error("lock", code)),
        }
        // Under a name that is another file's by now the log may be that one's.
        if !self.has_moved() && self.is_leftover(header)? {
            let aside = set_aside(&self.paths.log)?;
            // The wal-index there is that of the removed database, and may be in use.
            storage::remove_file(&self.paths.shm)?;
            self.tell_of_orphan(&aside);
        }
        match self.inner.unlock(LockLevel::SHARED) {
            ffi::SQLITE_OK => Ok(None),
            code => Err(self.inner_error("unlock", code)),
        }
    }

    /// Under EXCLUSIVE: the log of a database that is to be used without it gets another name, and that is
    /// returned. One that holds nothing is removed.
    pub(super) fn set_given_up_aside(&self) -> Result<Option<PathBuf>, LogError> {
        let holds_something = match self.present_log() {
            Ok(log) => log.is_some_and(|log| !log.is_empty()),
            // Damaged, or no log at all: who knows.
            Err(e) if e.kind() == ErrorKind::CantOpen => self.paths.log.is_file(),
            Err(e) => return Err(e),
        };
        match holds_something {
            true => set_aside(&self.paths.log).map(Some),
            false => self.forget_mode().map(|()| None),
        }
    }

    /// Whether a file stands in the log's place that this database, as its header is, does not lead to.
    fn is_leftover(&self, header: Option<&Header>) -> Result<bool, LogError> {
        if header.is_some_and(|header| guarded_by(header).is_some()) {
            return Ok(false);
        }
        match self.present_log() {
            Ok(log) => Ok(log.is_some_and(|log| !log.is_empty())),
            // Damaged, of a newer version, or no log at all: nothing that a new database needs.
            Err(e) if e.kind() == ErrorKind::CantOpen => Ok(self.paths.log.is_file()),
            Err(e) => Err(e),
        }
    }

    /// Whether nothing was ever stored in the database: no bytes, or one page without a table. The counter of
    /// schema changes tells that there was none either.
    pub(super) fn holds_nothing(&self, header: Option<&Header>) -> Result<bool, LogError> {
        let size = match self.inner.size() {
            Ok(size) => size,
            Err(code) => return Err(self.inner_error("ask for the size of", code)),
        };
        let Some(header) = header else {
            return Ok(size == 0);
        };
        let mut page = [0; 128];
        match self.inner.read(&mut page, 0) {
            ffi::SQLITE_OK => {}
            code => return Err(self.inner_error("read the first page of", code)),
        }
        let one_page = page_size(header).is_ok_and(|page| page.bytes() as u64 == size);
        if !one_page || !holds_no_table(&page) {
            return Ok(false);
        }
        // What it holds may be in stock SQLite's files.
        let has_wal = fs::metadata(&self.paths.wal).is_ok_and(|wal| wal.len() > 0);
        Ok(!has_wal && !file_begins_with_content(&self.paths.journal)?)
    }

    /// Before a log is made anew in the file that stands there: a connection to a removed database may have
    /// that open, without a frame in it yet, and would go on to write there. Under EXCLUSIVE nobody else can.
    pub(super) fn part_from_strangers(&self) -> Result<(), LogError> {
        if self.has_moved() {
            return Err(LogError::new(
                ErrorKind::CantOpen,
                &self.paths.database,
                "the database was removed or replaced while it was open: its log would be that of another",
            ));
        }
        // No connection to this database has a wal-index now. One that somebody uses is of a removed database,
        // and SQLite would join in. One that nobody uses stays: a `readonly_shm` connection can make no other.
        if self.is_index_in_use()? {
            storage::remove_file(&self.paths.shm)?;
        }
        let Some(present) = self.present_log()? else {
            return Ok(());
        };
        if !present.is_empty() {
            return Err(self.leftover_error());
        }
        let path = &self.paths.log;
        let file = LogFile::open(path, Create::Never, Access::ReadOnly, DirectIo::Never)?;
        if file.is_locked_by_other(LockByte::Presence, LockKind::Exclusive)? {
            storage::remove_file(path)?;
        }
        Ok(())
    }

    /// Whether a connection has the wal-index open that stands at our name: SQLite locks byte 128 of it as long.
    /// Where the file system cannot tell, it may be so.
    fn is_index_in_use(&self) -> Result<bool, LogError> {
        const DEAD_MAN_SWITCH: i32 = 128;
        let Some(index) = open_beside(&self.paths.shm)? else {
            return Ok(false);
        };
        let is_used = storage::is_byte_locked(&index, DEAD_MAN_SWITCH);
        if matches!(is_used, Ok(true)) {
            // Closing it could take POSIX locks from a connection of this process.
            std::mem::forget(index);
        }
        Ok(is_used.unwrap_or(true))
    }

    /// Whether the database's name stands for another file by now, or for none. SQLite's VFS also says so where
    /// the name cannot be looked at; there it is still the database's, as far as we know.
    pub(super) fn has_moved(&self) -> bool {
        let moved = || self.inner.has_moved() == Some(true);
        moved()
            && match rustix::fs::stat(&self.paths.database) {
                // The first look may have failed, and for that alone have said so.
                Ok(_) => moved(),
                Err(e) => matches!(e, Errno::NOENT | Errno::NOTDIR),
            }
    }

    fn tell_of_orphan(&self, aside: &Path) {
        let (log, to) = (self.paths.log.display(), aside.display());
        host::log(
            ffi::SQLITE_WARNING,
            &format!(
                "{log}: it belongs to a database that is no longer here, and the one that is here is new: \
                 set aside as {to}. \"onewrite salvage '{to}' -o OUT\" saves what it holds"
            ),
        );
        self.set_aside.replace(Some(to.to_string()));
    }

    /// Why a database with content is refused next to the log of another.
    pub(super) fn leftover_error(&self) -> LogError {
        let (database, log) = (self.paths.database.display(), self.paths.log.display());
        LogError::new(
            ErrorKind::CantOpen,
            &self.paths.log,
            format!(
                "this log holds transactions of a database that is no longer here, and they are in no other \
                 file. Put that database back, and they are there; or save them: \"onewrite verify \
                 '{database}'\" says what the log holds, \"onewrite salvage '{log}' -o OUT\" writes it to a \
                 new database. When that is done, rename the log, and this database opens"
            ),
        )
    }
}

/// Gives a log another name, and returns it. The caller has made sure that nobody else does that now.
fn set_aside(log: &Path) -> Result<PathBuf, LogError> {
    let cannot = |e: io::Error| LogError::io(ErrorKind::CantOpen, log, "set aside", &e);
    let Some(file) = open_beside(log)? else {
        return Err(cannot(Errno::NOENT.into()));
    };
    let mut name = orphan_name(log);
    check_number(log, &name).map_err(cannot)?;
    name.push(words_for(&file).map_err(cannot)?);
    let aside = rename_to_new(log, &name).map_err(cannot)?;
    // Somebody may have changed files at that moment, who knows nothing of our locks.
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let found = file.metadata().map(identity).map_err(cannot)?;
    if fs::symlink_metadata(&aside).map(identity).map_err(cannot)? != found {
        let _ = rustix::fs::renameat_with(CWD, &aside, CWD, log, RenameFlags::NOREPLACE);
        return Err(cannot(Errno::BUSY.into()));
    }
    storage::sync_directory(log)?;
    give_zeros_back(&aside);
    Ok(aside)
}

/// A log that nobody looks at must not be followed by more and more of them.
fn check_number(log: &Path, name: &OsString) -> io::Result<()> {
    let directory = match log.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let begins = name.as_encoded_bytes();
    let mut kept = 0;
    for entry in fs::read_dir(directory)? {
        kept += usize::from(entry?.file_name().as_encoded_bytes().starts_with(begins));
    }
    if kept < MAX_ORPHANS {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{kept} logs of removed databases have been set aside here already: save what is needed of them \
         with \"onewrite salvage\", and remove those that are not needed"
    )))
}

/// How a log is called: by its id, or, where it has none, by its first bytes.
fn words_for(file: &fs::File) -> io::Result<String> {
    let mut head = [0; HEADER_BYTES];
    let read = file.read_at(&mut head, 0)?;
    Ok(match LogHeader::parse(&head[..read]) {
        Ok(header) => header.id.to_string(),
        Err(_) => format!("unread-{:08x}", crc32c::crc32c(&head[..read])),
    })
}

/// Renames a file within its directory to a name that is free.
fn rename_to_new(log: &Path, name: &OsString) -> io::Result<PathBuf> {
    for number in 1..=MAX_ORPHANS {
        let mut name = name.clone();
        if number > 1 {
            name.push(format!("-{number}"));
        }
        let to = log.with_file_name(name);
        match rename_if_free(log, &to) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            other => return other.map(|()| to),
        }
    }
    Err(Errno::EXIST.into())
}

fn rename_if_free(from: &Path, to: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Not every file system can.
        Err(Errno::INVAL | Errno::NOSYS) => {
            fs::hard_link(from, to)?;
            fs::remove_file(from)
        }
        other => Ok(other?),
    }
}

/// Most of a log's blocks were prepared and never used. Those go back to the file system; the file's content
/// stays what it is, byte for byte. Not where the removed database is still in use, and the log with it.
fn give_zeros_back(aside: &Path) {
    let opened = LogFile::open(aside, Create::Never, Access::ReadWrite, DirectIo::Never);
    let Ok(held) = opened else { return };
    let is_ours = held.try_lock(LockByte::Presence, LockKind::Exclusive);
    if !is_ours.unwrap_or(false) {
        return;
    }
    let Ok(file) = fs::File::options().read(true).write(true).open(aside) else {
        return;
    };
    let mut block = [0; BLOCK];
    let mut offset = 0;
    while offset < MOST_READ && matches!(file.read_at(&mut block, offset), Ok(BLOCK)) {
        if block.iter().all(|&byte| byte == 0) {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            if rustix::fs::fallocate(&file, flags, offset, BLOCK as u64).is_err() {
                return;
            }
        }
        offset += BLOCK as u64;
    }
}
