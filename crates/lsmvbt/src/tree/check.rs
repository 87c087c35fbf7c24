//! Walks over whole versions: checking, counting, finding lost pages; and the status.

use foldhash::HashSet;

use crate::core::Core;
use crate::error::{Error, Result};
use crate::freemap::is_fixed;
use crate::header::Marks;
use crate::page::{Entry, NodeRef, PageType};
use crate::shared::{CRASHED, CURRENT, DURABLE, HEAL_TRIES, HEAL_WALKED};
use crate::slots::Slots;
use crate::tree::edit::owns;
use crate::tree::search::Visible;
use crate::types::{PageNo, Status, TreeKind, Version};

/// Pages of lost versions that one transaction writes again at most.
const HEALED: usize = 64;
/// Findings at most; then the check gives up.
const MAX_FINDINGS: usize = 100;

struct Walk {
    view: u64,
    seen: HashSet<u32>,
    findings: Vec<String>,
}

impl Walk {
    fn find(&mut self, page: u32, what: &str) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(format!("page {page}: {what}"));
        }
    }
}

/// The pages in use.
#[derive(Default)]
struct Reached {
    pages: HashSet<u32>,
    /// Those that a lost version wrote last.
    of_lost: Vec<u32>,
}

/// The page that a router or root leads to.
fn child_of(node: &NodeRef, e: &Entry) -> Option<u32> {
    let leads = node.kind == PageType::Inner || (node.kind == PageType::Catalog && e.key >= 0);
    leads.then_some(e.child)
}

/// A key to compare with the next one.
#[derive(Clone, PartialEq)]
enum Key {
    Integer(i64),
    Bytes(Vec<u8>),
    Unknown,
}

impl Key {
    fn above(&self, other: &Key) -> bool {
        match (self, other) {
            (Key::Integer(a), Key::Integer(b)) => a > b,
            (Key::Bytes(a), Key::Bytes(b)) => a > b,
            _ => false,
        }
    }
}

impl Core {
    /// Findings of a walk over the newest version, or the write transaction's.
    pub(crate) fn check(&mut self) -> Result<Vec<String>> {
        self.release_snapshots()?;
        let view = match &self.txn {
            Some(txn) => txn.version,
            None => self.load(CURRENT)?,
        };
        let mark = if self.txn.is_none() {
            Some(self.mark_newest()?)
        } else {
            None
        };
        let view = mark.map_or(view, |m| m.0);
        self.sync_for_reading()?;
        let mut walk = Walk {
            view,
            seen: HashSet::default(),
            findings: Vec::new(),
        };
        let walked = self.check_all(&mut walk);
        if let Some((_, mark)) = mark {
            self.unmark(mark)?;
        }
        if let Err(e) = walked {
            walk.findings.push(e.to_string());
        }
        Ok(walk.findings)
    }

    fn sync_for_reading(&mut self) -> Result<()> {
        if self.txn.is_none() {
            self.sync_cache()
        } else {
            Ok(())
        }
    }

    fn check_all(&mut self, walk: &mut Walk) -> Result<()> {
        for page in self.catalog_pages(walk.view)? {
            self.check_page(walk, page);
        }
        for (tree, root) in self.roots(walk.view)? {
            let mut last = Key::Unknown;
            if let Err(e) = self.check_tree(walk, tree, root, None, &mut last) {
                walk.find(root, &e.to_string());
            }
        }
        Ok(())
    }

    fn check_page(&self, walk: &mut Walk, page: u32) {
        if !walk.seen.insert(page) {
            walk.find(page, "it is used twice");
        }
        let writing = self.txn.is_some() || self.space.is_of(walk.view);
        if writing && page != crate::tree::catalog::DIRECTORY && self.is_free(page) {
            walk.find(page, "it is in use and free");
        }
    }

