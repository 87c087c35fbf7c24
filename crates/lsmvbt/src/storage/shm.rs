//! Shared memory and locks of a file: `<database>-shm`, mapped in pieces, with
//! open-file-description locks.
//!
//! Locks of this kind belong to the open file, not to
//! the process. So several handles of one process exclude each other like those of several. The
//! file's length only grows while any handle has it open, so no access to a mapped piece can fail.
//! A handle that opens it alone empties it first.

#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::{Lock, LockMode};

/// Bytes of a piece.
const PIECE: usize = 256 * 1024;
const WORDS: usize = PIECE / 8;
/// The place of the locks: far after any word. Processes with 32-bit words lock the same bytes,
/// because [`set_lock`] passes 64-bit offsets on every machine.
const LOCKS: i64 = 1 << 40;
/// Held, shared, by every handle. A handle that gets it exclusively is alone.
const ALIVE: i64 = LOCKS + Lock::COUNT as i64;

/// A piece of the file in memory.
struct Piece(*mut AtomicU64);

// SAFETY: the pointer is to shared memory that is only accessed atomically and lives as long as the
// value.
unsafe impl Send for Piece {}

/// Shared memory and locks.
pub(crate) struct SharedFile {
    file: File,
    pieces: Mutex<Vec<Piece>>,
}

impl SharedFile {
    /// Opens it; empties it if no other handle has it open.
    pub(crate) fn open(path: &Path) -> io::Result<SharedFile> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        let shared = SharedFile {
            file,
            pieces: Mutex::new(Vec::new()),
        };
        loop {
            if shared.set(ALIVE, libc::F_WRLCK)? {
                shared.file.set_len(0)?;
            }
            // From exclusive to shared in one step, or one more shared holder.
            if shared.set(ALIVE, libc::F_RDLCK)? {
                return Ok(shared);
            }
            std::thread::yield_now();
        }
    }

    /// Tries to set a lock of one byte; false if another holder has it.
    fn set(&self, at: i64, kind: i32) -> io::Result<bool> {
        // SAFETY: all-zero bytes are a valid `flock64`.
        let mut lock: libc::flock64 = unsafe { std::mem::zeroed() };
        lock.l_type = kind as libc::c_short;
        lock.l_whence = libc::SEEK_SET as libc::c_short;
        lock.l_start = at;
        lock.l_len = 1;
        // SAFETY: the descriptor is open.
        if unsafe { set_lock(self.file.as_raw_fd(), &lock) } {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EACCES) => Ok(false),
            _ => Err(error),
        }
    }

    pub(crate) fn lock(&self, lock: Lock, mode: LockMode) -> io::Result<bool> {
        let kind = match mode {
            LockMode::Shared => libc::F_RDLCK,
            LockMode::Exclusive => libc::F_WRLCK,
        };
        self.set(LOCKS + i64::from(lock.0), kind)
    }

    pub(crate) fn unlock(&self, lock: Lock) -> io::Result<()> {
        self.set(LOCKS + i64::from(lock.0), libc::F_UNLCK)
            .map(|_| ())
    }

    /// Runs `use_it` on a word and those behind it in its piece.
    fn words<T>(&self, word: usize, use_it: impl FnOnce(&[AtomicU64]) -> T) -> io::Result<T> {
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        while pieces.len() <= word / WORDS {
            let piece = self.map(pieces.len())?;
            pieces.push(piece);
        }
        let base = pieces[word / WORDS].0;
        // SAFETY: the piece is mapped until `self` is dropped, has `WORDS` words, and is aligned to
        // pages. All access, in every process, is atomic.
        let piece = unsafe { std::slice::from_raw_parts(base, WORDS) };
        Ok(use_it(&piece[word % WORDS..]))
    }

    /// Runs `use_it` on a word.
    pub(crate) fn word<T>(
        &self,
        word: usize,
        use_it: impl FnOnce(&AtomicU64) -> T,
    ) -> io::Result<T> {
        self.words(word, |words| use_it(&words[0]))
    }

    /// Reads words, with one look for each piece.
    pub(crate) fn load_all(&self, first: usize, words: &mut [u64]) -> io::Result<()> {
        let mut done = 0;
        while done < words.len() {
            done += self.words(first + done, |piece| {
                let rest = &mut words[done..];
                let count = rest.len().min(piece.len());
                for (to, word) in rest.iter_mut().zip(piece) {
                    *to = word.load(Ordering::SeqCst);
                }
                count
            })?;
        }
        Ok(())
    }

    fn map(&self, piece: usize) -> io::Result<Piece> {
        let end = ((piece + 1) * PIECE) as u64;
        if self.file.metadata()?.len() < end {
            // Real blocks, so that a full disk is an error here and not a signal later. A race
            // between growing processes is harmless: growing never makes the file shorter.
            rustix::fs::fallocate(
                &self.file,
                rustix::fs::FallocateFlags::empty(),
                end - PIECE as u64,
                PIECE as u64,
            )?;
        }
        // SAFETY: a new mapping at an address that the kernel chooses.
        let at = unsafe {
            mmap(
                std::ptr::null_mut(),
                PIECE,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &self.file,
                (piece * PIECE) as u64,
            )?
        };
        Ok(Piece(at.cast()))
    }

    pub(crate) fn load(&self, word: usize) -> io::Result<u64> {
        self.word(word, |w| w.load(Ordering::SeqCst))
    }

    pub(crate) fn store(&self, word: usize, value: u64) -> io::Result<()> {
        self.word(word, |w| w.store(value, Ordering::SeqCst))
    }

    pub(crate) fn max(&self, word: usize, value: u64) -> io::Result<()> {
        self.word(word, |w| {
            w.fetch_max(value, Ordering::SeqCst);
        })
    }

    pub(crate) fn min(&self, word: usize, value: u64) -> io::Result<()> {
        self.word(word, |w| {
            w.fetch_min(value, Ordering::SeqCst);
        })
    }
}

