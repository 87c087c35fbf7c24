//! Cursors: a place in a tree at a view.
//!
//! A cursor holds the page images it stands on. They are immutable and reference-counted. So a
//! slice of an entry that it returns stays valid, across writes, until the cursor moves.
//!
//! Nothing disturbs a cursor of a snapshot. A cursor of the write transaction's view notices
//! changes to its tree. `Integer` and `Bytes` cursors then find their place again by themselves. A
//! `Custom` cursor returns [`crate::Error::CursorStale`] when it is moved, and its caller seeks
//! again. Its entry stays readable until then.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::core::Core;
use crate::db::Db;
use crate::error::{Error, Result};
use crate::page::spans::Spans;
use crate::page::{Entry, NodeRef};
use crate::payloads::{Around, Sought};
use crate::tree::edit::Path;
use crate::tree::search::{Step, Target, Visible, neighbor};
use crate::types::{PageNo, TreeId, TreeKind, Version};

/// The number of readable bytes after every payload from [`Cursor::local`] (they are zero or
/// another entry's), as SQLite's record decoder requires.
pub const READABLE_BEHIND: usize = crate::page::PADDING;

/// The place of the cursor after a seek, relative to the sought key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// The tree is empty: the cursor stands nowhere.
    Empty,
    /// On the entry itself.
    Exact,
    /// On a neighbor that is smaller than the key: the largest one below it.
    Smaller,
    /// On a neighbor that is larger than the key: the smallest one above it.
    Larger,
}

/// A place in a tree, made by [`Db::cursor`]. It may outlive snapshots, but must not be moved after
/// its view is gone.
pub struct Cursor {
    view: u64,
    tree: u32,
    kind: TreeKind,
    steps: Vec<Step>,
    /// The view's part of a page that has more, made when the cursor was moved within it.
    sifted: Option<Sifted>,
    /// The tree's root, where no writer changes the view.
    root: Option<u32>,
    /// The tree's changes when the cursor was positioned in the write transaction's view.
    seen: Option<u64>,
    /// The current key, where it lies in overflow pages which may go with the entry.
    long_key: Option<Vec<u8>>,
}

/// The entries of a page that a view sees.
struct Sifted {
    node: NodeRef,
    entries: Vec<u16>,
    spans: Spans,
}

impl Sifted {
    /// The place of an entry among them.
    fn place(&self, index: usize) -> Option<usize> {
        let index = u16::try_from(index).ok()?;
        self.entries.binary_search(&index).ok()
    }
}

impl Cursor {
    pub(crate) fn new(core: &mut Core, view: Version, tree: TreeId) -> Result<Cursor> {
        let root = core.root(tree.0, view.0)?;
        let kind = core.kind_of(root, tree.0)?;
        Ok(Cursor {
            view: view.0,
            tree: tree.0,
            kind,
            steps: Vec::new(),
            sifted: None,
            root: (!core.is_writing(view.0)).then_some(root),
            seen: None,
            long_key: None,
        })
    }

    /// The view it was made for.
    pub fn view(&self) -> Version {
        Version(self.view)
    }

    /// The tree it is in.
    pub fn tree(&self) -> TreeId {
        TreeId(self.tree)
    }

    /// The kind of its tree.
    pub fn kind(&self) -> TreeKind {
        self.kind
    }

    /// True while it stands on an entry.
    pub fn is_valid(&self) -> bool {
        !self.steps.is_empty()
    }

    /// True if its last positioning, if any, was in a view that no writer changes.
    pub fn is_of_snapshot(&self) -> bool {
        self.seen.is_none()
    }

    /// True when its tree was changed since it was positioned, so that its next move must seek
    /// first.
    pub fn is_stale(&self, db: &Db) -> bool {
        self.stale(&db.core)
    }

    fn stale(&self, core: &Core) -> bool {
        self.seen
            .is_some_and(|seen| seen != core.change_count(self.tree))
    }

    /// Stands nowhere from now on, and releases the page images.
    pub fn clear(&mut self) {
        self.steps.clear();
    }

