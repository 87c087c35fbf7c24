//! The connections of one worker: one to each database file of a plan.
//!
//! Most plans have one file. Phone applications have up to twenty, each with its own log, and a
//! transaction works in one of them.

use std::path::{Path, PathBuf};

use rusqlite::Connection;

use crate::Error;
use crate::connection::{self, Checkpoint, Settings};

/// See the module. There is at least one.
#[derive(Debug)]
pub struct Databases {
    first: Connection,
    others: Vec<Connection>,
}

/// The files of a plan with `count` files, the first at `path`. The others are next to it, with a
/// full stop and their number, from 2.
pub fn paths(path: &Path, count: usize) -> impl Iterator<Item = PathBuf> {
    let others = (2..=count).map(|number| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    });
    std::iter::once(path.to_owned()).chain(others)
}

impl Databases {
    /// Opens all `count` files; the first is at `path`.
    pub fn open(settings: &Settings, path: &Path, count: usize) -> Result<Self, Error> {
        Self::open_with(path, count, |path| settings.open(path))
    }

    /// Opens them as any other program would: stock SQLite with default settings.
    pub fn open_stock(path: &Path, count: usize) -> Result<Self, Error> {
        Self::open_with(path, count, connection::open_stock)
    }

    /// Opens `count` files in memory, each empty.
    pub(crate) fn in_memory(count: usize) -> Result<Self, Error> {
        Self::open_with(Path::new(""), count, |_| {
            Connection::open_in_memory().map_err(Error::sqlite("open a database in memory"))
        })
    }

    fn open_with(
        path: &Path,
        count: usize,
        mut open: impl FnMut(&Path) -> Result<Connection, Error>,
    ) -> Result<Self, Error> {
        let first = open(path)?;
        let others = paths(path, count).skip(1).map(|path| open(&path));
        Ok(Self {
            first,
            others: others.collect::<Result<_, _>>()?,
        })
    }

    /// The first.
    pub fn first(&self) -> &Connection {
        &self.first
    }

    /// The first.
    pub(crate) fn first_mut(&mut self) -> &mut Connection {
        &mut self.first
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Connection> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// All of them.
    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut Connection> {
        std::iter::once(&mut self.first).chain(&mut self.others)
    }

    /// The one with this number, from 0; the first if there is none.
    pub(crate) fn number(&self, number: usize) -> &Connection {
        let other = number.checked_sub(1);
        other
            .and_then(|other| self.others.get(other))
            .unwrap_or(&self.first)
    }

    /// Sets `PRAGMA cache_size` of every connection, in KiB.
    pub fn set_cache_kib(&self, kib: u32) -> Result<(), Error> {
        self.all().try_for_each(|one| {
            one.pragma_update(None, "cache_size", -i64::from(kib))
                .map_err(Error::sqlite("PRAGMA cache_size"))
        })
    }

    /// Sizes of the first database and of its connection's cache, both in KiB.
    pub fn kib(&self) -> Result<(u64, u64), Error> {
        let figure = |name: &str| -> Result<i64, Error> {
            self.first
                .pragma_query_value(None, name, |row| row.get(0))
                .map_err(Error::sqlite(format!("PRAGMA {name}")))
        };
        let page = figure("page_size")?;
        let cache = match figure("cache_size")? {
            kib if kib < 0 => -kib,
            pages => pages * page / 1024,
        };
        let database = figure("page_count")? * page / 1024;
        let positive = |kib| u64::try_from(kib).unwrap_or(0);
        Ok((positive(database), positive(cache)))
    }

    /// Copies every log into its database.
    pub fn checkpoint(&self, kind: Checkpoint) -> Result<(), Error> {
        self.all()
            .try_for_each(|one| connection::checkpoint(one, kind))
    }

    /// Closes all of them, even if one cannot be closed.
    pub fn close(self) -> Result<(), Error> {
        let close = |one: Connection| {
            one.close()
                .map_err(|(_, error)| Error::sqlite("close")(error))
        };
        let closed = close(self.first);
        let others = self.others.into_iter().map(close);
        others.fold(closed, Result::and)
    }
}

impl From<Connection> for Databases {
    fn from(first: Connection) -> Self {
        Self {
            first,
            others: Vec::new(),
        }
    }
}
