//! Nodes: decoded pages.
//!
//! A node is a page's header, its entries in order, and the bytes of their payloads. During a
//! change it may hold more than a page can. [`Node::fits`] detects that, and the tree splits it.
//! Nodes are shared as [`NodeRef`]. A change copies a shared node, so a cursor's node never
//! changes.

use std::hint;
use std::slice;
use std::sync::{Arc, OnceLock};

use super::abbreviated::{Abbreviated, Numbers};
use super::cell::{self, Shape};
use super::spans::{Spans, With};
use super::{
    CAPACITY, HEADER, Image, PADDING, PageType, Stamp, kind_byte, kind_from, set_u16, set_u32,
    set_u64, u16_at, u32_at, u64_at, verify,
};
use crate::error::{Error, Result};
use crate::payloads::{Payloads, Sought, Span};
use crate::prefetch::prefetch;
use crate::room;
use crate::types::{PAGE_SIZE, PageNo, TreeKind};

/// The end of an entry that has not ended.
pub(crate) const INF: u64 = u64::MAX;

/// Free bytes before a cell: as many as the version in which an entry ends may take, for a long time.
const SLACK: usize = 3;
/// The cells of a page with such bytes have so many bytes at least, on average,
const LARGE_CELL: usize = 64;
/// and its gap has so many left.
const ENOUGH: usize = 128;

/// Bytes of a row that its reader wants first.
const BEGINNING: usize = 64;

/// A shared node.
pub(crate) type NodeRef = Arc<Node>;

/// The reason why an entry ended. It gives the owner of the pages that the entry points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Ended {
    /// It was deleted, replaced, or its page died. It owns its child or overflow chain, which is
    /// freed with it.
    #[default]
    Killed,
    /// Its copy in another node owns them.
    Moved,
    /// Of a root in the catalog: it owns the page itself, but not the pages below.
    Replaced,
}

/// One entry of a node. Alive in versions `start <= v < end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Integer key, tree number.
    pub(crate) key: i64,
    /// The offset of the local payload in the node's heap.
    pub(crate) off: u32,
    /// Bytes of the whole payload.
    pub(crate) total: u32,
    /// Bytes of it that belong to the key.
    pub(crate) key_len: u32,
    /// The page of a router or root; the value of a meta entry.
    pub(crate) child: u32,
    /// First page of the overflow chain, or 0.
    pub(crate) overflow: u32,
    /// Bytes of the local payload.
    pub(crate) local: u16,
    pub(crate) ended: Ended,
}

impl Entry {
    pub(crate) fn visible(&self, view: u64) -> bool {
        self.start <= view && view < self.end
    }

    pub(crate) fn live(&self) -> bool {
        self.end == INF
    }
}

/// A decoded page. Fields that a search reads come first, in this order, so that they are in few lines of
/// the processor's cache.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Node {
    newest_start: u64,
    dead: u32,
    /// The number of entries. Until `entries` are wanted, they are cells of the page in `heap`.
    count: u32,
    pub(crate) page: PageNo,
    pub(crate) tree: u32,
    pub(crate) kind: PageType,
    pub(crate) tree_kind: Option<TreeKind>,
    pub(crate) level: u8,
    /// Slots and cells of the page that was read, without the gap between them. Payloads that were inserted
    /// since. Then [`PADDING`] readable bytes.
    heap: Vec<u8>,
    /// Of all entries. Made by the first search in a node that was changed.
    spans: OnceLock<Spans>,
    abbreviated: Abbreviated,
    /// A reader that only reads its own view does not need them, and they take three times the
    /// space of a page.
    entries: OnceLock<Vec<Entry>>,
    pub(crate) birth: u64,
    pub(crate) ver: u64,
    pub(crate) base: u64,
    /// Next page of an overflow chain.
    pub(crate) next: u32,
    /// Bytes of slots and cells.
    size: usize,
    /// Bytes of the page before its cells that `heap` does not have: the header and the gap.
    cut: usize,
}

