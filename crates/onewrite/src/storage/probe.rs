//! Finds out what [`Capabilities`] reports: by statx, mountinfo, sysfs, and by a trial in a
//! directory.
//!
//! `STATX_DIOALIGN` of statx (Linux 6.1) is more reliable than a successful open. With data=journal
//! ext4 opens files with O_DIRECT, and then uses the page cache for them.

use super::aligned::{AlignedBuf, BUFFER_ALIGN};
use super::blocks::{Remap, try_remap};
use super::capabilities::{Capabilities, DirectAlign, IN_MEMORY, VOLATILE};
use super::device::{BlockDevice, WriteCache, is_alone_in_btrfs};
use super::error::{Operation, StorageError};
use super::sys;
use onewrite_common::mounts::{self, Mount};
use rustix::fs::{
    AtFlags, FallocateFlags, IFlags, Mode, OFlags, StatFs, Statx, StatxFlags, fallocate, fstatfs,
    ioctl_getflags, statx,
};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::path::Path;

/// `STATX_WRITE_ATOMIC` of linux/stat.h (6.11), which rustix does not name yet.
const STATX_WRITE_ATOMIC: u32 = 0x0001_0000;

/// `FALLOC_FL_WRITE_ZEROES` of linux/falloc.h (6.17), which rustix does not name yet.
pub(super) const FALLOC_FL_WRITE_ZEROES: FallocateFlags = FallocateFlags::from_bits_retain(0x80);

/// Mount options that keep flushes from the device.
pub const NO_BARRIERS: &[&str] = &["nobarrier", "barrier=0", "fsync_mode=nobarrier"];

pub(super) fn of_file(file: &File, path: &Path) -> Result<Capabilities, StorageError> {
    Ok(of_inspected(file, &inspect(file, path)?))
}

/// The first step of the probe, and the only one that can fail.
pub(super) fn inspect(file: &File, path: &Path) -> Result<Statx, StorageError> {
    let wanted = StatxFlags::BASIC_STATS
        | StatxFlags::MNT_ID
        | StatxFlags::DIOALIGN
        | StatxFlags::from_bits_retain(STATX_WRITE_ATOMIC);
    let found = match statx(file, c"", AtFlags::EMPTY_PATH, wanted) {
        Err(e) if sys::is_refused(e) => sys::statx_without(file),
        other => other,
    };
    found.map_err(|e| StorageError::io(path, Operation::Inspect, e))
}

/// The remaining steps, some fifty system calls.
pub(super) fn of_inspected(file: &File, stat: &Statx) -> Capabilities {
    let mount = has(stat, StatxFlags::MNT_ID)
        .then(|| mount_by_id(stat.stx_mnt_id))
        .flatten();
    let device = BlockDevice::by_number(stat.stx_dev_major, stat.stx_dev_minor)
        .or_else(|| mount.as_ref().and_then(device_of_source));
    let mut found = from_parts(file, stat, mount, device);
    found.direct = direct_io(file, stat, &found);
    found
}

/// The mount with the id that statx reports. It is for reasons and reports only: without `/proc` the
/// answer is `None`, and direct I/O still works. A thread may have its own mount namespace.
fn mount_by_id(id: u64) -> Option<Mount> {
    let mounts = mounts::read(mounts::OF_THIS_THREAD).ok()?;
    mounts.into_iter().find(|mount| mount.id == id)
}

fn has(stat: &Statx, flag: StatxFlags) -> bool {
    stat.stx_mask & flag.bits() != 0
}

/// Btrfs and others give files their own device numbers; the mount's source names the device.
fn device_of_source(mount: &Mount) -> Option<BlockDevice> {
    if !mount.source.is_absolute() {
        return None;
    }
    let stat = rustix::fs::stat(&mount.source).ok()?;
    let block = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_block_device();
    let number = stat.st_rdev;
    block
        .then(|| BlockDevice::by_number(rustix::fs::major(number), rustix::fs::minor(number)))
        .flatten()
}

