//! Block traces that tell every device write apart.
//!
//! [`device`] reads a block device's own counters, which are exact; [`scratch`] makes a device of our
//! own with a file system on it, so that everything they count was caused by what is measured; and
//! [`meter`] tells the bytes between two moments apart, by file, with the kernel's trace of the block
//! layer and of the file system. Linux only, and most of it needs root.

pub mod age;
mod attribute;
mod bytes;
mod collector;
pub mod device;
mod error;
mod events;
mod ext4;
mod extents;
pub mod format;
pub mod meter;
pub mod ring;
pub mod scratch;
pub mod tracefs;
mod xfs;

pub use error::Error;
