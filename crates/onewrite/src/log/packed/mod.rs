//! Logs whose frames have no fixed positions, because their pages are compressed.
//!
//! - `packed` (journal mode `onewrite`): the frames of a commit follow a [`batch`] header with a
//!   CRC-32C. They fill whole blocks, so that they go out in one direct write. Only the commits of a
//!   group share blocks.
//! - `compressed` (journal mode `swal`, S-WAL): [`record`] after record, each with a header of 28
//!   bytes, written through the page cache. A commit continues in the block where the last one
//!   ended, unless it touches fewer blocks from the start of a new one.
//!
//! A page that was logged before is stored as its difference from that frame, while this process
//! remembers the frame. `packer` decides how each page is stored, [`codec`] compresses it, and
//! [`chain`] finds frames by their number. Reading a page takes one read and one decompression. A
//! difference also needs the frame that it refers to, which is remembered or costs the same again.
//!
//! Guarantees: SQLite's frame headers come back as they were written, so that SQLite's own
//! checksums decide what recovery accepts. No input makes this module panic, loop, or take more
//! memory than the longest batch has.

mod bases;
pub mod batch;
pub mod behind;
pub mod chain;
pub mod codec;
mod effort;
mod packer;
mod packing;
mod ranges;
pub mod record;
mod recovery;
mod window;

use std::borrow::Cow;
use std::cell::RefCell;
use std::io;
use std::sync::PoisonError;

use serde::Serialize;

use crate::log::memory::{FrameMemory, Remembered};
use crate::log::page_ring::Nearby;
use crate::log::scan::{LogBytes, Verdict};
use crate::mode::Compressing;
use crate::storage::AlignedBuf;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, with_kept};
use crate::wal::{FRAME_HEADER_BYTES, FrameNo, History, PageNo, PageSize, Salts, be32};
use bases::{Bases, Known};
use batch::{Batch, Begin, Blocks};
use chain::{Chain, Link, Position};
use packer::Packer;
use packing::Lists;
pub use packing::{LastBatch, Packing};
pub use record::Form;
use record::{Kind, Record};
use recovery::Recovery;
use window::Windowed;

/// Counters of compression, since the log was opened.
#[derive(Debug, Default)]
pub struct Counters {
    /// Bytes of input pages.
    pub page_bytes: AtomicU64,
    /// Bytes of output records.
    pub record_bytes: AtomicU64,
    /// Records that hold a difference.
    pub deltas: AtomicU64,
    /// Nanoseconds spent on compression.
    pub nanos: AtomicU64,
    /// Batches that were compressed once more, to save a block.
    pub tightened: AtomicU64,
    /// Blocks that this saved.
    pub blocks_saved: AtomicU64,
    /// Nanoseconds spent on that, part of those above.
    pub tighten_nanos: AtomicU64,
}

/// The values of [`Counters`] at one moment, since the log was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Compressed {
    /// Bytes of input frames.
    pub frame_bytes: u64,
    /// Their compressed bytes, without padding.
    pub record_bytes: u64,
    /// Frames stored as a difference from another.
    pub differences: u64,
    /// Time spent on compression.
    pub nanoseconds: u64,
    /// Batches that were compressed once more, because that might save a block.
    pub tightened: u64,
    /// Blocks of 4 KiB that this saved.
    pub blocks_saved: u64,
    /// Time spent on that, part of the time above.
    pub tighten_nanoseconds: u64,
}

impl Counters {
    /// Their values now.
    pub fn snapshot(&self) -> Compressed {
        Compressed {
            frame_bytes: self.page_bytes.load(Ordering::Relaxed),
            record_bytes: self.record_bytes.load(Ordering::Relaxed),
            differences: self.deltas.load(Ordering::Relaxed),
            nanoseconds: self.nanos.load(Ordering::Relaxed),
            tightened: self.tightened.load(Ordering::Relaxed),
            blocks_saved: self.blocks_saved.load(Ordering::Relaxed),
            tighten_nanoseconds: self.tighten_nanos.load(Ordering::Relaxed),
        }
    }
}

