//! The settings of a mode in one directory, if all are `auto`: for `onewrite doctor`.
//!
//! Nothing is decided here. It calls the functions by which the engine decides when it opens a log
//! and when it commits.

use onewrite_common::middle;

use crate::log::Geometry;
use crate::mode::{InitPolicy, JournalMode, Layout, SyncPolicy};
use crate::storage::{Capabilities, DurableWrite, Init};
use crate::wal::{FrameNo, PageSize};

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// How frames lie in the log.
    pub layout: Layout,
    /// How a commit at `synchronous=FULL` becomes durable.
    pub sync: SyncPolicy,
    /// How its write becomes durable.
    pub write: DurableWrite,
    /// How the log's blocks are initialized.
    pub init: Init,
    /// The bytes that the commit of one page writes: the median over frames.
    pub commit_bytes: u64,
    /// Whether `onewrite_group_synch` may be set.
    pub may_defer_durability: bool,
}

impl Plan {
    /// The plan for a new database with pages of `page` bytes.
    ///
    /// # Errors
    /// Why the mode cannot carry such pages there, and what to use instead.
    pub fn of(mode: JournalMode, page: PageSize, found: &Capabilities) -> Result<Plan, String> {
        let layout = mode.usual_layout();
        let directly = found
            .direct
            .as_ref()
            .ok()
            .filter(|_| mode.writes_directly());
        let align = directly.map_or(1, |align| align.offset);
        let geometry = Geometry::new(layout, page, align)?;
        Ok(Plan {
            layout,
            sync: SyncPolicy::Auto.resolved(),
            write: match directly {
                Some(_) => found.durable_write(),
                None => DurableWrite::PageCache,
            },
            init: InitPolicy::Auto.resolved(found)?,
            commit_bytes: usual_bytes(&geometry),
            may_defer_durability: mode.may_defer_durability(),
        })
    }
}

/// Frames of SQLite's own layout cross blocks, each differently.
fn usual_bytes(geometry: &Geometry) -> u64 {
    let unit = geometry.unit();
    let bytes = |frame| {
        let begin = geometry.slot(frame);
        let end = (begin + geometry.slot_bytes()).next_multiple_of(unit);
        end - begin / unit * unit
    };
    let mut all: Vec<u64> = (1..=1000).map(FrameNo).map(bytes).collect();
    all.sort_unstable();
    middle(&all).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_takes_whole_blocks() {
        let page = |bytes| PageSize::new(bytes).expect("a page size");
        let usual = |layout, bytes| {
            let geometry = Geometry::new(layout, page(bytes), 512).expect("512 suits every layout");
            usual_bytes(&geometry)
        };
        assert_eq!(usual(Layout::Embedded, 4096), 4096);
        assert_eq!(usual(Layout::Embedded, 1024), 1024);
        assert_eq!(usual(Layout::Stock, 4096), 8192);
        assert_eq!(usual(Layout::Stock, 512), 4096);
        assert_eq!(usual(Layout::Sector, 4096), 4608);
        assert_eq!(usual(Layout::Page4k, 4096), 8192);
        assert_eq!(usual(Layout::Page8k, 4096), 8192);
    }

    #[test]
    fn the_plan_is_what_a_log_that_is_made_there_is_like() {
        let directory = tempfile::tempdir().expect("a directory");
        let found = Capabilities::of_dir(directory.path()).expect("capabilities");
        for mode in JournalMode::ALL {
            let plan = Plan::of(mode, page_of_4k(), &found).expect("a plan");
            assert_eq!(plan.may_defer_durability, mode.may_defer_durability());
            assert_eq!(plan.init, InitPolicy::Auto.resolved(&found).expect("a way"));
            let buffered = plan.write == DurableWrite::PageCache;
            assert_eq!(buffered, found.direct.is_err() || !mode.writes_directly());
        }
    }

    fn page_of_4k() -> PageSize {
        PageSize::new(4096).expect("a page size")
    }
}
