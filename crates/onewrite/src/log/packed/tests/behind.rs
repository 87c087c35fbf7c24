//! Commits after a damaged place, and after the end of a whole log.

use std::cell::Cell;

use super::super::behind::Remains;
use super::*;

/// Small, so that most batches take a block, and some take two.
fn transaction(content: u32, frames: u32) -> Vec<Vec<u8>> {
    let pages = 1..=frames;
    pages
        .map(|page| {
            frame(
                page,
                u32::from(page == frames) * 9,
                SALTS,
                7 * content + page,
            )
        })
        .collect()
}

/// A log of so many transactions of two frames, and where each begins.
fn written(form: Form, transactions: u32) -> (Vec<u8>, Vec<usize>) {
    let process = Process::new(form);
    let mut log = vec![0; 4096];
    let mut begins = Vec::new();
    for n in 0..transactions {
        let begun = process.packed.begin(log.as_slice(), SALTS, FrameNo(2 * n));
        assert!(begun.expect("memory"));
        let frames = transaction(n, 2);
        let packing = process.write(&mut log, 2 * n + 1, &frames, true);
        begins.push(packing.offset as usize);
        process.publish(2 * n + 1, &frames, packing);
    }
    // Prepared blocks.
    log.resize(log.len().next_multiple_of(4096) + 16 * 4096, 0);
    (log, begins)
}

/// The last frame of the walk, and what stands behind it.
fn look(form: Form, log: &[u8]) -> (u32, Remains) {
    let packed = Packed::new(form, page_size());
    let last = packed.survey(log, SALTS).expect("memory");
    (last.0, packed.remains(log, SALTS).expect("memory"))
}

#[test]
fn commits_behind_a_damaged_place_are_counted() {
    const ALL: u32 = 12;
    for form in [Form::Packed, Form::Compressed] {
        let (log, begins) = written(form, ALL);
        assert_eq!(look(form, &log), (2 * ALL, Remains::default()), "{form:?}");
        for (n, &begin) in begins.iter().enumerate() {
            let behind = u64::from(ALL) - n as u64 - 1;
            // The header: magic number or page, and the salts.
            let mut damaged = log.clone();
            damaged[begin..begin + 16].fill(0x5a);
            let (last, remains) = look(form, &damaged);
            assert_eq!(u64::from(last), 2 * n as u64, "{form:?}");
            // The second record of a transaction has salts of its own, in `compressed`.
            let own = u64::from(form == Form::Compressed);
            assert_eq!(remains.commits, behind + own, "{form:?} {n}");
            assert_eq!(remains.frames, 2 * behind + own, "{form:?} {n}");
            if form == Form::Compressed {
                continue;
            }
            // A byte of a record, behind a header that says what was here.
            let mut damaged = log.clone();
            damaged[begin + batch::HEADER_BYTES + 30] ^= 1;
            assert_eq!(look(form, &damaged).1.commits, behind + 1, "{n}");
            // Several blocks at once.
            let mut damaged = log.clone();
            let end = begins.get(n + 3).copied().unwrap_or(begin + 4096);
            damaged[begin..end].fill(0);
            let left = begins.len().saturating_sub(n + 3);
            let left = if n + 3 < begins.len() {
                left
            } else {
                begins.len() - n - 1
            };
            let (_, remains) = look(form, &damaged);
            assert_eq!(remains.commits, left as u64, "{n}");
        }
    }
}

#[test]
fn what_a_dead_transaction_left_is_behind_no_damaged_place() {
    let mut seed = 7u32;
    let mut below = |most: u32| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 16) % most
    };
    for round in 0..400 {
        let mut log = vec![0; 4096];
        let process = Process::new(Form::Packed);
        let mut last = 0;
        let mut commit = |process: &Process, log: &mut Vec<u8>, frames: u32| {
            let begun = process.packed.begin(log.as_slice(), SALTS, FrameNo(last));
            assert!(begun.expect("memory"));
            let frames = transaction(last + round, frames);
            let packing = process.write(log, last + 1, &frames, true);
            process.publish(last + 1, &frames, packing);
            last += frames.len() as u32;
            last
        };
        for _ in 0..below(3) {
            commit(&process, &mut log, 1 + below(9));
        }
        let last = commit(&process, &mut log, 1);
        // Batches of a transaction that is never published: it is rolled back, or its process dies
        // before it has published the commit.
        let dead = Process::new(Form::Packed);
        assert!(
            dead.packed
                .begin(log.as_slice(), SALTS, FrameNo(last))
                .expect("memory")
        );
        let is_commit = below(2) == 1;
        let batches = if is_commit {
            1 + below(2)
        } else {
            1 + below(5)
        };
        let mut next = last + 1;
        for n in 1..=batches {
            let mut frames = transaction(1000 + round + n, 1 + below(20));
            let ends = is_commit && n == batches;
            if !ends {
                frames.iter_mut().for_each(|frame| frame[4..8].fill(0));
            }
            dead.write(&mut log, next, &frames, ends);
            next += frames.len() as u32;
        }
        for _ in 0..=below(4) {
            commit(&process, &mut log, 1 + below(9));
            let (_, remains) = look(Form::Packed, &log);
            assert_eq!(remains.commits, 0, "round {round}");
        }
    }
}

