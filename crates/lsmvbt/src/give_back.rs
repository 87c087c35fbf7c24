//! Giving space back: free pages at the end of the file go, and it becomes shorter.
//!
//! The order of [`Core::give_back`], under the writer's lock:
//!
//! 1. Flush. All commits are durable, and in place.
//! 2. A header is written that ends before the pages, and flushed. All commits are settled in it, and
//!    its floor is the newest number. So neither a slot nor a record that names the pages is needed.
//! 3. The shared memory gets the new end.
//! 4. The file is cut.
//!
//! A crash before the header is durable leaves the one before it, and all pages. Later it leaves the
//! new one: a header is only written over when the other one is durable. The cut need not be durable,
//! and may fail: what stands behind the end is older than the floor, and counts for nothing. The next
//! call cuts again.

use crate::core::Core;
use crate::double::SLOT_PAGES;
use crate::error::{Error, Result};
use crate::freemap::{FIRST, MAP_AT, SPAN};
use crate::header::Marks;
use crate::shared::SETTLED;
use crate::slots::Slots;
use crate::types::{PAGE_SIZE, PageNo};

impl Core {
    /// Gives free pages at the end of the file back, from page `end` on.
    pub(crate) fn give_back(&mut self, end: u32) -> Result<()> {
        self.begin_write(None)?;
        let given = self.give_back_locked(end);
        self.rollback()?;
        given
    }

    fn give_back_locked(&mut self, end: u32) -> Result<()> {
        let base = self.txn()?.base;
        self.bring_home()?;
        self.flush_storage()?;
        self.now_durable(base)?;
        self.release_quarantine()?;
        self.lower_slots(end)?;
        // Since a part chose its end, others may have made the file shorter than that.
        let end = end.max(self.space.map.used_end()).min(self.space.map.hwm);
        // After a recovery only pages behind the end of the free map may go. The record of the newest
        // commit may name them, so it must not be needed any more.
        let is_needed = self.header.floor < self.newest_over()?;
        if end < self.space.map.hwm || is_needed && self.is_longer_than(end)? {
            self.lower_end(end)?;
        }
        self.cut()
    }

    /// Writes a durable header that ends at `end`, and publishes it.
    fn lower_end(&mut self, end: u32) -> Result<()> {
        let mut header = self.header.clone();
        // As in every clean header: numbers of rolled-back transactions are used up, too.
        let over = self.newest_over()?;
        (header.floor, header.settled) = (over, over);
        header.marks = Marks::Some(Default::default());
        header.reserved = 0;
        let mut free = self.base_free();
        free.truncate(end);
        self.marked_by = 0;
        self.write_header(header, Some(&free))?;
        self.flush_storage()?;
        self.store(SETTLED, over)?;
        self.space.map.truncate(end);
        self.publish_free()
    }

    fn is_longer_than(&self, end: u32) -> Result<bool> {
        Ok(self.file_size()? > PageNo(end).offset())
    }

    /// Cuts the file where its last page ends. The maps of the last span stay.
    fn cut(&mut self) -> Result<()> {
        let last_span = (self.space.map.spans() as u32 - 1) * SPAN;
        let pages = self.space.map.hwm.max(last_span + MAP_AT[1] + 1).max(FIRST);
        let end = u64::from(pages) * PAGE_SIZE as u64;
        if self.file_size()? <= end {
            return Ok(());
        }
        let cutting = Error::io("making the file shorter");
        self.storage.truncate(end).map_err(cutting)
    }

    /// Slots from page `end` on that are larger than the smallest ones become so. Others stay: the next
    /// commit of that size would have to make room for them again. They move to free pages nearer to the
    /// beginning, if there are enough next to each other. They stay if a file system that copies on
    /// write has no room for the header.
    fn lower_slots(&mut self, end: u32) -> Result<()> {
        let Some(old) = Slots::of(&self.header) else {
            return Ok(());
        };
        if old.end() <= end {
            return Ok(());
        }
        let smaller = old.shrunk(SLOT_PAGES);
        let other = Slots::new_in(&self.space.map, smaller.pages())?;
        let moves = other.start() < old.start();
        let slots = if moves { other } else { smaller };
        if slots == old {
            return Ok(());
        }
        let mut changed = Ok(());
        if moves {
            changed = self.settle_before(slots).and_then(|()| self.reserve(slots));
        }
        match changed.and_then(|()| self.change_slots(slots)) {
            Err(error) if error.is_full() => self.check_poison(),
            changed => changed,
        }
    }
}
