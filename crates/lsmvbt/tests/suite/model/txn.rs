//! Transactions: marks, spills, commit, rollback.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::disk::{Block, Place};
use super::*;

impl Engine {
    pub fn begin(&mut self) -> Step<()> {
        self.flush_what_was_found()?;
        let version = self.next;
        self.next += 1;
        self.txn = Some(Txn {
            version,
            base: self.current,
            dirty: HashMap::new(),
            own: HashSet::new(),
            freed: BTreeSet::new(),
            spilled: BTreeSet::new(),
            free_at_base: self.free.clone(),
            hwm_at_base: self.hwm,
            rounds: None,
            written: None,
        });
        Ok(())
    }

    /// Every version up to the current one is durable.
    pub fn flushed(&mut self, idle: bool) {
        self.durable = self.current;
        self.group.clear();
        let released = std::mem::take(&mut self.quarantine);
        self.free.extend(released.iter());
        match &mut self.txn {
            Some(txn) if !idle => {
                txn.free_at_base.extend(released);
                self.durable_free = txn.free_at_base.clone();
                self.durable_hwm = txn.hwm_at_base;
            }
            _ => {
                self.durable_free = self.free.clone();
                self.durable_hwm = self.hwm;
            }
        }
    }

    /// Marks the regions of pages that are about to be written, by a header that is flushed with
    /// them (`with_them`) or before. Sometimes the floor moves with it.
    fn mark(&mut self, pages: &[u32], with_them: bool) -> Step<()> {
        let need: BTreeSet<u32> = pages.iter().map(|p| p / REGION).collect();
        let (version, header) = (self.version(), self.header());
        let strict = self.is_strict();
        let flushed_first = strict && header.reserved == 0 && !self.marks.is_empty();
        let reserved =
            version <= header.reserved || flushed_first || self.is(Mutant::BeyondReserved);
        if need.is_subset(&self.marks) && reserved {
            return Ok(());
        }
        let with_them = with_them && !strict;
        if !reserved {
            return self.move_floor(need);
        }
        self.marks.extend(need);
        let (marks, reserve) = (self.marks.clone(), self.reserve());
        if self.random.chance(50) {
            // The usual case in the engine: the list grows, the rest of the header stays.
            self.write_header(|h| {
                h.marks = marks;
                h.reserved = reserve;
            })?;
        } else {
            let (floor, free, hwm) = (self.durable, self.durable_free.clone(), self.durable_hwm);
            self.write_header(|h| {
                h.marks = marks;
                h.floor = h.floor.max(floor);
                h.free = free;
                h.hwm = hwm;
                h.reserved = reserve;
            })?;
        }
        if !with_them && !self.is(Mutant::NoFlushOfMarks) {
            self.disk.flush()?;
            self.flushed(false);
        }
        Ok(())
    }

    /// Whether no more ranges of lost versions may come.
    pub fn is_strict(&self) -> bool {
        self.lost.len() >= if self.late { 3 * MOST_LOST } else { MOST_LOST }
    }

    /// The number that the next header reserves.
    pub fn reserve(&self) -> u64 {
        match self.is_strict() {
            true => 0,
            false if self.late => self.version() + 4 * RESERVED,
            false => self.version() + RESERVED,
        }
    }

    /// The first header of an opening: the floor is above all versions that may be lost, and nothing
    /// else is marked.
    fn move_floor(&mut self, mut marks: BTreeSet<u32>) -> Step<()> {
        if self.durable != self.current {
            self.disk.flush()?;
            self.flushed(false);
        }
        let version = self.version();
        let txn = self.txn()?;
        marks.extend(txn.spilled.iter().map(|p| p / REGION));
        let (free, hwm) = (txn.free_at_base.clone(), txn.hwm_at_base);
        let floor = match self.is(Mutant::FloorBelowLost) {
            true => self.current,
            false => version - 1,
        };
        self.marks = marks.clone();
        let reserve = self.reserve();
        self.write_header(|h| {
            h.marks = marks;
            h.floor = floor;
            h.free = free;
            h.hwm = hwm;
            h.reserved = reserve;
        })?;
        if !self.is(Mutant::NoFlushOfMarks) {
            self.disk.flush()?;
        }
        Ok(())
    }

    pub fn image(&mut self, page: u32, record: Option<Vec<(u32, u64)>>) -> Step<Image> {
        let (ver, base, id) = (self.version(), self.durable, self.id());
        let from = self.txn()?.base;
        match self.txn()?.dirty.get(&page) {
            Some(p) => Ok(Image {
                record,
                ..Image::new(p.clone(), ver, from, base, id)
            }),
            None => bug("a dirty page is gone"),
        }
    }

    /// Writes dirty pages before the commit: one, or some of `double`.
    pub fn spill(&mut self) -> Step<()> {
        if self.double {
            return self.spill_double();
        }
        let mut pages: Vec<u32> = self.txn()?.dirty.keys().copied().collect();
        pages.sort_unstable();
        if !self.is(Mutant::RecordSpilled) {
            pages.retain(|page| *page != self.carrier);
        }
        if pages.is_empty() {
            return Ok(());
        }
        let page = *self.random.pick(&pages);
        self.bring_home()?;
        self.mark(&[page], false)?;
        let image = self.image(page, None)?;
        self.disk
            .write(Place::Page(page), Block::Page(Rc::new(image)))?;
        self.txn()?.spilled.insert(page);
        Ok(())
    }

