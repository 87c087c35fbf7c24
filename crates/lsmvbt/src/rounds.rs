//! Rounds of `Torn::Double`: a transaction that is too large for memory writes pages before its
//! commit. It never has more of them in flight than a slot holds.
//!
//! M is its version, V the one it began from. Before the first round, all of V is flushed in place, and a
//! header calls it settled (MV29). So neither slot is needed. A round then has these steps:
//!
//! 1. A durable header marks all pages of the round (MV13, MV30).
//! 2. Pages born in M are written in place. Nothing that is durable leads to them.
//! 3. The images of the others go to the slot that does not hold the round before (MV28). Its head
//!    says that M is not whole with it (MV32).
//! 4. One flush. It covers the slot, the pages born in M (MV31), and the round before in place.
//! 5. The other pages are written in place. The next flush covers them.
//!
//! The commit is a slot like any other, and the last of M. Its header marks all its pages (MV36). Recovery
//! redoes both slots. If the newer one is not a last one, M is broken. Its pages still have all of V, and
//! are stripped. That writes them in place once more, so it goes in rounds as well (MV33): each image to
//! the slot that is not the newest, a flush, then in place. These slots carry M, too, and are not last ones.
//! So a recovery that is cut leads to the same. A rollback does the same, and then settles M (MV35).

use crate::commit::LIST_ENTRIES;
use crate::core::{Core, Txn};
use crate::double::{SLOT_PAGES, size_for};
use crate::error::{Error, Result, is_full};
use crate::freemap::FreeMap;
use crate::heads::Layout;
use crate::marks::Flushed;
use crate::page::{self, Image, PageType, Stamp};
use crate::recover::Seen;
use crate::shared::{SLOT, SLOT_LARGEST, WRITING};
use crate::slots::Slots;

/// Images of a round at most: 1 MiB.
const ROUND: usize = 256;
/// Rounds that one spill may take before the slots become larger.
const FEW: usize = 4;
const _: () = assert!(ROUND <= LIST_ENTRIES, "a round has one head");

/// The place of a slot among those of its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Round {
    /// From 1; 0: it is the only one.
    pub(crate) number: u32,
    /// Whether its transaction is whole with it.
    pub(crate) is_last: bool,
}

/// The next round: its slot, which must not be the newest, and its number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Next {
    pub(crate) slot: u32,
    pub(crate) number: u32,
}

impl Core {
    /// Writes dirty pages before the commit, in rounds.
    pub(crate) fn spill_in_rounds(&mut self, pages: &[u32]) -> Result<()> {
        if pages.is_empty() {
            return Ok(());
        }
        self.begin_rounds()?;
        self.mark_regions(pages, Flushed::First)?;
        let stamp = self.stamp()?;
        self.store(WRITING, stamp.ver)?;
        let txn = self.txn()?;
        txn.wrote_new_pages = true;
        let (born, old): (Vec<u32>, Vec<u32>) = pages
            .iter()
            .copied()
            .partition(|page| txn.own.contains(page));
        for part in born.chunks(ROUND) {
            let images = self.images_of(part, stamp)?;
            // A later step may fail, and its statement be undone.
            self.txn()?.born_unflushed = true;
            self.spill_images(&images)?;
        }
        if old.is_empty() {
            return self.flush_born();
        }
        self.make_room_for(old.len())?;
        for part in old.chunks(self.most_of_round()) {
            let images = self.images_of(part, stamp)?;
            let next = self.next_round()?;
            self.write_round(stamp, next, &images)?;
            self.store(SLOT, u64::from(next.slot ^ 1))?;
            let txn = self.txn()?;
            txn.rounds = Some(next.number);
            txn.born_unflushed = false;
            self.spill_images(&images)?;
        }
        Ok(())
    }

    /// Pages born in the transaction are durable before its last slot is written (MV31).
    fn flush_born(&mut self) -> Result<()> {
        self.flush_storage()?;
        self.txn()?.born_unflushed = false;
        Ok(())
    }

    /// Before the commit: its last slot need not be larger than a round where pages can be written in place
    /// before it. They can in a transaction with rounds, and new ones where that is wanted.
    pub(crate) fn spill_the_rest(&mut self) -> Result<()> {
        if self.options.new_in_place && self.txn()?.rounds.is_none() {
            let born = self.dirty_nodes(|txn, page| txn.own.contains(&page))?;
            if born.len() >= SLOT_PAGES as usize {
                self.spill_in_rounds(&born)?;
            }
        }
        if self.txn()?.rounds.is_none() {
            return Ok(());
        }
        if self.txn()?.dirty.len() > ROUND {
            let all = self.dirty_nodes(|_, _| true)?;
            self.spill_in_rounds(&all)?;
        }
        match self.txn()?.born_unflushed {
            true => self.flush_born(),
            false => Ok(()),
        }
    }

