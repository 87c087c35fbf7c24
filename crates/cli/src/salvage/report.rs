//! The result of `onewrite salvage`, and what is missing: as text, or as one JSON document.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::pages::{Applied, Taken};
use super::rows::Rows;
use super::source::{Belongs, Source};
use crate::inspect::counted;

/// Version of the JSON document.
const VERSION: u32 = 1;

/// The JSON document.
#[derive(Serialize, Clone, Debug)]
pub struct Report {
    version: u32,
    #[serde(serialize_with = "crate::output::lossy_option")]
    database: Option<PathBuf>,
    #[serde(serialize_with = "crate::output::lossy_option")]
    log: Option<PathBuf>,
    log_id: Option<String>,
    /// The proof that the log belongs to the database; null where one of them is missing.
    proof: Option<&'static str>,
    #[serde(serialize_with = "crate::output::lossy")]
    output: PathBuf,
    /// An unfinished transaction of a rollback mode was rolled back first.
    pub rolled_back: bool,
    /// The frames taken from the log; null where nothing is committed in it.
    pub applied: Option<Applied>,
    /// Pages that exist.
    pub pages: u64,
    /// Pages that the last commit counts, and that no file has.
    pub missing_pages: u64,
    /// The rows that were recovered one by one; null where the pages make a whole database.
    pub rows: Option<Rows>,
    /// The check of the result.
    pub integrity_check: Option<String>,
    /// Notes for the reader.
    pub notes: Vec<String>,
    /// The files refer to commits that are in none of them, or that nothing proves.
    is_incomplete: bool,
    /// Size of the database without the log.
    #[serde(skip)]
    pub base_pages: u32,
}

impl Report {
    /// A report before any action.
    pub fn new(source: &Source, output: &Path) -> Self {
        let log = source.log.as_ref();
        let database = source.database.as_ref();
        let proof = log
            .filter(|_| database.is_some())
            .map(|log| match log.belongs {
                Belongs::ById => "id",
                Belongs::ByName => "name",
                Belongs::NotProven => "integrity_check",
            });
        Self {
            version: VERSION,
            database: database.map(|database| database.path.clone()),
            log: log.map(|log| log.path.clone()),
            log_id: log
                .and_then(|log| log.opened.header)
                .map(|header| header.id.to_string()),
            proof,
            output: output.to_owned(),
            rolled_back: false,
            applied: None,
            pages: 0,
            missing_pages: 0,
            rows: None,
            integrity_check: None,
            notes: source.notes.clone(),
            is_incomplete: source.is_incomplete,
            base_pages: 0,
        }
    }

    /// Adds the result of reading a log.
    pub fn took(&mut self, taken: Taken) {
        self.applied = taken.applied;
        self.notes.extend(taken.notes);
        self.is_incomplete |= taken.is_incomplete;
    }

    /// The new database.
    pub fn output(&self) -> &Path {
        &self.output
    }

    /// Pages of the database as the last commit left it.
    pub fn database_pages(&self) -> u32 {
        let applied = self.applied.as_ref();
        applied.map_or(self.base_pages, |applied| applied.database_pages)
    }

    /// Whether the result has everything that is known to have been committed, and it is proven.
    pub fn is_whole(&self) -> bool {
        self.rows.is_none()
            && self.missing_pages == 0
            && !self.is_incomplete
            && self.proof != Some("integrity_check")
    }

    /// The report for people.
    pub fn render(&self) -> String {
        let mut text = String::new();
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        if self.rolled_back {
            let _ = writeln!(text, "rolled back the transaction that was cut off");
        }
        self.render_log(&mut text);
        match &self.rows {
            None => self.render_pages(&mut text),
            Some(rows) => self.render_rows(rows, &mut text),
        }
        let whole = match self.is_whole() {
            true => "everything that is known to have been committed is in it",
            false => "not everything that was committed is in it, or proven; see above",
        };
        let _ = writeln!(text, "{}: {whole}", self.output.display());
        text
    }

    fn render_log(&self, text: &mut String) {
        let (Some(log), Some(applied)) = (&self.log, &self.applied) else {
            return;
        };
        let _ = writeln!(
            text,
            "{}: {} in {}, each frame's checksum right",
            log.display(),
            counted(applied.transactions, "transaction"),
            counted(applied.frames.into(), "frame")
        );
        if applied.unfinished_frames > 0 {
            let frames = counted(applied.unfinished_frames.into(), "frame");
            let _ = writeln!(
                text,
                "left out {frames} of a transaction that was not committed"
            );
        }
        if let Some(end) = &applied.ended_by {
            let _ = writeln!(
                text,
                "frame {} (byte {}) is {}: nothing after it is proven, {} left out",
                end.frame,
                end.offset,
                end.what,
                counted(applied.dropped_transactions, "transaction")
            );
        }
        if let Some(frame) = applied.published_frame {
            let _ = writeln!(
                text,
                "the wal-index says that frames up to {frame} were committed"
            );
        }
        if self.proof == Some("integrity_check") {
            let _ = writeln!(
                text,
                "the database does not know this log: integrity_check alone says that they fit"
            );
        }
    }

    fn render_pages(&self, text: &mut String) {
        let pages = counted(self.pages, "page");
        let all = match self.pages {
            1 => "its page is there".to_owned(),
            _ => format!("all {pages} are there"),
        };
        let _ = writeln!(text, "{all}; integrity_check: ok");
    }

    fn render_rows(&self, rows: &Rows, text: &mut String) {
        if self.missing_pages > 0 {
            let _ = writeln!(
                text,
                "{} of {} are missing: rows were recovered one by one",
                counted(self.missing_pages, "page"),
                u64::from(self.database_pages())
            );
        } else {
            let _ = writeln!(
                text,
                "the pages are damaged: rows were recovered one by one"
            );
        }
        if !rows.schema {
            let _ = writeln!(text, "the schema is missing, or a part of it");
        }
        for table in &rows.tables {
            let complete = if table.complete {
                "complete"
            } else {
                "NOT COMPLETE"
            };
            let _ = writeln!(
                text,
                "  {}: {}, {complete}",
                table.name,
                counted(table.rows, "row")
            );
        }
        if rows.lost_and_found > 0 {
            let lost = counted(rows.lost_and_found, "row");
            let _ = writeln!(text, "  lost_and_found: {lost} of unknown tables");
        }
        for what in &rows.not_made {
            let _ = writeln!(text, "not made: {what}");
        }
    }
}
