//! The facts that the file system and the device report, in the shape of the report.

use std::path::PathBuf;

use onewrite::mode::JournalMode;
use onewrite::plan::Plan;
use onewrite::storage::{Capabilities, WriteCache};
use onewrite::wal::PageSize;
use serde::Serialize;

use super::disk;
use super::hazards::Disk;

/// Mount options that change the meaning or the cost of a durable write: whole options, and
/// beginnings of those that carry a value.
const OPTIONS_THAT_MATTER: &[&str] = &[
    "ro",
    "sync",
    "dirsync",
    "data=",
    "barrier",
    "nobarrier",
    "journal_async_commit",
    "nodelalloc",
    "commit=",
    "lazytime",
    "discard",
    "dax",
    "compress",
    "nodatacow",
    "nodatasum",
    "fsync_mode=",
    "mode=lfs",
    "volatile",
    "fsync=volatile",
];

/// The answer to "can it?", with the reason if it cannot.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// Whether it can.
    pub available: bool,
    /// Why not.
    pub reason: Option<String>,
}

/// Direct I/O, with the alignment that it needs in bytes.
#[derive(Clone, Debug, Serialize)]
pub struct DirectIo {
    /// Whether it is available, or why not.
    #[serde(flatten)]
    pub answer: Answer,
    /// Alignment of the buffer in memory.
    pub memory_align_bytes: Option<u32>,
    /// Alignment of offset and length in the file.
    pub offset_align_bytes: Option<u32>,
}

/// Largest writes that are never torn, in bytes; null without a promise.
#[derive(Clone, Debug, Serialize)]
pub struct AtomicWrites {
    /// Promised by the file system (statx, for RWF_ATOMIC).
    pub file_system_bytes: Option<u32>,
    /// Promised by the device.
    pub device_bytes: Option<u32>,
}

/// Everything that is known without a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Facts {
    /// Type of the file system.
    pub filesystem: String,
    /// The mount point of the file system.
    #[serde(serialize_with = "crate::output::lossy_option")]
    pub mount_point: Option<PathBuf>,
    /// The mount options that matter for durable writes.
    pub mount_options: Vec<String>,
    /// The block device; null if there is none or it is not known.
    pub device: Option<String>,
    /// For a loop device, the file behind it.
    #[serde(serialize_with = "crate::output::lossy_option")]
    pub backing_file: Option<PathBuf>,
    /// Facts about the disk that its queue does not report; shown as warnings.
    #[serde(skip)]
    pub disk: Disk,
    /// The device's logical block, in bytes.
    pub logical_block_bytes: u32,
    /// The device's physical block, in bytes.
    pub physical_block_bytes: u32,
    /// The device's write cache.
    pub write_cache: WriteCache,
    /// Whether a write can be durable by itself.
    pub fua: Answer,
    /// Whether the file system tells the device to flush.
    pub barriers: Answer,
    /// Whether writes can bypass the page cache.
    pub direct_io: DirectIo,
    /// Whether a command can zero blocks.
    pub write_zeroes: Answer,
    /// Whether checkpoints can exchange blocks of log and database.
    pub exchange: Answer,
    /// Whether the database can share blocks of the log.
    pub clone: Answer,
    /// The sizes of writes that are never torn.
    pub atomic_writes: AtomicWrites,
    /// The engine's plan here for each of its modes, or why the mode is not possible. In the order
    /// of [`JournalMode::ALL`]; shown by mode.
    #[serde(skip)]
    pub plans: Vec<(JournalMode, Result<Plan, String>)>,
}

impl Answer {
    fn of<T>(result: &Result<T, String>) -> Self {
        Self {
            available: result.is_ok(),
            reason: result.as_ref().err().cloned(),
        }
    }
}

impl Facts {
    /// The probe's result for the report.
    pub fn of(found: &Capabilities) -> Self {
        let align = found.direct.as_ref().ok();
        Self {
            filesystem: found.filesystem.clone(),
            mount_point: found.mount_point.clone(),
            mount_options: found
                .mount_options
                .iter()
                .filter(|option| matters(option))
                .cloned()
                .collect(),
            device: Some(found.device.clone()).filter(|name| !name.is_empty()),
            backing_file: found.backing_file.clone(),
            disk: disk::of(&found.device),
            logical_block_bytes: found.logical_block_bytes,
            physical_block_bytes: found.physical_block_bytes,
            write_cache: found.write_cache,
            fua: Answer::of(&found.fua),
            barriers: Answer::of(&found.barriers),
            direct_io: DirectIo {
                answer: Answer::of(&found.direct),
                memory_align_bytes: align.map(|a| a.memory),
                offset_align_bytes: align.map(|a| a.offset),
            },
            write_zeroes: Answer::of(&found.write_zeroes),
            exchange: Answer::of(&found.exchange),
            clone: Answer::of(&found.clone),
            atomic_writes: AtomicWrites {
                file_system_bytes: found.atomic_write_bytes,
                device_bytes: found.device_atomic_write_bytes,
            },
            plans: plans(found),
        }
    }
}

/// SQLite's default page size: most databases have it.
fn plans(found: &Capabilities) -> Vec<(JournalMode, Result<Plan, String>)> {
    let plan = |mode, page| (mode, Plan::of(mode, page, found));
    let page = PageSize::new(4096);
    let modes = JournalMode::ALL.into_iter();
    modes.filter_map(|mode| Some(plan(mode, page?))).collect()
}

fn matters(option: &str) -> bool {
    OPTIONS_THAT_MATTER.iter().any(|known| {
        let rest = option.strip_prefix(known);
        // "barrier=0" and "compress=zstd:3" begin with a name; "rodir" does not begin with "ro".
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('=') || known.ends_with('='))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_known_by_their_whole_name() {
        for option in [
            "ro",
            "data=journal",
            "barrier=0",
            "compress=zstd:3",
            "discard=async",
        ] {
            assert!(matters(option), "{option}");
        }
        for option in [
            "rw",
            "relatime",
            "rootcontext",
            "datax",
            "discarded",
            "syncx=1",
        ] {
            assert!(!matters(option), "{option}");
        }
    }
}
