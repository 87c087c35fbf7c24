//! Late pages: commits that write one page, which is not the one they change.
//!
//! With `Trust`, a commit that changes a single leaf P may write another page Q, which recovery reads in any
//! case. Q carries the change of P ([`crate::page::change`]). P is *late*: its page in place is as before.
//! The next such commit changes X, and writes P, with the change of X. So P comes home, and a commit writes one
//! page, wherever in the file its row is. Without this it would also write a page of the header, which marks
//! the leaf for recovery: see [`crate::marks`].
//!
//! Recovery reads the marked regions, and follows each change to the page that it is for. One page is late at
//! most. [`crate::shared::LATE`] names it for all that read it from the file. `docs/lsmvbt.md` has the rules
//! MV37 to MV44, and the reasons.

use std::sync::Arc;

use crate::core::{Core, Txn, Written};
use crate::error::{Error, Result};
use crate::header::Marks;
use crate::marks::RESERVED;
use crate::page::{self, Node, NodeRef, PageType, Record, Stamp, change};
use crate::recover::{Seen, seen};
use crate::room;
use crate::shared::{
    CURRENT, DURABLE, FREED, HEADER_DURABLE, LATE, LATE_COMMITS, LOST_TO, WRITING,
};
use crate::types::{Durability, PageNo};

/// Commits with a late page after which the floor moves, with one of them. Recovery reads a page for each.
const MOST: u64 = 16;
/// So many of them in a row are worth the flush with which they end.
const WORTH: u32 = 32;
/// Where they end earlier, the next ones wait for twice as many commits, and so on: 128 times as many at
/// most.
const MOST_FAILURES: u32 = 7;

/// A late page, and the page that carries its change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Late {
    pub(crate) page: u32,
    pub(crate) carrier: u32,
}

impl Late {
    fn of_word(word: u64) -> Option<Late> {
        let (page, carrier) = ((word >> 32) as u32, word as u32);
        (page != 0).then_some(Late { page, carrier })
    }

    fn word(late: Option<Late>) -> u64 {
        late.map_or(0, |late| {
            u64::from(late.page) << 32 | u64::from(late.carrier)
        })
    }
}

/// The newest commits of this handle, as far as they changed one leaf each.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    /// How many.
    commits: u32,
    /// How many of them, the newest ones, wrote one page by the changes that pages carry.
    late: u32,
    /// How often in a row such commits came to an end after few.
    failures: u32,
    /// The page that the last of them has written, and its version.
    last: u32,
    version: u64,
    /// Where no page is late, and the last one may only be reached by the changes before it: the header from
    /// which recovery follows them.
    followed_from: Option<u64>,
}

impl Chain {
    /// After another commit than one with a late page.
    fn ended(&self) -> Chain {
        let failures = match self.late {
            0 => self.failures,
            1..WORTH => (self.failures + 1).min(MOST_FAILURES),
            _ => 0,
        };
        Chain {
            failures,
            ..Chain::default()
        }
    }

    /// Commits of one leaf each that must come before the first one with a late page.
    fn run_up(&self, late_after: u32) -> u32 {
        late_after.saturating_mul(1 << self.failures)
    }
}

/// A commit with a late page.
struct Plan {
    /// The page that it changes, and its change; `None` if that is the page that it writes.
    late: Option<(u32, Vec<u8>)>,
    /// The page that it writes.
    carrier: u32,
    node: NodeRef,
    /// The floor moves with it.
    moves_floor: bool,
}

/// The page that a transaction changes, if it changes one leaf and nothing else.
fn only_leaf(txn: &Txn) -> Option<(u32, &NodeRef)> {
    let nothing_else = txn.dirty.len() == 1
        && txn.ops.is_empty()
        && txn.freed.is_empty()
        && txn.spilled.is_empty()
        && txn.spare_lists.is_empty()
        && txn.written.is_none()
        && txn
            .record
            .as_ref()
            .is_some_and(|(_, lists)| lists.is_empty());
    let (page, node) = txn.dirty.iter().next()?;
    let is_old_leaf = node.kind == PageType::Leaf && node.birth <= txn.base;
    (nothing_else && is_old_leaf).then_some((*page, node))
}

impl Core {
    /// The late page, if there is one.
    pub(crate) fn late(&self) -> Result<Option<Late>> {
        Ok(Late::of_word(self.load(LATE)?))
    }

    pub(crate) fn set_late(&self, late: Option<Late>) -> Result<()> {
        self.store(LATE, Late::word(late))
    }

