//! Trees of the model: insertion, deletion, the three splits, garbage collection.

use super::*;

impl Engine {
    pub fn change(&mut self, page: u32) -> Step<&mut Page> {
        if !self.txn()?.dirty.contains_key(&page) {
            let p = self.page(page)?;
            self.txn()?.dirty.insert(page, p);
        }
        self.txn()?
            .dirty
            .get_mut(&page)
            .ok_or(Stop::Bug("a dirty page is gone".into()))
    }

    fn allocate(&mut self, kind: Kind, tree: u32, ents: Vec<Ent>, data: u64) -> Step<u32> {
        let free: Vec<u32> = self.free.iter().copied().collect();
        let page = if !free.is_empty() && self.random.chance(90) {
            *self.random.pick(&free)
        } else {
            self.hwm += 1;
            self.hwm - 1
        };
        self.free.remove(&page);
        let birth = self.version();
        let txn = self.txn()?;
        txn.own.insert(page);
        txn.dirty.insert(
            page,
            Page {
                kind,
                tree,
                birth,
                ents,
                data,
            },
        );
        Ok(page)
    }

    fn free_page(&mut self, page: u32) -> Step<()> {
        let at_once = self.is(Mutant::ReuseAtOnce);
        let txn = self.txn()?;
        txn.dirty.remove(&page);
        if txn.own.remove(&page) {
            if page < txn.hwm_at_base {
                txn.free_at_base.insert(page);
            }
            self.free.insert(page);
            return Ok(());
        }
        if !txn.freed.insert(page) && !at_once {
            return bug(format!("page {page} is freed twice"));
        }
        if at_once {
            txn.freed.remove(&page);
            self.free.insert(page);
        }
        Ok(())
    }

    /// Frees a dead page and the pages it owns, unless it has been used again.
    fn free_dead(&mut self, page: u32, born_by: u64) -> Step<()> {
        let freed = self.txn()?.freed.contains(&page);
        if freed || self.free.contains(&page) {
            return Ok(());
        }
        let Ok(node) = self.page(page) else {
            return Ok(());
        };
        if node.birth > born_by {
            return Ok(());
        }
        for e in node.ents.iter().filter(|e| e.why == Why::Killed) {
            self.release(node.kind, e)?;
        }
        self.free_page(page)
    }

    fn release(&mut self, kind: Kind, e: &Ent) -> Step<()> {
        match (kind, e.value) {
            (Kind::Catalog, Value::Page(root)) if e.why == Why::Replaced => {
                self.free_dead(root, e.start)
            }
            (Kind::Catalog, Value::Page(root)) => self.free_tree(root, e.end - 1),
            (_, Value::Page(p) | Value::Chain(p)) => self.free_dead(p, e.start),
            _ => Ok(()),
        }
    }

    fn free_tree(&mut self, page: u32, view: u64) -> Step<()> {
        let node = self.page(page)?;
        for e in &node.ents {
            if e.sees(view) {
                match e.value {
                    Value::Page(child) => self.free_tree(child, view)?,
                    Value::Chain(p) => self.free_dead(p, e.start)?,
                    Value::Plain(_) => {}
                }
            } else if e.why == Why::Killed {
                self.release(node.kind, e)?;
            }
        }
        self.free_page(page)
    }

    fn collectable(&self, e: &Ent, kind: Kind) -> bool {
        if e.live() {
            return false;
        }
        let Some(txn) = &self.txn else { return false };
        let mut views: Vec<u64> = self.snapshots.values().copied().collect();
        views.push(if self.is(Mutant::CollectBase) {
            txn.version
        } else {
            txn.base
        });
        if !self.is(Mutant::CollectDurable) {
            views.push(self.durable);
        }
        let owner = matches!(e.why, Why::Killed | Why::Replaced)
            && (matches!(kind, Kind::Inner | Kind::Catalog) || e.chain().is_some());
        if owner && !self.is(Mutant::OwnersByLifetime) {
            return views.iter().all(|v| *v >= e.end);
        }
        !views.iter().any(|v| e.sees(*v))
    }

