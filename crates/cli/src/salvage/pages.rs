//! The pages of a database in the making: a set of them, and frames of a log written over them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use onewrite::log::scan::{Found, OpenedLog, Survey, Verdict, Writers};
use serde::Serialize;

use crate::inspect::judge::Lost;
use crate::inspect::users::Published;
use crate::interrupt;

/// The most ranges in a set. This bounds memory: a log may name pages at random.
const MOST_RANGES: usize = 1 << 22;

/// Frames between two checks whether the user wants to stop.
const BETWEEN_LOOKS: u32 = 1024;

/// A set of page numbers, kept as ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageSet {
    /// First to last.
    ranges: BTreeMap<u32, u32>,
}

impl PageSet {
    /// The pages from 1 to `last`.
    pub fn up_to(last: u32) -> Self {
        let mut set = Self::default();
        if last > 0 {
            set.ranges.insert(1, last);
        }
        set
    }

    /// Adds a page; returns whether it is new.
    ///
    /// # Errors
    /// The pages are too scattered to keep as ranges.
    pub fn insert(&mut self, page: u32) -> io::Result<bool> {
        if self.contains(page) {
            return Ok(false);
        }
        let before = page.checked_sub(1).and_then(|before| {
            let (&first, &last) = self.ranges.range(..=before).next_back()?;
            (last == before).then_some(first)
        });
        let after = page
            .checked_add(1)
            .and_then(|after| self.ranges.remove(&after));
        self.ranges
            .insert(before.unwrap_or(page), after.unwrap_or(page));
        match self.ranges.len() > MOST_RANGES {
            true => Err(io::Error::other("its pages are too scattered")),
            false => Ok(true),
        }
    }

    /// Whether the set has a page.
    pub fn contains(&self, page: u32) -> bool {
        let range = self.ranges.range(..=page).next_back();
        range.is_some_and(|(_, &last)| page <= last)
    }

    /// Removes the pages after `last`.
    pub fn truncate(&mut self, last: u32) {
        if let Some(behind) = last.checked_add(1) {
            self.ranges.split_off(&behind);
        }
        if let Some((_, end)) = self.ranges.range_mut(..=last).next_back() {
            *end = (*end).min(last);
        }
    }

    /// The number of pages.
    pub fn count(&self) -> u64 {
        let lengths = self
            .ranges
            .iter()
            .map(|(first, last)| u64::from(last - first) + 1);
        lengths.sum()
    }

    /// All pages, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ranges.iter().flat_map(|(&first, &last)| first..=last)
    }
}

/// The frames applied from a log.
#[derive(Serialize, Clone, Debug)]
pub struct Applied {
    /// Frames up to the last commit.
    pub frames: u32,
    /// Commits.
    pub transactions: u64,
    /// Size of the database after the last commit.
    pub database_pages: u32,
    /// Whole frames after that, of a transaction that was not committed.
    pub unfinished_frames: u32,
    /// Transactions after a frame that does not follow: nothing proves them.
    pub dropped_transactions: u64,
    /// The last frame that the wal-index names as committed, if the log does not reach it; else null.
    pub published_frame: Option<u32>,
    /// The frame that does not follow, where transactions come after it.
    pub ended_by: Option<EndedBy>,
}

/// A frame that ends a log early.
#[derive(Serialize, Clone, Debug)]
pub struct EndedBy {
    pub frame: u32,
    /// In bytes.
    pub offset: u64,
    pub what: &'static str,
}

/// The result of reading a log.
pub struct Taken {
    /// `None` where nothing is committed in it.
    pub applied: Option<Applied>,
    /// Notes for the reader.
    pub notes: Vec<String>,
    /// The log had more commits.
    pub is_incomplete: bool,
}

