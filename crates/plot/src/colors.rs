//! The colors of Okabe and Ito, without their yellow, which is hard to see on white. People who see
//! red and green, or blue and yellow, alike can distinguish them.

/// A color: red, green, blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Color(pub u8, pub u8, pub u8);

/// The file system's own journal.
pub const FS_JOURNAL: Color = Color(213, 94, 0);
/// Other metadata of the file system.
pub const FS_METADATA: Color = Color(230, 159, 0);
/// The database file.
pub const DATABASE: Color = Color(0, 114, 178);
/// SQLite's log.
pub const LOG: Color = Color(0, 158, 115);
/// A rollback journal.
pub const ROLLBACK_JOURNAL: Color = Color(204, 121, 167);
/// A wal-index.
pub const WAL_INDEX: Color = Color(86, 180, 233);
/// Other files.
pub const OTHER: Color = Color(153, 153, 153);
/// I/O of unknown purpose.
pub const UNKNOWN: Color = Color(0, 0, 0);

const ALL: [Color; 8] = [
    DATABASE,
    FS_JOURNAL,
    LOG,
    ROLLBACK_JOURNAL,
    FS_METADATA,
    WAL_INDEX,
    OTHER,
    UNKNOWN,
];

/// The color of the `index`th of several things without a fixed color. The colors repeat after
/// eight.
pub fn of(index: usize) -> Color {
    ALL.get(index % ALL.len()).copied().unwrap_or(UNKNOWN)
}
