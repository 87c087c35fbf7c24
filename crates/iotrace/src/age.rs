//! Ages a scratch file system: fills it with files of mixed sizes and leaves free space in small
//! pieces.
//!
//! Each round fills and deletes. It allocates files of 4 KiB to 252 KiB until one does not fit.
//! Then it deletes random files until the file system is as full as [`KEPT`] says. After the second
//! round, and each later one, it allocates a probe file and counts its extents. With as many
//! extents as [`PIECES`], the file system is old. After [`ROUNDS`] rounds it gives up. All of it
//! follows from a seed, except the decisions of the kernel's allocator.
//!
//! It allocates space and does not write it: the positions of free blocks age a file system. The
//! command's `--aged` calls this before the first run.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use onewrite_common::random::SplitMix64;
use rustix::fs::{FallocateFlags, fallocate, statvfs, syncfs};
use rustix::io::Errno;
use serde::Serialize;

use crate::Error;
use crate::scratch::{FileSystem, find, run};

/// Percent in use after the deletions of each round, and in the end.
pub const KEPT: u64 = 60;

/// Bytes of the file whose extents are counted: as large as a preallocated log.
pub const PROBE_BYTES: u64 = 8 << 20;

/// The fewest extents of that file on a file system that is old enough.
pub const PIECES: u32 = 12;

/// The most rounds.
pub const ROUNDS: u32 = 8;

/// The most files, over all rounds.
const FILES: u32 = 1_000_000;

/// Directories for the files; file systems place directories far from each other.
const DIRECTORIES: u64 = 16;

const BLOCK: u64 = 4096;

/// The steps of the aging, and their result.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Aged {
    /// The seed of sizes and deletions.
    pub seed: u64,
    /// Rounds of filling and deleting.
    pub rounds: u32,
    /// Files made in all.
    pub files_made: u32,
    /// Files that are still there.
    pub files_kept: u32,
    /// Percent of the file system in use.
    pub full_percent: f64,
    /// Extents of a new file of 8 MiB before.
    pub pieces_before: u32,
    /// Extents of such a file after.
    pub pieces: u32,
}

/// Ages the file system mounted at `root`, which is ours and empty. Gives up when `stop` is set.
pub fn age(
    file_system: FileSystem,
    root: &Path,
    seed: u64,
    stop: &AtomicBool,
) -> Result<Aged, Error> {
    if file_system == FileSystem::Xfs {
        take_reserve(root)?;
    }
    let dir = root.join("aged");
    for directory in 0..DIRECTORIES {
        let path = dir.join(directory.to_string());
        fs::create_dir_all(&path).map_err(Error::io("create", &path))?;
    }
    let pieces_before = pieces(root)?;
    let mut ager = Ager::new(root, dir, seed, stop);
    for round in 1..=ROUNDS {
        ager.fill()?;
        ager.delete()?;
        // Measured now: the probe's space comes back later.
        let full_percent = (full(root)? * 10.0).round() / 10.0;
        if round == 1 {
            continue;
        }
        let pieces = pieces(root)?;
        if pieces >= PIECES {
            return Ok(Aged {
                seed,
                rounds: round,
                files_made: ager.made,
                files_kept: u32::try_from(ager.kept.len()).unwrap_or(u32::MAX),
                full_percent,
                pieces_before,
                pieces,
            });
        }
    }
    Err(Error::Unavailable(format!(
        "after {ROUNDS} rounds of ageing a file of 8 MiB is still in fewer than {PIECES} pieces"
    )))
}

struct Ager<'a> {
    root: &'a Path,
    dir: PathBuf,
    stop: &'a AtomicBool,
    random: SplitMix64,
    made: u32,
    /// The numbers of the files that exist.
    kept: Vec<u32>,
}

impl<'a> Ager<'a> {
    fn new(root: &'a Path, dir: PathBuf, seed: u64, stop: &'a AtomicBool) -> Ager<'a> {
        Ager {
            root,
            dir,
            stop,
            random: SplitMix64::new(seed),
            made: 0,
            kept: Vec::new(),
        }
    }

    /// Makes files until one does not fit.
    fn fill(&mut self) -> Result<(), Error> {
        while self.make()? {}
        self.sync()
    }

    /// Makes a file; `false` if there is no room for it.
    fn make(&mut self) -> Result<bool, Error> {
        self.give_up_if_asked()?;
        if self.made >= FILES {
            return Err(Error::Unavailable(format!(
                "{FILES} files do not fill the file system"
            )));
        }
        let blocks = 1 << self.below(6);
        let bytes = (blocks + self.below(blocks)) * BLOCK;
        let path = self.path(self.made);
        let file = match File::create(&path) {
            Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(false),
            file => file.map_err(Error::io("create", &path))?,
        };
        match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => {
                self.kept.push(self.made);
                self.made += 1;
                Ok(true)
            }
            Err(Errno::NOSPC) => {
                fs::remove_file(&path).map_err(Error::io("remove", &path))?;
                Ok(false)
            }
            Err(error) => Err(Error::io("allocate", &path)(error)),
        }
    }

    fn delete(&mut self) -> Result<(), Error> {
        // XFS and Btrfs return space in the background; a sync completes that.
        while !self.kept.is_empty() && full(self.root)? > KEPT as f64 {
            for _ in 0..self.kept.len() / 100 + 1 {
                self.give_up_if_asked()?;
                let place = self.below(self.kept.len() as u64) as usize;
                let number = self.kept.swap_remove(place);
                let path = self.path(number);
                fs::remove_file(&path).map_err(Error::io("remove", &path))?;
            }
            self.sync()?;
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), Error> {
        let root = File::open(self.root).map_err(Error::io("open", self.root))?;
        syncfs(&root).map_err(Error::io("sync", self.root))
    }

    fn path(&self, number: u32) -> PathBuf {
        let directory = u64::from(number) % DIRECTORIES;
        self.dir
            .join(directory.to_string())
            .join(number.to_string())
    }

    fn give_up_if_asked(&self) -> Result<(), Error> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(Error::Interrupted),
            false => Ok(()),
        }
    }

    /// A number from 0 to one less than `below`.
    fn below(&mut self, below: u64) -> u64 {
        self.random.below(below)
    }
}