/// Everything except `direct`, which depends on the rest.
fn from_parts(
    file: &File,
    stat: &Statx,
    mount: Option<Mount>,
    device: Option<BlockDevice>,
) -> Capabilities {
    let filesystem = mount
        .as_ref()
        .map_or_else(|| name_without_proc(file), |m| m.filesystem.clone());
    let (mount_point, mount_options) =
        mount.map_or((None, Vec::new()), |m| (Some(m.point), m.options));
    let nobarrier = mount_options
        .iter()
        .find(|option| NO_BARRIERS.contains(&option.as_str()));
    let is_only_device = device
        .as_ref()
        .is_some_and(|device| is_only_device(&filesystem, &mount_options, device));
    let atomic = stat.stx_mask & STATX_WRITE_ATOMIC != 0 && stat.stx_atomic_write_unit_max > 0;
    Capabilities {
        mount_point,
        device: device.as_ref().map_or_else(String::new, |d| d.name.clone()),
        is_only_device,
        backing_file: device.as_ref().and_then(|d| d.backing_file.clone()),
        direct: Err(String::new()),
        fua: fua(&filesystem, device.as_ref()),
        write_cache: device.as_ref().map_or(WriteCache::Unknown, write_cache),
        barriers: match nobarrier {
            Some(option) => Err(format!(
                "{filesystem} is mounted with {option}: it never tells the device to flush its cache"
            )),
            None => Ok(()),
        },
        durable: durable(&filesystem, &mount_options),
        write_through: write_through(&filesystem),
        write_zeroes: write_zeroes(&filesystem, device.as_ref()),
        exchange: Err(NOT_TRIED.to_owned()),
        clone: Err(NOT_TRIED.to_owned()),
        device_atomic_write_bytes: device.as_ref().and_then(|d| d.atomic_write_bytes),
        atomic_write_bytes: atomic.then_some(stat.stx_atomic_write_unit_max),
        logical_block_bytes: device.as_ref().map_or(512, |d| d.logical_block_bytes),
        physical_block_bytes: device.as_ref().map_or(512, |d| d.physical_block_bytes),
        filesystem,
        mount_options,
    }
}

/// Whether no other device holds data of the file system. A file system may ask one of its devices
/// about FUA, and write to another.
fn is_only_device(filesystem: &str, options: &[String], device: &BlockDevice) -> bool {
    match filesystem {
        "btrfs" => is_alone_in_btrfs(&device.name),
        "xfs" => !options.iter().any(|option| option.starts_with("rtdev=")),
        _ => true,
    }
}

fn fua(filesystem: &str, device: Option<&BlockDevice>) -> Result<(), String> {
    match device {
        None => Err(format!("no block device is known under this {filesystem}")),
        Some(d) if d.fua == Some(true) => Ok(()),
        Some(d) if d.write_cache == WriteCache::WriteThrough => Err(format!(
            "{} has no volatile write cache and needs no FUA: every completed write is durable",
            d.name
        )),
        Some(d) if d.fua.is_none() => Err(format!("sysfs does not tell whether {} has it", d.name)),
        Some(d) => Err(format!(
            "{} has no FUA: the kernel sends each durable write as a write and a cache flush",
            d.name
        )),
    }
}

/// With a volatile cache, FUA decides what a durable write covers. If FUA is unknown, the cache
/// counts as unknown.
fn write_cache(device: &BlockDevice) -> WriteCache {
    match (device.write_cache, device.fua) {
        (WriteCache::WriteBack, None) => WriteCache::Unknown,
        (known, _) => known,
    }
}

/// F2FS (Linux 5.17 and later; docs/durability.md, F1) ends a direct write-through write before it
/// notes that the file was written in place (`f2fs_dio_write_iter`). The flush that belongs to the
/// write looks for that note, and is left out. With FUA no node is written, though cleaning may
/// have moved the block. An fdatasync(2) after the write does both.
fn write_through(filesystem: &str) -> Result<(), String> {
    match filesystem {
        "f2fs" => Err(
            "F2FS may leave out the flush of a write-through write: fdatasync follows each"
                .to_owned(),
        ),
        _ => Ok(()),
    }
}

