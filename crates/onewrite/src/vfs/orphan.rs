//! A log whose database is gone, because the database was removed or replaced. It is never replayed
//! into the database that is there, and never deleted.
//!
//! Next to a new or empty database, which never had a table, the log is set aside as
//! `<db>-onewrite-orphan-<id>`, and the database is used. A database with content is refused, and
//! the user must decide, because it may be an old copy of the log's own database.
//!
//! The name is changed under EXCLUSIVE. So no connection to this database is using the log, and
//! none can make a new one. A connection to the *removed* database may still read the log, under the
//! new name. It commits nothing more (T2). The interleavings: `docs/durability.md`, O1 to O9.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FallocateFlags, RenameFlags};
use rustix::io::Errno;

use super::companion::{file_begins_with_content, open_companion};
use super::database::Database;
use super::ffi;
use super::guard::Look;
use super::header::{Header, guarded_by, holds_no_table, page_size};
use super::host;
use super::inner::LockLevel;
use crate::log::header::HEADER_BYTES;
use crate::log::name::{longest_name, orphan_prefix_of_log};
use crate::log::{ErrorKind, LogError, LogHeader};
use crate::storage::{self, Access, Create, DirectIo, LockByte, LockKind, LogFile};

/// The most logs to keep next to a database.
const MAX_ORPHANS: usize = 1000;
/// The size of the pieces that are searched for zeros, a file system's block; then the most bytes
/// to search.
const BLOCK: usize = 4096;
const MOST_READ: u64 = 64 << 20;

/// The name of a log that is set aside, up to the id.
pub(super) fn orphan_name(log: &Path) -> OsString {
    let name = log.file_name().unwrap_or_default();
    orphan_prefix_of_log(name, longest_name(log))
}

impl Database {
    /// Under SHARED: sets a log aside whose database is gone, if this database is new or empty. If
    /// other connections prevent it, returns the result of the look.
    pub(super) fn set_orphan_aside(
        &self,
        header: Option<&Header>,
    ) -> Result<Option<Look>, LogError> {
        if self.first_lock.leftover_checked.get() || self.read_only || !self.is_leftover(header)? {
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
        // If the name is another file's by now, the log may be that file's.
        if !self.has_moved() && self.is_leftover(header)? {
            let aside = set_aside(&self.paths.log)?;
            // The wal-index there belongs to the removed database, and may be in use.
            storage::remove_file(&self.paths.shm)?;
            self.tell_of_orphan(&aside);
        }
        match self.inner.unlock(LockLevel::SHARED) {
            ffi::SQLITE_OK => Ok(None),
            code => Err(self.inner_error("unlock", code)),
        }
    }

    /// Under EXCLUSIVE: renames the log of a database that will be used without it. Returns the new
    /// name. A log without content is removed.
    pub(super) fn set_given_up_aside(&self) -> Result<Option<PathBuf>, LogError> {
        let holds_something = match self.present_log() {
            Ok(log) => log.is_some_and(|log| !log.is_empty()),
            // It is damaged, or no log at all, and may hold content.
            Err(e) if e.is_unreadable() => self.paths.log.is_file(),
            Err(e) => return Err(e),
        };
        match holds_something {
            true => set_aside(&self.paths.log).map(Some),
            false => self.forget_mode().map(|()| None),
        }
    }

    /// Whether there is a file in the log's place to which this database's header does not lead.
    fn is_leftover(&self, header: Option<&Header>) -> Result<bool, LogError> {
        if header.is_some_and(|header| guarded_by(header).is_some()) {
            return Ok(false);
        }
        match self.present_log() {
            Ok(log) => Ok(log.is_some_and(|log| !log.is_empty())),
            // It is damaged, of a newer version, or no log at all: a new database does not need it.
            Err(e) if e.is_unreadable() => Ok(self.paths.log.is_file()),
            Err(e) => Err(e),
        }
    }

    /// Whether nothing was ever stored in the database: it has no bytes, or one page without a
    /// table. The counter of schema changes shows that there never was one.
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
        // Its content may be in stock SQLite's files.
        let has_wal = fs::metadata(&self.paths.wal).is_ok_and(|wal| wal.len() > 0);
        Ok(!has_wal && !file_begins_with_content(&self.paths.journal)?)
    }