    /// A node as the newest commit has left it, from the storage. One look: it fails if a writer is in
    /// the middle of the page, or brings it home just now.
    pub(crate) fn read_node(&mut self, page: u32) -> Result<Node> {
        let late = self.late()?.filter(|late| late.page == page);
        let image = self.read_image(page)?;
        // The page cache may have dropped what a failed flush has left there.
        self.check_poison()?;
        let mut node = Node::decode(&image, PageNo(page), self.salt)?;
        if let Some(before) = self.lost.before(node.ver) {
            node.strip(before);
        }
        match late {
            Some(late) => self.with_change(node, late),
            None => Ok(node),
        }
    }

    /// The node of a late page. It may have come home just now. Its carrier is only written over after
    /// that, and after the word says so.
    fn with_change(&mut self, node: Node, late: Late) -> Result<Node> {
        let image = self.read_image(late.carrier)?;
        page::verify(&image, PageNo(late.carrier), self.salt)?;
        let version = page::u64_at(&image[..], 32);
        let damaged = |what| Error::Damaged {
            page: PageNo(late.page),
            what,
        };
        match change::change_of(&image) {
            Some(_) if node.ver >= version => Ok(node), // MV44
            Some(change) if change::late_page_of(&image) == late.page => node
                .changed_by(change, version, page::u64_at(&image[..], 40))
                .ok_or(damaged(
                    "the change that another page carries for it does not begin from it",
                )),
            _ => Err(damaged("no page carries its change any more")),
        }
    }

    /// Writes the late page, if there is one, and flushes it. Every writer does this before it writes
    /// anything that is no such commit (MV38, MV39). The caller must hold WRITE, or be alone.
    pub(crate) fn bring_home(&mut self) -> Result<()> {
        let Some(late) = self.late()? else {
            return Ok(());
        };
        let node = match self.cache.get(late.page) {
            Some(node) => node,
            None => Arc::new(self.read_node(late.page)?),
        };
        let version = self.load(CURRENT)?;
        if self.load(DURABLE)? < version {
            self.flush_storage()?;
            self.now_durable(version)?;
        }
        self.write_home(&node, version)?;
        self.set_late(None)
    }

    /// Writes a page as this version has left it, which is the newest one and durable, and flushes it.
    fn write_home(&mut self, node: &NodeRef, version: u64) -> Result<()> {
        // Changes may have led over this page to the record of this version, and end here now. So it says
        // that the version is durable (MV42).
        let stamp = Stamp {
            ver: version,
            from: version,
            durable: version,
        };
        let image = node.encode(self.salt, stamp)?;
        if let Err(e) = self.write_images(&[(node.page.0, image)]) {
            // A file system that copies on write may be full. The page is as before, or home.
            return Err(if e.is_full() { e } else { self.poison(e) });
        }
        self.flush_storage()
    }

    // ---- commits

    /// Writes the transaction, if its page may be late: true. Then only its publication is missing.
    pub(crate) fn write_late(&mut self, durability: Durability) -> Result<bool> {
        if self.double || durability != Durability::Flush || self.txn()?.written.is_some() {
            self.chain = self.chain.ended();
            return Ok(false);
        }
        if let Err(e) = self.prepare() {
            return Err(self.undo_if_full(e));
        }
        let chain = std::mem::take(&mut self.chain);
        let Some(plan) = self.plan(&chain)? else {
            self.chain = self.next_of(&chain)?;
            return Ok(false);
        };
        let (last, version) = (plan.carrier, self.version()?);
        let is_whole = plan.late.is_none();
        if let Err(e) = self.write_plan(plan) {
            return Err(self.undo_late(e));
        }
        self.stats.late_commits += 1;
        self.chain = Chain {
            commits: chain.commits.saturating_add(1),
            late: chain.late.saturating_add(1),
            last,
            version,
            followed_from: is_whole.then_some(self.header.seq),
            ..chain
        };
        Ok(true)
    }

    /// The chain after a commit without a late page.
    fn next_of(&mut self, chain: &Chain) -> Result<Chain> {
        let next = chain.ended();
        let txn = self.txn()?;
        let follows = chain.version == txn.base && chain.late == 0;
        let Some((page, _)) = only_leaf(txn) else {
            return Ok(next);
        };
        Ok(Chain {
            commits: if follows {
                chain.commits.saturating_add(1)
            } else {
                1
            },
            last: page,
            version: txn.version,
            ..next
        })
    }

