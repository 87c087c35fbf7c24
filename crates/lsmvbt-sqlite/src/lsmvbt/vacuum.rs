//! `VACUUM` in place.

use lsmvbt::{Held, Vacuum};

use super::{Session, error};
use crate::engine::{Error, Result};

/// A vacuum of a connection between two steps.
#[derive(Default)]
pub(super) struct Vacuuming {
    /// Pages to remove at most; all that can be removed.
    pages: Option<u32>,
    /// None before the first step, and after the last one.
    state: Option<Vacuum>,
}

impl Vacuuming {
    pub(super) fn new(pages: Option<u32>) -> Self {
        Self { pages, state: None }
    }

    pub(super) fn give_up(&mut self) {
        if let Some(vacuum) = &mut self.state {
            vacuum.give_up();
        }
    }
}

impl Session {
    /// A step. True after the last one.
    pub(super) fn vacuum_in_place(&mut self) -> Result<bool> {
        if self.pinned.is_some() {
            return Err(Error::ReadOnly);
        }
        let Vacuuming { pages, state } = &mut self.vacuuming;
        if state.is_some() {
            self.db.let_others_write().map_err(error)?;
        }
        let all = || Vacuum::all().patient();
        let vacuum = state.get_or_insert_with(|| pages.map_or_else(all, Vacuum::part));
        let step = self.db.vacuum_step(vacuum);
        if let (Err(lsmvbt::Error::Busy), Some(version)) = (&step, vacuum.reader()) {
            // A reader ends some time; the busy handler waits for it.
            return Err(Error::InTheWay(way_out(Held::Reader(version))));
        }
        if !matches!(step, Ok(None) | Err(lsmvbt::Error::Busy)) {
            *state = None;
        }
        let Some(done) = step.map_err(error)? else {
            return Ok(false);
        };
        match done.held {
            None => Ok(true),
            Some(held @ Held::Reader(_)) => Err(Error::InTheWay(way_out(held))),
            Some(held @ Held::History) => Err(Error::Refused(way_out(held))),
        }
    }
}

fn way_out(held: Held) -> String {
    let why = match held {
        Held::History => {
            "the history keeps earlier versions: set PRAGMA lsmvbt_history = 0, and repeat VACUUM"
                .to_owned()
        }
        Held::Reader(version) => format!(
            "a connection reads version {}, or one after it: end its transaction, and repeat VACUUM",
            version.0
        ),
    };
    format!(
        "only free pages at the end of the file were given back, because {why}; or VACUUM INTO writes a compact copy"
    )
}
