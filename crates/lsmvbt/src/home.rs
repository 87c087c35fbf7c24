//! Late pages: how they are read, come home, and are found after a crash. See [`crate::late`].

use std::sync::Arc;

use crate::core::Core;
use crate::error::{Error, Result};
use crate::heads::Layout;
use crate::late::MOST;
use crate::page::change::{self, Cleared};
use crate::page::{self, Image, Node, NodeRef, Stamp};
use crate::recover::{Seen, seen};
use crate::room;
use crate::rounds::Round;
use crate::shared::{CURRENT, DURABLE, LATE, LATE_COMMITS, SLOT};
use crate::types::PageNo;

/// A late page, and the page that carries its change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Late {
    pub(crate) page: u32,
    pub(crate) carrier: u32,
}

impl Late {
    fn of_word(word: u64) -> Option<Late> {
        let (page, carrier) = ((word >> 32) as u32, word as u32);
        (page != 0).then_some(Late { page, carrier })
    }

    fn word(late: Option<Late>) -> u64 {
        late.map_or(0, |late| {
            u64::from(late.page) << 32 | u64::from(late.carrier)
        })
    }
}

/// The stamp of a page that comes home in the newest version, which is durable. Changes may have led over this
/// page to the record of that version, and end here now. So it says that the version is durable (MV42).
fn at_home(version: u64) -> Stamp {
    Stamp {
        ver: version,
        from: version,
        durable: version,
    }
}

/// The stamp of a late page that is only made in memory: of the commit that has left it late.
fn home_stamp(carrier: &Image) -> Stamp {
    Stamp {
        durable: page::u64_at(carrier, 40),
        ..at_home(page::u64_at(carrier, 32))
    }
}

/// True if a page has come home: it is not older than its carrier.
pub(crate) fn is_home(in_place: &Image, carrier: &Image) -> bool {
    page::u64_at(in_place, 32) >= page::u64_at(carrier, 32)
}

impl Core {
    /// The late page, if there is one.
    pub(crate) fn late(&self) -> Result<Option<Late>> {
        Ok(Late::of_word(self.load(LATE)?))
    }

    pub(crate) fn set_late(&self, late: Option<Late>) -> Result<()> {
        self.store(LATE, Late::word(late))
    }

    /// A node as the newest commit has left it, from the storage. One look: it fails if a writer is in
    /// the middle of the page, or brings it home just now.
    pub(crate) fn read_node(&mut self, page: u32) -> Result<Node> {
        let late = self.late()?.filter(|late| late.page == page);
        let stays = self.stays()?.filter(|stays| stays.page == page);
        let image = match stays {
            Some(stays) => self.image_in_slot(stays),
            None => self.read_image(page),
        };
        // The page cache may have dropped what a failed flush has left there.
        self.check_poison()?;
        let image = image?;
        let mut node = Node::decode(&image, PageNo(page), self.salt)?;
        if let Some(before) = self.lost.before(node.ver) {
            node.strip(before);
        }
        match late {
            Some(late) => self.with_change(node, &image, late),
            None => Ok(node),
        }
    }

    /// The node of a late page. It may have come home just now. Its carrier is only written over after
    /// that, and after the word says so.
    fn with_change(&mut self, node: Node, in_place: &Image, late: Late) -> Result<Node> {
        let carrier = self.read_image(late.carrier)?;
        self.check_poison()?;
        page::verify(&carrier, PageNo(late.carrier), self.salt)?;
        if is_home(in_place, &carrier) {
            return Ok(node); // MV44
        }
        let next = self.next_image_of(late, &carrier, in_place)?;
        let next = next.stamped(home_stamp(&carrier))?;
        let next = Node::decode(&next, PageNo(late.page), self.salt)?;
        Ok(change::late_node(&node, &next))
    }

