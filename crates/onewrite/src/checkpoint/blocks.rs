//! Moves of blocks from the log into the database, one after the other.
//!
//! Called with all readers and writers of the database excluded.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::storage::observer::{self, Call};
use crate::storage::{Init, LogFile, Move, Operation, Remap, is_refusal, kept_database};

/// The result of the moves.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Remapped {
    /// For each move, whether it was made. A move that was not made has changed nothing.
    pub done: Vec<bool>,
    /// Why a move was not made.
    pub why_not: Option<String>,
    /// Moves that gave the database blocks where it had none. In exchange the log got blocks that
    /// were never written.
    pub grown: Vec<bool>,
    /// Duration of the calls.
    pub took: Duration,
}

/// Moves to make.
#[derive(Clone, Copy, Debug)]
pub struct Remapping<'a> {
    /// The log.
    pub log: &'a LogFile,
    /// The database's path.
    pub database: &'a Path,
    /// The method.
    pub how: Remap,
    /// The blocks, and where they belong.
    pub moves: &'a [Move],
    /// How the log's new blocks are initialized, if the database has none to exchange. With
    /// [`Init::ZeroFill`] that costs as much as a copy, so such moves are not made.
    pub init: Init,
}

impl Remapping<'_> {
    /// Makes the moves, until one is refused. `is_database` tells whether the path still names the
    /// file that SQLite has open. `begin` runs before the first call, if there is one.
    ///
    /// # Errors
    /// An I/O error. The number of moves that were made is unknown.
    pub fn run(
        &self,
        is_database: impl FnOnce() -> bool,
        begin: impl FnOnce(),
    ) -> io::Result<Remapped> {
        match kept_database(self.database, is_database) {
            Ok(database) => self.make_moves(&database, begin),
            Err(why) => Ok(Remapped {
                done: vec![false; self.moves.len()],
                why_not: Some(why),
                ..Remapped::default()
            }),
        }
    }

    fn make_moves(&self, database: &File, begin: impl FnOnce()) -> io::Result<Remapped> {
        let mut result = Remapped {
            done: vec![false; self.moves.len()],
            grown: vec![false; self.moves.len()],
            ..Remapped::default()
        };
        let mut begin = Some(begin);
        let since = Instant::now();
        for (i, step) in self.moves.iter().enumerate() {
            let grows = self.how == Remap::Exchange && !step.is_allocated(database);
            if grows && self.init == Init::ZeroFill {
                result.why_not = Some(
                    "the database grows, and new blocks of the log are filled with zeros"
                        .to_owned(),
                );
                continue;
            }
            if let Some(begin) = begin.take() {
                begin();
            }
            let (how, place) = (self.how, *step);
            self.observe(&Call::Remap { how, place })?;
            match step.make(how, database, self.log, grows, self.init) {
                Ok(()) => {
                    result.done[i] = true;
                    result.grown[i] = grows;
                }
                Err(e) if is_refusal(&e) => {
                    result.why_not = Some(format!("{} was refused: {e}", self.how.name()));
                    break;
                }
                Err(e) => return Err(e),
            }
        }
        result.took = since.elapsed();
        self.observe(&Call::Remapped)?;
        Ok(result)
    }

    fn observe(&self, call: &Call<'_>) -> io::Result<()> {
        observer::before(self.database, Operation::Write, call).map_err(io::Error::other)
    }
}