/// An overlay's files are those of its upper layer. In a container the path of that layer may be the
/// host's: then nothing is known.
fn durable(filesystem: &str, options: &[String]) -> Result<(), String> {
    if IN_MEMORY.contains(&filesystem) {
        return Err(format!("{filesystem} keeps files in memory"));
    }
    if filesystem != "overlay" {
        return Ok(());
    }
    if let Some(option) = options.iter().find(|it| VOLATILE.contains(&it.as_str())) {
        return Err(format!(
            "this overlay is mounted with {option}: no flush reaches the disk"
        ));
    }
    let mut options = options.iter();
    let upper = options.find_map(|option| option.strip_prefix("upperdir="));
    match upper.and_then(|upper| rustix::fs::statfs(upper).ok()) {
        Some(stat) if IN_MEMORY.contains(&name_of_magic(&stat).as_str()) => Err(format!(
            "the upper layer of this overlay lies on {}, which keeps files in memory",
            name_of_magic(&stat)
        )),
        _ => Ok(()),
    }
}

fn write_zeroes(filesystem: &str, device: Option<&BlockDevice>) -> Result<(), String> {
    match device {
        None => Err(format!("no block device is known under this {filesystem}")),
        Some(d) => match d.write_zeroes_unmap_bytes {
            None => Err("this kernel has no FALLOC_FL_WRITE_ZEROES (Linux 6.17)".to_owned()),
            Some(0) => Err(format!(
                "{} has no write-zeroes command that unmaps",
                d.name
            )),
            Some(_) => Ok(()),
        },
    }
}

fn direct_io(file: &File, stat: &Statx, found: &Capabilities) -> Result<DirectAlign, String> {
    let name = &found.filesystem;
    let flags = ioctl_getflags(file).unwrap_or(IFlags::empty());
    if name == "btrfs" && !flags.contains(IFlags::NOCOW) && !found.has_option("nodatasum") {
        return Err(
            "Btrfs runs direct writes to files with checksums through the page cache".to_owned(),
        );
    }
    if !has(stat, StatxFlags::DIOALIGN) {
        // Before Linux 6.1 no call reports it; these file systems run aligned direct writes as
        // such.
        let block = found.logical_block_bytes;
        let known = ["ext4", "xfs", "f2fs"].contains(&name.as_str());
        return if known && !found.device.is_empty() && !journals_data(found, flags) {
            usable(DirectAlign {
                memory: block,
                offset: block,
            })
        } else {
            Err(format!(
                "{name} does not report an alignment for direct I/O"
            ))
        };
    }
    if stat.stx_dio_offset_align == 0 {
        return Err(why_not_direct(found, flags));
    }
    usable(DirectAlign {
        memory: stat.stx_dio_mem_align.max(1),
        offset: stat.stx_dio_offset_align,
    })
}

fn usable(align: DirectAlign) -> Result<DirectAlign, String> {
    if align.memory as usize > BUFFER_ALIGN || align.offset as usize > BUFFER_ALIGN {
        return Err(format!(
            "direct I/O here needs {}-byte aligned buffers and {}-byte blocks; the log's are {BUFFER_ALIGN}",
            align.memory, align.offset
        ));
    }
    Ok(align)
}

fn journals_data(found: &Capabilities, flags: IFlags) -> bool {
    flags.contains(IFlags::JOURNALING)
        || found.has_option("data=journal")
        // Default options of the superblock are not among those of mountinfo.
        || std::fs::read_to_string(format!("/proc/fs/ext4/{}/options", found.device))
            .is_ok_and(|all| all.lines().any(|line| line == "data=journal"))
}

fn why_not_direct(found: &Capabilities, flags: IFlags) -> String {
    let name = &found.filesystem;
    if name == "ext4" && flags.contains(IFlags::JOURNALING) && !found.has_option("data=journal") {
        return "this file has the attribute j: ext4 journals its data and runs direct writes \
                through the page cache"
            .to_owned();
    }
    if name == "ext4" && journals_data(found, flags) {
        return "ext4 mounted with data=journal runs direct writes through the page cache"
            .to_owned();
    }
    format!("{name} reports that this file has no direct I/O")
}

