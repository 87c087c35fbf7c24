//! Reading whole versions.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

impl Engine {
    pub fn root(&self, tree: u32, view: u64) -> Step<Option<u32>> {
        let catalog = self.page(CATALOG)?;
        let mut roots = catalog
            .ents
            .iter()
            .filter(|e| e.key == i64::from(tree) && e.sees(view));
        let root = roots.next().and_then(|e| e.page());
        if roots.next().is_some() {
            bug("two roots")
        } else {
            Ok(root)
        }
    }

    /// Everything at a view; adds the pages to `pages`.
    pub fn scan(&self, view: u64, pages: &mut BTreeSet<u32>) -> Step<World> {
        let mut world = World::new();
        let catalog = self.page(CATALOG)?;
        for e in catalog.ents.iter().filter(|e| e.sees(view)) {
            let tree = e.key as u32;
            let Some(root) = self.root(tree, view)? else {
                return bug("no root");
            };
            let mut map = BTreeMap::new();
            self.scan_page(tree, root, view, (i64::MIN, i64::MAX), 0, pages, &mut map)?;
            world.insert(tree, map);
        }
        Ok(world)
    }

    #[allow(clippy::too_many_arguments)]
    fn scan_page(
        &self,
        tree: u32,
        page: u32,
        view: u64,
        (low, high): (i64, i64),
        depth: u32,
        pages: &mut BTreeSet<u32>,
        map: &mut BTreeMap<i64, u64>,
    ) -> Step<()> {
        if depth > 20 {
            return bug("too deep");
        }
        if !pages.insert(page) {
            return bug(format!("page {page} twice"));
        }
        let node = self.page(page)?;
        if node.tree != tree || !matches!(node.kind, Kind::Leaf | Kind::Inner) {
            return bug(format!("page {page} is no node of tree {tree}"));
        }
        let mut seen: Vec<Ent> = node.ents.iter().filter(|e| e.sees(view)).copied().collect();
        seen.sort_by_key(|e| e.key);
        if node.kind == Kind::Leaf {
            for e in seen {
                if e.key < low || e.key >= high {
                    return bug(format!("key {} out of its page's range", e.key));
                }
                if map.insert(e.key, self.value(&e, pages)?).is_some() {
                    return bug("a key twice");
                }
            }
            return Ok(());
        }
        if seen.is_empty() {
            return bug("no router is visible");
        }
        for (i, e) in seen.iter().enumerate() {
            let from = if i == 0 { low } else { low.max(e.key) };
            let to = seen.get(i + 1).map_or(high, |n| n.key);
            if to > high || from < low {
                return bug("a router out of range");
            }
            let Some(child) = e.page() else {
                return bug("a router without a child");
            };
            self.scan_page(tree, child, view, (from, to), depth + 1, pages, map)?;
        }
        Ok(())
    }

    fn value(&self, e: &Ent, pages: &mut BTreeSet<u32>) -> Step<u64> {
        match e.value {
            Value::Plain(v) => Ok(v),
            Value::Page(_) => bug("a child in a leaf"),
            Value::Chain(p) => {
                if !pages.insert(p) {
                    return bug("a chain twice");
                }
                let page = self.page(p)?;
                if page.kind != Kind::Overflow {
                    bug("no overflow page")
                } else {
                    Ok(page.data)
                }
            }
        }
    }

    /// No page in use may be free.
    pub fn check_free(&self) -> Step<()> {
        let mut pages = BTreeSet::new();
        self.scan(self.current, &mut pages)?;
        pages.insert(CATALOG);
        if pages.iter().any(|p| self.free.contains(p)) {
            return bug("a page is in use and free");
        }
        if pages.iter().any(|p| *p >= self.hwm) {
            bug("a page above the mark")
        } else {
            Ok(())
        }
    }
}