    /// Called before a log is made again in the existing file, `present`. A connection to a removed
    /// database may have that file open, without a frame in it yet, and would write there. Under
    /// EXCLUSIVE no other connection can. A file that this user may not write is replaced, too.
    pub(super) fn part_from_strangers(&self, present: Option<&LogHeader>) -> Result<(), LogError> {
        if self.has_moved() {
            return Err(LogError::new(
                ErrorKind::CantOpen,
                &self.paths.database,
                "the database was removed or replaced while it was open: a log made now would belong to another",
            ));
        }
        // No connection to this database has a wal-index now. A wal-index in use belongs to a
        // removed database, and SQLite would join it. One that is not in use stays: a
        // `readonly_shm` connection cannot make another.
        if self.is_index_in_use()? {
            storage::remove_file(&self.paths.shm)?;
        }
        let Some(present) = present else {
            return Ok(());
        };
        if !present.is_empty() {
            return Err(self.leftover_error());
        }
        let path = &self.paths.log;
        let is_in_the_way =
            match LogFile::open(path, Create::Never, Access::ReadWrite, DirectIo::Never) {
                Ok(file) => file.is_locked_by_other(LockByte::Presence, LockKind::Exclusive)?,
                Err(e) => match e.is_denied() {
                    true => true,
                    false => return Err(e.into()),
                },
            };
        if is_in_the_way {
            storage::remove_file(path)?;
        }
        Ok(())
    }

    /// Whether a connection has the wal-index at our name open: SQLite then locks byte 128 of it.
    /// If the file system cannot tell, it counts as open.
    fn is_index_in_use(&self) -> Result<bool, LogError> {
        const DEAD_MAN_SWITCH: i32 = 128;
        let Some(index) = open_companion(&self.paths.shm)? else {
            return Ok(false);
        };
        let is_used = storage::is_byte_locked(&index, DEAD_MAN_SWITCH);
        if matches!(is_used, Ok(true)) {
            // Closing it could drop POSIX locks of a connection in this process.
            std::mem::forget(index);
        }
        Ok(is_used.unwrap_or(true))
    }

    /// Whether the database's name now belongs to another file, or to none. SQLite's VFS also
    /// reports that if the name cannot be inspected. In that case we assume that it is still the
    /// database's.
    pub(super) fn has_moved(&self) -> bool {
        let moved = || self.inner.has_moved() == Some(true);
        moved()
            && match rustix::fs::stat(&self.paths.database) {
                // The first answer may only have come from a failed call.
                Ok(_) => moved(),
                Err(e) => matches!(e, Errno::NOENT | Errno::NOTDIR),
            }
    }

    fn tell_of_orphan(&self, aside: &Path) {
        let (log, to) = (self.paths.log.display(), aside.display());
        host::log(
            ffi::SQLITE_WARNING,
            &format!(
                "{log}: this log belongs to a database that is no longer here, and the present database \
                 is new. The log is now {to}. \"onewrite salvage '{to}' -o OUT\" saves its content"
            ),
        );
        self.guard.set_aside.replace(Some(to.to_string()));
    }

    /// The error that refuses a database with content next to the log of another.
    pub(super) fn leftover_error(&self) -> LogError {
        let (database, log) = (self.paths.database.display(), self.paths.log.display());
        LogError::new(
            ErrorKind::CantOpen,
            &self.paths.log,
            format!(
                "this log holds transactions of a database that is no longer here, and no other file has them. \
                 Put that database back to use them, or save them: \"onewrite verify '{database}'\" shows \
                 the log's content, \"onewrite salvage '{log}' -o OUT\" writes it to a new database. When \
                 that is done, \"onewrite detach --discard '{database}'\" keeps the log under another name; \
                 then this database opens"
            ),
        )
    }
}