fn name_without_proc(file: &File) -> String {
    fstatfs(file).map_or_else(
        |_| "unknown file system".to_owned(),
        |stat| name_of_magic(&stat),
    )
}

/// The most common file systems by `f_type`, for use without `/proc`.
fn name_of_magic(stat: &StatFs) -> String {
    match stat.f_type as u32 {
        0xef53 => "ext4".to_owned(),
        0x5846_5342 => "xfs".to_owned(),
        0x9123_683e => "btrfs".to_owned(),
        0xf2f5_2010 => "f2fs".to_owned(),
        0x0102_1994 => "tmpfs".to_owned(),
        0x8584_58f6 => "ramfs".to_owned(),
        0x6969 => "nfs".to_owned(),
        0x794c_7630 => "overlay".to_owned(),
        0x6573_5546 => "fuse".to_owned(),
        0x2fc1_2fc1 => "zfs".to_owned(),
        other => format!("file system {other:#x}"),
    }
}

pub(super) fn of_dir(dir: &Path) -> Result<Capabilities, StorageError> {
    let file = scratch_file(dir)?;
    let mut found = of_file(&file, dir)?;
    if let (Ok(align), Err(reason)) = (&found.direct, try_direct_write(&file)) {
        found.direct = Err(format!(
            "{} reports {}-byte direct I/O but refuses it: {reason}",
            found.filesystem, align.offset
        ));
    }
    if found.write_zeroes.is_ok()
        && let Err(reason) = try_write_zeroes(&file)
    {
        found.write_zeroes = Err(format!(
            "{} refuses FALLOC_FL_WRITE_ZEROES: {reason}",
            found.filesystem
        ));
    }
    let other = scratch_file(dir)?;
    found.exchange = try_remap(Remap::Exchange, &file, &other)
        .map_err(|why| format!("{} has no exchange of blocks: {why}", found.filesystem));
    found.clone = try_remap(Remap::Clone, &file, &other)
        .map_err(|why| format!("{} has no sharing of blocks: {why}", found.filesystem));
    Ok(found)
}

const NOT_TRIED: &str = "not tried yet";

/// A file in `dir` that disappears with its descriptor.
fn scratch_file(dir: &Path) -> Result<File, StorageError> {
    let error = |e: Errno| StorageError::io(dir, Operation::Inspect, e);
    let mode = Mode::RUSR | Mode::WUSR;
    let nameless = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(dir, nameless, mode) {
        Ok(fd) => return Ok(fd.into()),
        // EISDIR: a kernel without O_TMPFILE.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
        Err(e) => return Err(error(e)),
    }
    let mut tag = [0_u8; 8];
    getrandom::fill(&mut tag)
        .map_err(|e| StorageError::io(dir, Operation::Inspect, io::Error::other(e)))?;
    let path = dir.join(format!(".onewrite-probe-{:016x}", u64::from_ne_bytes(tag)));
    let named = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::open(&path, named, mode).map_err(error)?;
    rustix::fs::unlink(&path).map_err(error)?;
    Ok(file.into())
}

fn try_direct_write(file: &File) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT)?;
    let block = AlignedBuf::zeroed(BUFFER_ALIGN);
    let written = match sys::write_durably(file, &block, 0) {
        Err(e) if sys::is_refused(e) => rustix::io::pwrite(file, &block, 0),
        other => other,
    };
    rustix::fs::fcntl_setfl(file, flags)?;
    match written? {
        BUFFER_ALIGN => Ok(()),
        short => Err(io::Error::other(format!("only {short} bytes were written"))),
    }
}

fn try_write_zeroes(file: &File) -> io::Result<()> {
    fallocate(file, FALLOC_FL_WRITE_ZEROES, 0, 1 << 16)?;
    Ok(())
}