    fn collect(&mut self, page: u32) -> Step<()> {
        let node = self.change(page)?.clone();
        let (gone, kept): (Vec<Ent>, Vec<Ent>) = node
            .ents
            .iter()
            .partition(|e| self.collectable(e, node.kind));
        self.change(page)?.ents = kept;
        let moved_too = self.is(Mutant::MovedFrees);
        for e in gone {
            let frees = match e.why {
                Why::Killed => true,
                Why::Replaced => node.kind == Kind::Catalog,
                Why::Moved => moved_too,
                Why::Lives => false,
            };
            if frees {
                self.release(node.kind, &e)?;
            }
        }
        Ok(())
    }

    /// Ends the entry at an index. One born in this transaction is removed and returned.
    fn end(&mut self, page: u32, at: usize) -> Step<Option<Ent>> {
        let m = self.version();
        let node = self.change(page)?;
        let e = &mut node.ents[at];
        if e.start == m {
            return Ok(Some(node.ents.remove(at)));
        }
        (e.end, e.why) = (m, Why::Killed);
        Ok(None)
    }

    fn end_key(&mut self, page: u32, key: i64) -> Step<bool> {
        let node = self.change(page)?;
        let Some(at) = node.ents.iter().position(|e| e.key == key && e.live()) else {
            return Ok(false);
        };
        if let Some(gone) = self.end(page, at)?
            && let Some(chain) = gone.chain()
        {
            self.free_page(chain)?;
        }
        Ok(true)
    }

    /// The way from the root to the page of `level` that covers a key.
    fn path(&mut self, tree: u32, key: i64, level: u64) -> Step<Vec<u32>> {
        let m = self.version();
        let Some(mut page) = self.root(tree, m)? else {
            return bug("no root");
        };
        let mut path = vec![page];
        while self.level(page)? > level {
            let node = self.page(page)?;
            let mut live: Vec<&Ent> = node.ents.iter().filter(|e| e.live()).collect();
            live.sort_by_key(|e| e.key);
            let Some(first) = live.first() else {
                return bug("no live router");
            };
            let child = live
                .iter()
                .rev()
                .find(|e| e.key <= key)
                .unwrap_or(first)
                .page();
            page = child.ok_or(Stop::Bug("a router without a child".into()))?;
            path.push(page);
        }
        Ok(path)
    }

    fn level(&self, page: u32) -> Step<u64> {
        let node = self.page(page)?;
        Ok(if node.kind == Kind::Inner {
            node.data
        } else {
            0
        })
    }

    pub fn put(&mut self, tree: u32, key: i64, value: u64, chained: bool) -> Step<()> {
        let path = self.path(tree, key, 0)?;
        let leaf = path[path.len() - 1];
        self.end_key(leaf, key)?;
        let value = if chained {
            Value::Chain(self.allocate(Kind::Overflow, tree, Vec::new(), value)?)
        } else {
            Value::Plain(value)
        };
        let start = self.version();
        self.insert(
            tree,
            &path,
            Ent {
                key,
                start,
                end: INF,
                why: Why::Lives,
                value,
            },
        )
    }

    pub fn delete(&mut self, tree: u32, key: i64) -> Step<()> {
        let path = self.path(tree, key, 0)?;
        if self.end_key(path[path.len() - 1], key)? {
            self.drop_if_empty(&path)?;
        }
        Ok(())
    }

