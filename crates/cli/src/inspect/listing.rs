//! The frames of a log, one after another, read while they are shown.

use std::cell::RefCell;
use std::fs::File;
use std::io;

use onewrite::log::Geometry;
use onewrite::log::scan::{Found, Scan, Survey, Verdict, Writers};
use onewrite::storage::LogFile;
use onewrite::wal::{FrameNo, WalHeader};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

/// Places listed after the valid frames, so that the reader sees why these end. `--all` lists every
/// place that was ever written.
const BEHIND: u32 = 4;

/// See the module.
pub struct Listing {
    file: LogFile,
    database: Option<File>,
    geometry: Geometry,
    wal: WalHeader,
    first: u32,
    valid: u32,
    last: u32,
    /// The error that ended a listing early.
    error: RefCell<Option<io::Error>>,
}

impl Listing {
    /// The last `wanted` valid frames of a survey, and the places after them.
    pub fn new(
        file: LogFile,
        geometry: Geometry,
        wal: WalHeader,
        survey: &Survey,
        wanted: u32,
    ) -> Listing {
        let behind = if wanted == u32::MAX {
            wanted
        } else {
            BEHIND.min(wanted)
        };
        Listing {
            file,
            database: None,
            geometry,
            wal,
            first: survey.valid.saturating_sub(wanted).saturating_add(1),
            valid: survey.valid,
            last: survey.valid.saturating_add(behind),
            error: RefCell::new(None),
        }
    }

    /// Looks for pages in the database as well; see [`Scan::with_database`].
    pub fn with_database(mut self, database: Option<File>) -> Listing {
        self.database = database;
        self
    }

    /// The number of the first frame that is listed.
    pub fn first(&self) -> u32 {
        self.first
    }

    /// Hands every frame of the listing to `show`. It skips places that were never written.
    ///
    /// # Errors
    /// Those of reading and of `show`.
    pub fn each<E: From<io::Error>>(
        &self,
        mut show: impl FnMut(&Found) -> Result<(), E>,
    ) -> Result<(), E> {
        let scan = Scan::new(&self.file, self.geometry, self.wal, Writers::None)?
            .with_database(self.database.as_ref());
        for found in scan {
            let found = found?;
            let FrameNo(number) = found.frame;
            // A log that has started again meanwhile has none of the surveyed frames.
            let is_gone = number <= self.valid && found.verdict != Verdict::Valid;
            if number > self.last || is_gone {
                break;
            }
            if number >= self.first && found.verdict != Verdict::Zeros {
                show(&found)?;
            }
        }
        Ok(())
    }

    /// The error that ended the listing while it was serialized.
    pub fn take_error(&self) -> Option<io::Error> {
        self.error.take()
    }
}

/// An error of reading, which ends the listing, or one of the serializer.
enum Ended<E> {
    Reading(io::Error),
    Writing(E),
}

impl<E> From<io::Error> for Ended<E> {
    fn from(error: io::Error) -> Self {
        Ended::Reading(error)
    }
}

impl Serialize for Listing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        let all = self.each(|found| list.serialize_element(&Row(found)).map_err(Ended::Writing));
        match all {
            Ok(()) => {}
            // The document must still be complete JSON; the caller gets the error from
            // `take_error`.
            Err(Ended::Reading(e)) => *self.error.borrow_mut() = Some(e),
            Err(Ended::Writing(e)) => return Err(e),
        }
        list.end()
    }
}

struct Row<'a>(&'a Found);

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let found = self.0;
        let mut row = serializer.serialize_map(Some(7))?;
        row.serialize_entry("frame", &found.frame.0)?;
        row.serialize_entry("offset", &found.offset)?;
        row.serialize_entry("page", &found.header.page.0)?;
        row.serialize_entry("commit_pages", &found.header.commit_pages)?;
        row.serialize_entry("salts", &super::report::hex(&found.header.salts.0))?;
        row.serialize_entry("state", found.verdict.word())?;
        row.serialize_entry("escaped", &found.is_escaped)?;
        row.end()
    }
}
