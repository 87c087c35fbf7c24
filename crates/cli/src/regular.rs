//! Opens files that other programs have made: whatever lies at their place, nothing waits for it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a regular file for reading. A named pipe would make a plain `open` wait for a writer.
///
/// # Errors
/// There is no file, it may not be read, or it is something else.
pub fn open_regular(path: impl AsRef<Path>) -> io::Result<File> {
    let path = path.as_ref();
    let no_file = || io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
    // To open a pipe would let its writer go on.
    if !fs::metadata(path)?.is_file() {
        return Err(no_file());
    }
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(no_file()),
    }
}
