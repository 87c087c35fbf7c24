//! A block device as the kernel uses it: bytes that are read, written, zeroed and flushed.

use std::io;

/// The content of the one file of [`crate::host`]. Several threads call it.
pub trait Medium: Send + Sync + 'static {
    /// Its size in bytes.
    fn bytes(&self) -> u64;

    /// Reads bytes that are within it.
    ///
    /// # Errors
    /// The error for the kernel.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Writes bytes that are within it.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Makes a range read as zeros, after the kernel's discard or zeroing.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn zero(&self, offset: u64, bytes: u64) -> io::Result<()>;

    /// Makes earlier writes durable.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn flush(&self) -> io::Result<()>;
}
