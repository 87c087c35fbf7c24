//! Events of the whole machine while they happen: waits for a flush, writes handed to devices, and
//! locks of databases for writing.
//!
//! Called by `onewrite top`. A [`Live`] is a tracing instance of its own. Filters in the kernel
//! keep out everything else. [`Live::read`] gives the events in the order of time. It holds back
//! those that are younger than the reading, because an older one of another processor may follow.
//! One reading takes a part of the kernel's buffer at most, so that it ends although new events
//! come. Events that the kernel had no room for are counted.

use std::collections::VecDeque;
use std::path::Path;

use onewrite_common::mounts::Mount;

use crate::Error;
use crate::device::BlockDevice;
use crate::events::Letters;
use crate::format::Field;
use crate::io::{Asked, Op};
use crate::ring;
use crate::trace::now_ns;
use crate::tracefs::{CpuReader, Instance, Tracefs};

mod disk;

pub use disk::Disk;

/// The flag of `pwritev2` that makes a write durable (`RWF_DSYNC`).
const RWF_DSYNC: u32 = 2;

/// A writer locks the first of these bytes of `-shm` in WAL mode (SQLite's `wal.c`). It locks the
/// second one, RESERVED, of the database in a rollback mode (`os.h`).
const WRITE_BYTES: [i64; 2] = [120, 0x4000_0001];

/// Sub-buffers of each processor that one reading takes at most: a quarter of its ring buffer.
const MOST_AT_ONCE: usize = 256;

/// The lock that is exclusive (`F_WRLCK`).
const EXCLUSIVE: u8 = 1;

/// An event, and the thread that caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// The thread (`gettid`).
    pub tid: u32,
    /// The event.
    pub what: What,
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The thread begins to wait until this descriptor's file is durable: `fsync`, `fdatasync`, or a
    /// write with `RWF_DSYNC`.
    FlushBegun {
        /// The descriptor.
        fd: i32,
    },
    /// It has waited.
    FlushEnded,
    /// The thread hands a write to a device.
    Handed(Handed),
    /// The thread locks a file as a transaction of SQLite does before it writes.
    Locked {
        /// The device of the file, as the kernel holds it in memory.
        device: u32,
        /// The inode of the file.
        inode: u64,
    },
}

/// A write that a thread hands to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handed {
    /// The device, as the kernel holds it in memory: a disk or a partition.
    pub device: u32,
    /// The first sector on the disk.
    pub sector: u64,
    /// How many sectors; 0 asks for a flush alone.
    pub sectors: u64,
    /// Flags of the write.
    pub asked: Asked,
    /// The thread's name (`comm`).
    pub name: [u8; 16],
}

impl Handed {
    /// Whether a thread of ext4's journal hands it over.
    fn is_by_journal(&self) -> bool {
        self.name.starts_with(b"jbd2/")
    }
}

/// The fields of one kind of event.
enum Fields {
    Begun { fd: Field },
    Ended,
    Handed(HandedFields),
    Locked(LockedFields),
}

struct HandedFields {
    device: Field,
    sector: Field,
    sectors: Field,
    letters: Field,
    name: Field,
}

struct LockedFields {
    device: Field,
    inode: Field,
}

struct Decoder {
    id: u16,
    tid: Field,
    fields: Fields,
}

/// See the module.
pub struct Live {
    // The readers end before the instance.
    readers: Vec<CpuReader>,
    decoders: Vec<Decoder>,
    held: VecDeque<Seen>,
    instance: Instance,
    lost_marks: u64,
}

