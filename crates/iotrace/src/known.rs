//! The files that exist when a trace begins, and their sectors.
//!
//! The file system reports a file's sectors (FIEMAP). Tracing is already on by then. The events
//! have every change during the search, and the replay applies them over the results of the search.

use std::collections::HashMap;
use std::fs::{self, File};
use std::ops::Range;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::Error;
use crate::attribute::KnownFile;
use crate::device::SECTOR_BYTES;
use crate::events::Inode;

/// Whether the trace needs the sectors of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sectors {
    /// It does: the file system does not report those of a write to blocks that a file already has.
    Needed,
    /// It does not: the file system reports every write with its place.
    Reported,
}

/// The result of a search.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) files: Vec<KnownFile>,
    /// By their path below the root.
    pub(crate) dirs: HashMap<Inode, String>,
    /// The reason that files may be missing.
    pub(crate) missing: Option<String>,
}

/// A search for files.
pub(crate) struct Search<'a> {
    /// The mount point of the file system.
    pub(crate) root: &'a Path,
    /// The tree of the inodes.
    pub(crate) tree: u64,
    pub(crate) sectors: Sectors,
    /// After this time the search leaves out the rest.
    pub(crate) at_most: Duration,
    /// A directory to begin with.
    pub(crate) first: Option<&'a Path>,
}

impl Search<'_> {
    /// Looks at every file below the root on the same file system, those of `first` before others.
    pub(crate) fn run(&self) -> Result<Found, Error> {
        let meta = fs::metadata(self.root).map_err(Error::io("stat", self.root))?;
        let mut found = Found::default();
        let inode = self.inode(meta.st_ino());
        found.dirs.insert(inode, String::new());
        let begin = Instant::now();
        let mut dirs = vec![self.root.to_owned()];
        dirs.extend(self.first.map(Path::to_owned));
        while let Some(dir) = dirs.pop() {
            if begin.elapsed() > self.at_most {
                let seconds = self.at_most.as_secs();
                found.missing = Some(format!("not all files were looked at within {seconds} s"));
                break;
            }
            self.list(&dir, meta.st_dev(), &mut found, &mut dirs);
        }
        if self.sectors == Sectors::Needed {
            deleted_and_open(meta.st_dev(), &mut found);
        }
        Ok(found)
    }

    /// Adds a directory's files to `found`, and its directories to `dirs`. It leaves out entries
    /// that are gone or unreadable by now. If one of those is written to, its blocks have no owner.
    fn list(&self, dir: &Path, device: u64, found: &mut Found, dirs: &mut Vec<PathBuf>) {
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            Err(error) => {
                found.missing = Some(format!("{}: {error}", dir.display()));
                return;
            }
        };
        for entry in entries.flatten() {
            let (path, Ok(meta)) = (entry.path(), entry.metadata()) else {
                continue;
            };
            let below = path.strip_prefix(self.root).unwrap_or(&path);
            let below = below.to_string_lossy().into_owned();
            let inode = self.inode(meta.st_ino());
            if meta.st_dev() != device {
                continue;
            }
            if meta.is_dir() {
                if found.dirs.insert(inode, below).is_none() {
                    dirs.push(path);
                }
            } else if meta.is_file() {
                let extents = match self.sectors {
                    Sectors::Needed => extents(&path),
                    Sectors::Reported => Ok(Vec::new()),
                };
                found.add(inode, below, extents);
            }
        }
    }

    fn inode(&self, number: u64) -> Inode {
        Inode {
            tree: self.tree,
            number,
        }
    }
}

impl Found {
    fn add(&mut self, inode: Inode, path: String, extents: std::io::Result<Vec<Range<u64>>>) {
        let extents = match extents {
            Ok(extents) => extents,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            Err(error) => {
                self.missing = Some(format!("{path}: {error}"));
                Vec::new()
            }
        };
        self.files.push(KnownFile {
            inode,
            path,
            extents,
        });
    }
}

