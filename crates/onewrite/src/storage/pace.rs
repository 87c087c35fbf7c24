//! How long a device takes for a durable write, in either of two ways: one write-through write, or
//! a write and a flush. Which is faster depends on the device: up to a factor of two in either
//! direction.
//!
//! Measured on blocks of a log when it is made, and by `onewrite doctor`. The log's header
//! remembers the result. The process remembers it for other logs on the device.

use std::fmt;
use std::ops::Range;
use std::sync::Mutex;
use std::time::Duration;

use super::aligned::AlignedBuf;
use super::capabilities::{Capabilities, DurableWrite};
use super::error::StorageError;
use super::file::{Durability, LogFile};
use super::observer;
use crate::sync;
use crate::waits::TIMING;
use onewrite_common::middle;

/// Bytes of one write.
const BLOCK: usize = 4096;
/// Writes of each kind, at most. The setup of the first log on a device costs as many flushes.
const MOST_PAIRS: usize = 16;
/// Writes of each kind, at least. They are enough if more would not change the answer.
const CLEAR_PAIRS: usize = 5;
/// A write and a flush must be faster by a fifth. A write-through write is one system call less,
/// and does not wait for data that others have written.
const MARGIN_PERCENT: u64 = 80;

/// How a durable write is done if `onewrite_sync` leaves it open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// One write-through write.
    WriteThrough,
    /// A write, then a flush.
    WriteAndFlush,
}

/// Medians of some durable writes of 4 KiB, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Pace {
    /// For a write-through write.
    pub write_through_us: u32,
    /// For a write and the flush after it.
    pub write_and_flush_us: u32,
}

/// The pace of one device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownPace {
    /// A checksum of what identifies the device; never 0.
    pub device: u32,
    /// Its pace.
    pub pace: Pace,
}

impl Pace {
    /// The faster way.
    #[must_use]
    pub fn way(self) -> Way {
        let (through, flush) = (self.write_through_us, self.write_and_flush_us);
        match u64::from(flush) * 100 < u64::from(through) * MARGIN_PERCENT {
            true => Way::WriteAndFlush,
            false => Way::WriteThrough,
        }
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a write-through write takes {} us here, a write and a flush {} us",
            self.write_through_us, self.write_and_flush_us
        )
    }
}

/// Why both ways are the same here, so that there is no choice; `None` if they differ.
#[must_use]
pub fn why_the_same(found: &Capabilities, is_direct: bool) -> Option<&'static str> {
    match found.durable_write() {
        DurableWrite::Fua | DurableWrite::Unknown if is_direct => None,
        DurableWrite::Flush if is_direct => {
            Some("the device has no FUA, so that both are a write and a flush")
        }
        DurableWrite::NoCache if is_direct => {
            Some("the device has no volatile cache: a completed write is durable")
        }
        _ => Some("through the page cache both are a write and a flush"),
    }
}

/// The paces that this process knows.
static KNOWN: Mutex<Vec<KnownPace>> = Mutex::new(Vec::new());

/// The pace of the device under a new log. It is the one that the log `remembers`, or that this
/// process knows, or that is measured now. `None` if there is no choice, or nothing could be
/// measured.
///
/// `blocks` are ready and hold no data; they hold zeros afterwards.
///
/// # Errors
/// A write or a flush failed.
pub fn of_new_log(
    file: &LogFile,
    remembers: Option<KnownPace>,
    blocks: Range<u64>,
) -> Result<Option<KnownPace>, StorageError> {
    if why_the_same(file.capabilities(), file.direct().is_some()).is_some() {
        return Ok(None);
    }
    let device = file.device_tag();
    if let Some(remembered) = remembers.filter(|known| known.device == device) {
        return Ok(Some(remembered));
    }
    let known = |known: &&KnownPace| known.device == device;
    if let Some(known) = sync::lock_static(&KNOWN).iter().find(known) {
        return Ok(Some(*known));
    }
    let before = file.counters().snapshot();
    let timed = time(file, blocks);
    file.counters().was_setup(&before);
    let found = timed?.map(|pace| KnownPace { device, pace });
    sync::lock_static(&KNOWN).extend(found);
    Ok(found)
}

/// Times both ways in turns, so that other load affects both.
///
/// # Errors
/// A write or a flush failed.
pub fn time(file: &LogFile, blocks: Range<u64>) -> Result<Option<Pace>, StorageError> {
    let count = blocks.end.saturating_sub(blocks.start) / BLOCK as u64;
    if count < 2 {
        return Ok(None);
    }
    let zeros = AlignedBuf::zeroed(BLOCK);
    let place = |nth: usize| blocks.start + (nth as u64 % count) * BLOCK as u64;
    let (mut through, mut flush) = (Vec::new(), Vec::new());
    let begin = observer::now();
    while through.len() < MOST_PAIRS && observer::now().saturating_sub(begin) < TIMING {
        let nth = 2 * through.len();
        let from = observer::now();
        file.write_at(&zeros, place(nth), Durability::WriteThrough)?;
        let between = observer::now();
        file.write_at(&zeros, place(nth + 1), Durability::None)?;
        file.flush()?;
        through.push(between.saturating_sub(from));
        flush.push(observer::now().saturating_sub(between));
        if through.len() >= CLEAR_PAIRS && is_clear(median(&through), median(&flush)) {
            break;
        }
    }
    Ok(Some(Pace {
        write_through_us: micros(median(&through)),
        write_and_flush_us: micros(median(&flush)),
    }))
}

fn is_clear(one: Duration, other: Duration) -> bool {
    one.max(other) > one.min(other) * 2
}

fn median(times: &[Duration]) -> Duration {
    let nanos = |time: &Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let mut times: Vec<u64> = times.iter().map(nanos).collect();
    times.sort_unstable();
    middle(&times)
        .copied()
        .map(Duration::from_nanos)
        .unwrap_or_default()
}

/// At least 1: 0 means no measurement.
fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX).max(1)
}
