//! `Torn::Double`: the two slots.
//!
//! A slot is a run of pages: heads that name pages and checksums, then the images. Images that fit
//! stand in a head: see [`crate::heads`]. A commit fills the slot that does not hold the newest commit,
//! flushes, and only then writes in place. The flush of the next slot makes those writes durable. So at
//! any moment a durable slot holds the pages that are being written in place. Recovery writes both slots
//! in place again, and of a page in both the newer image. This repairs each torn page. A slot grows by
//! moving. Both slots get new places, after the pages that they protect have been flushed. They shrink
//! where they are, likewise after such a flush, and their last pages are free. A large transaction takes
//! several slots, one after the other: see [`crate::rounds`].

use std::collections::BTreeMap;

use crate::commit::Failed;
use crate::core::{Core, Written};
use crate::error::{Error, Result};
use crate::freemap::FreeMap;
use crate::header::Header;
use crate::heads::{self, Head, Layout};
use crate::page::{self, Image, Stamp, u64_at};
use crate::room;
use crate::rounds::Round;
use crate::shared::{CURRENT, SETTLED, SLOT, SLOT_COMMITS, SLOT_LARGEST, TORN, WRITING};
use crate::slots::Slots;
use crate::stays::Stays;
use crate::storage::Storage;
use crate::types::{PAGE_SIZE, PageNo, Torn};

/// Pages of a slot at least: the head, and 15 images.
pub(crate) const SLOT_PAGES: u32 = 16;
/// Commits after which slots become smaller that none of them needed, and how many times too large
/// they must have been.
const MANY: u64 = 64;
const TOO_LARGE: u32 = 4;
/// Pages of a slot that the last handle leaves in any case: 256 KiB. It leaves more if a slot is less
/// than this part of the file.
const LEFT: u32 = 64;
const SHARE: u32 = 16;
/// Pages of a slot in one write.
const AT_ONCE: usize = 256;
/// Values of [`TORN`].
const TORN_TRUST: u64 = 1;
const TORN_DOUBLE: u64 = 2;

/// The place of an image in a slot.
pub(crate) enum Place {
    /// A page of the slot.
    Page(u32),
    /// A head, which had this image.
    Head(Box<Image>),
}

/// A slot that is whole: for each page, the place of its image.
pub(crate) struct SlotContent {
    pub(crate) version: u64,
    pub(crate) round: Round,
    pub(crate) places: Vec<(u32, Place)>,
    /// The pages of the slot that it takes, heads included.
    pub(crate) pages: Vec<u32>,
}

/// The slots that recovery has written in place.
pub(crate) struct Redone {
    /// The version of the newer one, and its place among the slots of that.
    pub(crate) newest: Option<(u64, Round)>,
    /// The slot for the next commit.
    pub(crate) next_slot: u32,
    /// The newest version of the slots that are not settled, and the pages of which these have images.
    pub(crate) unsettled: u64,
    pub(crate) places: Vec<u32>,
    /// The page of the newest slot that was not written in place, and its image.
    pub(crate) stays: Option<(Stays, Box<Image>)>,
}

/// Whether pages must go to a slot first.
pub(crate) fn is_double(torn: Torn, storage: &dyn Storage) -> bool {
    match torn {
        Torn::Trust => false,
        Torn::Double => true,
        Torn::Auto => (storage.atomic_writes().bytes as usize) < PAGE_SIZE,
    }
}

impl Core {
    // ---- settings that all handles share
    //
    // Suppose one handle wrote pages in place while they stand in the slot of another's older
    // commit. Then recovery would put the older ones back. So the first handle decides, and a
    // handle that changes the setting settles the slots first.

    /// Publishes this handle's setting, as the first.
    pub(crate) fn tell_torn(&mut self) -> Result<()> {
        self.store(TORN, if self.double { TORN_DOUBLE } else { TORN_TRUST })
    }

    /// Takes the setting of the other handles.
    pub(crate) fn learn_torn(&mut self) -> Result<()> {
        self.double = self.load(TORN)? == TORN_DOUBLE;
        Ok(())
    }