    /// The next image of a late page, cleared.
    pub(crate) fn next_image_of(
        &self,
        late: Late,
        carrier: &Image,
        in_place: &Image,
    ) -> Result<Cleared> {
        let damaged = |what| Error::Damaged {
            page: PageNo(late.page),
            what,
        };
        let change = change::change_of(carrier)
            .filter(|change| page::u32_at(change, 0) == late.page)
            .ok_or(damaged("no page carries its change any more"))?;
        Cleared::by(&change, in_place)?.ok_or(damaged(
            "the change that another page carries for it does not begin from it",
        ))
    }

    /// Writes the late page, if there is one, and flushes it. Every writer does this before it writes
    /// anything that is no such commit (MV38, MV39). A page that stays in its slot is written as well, and has the
    /// slot until the next flush. The caller must hold WRITE, or be alone.
    pub(crate) fn bring_home(&mut self) -> Result<()> {
        self.write_what_stays()?;
        let Some(late) = self.late()? else {
            return Ok(());
        };
        let node = match self.cache.get(late.page) {
            Some(node) => node,
            None => Arc::new(self.read_node(late.page)?),
        };
        let version = self.flush_newest()?;
        match self.double {
            true => self.write_home_through_slot(&node, version)?,
            false => self.write_home(&node, version)?,
        }
        self.set_late(None)
    }

    /// Flushes, if the newest version is not durable. Returns that one.
    pub(crate) fn flush_newest(&mut self) -> Result<u64> {
        let version = self.load(CURRENT)?;
        if self.load(DURABLE)? < version {
            self.flush_storage()?;
            self.now_durable(version)?;
        }
        Ok(version)
    }

    /// Writes a page as this version has left it, which is the newest one and durable, and flushes it.
    pub(crate) fn write_home(&mut self, node: &NodeRef, version: u64) -> Result<()> {
        let image = node.encode(self.salt, at_home(version))?;
        self.write_home_image(node.page.0, image)?;
        self.flush_storage()
    }

    pub(crate) fn write_home_image(&mut self, page: u32, image: Box<Image>) -> Result<()> {
        // A file system that copies on write may be full. The page is as before, or home.
        self.write_images(&[(page, image)])
            .map_err(|e| if e.is_full() { e } else { self.poison(e) })
    }

    /// The same where the page may tear: as if the newest version had been a commit through a slot (MV51).
    fn write_home_through_slot(&mut self, node: &NodeRef, version: u64) -> Result<()> {
        let images = [(node.page.0, node.encode(self.salt, at_home(version))?)];
        // Not the one that has the newest commit (MV53).
        let slot = self.load(SLOT)? as u32 & 1;
        let round = Round {
            number: 0,
            is_last: true,
        };
        self.fill_slot(slot, at_home(version), round, &Layout::of(&images))?;
        self.flush_storage()?; // MV26
        self.store(SLOT, u64::from(slot ^ 1))?;
        let [(page, image)] = images;
        self.write_home_image(page, image)
    }

    // ---- with other commits

    /// With `Double`, a commit that leaves no page late brings the late one home in its slot, next to its own
    /// pages and with one flush. Until the slot is whole, the page is late as before.
    pub(crate) fn take_late_page_along(&mut self) -> Result<()> {
        let Some(late) = self.late()?.filter(|_| self.double) else {
            return Ok(());
        };
        let txn = self.txn()?;
        // A page that it frees may be used again before its slot is written over.
        if txn.dirty.is_empty() || txn.written.is_some() || txn.freed.contains(&late.page) {
            return Ok(());
        }
        if txn.dirty.contains_key(&late.page) {
            return Ok(());
        }
        room::for_a_page()?;
        let keep = self.keep()?;
        let mut node = (*self.node(late.page)?).clone();
        // Without what nobody needs any more, its gap is larger.
        let gone = node.sift(|e| e.overflow != 0 || !Self::collectable(&keep, e));
        self.stats.collected += gone.len() as u64;
        self.txn()?.dirty.insert(late.page, NodeRef::new(node));
        Ok(())
    }

