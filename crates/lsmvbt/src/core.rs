//! The state of a handle: storage, caches, header, free map, transaction. It reads, allocates and
//! frees pages. Every other module builds on it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use foldhash::{HashMap, HashSet};

use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::found::FoundPages;
use crate::freemap::FreeMap;
use crate::header::Header;
use crate::heal::Healing;
use crate::home::Late;
use crate::late::Chain;
use crate::lost::Lost;
use crate::page::{Image, Node, NodeRef, PageType, Stamp};
use crate::readers::{Held, Keep};
use crate::room;
use crate::shared::{
    self, AGAIN, CURRENT, DURABLE, EPOCH, HEADER_DURABLE, LATE, NEXT, POISON, RING_HEAD, SLOT,
    STAYS,
};
use crate::slots::Slots;
use crate::space::Space;
use crate::stays::Stays;
use crate::storage::{READERS, Storage};
use crate::tree::value::Walked;
use crate::types::{Options, PageNo, Stats, TreeKind};
use crate::unflushed::Unflushed;
use crate::unowned::Unowned;

/// Reads again after a checksum error: a writer may have been in the middle of the page.
const READ_TRIES: usize = 200;

/// The reason why a transaction that [`Core::write`] has written takes no more changes.
pub(crate) const WRITTEN: &str = "the transaction is written: commit it or roll it back";

/// The reason why a transaction can only be rolled back.
pub(crate) const BROKEN: &str = "an earlier change failed half way: roll back";

/// A snapshot in use.
pub(crate) struct Taken {
    pub(crate) version: u64,
    pub(crate) mark: usize,
    pub(crate) live: Arc<AtomicBool>,
}

/// One step of allocation, so that it can be undone.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AllocOp {
    /// A free page was taken.
    Took(u32),
    /// The file grew from this high-water mark to give this page.
    Grew(u32, u32),
    /// A page of this transaction was freed.
    FreedOwn(u32),
    /// A page of earlier versions dies with this transaction.
    Freed(u32),
}

/// The state that a savepoint goes back to.
#[derive(Default)]
pub(crate) struct Savepoint {
    /// Nodes before the change; `None`: the transaction had not changed the node before.
    pub(crate) before: HashMap<u32, Option<NodeRef>>,
    pub(crate) ops: usize,
}

/// The parts of a written transaction that its publication needs.
#[derive(Default)]
pub(crate) struct Written {
    pub(crate) flushed: bool,
    /// Pages and checksums for the record of the next commit.
    pub(crate) crcs: Vec<(u32, u32)>,
    /// Pages that are in a durable slot, and must still be written in place.
    pub(crate) in_place: Vec<(u32, Box<Image>)>,
    /// The page that is late from this version on.
    pub(crate) late: Option<Late>,
    /// The page that stays in its slot from this version on.
    pub(crate) stays: Option<Stays>,
}

/// The write transaction.
pub(crate) struct Txn {
    /// The version it makes: M.
    pub(crate) version: u64,
    /// The version it began from.
    pub(crate) base: u64,
    pub(crate) dirty: HashMap<u32, NodeRef>,
    /// Pages born in it.
    pub(crate) own: HashSet<u32>,
    /// Pages that die with it.
    pub(crate) freed: HashSet<u32>,
    /// Those of them that die also where it is rolled back.
    pub(crate) unowned: Unowned,
    pub(crate) ops: Vec<AllocOp>,
    /// Pages written before the commit, with the checksums of what was written.
    pub(crate) spilled: BTreeMap<u32, u32>,
    /// Pages born in it have been written.
    pub(crate) wrote_new_pages: bool,
    /// The pages of the file before those born in it were written.
    pub(crate) ended_at: Option<u64>,
    pub(crate) savepoints: Vec<Savepoint>,
    /// The versions that garbage collection must keep, once requested.
    pub(crate) keep: Option<Keep>,
    /// The oldest version of the history that it keeps, once requested.
    pub(crate) kept_since: Option<u64>,
    /// The page that will carry the commit record, and pages for the part that does not fit there;
    /// once prepared, and until the next change.
    pub(crate) record: Option<(u32, Vec<u32>)>,
    /// Pages that were taken for a record, and that the one of now does not need.
    pub(crate) spare_lists: Vec<u32>,
    /// Once it is written: only its publication is missing.
    pub(crate) written: Option<Written>,
    /// The number of own pages from which it looks for space before the file grows.
    pub(crate) look_for_space_at: usize,
    /// The number of node changes.
    pub(crate) touched: u64,
    /// The number of open savepoints when a change failed half way. Only going back before it
    /// helps.
    pub(crate) broken: Option<usize>,
    /// The slots that it has written; none before a header has prepared for them: see
    /// [`crate::rounds`].
    pub(crate) rounds: Option<u32>,
    /// Pages born in it were written in place, and not flushed since.
    pub(crate) born_unflushed: bool,
}