    /// Changes it for all handles.
    pub(crate) fn set_torn(&mut self, torn: Torn) -> Result<()> {
        let double = is_double(torn, &*self.storage);
        if self.txn.is_some() {
            return Err(Error::Transaction("a write transaction is open"));
        }
        self.learn_torn()?;
        if self.double == double {
            return Ok(());
        }
        self.lock_write()?;
        let changed = self.change_torn(double);
        self.unlock_write()?;
        changed
    }

    fn change_torn(&mut self, double: bool) -> Result<()> {
        self.look_as_writer()?;
        if self.double == double {
            return Ok(());
        }
        if double || self.load(SETTLED)? < self.load(CURRENT)? {
            self.write_again()?;
            self.bring_home()?;
            self.settle_all()?;
        }
        // Otherwise the slots hold nothing but commits that the header calls settled.
        self.double = double;
        self.tell_torn()
    }

    /// Makes all commits durable and in place: no slot is needed, and no record names an earlier
    /// one. Nor is a record needed: pages that it names may be free, and a commit of `double` may tear
    /// them.
    fn settle_all(&mut self) -> Result<()> {
        let current = self.load(CURRENT)?;
        self.flush_storage()?;
        self.now_durable(current)?;
        self.release_quarantine()?;
        // Flushed before the first page is written, as every header is.
        let mut header = self.header.clone();
        header.settled = self.newest_over()?;
        self.write_header(header, None)?;
        self.store(SETTLED, current)
    }

    // ---- writing

    /// The slots' pages are neither free nor in a tree.
    pub(crate) fn protect_slots(&mut self) {
        protect(&mut self.space.map, &self.header);
    }

    pub(crate) fn slots(&self) -> Result<Slots> {
        Slots::of(&self.header).ok_or(Error::Transaction("there are no slots"))
    }

    /// Makes the slots large enough for so many pages, heads included, or smaller where they have been
    /// far too large for a while. Nothing but the file has changed if it fails.
    fn make_slots(&mut self, pages: usize) -> Result<()> {
        let too_big = |_| Error::TooBig("the transaction");
        let need = u32::try_from(pages).map_err(too_big)?;
        let largest = self.largest_of_many(need)?;
        let old = Slots::of(&self.header);
        let size = old.map_or(0, Slots::pages);
        if need > size {
            return self.grow_slots(need);
        }
        // Not while they hold rounds of the transaction.
        let is_only = self.txn()?.rounds.is_none();
        let enough = largest
            .map(size_for)
            .filter(|enough| is_only && size / TOO_LARGE > *enough);
        let (Some(old), Some(enough)) = (old, enough) else {
            return Ok(());
        };
        match self.change_slots(old.shrunk(enough)) {
            // The old ones are large enough. A flush that finds no room has failed like any other.
            Err(error) if error.is_full() => self.check_poison().map_err(|_| error),
            changed => changed,
        }
    }

    /// Gives the slots another place where so many pages have room.
    pub(crate) fn grow_slots(&mut self, need: u32) -> Result<()> {
        let slots = Slots::new_in(&self.space.map, size_for(need))?;
        self.settle_before(slots)?;
        self.reserve(slots)?;
        self.change_slots(slots)
    }

    /// Counts a commit, which takes so many pages of a slot. After every [`MANY`]: the most that one of
    /// them took, by any handle.
    fn largest_of_many(&self, need: u32) -> Result<Option<u32>> {
        let commits = self.load(SLOT_COMMITS)? + 1;
        let largest = self.load(SLOT_LARGEST)?.max(u64::from(need));
        let is_full = commits >= MANY;
        self.store(SLOT_COMMITS, if is_full { 0 } else { commits })?;
        self.store(SLOT_LARGEST, if is_full { 0 } else { largest })?;
        Ok(is_full.then(|| u32::try_from(largest).unwrap_or(u32::MAX)))
    }

    /// Before free pages within the file are written over with what has no version: no record may be
    /// needed any more. It could name one of these pages, of a commit with `Trust`.
    pub(crate) fn settle_before(&mut self, slots: Slots) -> Result<()> {
        if slots.start() >= self.space.map.hwm {
            return Ok(());
        }
        let free = self.base_free();
        self.settle_header(None, &free)
    }

