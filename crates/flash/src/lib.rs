//! A block device of our own that loses power.
//!
//! ```text
//! kernel   ext4, XFS, Btrfs | loop driver | FUSE
//! host     the FUSE file system with its one file, and the loop device on it
//! device   the write cache as the kernel sees it; everything that arrives is recorded
//! history  the record: writes, flushes, discards and the caller's marks, in one order
//! cut      what is on the medium if the power goes at some point of a history
//! image    the medium: blocks that share memory with other images
//! ```
//!
//! A history is recorded once and cut as often as wanted: [`cut::Cutter`] walks along it and makes
//! crash images, which [`device::Device::load`] puts under the same loop device for the kernel to
//! mount. What the kernel then does is recorded too, so that the power may go a second time.
//!
//! `docs/powercut.md` says what of this is real and what is modelled.

pub mod cut;
pub mod device;
mod error;
mod fuse;
pub mod history;
pub mod host;
pub mod image;
pub mod random;
pub mod saved;

pub use error::Error;
