//! Commit: one flush.
//!
//! 1. Recovery only looks where a header says. Regions that are not marked yet are marked by a header
//!    that is written with the pages: see [`crate::marks`].
//! 2. One of the pages carries the commit record. The record has page number and checksum of the
//!    final image of every other page written since the last flush. If the record and all those
//!    pages are there, the commit happened.
//! 3. All pages are written, in any order. Then one flush follows, and the version is published in
//!    shared memory.
//!
//! With torn writes possible (`double`), images and record first go to one of two slots that take
//! turns. The flush makes the slot durable, and with it the pages that the commit before wrote in
//! place. Then the pages are written in place, without a flush. Recovery redoes both slots.

use std::sync::Arc;

use crate::core::{AllocOp, BROKEN, Core, Written};
use crate::error::{Error, Result};
use crate::freemap::{self, FreeMap};
use crate::header::{Header, MapRef};
use crate::marks::Flushed;
use crate::page::{self, CAPACITY, HEADER, Image, PageType, Record, Stamp, set_u32, set_u64};
use crate::room;
use crate::shared::{self, CURRENT, FREED, HEADER_SEQ, UNHEALED, WRITING};
use crate::tree::catalog::DIRECTORY;
use crate::types::{Durability, PAGE_SIZE, PageNo};

/// Entries of a commit record in one list page, and of a slot's head.
pub(crate) const LIST_ENTRIES: usize = CAPACITY / 8;
/// The point at which the writing of a commit failed.
pub(crate) enum Failed {
    /// Nothing was changed that any reader sees: the transaction is rolled back.
    Before(Error),
    /// The content of the file is unknown.
    Midway(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Midway(error)
    }
}

/// The most commits without a flush whose pages one record names. After them the next commit
/// flushes.
const MAX_GROUP: usize = 400;

impl Core {
    // ---- the header

    /// Writes the next header and its maps; not flushed. Never two of them in flight.
    pub(crate) fn write_header(&mut self, mut next: Header, free: Option<&FreeMap>) -> Result<()> {
        let is_upgrade = !self.header.is_newest_format;
        if is_upgrade {
            // In both pages: an earlier release must not find a header of its own.
            self.write_one_header(self.header.clone(), None)?;
        }
        let forgets = self.account_for_lost(&mut next)?;
        self.write_one_header(next, free)?;
        if is_upgrade {
            // Before anything is written that such a release would not understand.
            self.flush_storage()?;
        }
        match forgets {
            true => self.declare_lost(0, 0),
            false => Ok(()),
        }
    }

    fn write_one_header(&mut self, mut next: Header, free: Option<&FreeMap>) -> Result<()> {
        self.check_poison()?;
        self.forget_found();
        self.flush_what_was_found()?;
        next.seq = self.header.seq + 1;
        next.is_newest_format = true;
        // A crash takes back the pages that a walk has freed, until a header with a map has them.
        if free.is_some() || self.load(FREED)? == 0 {
            next.unhealed = u32::try_from(self.load(UNHEALED)?).unwrap_or(u32::MAX);
        }
        self.store(HEADER_SEQ, 0)?;
        if let Some(free) = free {
            next.hwm = free.hwm;
            next.maps = self.write_maps(free)?;
        }
        let image = next.encode()?;
        let writing = Error::io("writing the header");
        self.storage
            .write_at(next.page().offset(), &image[..])
            .map_err(writing)?;
        self.stats.header_pages_written += 1;
        self.header_flushed = false;
        self.store(HEADER_SEQ, next.seq)?;
        if free.is_some() {
            self.store(FREED, 0)?;
        }
        self.header = next;
        Ok(())
    }

    /// Writes the maps that changed, each to the copy that the header on disk does not use.
    fn write_maps(&mut self, free: &FreeMap) -> Result<Vec<MapRef>> {
        let words = (freemap::SPAN / 64) as usize;
        let mut maps = Vec::new();
        for span in 0..free.spans() {
            let old = self
                .header
                .maps
                .get(span)
                .copied()
                .unwrap_or(MapRef { copy: 2, crc: 0 });
            if free
                .words()
                .iter()
                .skip(span * words)
                .take(words)
                .all(|w| *w == 0)
            {
                maps.push(MapRef { copy: 2, crc: 0 });
                continue;
            }
            let at = |copy: u8| {
                PageNo(span as u32 * freemap::SPAN + freemap::MAP_AT[usize::from(copy & 1)])
            };
            if old.copy < 2 {
                let same = free.encode(span, at(old.copy), self.salt);
                if page::crc_of(&same) == old.crc {
                    maps.push(old);
                    continue;
                }
            }
            let copy = if old.copy == 0 { 1 } else { 0 };
            let image = free.encode(span, at(copy), self.salt);
            let writing = Error::io("writing the free map");
            self.storage
                .write_at(at(copy).offset(), &image[..])
                .map_err(writing)?;
            self.stats.header_pages_written += 1;
            maps.push(MapRef {
                copy,
                crc: page::crc_of(&image),
            });
        }
        Ok(maps)
    }

