//! Logs whose frames have no fixed positions, because their pages are compressed.
//!
//! - `packed` (journal mode `onewrite`): the frames of a commit behind a [`batch`] header with a
//!   CRC-32C, in whole blocks, so that they go out in one direct write. A page that was logged before
//!   is held as its difference from that frame, as long as this process remembers it.
//! - `compressed` (journal mode `swal`, S-WAL): [`record`] after record, each with a header of 28 bytes,
//!   without padding, written through the page cache.
//!
//! [`chain`] finds frames by their number. A page is read with one read and one decompression; a
//! difference needs the frame that it refers to besides, which is remembered or costs the same again.
//!
//! Guarantees: SQLite's frame headers come back as they were written, so that SQLite's own checksums
//! decide what recovery takes. No bytes make this module panic, loop, or take more memory than the
//! longest batch has.

pub mod batch;
pub mod chain;
pub mod record;

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::sync::PoisonError;

use serde::Serialize;

use crate::log::memory::FrameMemory;
use crate::log::scan::{LogBytes, Verdict};
use crate::storage::AlignedBuf;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::wal::{FRAME_HEADER_BYTES, FrameNo, PageNo, PageSize, Salts, array, be32};
use batch::Batch;
use chain::{Chain, Link, Place};
pub use record::Form;
use record::{Kind, Record};

/// A difference is taken where it has at most this part of the bytes that the page has by itself: the
/// others become what later ones are compared with.
const DELTA_PART: usize = 4;
/// A difference this small, in parts of the page, is taken without asking what the page has by itself.
const SMALL_DELTA_PART: usize = 16;
/// Pages whose last whole frame is remembered.
const MAX_BASES: usize = 4096;

/// How pages are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Compression {
    /// Every page as it is.
    None,
    /// LZ4.
    #[default]
    Lz4,
}

/// What compression did, since the log was opened.
#[derive(Debug, Default)]
pub struct Counters {
    /// Bytes of pages that were given to it.
    pub page_bytes: AtomicU64,
    /// Bytes of records that came out.
    pub record_bytes: AtomicU64,
    /// Records that hold a difference.
    pub deltas: AtomicU64,
    /// Nanoseconds spent on compression.
    pub nanos: AtomicU64,
}

/// What [`Counters`] say at one moment, since the log was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Compressed {
    /// Bytes of frames that were given to compression.
    pub frame_bytes: u64,
    /// Bytes that they came to, without padding.
    pub record_bytes: u64,
    /// Frames held as a difference from another.
    pub differences: u64,
    /// Time that it took.
    pub nanoseconds: u64,
}

impl Counters {
    /// Their values now.
    pub fn snapshot(&self) -> Compressed {
        Compressed {
            frame_bytes: self.page_bytes.load(Ordering::Relaxed),
            record_bytes: self.record_bytes.load(Ordering::Relaxed),
            differences: self.deltas.load(Ordering::Relaxed),
            nanoseconds: self.nanos.load(Ordering::Relaxed),
        }
    }
}

/// The frames that differences may refer to: whole ones of this generation, by page.
#[derive(Default)]
struct Bases {
    salts: Option<Salts>,
    frames: HashMap<PageNo, FrameNo>,
}

/// Frames laid out for the log's end; they are part of the log when they are written.
#[derive(Debug)]
pub struct Packing {
    /// Where they go, in bytes.
    pub offset: u64,
    link: Link,
    salts: Salts,
    wholes: Vec<(PageNo, FrameNo)>,
}

/// A page that was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// It was read.
    Page,
    /// The log has no such frame.
    Missing,
    /// Its bytes are no frame.
    Damaged,
}

/// See the module.
pub struct Packed {
    form: Form,
    page: PageSize,
    compression: Compression,
    chain: RwLock<Chain>,
    bases: Mutex<Bases>,
    /// What was done.
    pub counters: Counters,
}

