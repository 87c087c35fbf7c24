//! Healing: after a crash, a walk in small steps finds the pages that nothing leads to any more, and
//! frees them.
//!
//! A crash takes back the free map of the last header that has one. Pages that were freed since then
//! are in no map and in no tree. Nothing ever leads to them again, so the rest of the file is found
//! by a walk that goes on while transactions change it:
//!
//! - The walk begins at the directory. [`Reached`] has the pages that it has reached, in the memory of the
//!   handle. Every transaction begins with a step. The last handle makes one more when it closes.
//! - A page that was visited and is written afterwards, by any handle, is visited again. So in the
//!   end every page in use has been visited after its last write, and what it leads to as well.
//! - A handle that missed what others have written begins again, with larger steps.
//! - Live entries come first, then what only dead ones lead to. So an error below a dead entry hides
//!   no page that is live as well: a root that was replaced leads to the pages of its replacement.
//! - At the end, all pages that are neither visited nor free become free. That needs a durable base: a
//!   power cut must not go back to a version that had them in use. The next commit writes a header
//!   with the free map, so that the next crash does not take them back.
//! - Pages that a lost version wrote last are written again, some with every transaction. When that is
//!   durable, nothing leads to a page of a lost version, and the ranges can be forgotten: see
//!   [`crate::lost`].
//!
//! [`crate::header::Header::unhealed`] tells the next handle that there is something left to do.

use std::collections::BTreeSet;

use crate::core::Core;
use crate::double::SLOT_PAGES;
use crate::error::{Error, Result};
use crate::freemap::is_fixed;
use crate::header::Marks;
use crate::page::{Entry, NodeRef, PageType};
use crate::reached::{Reach, Reached};
use crate::shared::{CURRENT, DURABLE, FREED, UNHEALED};
use crate::slots::Slots;
use crate::tree::catalog::DIRECTORY;
use crate::tree::edit::owns;
use crate::types::PageNo;

/// Pages of a step; twice as many for each life of the database that has ended in the middle.
const STEP: u32 = 4;
/// The largest step. More is visited where the walk has begun again, where the file grows, and where
/// visited pages were written.
const LARGEST: u32 = 4096;
/// For each page by which the file has grown since the last step, this many times the pages of a
/// step, before the limit. So the file grows by an eighth until the walk is over, however often it is
/// cut short.
const OF_GROWTH: u32 = 2;
/// Pages of growth that count.
const MOST_GROWTH: u32 = 64;
/// More is more than any file has.
const MOST_DOUBLED: u64 = 22;
/// The last step, at a close, is so many of the others, or the largest.
const STEPS_AT_CLOSE: u32 = 64;
/// Pages of lost versions that one transaction writes again at most.
const WRITTEN_AGAIN: usize = 64;
/// Steps that may fail to read a page.
const TRIES: u32 = 3;

/// A walk: see the module.
#[derive(Debug, Default)]
pub(crate) struct Healing {
    reached: Reached,
    /// Pages that a lost version wrote last.
    of_lost: BTreeSet<u32>,
    /// The value of [`UNHEALED`] for which it began.
    unhealed: u64,
    restarts: u64,
    failures: u32,
    /// The pages of the file in the last step; 0: there was none.
    pages: u32,
    /// Visited pages that were written since the last step.
    written: u32,
    /// A page that only dead entries lead to cannot be read.
    passed_unreadable: bool,
    has_freed: bool,
    /// A live page is damaged, or reading has failed too often.
    given_up: bool,
}

impl Healing {
    fn new(unhealed: u64) -> Healing {
        Healing {
            unhealed,
            ..Healing::default()
        }
    }

    /// A page was written: it may lead elsewhere. One that was not visited yet will be, if a page leads
    /// to it that was written with it.
    pub(crate) fn wrote(&mut self, page: u32) {
        self.of_lost.remove(&page);
        if self.reached.of(page) == Reach::Visited {
            self.reached.set(page, Reach::Live);
            self.written += 1;
        }
    }

    /// Other handles have written pages that are not known.
    pub(crate) fn begin_again(&mut self) {
        *self = Healing {
            unhealed: self.unhealed,
            restarts: self.restarts + 1,
            failures: self.failures,
            given_up: self.given_up,
            pages: self.pages,
            ..Healing::default()
        };
    }