impl Live {
    /// Begins. No write to a device is seen before [`Live::watch`] names it.
    ///
    /// # Errors
    /// If a right, or an event of this kernel, is missing.
    pub fn start(tracefs: &Tracefs) -> Result<Self, Error> {
        let instance = tracefs.instance()?;
        let mut live = Self {
            readers: Vec::new(),
            decoders: Vec::new(),
            held: VecDeque::new(),
            instance,
            lost_marks: 0,
        };
        live.add_calls()?;
        live.add(BIO, &nothing(), |fields| {
            Ok(Fields::Handed(HandedFields {
                device: fields("dev")?,
                sector: fields("sector")?,
                sectors: fields("nr_sector")?,
                letters: fields("rwbs")?,
                name: fields("comm")?,
            }))
        })?;
        let [in_index, in_database] = WRITE_BYTES;
        let filter = format!(
            "type == {EXCLUSIVE} && ret == 0 && (fl_start == {in_index} || fl_start == {in_database}) \
             && (fl_end == {in_index} || fl_end == {in_database})"
        );
        live.add("filelock/posix_lock_inode", &filter, |fields| {
            Ok(Fields::Locked(LockedFields {
                device: fields("s_dev")?,
                inode: fields("i_ino")?,
            }))
        })?;
        live.readers = live.instance.readers()?;
        live.instance.start()?;
        Ok(live)
    }

    /// The system calls that wait for a flush. A kernel without them says so.
    fn add_calls(&mut self) -> Result<(), Error> {
        let durable = format!("flags & {RWF_DSYNC}");
        for (call, filter) in [("fdatasync", "0"), ("fsync", "0"), ("pwritev2", &durable)] {
            let begun = self.add(&format!("syscalls/sys_enter_{call}"), filter, |fields| {
                Ok(Fields::Begun { fd: fields("fd")? })
            });
            begun.map_err(|error| {
                Error::Unavailable(format!(
                    "{error}: this kernel does not trace system calls (CONFIG_FTRACE_SYSCALLS)"
                ))
            })?;
            self.add(&format!("syscalls/sys_exit_{call}"), "0", |_| {
                Ok(Fields::Ended)
            })?;
        }
        Ok(())
    }

    /// Enables an event. The filter `0` lets all of its records pass.
    fn add(
        &mut self,
        event: &str,
        filter: &str,
        fields: impl FnOnce(&dyn Fn(&str) -> Result<Field, Error>) -> Result<Fields, Error>,
    ) -> Result<(), Error> {
        let format = self.instance.enable(event, filter)?;
        let field = |name: &str| {
            format.field(name).ok_or_else(|| {
                Error::Unavailable(format!(
                    "this kernel's trace event {event} has no field {name}"
                ))
            })
        };
        let decoder = Decoder {
            id: format.id(),
            tid: field("common_pid")?,
            fields: fields(&field)?,
        };
        self.decoders.push(decoder);
        Ok(())
    }

    /// Sees the writes to these devices from now on, and to no others.
    ///
    /// # Errors
    /// If the kernel does not take the filter.
    pub fn watch<'a>(&self, disks: impl Iterator<Item = &'a Disk>) -> Result<(), Error> {
        let numbers = disks.flat_map(Disk::numbers);
        let devices: Vec<String> = numbers.map(|number| format!("dev == {number}")).collect();
        let filter = match devices.is_empty() {
            true => nothing(),
            // `W` is a write, `N` an offloaded write of zeros.
            false => format!(
                "(rwbs ~ \"*W*\" || rwbs ~ \"*N*\") && ({})",
                devices.join(" || ")
            ),
        };
        self.instance.filter(BIO, &filter)
    }

    /// Adds the events since the last reading to `seen`, in the order of time. Returns whether the
    /// kernel may have more of them.
    ///
    /// # Errors
    /// If the kernel's buffer cannot be read.
    pub fn read(&mut self, seen: &mut VecDeque<Seen>) -> Result<bool, Error> {
        let mut until = now_ns();
        let mut has_more = false;
        let mut new: Vec<Seen> = self.held.drain(..).collect();
        for reader in &mut self.readers {
            let part = read_part(reader, &self.decoders, &mut new)?;
            self.lost_marks += part.lost;
            if let Some(newest) = part.newest {
                // This processor's next events come after that one.
                until = until.min(newest);
                has_more = true;
            }
        }
        new.sort_by_key(|seen| seen.at_ns);
        let younger = new.partition_point(|seen| seen.at_ns < until);
        self.held.extend(new.drain(younger..));
        seen.extend(new);
        Ok(has_more)
    }

    /// Sees nothing from now on. Earlier events can still be read.
    ///
    /// # Errors
    /// If the kernel does not take it.
    pub fn stop(&self) -> Result<(), Error> {
        self.instance.stop()
    }

    /// Events that the kernel had no room for.
    ///
    /// # Errors
    /// If the kernel's counters cannot be read.
    pub fn lost(&self) -> Result<u64, Error> {
        let overruns = self.readers.iter().map(CpuReader::overrun);
        let counted = overruns.sum::<Result<u64, Error>>()?;
        Ok(counted.max(self.lost_marks))
    }
}

