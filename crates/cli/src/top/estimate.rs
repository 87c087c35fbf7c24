//! Estimates the cost of a commit in `onewrite` and in `direct` from the counts.
//!
//! A commit of either is one write into blocks that exist already, so the file system journals
//! nothing. Both keep what checkpoints write to the database.

use serde::Serialize;

/// Bytes of a block.
const BLOCK: f64 = 4096.0;

/// Bytes of a frame's header in SQLite's own log.
const FRAME_HEADER: f64 = 24.0;

/// Bytes of a changed page in a log of `onewrite`, compressed as a difference: docs/design.md has
/// 4,256 to 4,575 bytes for commits of 3.1 to 3.7 pages.
const COMPRESSED_PAGE: f64 = 1250.0;

/// The cost of a commit in one mode.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// Bytes to the device, with the share of checkpoints.
    pub bytes_per_commit: f64,
    /// Flushes of the device's cache.
    pub flushes_per_commit: f64,
    /// Bytes a day at the present rate of commits.
    pub bytes_per_day: f64,
}

/// The costs in the modes of onewrite.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// In `onewrite`.
    pub onewrite: Cost,
    /// In `direct`.
    pub direct: Cost,
}

/// The facts that the estimate comes from.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Pages that a commit changes.
    pub pages: f64,
    /// Bytes of a page.
    pub page_size: f64,
    /// Bytes of the database file, for each commit.
    pub database_bytes: f64,
    /// Commits a second.
    pub commits_per_s: f64,
    /// Whether the device makes one write durable by itself.
    pub has_fua: bool,
}

impl Estimate {
    /// The estimate.
    pub fn of(facts: &Facts) -> Self {
        let cost = |log_bytes: f64| {
            let bytes_per_commit = log_bytes + facts.database_bytes;
            Cost {
                bytes_per_commit,
                flushes_per_commit: if facts.has_fua { 0.0 } else { 1.0 },
                bytes_per_day: bytes_per_commit * facts.commits_per_s * super::report::DAY_S,
            }
        };
        // A commit ends in the middle of a block, which the next one writes again.
        let stock = facts.pages * (facts.page_size + FRAME_HEADER) + BLOCK;
        let share = facts.page_size / BLOCK;
        let packed = (facts.pages * COMPRESSED_PAGE * share.max(1.0)).max(BLOCK);
        Self {
            onewrite: cost(packed),
            direct: cost(stock),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_page_is_one_block_in_onewrite_and_two_in_direct() {
        let estimate = Estimate::of(&Facts {
            pages: 1.0,
            page_size: 4096.0,
            database_bytes: 0.0,
            commits_per_s: 10.0,
            has_fua: false,
        });
        assert_eq!(estimate.onewrite.bytes_per_commit, 4096.0);
        assert_eq!((estimate.direct.bytes_per_commit / BLOCK).round(), 2.0);
        assert_eq!(estimate.onewrite.bytes_per_day, 4096.0 * 864_000.0);
        assert_eq!(estimate.onewrite.flushes_per_commit, 1.0);
    }
}