    /// Gives the slots another place or size.
    pub(crate) fn change_slots(&mut self, slots: Slots) -> Result<()> {
        let old = Slots::of(&self.header);
        let mut next = self.space.map.clone();
        let mut free = self.base_free();
        for page in old.into_iter().flat_map(Slots::all) {
            next.insert(page);
            if page < free.hwm {
                free.insert(page);
            }
        }
        slots.protect(&mut next);
        slots.protect(&mut free);
        // The map is published when the commit is durable, and must not fail then.
        self.reserve_words(next.hwm)?;
        // A handle that dies before that leaves the pages of the old slots to the next writer.
        let version = self.version()?;
        self.store(WRITING, version)?;
        self.settle_header(Some(slots), &free)?;
        self.space.map = next;
        Ok(())
    }

    /// Writes a durable header to which every slot is settled, and no commit needs its record; with
    /// these slots from now on.
    pub(crate) fn settle_header(&mut self, slots: Option<Slots>, free: &FreeMap) -> Result<()> {
        self.bring_home()?; // MV38
        // Once this flush has returned, the pages that the old slots protect are in place.
        self.flush_storage()?;
        let over = self.newest_over()?;
        let mut header = self.header.clone();
        if let Some(slots) = slots {
            (header.slot_start, header.slot_pages) = (slots.start(), slots.pages());
        }
        (header.settled, header.floor) = (over, over);
        self.write_header(header, Some(free))?;
        self.flush_storage()?;
        self.store(SETTLED, over)
    }

    /// Writes zeros to new slots, before a header names them: a full disk shows here, and later
    /// commits have the space.
    pub(crate) fn reserve(&mut self, slots: Slots) -> Result<()> {
        self.forget_found();
        let zeros = room::zeros(AT_ONCE * PAGE_SIZE)?;
        let mut pages = slots.all().peekable();
        while let Some(first) = pages.next() {
            let mut count = 1;
            while count < AT_ONCE && pages.next_if_eq(&(first + count as u32)).is_some() {
                count += 1;
            }
            self.storage
                .write_at(PageNo(first).offset(), &zeros[..count * PAGE_SIZE])
                .map_err(Error::io("making room for a slot"))?;
            self.stats.slot_pages_written += count as u64;
        }
        Ok(())
    }

    /// Writes heads and images to a slot, which must have room for them.
    pub(crate) fn fill_slot(
        &mut self,
        slot: u32,
        stamp: Stamp,
        round: Round,
        layout: &Layout<'_>,
    ) -> Result<()> {
        // An earlier release would not find the images in a head: it must refuse the file.
        if !self.header.is_newest_format {
            return Err(Error::Transaction("the header is of an earlier format"));
        }
        let slots = self.slots()?;
        let heads = layout.heads(|number| slots.page(slot, number), self.salt, stamp, round);
        let heads = heads.iter().map(|head| &**head);
        let all: Vec<&Image> = heads.chain(layout.outside()).collect();
        if all.len() > slots.pages() as usize {
            // A defect. The pages behind are of the other slot, or of a tree.
            return Err(Error::TooBig("the images for their slot"));
        }
        let written = self.write_slot(slot, &all);
        written.map_err(|error| self.slot_failed(slot, stamp.ver, round, error))
    }

    /// A write of a slot has failed. If all of the slot is there, recovery would redo what the caller takes
    /// back. So nobody goes on before that.
    pub(crate) fn slot_failed(
        &mut self,
        slot: u32,
        version: u64,
        round: Round,
        error: Error,
    ) -> Error {
        // Where the disk is full, or memory is refused, each page is as before, or as written. After another
        // error nobody knows.
        let may_be_there = !(error.is_full() || matches!(error, Error::NoMemory))
            || match self.read_slot(slot, version - 1) {
                Ok(found) => found.is_some_and(|found| found.round == round),
                Err(_) => true,
            };
        match may_be_there {
            true => self.poison(error),
            false => error,
        }
    }

