//! Opening the files next to the database: our logs, and journals and logs of stock SQLite. Never
//! the database itself, because its locks would be dropped with the descriptor.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs;
use std::io;
use std::path::Path;

use crate::log::{ErrorKind, LogError};
use crate::storage;

/// Opens a file next to the database for reading, if it exists. Like SQLite it follows no symbolic
/// link. Other kinds of file at that path do not make it wait.
pub fn open_companion(path: &Path) -> Result<Option<fs::File>, LogError> {
    let cannot = |e: io::Error| {
        let kind = match storage::is_denial(&e) {
            true => ErrorKind::Denied,
            false => ErrorKind::CantOpen,
        };
        LogError::io(kind, path, "open", &e)
    };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = loop {
        match rustix::fs::open(path, flags, Mode::empty()) {
            Err(Errno::INTR) => {}
            other => break other,
        }
    };
    let file = match opened {
        Ok(descriptor) => fs::File::from(descriptor),
        // No file has a name that is too long with the suffix.
        Err(Errno::NOENT | Errno::NAMETOOLONG) => return Ok(None),
        Err(e) => return Err(cannot(e.into())),
    };
    match file.metadata().map_err(cannot)?.is_file() {
        true => Ok(Some(file)),
        false => Err(LogError::new(
            ErrorKind::CantOpen,
            path,
            "it is not a regular file",
        )),
    }
}

/// Whether a rollback journal is hot: SQLite overwrites its first bytes with zeros, truncates or
/// deletes it when a transaction ends.
pub fn file_begins_with_content(path: &Path) -> Result<bool, LogError> {
    let Some(mut file) = open_companion(path)? else {
        return Ok(false);
    };
    let mut first = Vec::new();
    // Not a single read, because a signal may interrupt it.
    io::Read::read_to_end(&mut io::Read::take(&mut file, 1), &mut first)
        .map_err(|e| LogError::io(ErrorKind::Read, path, "read", &e))?;
    Ok(first.first().is_some_and(|&byte| byte != 0))
}
