//! A block device of bytes on an FTL: the controller's write buffer between sectors and pages.
//!
//! The buffer is memory that a power cut erases. It holds whole pages. When it is full, the oldest
//! page is written first; a flush empties it. A write that covers a part of a page reads the rest
//! of it.
//!
//! The FTL's time is virtual. With [`Pace::Real`] the caller waits until the FTL would have
//! answered. One request waits for the other, unless there is a [`crate::queue`].

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::ftl::{Ftl, FtlError, Lpn, Recovery};
use crate::latencies::{ByKind, Latencies};
use crate::medium::Medium;
use crate::nand::NandError;
use crate::nand::clock::Nanoseconds;
use crate::queue::{Order, Queue};
use crate::used::{Until, UseUp};

/// Whether callers wait for virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// No: only the virtual clock advances.
    Virtual,
    /// Yes.
    Real,
}

/// A disk; clones are the same one.
#[derive(Clone, Debug)]
pub struct Disk {
    state: Arc<Mutex<State>>,
    bytes: u64,
    page_bytes: usize,
}

#[derive(Debug)]
struct State {
    /// `None` if it could not be opened after a power cut.
    ftl: Option<Ftl>,
    buffer: BTreeMap<Lpn, Vec<u8>>,
    order: VecDeque<Lpn>,
    buffer_pages: usize,
    waiting: Waiting,
    /// Several requests in flight; `None` is one after the other.
    queue: Option<Queue>,
    latencies: ByKind<Latencies>,
}

/// How far an FTL's clock may be ahead of the real one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    /// When both clocks were the same, if callers wait for virtual time.
    since: Option<(Instant, u64)>,
}

impl Waiting {
    pub(crate) fn new(pace: Pace, ftl: &Ftl) -> Self {
        let now = || (Instant::now(), ftl.nand().now().0);
        Self {
            since: (pace == Pace::Real).then(now),
        }
    }

    /// A request arrives. The FTL cannot use up the idle time before it.
    pub(crate) fn arrive(&mut self, ftl: &Ftl) {
        if self.since.is_some() && self.left(ftl).is_zero() {
            *self = Self::new(Pace::Real, ftl);
        }
    }

    /// The present in virtual time, if callers wait for it.
    fn now(&self) -> Option<u64> {
        let (real, from) = self.since?;
        let passed = real.elapsed().as_nanos().min(u128::from(u64::MAX)) as u64;
        Some(from.saturating_add(passed))
    }

    /// The time left to wait, so that real time catches up with the FTL's.
    pub(crate) fn left(&self, ftl: &Ftl) -> Duration {
        let Some((real, from)) = self.since else {
            return Duration::ZERO;
        };
        let passed = Duration::from_nanos(ftl.nand().now().0.saturating_sub(from));
        passed.saturating_sub(real.elapsed())
    }
}

