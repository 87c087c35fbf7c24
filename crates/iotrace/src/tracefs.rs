//! The kernel's tracing directory, and our own tracing instance in it.
//!
//! An instance has its own ring buffer, events, filters and clock. So it does not disturb the
//! tracing of others, and it holds no events of others. It is removed when its value is dropped.
//! The next instance removes one that a killed process left behind.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::OFlags;

use crate::Error;
use crate::format::Format;
use crate::scratch::{Mounted, private_mounts};
use crate::trace::Processes;

/// Ring buffer of each CPU, in KiB. The reader empties it every few milliseconds. It holds the
/// events that come while the reader gets no CPU.
const BUFFER_KIB: u32 = 4096;

/// The prefix of our instances' names, before the process id.
const PREFIX: &str = "onewrite-";

/// The tracing directory at its usual mount points.
fn usual() -> Option<PathBuf> {
    let usual = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
    let mut usual = usual.into_iter().map(PathBuf::from);
    usual.find(|dir| dir.join("instances").is_dir())
}

/// The tracing directory.
#[derive(Debug)]
pub struct Tracefs {
    root: PathBuf,
    // Unmounted when dropped, if we mounted it.
    _mounted: Option<Mounted>,
}

impl Tracefs {
    /// Finds the tracing directory at its usual mount points, or mounts it at a new directory
    /// `mount_point`.
    pub fn open(mount_point: &Path) -> Result<Self, Error> {
        if cfg!(target_endian = "big") {
            let text = "the trace buffer is read in its little-endian form only";
            return Err(Error::Unavailable(text.to_owned()));
        }
        let tracefs = match usual() {
            Some(root) => Self {
                root,
                _mounted: None,
            },
            None => {
                fs::create_dir(mount_point).map_err(Error::io("create", mount_point))?;
                let mounted = Mounted::new(Path::new("tracefs"), mount_point, "tracefs")?;
                Self {
                    root: mount_point.to_owned(),
                    _mounted: Some(mounted),
                }
            }
        };
        tracefs.remove_stale();
        Ok(tracefs)
    }

    /// Finds the tracing directory at its usual mount points. Otherwise it is mounted at `place`,
    /// in a mount namespace of the calling thread, which ends with the process.
    pub(crate) fn open_private(place: &Path) -> Result<Self, Error> {
        if usual().is_none() {
            private_mounts()?;
            // It ends with the namespace.
            std::mem::forget(Mounted::new(Path::new("tracefs"), place, "tracefs")?);
        }
        Self::open(place)
    }

    /// Removes instances of processes that are gone. An instance that a process still reads stays.
    fn remove_stale(&self) {
        let Ok(instances) = fs::read_dir(self.root.join("instances")) else {
            return;
        };
        for entry in instances.flatten() {
            let name = entry.file_name();
            let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
            let pid = pid.and_then(|rest| rest.split('-').next());
            if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                let _ = fs::remove_dir(entry.path());
            }
        }
    }

    /// A new instance, its clock set to `CLOCK_MONOTONIC` and tracing off.
    pub(crate) fn instance(&self) -> Result<Instance, Error> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        let dir = self.root.join("instances").join(name);
        fs::create_dir(&dir).map_err(Error::io("create", &dir))?;
        let instance = Instance { dir };
        instance.write("tracing_on", "0")?;
        instance.write("trace_clock", "mono")?;
        instance.write("buffer_size_kb", &BUFFER_KIB.to_string())?;
        Ok(instance)
    }
}

/// A tracing instance. Dropping it removes it; its readers must be gone by then.
#[derive(Debug)]
pub(crate) struct Instance {
    dir: PathBuf,
}

impl Instance {
    /// Enables an event such as `block/block_rq_complete` for the records that pass `filter`, and
    /// returns the layout of its records.
    pub(crate) fn enable(&self, event: &str, filter: &str) -> Result<Format, Error> {
        let dir = Path::new("events").join(event);
        let file = |name: &str| dir.join(name).display().to_string();
        let path = self.dir.join(file("format"));
        let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        let format = Format::parse(&text)
            .ok_or_else(|| Error::format(&path, "an ID line expected, none found"))?;
        self.filter(event, filter)?;
        self.write(&file("enable"), "1")?;
        Ok(format)
    }

