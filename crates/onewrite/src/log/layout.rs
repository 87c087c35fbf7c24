//! How frames lie on the device: where each is found, and the blocks that a run of them becomes.
//!
//! ```text
//! stock     SQLite's own bytes, frames of 24 + page size, neighbors share blocks
//! embedded  a side block of 4 KiB, then 128 slots of one page; the frame header stands in the
//!           page's last 24 bytes, which SQLite leaves free (reserved bytes)
//! sector    header and page, padded to 512 bytes
//! page4k    a 4 KiB block for the header, then the page, padded to 4 KiB
//! page8k    header and page, padded to 8 KiB
//! gathered  a 4 KiB block of 128 frame headers, then their 128 pages, each on a block boundary
//! compressed, packed   no fixed positions: see [`packed`](crate::log::packed)
//! ```
//!
//! In the others every position follows from the frame's number, so any process finds any frame
//! without an index. Writes consist of whole blocks, and two frames share a block only in `stock`.
//!
//! **Escapes.** SQLite keeps reserved bytes zero in ordinary work, but not always. In `embedded` a
//! page whose last 24 bytes are not zero is *escaped*. The bytes go to an entry of 32 bytes in the
//! section's side block, followed by the frame's checksum, which ties the two together. The second
//! salt is stored inverted in the page, which marks the escape. No byte is dropped, and an ordinary
//! page never touches the side block.

use std::io;

use crate::mode::Layout;
use crate::storage::AlignedBuf;
use crate::wal::{self, FRAME_HEADER_BYTES, FrameNo, PageSize, Salts, array};

/// Frames that share one side block.
const SIDE_FRAMES: u64 = 128;
/// Bytes of a side block, or of a block of frame headers.
pub(super) const SIDE_BYTES: usize = 4096;
/// `gathered` is for pages of whole blocks.
const GATHERED_BLOCK: usize = SIDE_BYTES;
const ENTRY_BYTES: usize = SIDE_BYTES / SIDE_FRAMES as usize;
/// Stock frames are written in blocks of this size.
const STOCK_BLOCK: u64 = 4096;

/// A layout for one page size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    layout: Layout,
    page: PageSize,
}

/// A block that must be written with a run, before it.
#[derive(Debug)]
pub struct SideBlock {
    /// Its offset in bytes.
    pub offset: u64,
    /// The whole block.
    pub bytes: AlignedBuf,
}

/// A page as it was read from its slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slot {
    /// The page is whole; its header was removed.
    Plain,
    /// Its last 24 bytes are in the side block.
    Escaped,
    /// The slot holds a frame of another generation, or none.
    Foreign,
}

/// Loads the present content of a block that an encoding changes in part.
pub type Load<'a> = &'a mut dyn FnMut(u64, &mut [u8]) -> io::Result<()>;

impl Geometry {
    /// A layout for pages of `page` bytes on a device that takes direct writes in multiples of
    /// `align` bytes.
    ///
    /// # Errors
    /// The layout cannot carry such pages there; the text says what to use instead.
    pub fn new(layout: Layout, page: PageSize, align: u32) -> Result<Geometry, String> {
        let geometry = Geometry { layout, page };
        if layout == Layout::Gathered && !page.bytes().is_multiple_of(GATHERED_BLOCK) {
            return Err(format!(
                "layout gathered is for pages of whole blocks of {GATHERED_BLOCK} bytes, and this \
                 database has pages of {}",
                page.bytes()
            ));
        }
        let unit = geometry.unit();
        if unit.is_multiple_of(u64::from(align.max(1))) {
            return Ok(geometry);
        }
        Err(format!(
            "layout {layout} writes pages of {} bytes in units of {unit}, but direct writes need \
             multiples of {align} here: use onewrite_layout=page4k",
            page.bytes()
        ))
    }

    /// How the frames lie.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Bytes of a page.
    pub fn page(&self) -> PageSize {
        self.page
    }

    /// Every write begins and ends on a multiple of this many bytes.
    pub fn unit(&self) -> u64 {
        match self.layout {
            Layout::Stock | Layout::Page4k | Layout::Packed | Layout::Gathered => 4096,
            Layout::Compressed => 1,
            Layout::Embedded => (self.page.bytes() as u64).min(4096),
            Layout::Sector => 512,
            Layout::Page8k => 8192,
        }
    }

    /// Where the first block of frames begins, in bytes.
    pub fn frames_begin(&self) -> u64 {
        self.data_start()
    }

    /// Where the first block that can hold frames begins.
    fn data_start(&self) -> u64 {
        match self.layout {
            Layout::Stock => 0,
            Layout::Page8k => 8192,
            _ => 4096,
        }
    }