impl Txn {
    pub(crate) fn new(version: u64, base: u64) -> Txn {
        Txn {
            version,
            base,
            dirty: HashMap::default(),
            own: HashSet::default(),
            freed: HashSet::default(),
            unowned: Unowned::default(),
            ops: Vec::new(),
            spilled: BTreeMap::new(),
            wrote_new_pages: false,
            ended_at: None,
            savepoints: Vec::new(),
            keep: None,
            kept_since: None,
            record: None,
            spare_lists: Vec::new(),
            written: None,
            look_for_space_at: 0,
            touched: 0,
            broken: None,
            rounds: None,
            born_unflushed: false,
        }
    }

    /// The place of the commit record must be chosen again. The next change may write or free the page that
    /// was to carry it, and the record has other pages then.
    pub(crate) fn forget_record(&mut self) {
        if let Some((_, lists)) = self.record.take() {
            self.spare_lists.extend(lists);
        }
    }
}

/// The state of a [`crate::Db`].
pub(crate) struct Core {
    pub(crate) storage: Box<dyn Storage>,
    pub(crate) options: Options,
    pub(crate) double: bool,
    pub(crate) salt: u64,
    pub(crate) cache: Cache,
    /// Pages that a recovery has read.
    pub(crate) found: FoundPages,
    pub(crate) stats: Stats,
    pub(crate) header: Header,
    /// Versions that never happened. Pages that one of them wrote last are stripped.
    pub(crate) lost: Lost,
    /// The walk that frees what a crash has left, once it has begun.
    pub(crate) healing: Option<Box<Healing>>,
    /// Headers with new marks that this handle has written since it moved the floor.
    pub(crate) marked_by: u64,
    /// False while the newest header may not have reached the disk.
    pub(crate) header_flushed: bool,
    /// The map of free pages may have those of the newest header's slots.
    pub(crate) slots_may_have_moved: bool,
    pub(crate) space: Space,
    pub(crate) unflushed: Unflushed,
    pub(crate) chain: Chain,
    pub(crate) ring: u64,
    pub(crate) epoch: u64,
    pub(crate) held: [Held; READERS],
    pub(crate) snapshots: Vec<Taken>,
    pub(crate) txn: Option<Txn>,
    /// The oldest version of the history when this handle last began to write on a durable version.
    pub(crate) durable_keeps_since: u64,
    /// Changes of each tree by this handle, for cursors.
    pub(crate) changes: HashMap<u32, u64>,
    pub(crate) generation: u64,
    pub(crate) since_pass: u32,
    pub(crate) dead_pages: HashSet<u32>,
    /// The number by which it asks for its turn (0: it never has), and whether it has: see
    /// [`crate::turns`].
    pub(crate) number: u64,
    pub(crate) is_waiting: bool,
    /// A search has passed a router that was equal to the sought key.
    pub(crate) equal_router: bool,
    /// The overflow chain that was last read or changed in part.
    pub(crate) walked: Walked,
    /// Shared memory has said that it is of this file: see [`crate::same_file`].
    pub(crate) is_told: bool,
}

impl Core {
    pub(crate) fn load(&self, word: usize) -> Result<u64> {
        // The other words are read next to these. Each look costs every statement some instructions.
        if self.is_told && matches!(word, CURRENT | LATE | STAYS | SLOT) {
            self.must_be_this_file()?;
        }
        shared::load(&*self.storage, word)
    }

    pub(crate) fn store(&self, word: usize, value: u64) -> Result<()> {
        if self.is_told {
            self.must_be_this_file()?;
        }
        shared::store(&*self.storage, word, value)
    }

    pub(crate) fn check_poison(&self) -> Result<()> {
        if self.load(POISON)? != 0 {
            Err(Error::Poisoned)
        } else {
            Ok(())
        }
    }

    /// After a failed write or flush: no handle may go on.
    pub(crate) fn poison(&mut self, error: Error) -> Error {
        // If shared memory fails as well, the process that owned it is gone, and no handle needs
        // the flag.
        let _ = self.store(POISON, 1);
        self.cache.clear();
        error
    }