/// Files that were deleted and that a process still has open. This includes a loop device's image,
/// but the kernel does not report its position.
fn deleted_and_open(device: u64, found: &mut Found) {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes {
        let fds = fs::read_dir(process.path().join("fd"));
        for fd in fds.into_iter().flatten().flatten() {
            let fd = fd.path();
            let Ok(name) = fs::read_link(&fd) else {
                continue;
            };
            let name = name.to_string_lossy();
            let Some(name) = name.strip_suffix(" (deleted)") else {
                continue;
            };
            let on_device = |meta: &fs::Metadata| meta.st_dev() == device && meta.is_file();
            if let Some(meta) = fs::metadata(&fd).ok().filter(on_device) {
                let name = format!("{} (deleted)", name.trim_start_matches('/'));
                found.add(Inode::of(meta.st_ino()), name, extents(&fd));
            }
        }
    }
    let disks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    for disk in disks {
        let Ok(image) = fs::read_to_string(disk.path().join("loop/backing_file")) else {
            continue;
        };
        let Some(image) = image.trim_end().strip_suffix(" (deleted)") else {
            continue;
        };
        let dirs = Path::new(image).ancestors().skip(1);
        let dir = dirs.filter_map(|dir| fs::metadata(dir).ok()).next();
        if dir.is_some_and(|dir| dir.st_dev() == device) {
            found.missing = Some(format!("{image}, a loop device's image, has been deleted"));
        }
    }
}

/// The pieces of a file on the device: its extents that do not continue the one before.
///
/// # Errors
/// The file cannot be opened, or its file system does not say.
pub fn extents_of(path: &Path) -> std::io::Result<usize> {
    let extents = extents(path)?;
    let is_break = |pair: &&[Range<u64>]| matches!(pair, [one, next] if one.end != next.start);
    let breaks = extents.windows(2).filter(is_break).count();
    Ok(breaks + usize::from(!extents.is_empty()))
}

/// Extents that ext4 keeps inside the inode. More are in blocks of their own.
const IN_THE_INODE: usize = 4;

/// The part of a file, of 1, that was written when its extents no longer fitted into the inode of
/// ext4, if it was written from beginning to end. The journal then has one block more.
///
/// A block that is written in the middle of a preallocated extent divides it. So while the fourth
/// extent is written, there are five.
///
/// # Errors
/// The file cannot be opened, or its file system does not say.
pub fn part_past_inode(path: &Path) -> std::io::Result<f64> {
    Ok(part_behind(&extents(path)?, IN_THE_INODE - 1))
}

/// The part behind this many pieces; 0 for a file without content.
fn part_behind(extents: &[Range<u64>], pieces: usize) -> f64 {
    let (mut seen, mut end, mut behind, mut all) = (0, None, 0, 0);
    for extent in extents {
        seen += usize::from(end != Some(extent.start));
        end = Some(extent.end);
        let sectors = extent.end - extent.start;
        all += sectors;
        behind += if seen > pieces { sectors } else { 0 };
    }
    behind as f64 / all.max(1) as f64
}

/// The sectors that a file has, in the order of its content.
///
/// # Errors
/// If it cannot be opened, or its file system does not say.
pub fn extents(path: &Path) -> std::io::Result<Vec<Range<u64>>> {
    use fiemap::FiemapExtentFlags as Flags;
    // Without a position, or inside the inode.
    let nowhere = Flags::UNKNOWN | Flags::DELALLOC | Flags::DATA_INLINE;
    let mut extents = Vec::new();
    for extent in fiemap::Fiemap::new(File::open(path)?) {
        let extent = extent?;
        if !extent.fe_flags.intersects(nowhere) {
            let end = extent.fe_physical.saturating_add(extent.fe_length);
            extents.push(extent.fe_physical / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES));
        }
    }
    Ok(extents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_that_continue_each_other_are_one() {
        let pieces = [0..8, 8..16, 100..108, 200..208, 208..216, 50..58];
        assert_eq!(part_behind(&pieces, 3), 8.0 / 48.0);
        assert_eq!(part_behind(&pieces, 2), 24.0 / 48.0);
        assert_eq!(part_behind(&pieces, 4), 0.0);
        assert_eq!(part_behind(&[], 0), 0.0);
    }
}