    /// Begins the next step, in a file of so many pages. Returns the number of pages to visit in it.
    fn step(&mut self, pages: u32, at_once: u32) -> Result<u32> {
        self.reached.cover(pages)?;
        self.reached.lead_to(DIRECTORY, true);
        let before = std::mem::replace(&mut self.pages, pages);
        let grown = match before {
            0 => 0,
            before => pages.saturating_sub(before).min(MOST_GROWTH),
        };
        let written = std::mem::take(&mut self.written);
        if pages <= at_once {
            return Ok(u32::MAX);
        }
        let step = STEP << self.unhealed.min(MOST_DOUBLED);
        let for_growth = (step * OF_GROWTH).saturating_mul(grown);
        // The walk must end, however often it begins again.
        let step = step
            .min(LARGEST)
            .saturating_mul(1 << self.restarts.min(MOST_DOUBLED));
        Ok(step.saturating_add(for_growth).saturating_add(written))
    }

    fn step_at_close(&mut self, pages: u32, at_once: u32) -> Result<u32> {
        let step = self.step(pages, at_once)?;
        Ok(match step {
            u32::MAX => step,
            _ => step.saturating_mul(STEPS_AT_CLOSE).min(LARGEST),
        })
    }

    /// After an error. A page that cannot be read now may be readable in the next step.
    fn failed(&mut self, error: &Error) {
        self.failures += 1;
        if matches!(error, Error::Damaged { .. }) || self.failures >= TRIES {
            self.given_up = true;
            self.reached = Reached::default();
            self.of_lost.clear();
        }
    }
}

/// The page that a router or root leads to.
fn child_of(node: &NodeRef, e: &Entry) -> Option<u32> {
    let leads = node.kind == PageType::Inner || (node.kind == PageType::Catalog && e.key >= 0);
    leads.then_some(e.child)
}

impl Core {
    /// The next step of the walk, if a crash has left something to heal. The caller has begun the
    /// transaction, and changed nothing yet. The pages that a step frees are free whatever becomes of the
    /// transaction; the pages of lost versions are written by those that commit.
    pub(crate) fn heal(&mut self) -> Result<()> {
        self.heal_by(Healing::step)
    }

    /// The last step: the handle is alone, and all is durable. The freed pages are in the header that it
    /// writes next.
    pub(crate) fn heal_at_close(&mut self) -> Result<()> {
        self.heal_by(Healing::step_at_close)?;
        match self.load(UNHEALED)? {
            0 => Ok(()),
            unhealed => self.store(UNHEALED, unhealed + 1),
        }
    }

    fn heal_by(&mut self, step: fn(&mut Healing, u32, u32) -> Result<u32>) -> Result<()> {
        let unhealed = self.load(UNHEALED)?;
        if unhealed == 0 {
            // That of a vacuum goes on at its next step.
            self.healing = self.healing.take().filter(|healing| healing.unhealed == 0);
            return Ok(());
        }
        let known = self.healing.take();
        let known = known.filter(|healing| healing.unhealed == unhealed);
        let mut healing = known.unwrap_or_else(|| Box::new(Healing::new(unhealed)));
        if !healing.given_up {
            let (pages, most) = (self.space.map.hwm, self.options.heal_at_once);
            let visits = step(&mut healing, pages, most);
            // An error stops nobody from writing other pages.
            if let Err(e) = visits.and_then(|visits| self.heal_some(&mut healing, visits)) {
                healing.failed(&e);
            }
        }
        self.healing = (self.load(UNHEALED)? != 0).then_some(healing);
        Ok(())
    }

    /// A step of the walk for a vacuum, in its transaction. If a crash has begun one, that one goes on.
    /// True if there is nothing left to walk.
    pub(crate) fn walk_for_vacuum(&mut self, visits: u32) -> Result<bool> {
        let unhealed = self.load(UNHEALED)?;
        let known = self.healing.take();
        let known = known.filter(|healing| healing.unhealed == unhealed);
        let mut healing = known.unwrap_or_else(|| Box::new(Healing::new(unhealed)));
        if !healing.given_up {
            // As in the walk after a crash, an error does not forget what was visited.
            let step = healing.step(self.space.map.hwm, 0);
            if let Err(e) = step.and_then(|_| self.heal_some(&mut healing, visits)) {
                healing.failed(&e);
            }
        }
        let is_over = healing.given_up || healing.reached.is_complete();
        if self.load(UNHEALED)? != 0 || !is_over {
            self.healing = Some(healing);
        }
        Ok(is_over)
    }