    /// Writes zeros where the free maps of new spans will stand. A rollback on a full disk writes a
    /// map, and must have the space.
    pub(crate) fn reserve_maps(&mut self) -> Result<()> {
        for span in self.header.maps.len().max(1)..self.space.map.spans() {
            for at in freemap::MAP_AT {
                let page = span as u32 * freemap::SPAN + at;
                let image = self.read_image(page)?;
                if image.iter().all(|b| *b == 0) {
                    self.reserve_page(page)?;
                }
            }
        }
        Ok(())
    }

    /// Writes zeros to a page that has nothing.
    pub(crate) fn reserve_page(&mut self, page: u32) -> Result<()> {
        self.storage
            .write_at(PageNo(page).offset(), &[0; PAGE_SIZE])
            .map_err(Error::io("making room for the header's pages"))
    }

    // ---- what can be refused

    /// Chooses the record's place.
    pub(crate) fn prepare(&mut self) -> Result<()> {
        if self.txn()?.broken.is_some() {
            return Err(Error::Transaction(BROKEN));
        }
        if self.txn()?.record.is_some() {
            return Ok(());
        }
        if !self.options.optimizations.lazy_gc {
            self.periodic_pass()?;
        }
        let txn = self.txn()?;
        if txn.dirty.is_empty() && txn.spilled.is_empty() {
            return Ok(());
        }
        self.sample_the_time()?;
        if self.double {
            self.spill_the_rest()?;
        }
        self.reserve_words(self.space.map.hwm)?;
        let txn = self.txn()?;
        let only_chains = txn.dirty.values().all(|n| n.kind == PageType::Overflow);
        if only_chains && (!self.double || self.txn()?.dirty.is_empty()) {
            // The pages that could carry the record have been spilled: the directory carries it. And the
            // last slot needs a page.
            self.node_mut(DIRECTORY)?;
        }
        let fitting = self.txn()?.dirty.values().all(|n| n.fits());
        if !fitting {
            return Err(Error::TooBig("a node for its page"));
        }
        if self.double {
            self.txn()?.record = Some((0, Vec::new()));
            return Ok(());
        }
        let entries = {
            let group = self.unflushed.pages().len();
            let txn = self.txn()?;
            txn.dirty.len() + txn.spilled.len() + group
        };
        let roomiest = self
            .txn()?
            .dirty
            .values()
            .filter(|n| n.kind != PageType::Overflow);
        let best = roomiest
            .min_by_key(|n| (n.size(), n.page))
            .map(|n| (n.page.0, n.size()));
        let Some((carrier, size)) = best else {
            return Err(Error::Transaction("no page can carry the commit record"));
        };
        let lists = match (entries - 1) * 8 > CAPACITY - size {
            true => self.list_pages((entries - 1).div_ceil(LIST_ENTRIES))?,
            false => Vec::new(),
        };
        self.txn()?.record = Some((carrier, lists));
        Ok(())
    }

    /// So many pages for a record, first those of an earlier one that is not used.
    fn list_pages(&mut self, count: usize) -> Result<Vec<u32>> {
        while self.txn()?.spare_lists.len() < count {
            let page = self.allocate_list_page()?;
            self.txn()?.spare_lists.push(page);
        }
        let spare = &mut self.txn()?.spare_lists;
        Ok(spare.split_off(spare.len() - count))
    }

    /// A page outside of all trees, which dies with the transaction.
    fn allocate_list_page(&mut self) -> Result<u32> {
        let hwm = self.space.map.hwm;
        let page = self.space.map.allocate()?;
        let op = if page >= hwm {
            AllocOp::Grew(hwm, page)
        } else {
            AllocOp::Took(page)
        };
        self.txn()?.ops.push(op);
        Ok(page)
    }

