//! Requests of a trace on a disk, in the disk's own time.

use std::io;

use hdrhistogram::Histogram;
use onewrite_flash::disk::{Disk, Pace};
use onewrite_flash::ftl::Ftl;
use onewrite_flash::medium::Medium;
use onewrite_flash::queue::{Order, Queue};

use super::formats::{Kind, Request};

/// A request is done in parts of at most this many bytes, so that memory is bounded.
const PART: u64 = 1 << 20;

/// The most time between the first and the last request, in nanoseconds: some 100 years. The device's
/// clock has room for six times as much.
const LONGEST_TRACE_NS: u64 = 100 * 366 * LONGEST_NS;

/// The longest distinct latency, in nanoseconds: a day.
const LONGEST_NS: u64 = 86_400 * 1_000_000_000;

/// The requests of one kind.
#[derive(Debug)]
pub struct Tally {
    pub requests: u64,
    pub bytes: u64,
    pub total_ns: u128,
    pub max_ns: u64,
    pub latencies: Histogram<u64>,
}

impl Tally {
    fn new() -> Self {
        let bounds = Histogram::new_with_bounds(1, LONGEST_NS, 3);
        Self {
            requests: 0,
            bytes: 0,
            total_ns: 0,
            max_ns: 0,
            latencies: bounds.expect("constant, valid bounds"),
        }
    }

    fn add(&mut self, bytes: u64, ns: u64) {
        self.requests += 1;
        self.bytes += bytes;
        self.total_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(ns);
        self.latencies.saturating_record(ns);
    }
}

/// The kinds of requests.
#[derive(Debug)]
pub struct Tallies {
    pub read: Tally,
    pub write: Tally,
    pub trim: Tally,
    pub flush: Tally,
}

/// The result of a replay.
#[derive(Debug)]
pub struct Played {
    pub ftl: Ftl,
    pub tallies: Tallies,
    pub moved: Moved,
    /// From the first to the last request, in the trace's time.
    pub trace_ns: u128,
    /// From the first request's arrival to the end of the last flush, in the device's time.
    pub device_ns: u64,
}

/// Requests that were not played as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Moved {
    /// Reached beyond the device's end.
    pub folded: u64,
    /// Were longer than the device.
    pub cut: u64,
    /// Were earlier in the trace's time than the one before.
    pub out_of_order: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Player {
    disk: Disk,
    queue: Queue,
    /// How many times as fast as in the trace requests arrive; `None` is one after the other.
    speed: Option<f64>,
    /// The trace's time of the first request, and the latest.
    times: Option<(i128, i128)>,
    begin_ns: u64,
    tallies: Tallies,
    moved: Moved,
    /// The pattern that is written.
    content: Vec<u8>,
    read: Vec<u8>,
}

impl Player {
    /// Up to `depth` requests are in flight.
    pub fn new(ftl: Ftl, buffer_pages: usize, depth: usize, speed: Option<f64>) -> Self {
        let queue = Queue::new(&ftl, depth);
        let disk = Disk::new(ftl, buffer_pages, Pace::Virtual);
        let begin_ns = now(&disk);
        Self {
            disk,
            queue,
            speed,
            times: None,
            begin_ns,
            tallies: Tallies {
                read: Tally::new(),
                write: Tally::new(),
                trim: Tally::new(),
                flush: Tally::new(),
            },
            moved: Moved::default(),
            content: vec![0xA5; PART as usize],
            read: vec![0; PART as usize],
        }
    }

    /// Plays a request.
    ///
    /// # Errors
    /// If the device is worn out, or the request's time is absurd.
    pub fn play(&mut self, request: &Request) -> io::Result<()> {
        let order = match request.kind == Kind::Flush || request.flush_before {
            true => Order::Flush,
            false => Order::Any,
        };
        let arrival = self.arrive(request.at_ns, order)?;
        if request.flush_before {
            self.disk.flush()?;
        }
        let bytes = request.bytes.min(self.disk.bytes());
        self.moved.cut += u64::from(bytes < request.bytes);
        let end = request.offset.checked_add(bytes);
        self.moved.folded += u64::from(end.is_none_or(|end| end > self.disk.bytes()));
        if request.kind == Kind::Flush {
            self.disk.flush()?;
        }
        let mut done = 0;
        while done < bytes {
            let at = (request.offset % self.disk.bytes() + done) % self.disk.bytes();
            let part = (bytes - done).min(PART).min(self.disk.bytes() - at);
            self.part(request.kind, at, part)?;
            done += part;
        }
        if request.fua {
            self.disk.flush()?;
        }
        let queue = &mut self.queue;
        let answered = self.disk.with(|ftl| queue.answer(ftl, order));
        let took = answered.unwrap_or_default().saturating_sub(arrival);
        let tally = match request.kind {
            Kind::Read => &mut self.tallies.read,
            Kind::Write => &mut self.tallies.write,
            Kind::Trim => &mut self.tallies.trim,
            Kind::Flush => &mut self.tallies.flush,
        };
        tally.add(bytes, took);
        Ok(())
    }

