//! The limits of the device itself: rates for comparison with a journal mode.
//!
//! There are three patterns, each a plain loop of system calls on a separate file. The first
//! overwrites 4 KiB blocks that are allocated and initialized, with direct I/O, each write durable
//! when it returns. The second does the same without durability. The third acts like a growing log:
//! it appends one WAL frame and calls `fdatasync`. `onewrite compare` measures them before, between
//! and after its runs, `onewrite doctor` once.

use std::fs::{File, OpenOptions};
use std::io::{IoSlice, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fdatasync};
use rustix::io::{Errno, ReadWriteFlags, pwritev2};

use crate::Error;

/// Bytes of one overwritten block.
const BLOCK_BYTES: usize = 4096;

/// Bytes of one appended frame: a 4 KiB page and its 24-byte header.
const FRAME_BYTES: usize = BLOCK_BYTES + 24;

/// The number of writes for a rate, within these limits.
const WRITES: std::ops::RangeInclusive<u32> = 1_000..=10_000;

/// A block in memory that direct I/O accepts.
#[repr(align(4096))]
struct Block([u8; BLOCK_BYTES]);

/// A slow device makes no more writes than fit into this time, for each rate.
const MOST_TIME: Duration = Duration::from_millis(500);

/// But it makes at least so many.
const LEAST_WRITES: u32 = 50;

/// One measurement, in writes a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Overwrite of an initialized 4 KiB block, O_DIRECT and RWF_DSYNC; `None` without direct I/O.
    pub direct_dsync_4k: Option<f64>,
    /// The same without RWF_DSYNC.
    pub direct_4k: Option<f64>,
    /// Append of 4,120 bytes, then `fdatasync`.
    pub append_fdatasync: f64,
}

/// The files for the measurement. Dropping this removes them.
#[derive(Debug)]
pub struct RawBench<'a> {
    direct_path: PathBuf,
    append_path: PathBuf,
    direct: Option<File>,
    writes: u32,
    stop: Option<&'a AtomicBool>,
}

/// Whether a write is durable when it returns.
#[derive(Clone, Copy)]
enum Durable {
    Yes,
    No,
}

impl<'a> RawBench<'a> {
    /// Makes the files in `dir`: one of `writes` blocks, filled with zeros and synced. `writes` is
    /// limited to at least 1,000 and at most 10,000.
    pub fn prepare(dir: &Path, writes: u32) -> Result<Self, Error> {
        let writes = writes.clamp(*WRITES.start(), *WRITES.end());
        let direct_path = dir.join("onewrite-raw-direct");
        let append_path = dir.join("onewrite-raw-append");
        let mut bench = Self {
            direct_path,
            append_path,
            direct: None,
            writes,
            stop: None,
        };
        bench.fill()?;
        bench.direct = bench.open_direct()?;
        Ok(bench)
    }

    /// The same, giving up with [`Error::Interrupted`] when `stop` is set.
    pub fn stopped_by(mut self, stop: &'a AtomicBool) -> Self {
        self.stop = Some(stop);
        self
    }

    fn go_on(&self) -> Result<(), Error> {
        match self.stop {
            Some(stop) if stop.load(Ordering::Relaxed) => Err(Error::Interrupted),
            _ => Ok(()),
        }
    }

    /// The number of writes for each rate; on a slow device fewer.
    pub fn writes(&self) -> u32 {
        self.writes
    }

    /// Whether the file system supports direct I/O.
    pub fn has_direct_io(&self) -> bool {
        self.direct.is_some()
    }

    fn fill(&self) -> Result<(), Error> {
        let path = &self.direct_path;
        let mut file = File::create(path).map_err(Error::io("create", path))?;
        let zeros = [0u8; BLOCK_BYTES];
        for _ in 0..self.writes {
            file.write_all(&zeros).map_err(Error::io("fill", path))?;
        }
        file.sync_all().map_err(Error::io("sync", path))
    }