    pub(crate) fn flush_storage(&mut self) -> Result<()> {
        // After a failed flush the kernel reports success for the next one.
        self.check_poison()?;
        self.stats.flushes += 1;
        let again = self.load(AGAIN)?;
        // A handle that dies in the flush takes its error along.
        self.store(AGAIN, 1)?;
        let flushed = self.storage.sync().map_err(Error::io("flushing"));
        flushed.map_err(|e| self.poison(e))?;
        self.header_flushed = true;
        self.store(HEADER_DURABLE, self.header.seq)?;
        self.store(AGAIN, again)
    }

    pub(crate) fn txn(&mut self) -> Result<&mut Txn> {
        self.txn
            .as_mut()
            .ok_or(Error::Transaction("there is no write transaction"))
    }

    /// Makes a change. One that fails after it has changed a node leaves a transaction that cannot
    /// be committed.
    pub(crate) fn changing<T>(&mut self, change: impl FnOnce(&mut Core) -> Result<T>) -> Result<T> {
        let before = self.txn()?.touched;
        if self.txn()?.broken.is_some() {
            return Err(Error::Transaction(BROKEN));
        }
        if self.txn()?.written.is_some() {
            return Err(Error::Transaction(WRITTEN));
        }
        let savepoints = self.txn()?.savepoints.len();
        // Until it has returned, with an error or by a panic.
        self.txn()?.broken = Some(savepoints);
        let changed = change(self);
        let touched = self.txn.as_ref().map_or(before, |txn| txn.touched);
        if (changed.is_ok() || touched == before)
            && let Some(txn) = &mut self.txn
        {
            txn.broken = None;
        }
        changed
    }

    /// M, inside a write transaction.
    pub(crate) fn version(&self) -> Result<u64> {
        match &self.txn {
            Some(t) => Ok(t.version),
            None => Err(Error::Transaction("there is no write transaction")),
        }
    }

    /// The versions that stand in the pages of the write transaction.
    pub(crate) fn stamp(&mut self) -> Result<Stamp> {
        let durable = self.load(DURABLE)?;
        let txn = self.txn()?;
        Ok(Stamp {
            ver: txn.version,
            from: txn.base,
            durable,
        })
    }

    /// The newest version that is over. Not the base: transactions after it were rolled back, but
    /// pages or a slot may carry their numbers. The caller must hold WRITE.
    pub(crate) fn newest_over(&self) -> Result<u64> {
        let next = match &self.txn {
            Some(txn) => txn.version,
            None => self.load(NEXT)?,
        };
        Ok(next - 1)
    }

    /// True for the view of the write transaction that is open.
    pub(crate) fn is_writing(&self, view: u64) -> bool {
        self.txn.as_ref().is_some_and(|txn| txn.version == view)
    }

    /// Drops cached pages that other handles have changed.
    pub(crate) fn sync_cache(&mut self) -> Result<()> {
        let epoch = self.load(EPOCH)?;
        let (head, pages) = shared::announced(&*self.storage, self.ring)?;
        match pages {
            Some(pages) if epoch == self.epoch => {
                for page in pages {
                    self.cache.remove(page);
                    if let Some(healing) = &mut self.healing {
                        healing.wrote(page);
                    }
                }
            }
            _ => {
                self.cache.clear();
                if let Some(healing) = &mut self.healing {
                    healing.begin_again();
                }
            }
        }
        self.ring = head;
        self.epoch = epoch;
        Ok(())
    }

    /// This handle need not read its own changes again.
    pub(crate) fn skip_own_news(&mut self) -> Result<()> {
        self.ring = self.load(RING_HEAD)?;
        self.epoch = self.load(EPOCH)?;
        Ok(())
    }

    /// Releases the marks of dropped snapshots.
    pub(crate) fn release_snapshots(&mut self) -> Result<()> {
        let mut i = 0;
        while i < self.snapshots.len() {
            if self.snapshots[i].live.load(Ordering::Acquire) {
                i += 1;
            } else {
                let gone = self.snapshots.swap_remove(i);
                self.unmark(gone.mark)?;
            }
        }
        Ok(())
    }

    // ---- pages

