//! A block device's own counters, and waiting until it is idle.
//!
//! The counters are those of `/sys/block/<device>/stat` (kernel document `block/stat.rst`). They
//! are exact; the kernel counts a request when it completes. A request that only flushes the
//! device's cache counts both as a write request of no bytes and as a flush. So the number of write
//! requests is not the number of writes with data; a trace of completed requests distinguishes
//! them.

use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{major, minor};

use crate::Error;

/// Bytes of a sector in the kernel's block statistics and events, for any device.
pub const SECTOR_BYTES: u64 = 512;

/// How long a device must complete nothing to count as idle.
const QUIET: Duration = Duration::from_millis(30);

/// The place of `in_flight` in a device's `stat` (the kernel's `Documentation/block/stat.rst`).
const STAT_IN_FLIGHT: usize = 8;

/// A block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockDevice {
    name: String,
    major: u32,
    minor: u32,
}

/// The position of a device's sectors on the disk that the kernel's block events refer to. A
/// partition begins later, a whole disk at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// The disk's number, as the kernel holds it in memory.
    pub(crate) disk: u32,
    /// The device's own number.
    pub(crate) own: u32,
    /// The device's first sector on the disk.
    pub(crate) first: u64,
    /// How many sectors it has.
    pub(crate) sectors: u64,
}

impl Span {
    /// The device's sector for a sector of the disk; `None` for another partition's sector. A
    /// request without sectors, such as a flush, belongs to every partition, at 0.
    pub(crate) fn inside(self, sector: u64, count: u64) -> Option<u64> {
        if count == 0 {
            return Some(sector.saturating_sub(self.first));
        }
        let start = sector.checked_sub(self.first)?;
        (start.checked_add(count)? <= self.sectors).then_some(start)
    }
}

/// The I/O that a device has completed since it appeared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Read requests.
    pub read_requests: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write requests, those without data included.
    pub write_requests: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Flushes of the device's cache. The kernel counts them only for a whole disk: a partition
    /// reports those of its disk.
    pub flushes: u64,
    /// Discard requests.
    pub discard_requests: u64,
    /// Bytes discarded.
    pub discard_bytes: u64,
}

impl Counters {
    /// The I/O completed between `earlier` and these counters.
    pub fn since(self, earlier: Self) -> Self {
        let since = |now: u64, then: u64| now.saturating_sub(then);
        Self {
            read_requests: since(self.read_requests, earlier.read_requests),
            read_bytes: since(self.read_bytes, earlier.read_bytes),
            write_requests: since(self.write_requests, earlier.write_requests),
            write_bytes: since(self.write_bytes, earlier.write_bytes),
            flushes: since(self.flushes, earlier.flushes),
            discard_requests: since(self.discard_requests, earlier.discard_requests),
            discard_bytes: since(self.discard_bytes, earlier.discard_bytes),
        }
    }
}

/// The name of a device, and for device mapper's devices also what they are and what lies below:
/// `dm-0 (luks, dm-crypt) on sda2`.
pub fn described(name: &str) -> String {
    crate::mapper::described(&Path::new("/sys/class/block").join(name), name)
}

impl BlockDevice {
    /// The device of a device node such as `/dev/loop0`.
    pub fn from_node(node: &Path) -> Result<Self, Error> {
        let rdev = fs::metadata(node)
            .map_err(Error::io("stat", node))?
            .st_rdev();
        Self::from_number(major(rdev), minor(rdev))
    }

    /// The device that holds the file system of `path`. `None` if that is no block device, as on
    /// Btrfs, overlayfs, tmpfs or a network file system.
    pub fn holding(path: &Path) -> Result<Option<Self>, Error> {
        let dev = fs::metadata(path)
            .map_err(Error::io("stat", path))?
            .st_dev();
        if major(dev) == 0 {
            return Ok(None);
        }
        Self::from_number(major(dev), minor(dev)).map(Some)
    }

    /// The device of a number as the kernel holds it in memory.
    pub(crate) fn from_kernel_number(number: u32) -> Result<Self, Error> {
        Self::from_number(number >> 20, number & 0xf_ffff)
    }

    fn from_number(major: u32, minor: u32) -> Result<Self, Error> {
        let link = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let target = fs::read_link(&link).map_err(Error::io("read link", &link))?;
        let name = target
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        Ok(Self {
            name: name.to_owned(),
            major,
            minor,
        })
    }

    /// Its name in the kernel, for example `loop0`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// As [`described`].
    pub fn described(&self) -> String {
        described(&self.name)
    }

    /// Its device number as the kernel holds it in memory, and as trace events store it.
    pub fn kernel_number(&self) -> u32 {
        self.major << 20 | self.minor
    }

    fn sysfs(&self, file: &str) -> PathBuf {
        PathBuf::from(format!(
            "/sys/dev/block/{}:{}/{file}",
            self.major, self.minor
        ))
    }

    /// The counters at this moment.
    pub fn counters(&self) -> Result<Counters, Error> {
        let own = self.stat("stat")?;
        Ok(match self.is_partition() {
            false => own,
            true => Counters {
                flushes: self.stat("../stat")?.flushes,
                ..own
            },
        })
    }

    fn stat(&self, file: &str) -> Result<Counters, Error> {
        let path = self.sysfs(file);
        let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        parse_stat(&text).ok_or_else(|| {
            Error::format(
                &path,
                format!("17 numbers expected, \"{}\" found", text.trim()),
            )
        })
    }

    /// Whether it is part of a disk.
    pub fn is_partition(&self) -> bool {
        self.sysfs("partition").exists()
    }

