//! The messages of processes in shared memory, under the model checker loom. Loom tries every order
//! of the threads' steps, and lets each load see whatever the memory model allows. Shuttle
//! (`tests/model`) tries large orders, but is sequentially consistent. Here the protocols are small
//! and the memory is weak.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p onewrite-models --test orders
//! ```
//!
//! Real code: [`onewrite::log::shared`], [`onewrite::log::arrivals`], [`onewrite::log::open_block`]
//! and [`onewrite::log::page_ring`]. SQLite's wal-index, the
//! log's page cache and the device are one word each. Each model runs again with fences left out,
//! or with all accesses relaxed, and must find that.

#![cfg(loom)]

use loom::sync::atomic::AtomicU32;
use loom::thread;
use onewrite::log::memory::Remembered;
use onewrite::log::packed::LastBatch;
use onewrite::log::page_ring::PageRing;
use onewrite::log::shared::Shared;
use onewrite::storage::{SharedSlots, SlotLayout};
use onewrite::sync::{Instant, LeftOut, fence, leave_out};
use onewrite::wal::{FrameNo, PageNo, Salts};
use std::sync::Arc;
use std::sync::atomic::Ordering::{self, Relaxed};
use std::time::Duration;

const SALTS: Salts = Salts([1, 2, 3, 4, 5, 6, 7, 8]);

/// Runs a model with some ordering left out.
fn explore(left_out: LeftOut, model: impl Fn() + Send + Sync + 'static) {
    leave_out(left_out);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// A leader waits for the commits that the last flush released. The last of them wakes it, or a
/// reader does.
fn a_leader_is_woken(left_out: LeftOut, commits: u32, hurries: bool) {
    explore(left_out, move || {
        let shared = Arc::new(Shared::private());
        let arrivals = shared.arrivals();
        let first = arrivals.begin();
        (0..2).for_each(|_| arrivals.arrive());
        arrivals.end(first, Duration::ZERO);
        let second = arrivals.begin();
        arrivals.end(second, Duration::ZERO);
        assert!(!arrivals.are_complete());
        let mut threads: Vec<_> = (0..commits)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.arrivals().arrive())
            })
            .collect();
        if hurries {
            let shared = Arc::clone(&shared);
            threads.push(thread::spawn(move || shared.arrivals().hurry()));
        }
        // If it sleeps forever, loom reports a deadlock.
        arrivals.wait(Instant::now() + Duration::from_secs(1 << 30));
        threads
            .into_iter()
            .for_each(|thread| thread.join().expect("no panic"));
    });
}

#[test]
fn a_leader_is_woken_by_the_last_commit_that_comes() {
    a_leader_is_woken(LeftOut::Nothing, 2, false);
}

#[test]
fn a_leader_is_woken_by_a_reader() {
    a_leader_is_woken(LeftOut::Nothing, 0, true);
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_fences_a_leader_sleeps_on_when_all_have_come() {
    a_leader_is_woken(LeftOut::Fences, 2, false);
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_fences_a_leader_sleeps_on_when_a_reader_waits() {
    a_leader_is_woken(LeftOut::Fences, 0, true);
}

/// The places where a log's frames are.
#[derive(Default)]
struct Places {
    /// The log's page cache.
    file: AtomicU32,
    /// The wal-index.
    published: AtomicU32,
    device: AtomicU32,
}

impl Places {
    /// Like `flush` of group commit.
    fn flush(&self, shared: &Shared) {
        let last = self.published.load(Relaxed);
        fence(Ordering::Acquire);
        let found = self.file.load(Relaxed);
        assert!(found >= last, "a flush finds all that is published");
        self.device.fetch_max(found, Relaxed);
        shared.set_durable(SALTS, FrameNo(last));
    }
}

/// A commit is published before it is durable, and a leader flushes. A reader that need not wait
/// finds it durable.
fn readers_see_what_is_durable(left_out: LeftOut) {
    explore(left_out, || {
        let both = Arc::new((Shared::private(), Places::default()));
        let writer = Arc::clone(&both);
        let writer = thread::spawn(move || {
            let (shared, places) = &*writer;
            places.file.store(1, Relaxed);
            shared.set_deferred(SALTS, FrameNo(1));
            places.published.store(1, Relaxed);
        });
        let leader = Arc::clone(&both);
        let leader = thread::spawn(move || leader.1.flush(&leader.0));
        let (shared, places) = &*both;
        let seen = places.published.load(Relaxed);
        if seen > 0 && shared.deferred(SALTS).is_none() {
            assert!(places.device.load(Relaxed) >= seen, "read, and not durable");
        }
        writer.join().expect("no panic");
        leader.join().expect("no panic");
    });
}

#[test]
fn what_a_reader_need_not_wait_for_is_durable() {
    readers_see_what_is_durable(LeftOut::Nothing);
}

#[test]
#[should_panic]
fn without_fences_a_flush_or_a_reader_is_deceived() {
    readers_see_what_is_durable(LeftOut::Fences);
}

/// Two leaders raise the mark. It is true at every read, and keeps the highest value.
fn marks_are_true(left_out: LeftOut) {
    explore(left_out, || {
        let both = Arc::new((Shared::private(), AtomicU32::new(0)));
        let leaders: Vec<_> = [1, 2]
            .map(|frame| {
                let both = Arc::clone(&both);
                thread::spawn(move || {
                    both.1.fetch_max(frame, Relaxed);
                    both.0.set_durable(SALTS, FrameNo(frame));
                })
            })
            .into();
        let (shared, device) = &*both;
        let first = shared.durable(SALTS);
        let durable = first.map_or(0, |frame| frame.0);
        assert!(device.load(Relaxed) >= durable, "a mark is false");
        assert!(shared.durable(SALTS) >= first, "a mark has sunk");
        leaders
            .into_iter()
            .for_each(|leader| leader.join().expect("no panic"));
        assert_eq!(shared.durable(SALTS), Some(FrameNo(2)));
    });
}

#[test]
fn a_durable_mark_is_true_and_never_sinks() {
    marks_are_true(LeftOut::Nothing);
}

#[test]
#[should_panic(expected = "a mark is false")]
fn with_relaxed_marks_one_is_false() {
    marks_are_true(LeftOut::Orders);
}

/// Two processes give up their waits for the restart. The mark keeps the longest log.
#[test]
fn a_failed_wait_for_the_restart_never_sinks() {
    explore(LeftOut::Nothing, || {
        let shared = Arc::new(Shared::private());
        let waiters: Vec<_> = [1, 2]
            .map(|frame| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.set_restart_failed(SALTS, FrameNo(frame)))
            })
            .into();
        let first = shared.restart_failed(SALTS);
        assert!(shared.restart_failed(SALTS) >= first, "it has sunk");
        waiters
            .into_iter()
            .for_each(|waiter| waiter.join().expect("no panic"));
        assert_eq!(shared.restart_failed(SALTS), Some(FrameNo(2)));
    });
}

