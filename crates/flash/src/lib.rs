//! A block device of our own that loses power.
//!
//! ```text
//! kernel   ext4, XFS, Btrfs | loop driver | FUSE
//! host     the FUSE file system with its one file, and the loop device on it
//! device   the write cache as the kernel sees it; everything that arrives is recorded
//! history  the record: writes, flushes, discards and the caller's marks, in one order
//! cut      what is on the medium if the power goes at some point of a history
//! image    the medium: blocks that share memory with other images
//! latency  how long a device takes, from a small file
//! schedule when a device that takes that long answers
//! ```
//!
//! And a flash device, from the cells up (`docs/xftl.md`):
//!
//! ```text
//! files    files whose changes are transactions          disk  a block device of bytes
//! xftl     transactions of pages
//! ftl      pages that can be written again and again
//! nand     pages that cannot
//! ```
//!
//! A history is recorded once and cut as often as wanted: [`cut::Cutter`] walks along it and makes
//! crash images, which [`device::Device::load`] puts under the same loop device for the kernel to
//! mount. What the kernel then does is recorded too, so that the power may go a second time.
//!
//! `docs/powercut.md` says what of this is real and what is modelled, `docs/devices.md` what the
//! latencies are.

pub mod cut;
pub mod device;
pub mod disk;
mod error;
pub mod files;
pub mod ftl;
mod fuse;
pub mod history;
pub mod host;
pub mod image;
pub mod latency;
pub mod medium;
mod model;
pub mod nand;
pub mod random;
pub mod saved;
pub mod schedule;
pub mod xftl;

pub use error::Error;