    fn check_tree(
        &mut self,
        walk: &mut Walk,
        tree: u32,
        page: u32,
        level: Option<u8>,
        last: &mut Key,
    ) -> Result<()> {
        let used = walk.seen.contains(&page);
        self.check_page(walk, page);
        if used {
            return Ok(());
        }
        let node = self.node_of(page, tree, level)?;
        if !node.fits() {
            walk.find(page, "its entries do not fit into it");
        }
        let visible = Visible::of(&node, walk.view);
        if node.level > 0 && visible.len() == 0 {
            walk.find(page, "no router in it is visible");
        }
        for i in 0..visible.len() {
            let e = node.entries()[visible.at(i)];
            if e.overflow != 0 {
                for p in self.chain(tree, node.page, &e)? {
                    self.check_page(walk, p);
                }
            }
            // The first router's key has no meaning.
            if node.level == 0 || i > 0 {
                let key = self.key_of(&node, &e)?;
                let order = if node.level == 0 {
                    key.above(last)
                } else {
                    !last.above(&key)
                };
                if !(order || key == Key::Unknown || *last == Key::Unknown) {
                    walk.find(page, "its keys are not in order");
                }
                if node.level == 0 {
                    *last = key;
                }
            }
            if node.level > 0 {
                self.check_tree(walk, tree, e.child, Some(node.level - 1), last)?;
            }
        }
        Ok(())
    }

    fn key_of(&mut self, node: &NodeRef, e: &Entry) -> Result<Key> {
        Ok(match node.tree_kind {
            Some(TreeKind::Integer) => Key::Integer(e.key),
            Some(TreeKind::Bytes) => Key::Bytes(self.whole_key(node, e)?),
            _ => Key::Unknown,
        })
    }

    /// Entries of a tree at a view.
    pub(crate) fn count(&mut self, view: u64, tree: u32) -> Result<u64> {
        let root = self.root(tree, view)?;
        let mut pages = vec![(root, None)];
        let mut seen = HashSet::default();
        let mut count = 0;
        while let Some((page, level)) = pages.pop() {
            if !seen.insert(page) {
                return Err(Error::Damaged {
                    page: PageNo(page),
                    what: "two routers lead to it",
                });
            }
            let node = self.node_of(page, tree, level)?;
            let visible = Visible::of(&node, view);
            if node.level == 0 {
                count += visible.len() as u64;
                continue;
            }
            for i in 0..visible.len() {
                pages.push((node.entries()[visible.at(i)].child, Some(node.level - 1)));
            }
        }
        Ok(count)
    }

    // ---- reclaiming

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
        self.flush_storage()?;
        self.now_durable(base)?;
        self.release_quarantine()?;
        let reached = self.reached(base)?;
        let count = self.free_unreached(&reached);
        self.forget_lost(&reached)?;
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

    /// The first transaction after a crash that finds no reader, in a database that recovery may read
    /// whole. Frees what the crash has left unreachable, and writes again the pages of lost versions.
    /// The caller has flushed, and begun the transaction.
    ///
    /// The pages are free whatever becomes of the transaction. Those of lost versions are written by
    /// the transaction that commits: until then, every later one takes them along. It does not walk
    /// again for that: each handle walks once.
    pub(crate) fn heal(&mut self) -> Result<()> {
        let tries = self.load(CRASHED)?;
        let small = self.space.map.hwm <= self.options.recovery_pages;
        if tries == 0 || !small || self.header.has_history() {
            return Ok(());
        }
        let base = self.txn()?.base;
        let read = !self.snapshots.is_empty() || !self.marks_in_use()?.is_empty();
        if read || self.load(DURABLE)? < base {
            return Ok(());
        }
        let pages = match self.pages_to_heal(base, tries) {
            // A damaged page stops nobody from writing others, and stays damaged.
            Err(Error::Damaged { .. }) => return self.store(CRASHED, 0),
            Err(_) => return self.store(CRASHED, tries.min(HEAL_TRIES) - 1),
            Ok(pages) if pages.is_empty() => return self.store(CRASHED, 0),
            Ok(pages) => pages,
        };
        self.store(CRASHED, HEAL_WALKED)?;
        for page in pages {
            self.node_mut(page)?;
        }
        self.txn()?.heals = true;
        Ok(())
    }