impl Node {
    /// An empty node of a tree.
    pub(crate) fn new(
        page: PageNo,
        kind: PageType,
        tree_kind: Option<TreeKind>,
        tree: u32,
        level: u8,
        birth: u64,
    ) -> Node {
        Node {
            page,
            kind,
            tree_kind,
            level,
            tree,
            birth,
            ver: birth,
            base: 0,
            next: 0,
            entries: OnceLock::new(),
            count: 0,
            spans: OnceLock::new(),
            abbreviated: Abbreviated::default(),
            heap: vec![0; PADDING],
            size: 0,
            cut: 0,
            dead: 0,
            newest_start: 0,
        }
    }

    /// A page of an overflow chain.
    pub(crate) fn overflow(page: PageNo, tree: u32, birth: u64, data: &[u8], next: u32) -> Node {
        let mut node = Node::new(page, PageType::Overflow, None, tree, 0, birth);
        node.heap = Vec::with_capacity(data.len() + PADDING);
        node.heap.extend_from_slice(data);
        node.heap.resize(data.len() + PADDING, 0);
        node.size = data.len();
        node.next = next;
        node
    }

    /// Data of an overflow page.
    pub(crate) fn data(&self) -> &[u8] {
        &self.heap[..self.size]
    }

    pub(crate) fn data_mut(&mut self) -> &mut [u8] {
        &mut self.heap[..self.size]
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        self.entries.get_or_init(|| self.decode_cells().collect())
    }

    /// Reads the lines of the processor's cache that a search or a scan reads first, all at once. Counting a
    /// reference to the node reads one of them, and no later read begins before it is there.
    #[inline]
    pub(crate) fn touch(&self) {
        let spans = self.spans.get().map_or(0, |spans| spans.integers().len());
        hint::black_box((
            self.newest_start,
            self.heap.len(),
            spans,
            self.abbreviated.is_made(),
        ));
    }

