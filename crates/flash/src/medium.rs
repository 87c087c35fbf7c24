//! What a block device is to the kernel: bytes that are read, written, zeroed and flushed.

use std::io;

/// What is behind the one file of [`crate::host`]. Called by several threads.
pub trait Medium: Send + Sync + 'static {
    /// Its size in bytes.
    fn bytes(&self) -> u64;

    /// Reads bytes that are within it.
    ///
    /// # Errors
    /// What the kernel is to be told.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Writes bytes that are within it.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Makes a range read as zeros: what the kernel discards or zeroes.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn zero(&self, offset: u64, bytes: u64) -> io::Result<()>;

    /// Makes durable what was written.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn flush(&self) -> io::Result<()>;
}
