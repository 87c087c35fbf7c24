//! Compresses the pages of a run, and decides how each of them is stored.
//!
//! First it is quick. A page that was logged before is stored as its difference from that frame, if
//! that is much smaller; any other page by itself. With `auto`, the difference is the byte ranges that
//! have changed; otherwise the method's own. Better compression might spare the batch's last
//! block. Then [`Packer::tighten`] tries zstd, and other pages as dictionaries. It does so where
//! there is hope, a bounded number of times, and keeps the result only if it saves a block. Pages
//! of one tree are alike, and rows move from one to the next, so the last whole frames are good
//! dictionaries.
//!
//! Called by [`super::Packed::pack`], under SQLite's write lock.

use std::cell::RefCell;
use std::ops::Range;
use std::time::Instant;

use super::bases::{Known, WholeFrame};
use super::batch::Blocks;
use super::chain::Position;
use super::codec::{self, Method};
use super::packing::Lists;
use super::record::{Form, Kind, Record};
use super::{batch, ranges};
use crate::log::page_ring::Nearby;
use crate::mode::{Compressing, Compression, Differences};
use crate::storage::AlignedBuf;
use crate::sync::with_kept;
use crate::wal::{FRAME_HEADER_BYTES, FrameNo, PageNo, PageSize, array, be32};

/// The largest share of a page's own size at which a difference is used. The page's own size is
/// what it takes by itself now, or took when last stored whole. Other pages become the reference
/// for later ones.
const DELTA_PART: usize = 4;
/// A difference this small, as a share of the page, is always used.
const SMALL_DELTA_PART: usize = 16;
/// A batch of more blocks is not tightened: a block is a small share of it.
const MAX_TIGHT_BLOCKS: usize = 4;
/// The most zstd compressions per tightening, some 30 microseconds each with pages of 4 KiB. Flash
/// takes half a millisecond to write a block.
const MAX_TRIES: u32 = 12;
/// How often it checks, with LZ4, whether a page is like another.
const MAX_LOOKS: u32 = 12;
/// The bytes of data that a thread keeps room for between two runs.
const KEPT_BYTES: usize = 64 << 10;
/// Records this small have little to gain.
const SMALL_RECORD: usize = 200;

/// A frame on its way into the log.
struct Item {
    frame: FrameNo,
    header: [u8; FRAME_HEADER_BYTES],
    /// Number of the page.
    page: PageNo,
    supersedes: Option<FrameNo>,
    kind: Kind,
    /// Its range in the packer's `data`; that of a page that is stored as it is, in the run.
    data: Range<usize>,
    /// The bytes that the page took when it was last whole, if its ranges take more than they should.
    worn: Option<usize>,
    /// How tightening goes back to store it: its kind and its data.
    best: (Kind, Range<usize>),
}

/// The memory that a packer works in. It is kept for the thread's next run, so that a commit need not allocate
/// and clear it.
#[derive(Default)]
struct Room {
    items: Vec<Item>,
    /// The items' indices, the largest first, below what they are sorted by.
    order: Vec<u64>,
    data: Vec<u8>,
    scratch: Vec<u8>,
    base: Vec<u8>,
}

thread_local! {
    static ROOM: RefCell<Room> = const {
        RefCell::new(Room {
            items: Vec::new(),
            order: Vec::new(),
            data: Vec::new(),
            scratch: Vec::new(),
            base: Vec::new(),
        })
    };
}

impl Room {
    /// The thread's room, for pages of so many bytes.
    fn take(page_bytes: usize) -> Room {
        let mut room = with_kept(&ROOM, std::mem::take);
        room.scratch.resize(codec::space_for(page_bytes), 0);
        room.base.resize(page_bytes, 0);
        room
    }
}

/// The steps that tightening tries, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Means {
    /// zstd for pages that are stored whole.
    Itself,
    /// zstd for differences.
    ItsBase,
    /// Pages that are stored whole, as differences from other pages.
    Others,
}

/// The results of tightening.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tightened {
    /// Batches that it tried.
    pub tried: u64,
    /// Blocks that it saved.
    pub blocks_saved: u64,
    /// Time that it took, in nanoseconds.
    pub nanos: u64,
}

