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

/// The address of the host that has a file open, and how often it has.
static OPEN: Mutex<Option<HashMap<File, (usize, usize)>>> = Mutex::new(None);

/// The claim of one SQLite on a file, until it is dropped.
#[derive(Debug)]
pub struct Claim(File);

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
        self.0
    }

    /// Called before a file is opened: opening and closing it would drop another's locks. `None` if
    /// there is no file yet.
    pub fn of(path: &Path, host: &Host) -> Result<Option<Claim>, Taken> {
        let Ok(stat) = std::fs::metadata(path) else {
            return Ok(None);
        };
        let file = (stat.dev(), stat.ino());
        let host = ptr::from_ref(host).addr();
        let mut open = sync::lock_static(&OPEN);
        let (whose, count) = open
            .get_or_insert_default()
            .entry(file)
            .or_insert((host, 0));
        if *whose != host {
            return Err(Taken(path.to_owned()));
        }
        *count += 1;
        Ok(Some(Claim(file)))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut open = sync::lock_static(&OPEN);
        let open = open.get_or_insert_default();
        if let Some((_, count)) = open.get_mut(&self.0) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.0);
            }
        }
    }
}
