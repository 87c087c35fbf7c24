//! Zeros behind the pages by which a commit makes the file longer.
//!
//! A file system journals a file's new size and blocks. On ext4 that is a flush more, and some 24 KiB. So a
//! commit that makes the file longer by few pages also writes zeros behind them, and the next ones are written
//! into blocks that the file has. The same flush covers both.
//!
//! Nothing leads to these pages, and nothing depends on them: the file may end behind its last page, as after a
//! commit that a crash took back. They are written last, where the file ends by then: behind slots that the commit
//! has made, too. So a full disk refuses them first, and an error is none of the commit's.

use rustix::process::{Resource, getrlimit};

use crate::core::Core;
use crate::error::{Error, Result};
use crate::room;
use crate::types::PAGE_SIZE;

/// Pages of zeros at most.
const MOST: u64 = 64;
/// The part of the file that they may be, one in so many pages.
const PART: u64 = 16;
/// A commit that makes the file longer by more pages saves no more than what as many zeros cost: the journal's
/// 24 KiB are six pages.
const FEW: u64 = 6;

/// The pages of zeros behind a file of so many pages that had fewer before.
fn behind(before: u64, end: u64) -> u64 {
    match end.saturating_sub(before) {
        1..=FEW => (end / PART).min(MOST),
        _ => 0,
    }
}

/// The pages that may stand behind so many. A write behind the process's limit on files ends the process, unless
/// that ignores SIGXFSZ.
fn allowed(end: u64) -> u64 {
    let bytes = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
    (bytes / PAGE_SIZE as u64).saturating_sub(end)
}

impl Core {
    /// Bytes of the file.
    pub(crate) fn file_size(&self) -> Result<u64> {
        let size = self.storage.size();
        size.map_err(Error::io("asking for the file's size"))
    }

    /// The pages of the file, the last of which may be cut.
    fn end_of_file(&self) -> Result<u64> {
        Ok(self.file_size()?.div_ceil(PAGE_SIZE as u64))
    }

    /// Notes where the file ends before the transaction writes its new pages.
    pub(crate) fn note_end(&mut self) -> Result<()> {
        if self.storage.writes_in_place() {
            let end = self.end_of_file()?;
            self.txn()?.ended_at = Some(end);
        }
        Ok(())
    }

    /// Writes zeros behind the pages by which the transaction has made the file longer.
    pub(crate) fn write_zeros_behind(&mut self) -> Result<()> {
        let Some(before) = self.txn()?.ended_at.take() else {
            return Ok(());
        };
        let end = self.end_of_file()?;
        let wanted = behind(before, end);
        if wanted > 0
            && let pages @ 1.. = wanted.min(allowed(end))
            && let Ok(zeros) = room::zeros(pages as usize * PAGE_SIZE)
            && self
                .storage
                .write_at(end * PAGE_SIZE as u64, &zeros)
                .is_ok()
        {
            self.stats.zero_pages_written += pages;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_a_part_of_the_file_and_few() {
        assert_eq!(behind(15, 15), 0);
        assert_eq!(behind(16, 15), 0, "into pages that the file has");
        assert_eq!(behind(14, 15), 0, "a small file");
        assert_eq!(behind(31, 32), 2);
        assert_eq!(behind(10_000, 10_006), 64);
        assert_eq!(behind(10_000, 10_007), 0, "many pages at once");
    }
}