/// Every block claims to be the begin of the longest batch there can be.
#[test]
fn a_hostile_log_is_searched_within_bounds() {
    let mut block = vec![0x33; 4096];
    let claim = Batch {
        begin: Begin::Block,
        salts: SALTS,
        sequence: 2,
        previous: 1,
        first: FrameNo(1),
        frames: 1,
        ends_transaction: true,
        record_bytes: 1,
        crc: 0,
    };
    claim.seal(&mut block);
    block[32..36].copy_from_slice(&(60u32 << 20).to_be_bytes());
    let log = Counted(block.repeat(17_000), Cell::new(0));
    let packed = Packed::new(Form::Packed, page_size());
    packed.survey(&log, SALTS).expect("memory");
    assert_eq!(
        packed.remains(&log, SALTS).expect("memory"),
        Remains::default()
    );
    assert!(log.1.get() < 2 << 30, "{} bytes were read", log.1.get());
}

/// A log, and how many of its bytes were read.
struct Counted(Vec<u8>, Cell<u64>);

impl LogBytes for Counted {
    fn size(&self) -> io::Result<u64> {
        self.0.as_slice().size()
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        let n = self.0.as_slice().read_at(out, offset)?;
        self.1.set(self.1.get() + n as u64);
        assert!(self.1.get() < 4 << 30, "it goes on and on");
        Ok(n)
    }
}

/// A log that has no size.
struct Sizeless(Vec<u8>);

impl LogBytes for Sizeless {
    fn size(&self) -> io::Result<u64> {
        Err(io::Error::other("a call for each batch"))
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.as_slice().read_at(out, offset)
    }
}

/// A process walks over the batches of the others at each of its own transactions.
#[test]
fn the_walk_over_usual_batches_does_not_ask_for_the_size() {
    let writer = Process::new(Form::Packed);
    let mut log = vec![0; 4096];
    let mut last = 0;
    for n in 0..6 {
        let begun = writer.packed.begin(log.as_slice(), SALTS, FrameNo(last));
        assert!(begun.expect("memory"));
        let frames: Vec<_> = (1..=80)
            .map(|page| frame(page, u32::from(page == 80) * 99, SALTS, 1000 * n + page))
            .collect();
        let packing = writer.write(&mut log, last + 1, &frames, true);
        assert!(log.len() > packing.offset as usize + 4096, "a large batch");
        writer.publish(last + 1, &frames, packing);
        last += 80;
    }
    let reader = Packed::new(Form::Packed, page_size());
    let (mut header, mut page) = ([0; FRAME_HEADER_BYTES], vec![0; PAGE]);
    let (log, last) = (Sizeless(log), FrameNo(last));
    let out = (&mut header, page.as_mut_slice());
    let found = reader.read(&log, None, SALTS, last, Some(last), out);
    assert_eq!(found.expect("no call for the size"), Found::Page);
}

/// A log, and how often and how much of it was read.
struct Reads(Vec<u8>, Cell<(u32, usize)>);

impl LogBytes for Reads {
    fn size(&self) -> io::Result<u64> {
        self.0.as_slice().size()
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        let (reads, bytes) = self.1.get();
        self.1.set((reads + 1, bytes + out.len()));
        self.0.as_slice().read_at(out, offset)
    }
}

/// Each of eight processes does so at each of its transactions.
#[test]
fn what_seven_others_have_committed_is_walked_over_with_one_read() {
    for form in [Form::Packed, Form::Compressed] {
        let (log, begins) = written(form, 16);
        let walked = begins[15] - begins[8];
        let log = Reads(log, Cell::default());
        let process = Packed::new(form, page_size());
        assert!(process.begin(&log, SALTS, FrameNo(2 * 8)).expect("memory"));
        process.end_transaction();
        log.1.set((0, 0));
        let (mut header, mut page) = ([0; FRAME_HEADER_BYTES], vec![0; PAGE]);
        let (last, out) = (FrameNo(2 * 15), (&mut header, page.as_mut_slice()));
        let found = process.read(&log, None, SALTS, last, Some(last), out);
        assert_eq!(found.expect("memory"), Found::Page, "{form:?}");
        let (reads, bytes) = log.1.get();
        // The frame itself may be a difference.
        assert!(reads <= 1 + 2, "{form:?}: {reads} reads");
        assert!(
            bytes < 2 * walked + 16384,
            "{form:?}: {bytes} bytes, {walked}"
        );
    }
}