    /// A leaf without live entries leaves its parent, unless it is the first one there. The model
    /// keeps routers in the order of their keys, and the next one's key is too high for the keys
    /// that it would take over.
    fn drop_if_empty(&mut self, path: &[u32]) -> Step<()> {
        let (Some(page), Some(parent)) = (path.last(), path.iter().rev().nth(1)) else {
            return Ok(());
        };
        let node = self.page(*page)?;
        let own = self.txn()?.own.contains(page);
        let empty = !node.ents.iter().any(|e| e.live());
        let owns = node.ents.iter().any(|e| e.why == Why::Killed);
        let up = self.page(*parent)?;
        let first = up.ents.iter().filter(|e| e.live()).min_by_key(|e| e.key);
        let is_first = first.is_none_or(|e| e.page() == Some(*page));
        if !empty || is_first || (own && owns) || self.random.chance(30) {
            return Ok(());
        }
        let up = self.change(*parent)?;
        let Some(at) = up
            .ents
            .iter()
            .position(|e| e.page() == Some(*page) && e.live())
        else {
            return bug("no router");
        };
        self.end(*parent, at)?;
        if own {
            self.free_page(*page)?;
        }
        Ok(())
    }

    fn insert(&mut self, tree: u32, path: &[u32], e: Ent) -> Step<()> {
        let m = self.version();
        let page = path[path.len() - 1];
        if self.change(page)?.ents.len() >= CAPACITY - RESERVE {
            self.collect(page)?;
        }
        let node = self.page(page)?;
        let lazy = node.ents.iter().any(|e| e.why == Why::Moved);
        if node.ents.len() < if lazy { CAPACITY } else { CAPACITY - RESERVE } {
            self.change(page)?.ents.push(e);
            return Ok(());
        }
        let mut live: Vec<Ent> = node.ents.iter().filter(|e| e.live()).copied().collect();
        live.sort_by_key(|e| e.key);
        if live.last().is_some_and(|l| e.key > l.key) && self.random.chance(80) {
            let q = self.allocate(node.kind, tree, vec![e], node.data)?;
            return self.up(tree, path, vec![(Some(e.key), q)], None);
        }
        if !lazy && live.len() >= 2 && self.random.chance(90) {
            let upper = live.split_off(live.len() / 2);
            let own = self.txn()?.own.contains(&page);
            let node = self.change(page)?;
            node.ents
                .retain(|x| !(upper.contains(x) && (own || x.start == m)));
            for x in node.ents.iter_mut().filter(|x| upper.contains(x)) {
                (x.end, x.why) = (m, Why::Moved);
            }
            let (kind, data, low) = (node.kind, node.data, upper[0].key);
            let q = self.allocate(kind, tree, upper, data)?;
            let target = if e.key >= low { q } else { page };
            if self.page(target)?.ents.len() < CAPACITY {
                self.change(target)?.ents.push(e);
                return self.up(tree, path, vec![(Some(low), q)], None);
            }
            self.up(tree, path, vec![(Some(low), q)], None)?;
            let level = if kind == Kind::Inner { data } else { 0 };
            let path = self.path(tree, e.key, level)?;
            return self.insert(tree, &path, e);
        }
        live.push(e);
        live.sort_by_key(|e| e.key);
        let half = if live.len() < CAPACITY - RESERVE {
            live.len()
        } else {
            live.len() / 2
        };
        let mut new = Vec::new();
        for part in [&live[..half], &live[half..]] {
            if let Some(first) = part.first() {
                let q = self.allocate(node.kind, tree, part.to_vec(), node.data)?;
                new.push((
                    if new.is_empty() {
                        None
                    } else {
                        Some(first.key)
                    },
                    q,
                ));
            }
        }
        self.up(tree, path, new, Some(page))?;
        if self.txn()?.own.contains(&page) {
            self.free_page(page)
        } else {
            Ok(())
        }
    }

