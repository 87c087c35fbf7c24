//! Changes of a file that know its structure, and repair of the checksums after them.

use onewrite::log::header::HEADER_BYTES;
use onewrite::log::layout::Slot;
use onewrite::log::packed::batch::{self, Batch, Begin};
use onewrite::log::{Geometry, LogHeader};
use onewrite::mode::Layout;
use onewrite::wal::{self, FRAME_HEADER_BYTES, FrameHeader, FrameNo, WalHeader};

use crate::bytes::Bytes;

/// No file grows beyond this, in bytes.
const MAX_FILE: usize = 4 << 20;
/// No frame after this one gets its checksum repaired.
const MAX_FRAMES: u32 = 4096;

/// Numbers that code forgets to handle.
const NUMBERS: [u32; 16] = [
    0,
    1,
    2,
    3,
    512,
    4096,
    65_535,
    65_536,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fffe,
    u32::MAX,
    0x377f_0682,
    0x377f_0683,
    3_007_000,
    0xa1,
];

/// Changes a file in one of several ways. `places` are the starts of its parts, in bytes: frames,
/// or the fields of a header.
pub fn change(file: &mut Vec<u8>, places: &[usize], input: &mut Bytes<'_>) {
    let kind = input.byte() % 11;
    let at = place(file.len(), places, input);
    let number = |input: &mut Bytes<'_>| match input.byte() {
        byte @ 0..32 => NUMBERS[usize::from(byte) % NUMBERS.len()],
        byte => u32::from(byte - 32),
    };
    match kind {
        0 => put(file, at, |byte| *byte ^= 1 << (input.byte() % 8)),
        1 => put(file, at, |byte| *byte = input.byte()),
        2 | 3 => overwrite(file, at, &number(input).to_be_bytes()),
        4 => overwrite(file, at, &u64::from(number(input)).to_le_bytes()),
        5 => {
            let from = place(file.len(), places, input);
            let length = length(input);
            let copy = file[from..].iter().copied().take(length);
            let copy: Vec<u8> = copy.collect();
            overwrite(file, at, &copy);
        }
        6 => overwrite(file, at, &vec![0; length(input)]),
        7 => file.truncate(at),
        8 => file.resize((file.len() + length(input)).min(MAX_FILE), input.byte()),
        9 => {
            let n = input.below(32);
            overwrite(file, at, input.take(n));
        }
        _ => {
            let other = place(file.len(), places, input);
            swap(file, at, other, length(input));
        }
    }
}

/// A position in a file of `bytes` bytes: in its first bytes, shortly after the start of a part, or
/// anywhere.
fn place(bytes: usize, places: &[usize], input: &mut Bytes<'_>) -> usize {
    let place = match input.byte() {
        byte @ 0..64 => usize::from(byte) * 4,
        byte @ 64..224 if !places.is_empty() => {
            let within = usize::from(byte) % 32;
            places[input.below(places.len().min(1 << 16))] + within
        }
        _ => input.number() << 8 | usize::from(input.byte()),
    };
    place.checked_rem(bytes).unwrap_or(0)
}

/// Powers of two, from a byte to 64 KiB, and frames of common sizes.
fn length(input: &mut Bytes<'_>) -> usize {
    match input.byte() % 24 {
        byte @ 0..17 => 1 << byte,
        byte => [24, 536, 1048, 4120, 8192, 12_288, 128][usize::from(byte - 17)],
    }
}

fn put(file: &mut [u8], at: usize, change: impl FnOnce(&mut u8)) {
    if let Some(byte) = file.get_mut(at) {
        change(byte);
    }
}

/// Writes bytes over those of a file, up to the end of the file.
pub fn overwrite(file: &mut [u8], at: usize, bytes: &[u8]) {
    let rest = file.get_mut(at..).unwrap_or_default();
    rest.iter_mut()
        .zip(bytes)
        .for_each(|(to, from)| *to = *from);
}

fn swap(file: &mut [u8], a: usize, b: usize, length: usize) {
    for i in 0..length {
        if a.max(b) + i < file.len() {
            file.swap(a + i, b + i);
        }
    }
}

/// Corrects the checksum of a log's header.
pub fn mend_header(log: &mut [u8]) {
    if let Some(head) = log.get_mut(..HEADER_BYTES) {
        let crc = crc32c::crc32c(&head[..HEADER_BYTES - 4]);
        head[HEADER_BYTES - 4..].copy_from_slice(&crc.to_be_bytes());
    }
}