/// Sets an open-file-description lock; false if `errno` has the reason.
///
/// # Safety
/// `file` is an open descriptor.
#[cfg(target_pointer_width = "64")]
unsafe fn set_lock(file: RawFd, lock: &libc::flock64) -> bool {
    // SAFETY: the caller's promise. The kernel only reads the structure; flock64 is flock here.
    unsafe { libc::fcntl(file, libc::F_OFD_SETLK, std::ptr::from_ref(lock)) == 0 }
}

/// See above. The kernel's lock structure has 64-bit offsets for these locks on every machine.
/// Whether a 32-bit C library's fcntl() expects that one depends on its version, so this is the
/// system call.
///
/// # Safety
/// As above.
#[cfg(not(target_pointer_width = "64"))]
unsafe fn set_lock(file: RawFd, lock: &libc::flock64) -> bool {
    let command = libc::F_OFD_SETLK;
    let lock = std::ptr::from_ref(lock);
    // SAFETY: the caller's promise. The kernel only reads the structure.
    unsafe { libc::syscall(libc::SYS_fcntl64, file, command, lock) == 0 }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        let pieces = self
            .pieces
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        for piece in pieces.drain(..) {
            // SAFETY: mapped by `map` with this size, and no reference into it remains. A failure
            // would leave the mapping behind, which is harmless.
            let _ = unsafe { munmap(piece.0.cast(), PIECE) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// The first and last bytes that the kernel holds locks on, of all machines' processes.
    fn locked(file: &File) -> Vec<(String, String)> {
        let inode = format!(":{}", file.metadata().expect("metadata").ino());
        let locks = std::fs::read_to_string("/proc/locks").expect("the kernel's locks");
        let of_file = locks.lines().filter_map(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            let [.., kind, _, _, _, place, first, last] = fields[..] else {
                return None;
            };
            (kind == "OFDLCK" && place.ends_with(&inode)).then(|| (first.into(), last.into()))
        });
        let mut found: Vec<_> = of_file.collect();
        found.sort();
        found
    }

    #[test]
    fn words_of_two_pieces_are_read_at_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let shared = SharedFile::open(&directory.path().join("shm")).expect("a file");
        for word in WORDS - 2..WORDS + 2 {
            shared.store(word, word as u64).expect("written");
        }
        let mut words = [7; 6];
        shared.load_all(WORDS - 3, &mut words).expect("read");
        let written = (WORDS - 2..WORDS + 2).map(|word| word as u64);
        let expected: Vec<u64> = [0].into_iter().chain(written).chain([0]).collect();
        assert_eq!(words[..], expected);
    }

    #[test]
    fn the_locks_are_at_the_same_bytes_on_every_machine() {
        let directory = tempfile::tempdir().expect("a directory");
        let shared = SharedFile::open(&directory.path().join("shm")).expect("a file");
        assert!(
            shared
                .lock(Lock::READ, LockMode::Exclusive)
                .expect("a lock")
        );
        let bytes = ["1099511627779", "1099511627784"];
        let all = bytes.map(|byte| (byte.to_owned(), byte.to_owned()));
        assert_eq!(locked(&shared.file), all);
        shared.unlock(Lock::READ).expect("unlocked");
        assert_eq!(locked(&shared.file), all[1..]);
    }
}