/// Batches: the CRC and the end of each.
const FIRST: LastBatch = LastBatch { crc: 1, end: 4160 };
const SECOND: LastBatch = LastBatch { crc: 2, end: 4240 };

/// The block in which a writer has put frame 1 of a group. It may take frame 2 as well.
struct Block {
    shared: Shared,
    published: AtomicU32,
    /// The frames in it, and whether a flush has made frame 1 durable there.
    frames: AtomicU32,
    is_durable: AtomicU32,
}

impl Block {
    fn write(&self, frame: u32) {
        self.frames.store(frame, Relaxed);
        assert_eq!(self.is_durable.load(Relaxed), 0, "written once more");
    }

    /// Like `Writer::write_for_leader` and `Writer::defer`.
    fn commit(&self) {
        let block = self.shared.open_block();
        self.write(1);
        block.wrote(FIRST, None);
        self.shared.set_deferred(SALTS, FrameNo(1));
        self.published.store(1, Relaxed);
        if let Some(held) = block.hold(FIRST) {
            self.write(2);
            block.wrote(SECOND, Some(held));
        }
    }

    /// Like `flush` of group commit.
    fn flush(&self) {
        let last = self.published.load(Relaxed);
        self.shared.open_block().close();
        if last > 0 {
            let before = self.frames.load(Relaxed);
            self.is_durable.store(1, Relaxed);
            // The write of a block that is durable would come here.
            assert_eq!(self.frames.load(Relaxed), before, "written once more");
        }
    }
}

/// A writer puts a second batch into a block, and a leader flushes the first.
fn a_durable_block_stays(left_out: LeftOut) {
    explore(left_out, || {
        let block = Arc::new(Block {
            shared: Shared::private(),
            published: AtomicU32::new(0),
            frames: AtomicU32::new(0),
            is_durable: AtomicU32::new(0),
        });
        let writer = Arc::clone(&block);
        let writer = thread::spawn(move || writer.commit());
        block.flush();
        let flushed = block.is_durable.load(Relaxed) == 1;
        let frames = block.frames.load(Relaxed);
        writer.join().expect("no panic");
        assert!(
            !flushed || block.frames.load(Relaxed) == frames,
            "written once more"
        );
    });
}

#[test]
fn a_closed_block_is_not_written_again() {
    a_durable_block_stays(LeftOut::Nothing);
}

#[test]
#[should_panic(expected = "written once more")]
fn without_fences_a_durable_block_is_written_again() {
    a_durable_block_stays(LeftOut::Fences);
}

/// Bytes of a page of two words.
const PAGE: usize = 2 * size_of::<usize>();

/// Puts a frame whose page has its number in every byte.
fn put(ring: &PageRing, frame: u32) {
    ring.put(Remembered {
        frame: FrameNo(frame),
        history: SALTS.into(),
        page: PageNo(frame),
        bytes: &[frame as u8; PAGE],
    });
}

/// A process puts one frame after another into a slot, and another one reads the first there.
fn pages_are_whole(left_out: LeftOut) {
    explore(left_out, || {
        let slots = SharedSlots::private(SlotLayout {
            slots: 1,
            page_bytes: PAGE,
        });
        let ring = Arc::new(PageRing::new(slots));
        put(&ring, 1);
        let writer = Arc::clone(&ring);
        let writer = thread::spawn(move || put(&writer, 2));
        let mut page = [0; PAGE];
        for frame in [1, 2] {
            if let Some(number) = ring.get(FrameNo(frame), SALTS, &mut page) {
                assert_eq!(number, PageNo(frame), "another page");
                assert_eq!(page, [frame as u8; PAGE], "two pages in one");
            }
        }
        writer.join().expect("no panic");
        let found = ring.get(FrameNo(2), SALTS, &mut page);
        assert_eq!((found, page), (Some(PageNo(2)), [2; PAGE]));
    });
}

#[test]
fn a_page_that_is_found_in_shared_memory_is_whole() {
    pages_are_whole(LeftOut::Nothing);
}

#[test]
#[should_panic(expected = "two pages in one")]
fn without_fences_a_page_is_of_two() {
    pages_are_whole(LeftOut::Fences);
}

#[test]
#[should_panic]
fn with_relaxed_sequences_a_page_is_another() {
    pages_are_whole(LeftOut::Orders);
}
