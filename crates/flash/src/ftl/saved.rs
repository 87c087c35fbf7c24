//! A device in a file: its configuration and its NAND. Big-endian.
//!
//! It begins with `onewrtDV` (8) and version 5 (4). Seven numbers of 4 bytes each follow: logical
//! pages, entries of the X-L2P table, pages between checkpoints, wear gap, the pages that a flush
//! writes, and the places of copies and of the map. A flush writes 0 nothing, 1 changed pieces of
//! the map, 2 all of them, or 3 a journal. Copies go 0 to separate blocks, or 1 among the host's
//! pages. The map goes 0 to one die, or 1 to all in turn.
//!
//! Then comes the number of further choices (4), and each of them (4): garbage collection is 0
//! greedy, or 1 by cost and benefit; the entries of the map in memory; percent and reads at which a
//! block is moved; whether pages are paired; the blocks that garbage collection makes ahead of need. A
//! choice that is not there is the usual one. Then come the NAND ([`crate::nand::Nand::encode`]), its
//! own choices, and a CRC-32C of all that (4).
//!
//! Version 4 lacks the NAND's choices, and version 3 all choices. Version 2 also lacks the place of
//! the map, which goes to one die; version 1 also lacks that of copies, which go to separate blocks.

use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

use super::{CollectsBy, Config, CopiesGo, FlushWrites, MapGoes, Scrub};
use crate::error::Error;
use crate::nand::Nand;
use crate::nand::saved::{take, word};

const MAGIC: &[u8; 8] = b"onewrtDV";
const VERSION: u32 = 5;
/// More choices in a file are from a newer program.
const CHOICES: usize = 6;

/// Writes a device into a file, whole or not at all. It first writes a new file next to it, so there has
/// to be room for both. Where `path` is a symbolic link, the file behind it is replaced. Mode and owner
/// stay.
///
/// # Errors
/// If the file cannot be written. It is then as it was.
pub fn save(path: &Path, nand: &Nand, config: &Config) -> Result<(), Error> {
    let old = match fs::canonicalize(path) {
        Ok(file) => {
            let metadata = fs::metadata(&file).map_err(Error::io("read", &file))?;
            Some((file, metadata))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(Error::io("find", path)(error)),
    };
    let path = old.as_ref().map_or(path, |(file, _)| file);
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".{}.new", std::process::id()));
    let new = PathBuf::from(new);
    // A process with this number may have been killed here, and have left one.
    let file = File::create(&new).map_err(Error::io("create", &new))?;
    let written = keep_access(&file, old.as_ref().map(|(_, metadata)| metadata))
        .and_then(|()| write(file, nand, config))
        .and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        // The rest of it is useless.
        let _ = fs::remove_file(&new);
    }
    written.map_err(Error::io("write", &new))?;
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    let parent = parent.unwrap_or(Path::new("."));
    File::open(parent)
        .and_then(|directory| directory.sync_all())
        .map_err(Error::io("sync", parent))
}

/// Gives a new file the mode and the owner of the one that it replaces.
fn keep_access(new: &File, old: Option<&Metadata>) -> io::Result<()> {
    let Some(old) = old else { return Ok(()) };
    let is_anothers = (old.uid(), old.gid()) != (new.metadata()?.uid(), new.metadata()?.gid());
    if is_anothers {
        fchown(new, Some(old.uid()), Some(old.gid()))?;
    }
    new.set_permissions(old.permissions())
}

/// Writes a device's bytes, and flushes them.
fn write(file: File, nand: &Nand, config: &Config) -> io::Result<()> {
    let mut out = Summed {
        to: BufWriter::with_capacity(1 << 20, file),
        crc: 0,
    };
    encode(nand, config, &mut out)?;
    let crc = out.crc.to_be_bytes();
    out.to.write_all(&crc)?;
    out.to
        .into_inner()
        .map_err(|error| error.into_error())?
        .sync_all()
}

/// Writes all but the checksum.
fn encode(nand: &Nand, config: &Config, out: &mut impl Write) -> io::Result<()> {
    out.write_all(MAGIC)?;
    let words = [
        VERSION,
        config.logical_pages,
        config.table_capacity,
        config.checkpoint_every,
        config.wear_gap,
        match config.flush {
            FlushWrites::Nothing => 0,
            FlushWrites::Map => 1,
            FlushWrites::WholeMap => 2,
            FlushWrites::Journal => 3,
        },
        match config.copies {
            CopiesGo::Apart => 0,
            CopiesGo::AmongHost => 1,
        },
        match config.map {
            MapGoes::OneDie => 0,
            MapGoes::Striped => 1,
        },
    ];
    let choices = choices(config);
    for word in words.iter().chain([&(CHOICES as u32)]).chain(&choices) {
        out.write_all(&word.to_be_bytes())?;
    }
    nand.encode(out)?;
    nand.encode_choices(out)
}