    /// Bytes from one frame to the next, without side blocks. If frames have no fixed positions,
    /// the expected bytes per frame.
    pub fn slot_bytes(&self) -> u64 {
        let page = self.page.bytes() as u64;
        let frame = self.page.frame_bytes() as u64;
        match self.layout {
            Layout::Stock => frame,
            Layout::Embedded | Layout::Gathered => page,
            Layout::Sector => frame.next_multiple_of(512),
            Layout::Page4k => 4096 + page.next_multiple_of(4096),
            Layout::Page8k => frame.next_multiple_of(8192),
            Layout::Packed => page.next_multiple_of(4096),
            Layout::Compressed => page,
        }
    }

    fn section_bytes(&self) -> u64 {
        SIDE_BYTES as u64 + SIDE_FRAMES * self.slot_bytes()
    }

    /// Where a frame's slot begins, in bytes. If frames have no fixed positions, an estimate for
    /// preparing space.
    pub fn slot(&self, frame: FrameNo) -> u64 {
        let index = frame.index();
        match self.layout {
            Layout::Stock => self.page.frame_range(frame).start,
            Layout::Embedded | Layout::Gathered => {
                let within = SIDE_BYTES as u64 + index % SIDE_FRAMES * self.slot_bytes();
                self.data_start() + index / SIDE_FRAMES * self.section_bytes() + within
            }
            _ => self.data_start() + index * self.slot_bytes(),
        }
    }

    /// Where the blocks of the frames up to and including `last` end, in bytes.
    pub fn end_of(&self, last: FrameNo) -> u64 {
        (self.slot(last) + self.slot_bytes()).next_multiple_of(self.unit())
    }

    /// How many frames fit in a log file of `size` bytes.
    pub fn capacity(&self, size: u64) -> u32 {
        let data = size.saturating_sub(self.data_start());
        let frames = match self.layout {
            Layout::Stock => size.saturating_sub(wal::HEADER_BYTES as u64) / self.slot_bytes(),
            Layout::Embedded | Layout::Gathered => {
                let rest = (data % self.section_bytes()).saturating_sub(SIDE_BYTES as u64);
                data / self.section_bytes() * SIDE_FRAMES + rest / self.slot_bytes()
            }
            _ => data / self.slot_bytes(),
        };
        u32::try_from(frames).unwrap_or(u32::MAX)
    }

    /// Where a frame's page begins, in bytes.
    pub fn page_offset(&self, frame: FrameNo) -> u64 {
        self.slot(frame)
            + match self.layout {
                Layout::Embedded | Layout::Gathered => 0,
                Layout::Page4k => 4096,
                Layout::Compressed
                | Layout::Packed
                | Layout::Stock
                | Layout::Sector
                | Layout::Page8k => FRAME_HEADER_BYTES as u64,
            }
    }

    /// Where a frame's header begins, in bytes.
    pub fn header_offset(&self, frame: FrameNo) -> u64 {
        match self.layout {
            Layout::Embedded => self.slot(frame) + (self.page.bytes() - FRAME_HEADER_BYTES) as u64,
            Layout::Gathered => self.entry_offset(frame),
            _ => self.slot(frame),
        }
    }

    /// Where a frame's entry of 32 bytes in its section's side block begins, in bytes. In `embedded`
    /// it holds the displaced bytes of an escaped frame, in `gathered` its header.
    pub fn entry_offset(&self, frame: FrameNo) -> u64 {
        self.side_block(frame) + frame.index() % SIDE_FRAMES * ENTRY_BYTES as u64
    }

    fn side_block(&self, frame: FrameNo) -> u64 {
        self.data_start() + frame.index() / SIDE_FRAMES * self.section_bytes()
    }

    /// Lays out a run of frames, from `first` on, in whole blocks.
    ///
    /// `frames` are headers and pages as SQLite wrote them, in sequence. `live_until` is the last
    /// frame whose present content may still matter. `load` reads the content of a block that is
    /// changed in part. The blocks go to `out`. Returns where they belong, and a side block to
    /// write before them.
    ///
    /// # Errors
    /// Those of `load`.
    pub fn encode(
        &self,
        first: FrameNo,
        frames: &[u8],
        live_until: FrameNo,
        load: Load<'_>,
        out: &mut AlignedBuf,
    ) -> io::Result<(u64, Option<SideBlock>)> {
        match self.layout {
            Layout::Stock => {
                let at = self.page.frame_range(first).start;
                let rest_matters = live_until > self.last_frame(first, frames);
                encode_stock(at, frames, rest_matters, load, out).map(|offset| (offset, None))
            }
            Layout::Embedded => self.encode_embedded(first, frames, live_until, load, out),
            Layout::Gathered => self.encode_gathered(first, frames, live_until, load, out),
            Layout::Compressed | Layout::Packed => Err(io::Error::other("no fixed positions")),
            _ => {
                self.encode_padded(frames, out);
                Ok((self.slot(first), None))
            }
        }
    }