/// See the module.
pub struct Packer<'a> {
    form: Form,
    page: PageSize,
    how: Compressing,
    known: Known<'a>,
    nearby: Nearby<'a>,
    blocks_are: Blocks,
    room: Room,
    /// Bytes of the frames that were added.
    added: usize,
    /// The results of tightening.
    pub tightened: Tightened,
}

/// The rest of tightening's budget.
struct Budget {
    tries: u32,
    looks: u32,
}

impl<'a> Packer<'a> {
    /// A packer without frames. Differences may refer to the frames in `known`.
    pub fn new(
        form: Form,
        page: PageSize,
        how: Compressing,
        known: Known<'a>,
        nearby: Nearby<'a>,
        blocks_are: Blocks,
    ) -> Packer<'a> {
        Packer {
            form,
            page,
            how,
            known,
            nearby,
            blocks_are,
            room: Room::take(page.bytes()),
            added: 0,
            tightened: Tightened::default(),
        }
    }

    /// Adds a frame, header and page.
    pub fn add(&mut self, frame: FrameNo, supersedes: Option<FrameNo>, bytes: &[u8]) {
        let (header, page) = bytes.split_at(FRAME_HEADER_BYTES);
        let header: [u8; FRAME_HEADER_BYTES] = array(header);
        let number = PageNo(be32(&header, 0));
        let (kind, data, worn) = match (self.how.with, self.form) {
            (Compression::Auto, Form::Packed) => self.cheaply(number, page),
            _ => {
                let (kind, data) = self.compressed(number, page);
                (kind, data, None)
            }
        };
        self.room.items.push(Item {
            frame,
            header,
            page: number,
            supersedes,
            kind,
            best: (kind, data.clone()),
            data,
            worn,
        });
        self.added += bytes.len();
    }

    /// The last frame that holds the page whole, if it may be referred to.
    fn base_of(&self, number: PageNo) -> Option<WholeFrame> {
        match self.how.differences {
            Differences::Held => self.known.whole_frame_of(number),
            Differences::None => None,
        }
    }

    fn compressed(&mut self, number: PageNo, page: &[u8]) -> (Kind, Range<usize>) {
        let base = self.base_of(number);
        let method = match self.how.with {
            Compression::None => return (Kind::Stored, self.in_run()),
            Compression::Auto | Compression::Lz4 => Method::Lz4,
            Compression::Zstd => Method::Zstd,
        };
        let delta =
            base.and_then(|base| Some((base, self.try_with(method, page, Some(base.frame))?)));
        if let Some((base, data)) = &delta
            && (data.len() <= page.len() / SMALL_DELTA_PART || data.len() < base.bytes / DELTA_PART)
        {
            return (Kind::Delta(method, base.frame), data.clone());
        }
        let own = self.try_with(method, page, None);
        let own_bytes = own.as_ref().map_or(page.len(), Range::len);
        match (delta, own) {
            (Some((base, data)), _) if data.len() < own_bytes / DELTA_PART => {
                (Kind::Delta(method, base.frame), data)
            }
            (_, Some(data)) => (Kind::Whole(method), data),
            (_, None) => (Kind::Stored, self.in_run()),
        }
    }

    /// The byte ranges that have changed, if they are few; otherwise the page by itself. In blocks of
    /// its own, a batch first has all ranges that are smaller than pages: see [`Packer::renew`].
    fn cheaply(&mut self, number: PageNo, page: &[u8]) -> (Kind, Range<usize>, Option<usize>) {
        let base = self.base_of(number);
        if let Some(base) = base {
            let usual = base.mean_bytes();
            let most = match self.blocks_are {
                Blocks::Own => usual.max(base.bytes),
                Blocks::Shared => usual,
            };
            if let Some(data) = self.try_ranges(page, base, most) {
                let worn = (data.len() > usual).then_some(base.bytes);
                return (Kind::Ranges(base.frame), data, worn);
            }
        }
        let (kind, data) = self.whole(page, base.map(|base| base.bytes), self.added);
        (kind, data, None)
    }

    /// A page by itself, of the frame that begins at byte `at` of the run. `last` are the bytes that
    /// the page took when it was last whole.
    fn whole(&mut self, page: &[u8], last: Option<usize>, at: usize) -> (Kind, Range<usize>) {
        // A page that did not become smaller last time is not tried again.
        let is_hopeless = last.is_some_and(|bytes| bytes > page.len() / 8 * 7);
        let own = match is_hopeless {
            true => None,
            false => self.try_with(Method::Lz4, page, None),
        };
        match own {
            Some(data) => (Kind::Whole(Method::Lz4), data),
            None => (Kind::Stored, self.in_run_at(at)),
        }
    }

    /// Stores pages whole again whose ranges have grown, where the batch's last block has space for
    /// that. A block is written whole in any case. So a page with many changes costs nothing until
    /// then, neither bytes nor the time to compress it. In a batch of many blocks, a block is a small
    /// share: there every such page is stored whole. So is a large page whose ranges would take more
    /// than a block by themselves. `frames` are those added.
    pub fn renew(&mut self, frames: &[u8]) {
        const BLOCK: usize = batch::BLOCK_BYTES as usize;
        let mut space = match self.blocks() {
            few @ ..=MAX_TIGHT_BLOCKS => few * BLOCK - self.batch_bytes(),
            _ => frames.len(),
        };
        let is_alone = self.room.items.len() == 1;
        let frame_bytes = self.page.frame_bytes();
        for (i, frame) in frames.chunks_exact(frame_bytes).enumerate() {
            let item = &self.room.items[i];
            let Some(last) = item.worn else {
                continue;
            };
            let now = item.data.len() + item.kind.number_bytes();
            let apart = batch::HEADER_BYTES + self.record_bytes(item);
            // Its ranges take no more than the whole page, so they take one block, too.
            let takes_a_block = is_alone && apart - item.data.len() + last <= BLOCK;
            let takes_more = apart > BLOCK;
            if takes_a_block || !takes_more && last > now + space {
                continue;
            }
            let (kind, data) =
                self.whole(&frame[FRAME_HEADER_BYTES..], Some(last), i * frame_bytes);
            if takes_more || data.len() <= now + space {
                space = (space + now).saturating_sub(data.len());
                let item = &mut self.room.items[i];
                (item.kind, item.data) = (kind, data);
            }
        }
    }

    fn try_ranges(&mut self, page: &[u8], base: WholeFrame, most: usize) -> Option<Range<usize>> {
        let from = self.room.data.len();
        let Room {
            data, base: space, ..
        } = &mut self.room;
        let history = self.known.history();
        let look = |old: &[u8]| ranges::find(page, old, most, data);
        let found = self.nearby.view(base.frame, history, space, look)?;
        found.then_some(from..self.room.data.len())
    }

    /// Where the page that is being added lies in the run.
    fn in_run(&self) -> Range<usize> {
        self.in_run_at(self.added)
    }

    /// Where the page of the frame that begins at byte `at` lies in the run.
    fn in_run_at(&self, at: usize) -> Range<usize> {
        let from = at + FRAME_HEADER_BYTES;
        from..from + self.page.bytes()
    }

    /// Compresses a page, with the page of `base` as dictionary if that page is remembered.
    fn try_with(
        &mut self,
        method: Method,
        page: &[u8],
        base: Option<FrameNo>,
    ) -> Option<Range<usize>> {
        if let Some(base) = base {
            let history = self.known.history();
            if !self.nearby.read(base, history, &mut self.room.base) {
                return None;
            }
        }
        let dictionary = base.map(|_| self.room.base.as_slice());
        let bytes = codec::compress(method, page, dictionary, &mut self.room.scratch)?;
        let from = self.room.data.len();
        self.room
            .data
            .extend_from_slice(&self.room.scratch[..bytes]);
        Some(from..self.room.data.len())
    }

    fn record_bytes(&self, item: &Item) -> usize {
        let superseding = item.supersedes.map_or(0, |_| 4);
        self.form.header_bytes() + superseding + item.kind.number_bytes() + item.data.len()
    }

    fn batch_bytes(&self) -> usize {
        let records = self.room.items.iter().map(|item| self.record_bytes(item));
        batch::HEADER_BYTES + records.sum::<usize>()
    }

    /// Whether there is a block to save.
    pub fn has_hope(&self) -> bool {
        (2..=MAX_TIGHT_BLOCKS).contains(&self.blocks())
    }

    /// Sets the order of the items. Sorts plain numbers, because each kind of key would take 13 KiB of
    /// code.
    fn largest_first(&self, order: &mut Vec<u64>) {
        let smallness = |item: &Item| u64::from(u32::MAX) - item.data.len() as u64;
        let items = (0u64..).zip(&self.room.items);
        order.clear();
        order.extend(items.map(|(i, item)| smallness(item) << 32 | i));
        order.sort_unstable();
    }

    /// Spends more time where that may save a block; `frames` are those added.
    pub fn tighten(&mut self, frames: &[u8]) {
        let before = self.blocks();
        let begun = Instant::now();
        let frame_bytes = self.page.frame_bytes();
        let mut order = std::mem::take(&mut self.room.order);
        self.largest_first(&mut order);
        let mut best = before;
        self.note_best();
        let mut budget = Budget {
            tries: MAX_TRIES,
            looks: MAX_LOOKS,
        };
        for means in [Means::Itself, Means::ItsBase, Means::Others] {
            for (tried, &key) in order.iter().enumerate() {
                let i = index_of(key);
                let is_worth_it = best > 1
                    && self.room.items[i].data.len() >= SMALL_RECORD
                    && self.may_save_a_block(&order[tried..], &order, means);
                let page = frames.get(self.in_run_at(i * frame_bytes));
                if let Some(page) = page.filter(|_| is_worth_it) {
                    self.tighten_item(i, page, means, &mut budget);
                }
                let blocks = self.blocks();
                if blocks < best {
                    best = blocks;
                    self.note_best();
                }
            }
        }
        // A step that saved nothing is undone: whole pages, and those that are quick to read, are
        // better then.
        for item in &mut self.room.items {
            (item.kind, item.data) = item.best.clone();
        }
        self.room.order = order;
        self.tightened = Tightened {
            tried: 1,
            blocks_saved: before.saturating_sub(best) as u64,
            nanos: u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX),
        };
    }

    /// Whether zstd is likely to save a block, by these means on these records, and by the next
    /// means on all. The gain from other pages is unknown in advance.
    fn may_save_a_block(&self, left: &[u64], all: &[u64], means: Means) -> bool {
        let hope_of = |records: &[u64], means| -> usize {
            records
                .iter()
                .map(|&key| hope(&self.room.items[index_of(key)], means))
                .sum()
        };
        let hoped_for = match means {
            Means::Itself => hope_of(left, Means::Itself) + hope_of(all, Means::ItsBase),
            Means::ItsBase => hope_of(left, Means::ItsBase),
            Means::Others => return true,
        };
        let over = self.batch_bytes() - (self.blocks() - 1) * batch::BLOCK_BYTES as usize;
        hoped_for >= over
    }

    fn blocks(&self) -> usize {
        self.batch_bytes().div_ceil(batch::BLOCK_BYTES as usize)
    }

    /// The way in which every page is stored now is the best so far.
    fn note_best(&mut self) {
        for item in &mut self.room.items {
            item.best = (item.kind, item.data.clone());
        }
    }

    /// Tries to make one record smaller, if these means apply to it.
    fn tighten_item(&mut self, i: usize, page: &[u8], means: Means, budget: &mut Budget) {
        // Alone or from one frame, or from each of several.
        let (one, has_others) = match (means, self.room.items[i].kind) {
            (Means::Itself, Kind::Stored | Kind::Whole(Method::Lz4)) => (Some(None), false),
            (Means::ItsBase, Kind::Delta(Method::Lz4, base) | Kind::Ranges(base)) => {
                (Some(Some(base)), false)
            }
            (Means::Others, Kind::Stored | Kind::Whole(_)) => {
                (None, self.how.differences == Differences::Held)
            }
            _ => (None, false),
        };
        let others = self.known.recent_wholes().filter(|_| has_others);
        for base in one.into_iter().chain(others.map(Some)) {
            if means == Means::Others && !self.is_like(i, page, base, budget) {
                continue;
            }
            if budget.tries == 0 {
                return;
            }
            budget.tries -= 1;
            let Some(data) = self.try_with(Method::Zstd, page, base) else {
                continue;
            };
            let kind = match base {
                Some(base) => Kind::Delta(Method::Zstd, base),
                None => Kind::Whole(Method::Zstd),
            };
            let item = &mut self.room.items[i];
            let now = item.data.len() + item.kind.number_bytes();
            let worth = match means {
                Means::Itself | Means::ItsBase => now,
                Means::Others => worth_referring(now),
            };
            if data.len() + kind.number_bytes() < worth {
                (item.kind, item.data) = (kind, data);
            }
        }
    }

    /// Whether LZ4 finds enough of a page in another one. Only then is zstd worth its time.
    fn is_like(
        &mut self,
        i: usize,
        page: &[u8],
        other: Option<FrameNo>,
        budget: &mut Budget,
    ) -> bool {
        if budget.looks == 0 {
            return false;
        }
        budget.looks -= 1;
        let now = self.room.items[i].data.len();
        let held = self.room.data.len();
        let found = self.try_with(Method::Lz4, page, other);
        self.room.data.truncate(held);
        found.is_some_and(|data| data.len() < worth_referring(now))
    }

    /// Appends the records to `out`, and what they are to `lists`; positions count from the start of
    /// `out`. `frames` are those added.
    pub fn write(&self, frames: &[u8], out: &mut AlignedBuf, lists: &mut Lists) {
        out.reserve(self.batch_bytes());
        for item in &self.room.items {
            let from = out.len();
            let data = match item.kind {
                Kind::Stored => &frames[item.data.clone()],
                _ => &self.room.data[item.data.clone()],
            };
            // A record that nobody can read must not be acknowledged.
            assert!(
                item.kind.takes(data.len(), self.page),
                "{:?} of {} bytes",
                item.kind,
                data.len()
            );
            Record::append(
                out,
                self.form,
                &item.header,
                item.kind,
                item.supersedes,
                data,
            );
            let position = Position::at(from as u64, out.len() - from);
            lists.positions.push(position);
            match item.is_difference() {
                true => lists.differences.push((item.page, data.len())),
                // Later differences may refer to it.
                false => lists
                    .wholes
                    .push((item.page, WholeFrame::new(item.frame, data.len()))),
            }
        }
    }

    /// The number of records that are differences.
    pub fn count_differences(&self) -> u64 {
        self.room
            .items
            .iter()
            .filter(|item| item.is_difference())
            .count() as u64
    }
}

