//! The write transaction: its beginning, savepoints, spills, and undoing it.

use std::sync::Arc;

use foldhash::HashMap;

use crate::core::{Core, Savepoint, Txn, WRITTEN};
use crate::error::{Error, Result};
use crate::marks::Flushed;
use crate::page::{NodeRef, PageType, Stamp};
use crate::room;
use crate::shared::{self, CURRENT, DURABLE, EPOCH, FREE_SEQ, HEADER_SEQ, HWM, NEXT, WRITING};
use crate::storage::{Lock, LockMode};
use crate::types::{PageNo, Version};

/// A page before a savepoint.
enum State {
    /// The transaction had not changed it.
    Unchanged,
    /// It was not born.
    Unborn,
    Changed(NodeRef),
}

impl Core {
    /// Begins a write transaction; `from`: only on this version.
    pub(crate) fn begin_write(&mut self, from: Option<u64>) -> Result<u64> {
        if self.txn.is_some() {
            return Err(Error::Transaction("a write transaction is open already"));
        }
        match self.lock_write() {
            Ok(()) => self.begin_in_turn(from),
            Err(Error::Busy) => {
                // A hint, so that it fails is no error.
                let _ = self.waits_for_its_turn();
                Err(Error::Busy)
            }
            Err(error) => Err(error),
        }
    }

    fn begin_in_turn(&mut self, from: Option<u64>) -> Result<u64> {
        let _ = self.has_its_turn();
        let begun = self.begin_locked(from);
        if begun.is_err() {
            self.txn = None;
            self.unlock_write()?;
        }
        begun
    }

    /// Takes the writer's lock.
    pub(crate) fn lock_write(&mut self) -> Result<()> {
        if self.options.read_only {
            return Err(Error::ReadOnly);
        }
        self.check_poison()?;
        self.release_snapshots()?;
        let taking = Error::io("taking the write lock");
        let taken = self.storage.lock(Lock::WRITE, LockMode::Exclusive);
        if taken.map_err(taking)? {
            Ok(())
        } else {
            Err(Error::Busy)
        }
    }

    pub(crate) fn unlock_write(&mut self) -> Result<()> {
        let giving = Error::io("giving back the write lock");
        self.storage
            .unlock(Lock::WRITE, LockMode::Exclusive)
            .map_err(giving)
    }

    /// Checks and data for a handle that has just got the lock, and is about to write.
    pub(crate) fn catch_up_as_writer(&mut self) -> Result<()> {
        self.look_as_writer()?;
        self.write_again()
    }

    /// The same for one that may write nothing.
    pub(crate) fn look_as_writer(&mut self) -> Result<()> {
        // A writer may have failed between the first check and the lock.
        self.check_poison()?;
        self.learn_torn()?;
        if self.load(WRITING)? != 0 {
            self.recover_live()?;
        }
        self.catch_up()
    }

    fn begin_locked(&mut self, from: Option<u64>) -> Result<u64> {
        self.catch_up_as_writer()?;
        let current = self.load(CURRENT)?;
        if let Some(snapshot) = from
            && snapshot != current
        {
            let (snapshot, current) = (Version(snapshot), Version(current));
            return Err(Error::StaleSnapshot { snapshot, current });
        }
        let version = self.load(NEXT)?;
        self.store(NEXT, version + 1)?;
        let durable = self.load(DURABLE)?;
        let too_far = version - current > Stamp::FARTHEST;
        if durable < current && (!self.unflushed.is_complete_to(current) || too_far) {
            // Another handle's commits, for whose pages this handle can give no record. Or one from
            // which the pages of this transaction are too far to name it.
            self.flush_storage().map_err(|e| self.poison(e))?;
            self.now_durable(current)?;
        } else if durable >= current {
            // Another handle may have flushed this handle's commits.
            self.unflushed.flushed_to(current);
        }
        self.release_quarantine()?;
        self.publish_free()?;
        self.txn = Some(Txn::new(version, current));
        if self.header.has_history() {
            self.txn_keeps_since()?;
        }
        self.heal()?;
        Ok(version)
    }

    /// Learns the changes of other writers: cache, header, free map. The caller must hold WRITE.
    pub(crate) fn catch_up(&mut self) -> Result<()> {
        let current = self.load(CURRENT)?;
        let epoch = self.epoch;
        self.sync_cache()?;
        if self.learn_header()? {
            self.store(HEADER_SEQ, self.header.seq)?;
        }
        let seq = self.load(FREE_SEQ)?;
        let hwm = self.load(HWM)? as u32;
        let same_map = self.space.is_published(seq, hwm);
        if !same_map || self.epoch != epoch {
            let mut words = vec![0; (hwm as usize).div_ceil(64)];
            shared::free_words(&*self.storage, &mut words)?;
            self.space.learn(words, hwm, seq);
            self.slots_may_have_moved = true;
            self.forget_group(current);
        } else if !self.space.is_of(current) {
            // Others have committed, and the map is the same. Before the first of them began, its
            // handle made durable what this one had committed.
            self.forget_group(current);
        }
        if std::mem::take(&mut self.slots_may_have_moved) {
            // Their writer may have died, or rolled back, before it published the map.
            self.protect_slots();
        }
        Ok(())
    }