    /// The dirty pages of a kind, in order, but for the catalog's.
    fn dirty_nodes(&mut self, is_wanted: fn(&Txn, u32) -> bool) -> Result<Vec<u32>> {
        let txn = self.txn()?;
        let nodes = txn.dirty.iter();
        let wanted =
            nodes.filter(|(page, node)| node.kind != PageType::Catalog && is_wanted(txn, **page));
        let mut pages: Vec<u32> = wanted.map(|(page, _)| *page).collect();
        pages.sort_unstable();
        Ok(pages)
    }

    /// Everything before the transaction is durable and in place, and a durable header says so.
    fn begin_rounds(&mut self) -> Result<()> {
        if self.txn()?.rounds.is_none() {
            let free = self.base_free();
            self.settle_header(None, &free)?;
            self.txn()?.rounds = Some(0);
        }
        Ok(())
    }

    /// Makes the slots larger if so many images would take too many rounds.
    fn make_room_for(&mut self, images: usize) -> Result<()> {
        let images = images.min(ROUND);
        let need = images as u32 + 1;
        let has_slots = Slots::of(&self.header).is_some();
        if !has_slots || images > FEW * self.most_of_round() {
            self.grow_slots(need)?;
        }
        let taken = need.min(self.most_of_round() as u32 + 1);
        let largest = self.load(SLOT_LARGEST)?.max(u64::from(taken));
        self.store(SLOT_LARGEST, largest)
    }

    /// Images that a slot has room for, next to one head.
    fn most_of_round(&self) -> usize {
        let pages = Slots::of(&self.header).map_or(0, Slots::pages);
        (pages as usize).saturating_sub(1).clamp(1, ROUND)
    }

    /// The next round of the write transaction.
    pub(crate) fn next_round(&mut self) -> Result<Next> {
        let slot = self.load(SLOT)? as u32 & 1;
        let number = self.txn()?.rounds.unwrap_or(0) + 1;
        Ok(Next { slot, number })
    }

    fn images_of(&mut self, pages: &[u32], stamp: Stamp) -> Result<Vec<(u32, Box<Image>)>> {
        let salt = self.salt;
        let txn = self.txn()?;
        let nodes = pages.iter().filter_map(|page| txn.dirty.get(page));
        nodes
            .map(|node| Ok((node.page.0, node.encode(salt, stamp)?)))
            .collect()
    }

    /// Writes pages of the transaction in place. They are clean then.
    fn spill_images(&mut self, images: &[(u32, Box<Image>)]) -> Result<()> {
        let txn = self.txn()?;
        for (page, image) in images {
            txn.note_written(*page, page::crc_of(image));
        }
        if let Err(error) = self.write_in_place(images) {
            return match error.is_full() {
                true => Err(error),
                false => Err(self.poison(error)),
            };
        }
        for (page, _) in images {
            let txn = self.txn()?;
            if let Some(node) = txn.dirty.remove(page) {
                txn.note_spilled(*page, node.tree);
                self.cache.insert(*page, node);
            }
            self.stats.spilled += 1;
        }
        Ok(())
    }

    /// Writes a slot that does not end its transaction, and flushes it.
    fn write_round(
        &mut self,
        stamp: Stamp,
        next: Next,
        images: &[(u32, Box<Image>)],
    ) -> Result<()> {
        let round = Round {
            number: next.number,
            is_last: false,
        };
        self.fill_slot(next.slot, stamp, round, &Layout::of(images))?;
        // Nothing is written in place before this flush (MV26).
        self.flush_storage()
    }

    /// Before recovery strips so many pages in rounds, to go back to `state`. A file that a transaction of
    /// `Trust` has left may have no slots, and one of an earlier release a header that this release takes
    /// for its own. A durable header changes both. Floor, marks and all else stay, so a recovery that is cut
    /// decides the same.
    ///
    /// The slots take pages that are free in that state, and that recovery has not seen: no record names
    /// them. Or they come behind the end of the file. Zeros, torn ones as well, are no slot.
    pub(crate) fn prepare_rounds_of_recovery(
        &mut self,
        images: usize,
        seen: &[Seen],
        state: u64,
    ) -> Result<()> {
        let has_slots = Slots::of(&self.header).is_some();
        if has_slots && self.header.is_newest_format {
            return Ok(());
        }
        let mut header = self.header.clone();
        if !has_slots {
            let mut free = self.rebuild_free(seen, state)?;
            seen.iter().for_each(|s| free.remove(s.page));
            free.hwm = free.hwm.max(self.pages_of_file()?);
            let large = size_for(images.min(ROUND) as u32 + 1);
            let slots = match self.reserve_in(&free, large) {
                Err(e) if e.is_full() => self.reserve_in(&free, SLOT_PAGES),
                slots => slots,
            };
            let slots = slots.map_err(explain_full)?;
            (header.slot_start, header.slot_pages) = (slots.start(), slots.pages());
        }
        self.write_header(header, None)?;
        self.flush_storage()
    }