thread_local! {
    /// Space for a record on its way, kept between calls.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Packed {
    /// A log that nothing is known of.
    pub fn new(form: Form, page: PageSize, compression: Compression) -> Packed {
        Packed {
            form,
            page,
            compression,
            chain: RwLock::new(Chain::new(form, page)),
            bases: Mutex::default(),
            counters: Counters::default(),
        }
    }

    fn chain(&self) -> RwLockReadGuard<'_, Chain> {
        self.chain.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn chain_mut(&self) -> RwLockWriteGuard<'_, Chain> {
        self.chain.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the frames end that are known, in bytes.
    pub fn end(&self) -> u64 {
        self.chain().tail().offset
    }

    /// The last frame that is known to end a transaction: nothing replaces it, or a frame before it, as
    /// long as this transaction goes on.
    pub fn committed(&self) -> FrameNo {
        self.chain().tail().committed
    }

    /// A transaction begins, behind the published frame `last`. `false` where the log does not have
    /// that.
    ///
    /// # Errors
    /// An I/O error.
    pub fn begin<B: LogBytes + ?Sized>(
        &self,
        log: &B,
        salts: Salts,
        last: FrameNo,
    ) -> io::Result<bool> {
        let mut chain = self.chain_mut();
        chain.turn_to(salts);
        chain.rewind();
        if chain.tail().last > last {
            chain.restart(salts);
        }
        chain.writing = chain.reach(log, last)? && chain.tail().last == last;
        Ok(chain.writing)
    }

    /// The transaction is over, one way or the other.
    pub fn end_transaction(&self) {
        self.chain_mut().writing = false;
    }

    /// The log begins a generation.
    pub fn restart(&self, salts: Salts) {
        self.chain_mut().restart(salts);
    }

    /// Walks over the whole log, for recovery. Returns its last frame.
    ///
    /// # Errors
    /// An I/O error.
    pub fn survey<B: LogBytes + ?Sized>(&self, log: &B, salts: Salts) -> io::Result<FrameNo> {
        let mut chain = self.chain_mut();
        chain.restart(salts);
        chain.reach_end(log)?;
        Ok(chain.tail().last)
    }

    /// Everything up to this frame is published: later frames may refer to these.
    pub fn published(&self, last: FrameNo, packing: Option<Packing>) {
        self.chain_mut().settle(last);
        let Some(packing) = packing.filter(|packing| !packing.wholes.is_empty()) else {
            return;
        };
        let mut bases = self.bases.lock().unwrap_or_else(PoisonError::into_inner);
        if bases.salts != Some(packing.salts) || bases.frames.len() > MAX_BASES {
            bases.frames.clear();
            bases.salts = Some(packing.salts);
        }
        bases.frames.extend(packing.wholes);
    }

    /// Lays frames out for the end of the log. `frames` are headers and pages as SQLite wrote them;
    /// `ends_transaction` says that the last of them is a commit, and finished.
    pub fn pack(
        &self,
        first: FrameNo,
        frames: &[u8],
        ends_transaction: bool,
        salts: Salts,
        memory: &FrameMemory,
        out: &mut AlignedBuf,
    ) -> Packing {
        let begun = std::time::Instant::now();
        let tail = self.chain().tail();
        let mut packer = Packer::new(self, salts, memory);
        let head = match self.form {
            Form::Packed => batch::HEADER_BYTES,
            Form::Compressed => 0,
        };
        let mut records = vec![0; head];
        let mut places = Vec::new();
        for (no, frame) in (first.0..).zip(frames.chunks_exact(self.page.frame_bytes())) {
            let at = records.len();
            let is_next = FrameNo(no) > tail.last;
            let supersedes = (self.form == Form::Compressed && !is_next).then_some(FrameNo(no));
            packer.append(&mut records, FrameNo(no), supersedes, frame);
            places.push(Place::at(tail.offset + at as u64, records.len() - at));
        }
        let mut link = Link {
            first,
            places,
            ends_transaction,
            offset: tail.offset + records.len() as u64,
            sequence: tail.sequence,
            crc: tail.crc,
        };
        if self.form == Form::Packed {
            let batch = Batch {
                salts,
                sequence: tail.sequence + 1,
                previous: tail.crc,
                first,
                frames: link.places.len() as u32,
                ends_transaction,
                record_bytes: (records.len() - head) as u32,
                crc: 0,
            };
            link.crc = batch.seal(&mut records);
            link.sequence = batch.sequence;
            link.offset = tail.offset + batch.block_bytes();
        }
        out.clear();
        out.extend_from_slice(&records);
        out.resize_zeroed((link.offset - tail.offset) as usize);
        let (wholes, deltas) = (packer.wholes, packer.deltas);
        self.count(frames.len(), records.len(), deltas, begun);
        Packing {
            offset: tail.offset,
            link,
            salts,
            wholes,
        }
    }

    fn count(&self, pages: usize, records: usize, deltas: u64, begun: std::time::Instant) {
        let nanos = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let counters = &self.counters;
        for (counter, by) in [
            (&counters.page_bytes, pages as u64),
            (&counters.record_bytes, records as u64),
            (&counters.deltas, deltas),
            (&counters.nanos, nanos),
        ] {
            counter.fetch_add(by, Ordering::Relaxed);
        }
    }

    /// What was laid out stands in the file.
    pub fn written(&self, packing: &Packing) {
        self.chain_mut().append(&packing.link);
    }

    /// The most bytes that so many frames can take behind the present end.
    pub fn worst_end(&self, frames: u32) -> u64 {
        let records = u64::from(frames) * self.form.most_bytes(self.page) as u64;
        self.end() + (batch::HEADER_BYTES as u64 + records).next_multiple_of(batch::BLOCK_BYTES)
    }

    /// Where a frame was found, after [`Packed::survey`].
    pub fn place(&self, frame: FrameNo) -> Option<Place> {
        self.chain().place(frame)
    }

    /// What stands behind the last frame, and whether it is of this generation.
    ///
    /// # Errors
    /// An I/O error.
    pub fn behind<B: LogBytes + ?Sized>(
        &self,
        log: &B,
        salts: Salts,
    ) -> io::Result<(Verdict, bool)> {
        let mut bytes = [0; batch::HEADER_BYTES];
        let n = log.read_at(&mut bytes, self.end())?;
        bytes[n..].fill(0);
        // Both forms have the salts in the same place.
        let is_present = bytes[8..16] == salts.0;
        Ok(match (bytes.iter().all(|&byte| byte == 0), is_present) {
            (true, _) => (Verdict::Zeros, false),
            (false, true) => (Verdict::Mismatch, true),
            (false, false) => (Verdict::OtherGeneration, false),
        })
    }

    /// Where a frame stands. One that is not published, as `published` says, is of a transaction of
    /// this process, or is read by recovery.
    fn locate<B: LogBytes + ?Sized>(
        &self,
        log: &B,
        salts: Salts,
        frame: FrameNo,
        published: Option<FrameNo>,
    ) -> io::Result<Option<Place>> {
        if let Some(place) = self.chain().settled(frame, salts) {
            return Ok(Some(place));
        }
        let mut shared = self.chain_mut();
        let mut apart;
        let chain = match shared.writing && (shared.salts() != Some(salts) || published.is_some()) {
            // Whoever asks for what the writer of this process did not see published saw it change
            // under its hands. The writer's own frames are not to be forgotten for that.
            true => {
                apart = Chain::new(self.form, self.page);
                &mut apart
            }
            false => &mut *shared,
        };
        chain.turn_to(salts);
        match published {
            Some(last) => {
                chain.reach(log, last)?;
            }
            None if chain.place(frame).is_none() => chain.reach_end(log)?,
            None => {}
        }
        Ok(chain.place(frame))
    }

    /// Reads a frame, header and page, as SQLite wrote it.
    ///
    /// # Errors
    /// An I/O error.
    pub fn read<B: LogBytes + ?Sized>(
        &self,
        log: &B,
        memory: Option<&FrameMemory>,
        salts: Salts,
        frame: FrameNo,
        published: Option<FrameNo>,
        out: (&mut [u8; FRAME_HEADER_BYTES], &mut [u8]),
    ) -> io::Result<Found> {
        let Some(place) = self.locate(log, salts, frame, published)? else {
            return Ok(Found::Missing);
        };
        let (header, page) = out;
        SCRATCH.with_borrow_mut(|bytes| {
            let Some(record) = self.read_record(log, place, salts, bytes)? else {
                return Ok(Found::Damaged);
            };
            *header = record.frame.to_bytes();
            let mut base = Vec::new();
            if let Kind::Delta(of) = record.kind {
                base.resize(self.page.bytes(), 0);
                let is_before = of < frame;
                if !is_before || !self.read_base(log, memory, salts, of, published, &mut base)? {
                    return Ok(Found::Damaged);
                }
            }
            let data = &bytes[record.head..record.bytes()];
            Ok(match record::unpack(record.kind, data, &base, page) {
                true => Found::Page,
                false => Found::Damaged,
            })
        })
    }

    /// Reads the page of a whole frame, which a difference refers to.
    fn read_base<B: LogBytes + ?Sized>(
        &self,
        log: &B,
        memory: Option<&FrameMemory>,
        salts: Salts,
        frame: FrameNo,
        published: Option<FrameNo>,
        page: &mut [u8],
    ) -> io::Result<bool> {
        if memory.is_some_and(|memory| memory.read(frame, salts, 0, page)) {
            return Ok(true);
        }
        let Some(place) = self.locate(log, salts, frame, published)? else {
            return Ok(false);
        };
        let mut bytes = Vec::new();
        let record = self.read_record(log, place, salts, &mut bytes)?;
        Ok(record.is_some_and(|record| {
            let data = &bytes[record.head..record.bytes()];
            !matches!(record.kind, Kind::Delta(_)) && record::unpack(record.kind, data, &[], page)
        }))
    }

    fn read_record<B: LogBytes + ?Sized>(
        &self,
        log: &B,
        place: Place,
        salts: Salts,
        bytes: &mut Vec<u8>,
    ) -> io::Result<Option<Record>> {
        bytes.clear();
        bytes.resize(place.bytes(), 0);
        let n = log.read_at(bytes, place.offset())?;
        let record = Record::parse(&bytes[..n], self.form, self.page, salts);
        Ok(record.filter(|record| record.bytes() == n))
    }
}

