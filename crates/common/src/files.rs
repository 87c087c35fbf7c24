//! The files next to a database.

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