    /// Records new pages, and a dead one, in the level above.
    fn up(
        &mut self,
        tree: u32,
        path: &[u32],
        mut new: Vec<(Option<i64>, u32)>,
        died: Option<u32>,
    ) -> Step<()> {
        let m = self.version();
        let router = |key, start, page| Ent {
            key,
            start,
            end: INF,
            why: Why::Lives,
            value: Value::Page(page),
        };
        let page = path[path.len() - 1];
        let level = self.level(page)?;
        if path.len() == 1 {
            let start = self.replace_root(tree, died.is_some())?;
            let root = if died.is_some() && new.len() == 1 {
                new[0].1
            } else {
                let first = match died {
                    Some(_) => router(i64::MIN, m, new.remove(0).1),
                    None => router(i64::MIN, start, page),
                };
                let others = new.iter().filter_map(|(k, q)| k.map(|k| router(k, m, *q)));
                let ents = std::iter::once(first).chain(others).collect();
                self.allocate(Kind::Inner, tree, ents, level + 1)?
            };
            self.change(CATALOG)?
                .ents
                .push(router(i64::from(tree), m, root));
            return Ok(());
        }
        let parent = path[path.len() - 2];
        let up_level = self.level(parent)?;
        if let Some(dead) = died {
            let node = self.change(parent)?;
            let at = node
                .ents
                .iter()
                .position(|e| e.page() == Some(dead) && e.live());
            let Some(at) = at else {
                return bug("no router");
            };
            new[0].0 = Some(node.ents[at].key);
            self.end(parent, at)?;
        }
        for (key, q) in new {
            let Some(key) = key else {
                return bug("a router without a key");
            };
            let path = self.path(tree, key, up_level)?;
            self.insert(tree, &path, router(key, m, q))?;
        }
        Ok(())
    }

    /// Ends the root's entry; returns the version since which it has been the root.
    fn replace_root(&mut self, tree: u32, died: bool) -> Step<u64> {
        let m = self.version();
        let catalog = self.change(CATALOG)?;
        let at = catalog
            .ents
            .iter()
            .position(|e| e.key == i64::from(tree) && e.live());
        let Some(at) = at else { return bug("no root") };
        let start = catalog.ents[at].start;
        if start == m {
            catalog.ents.remove(at);
        } else {
            let e = &mut catalog.ents[at];
            (e.end, e.why) = (m, if died { Why::Replaced } else { Why::Moved });
        }
        Ok(start)
    }

    pub fn create(&mut self, tree: u32) -> Step<()> {
        let start = self.version();
        let root = self.allocate(Kind::Leaf, tree, Vec::new(), 0)?;
        self.collect(CATALOG)?;
        let (key, value) = (i64::from(tree), Value::Page(root));
        self.change(CATALOG)?.ents.push(Ent {
            key,
            start,
            end: INF,
            why: Why::Lives,
            value,
        });
        Ok(())
    }

    pub fn drop_tree(&mut self, tree: u32) -> Step<()> {
        let m = self.version();
        let key = i64::from(tree);
        let catalog = self.change(CATALOG)?;
        let Some(at) = catalog.ents.iter().position(|e| e.key == key && e.live()) else {
            return bug("no root");
        };
        let e = catalog.ents[at];
        if e.start < m {
            let e = &mut catalog.ents[at];
            (e.end, e.why) = (m, Why::Killed);
            return Ok(());
        }
        catalog.ents.remove(at);
        // The tree's pages before this transaction belong to its old root's entry again.
        for old in catalog
            .ents
            .iter_mut()
            .filter(|o| o.key == key && o.end == m)
        {
            old.why = Why::Killed;
        }
        let Some(root) = e.page() else {
            return bug("a root without a page");
        };
        self.drop_own(root)
    }

    fn drop_own(&mut self, page: u32) -> Step<()> {
        let node = self.page(page)?;
        for e in node.ents.iter().filter(|e| e.live()) {
            if let Some(child) = e.page() {
                self.drop_own(child)?;
            }
            if let Some(chain) = e.chain()
                && self.txn()?.own.contains(&chain)
            {
                self.free_page(chain)?;
            }
        }
        if self.txn()?.own.contains(&page) {
            self.free_page(page)
        } else {
            Ok(())
        }
    }
}