/// Compresses the pages of one run.
struct Packer<'a> {
    packed: &'a Packed,
    salts: Salts,
    memory: &'a FrameMemory,
    own: Vec<u8>,
    delta: Vec<u8>,
    base: Vec<u8>,
    wholes: Vec<(PageNo, FrameNo)>,
    deltas: u64,
}

impl Packer<'_> {
    fn new<'a>(packed: &'a Packed, salts: Salts, memory: &'a FrameMemory) -> Packer<'a> {
        let most = lz4_flex::block::get_maximum_output_size(packed.page.bytes());
        Packer {
            packed,
            salts,
            memory,
            own: vec![0; most],
            delta: vec![0; most],
            base: vec![0; packed.page.bytes()],
            wholes: Vec::new(),
            deltas: 0,
        }
    }

    fn append(
        &mut self,
        out: &mut Vec<u8>,
        frame: FrameNo,
        supersedes: Option<FrameNo>,
        bytes: &[u8],
    ) {
        let (header, page) = bytes.split_at(FRAME_HEADER_BYTES);
        let header: [u8; FRAME_HEADER_BYTES] = array(header);
        let form = self.packed.form;
        if self.packed.compression == Compression::None {
            Record::append(out, form, &header, Kind::Stored, supersedes, page);
            return;
        }
        let number = PageNo(be32(&header, 0));
        let delta = self.delta(number, page);
        if let Some((base, bytes)) = delta
            && bytes <= page.len() / SMALL_DELTA_PART
        {
            return self.append_delta(out, &header, base, supersedes, bytes);
        }
        let own = lz4_flex::block::compress_into(page, &mut self.own).unwrap_or(page.len());
        match delta {
            Some((base, bytes)) if bytes < own.min(page.len()) / DELTA_PART => {
                return self.append_delta(out, &header, base, supersedes, bytes);
            }
            _ => self.wholes.push((number, frame)),
        }
        let (kind, data) = match own < page.len() {
            true => (Kind::Lz4, &self.own[..own]),
            false => (Kind::Stored, page),
        };
        Record::append(out, form, &header, kind, supersedes, data);
    }

    fn append_delta(
        &mut self,
        out: &mut Vec<u8>,
        header: &[u8; FRAME_HEADER_BYTES],
        base: FrameNo,
        supersedes: Option<FrameNo>,
        bytes: usize,
    ) {
        self.deltas += 1;
        let (form, kind) = (self.packed.form, Kind::Delta(base));
        Record::append(out, form, header, kind, supersedes, &self.delta[..bytes]);
    }

    /// The page's difference from a frame that is remembered: that frame, and its bytes in `delta`.
    fn delta(&mut self, page: PageNo, bytes: &[u8]) -> Option<(FrameNo, usize)> {
        if self.packed.form != Form::Packed {
            return None;
        }
        let base = {
            let bases = self.packed.bases.lock();
            let bases = bases.unwrap_or_else(PoisonError::into_inner);
            let frame = bases.frames.get(&page).copied();
            frame.filter(|_| bases.salts == Some(self.salts))?
        };
        if !self.memory.read(base, self.salts, 0, &mut self.base) {
            return None;
        }
        let packed =
            lz4_flex::block::compress_into_with_dict(bytes, &mut self.delta, &self.base).ok()?;
        (packed > 0 && packed < bytes.len()).then_some((base, packed))
    }
}

#[cfg(test)]
mod tests;
