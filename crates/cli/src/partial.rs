//! A file that is complete before it gets its name: made in a directory next to it, flushed,
//! renamed.
//!
//! The directory's name follows from the file's, and the directory is locked while in use. So the
//! next command removes the files that a killed one left, and two commands never share it.

use onewrite_common::files::COMPANIONS;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};

use crate::inspect::look::companion;
use crate::inspect::users;

/// The suffix that makes the directory's name from the file's.
const SUFFIX: &str = "-onewrite-partial";
/// Names that files in the directory may begin with; SQLite adds its own suffixes.
const NAMES: [&str; 2] = [IMAGE, ROWS];
/// A database, page by page.
pub const IMAGE: &str = "image";
/// A database, row by row.
pub const ROWS: &str = "rows";

/// Whether a file of that name may exist already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Existing {
    /// Refused.
    Keep,
    /// Replaced, at once and as a whole.
    Replace,
}

/// See the module. Dropping it removes its files.
pub struct Partial {
    target: PathBuf,
    directory: PathBuf,
    existing: Existing,
    /// Holds the lock.
    _lock: File,
}

impl Partial {
    /// Begins the database `target`. No connection of this process may have a file of that name
    /// open.
    ///
    /// # Errors
    /// In words: the file exists, or is in use; a log has the name of its log; no permission.
    pub fn begin(target: &Path, existing: Existing) -> Result<Partial, String> {
        let name = target.display();
        check(target, existing)?;
        let directory = companion(target, SUFFIX);
        let made = DirBuilder::new().mode(0o700).create(&directory);
        match made {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => {
                return Err(format!("cannot make {name}: {}", why_not(&e)));
            }
            _ => {}
        }
        let lock = File::open(&directory).map_err(|e| format!("cannot make {name}: {e}"))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(format!("another onewrite is making {name}"));
        }
        let partial = Partial {
            target: target.to_owned(),
            directory,
            existing,
            _lock: lock,
        };
        // The files of a killed command.
        partial.clear();
        Ok(partial)
    }

    /// The path of a file in the making.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Makes an empty file with the permissions of another.
    ///
    /// # Errors
    /// In words.
    pub fn create(&self, name: &str, like: &Path) -> Result<File, String> {
        let path = self.path(name);
        let create = || -> io::Result<File> {
            let mode = fs::metadata(like)?.permissions().mode() & 0o666;
            let mut options = File::options();
            let file = options
                .read(true)
                .write(true)
                .create_new(true)
                .open(&path)?;
            file.set_permissions(Permissions::from_mode(mode))?;
            Ok(file)
        };
        create().map_err(|e| self.failed(&e))
    }

    /// An error of making the file, in words.
    pub fn failed(&self, error: &io::Error) -> String {
        format!("cannot write {}: {}", self.target.display(), why_not(error))
    }

    /// Gives a file its name. The file is flushed before that, the directory after it.
    ///
    /// # Errors
    /// In words; then the name does not exist, or is still that of the old file.
    pub fn finish(self, name: &str) -> Result<(), String> {
        let path = self.path(name);
        let finish = || -> io::Result<()> {
            File::open(&path)?.sync_all()?;
            self.rename(&path)?;
            onewrite::storage::sync_directory(&self.target).map_err(io::Error::other)
        };
        finish().map_err(|e| match e.kind() {
            ErrorKind::AlreadyExists => {
                format!(
                    "{} has been made meanwhile: it is kept",
                    self.target.display()
                )
            }
            _ => self.failed(&e),
        })
    }

    fn rename(&self, path: &Path) -> io::Result<()> {
        if self.existing == Existing::Replace {
            return fs::rename(path, &self.target);
        }
        match renameat_with(CWD, path, CWD, &self.target, RenameFlags::NOREPLACE) {
            // Not every file system knows the flag.
            Err(rustix::io::Errno::INVAL) => {
                fs::hard_link(path, &self.target)?;
                fs::remove_file(path)
            }
            other => Ok(other?),
        }
    }

    fn clear(&self) {
        let entries = fs::read_dir(&self.directory).into_iter().flatten();
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.as_encoded_bytes();
            if NAMES.iter().any(|ours| name.starts_with(ours.as_bytes())) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        self.clear();
        // Fails where somebody has put a file there, which is right.
        let _ = fs::remove_dir(&self.directory);
    }
}

/// Whether a database may get this name.
fn check(target: &Path, existing: Existing) -> Result<(), String> {
    let name = target.display();
    if let Some(database) = companion_of(target) {
        return Err(format!(
            "{name} is the name of a file of the database {}: choose another name",
            database.display()
        ));
    }
    match fs::symlink_metadata(target) {
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(format!("{name}: {}", why_not(&e))),
        Ok(found) if !found.is_file() => return Err(format!("{name} exists, and is not a file")),
        Ok(_) if existing == Existing::Keep => {
            return Err(format!("{name} already exists: choose another name"));
        }
        Ok(_) => {
            if users::has_users(target).map_err(|e| format!("{name}: {}", why_not(&e)))? {
                return Err(format!(
                    "{name} is in use by another process: choose another name"
                ));
            }
        }
    }
    for suffix in ["-wal", "-journal", "-onewrite"] {
        let log = companion(target, suffix);
        if fs::metadata(&log).is_ok_and(|log| log.len() > 0) {
            return Err(format!(
                "{} belongs to another database of this name, and may hold transactions: choose another \
                 name (\"onewrite verify\" shows its contents)",
                log.display()
            ));
        }
    }
    Ok(())
}

/// The database that has, or would have, a log or another file of this name.
fn companion_of(target: &Path) -> Option<PathBuf> {
    let bytes = target.as_os_str().as_bytes();
    let databases = COMPANIONS
        .iter()
        .filter_map(|s| bytes.strip_suffix(s.as_bytes()));
    let mut paths = databases.map(|name| PathBuf::from(OsStr::from_bytes(name)));
    paths.find(|database| database.is_file())
}

fn why_not(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "there is no such directory".to_owned(),
        ErrorKind::PermissionDenied => "no permission: choose another directory".to_owned(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "no space is left there: make room, or choose another directory".to_owned()
        }
        ErrorKind::ReadOnlyFilesystem => {
            "its file system is mounted read-only: choose another directory".to_owned()
        }
        _ => error.to_string(),
    }
}