    /// The bytes of a page, unchecked; zeros where the file ends.
    pub(crate) fn read_image(&mut self, page: u32) -> Result<Box<Image>> {
        if let Some(image) = self.found(page)? {
            return Ok(image);
        }
        let mut image = room::image()?;
        self.stats.pages_read += 1;
        self.storage
            .read_at(PageNo(page).offset(), &mut image[..])
            .map_err(Error::io("reading a page"))?;
        self.note_found(page, &image)?;
        Ok(image)
    }

    /// A node, from the write transaction or the newest image.
    pub(crate) fn node(&mut self, page: u32) -> Result<NodeRef> {
        if let Some(node) = self.txn.as_ref().and_then(|t| t.dirty.get(&page)) {
            return Ok(node.clone());
        }
        if let Some(node) = self.cache.get(page) {
            return Ok(node);
        }
        let mut tries = 0;
        loop {
            match self.read_node(page) {
                Ok(node) => {
                    let node = Arc::new(node);
                    self.cache.insert(page, node.clone());
                    return Ok(node);
                }
                Err(e @ Error::Damaged { .. }) if tries >= READ_TRIES => return Err(e),
                Err(Error::Damaged { .. }) => tries += 1,
                Err(e) => return Err(e),
            }
            if tries > 2 {
                std::thread::yield_now();
            }
        }
    }

    /// A node of a tree, expected at the end of a router, root or chain.
    pub(crate) fn node_of(&mut self, page: u32, tree: u32, level: Option<u8>) -> Result<NodeRef> {
        let node = self.node(page)?;
        let what = if !matches!(node.kind, PageType::Leaf | PageType::Inner) {
            "it is no node of a tree"
        } else if node.tree != tree {
            "it belongs to another tree"
        } else if (node.level == 0) != (node.kind == PageType::Leaf)
            || level.is_some_and(|l| l != node.level)
        {
            "it is on another level than its parent says"
        } else {
            return Ok(node);
        };
        Err(Error::Damaged {
            page: PageNo(page),
            what,
        })
    }

    /// Saves the node's current state for the innermost savepoint, before it changes.
    fn remember(&mut self, page: u32) -> Result<()> {
        let txn = self.txn()?;
        txn.touched += 1;
        txn.forget_record();
        let known = txn
            .savepoints
            .last()
            .is_none_or(|s| s.before.contains_key(&page));
        if known {
            return Ok(());
        }
        let spilled = txn.spilled.contains_key(&page);
        let before = match txn.dirty.get(&page) {
            Some(node) => Some(node.clone()),
            None if spilled => Some(self.node(page)?),
            None => None,
        };
        if let Some(s) = self.txn()?.savepoints.last_mut() {
            s.before.insert(page, before);
        }
        Ok(())
    }

    /// A node to change.
    pub(crate) fn node_mut(&mut self, page: u32) -> Result<&mut Node> {
        self.remember(page)?;
        if !self.txn()?.dirty.contains_key(&page) {
            let node = self.node(page)?;
            self.txn()?.dirty.insert(page, node);
        }
        let txn = self.txn.as_mut();
        let node = txn
            .and_then(|txn| txn.dirty.get_mut(&page))
            .ok_or(Error::Transaction("a dirty page is gone"))?;
        if Arc::strong_count(node) > 1 {
            room::for_a_page()?;
            self.stats.copied += 1;
        }
        Ok(Arc::make_mut(node))
    }

    /// A new page, filled by `make`.
    pub(crate) fn allocate(&mut self, make: impl FnOnce(PageNo, u64) -> Node) -> Result<u32> {
        room::for_a_page()?;
        let version = self.version()?;
        let hwm = self.space.map.hwm;
        let page = self.space.map.allocate()?;
        let op = if page >= hwm {
            AllocOp::Grew(hwm, page)
        } else {
            AllocOp::Took(page)
        };
        self.remember(page)?;
        let txn = self.txn()?;
        txn.ops.push(op);
        txn.own.insert(page);
        txn.dirty
            .insert(page, Arc::new(make(PageNo(page), version)));
        Ok(page)
    }

    /// A new node of a tree.
    pub(crate) fn allocate_node(&mut self, like: &Node) -> Result<u32> {
        let (kind, tree_kind, tree, level) = (like.kind, like.tree_kind, like.tree, like.level);
        self.allocate(|page, m| Node::new(page, kind, tree_kind, tree, level, m))
    }

