//! The commits that no flush has covered, as far as this handle knows their pages.
//!
//! The record of a commit names all pages since the newest durable version (MV20). A handle that does
//! not know these pages flushes before it writes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Unflushed {
    /// Each page, and the checksum of its newest image.
    pages: BTreeMap<u32, u32>,
    /// The version up to which `pages` is complete; 0: none.
    version: u64,
    /// The page with the newest record; 0: none.
    carrier: u32,
    /// The time of the first commit in `pages`.
    since: Option<Instant>,
}

impl Unflushed {
    pub(crate) fn pages(&self) -> &BTreeMap<u32, u32> {
        &self.pages
    }

    /// The page that the next commit writes last (MV21); 0: none.
    pub(crate) fn carrier(&self) -> u32 {
        self.carrier
    }

    /// True if a record can name all that is not durable of this version.
    pub(crate) fn is_complete_to(&self, version: u64) -> bool {
        self.version == version
    }

    /// True if the first of these commits is so old.
    pub(crate) fn is_older_than(&self, age: Duration) -> bool {
        self.since.is_some_and(|at| at.elapsed() >= age)
    }

    /// A commit without a flush, whose record named these pages and stands in `carrier`.
    pub(crate) fn add(&mut self, version: u64, pages: Vec<(u32, u32)>) {
        self.pages = pages.into_iter().collect();
        self.version = version;
        self.since.get_or_insert_with(Instant::now);
    }

    /// The newest commit has its record here.
    pub(crate) fn set_carrier(&mut self, page: u32) {
        self.carrier = page;
    }

    /// A flush has covered everything up to this version.
    pub(crate) fn flushed_to(&mut self, version: u64) {
        self.pages.clear();
        self.version = version;
        self.since = None;
    }

    /// The newest commits are those of others.
    pub(crate) fn forget(&mut self) {
        self.flushed_to(0);
    }
}
