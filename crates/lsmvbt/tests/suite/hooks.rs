//! A storage with a moment at which something happens between two steps of its handle.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lsmvbt::{AtomicWrites, Lock, LockMode, Storage};

type Action = Box<dyn FnOnce() + Send>;

/// The steps until an action, and the action. A step is a read of the file or of shared memory, or a write
/// of the file. The last part are the bytes whose reads were announced.
#[derive(Clone, Default)]
pub struct Hook(
    Arc<Mutex<Option<(u64, Action)>>>,
    Arc<AtomicU64>,
    Arc<AtomicU64>,
    Arc<Mutex<Option<io::ErrorKind>>>,
);

impl Hook {
    /// A storage whose handle this hook may interrupt.
    pub fn storage(&self, inner: Box<dyn Storage>) -> Box<dyn Storage> {
        Box::new(Hooked {
            inner,
            hook: self.clone(),
        })
    }

    /// Runs `action` once, before the `steps`-th step from now, counted from 1.
    pub fn before(&self, steps: u64, action: impl FnOnce() + Send + 'static) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((steps, Box::new(action)));
    }

    /// Forgets the action and the full disk. True if the action was still to come.
    pub fn clear(&self) -> bool {
        self.1.store(0, Ordering::Relaxed);
        let mut next = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        next.take().is_some()
    }

    /// The next write is made, and says that the disk is full.
    pub fn next_write_is_full(&self) {
        self.fails_at(1, io::ErrorKind::StorageFull);
    }

    /// The `writes`-th write from now, counted from 1, is made, and fails.
    pub fn fails_at(&self, writes: u64, reason: io::ErrorKind) {
        *self.3.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
        self.1.store(writes, Ordering::Relaxed);
    }

    /// How many writes are still to come until then.
    pub fn left(&self) -> u64 {
        self.1.load(Ordering::Relaxed)
    }

    /// The bytes that [`Storage::will_read`] has heard of.
    pub fn announced(&self) -> u64 {
        self.2.load(Ordering::Relaxed)
    }

    fn step(&self) {
        let mut next = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((steps, action)) = next.take() else {
            return;
        };
        if steps > 1 {
            *next = Some((steps - 1, action));
            return;
        }
        drop(next);
        action();
    }
}

struct Hooked {
    inner: Box<dyn Storage>,
    hook: Hook,
}

impl Storage for Hooked {
    fn will_read(&self, ranges: &[(u64, u64)]) {
        let bytes = ranges.iter().map(|(_, length)| length).sum();
        self.hook.2.fetch_add(bytes, Ordering::Relaxed);
        self.inner.will_read(ranges);
    }

    fn now(&self) -> u32 {
        self.inner.now()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.hook.step();
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.hook.step();
        self.inner.write_at(offset, data)?;
        let left = self.hook.1.load(Ordering::Relaxed);
        self.hook.1.store(left.saturating_sub(1), Ordering::Relaxed);
        match left {
            1 => {
                let mut reason = self.hook.3.lock().unwrap_or_else(PoisonError::into_inner);
                Err(reason.take().unwrap_or(io::ErrorKind::Other).into())
            }
            _ => Ok(()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.inner.truncate(size)
    }

    fn size(&self) -> io::Result<u64> {
        self.inner.size()
    }

    fn atomic_writes(&self) -> AtomicWrites {
        self.inner.atomic_writes()
    }

    fn lock(&self, lock: Lock, mode: LockMode) -> io::Result<bool> {
        self.inner.lock(lock, mode)
    }

    fn unlock(&self, lock: Lock, mode: LockMode) -> io::Result<()> {
        self.inner.unlock(lock, mode)
    }

    fn shm_load(&self, word: usize) -> io::Result<u64> {
        self.hook.step();
        self.inner.shm_load(word)
    }

    fn shm_store(&self, word: usize, value: u64) -> io::Result<()> {
        self.inner.shm_store(word, value)
    }

    fn shm_max(&self, word: usize, value: u64) -> io::Result<()> {
        self.inner.shm_max(word, value)
    }

    fn shm_min(&self, word: usize, value: u64) -> io::Result<()> {
        self.inner.shm_min(word, value)
    }
}
