//! A file next to the database that a deliberate defect trusts. A commit counts as durable when a
//! write-through write to this file has returned.

use std::fs::{File, OpenOptions};
use std::io::{IoSlice, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use onewrite_torture::failure::Failure;
use rustix::fs::OFlags;
use rustix::io::{ReadWriteFlags, pwritev2};

use super::protocol::{Channel, Note};

const BYTES: usize = 4096;

/// A block aligned as direct I/O requires.
#[repr(align(4096))]
struct Block([u8; BYTES]);

/// See the module.
pub struct Trusted(File);

impl Trusted {
    /// Opens the file in `directory`. If it is missing, creates it first: one block, initialized.
    pub fn open(directory: &Path) -> Result<Self, Failure> {
        let path = directory.join("trusted");
        if !path.exists() {
            let mut file = File::create(&path)?;
            file.write_all(&[1; BYTES])?;
            file.sync_all()?;
        }
        let flags = i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0);
        let file = OpenOptions::new()
            .write(true)
            .custom_flags(flags)
            .open(&path)?;
        Ok(Self(file))
    }

    /// Notes the write in the history, then writes the block through.
    pub fn write_through(&self, channel: &Channel) -> Result<(), Failure> {
        let bytes = BYTES as u64;
        channel.note(Note::WriteThrough { bytes })?;
        let block = Block([2; BYTES]);
        match pwritev2(&self.0, &[IoSlice::new(&block.0)], 0, ReadWriteFlags::DSYNC) {
            Ok(BYTES) => Ok(()),
            Ok(_) => Err(Failure::Harness("a block was written in part".to_owned())),
            Err(error) => Err(std::io::Error::from(error).into()),
        }
    }
}
