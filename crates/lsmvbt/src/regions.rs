//! Reading the pages that recovery looks at: the marked regions, and the places of slots.
//!
//! Pages that follow each other are one read. The storage hears of all of them before the first is
//! read, so that a device may read many at once. Pages that recovery has read before are not read again.

use crate::core::Core;
use crate::error::{Error, Result};
use crate::freemap::is_fixed;
use crate::header::Marks;
use crate::page::{Image, u64_at};
use crate::recover::{Seen, seen};
use crate::room;
use crate::slots::Slots;
use crate::tree::catalog::DIRECTORY;
use crate::types::{PAGE_SIZE, PageNo};

/// Pages of a region in one read: 64 KiB, the most that a VFS is asked for.
const AT_ONCE: u32 = 16;

/// The first of some pages that follow each other, and their number.
type Run = (u32, u32);

/// The runs of these pages, which are in order.
fn runs_of(pages: &[u32]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for page in pages {
        match runs.last_mut() {
            Some((first, count)) if *first + *count == *page && *count < AT_ONCE => *count += 1,
            _ => runs.push((*page, 1)),
        }
    }
    runs
}

impl Core {
    /// The pages of marked regions, and these, in order: not the slots.
    pub(crate) fn pages_to_look_at(&self, others: &[u32], end: u32) -> Vec<u32> {
        let slots = Slots::of(&self.header);
        let in_trees = |page: &u32| {
            (*page == DIRECTORY || !is_fixed(*page)) && !slots.is_some_and(|s| s.contains(*page))
        };
        let regions: Vec<u32> = match &self.header.marks {
            Marks::Some(set) => set.iter().copied().collect(),
            Marks::All => (0..end.div_ceil(self.header.region)).collect(),
        };
        let pages_of = |region: u32| {
            let size = self.header.region;
            region.saturating_mul(size)..region.saturating_add(1).saturating_mul(size).min(end)
        };
        let others = others.iter().filter(|page| **page < end);
        let mut pages: Vec<u32> = regions.into_iter().flat_map(pages_of).collect();
        pages.extend(others);
        pages.retain(in_trees);
        pages.sort_unstable();
        pages.dedup();
        pages
    }

    /// Tells the storage which pages recovery is about to read, as far as the header says it.
    pub(crate) fn announce_regions(&self) -> Result<()> {
        let mut pages = self.pages_to_look_at(&[], self.pages_of_file()?);
        let slots = Slots::of(&self.header);
        pages.extend(
            slots
                .iter()
                .flat_map(|slots| [0, 1].map(|slot| slots.page(slot, 0))),
        );
        pages.sort_unstable();
        self.announce(&pages);
        Ok(())
    }

    /// Tells the storage that it will be asked for these pages, which are in order.
    pub(crate) fn announce(&self, pages: &[u32]) {
        let unknown = pages
            .iter()
            .filter(|page| self.found_image(**page).is_none());
        let runs = runs_of(&unknown.copied().collect::<Vec<_>>());
        let bytes = |(first, count): &Run| {
            (
                PageNo(*first).offset(),
                u64::from(*count) * PAGE_SIZE as u64,
            )
        };
        self.storage
            .will_read(&runs.iter().map(bytes).collect::<Vec<_>>());
    }

    /// The data of those of these pages that are newer than the floor. The pages are in order.
    pub(crate) fn look_at_pages(&mut self, pages: &[u32]) -> Result<Vec<Seen>> {
        let mut news = Vec::new();
        let mut unknown = Vec::with_capacity(pages.len());
        for page in pages {
            match self.found_image(*page) {
                Some(image) => news.extend(self.newer_than_floor(*page, image)),
                None => unknown.push(*page),
            }
        }
        let runs = runs_of(&unknown);
        let longest = runs.iter().map(|(_, count)| *count).max().unwrap_or(0);
        let mut bytes = room::zeros(longest as usize * PAGE_SIZE)?;
        let (mut newest, mut record) = ((0, 0), room::image()?);
        for (first, count) in runs {
            let got = self
                .storage
                .read_at(
                    PageNo(first).offset(),
                    &mut bytes[..count as usize * PAGE_SIZE],
                )
                .map_err(Error::io("reading a region"))?;
            self.stats.pages_read += (got / PAGE_SIZE) as u64;
            for (page, chunk) in (first..).zip(bytes[..got].chunks_exact(PAGE_SIZE)) {
                let Ok(image) = <&Image>::try_from(chunk) else {
                    continue;
                };
                let seen = self.newer_than_floor(page, image);
                if let Some(seen) = seen
                    .as_ref()
                    .filter(|seen| seen.carries && seen.ver > newest.0)
                {
                    newest = (seen.ver, page);
                    record.copy_from_slice(image);
                }
                news.extend(seen);
            }
        }
        // Recovery reads the newest record.
        if newest.0 > 0 {
            self.note_found(newest.1, &record)?;
        }
        Ok(news)
    }

    fn newer_than_floor(&self, page: u32, image: &Image) -> Option<Seen> {
        match u64_at(&image[..], 32) > self.header.floor {
            true => seen(image, page, self.salt),
            false => None,
        }
    }
}
