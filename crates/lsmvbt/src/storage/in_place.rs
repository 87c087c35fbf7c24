//! File systems that write a page of a file to another place of the device each time.

use std::os::fd::AsFd;

use rustix::fs::fstatfs;

/// Their numbers, as linux/magic.h has them: Btrfs, F2FS, NILFS, and those of bcachefs and ZFS.
const COPYING: [u32; 5] = [0x9123_683e, 0xf2f5_2010, 0x3434, 0xca45_1a4e, 0x2fc1_2fc1];

/// Whether the file's file system writes a page again where it stands. True where it does not say.
pub fn writes_in_place(file: impl AsFd) -> bool {
    fstatfs(file).map_or(true, |about| !COPYING.contains(&(about.f_type as u32)))
}
