//! The names of a log that is set aside, and of the files next to a log.
//!
//! A file system has a longest name, usually of 255 bytes. A database whose name is near that has
//! no room for the longest of the names after it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// The suffix of a log: its name is the name of the database and this.
const LOG_SUFFIX: &[u8] = b"-onewrite";
/// The suffix of a log that was set aside; an id of 16 digits follows it.
const ORPHAN_SUFFIX: &[u8] = b"-onewrite-orphan-";
/// The longest name of a file, in bytes, where the file system does not say.
const USUAL_LONGEST: usize = 255;
/// Bytes of an id, and of a number after it that makes the name unique.
const ID_AND_NUMBER: usize = 16 + 5;

/// The longest name of a file in the directory of this path, in bytes.
#[must_use]
pub fn longest_name(path: &Path) -> usize {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    match rustix::fs::statvfs(directory) {
        Ok(found) if found.f_namemax > 0 => {
            usize::try_from(found.f_namemax).unwrap_or(USUAL_LONGEST)
        }
        _ => USUAL_LONGEST,
    }
}

/// The name, up to the id, of the logs that were set aside from a database of this name. Where the
/// file system has no room for it, the database's name is cut, and its checksum follows.
#[must_use]
pub fn orphan_prefix(database: &OsStr, longest: usize) -> OsString {
    let name = database.as_bytes();
    let room = longest.saturating_sub(ORPHAN_SUFFIX.len() + ID_AND_NUMBER);
    if name.len() <= room {
        return OsString::from_vec([name, ORPHAN_SUFFIX].concat());
    }
    let sum = format!("~{:08x}", crc32c::crc32c(name));
    let mut cut = room.saturating_sub(sum.len()).min(name.len());
    // Not within a character of UTF-8.
    while cut > 0 && name[cut] & 0xc0 == 0x80 {
        cut -= 1;
    }
    OsString::from_vec([&name[..cut], sum.as_bytes(), ORPHAN_SUFFIX].concat())
}

/// The same, from the name of the database's log.
#[must_use]
pub fn orphan_prefix_of_log(log: &OsStr, longest: usize) -> OsString {
    let name = log.as_bytes();
    let database = name.strip_suffix(LOG_SUFFIX).unwrap_or(name);
    orphan_prefix(OsStr::from_bytes(database), longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_an_id_and_a_number_always_fits_and_names_one_database() {
        for len in 1..=247 {
            let name = "n".repeat(len);
            let prefix = orphan_prefix(name.as_ref(), 255);
            assert!(prefix.len() + ID_AND_NUMBER <= 255, "{len}");
            let as_is = prefix.as_bytes().starts_with(name.as_bytes());
            assert_eq!(as_is, len <= 217, "{len}");
            let of_log = orphan_prefix_of_log(format!("{name}-onewrite").as_ref(), 255);
            assert_eq!(of_log, prefix);
        }
        let [one, other] = ["a", "b"].map(|end| "n".repeat(230) + end);
        let [one, other] = [&one, &other].map(|name| orphan_prefix(name.as_ref(), 255));
        assert_ne!(one, other);
        let wide = orphan_prefix("\u{fc}".repeat(120).as_ref(), 255);
        assert!(wide.to_str().is_some());
    }
}