    /// Writes pages of a slot, from the first on.
    pub(crate) fn write_slot(&mut self, slot: u32, images: &[&Image]) -> Result<()> {
        let slots = self.slots()?;
        let mut from = 0;
        while from < images.len() {
            let first = slots.page(slot, from as u32);
            let mut to = from + 1;
            while to < images.len()
                && to - from < AT_ONCE
                && slots.page(slot, to as u32) == first + (to - from) as u32
            {
                to += 1;
            }
            let mut bytes = Vec::new();
            room::reserve(&mut bytes, (to - from) * PAGE_SIZE)?;
            bytes.extend(images[from..to].iter().flat_map(|image| &image[..]));
            let writing = Error::io("writing a slot");
            self.storage
                .write_at(PageNo(first).offset(), &bytes)
                .map_err(writing)?;
            self.stats.slot_pages_written += (to - from) as u64;
            from = to;
        }
        Ok(())
    }

    pub(crate) fn write_double(&mut self) -> std::result::Result<Written, Failed> {
        let mut images = self.images().map_err(Failed::Before)?;
        let stamp = self.stamp()?;
        // Also in place, so that the pages of a full slot have room; the slot's flush covers them
        // too.
        let new = self.write_new_pages(&mut images)?;
        let layout = Layout::of(&images);
        // Behind the new pages: if there is no room, the file has no hole where they stand.
        self.make_slots(layout.pages()).map_err(Failed::Before)?;
        let slot = self.load(SLOT)? as u32 & 1;
        self.write_what_stays_but(&images).map_err(Failed::Before)?;
        let number = self.txn()?.rounds.map_or(0, |rounds| rounds + 1);
        let round = Round {
            number,
            is_last: true,
        };
        self.fill_slot(slot, stamp, round, &layout)
            .map_err(Failed::Before)?;
        self.write_version_to_header()?;
        self.write_zeros_behind()?;
        // Nothing is written in place before this flush (MV26).
        self.flush_storage()?;
        let txn = self.txn()?;
        txn.rounds = txn.rounds.map(|_| number);
        let settled = txn.base;
        self.store(SETTLED, settled)?;
        self.store(SLOT, u64::from(slot ^ 1))?;
        let stays = self.stays_in(slot, &layout)?;
        let in_place = match stays {
            Some(_) => Vec::new(),
            None => images.split_off(new),
        };
        Ok(Written {
            flushed: true,
            in_place,
            stays,
            ..Written::default()
        })
    }

    // ---- reading

    /// Reads a slot: version, and page and place of each image. `None` if it is not whole, or not
    /// newer than `than`.
    pub(crate) fn read_slot(&mut self, slot: u32, than: u64) -> Result<Option<SlotContent>> {
        let Some(slots) = Slots::of(&self.header) else {
            return Ok(None);
        };
        let mut found = Vec::new();
        let (mut heads, mut first) = (0, None);
        while first.is_none_or(|(_, _, images)| found.len() < images as usize) {
            if heads >= self.header.slot_pages {
                return Ok(None);
            }
            let at = slots.page(slot, heads);
            let image = self.read_image(at)?;
            if page::verify(&image, PageNo(at), self.salt).is_err() {
                return Ok(None);
            }
            let Some(head) = heads::read_head(&image)? else {
                return Ok(None);
            };
            let Head { version, round, .. } = head;
            let this = (version, round, head.images);
            // A head of another round, or commit, may stand behind the first.
            if version <= than || *first.get_or_insert(this) != this {
                return Ok(None);
            }
            found.extend(head.named);
            heads += 1;
        }
        let Some((version, round, images)) = first else {
            return Ok(None);
        };
        let outside = found.iter().filter(|(.., inside)| inside.is_none()).count();
        let all = outside + heads as usize;
        if found.len() != images as usize || all > self.header.slot_pages as usize {
            return Ok(None);
        }
        let pages = (0..all as u32).map(|number| slots.page(slot, number));
        let pages: Vec<u32> = pages.collect();
        self.announce(&pages[heads as usize..]);
        let (salt, mut outside) = (self.salt, pages[heads as usize..].iter().copied());
        let mut places = Vec::with_capacity(found.len());
        for (page, crc, inside) in found {
            let place = match inside {
                Some(image) => Place::Head(image),
                None => Place::Page(outside.next().unwrap_or(u32::MAX)),
            };
            let is_it = |image: &Image| {
                page::identity(image, salt) == Some(PageNo(page)) && page::crc_of(image) == crc
            };
            let whole = match &place {
                Place::Head(image) => is_it(image),
                Place::Page(at) => is_it(&*self.read_image(*at)?),
            };
            if !whole {
                return Ok(None);
            }
            places.push((page, place));
        }
        Ok(Some(SlotContent {
            version,
            round,
            places,
            pages,
        }))
    }