    /// Marks the regions of the commit's pages. With `double` a slot names the pages that were there
    /// before, so only those born in the transaction need a mark, for the free map. The first mark
    /// of a header also says that it is not clean.
    fn mark_dirty(&mut self, lists: &[u32], flush: bool) -> Result<()> {
        let unmarked = self.header.marks.is_empty();
        let double = self.double;
        let txn = self.txn()?;
        // With rounds, all pages are marked (MV36): see [`crate::rounds`].
        let all = !double || unmarked || txn.rounds.is_some();
        let written = txn
            .dirty
            .keys()
            .filter(|page| all || txn.own.contains(page));
        let pages: Vec<u32> = written.chain(lists).copied().collect();
        let flushed = if flush {
            Flushed::WithThePages
        } else {
            Flushed::First
        };
        self.mark_regions(&pages, flushed)?;
        // An earlier release would not find the images in the heads of a slot.
        if self.double && !self.header.is_newest_format {
            self.write_header(self.header.clone(), None)?;
        }
        Ok(())
    }

    // ---- the commit itself

    /// Writes the transaction, and flushes it if `durability` says so. Then only its publication is
    /// missing. Until then it can be rolled back. After a crash it is committed.
    ///
    /// On an error it is over: rolled back, or its outcome is unknown and all handles are poisoned.
    pub(crate) fn write(&mut self, durability: Durability) -> Result<()> {
        // A rollback would have to take it back.
        if let Err(e) = self.bring_home() {
            return Err(self.undo_if_full(e));
        }
        self.write_with_the_late_page(durability)
    }

    /// The same, where the late page may be one of the transaction's.
    fn write_with_the_late_page(&mut self, durability: Durability) -> Result<()> {
        if let Err(e) = self.prepare() {
            return Err(self.undo_if_full(e));
        }
        let txn = self.txn()?;
        let version = txn.version;
        let (Some((carrier, lists)), None) = (txn.record.clone(), &txn.written) else {
            return Ok(());
        };
        // After the last page that preparing changes.
        if let Err(e) = self.take_late_page_along() {
            return Err(self.undo_if_full(e));
        }
        let later = self.options.later;
        let flush = durability == Durability::Flush
            || self.double
            || self.unflushed.is_older_than(later)
            || self.unflushed.pages().len() + self.txn()?.dirty.len() > MAX_GROUP;
        if let Err(e) = self.mark_dirty(&lists, flush) {
            return Err(self.undo_if_full(e));
        }
        self.store(WRITING, version)?;
        let written = if self.double {
            self.write_double()
        } else {
            self.write_trusting(carrier, &lists, flush)
        };
        match written {
            Ok(written) => self.txn()?.written = Some(written),
            Err(Failed::Before(e)) => return Err(self.undo_after(e)),
            Err(Failed::Midway(e)) if e.is_full() && !self.double => {
                // A file system that copies on write. Each page is as before or as written.
                let txn = self.txn()?;
                let pages: Vec<u32> = txn.dirty.keys().copied().collect();
                pages.into_iter().for_each(|page| txn.note_written(page, 0));
                return Err(self.undo_after(e));
            }
            Err(Failed::Midway(e)) => {
                self.txn = None;
                let e = self.poison(e);
                let _ = self.unlock_write();
                return Err(e);
            }
        }
        Ok(())
    }

    /// Rolls the transaction back after an error, and returns that one, which has the reason. If the
    /// rollback fails as well, later calls say `Poisoned`.
    pub(crate) fn undo_after(&mut self, error: Error) -> Error {
        let _ = self.rollback();
        error
    }

    /// The same where there is no room. After another error the transaction is still open.
    pub(crate) fn undo_if_full(&mut self, error: Error) -> Error {
        match error.is_full() {
            true => self.undo_after(error),
            false => error,
        }
    }

    /// Commits; returns the new version.
    pub(crate) fn commit(&mut self, durability: Durability) -> Result<u64> {
        Ok(self.commit_marked(durability, false)?.0)
    }

    /// Commits; returns the new version and, if `marks`, a mark of it. The mark is taken while no
    /// other handle can write. There is none where nothing was changed, or where none was
    /// available.
    pub(crate) fn commit_marked(
        &mut self,
        durability: Durability,
        marks: bool,
    ) -> Result<(u64, Option<usize>)> {
        if !self.write_late(durability)? {
            self.write_with_the_late_page(durability)?;
        }
        let txn = self.txn()?;
        let (version, base) = (txn.version, txn.base);
        let Some(written) = txn.written.take() else {
            self.rollback()?;
            return Ok((base, None));
        };
        let done = self.write_in_place_after_late(&written.in_place);
        let done = done.and_then(|()| self.publish(version, written));
        self.txn = None;
        if let Err(e) = done {
            let e = self.poison(e);
            let _ = self.unlock_write();
            return Err(e);
        }
        // Later steps can no longer undo the commit, so their errors are not its errors.
        let mut mark = None;
        for _ in 0..100 {
            if mark.is_none() && marks {
                mark = self.mark_version(version).ok().flatten();
            }
        }
        self.stats.commits += 1;
        self.stats.last_commit = version;
        let _ = self.unlock_write();
        Ok((version, mark))
    }

