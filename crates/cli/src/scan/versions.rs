//! The SQLite that a program runs: its version, from the files that the program executes.
//!
//! A library and a static binary both hold `sqlite3_version`, a text such as `3.45.1`, and the source
//! id, which begins with a date. Other texts look like versions too. The source id's date chooses:
//! no version is older than its release.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;

use memchr::memmem;
use serde::Serialize;

use crate::top::databases::{FileId, seen_by};

/// The largest file that is searched, in bytes.
const LARGEST: u64 = 512 << 20;

/// A text of every SQLite that can open a database.
const MAGIC: &[u8] = b"SQLite format 3\0";

/// Digits of the hash in a source id; before 3.21 (2017) it was shorter.
const HASH_DIGITS: usize = 40;

/// The month of the first release of 3.N, from 3.30 on: year and month as one number.
const RELEASES: [(u32, u32); 23] = [
    (30, 201_910),
    (31, 202_001),
    (32, 202_005),
    (33, 202_008),
    (34, 202_012),
    (35, 202_103),
    (36, 202_106),
    (37, 202_111),
    (38, 202_202),
    (39, 202_206),
    (40, 202_211),
    (41, 202_302),
    (42, 202_305),
    (43, 202_308),
    (44, 202_311),
    (45, 202_401),
    (46, 202_405),
    (47, 202_410),
    (48, 202_501),
    (49, 202_502),
    (50, 202_505),
    (51, 202_511),
    (52, 202_603),
];

/// A SQLite in a program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Linked {
    /// The version, such as `3.45.1`; null if the file does not say.
    pub version: Option<String>,
    /// The library or the program that holds it, as the process sees it.
    #[serde(serialize_with = "crate::output::lossy")]
    pub file: PathBuf,
}

/// Searches the files of programs, each file once.
#[derive(Default)]
pub struct Search(HashMap<FileId, Option<Option<String>>>);

impl Search {
    /// Every SQLite that a process has mapped.
    pub fn of(&mut self, pid: u32) -> Vec<Linked> {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let files: BTreeSet<PathBuf> = maps.lines().filter_map(executed).collect();
        let mut found: Vec<Linked> = Vec::new();
        for file in files {
            if let Some(version) = self.of_file(pid, &file) {
                found.push(Linked { version, file });
            }
        }
        found
    }

    fn of_file(&mut self, pid: u32, file: &std::path::Path) -> Option<Option<String>> {
        let here = seen_by(pid, file);
        let id = FileId::of(&here)?;
        self.0.entry(id).or_insert_with(|| search(&here)).clone()
    }
}

/// The file of a mapping that can be executed.
fn executed(line: &str) -> Option<PathBuf> {
    let mut fields = line.split_ascii_whitespace();
    let is_executed = fields.nth(1)?.contains('x');
    let at = line.find('/')?;
    let path = line.get(at..)?;
    (is_executed && !path.ends_with(" (deleted)")).then(|| PathBuf::from(path))
}

/// The version in a file; `None` if it holds no SQLite.
fn search(file: &std::path::Path) -> Option<Option<String>> {
    let meta = fs::metadata(file).ok()?;
    if !meta.is_file() || meta.len() > LARGEST {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(file)
        .ok()?
        .take(LARGEST)
        .read_to_end(&mut bytes)
        .ok()?;
    version_in(&bytes)
}

/// The version in the bytes of a library or a program.
fn version_in(bytes: &[u8]) -> Option<Option<String>> {
    memmem::find(bytes, MAGIC)?;
    let month = source_month(bytes)?;
    let mut candidates: Vec<(u32, u32, String)> = candidates(bytes);
    candidates.retain(|(minor, _, _)| released(*minor) <= month);
    candidates.sort();
    Some(candidates.pop().map(|(_, _, version)| version))
}

/// The month of the first release of 3.N.
fn released(minor: u32) -> u32 {
    let known = RELEASES.iter().rev().find(|(number, _)| *number <= minor);
    match known {
        // Later than every release that is known here.
        Some((number, month)) if *number < minor => month + 1,
        Some((_, month)) => *month,
        None => 0,
    }
}

/// The year and month of the source id: `2024-01-30 16:01:20 e876e51a0ed5c5b3...`.
fn source_month(bytes: &[u8]) -> Option<u32> {
    memmem::find_iter(bytes, b"-").find_map(|at| {
        let text = bytes.get(at.checked_sub(4)?..at + 16 + HASH_DIGITS)?;
        let (date, hash) = text.split_at_checked(20)?;
        let shape = b"dddd-dd-dd dd:dd:dd ";
        let fits = date.iter().zip(shape).all(|(byte, kind)| match kind {
            b'd' => byte.is_ascii_digit(),
            other => byte == other,
        });
        let is_hash = hash.iter().all(u8::is_ascii_hexdigit);
        let digits = std::str::from_utf8(date).ok().filter(|_| fits && is_hash)?;
        let (year, month) = (digits.get(..4)?, digits.get(5..7)?);
        Some(year.parse::<u32>().ok()? * 100 + month.parse::<u32>().ok()?)
    })
}

/// Texts that look like a version of SQLite 3, ended by a zero.
fn candidates(bytes: &[u8]) -> Vec<(u32, u32, String)> {
    let of = |at: usize| {
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        if before.is_some_and(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(byte)) {
            return None;
        }
        let rest = bytes.get(at..(at + 16).min(bytes.len()))?;
        let length = rest.iter().position(|byte| *byte == 0)?;
        let text = std::str::from_utf8(rest.get(..length)?).ok()?;
        let mut parts = text.split('.').map(|part| part.parse::<u32>().ok());
        let (_, minor, patch) = (parts.next()??, parts.next()??, parts.next()??);
        // 3.7.17.1 is a version; 3.7.a is none.
        let is_version = parts.all(|part| part.is_some()) && minor < 100;
        is_version.then(|| (minor, patch, text.to_owned()))
    };
    memmem::find_iter(bytes, b"3.").filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(texts: &[&str]) -> Vec<u8> {
        let mut bytes = b"\x7fELF\0".to_vec();
        for text in texts {
            bytes.extend(text.as_bytes());
            bytes.push(0);
        }
        bytes
    }

    const SOURCE: &str =
        "2024-01-30 16:01:20 e876e51a0ed5c5b3126f52e532044363a014bc594cfefa87ffb5b82257cc467a";

    #[test]
    fn the_version_is_the_one_that_fits_the_source() {
        let magic = "SQLite format 3";
        let texts = [
            magic, "3.11.7", "3.45.1", SOURCE, "3.99.0", "13.45.9", "3.x.1",
        ];
        let found = version_in(&program(&texts));
        assert_eq!(found, Some(Some("3.45.1".to_owned())));
        assert_eq!(version_in(&program(&["3.45.1", SOURCE])), None);
        assert_eq!(version_in(&program(&[magic, "3.45.1"])), None);
        assert_eq!(version_in(&program(&[magic, SOURCE])), Some(None));
    }

    #[test]
    fn a_mapping_that_is_executed_has_a_file() {
        let line = "7f00-7f01 r-xp 00000000 08:01 123    /usr/lib/x86_64/lib sqlite3.so.0";
        assert_eq!(
            executed(line),
            Some(PathBuf::from("/usr/lib/x86_64/lib sqlite3.so.0"))
        );
        assert_eq!(executed(&line.replace("r-xp", "r--p")), None);
        assert_eq!(executed("7f00-7f01 r-xp 00000000 00:00 0 [vdso]"), None);
    }
}
