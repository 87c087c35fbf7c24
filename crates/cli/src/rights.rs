//! The rights of this process to a database, checked before SQLite opens it, and its file system's space.
//! SQLite's result codes do not tell a missing permission from a failing device.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use onewrite_common::files::companion;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use crate::inspect::DatabaseHeader;

/// The way out of a full file system.
pub const FREE_SOME: &str = "free some, and run this again";
/// No space is left for what SQLite writes.
pub const NO_SPACE: &str =
    "no space is left on its file system: free some, and run this again. Nothing is lost";
/// No space is left for the wal-index.
pub const NO_INDEX: &str = "SQLite could not make its wal-index (-shm), mostly for lack of space: free some, and run \
                            this again. Nothing is lost";

/// Whether SQLite could not make its wal-index. It does not tell a full file system from a failing device
/// here.
pub fn is_without_index(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|e| e.extended_code);
    code == Some(rusqlite::ffi::SQLITE_IOERR_SHMSIZE)
}

/// Checks whether this process may recover a database. That writes the database and its log, and
/// makes and removes files next to it.
///
/// # Errors
/// It may not; the text names the file, the reason and the way out.
pub fn check_recovery(database: &Path) -> Result<(), String> {
    for suffix in ["", "-onewrite", "-wal", "-journal"] {
        check(
            &companion(database, suffix),
            Access::READ_OK | Access::WRITE_OK,
            "write",
        )?;
    }
    let directory = database.parent().unwrap_or(Path::new("/"));
    let access = Access::WRITE_OK | Access::EXEC_OK;
    check(directory, access, "make and remove files in")
}

/// Why SQLite cannot read a closed database in WAL mode, or in a mode of onewrite; `None` if nothing is seen to
/// be in the way. It reads with a wal-index and a log, which the last program to close the database removes.
pub fn why_unreadable(database: &Path) -> Option<String> {
    let header = DatabaseHeader::read(database)?;
    let files = match (header.guard, header.write_version) {
        (Some(_), _) => &["-shm"][..],
        (None, 2) => &["-shm", "-wal"],
        _ => return None,
    };
    let mut files = files.iter().map(|suffix| companion(database, suffix));
    let missing = files.find(|file| !file.exists())?;
    let directory = database.parent().unwrap_or(Path::new("/"));
    let access = Access::WRITE_OK | Access::EXEC_OK;
    let reason = why_not(directory, access, "make files in")?;
    let (name, missing) = (database.display(), missing.display());
    // Without locks nothing recovers a log.
    let has_log = header.guard.is_some()
        || fs::metadata(companion(database, "-wal")).is_ok_and(|log| log.len() > 0);
    let or = match has_log {
        true => String::new(),
        false => {
            format!(", and so does file:{name}?immutable=1, if no program writes it meanwhile")
        }
    };
    Some(format!(
        "{missing}: SQLite reads this database with that file, and cannot make it. {}: {reason}. \
         \"onewrite salvage {name} -o COPY\" does without{or}",
        directory.display()
    ))
}

/// Checks one file or directory, if it is there.
fn check(path: &Path, access: Access, what: &str) -> Result<(), String> {
    match why_not(path, access, what) {
        None => Ok(()),
        Some(reason) => Err(format!("{}: {reason}", path.display())),
    }
}

/// Why this process may not do it; `None` if it may, or nothing is there.
fn why_not(path: &Path, access: Access, what: &str) -> Option<String> {
    Some(match accessat(CWD, path, access, AtFlags::EACCESS) {
        Ok(()) | Err(Errno::NOENT) => return None,
        Err(Errno::ACCESS | Errno::PERM) => {
            let owner = fs::metadata(path).map_or_else(
                |_| "as root".to_owned(),
                |file| format!("as its owner, user {}", file.uid()),
            );
            format!("no permission to {what} it: run this {owner}")
        }
        Err(Errno::ROFS) => {
            "its file system is mounted read-only: copy the database, with all files whose names \
             begin with its name, to another one, and run this there"
                .to_owned()
        }
        Err(other) => other.to_string(),
    })
}
