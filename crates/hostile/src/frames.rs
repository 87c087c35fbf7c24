//! A changed log of any layout, with frames laid out as the engine does. The walk over the log
//! never returns a frame that was not written there.

use onewrite::log::Geometry;
use onewrite::log::scan::{Scan, Survey, Verdict, Writers};
use onewrite::mode::Layout;
use onewrite::storage::AlignedBuf;
use onewrite::wal::{FrameHeader, FrameNo, PageNo, PageSize, Salts, WalHeader};

use crate::bytes::Bytes;
use crate::change::{change, mend_frames, overwrite};

const LAYOUTS: [Layout; 6] = [
    Layout::Embedded,
    Layout::Sector,
    Layout::Page4k,
    Layout::Page8k,
    Layout::Stock,
    Layout::Gathered,
];
const PAGES: [u32; 4] = [512, 1024, 4096, 65_536];

/// The log of an input, before anything is changed.
struct Written {
    geometry: Geometry,
    wal: WalHeader,
    file: Vec<u8>,
    headers: Vec<FrameHeader>,
}

/// See the module.
pub fn run(data: &[u8]) {
    let mut input = Bytes::new(data);
    let Some(written) = write(&mut input) else {
        return;
    };
    let Written {
        geometry,
        wal,
        mut file,
        headers,
    } = written;
    let places: Vec<usize> = (1..=headers.len() as u32)
        .flat_map(|n| {
            [
                geometry.header_offset(FrameNo(n)),
                geometry.entry_offset(FrameNo(n)),
            ]
        })
        .map(|at| at as usize)
        .collect();
    let mut is_mended = false;
    for _ in 0..16 {
        match input.byte() {
            _ if input.is_empty() => break,
            byte @ 248.. => {
                mend_frames(&mut file, geometry.layout(), &wal, byte % 2 == 0);
                is_mended = true;
            }
            _ => change(&mut file, &places, &mut input),
        }
    }
    check(&file, geometry, wal, &headers, is_mended);
}

fn check(
    file: &[u8],
    geometry: Geometry,
    wal: WalHeader,
    headers: &[FrameHeader],
    is_mended: bool,
) {
    let survey = Survey::of(file, geometry, wal, Writers::None).expect("bytes in memory");
    let walk = Scan::new(file, geometry, wal, Writers::None).expect("bytes in memory");
    let mut valid = 0;
    let mut commit = None;
    for (nth, found) in walk.enumerate() {
        let found = found.expect("bytes in memory");
        assert_eq!(found.frame.0 as usize, nth + 1, "frame after frame");
        if found.verdict != Verdict::Valid {
            continue;
        }
        valid += 1;
        assert_eq!(valid, found.frame.0, "nothing is valid behind the end");
        assert!(found.offset + geometry.slot_bytes() <= file.len() as u64);
        if found.header.commit_pages != 0 {
            commit = Some(found.frame);
        }
        if !is_mended {
            assert_eq!(
                headers.get(nth),
                Some(&found.header),
                "{found:?} was never written there"
            );
        }
    }
    assert_eq!(survey.valid, valid);
    assert_eq!(survey.committed.map(|commit| commit.frame), commit);
    assert!(survey.used_bytes <= survey.size && survey.size == file.len() as u64);
}

fn write(input: &mut Bytes<'_>) -> Option<Written> {
    let layout = LAYOUTS[input.below(LAYOUTS.len())];
    let page = PageSize::new(PAGES[input.below(PAGES.len())])?;
    let geometry = Geometry::new(layout, page, 1).ok()?;
    // Enough for a second group of `embedded`, and at most half a MiB.
    let most = (512 * 1024 / page.bytes()).min(140);
    let count = 1 + input.below(most);
    let fill = input.byte();
    let reserved = input.byte();
    let wal = WalHeader::build(
        page,
        u32::from(fill),
        Salts([fill, 2, 3, 4, 5, 6, 7, reserved]),
    );
    let mut frames = Vec::new();
    let mut headers: Vec<FrameHeader> = Vec::new();
    for n in 0..count {
        let mut data = vec![fill.wrapping_add(n as u8); page.bytes()];
        let tail = page.bytes() - 24;
        let uses_its_reserve = reserved >> (n % 8) & 1 == 1;
        data[tail..].fill(if uses_its_reserve { n as u8 | 1 } else { 0 });
        let ends = if n % 3 == 2 { 9 } else { 0 };
        let previous = headers.last().map_or(wal.checksum(), |last| last.checksum);
        let header = FrameHeader::build(PageNo(1 + n as u32 % 9), ends, &wal, previous, &data);
        frames.extend_from_slice(&header.to_bytes());
        frames.extend_from_slice(&data);
        headers.push(header);
    }
    let end = geometry.end_of(FrameNo(count as u32 + 1)) as usize;
    let mut file = vec![0; end];
    let mut blocks = AlignedBuf::new();
    let nothing = FrameNo(0);
    let load: onewrite::log::layout::Load<'_> = &mut |_, _| Ok(());
    let (at, side) = geometry
        .encode(FrameNo(1), &frames, nothing, load, &mut blocks)
        .ok()?;
    overwrite(&mut file, at as usize, blocks.as_slice());
    if let Some(side) = side {
        overwrite(&mut file, side.offset as usize, side.bytes.as_slice());
    }
    if layout == Layout::Stock {
        overwrite(&mut file, 0, &wal.bytes);
    }
    Some(Written {
        geometry,
        wal,
        file,
        headers,
    })
}
