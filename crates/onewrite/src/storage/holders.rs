//! Which processes hold locks on bytes of a file, as `/proc` shows them.
//!
//! `fcntl` does not say who holds an open-file-description lock, so this reads `/proc/PID/fdinfo`.
//! It opens no file that may be locked, and looks at a bounded number of descriptors. It sees the
//! processes of this user, or as root all, in this PID namespace.
//!
//! A file of the same name may have the same inode number on another file system, as in two
//! containers. Only a descriptor of the same file counts.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

/// The most descriptors that one search looks at.
const MOST_DESCRIPTORS: usize = 16_384;

/// A process that holds a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// Its number.
    pub pid: u32,
    /// The name of its program, as in `/proc/PID/comm`; empty if that cannot be read.
    pub program: String,
    /// The bytes of the range that it holds.
    pub bytes: Vec<u64>,
}

/// A lock in `/proc/locks` or in a descriptor's `fdinfo`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Lock {
    inode: u64,
    first: u64,
    last: u64,
}

/// `1: OFDLCK ADVISORY  READ -1 07:01:16 128 EOF`; `None` for what waits for a lock (`->`), and for
/// locks that are not on bytes.
fn parse(line: &str) -> Option<Lock> {
    let line = line.strip_prefix("lock:").unwrap_or(line);
    let mut words = line.split_whitespace().skip(1);
    if !matches!(words.next()?, "POSIX" | "OFDLCK") {
        return None;
    }
    let mut words = words.skip(3);
    let inode = words.next()?.rsplit(':').next()?.parse().ok()?;
    let first = words.next()?.parse().ok()?;
    let last = match words.next()? {
        "EOF" => u64::MAX,
        last => last.parse().ok()?,
    };
    Some(Lock { inode, first, last })
}

/// The bytes of the range that locks in this text hold on the file.
fn held(text: &str, inode: u64, bytes: &Range<u64>) -> Vec<u64> {
    let locks = text.lines().filter_map(parse);
    let locks: Vec<Lock> = locks.filter(|lock| lock.inode == inode).collect();
    let is_held = |byte: &u64| locks.iter().any(|it| (it.first..=it.last).contains(byte));
    bytes.clone().filter(is_held).collect()
}

/// The processes that hold a lock on one of these bytes of the file at `path`; this process comes
/// first. Those that this user may not look at are left out.
#[must_use]
pub fn lock_holders(path: &Path, bytes: Range<u64>) -> Vec<Holder> {
    let Some((device, inode)) = identity(path) else {
        return Vec::new();
    };
    // One file tells whether there are such locks at all.
    if let Ok(all) = fs::read_to_string("/proc/locks")
        && held(&all, inode, &bytes).is_empty()
    {
        return Vec::new();
    }
    let mut search = Search::new(path, (device, inode), Some(bytes));
    std::iter::once(std::process::id())
        .chain(others())
        .filter_map(|pid| search.look_at(pid))
        .collect()
}

/// The other processes that have the file at `path` open, with or without a lock. Those that this
/// user may not look at are left out.
#[must_use]
pub fn openers(path: &Path) -> Vec<Holder> {
    let Some(identity) = identity(path) else {
        return Vec::new();
    };
    let mut search = Search::new(path, identity, None);
    others().filter_map(|pid| search.look_at(pid)).collect()
}

/// The numbers of the other processes.
fn others() -> impl Iterator<Item = u32> {
    let own = std::process::id();
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(move |pid| *pid != own)
}

/// AT_STATX_DONT_SYNC of Linux, which rustix does not name for Android.
const DONT_SYNC: AtFlags = AtFlags::from_bits_retain(0x4000);

/// The device and the inode of a file, as the kernel knows them without asking a server.
fn identity(path: &Path) -> Option<((u32, u32), u64)> {
    let found = statx(CWD, path, DONT_SYNC, StatxFlags::INO).ok()?;
    Some(((found.stx_dev_major, found.stx_dev_minor), found.stx_ino))
}

