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
//! block is moved; whether pages are paired. A choice that is not there is the usual one. Then come
//! the NAND ([`crate::nand::Nand::encode`]), its own choices, and a CRC-32C of all that (4).
//!
//! Version 4 lacks the NAND's choices, and version 3 all choices. Version 2 also lacks the place of
//! the map, which goes to one die; version 1 also lacks that of copies, which go to separate blocks.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::{CollectsBy, Config, CopiesGo, FlushWrites, MapGoes, Scrub};
use crate::error::Error;
use crate::nand::Nand;
use crate::nand::saved::{take, word};

const MAGIC: &[u8; 8] = b"onewrtDV";
const VERSION: u32 = 5;
/// More choices in a file are from a newer program.
const CHOICES: usize = 5;

/// Writes a device into a file, whole or not at all.
///
/// # Errors
/// If the file cannot be written.
pub fn save(path: &Path, nand: &Nand, config: &Config) -> Result<(), Error> {
    let mut bytes = MAGIC.to_vec();
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
    let words = words.iter().chain([&(CHOICES as u32)]).chain(&choices);
    words.for_each(|word| bytes.extend(word.to_be_bytes()));
    nand.encode(&mut bytes);
    nand.encode_choices(&mut bytes);
    let crc = crc32c::crc32c(&bytes);
    bytes.extend(crc.to_be_bytes());
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".{}.new", std::process::id()));
    let new = PathBuf::from(new);
    let mut file = File::create_new(&new).map_err(Error::io("create", &new))?;
    let written = file.write_all(&bytes).and_then(|()| file.sync_all());
    let renamed = written.and_then(|()| fs::rename(&new, path));
    if renamed.is_err() {
        // The rest of it is useless.
        let _ = fs::remove_file(&new);
    }
    renamed.map_err(Error::io("write", &new))?;
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    let parent = parent.unwrap_or(Path::new("."));
    File::open(parent)
        .and_then(|directory| directory.sync_all())
        .map_err(Error::io("sync", parent))
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
    [collects, config.cached_entries, percent, reads, pairs]
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
        nand.encode_choices(&mut before);
        loaded.encode_choices(&mut after);
        assert!(before == after && before.len() == 30 + 12 * 48);
        let (mut pairs, mut bytes) = (loaded.clone().with_pairs().unwrap(), Vec::new());
        pairs.encode_choices(&mut bytes);
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
        older.drain(36..44 + 4 * CHOICES);
        version_4[8..12].copy_from_slice(&4_u32.to_be_bytes());
        for older in [&mut older, &mut version_4] {
            let end = older.len() - 4;
            let crc = crc32c::crc32c(&older[..end]).to_be_bytes();
            older[end..].copy_from_slice(&crc);
        }
        assert_eq!(decode(&version_4).unwrap().1, config);
        let (_, older) = decode(&older).unwrap();
        config.map = MapGoes::OneDie;
        config.collects = CollectsBy::Greedy;
        config.cached_entries = 0;
        config.scrub.percent = 0;
        assert_eq!(older, config);
        for at in (0..bytes.len()).step_by(997) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert!(decode(&damaged).is_err(), "byte {at}");
            assert!(decode(&bytes[..at]).is_err(), "{at} bytes");
        }
    }
}