    /// Lets only the records of an enabled event pass that match `filter`; `0` lets all pass.
    pub(crate) fn filter(&self, event: &str, filter: &str) -> Result<(), Error> {
        self.write(&format!("events/{event}/filter"), filter)
    }

    /// Starts recording.
    pub(crate) fn start(&self) -> Result<(), Error> {
        self.write("tracing_on", "1")
    }

    /// Stops recording. The records can still be read.
    pub(crate) fn stop(&self) -> Result<(), Error> {
        self.write("tracing_on", "0")
    }

    fn write(&self, file: &str, text: &str) -> Result<(), Error> {
        let path = self.dir.join(file);
        fs::write(&path, text).map_err(Error::io("write", &path))
    }

    /// Makes the kernel remember the process of each thread that causes an event, where it can.
    pub(crate) fn record_processes(&self) {
        // An older kernel has no such option: then a thread's process is unknown.
        let _ = self.write("options/record-tgid", "1");
    }

    /// The process of each thread that the kernel remembers. All instances share the list.
    pub(crate) fn processes(&self) -> Processes {
        let list = self.dir.join("../../saved_tgids");
        let text = fs::read_to_string(list).unwrap_or_default();
        let pair = |line: &str| {
            let (thread, process) = line.trim().split_once(' ')?;
            Some((thread.parse().ok()?, process.trim().parse().ok()?))
        };
        text.lines().filter_map(pair).collect()
    }

    /// A reader for each CPU's records.
    pub(crate) fn readers(&self) -> Result<Vec<CpuReader>, Error> {
        let dir = self.dir.join("per_cpu");
        let entries = fs::read_dir(&dir).map_err(Error::io("list", &dir))?;
        let mut readers = Vec::new();
        for entry in entries {
            let cpu = entry.map_err(Error::io("list", &dir))?.path();
            readers.push(CpuReader::open(&cpu, self.sub_buffer_bytes()?)?);
        }
        Ok(readers)
    }

    /// Bytes of a sub-buffer; kernels before 6.8 do not report it and use pages.
    fn sub_buffer_bytes(&self) -> Result<usize, Error> {
        let path = self.dir.join("buffer_subbuf_size_kb");
        match fs::read_to_string(&path) {
            Ok(text) => text
                .trim()
                .parse::<usize>()
                .map(|kib| kib << 10)
                .map_err(|_| Error::format(&path, format!("a number expected, {text:?} found"))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(rustix::param::page_size()),
            Err(error) => Err(Error::io("read", &path)(error)),
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // Fails only if a process reads from it; the next process to trace then removes it.
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Reads one CPU's sub-buffers.
#[derive(Debug)]
pub(crate) struct CpuReader {
    file: File,
    path: PathBuf,
    stats: PathBuf,
    sub_buffer: Vec<u8>,
}

impl CpuReader {
    fn open(cpu: &Path, sub_buffer_bytes: usize) -> Result<Self, Error> {
        let path = cpu.join("trace_pipe_raw");
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(&path)
            .map_err(Error::io("open", &path))?;
        Ok(Self {
            file,
            path,
            stats: cpu.join("stats"),
            sub_buffer: vec![0; sub_buffer_bytes],
        })
    }

    /// The next sub-buffer, full or not; `None` if nothing was recorded since the last.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, Error> {
        match self.file.read(&mut self.sub_buffer) {
            Ok(0) => Ok(None),
            Ok(bytes) => Ok(self.sub_buffer.get(..bytes)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(Error::io("read", &self.path)(error)),
        }
    }

    /// Events that this CPU had no room for.
    pub(crate) fn overrun(&self) -> Result<u64, Error> {
        let text = fs::read_to_string(&self.stats).map_err(Error::io("read", &self.stats))?;
        let count = |key: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok())
        };
        match (count("overrun:"), count("dropped events:")) {
            (Some(overrun), Some(dropped)) => Ok(overrun + dropped),
            _ => Err(Error::format(
                &self.stats,
                "overrun and dropped events expected",
            )),
        }
    }
}
