//! A file in memory, which can lose power.
//!
//! Unsynced writes are kept apart, every version of every page. A power cut keeps any subset of
//! them, also an older write of a page without a newer one. It may tear pages at 512 bytes. A fuse
//! kills a handle before or after any write or flush, as `kill -9` would.
//!
//! A flush can fail, as on Linux: the pages that were dirty count as clean. Reads get them from the
//! page cache, until it drops them. No later flush makes them durable.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{AtomicWrites, Lock, LockMode, Storage};
use crate::types::PAGE_SIZE;

const SECTOR: usize = 512;

type Block = Box<[u8; PAGE_SIZE]>;

/// The effect of a power cut on writes that were not flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerCut {
    /// Each is there or not; an older write of a page may be there without the newer one.
    Atomic,
    /// The same, and pages may be torn at 512 bytes.
    Torn,
}

#[derive(Default)]
struct State {
    durable: BTreeMap<u64, Block>,
    pending: BTreeMap<u64, Vec<Block>>,
    /// Clean pages of the page cache that a failed flush has left: they are not on the device.
    stale: BTreeMap<u64, Block>,
    size: u64,
    durable_size: u64,
    shared: HashMap<usize, u64>,
    locks: HashMap<u8, Vec<(u64, LockMode)>>,
    next_handle: u64,
    open: Vec<u64>,
    fuse: Option<u64>,
    /// The same for stores to shared memory.
    store_fuse: Option<u64>,
    /// The number of flushes that succeed before all fail.
    fail_syncs: Option<u64>,
    /// Why they fail; `None`: for another reason than those with a name.
    sync_error: Option<io::ErrorKind>,
    /// A page whose next read fails.
    fail_read: Option<u64>,
    capacity: Option<u64>,
    /// Pages that find the disk full wherever the file ends.
    refused: Option<Range<u64>>,
    /// The file cannot become shorter.
    keeps_its_size: bool,
    /// Seconds since 1970.
    clock: u32,
    atomic: u32,
    copies: bool,
    writes: u64,
    syncs: u64,
}

/// A file in memory. Clones are the same file; [`MemoryFile::storage`] gives handles.
#[derive(Clone, Default)]
pub struct MemoryFile(Arc<Mutex<State>>);

struct Handle {
    file: MemoryFile,
    id: u64,
}

fn dead() -> io::Error {
    io::Error::other("this handle's process is dead")
}

impl MemoryFile {
    /// An empty file that promises atomic writes of 4,096 bytes.
    pub fn new() -> MemoryFile {
        let file = MemoryFile::default();
        file.state().atomic = PAGE_SIZE as u32;
        file
    }

