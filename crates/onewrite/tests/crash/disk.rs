//! The states that a power cut may leave after recorded calls.
//!
//! The model, for each file:
//!
//! - Bytes become durable by a flush of their file, or by a write-through write. Before that, every
//!   sector of 512 bytes may be in any state that it has had since it was last durable. Sectors are
//!   independent: writes are reordered, dropped and torn.
//! - A write-through write makes its own sectors durable. On a device without FUA it also makes
//!   durable what was written to the file directly before it. It covers bytes in the page cache
//!   only if these were written back first.
//! - Size and truncation become durable with a flush. Before that they become durable in order,
//!   with or without data. Bytes within the size that no sector has reached read as zeros. A
//!   write-through write makes truncations before it durable: they are changes of the inode that it
//!   needs.
//! - A name is certainly created or removed once the directory is synced. SQLite's VFS does that
//!   with the first flush of a journal or log that it has opened.

use super::record::{Device, Event, File, Opener, Reach};
use rustix::fs::{SeekFrom, seek};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

pub const SECTOR: usize = 512;
type Sector = [u8; SECTOR];

/// A file's content: its nonzero sectors, and its size.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Content {
    pub size: u64,
    sectors: BTreeMap<u64, Arc<Sector>>,
}

impl Content {
    pub fn read_from(path: &Path) -> Content {
        let file = std::fs::File::open(path).expect("a readable file");
        let mut content = Content {
            size: file.metadata().expect("a size").len(),
            ..Content::default()
        };
        let mut at = 0;
        // An error means that only holes follow.
        while let Ok(from) = seek(&file, SeekFrom::Data(at)) {
            at = seek(&file, SeekFrom::Hole(from)).unwrap_or(content.size);
            let mut bytes = vec![0; (at - from) as usize];
            file.read_exact_at(&mut bytes, from).expect("a read");
            content.write(from, &bytes, |_| true);
        }
        content
    }

    /// A number that identifies contents; no adversary seeks a collision.
    pub fn digest(&self) -> u64 {
        let mut digest = self.size;
        let mut mix = |word: u64| {
            digest = (digest.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        };
        for (&no, sector) in &self.sectors {
            mix(no);
            for word in sector.chunks_exact(8) {
                mix(u64::from_le_bytes(word.try_into().expect("8 bytes")));
            }
        }
        digest
    }

    /// Writes the sectors of `bytes` that `which` selects.
    fn write(&mut self, offset: u64, bytes: &[u8], which: impl Fn(u64) -> bool) {
        self.size = self.size.max(offset + bytes.len() as u64);
        for (no, within, part) in sectors_of(offset, bytes) {
            if !which(no) {
                continue;
            }
            let mut sector = self.sectors.get(&no).map_or([0; SECTOR], |old| **old);
            sector[within..within + part.len()].copy_from_slice(part);
            if sector.iter().all(|&byte| byte == 0) {
                self.sectors.remove(&no);
            } else {
                self.sectors.insert(no, Arc::new(sector));
            }
        }
    }

    fn resize(&mut self, size: u64) {
        if size < self.size {
            self.sectors.split_off(&size.div_ceil(SECTOR as u64));
            let tail = (size % SECTOR as u64) as usize;
            let no = size / SECTOR as u64;
            if let Some(last) = self.sectors.get_mut(&no)
                && tail > 0
            {
                Arc::make_mut(last)[tail..].fill(0);
                // A sector of zeros is not stored, even if its other bytes have just been cleared.
                if last.iter().all(|&byte| byte == 0) {
                    self.sectors.remove(&no);
                }
            }
        }
        self.size = size;
    }

    pub fn byte(&self, at: u64) -> u8 {
        let sector = self.sectors.get(&(at / SECTOR as u64));
        sector.map_or(0, |sector| sector[at as usize % SECTOR])
    }

    /// Writes the content to a file, with holes for zeros.
    fn store(&self, path: &Path) -> io::Result<()> {
        let file = std::fs::File::create(path)?;
        file.set_len(self.size)?;
        let mut run: Vec<u8> = Vec::new();
        let mut from = 0;
        for (&no, sector) in &self.sectors {
            let offset = no * SECTOR as u64;
            if offset != from + run.len() as u64 {
                file.write_all_at(&run, from)?;
                run.clear();
                from = offset;
            }
            let left = (self.size - offset).min(SECTOR as u64) as usize;
            run.extend_from_slice(&sector[..left]);
        }
        file.write_all_at(&run, from)
    }
}

fn sectors_of(offset: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, usize, &[u8])> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = at as usize % SECTOR;
        let n = (SECTOR - within).min(bytes.len() - done);
        let part = &bytes[done..done + n];
        done += n;
        (n > 0).then_some((at / SECTOR as u64, within, part))
    })
}

