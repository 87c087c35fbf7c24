//! Which commits are complete, by their records and the pages that recovery has read.

use crate::core::Core;
use crate::error::Result;
use crate::page::{self, PageType};
use crate::recover::Seen;

impl Core {
    /// The version from which the broken commit `top` began, if it is complete and newer than
    /// `durable`. Pages that `top` has written again count if it began there (MV23). They still have
    /// all of that version, because a transaction keeps what its beginning sees (MV8).
    pub(crate) fn whole_before(&mut self, top: u64, durable: u64, pages: &[Seen]) -> Result<u64> {
        let carriers = pages.iter().filter(|s| s.carries && s.ver < top);
        let before = carriers.map(|s| s.ver).max().unwrap_or(0);
        let mut later = pages.iter().filter(|s| s.ver > before);
        if before > durable
            && later.all(|s| s.from == Some(before))
            && self.is_complete(before, pages)?
        {
            return Ok(before);
        }
        Ok(durable)
    }

    /// True if the commit of version `version` is complete. Its pages count only where recovery has
    /// looked (MV14). One that is newer counts as one of them: see [`Core::whole_before`].
    pub(crate) fn is_complete(&mut self, version: u64, pages: &[Seen]) -> Result<bool> {
        let Some(carrier) = pages.iter().find(|s| s.ver == version && s.carries) else {
            return Ok(false);
        };
        let image = self.read_image(carrier.page)?;
        let Some(mut record) = page::record_of(&image) else {
            return Ok(false);
        };
        let there = |page: u32, crc: u32| {
            pages
                .binary_search_by_key(&page, |s| s.page)
                .is_ok_and(|i| pages[i].crc == crc || pages[i].ver > version)
        };
        // A list page is used once: the number of pages is a sufficient limit.
        for _ in 0..=pages.len() {
            if !record.pages.iter().all(|(page, crc)| there(*page, *crc)) {
                return Ok(false);
            }
            if record.list == 0 {
                return Ok(true);
            }
            let list = record.list;
            let known = pages
                .binary_search_by_key(&list, |s| s.page)
                .map(|i| &pages[i]);
            if !known.is_ok_and(|s| s.kind == PageType::Record.byte() && s.ver == version) {
                return Ok(false);
            }
            let image = self.read_image(list)?;
            let Some(next) = page::record_of(&image) else {
                return Ok(false);
            };
            record = next;
        }
        Ok(false)
    }
}
