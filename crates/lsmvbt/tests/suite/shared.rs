//! Counts of the shared memory that writers read and write.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lsmvbt::{AtomicWrites, Db, Lock, LockMode, Storage, Torn};

use crate::drive::options;
use crate::marks::{commit, made};

#[derive(Clone, Default)]
struct Words {
    /// Calls that read one word or several.
    loads: Arc<AtomicU64>,
    stores: Arc<AtomicU64>,
    /// Words that were read several at once.
    at_once: Arc<AtomicU64>,
}

impl Words {
    fn counts(&self) -> [u64; 3] {
        [&self.loads, &self.stores, &self.at_once].map(|count| count.load(Ordering::Relaxed))
    }
}

struct Counted {
    inner: Box<dyn Storage>,
    words: Words,
}

impl Storage for Counted {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write_at(offset, data)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
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
        self.words.loads.fetch_add(1, Ordering::Relaxed);
        self.inner.shm_load(word)
    }

    fn shm_load_all(&self, first: usize, words: &mut [u64]) -> io::Result<()> {
        self.words.loads.fetch_add(1, Ordering::Relaxed);
        let count = words.len() as u64;
        self.words.at_once.fetch_add(count, Ordering::Relaxed);
        self.inner.shm_load_all(first, words)
    }

    fn shm_store(&self, word: usize, value: u64) -> io::Result<()> {
        self.words.stores.fetch_add(1, Ordering::Relaxed);
        self.inner.shm_store(word, value)
    }

    fn shm_max(&self, word: usize, value: u64) -> io::Result<()> {
        self.inner.shm_max(word, value)
    }

    fn shm_min(&self, word: usize, value: u64) -> io::Result<()> {
        self.inner.shm_min(word, value)
    }
}

/// A map of 16 MiB has 64 words, which are read at once.
#[test]
fn writers_that_take_turns_read_the_free_map_only_when_it_has_changed() {
    for torn in [Torn::Trust, Torn::Double] {
        let (file, keys) = made(16, torn);
        let words = Words::default();
        let open = || {
            let storage = Counted {
                inner: file.storage(),
                words: words.clone(),
            };
            Db::open(Box::new(storage), options(torn)).unwrap()
        };
        let mut handles = [open(), open()];
        let mut turns = |keys: std::ops::Range<i64>, step: i64, bytes: usize| {
            let before = words.counts();
            let commits = keys.end - keys.start;
            for key in keys {
                commit(
                    &mut handles[(key % 2) as usize],
                    key * step + 1,
                    &vec![5; bytes],
                );
            }
            let now = words.counts();
            let each = [0, 1, 2].map(|i| (now[i] - before[i]) / commits as u64);
            println!(
                "{torn:?}: {} loads and {} stores a commit, and {} words at once",
                each[0], each[1], each[2]
            );
            each
        };
        turns(0..10, 4, 500);
        let [loads, stores, at_once] = turns(10..110, 4, 500);
        assert!(loads <= 55 && stores <= 30, "{loads} {stores}");
        assert!(at_once <= 64, "{at_once}");
        // Rows of two pages behind the last one: the file grows with each.
        let [loads, stores, at_once] = turns(keys..keys + 100, 1, 5000);
        assert!(loads <= 60 && stores <= 35, "{loads} {stores}");
        assert!(at_once >= 60, "{at_once}");
    }
}

/// A map of 64 MiB has 256 words, and hardly a page is free.
#[test]
fn opening_stores_what_is_free_and_not_the_whole_map() {
    for torn in [Torn::Trust, Torn::Double] {
        let (file, _) = made(64, torn);
        let words = Words::default();
        let storage = Counted {
            inner: file.storage(),
            words: words.clone(),
        };
        let db = Db::open(Box::new(storage), options(torn)).unwrap();
        let [loads, stores, _] = words.counts();
        println!("{torn:?}: {loads} loads and {stores} stores");
        assert!(stores < 60, "{torn:?}: {stores}");
        db.close().unwrap();
    }
}