    fn part(&mut self, kind: Kind, at: u64, bytes: u64) -> io::Result<()> {
        match kind {
            Kind::Read => self.disk.read(at, &mut self.read[..bytes as usize]),
            Kind::Write => self.disk.write(at, &self.content[..bytes as usize]),
            Kind::Trim => self.disk.zero(at, bytes),
            Kind::Flush => Ok(()),
        }
    }

    /// The device's time at which a request arrives. It begins then, or when it has a place in the
    /// queue.
    fn arrive(&mut self, at_ns: i128, order: Order) -> io::Result<u64> {
        let (first, latest) = self.times.unwrap_or((at_ns, at_ns));
        self.moved.out_of_order += u64::from(at_ns < latest);
        let latest = latest.max(at_ns);
        // `as` saturates.
        let since = self
            .speed
            .map(|speed| ((latest - first) as f64 / speed) as u64);
        if since.is_some_and(|since| since > LONGEST_TRACE_NS) {
            return Err(io::Error::other(
                "it is more than 100 years later than the first one: wrong time, or the wrong --format",
            ));
        }
        self.times = Some((first, latest));
        let arrival = since.map(|since| self.begin_ns.saturating_add(since));
        let queue = &mut self.queue;
        let begun = self.disk.with(|ftl| queue.begin(ftl, arrival, order));
        Ok(begun.map(|begun| begun.arrived).unwrap_or_default())
    }

    /// A last flush, and the end.
    ///
    /// # Errors
    /// As [`Self::play`].
    pub fn finish(mut self) -> io::Result<Played> {
        let queue = &mut self.queue;
        self.disk.with(|ftl| queue.begin(ftl, None, Order::Flush));
        self.disk.flush()?;
        let device_ns = now(&self.disk).saturating_sub(self.begin_ns);
        let gone = || io::Error::other("the device is gone");
        let (first, latest) = self.times.unwrap_or_default();
        Ok(Played {
            ftl: self.disk.take().ok_or_else(gone)?,
            tallies: self.tallies,
            moved: self.moved,
            trace_ns: (latest - first).unsigned_abs(),
            device_ns,
        })
    }
}