/// A run of frames to pack.
#[derive(Clone, Copy, Debug)]
pub struct Unpacked<'a> {
    /// The number of its first frame.
    pub first: FrameNo,
    /// Headers and pages, as SQLite wrote them.
    pub frames: &'a [u8],
    /// Whether the last of them is a commit, and finished.
    pub ends_transaction: bool,
    /// Their history.
    pub history: History,
}

/// The result of reading a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// The page was read.
    Page,
    /// The log has no such frame.
    Missing,
    /// Its bytes are not a frame.
    Damaged,
}

/// See the module.
pub struct Packed {
    form: Form,
    page: PageSize,
    chain: RwLock<Chain>,
    bases: Mutex<Bases>,
    /// From [`Packed::survey`] on, as long as the log does not change.
    recovery: Mutex<Option<Recovery>>,
    /// Whether there is a `recovery`.
    recovers: AtomicBool,
    /// Whether a connection of this process has SQLite's locks of recovery. Then the chain is that
    /// connection's, and readers use one aside.
    recovering: AtomicBool,
    /// Counters of compression.
    pub counters: Counters,
}

thread_local! {
    /// Space for a record on its way, kept between calls.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Packed {
    /// An unknown log.
    pub fn new(form: Form, page: PageSize) -> Packed {
        Packed {
            form,
            page,
            chain: RwLock::new(Chain::new(form, page)),
            bases: Mutex::default(),
            recovery: Mutex::default(),
            recovers: AtomicBool::new(false),
            recovering: AtomicBool::new(false),
            counters: Counters::default(),
        }
    }

    fn chain(&self) -> RwLockReadGuard<'_, Chain> {
        self.chain.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn chain_mut(&self) -> RwLockWriteGuard<'_, Chain> {
        self.chain.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The end of the known frames, in bytes.
    pub fn end(&self) -> u64 {
        self.chain().tail().offset
    }

    /// The last frame that is known.
    pub fn last(&self) -> FrameNo {
        self.chain().tail().last
    }

    /// The last frame that is known to end a transaction. As long as this transaction goes on, that
    /// frame and those before it are not replaced.
    pub fn committed(&self) -> FrameNo {
        self.chain().tail().committed
    }

    /// A transaction begins after the published frame `last`. `false` if the log does not have that
    /// frame.
    ///
    /// # Errors
    /// An I/O error.
    pub fn begin<B: LogBytes + ?Sized>(
        &self,
        log: &B,
        history: impl Into<History>,
        last: FrameNo,
    ) -> io::Result<bool> {
        let history = history.into();
        self.forget_recovery();
        self.bases().forget_behind(history, last);
        let mut chain = self.chain_mut();
        chain.aside = None;
        chain.turn_to(history);
        chain.rewind();
        if chain.tail().last > last {
            chain.restart(history);
        }
        chain.writing = chain.reach(log, last)? && chain.tail().last == last;
        chain.look_behind(log)?;
        let is_there = chain.writing;
        self.learn(chain);
        Ok(is_there)
    }

    /// Later frames may refer to those of other processes that the walk has passed. This takes the lock
    /// of the bases only without that of the chain, because a packer takes them in the other order.
    fn learn(&self, mut chain: RwLockWriteGuard<'_, Chain>) {
        let (history, learned) = (chain.history(), chain.take_learned());
        drop(chain);
        if let Some(history) = history.filter(|_| !learned.is_empty()) {
            self.bases().learn(history, &learned);
        }
    }

    /// The transaction is over, one way or the other.
    pub fn end_transaction(&self) {
        let mut chain = self.chain_mut();
        chain.writing = false;
        chain.aside = None;
    }

    /// The log begins a generation.
    pub fn restart(&self, history: impl Into<History>) {
        self.chain_mut().restart(history);
    }

    /// Everything up to this frame is published: later frames may refer to these.
    pub fn published(&self, last: FrameNo, packing: Option<Packing>) {
        self.chain_mut().publish(last);
        if let Some(packing) = packing {
            self.bases()
                .add(packing.history, &packing.wholes, &packing.differences);
            packing.end();
        }
    }

    fn bases(&self) -> MutexGuard<'_, Bases> {
        self.bases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lays a run out for the end of the log. In `packed` it begins as it says.
    pub fn pack(
        &self,
        run: &Unpacked<'_>,
        (begin, blocks): (Begin, Blocks),
        how: Compressing,
        nearby: Nearby<'_>,
        out: &mut AlignedBuf,
    ) -> Packing {
        let begun = std::time::Instant::now();
        let tail = self.chain().tail();
        let known = Known::new(self.bases(), run.history);
        let mut packer = Packer::new(self.form, self.page, how, known, nearby, blocks);
        let frames = run.frames.chunks_exact(self.page.frame_bytes());
        for (no, frame) in (run.first.0..).zip(frames) {
            let is_next = FrameNo(no) > tail.last;
            let supersedes = (self.form == Form::Compressed && !is_next).then_some(FrameNo(no));
            packer.add(FrameNo(no), supersedes, frame);
        }
        packer.renew(run.frames);
        if self.form == Form::Packed && packer.has_hope() {
            effort::within_budget(how, || packer.tighten(run.frames));
        }
        out.clear();
        out.resize_zeroed(self.form.head_bytes());
        let mut lists = Lists::take();
        packer.write(run.frames, out, &mut lists);
        let bytes = out.len() as u64;
        let offset = self.chain().begin_of(begin, run.first, bytes);
        for position in &mut lists.positions {
            *position = position.moved_by(offset);
        }
        let mut link = Link {
            first: run.first,
            positions: lists.positions,
            records: Vec::new(),
            ends_transaction: run.ends_transaction,
            offset: offset + bytes,
            sequence: tail.sequence,
            crc: tail.crc,
        };
        if self.form == Form::Packed {
            let batch = Batch {
                begin: match offset.is_multiple_of(batch::BLOCK_BYTES) {
                    true => Begin::Block,
                    false => Begin::Behind,
                },
                salts: run.history.salts,
                sequence: tail.sequence + 1,
                previous: tail.crc,
                first: run.first,
                frames: link.positions.len() as u32,
                ends_transaction: run.ends_transaction,
                record_bytes: (out.len() - batch::HEADER_BYTES) as u32,
                crc: 0,
            };
            link.crc = batch.seal(out);
            link.sequence = batch.sequence;
            link.offset = batch.end_at(offset);
        }
        self.count(run.frames.len(), out.len(), &packer, begun);
        let packing = Packing {
            offset,
            after: tail,
            link,
            history: run.history,
            wholes: lists.wholes,
            differences: lists.differences,
        };
        if self.form == Form::Packed {
            packing.fill_block(out);
        }
        packing
    }

    /// The batch at the log's end, as far as it is known.
    pub fn last_batch(&self) -> LastBatch {
        let tail = self.chain().tail();
        LastBatch {
            crc: tail.crc,
            end: tail.offset,
        }
    }

    fn count(&self, pages: usize, records: usize, packer: &Packer<'_>, begun: std::time::Instant) {
        let nanos = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let counters = &self.counters;
        let tightened = packer.tightened;
        for (counter, by) in [
            (&counters.page_bytes, pages as u64),
            (&counters.record_bytes, records as u64),
            (&counters.deltas, packer.count_differences()),
            (&counters.nanos, nanos),
            (&counters.tightened, tightened.tried),
            (&counters.blocks_saved, tightened.blocks_saved),
            (&counters.tighten_nanos, tightened.nanos),
        ] {
            counter.fetch_add(by, Ordering::Relaxed);
        }
    }

    /// The laid-out frames are in the file.
    pub fn written(&self, packing: &Packing) {
        self.forget_recovery();
        self.chain_mut().append(&packing.link);
    }

    /// The most bytes that so many frames can take behind the present end.
    pub fn worst_end(&self, frames: u32) -> u64 {
        let records = u64::from(frames) * self.form.most_bytes(self.page) as u64;
        // The last term is for a commit that begins a block.
        self.end()
            + (batch::HEADER_BYTES as u64 + records).next_multiple_of(batch::BLOCK_BYTES)
            + batch::BLOCK_BYTES
    }

    /// Where a frame was found, after [`Packed::survey`].
    pub fn position(&self, frame: FrameNo) -> Option<Position> {
        self.chain().position(frame)
    }

    /// The bytes after the last frame, and whether they are of this generation.
    ///
    /// # Errors
    /// An I/O error.
    pub fn behind<B: LogBytes + ?Sized>(
        &self,
        log: &B,
        salts: Salts,
    ) -> io::Result<(Verdict, bool)> {
        let mut bytes = [0; batch::HEADER_BYTES];
        for begin in [Begin::Behind, Begin::Block] {
            let n = log.read_at(&mut bytes, begin.after(self.end()))?;
            bytes[n..].fill(0);
            // Only a batch may also begin the next block.
            if self.form == Form::Compressed || bytes != [0; batch::HEADER_BYTES] {
                break;
            }
        }
        // Both forms have the salts at the same offset.
        let is_present = bytes[8..16] == salts.0;
        Ok(match (bytes.iter().all(|&byte| byte == 0), is_present) {
            (true, _) => (Verdict::Zeros, false),
            (false, true) => (Verdict::Mismatch, true),
            (false, false) => (Verdict::OtherGeneration, false),
        })
    }

    /// A frame's position. A frame beyond `published` belongs to a transaction of this process, or
    /// recovery reads it.
    fn locate<B: LogBytes + ?Sized>(
        &self,
        log: &B,
        history: History,
        frame: FrameNo,
        published: Option<FrameNo>,
    ) -> io::Result<Option<Position>> {
        let chain = self.chain();
        let known = match published {
            Some(_) => chain.published_anywhere(frame, history),
            None if chain.history() == Some(history) => chain.position(frame),
            None => None,
        };
        if known.is_some() {
            return Ok(known);
        }
        drop(chain);
        let mut shared = self.chain_mut();
        let mut apart;
        let chain = match published {
            // A reader asks for a frame that this process's writer did not see published: the log changed
            // meanwhile. Or another connection of this process recovers. Their own frames must not be
            // forgotten for that.
            Some(_) if shared.writing || self.is_recovering() => shared.aside(),
            None if shared.writing && shared.history() != Some(history) => {
                apart = Chain::new(self.form, self.page);
                &mut apart
            }
            _ => &mut *shared,
        };
        chain.turn_to(history);
        match published {
            Some(last) => {
                chain.reach(log, last)?;
            }
            None if chain.position(frame).is_none() => chain.reach_end(log)?,
            None => {}
        }
        let at = chain.position(frame);
        self.learn(shared);
        Ok(at)
    }

    /// Reads a frame, header and page, as SQLite wrote it.
    ///
    /// # Errors
    /// An I/O error.
    pub fn read<B: LogBytes + ?Sized>(
        &self,
        log: &B,
        nearby: Option<Nearby<'_>>,
        history: impl Into<History>,
        frame: FrameNo,
        published: Option<FrameNo>,
        out: (&mut [u8; FRAME_HEADER_BYTES], &mut [u8]),
    ) -> io::Result<Found> {
        let history = history.into();
        let Some(at) = self.locate(log, history, frame, published)? else {
            return Ok(Found::Missing);
        };
        let (header, page) = out;
        if published.is_some() {
            if !self.is_recovering() {
                self.forget_recovery();
            }
        } else if let Some(recovery) = &mut *self.recovery() {
            let Recovery { window, bases } = recovery;
            return Windowed::new(log, window).view(at.bytes(), at.offset(), |bytes| {
                let base = |of| match bases.page(of) {
                    Some(whole) => Ok(Some(Cow::Borrowed(whole))),
                    None => self.read_base(log, None, history, of, None),
                };
                let kind = self.unpack(bytes, history.salts, frame, base, (header, &mut *page))?;
                if kind.is_some() {
                    bases.read(frame, page);
                }
                Ok(kind.map_or(Found::Damaged, |_| Found::Page))
            })?;
        }
        with_kept(&SCRATCH, |bytes| {
            read_into(log, at, bytes)?;
            let base = |of| self.read_base(log, nearby, history, of, published);
            let kind = self.unpack(bytes, history.salts, frame, base, (header, &mut *page))?;
            // Within a generation a published frame never changes.
            let stays = kind.is_some() && published >= Some(frame);
            if let Some(nearby) = nearby.filter(|_| stays) {
                self.offer(nearby.memory, history, frame, (header, page));
            }
            Ok(kind.map_or(Found::Damaged, |_| Found::Page))
        })
    }

    /// Decompresses the record of a frame; `base` reads the frame that a difference refers to.
    /// Returns how the page was stored, and `None` if the bytes are damaged.
    fn unpack<'a>(
        &self,
        bytes: &[u8],
        salts: Salts,
        frame: FrameNo,
        base: impl FnOnce(FrameNo) -> io::Result<Option<Cow<'a, [u8]>>>,
        out: (&mut [u8; FRAME_HEADER_BYTES], &mut [u8]),
    ) -> io::Result<Option<Kind>> {
        let Some(record) = self.whole_record(bytes, salts) else {
            return Ok(None);
        };
        let (header, page) = out;
        *header = record.frame.to_bytes();
        let base = match record.kind.base() {
            Some(of) if of < frame => base(of)?,
            Some(_) => None,
            None => Some(Cow::default()),
        };
        let data = &bytes[record.head..];
        let is_whole = base.is_some_and(|base| record::unpack(record.kind, data, &base, page));
        Ok(is_whole.then_some(record.kind))
    }

    /// Reads the page of a whole frame, which a difference refers to; `None` if there is none.
    fn read_base<B: LogBytes + ?Sized>(
        &self,
        log: &B,
        nearby: Option<Nearby<'_>>,
        history: History,
        frame: FrameNo,
        published: Option<FrameNo>,
    ) -> io::Result<Option<Cow<'static, [u8]>>> {
        let mut page = vec![0; self.page.bytes()];
        if nearby.is_some_and(|nearby| nearby.read(frame, history, &mut page)) {
            return Ok(Some(page.into()));
        }
        let Some(at) = self.locate(log, history, frame, published)? else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        read_into(log, at, &mut bytes)?;
        let mut header = [0; FRAME_HEADER_BYTES];
        // A difference never refers to another difference.
        let none = |_| Ok(None);
        let kind = self.unpack(&bytes, history.salts, frame, none, (&mut header, &mut page))?;
        let stays = kind.is_some() && published >= Some(frame);
        if let Some(nearby) = nearby.filter(|_| stays) {
            self.offer(nearby.memory, history, frame, (&header, &page));
        }
        Ok(kind.map(|_| page.into()))
    }

    fn offer(
        &self,
        memory: &FrameMemory,
        history: History,
        frame: FrameNo,
        (header, bytes): (&[u8; FRAME_HEADER_BYTES], &[u8]),
    ) {
        let read = Remembered {
            frame,
            history,
            page: PageNo(be32(header, 0)),
            bytes,
        };
        memory.offer(read, self.is_needed(history));
    }

    /// Whether differences may refer to a frame of this history: it is the last one that holds its
    /// page whole.
    pub fn is_needed(&self, history: impl Into<History>) -> impl Fn(PageNo, FrameNo) -> bool {
        let history = history.into();
        move |page, frame| {
            let known = Known::new(self.bases(), history).whole_frame_of(page);
            known.is_some_and(|base| base.frame == frame)
        }
    }

    /// The record in these bytes. A record that cannot be parsed is not the one that was found
    /// there.
    fn whole_record(&self, bytes: &[u8], salts: Salts) -> Option<Record> {
        let record = Record::parse(bytes, self.form, self.page, salts);
        let record = record.ok().flatten();
        record.filter(|record| record.bytes() == bytes.len())
    }
}

fn read_into<B: LogBytes + ?Sized>(log: &B, at: Position, bytes: &mut Vec<u8>) -> io::Result<()> {
    bytes.clear();
    bytes.resize(at.bytes(), 0);
    let n = log.read_at(bytes, at.offset())?;
    bytes.truncate(n);
    Ok(())
}

#[cfg(test)]
mod tests;