/// Renames a log, and returns the new name. The caller ensures that no other process does that now.
fn set_aside(log: &Path) -> Result<PathBuf, LogError> {
    let cannot = |e: io::Error| LogError::io(ErrorKind::CantOpen, log, "set aside", &e);
    let Some(file) = open_companion(log)? else {
        return Err(cannot(Errno::NOENT.into()));
    };
    let mut name = orphan_name(log);
    check_number(log, &name).map_err(cannot)?;
    name.push(words_for(&file).map_err(cannot)?);
    let aside = rename_to_new(log, &name).map_err(cannot)?;
    // A process that ignores our locks may have changed files at that moment.
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

/// The files next to a log whose names begin so.
fn named_so(log: &Path, name: &OsString) -> io::Result<Vec<fs::DirEntry>> {
    let directory = match log.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let begins = name.as_encoded_bytes();
    let is_one = |entry: &fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(begins);
    fs::read_dir(directory)?
        .filter(|entry| entry.as_ref().map_or(true, is_one))
        .collect()
}

/// Whether a log was set aside: its name at present, or a look at those that were.
pub(super) fn is_aside(log: &LogFile, path: &Path) -> bool {
    let aside = orphan_name(path);
    let Some(present) = log.present_name() else {
        return is_one_of_those_aside(log, path, &aside);
    };
    let present = present.as_encoded_bytes();
    // Where a rename could replace a file, it gets that name by a link, and loses the old one.
    present.starts_with(aside.as_encoded_bytes()) || present.ends_with(b" (deleted)")
}

/// Where `/proc` does not tell.
fn is_one_of_those_aside(log: &LogFile, path: &Path, aside: &OsString) -> bool {
    let Ok(identity) = log.identity() else {
        return false;
    };
    let found = named_so(path, aside).unwrap_or_default();
    found.iter().any(|entry| {
        let file = entry.metadata();
        file.is_ok_and(|file| (file.dev(), file.ino()) == identity)
    })
}

/// A log that the user has not noticed must not be followed by more and more of them.
fn check_number(log: &Path, name: &OsString) -> io::Result<()> {
    let kept = named_so(log, name)?.len();
    if kept < MAX_ORPHANS {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{kept} logs of removed databases were set aside here already: save those that you need with \
         \"onewrite salvage\", and remove the others"
    )))
}

/// The last part of a log's new name: its id or, if it has none, a checksum of its first bytes.
fn words_for(file: &fs::File) -> io::Result<String> {
    let mut head = [0; HEADER_BYTES];
    let read = file.read_at(&mut head, 0)?;
    Ok(match LogHeader::parse(&head[..read]) {
        Ok(header) => header.id.to_string(),
        Err(_) => format!("unread-{:08x}", crc32c::crc32c(&head[..read])),
    })
}

/// Renames a file within its directory to a free name.
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
        // Some file systems cannot do that.
        Err(Errno::INVAL | Errno::NOSYS) => {
            fs::hard_link(from, to)?;
            fs::remove_file(from)
        }
        other => Ok(other?),
    }
}

/// Most of a log's blocks were prepared and never used. They go back to the file system; the file's
/// content stays the same, byte for byte. Not if the removed database is still in use, and its log
/// too.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// As where there is no `/proc`.
    #[test]
    fn a_log_is_found_among_those_that_were_set_aside() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db-onewrite");
        fs::write(&path, [1; 4096]).expect("a log");
        let log = LogFile::open(&path, Create::Never, Access::ReadOnly, DirectIo::Never);
        let log = log.expect("the log");
        let aside = orphan_name(&path);
        assert!(!is_one_of_those_aside(&log, &path, &aside));
        let mut other = aside.clone();
        other.push("1");
        fs::write(directory.path().join(other), "another").expect("written");
        assert!(!is_one_of_those_aside(&log, &path, &aside));
        let moved = set_aside(&path).expect("set aside");
        assert!(is_one_of_those_aside(&log, &path, &aside));
        assert!(is_aside(&log, &path));
        fs::rename(moved, directory.path().join("elsewhere")).expect("renamed");
        assert!(!is_aside(&log, &path));
    }
}