struct Search {
    name: std::ffi::OsString,
    device: (u32, u32),
    inode: u64,
    /// The bytes whose locks count; `None` where the open file counts.
    bytes: Option<Range<u64>>,
    left: usize,
}

impl Search {
    fn new(path: &Path, identity: ((u32, u32), u64), bytes: Option<Range<u64>>) -> Search {
        let (device, inode) = identity;
        Search {
            name: path.file_name().unwrap_or_default().to_owned(),
            device,
            inode,
            bytes,
            left: MOST_DESCRIPTORS,
        }
    }

    fn look_at(&mut self, pid: u32) -> Option<Holder> {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let (mut is_found, mut found) = (false, Vec::new());
        for entry in fs::read_dir(process.join("fd")).ok()?.flatten() {
            self.left = self.left.checked_sub(1)?;
            // The link only: to look at the file behind it may wait for a server.
            let Ok(link) = fs::read_link(entry.path()) else {
                continue;
            };
            if link.file_name() != Some(&self.name) {
                continue;
            }
            let mut locked = Vec::new();
            if let Some(bytes) = &self.bytes {
                let info = process.join("fdinfo").join(entry.file_name());
                let text = fs::read_to_string(info).unwrap_or_default();
                locked = held(&text, self.inode, bytes);
                if locked.is_empty() {
                    continue;
                }
            }
            if identity(&entry.path()) == Some((self.device, self.inode)) {
                is_found = true;
                found.extend(locked);
            }
        }
        if !is_found {
            return None;
        }
        found.sort_unstable();
        found.dedup();
        let program = fs::read_to_string(process.join("comm")).unwrap_or_default();
        Some(Holder {
            pid,
            program: program.trim_end().to_owned(),
            bytes: found,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::sys;

    #[test]
    fn locks_are_read_as_the_kernel_writes_them() {
        let text = "1: OFDLCK ADVISORY  READ -1 07:01:16 124 126\n\
                    1: -> OFDLCK ADVISORY  WRITE 7 07:01:16 127 127\n\
                    2: POSIX  ADVISORY  WRITE 712 fd:00:16 120 120\n\
                    3: FLOCK  ADVISORY  WRITE 712 fd:00:16 0 EOF\n\
                    lock:\t4: POSIX  ADVISORY  READ 712 fd:00:17 5 EOF\n";
        assert_eq!(held(text, 16, &(123..128)), [124, 125, 126]);
        assert_eq!(held(text, 16, &(120..121)), [120]);
        assert_eq!(held(text, 17, &(4..7)), [5, 6]);
        assert!(held(text, 18, &(0..1000)).is_empty());
        assert!(held("", 16, &(0..1000)).is_empty());
    }

    #[test]
    fn another_process_with_the_file_open_is_named_and_this_one_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("open");
        let file = fs::File::create(&path).expect("a file");
        assert!(openers(&path).is_empty());
        let mut command = std::process::Command::new("cat");
        command.stdin(std::process::Stdio::piped()).stdout(file);
        let mut other = command.spawn().expect("cat");
        drop(command);
        let found = openers(&path);
        drop(other.stdin.take());
        other.wait().expect("its end");
        let named: Vec<u32> = found.iter().map(|it| it.pid).collect();
        assert_eq!(named, [other.id()], "{found:?}");
        assert!(openers(&path).is_empty());
    }

    #[test]
    fn the_holder_of_a_lock_is_named() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("locked");
        let file = fs::File::create(&path).expect("a file");
        assert!(lock_holders(&path, 0..200).is_empty());
        let fd = std::os::fd::AsFd::as_fd(&file);
        sys::ofd_lock(fd, sys::OfdCommand::Set, sys::OfdType::Write, 124).expect("a lock");
        let found = lock_holders(&path, 120..128);
        let comm = fs::read_to_string("/proc/self/comm").expect("a name");
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].pid, std::process::id());
        assert_eq!(found[0].program, comm.trim_end());
        assert_eq!(found[0].bytes, [124]);
        assert!(lock_holders(&path, 125..128).is_empty());
    }
}