/// XFS reserves 8,192 blocks, which would stay in one piece. This makes all but a few available.
fn take_reserve(root: &Path) -> Result<(), Error> {
    let program = find("xfs_io").ok_or(Error::Missing {
        program: "xfs_io",
        package: "xfsprogs",
    })?;
    let command = ["-x", "-c", "resblks 256"];
    run(Command::new(program).args(command).arg(root)).map(drop)
}

/// Percent of a file system in use.
fn full(root: &Path) -> Result<f64, Error> {
    let stat = statvfs(root).map_err(Error::io("stat", root))?;
    let used = stat.f_blocks.saturating_sub(stat.f_bavail);
    Ok(used as f64 * 100.0 / (stat.f_blocks.max(1)) as f64)
}

/// Allocates a file of [`PROBE_BYTES`], counts its extents, and removes it.
fn pieces(root: &Path) -> Result<u32, Error> {
    let path = root.join("probe");
    let file = File::create(&path).map_err(Error::io("create", &path))?;
    let allocated = fallocate(&file, FallocateFlags::empty(), 0, PROBE_BYTES)
        .and_then(|()| rustix::fs::fsync(&file));
    let counted = match allocated {
        Ok(()) => count_extents(&path),
        Err(error) => Err(Error::io("allocate", &path)(error)),
    };
    fs::remove_file(&path).map_err(Error::io("remove", &path))?;
    counted
}

/// Counts as `filefrag` does, which comes with `mkfs.ext4`.
fn count_extents(path: &Path) -> Result<u32, Error> {
    let program = find("filefrag").ok_or(Error::Missing {
        program: "filefrag",
        package: "e2fsprogs",
    })?;
    let output = Command::new(program)
        .arg(path)
        .output()
        .map_err(Error::io("count the extents of", path))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    extents_in(&text)
        .ok_or_else(|| Error::Unavailable(format!("filefrag said \"{}\" of a file", text.trim())))
}

/// The figure in a line like `/a/b: 12 extents found`.
fn extents_in(text: &str) -> Option<u32> {
    let (_, after) = text.trim().rsplit_once(": ")?;
    let (number, words) = after.split_once(' ')?;
    words.starts_with("extent").then(|| number.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::{self, Scratch};

    /// A file system of 320 MiB on which `age` ran; no file system of [`FileSystem::ALL`] is
    /// smaller.
    fn aged(file_system: FileSystem, seed: u64) -> Option<Aged> {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: a scratch file system takes root");
            return None;
        }
        if let Some(missing) = file_system.missing() {
            println!("SKIPPED: {missing}");
            return None;
        }
        let never = AtomicBool::new(false);
        let options = scratch::Options {
            file_system,
            bytes: 320 << 20,
            parent: &std::env::temp_dir(),
            stop: &never,
        };
        let scratch = Scratch::create(&options).unwrap();
        let aged = age(file_system, scratch.root(), seed, &never).unwrap();
        let path = scratch.root().join("file");
        fs::write(&path, vec![1; 1 << 20]).unwrap();
        fs::remove_file(&path).unwrap();
        scratch.remove().unwrap();
        Some(aged)
    }

    #[test]
    fn every_file_system_gets_as_old_as_is_said_and_has_room_left() {
        for file_system in FileSystem::ALL {
            let Some(aged) = aged(file_system, 3) else {
                return;
            };
            assert!(aged.pieces >= PIECES, "{file_system:?}: {aged:?}");
            assert!(aged.pieces_before < PIECES / 2, "{file_system:?}: {aged:?}");
            assert!(
                aged.full_percent <= KEPT as f64,
                "{file_system:?}: {aged:?}"
            );
            assert!(aged.full_percent > 40.0, "{file_system:?}: {aged:?}");
            assert!(
                aged.files_made > aged.files_kept,
                "{file_system:?}: {aged:?}"
            );
        }
    }

    /// Bytes of the first hundred files that a seed makes.
    fn bytes_of_files(seed: u64) -> Vec<u64> {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("aged");
        for directory in 0..DIRECTORIES {
            fs::create_dir_all(dir.join(directory.to_string())).unwrap();
        }
        let never = AtomicBool::new(false);
        let mut ager = Ager::new(root.path(), dir, seed, &never);
        let mut bytes = || {
            assert!(ager.make().unwrap());
            let path = ager.path(ager.made - 1);
            fs::metadata(path).unwrap().len()
        };
        (0..100).map(|_| bytes()).collect()
    }

    /// The kernel's allocator ends the rounds, and so decides the total number of files.
    #[test]
    fn the_same_seed_makes_the_same_files() {
        let first = bytes_of_files(7);
        assert_eq!(first, bytes_of_files(7));
        assert_ne!(first, bytes_of_files(8));
        assert!(
            first
                .iter()
                .all(|bytes| (4 << 10..=252 << 10).contains(bytes))
        );
    }

    #[test]
    fn what_filefrag_says_is_understood_and_nothing_else() {
        assert_eq!(extents_in("/a: b/c: 12 extents found\n"), Some(12));
        assert_eq!(extents_in("x: 1 extent found"), Some(1));
        assert_eq!(extents_in("x: FIBMAP unsupported"), None);
        assert_eq!(extents_in(""), None);
    }
}
