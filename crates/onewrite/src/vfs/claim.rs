//! Tracks which SQLite of this process has a database file open. If a process holds several, only
//! one may at a time.
//!
//! POSIX locks belong to a process. Two SQLite libraries in it do not see each other's, so both may
//! write at once. When one closes the file, the kernel drops the locks of the other ("How To
//! Corrupt An SQLite Database File", section 2.2.1). Within one SQLite its VFS counts them.

use std::collections::HashMap;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Mutex;

use super::host::Host;
use crate::sync;

/// Device and inode.
pub type File = (u64, u64);

/// The users of a file.
struct Open {
    /// The address of the host.
    host: usize,
    /// The path of each connection.
    paths: Vec<PathBuf>,
}

static OPEN: Mutex<Option<HashMap<File, Open>>> = Mutex::new(None);

/// The claim of one SQLite on a file, until it is dropped.
#[derive(Debug)]
pub struct Claim {
    file: File,
    path: PathBuf,
}

/// Another SQLite of this process has the file open.
#[derive(Debug)]
pub struct Taken(PathBuf);

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: another SQLite library of this process has it open. Two libraries do not see each other's locks: use \
             one of them, or close the database in the other first",
            self.0.display()
        )
    }
}

impl Claim {
    /// Device and inode of the file.
    pub fn file(&self) -> File {
        self.file
    }

    /// Another name by which this process has the file open, if a log next to that is not next to this one:
    /// a hard link, or a mount of the file alone.
    pub fn other_name(&self) -> Option<PathBuf> {
        let open = sync::lock_static(&OPEN);
        let open = open.as_ref()?.get(&self.file)?;
        let mut others = open.paths.iter().filter(|path| **path != self.path);
        others.find(|path| !is_same_name(path, &self.path)).cloned()
    }

    /// Called before a file is opened: opening and closing it would drop another's locks. `None` if
    /// there is no file yet.
    pub fn of(path: &Path, host: &Host) -> Result<Option<Claim>, Taken> {
        let Ok(stat) = std::fs::metadata(path) else {
            return Ok(None);
        };
        let file = (stat.dev(), stat.ino());
        let host = ptr::from_ref(host).addr();
        let mut all = sync::lock_static(&OPEN);
        let open = all.get_or_insert_default().entry(file).or_insert(Open {
            host,
            paths: Vec::new(),
        });
        if open.host != host {
            return Err(Taken(path.to_owned()));
        }
        open.paths.push(path.to_owned());
        Ok(Some(Claim {
            file,
            path: path.to_owned(),
        }))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut all = sync::lock_static(&OPEN);
        let all = all.get_or_insert_default();
        if let Some(Open { paths, .. }) = all.get_mut(&self.file) {
            if let Some(at) = paths.iter().position(|path| *path == self.path) {
                paths.remove(at);
            }
            if paths.is_empty() {
                all.remove(&self.file);
            }
        }
    }
}

/// Whether two paths lead to one name in one directory. A directory may be mounted at several places.
fn is_same_name(one: &Path, other: &Path) -> bool {
    let directory = |path: &Path| {
        let stat = std::fs::metadata(path.parent()?).ok()?;
        Some((stat.dev(), stat.ino()))
    };
    one.file_name() == other.file_name() && directory(one) == directory(other)
}