    /// Learns the header of another writer. True if there is a new one.
    pub(crate) fn learn_header(&mut self) -> Result<bool> {
        if self.load(HEADER_SEQ)? == self.header.seq {
            return Ok(false);
        }
        self.header = self.read_header_of_others()?;
        self.header_flushed = false;
        self.slots_may_have_moved = true;
        Ok(true)
    }

    /// The newest commits may be those of others, for which this handle can give no record. Unless
    /// they are durable, the next transaction begins with a flush.
    fn forget_group(&mut self, current: u64) {
        self.space.set_version(current);
        self.unflushed.forget();
    }

    /// Every version up to `version` has reached the disk.
    pub(crate) fn now_durable(&mut self, version: u64) -> Result<()> {
        self.store(DURABLE, version)?;
        self.unflushed.flushed_to(version);
        if let Some(txn) = &mut self.txn {
            txn.keep = None;
        }
        Ok(())
    }

    // ---- savepoints

    pub(crate) fn savepoint(&mut self) -> Result<usize> {
        let txn = self.txn()?;
        txn.savepoints.push(Savepoint {
            ops: txn.ops.len(),
            ..Savepoint::default()
        });
        Ok(txn.savepoints.len() - 1)
    }

    /// Goes back to a savepoint. On an error nothing is undone, and all savepoints are open.
    pub(crate) fn rollback_to(&mut self, number: usize) -> Result<()> {
        let txn = self.txn()?;
        let Some(first) = txn.savepoints.get(number) else {
            return Err(Error::NoSuchSavepoint(number));
        };
        if txn.written.is_some() {
            return Err(Error::Transaction(WRITTEN));
        }
        let ops = first.ops;
        // Of a page in several of them, the state before the first.
        let mut before = HashMap::default();
        let savepoints = &txn.savepoints[number..];
        let pages = savepoints.iter().map(|s| s.before.len()).sum();
        before.try_reserve(pages).map_err(|_| Error::NoMemory)?;
        for savepoint in savepoints.iter().rev() {
            before.extend(savepoint.before.iter().map(|(p, n)| (*p, n.clone())));
        }
        let mut restored = Vec::new();
        room::reserve(&mut restored, before.len())?;
        for (page, before) in before {
            restored.push((page, self.state_before(page, before)?));
        }
        // Nothing fails from here on. Pages of its lists that were taken after the savepoint go with the others.
        self.txn()?.forget_record();
        for (page, state) in restored {
            self.restore(page, state)?;
        }
        self.undo_ops(ops)?;
        self.protect_slots();
        let txn = self.txn()?;
        txn.broken = txn.broken.filter(|open| number >= *open);
        txn.savepoints.truncate(number);
        txn.savepoints.push(Savepoint {
            ops,
            ..Savepoint::default()
        });
        self.generation += 1;
        Ok(())
    }

    /// The state to which a page goes back. One that was written since is read.
    fn state_before(&mut self, page: u32, before: Option<NodeRef>) -> Result<State> {
        let txn = self.txn()?;
        let base = txn.base;
        if let Some(node) = before {
            return Ok(State::Changed(node));
        }
        if !txn.spilled.contains_key(&page) {
            return Ok(State::Unchanged);
        }
        // Only changes after the savepoint were written there.
        let node = self.node(page)?;
        if node.birth > base {
            return Ok(State::Unborn);
        }
        room::for_a_page()?;
        let mut node = (*node).clone();
        node.strip(base);
        Ok(State::Changed(Arc::new(node)))
    }

    /// Restores a page to its state before a savepoint.
    fn restore(&mut self, page: u32, state: State) -> Result<()> {
        let txn = self.txn()?;
        match state {
            State::Changed(node) => {
                txn.dirty.insert(page, node);
            }
            State::Unborn => {
                txn.dirty.remove(&page);
                txn.spilled.remove(&page);
                self.cache.remove(page);
            }
            State::Unchanged => {
                txn.dirty.remove(&page);
            }
        }
        Ok(())
    }

    pub(crate) fn release_savepoint(&mut self, number: usize) -> Result<()> {
        let txn = self.txn()?;
        if number >= txn.savepoints.len() {
            return Err(Error::NoSuchSavepoint(number));
        }
        txn.broken = txn.broken.map(|open| open.min(number));
        for inner in txn.savepoints.split_off(number) {
            if let Some(outer) = txn.savepoints.last_mut() {
                for (page, before) in inner.before {
                    outer.before.entry(page).or_insert(before);
                }
            }
        }
        Ok(())
    }

