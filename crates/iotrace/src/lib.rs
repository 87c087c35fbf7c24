//! Block traces that tell every device write apart.
//!
//! [`device`] reads a block device's own counters, which are exact, and [`scratch`] makes a device of
//! our own with a file system on it, so that everything they count was caused by what is measured.
//! Linux only, and most of it needs root.

pub mod device;
mod error;
pub mod meter;
pub mod scratch;

pub use error::Error;
