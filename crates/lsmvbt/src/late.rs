//! Late pages: commits that write one page, which is not the one they change.
//!
//! A commit that changes a single leaf P may write another page Q, which recovery reads in any case. Q carries
//! the change of P ([`crate::page::change`]). P is *late*: its page in place is as before. The next such commit
//! changes X, and writes P, with the change of X. So P comes home, and a commit writes one page, wherever in the
//! file its row is. Without this it would also write a page of the header, which marks the leaf for recovery
//! (see [`crate::marks`]), or with `Double` a page of a slot.
//!
//! Recovery reads the marked regions, and follows each change to the page that it is for. One page is late at
//! most. [`crate::shared::LATE`] names it for all that read it from the file. With `Double` the page that comes
//! home may tear: Q repairs it. `docs/lsmvbt.md` has the rules MV37 to MV55, and the reasons.

use crate::core::{Core, Txn, Written};
use crate::error::{Error, Result};
use crate::header::Marks;
use crate::home::{self, Late};
use crate::marks::RESERVED;
use crate::page::change::{self, Cleared};
use crate::page::{self, Entry, Image, Node, NodeRef, PageType, Stamp};
use crate::readers::Keep;
use crate::room;
use crate::shared::{self, DURABLE, FREED, HEADER_DURABLE, LATE_COMMITS, LOST_TO, WRITING};
use crate::types::{Durability, PageNo};

/// Commits with a late page after which the floor moves, with one of them. Recovery reads a page for each.
pub(crate) const MOST: u64 = 16;
/// So many of them in a row are worth the flush with which they end,
const WORTH: u32 = 32;
/// or, with `Double`, the page of the header and the pages of a slot.
const WORTH_OF_DOUBLE: u32 = 4;
/// Where they end earlier, the next ones wait for twice as many commits, and so on: 128 times as many at
/// most.
const MOST_FAILURES: u32 = 7;

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
    /// The next image of the page that the last one has left late.
    next: Option<Cleared>,
}