    fn last_frame(&self, first: FrameNo, frames: &[u8]) -> FrameNo {
        let count = frames.len() / self.page.frame_bytes();
        FrameNo(first.0 + (count as u32).saturating_sub(1))
    }

    fn encode_padded(&self, frames: &[u8], out: &mut AlignedBuf) {
        let slot = self.slot_bytes() as usize;
        let page_at = (self.page_offset(FrameNo(1)) - self.slot(FrameNo(1))) as usize;
        let frame_bytes = self.page.frame_bytes();
        out.clear();
        out.resize_zeroed(frames.len() / frame_bytes * slot);
        for (frame, slot) in frames
            .chunks_exact(frame_bytes)
            .zip(out.as_mut_slice().chunks_exact_mut(slot))
        {
            let (header, page) = frame.split_at(FRAME_HEADER_BYTES);
            slot[..FRAME_HEADER_BYTES].copy_from_slice(header);
            slot[page_at..page_at + page.len()].copy_from_slice(page);
        }
    }

    fn encode_embedded(
        &self,
        first: FrameNo,
        frames: &[u8],
        live_until: FrameNo,
        load: Load<'_>,
        out: &mut AlignedBuf,
    ) -> io::Result<(u64, Option<SideBlock>)> {
        let last = self.last_frame(first, frames);
        let start = self.slot(first);
        out.resize_to_overwrite((self.slot(last) + self.slot_bytes() - start) as usize);
        let mut separate: Option<SideBlock> = None;
        for (i, frame) in frames.chunks_exact(self.page.frame_bytes()).enumerate() {
            let no = first.plus(i as u32);
            let side = self.side_block(no);
            // A run that reaches into the next section covers that section's side block. Nothing in it
            // matters yet, unless frames after the run are to stay.
            let section_begins = no != first && no.index().is_multiple_of(SIDE_FRAMES);
            if section_begins {
                let at = (side - start) as usize;
                let block = &mut out.as_mut_slice()[at..at + SIDE_BYTES];
                match live_until > last {
                    true => load(side, block)?,
                    false => block.fill(0),
                }
            }
            let at = (self.slot(no) - start) as usize;
            let entry = embed(frame, &mut out.as_mut_slice()[at..at + self.page.bytes()]);
            let Some(entry) = entry else { continue };
            let entry_at = (self.entry_offset(no) - side) as usize;
            let block = match side.checked_sub(start) {
                Some(inside) => &mut out.as_mut_slice()[inside as usize..][..SIDE_BYTES],
                None => loaded_side_block(&mut separate, side, load)?,
            };
            block[entry_at..entry_at + ENTRY_BYTES].copy_from_slice(&entry);
        }
        Ok((start, separate))
    }

    /// A run that begins a section includes the section's header block. Otherwise that block is written
    /// separately, with its existing headers.
    fn encode_gathered(
        &self,
        first: FrameNo,
        frames: &[u8],
        live_until: FrameNo,
        load: Load<'_>,
        out: &mut AlignedBuf,
    ) -> io::Result<(u64, Option<SideBlock>)> {
        let last = self.last_frame(first, frames);
        let begins_section = first.index().is_multiple_of(SIDE_FRAMES);
        let start = match begins_section {
            true => self.side_block(first),
            false => self.slot(first),
        };
        out.resize_to_overwrite((self.slot(last) + self.slot_bytes() - start) as usize);
        let mut separate: Option<SideBlock> = None;
        if !begins_section {
            let side = self.side_block(first);
            let block = loaded_side_block(&mut separate, side, load)?;
            if live_until <= last {
                // The entries after the run are of another transaction, or of another generation.
                block[first.index() as usize % SIDE_FRAMES as usize * ENTRY_BYTES..].fill(0);
            }
        }
        for (i, frame) in frames.chunks_exact(self.page.frame_bytes()).enumerate() {
            let no = first.plus(i as u32);
            let side = self.side_block(no);
            if no.index().is_multiple_of(SIDE_FRAMES) {
                let at = (side - start) as usize;
                let block = &mut out.as_mut_slice()[at..at + SIDE_BYTES];
                match live_until > last {
                    true => load(side, block)?,
                    false => block.fill(0),
                }
            }
            let (header, page) = frame.split_at(FRAME_HEADER_BYTES);
            let at = (self.slot(no) - start) as usize;
            out.as_mut_slice()[at..at + page.len()].copy_from_slice(page);
            let block = match (side.checked_sub(start), &mut separate) {
                (Some(inside), _) => &mut out.as_mut_slice()[inside as usize..][..SIDE_BYTES],
                (None, Some(block)) => block.bytes.as_mut_slice(),
                (None, None) => return Err(io::Error::other("a header block was lost")),
            };
            let entry = (self.entry_offset(no) - side) as usize;
            block[entry..entry + FRAME_HEADER_BYTES].copy_from_slice(header);
        }
        Ok((start, separate))
    }

