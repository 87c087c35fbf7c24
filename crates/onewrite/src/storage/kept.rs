//! Descriptors of databases that stay open.
//!
//! Remapping needs a descriptor of the database. A process that closes one loses all of SQLite's
//! POSIX locks on the file. So the database is opened once, and stays open; SQLite itself delays
//! such a close for the same reason. A tool without any connection closes them
//! ([`close_kept_databases`]).
//!
//! A deleted file keeps its blocks as long as it is open. So its descriptor is closed when another
//! database is opened, if this process has no other one of the file: then no SQLite here can have
//! locks on it, and none can open it again.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{OFlags, fstat, stat};

use super::open::LEAST_DESCRIPTOR;
use super::sys;

/// Databases that were opened a second time, by device and inode. An open file keeps its inode from
/// being reused.
static KEPT: Mutex<Option<HashMap<Identity, Kept>>> = Mutex::new(None);

/// Open files of one inode.
struct Kept {
    file: Arc<File>,
    /// Opened once more, because the path named another file between a check and the open.
    more: Vec<File>,
}

/// Device and inode.
type Identity = (u64, u64);

/// The database at a path, if the path still names the file that SQLite has open. `is_database` is
/// asked after the file was opened. Otherwise the reason.
pub(crate) fn kept_database(
    path: &Path,
    is_database: impl FnOnce() -> bool,
) -> Result<Arc<File>, String> {
    let moved = || "the database was moved".to_owned();
    let (database, identity) =
        kept(path).map_err(|e| format!("cannot open the database a second time: {e}"))?;
    let is_same = is_database() && identity_of(stat(path)) == Some(identity);
    is_same.then_some(database).ok_or_else(moved)
}

/// A permanent descriptor of the file at a path, and the file's identity.
fn kept(path: &Path) -> io::Result<(Arc<File>, Identity)> {
    kept_as(identity_of(stat(path)), || {
        // Writes to a closed standard stream would otherwise go into the database.
        if (0..LEAST_DESCRIPTOR).any(|number| !sys::is_open(number)) {
            return Err(io::Error::other("a standard stream is closed"));
        }
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        Ok(rustix::fs::open(path, flags, rustix::fs::Mode::empty())?.into())
    })
}

/// The kept descriptor of the file that was `seen`, or the one that `open` opens. An opened file is
/// never closed, even if it is another file: SQLite may have locks on it.
fn kept_as(
    seen: Option<Identity>,
    open: impl FnOnce() -> io::Result<File>,
) -> io::Result<(Arc<File>, Identity)> {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = kept.get_or_insert_default();
    if let Some(identity) = seen
        && let Some(kept) = kept.get(&identity)
    {
        return Ok((Arc::clone(&kept.file), identity));
    }
    close_deleted(kept);
    let file = open()?;
    let Some(identity) = identity_of(fstat(&file)) else {
        std::mem::forget(file);
        return Err(io::Error::other("its inode is not known"));
    };
    let kept = match kept.entry(identity) {
        Entry::Vacant(place) => place.insert(Kept {
            file: Arc::new(file),
            more: Vec::new(),
        }),
        Entry::Occupied(place) => {
            let kept = place.into_mut();
            kept.more.push(file);
            kept
        }
    };
    Ok((Arc::clone(&kept.file), identity))
}

/// Closes the descriptors of deleted files that nothing else in this process has open.
fn close_deleted(kept: &mut HashMap<Identity, Kept>) {
    let is_deleted = |kept: &Kept| fstat(&kept.file).is_ok_and(|file| file.st_nlink == 0);
    if !kept.values().any(is_deleted) {
        return;
    }
    // Without /proc nobody knows, and nothing is closed.
    let Ok(open) = open_files() else {
        return;
    };
    kept.retain(|identity, kept| {
        !is_deleted(kept)
            || open
                .get(identity)
                .is_none_or(|open| *open > 1 + kept.more.len())
    });
}

/// How many descriptors of this process each file has.
fn open_files() -> io::Result<HashMap<Identity, usize>> {
    let mut open = HashMap::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        // Another thread may have closed it meanwhile.
        if let Some(identity) = identity_of(stat(entry?.path())) {
            *open.entry(identity).or_default() += 1;
        }
    }
    Ok(open)
}

fn identity_of(stat: rustix::io::Result<rustix::fs::Stat>) -> Option<Identity> {
    stat.ok().map(|stat| (stat.st_dev, stat.st_ino))
}

/// Closes the descriptors of databases that remapping has kept, so that a tool can unmount their
/// file system and continue to run.
///
/// Closing a descriptor drops all POSIX locks of this process on the file, including SQLite's. So
/// this is only for when no connection in this process, of any SQLite, has such a database open.
pub fn close_kept_databases() {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    *kept = None;
}

#[cfg(test)]
mod tests {
    use super::super::LogFile;
    use super::super::lock::LockByte;
    use super::super::open::{Access, Create, NewFile};
    use super::super::{DirectIo, LockKind};
    use super::*;

    /// Whether this process has a POSIX lock on the first byte that [`LockByte`] names, as a
    /// separate open file sees it.
    fn is_locked(seen_by: &LogFile) -> bool {
        let seen = seen_by.is_locked_by_other(LockByte::Presence, LockKind::Exclusive);
        seen.expect("an answer")
    }

    #[test]
    fn a_deleted_file_s_blocks_become_free_unless_something_else_has_it_open() {
        let directory = tempfile::tempdir().expect("a directory");
        let [used, unused, other, last] =
            ["used", "unused", "other", "last"].map(|name| directory.path().join(name));
        for path in [&used, &unused, &other, &last] {
            std::fs::write(path, b"a database").expect("a file");
        }
        let (_, of_used) = kept(&used).expect("a descriptor");
        let (_, of_unused) = kept(&unused).expect("a descriptor");
        let in_use = File::open(&used).expect("as SQLite has it");
        let (_, of_other) = kept(&other).expect("a descriptor");
        let count = |identity| open_files().expect("/proc").get(&identity).copied();
        assert_eq!((count(of_used), count(of_unused)), (Some(2), Some(1)));
        for path in [&used, &unused] {
            std::fs::remove_file(path).expect("removed");
        }
        let (_, _) = kept(&last).expect("a descriptor");
        assert_eq!((count(of_used), count(of_unused)), (Some(2), None));
        // A file that is still there stays open, whoever uses it.
        assert_eq!(count(of_other), Some(1));
        drop(in_use);
    }

    #[test]
    fn no_descriptor_of_a_file_that_came_in_between_is_closed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let create = Create::IfMissing(NewFile {
            mode: 0o600,
            owner: None,
        });
        // Never dropped, like SQLite's own: closing it would release the lock as well.
        let watcher = LogFile::open(&path, create, Access::ReadWrite, DirectIo::Never);
        let watcher = std::mem::ManuallyDrop::new(watcher.expect("a file"));
        let (_, identity) = kept(&path).expect("a descriptor");
        let sqlites = std::mem::ManuallyDrop::new(File::options().write(true).open(&path));
        let sqlites = sqlites.as_ref().expect("a file");
        rustix::fs::fcntl_lock(
            sqlites,
            rustix::fs::FlockOperation::NonBlockingLockExclusive,
        )
        .expect("a lock");
        assert!(is_locked(&watcher));
        // The path named another file at the check, and names this one again.
        let (_, found) = kept_as(Some((0, 0)), || File::options().write(true).open(&path))
            .expect("a descriptor");
        assert_eq!(found, identity);
        assert!(is_locked(&watcher), "a descriptor of the file was closed");
    }
}