    /// Images of all dirty pages, in page order.
    pub(crate) fn images(&mut self) -> Result<Vec<(u32, Box<Image>)>> {
        let (stamp, salt) = (self.stamp()?, self.salt);
        let txn = self.txn()?;
        let mut images = Vec::new();
        room::reserve(&mut images, txn.dirty.len())?;
        for (page, node) in &txn.dirty {
            images.push((*page, node.encode(salt, stamp)?));
        }
        images.sort_unstable_by_key(|i| i.0);
        Ok(images)
    }

    fn write_trusting(
        &mut self,
        carrier: u32,
        lists: &[u32],
        flush: bool,
    ) -> std::result::Result<Written, Failed> {
        let mut images = self.images().map_err(Failed::Before)?;
        if images.iter().all(|(page, _)| *page != carrier) {
            // A crash would take such a commit back.
            let error = Error::Transaction("no page can carry the commit record");
            return Err(Failed::Before(error));
        }
        let stamp = self.stamp()?;
        // The record names all that is not durable (MV1, MV20), by checksum (MV2).
        let mut crcs = self.unflushed.pages().clone();
        crcs.extend(self.txn()?.spilled.iter().map(|(p, c)| (*p, *c)));
        crcs.extend(images.iter().map(|(p, i)| (*p, page::crc_of(i))));
        crcs.remove(&carrier);
        let mut entries: Vec<(u32, u32)> = crcs.into_iter().collect();
        let others = entries.clone();
        let record = if lists.is_empty() {
            Record {
                pages: entries,
                list: 0,
            }
        } else {
            let list = lists[0];
            for (i, page) in lists.iter().enumerate() {
                let rest = entries.split_off(entries.len().min(LIST_ENTRIES));
                let next = lists.get(i + 1).copied().unwrap_or(0);
                images.push((*page, list_page(*page, self.salt, stamp, &entries, next)));
                entries = rest;
            }
            Record {
                pages: Vec::new(),
                list,
            }
        };
        let mut own = others;
        for (page, image) in &mut images {
            if *page == carrier {
                if page::record_room(image) < record.pages.len() {
                    let node = self.txn()?.dirty.get(page).cloned();
                    let tight = node.map(|node| node.encode_tight(self.salt, stamp));
                    *image = tight
                        .ok_or(Error::Transaction("no page can carry the commit record"))??;
                }
                if page::record_room(image) < record.pages.len() {
                    return Err(Error::TooBig("the commit record for its page").into());
                }
                own.push((carrier, page::put_record(image, &record)));
            }
        }
        let new = self.write_new_pages(&mut images)?;
        // Last the page with the record of the version before (MV21). It is no new one: that version
        // uses it.
        let (carrier, old) = (self.unflushed.carrier(), &mut images[new..]);
        old.sort_by_key(|(page, _)| *page == carrier);
        let (old, last) = old.split_at(old.partition_point(|(page, _)| *page != carrier));
        self.write_images(old)?;
        self.write_version_to_header()?;
        self.write_images(last)?;
        self.write_zeros_behind()?;
        if flush {
            self.flush_storage()?;
        }
        // For a rollback: these stand in place now.
        let txn = self.txn()?;
        for (page, image) in &images {
            if txn.dirty.contains_key(page) {
                txn.note_written(*page, page::crc_of(image));
            }
        }
        Ok(Written {
            flushed: flush,
            crcs: own,
            ..Written::default()
        })
    }

    /// Puts the pages born in the transaction first, writes them, and returns their number. The file
    /// grows there, or has a hole, so a full disk shows. No reader reads them before the commit has
    /// happened.
    pub(crate) fn write_new_pages(
        &mut self,
        images: &mut [(u32, Box<Image>)],
    ) -> std::result::Result<usize, Failed> {
        let txn = self.txn()?;
        let lists = txn.record.as_ref().map_or(&[][..], |(_, lists)| lists);
        let is_new = |page: &u32| txn.own.contains(page) || lists.contains(page);
        images.sort_unstable_by_key(|(page, _)| (!is_new(page), *page));
        let new = images.partition_point(|(page, _)| is_new(page));
        txn.wrote_new_pages |= new > 0;
        if new > 0 {
            self.note_end().map_err(Failed::Before)?;
        }
        self.write_images(&images[..new]).map_err(Failed::Before)?;
        Ok(new)
    }

