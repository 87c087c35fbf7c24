//! Marks: the regions that recovery reads.
//!
//! A commit may write pages in regions that the header on the device does not mark. It writes a
//! header that does with its own pages, and one flush makes all of them durable. If a power cut
//! leaves pages without that header, their commit never happened: see [`crate::lost`]. A page that is
//! not marked yet has not been written since the floor moved, or by a slot of `double` that is settled.
//! So it has whole every version from then to the commit's base, and recovery goes back to one of
//! them. This takes two rules:
//!
//! - No page has a version above [`Header::reserved`] of a header that is durable (MV15). So recovery
//!   knows which numbers may be lost.
//! - The header is flushed before the next one is written.
//!
//! Where the first does not hold, the header is flushed before the pages (MV13). That is so in the first
//! commit after an open, without a flush after each commit, and before pages are spilled.

use std::collections::BTreeSet;

use crate::core::Core;
use crate::error::Result;
use crate::header::{Header, MAX_MARKS, Marks};
use crate::shared::{DURABLE, FREED, LATE_COMMITS, LOST_AFTER, LOST_TO, UNHEALED};

/// The time at which a header must be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// Before any of the pages is written.
    First,
    /// With the pages, by the flush of their commit.
    WithThePages,
}

/// Version numbers that a header reserves beyond its own.
pub(crate) const RESERVED: u64 = 4096;
/// A file has this many regions at most where recovery may read all of it, and so many single pages
/// are marked before regions grow. They cost a page of the header each.
const REGIONS: u32 = 64;
/// Marks of single pages above which the floor moves, where that is cheap.
const CHEAP: usize = 32;
/// Pages that are marked where the file grows.
const GROWTH: u32 = 16;
/// Free pages that are marked where some are taken.
const NEXT_FREE: usize = 8;
/// Commits for each header with new marks from which it is cheap to mark again.
const RARE: u64 = 16;

/// Pages of the largest region, for a file of `hwm` pages of which recovery may read `most`.
///
/// If that is all of them, regions may become so large that soon every one is marked. Otherwise a
/// random page is rarely in a marked region, whatever the size, and a region of one page costs
/// recovery least.
fn largest_region(hwm: u32, most: u32) -> u32 {
    if hwm <= most {
        hwm.div_ceil(REGIONS).next_power_of_two()
    } else {
        1
    }
}

impl Core {
    /// Makes sure that recovery will look at these pages, which the write transaction is about to
    /// write.
    pub(crate) fn mark_regions(&mut self, pages: &[u32], flushed: Flushed) -> Result<()> {
        if !self.double {
            self.bring_home()?; // MV38
        }
        let version = self.version()?;
        let reserved = self.header.reserved;
        let marked = pages.iter().all(|p| self.header.marks(*p));
        // A header that reserves nothing is flushed before the pages that it marks.
        let may_stand = version <= reserved || (reserved == 0 && marked);
        let for_long = version + RESERVED / 4 <= reserved || reserved == 0;
        // The free map has what a walk has freed.
        let has_healed = self.load(FREED)? != 0;
        if marked && may_stand && for_long && !has_healed {
            // Its writer may have died before it flushed it.
            return self.flush_what_was_found();
        }
        self.reserve_maps()?;
        let mut next = self.header.clone();
        self.account_for_lost(&mut next)?;
        let strict = next.is_full_of_lost();
        let first = flushed == Flushed::First || strict || version > reserved;
        let mut header = self.header.clone();
        header.reserved = if strict { 0 } else { version + RESERVED };
        // Slots may need no new mark for long. The free map must become durable in some header.
        let renews = self.double && marked && may_stand;
        let more = self.more_marks(pages, may_stand);
        match more.filter(|_| !renews && !has_healed) {
            Some((region, marks)) => {
                (header.region, header.marks) = (region, marks);
                self.write_header(header, None)?;
                self.marked_by += 1;
            }
            None => {
                // With `Double` it may be late until then.
                self.bring_home()?;
                self.move_floor(header, pages)?;
            }
        }
        if first { self.flush_storage() } else { Ok(()) }
    }

    /// The marks of the header with those of these pages, and their region, if they fit and the
    /// floor need not move.
    ///
    /// The first marks after the floor has moved are single pages. If they become many, the floor
    /// moves again, where that is cheap, or regions grow. So recovery reads little after few
    /// commits, and where the same pages change, and random changes soon need no mark.
    fn more_marks(&self, pages: &[u32], may_stand: bool) -> Option<(u32, Marks)> {
        let mut region = self.header.region;
        let Marks::Some(marks) = &self.header.marks else {
            return may_stand.then_some((region, Marks::All));
        };
        let strict = self.header.reserved == 0 && !marks.is_empty();
        if !(may_stand || strict) {
            return None;
        }
        let mut more = marks.clone();
        more.extend(pages.iter().map(|p| p / region));
        let largest = largest_region(self.space.map.hwm, self.options.recovery_pages);
        let few = REGIONS as usize;
        if more.len() > self.cheap_marks(region, largest) {
            return None;
        }
        if region < largest && more.len() > few {
            while region < largest && more.len() > few / 2 {
                region *= 2;
                more = more.iter().map(|mark| mark / 2).collect();
            }
        }
        let limit = match region < largest {
            true => few,
            false => self.most_marks(region),
        };
        self.mark_next(pages, region, limit, &mut more);
        (more.len() <= limit).then_some((region, Marks::Some(more)))
    }

