//! The names by which this process has files open, and which file each of them is.
//!
//! The shared memory goes by the name of the file, and SQLite's locks on it are POSIX locks: a `close` of
//! any descriptor of it ends those of the whole process. Suppose a file is renamed, and a backup gets its
//! name, while this process has the renamed one open. Then a connection to the backup would open the same
//! shared memory. With its close, or with a lock that both take, other processes would no longer see the
//! locks of the first. So it is refused before it touches the memory.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::file::MOVED;

struct Name {
    path: PathBuf,
    identity: u64,
    claims: usize,
}

static NAMES: Mutex<Vec<Name>> = Mutex::new(Vec::new());

fn names() -> MutexGuard<'static, Vec<Name>> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As long as it lives, the shared memory of a name belongs to one file.
pub(super) struct Claim {
    path: PathBuf,
}

impl Claim {
    /// `None` if a connection of this process has another file open that has or had this name. Of two that have
    /// lost their name nobody knows that they are the same.
    pub(super) fn of(path: &Path, identity: u64) -> Option<Self> {
        let mut names = names();
        match names.iter_mut().find(|name| name.path == path) {
            Some(name) if name.identity == identity && identity != MOVED => name.claims += 1,
            Some(_) => return None,
            None => names.push(Name {
                path: path.to_owned(),
                identity,
                claims: 1,
            }),
        }
        let path = path.to_owned();
        Some(Self { path })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut names = names();
        if let Some(at) = names.iter().position(|name| name.path == self.path) {
            names[at].claims -= 1;
            if names[at].claims == 0 {
                names.swap_remove(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_of_one_file_until_its_last_claim_is_dropped() {
        let path = Path::new("/names/of/one/file");
        let first = Claim::of(path, 1).expect("free");
        let second = Claim::of(path, 1).expect("the same");
        assert!(Claim::of(path, 2).is_none());
        assert!(Claim::of(Path::new("/names/of/another"), 2).is_some());
        drop(first);
        assert!(Claim::of(path, 2).is_none());
        drop(second);
        let moved = Claim::of(path, MOVED).expect("free");
        assert!(Claim::of(path, MOVED).is_none());
        drop(moved);
        assert!(Claim::of(path, 2).is_some());
    }
}
