//! The files next to a database.

use std::path::{Path, PathBuf};

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