fn now(disk: &Disk) -> u64 {
    disk.with(|ftl| ftl.nand().now().0).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use onewrite_flash::ftl::{Config, Lpn};
    use onewrite_flash::nand::timing::Timing;
    use onewrite_flash::nand::{Geometry, Nand};

    use super::*;

    const PAGE: u64 = 1024;
    const PAGES: u64 = 100;
    const BYTES: u64 = PAGES * PAGE;

    fn player(speed: Option<f64>) -> Player {
        with_depth(1, speed)
    }

    fn with_depth(depth: usize, speed: Option<f64>) -> Player {
        let geometry = Geometry {
            page_bytes: PAGE as u32,
            pages_per_block: 16,
            ..Geometry::openssd(64)
        };
        let timing = Timing::built_in("openssd").unwrap();
        let mut config = Config::new(PAGES as u32);
        config.table_capacity = 40;
        let (mut ftl, _) = Ftl::open(Nand::new(geometry, timing).unwrap(), config).unwrap();
        // A block is open: no later write of these tests has to erase one.
        ftl.write(Lpn(0), &[1; PAGE as usize]).unwrap();
        ftl.flush().unwrap();
        Player::new(ftl, 1, depth, speed)
    }

    fn request(kind: Kind, offset: u64, bytes: u64, at_ns: i128) -> Request {
        Request {
            at_ns,
            of: String::new(),
            kind,
            offset,
            bytes,
            flush_before: false,
            fua: false,
        }
    }

    /// A write of whole pages stays one, so that no page is read for the rest of it.
    #[test]
    fn a_folded_address_keeps_its_alignment() {
        let mut player = player(None);
        for n in 0..50 {
            let far = (1 << 40) + n * PAGE;
            player.play(&request(Kind::Write, far, PAGE, 0)).unwrap();
        }
        // This one begins at the last page and continues at the first.
        let wraps = request(Kind::Write, BYTES - PAGE, 2 * PAGE, 0);
        player.play(&wraps).unwrap();
        let inside = request(Kind::Write, BYTES - PAGE, PAGE, 0);
        player.play(&inside).unwrap();
        let played = player.finish().unwrap();
        assert_eq!(played.moved.folded, 51);
        assert_eq!(played.ftl.statistics().host_reads, 0);
        assert_eq!(played.ftl.statistics().host_writes, 54);
    }

    #[test]
    fn a_time_that_no_clock_has_is_refused_and_blank_pages_are_counted_apart() {
        let mut timed = player(Some(1.0));
        timed.play(&request(Kind::Read, PAGE, PAGE, 5)).unwrap();
        let absurd = request(Kind::Read, PAGE, PAGE, i128::from(u64::MAX));
        let refused = timed.play(&absurd).unwrap_err().to_string();
        assert!(refused.contains("100 years"), "{refused}");
        // Page 0 was written by the set-up, page 1 was not.
        timed.play(&request(Kind::Read, 0, PAGE, 6)).unwrap();
        let statistics = timed.finish().unwrap().ftl.statistics();
        assert_eq!((statistics.host_reads, statistics.blank_reads), (2, 1));
    }

    #[test]
    fn what_is_longer_than_the_device_is_cut_to_it() {
        let mut player = player(None);
        player.play(&request(Kind::Write, 0, BYTES, 0)).unwrap();
        let huge = request(Kind::Trim, 3 * PAGE, u64::MAX, 0);
        player.play(&huge).unwrap();
        let played = player.finish().unwrap();
        assert_eq!((played.moved.cut, played.moved.folded), (1, 1));
        assert_eq!(played.tallies.trim.bytes, BYTES);
        assert_eq!(played.ftl.statistics().host_trims, PAGES);
    }

    #[test]
    fn each_kind_is_done_and_counted() {
        let mut player = player(None);
        for kind in [Kind::Write, Kind::Read, Kind::Trim, Kind::Flush] {
            let bytes = if kind == Kind::Flush { 0 } else { 2 * PAGE };
            player.play(&request(kind, 0, bytes, 0)).unwrap();
        }
        let durable = Request {
            flush_before: true,
            fua: true,
            ..request(Kind::Write, 0, PAGE, 0)
        };
        player.play(&durable).unwrap();
        let played = player.finish().unwrap();
        let t = &played.tallies;
        assert_eq!((t.write.requests, t.write.bytes), (2, 3 * PAGE));
        assert_eq!((t.read.requests, t.read.bytes), (1, 2 * PAGE));
        assert_eq!((t.trim.requests, t.trim.bytes), (1, 2 * PAGE));
        assert_eq!((t.flush.requests, t.flush.bytes), (1, 0));
        // That of the set-up, its own, two for the durable write, and the last.
        assert_eq!(played.ftl.statistics().flushes, 5);
    }

    /// A program takes 1.3 ms. Durable writes are 10 ms apart, then two arrive at once.
    #[test]
    fn requests_arrive_when_the_trace_says_and_wait_for_those_before() {
        let write = |at_ms: i128| Request {
            fua: true,
            ..request(Kind::Write, 0, PAGE, at_ms * 1_000_000)
        };
        let play = |speed: Option<f64>| {
            let mut player = player(speed);
            for at_ms in [5, 15, 25, 25, 24] {
                player.play(&write(at_ms)).unwrap();
            }
            player.finish().unwrap()
        };
        let at_once = play(None);
        let one = at_once.tallies.write.max_ns;
        assert!((1_300_000..1_400_000).contains(&one), "{one}");
        assert_eq!(at_once.device_ns, 5 * one);
        assert_eq!(at_once.trace_ns, 20_000_000);
        assert_eq!(at_once.moved.out_of_order, 1);

        let timed = play(Some(1.0));
        assert_eq!(timed.device_ns, 20_000_000 + 3 * one);
        assert_eq!(timed.tallies.write.max_ns, 3 * one);
        assert_eq!(timed.tallies.write.total_ns, u128::from(8 * one));

        let faster = play(Some(2.0));
        assert_eq!(faster.device_ns, 10_000_000 + 3 * one);
    }

    /// There is one die: it reads one page after the other, but latencies count from the moment at
    /// which a read is in the queue.
    #[test]
    fn as_many_requests_are_in_flight_as_the_queue_is_deep() {
        let play = |depth: usize| {
            let mut player = with_depth(depth, None);
            for page in 0..40 {
                let read = request(Kind::Read, page % 2 * PAGE, PAGE, 0);
                player
                    .play(&request(Kind::Write, read.offset, PAGE, 0))
                    .unwrap();
            }
            player.play(&request(Kind::Flush, 0, 0, 0)).unwrap();
            for page in 0..40 {
                player
                    .play(&request(Kind::Read, page % 2 * PAGE, PAGE, 0))
                    .unwrap();
            }
            let played = player.finish().unwrap();
            let read = played.tallies.read.latencies;
            (read.value_at_quantile(0.01), read.value_at_quantile(0.5))
        };
        let (one, median) = play(1);
        assert_eq!(one, median);
        let (_, median) = play(8);
        assert!((7 * one..9 * one).contains(&median), "{one} {median}");
    }

    #[test]
    fn the_wait_of_a_flush_for_those_before_it_is_in_its_latency() {
        let mut player = with_depth(32, None);
        for _ in 0..30 {
            player.play(&request(Kind::Read, 0, PAGE, 0)).unwrap();
        }
        player.play(&request(Kind::Flush, 0, 0, 0)).unwrap();
        let played = player.finish().unwrap();
        let (read, flush) = (played.tallies.read.max_ns, played.tallies.flush.max_ns);
        assert!(flush >= read, "{flush} {read}");
    }
}