/// Keeps the CRC-32C of what goes through it.
struct Summed<W> {
    to: W,
    crc: u32,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.crc = crc32c::crc32c_append(self.crc, &bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Reads a device from a file.
///
/// # Errors
/// If the file cannot be read, or is not a device.
pub fn load(path: &Path) -> Result<(Nand, Config), Error> {
    let bytes = fs::read(path).map_err(Error::io("read", path))?;
    decode(&bytes).map_err(|message| Error::Device {
        path: path.to_owned(),
        message,
    })
}

fn decode(bytes: &[u8]) -> Result<(Nand, Config), String> {
    let end = bytes.len().checked_sub(4).ok_or("it ends early")?;
    let (mut content, mut crc) = bytes.split_at(end);
    if take(&mut content, 8)? != MAGIC {
        return Err("it does not begin as one".to_owned());
    }
    if crc32c::crc32c(&bytes[..end]) != word(&mut crc)? {
        return Err("it is damaged".to_owned());
    }
    let version = word(&mut content)?;
    if !(1..=VERSION).contains(&version) {
        return Err(format!(
            "it is of version {version}, and this program knows 1 to {VERSION}"
        ));
    }
    let mut config = Config {
        logical_pages: word(&mut content)?,
        table_capacity: word(&mut content)?,
        checkpoint_every: word(&mut content)?,
        wear_gap: word(&mut content)?,
        flush: match word(&mut content)? {
            0 => FlushWrites::Nothing,
            1 => FlushWrites::Map,
            2 => FlushWrites::WholeMap,
            3 => FlushWrites::Journal,
            other => return Err(format!("a flush that writes {other} is not known")),
        },
        copies: match (version > 1).then(|| word(&mut content)).transpose()? {
            None | Some(0) => CopiesGo::Apart,
            Some(1) => CopiesGo::AmongHost,
            Some(other) => return Err(format!("copies that go to {other} are not known")),
        },
        map: match (version > 2).then(|| word(&mut content)).transpose()? {
            None | Some(0) => MapGoes::OneDie,
            Some(1) => MapGoes::Striped,
            Some(other) => return Err(format!("a map that goes to {other} is not known")),
        },
        ..Config::new(0)
    };
    if version > 3 {
        let count = word(&mut content)?;
        choose(&mut config, count, &mut content)?;
    }
    let mut nand = Nand::decode(&mut content)?;
    if version > 4 {
        nand.decode_choices(&mut content)?;
    }
    match content.is_empty() {
        true => Ok((nand, config)),
        false => Err(format!("{} bytes too many", content.len())),
    }
}

/// The choices that came after version 3.
fn choices(config: &Config) -> [u32; CHOICES] {
    let collects = match config.collects {
        CollectsBy::Greedy => 0,
        CollectsBy::CostBenefit => 1,
    };
    let Scrub { percent, reads } = config.scrub;
    let pairs = u32::from(config.pairs);
    [
        collects,
        config.cached_entries,
        percent,
        reads,
        pairs,
        config.gc_ahead,
    ]
}

/// Takes `count` of them.
fn choose(config: &mut Config, count: u32, bytes: &mut &[u8]) -> Result<(), String> {
    for number in 0..count {
        match (number, word(bytes)?) {
            (0, 0) => config.collects = CollectsBy::Greedy,
            (0, 1) => config.collects = CollectsBy::CostBenefit,
            (1, entries) => config.cached_entries = entries,
            (2, percent) => config.scrub.percent = percent,
            (3, reads) => config.scrub.reads = reads,
            (4, pairs @ (0 | 1)) => config.pairs = pairs == 1,
            (5, blocks) => config.gc_ahead = blocks,
            (number, value) => {
                return Err(format!("choice {number} is {value}, which is not known"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ftl::{Ftl, Lpn};
    use crate::nand::timing::Timing;
    use crate::nand::{BitErrors, BlockNo, Geometry};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_device_that_was_saved_is_loaded_and_no_byte_may_differ() {
        let geometry = Geometry {
            page_bytes: 128,
            pages_per_block: 8,
            ..Geometry::openssd(48)
        };
        let mut config = Config::new(40);
        config.table_capacity = 2;
        config.map = MapGoes::Striped;
        config.collects = CollectsBy::CostBenefit;
        config.cached_entries = 20;
        config.scrub.percent = 50;
        config.gc_ahead = 0;
        let nand = Nand::new(geometry, Timing::built_in("tlc").unwrap()).unwrap();
        let nand = nand.with_bit_errors(BitErrors {
            corrects: 40,
            per_erase: 1.0,
            per_read: 1_000.0,
            per_day: 2.0,
        });
        let (mut ftl, _) = Ftl::open(nand, config).unwrap();
        for number in 0..200 {
            ftl.write(Lpn(number % 40), &[number as u8; 128]).unwrap();
        }
        ftl.flush().unwrap();
        let mut nand = ftl.into_nand();
        nand.mark_bad(BlockNo(47)).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.device");
        save(&path, &nand, &config).unwrap();
        let (loaded, loaded_config) = load(&path).unwrap();
        assert_eq!(loaded_config, config);
        assert_eq!(loaded.operations(), nand.operations());
        assert!(loaded.is_bad(BlockNo(47)));
        let (mut before, mut after) = (Vec::new(), Vec::new());
        nand.encode_choices(&mut before).unwrap();
        loaded.encode_choices(&mut after).unwrap();
        assert!(before == after && before.len() == 30 + 12 * 48);
        let (mut pairs, mut bytes) = (loaded.clone().with_pairs().unwrap(), Vec::new());
        pairs.encode_choices(&mut bytes).unwrap();
        pairs = loaded.clone();
        pairs.decode_choices(&mut &bytes[..]).unwrap();
        assert!(pairs.has_pairs() && !loaded.has_pairs());
        let (mut ftl, _) = Ftl::open(loaded, config).unwrap();
        for number in 160..200 {
            assert_eq!(*ftl.read(Lpn(number % 40)).unwrap(), [number as u8; 128]);
        }
        let bytes = fs::read(&path).unwrap();
        // Version 2 does not say where the map goes.
        let mut older = bytes.clone();
        older[8..12].copy_from_slice(&2_u32.to_be_bytes());
        older.drain(older.len() - 4 - before.len()..older.len() - 4);
        let mut version_4 = older.clone();
        // Files of before 2026-11-28 do not say how much room is made ahead.
        let mut five = bytes.clone();
        five[40..44].copy_from_slice(&5_u32.to_be_bytes());
        five.drain(64..68);
        older.drain(36..44 + 4 * CHOICES);
        version_4[8..12].copy_from_slice(&4_u32.to_be_bytes());
        for older in [&mut older, &mut version_4, &mut five] {
            let end = older.len() - 4;
            let crc = crc32c::crc32c(&older[..end]).to_be_bytes();
            older[end..].copy_from_slice(&crc);
        }
        assert_eq!(decode(&version_4).unwrap().1, config);
        let usual = Config {
            gc_ahead: Config::GC_AHEAD,
            ..config
        };
        assert_eq!(decode(&five).unwrap().1, usual);
        let (_, older) = decode(&older).unwrap();
        config.map = MapGoes::OneDie;
        config.collects = CollectsBy::Greedy;
        config.cached_entries = 0;
        config.scrub.percent = 0;
        config.gc_ahead = Config::GC_AHEAD;
        assert_eq!(older, config);
        for at in (0..bytes.len()).step_by(997) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert!(decode(&damaged).is_err(), "byte {at}");
            assert!(decode(&bytes[..at]).is_err(), "{at} bytes");
        }
    }

    #[test]
    fn a_link_stays_a_link_and_the_file_behind_it_keeps_its_mode() {
        let (nand, config) = small();
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        save(&real, &nand, &config).unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let before = fs::metadata(&real).unwrap().ino();
        // One that was killed had the same number.
        let left = dir.path().join(format!("real.{}.new", std::process::id()));
        fs::write(&left, "the beginning of one").unwrap();
        save(&link, &nand, &config).unwrap();
        let after = fs::metadata(&real).unwrap();
        assert_ne!(after.ino(), before, "it was written");
        assert_eq!(after.mode() & 0o777, 0o600);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(!left.exists());
        load(&link).unwrap();
    }

    #[test]
    fn a_save_that_fails_leaves_the_file_as_it_was() {
        let (nand, config) = small();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.device");
        save(&path, &nand, &config).unwrap();
        let before = fs::read(&path).unwrap();
        // The new file would have this name.
        let new = dir
            .path()
            .join(format!("a.device.{}.new", std::process::id()));
        fs::create_dir(&new).unwrap();
        assert!(save(&path, &nand, &config).is_err());
        assert!(before == fs::read(&path).unwrap());
    }

    fn small() -> (Nand, Config) {
        let geometry = Geometry {
            page_bytes: 128,
            pages_per_block: 8,
            ..Geometry::openssd(48)
        };
        let nand = Nand::new(geometry, Timing::built_in("tlc").unwrap()).unwrap();
        (nand, Config::new(40))
    }
}
