//! Files that users give for a database: whether they are one, and what to give instead.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use onewrite_common::files::{self, COMPANIONS};

use crate::inspect::DatabaseHeader;

/// The way out for a database without bytes.
pub const EMPTY: &str = "the database is empty: it has 0 bytes, which to SQLite is a stock database without tables. If \
                         it held tables, they are gone: restore a backup";

/// Why a file that the user gave cannot be read, and what to do.
pub fn why_unread(file: &Path, error: &io::Error) -> String {
    let is_uri = file.as_os_str().as_bytes().starts_with(b"file:");
    match error.kind() {
        io::ErrorKind::PermissionDenied => "no permission to read it, or the log next to it: run \
                                            this as the owner of the database"
            .to_owned(),
        io::ErrorKind::NotFound if is_uri => format!(
            "{}. A URI is for SQLite: give the path in it",
            files::why_unread(error, EXPECTED)
        ),
        _ => files::why_unread(error, EXPECTED),
    }
}

const EXPECTED: &str = "a database, or a log next to one";

/// Why the file that begins with `head` is not a database, and what to give to `command`; `None` if it is
/// one, or empty. Its path is `path`, without links.
pub fn no_database(path: &Path, head: &[u8], command: &str) -> Option<String> {
    if head.is_empty() || DatabaseHeader::parse(head).is_some() {
        return None;
    }
    let begins = || {
        let begin = beginning(head);
        format!("not a database of SQLite: it begins with {begin}. Give a database")
    };
    Some(companion(path, command).unwrap_or_else(begins))
}

/// What to give to `command` in place of a file that by its name lies next to a database.
pub fn companion(path: &Path, command: &str) -> Option<String> {
    let database = database_of(path)?;
    let what = match database.is_file() {
        true => format!(
            "give that: onewrite {command} {}",
            quoted(&database.display().to_string())
        ),
        false => {
            "which is not there. \"onewrite inspect\" shows a log without its database".to_owned()
        }
    };
    Some(format!(
        "not a database, but a file of {}: {what}",
        database.display()
    ))
}

/// The database that a file belongs to by its name, if that is there.
pub fn owner(path: &Path) -> Option<PathBuf> {
    database_of(path).filter(|database| database.is_file())
}

/// The database that a file belongs to by its name, if the name is that of a companion.
fn database_of(path: &Path) -> Option<PathBuf> {
    let name = path.as_os_str().as_bytes();
    let mut suffixes = COMPANIONS.iter().rev();
    let base = suffixes.find_map(|suffix| name.strip_suffix(suffix.as_bytes()))?;
    Some(PathBuf::from(OsStr::from_bytes(base)))
}

/// The first bytes of a file: as a text where they are one, else as hexadecimal digits.
pub fn beginning(head: &[u8]) -> String {
    let bytes = &head[..head.len().min(16)];
    let is_text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.iter().all(is_text) => format!("{text:?}"),
        _ => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

/// A word for a shell.
pub fn quoted(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%".contains(c);
    let name = match name.starts_with('-') {
        true => format!("./{name}"),
        false => name.to_owned(),
    };
    match !name.is_empty() && name.chars().all(is_plain) {
        true => name,
        false => format!("'{}'", name.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_word_of_a_shell() {
        for (name, word) in [
            ("app.db", "app.db"),
            ("/a b/it's.db", r"'/a b/it'\''s.db'"),
            ("-rf", "./-rf"),
            ("- f", "'./- f'"),
            ("", "''"),
            ("ä.db", "'ä.db'"),
        ] {
            assert_eq!(quoted(name), word);
        }
    }

    #[test]
    fn a_companion_names_its_database() {
        for (name, base) in [
            ("/a/x.db-onewrite-shm", Some("/a/x.db")),
            ("/a/x.db-shm", Some("/a/x.db")),
            ("/a/x.db", None),
        ] {
            assert_eq!(database_of(Path::new(name)), base.map(PathBuf::from));
        }
    }
}
