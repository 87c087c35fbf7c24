//! Block traces that tell every device I/O apart.
//!
//! [`device`] reads a block device's own counters, which are exact; [`scratch`] makes a device of our
//! own with a file system on it, so that everything they count was caused by what is measured;
//! [`trace`] records what a device does, I/O by I/O, with the kernel's trace of the block layer and of the
//! file system, and [`summary`] adds it up and holds it against the counters; and [`meter`] tells the
//! bytes that a database causes between two moments apart. Linux only, and most of it needs root.

pub mod age;
mod attribute;
mod btrfs;
mod bytes;
mod collector;
pub mod device;
mod digest;
mod error;
mod events;
mod exchange;
mod ext4;
mod extents;
mod files;
pub mod format;
pub mod io;
mod known;
pub mod meter;
mod mounts;
mod names;
mod requests;
pub mod ring;
pub mod scratch;
pub mod summary;
mod sums;
pub mod trace;
pub mod tracefs;
mod xfs;

pub use error::Error;
