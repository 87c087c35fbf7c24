//! Every layout against a model: a list of frames.

use super::*;
use crate::wal::{FrameHeader, PageNo};
use proptest::prelude::*;

const SIZES: [u32; 8] = [512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536];
const LAYOUTS: [Layout; 6] = [
    Layout::Stock,
    Layout::Embedded,
    Layout::Sector,
    Layout::Page4k,
    Layout::Page8k,
    Layout::Gathered,
];

fn geometry(layout: Layout, page: u32) -> Geometry {
    let page = match layout {
        Layout::Gathered => page.max(4096),
        _ => page,
    };
    let page = PageSize::new(page).expect("a page size");
    Geometry::new(layout, page, 512).expect("512 suits every layout")
}

/// A run to write, at a position counted from the end of the frames so far.
#[derive(Clone, Debug)]
struct Step {
    /// Begins so many frames before the end: they are written again.
    back: u32,
    frames: u32,
    /// Keeps the frames after the run.
    keep_rest: bool,
    /// How many of 4 pages use their reserved bytes.
    reserved: u8,
    /// The log restarts before the run.
    restart: bool,
    seed: u8,
}

fn step() -> impl Strategy<Value = Step> {
    let restart = prop::bool::weighted(0.15);
    (
        0u32..200,
        1u32..160,
        any::<bool>(),
        0u8..=4,
        restart,
        any::<u8>(),
    )
        .prop_map(|(back, frames, keep_rest, reserved, restart, seed)| Step {
            back,
            frames,
            keep_rest,
            reserved,
            restart,
            seed,
        })
}

/// A log file and the frames that it must hold.
struct Model {
    geometry: Geometry,
    file: Vec<u8>,
    frames: Vec<Vec<u8>>,
    salts: Salts,
}

impl Model {
    fn new(geometry: Geometry) -> Model {
        let mut file = vec![0; 4096];
        file[..wal::HEADER_BYTES].fill(0xab);
        Model {
            geometry,
            file,
            frames: Vec::new(),
            salts: Salts([1; 8]),
        }
    }

    fn frame(&self, step: &Step, no: u32) -> Vec<u8> {
        let mut frame = vec![step.seed ^ no as u8; self.geometry.page().frame_bytes()];
        let header = FrameHeader {
            page: PageNo(no),
            commit_pages: u32::from(step.seed),
            salts: self.salts,
            checksum: [no.wrapping_mul(0x0101_6b5d), u32::from(step.seed) + 1],
        };
        frame[..FRAME_HEADER_BYTES].copy_from_slice(&header.to_bytes());
        if (no % 4) as u8 >= step.reserved {
            let tail = frame.len() - FRAME_HEADER_BYTES;
            frame[tail..].fill(0);
        }
        frame
    }

    fn run(&mut self, step: &Step) {
        if step.restart {
            self.salts = Salts([self.salts.0[0].wrapping_add(1); 8]);
            self.frames.clear();
        }
        let begin = self.frames.len().saturating_sub(step.back as usize);
        let first = FrameNo(begin as u32 + 1);
        let run: Vec<Vec<u8>> = (0..step.frames)
            .map(|i| self.frame(step, first.0 + i))
            .collect();
        let end = begin + run.len();
        let last = FrameNo(end as u32);
        let live_until = match step.keep_rest {
            true => FrameNo(self.frames.len().max(end) as u32),
            false => last,
        };
        self.write(first, &run.concat(), live_until);
        let rest = match live_until > last {
            true => self.frames.split_off(end),
            false => Vec::new(),
        };
        self.frames.truncate(begin);
        self.frames.extend(run);
        self.frames.extend(rest);
    }