    /// The marks above which the floor moves because that is cheap: few commits more need a mark then.
    fn cheap_marks(&self, region: u32, largest: u32) -> usize {
        // With `double` a page needs a mark only in the transaction in which it is born, rounds aside.
        if self.double && self.txn.as_ref().is_some_and(|txn| txn.rounds.is_none()) {
            return CHEAP;
        }
        let newest = self.newest_over().unwrap_or(self.header.floor);
        let commits = newest.saturating_sub(self.header.floor);
        match commits >= RARE * self.marked_by {
            true if self.space.map.hwm > self.options.recovery_pages => CHEAP,
            true if region < largest => REGIONS as usize,
            _ => usize::MAX,
        }
    }

    fn most_marks(&self, region: u32) -> usize {
        (self.options.recovery_pages / region).clamp(2, MAX_MARKS as u32) as usize
    }

    /// Marks also the pages that are born next, if some of these are born in the transaction and there is room: where
    /// the file will grow, or those that are free.
    fn mark_next(&self, pages: &[u32], region: u32, limit: usize, marks: &mut BTreeSet<u32>) {
        let last = pages.iter().copied().max().unwrap_or(0);
        let is_born = |page: &u32| self.txn.as_ref().is_some_and(|txn| txn.own.contains(page));
        let next: BTreeSet<u32> = if last + 1 == self.space.map.hwm {
            (last / region..=(last + GROWTH) / region).collect()
        } else if pages.iter().any(is_born) {
            let next = self.space.map.next_free(NEXT_FREE);
            next.map(|page| page / region).collect()
        } else {
            return;
        };
        if marks.len() + next.len() <= limit {
            marks.extend(next);
        }
    }

    /// Writes a header with a new floor: recovery need not read anything that is durable. The slots
    /// of `double` stay unsettled: the newest pages in place need not be durable.
    fn move_floor(&mut self, mut header: Header, pages: &[u32]) -> Result<()> {
        let base = self.txn()?.base;
        if self.load(DURABLE)? < base {
            self.flush_storage()?;
            self.now_durable(base)?;
            self.release_quarantine()?;
        }
        header.floor = self.newest_over()?;
        let txn = self.txn()?;
        let others = txn.dirty.keys().chain(txn.spilled.keys());
        let all: Vec<u32> = pages.iter().chain(others).copied().collect();
        let mut region = 1;
        let marks = loop {
            let marks: BTreeSet<u32> = all.iter().map(|p| p / region).collect();
            if marks.len() <= self.most_marks(region).max(MAX_MARKS / 2) {
                break marks;
            }
            // A large transaction: recovery reads more.
            region *= 2;
        };
        header.region = region;
        self.store(LATE_COMMITS, 0)?;
        let mut more = marks;
        self.mark_next(pages, region, self.most_marks(region), &mut more);
        header.marks = Marks::Some(more);
        let free = self.base_free();
        self.marked_by = 0;
        self.write_header(header, Some(&free))
    }

    // ---- lost versions

    /// The lost versions of a header, and those that the open has found.
    pub(crate) fn lost_with_news(&self, header: &Header) -> Result<crate::lost::Lost> {
        let mut lost = header.lost.clone();
        lost.add(self.load(LOST_AFTER)?, self.load(LOST_TO)?);
        Ok(lost)
    }

    /// Gives the next header its lost versions. When all of the database is healed, a history goes on
    /// counting without them, and nothing else needs them: true.
    ///
    /// The oldest version that is kept does not go back by that: readers and writers learn it from the
    /// header, and what is older than it may have been collected. A crash may go back to the newest
    /// durable version, so it is the oldest one kept next to that.
    pub(crate) fn account_for_lost(&self, next: &mut Header) -> Result<bool> {
        next.lost = self.lost_with_news(next)?;
        if !next.has_history() {
            next.counted = Default::default();
            return Ok(false);
        }
        let durable = self.load(DURABLE)?;
        if next.lost.ranges().is_empty() || self.load(UNHEALED)? != 0 || durable == 0 {
            return Ok(false);
        }
        let lost = std::mem::take(&mut next.lost);
        next.counted.add_healed(&lost);
        if self.header.history_seconds == 0 && next.history_seconds == 0 {
            let oldest = self.counted_since(durable);
            next.history_since = next.history_since.max(oldest);
            next.counted.forget_below(next.history_since);
        }
        Ok(true)
    }

    /// Declares lost what may be there of versions above `after` without recovery having seen it.
    /// The next header that is written has it; until then, shared memory.
    pub(crate) fn declare_lost(&mut self, after: u64, to: u64) -> Result<()> {
        // This handle may die in between, and another one may read it: half of it must be no range.
        self.store(LOST_TO, 0)?;
        self.store(LOST_AFTER, after)?;
        self.store(LOST_TO, to)
    }

    /// Learns which versions are lost. No handle that has the database open adds any.
    pub(crate) fn learn_lost(&mut self) -> Result<()> {
        self.lost = self.lost_with_news(&self.header.clone())?;
        Ok(())
    }
}