    /// Whether it has its own requests to trace. Device mapper, software RAID and similar devices
    /// pass their parts on to other devices, which have the requests.
    pub fn has_requests(&self) -> bool {
        let disk = if self.is_partition() { ".." } else { "." };
        self.sysfs(disk).join("mq").is_dir()
    }

    /// The position of its sectors on its disk.
    pub(crate) fn span(&self) -> Result<Span, Error> {
        let number = |file: &str| -> Result<u64, Error> {
            let path = self.sysfs(file);
            let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
            let bad =
                || Error::format(&path, format!("a number expected, {:?} found", text.trim()));
            text.trim().parse().map_err(|_| bad())
        };
        let (own, sectors) = (self.kernel_number(), number("size")?);
        if !self.is_partition() {
            return Ok(Span {
                disk: own,
                own,
                first: 0,
                sectors,
            });
        }
        let path = self.sysfs("../dev");
        let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        let disk = text.trim().split_once(':').and_then(|(major, minor)| {
            Some(major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?)
        });
        Ok(Span {
            disk: disk.ok_or_else(|| Error::format(&path, "a device's number expected"))?,
            own,
            first: number("start")?,
            sectors,
        })
    }

    /// Whether it can make a single write durable (FUA). If not, the kernel sends a flush.
    pub fn has_fua(&self) -> bool {
        let disk = if self.is_partition() { ".." } else { "." };
        let path = self.sysfs(disk).join("queue/fua");
        fs::read_to_string(path).is_ok_and(|text| text.trim() == "1")
    }

    /// Whether nothing is in flight at this moment.
    ///
    /// # Errors
    /// If that cannot be read.
    pub fn is_idle(&self) -> Result<bool, Error> {
        self.inflight().map(|requests| requests == 0)
    }

    /// Requests that have begun and are not yet counted as completed. `inflight` has those that the
    /// device works on. A write whose data is there, and that waits for a flush after it, is in
    /// `stat` alone. An old kernel may not have it there; 6.18 has.
    fn inflight(&self) -> Result<u64, Error> {
        let numbers = |file: &str| -> Result<Vec<u64>, Error> {
            let path = self.sysfs(file);
            let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
            let words = text.split_ascii_whitespace();
            Ok(words.filter_map(|word| word.parse().ok()).collect())
        };
        let begun = numbers("stat")?.get(STAT_IN_FLIGHT).copied();
        Ok(begun.unwrap_or(0).max(numbers("inflight")?.iter().sum()))
    }

    /// Waits until the device has nothing to do and has completed nothing for a while. Returns the
    /// counters, which then do not change until the next write.
    pub fn wait_idle(&self, at_most: Duration) -> Result<Counters, Error> {
        let begin = Instant::now();
        let (mut counters, mut since) = (self.counters()?, begin);
        loop {
            thread::sleep(Duration::from_millis(5));
            let now = self.counters()?;
            if now != counters || self.inflight()? != 0 {
                (counters, since) = (now, Instant::now());
            } else if since.elapsed() >= QUIET {
                return Ok(counters);
            }
            if begin.elapsed() > at_most {
                return Err(Error::Unavailable(format!(
                    "{}: still busy after {} s: something else writes to it",
                    self.name,
                    at_most.as_secs()
                )));
            }
        }
    }
}

/// Fields 1, 3, 5, 7, 12, 14 and 16 of the 17 that kernels have since 5.5.
fn parse_stat(text: &str) -> Option<Counters> {
    let fields: Vec<u64> = text
        .split_ascii_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()
        .ok()?;
    Some(Counters {
        read_requests: *fields.first()?,
        read_bytes: fields.get(2)?.checked_mul(SECTOR_BYTES)?,
        write_requests: *fields.get(4)?,
        write_bytes: fields.get(6)?.checked_mul(SECTOR_BYTES)?,
        discard_requests: *fields.get(11)?,
        discard_bytes: fields.get(13)?.checked_mul(SECTOR_BYTES)?,
        flushes: *fields.get(15)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_those_that_the_kernel_document_names() {
        let text = "  4931 11 331234 2130 8128 422 97512 9011 0 9876 12011 3 0 64 5 2049 871\n";
        let counters = parse_stat(text).unwrap();
        assert_eq!(counters.write_requests, 8128);
        assert_eq!(counters.write_bytes, 97512 * 512);
        assert_eq!(counters.flushes, 2049);
        assert_eq!(
            (counters.read_requests, counters.read_bytes),
            (4931, 331_234 * 512)
        );
        let discards = (counters.discard_requests, counters.discard_bytes);
        assert_eq!(discards, (3, 64 * 512));
    }

    #[test]
    fn a_partition_has_only_its_own_sectors() {
        let span = Span {
            disk: 1,
            own: 2,
            first: 100,
            sectors: 50,
        };
        assert_eq!(span.inside(100, 50), Some(0));
        assert_eq!(span.inside(140, 10), Some(40));
        for (sector, count) in [(99, 1), (140, 11), (0, 8), (u64::MAX, 1)] {
            assert_eq!(span.inside(sector, count), None, "{sector} {count}");
        }
        assert_eq!(span.inside(u64::MAX, 0), Some(u64::MAX - 100));
        assert_eq!(span.inside(0, 0), Some(0));
    }

    #[test]
    fn a_kernel_that_does_not_count_flushes_is_refused() {
        assert_eq!(parse_stat("1 2 3 4 5 6 7 8 9 10 11"), None);
        assert_eq!(parse_stat("1 2 three"), None);
        assert_eq!(parse_stat(""), None);
    }
}