    /// The pages of lost versions to write again: those that this handle still knows, or walks for. The
    /// walk frees what it does not reach.
    fn pages_to_heal(&mut self, base: u64, tries: u64) -> Result<Vec<u32>> {
        if tries == HEAL_WALKED {
            let known = self.still_of_lost()?;
            if !known.is_empty() {
                return Ok(known);
            }
        }
        let mut reached = self.reached(base)?;
        self.free_unreached(&reached);
        self.publish_free()?;
        self.forget_lost(&reached)?;
        reached.of_lost.truncate(HEALED);
        self.of_lost.clone_from(&reached.of_lost);
        Ok(reached.of_lost)
    }

    /// The pages that the last walk of this handle has found, without those that others have written
    /// or freed since.
    fn still_of_lost(&mut self) -> Result<Vec<u32>> {
        let mut pages = self.of_lost.clone();
        pages.retain(|page| !self.is_free(*page));
        let mut still = Vec::new();
        for page in pages {
            let node = self.dead_node(page)?;
            let of_lost = node.filter(|node| self.lost.before(node.ver).is_some());
            still.extend(of_lost.map(|node| node.page.0));
        }
        Ok(still)
    }

    /// Frees all other pages; returns their number.
    fn free_unreached(&mut self, reached: &Reached) -> u32 {
        let slots = Slots::of(&self.header);
        let mut count = 0;
        for page in 0..self.space.map.hwm {
            let lost = !is_fixed(page)
                && !slots.is_some_and(|s| s.contains(page))
                && !reached.pages.contains(&page);
            if lost && !self.space.map.contains(page) {
                self.space.map.insert(page);
                count += 1;
            }
        }
        count
    }

    /// Forgets which versions are lost, if no page in use was last written by one. Their numbers
    /// are below the floor of every later header.
    fn forget_lost(&mut self, reached: &Reached) -> Result<()> {
        if !reached.of_lost.is_empty() {
            return Ok(());
        }
        self.header.lost = Default::default();
        self.declare_lost(0, 0)
    }

    /// Every page that a live entry leads to, or a dead one that owns it.
    ///
    /// Live entries come first. So an error below a dead entry hides no page that is live as well: a
    /// root that was replaced leads to the pages of the one that replaced it. A dead page that cannot
    /// be read counts as unreachable, see [`Core::dead_node`].
    fn reached(&mut self, view: u64) -> Result<Reached> {
        let mut reached = Reached::default();
        let mut live = self.catalog_pages(view)?;
        let mut dead = Vec::new();
        while let Some(page) = live.pop() {
            if !reached.pages.insert(page) {
                continue;
            }
            let node = self.node(page)?;
            self.note_lost(&node, &mut reached);
            for e in node.entries() {
                if e.live() {
                    live.extend(child_of(&node, e));
                    reached.pages.extend(self.chain(node.tree, node.page, e)?);
                } else if owns(e) {
                    dead.extend(child_of(&node, e));
                    let chain = self.dead_chain(&node, e)?;
                    reached.pages.extend(chain);
                }
            }
        }
        while let Some(page) = dead.pop() {
            // One that is free is nobody's, whatever still leads to it.
            if reached.pages.contains(&page) || self.is_free(page) {
                continue;
            }
            let node = self.dead_node(page)?;
            // One born in a lost version was free when that one took it.
            let Some(node) = node.filter(|node| self.lost.before(node.birth).is_none()) else {
                continue;
            };
            reached.pages.insert(page);
            self.note_lost(&node, &mut reached);
            // Nothing says which of them were live when the page died: all count.
            for e in node.entries() {
                dead.extend(child_of(&node, e));
                let chain = self.dead_chain(&node, e)?;
                reached.pages.extend(chain);
            }
        }
        Ok(reached)
    }