    fn open_direct(&self) -> Result<Option<File>, Error> {
        let path = &self.direct_path;
        let flags = i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0);
        match OpenOptions::new()
            .write(true)
            .custom_flags(flags)
            .open(path)
        {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => Ok(None),
            Err(error) => Err(Error::io("open with O_DIRECT", path)(error)),
        }
    }

    /// Measures all three rates once.
    pub fn measure(&self) -> Result<Rates, Error> {
        Ok(Rates {
            direct_dsync_4k: self.overwrite(Durable::Yes)?,
            direct_4k: self.overwrite(Durable::No)?,
            append_fdatasync: self.append()?,
        })
    }

    fn overwrite(&self, durable: Durable) -> Result<Option<f64>, Error> {
        let Some(file) = &self.direct else {
            return Ok(None);
        };
        let flags = match durable {
            Durable::Yes => ReadWriteFlags::DSYNC,
            Durable::No => ReadWriteFlags::empty(),
        };
        let block = Block([0; BLOCK_BYTES]);
        let mut loops = Loop::begin(self.writes);
        while let Some(at) = loops.next() {
            self.go_on()?;
            let offset = u64::from(at) * BLOCK_BYTES as u64;
            let written = pwritev2(file, &[IoSlice::new(&block.0)], offset, flags)
                .map_err(Error::io("write to", &self.direct_path))?;
            if written != BLOCK_BYTES {
                let error = std::io::Error::from(std::io::ErrorKind::WriteZero);
                return Err(Error::io("write all of a block to", &self.direct_path)(
                    error,
                ));
            }
        }
        Ok(Some(loops.rate()))
    }

    fn append(&self) -> Result<f64, Error> {
        let path = &self.append_path;
        let mut file = File::create(path).map_err(Error::io("create", path))?;
        let frame = [0x5a_u8; FRAME_BYTES];
        let mut loops = Loop::begin(self.writes);
        while loops.next().is_some() {
            self.go_on()?;
            file.write_all(&frame)
                .map_err(Error::io("append to", path))?;
            fdatasync(&file).map_err(Error::io("fdatasync", path))?;
        }
        let rate = loops.rate();
        std::fs::remove_file(path).map_err(Error::io("remove", path))?;
        Ok(rate)
    }
}

/// The writes for one rate.
struct Loop {
    begin: Instant,
    done: u32,
    most: u32,
}

impl Loop {
    fn begin(most: u32) -> Self {
        Self {
            begin: Instant::now(),
            done: 0,
            most,
        }
    }

    /// The number of the next write, if there is one.
    fn next(&mut self) -> Option<u32> {
        let at = self.done;
        let goes_on = goes_on(at, self.most, self.begin.elapsed());
        self.done += u32::from(goes_on);
        goes_on.then_some(at)
    }

    /// Writes a second.
    fn rate(&self) -> f64 {
        f64::from(self.done) / self.begin.elapsed().as_secs_f64().max(1e-9)
    }
}

fn goes_on(done: u32, most: u32, elapsed: Duration) -> bool {
    done < most && (done < LEAST_WRITES || elapsed < MOST_TIME)
}

impl Drop for RawBench<'_> {
    fn drop(&mut self) {
        // Both may be gone already. An error here cannot be reported.
        let _ = std::fs::remove_file(&self.direct_path);
        let _ = std::fs::remove_file(&self.append_path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_device_makes_fewer_writes_but_some() {
        let long = 2 * MOST_TIME;
        assert!(goes_on(0, 1_000, Duration::ZERO) && goes_on(999, 1_000, Duration::ZERO));
        assert!(!goes_on(1_000, 1_000, Duration::ZERO));
        assert!(goes_on(LEAST_WRITES - 1, 1_000, long));
        assert!(!goes_on(LEAST_WRITES, 1_000, long));
    }

    #[test]
    fn rates_are_measured_and_nothing_is_left_behind() {
        let dir = tempfile::tempdir_in(".").unwrap();
        let bench = RawBench::prepare(dir.path(), 1).unwrap();
        assert_eq!(bench.writes(), 1_000);
        let file = dir.path().join("onewrite-raw-direct");
        assert_eq!(file.metadata().unwrap().len(), 4_096_000);
        let rates = bench.measure().unwrap();
        assert!(rates.append_fdatasync > 0.0);
        assert_eq!(rates.direct_4k.is_some(), bench.has_direct_io());
        assert_eq!(rates.direct_dsync_4k.is_some(), bench.has_direct_io());
        let stop = AtomicBool::new(true);
        let bench = bench.stopped_by(&stop);
        assert!(matches!(bench.measure(), Err(Error::Interrupted)));
        drop(bench);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