    fn heal_some(&mut self, healing: &mut Healing, visits: u32) -> Result<()> {
        self.walk(healing, visits)?;
        // A power cut must neither go back to a version that had these pages in use, nor to one with pages
        // of lost versions.
        let is_durable = self.load(DURABLE)? >= self.load(CURRENT)?;
        if is_durable && healing.reached.is_complete() {
            if !healing.has_freed && !self.is_needed(healing)? {
                if self.free_unreached(healing) > 0 {
                    self.store(FREED, 1)?;
                    self.publish_free()?;
                }
                healing.has_freed = true;
            }
            if healing.has_freed && healing.of_lost.is_empty() {
                return self.end_of_walk();
            }
        }
        self.write_again_what_is_of_lost(healing)
    }

    /// Visits so many pages, or all that are left.
    fn walk(&mut self, healing: &mut Healing, most: u32) -> Result<()> {
        for _ in 0..most {
            match healing.reached.next() {
                Some((page, Reach::Dead)) => self.visit_dead(healing, page)?,
                Some((page, _)) => self.visit_live(healing, page)?,
                None => break,
            }
        }
        Ok(())
    }

    /// Visits a page that a live entry leads to, or that was written. If it is free by now, nothing in
    /// it counts.
    fn visit_live(&mut self, healing: &mut Healing, page: u32) -> Result<()> {
        if self.is_in_use(page) {
            let node = self.look_at(page)?;
            self.note_lost(healing, &node);
            for e in node.entries() {
                if e.live() || owns(e) {
                    self.follow(healing, &node, e, e.live())?;
                }
            }
            self.lead_to(healing, node.next, true)?;
        }
        healing.reached.set(page, Reach::Visited);
        Ok(())
    }

    /// False for a page that is free by now. The directory is none that could be.
    fn is_in_use(&self, page: u32) -> bool {
        page == DIRECTORY || !self.is_free(page)
    }

    /// Visits a page that only dead entries lead to. One that is free is nobody's, whatever still
    /// leads to it. One born in a lost version was free when that one took it. One that cannot be
    /// read counts as used again, see [`Core::dead_node`]: all that is live has been visited by now.
    fn visit_dead(&mut self, healing: &mut Healing, page: u32) -> Result<()> {
        if self.is_free(page) {
            healing.reached.set(page, Reach::Visited);
            return Ok(());
        }
        let node = match self.look_at(page) {
            Err(Error::Damaged { .. }) => {
                healing.passed_unreadable = true;
                None
            }
            node => Some(node?),
        };
        let Some(node) = node.filter(|node| self.lost.before(node.birth).is_none()) else {
            healing.reached.set(page, Reach::Not);
            return Ok(());
        };
        self.note_lost(healing, &node);
        // Nothing says which of them were live when the page died: all count.
        for e in node.entries() {
            self.follow(healing, &node, e, false)?;
        }
        self.lead_to(healing, node.next, false)?;
        healing.reached.set(page, Reach::Visited);
        Ok(())
    }

    fn follow(&self, healing: &mut Healing, node: &NodeRef, e: &Entry, live: bool) -> Result<()> {
        self.lead_to(healing, child_of(node, e).unwrap_or(0), live)?;
        self.lead_to(healing, e.overflow, live)
    }

    /// Page 0 is none.
    fn lead_to(&self, healing: &mut Healing, page: u32, live: bool) -> Result<()> {
        if page == 0 {
            return Ok(());
        }
        if page < self.space.map.hwm {
            healing.reached.lead_to(page, live);
            return Ok(());
        }
        match live {
            true => Err(Error::Damaged {
                page: PageNo(page),
                what: "it is in use and behind the end of the file",
            }),
            false => Ok(()),
        }
    }