    /// How to commit with a late page, if that may be.
    fn plan(&mut self, chain: &Chain) -> Result<Option<Plan>> {
        let (late, header) = (self.late()?, self.header.seq);
        let txn = self.txn()?;
        let (base, is_newest) = (txn.base, chain.version == txn.base);
        let Some((page, node)) = only_leaf(txn).map(|(page, node)| (page, node.clone())) else {
            return Ok(None);
        };
        // Recovery reaches the page that is written (MV37).
        let is_on = late.is_some() || is_newest && chain.followed_from == Some(header);
        let may_begin = is_newest
            && chain.commits >= chain.run_up(self.options.late_after)
            && self.header.marks(chain.last)
            // Otherwise it costs one page in any case.
            && !self.header.marks(page);
        if !(is_on || may_begin) || !self.may_be_late()? {
            return Ok(None);
        }
        // The first of a chain does not move the floor: the page that it writes may have a record that names
        // others (MV43).
        let moves_floor = is_on && self.should_move_floor()?;
        if moves_floor && base <= self.header.floor + 1 {
            // The version before the carrier's must be above it (MV41).
            return Ok(None);
        }
        let from = late.map_or(chain.last, |late| late.page);
        let plan = |late, carrier, node| Plan {
            late,
            carrier,
            node,
            moves_floor,
        };
        if from == page {
            return Ok(Some(plan(None, page, node)));
        }
        let Some(change) = self.change_of(&node)? else {
            return Ok(None);
        };
        let carrier = self.with_room(from, change.len())?;
        Ok(carrier.map(|node| plan(Some((page, change)), from, node)))
    }

    fn should_move_floor(&self) -> Result<bool> {
        let for_long = self.version()? + RESERVED / 4 <= self.header.reserved;
        Ok(!for_long || self.load(LATE_COMMITS)? >= MOST)
    }

    /// True if any transaction of one leaf may have a late page now.
    fn may_be_late(&mut self) -> Result<bool> {
        let base = self.txn()?.base;
        let header = &self.header;
        let is_durable = self.load(DURABLE)? >= base && self.unflushed.pages().is_empty();
        let header_is = self.header_flushed || self.load(HEADER_DURABLE)? == header.seq;
        // MV15, and the lost versions that the next header must have.
        let is_reserved = self.version()? <= header.reserved && self.load(LOST_TO)? == 0;
        Ok(is_durable
            && header_is
            && is_reserved
            && header.is_newest_format
            && self.load(FREED)? == 0
            && self.options.optimizations.metadata_embedding)
    }

    /// The change of a leaf of the transaction, if the page in place is known.
    fn change_of(&mut self, node: &Node) -> Result<Option<Vec<u8>>> {
        let version = self.version()?;
        let Some(before) = self.cache.get(node.page.0) else {
            return Ok(None);
        };
        if self.lost.before(before.ver).is_some() {
            return Ok(None);
        }
        debug_assert!(self.stands_in_place(&before)?);
        Ok(Some(node.change_from(&before, version)))
    }

    /// True if the page in place has these entries: a change is of that page.
    fn stands_in_place(&mut self, node: &NodeRef) -> Result<bool> {
        let read = self.stats.pages_read;
        let image = self.read_image(node.page.0)?;
        self.stats.pages_read = read;
        let in_place = Node::decode(&image, node.page, self.salt)?;
        Ok(in_place.same_entries(node))
    }

    /// The newest node of a page, without the dead entries that can go if a change of so many bytes needs
    /// the room. `None`: it has no room.
    fn with_room(&mut self, page: u32, bytes: usize) -> Result<Option<NodeRef>> {
        let node = self.node(page)?;
        if self.lost.before(node.ver).is_some() {
            return Ok(None);
        }
        if change::room(&node) >= bytes {
            return Ok(Some(node));
        }
        room::for_a_page()?;
        let keep = self.keep()?;
        let mut less = (*node).clone();
        // One that owns pages would free them.
        let gone = less.sift(|e| e.overflow != 0 || !Self::collectable(&keep, e));
        self.stats.collected += gone.len() as u64;
        Ok((change::room(&less) >= bytes).then(|| Arc::new(less)))
    }

