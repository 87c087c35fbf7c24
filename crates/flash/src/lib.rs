//! Our own block device, which loses power.
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
//! queue    several requests in flight                    latencies  how long each took
//! xftl     transactions of pages
//! ftl      pages that can be written again and again
//! nand     pages that cannot
//! used     a device that was in use
//! ```
//!
//! A history is recorded once and cut any number of times. [`cut::Cutter`] walks along it and makes
//! crash images. [`device::Device::load`] puts them under the same loop device, and the kernel
//! mounts them. The kernel's later requests are recorded too, so that the power may go a second
//! time.
//!
//! `docs/powercut.md` says which parts of this are real and which are modelled. `docs/devices.md`
//! describes the latencies.

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
pub mod latencies;
pub mod latency;
pub mod medium;
mod model;
pub mod nand;
pub mod queue;
pub mod random;
pub mod saved;
pub mod schedule;
pub mod used;
pub mod xftl;

pub use error::Error;
