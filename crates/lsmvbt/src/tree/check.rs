//! Walks over whole versions: checking and counting; and the status.

use foldhash::HashSet;

use crate::core::Core;
use crate::error::{Error, Result};
use crate::freemap::FreeMap;
use crate::header::Marks;
use crate::page::{Entry, NodeRef};
use crate::shared::{CURRENT, DURABLE};
use crate::tree::search::Visible;
use crate::types::{PageNo, Status, TreeKind, Version};

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
        // The last word may have bits of pages behind the end.
        let free_pages = FreeMap::from_words(words, hwm).count();
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
    use crate::shared::{HWM, free_word};
    use crate::{Db, MemoryFile, Options};

    /// A handle that makes the file shorter may die after it has published the end.
    #[test]
    fn pages_behind_the_end_do_not_count_as_free() {
        let mut db = Db::open(MemoryFile::new().storage(), Options::default()).unwrap();
        let before = db.status().unwrap();
        let last = db.core.load(HWM).unwrap() as usize / 64;
        let word = db.core.load(free_word(last)).unwrap();
        db.core.store(free_word(last), word | 1 << 63).unwrap();
        assert_eq!(db.status().unwrap().free_pages, before.free_pages);
    }
}