    // ---- seeking

    /// Goes to an integer key or a neighbor of its place.
    pub fn seek_integer(&mut self, db: &mut Db, key: i64) -> Result<Seek> {
        self.expect(TreeKind::Integer)?;
        self.seek_target(&mut db.core, &mut Target::Integer(key))
    }

    /// Goes to a key of a `Bytes` tree or a neighbor of its place.
    pub fn seek(&mut self, db: &mut Db, key: &[u8]) -> Result<Seek> {
        self.expect(TreeKind::Bytes)?;
        self.seek_target(&mut db.core, &mut Target::Bytes(key))
    }

    /// Goes to an entry that compares equal to the sought one, or to a neighbor of its place.
    pub fn seek_with(&mut self, db: &mut Db, sought: &mut dyn Sought) -> Result<Seek> {
        if self.kind == TreeKind::Integer {
            return Err(Error::WrongKind(self.tree()));
        }
        let core = &mut db.core;
        core.equal_router = false;
        let found = self.seek_target(core, &mut Target::Custom(sought))?;
        if found == Seek::Exact || !core.equal_router {
            return Ok(found);
        }
        let found = self.equal_before(core, found, sought);
        if found.is_err() {
            self.steps.clear();
        }
        found
    }

    /// A router was equal, and nothing after it. The router's own key may be gone, and other equal
    /// keys may lie before it. Then one of them is the nearest entry that is not larger.
    fn equal_before(
        &mut self,
        core: &mut Core,
        found: Seek,
        sought: &mut dyn Sought,
    ) -> Result<Seek> {
        let way = self.steps.clone();
        let before = match found {
            Seek::Larger => self.step(core, true)?,
            Seek::Smaller => true,
            Seek::Exact | Seek::Empty => false,
        };
        if before {
            let (node, e) = self.entry()?;
            if core.compare(&node, &e, &mut Target::Custom(sought))? == Ordering::Equal {
                return Ok(Seek::Exact);
            }
        }
        self.steps = way;
        Ok(found)
    }

    fn expect(&self, kind: TreeKind) -> Result<()> {
        if self.kind == kind {
            Ok(())
        } else {
            Err(Error::WrongKind(self.tree()))
        }
    }

    fn start(&mut self, core: &mut Core) -> Result<u32> {
        let writing = core.is_writing(self.view);
        if writing || self.seen.is_some() {
            // These may have changed since. Otherwise the old path serves as part of the next one.
            self.steps.clear();
        }
        self.seen = writing.then(|| core.change_count(self.tree));
        if writing {
            return core.root(self.tree, self.view);
        }
        match self.root {
            Some(root) => Ok(root),
            None => {
                let root = core.root(self.tree, self.view)?;
                self.root = Some(root);
                Ok(root)
            }
        }
    }

    fn seek_target(&mut self, core: &mut Core, target: &mut Target<'_>) -> Result<Seek> {
        let root = self.start(core)?;
        let sought = self.seek_from(core, root, target);
        self.arrived(core, sought)
    }

    /// Ends a search. After an error the cursor is nowhere.
    fn arrived<T>(&mut self, core: &mut Core, sought: Result<T>) -> Result<T> {
        let sought = sought.and_then(|found| self.settled(core).map(|()| found));
        if sought.is_err() {
            self.steps.clear();
        }
        sought
    }

    fn seek_from(&mut self, core: &mut Core, root: u32, target: &mut Target<'_>) -> Result<Seek> {
        core.descend(root, self.tree, self.view, target, &mut self.steps)?;
        let Some(leaf) = self.steps.last_mut() else {
            return Ok(Seek::Empty);
        };
        let place = core.place(&leaf.node, self.view, target)?;
        if let Some(at) = place.exact {
            leaf.index = at;
            return Ok(Seek::Exact);
        }
        if let Some(at) = place.after {
            leaf.index = at;
            return Ok(Seek::Larger);
        }
        if let Some(at) = place.before {
            leaf.index = at;
            return Ok(Seek::Smaller);
        }
        // An empty leaf: a neighbor is in another one.
        let way = self.steps.clone();
        if self.leave_leaf(core, false)? {
            return Ok(Seek::Larger);
        }
        self.steps = way;
        Ok(if self.leave_leaf(core, true)? {
            Seek::Smaller
        } else {
            Seek::Empty
        })
    }

