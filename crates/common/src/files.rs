//! The files next to a database, and files that users name.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Suffixes of all files that SQLite and onewrite keep next to a database.
pub const COMPANIONS: [&str; 6] = [
    "-wal",
    "-shm",
    "-journal",
    "-onewrite",
    "-onewrite-shm",
    "-onewrite-lock",
];

/// The file next to `path` whose name has this suffix, too.
#[must_use]
pub fn companion(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Copies a program that is to be run at once, for tests. Another process writes the copy. If this one
/// did, a thread that forks meanwhile would keep it open for writing, and it could not be run
/// (ETXTBSY).
///
/// # Panics
/// If it cannot be copied.
pub fn copy_program(from: impl AsRef<Path>, to: &Path) {
    let mut copy = Command::new("cp");
    let status = copy.arg("--").arg(from.as_ref()).arg(to).status();
    assert!(status.is_ok_and(|status| status.success()), "{copy:?}");
}

/// Opens a file that the user named, for reading. `expected` is what the command takes, with the way
/// to get it.
///
/// # Errors
/// It cannot be opened, or is a directory; the text names the file and what is expected.
pub fn open_named(path: &Path, expected: &str) -> Result<File, String> {
    let opened = File::open(path).and_then(|file| match file.metadata()?.is_dir() {
        // To read it would say so later, and without its name.
        true => Err(io::Error::from(io::ErrorKind::IsADirectory)),
        false => Ok(file),
    });
    opened.map_err(|error| format!("{}: {}", path.display(), why_unread(&error, expected)))
}

/// Why a file that the user named cannot be read. `expected` is as in [`open_named`].
#[must_use]
pub fn why_unread(error: &io::Error, expected: &str) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!("there is no such file: give {expected}"),
        io::ErrorKind::IsADirectory => format!("this is a directory: give {expected}"),
        io::ErrorKind::PermissionDenied => {
            "no permission to read it: run this as its owner".to_owned()
        }
        _ => error.to_string(),
    }
}