impl Taken {
    fn of(survey: &Survey, published: Option<Published>) -> Taken {
        let lost = Lost::of(survey, published);
        let is_cut = |end: &Found| end.verdict == Verdict::CutShort && lost.is_none();
        let cut = survey.end.filter(is_cut);
        // Without a wal-index a log that was cut short looks like one that found no space.
        let may_lack = cut.is_some() && published.is_none();
        let is_incomplete = lost.is_some() || survey.unread.is_some() || may_lack;
        let end = survey.end.filter(|_| is_incomplete);
        let applied = survey.committed.map(|committed| Applied {
            frames: committed.frame.0,
            transactions: survey.transactions,
            database_pages: committed.pages,
            unfinished_frames: survey.valid - committed.frame.0.min(survey.valid),
            dropped_transactions: lost.map_or(0, |lost| lost.transactions),
            published_frame: lost.and_then(|lost| lost.published),
            ended_by: end.map(|end| EndedBy {
                frame: end.frame.0,
                offset: end.offset,
                what: end.verdict.word(),
            }),
        });
        let mut notes: Vec<_> = survey.unread.iter().cloned().collect();
        if let Some(end) = cut {
            let known = match published {
                Some(_) => "no commit is known behind it",
                None => "no wal-index is left that could name a commit behind it",
            };
            notes.push(format!(
                "the log ends inside frame {}, as after a full disk: {known}",
                end.frame
            ));
        }
        if let (None, Some(lost)) = (&applied, lost) {
            notes.push(format!(
                "no transaction of the log is proven: it ends with frame {}{lost}",
                survey.valid
            ));
        }
        Taken {
            applied,
            notes,
            is_incomplete,
        }
    }
}

/// Writes the committed frames of a log over the pages of an image, as a checkpoint would. The
/// image becomes as long as the last commit says. `database` is where an exchange may have moved
/// pages, and `published` the state that its wal-index names.
///
/// # Errors
/// Those of reading and writing; the pages are too scattered; the user wants to stop.
pub fn apply(
    log: &OpenedLog,
    database: Option<&File>,
    published: Option<Published>,
    image: &File,
    present: &mut PageSet,
) -> io::Result<Taken> {
    let survey = Survey::with_database(&log.file, log.geometry, log.wal, Writers::None, database)?;
    let published = published.filter(|published| published.salts == log.wal.salts.0);
    let taken = Taken::of(&survey, published);
    let Some(applied) = &taken.applied else {
        return Ok(taken);
    };
    let page_size = log.wal.page_size.bytes() as u64;
    let mut scan = log.scan(Writers::None, database)?;
    while let Some(found) = scan.next() {
        let found = found?;
        if found.frame.0 > applied.frames || found.verdict != Verdict::Valid {
            break;
        }
        if found.frame.0 % BETWEEN_LOOKS == 0 {
            look_up()?;
        }
        let page = found.header.page.0;
        if page <= applied.database_pages {
            present.insert(page)?;
            image.write_all_at(scan.page(), u64::from(page - 1) * page_size)?;
        }
    }
    image.set_len(u64::from(applied.database_pages) * page_size)?;
    present.truncate(applied.database_pages);
    Ok(taken)
}

/// Whether the user wants to stop, as an error.
pub fn look_up() -> io::Result<()> {
    match interrupt::is_requested() {
        true => Err(io::Error::from(io::ErrorKind::Interrupted)),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_pages_is_what_was_put_into_it() {
        let mut set = PageSet::up_to(3);
        let mut known: std::collections::BTreeSet<u32> = (1..=3).collect();
        for step in 0..4000u32 {
            let page = step.wrapping_mul(2_654_435_761) >> 22;
            assert_eq!(set.insert(page).expect("few ranges"), known.insert(page));
        }
        assert!(set.iter().eq(known.iter().copied()));
        assert_eq!(set.count(), known.len() as u64);
        set.truncate(500);
        known.retain(|&page| page <= 500);
        assert!(set.iter().eq(known.iter().copied()));
        assert!((0..1100).all(|page| set.contains(page) == known.contains(&page)));
        for page in [u32::MAX, u32::MAX - 1, 0] {
            set.insert(page).expect("few ranges");
            assert!(set.contains(page));
        }
        set.truncate(0);
        assert_eq!(set.count(), 1);
    }
}