    /// Goes to the first entry; false if the tree is empty.
    pub fn first(&mut self, db: &mut Db) -> Result<bool> {
        self.edge(&mut db.core, false)
    }

    /// Goes to the last entry; false if the tree is empty.
    pub fn last(&mut self, db: &mut Db) -> Result<bool> {
        self.edge(&mut db.core, true)
    }

    fn edge(&mut self, core: &mut Core, last: bool) -> Result<bool> {
        let root = self.start(core)?;
        let there = self.edge_from(core, root, last);
        self.arrived(core, there)
    }

    fn edge_from(&mut self, core: &mut Core, root: u32, last: bool) -> Result<bool> {
        let mut target = if last { Target::Last } else { Target::First };
        core.descend(root, self.tree, self.view, &mut target, &mut self.steps)?;
        self.enter_leaf(core, last)
    }

    /// Keeps the data to find the place again.
    fn settled(&mut self, core: &mut Core) -> Result<()> {
        self.long_key = None;
        if self.seen.is_none() || self.kind != TreeKind::Bytes || self.steps.is_empty() {
            return Ok(());
        }
        let (node, e) = self.entry()?;
        if e.key_len as usize > usize::from(e.local) {
            self.long_key = Some(core.whole_key(&node, &e)?);
        }
        Ok(())
    }

    // ---- moving

    /// Goes to the next entry; false, and invalid, after the last.
    pub fn next(&mut self, db: &mut Db) -> Result<bool> {
        self.step(&mut db.core, false)
    }

    /// Goes to the previous entry; false, and invalid, before the first.
    pub fn prev(&mut self, db: &mut Db) -> Result<bool> {
        self.step(&mut db.core, true)
    }