    /// Without metadata embedding, the header is written by every commit.
    pub(crate) fn write_version_to_header(&mut self) -> Result<()> {
        if self.options.optimizations.metadata_embedding || !self.header_flushed {
            // With new marks, the commit has written it already.
            return Ok(());
        }
        let header = self.header.clone();
        self.write_header(header, None)
    }

    /// Writes pages of a commit in place.
    pub(crate) fn write_images(&mut self, images: &[(u32, Box<Image>)]) -> Result<()> {
        self.write_in_place(images)?;
        self.stats.pages_written += images.len() as u64;
        Ok(())
    }

    /// Writes pages in place; neighbors in one write.
    pub(crate) fn write_in_place(&self, images: &[(u32, Box<Image>)]) -> Result<()> {
        let mut from = 0;
        while from < images.len() {
            let mut to = from + 1;
            while to < images.len() && images[to].0 == images[to - 1].0 + 1 && to - from < 64 {
                to += 1;
            }
            let run = &images[from..to];
            let offset = PageNo(run[0].0).offset();
            let written = match run {
                [(_, image)] => self.storage.write_at(offset, &image[..]),
                _ => {
                    let bytes: Vec<u8> = run.iter().flat_map(|(_, i)| i.iter().copied()).collect();
                    self.storage.write_at(offset, &bytes)
                }
            };
            written.map_err(Error::io("writing pages"))?;
            from = to;
        }
        Ok(())
    }

    /// Publishes the version, and the pages that it freed.
    fn publish(&mut self, version: u64, written: Written) -> Result<()> {
        let Some(txn) = self.txn.take() else {
            return Ok(());
        };
        let (carrier, lists) = txn.record.unwrap_or_default();
        self.unflushed.set_carrier(carrier);
        let mut pages: Vec<u32> = txn
            .dirty
            .keys()
            .chain(txn.spilled.keys())
            .copied()
            .collect();
        pages.sort_unstable();
        pages.dedup();
        if let Some(healing) = &mut self.healing {
            pages.iter().for_each(|page| healing.wrote(*page));
        }
        for (page, mut node) in txn.dirty {
            if self.lost.before(node.ver).is_some() {
                // For the walk, which would have it written once more.
                Arc::make_mut(&mut node).ver = version;
            }
            self.cache.insert(page, node);
        }
        for page in &txn.freed {
            self.cache.remove(*page);
        }
        let lists = lists.into_iter().chain(txn.spare_lists);
        let freed: Vec<u32> = txn.freed.into_iter().chain(lists).collect();
        self.space.keep_back(version, freed);
        let (late, stays) = (written.late, written.stays);
        if written.flushed {
            self.now_durable(version)?;
        } else {
            self.unflushed.add(version, written.crcs);
        }
        self.release_quarantine()?;
        // A reader that learns from the ring that the page has changed must find its change. It finds the page in the
        // slot before its carrier may be written over.
        self.set_stays(stays)?;
        self.set_late(late)?;
        shared::announce(&*self.storage, &pages)?;
        self.skip_own_news()?;
        self.publish_free()?;
        self.space.set_version(version);
        self.store(CURRENT, version)?;
        self.store(WRITING, 0)
    }
}

pub(crate) fn list_page(
    page: u32,
    salt: u64,
    stamp: Stamp,
    entries: &[(u32, u32)],
    next: u32,
) -> Box<Image> {
    let mut image: Box<Image> = Box::new([0; PAGE_SIZE]);
    set_u32(&mut image[..], 4, page);
    set_u64(&mut image[..], 8, salt);
    image[16] = PageType::Record.byte();
    image[18] = 1;
    set_u64(&mut image[..], 24, stamp.ver);
    stamp.put(&mut image);
    page::set_u16(&mut image[..], 52, entries.len() as u16);
    set_u32(&mut image[..], 60, next);
    for (i, (page, crc)) in entries.iter().enumerate() {
        set_u32(&mut image[..], HEADER + 8 * i, *page);
        set_u32(&mut image[..], HEADER + 8 * i + 4, *crc);
    }
    page::seal(&mut image);
    image
}
