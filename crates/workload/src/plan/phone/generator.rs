//! The queries of an application, one after the other, each on existing rows.

use super::profile::Profile;
use crate::draws::Draws;

/// The operation of a query; the numbers are positions in [`super::STATEMENTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Insert = 0,
    Update = 1,
    Delete = 2,
    SelectRow = 3,
    SelectMany = 4,
}

/// A query, which determines its values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Query {
    pub(super) file: u8,
    pub(super) table: u8,
    pub(super) kind: Kind,
    pub(super) key: u32,
    /// Distinguishes the updates of a row.
    pub(super) version: u32,
}

/// The existing rows of one table in one file.
#[derive(Clone, Default)]
pub(super) struct Rows {
    pub(super) live: Vec<u32>,
    pub(super) next: u32,
}

impl Rows {
    pub(super) fn add(&mut self) -> u32 {
        let key = self.next + 1;
        self.next = key;
        self.live.push(key);
        key
    }

    /// The position of an existing row, newer ones more often.
    fn pick(&self, draws: &mut Draws) -> Option<usize> {
        let count = u32::try_from(self.live.len()).unwrap_or(u32::MAX);
        let from_the_end = draws.low_below(count) as usize;
        self.live.len().checked_sub(from_the_end + 1)
    }
}

/// Makes the queries, one after the other.
pub(super) struct Generator {
    pub(super) profile: &'static Profile,
    pub(super) draws: Draws,
    /// Of each file.
    pub(super) rows: Vec<[Rows; 3]>,
    /// The number of queries so far.
    pub(super) version: u32,
}

impl Generator {
    fn weighted(&mut self, weights: impl Iterator<Item = u32> + Clone) -> usize {
        let mut left = self.draws.below(weights.clone().sum());
        let mut at = 0;
        for weight in weights {
            if left < weight {
                break;
            }
            left -= weight;
            at += 1;
        }
        at
    }

    pub(super) fn file(&mut self) -> usize {
        let files = self.profile.files;
        self.weighted(files.iter().map(|file| file.share))
    }

    fn table(&mut self, file: usize) -> usize {
        let tables = self.profile.files[file].tables;
        self.weighted(tables.into_iter())
    }

    /// A query of this kind in a file; `None` if there is no row to work on.
    fn query(&mut self, file: usize, kind: Kind) -> Option<Query> {
        let table = self.table(file);
        let rows = &mut self.rows[file][table];
        let key = match kind {
            Kind::Insert => rows.add(),
            Kind::Delete => {
                let place = rows.pick(&mut self.draws)?;
                rows.live.swap_remove(place)
            }
            Kind::Update | Kind::SelectRow | Kind::SelectMany => {
                *rows.live.get(rows.pick(&mut self.draws)?)?
            }
        };
        self.version += 1;
        Some(Query {
            file: file as u8,
            table: table as u8,
            kind,
            key,
            version: self.version,
        })
    }

    pub(super) fn select(&mut self) -> Option<Query> {
        let kind = match self.draws.below(2) {
            0 => Kind::SelectRow,
            _ => Kind::SelectMany,
        };
        let file = self.file();
        self.query(file, kind)
    }

    /// The next write. If no row is left to update or delete, it exchanges places with a later
    /// insert.
    pub(super) fn next_write(
        &mut self,
        file: usize,
        kinds: &mut [u32],
        next: usize,
    ) -> Option<Query> {
        let kind = |number: u32| match number {
            0 => Kind::Insert,
            1 => Kind::Update,
            _ => Kind::Delete,
        };
        if let Some(query) = self.query(file, kind(*kinds.get(next)?)) {
            return Some(query);
        }
        let later = kinds[next..].iter().position(|kind| *kind == 0)?;
        kinds.swap(next, next + later);
        self.query(file, Kind::Insert)
    }
}

/// `part` of `of`, for `count` instead: rounded, and exact where they are equal.
pub(super) fn scaled(part: u32, of: u32, count: u32) -> u32 {
    let scaled = (u64::from(part) * u64::from(count) + u64::from(of) / 2) / u64::from(of.max(1));
    u32::try_from(scaled).unwrap_or(u32::MAX)
}

/// Gives each of `count` at least `least`, and shares out `more` at random.
pub(super) fn share_out(draws: &mut Draws, count: u32, least: u32, more: u32) -> Vec<u32> {
    let mut shares = vec![least; count as usize];
    for _ in 0..more {
        let place = draws.below(count) as usize;
        if let Some(share) = shares.get_mut(place) {
            *share += 1;
        }
    }
    shares
}