#[derive(Clone)]
enum Change {
    Write {
        offset: u64,
        bytes: Arc<[u8]>,
        reach: Reach,
    },
    Extend(u64),
    Truncate(u64),
}

impl Change {
    fn size_after(&self, size: u64) -> u64 {
        match self {
            Change::Write { offset, bytes, .. } => size.max(offset + bytes.len() as u64),
            Change::Extend(to) => size.max(*to),
            Change::Truncate(to) => *to,
        }
    }

    /// Removes what a truncation to `end` bytes removes. The change itself stays, because others
    /// refer to its number.
    fn clip(&mut self, end: u64) {
        match self {
            Change::Write { offset, bytes, .. } => {
                let keep = end.saturating_sub(*offset).min(bytes.len() as u64) as usize;
                if keep < bytes.len() {
                    *bytes = bytes[..keep].into();
                    *offset = (*offset).min(end);
                }
            }
            Change::Extend(to) => *to = (*to).min(end),
            Change::Truncate(_) => *self = Change::Extend(0),
        }
    }

    fn sectors(&self) -> std::ops::Range<u64> {
        match self {
            Change::Write { offset, bytes, .. } if !bytes.is_empty() => {
                let last = offset + bytes.len() as u64 - 1;
                offset / SECTOR as u64..last / SECTOR as u64 + 1
            }
            _ => 0..0,
        }
    }
}

#[derive(Clone)]
struct Inode {
    durable: Content,
    pending: Vec<Change>,
    /// Sectors whose durable content includes the pending changes before this number.
    durable_since: HashMap<u64, usize>,
    /// The next flush syncs the directory too.
    syncs_directory: bool,
    name_is_durable: bool,
}

/// Decides which of the changes that are not durable have reached the device.
pub trait Chance {
    /// Whether this change, of `changes`, has reached this sector.
    fn reached(&mut self, file: File, change: usize, changes: usize, sector: u64) -> bool;
    /// How many changes of size, from 0 to `changes`, have reached the device.
    fn sizes(&mut self, file: File, changes: usize) -> usize;
    /// Whether a change of the directory has.
    fn name(&mut self, file: File) -> bool;
}

impl Inode {
    fn holding(durable: Content, name_is_durable: bool) -> Inode {
        Inode {
            durable,
            pending: Vec::new(),
            durable_since: HashMap::new(),
            syncs_directory: false,
            name_is_durable,
        }
    }

    fn flush(&mut self) {
        let all = |_: u64| usize::MAX;
        self.durable = self.content(self.pending.len(), all);
        self.pending.clear();
        self.durable_since.clear();
    }

    /// The kernel writes the page cache back to the device.
    fn write_back(&mut self) {
        for change in &mut self.pending {
            if let Change::Write { reach, .. } = change
                && *reach == Reach::Buffered
            {
                *reach = Reach::Direct;
            }
        }
    }

    /// The last pending change becomes durable at once. On a device without FUA, so do those that
    /// were written directly.
    fn write_through(&mut self, device: Device) {
        let last = self.pending.len() - 1;
        self.settle_truncations();
        let mut size = 0;
        for index in 0..=last {
            let counts = match &self.pending[index] {
                Change::Write { reach, .. } => match device.covers_all_before() {
                    false => index == last,
                    true => *reach != Reach::Buffered,
                },
                _ => false,
            };
            if counts {
                let sectors = self.pending[index].sectors();
                self.make_durable(index, sectors);
                size = self.pending[index].size_after(size);
            }
        }
        self.durable.size = self.durable.size.max(size);
    }