/// The event of a write that is handed to a device.
const BIO: &str = "block/block_bio_queue";

/// A filter that no record passes: no device has this number.
fn nothing() -> String {
    format!("dev == {}", u32::MAX)
}

/// The result of reading the buffer of a processor.
struct Part {
    /// Sub-buffers before which events were lost.
    lost: u64,
    /// The time of the last event that was taken, where the buffer has more; `None` where it is empty.
    newest: Option<u64>,
}

/// Takes the next sub-buffers of a processor, and adds their events.
fn read_part(
    reader: &mut CpuReader,
    decoders: &[Decoder],
    new: &mut Vec<Seen>,
) -> Result<Part, Error> {
    let (mut lost, mut newest) = (0, 0);
    for _ in 0..MOST_AT_ONCE {
        let Some(bytes) = reader.next()? else {
            return Ok(Part { lost, newest: None });
        };
        let bad = |text| Error::Unavailable(format!("the trace cannot be read: {text}"));
        let sub_buffer = ring::parse(bytes).map_err(bad)?;
        lost += u64::from(sub_buffer.lost);
        newest = sub_buffer.events.last().map_or(newest, |last| last.at_ns);
        let events = sub_buffer.events.iter();
        new.extend(events.filter_map(|raw| decode(decoders, raw)));
    }
    Ok(Part {
        lost,
        newest: Some(newest),
    })
}

fn decode(decoders: &[Decoder], raw: &ring::RawEvent<'_>) -> Option<Seen> {
    let record = raw.record;
    let id = u16::from_le_bytes(*record.first_chunk()?);
    let decoder = decoders.iter().find(|decoder| decoder.id == id)?;
    let what = match &decoder.fields {
        Fields::Begun { fd } => What::FlushBegun {
            fd: i32::try_from(fd.number(record) & 0xffff_ffff).ok()?,
        },
        Fields::Ended => What::FlushEnded,
        Fields::Handed(fields) => What::Handed(fields.decode(record)?),
        Fields::Locked(fields) => What::Locked {
            device: u32::try_from(fields.device.number(record)).ok()?,
            inode: fields.inode.number(record),
        },
    };
    Some(Seen {
        at_ns: raw.at_ns,
        tid: u32::try_from(decoder.tid.number(record)).ok()?,
        what,
    })
}

impl HandedFields {
    fn decode(&self, record: &[u8]) -> Option<Handed> {
        let letters = Letters::parse(self.letters.bytes(record))?;
        if letters.op != Op::Write {
            return None;
        }
        Some(Handed {
            device: u32::try_from(self.device.number(record)).ok()?,
            sector: self.sector.number(record),
            sectors: self.sectors.number(record),
            asked: letters.asked,
            name: *self.name.bytes(record).first_chunk()?,
        })
    }
}

/// The tracing directory for a [`Live`]. Where none is mounted, it is mounted for this thread and
/// those that it starts alone, at the place that the kernel has for it. So nothing stays, however
/// the process ends.
///
/// # Errors
/// If there is no such place, or a right is missing.
pub fn tracefs() -> Result<Tracefs, Error> {
    Tracefs::open_private(Path::new("/sys/kernel/tracing"))
}

/// The device below a file's file system: the device of Btrfs, and of the layer that an overlay
/// writes to. `None` where there is none. `path` is the file for this process, and `seen` for the
/// process whose `mounts` these are.
pub fn device_below(path: &Path, seen: &Path, mounts: &[Mount]) -> Option<BlockDevice> {
    disk::below(path, seen, mounts, 0)
}

#[cfg(test)]
mod tests;
