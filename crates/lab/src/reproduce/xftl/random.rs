//! fio's random write, as the paper ran it: pages anywhere in a file, with an fsync every few
//! pages.
//!
//! ext4 in its ordered mode journals only metadata; in full data journaling it journals every page
//! twice. Transactional files commit data and metadata in one transaction, which is as consistent
//! as full data journaling. The slides state neither fio's block size nor the size of its file.
//! Here they are pages of the device, in a file of 24 MiB.

use std::os::unix::fs::FileExt;
use std::path::Path;

use onewrite_flash::random::Random;

use super::test_device::{Below, TestDevice};
use super::trial::{Compared, Measured, PAGE};
use onewrite_cli::interrupt;

/// Bytes of the file.
pub const BYTES: u64 = 24 << 20;

/// The systems to compare.
pub const MODES: [Compared; 3] = [
    Compared::new("ext4, ordered", "", Below::Ext4),
    Compared::new("ext4, full data journaling", "", Below::Ext4DataJournal),
    Compared::new("X-FTL", "", Below::Files),
];

/// Writes `count` pages; returns the reports before and after, and the number of pages.
pub fn run(
    device: &mut TestDevice,
    path: &Path,
    every: u32,
    count: u32,
    seed: u64,
) -> Result<Measured, String> {
    let failed = |error: std::io::Error| onewrite_cli::directory::cannot_write(path, &error);
    let file = std::fs::File::options()
        .write(true)
        .open(path)
        .map_err(failed)?;
    let count = count.next_multiple_of(every.max(1));
    let mut random = Random::new(seed);
    let before = device.report()?;
    for written in 1..=count {
        if interrupt::is_requested() {
            return Err("interrupted".to_owned());
        }
        let at = random.below((BYTES / PAGE) as usize) as u64 * PAGE;
        let page = [written as u8; PAGE as usize];
        file.write_all_at(&page, at).map_err(failed)?;
        if written.is_multiple_of(every.max(1)) {
            file.sync_all().map_err(failed)?;
        }
    }
    Ok(Measured {
        before,
        after: device.report()?,
        count,
        checkpoints: None,
    })
}