    fn write(&mut self, first: FrameNo, run: &[u8], live_until: FrameNo) {
        let mut out = AlignedBuf::new();
        let file = &self.file;
        let load: Load<'_> = &mut |offset, block| {
            let from = (offset as usize).min(file.len());
            let held = &file[from..(from + block.len()).min(file.len())];
            block.fill(0);
            block[..held.len()].copy_from_slice(held);
            Ok(())
        };
        let (offset, side) = self
            .geometry
            .encode(first, run, live_until, load, &mut out)
            .expect("blocks");
        let mut used = AlignedBuf::new();
        used.extend_from_slice(&vec![0xee; out.len() + 4096]);
        self.geometry
            .encode(first, run, live_until, load, &mut used)
            .expect("blocks");
        assert!(
            used.as_slice() == out.as_slice(),
            "nothing stays of an earlier run"
        );
        let last = self.geometry.last_frame(first, run);
        assert!(offset + out.len() as u64 <= self.geometry.end_of(last));
        if let Some(side) = side {
            assert!(
                side.offset + side.bytes.len() as u64 <= offset,
                "it stands before"
            );
            self.put(side.offset, &side.bytes);
        }
        self.put(offset, &out);
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) {
        let unit = self.geometry.unit();
        assert!(offset.is_multiple_of(unit) && (bytes.len() as u64).is_multiple_of(unit));
        let end = offset as usize + bytes.len();
        self.file.resize(self.file.len().max(end), 0);
        self.file[offset as usize..end].copy_from_slice(bytes);
    }

    /// A frame as read back; `None` if the slot is not of this generation.
    fn read(&self, no: FrameNo) -> Option<Vec<u8>> {
        let bytes = |offset: u64, len: usize| {
            let from = offset as usize;
            self.file.get(from..from + len).map(<[u8]>::to_vec)
        };
        let page_bytes = self.geometry.page().bytes();
        let mut header = [0; FRAME_HEADER_BYTES];
        let page = match self.geometry.layout() {
            Layout::Embedded => {
                let mut page = bytes(self.geometry.slot(no), page_bytes)?;
                match Geometry::extract(&mut page, &mut header, &[self.salts]) {
                    Slot::Plain => {}
                    Slot::Foreign => return None,
                    Slot::Escaped => {
                        let entry = array(&bytes(self.geometry.entry_offset(no), 32)?);
                        Geometry::restore(&mut page, &header, &entry).then_some(())?;
                    }
                }
                page
            }
            _ => {
                header = array(&bytes(self.geometry.header_offset(no), FRAME_HEADER_BYTES)?);
                bytes(self.geometry.page_offset(no), page_bytes)?
            }
        };
        (header[8..16] == self.salts.0).then(|| [&header[..], &page].concat())
    }

    fn check(&self) {
        for (no, frame) in (1..).zip(&self.frames) {
            let read = self.read(FrameNo(no));
            assert!(
                read.as_ref() == Some(frame),
                "frame {no} of {:?}",
                self.geometry
            );
        }
        if self.geometry.layout() == Layout::Stock {
            assert_eq!(self.file[..wal::HEADER_BYTES], [0xab; wal::HEADER_BYTES]);
        } else {
            assert!(
                self.file[wal::HEADER_BYTES..4096]
                    .iter()
                    .all(|&byte| byte == 0)
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// proptest prints the failing case and its seed. PROPTEST_RNG_SEED replays a seed.
    #[test]
    fn what_is_written_in_any_order_is_read_back(
        steps in prop::collection::vec(step(), 1..12),
        layout in 0..LAYOUTS.len(),
        size in 0..SIZES.len(),
    ) {
        let mut model = Model::new(geometry(LAYOUTS[layout], SIZES[size]));
        // Large pages, but few: a page's content does not affect its position.
        let scale = (SIZES[size] / 2048).max(1);
        for mut step in steps {
            step.frames = (step.frames / scale).max(1);
            step.back /= scale;
            model.run(&step);
            model.check();
        }
    }

    #[test]
    fn frames_lie_one_behind_the_other_and_their_number_fits_the_file(
        layout in 0..LAYOUTS.len(),
        size in 0..SIZES.len(),
        frame in 1u32..1_000_000,
    ) {
        let geometry = geometry(LAYOUTS[layout], SIZES[size]);
        let (no, next) = (FrameNo(frame), FrameNo(frame + 1));
        prop_assert!(geometry.slot(no) + geometry.slot_bytes() <= geometry.slot(next));
        prop_assert!(geometry.end_of(no) >= geometry.slot(no) + geometry.slot_bytes());
        let capacity = geometry.capacity(geometry.end_of(no));
        prop_assert!(capacity >= frame, "{capacity}");
        // All that is promised is there.
        let last = geometry.slot(FrameNo(capacity)) + geometry.slot_bytes();
        prop_assert!(last <= geometry.end_of(no));
        if geometry.layout() != Layout::Stock {
            prop_assert!(geometry.slot(no).is_multiple_of(geometry.unit().min(4096)));
        }
    }
}

#[test]
fn gathered_is_for_pages_of_whole_blocks() {
    for size in SIZES {
        let page = PageSize::new(size).expect("a page size");
        let made = Geometry::new(Layout::Gathered, page, 512);
        assert_eq!(made.is_ok(), size >= 4096, "{made:?}");
    }
    let geometry = geometry(Layout::Gathered, 4096);
    for frame in [1, 2, 128, 129, 5000].map(FrameNo) {
        assert!(geometry.page_offset(frame).is_multiple_of(4096));
    }
}

#[test]
fn every_layout_carries_every_page_size_over_a_section_s_end() {
    for layout in LAYOUTS {
        for page in SIZES {
            let mut model = Model::new(geometry(layout, page));
            let step = Step {
                back: 0,
                frames: 126,
                keep_rest: false,
                reserved: 1,
                restart: false,
                seed: 7,
            };
            model.run(&step);
            // From frame 127 into the next section; then a part of it again, with escapes.
            model.run(&Step {
                frames: 5,
                seed: 9,
                ..step
            });
            model.run(&Step {
                back: 6,
                frames: 2,
                keep_rest: true,
                reserved: 4,
                ..step
            });
            model.run(&Step {
                back: 4,
                frames: 3,
                keep_rest: true,
                reserved: 2,
                ..step
            });
            model.check();
            model.run(&Step {
                restart: true,
                frames: 2,
                ..step
            });
            model.check();
            for no in 3..=131 {
                assert_eq!(
                    model.read(FrameNo(no)),
                    None,
                    "frame {no}, {layout}, {page}"
                );
            }
        }
    }
}

/// Frames with bytes beyond 2 and 4 GiB: 32 bits are not enough, on any processor.
#[test]
fn frames_beyond_four_gibibytes_lie_one_behind_the_other() {
    for (layout, page) in LAYOUTS.into_iter().zip(SIZES.into_iter().cycle().skip(3)) {
        let geometry = geometry(layout, page);
        let page = geometry.page.bytes() as u64;
        for frame in [524_287, 1_048_576, 8_388_608, u32::MAX - 1] {
            let (slot, next) = (
                geometry.slot(FrameNo(frame)),
                geometry.slot(FrameNo(frame + 1)),
            );
            assert!(slot >= u64::from(frame - 1) * page, "{layout:?} {frame}");
            assert!(next >= slot + geometry.slot_bytes(), "{layout:?} {frame}");
        }
    }
}