    /// The same with this promise for [`Storage::atomic_writes`].
    pub fn with_atomic_write_bytes(bytes: u32) -> MemoryFile {
        let file = MemoryFile::default();
        file.state().atomic = bytes;
        file
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A handle of a (simulated) process of its own.
    pub fn storage(&self) -> Box<dyn Storage> {
        let mut s = self.state();
        s.next_handle += 1;
        let id = s.next_handle;
        if s.open.is_empty() {
            s.shared.clear();
        }
        s.open.push(id);
        Box::new(Handle {
            file: self.clone(),
            id,
        })
    }

    /// The handle that does the `ticks`-th step from now dies in it. Each write and each flush has
    /// two steps, before and after its effect. `None`: no handle dies.
    pub fn kill_after(&self, ticks: Option<u64>) {
        self.state().fuse = ticks;
    }

    /// Whether a handle is still to die.
    pub fn kills(&self) -> bool {
        let s = self.state();
        s.fuse.is_some() || s.store_fuse.is_some()
    }

    /// The handle that does the `stores`-th store to shared memory from now dies before it. `None`:
    /// no handle dies.
    pub fn kill_before_store(&self, stores: Option<u64>) {
        self.state().store_fuse = stores;
    }

    /// From now on every flush fails. The writes that it would have made durable stay in the page
    /// cache alone.
    pub fn fail_syncs(&self, fail: bool) {
        self.state().fail_syncs = fail.then_some(0);
    }

    /// The same after this number of flushes that succeed.
    pub fn fail_syncs_after(&self, good: u64) {
        self.state().fail_syncs = Some(good);
    }

    /// Flushes that fail do so for this reason, as where a file system finds no room then.
    pub fn fail_syncs_as(&self, reason: io::ErrorKind) {
        self.state().sync_error = Some(reason);
    }

    /// The next read of this page fails.
    pub fn fail_read_of(&self, page: u64) {
        self.state().fail_read = Some(page);
    }

    /// Whether the next flush fails.
    pub fn fails_syncs(&self) -> bool {
        self.state().fail_syncs == Some(0)
    }

    /// The page cache drops clean pages, except those that `keeps` names: reads get what is on the
    /// device. True if that may differ.
    pub fn drop_page_cache(&self, keeps: &mut dyn FnMut(u64) -> bool) -> bool {
        let mut s = self.state();
        let before = s.stale.len();
        s.stale.retain(|page, _| keeps(*page));
        s.stale.len() < before
    }

    /// No write makes the file larger than this number of bytes: the disk is full then. `None`: no
    /// limit.
    pub fn limit(&self, capacity: Option<u64>) {
        self.state().capacity = capacity;
    }

    /// Writes to these pages find the disk full, though they do not make the file larger: the file
    /// system copies on write. `None`: none do.
    pub fn refuse_writes_of(&self, pages: Option<Range<u64>>) {
        self.state().refused = pages;
    }

    /// From now on a page that is written again gets another place.
    pub fn copy_on_write(&self) {
        self.state().copies = true;
    }

    /// From now on the file cannot become shorter: the disk is full, and the file system copies its
    /// own structures on write.
    pub fn refuse_truncates(&self, refuse: bool) {
        self.state().keeps_its_size = refuse;
    }

    /// Sets the clock of all handles, in seconds since 1970. It stands until it is set again.
    pub fn set_clock(&self, seconds: u32) {
        self.state().clock = seconds;
    }

    /// Every handle dies, and locks and shared memory are gone. Unflushed writes stay, as after
    /// `kill -9`.
    pub fn kill_all(&self) {
        let mut s = self.state();
        s.open.clear();
        s.locks.clear();
        s.shared.clear();
        s.fuse = None;
    }

    /// Power is cut, as [`MemoryFile::kill_all`]. `choose` decides which unflushed writes are kept,
    /// dropped or torn. It gets `n` and answers with a number below `n`.
    pub fn power_cut(&self, how: PowerCut, choose: &mut dyn FnMut(u64) -> u64) {
        self.kill_all();
        let mut s = self.state();
        s.stale.clear();
        let keep_of_100 = choose(101);
        let pending = std::mem::take(&mut s.pending);
        for (page, writes) in pending {
            let old = s.durable.get(&page).cloned();
            if let Some(block) = survivor(&writes, old, keep_of_100, how, choose) {
                s.durable.insert(page, block);
            }
        }
        let end = s
            .durable
            .keys()
            .next_back()
            .map_or(0, |p| (p + 1) * PAGE_SIZE as u64);
        s.size = if choose(2) == 0 {
            s.size
        } else {
            end.max(s.durable_size)
        };
        s.durable_size = s.size;
        s.forget_behind_the_end();
    }

    /// Pages written and flushes done since the file was made.
    pub fn counts(&self) -> (u64, u64) {
        let s = self.state();
        (s.writes, s.syncs)
    }

    /// Flips bits of a page: damage.
    pub fn damage(&self, page: u64, at: usize, mask: u8) {
        let mut s = self.state();
        let latest = s.pending.get_mut(&page).and_then(|w| w.last_mut());
        if let Some(block) = latest {
            block[at % PAGE_SIZE] ^= mask;
        } else if let Some(block) = s.durable.get_mut(&page) {
            block[at % PAGE_SIZE] ^= mask;
        }
    }

    /// A copy of all bytes as a reader sees them now.
    pub fn bytes(&self) -> Vec<u8> {
        let s = self.state();
        let mut out = vec![0; s.size as usize];
        for (page, chunk) in out.chunks_mut(PAGE_SIZE).enumerate() {
            if let Some(block) = s.latest(page as u64) {
                chunk.copy_from_slice(&block[..chunk.len()]);
            }
        }
        out
    }

    /// Replaces all bytes, durably.
    pub fn set_bytes(&self, bytes: &[u8]) {
        let mut s = self.state();
        s.pending.clear();
        s.stale.clear();
        s.durable.clear();
        for (page, chunk) in bytes.chunks(PAGE_SIZE).enumerate() {
            let mut block: Block = Box::new([0; PAGE_SIZE]);
            block[..chunk.len()].copy_from_slice(chunk);
            s.durable.insert(page as u64, block);
        }
        s.size = bytes.len() as u64;
        s.durable_size = s.size;
    }
}

fn survivor(
    writes: &[Block],
    old: Option<Block>,
    keep_of_100: u64,
    how: PowerCut,
    choose: &mut dyn FnMut(u64) -> u64,
) -> Option<Block> {
    let last = writes.last()?;
    if choose(100) < keep_of_100 {
        let pick = if choose(10) < 3 {
            choose(writes.len() as u64) as usize
        } else {
            writes.len() - 1
        };
        return writes.get(pick).cloned().or_else(|| Some(last.clone()));
    }
    if how == PowerCut::Atomic || choose(10) >= 3 {
        return old;
    }
    let mut torn = old.unwrap_or_else(|| Box::new([0; PAGE_SIZE]));
    for sector in (0..PAGE_SIZE).step_by(SECTOR) {
        if choose(2) == 0 {
            let from = &writes[choose(writes.len() as u64) as usize];
            torn[sector..sector + SECTOR].copy_from_slice(&from[sector..sector + SECTOR]);
        }
    }
    Some(torn)
}

impl State {
    fn latest(&self, page: u64) -> Option<&Block> {
        self.pending
            .get(&page)
            .and_then(|w| w.last())
            .or_else(|| self.stale.get(&page))
            .or_else(|| self.durable.get(&page))
    }