    /// Writes both slots' images in place (MV27), where they are not there already, but for one that may stay.
    /// Where other handles live, versions before `published` are there, and that one is but for a page that its writer was
    /// bringing home.
    pub(crate) fn redo_slots(&mut self, published: u64) -> Result<Redone> {
        if published != 0 {
            // Its slot may be older: transactions after it were rolled back, and a header calls them over (MV58).
            self.write_what_stays()?;
        }
        let mut slots = Vec::new();
        for slot in [0, 1] {
            let unsettled = self.read_slot(slot, self.header.settled)?;
            slots.extend(unsettled.map(|content| (slot, content)));
        }
        slots.sort_unstable_by_key(|(_, s)| (s.version, s.round.number));
        // A commit with a late page may have written a page that only such a slot names.
        let unsettled = slots.last().map_or(0, |(_, s)| s.version);
        let named = slots.iter().flat_map(|(_, s)| &s.places);
        let places = named.map(|(page, _)| *page).collect();
        let next_slot = slots.last().map_or(0, |(slot, _)| slot ^ 1);
        slots.retain(|(_, s)| s.version >= published);
        let newest = slots.last().map(|(_, s)| (s.version, s.round));
        let stays = self.may_stay(slots.last().filter(|_| published == 0))?;
        // Of a page in both, the newer image (MV34). Readers may be there, and must not see it go back.
        let images: BTreeMap<u32, Place> = slots.into_iter().flat_map(|(_, s)| s.places).collect();
        // Its readers need its carrier until it is at home.
        let late = self.late()?.map_or(0, |late| late.page);
        let (first, rest): (Vec<_>, Vec<_>) =
            images.into_iter().partition(|(page, _)| *page == late);
        let mut written = false;
        for (page, place) in first.into_iter().chain(rest) {
            if stays.as_ref().is_some_and(|(stays, _)| stays.page == page) {
                continue;
            }
            let image = match place {
                Place::Page(at) => self.read_image(at)?,
                Place::Head(image) => image,
            };
            let in_place = self.read_image(page)?;
            if in_place == image || self.has_newer_change(page, &in_place, &image) {
                continue;
            }
            self.flush_what_was_found()?;
            let writing = Error::io("redoing a page");
            self.storage
                .write_at(PageNo(page).offset(), &image[..])
                .map_err(writing)?;
            self.forget_found();
            written = true;
        }
        if written {
            self.flush_storage()?;
        }
        Ok(Redone {
            newest,
            next_slot,
            unsettled,
            places,
            stays,
        })
    }

    /// True if a commit with a late page has written this page after the one that filled the slot. Then its
    /// change counts, and the slot only repairs the page (MV48).
    pub(crate) fn has_newer_change(&self, page: u32, in_place: &Image, image: &Image) -> bool {
        page::verify(in_place, PageNo(page), self.salt).is_ok()
            && page::change::late_page_of(in_place) != 0
            && u64_at(in_place, 32) > u64_at(image, 32)
    }
}

/// The last handle leaves no slots that take much of the file. They are settled in the header that
/// it writes, with this free map.
pub(crate) fn leave_small_slots(header: &mut Header, free: &mut FreeMap) {
    let Some(old) = Slots::of(header) else {
        return;
    };
    if old.pages() <= LEFT || old.pages() < free.hwm / SHARE {
        return;
    }
    let slots = old.shrunk(LEFT);
    old.all().for_each(|page| free.insert(page));
    slots.protect(free);
    header.slot_pages = slots.pages();
}

/// Pages of a slot for commits that need so many: some more.
pub(crate) fn size_for(need: u32) -> u32 {
    need.saturating_add(need / 4).max(SLOT_PAGES)
}