    /// Where the block with this frame's header begins, in a layout with such blocks.
    pub fn header_block(&self, frame: FrameNo) -> Option<u64> {
        (self.layout == Layout::Gathered).then(|| self.side_block(frame))
    }

    /// Takes the frame header out of a page that was read from an `embedded` slot.
    ///
    /// `page` becomes what SQLite wrote, without its last 24 bytes if it was escaped; `header`
    /// becomes SQLite's header. A slot of none of the `generations` is left for SQLite's own
    /// checksums to refuse.
    pub fn extract(
        page: &mut [u8],
        header: &mut [u8; FRAME_HEADER_BYTES],
        generations: &[Salts],
    ) -> Slot {
        let tail = page.len() - FRAME_HEADER_BYTES;
        *header = array(&page[tail..]);
        page[tail..].fill(0);
        let stored = Salts(array(&header[8..16]));
        if generations.contains(&stored) {
            return Slot::Plain;
        }
        if generations.iter().any(|salts| escaped(*salts) == stored) {
            header[8..16].copy_from_slice(&escaped(stored).0);
            return Slot::Escaped;
        }
        Slot::Foreign
    }

    /// Puts the bytes of a side-block entry back into their page. `false` if the entry belongs to
    /// another frame.
    pub fn restore(page: &mut [u8], header: &[u8; FRAME_HEADER_BYTES], entry: &[u8; 32]) -> bool {
        if entry[FRAME_HEADER_BYTES..] != header[16..24] {
            return false;
        }
        let tail = page.len() - FRAME_HEADER_BYTES;
        page[tail..].copy_from_slice(&entry[..FRAME_HEADER_BYTES]);
        true
    }
}

/// The salts as an escaped frame stores them: the second one is inverted.
fn escaped(salts: Salts) -> Salts {
    let mut bytes = salts.0;
    bytes[4..].iter_mut().for_each(|byte| *byte = !*byte);
    Salts(bytes)
}

/// Copies a frame into its slot, header last. Returns the side-block entry if it must be escaped.
fn embed(frame: &[u8], slot: &mut [u8]) -> Option<[u8; ENTRY_BYTES]> {
    let (header, page) = frame.split_at(FRAME_HEADER_BYTES);
    let tail = page.len() - FRAME_HEADER_BYTES;
    slot.copy_from_slice(page);
    slot[tail..].copy_from_slice(header);
    let reserved = &page[tail..];
    if reserved.iter().all(|&byte| byte == 0) {
        return None;
    }
    slot[tail + 8..tail + 16].copy_from_slice(&escaped(Salts(array(&header[8..16]))).0);
    let mut entry = [0; ENTRY_BYTES];
    entry[..FRAME_HEADER_BYTES].copy_from_slice(reserved);
    entry[FRAME_HEADER_BYTES..].copy_from_slice(&header[16..24]);
    Some(entry)
}

/// The side block before the run, with its existing entries.
fn loaded_side_block<'a>(
    separate: &'a mut Option<SideBlock>,
    offset: u64,
    load: Load<'_>,
) -> io::Result<&'a mut [u8]> {
    if separate.is_none() {
        let mut bytes = AlignedBuf::new();
        bytes.resize_zeroed(SIDE_BYTES);
        load(offset, bytes.as_mut_slice())?;
        *separate = Some(SideBlock { offset, bytes });
    }
    match separate {
        Some(block) => Ok(block.bytes.as_mut_slice()),
        None => Err(io::Error::other("a side block was lost")),
    }
}

/// Widens a byte range of SQLite's own log to whole blocks.
///
/// `rest_matters` says whether the bytes after the range in its last block must be kept.
///
/// # Errors
/// Those of `load`.
pub fn encode_stock(
    at: u64,
    bytes: &[u8],
    rest_matters: bool,
    load: Load<'_>,
    out: &mut AlignedBuf,
) -> io::Result<u64> {
    let offset = at - at % STOCK_BLOCK;
    let head = (at - offset) as usize;
    let end = head + bytes.len();
    let block = STOCK_BLOCK as usize;
    out.resize_to_overwrite(end.next_multiple_of(block));
    let image = out.as_mut_slice();
    if head > 0 {
        load(offset, &mut image[..block])?;
    }
    let last = image.len() - block;
    if rest_matters && !end.is_multiple_of(block) && (last > 0 || head == 0) {
        load(offset + last as u64, &mut image[last..])?;
    }
    if !rest_matters {
        image[end..].fill(0);
    }
    image[head..end].copy_from_slice(bytes);
    Ok(offset)
}

#[cfg(test)]
mod tests;