    /// A page behind the end is zeros if the file grows again.
    fn forget_behind_the_end(&mut self) {
        let pages = self.size.div_ceil(PAGE_SIZE as u64);
        self.durable.retain(|page, _| *page < pages);
        self.stale.retain(|page, _| *page < pages);
    }

    fn alive(&self, id: u64) -> io::Result<()> {
        if self.open.contains(&id) {
            Ok(())
        } else {
            Err(dead())
        }
    }

    fn tick(&mut self, id: u64) -> io::Result<()> {
        if let Some(left) = self.fuse {
            if left <= 1 {
                self.fuse = None;
                self.close(id);
                return Err(dead());
            }
            self.fuse = Some(left - 1);
        }
        Ok(())
    }

    fn tick_store(&mut self, id: u64) -> io::Result<()> {
        self.alive(id)?;
        if let Some(left) = self.store_fuse {
            self.store_fuse = (left > 1).then(|| left - 1);
            if left <= 1 {
                self.close(id);
                return Err(dead());
            }
        }
        Ok(())
    }

    fn close(&mut self, id: u64) {
        self.open.retain(|o| *o != id);
        for holders in self.locks.values_mut() {
            holders.retain(|(h, _)| *h != id);
        }
    }
}

impl Storage for Handle {
    fn now(&self) -> u32 {
        self.file.state().clock
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut s = self.file.state();
        s.alive(self.id)?;
        let pages =
            offset / PAGE_SIZE as u64..(offset + buf.len() as u64).div_ceil(PAGE_SIZE as u64);
        if s.fail_read.take_if(|page| pages.contains(page)).is_some() {
            return Err(io::Error::other("the read failed"));
        }
        let there = s.size.saturating_sub(offset).min(buf.len() as u64) as usize;
        let mut done = 0;
        while done < there {
            let at = offset + done as u64;
            let within = (at % PAGE_SIZE as u64) as usize;
            let n = (PAGE_SIZE - within).min(there - done);
            match s.latest(at / PAGE_SIZE as u64) {
                Some(block) => buf[done..done + n].copy_from_slice(&block[within..within + n]),
                None => buf[done..done + n].fill(0),
            }
            done += n;
        }
        Ok(there)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut s = self.file.state();
        s.alive(self.id)?;
        if !offset.is_multiple_of(PAGE_SIZE as u64) || !data.len().is_multiple_of(PAGE_SIZE) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not whole pages",
            ));
        }
        for (i, chunk) in data.chunks(PAGE_SIZE).enumerate() {
            s.tick(self.id)?;
            let page = offset / PAGE_SIZE as u64 + i as u64;
            let end = (page + 1) * PAGE_SIZE as u64;
            let grows = end > s.size && s.capacity.is_some_and(|most| end > most);
            if grows
                || s.refused
                    .as_ref()
                    .is_some_and(|pages| pages.contains(&page))
            {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let mut block: Block = Box::new([0; PAGE_SIZE]);
            block.copy_from_slice(chunk);
            s.pending.entry(page).or_default().push(block);
            s.stale.remove(&page);
            s.size = s.size.max(end);
            s.writes += 1;
            s.tick(self.id)?;
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut s = self.file.state();
        s.alive(self.id)?;
        s.tick(self.id)?;
        if s.fail_syncs == Some(0) {
            for (page, mut writes) in std::mem::take(&mut s.pending) {
                s.stale.extend(writes.pop().map(|last| (page, last)));
            }
            s.tick(self.id)?;
            let reason = s.sync_error.unwrap_or(io::ErrorKind::Other);
            return Err(io::Error::new(reason, "the flush failed"));
        }
        s.fail_syncs = s.fail_syncs.map(|good| good - 1);
        for (page, mut writes) in std::mem::take(&mut s.pending) {
            if let Some(last) = writes.pop() {
                s.durable.insert(page, last);
            }
        }
        s.durable_size = s.size;
        s.forget_behind_the_end();
        s.syncs += 1;
        s.tick(self.id)
    }

    /// To a power cut this is a write of zeros to each page, which it may keep or drop.
    fn truncate(&self, size: u64) -> io::Result<()> {
        let mut s = self.file.state();
        s.alive(self.id)?;
        s.tick(self.id)?;
        if s.keeps_its_size {
            return Err(io::ErrorKind::StorageFull.into());
        }
        for page in size / PAGE_SIZE as u64..s.size.div_ceil(PAGE_SIZE as u64) {
            let zeros = Box::new([0; PAGE_SIZE]);
            s.pending.entry(page).or_default().push(zeros);
            s.stale.remove(&page);
        }
        s.size = s.size.min(size);
        s.tick(self.id)
    }

    fn writes_in_place(&self) -> bool {
        !self.file.state().copies
    }

    fn size(&self) -> io::Result<u64> {
        let s = self.file.state();
        s.alive(self.id)?;
        Ok(s.size)
    }

    fn atomic_writes(&self) -> AtomicWrites {
        AtomicWrites {
            bytes: self.file.state().atomic,
            reason: "a file in memory".to_owned(),
        }
    }

    fn lock(&self, lock: Lock, mode: LockMode) -> io::Result<bool> {
        let mut s = self.file.state();
        s.alive(self.id)?;
        let holders = s.locks.entry(lock.0).or_default();
        let free = match mode {
            LockMode::Exclusive => holders.is_empty(),
            LockMode::Shared => holders.iter().all(|(_, m)| *m == LockMode::Shared),
        };
        if free {
            holders.push((self.id, mode));
        }
        Ok(free)
    }

    fn unlock(&self, lock: Lock, _: LockMode) -> io::Result<()> {
        let mut s = self.file.state();
        s.alive(self.id)?;
        if let Some(holders) = s.locks.get_mut(&lock.0) {
            holders.retain(|(h, _)| *h != self.id);
        }
        Ok(())
    }

    fn shm_load(&self, word: usize) -> io::Result<u64> {
        let s = self.file.state();
        s.alive(self.id)?;
        Ok(s.shared.get(&word).copied().unwrap_or(0))
    }

    fn shm_store(&self, word: usize, value: u64) -> io::Result<()> {
        let mut s = self.file.state();
        s.tick_store(self.id)?;
        s.shared.insert(word, value);
        Ok(())
    }

    fn shm_max(&self, word: usize, value: u64) -> io::Result<()> {
        let mut s = self.file.state();
        s.alive(self.id)?;
        let entry = s.shared.entry(word).or_insert(0);
        *entry = (*entry).max(value);
        Ok(())
    }

    fn shm_min(&self, word: usize, value: u64) -> io::Result<()> {
        let mut s = self.file.state();
        s.alive(self.id)?;
        let entry = s.shared.entry(word).or_insert(0);
        *entry = (*entry).min(value);
        Ok(())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.file.state().close(self.id);
    }
}
