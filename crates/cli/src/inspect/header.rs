//! The fields of a database's header that onewrite uses.

use std::io::Read;
use std::path::Path;

use crate::regular::open_regular;
use onewrite::log::LogId;
use onewrite::wal::PageSize;
use onewrite::{DATABASE_HEADER_BYTES, guarded_by};

/// The fields of a database's header that onewrite uses.
pub struct DatabaseHeader {
    /// Bytes of a page; `None` where the header has an impossible number.
    pub page_size: Option<PageSize>,
    /// Byte 18.
    pub write_version: u8,
    /// Byte 19: the guard.
    pub read_version: u8,
    /// Reserved at the end of every page.
    pub reserved_bytes: u8,
    /// Changes with every transaction in a rollback mode, and with the guard.
    pub change_counter: u32,
    /// Size of the database, in pages.
    pub pages: u32,
    /// The change counter that the page count is valid for.
    pub version_valid_for: u32,
    /// The log that the database is guarded for.
    pub guard: Option<LogId>,
}

impl DatabaseHeader {
    /// `None` where the file cannot be read, or is no database.
    pub fn read(path: &Path) -> Option<DatabaseHeader> {
        let mut head = Vec::new();
        let file = open_regular(path).ok()?;
        file.take(DATABASE_HEADER_BYTES as u64)
            .read_to_end(&mut head)
            .ok()?;
        Self::parse(&head)
    }

    /// `None` where `head` is not a database's header.
    pub fn parse(head: &[u8]) -> Option<DatabaseHeader> {
        let head: &[u8; DATABASE_HEADER_BYTES] = head.first_chunk()?;
        let word = |at: usize| {
            head[at..]
                .first_chunk()
                .map_or(0, |w| u32::from_be_bytes(*w))
        };
        head.starts_with(b"SQLite format 3\0")
            .then(|| DatabaseHeader {
                page_size: PageSize::from_database_header([head[16], head[17]]),
                write_version: head[18],
                read_version: head[19],
                reserved_bytes: head[20],
                change_counter: word(24),
                pages: word(28),
                version_valid_for: word(92),
                guard: guarded_by(head),
            })
    }
}
