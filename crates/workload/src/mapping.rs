//! A shared mapping of our own file, for `bench file`: records are copied in and out, msync makes
//! them durable.
//!
//! This is the only module of this crate with unsafe code. Mapping a file is unsafe because another
//! process may shorten it meanwhile. Memory that is shared with a file may also change under a
//! reference to it.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{Error, ErrorKind, Result};

use memmap2::MmapMut;

/// See the module.
pub(crate) struct Mapping(MmapMut);

impl Mapping {
    /// Maps the whole file, which is open for reading and writing.
    pub(crate) fn of(file: &File) -> Result<Self> {
        // SAFETY: this run made the file in its own directory, and one thread uses it. The file
        // keeps its length until it is removed, and a mapping outlives that unharmed. Only `read`
        // and `write` take references into it, and these end there.
        let mapped = unsafe { MmapMut::map_mut(file) };
        mapped.map(Self)
    }

    /// Copies a record in.
    pub(crate) fn write(&mut self, offset: u64, record: &[u8]) -> Result<()> {
        let range = range(offset, record.len())?;
        let place = self.0.get_mut(range).ok_or_else(outside)?;
        place.copy_from_slice(record);
        Ok(())
    }

    /// Copies a record out.
    pub(crate) fn read(&self, offset: u64, record: &mut [u8]) -> Result<()> {
        let range = range(offset, record.len())?;
        record.copy_from_slice(self.0.get(range).ok_or_else(outside)?);
        Ok(())
    }

    /// msync with MS_ASYNC.
    pub(crate) fn start_sync(&self, offset: u64, length: usize) -> Result<()> {
        let range = range(offset, length)?;
        self.0.flush_async_range(range.start, length)
    }

    /// msync with MS_SYNC.
    pub(crate) fn sync(&self, offset: u64, length: usize) -> Result<()> {
        let range = range(offset, length)?;
        self.0.flush_range(range.start, length)
    }
}

fn range(offset: u64, length: usize) -> Result<std::ops::Range<usize>> {
    let from = usize::try_from(offset).map_err(|_| outside())?;
    let to = from.checked_add(length).ok_or_else(outside)?;
    Ok(from..to)
}

fn outside() -> Error {
    Error::new(ErrorKind::UnexpectedEof, "outside the mapping")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_in_the_file_and_nothing_is_outside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, [7; 8192]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let mut mapping = Mapping::of(&file).unwrap();
        mapping.write(4096, &[1, 2, 3]).unwrap();
        mapping.start_sync(4096, 3).unwrap();
        mapping.sync(4096, 3).unwrap();
        assert_eq!(std::fs::read(&path).unwrap()[4095..4100], [7, 1, 2, 3, 7]);
        let mut record = [0; 4];
        mapping.read(4096, &mut record).unwrap();
        assert_eq!(record, [1, 2, 3, 7]);
        assert!(mapping.read(8190, &mut record).is_err());
        assert!(mapping.write(u64::MAX, &record).is_err());
    }
}
