//! What this process may do with a database, asked before SQLite is. SQLite's result codes do not
//! tell a missing permission from a failing device.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use onewrite_common::files::companion;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

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

/// Checks one file or directory, if it is there.
fn check(path: &Path, access: Access, what: &str) -> Result<(), String> {
    let reason = match accessat(CWD, path, access, AtFlags::EACCESS) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
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
    };
    Err(format!("{}: {reason}", path.display()))
}