/// Corrects all checksums of our log: of SQLite's header in it, of its frames, and its own.
pub fn mend_log(log: &mut [u8], adopt: bool) {
    mend_wal_header(log.get_mut(32..64));
    mend_header(log);
    let header = LogHeader::parse(log).ok();
    let parts = header.and_then(|header| Some((header.layout, header.wal_header()?)));
    match parts {
        Some((Layout::Packed, _)) => mend_batches(log),
        None | Some((Layout::Stock | Layout::Compressed, _)) => {}
        Some((layout, wal)) => mend_frames(log, layout, &wal, adopt),
    }
}

/// Corrects the checksums of a log's batches, and their chain.
fn mend_batches(log: &mut [u8]) {
    let mut at = batch::BLOCK_BYTES as usize;
    let mut previous = None;
    while let Some((place, found)) = batch_after(log, at) {
        at = place;
        let end = at + batch::HEADER_BYTES + found.record_bytes as usize;
        let Some(bytes) = log.get_mut(at..end) else {
            return;
        };
        let previous_crc = previous.unwrap_or(found.previous);
        let mended = Batch {
            previous: previous_crc,
            ..found
        };
        previous = Some(mended.seal(bytes));
        at = found.end_at(at as u64) as usize;
    }
}

/// The batch right behind one that ends at `end`, or at the start of the next block.
fn batch_after(log: &[u8], end: usize) -> Option<(usize, Batch)> {
    let places = [Begin::Behind, Begin::Block].map(|begin| begin.after(end as u64) as usize);
    let mut batches = places
        .into_iter()
        .filter_map(|at| Some((at, Batch::parse(log.get(at..)?)?)));
    batches.next()
}

/// Corrects all checksums of a log of stock SQLite.
pub fn mend_stock_log(log: &mut [u8], adopt: bool) {
    mend_wal_header(log.get_mut(..wal::HEADER_BYTES));
    let header = log.first_chunk().and_then(WalHeader::parse);
    if let Some(wal) = header {
        mend_frames(log, Layout::Stock, &wal, adopt);
    }
}

fn mend_wal_header(header: Option<&mut [u8]>) {
    let Some(header) = header else { return };
    let big_endian = header[3] & 1 == 1;
    let [a, b] = wal::checksum(big_endian, [0, 0], &header[..24]);
    header[24..28].copy_from_slice(&a.to_be_bytes());
    header[28..32].copy_from_slice(&b.to_be_bytes());
}

/// Corrects the checksums of a log's frames, up to the first that does not belong to this log.
/// `adopt` turns frames of other generations into frames of this one.
pub fn mend_frames(log: &mut [u8], layout: Layout, wal: &WalHeader, adopt: bool) {
    let Ok(geometry) = Geometry::new(layout, wal.page_size, 1) else {
        return;
    };
    let mut previous = wal.checksum();
    for frame in (1..=MAX_FRAMES).map(FrameNo) {
        match mend_frame(log, &geometry, frame, wal, previous, adopt) {
            Some(checksum) => previous = checksum,
            None => return,
        }
    }
}

fn mend_frame(
    log: &mut [u8],
    geometry: &Geometry,
    frame: FrameNo,
    wal: &WalHeader,
    previous: wal::Checksum,
    adopt: bool,
) -> Option<wal::Checksum> {
    let page_at = usize::try_from(geometry.page_offset(frame)).ok()?;
    let head_at = usize::try_from(geometry.header_offset(frame)).ok()?;
    let entry_at = usize::try_from(geometry.entry_offset(frame)).ok()?;
    let mut page = log
        .get(page_at..page_at + geometry.page().bytes())?
        .to_vec();
    let mut header: [u8; FRAME_HEADER_BYTES] = *log.get(head_at..)?.first_chunk()?;
    let mut slot = Slot::Plain;
    if geometry.layout() == Layout::Embedded {
        slot = Geometry::extract(&mut page, &mut header, &[wal.salts]);
    } else if header[8..16] != wal.salts.0 {
        slot = Slot::Foreign;
    }
    if slot == Slot::Escaped {
        let tail = page.len() - FRAME_HEADER_BYTES;
        page[tail..].copy_from_slice(log.get(entry_at..entry_at + FRAME_HEADER_BYTES)?);
    }
    let found = FrameHeader::parse(&header);
    if found.page.0 == 0 || (slot == Slot::Foreign && !adopt) {
        return None;
    }
    let mended = FrameHeader::build(found.page, found.commit_pages, wal, previous, &page);
    let bytes = mended.to_bytes();
    overwrite(log, head_at + 16, &bytes[16..]);
    match slot {
        Slot::Plain => {}
        Slot::Foreign => overwrite(log, head_at + 8, &bytes[8..16]),
        Slot::Escaped => overwrite(log, entry_at + FRAME_HEADER_BYTES, &bytes[16..]),
    }
    Some(mended.checksum)
}