    /// Frees a page: at once if it was born in this transaction, else when this transaction is
    /// durable (MV6, MV7).
    pub(crate) fn free_page(&mut self, page: u32) -> Result<()> {
        self.remember(page)?;
        let txn = self.txn()?;
        txn.dirty.remove(&page);
        if txn.own.remove(&page) {
            // It may become the first page of another chain of this version.
            self.walked = Walked::default();
            let txn = self.txn()?;
            txn.spilled.remove(&page);
            txn.ops.push(AllocOp::FreedOwn(page));
            self.space.map.insert(page);
            return Ok(());
        }
        if txn.freed.insert(page) {
            txn.ops.push(AllocOp::Freed(page));
            txn.unowned.dies(page);
        }
        Ok(())
    }

    /// True if a page is free, dies with this transaction, or is of the slots: these may have taken free
    /// pages within the file, which a cache may still have as nodes.
    pub(crate) fn is_free(&self, page: u32) -> bool {
        crate::freemap::is_fixed(page)
            || Slots::of(&self.header).is_some_and(|slots| slots.contains(page))
            || page >= self.space.map.hwm
            || self.space.map.contains(page)
            || self.txn.as_ref().is_some_and(|t| t.freed.contains(&page))
            || self.space.keeps_back(page)
    }

    /// Undoes allocations back to the first `ops` of the transaction.
    pub(crate) fn undo_ops(&mut self, ops: usize) -> Result<()> {
        self.walked = Walked::default();
        loop {
            let txn = self.txn()?;
            if txn.ops.len() <= ops {
                return Ok(());
            }
            let Some(op) = txn.ops.pop() else {
                return Ok(());
            };
            match op {
                AllocOp::Took(p) => {
                    txn.own.remove(&p);
                    txn.spare_lists.retain(|list| *list != p);
                    self.space.map.insert(p);
                }
                AllocOp::Grew(hwm, p) => {
                    txn.own.remove(&p);
                    txn.spare_lists.retain(|list| *list != p);
                    self.space.map.truncate(hwm);
                }
                AllocOp::FreedOwn(p) => {
                    txn.own.insert(p);
                    self.space.map.remove(p);
                }
                AllocOp::Freed(p) if !txn.unowned.contains(p) => {
                    txn.freed.remove(&p);
                }
                AllocOp::Freed(_) => {}
            }
        }
    }

    /// The free map as it was at the base of the transaction.
    pub(crate) fn base_free(&self) -> FreeMap {
        let mut free = self.space.map.clone();
        for op in self.txn.iter().flat_map(|t| t.ops.iter().rev()) {
            match *op {
                AllocOp::Took(p) => free.insert(p),
                AllocOp::Grew(hwm, _) => free.truncate(hwm),
                AllocOp::FreedOwn(p) => free.remove(p),
                AllocOp::Freed(_) => {}
            }
        }
        free
    }

    /// The versions that garbage collection must keep.
    pub(crate) fn keep(&mut self) -> Result<Keep> {
        if let Some(keep) = &self.txn()?.keep {
            return Ok(keep.clone());
        }
        let mut keep = self.keep_of_readers()?;
        let base = self.txn()?.base;
        keep.add(base, base);
        let durable = self.load(DURABLE)?;
        keep.add(durable, durable);
        self.txn()?.keep = Some(keep.clone());
        Ok(keep)
    }

    /// The versions that readers and the history keep.
    pub(crate) fn keep_of_readers(&mut self) -> Result<Keep> {
        self.release_snapshots()?;
        let mut keep = Keep::default();
        for (low, high) in self.marks_in_use()? {
            keep.add(low, high);
        }
        if self.header.has_history() {
            let (low, version) = (self.txn_keeps_since()?, self.version()?);
            keep.add(low, version);
        }
        Ok(keep)
    }

    /// The newest version that this handle may read now.
    pub(crate) fn current(&self) -> Result<u64> {
        self.load(CURRENT)
    }

    /// Marks a tree as changed, for cursors.
    pub(crate) fn changed(&mut self, tree: u32) {
        *self.changes.entry(tree).or_insert(0) += 1;
    }

    /// The number of changes to a tree by this handle.
    pub(crate) fn change_count(&self, tree: u32) -> u64 {
        self.generation + self.changes.get(&tree).copied().unwrap_or(0)
    }

    /// The kind of a tree whose root is known.
    pub(crate) fn kind_of(&mut self, root: u32, tree: u32) -> Result<TreeKind> {
        let node = self.node_of(root, tree, None)?;
        node.tree_kind.ok_or(Error::Damaged {
            page: PageNo(root),
            what: "its tree's kind is missing",
        })
    }
}
