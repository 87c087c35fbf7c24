//! The pages that a checkpoint brings into the database, and the runs of them that move together.

use std::collections::BTreeMap;

use crate::log::Geometry;
use crate::storage::Move;
use crate::wal::{FrameNo, PageNo};

/// A page whose newest content is in a frame of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Logged {
    /// The page.
    pub page: PageNo,
    /// The last frame that holds it.
    pub frame: FrameNo,
}

/// Adjacent pages that are adjacent in the log too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Their positions in the log and in the database.
    pub place: Move,
    /// Index of the first of them.
    pub first: usize,
    /// Their number.
    pub pages: usize,
}

/// The last frame of each page, in the order of the pages. By the headers of these frames, that is
/// what a checkpoint brings into the database.
pub fn newest(frames: impl Iterator<Item = (FrameNo, PageNo)>) -> Vec<Logged> {
    let mut last = BTreeMap::new();
    for (frame, page) in frames {
        last.insert(page.0, frame);
    }
    let logged = |(page, frame)| Logged {
        page: PageNo(page),
        frame,
    };
    last.into_iter().map(logged).collect()
}

/// Runs of pages, which come in ascending order, as SQLite checkpoints them.
pub fn runs(pages: &[Logged], geometry: &Geometry) -> Vec<Run> {
    let bytes = geometry.page().bytes() as u64;
    let mut runs: Vec<Run> = Vec::new();
    for (i, logged) in pages.iter().enumerate() {
        let log = geometry.page_offset(logged.frame);
        let database = u64::from(logged.page.0.saturating_sub(1)) * bytes;
        match runs.last_mut() {
            Some(run)
                if run.place.log + run.place.bytes == log
                    && run.place.database + run.place.bytes == database =>
            {
                run.place.bytes += bytes;
                run.pages += 1;
            }
            _ => runs.push(Run {
                place: Move {
                    log,
                    database,
                    bytes,
                },
                first: i,
                pages: 1,
            }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mode::Layout;
    use crate::wal::PageSize;

    fn geometry(page: u32) -> Geometry {
        let page = PageSize::new(page).expect("a page size");
        Geometry::new(Layout::Gathered, page, 512).expect("a geometry")
    }

    fn logged(pairs: &[(u32, u32)]) -> Vec<Logged> {
        let logged = |&(page, frame)| Logged {
            page: PageNo(page),
            frame: FrameNo(frame),
        };
        pairs.iter().map(logged).collect()
    }

    #[test]
    fn neighbours_in_both_files_are_one_run() {
        let pages = logged(&[(2, 5), (3, 6), (4, 7), (5, 9), (7, 10), (8, 11)]);
        let runs = runs(&pages, &geometry(4096));
        let found: Vec<_> = runs.iter().map(|run| (run.first, run.pages)).collect();
        assert_eq!(found, [(0, 3), (3, 1), (4, 2)]);
        assert_eq!(runs[0].place.database, 4096);
        assert_eq!(runs[0].place.bytes, 3 * 4096);
        assert_eq!(runs[0].place.log, geometry(4096).page_offset(FrameNo(5)));
    }

    #[test]
    fn a_block_of_headers_ends_a_run() {
        let pages = logged(&[(2, 128), (3, 129)]);
        assert_eq!(runs(&pages, &geometry(8192)).len(), 2);
    }
}
