//! The database's files as bytes, read from a process without a SQLite connection.
//!
//! Opening and closing a second descriptor on a database drops every POSIX lock that the process
//! holds on it. So a process with a connection must not call anything here. Orchestrators call it,
//! and they never open SQLite.

use crate::digest::Digest;
use crate::failure::Failure;
pub use onewrite_common::files::companion;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Header byte 19 of a guarded database.
const GUARD: u8 = 0xA1;

/// The fields of a database's header that the tests read. SQLite's file format document names the
/// offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Byte 19, the read version. 1: rollback journal; 2: write-ahead log; more: stock SQLite
    /// refuses it.
    pub read_version: u8,
    /// Bytes 72 to 79, the log's id while guarded.
    pub log_id: [u8; 8],
}

impl Header {
    /// Whether stock SQLite is locked out.
    pub fn is_guarded(&self) -> bool {
        self.read_version == GUARD
    }
}

/// The header of the database at `path`; none while the file is missing or shorter than a header.
///
/// # Errors
/// Errors of the file system.
pub fn header(path: &Path) -> Result<Option<Header>, Failure> {
    let mut bytes = [0u8; 100];
    match File::open(path).and_then(|file| file.read_exact_at(&mut bytes, 0)) {
        Ok(()) => {}
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::UnexpectedEof) => {
            return Ok(None);
        }
        Err(error) => return Err(Failure::io("read the header of", path, error)),
    }
    let mut log_id = [0u8; 8];
    log_id.copy_from_slice(&bytes[72..80]);
    Ok(Some(Header {
        read_version: bytes[19],
        log_id,
    }))
}

/// Digests of the files that stock SQLite must not change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    database: FileImage,
    log: FileImage,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum FileImage {
    Missing,
    Bytes { length: usize, blocks: Vec<i64> },
}

const BLOCK: usize = 512;

impl FileImage {
    fn take(path: &Path) -> Result<Self, Failure> {
        match std::fs::read(path) {
            Ok(bytes) => {
                let digest = |block: &[u8]| Digest::new(4).bytes(block).wide();
                let blocks = bytes.chunks(BLOCK).map(digest).collect();
                Ok(Self::Bytes {
                    length: bytes.len(),
                    blocks,
                })
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::Missing),
            Err(error) => Err(Failure::io("read", path, error)),
        }
    }

    /// Whether only blocks of zeros were added at the end.
    fn has_grown_by_zeros(&self, after: &Self) -> bool {
        let (Self::Bytes { blocks: was, .. }, Self::Bytes { blocks: is, .. }) = (self, after)
        else {
            return false;
        };
        let zeros = Digest::new(4).bytes(&[0; BLOCK]).wide();
        let behind = is.strip_prefix(was.as_slice());
        behind.is_some_and(|behind| behind.iter().all(|block| *block == zeros))
    }

    fn difference(&self, after: &Self) -> Option<String> {
        match (self, after) {
            (before, after) if before == after => None,
            (Self::Missing, _) => Some("has appeared".to_owned()),
            (_, Self::Missing) => Some("is gone".to_owned()),
            (Self::Bytes { length: was, .. }, Self::Bytes { length: is, .. }) if was != is => {
                Some(format!("had {was} bytes and has {is}"))
            }
            (Self::Bytes { blocks: was, .. }, Self::Bytes { blocks: is, .. }) => {
                let changed = was
                    .iter()
                    .zip(is)
                    .enumerate()
                    .filter(|(_, (was, is))| was != is);
                let offsets: Vec<_> = changed.map(|(block, _)| block * BLOCK).take(8).collect();
                Some(format!("has changed in the 512 bytes at {offsets:?}"))
            }
        }
    }
}

/// The files that must not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watched {
    /// Database and log: none of our processes is at work.
    DatabaseAndLog,
    /// The database: ours may commit, but does not checkpoint.
    Database,
}

impl Image {
    /// Digests of the current files of `database`.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn take(database: &Path) -> Result<Self, Failure> {
        Ok(Self {
            database: FileImage::take(database)?,
            log: FileImage::take(&companion(database, "-onewrite"))?,
        })
    }

    /// The change since `self` was taken. The log may have grown by blocks of zeros, because our
    /// VFS prepares them while its connection is idle.
    pub fn difference(&self, after: &Self, watched: Watched) -> Option<String> {
        let database = self
            .database
            .difference(&after.database)
            .map(|what| format!("the database {what}"));
        let log = self
            .log
            .difference(&after.log)
            .filter(|_| !self.log.has_grown_by_zeros(&after.log))
            .map(|what| format!("the log {what}"));
        database.or(log.filter(|_| watched == Watched::DatabaseAndLog))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_changed_byte_is_seen() {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("db");
        let log = companion(&database, "-onewrite");
        std::fs::write(&database, vec![7u8; 5000]).unwrap();
        std::fs::write(&log, vec![9u8; 5000]).unwrap();
        let before = Image::take(&database).unwrap();
        assert_eq!(
            before.difference(&before.clone(), Watched::DatabaseAndLog),
            None
        );

        let file = File::options().write(true).open(&log).unwrap();
        file.set_len(5120).unwrap();
        let whole = Image::take(&database).unwrap();
        file.set_len(8192).unwrap();
        let grown = Image::take(&database).unwrap();
        assert_eq!(whole.difference(&grown, Watched::DatabaseAndLog), None);
        file.write_all_at(&[1], 8000).unwrap();
        let after = Image::take(&database).unwrap();
        assert!(whole.difference(&after, Watched::DatabaseAndLog).is_some());
        file.write_all_at(&[8], 3000).unwrap();
        let after = Image::take(&database).unwrap();
        assert!(before.difference(&after, Watched::DatabaseAndLog).is_some());
        assert_eq!(before.difference(&after, Watched::Database), None);

        std::fs::remove_file(&log).unwrap();
        assert!(
            before
                .difference(&Image::take(&database).unwrap(), Watched::DatabaseAndLog)
                .is_some()
        );
        std::fs::write(&database, vec![7u8; 5001]).unwrap();
        assert!(
            before
                .difference(&Image::take(&database).unwrap(), Watched::Database)
                .is_some()
        );
    }
}