    /// The same for later: no read waits for these lines.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch(slice::from_ref(self));
    }

    /// Has the processor fetch the beginning of an entry's payload, where a row's own header is.
    #[inline]
    pub(crate) fn prefetch_payload(&self, at: usize) {
        if let Some(span) = self.spans().get(at) {
            let payload = self.payload(span);
            prefetch(&payload[..payload.len().min(BEGINNING)]);
        }
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.count as usize
    }

    /// The entries of the page in `heap`. All are valid: [`Node::decode`] has checked each.
    fn decode_cells(&self) -> impl Iterator<Item = Entry> {
        (0..self.len()).map_while(|i| self.decode_cell(i))
    }

    fn decode_cell(&self, at: usize) -> Option<Entry> {
        let page = &self.heap[..self.heap.len() - PADDING];
        let offset = usize::from(u16_at(page, 2 * at)).checked_sub(self.cut)?;
        cell::get(page, offset, self.shape(), self.birth)
    }

    /// The entries, for a change.
    fn entries_mut(&mut self) -> &mut Vec<Entry> {
        if self.entries.get().is_none() {
            self.entries = OnceLock::from(self.decode_cells().collect::<Vec<_>>());
        }
        match self.entries.get_mut() {
            Some(entries) => entries,
            None => unreachable!("they were made just now"),
        }
    }

    /// Bytes of slots and cells.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// True if it fits into a page.
    pub(crate) fn fits(&self) -> bool {
        self.size <= CAPACITY
    }

    pub(super) fn shape(&self) -> Shape {
        Shape::of(self.kind, self.tree_kind)
    }

    /// Bytes that an entry takes of this node.
    pub(crate) fn cost(&self, e: &Entry) -> usize {
        2 + cell::len(e, self.shape(), self.birth)
    }

    /// True if every entry is visible at `view`: nothing needs to be filtered.
    #[inline]
    pub(crate) fn plain(&self, view: u64) -> bool {
        self.dead == 0 && self.newest_start <= view
    }

    /// True if no entry has begun or ended after `version`. In memory `ver` may be older.
    pub(crate) fn unchanged_since(&self, version: u64) -> bool {
        let before = |e: &Entry| e.start <= version && (e.live() || e.end <= version);
        self.plain(version) || self.entries().iter().all(before)
    }

    /// True if it has entries that a lazy split has moved away.
    pub(crate) fn is_lazy(&self) -> bool {
        self.dead > 0
            && self
                .entries()
                .iter()
                .any(|e| !e.live() && e.ended == Ended::Moved)
    }

    pub(crate) fn dead(&self) -> usize {
        self.dead as usize
    }

    pub(crate) fn live_count(&self) -> usize {
        self.len() - self.dead()
    }

    /// The local payload of an entry of this node.
    #[inline]
    pub(crate) fn local(&self, e: &Entry) -> &[u8] {
        let from = e.off as usize;
        &self.heap[from..from + usize::from(e.local)]
    }

    /// The same with the readable bytes after it.
    pub(crate) fn local_padded(&self, e: &Entry) -> &[u8] {
        let from = e.off as usize;
        &self.heap[from..from + usize::from(e.local) + PADDING]
    }

    /// The places of all payloads.
    #[inline]
    pub(crate) fn spans(&self) -> &Spans {
        self.spans
            .get_or_init(|| self.spans_of(self.entries().iter()))
    }

    /// The same of some of them.
    pub(crate) fn spans_of<'a>(&self, entries: impl ExactSizeIterator<Item = &'a Entry>) -> Spans {
        let mut spans = self.no_spans(entries.len());
        for (at, e) in entries.enumerate() {
            spans.insert(at, e);
        }
        spans
    }

    fn no_spans(&self, capacity: usize) -> Spans {
        let with = With {
            integers: self.tree_kind == Some(TreeKind::Integer),
            children: self.kind == PageType::Inner,
        };
        Spans::with_capacity(capacity, with)
    }

    /// The child below an entry of a node above the leaves.
    #[inline]
    pub(crate) fn child(&self, at: usize) -> u32 {
        self.spans().children()[at]
    }

    /// The abbreviated keys of all entries, and that of the sought one. `keys` are those of all
    /// entries; those after the first `from` are in order.
    pub(crate) fn abbreviated(
        &self,
        keys: Payloads<'_>,
        from: usize,
        sought: &dyn Sought,
    ) -> Option<(&Numbers, u64)> {
        self.abbreviated.of(keys, from, sought)
    }

    /// The payload at a place in this node.
    #[inline]
    pub(crate) fn payload(&self, span: Span) -> &[u8] {
        &self.heap[usize::from(span.offset)..][..usize::from(span.len)]
    }

    /// The payloads at places in this node.
    #[inline]
    pub(crate) fn payloads<'a>(&'a self, spans: &'a [Span]) -> Payloads<'a> {
        Payloads::new(&self.heap, spans)
    }

    /// Inserts before index `at`. The entry's `off` and `local` are set here.
    pub(crate) fn insert(&mut self, at: usize, mut e: Entry, local: &[u8]) {
        let at = at.min(self.entries_mut().len());
        if self.heap.len() > 4 * PAGE_SIZE {
            self.compact();
        }
        let end = self.heap.len() - PADDING;
        e.off = end as u32;
        e.local = local.len() as u16;
        self.heap.truncate(end);
        self.heap.extend_from_slice(local);
        self.heap.resize(end + local.len() + PADDING, 0);
        self.size += self.cost(&e);
        self.dead += u32::from(!e.live());
        self.newest_start = self.newest_start.max(e.start);
        self.abbreviated.forget();
        if let Some(spans) = self.spans.get_mut() {
            spans.insert(at, &e);
        }
        self.entries_mut().insert(at, e);
        self.count += 1;
    }

    /// Appends a copy of an entry of another node.
    pub(crate) fn push_from(&mut self, from: &Node, e: &Entry) {
        self.insert(self.len(), *e, from.local(e));
    }

    fn compact(&mut self) {
        self.spans.take();
        let mut entries = std::mem::take(self.entries_mut());
        let mut heap = Vec::with_capacity(PAGE_SIZE + PADDING);
        for e in &mut entries {
            let from = e.off as usize;
            e.off = heap.len() as u32;
            heap.extend_from_slice(&self.heap[from..from + usize::from(e.local)]);
        }
        heap.resize(heap.len() + PADDING, 0);
        self.heap = heap;
        *self.entries_mut() = entries;
    }

    /// Removes the entry at `at` altogether.
    pub(crate) fn remove(&mut self, at: usize) -> Entry {
        self.abbreviated.forget();
        if let Some(spans) = self.spans.get_mut() {
            spans.remove(at);
        }
        let e = self.entries_mut().remove(at);
        self.count -= 1;
        self.size -= self.cost(&e);
        self.dead -= u32::from(!e.live());
        e
    }

    /// Ends the live entry at `at`.
    pub(crate) fn end(&mut self, at: usize, version: u64, ended: Ended) {
        let mut e = self.entries()[at];
        debug_assert!(e.live() && e.start < version);
        self.size -= self.cost(&e);
        e.end = version;
        e.ended = ended;
        self.size += self.cost(&e);
        self.dead += 1;
        self.entries_mut()[at] = e;
    }

    /// Changes the reason why the dead entry at `at` ended.
    pub(crate) fn set_ended(&mut self, at: usize, ended: Ended) {
        self.entries_mut()[at].ended = ended;
    }

    /// Makes the dead entry at `at` live again: in a page that dies, so that no write is needed.
    pub(crate) fn revive(&mut self, at: usize) {
        let mut e = self.entries()[at];
        if !e.live() {
            self.size -= self.cost(&e);
            e.end = INF;
            e.ended = Ended::Killed;
            self.size += self.cost(&e);
            self.dead -= 1;
            self.entries_mut()[at] = e;
        }
    }

    /// True if both would be written as the same entries.
    pub(crate) fn same_entries(&self, other: &Node) -> bool {
        self.len() == other.len()
            && self.birth == other.birth
            && self.entries().iter().zip(other.entries()).all(|(a, b)| {
                Entry { off: 0, ..*a } == Entry { off: 0, ..*b } && self.local(a) == other.local(b)
            })
    }

    /// Gives the live entry at `at` another value (catalog pages: within one transaction).
    pub(crate) fn set_child(&mut self, at: usize, child: u32) {
        self.entries_mut()[at].child = child;
        if let Some(spans) = self.spans.get_mut() {
            spans.set_child(at, child);
        }
    }

    /// Removes the entries that `keep` refuses and returns them.
    pub(crate) fn sift(&mut self, mut keep: impl FnMut(&Entry) -> bool) -> Vec<Entry> {
        self.spans.take();
        self.abbreviated.forget();
        let mut gone = Vec::new();
        self.entries_mut().retain(|e| {
            let stays = keep(e);
            if !stays {
                gone.push(*e);
            }
            stays
        });
        self.count -= gone.len() as u32;
        for e in &gone {
            self.size -= self.cost(e);
            self.dead -= u32::from(!e.live());
        }
        self.newest_start = self.entries().iter().map(|e| e.start).max().unwrap_or(0);
        gone
    }

    /// The node after undo: nothing that started after `keep`, no end after it.
    pub(crate) fn strip(&mut self, keep: u64) {
        self.sift(|e| e.start <= keep);
        for at in 0..self.len() {
            if self.entries()[at].end > keep {
                self.revive(at);
            }
        }
    }

    /// The page's bytes as version `ver` writes them, sealed. `durable` is the newest durable
    /// version. A leaf with enough room has some free bytes before each cell, for an entry that ends or a
    /// row that becomes a little longer: see [`super::place`].
    ///
    /// # Errors
    /// `TooBig` if it does not fit: a defect of the tree, found before anything is written.
    pub(crate) fn encode(&self, salt: u64, stamp: Stamp) -> Result<Box<Image>> {
        let has_room = self.size + SLACK * self.len() + ENOUGH <= CAPACITY;
        let is_large = self.size >= LARGE_CELL * self.len();
        match self.kind == PageType::Leaf && has_room && is_large {
            true => self.encode_with(salt, stamp, SLACK),
            false => self.encode_with(salt, stamp, 0),
        }
    }

    /// The same, with all free bytes in the gap.
    pub(crate) fn encode_tight(&self, salt: u64, stamp: Stamp) -> Result<Box<Image>> {
        self.encode_with(salt, stamp, 0)
    }

    fn encode_with(&self, salt: u64, stamp: Stamp, slack: usize) -> Result<Box<Image>> {
        let mut image = room::image()?;
        set_u32(&mut image[..], 4, self.page.0);
        set_u64(&mut image[..], 8, salt);
        image[16] = self.kind.byte();
        image[17] = self.level;
        image[19] = kind_byte(self.tree_kind);
        set_u32(&mut image[..], 20, self.tree);
        set_u64(&mut image[..], 24, self.birth);
        stamp.put(&mut image);
        set_u32(&mut image[..], 60, self.next);
        if !self.fits() {
            return Err(Error::TooBig("a node for its page"));
        }
        if self.kind == PageType::Overflow {
            set_u16(&mut image[..], 48, self.size as u16);
            image[HEADER..HEADER + self.size].copy_from_slice(self.data());
        } else {
            self.encode_entries(&mut image, slack)?;
        }
        super::seal(&mut image);
        Ok(image)
    }

    fn encode_entries(&self, image: &mut Image, slack: usize) -> Result<()> {
        let shape = self.shape();
        let mut at = PAGE_SIZE;
        let mut bytes = Vec::with_capacity(64);
        for (i, e) in self.entries().iter().enumerate() {
            bytes.clear();
            cell::put(&mut bytes, e, self.local(e), shape, self.birth);
            let slot = HEADER + 2 * i;
            // The free bytes are below the cell before.
            let slack = if i == 0 { 0 } else { slack };
            at = at
                .checked_sub(bytes.len() + slack)
                .filter(|at| *at >= slot + 2)
                .ok_or(Error::TooBig("a node for its page"))?;
            image[at..at + bytes.len()].copy_from_slice(&bytes);
            set_u16(&mut image[..], slot, at as u16);
        }
        set_u16(&mut image[..], 48, self.len() as u16);
        set_u16(&mut image[..], 50, at as u16);
        Ok(())
    }

    /// Reads a page. Any bytes may be given.
    pub(crate) fn decode(image: &Image, page: PageNo, salt: u64) -> Result<Node> {
        verify(image, page, salt)?;
        room::for_a_page()?;
        let damaged = |what| Error::Damaged { page, what };
        let kind = PageType::from_byte(image[16]).ok_or(damaged("its type is unknown"))?;
        let tree_kind = kind_from(image[19]).ok_or(damaged("its tree's kind is unknown"))?;
        if tree_kind.is_none() && matches!(kind, PageType::Leaf | PageType::Inner) {
            return Err(damaged("its tree's kind is missing"));
        }
        let tree = u32_at(image, 20);
        let mut node = Node::new(page, kind, tree_kind, tree, image[17], u64_at(image, 24));
        node.ver = u64_at(image, 32);
        node.base = u64_at(image, 40);
        node.next = u32_at(image, 60);
        if node.birth > node.ver || node.ver == INF {
            return Err(damaged("it was written before it came to be"));
        }
        let count = usize::from(u16_at(image, 48));
        match kind {
            PageType::Overflow => {
                let data = image.get(HEADER..HEADER + count);
                node.heap = data.ok_or(damaged("its data is too long"))?.to_vec();
                node.heap.resize(count + PADDING, 0);
                node.size = count;
            }
            PageType::Record => {}
            _ => node
                .decode_entries(image, count)
                .ok_or(damaged("a cell is not one"))?,
        }
        Ok(node)
    }

    fn decode_entries(&mut self, image: &Image, count: usize) -> Option<()> {
        let slots = image.get(HEADER..HEADER + 2 * count)?;
        let offsets = slots.chunks_exact(2).map(|slot| u16_at(slot, 0));
        let first = offsets.min().map_or(PAGE_SIZE, usize::from);
        let cells = image.get(first..)?;
        // Cells are behind the slots.
        if first < HEADER + slots.len() {
            return None;
        }
        self.cut = first - slots.len();
        self.heap = Vec::with_capacity(slots.len() + cells.len() + PADDING);
        self.heap.extend_from_slice(slots);
        self.heap.extend_from_slice(cells);
        self.heap.resize(slots.len() + cells.len() + PADDING, 0);

        let mut spans = self.no_spans(count);
        for i in 0..count {
            let e = self.decode_cell(i)?;
            self.size += self.cost(&e);
            self.dead += u32::from(!e.live());
            self.newest_start = self.newest_start.max(e.start);
            spans.insert(i, &e);
        }
        if !self.fits() {
            return None;
        }
        self.spans = OnceLock::from(spans);
        self.count = count as u32;
        Some(())
    }
}
