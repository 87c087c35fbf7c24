//! Reading ahead: places of a file that will be read one by one, and that the device can read all at once.
//!
//! These are hints. The reads themselves go through the VFS, and nothing depends on a hint.

use std::io::IoSliceMut;
use std::num::NonZeroU64;
use std::os::fd::BorrowedFd;

use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

const PAGE_SIZE: u64 = ::lsmvbt::PAGE_SIZE as u64;

/// Tells the kernel which ranges will be read, if they do not seem to be in the page cache already. There the
/// hints would take as long as the reads.
pub(super) fn read(file: BorrowedFd<'_>, ranges: &[(u64, u64)]) {
    // A single page is read as soon as it is announced.
    let is_worth_it = ranges.len() > 1 || ranges.iter().any(|(_, length)| *length > PAGE_SIZE);
    if !is_worth_it || seem_cached(file, ranges) {
        return;
    }
    for (offset, length) in ranges {
        let _ = fadvise(file, *offset, NonZeroU64::new(*length), Advice::WillNeed);
    }
}

/// True if the first, the middle and the last of them are.
fn seem_cached(file: BorrowedFd<'_>, ranges: &[(u64, u64)]) -> bool {
    let last = ranges.len() - 1;
    let is_cached = |at: usize| {
        let mut byte = [0];
        let mut buffers = [IoSliceMut::new(&mut byte)];
        // It answers at once. A file system that does not know the flag refuses it.
        let read = preadv2(file, &mut buffers, ranges[at].0, ReadWriteFlags::NOWAIT);
        !matches!(read, Err(Errno::AGAIN | Errno::OPNOTSUPP))
    };
    [last, last / 2, 0].into_iter().all(is_cached)
}