    fn note_lost(&self, node: &NodeRef, reached: &mut Reached) {
        if self.lost.before(node.ver).is_some() {
            reached.of_lost.push(node.page.0);
        }
    }

    /// The chain of a dead entry, or none if it leads to pages that are used again.
    fn dead_chain(&mut self, node: &NodeRef, e: &Entry) -> Result<Vec<u32>> {
        match self.chain(node.tree, node.page, e) {
            Err(Error::Damaged { .. }) => Ok(Vec::new()),
            chain => chain,
        }
    }

    // ---- the database as a whole

    /// Makes unflushed commits durable.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if self.txn.is_some() {
            return Err(Error::Transaction("a write transaction is open"));
        }
        if self.load(DURABLE)? == self.load(CURRENT)? && !self.space.keeps_any_back() {
            return Ok(());
        }
        self.begin_write(None)?;
        let base = self.txn()?.base;
        let flushed = self
            .flush_storage()
            .map_err(|e| self.poison(e))
            .and_then(|()| {
                self.now_durable(base)?;
                self.release_quarantine()?;
                self.publish_free()
            });
        self.rollback()?;
        flushed
    }

    pub(crate) fn status(&mut self) -> Result<Status> {
        let current = self.load(CURRENT)?;
        let oldest = self.oldest_kept()?;
        let mut oldest_reader: Option<u64> = None;
        for i in 0..crate::storage::READERS {
            let low = self.load(crate::shared::MARK_LOW + i)?;
            if low != 0 {
                oldest_reader = Some(oldest_reader.map_or(low, |o| o.min(low)));
            }
        }
        self.learn_torn()?;
        let hwm = self.load(crate::shared::HWM)? as u32;
        let mut words = vec![0; (hwm as usize).div_ceil(64)];
        crate::shared::free_words(&*self.storage, &mut words)?;
        let free_pages = words.iter().map(|word| word.count_ones()).sum();
        let marked_regions = match &self.header.marks {
            Marks::Some(set) => set.len() as u32,
            Marks::All => hwm.div_ceil(self.header.region),
        };
        Ok(Status {
            current: Version(current),
            durable: Version(self.load(DURABLE)?),
            oldest: Version(oldest),
            oldest_reader: oldest_reader.map(Version),
            pages: hwm,
            free_pages,
            marked_regions,
            history: self.header.history,
            history_seconds: self.header.history_seconds,
            double: self.double,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::{Db, Durability, MemoryFile, Options, Torn, TreeKind};

    fn open(file: &MemoryFile) -> Db {
        let options = Options {
            torn: Torn::Trust,
            ..Options::default()
        };
        Db::open(file.storage(), options).unwrap()
    }

    /// A root that was replaced leads to the page that replaced it. The order of the two entries in
    /// the catalog has no meaning. A read that fails below the dead one must not hide the live page.
    #[test]
    fn a_read_that_fails_below_a_dead_entry_hides_no_live_page() {
        let file = MemoryFile::new();
        let mut db = open(&file);
        db.begin_write().unwrap();
        let tree = db.create_tree(TreeKind::Integer).unwrap();
        for key in 0..9 {
            db.put_integer(tree, key, &[7; 5000]).unwrap();
        }
        db.commit(Durability::Flush).unwrap();
        db.begin_write().unwrap();
        for key in 1..9 {
            db.delete_integer(tree, key).unwrap();
        }
        let version = db.write_version().unwrap().0;
        let catalog = db.core.catalog_pages(version).unwrap()[1];
        let node = db.core.node_mut(catalog).unwrap();
        let dead = node.entries()[0];
        assert!(!dead.live() && node.entries().len() == 2, "{dead:?}");
        node.remove(0);
        node.insert(1, dead, &[]);
        db.commit(Durability::Flush).unwrap();
        file.kill_all();
        std::mem::forget(db);
        let mut db = open(&file);
        // With a reader, nothing is healed.
        let view = db.snapshot().unwrap();
        db.begin_write().unwrap();
        db.rollback().unwrap();
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
}