    /// Pending truncations become durable: the bytes beyond them are gone.
    fn settle_truncations(&mut self) {
        let truncation = |change: &Change| match change {
            Change::Truncate(to) => Some(*to),
            _ => None,
        };
        let Some(last) = self.pending.iter().rposition(|c| truncation(c).is_some()) else {
            return;
        };
        for i in 0..=last {
            let Some(to) = truncation(&self.pending[i]) else {
                continue;
            };
            let size = self.durable.size.min(to);
            self.durable.resize(size);
            for change in &mut self.pending[..=i] {
                change.clip(to);
            }
        }
    }

    /// Every change up to this one is durable on these sectors.
    fn make_durable(&mut self, index: usize, sectors: std::ops::Range<u64>) {
        for i in 0..=index {
            let touched = self.pending[i].sectors();
            if touched.start >= sectors.end || touched.end <= sectors.start {
                continue;
            }
            let Change::Write { offset, bytes, .. } = &self.pending[i] else {
                continue;
            };
            let since = &self.durable_since;
            let wanted =
                |no: u64| sectors.contains(&no) && since.get(&no).is_none_or(|&done| i >= done);
            let size = self.durable.size;
            self.durable.write(*offset, bytes, wanted);
            self.durable.size = size;
        }
        for sector in sectors {
            self.durable_since.insert(sector, index + 1);
        }
    }

    /// The content after the first `sizes` changes of size and, on each sector, the changes before
    /// `reached(sector)`.
    fn content(&self, sizes: usize, reached: impl Fn(u64) -> usize) -> Content {
        let mut content = self.durable.clone();
        let mut size = content.size;
        // Beyond a truncation that did not happen, the old blocks remain.
        let mut closed_from = u64::MAX;
        for (i, change) in self.pending.iter().enumerate() {
            if i < sizes {
                size = change.size_after(size);
            }
            match change {
                Change::Write { offset, bytes, .. } => content.write(*offset, bytes, |no| {
                    let done = self.durable_since.get(&no).copied().unwrap_or(0);
                    i >= done && i < reached(no) && no * (SECTOR as u64) < closed_from
                }),
                Change::Truncate(to) if i < sizes => content.resize((*to).min(content.size)),
                Change::Truncate(to) => closed_from = closed_from.min(*to),
                Change::Extend(_) => {}
            }
        }
        content.resize(size);
        content
    }

    fn image(&self, file: File, chance: &mut dyn Chance) -> Content {
        let mut reached: HashMap<u64, usize> = HashMap::new();
        for (i, change) in self.pending.iter().enumerate() {
            for sector in change.sectors() {
                if chance.reached(file, i, self.pending.len(), sector) {
                    reached.insert(sector, i + 1);
                }
            }
        }
        let sizes = chance.sizes(file, self.pending.len());
        self.content(sizes, |sector| reached.get(&sector).copied().unwrap_or(0))
    }
}

/// The files of one database on a device that still has power.
#[derive(Clone)]
pub struct Disk {
    device: Device,
    inodes: HashMap<File, Inode>,
    /// Files that were removed, and may still exist after a power cut.
    removed: HashMap<File, Inode>,
}

/// The files found after a power cut.
pub type Image = BTreeMap<&'static str, Content>;

impl Disk {
    /// A device that holds the files of `directory` durably.
    pub fn of(directory: &Path, device: Device) -> Disk {
        let files = File::ALL.into_iter().filter_map(|file| {
            let path = directory.join(file.name());
            path.exists().then(|| (file, Content::read_from(&path)))
        });
        Disk::holding(files, device)
    }

    /// The device on which an image was found.
    pub fn after(image: &Image, device: Device) -> Disk {
        let files = File::ALL.into_iter().filter_map(|file| {
            image
                .get(file.name())
                .map(|content| (file, content.clone()))
        });
        Disk::holding(files, device)
    }

