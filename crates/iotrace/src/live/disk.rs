//! A device whose writes are watched, and what its sectors hold.

use std::ops::Range;
use std::path::Path;

use onewrite_common::mounts::{self, Mount, holding};

use super::Handed;
use crate::device::{BlockDevice, Counters, Span};
use crate::extents::Extents;
use crate::{Error, ext4, known, xfs};

/// The deepest nesting of overlays: the kernel's own limit is 2.
const MOST_LAYERS: u32 = 3;

/// A device whose writes are watched.
pub struct Disk {
    device: BlockDevice,
    span: Span,
    has_fua: bool,
    journal: Vec<Range<u64>>,
    files: Extents<u32>,
}

impl Disk {
    /// The device, with the place of the journal where the file system `kind` has one that can be
    /// found.
    ///
    /// # Errors
    /// If the device cannot be looked at.
    pub fn new(device: BlockDevice, kind: &str) -> Result<Self, Error> {
        let node = Path::new("/dev").join(device.name());
        // Without the place of the journal, its thread's name and flags must do.
        let journal = match kind {
            "ext4" => ext4::Layout::read(&node).map(|layout| layout.journal),
            "xfs" => xfs::Layout::read(&node).map(|layout| vec![layout.log]),
            _ => Ok(Vec::new()),
        };
        Ok(Self {
            span: device.span()?,
            has_fua: device.has_fua(),
            journal: journal.unwrap_or_default(),
            files: Extents::default(),
            device,
        })
    }

    /// The device.
    pub fn device(&self) -> &BlockDevice {
        &self.device
    }

    /// The device's own counters.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn counters(&self) -> Result<Counters, Error> {
        self.device.counters()
    }

    /// The numbers that events may have for it: its own, and that of its disk.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> + use<> {
        let (own, disk) = (self.span.own, self.span.disk);
        std::iter::once(own).chain((disk != own).then_some(disk))
    }

    /// The first sector of a write within this device; `None` if it is another device's.
    pub fn start_of(&self, write: &Handed) -> Option<u64> {
        if write.device == self.span.own {
            // A partition's number, and still the disk's sector.
            return self.span.inside(write.sector, write.sectors);
        }
        (write.device == self.span.disk && write.sectors > 0)
            .then(|| self.span.inside(write.sector, write.sectors))
            .flatten()
    }

    /// Whether the write at this sector belongs to the file system's journal.
    pub fn is_journal(&self, start: u64, write: &Handed) -> bool {
        if self.journal.is_empty() {
            return write.is_by_journal();
        }
        match write.sectors {
            0 => write.is_by_journal(),
            _ => self.journal.iter().any(|range| range.contains(&start)),
        }
    }

    /// Flushes of the device's cache that a write causes, before it and after it.
    pub fn flushes(&self, write: &Handed) -> u32 {
        let after = write.asked.fua && !self.has_fua;
        u32::from(write.asked.flush_before) + u32::from(after)
    }

    /// Looks where a file lies now, for [`Disk::owner`].
    ///
    /// # Errors
    /// If the file cannot be opened, or its file system does not report that.
    pub fn locate(&mut self, file: &Path, owner: u32) -> Result<(), Error> {
        let found = known::extents(file).map_err(Error::io("find the blocks of", file))?;
        for sectors in found {
            self.files.give(sectors, owner);
        }
        Ok(())
    }

    /// Forgets where files lie.
    pub fn forget_files(&mut self) {
        self.files = Extents::default();
    }

    /// The file that had this sector when it was looked at.
    pub fn owner(&self, start: u64) -> Option<u32> {
        let found = self.files.owners(start..start + 1);
        found.first().and_then(|(owner, _)| *owner)
    }
}

/// The device below a path.
pub(super) fn below(path: &Path, seen: &Path, mounts: &[Mount], depth: u32) -> Option<BlockDevice> {
    if let Ok(Some(device)) = BlockDevice::holding(path) {
        return Some(device);
    }
    let mount = holding(mounts, seen)?;
    if mount.filesystem != "overlay" {
        return BlockDevice::from_node(&mount.source).ok();
    }
    let mut upper = mount.options.iter();
    let upper = upper.find_map(|option| option.strip_prefix("upperdir="))?;
    let upper = Path::new(upper);
    let own = mounts::read(mounts::OF_THIS_THREAD).unwrap_or_default();
    (depth < MOST_LAYERS)
        .then(|| below(upper, upper, &own, depth + 1))
        .flatten()
}
