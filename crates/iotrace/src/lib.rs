//! Block traces that classify every device I/O. Linux only; most of it needs root.
//!
//! - [`device`] reads a block device's own counters, which are exact.
//! - [`scratch`] makes our own device with a file system on it, so that the measured program caused
//!   all that the counters count.
//! - [`trace`] records a device's I/Os one by one, with the kernel's trace of the block layer and
//!   of the file system.
//! - [`summary`] adds them up and compares the sums with the counters.
//! - [`live`] gives events of the whole machine while they happen.
//! - [`meter`] classifies the bytes that a database causes between two moments.

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
pub mod live;
mod mapper;
pub mod meter;
mod mounts;
mod names;
pub mod percentiles;
mod requests;
pub mod ring;
pub mod scratch;
pub mod seeks;
pub mod summary;
mod sums;
pub mod times;
pub mod trace;
pub mod tracefs;
mod xfs;

pub use error::Error;
pub use known::{extents as sectors_of, extents_of, part_past_inode};