    fn write_plan(&mut self, plan: Plan) -> Result<()> {
        let stamp = self.stamp()?;
        self.store(WRITING, stamp.ver)?;
        // Before it is written: a rollback looks there.
        self.txn()?.record = Some((plan.carrier, Vec::new()));
        if plan.moves_floor {
            self.move_floor_to_carrier(plan.carrier)?;
        }
        let mut image = plan.node.encode(self.salt, stamp)?;
        let crc = match &plan.late {
            Some((_, change)) => change::put_change(&mut image, change),
            None => page::put_record(&mut image, &Record::default()),
        };
        self.write_images(&[(plan.carrier, image)])?;
        self.flush_storage()?;
        let txn = self.txn()?;
        txn.dirty.insert(plan.carrier, plan.node);
        txn.written = Some(Written {
            flushed: true,
            crcs: vec![(plan.carrier, crc)],
            in_place: Vec::new(),
            late: plan.late.map(|(page, _)| Late {
                page,
                carrier: plan.carrier,
            }),
        });
        self.store(LATE_COMMITS, self.load(LATE_COMMITS)? + 1)
    }

    /// Writes a header from which recovery need not follow the changes of earlier commits. The newest one
    /// is above its floor, because its change may be needed (MV41). The commit's flush covers it.
    fn move_floor_to_carrier(&mut self, next: u32) -> Result<()> {
        self.reserve_maps()?;
        let (version, base) = (self.version()?, self.txn()?.base);
        let newest = match self.late()? {
            Some(late) => late.carrier,
            None => next,
        };
        let mut header = self.header.clone();
        header.floor = base - 1;
        header.region = 1;
        header.marks = Marks::Some([newest, next].into());
        header.reserved = version + RESERVED;
        let free = self.base_free();
        self.marked_by = 0;
        self.write_header(header, Some(&free))?;
        self.store(LATE_COMMITS, 0)
    }

    /// Rolls back after an error, where that is possible: on a file system that copies on write and is
    /// full. The page is as before, or as written.
    fn undo_late(&mut self, error: Error) -> Error {
        let undone = match error.is_full() {
            true => self.take_back_late(),
            false => Err(Error::Poisoned),
        };
        if undone.is_ok() {
            return self.undo_after(error);
        }
        self.txn = None;
        let error = self.poison(error);
        let _ = self.unlock_write();
        error
    }

    /// Writes the page as the newest commit has left it, over what there is of this one. Recovery may reach
    /// it by changes alone, so that comes before any header.
    fn take_back_late(&mut self) -> Result<()> {
        let (version, base) = (self.version()?, self.txn()?.base);
        let Some(page) = self.txn()?.record.as_ref().map(|(page, _)| *page) else {
            return Ok(());
        };
        let image = self.read_image(page)?;
        if page::u64_at(&image[..], 32) != version {
            return Ok(());
        }
        if self.late()?.is_some() {
            return self.bring_home();
        }
        let node = match self.cache.get(page) {
            Some(node) => node,
            None => {
                let mut node = Node::decode(&image, PageNo(page), self.salt)?;
                node.strip(base);
                NodeRef::new(node)
            }
        };
        self.write_home(&node, base)
    }

    // ---- recovery

    /// Adds the pages to which the changes lead that recovery has seen. Pages are in order, before and after.
    pub(crate) fn follow_changes(&mut self, found: &mut Vec<Seen>, end: u32) -> Result<()> {
        let mut at = 0;
        while at < found.len() {
            let page = found[at].late;
            at += 1;
            if page == 0 || page >= end || found.iter().any(|s| s.page == page) {
                continue;
            }
            let image = self.read_image(page)?;
            if page::u64_at(&image[..], 32) > self.header.floor {
                found.extend(seen(&image, page, self.salt));
            }
        }
        found.sort_unstable_by_key(|s| s.page);
        Ok(())
    }

    /// Finds the page that is late, among the pages that recovery has seen.
    pub(crate) fn learn_late(&mut self, pages: &[Seen]) -> Result<Option<Late>> {
        let late = late_of(pages);
        self.set_late(late)?;
        let commits = pages.iter().filter(|s| s.late != 0).count();
        self.store(LATE_COMMITS, commits as u64)?;
        Ok(late)
    }
}

/// The page that is late: the one that is older than the page that carries its change.
fn late_of(pages: &[Seen]) -> Option<Late> {
    let ver_of = |page: u32| {
        let at = pages.binary_search_by_key(&page, |s| s.page);
        at.map_or(0, |at| pages[at].ver)
    };
    let carriers = pages
        .iter()
        .filter(|s| s.late != 0 && ver_of(s.late) < s.ver);
    let newest = carriers.max_by_key(|s| s.ver)?;
    Some(Late {
        page: newest.late,
        carrier: newest.page,
    })
}