    fn reserve_in(&mut self, free: &FreeMap, pages: u32) -> Result<Slots> {
        let slots = Slots::new_in(free, pages)?;
        self.reserve(slots)?;
        Ok(slots)
    }

    /// Takes back in pages that `stamp.ver` has written what came after `stamp.from` (MV4, MV12). All pages
    /// in place must be durable. The next flush covers the last of these.
    pub(crate) fn strip_pages(
        &mut self,
        pages: &[u32],
        stamp: Stamp,
        mut next: Option<Next>,
    ) -> Result<()> {
        self.forget_found();
        let most = match next {
            Some(_) => self.most_of_round(),
            None => ROUND,
        };
        for part in pages.chunks(most) {
            let mut images = Vec::with_capacity(part.len());
            for page in part {
                // A lost version may have written it last (MV17), or it may be late.
                let mut node = self.read_node(*page)?;
                if node.birth <= stamp.from {
                    node.strip(stamp.from);
                    images.push((*page, node.encode(self.salt, stamp)?));
                }
            }
            if images.is_empty() {
                continue;
            }
            if let Some(next) = &mut next {
                self.write_round(stamp, *next, &images)?;
                next.slot ^= 1;
                next.number += 1;
            }
            self.write_in_place(&images)?;
        }
        Ok(())
    }
}

/// A full disk leaves no room for the slots. Without them a torn write would lose pages, so the database
/// is not opened. Nothing that recovery needs was written.
fn explain_full(error: Error) -> Error {
    match error {
        Error::Io { source, .. } if is_full(&source) => Error::Io {
            what: "recovery needs 128 KiB for its slots, and nothing is lost yet: free space on the disk and open the database again",
            source,
        },
        other => other,
    }
}