    /// A node as the last commit has left it. Nobody writes now, so one look is enough, and the cache
    /// keeps what others need.
    fn look_at(&mut self, page: u32) -> Result<NodeRef> {
        if let Some(node) = self.cache.get(page) {
            return Ok(node);
        }
        Ok(NodeRef::new(self.read_node(page)?))
    }

    fn note_lost(&self, healing: &mut Healing, node: &NodeRef) {
        if self.lost.before(node.ver).is_some() {
            healing.of_lost.insert(node.page.0);
        }
    }

    /// True if an earlier version may need a page that could not be read. To read it must fail then, and
    /// not find another page.
    fn is_needed(&mut self, healing: &Healing) -> Result<bool> {
        Ok(healing.passed_unreadable
            && (self.header.has_history() || !self.marks_in_use()?.is_empty()))
    }

    /// Frees all other pages; returns their number.
    fn free_unreached(&mut self, healing: &Healing) -> u32 {
        let slots = Slots::of(&self.header);
        let mut count = 0;
        for page in 0..self.space.map.hwm {
            if healing.reached.of(page) == Reach::Not
                && !self.space.map.contains(page)
                && !is_fixed(page)
                && !slots.is_some_and(|slots| slots.contains(page))
            {
                self.space.map.insert(page);
                count += 1;
            }
        }
        count
    }

    /// Nothing is left to heal. No page in use was last written by a lost version, so these are
    /// forgotten. Their numbers are below the floor of every later header. With a history that is up to
    /// the next header: see [`Core::account_for_lost`].
    fn end_of_walk(&mut self) -> Result<()> {
        if !self.header.has_history() {
            self.header.lost = Default::default();
            self.declare_lost(0, 0)?;
        }
        self.store(UNHEALED, 0)
    }

    /// Takes pages of lost versions into the transaction, if there is one. Those that are committed
    /// leave the list.
    fn write_again_what_is_of_lost(&mut self, healing: &mut Healing) -> Result<()> {
        if self.txn.is_none() {
            return Ok(());
        }
        healing.of_lost.retain(|page| self.is_in_use(*page));
        let pages = healing.of_lost.iter().copied().take(self.most_again());
        for page in pages.collect::<Vec<_>>() {
            self.node_mut(page)?;
        }
        Ok(())
    }

    /// Pages of lost versions that one transaction takes. With `double` they leave room in the slot, so
    /// that a full disk refuses no transaction for them.
    fn most_again(&self) -> usize {
        let slot = Slots::of(&self.header).map_or(SLOT_PAGES, Slots::pages) as usize;
        match self.double {
            true => WRITTEN_AGAIN.min((slot / 2).saturating_sub(1)).max(1),
            false => WRITTEN_AGAIN,
        }
    }

    // ---- all of it at once

    /// Frees pages that nothing leads to.
    pub(crate) fn reclaim(&mut self) -> Result<u32> {
        self.begin_write(None)?;
        let reclaimed = self.reclaim_locked();
        self.rollback()?;
        reclaimed
    }

    fn reclaim_locked(&mut self) -> Result<u32> {
        self.release_snapshots()?;
        if !self.snapshots.is_empty()
            || !self.marks_in_use()?.is_empty()
            || self.header.has_history()
        {
            return Err(Error::Busy);
        }
        let base = self.txn()?.base;
        self.bring_home()?;
        self.flush_storage()?;
        self.now_durable(base)?;
        self.release_quarantine()?;
        let mut healing = Box::new(Healing::new(self.load(UNHEALED)?));
        healing.step(self.space.map.hwm, u32::MAX)?;
        self.walk(&mut healing, u32::MAX)?;
        let count = self.free_unreached(&healing);
        healing.has_freed = true;
        match healing.of_lost.is_empty() {
            true => self.end_of_walk()?,
            false => self.healing = Some(healing),
        }
        let mut header = self.header.clone();
        let over = self.newest_over()?;
        (header.floor, header.settled) = (over, over);
        header.marks = Marks::Some(Default::default());
        header.reserved = 0;
        let free = self.space.map.clone();
        self.write_header(header, Some(&free))?;
        self.flush_storage()?;
        self.publish_free()?;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Db, Durability, MemoryFile, Options, Torn, TreeId, TreeKind};