    // ---- spills

    /// Writes dirty pages before the commit when there are too many of them.
    pub(crate) fn spill_if_needed(&mut self) -> Result<()> {
        let limit = self.options.cache_pages.max(8);
        if self.txn()?.dirty.len() <= limit {
            return Ok(());
        }
        let keep = limit / 2;
        let carrier = self.unflushed.carrier();
        let txn = self.txn()?;
        // One of these may be the page that was to carry the record.
        txn.forget_record();
        // Never the carrier (MV22).
        let mut pages: Vec<u32> = txn
            .dirty
            .iter()
            .filter(|(p, n)| n.kind != PageType::Catalog && **p != carrier)
            .map(|(p, _)| *p)
            .collect();
        pages.sort_unstable();
        pages.truncate(txn.dirty.len() - keep);
        match self.double {
            true => self.spill_in_rounds(&pages),
            false => self.spill(&pages),
        }
    }

    /// Writes these dirty pages now.
    pub(crate) fn spill(&mut self, pages: &[u32]) -> Result<()> {
        self.mark_regions(pages, Flushed::First)?;
        let stamp = self.stamp()?;
        self.store(WRITING, stamp.ver)?;
        let mut pages = pages.to_vec();
        // New ones first: a full disk shows there.
        let txn = self.txn()?;
        txn.wrote_new_pages = true;
        pages.sort_by_key(|page| !txn.own.contains(page));
        for page in &pages {
            let Some(node) = self.txn()?.dirty.get(page).cloned() else {
                continue;
            };
            let image = node.encode(self.salt, stamp)?;
            self.txn()?.note_written(*page, crate::page::crc_of(&image));
            let writing = Error::io("writing a page");
            let written = self.storage.write_at(PageNo(*page).offset(), &image[..]);
            if let Err(e) = written.map_err(writing) {
                if e.is_full() {
                    return Err(e);
                }
                return Err(self.poison(e));
            }
            let txn = self.txn()?;
            txn.dirty.remove(page);
            txn.note_spilled(*page, node.tree);
            self.cache.insert(*page, node);
            self.stats.spilled += 1;
        }
        Ok(())
    }

    // ---- rollback

    pub(crate) fn rollback(&mut self) -> Result<()> {
        let undone = self.undo_spills();
        if undone.is_ok() {
            self.undo_ops(0)?;
            self.give_back_unowned()?;
            self.protect_slots();
            // Slots that have moved stay, and others must learn that the old ones are free.
            self.publish_free()?;
            self.store(WRITING, 0)?;
        }
        self.txn = None;
        self.generation += 1;
        // Before another handle can write on what is not undone.
        let undone = undone.map_err(|e| self.poison(e));
        self.unlock_write()?;
        undone
    }

    /// Undoes on disk what was spilled; new pages are in no tree. First the pages of the base are
    /// flushed, and the header's floor covers them. So a crash can distinguish the pages of this
    /// transaction from the base (MV12).
    fn undo_spills(&mut self) -> Result<()> {
        let double = self.double;
        let txn = self.txn()?;
        let (version, base) = (txn.version, txn.base);
        if txn.spilled.is_empty() && !txn.wrote_new_pages && txn.written.is_none() {
            return Ok(());
        }
        // Of the pages born in it, some may never have been written.
        let spilled = txn.spilled.keys();
        let pages: Vec<u32> = spilled.copied().filter(|p| !txn.own.contains(p)).collect();
        let in_slot = double && txn.written.is_some() && pages.is_empty();
        let in_rounds = double && !pages.is_empty();
        // With `Double` it may be late as long as the slot is not written.
        self.bring_home()?; // MV38
        self.flush_storage()?;
        self.now_durable(base)?;
        let free = self.base_free();
        let mut header = self.header.clone();
        header.floor = self.newest_over()?;
        if in_slot {
            // Nothing changed in place, and recovery must not redo the slot. So this version is the
            // base under another number. No later header may go back before it.
            (header.floor, header.settled) = (version, version);
        }
        self.write_header(header, Some(&free))?;
        let stamp = Stamp {
            ver: version,
            from: base,
            durable: base,
        };
        let next = match in_rounds {
            true => Some(self.next_round()?),
            false => None,
        };
        self.strip_pages(&pages, stamp, next)?;
        if in_rounds {
            // As above: all of them are as at the base now (MV35).
            self.flush_storage()?;
            let mut header = self.header.clone();
            (header.floor, header.settled) = (version, version);
            self.write_header(header, Some(&free))?;
        }
        self.flush_storage()?;
        if let (Some(healing), Some(txn)) = (&mut self.healing, &self.txn) {
            txn.spilled.keys().for_each(|page| healing.wrote(*page));
        }
        self.store(EPOCH, self.load(EPOCH)? + 1)?;
        self.cache.clear();
        self.skip_own_news()
    }
}