impl Chain {
    /// After another commit than one with a late page.
    fn ended(&self, double: bool) -> Chain {
        let worth = if double { WORTH_OF_DOUBLE } else { WORTH };
        let failures = match self.late {
            0 => self.failures,
            late if late < worth => (self.failures + 1).min(MOST_FAILURES),
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

/// The change of a page, and the image that it makes.
struct Change {
    page: u32,
    bytes: Vec<u8>,
    next: Cleared,
    /// The page in place.
    before: Node,
}

/// A commit with a late page.
struct Plan {
    /// What it changes; `None` if that is the page that it writes.
    late: Option<Change>,
    /// The page that it writes, its image, and the checksum of that.
    carrier: u32,
    image: Box<Image>,
    crc: u32,
    /// That page and the late one, as everyone reads them from then on.
    nodes: Vec<NodeRef>,
    /// The floor moves with it.
    moves_floor: bool,
    /// It is the first of a chain.
    begins: bool,
}

/// The page that a transaction changes, if it changes one leaf and nothing else.
pub(crate) fn only_leaf(txn: &Txn) -> Option<(u32, &NodeRef)> {
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

/// True for what the next image of a page must have: an entry that is live, that owns pages, or that somebody
/// reads (MV55).
fn is_kept(keep: &Keep, e: &Entry) -> bool {
    e.live() || e.overflow != 0 || keep.sees(e.start, e.end)
}

impl Core {
    // ---- commits

    /// Writes the transaction, if its page may be late: true. Then only its publication is missing.
    pub(crate) fn write_late(&mut self, durability: Durability) -> Result<bool> {
        if durability != Durability::Flush || self.txn()?.written.is_some() {
            self.chain = self.chain.ended(self.double);
            return Ok(false);
        }
        if let Err(e) = self.prepare() {
            return Err(self.undo_if_full(e));
        }
        let mut chain = std::mem::take(&mut self.chain);
        let Some(plan) = self.plan(&mut chain)? else {
            self.chain = self.next_of(&chain)?;
            return Ok(false);
        };
        let (last, version) = (plan.carrier, self.version()?);
        let is_whole = plan.late.is_none();
        let next = match self.write_plan(plan) {
            Ok(next) => next,
            Err(e) => return Err(self.undo_late(e)),
        };
        self.stats.late_commits += 1;
        self.chain = Chain {
            commits: chain.commits.saturating_add(1),
            late: chain.late.saturating_add(1),
            failures: chain.failures,
            last,
            version,
            followed_from: is_whole.then_some(self.header.seq),
            next,
        };
        Ok(true)
    }

    /// The chain after a commit without a late page.
    fn next_of(&mut self, chain: &Chain) -> Result<Chain> {
        let double = self.double;
        let txn = self.txn()?;
        let is_next = chain.version == txn.base;
        let Some((page, _)) = only_leaf(txn) else {
            return Ok(chain.ended(double));
        };
        // With `Double` it has cost no flush that one of these commits was not late.
        let follows = is_next && (chain.late == 0 || double);
        let next = match is_next && double {
            true => Chain {
                failures: chain.failures,
                ..Chain::default()
            },
            false => chain.ended(double),
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
    fn plan(&mut self, chain: &mut Chain) -> Result<Option<Plan>> {
        let (late, header) = (self.late()?, self.header.seq);
        let txn = self.txn()?;
        let (base, is_newest) = (txn.base, chain.version == txn.base);
        let Some((page, node)) = only_leaf(txn).map(|(page, node)| (page, node.clone())) else {
            return Ok(None);
        };
        // Recovery reaches the page that is written (MV37).
        let is_on = late.is_some() || is_newest && chain.followed_from == Some(header);
        let begins = !is_on;
        if begins && !(is_newest && self.may_begin(chain, page)) || !self.may_be_late()? {
            return Ok(None);
        }
        let from = late.map_or(chain.last, |late| late.page);
        let change = match from == page {
            // The page would have bytes that no carrier has for it, and may tear (MV52).
            true if self.double => return Ok(None),
            true => None,
            false => match self.change_of(&node)? {
                Some(change) => Some(change),
                None => return Ok(None),
            },
        };
        // The first of a chain does not move the floor: the page that it writes may have a record that names
        // others (MV43).
        let moves_floor = is_on && (self.should_move_floor()? || self.is_on_the_way(&change));
        if moves_floor && base <= self.header.floor + 1 {
            // The version before the carrier's must be above it (MV41).
            return Ok(None);
        }
        let image = match &change {
            None => Some(Cleared::of(node.encode(self.salt, self.stamp()?)?)),
            Some(change) => {
                let next = chain.next.take().filter(|_| is_newest);
                self.image_with_room(from, late, next, change.bytes.len())?
            }
        };
        let Some(cleared) = image else {
            return Ok(None);
        };
        let mut image = cleared.stamped(self.stamp()?)?;
        let crc = cleared.carry(&mut image, change.as_ref().map(|change| &change.bytes[..]));
        let mut nodes = vec![Node::decode(&image, PageNo(from), self.salt)?];
        if let Some(change) = &change {
            nodes.push(self.late_node(change)?);
        }
        Ok(Some(Plan {
            late: change,
            carrier: from,
            image,
            crc,
            nodes: nodes.into_iter().map(NodeRef::new).collect(),
            moves_floor,
            begins,
        }))
    }

    /// True if recovery may need the page that changes to find its change, and the page may be torn when it
    /// comes home (MV47).
    fn is_on_the_way(&self, change: &Option<Change>) -> bool {
        let before = change.as_ref().map_or(0, |change| change.before.ver);
        self.double && before > self.header.floor
    }

    /// True if a chain may begin with the page that the newest commit has written.
    fn may_begin(&self, chain: &Chain, page: u32) -> bool {
        let is_reached = match self.double {
            // Its slot names the page, and has its image (MV54).
            true => self.header.settled < chain.version && chain.late == 0,
            // With a mark of the page that changes it costs one page in any case.
            false => self.header.marks(chain.last) && !self.header.marks(page),
        };
        is_reached && chain.commits >= chain.run_up(self.options.late_after)
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

    /// The change of a leaf of the transaction, if its cells can keep their places.
    fn change_of(&mut self, node: &Node) -> Result<Option<Change>> {
        let page = node.page.0;
        // Not from the cache: a change of other bytes than those in place would be lost.
        let in_place = self.read_image(page)?;
        let before = Node::decode(&in_place, node.page, self.salt)?;
        if self.lost.before(before.ver).is_some() {
            return Ok(None);
        }
        // This commit is durable before the page is written. So nobody needs the entries that end in it, but
        // readers.
        let keep = self.keep_of_readers()?;
        let next = node.next_image(&before, &in_place, |e| is_kept(&keep, e))?;
        let bytes = next.as_ref().and_then(|next| next.change_from(&in_place));
        Ok(next.zip(bytes).map(|(next, bytes)| Change {
            page,
            bytes,
            next,
            before,
        }))
    }

    /// The image of the page that is to carry a change of so many bytes, not sealed. It is the one of which
    /// its own carrier has the change (MV45). `None`: it has no room, or a reader needs what it has not.
    fn image_with_room(
        &mut self,
        page: u32,
        late: Option<Late>,
        next: Option<Cleared>,
        bytes: usize,
    ) -> Result<Option<Cleared>> {
        let node = self.node(page)?;
        if self.lost.before(node.ver).is_some() {
            return Ok(None);
        }
        let stamp = self.stamp()?;
        if let Some(late) = late {
            let next = match next {
                Some(next) => next,
                None => {
                    let (carrier, in_place) =
                        (self.read_image(late.carrier)?, self.read_image(page)?);
                    if home::is_home(&in_place, &carrier) {
                        // Its writer has died before it said so. With the next page at home, the word changes.
                        return Ok(None);
                    }
                    self.next_image_of(late, &carrier, &in_place)?
                }
            };
            let keep = self.keep()?;
            let at_home = Node::decode(&*next.stamped(stamp)?, PageNo(page), self.salt)?;
            if next.room() >= bytes && at_home.has_all(&node, |e| is_kept(&keep, e)) {
                return Ok(Some(next));
            }
            if self.double {
                return Ok(None);
            }
        }
        // Otherwise the page is whole in place, or in its slot.
        self.encode_with_room(&node, stamp, bytes)
    }

    /// The page in another layout, without the dead entries that can go if a change of so many bytes needs the
    /// room.
    fn encode_with_room(
        &mut self,
        node: &NodeRef,
        stamp: Stamp,
        bytes: usize,
    ) -> Result<Option<Cleared>> {
        let image = Cleared::of(node.encode(self.salt, stamp)?);
        if image.room() >= bytes {
            return Ok(Some(image));
        }
        room::for_a_page()?;
        let keep = self.keep()?;
        let mut less = (**node).clone();
        // One that owns pages would free them.
        let gone = less.sift(|e| e.overflow != 0 || !Self::collectable(&keep, e));
        self.stats.collected += gone.len() as u64;
        let image = Cleared::of(less.encode(self.salt, stamp)?);
        Ok((image.room() >= bytes).then_some(image))
    }

    /// The node of the page that a commit leaves late, as everyone reads it from the file. The transaction's own may
    /// have other dead entries, and a place in it would be another one after it was read again.
    fn late_node(&mut self, change: &Change) -> Result<Node> {
        let next = change.next.stamped(self.stamp()?)?;
        let next = Node::decode(&next, PageNo(change.page), self.salt)?;
        Ok(change::late_node(&change.before, &next))
    }

    /// Writes the page, and flushes it. Returns the next image of the page that is late now.
    fn write_plan(&mut self, plan: Plan) -> Result<Option<Cleared>> {
        let carrier = plan.carrier;
        let version = self.version()?;
        self.store(WRITING, version)?;
        // Before it is written: a rollback looks there.
        self.txn()?.record = Some((carrier, Vec::new()));
        if plan.moves_floor {
            self.move_floor_to_carrier(carrier)?;
        }
        self.write_images(&[(carrier, plan.image)])?;
        self.flush_storage()?;
        let txn = self.txn()?;
        let nodes = plan.nodes.into_iter().map(|node| (node.page.0, node));
        txn.dirty.extend(nodes);
        txn.written = Some(Written {
            flushed: true,
            crcs: vec![(carrier, plan.crc)],
            late: plan.late.as_ref().map(|change| Late {
                page: change.page,
                carrier,
            }),
            ..Written::default()
        });
        // The slots must be settled before a page that they have is written twice (MV47).
        let commits = match plan.begins && self.double {
            true => MOST,
            false => self.load(LATE_COMMITS)? + 1,
        };
        self.store(LATE_COMMITS, commits)?;
        Ok(plan.late.map(|change| change.next))
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
        if self.double {
            // The flush of the commit before has covered what the slots have, in place.
            header.settled = header.floor;
        }
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
        if self.double {
            // A power cut after a recovery could bring it back over what the recovery has shown.
            return Err(Error::Poisoned);
        }
        self.write_back(page, &image, base)?;
        // Another handle may have read it meanwhile.
        shared::announce(&*self.storage, &[page])?;
        self.skip_own_news()
    }

    /// Writes a page as version `base` has left it, over the image of a commit that is taken back. If it was
    /// late, it is home then.
    fn write_back(&mut self, page: u32, image: &Image, base: u64) -> Result<()> {
        let node = match self.cache.get(page) {
            Some(node) => node,
            // As it stands there, also where it was late: that commit may have changed it once more.
            None => {
                let mut node = Node::decode(image, PageNo(page), self.salt)?;
                node.strip(base);
                NodeRef::new(node)
            }
        };
        self.write_home(&node, base)?;
        self.set_late(None)
    }
}