/// Keeps the pages of a header's slots out of a free map.
pub(crate) fn protect(free: &mut FreeMap, header: &Header) {
    if let Some(slots) = Slots::of(header) {
        slots.protect(free);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::{MAGIC, READY};
    use crate::{Db, Durability, MemoryFile, Options, TreeId, TreeKind};

    fn open(file: &MemoryFile) -> Result<Db> {
        let options = Options {
            torn: Torn::Double,
            ..Options::default()
        };
        Db::open(file.storage(), options)
    }

    fn change(db: &mut Db, change: impl FnOnce(&mut Db)) {
        db.begin_write().unwrap();
        change(db);
        db.commit(Durability::Flush).unwrap();
    }

    fn make_tree(db: &mut Db) -> TreeId {
        let mut tree = TreeId(0);
        change(db, |db| tree = db.create_tree(TreeKind::Integer).unwrap());
        tree
    }

    fn fill(db: &mut Db, tree: TreeId, rows: std::ops::Range<i64>) {
        change(db, |db| {
            for key in rows {
                db.put_integer(tree, key, &[7; 900]).unwrap();
            }
        });
    }

    fn slots(db: &Db) -> Slots {
        Slots::of(&db.core.header).unwrap()
    }

    /// Slots take pages that a slice of a dropped tree has freed. The rest of the tree leads there, and
    /// another handle's cache still has the pages as its nodes.
    #[test]
    fn a_stale_cache_frees_no_page_of_the_slots() {
        let file = MemoryFile::new();
        let (mut a, mut b) = (open(&file).unwrap(), open(&file).unwrap());
        let (large, small) = (make_tree(&mut b), make_tree(&mut b));
        fill(&mut b, large, 0..4800);
        (0..130).for_each(|_| fill(&mut b, small, 0..1));
        let before = slots(&b);
        let view = a.snapshot().unwrap();
        assert_eq!(a.count(view.version(), large).unwrap(), 4800);
        drop(view);
        a.release_dropped().unwrap();
        change(&mut b, |db| db.drop_tree(large).unwrap());
        make_tree(&mut b);
        fill(&mut b, small, 0..160);
        let now = slots(&b);
        assert!(now.pages() > before.pages() && now.end() < before.start());
        a.begin_write().unwrap();
        let mut cached: Vec<u32> = now.all().collect();
        cached.retain(|page| a.core.cache.get(*page).is_some_and(|n| n.tree == large.0));
        assert!(cached.len() > 20);
        // This is asked before a dead page is freed.
        cached.retain(|page| !a.core.is_free(*page));
        assert!(cached.is_empty(), "{cached:?}");
        a.create_tree(TreeKind::Integer).unwrap();
        assert_eq!(slots(&a), now);
        let freed = &a.core.txn().unwrap().freed;
        assert!(freed.len() > 400, "{}", freed.len());
        let of_slots: Vec<&u32> = freed.iter().filter(|page| now.contains(**page)).collect();
        assert!(of_slots.is_empty(), "{of_slots:?}");
        a.commit(Durability::Flush).unwrap();
        fill(&mut a, small, 0..1600);
        assert_eq!(a.check().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_page_that_was_kept_back_is_not_free_if_it_is_of_the_slots() {
        let file = MemoryFile::new();
        let mut db = open(&file).unwrap();
        let tree = make_tree(&mut db);
        fill(&mut db, tree, 0..1);
        let page = slots(&db).page(1, 3);
        db.core.space.keep_back(1, vec![page]);
        db.core.release_quarantine().unwrap();
        assert!(!db.core.space.keeps_any_back());
        assert!(!db.core.space.map.contains(page));
    }

    /// A release with this number in shared memory may free pages of the slots.
    #[test]
    fn a_release_that_frees_pages_of_the_slots_is_not_joined() {
        let file = MemoryFile::new();
        let db = open(&file).unwrap();
        db.core.store(READY, 0x4c53_4d56_4254_0005).unwrap();
        assert!(matches!(open(&file), Err(Error::Busy)));
        db.core.store(READY, MAGIC).unwrap();
        open(&file).unwrap();
    }
}