impl Drop for Packer<'_> {
    fn drop(&mut self) {
        let mut room = std::mem::take(&mut self.room);
        room.items.clear();
        room.data.clear();
        room.items.shrink_to(KEPT_BYTES / size_of::<Item>());
        room.order.shrink_to(KEPT_BYTES / size_of::<u64>());
        room.data.shrink_to(KEPT_BYTES);
        with_kept(&ROOM, |kept| *kept = room);
    }
}

impl Item {
    fn is_difference(&self) -> bool {
        self.kind.base().is_some()
    }
}

/// The item of a key in the order of items.
fn index_of(key: u64) -> usize {
    key as u32 as usize
}

/// A page that refers to another cannot itself be referred to, so it must be worth it. Returns the
/// most bytes that a difference may have, for a page of `bytes`.
fn worth_referring(bytes: usize) -> usize {
    bytes * 3 / 4
}

/// The bytes that zstd removes from a record in good cases, as seen in tables of texts, numbers and
/// BLOBs.
fn hope(item: &Item, means: Means) -> usize {
    match (means, item.kind) {
        (Means::Itself, Kind::Stored | Kind::Whole(Method::Lz4)) => item.data.len() * 3 / 8,
        (Means::ItsBase, Kind::Delta(Method::Lz4, _)) => item.data.len() / 8,
        (Means::ItsBase, Kind::Ranges(_)) => item.data.len() / 4,
        _ => 0,
    }
}