    /// Writes what a commit through a slot writes in place. A reader of the late page finds it at home before
    /// its carrier is written over.
    pub(crate) fn write_in_place_after_late(&mut self, images: &[(u32, Box<Image>)]) -> Result<()> {
        let Some(late) = self.late()?.filter(|_| !images.is_empty()) else {
            return self.write_images(images);
        };
        let home = images.iter().position(|(page, _)| *page == late.page);
        let is_freed = self.txn()?.freed.contains(&late.page);
        debug_assert!(home.is_some() || is_freed, "{late:?} stays away");
        let (before, rest) = images.split_at(home.unwrap_or(0));
        let (home, after) = rest.split_at(usize::from(home.is_some()));
        self.write_images(home)?;
        self.set_late(None)?;
        self.write_images(before)?;
        self.write_images(after)
    }

    // ---- recovery

    /// Adds the pages to which the changes lead that recovery has seen. Pages are in order, before and after.
    pub(crate) fn follow_changes(&mut self, found: &mut Vec<Seen>, end: u32) -> Result<()> {
        let mut at = 0;
        while at < found.len() {
            let page = found[at].late;
            at += 1;
            if page == 0 || page >= end || found.iter().any(|s| s.page == page) {
                continue;
            }
            let image = self.read_image(page)?;
            if page::u64_at(&image[..], 32) > self.header.floor {
                found.extend(seen(&image, page, self.salt));
            }
        }
        found.sort_unstable_by_key(|s| s.page);
        Ok(())
    }

    /// Writes the late page home if it was torn when it came home: with `Double`. All others were flushed
    /// before, so only the newest carrier may have such a change (MV50). It is newer than `than`, see
    /// [`Core::learn_late`].
    pub(crate) fn repair_late_page(&mut self, found: &mut Vec<Seen>, than: u64) -> Result<()> {
        let end = self.pages_of_file()?;
        let Some(Late { page, carrier }) = newest_carrier(found, than) else {
            return Ok(());
        };
        if page >= end {
            return Ok(());
        }
        let torn = self.read_image(page)?;
        if page::verify(&torn, PageNo(page), self.salt).is_ok() {
            return Ok(());
        }
        let carrier = self.read_image(carrier)?;
        let Some(change) = change::change_of(&carrier) else {
            return Ok(());
        };
        let Some(next) = Cleared::by(&change, &torn)? else {
            return Ok(());
        };
        let image = next.stamped(at_home(page::u64_at(&carrier[..], 32)))?;
        self.flush_what_was_found()?;
        self.forget_found();
        found.extend(seen(&image, page, self.salt));
        found.sort_unstable_by_key(|s| s.page);
        self.write_images(&[(page, image)])?;
        // It is not late any more, so its carrier may be written over (MV49).
        self.flush_storage()
    }

    /// Finds the page that is late, among the pages that recovery has seen. Its carrier is newer than `than`:
    /// the floor, what is settled, and what the slots have. An older carrier may name a page that was freed
    /// since, and is torn (MV50).
    pub(crate) fn learn_late(
        &mut self,
        pages: &[Seen],
        than: u64,
        are_settled: bool,
    ) -> Result<Option<Late>> {
        let late = newest_carrier(pages, than).filter(|late| {
            let ver_of = |page: u32| {
                let at = pages.binary_search_by_key(&page, |s| s.page);
                at.map_or(0, |at| pages[at].ver)
            };
            ver_of(late.page) < ver_of(late.carrier)
        });
        self.set_late(late)?;
        // The slots must be settled before a page that they have is written twice (MV47).
        let commits = match are_settled {
            false => MOST,
            true => pages.iter().filter(|s| s.late != 0).count() as u64,
        };
        self.store(LATE_COMMITS, commits)?;
        Ok(late)
    }
}

/// The newest page that carries a change, if it is newer than `than`, and the page that the change is for.
fn newest_carrier(pages: &[Seen], than: u64) -> Option<Late> {
    let carriers = pages.iter().filter(|s| s.late != 0);
    let newest = carriers.max_by_key(|s| s.ver).filter(|s| s.ver > than)?;
    Some(Late {
        page: newest.late,
        carrier: newest.page,
    })
}