/// The first round in which recovery strips pages of the broken transaction `top`. `newest` is what the
/// newer slot has.
pub(crate) fn first_round_of_recovery(top: u64, newest: Option<(u64, Round)>, slot: u32) -> Next {
    let of_top = newest.filter(|(version, _)| *version == top);
    let number = of_top.map_or(0, |(_, round)| round.number) + 1;
    Next { slot, number }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Node;
    use crate::shared::CURRENT;
    use crate::types::PageNo;
    use crate::{Db, Durability, MemoryFile, Options, Torn, TreeKind};

    /// A slot of several heads is of one round. Others may stand behind the first head, of a round
    /// before.
    #[test]
    fn heads_of_two_rounds_are_no_slot() {
        let options = Options {
            torn: Torn::Double,
            ..Options::default()
        };
        let mut db = Db::open(MemoryFile::new().storage(), options).unwrap();
        db.begin_write().unwrap();
        let core = &mut db.core;
        core.grow_slots(2 * LIST_ENTRIES as u32).unwrap();
        let (salt, slots) = (core.salt, core.slots().unwrap());
        let stamp = core.stamp().unwrap();
        let images: Vec<(u32, Box<Image>)> = (0..LIST_ENTRIES as u32 + 7)
            .map(|at| {
                let page = PageNo(10_000 + at);
                let node = Node::new(page, PageType::Leaf, None, 1, 0, stamp.ver);
                (page.0, node.encode(salt, stamp).unwrap())
            })
            .collect();
        let layout = Layout::of(&images);
        for (numbers, is_whole) in [([3, 3], true), ([3, 1], false)] {
            let heads = numbers.map(|number| {
                let round = Round {
                    number,
                    is_last: true,
                };
                layout.heads(|at| slots.page(0, at), salt, stamp, round)
            });
            let heads = [&*heads[0][0], &*heads[1][1]];
            let all: Vec<&Image> = heads.into_iter().chain(layout.outside()).collect();
            core.write_slot(0, &all).unwrap();
            let found = core.read_slot(0, 0).unwrap();
            assert_eq!(found.is_some(), is_whole, "{numbers:?}");
        }
    }

    /// Nothing of the slot has been written then, or not all of it.
    #[test]
    fn memory_that_is_refused_for_a_slot_poisons_nobody() {
        let options = Options {
            torn: Torn::Double,
            ..Options::default()
        };
        let mut db = Db::open(MemoryFile::new().storage(), options).unwrap();
        db.begin_write().unwrap();
        let tree = db.create_tree(TreeKind::Integer).unwrap();
        db.commit(Durability::Flush).unwrap();
        db.begin_write().unwrap();
        db.put_integer(tree, 1, b"one").unwrap();
        let (core, number) = (&mut db.core, 0);
        let (slot, version) = (core.load(SLOT).unwrap() as u32 & 1, core.version().unwrap());
        let round = Round {
            number,
            is_last: true,
        };
        let error = core.slot_failed(slot, version, round, Error::NoMemory);
        assert!(matches!(error, Error::NoMemory), "{error}");
        db.commit(Durability::Flush).unwrap();
    }

    /// A broken transaction of `Trust`, opened with `Double` on a full disk: it is refused until there is
    /// space, and nothing is lost.
    #[test]
    fn a_recovery_that_finds_no_room_for_slots_says_so_and_loses_nothing() {
        let file = MemoryFile::new();
        let open = |torn| {
            let cache_pages = 16;
            let options = Options {
                torn,
                cache_pages,
                ..Options::default()
            };
            Db::open(file.storage(), options)
        };
        let mut db = open(Torn::Trust).unwrap();
        db.begin_write().unwrap();
        let tree = db.create_tree(TreeKind::Integer).unwrap();
        for key in 0..400 {
            db.put_integer(tree, key, &[1; 500]).unwrap();
        }
        db.commit(Durability::Flush).unwrap();
        db.begin_write().unwrap();
        for key in 0..400 {
            db.put_integer(tree, key, &[2; 500]).unwrap();
        }
        assert!(db.stats().spilled > 0);
        file.kill_all();
        std::mem::forget(db);
        file.limit(Some(file.bytes().len() as u64));
        for _ in 0..3 {
            let refused = open(Torn::Double).err().unwrap();
            assert!(refused.is_full(), "{refused}");
            assert!(refused.to_string().contains("128 KiB"), "{refused}");
        }
        file.limit(None);
        let mut db = open(Torn::Double).unwrap();
        assert_eq!(db.check().unwrap(), Vec::<String>::new());
        let view = db.snapshot().unwrap();
        for key in 0..400 {
            let found = db.get_integer(view.version(), tree, key).unwrap();
            assert_eq!(found, Some(vec![1; 500]));
        }
    }

    fn seen_page(page: u32, version: u64) -> Seen {
        Seen {
            page,
            kind: PageType::Record.byte(),
            birth: version,
            ver: version,
            from: None,
            base: 0,
            crc: 0,
            carries: false,
            late: 0,
        }
    }

    /// A record may name pages that are free by now. The next recovery needs them, if this one is cut.
    #[test]
    fn slots_that_recovery_makes_take_no_page_that_it_has_seen() {
        for all in [false, true] {
            let file = MemoryFile::new();
            let options = Options {
                torn: Torn::Trust,
                ..Options::default()
            };
            let open = || Db::open(file.storage(), options.clone()).unwrap();
            let mut db = open();
            db.begin_write().unwrap();
            let tree = db.create_tree(TreeKind::Integer).unwrap();
            for key in 0..60 {
                db.put_integer(tree, key, &[7; 9000]).unwrap();
            }
            db.commit(Durability::Flush).unwrap();
            for key in 0..55 {
                db.begin_write().unwrap();
                assert!(db.delete_integer(tree, key).unwrap());
                db.commit(Durability::Flush).unwrap();
            }
            db.close().unwrap();
            let mut db = open();
            let core = &mut db.core;
            let state = core.load(CURRENT).unwrap();
            let free = core.rebuild_free(&[], state).unwrap();
            let first = Slots::new_in(&free, 16).unwrap().start();
            assert!(first + 32 < free.hwm);
            let end = core.pages_of_file().unwrap();
            let last = if all { end } else { first + 4 };
            let seen: Vec<Seen> = (first + 3..last)
                .map(|page| seen_page(page, state + 1))
                .collect();
            core.prepare_rounds_of_recovery(10, &seen, state).unwrap();
            let slots = core.slots().unwrap();
            assert!(seen.iter().all(|s| !slots.contains(s.page)), "{slots:?}");
            assert!(slots.all().all(|page| page >= end || free.contains(page)));
            assert_eq!(slots.start() >= end, all);
            // No page was written that recovery needs, and the header is durable.
            file.power_cut(crate::PowerCut::Atomic, &mut |_| 0);
            std::mem::forget(db);
            let mut db = open();
            assert_eq!(db.core.slots().unwrap(), slots);
            assert_eq!(db.check().unwrap(), Vec::<String>::new());
        }
    }
}