    pub fn commit(&mut self, flush: bool) -> Step<()> {
        if self.double {
            return self.commit_double();
        }
        let mut pages: Vec<u32> = self.txn()?.dirty.keys().copied().collect();
        if pages.is_empty() {
            self.txn = None;
            return Ok(());
        }
        if flush && self.late && self.commit_late()? {
            return Ok(());
        }
        self.bring_home()?;
        pages.sort_unstable();
        self.mark(&pages, flush)?;
        self.shuffle(&mut pages);
        let carrier = pages[0];
        let mut images = Vec::new();
        let mut own = BTreeMap::new();
        for page in &pages[1..] {
            let image = self.image(*page, None)?;
            own.insert(*page, image.id);
            images.push((*page, image));
        }
        let mut group = self.group.clone();
        group.extend(own.iter().map(|(p, i)| (*p, *i)));
        group.remove(&carrier);
        let named = if self.is(Mutant::RecordOfOneCommit) {
            &own
        } else {
            &group
        };
        let record = named.iter().map(|(p, i)| (*p, *i)).collect();
        let image = self.image(carrier, Some(record))?;
        group.insert(carrier, image.id);
        images.push((carrier, image));
        self.shuffle(&mut images);
        if !self.is(Mutant::RecordInTheMiddle) {
            images.sort_by_key(|(page, _)| *page == self.carrier);
        }
        self.carrier = carrier;
        for (page, image) in images {
            self.disk
                .write(Place::Page(page), Block::Page(Rc::new(image)))?;
        }
        let Some(txn) = self.txn.take() else {
            return bug("no transaction");
        };
        let is_late =
            |chain: &mut Chain| matches!(&chain.late, Some((p, _)) if !txn.dirty.contains_key(p));
        self.chain = self.chain.take_if(is_late);
        self.current = txn.version;
        if self.is(Mutant::ReuseBeforeDurable) {
            self.free.extend(txn.freed);
        } else {
            self.quarantine.extend(txn.freed);
        }
        self.group = group;
        if flush {
            self.disk.flush()?;
            self.flushed(true);
        }
        Ok(())
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.random.below(i as u64 + 1) as usize);
        }
    }

    pub fn rollback(&mut self) -> Step<()> {
        let spilled: Vec<u32> = self.txn()?.spilled.iter().copied().collect();
        if self.double {
            self.undo_double(&spilled)?;
        } else if !spilled.is_empty() && !self.is(Mutant::NoUndoOfSpills) {
            let (version, base) = (self.version(), self.txn()?.base);
            self.disk.flush()?;
            self.durable = self.current;
            self.group.clear();
            let mut free = self.txn()?.free_at_base.clone();
            free.extend(self.quarantine.iter());
            let (floor, hwm, marks) = (self.durable, self.txn()?.hwm_at_base, self.marks.clone());
            self.write_header(|h| {
                h.marks = marks;
                h.floor = h.floor.max(floor);
                h.free = free;
                h.hwm = hwm;
            })?;
            for page in spilled {
                let Some(image) = self.disk.page(page).cloned() else {
                    return bug("a spill is gone");
                };
                if image.page.birth <= base {
                    let undone = self.strip(image.page.clone(), base, version, self.durable);
                    self.disk.write(Place::Page(page), Block::Page(undone))?;
                }
            }
            self.disk.flush()?;
            self.flushed(false);
        }
        let Some(txn) = self.txn.take() else {
            return bug("no transaction");
        };
        self.free = txn
            .free_at_base
            .into_iter()
            .filter(|p| *p < txn.hwm_at_base)
            .collect();
        self.hwm = txn.hwm_at_base;
        Ok(())
    }

    /// Finds the unreachable pages that crashes have left.
    pub fn sweep(&mut self) -> Step<()> {
        let mut pages = BTreeSet::new();
        self.scan(self.current, &mut pages)?;
        pages.insert(CATALOG);
        let mut todo: Vec<u32> = pages.iter().copied().collect();
        while let Some(page) = todo.pop() {
            let Ok(node) = self.page(page) else { continue };
            for e in node
                .ents
                .iter()
                .filter(|e| matches!(e.why, Why::Killed | Why::Replaced))
            {
                let mut owned: BTreeSet<u32> = e.page().into_iter().chain(e.chain()).collect();
                if node.kind == Kind::Catalog
                    && e.why == Why::Killed
                    && let Some(root) = e.page()
                {
                    self.collect_tree(root, e.end - 1, &mut owned)?;
                }
                todo.extend(owned.iter().filter(|p| pages.insert(**p)));
            }
        }
        self.flush_what_was_found()?;
        if self.durable != self.current {
            self.disk.flush()?;
            self.flushed(true);
        }
        self.free = (CATALOG + 1..self.hwm)
            .filter(|p| !pages.contains(p))
            .collect();
        self.durable_free = self.free.clone();
        self.durable_hwm = self.hwm;
        Ok(())
    }

    fn collect_tree(&self, page: u32, view: u64, out: &mut BTreeSet<u32>) -> Step<()> {
        out.insert(page);
        for e in self.page(page)?.ents.iter().filter(|e| e.sees(view)) {
            out.extend(e.chain());
            if let Some(child) = e.page() {
                self.collect_tree(child, view, out)?;
            }
        }
        Ok(())
    }
}
