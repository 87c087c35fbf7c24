//! Making a database.

use crate::core::Core;
use crate::error::{Error, Result};
use crate::freemap::{FIRST, MAP_AT};
use crate::header::{Header, MAGIC, Marks, is_magic};
use crate::page::{Node, PageType, Stamp, u64_at};
use crate::tree::catalog::DIRECTORY;
use crate::types::{PAGE_SIZE, PageNo};

impl Core {
    /// True if making the database was begun but not finished, so that no transaction ever was. The
    /// second header was never written, and of the first there is at most a torn one.
    pub(crate) fn never_formatted(&mut self) -> Result<bool> {
        let blank = |bytes: &[u8]| bytes.iter().all(|b| *b == 0);
        let first = self.read_image(0)?;
        let second = self.read_image(1)?;
        let directory = self.read_image(DIRECTORY)?;
        // Making it writes nothing after the directory.
        let small = self.file_size()? <= u64::from(DIRECTORY + 1) * PAGE_SIZE as u64;
        let begun = small
            && (is_magic(&first[..]) || blank(&first[..512]))
            && blank(&first[512..PAGE_SIZE - 4])
            && Header::decode(&first, PageNo(0))?.is_none();
        Ok(begun && blank(&second[..]) && u64_at(&directory[..], 32) <= 1)
    }

    pub(crate) fn format(&mut self) -> Result<()> {
        if self.options.read_only {
            return Err(Error::NeedsRecovery);
        }
        let mut salt = [0; 8];
        getrandom::fill(&mut salt).map_err(|e| Error::Io {
            what: "asking for a random number",
            source: std::io::Error::other(e.to_string()),
        })?;
        self.salt = u64::from_le_bytes(salt);
        let directory = Node::new(PageNo(DIRECTORY), PageType::Catalog, None, 0, 0, 1);
        let stamp = Stamp {
            ver: 1,
            from: 1,
            durable: 1,
        };
        let image = directory.encode(self.salt, stamp)?;
        let writing = |e| Error::Io {
            what: "making the database",
            source: e,
        };
        // First the owner of the file: a program that finds only this beginning must recognize it.
        let mut begun = [0; PAGE_SIZE];
        begun[..MAGIC.len()].copy_from_slice(MAGIC);
        self.storage.write_at(0, &begun).map_err(writing)?;
        self.storage
            .write_at(PageNo(DIRECTORY).offset(), &image[..])
            .map_err(writing)?;
        self.flush_storage()?;
        let header = blank_header(self.salt);
        self.storage
            .write_at(0, &header.encode()?[..])
            .map_err(writing)?;
        self.flush_storage()?;
        // The other header's page and the first maps: a full disk must not stop a rollback.
        for page in [1].into_iter().chain(MAP_AT) {
            self.reserve_page(page)?;
        }
        Ok(())
    }
}

/// The header of a new database: version 1, empty.
pub(crate) fn blank_header(salt: u64) -> Header {
    Header {
        salt,
        seq: 1,
        floor: 1,
        settled: 1,
        history: 0,
        history_since: 1,
        history_seconds: 0,
        hwm: FIRST,
        slot_start: 0,
        slot_pages: 0,
        is_newest_format: true,
        region: 1,
        reserved: 0,
        unhealed: 0,
        lost: Default::default(),
        counted: Default::default(),
        marks: Marks::Some(Default::default()),
        maps: Vec::new(),
    }
}