    const TREE: TreeId = TreeId(1);

    fn open(file: &MemoryFile) -> Db {
        let options = Options {
            torn: Torn::Trust,
            ..Options::default()
        };
        Db::open(file.storage(), options).unwrap()
    }

    fn change(db: &mut Db, change: impl FnOnce(&mut Db)) {
        db.begin_write().unwrap();
        change(db);
        db.commit(Durability::Flush).unwrap();
    }

    /// A root that was replaced leads to the page that replaced it. The order of the two entries in
    /// the catalog has no meaning. A read that fails below the dead one must not hide the live page.
    #[test]
    fn a_read_that_fails_below_a_dead_entry_hides_no_live_page() {
        let file = MemoryFile::new();
        let mut db = open(&file);
        change(&mut db, |db| {
            assert_eq!(db.create_tree(TreeKind::Integer).unwrap(), TREE);
            for key in 0..9 {
                db.put_integer(TREE, key, &[7; 5000]).unwrap();
            }
        });
        change(&mut db, |db| {
            for key in 1..9 {
                db.delete_integer(TREE, key).unwrap();
            }
            let version = db.write_version().unwrap().0;
            let catalog = db.core.catalog_pages(version).unwrap()[1];
            let node = db.core.node_mut(catalog).unwrap();
            let dead = node.entries()[0];
            assert!(!dead.live() && node.entries().len() == 2, "{dead:?}");
            node.remove(0);
            node.insert(1, dead, &[]);
        });
        file.kill_all();
        std::mem::forget(db);
        let mut db = open(&file);
        let view = db.snapshot().unwrap();
        let root = db.core.roots(view.version().0).unwrap()[0].1;
        db.core.cache.clear();
        drop(view);
        file.fail_read_of(u64::from(root));
        for _ in 0..2 {
            db.begin_write().unwrap();
            assert_eq!(db.check().unwrap(), Vec::<String>::new());
            db.rollback().unwrap();
        }
        assert_eq!(db.reclaim().unwrap(), 0);
    }

    /// A database with a dead row whose chain has three pages, and these.
    fn dead_chain() -> (Db, Vec<u32>) {
        let mut db = open(&MemoryFile::new());
        change(&mut db, |db| {
            assert_eq!(db.create_tree(TreeKind::Integer).unwrap(), TREE);
            db.put_integer(TREE, 1, &[1; 10]).unwrap();
        });
        change(&mut db, |db| db.put_integer(TREE, 2, &[2; 12_000]).unwrap());
        let view = db.snapshot().unwrap();
        let root = db.core.root(TREE.0, view.version().0).unwrap();
        let leaf = db.core.node(root).unwrap();
        let row = *leaf.entries().iter().find(|e| e.key == 2).unwrap();
        let chain = db.core.chain(TREE.0, leaf.page, &row).unwrap();
        assert_eq!(chain.len(), 3);
        change(&mut db, |db| assert!(db.delete_integer(TREE, 2).unwrap()));
        (db, chain)
    }

    /// Found by reading: the walk went on over a free page in the chain of a dead entry. The rest
    /// stayed unused until the next crash: to collect the entry ends at that page.
    #[test]
    fn the_chain_of_a_dead_entry_ends_at_a_free_page() {
        let (mut db, chain) = dead_chain();
        db.begin_write().unwrap();
        db.rollback().unwrap();
        db.core.space.map.insert(chain[1]);
        db.core.publish_free().unwrap();
        assert_eq!(db.reclaim().unwrap(), 1);
        assert!(db.core.space.map.contains(chain[2]));
        assert!(!db.core.space.map.contains(chain[0]));
    }

    /// Found by reading: the same with pages that a lost version took from the free map.
    #[test]
    fn the_chain_of_a_dead_entry_has_no_page_born_in_a_lost_version() {
        let (mut db, chain) = dead_chain();
        let birth = db.core.node(chain[0]).unwrap().birth;
        db.core.lost.add(birth - 1, birth);
        assert_eq!(db.reclaim().unwrap(), 3);
        assert!(chain.iter().all(|page| db.core.space.map.contains(*page)));
    }
}
