//! Writing again what only the page cache may hold.
//!
//! After a failed flush Linux counts the pages that were dirty as clean. Reads still find them, and
//! the next flush succeeds without them. The handle that gets the error poisons the shared memory.
//! But it may die in the flush, or be the last one. So a handle that opens an unclean database, or
//! finds that another one died in a flush, believes no page that it only finds. It writes again
//! what no successful flush has covered. Then the pages are dirty, and the next flush counts.
//!
//! It writes the header with its maps, and the pages newer than the newest durable version. With
//! `double` it also writes the slots, and the pages in place whose images they have.
//! [`crate::shared::AGAIN`] says that this is still to be done.

use std::collections::BTreeSet;

use crate::core::Core;
use crate::error::{Error, Result};
use crate::header::Header;
use crate::heads;
use crate::page::{self, u64_at};
use crate::recover::Seen;
use crate::shared::{AGAIN, CURRENT, DURABLE, HEADER_DURABLE};
use crate::slots::Slots;
use crate::types::PageNo;

impl Core {
    /// The next writer, in a database without a broken commit: writes everything again and flushes
    /// it, if that is still to be done. The caller must hold WRITE, or be alone.
    pub(crate) fn write_again(&mut self) -> Result<()> {
        if self.load(AGAIN)? == 0 {
            return Ok(());
        }
        self.write_header_again()?;
        self.write_slots_again()?;
        let pages = self.look_at_regions(&[])?;
        self.write_pages_again(&pages, 0)?;
        self.flush_storage()?;
        let current = self.load(CURRENT)?;
        self.now_durable(current)?;
        self.store(AGAIN, 0)
    }

    /// Writes the header and its maps again, in the same places.
    pub(crate) fn write_header_again(&mut self) -> Result<()> {
        let header = self.header.clone();
        for (at, map) in header.map_pages() {
            let image = self.read_image(at)?;
            if page::crc_of(&image) != map.crc {
                // The page cache has dropped it, so the header is not the one on the device.
                return Err(changed(at, "its free map is not that of the header"));
            }
            self.write_one_again(at, &image[..])?;
            self.stats.header_pages_written += 1;
        }
        let at = header.page();
        // As it stands there: it may be one of format 1.
        let image = self.read_image(at.0)?;
        let found = Header::decode(&image, at)?;
        // A walk that has ended forgets lost versions in memory first, and the format is that of both pages.
        let is_it = found.is_some_and(|found| {
            let (lost, is_newest_format) = (header.lost.clone(), header.is_newest_format);
            Header {
                lost,
                is_newest_format,
                ..found
            } == header
        });
        if !is_it {
            return Err(changed(at.0, "another header stands there"));
        }
        self.store(HEADER_DURABLE, 0)?;
        self.write_one_again(at.0, &image[..])?;
        self.stats.header_pages_written += 1;
        self.header_flushed = false;
        Ok(())
    }

    /// Writes the pages again that are newer than any version known to be durable, and than `redone`, the
    /// newest one of a slot.
    pub(crate) fn write_pages_again(&mut self, pages: &[Seen], redone: u64) -> Result<()> {
        let bases = pages.iter().map(|s| s.base).max().unwrap_or(0);
        let header = self.header.floor.max(self.header.settled);
        let durable = bases.max(header).max(redone).max(self.load(DURABLE)?);
        // A late page that has come home has the number of the durable version, and began from none.
        let is_home = |s: &Seen| s.ver == durable && s.from.is_none();
        for s in pages.iter().filter(|s| s.ver > durable || is_home(s)) {
            let image = self.read_image(s.page)?;
            if page::crc_of(&image) != s.crc {
                return Err(changed(s.page, "it changed during recovery"));
            }
            self.write_one_again(s.page, &image[..])?;
            self.stats.pages_written += 1;
            self.header_flushed = false;
        }
        Ok(())
    }

    /// Writes the slots again that are not settled, and the pages in place of which they have
    /// images, as they are. Those that are torn, or older, are redone from the slots.
    ///
    /// No flush is needed in between. A page in place only has an image of a slot whose flush
    /// succeeded, or was born in the slot's commit, and then nobody reads it without the slot.
    pub(crate) fn write_slots_again(&mut self) -> Result<()> {
        let mut in_place = BTreeSet::new();
        for slot in [0, 1] {
            let Some(content) = self.read_slot(slot, self.header.settled)? else {
                continue;
            };
            for at in content.pages {
                let image = self.read_image(at)?;
                self.write_one_again(at, &image[..])?;
                self.stats.slot_pages_written += 1;
            }
            in_place.extend(content.places.into_iter().map(|(page, _)| page));
        }
        self.announce(&in_place.iter().copied().collect::<Vec<_>>());
        for at in in_place {
            let image = self.read_image(at)?;
            if page::verify(&image, PageNo(at), self.salt).is_ok() {
                self.write_one_again(at, &image[..])?;
                self.stats.pages_written += 1;
            }
        }
        Ok(())
    }

    /// After a crash: flushes what a power cut could take back after an open has shown it.
    pub(crate) fn flush_what_may_go(&mut self, pages: &[Seen]) -> Result<()> {
        // Perhaps a rollback has settled a slot, or written the page.
        match self.a_settled_slot_may_come_back()? || newest_is_home(pages) {
            true => self.flush_storage(),
            false => Ok(()),
        }
    }

    /// True if a power cut could bring back a slot that the header calls settled: the header may be
    /// in the page cache only, and the one before it would redo the slot.
    fn a_settled_slot_may_come_back(&mut self) -> Result<bool> {
        let settled = self.header.settled;
        // A header is written over the one before the last when the last is durable. So after a
        // power cut the file has this header or the other one.
        let at = PageNo(1 - self.header.page().0);
        let image = self.read_image(at.0)?;
        let other = Header::decode(&image, at).ok().flatten();
        if other.is_some_and(|other| other.salt == self.salt && other.settled >= settled) {
            return Ok(false);
        }
        for slot in [0, 1] {
            if self.read_slot_version(slot)? == Some(settled) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The version in a slot's head. The slot need not be whole.
    fn read_slot_version(&mut self, slot: u32) -> Result<Option<u64>> {
        let Some(slots) = Slots::of(&self.header) else {
            return Ok(None);
        };
        let at = slots.page(slot, 0);
        let image = self.read_image(at)?;
        let is_head = page::verify(&image, PageNo(at), self.salt).is_ok() && heads::is_head(&image);
        Ok(is_head.then(|| u64_at(&image[..], 32)))
    }

    fn write_one_again(&self, at: u32, image: &[u8]) -> Result<()> {
        let writing = Error::io("writing a page again");
        self.storage
            .write_at(PageNo(at).offset(), image)
            .map_err(writing)
    }
}

/// True if a page that came home is the newest one. It may stand over that of a commit that was refused.
fn newest_is_home(pages: &[Seen]) -> bool {
    let newest = pages.iter().map(|s| s.ver).max();
    let is_home = |s: &Seen| s.from.is_none() && s.base == s.ver && Some(s.ver) == newest;
    pages.iter().any(is_home)
}

fn changed(page: u32, what: &'static str) -> Error {
    let page = PageNo(page);
    Error::Damaged { page, what }
}
