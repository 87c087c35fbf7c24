//! A block device's own counters, and waiting until it is idle.
//!
//! The counters are those of `/sys/block/<device>/stat` (kernel document `block/stat.rst`): exact,
//! counted when a request completes. A request that only flushes the device's cache counts as a write
//! request of no bytes as well as a flush, so the number of write requests is not the number of writes
//! that carried data; a trace of completed requests tells those apart.

use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{major, minor};

use crate::Error;

/// Bytes of a sector in the kernel's block statistics and events, whatever the device's own is.
pub const SECTOR_BYTES: u64 = 512;

/// How long a device must have completed nothing to be called idle.
const QUIET: Duration = Duration::from_millis(30);

/// A block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockDevice {
    name: String,
    major: u32,
    minor: u32,
}

/// What a device has completed since it appeared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Write requests, those without data included.
    pub write_requests: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Flushes of the device's cache.
    pub flushes: u64,
}

impl Counters {
    /// What was completed between `earlier` and these counters.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            write_requests: self.write_requests.saturating_sub(earlier.write_requests),
            write_bytes: self.write_bytes.saturating_sub(earlier.write_bytes),
            flushes: self.flushes.saturating_sub(earlier.flushes),
        }
    }
}

impl BlockDevice {
    /// The device that a device node such as `/dev/loop0` stands for.
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

    /// Its device number as the kernel holds it in memory, which is how trace events store it.
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
        let path = self.sysfs("stat");
        let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        parse_stat(&text).ok_or_else(|| {
            Error::format(
                &path,
                format!("17 numbers expected, \"{}\" found", text.trim()),
            )
        })
    }

    /// Requests that the device has been given and has not completed.
    fn inflight(&self) -> Result<u64, Error> {
        let path = self.sysfs("inflight");
        let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        Ok(text
            .split_ascii_whitespace()
            .filter_map(|word| word.parse::<u64>().ok())
            .sum())
    }

    /// Waits until the device has nothing to do and has completed nothing for a while. Returns the
    /// counters, which then stand still until somebody writes.
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

/// Fields 5, 7 and 16 of the 17 that a kernel since 5.5 has.
fn parse_stat(text: &str) -> Option<Counters> {
    let fields: Vec<u64> = text
        .split_ascii_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()
        .ok()?;
    Some(Counters {
        write_requests: *fields.get(4)?,
        write_bytes: fields.get(6)?.checked_mul(SECTOR_BYTES)?,
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
    }

    #[test]
    fn a_kernel_that_does_not_count_flushes_is_refused() {
        assert_eq!(parse_stat("1 2 3 4 5 6 7 8 9 10 11"), None);
        assert_eq!(parse_stat("1 2 three"), None);
        assert_eq!(parse_stat(""), None);
    }
}
