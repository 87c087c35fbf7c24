//! The pages that a walk over the database has reached: two bits a page.
//!
//! | bits | the page |
//! | --- | --- |
//! | 0 | is not reached |
//! | 1 | is to be visited: a live entry leads to it |
//! | 2 | is to be visited: only dead entries lead to it, as far as the walk knows |
//! | 3 | has been visited |
//!
//! Pages to visit are found in this map. Short lists of the newest ones save most of the search.

use crate::error::Result;
use crate::room;

const PER_WORD: u32 = 32;
/// The lower bit of every page in a word.
const LOWER: u64 = 0x5555_5555_5555_5555;
/// Pages to visit of each kind that are listed. The others are searched for.
const LISTED: usize = 1024;

/// The state of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Nothing leads to it.
    Not,
    /// To be visited: a live entry leads to it.
    Live,
    /// To be visited: only dead entries lead to it.
    Dead,
    Visited,
}

impl Reach {
    fn of_bits(bits: u64) -> Reach {
        match bits & 3 {
            0 => Reach::Not,
            1 => Reach::Live,
            2 => Reach::Dead,
            _ => Reach::Visited,
        }
    }

    fn bits(self) -> u64 {
        match self {
            Reach::Not => 0,
            Reach::Live => 1,
            Reach::Dead => 2,
            Reach::Visited => 3,
        }
    }
}

/// The pages to visit of one kind.
#[derive(Debug, Default)]
struct ToVisit {
    count: usize,
    listed: Vec<u32>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Reached {
    words: Vec<u64>,
    live: ToVisit,
    dead: ToVisit,
    /// The word at which the last search ended.
    searched: usize,
}

impl Reached {
    /// Makes room for so many pages.
    pub(crate) fn cover(&mut self, pages: u32) -> Result<()> {
        let (known, words) = (self.words.len(), pages.div_ceil(PER_WORD) as usize);
        if words > known {
            room::reserve(&mut self.words, words - known)?;
            self.words.resize(words, 0);
        }
        Ok(())
    }

    fn place(page: u32) -> (usize, u32) {
        ((page / PER_WORD) as usize, page % PER_WORD * 2)
    }

    pub(crate) fn of(&self, page: u32) -> Reach {
        let (word, shift) = Reached::place(page);
        Reach::of_bits(self.words.get(word).map_or(0, |word| word >> shift))
    }

    fn list_of(&mut self, reach: Reach) -> Option<&mut ToVisit> {
        match reach {
            Reach::Live => Some(&mut self.live),
            Reach::Dead => Some(&mut self.dead),
            Reach::Not | Reach::Visited => None,
        }
    }

    /// Sets what is known of a page. It must be covered.
    pub(crate) fn set(&mut self, page: u32, reach: Reach) {
        let (at, shift) = Reached::place(page);
        let Some(word) = self.words.get_mut(at) else {
            return;
        };
        let before = Reach::of_bits(*word >> shift);
        *word = *word & !(3 << shift) | reach.bits() << shift;
        if let Some(to_visit) = self.list_of(before) {
            to_visit.count -= 1;
        }
        if let Some(to_visit) = self.list_of(reach) {
            to_visit.count += 1;
            if to_visit.listed.len() < LISTED {
                to_visit.listed.push(page);
            }
        }
    }

    /// An entry leads to a page: it is to be visited, unless it has been.
    pub(crate) fn lead_to(&mut self, page: u32, is_live: bool) {
        match (self.of(page), is_live) {
            (Reach::Not | Reach::Dead, true) => self.set(page, Reach::Live),
            (Reach::Not, false) => self.set(page, Reach::Dead),
            _ => {}
        }
    }

    /// True if no page is to be visited.
    pub(crate) fn is_complete(&self) -> bool {
        self.live.count == 0 && self.dead.count == 0
    }

    /// The next page to visit: one that a live entry leads to, as long as there is one.
    pub(crate) fn next(&mut self) -> Option<(u32, Reach)> {
        let reach = match (self.live.count, self.dead.count) {
            (0, 0) => return None,
            (0, _) => Reach::Dead,
            _ => Reach::Live,
        };
        while let Some(page) = self.list_of(reach).and_then(|list| list.listed.pop()) {
            if self.of(page) == reach {
                return Some((page, reach));
            }
        }
        Some((self.search(reach)?, reach))
    }

    /// Searches the map from the place where the last search ended.
    fn search(&mut self, reach: Reach) -> Option<u32> {
        let (before, after) = (0..self.searched, self.searched..self.words.len());
        for at in after.chain(before) {
            let word = self.words[at];
            let found = match reach {
                Reach::Live => word & !(word >> 1) & LOWER,
                _ => (word >> 1) & !word & LOWER,
            };
            if found != 0 {
                self.searched = at;
                return Some(at as u32 * PER_WORD + found.trailing_zeros() / 2);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(reached: &mut Reached) -> Vec<(u32, Reach)> {
        let mut found = Vec::new();
        while let Some((page, reach)) = reached.next() {
            reached.set(page, Reach::Visited);
            found.push((page, reach));
        }
        found
    }

    #[test]
    fn pages_of_live_entries_come_first_and_each_one_once() {
        let mut reached = Reached::default();
        reached.cover(1000).unwrap();
        for (page, is_live) in [(7, false), (31, true), (32, true), (7, true), (999, false)] {
            reached.lead_to(page, is_live);
            reached.lead_to(page, false);
        }
        assert!(!reached.is_complete());
        let found = all(&mut reached);
        assert_eq!(found[3], (999, Reach::Dead));
        let mut live: Vec<u32> = found[..3].iter().map(|found| found.0).collect();
        live.sort_unstable();
        assert_eq!(live, [7, 31, 32]);
        assert!(found[..3].iter().all(|found| found.1 == Reach::Live));
        reached.lead_to(7, true);
        assert!(reached.is_complete());
        assert_eq!(reached.of(8), Reach::Not);
    }

    #[test]
    fn pages_that_are_not_listed_are_found_as_well() {
        let mut reached = Reached::default();
        let pages = 5 * LISTED as u32;
        reached.cover(pages).unwrap();
        for page in 0..pages {
            reached.lead_to(page, page % 3 == 0);
        }
        let mut found: Vec<u32> = all(&mut reached).into_iter().map(|found| found.0).collect();
        found.sort_unstable();
        assert!(found.into_iter().eq(0..pages));
        // One that was visited, and again is to be.
        reached.set(77, Reach::Live);
        assert_eq!(reached.next(), Some((77, Reach::Live)));
        reached.set(77, Reach::Not);
        assert_eq!(reached.next(), None);
        assert_eq!(reached.of(77), Reach::Not);
    }
}