impl Disk {
    /// A disk with a write buffer of `buffer_pages` pages, at least one.
    pub fn new(ftl: Ftl, buffer_pages: usize, pace: Pace) -> Self {
        let page_bytes = ftl.page_bytes() as usize;
        let bytes = u64::from(ftl.pages()) * page_bytes as u64;
        let waiting = Waiting::new(pace, &ftl);
        let state = State {
            ftl: Some(ftl),
            buffer: BTreeMap::new(),
            order: VecDeque::new(),
            buffer_pages: buffer_pages.max(1),
            waiting,
            queue: None,
            latencies: ByKind::default(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            bytes,
            page_bytes,
        }
    }

    /// The same disk with up to `depth` requests in flight. Callers on as many threads get their
    /// answers at the same time.
    pub fn with_queue(self, depth: usize) -> Self {
        let mut state = self.state();
        state.queue = state.ftl.as_ref().map(|ftl| Queue::new(ftl, depth));
        drop(state);
        self
    }

    /// The latency of each request so far, in virtual time: from its arrival to its answer.
    pub fn latencies(&self) -> ByKind<Latencies> {
        self.state().latencies.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the FTL, or changes it; `None` if it could not be opened after a power cut.
    pub fn with<T>(&self, what: impl FnOnce(&mut Ftl) -> T) -> Option<T> {
        self.state().ftl.as_mut().map(what)
    }

    /// From now on callers wait for virtual time.
    pub fn take_time(&self) {
        let mut state = self.state();
        state.restart_queue();
        if let Some(ftl) = &state.ftl {
            state.waiting = Waiting::new(Pace::Real, ftl);
        }
    }

    /// Makes a new device one that was in use, see [`crate::used`]. Other requests may come in
    /// between.
    ///
    /// # Errors
    /// As writes.
    pub fn use_up(&self, percent: u32, until: Until, seed: u64) -> io::Result<()> {
        let mut state = self.state();
        let steps = state.ftl().map(|ftl| UseUp::new(ftl, percent, until, seed));
        drop(state);
        let mut steps = steps.map_err(io::Error::other)?;
        let mut step = || self.state().ftl().and_then(|ftl| steps.step(ftl));
        while step().map_err(io::Error::other)? {}
        self.state().restart_queue();
        Ok(())
    }

    /// Takes the FTL out, without the contents of the buffer; everything fails from now on.
    pub fn take(&self) -> Option<Ftl> {
        self.state().ftl.take()
    }

    /// The power goes, with the buffer, and in the middle of the dies' operations. Everything fails
    /// until it is back.
    pub fn power_off(&self) {
        let mut state = self.state();
        state.buffer.clear();
        state.order.clear();
        if let Some(ftl) = &mut state.ftl {
            ftl.nand_mut().power_off();
        }
    }

    /// The power is back: opens the FTL from flash.
    ///
    /// # Errors
    /// If the contents of flash are not valid; then everything continues to fail.
    pub fn power_on(&self) -> Result<Recovery, FtlError> {
        let mut state = self.state();
        let ftl = state
            .ftl
            .take()
            .ok_or(FtlError::Nand(NandError::PowerOff))?;
        let config = *ftl.config();
        let mut nand = ftl.into_nand();
        nand.power_on();
        let (ftl, recovery) = Ftl::open(nand, config)?;
        state.ftl = Some(ftl);
        state.restart_queue();
        Ok(recovery)
    }

    /// Does some work, and returns when it would have been done.
    fn at_pace<T>(
        &self,
        kind: fn(&mut ByKind<Latencies>) -> &mut Latencies,
        order: Order,
        work: impl FnOnce(&mut State) -> Result<T, FtlError>,
    ) -> io::Result<T> {
        let (done, wait) = {
            let mut state = self.state();
            let arrival = state.arrive(order);
            let done = work(&mut state);
            let took = state.answered(order).saturating_sub(arrival);
            kind(&mut state.latencies).add(took);
            (done, state.ahead())
        };
        if !wait.is_zero() {
            std::thread::sleep(wait);
        }
        done.map_err(io::Error::other)
    }

    /// The pages of a range, each with its part in the range and the position of that part in the
    /// range.
    fn parts(&self, offset: u64, bytes: u64) -> impl Iterator<Item = Part> + use<> {
        let page = self.page_bytes as u64;
        let end = offset.saturating_add(bytes).min(self.bytes);
        (offset / page..end.div_ceil(page)).map(move |number| {
            let (first, last) = (number * page, (number + 1) * page);
            let (from, to) = (offset.max(first), end.min(last));
            Part {
                lpn: Lpn(number as u32),
                begin: (from - first) as usize,
                end: (to - first) as usize,
                at: (from - offset) as usize,
            }
        })
    }
}

/// A part of a page that is in a range.
#[derive(Clone, Copy, Debug)]
struct Part {
    lpn: Lpn,
    begin: usize,
    end: usize,
    at: usize,
}

impl State {
    fn ftl(&mut self) -> Result<&mut Ftl, FtlError> {
        self.ftl.as_mut().ok_or(FtlError::Nand(NandError::PowerOff))
    }

    fn restart_queue(&mut self) {
        if let (Some(queue), Some(ftl)) = (&mut self.queue, &self.ftl) {
            queue.restart(ftl);
        }
    }

    /// A request arrives. Returns when, in virtual time.
    fn arrive(&mut self, order: Order) -> u64 {
        let Some(ftl) = &mut self.ftl else { return 0 };
        // A request that begins has a time of its own.
        if let Some(queue) = &self.queue {
            ftl.nand_mut().continue_at(Nanoseconds(queue.latest()));
        }
        self.waiting.arrive(ftl);
        let arrival = self.waiting.now();
        match &mut self.queue {
            Some(queue) => queue.begin(ftl, arrival, order).arrived,
            None => arrival.unwrap_or(ftl.nand().now().0),
        }
    }

    /// The request is answered. Returns when, in virtual time.
    fn answered(&mut self, order: Order) -> u64 {
        match (&self.ftl, &mut self.queue) {
            (Some(ftl), Some(queue)) => queue.answer(ftl, order),
            (Some(ftl), None) => ftl.nand().now().0,
            (None, _) => 0,
        }
    }

    /// How far virtual time is ahead.
    fn ahead(&self) -> Duration {
        let left = |ftl| self.waiting.left(ftl);
        self.ftl.as_ref().map_or(Duration::ZERO, left)
    }

    /// A page in the buffer, so that the caller can write a part of it.
    fn buffered(&mut self, part: Part, page_bytes: usize) -> Result<&mut Vec<u8>, FtlError> {
        if !self.buffer.contains_key(&part.lpn) {
            while self.buffer.len() >= self.buffer_pages {
                self.write_oldest()?;
            }
            let page = match part.end - part.begin == page_bytes {
                true => vec![0; page_bytes],
                false => self.ftl()?.read(part.lpn)?.to_vec(),
            };
            self.buffer.insert(part.lpn, page);
            self.order.push_back(part.lpn);
        }
        Ok(self.buffer.entry(part.lpn).or_default())
    }

    /// Writes the oldest page to the FTL. It stays in the buffer if that fails.
    fn write_oldest(&mut self) -> Result<(), FtlError> {
        let Some(lpn) = self.order.front().copied() else {
            return Ok(());
        };
        if let Some(page) = self.buffer.get(&lpn) {
            let ftl = self.ftl.as_mut();
            let ftl = ftl.ok_or(FtlError::Nand(NandError::PowerOff))?;
            ftl.write(lpn, page)?;
        }
        self.order.pop_front();
        self.buffer.remove(&lpn);
        Ok(())
    }
}

impl Medium for Disk {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.at_pace(
            |of| &mut of.read,
            Order::Any,
            |state| {
                for part in self.parts(offset, out.len() as u64) {
                    let target = &mut out[part.at..part.at + part.end - part.begin];
                    match state.buffer.get(&part.lpn) {
                        Some(page) => target.copy_from_slice(&page[part.begin..part.end]),
                        None => {
                            let page = state.ftl()?.read(part.lpn)?;
                            target.copy_from_slice(&page[part.begin..part.end]);
                        }
                    }
                }
                Ok(())
            },
        )
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.at_pace(
            |of| &mut of.write,
            Order::Any,
            |state| {
                for part in self.parts(offset, data.len() as u64) {
                    let page = state.buffered(part, self.page_bytes)?;
                    let source = &data[part.at..part.at + part.end - part.begin];
                    page[part.begin..part.end].copy_from_slice(source);
                }
                Ok(())
            },
        )
    }

    fn zero(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.at_pace(
            |of| &mut of.trim,
            Order::Any,
            |state| {
                for part in self.parts(offset, bytes) {
                    if part.end - part.begin < self.page_bytes {
                        state.buffered(part, self.page_bytes)?[part.begin..part.end].fill(0);
                        continue;
                    }
                    state.ftl()?.trim(part.lpn)?;
                    if state.buffer.remove(&part.lpn).is_some() {
                        state.order.retain(|lpn| *lpn != part.lpn);
                    }
                }
                Ok(())
            },
        )
    }

    fn flush(&self) -> io::Result<()> {
        self.at_pace(
            |of| &mut of.flush,
            Order::Flush,
            |state| {
                while !state.order.is_empty() {
                    state.write_oldest()?;
                }
                state.ftl()?.flush()
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ftl::Config;
    use crate::nand::timing::Timing;
    use crate::nand::{Geometry, Nand};
    use crate::random::Random;

    const BYTES: usize = 100 * 1024;

    fn disk() -> Disk {
        let geometry = Geometry {
            page_bytes: 1024,
            pages_per_block: 16,
            ..Geometry::openssd(64)
        };
        let timing = Timing::built_in("emmc").unwrap();
        let mut config = Config::new(100);
        config.table_capacity = 40;
        let (ftl, _) = Ftl::open(Nand::new(geometry, timing).unwrap(), config).unwrap();
        Disk::new(ftl, 4, Pace::Virtual)
    }

    /// Writes and discards of any length at any place, against an array. Flushed data survives a
    /// power cut, and every other byte has one of its states since.
    #[test]
    fn a_disk_is_an_array_of_bytes() {
        is_an_array_of_bytes(&disk());
        is_an_array_of_bytes(&disk().with_queue(6));
    }

    fn is_an_array_of_bytes(disk: &Disk) {
        assert_eq!(disk.bytes(), BYTES as u64);
        let mut random = Random::new(11);
        let (mut now, mut flushed) = (vec![0_u8; BYTES], vec![0_u8; BYTES]);
        let mut since: Vec<(usize, usize)> = Vec::new();
        for step in 0..4_000 {
            let begin = random.below(BYTES);
            let length = 1 + random.below(5_000).min(BYTES - begin - 1);
            match random.below(10) {
                0..6 => {
                    let data = vec![random.next() as u8; length];
                    disk.write(begin as u64, &data).unwrap();
                    now[begin..begin + length].copy_from_slice(&data);
                    since.push((begin, length));
                }
                6 => {
                    disk.zero(begin as u64, length as u64).unwrap();
                    now[begin..begin + length].fill(0);
                    since.push((begin, length));
                }
                7 => {
                    disk.flush().unwrap();
                    flushed.clone_from(&now);
                    since.clear();
                }
                8 => {
                    let mut read = vec![0; length];
                    disk.read(begin as u64, &mut read).unwrap();
                    assert_eq!(read, now[begin..begin + length], "step {step}");
                }
                _ => {
                    disk.power_off();
                    assert!(disk.flush().is_err());
                    disk.power_on().unwrap();
                    disk.read(0, &mut now).unwrap();
                    let touched = |at: usize| {
                        since
                            .iter()
                            .any(|(from, bytes)| (*from..from + bytes).contains(&at))
                    };
                    for at in 0..BYTES {
                        assert!(
                            now[at] == flushed[at] || touched(at),
                            "step {step}: byte {at}"
                        );
                    }
                    disk.flush().unwrap();
                    flushed.clone_from(&now);
                    since.clear();
                }
            }
        }
    }

    #[test]
    fn a_device_that_was_used_up_reads_as_before_and_collects_garbage() {
        let disk = disk();
        disk.write(3000, &[7; 9000]).unwrap();
        let mut before = vec![0; BYTES];
        disk.read(0, &mut before).unwrap();
        disk.use_up(80, Until::Programmed, 5).unwrap();
        let mut after = vec![0; BYTES];
        disk.read(0, &mut after).unwrap();
        assert!(before == after);
        disk.flush().unwrap();
        let blank = |ftl: &mut Ftl| (0..100).filter(|lpn| ftl.is_blank(Lpn(*lpn))).count();
        assert!((15..=20).contains(&disk.with(blank).unwrap()));
        let programs = disk.with(|ftl| ftl.nand().operations().programs).unwrap();
        assert!(programs >= 64 * 16 * 3 / 2, "{programs}");
        let explained = disk.with(|ftl| ftl.statistics().programs()).unwrap();
        assert_eq!(programs, explained);
    }

    /// Writes of whole pages go through a buffer of four, so that some wait for a program.
    #[test]
    fn every_request_has_a_latency_and_a_queue_overlaps_them() {
        let work = |disk: Disk| {
            let begin = disk.with(|ftl| ftl.nand().now().0).unwrap();
            (0..40).for_each(|page| disk.write(page * 1024, &[1; 1024]).unwrap());
            disk.flush().unwrap();
            (0..40).for_each(|page| disk.read(page * 1024, &mut [0; 1024]).unwrap());
            disk.flush().unwrap();
            let took = disk.with(|ftl| ftl.nand().now().0).unwrap() - begin;
            let latencies = disk.latencies();
            let requests = latencies.map(Latencies::requests);
            assert_eq!((requests.read, requests.write, requests.flush), (40, 40, 2));
            (took, latencies)
        };
        let ((one, _), (four, latencies)) = (work(disk()), work(disk().with_queue(4)));
        assert!(four <= one, "{four} {one}");
        // There is one die: reads that are in flight together wait for each other.
        let read = |part: f64| latencies.read.quantile(part).unwrap();
        assert!(read(0.99) > 3 * read(0.01), "{} {}", read(0.99), read(0.01));
    }

    /// This holds after any time without requests.
    #[test]
    fn in_real_time_a_request_takes_what_the_device_takes() {
        let timing = Timing::built_in("openssd").unwrap();
        let nand = Nand::new(Geometry::openssd(96), timing).unwrap();
        let (ftl, _) = Ftl::open(nand, Config::new(1000)).unwrap();
        let disk = Disk::new(ftl, 4, Pace::Real);
        for idle in [0, 100] {
            std::thread::sleep(Duration::from_millis(idle));
            let before = disk.with(|ftl| ftl.nand().now().0).unwrap();
            let begin = Instant::now();
            for page in 0..8 {
                disk.write(page * 8192, &[1; 8192]).unwrap();
                disk.flush().unwrap();
            }
            let took = disk.with(|ftl| ftl.nand().now().0).unwrap() - before;
            assert!(took > 8 * 1_300_000, "{took}");
            assert!(begin.elapsed() >= Duration::from_nanos(took), "{idle}");
        }
    }

    #[test]
    fn a_write_that_was_answered_is_not_lost_because_another_one_fails() {
        let disk = Disk::new(disk().take().unwrap(), 1, Pace::Virtual);
        disk.write(0, &[1; 1024]).unwrap();
        disk.flush().unwrap();
        disk.write(0, &[2; 1024]).unwrap();
        let fail_one_in = |n| disk.with(|ftl| ftl.nand_mut().faults.fail_one_in = n);
        fail_one_in(1);
        // It makes room in the buffer for itself.
        disk.write(1024, &[3; 1024]).unwrap_err();
        fail_one_in(0);
        let mut page = [0; 1024];
        disk.read(0, &mut page).unwrap();
        assert_eq!(page, [2; 1024]);
        // All blocks have failed by now.
        disk.flush().unwrap_err();
    }
}
