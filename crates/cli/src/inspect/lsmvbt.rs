//! Databases of LS-MVBT, the other B-tree engine of `crates/lsmvbt-sqlite`. The commands recognize
//! them, and leave them to the SQLite that has the engine.

/// Such a file begins with this, the digit of its format, and a zero byte.
const BEGIN: &[u8] = b"LSMVBT format ";
/// Bytes that show what it is.
pub const HEAD_BYTES: u64 = 16;

/// What a file is that begins with `head`, and the program for it; `None` if it is not one of
/// LS-MVBT.
pub fn refusal(head: &[u8]) -> Option<String> {
    let format = format(head)?;
    Some(format!(
        "a database of LS-MVBT (format {format}): only the SQLite with that engine reads it, and this \
         command does not. In the shell of that SQLite, PRAGMA integrity_check checks it and .backup \
         makes a stock copy: see docs/lsmvbt-sqlite.md"
    ))
}

/// Whether a file that begins with `head` is one.
pub fn is_one(head: &[u8]) -> bool {
    format(head).is_some()
}

fn format(head: &[u8]) -> Option<char> {
    match head.strip_prefix(BEGIN)? {
        [digit @ b'1'..=b'9', 0, ..] => Some(char::from(*digit)),
        _ => None,
    }
}