    fn holding(files: impl Iterator<Item = (File, Content)>, device: Device) -> Disk {
        Disk {
            device,
            inodes: files
                .map(|(file, content)| (file, Inode::holding(content, true)))
                .collect(),
            removed: HashMap::new(),
        }
    }

    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::Open(file, opener) => {
                let inode = self
                    .inodes
                    .entry(*file)
                    .or_insert_with(|| Inode::holding(Content::default(), false));
                inode.syncs_directory |= *opener == Opener::Sqlite && *file != File::Database;
            }
            Event::Write {
                file,
                offset,
                bytes,
                reach,
            } => {
                let inode = self.inode(*file);
                inode.pending.push(Change::Write {
                    offset: *offset,
                    bytes: bytes.clone(),
                    reach: *reach,
                });
                let device = self.device;
                if *reach == Reach::Through {
                    self.inode(*file).write_through(device);
                }
            }
            Event::Extend(file, size) => self.inode(*file).pending.push(Change::Extend(*size)),
            Event::Truncate(file, size) => self.inode(*file).pending.push(Change::Truncate(*size)),
            Event::Flush(file) => {
                self.inode(*file).flush();
                if std::mem::take(&mut self.inode(*file).syncs_directory) {
                    self.apply(&Event::SyncDirectory);
                }
            }
            Event::WriteBack(file) => self.inode(*file).write_back(),
            Event::Remove(file) => {
                if let Some(inode) = self.inodes.remove(file) {
                    self.removed.entry(*file).or_insert(inode);
                }
            }
            Event::SyncDirectory => {
                self.removed.clear();
                for inode in self.inodes.values_mut() {
                    inode.name_is_durable = true;
                }
            }
            Event::Begin(_) | Event::Durable(_) => {}
        }
    }

    /// A file that was opened, or existed before.
    fn inode(&mut self, file: File) -> &mut Inode {
        self.inodes
            .get_mut(&file)
            .unwrap_or_else(|| panic!("{file:?} was written to and never opened"))
    }

    /// The files that a power cut now may leave.
    pub fn image(&self, chance: &mut dyn Chance) -> Image {
        let mut image = Image::new();
        for file in File::ALL {
            let present = self.inodes.get(&file);
            let found = match (present, self.removed.get(&file)) {
                (Some(inode), _) if inode.name_is_durable || chance.name(file) => Some(inode),
                // The removal was lost, together with the new file of that name.
                (_, Some(old)) if !chance.name(file) => {
                    (old.name_is_durable || chance.name(file)).then_some(old)
                }
                _ => None,
            };
            if let Some(inode) = found {
                image.insert(file.name(), inode.image(file, chance));
            }
        }
        image
    }
}

/// Writes an image to `directory`, which holds nothing else of the database afterwards.
pub fn store(image: &Image, directory: &Path) {
    for suffix in ["", "-journal", "-wal", "-shm", "-onewrite"] {
        let _ = std::fs::remove_file(directory.join(format!("db{suffix}")));
    }
    for (name, content) in image {
        content
            .store(&directory.join(name))
            .expect("a file of the image");
    }
}

/// Everything has reached the device.
pub struct Everything;

impl Chance for Everything {
    fn reached(&mut self, _: File, _: usize, _: usize, _: u64) -> bool {
        true
    }

    fn sizes(&mut self, _: File, changes: usize) -> usize {
        changes
    }

    fn name(&mut self, _: File) -> bool {
        true
    }
}

/// Only what must have reached the device has reached it.
pub struct Nothing;

impl Chance for Nothing {
    fn reached(&mut self, _: File, _: usize, _: usize, _: u64) -> bool {
        false
    }

    fn sizes(&mut self, _: File, _: usize) -> usize {
        0
    }

    fn name(&mut self, _: File) -> bool {
        false
    }
}

/// Contents are compared, and a content read from a file has no sectors of zeros.
#[test]
fn what_is_stored_and_read_again_is_the_same() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("file");
    for end in [1, 4, 511, 512, 513, 516, 1024, 1028] {
        let mut content = Content::default();
        let bytes: Vec<u8> = (0..1536).map(|at| u8::from(at % 512 >= 4)).collect();
        content.write(0, &bytes, |_| true);
        content.resize(end);
        content.store(&path).expect("a file");
        assert!(content == Content::read_from(&path), "cut at {end}");
    }
}
