//! `VACUUM` in place.

use lsmvbt::Held;

use super::{Session, error};
use crate::engine::{Error, Result};

impl Session {
    pub(super) fn vacuum_in_place(&mut self) -> Result<()> {
        if self.pinned.is_some() {
            return Err(Error::ReadOnly);
        }
        match self.db.vacuum().map_err(error)?.held {
            None => Ok(()),
            // A reader ends some time; the busy handler waits for it.
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