    /// The entries of the current page that are known and can be shown. If the page also has
    /// entries of other versions, this works only after the cursor was moved within it. Nothing is
    /// read for this. They stay in place until the cursor moves by another way than
    /// [`Cursor::skip`].
    #[inline]
    pub fn around(&self) -> Option<Around<'_>> {
        let leaf = self.steps.last()?;
        let (spans, at) = self.seen_of(leaf)?;
        let run = spans.run(at);
        let integer = spans.integer(at);
        let at = at - run.start;
        let (spans, integers) = spans.slice(run);
        (!spans.is_empty()).then(|| Around {
            payloads: leaf.node.payloads(spans),
            integers,
            at,
            integer,
        })
    }

    /// The view's part of the current page, if known, and the place of the entry in it.
    #[inline]
    fn seen_of<'a>(&'a self, leaf: &'a Step) -> Option<(&'a Spans, usize)> {
        if leaf.node.plain(self.view) {
            return Some((leaf.node.spans(), leaf.index));
        }
        let sifted = self.sifted(leaf)?;
        Some((&sifted.spans, sifted.place(leaf.index)?))
    }

    fn sifted(&self, leaf: &Step) -> Option<&Sifted> {
        let sifted = self.sifted.as_ref();
        sifted.filter(|sifted| Arc::ptr_eq(&sifted.node, &leaf.node))
    }

    /// Moves by a number of the entries that [`Cursor::around`] shows, back if negative.
    ///
    /// # Errors
    /// `CursorInvalid` if it does not show enough entries; `CursorStale` if its tree was changed.
    pub fn skip(&mut self, db: &mut Db, by: isize) -> Result<()> {
        if self.stale(&db.core) {
            return Err(Error::CursorStale);
        }
        let to = self.away(by).ok_or(Error::CursorInvalid)?;
        if let Some(leaf) = self.steps.last_mut() {
            leaf.index = to;
        }
        self.settled(&mut db.core)
    }

    /// The index of the entry at this distance among the shown entries.
    fn away(&self, by: isize) -> Option<usize> {
        let leaf = self.steps.last()?;
        let (spans, at) = self.seen_of(leaf)?;
        let to = at.checked_add_signed(by);
        let to = to.filter(|to| spans.run(at).contains(to))?;
        Some(match self.sifted(leaf) {
            Some(sifted) => usize::from(*sifted.entries.get(to)?),
            None => to,
        })
    }

    /// After a move within a page: finds the view's part of it, if that is not all.
    fn sift(&mut self) {
        let Some(leaf) = self.steps.last() else {
            return;
        };
        if leaf.node.plain(self.view) || self.sifted(leaf).is_some() {
            return;
        }
        let entries = Visible::of(&leaf.node, self.view).indexes();
        let all = leaf.node.entries();
        let spans = leaf
            .node
            .spans_of(entries.iter().map(|i| &all[usize::from(*i)]));
        self.sifted = Some(Sifted {
            node: leaf.node.clone(),
            entries,
            spans,
        });
    }

    fn step(&mut self, core: &mut Core, back: bool) -> Result<bool> {
        if self.steps.is_empty() {
            return Err(Error::CursorInvalid);
        }
        if self.stale(core) {
            let moved = match self.seek_again(core)? {
                Seek::Empty => return Ok(false),
                Seek::Exact => false,
                Seek::Larger => !back,
                Seek::Smaller => back,
            };
            if moved {
                return Ok(true);
            }
        }
        let Some(leaf) = self.steps.last_mut() else {
            return Ok(false);
        };
        let moved = match neighbor(&leaf.node, self.view, Some(leaf.index), back) {
            Some(at) => {
                leaf.index = at;
                self.sift();
                true
            }
            None => self.leave_leaf(core, back)?,
        };
        self.settled(core)?;
        Ok(moved)
    }

    /// Finds the place of its last entry, or a neighbor of it.
    fn seek_again(&mut self, core: &mut Core) -> Result<Seek> {
        let (node, e) = self.entry()?;
        match self.kind {
            TreeKind::Integer => self.seek_target(core, &mut Target::Integer(e.key)),
            TreeKind::Bytes => {
                let key = match self.long_key.take() {
                    Some(key) => key,
                    None => core.whole_key(&node, &e)?,
                };
                self.seek_target(core, &mut Target::Bytes(&key))
            }
            TreeKind::Custom => Err(Error::CursorStale),
        }
    }

    /// From a leaf to the nearest entry of the leaves after (or before) it.
    fn leave_leaf(&mut self, core: &mut Core, back: bool) -> Result<bool> {
        let left = self.leave(core, back);
        if !matches!(left, Ok(true)) {
            self.steps.clear();
        }
        left
    }

    fn leave(&mut self, core: &mut Core, back: bool) -> Result<bool> {
        loop {
            self.steps.pop();
            let Some(step) = self.steps.last_mut() else {
                return Ok(false);
            };
            let Some(at) = neighbor(&step.node, self.view, Some(step.index), back) else {
                continue;
            };
            step.index = at;
            core.descend_edge(self.tree, self.view, back, &mut self.steps)?;
            let Some(leaf) = self.steps.last_mut() else {
                return Ok(false);
            };
            if let Some(at) = neighbor(&leaf.node, self.view, None, back) {
                leaf.index = at;
                self.prefetch_next(core, back);
                return Ok(true);
            }
        }
    }

    /// Has the processor fetch the beginning of the leaf that a scan comes to next. It goes through the
    /// entries of this one meanwhile.
    fn prefetch_next(&self, core: &Core, back: bool) {
        if let [.., above, _] = &self.steps[..]
            && let Some(at) = neighbor(&above.node, self.view, Some(above.index), back)
        {
            core.cache.prefetch(above.node.child(at));
        }
    }

    /// After coming down to an edge leaf: its edge entry, or that of the next leaf that has one.
    fn enter_leaf(&mut self, core: &mut Core, last: bool) -> Result<bool> {
        let Some(leaf) = self.steps.last_mut() else {
            return Ok(false);
        };
        if let Some(at) = neighbor(&leaf.node, self.view, None, last) {
            leaf.index = at;
            return Ok(true);
        }
        self.leave_leaf(core, last)
    }

    // ---- what it stands on

    fn entry(&self) -> Result<(NodeRef, Entry)> {
        let leaf = self.steps.last().ok_or(Error::CursorInvalid)?;
        let e = leaf
            .node
            .entries()
            .get(leaf.index)
            .ok_or(Error::CursorInvalid)?;
        Ok((leaf.node.clone(), *e))
    }

    fn stored(&self) -> Result<&Entry> {
        let leaf = self.steps.last().ok_or(Error::CursorInvalid)?;
        leaf.node
            .entries()
            .get(leaf.index)
            .ok_or(Error::CursorInvalid)
    }

    /// The page's data of the current entry: the key of an `Integer` tree, the slice of
    /// [`Cursor::local`], and [`Cursor::payload_len`].
    pub fn here(&self) -> Result<(i64, &[u8], u32)> {
        let leaf = self.steps.last().ok_or(Error::CursorInvalid)?;
        if let Some(span) = leaf.node.spans().get(leaf.index) {
            let integer = leaf.node.spans().integers().get(leaf.index);
            let payload = leaf.node.payload(span);
            return Ok((integer.copied().unwrap_or(0), payload, payload.len() as u32));
        }
        let e = self.stored()?;
        Ok((e.key, leaf.node.local(e), e.total))
    }

    /// The path to the entry, for a change to it.
    pub(crate) fn path(&self, core: &Core) -> Result<(Path, usize)> {
        if core.version()? != self.view {
            return Err(Error::Transaction(
                "the cursor is not of the write transaction's view",
            ));
        }
        if self.stale(core) || self.seen.is_none() {
            return Err(Error::CursorStale);
        }
        let at = self.steps.last().ok_or(Error::CursorInvalid)?.index;
        Ok((self.steps.iter().map(|s| (s.page, s.index)).collect(), at))
    }

    /// The integer key of the current entry.
    pub fn integer_key(&self) -> Result<i64> {
        Ok(self.stored()?.key)
    }

    /// Bytes of the payload: value (`Integer`), key (`Custom`), key and value (`Bytes`).
    pub fn payload_len(&self) -> Result<u32> {
        Ok(self.stored()?.total)
    }

    /// The bytes of the payload that belong to the key (0 for `Integer`).
    pub fn key_len(&self) -> Result<u32> {
        Ok(self.stored()?.key_len)
    }

    /// The beginning of the payload, as far as it lies in the page itself. At least
    /// [`READABLE_BEHIND`] readable bytes follow it. The slice stays in place until the cursor
    /// moves or is dropped.
    pub fn local(&self) -> Result<&[u8]> {
        self.here().map(|(_, local, _)| local)
    }

    /// Reads a part of the payload, also from overflow pages.
    ///
    /// # Errors
    /// `TooBig` when the range passes its end.
    pub fn read(&self, db: &mut Db, offset: u32, buf: &mut [u8]) -> Result<()> {
        let (node, e) = self.entry()?;
        db.core.read_payload(&node, &e, offset as usize, buf)
    }

    /// The key (of `Bytes` and `Custom`) as a whole.
    pub fn key(&self, db: &mut Db) -> Result<Vec<u8>> {
        let (node, e) = self.entry()?;
        db.core.whole_key(&node, &e)
    }

    /// The value (of `Integer` and `Bytes`) as a whole.
    pub fn value(&self, db: &mut Db) -> Result<Vec<u8>> {
        let (node, e) = self.entry()?;
        let mut payload = db.core.payload(&node, &e, e.total as usize)?;
        payload.drain(..e.key_len as usize);
        Ok(payload)
    }

    /// The page the cursor stands in, for error messages and tests.
    pub fn page(&self) -> Option<PageNo> {
        self.steps.last().map(|s| PageNo(s.page))
    }
}
