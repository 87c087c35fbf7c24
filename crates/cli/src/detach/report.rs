//! The actions of `onewrite detach`: as text, line by line, or as one JSON document.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use onewrite::log::scan::Survey;
use serde::Serialize;

use crate::inspect::counted;
use crate::inspect::judge::Lost;
use crate::inspect::users::Published;

/// Version of the JSON document.
const VERSION: u32 = 1;

/// Every action, as the JSON document.
#[derive(Debug, Serialize)]
pub struct Report {
    version: u32,
    #[serde(serialize_with = "crate::output::lossy")]
    database: PathBuf,
    /// The action on the database.
    pub done: Done,
    /// The user gave --discard, and there was nothing to give up.
    pub discard_not_needed: bool,
    /// The content of the log; null where nothing was recovered.
    pub recovered: Option<Recovered>,
    /// The log that was given up; null where none was.
    pub given_up: Option<GivenUp>,
    /// The database's journal mode now, one of SQLite's own; null where it was not touched.
    pub journal_mode: Option<String>,
    /// The verdict of stock SQLite's PRAGMA integrity_check; null where the database was not
    /// touched.
    pub integrity_check: Option<String>,
}

/// The action on the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Done {
    /// Nothing: it was a stock database already.
    Nothing,
    /// The log was recovered into it.
    Recovered,
    /// The log was given up.
    Discarded,
}

/// The content of a log that could be recovered.
#[derive(Clone, Copy, Default, Debug, Serialize)]
pub struct Recovered {
    frames: u32,
    transactions: u64,
    /// Pages that were written to the database; null where there were too many to count.
    pages: Option<usize>,
    /// Frames of a transaction that was not committed.
    dropped_frames: u32,
    /// Transactions after a frame that does not follow.
    dropped_transactions: u64,
    /// The last frame that the wal-index named as committed, if recovery did not reach it; else null.
    published_frame: Option<u32>,
}

/// The content of a log that could not be recovered.
#[derive(Clone, Debug, Serialize)]
pub struct GivenUp {
    /// Why it could not be recovered.
    pub why: String,
    #[serde(serialize_with = "crate::output::lossy")]
    pub log: PathBuf,
    /// Its new name; null where there was no log, or an empty one.
    #[serde(serialize_with = "crate::output::lossy_option")]
    pub kept_as: Option<PathBuf>,
    /// Null where that is unknown.
    pub frames: Option<u32>,
    /// Null where that is unknown.
    pub transactions: Option<u64>,
    /// Whether the database was guarded for it. Such a database is now as its last checkpoint left
    /// it.
    pub was_guarded: bool,
    /// The counter of the database without the log.
    pub change_counter: u32,
    /// The pages of the database without the log.
    pub pages: u32,
}

impl Recovered {
    /// From the survey of the log; without a survey, of an empty log. `published` is the wal-index
    /// before recovery.
    pub fn of(survey: Option<&Survey>, published: Option<Published>) -> Self {
        let Some(survey) = survey else {
            return Self {
                pages: Some(0),
                ..Self::default()
            };
        };
        let frames = survey.committed.map_or(0, |commit| commit.frame.0);
        let lost = match survey.grew {
            true => None,
            false => Lost::of(survey, published),
        };
        Self {
            frames,
            transactions: survey.transactions,
            pages: survey.pages_to_checkpoint(),
            dropped_frames: survey.valid.saturating_sub(frames),
            dropped_transactions: lost.map_or(0, |lost| lost.transactions),
            published_frame: lost.and_then(|lost| lost.published),
        }
    }

    /// Whether no commit is known to be missing.
    pub fn is_all(&self) -> bool {
        self.dropped_transactions == 0 && self.published_frame.is_none()
    }

    fn render(&self, text: &mut String) {
        if self.frames + self.dropped_frames == 0 && self.is_all() {
            let _ = writeln!(text, "the log was empty: the database held everything");
            return;
        }
        let pages = match self.pages {
            Some(pages) => counted(pages as u64, "page"),
            None => "their pages".to_owned(),
        };
        let _ = writeln!(
            text,
            "recovered {} of {}, and wrote {pages} to the database",
            counted(self.frames.into(), "frame"),
            counted(self.transactions, "transaction")
        );
        if self.dropped_frames > 0 {
            let dropped = counted(self.dropped_frames.into(), "frame");
            let _ = writeln!(
                text,
                "dropped {dropped} of a transaction that was not committed"
            );
        }
        if self.dropped_transactions > 0 {
            let _ = writeln!(
                text,
                "the frame after frame {} does not follow: at least {} from there on were torn or lost before \
                 they were durable, or damaged, and are dropped",
                self.frames + self.dropped_frames,
                counted(self.dropped_transactions, "transaction")
            );
        }
        if let Some(frame) = self.published_frame {
            let _ = writeln!(
                text,
                "the wal-index said that frames up to {frame} were committed: what is missing is lost"
            );
        }
    }
}

impl GivenUp {
    fn render(&self, text: &mut String) {
        let _ = writeln!(text, "{}", self.why);
        let log = self.log.display();
        if let Some(kept) = &self.kept_as {
            let kept = kept.display();
            let _ = writeln!(
                text,
                "kept the log as {kept}: \"onewrite salvage {kept} -o OUT\" reads it"
            );
        }
        let _ = match (self.frames, self.transactions) {
            (Some(frames), Some(transactions)) => writeln!(
                text,
                "without {log}: {} of {} are not in the database",
                counted(frames.into(), "frame"),
                counted(transactions, "transaction")
            ),
            _ if self.was_guarded => writeln!(
                text,
                "without the log: the number of transactions in it is not known"
            ),
            _ if self.kept_as.is_none() => writeln!(text, "removed {log}, which was empty"),
            _ => Ok(()),
        };
        if self.was_guarded {
            let _ = writeln!(
                text,
                "the database stays as its last checkpoint left it: change counter {}, {}",
                self.change_counter,
                counted(self.pages.into(), "page")
            );
        }
    }
}

impl Report {
    /// A report on the database at `path`, before any action.
    pub fn new(path: &Path) -> Self {
        Self {
            version: VERSION,
            database: path.to_owned(),
            done: Done::Nothing,
            discard_not_needed: false,
            recovered: None,
            given_up: None,
            journal_mode: None,
            integrity_check: None,
        }
    }

    /// The report for people.
    pub fn render(&self) -> String {
        let mut text = String::new();
        if self.discard_not_needed {
            text.push_str("--discard is not needed: the log can be recovered\n");
        }
        if let Some(recovered) = &self.recovered {
            recovered.render(&mut text);
        }
        if let Some(given_up) = &self.given_up {
            given_up.render(&mut text);
        }
        let database = self.database.display();
        let _ = match (&self.journal_mode, &self.integrity_check) {
            (Some(mode), Some(check)) => writeln!(
                text,
                "{database}: a stock database in journal mode {mode}; integrity_check: {check}"
            ),
            _ => writeln!(
                text,
                "{database}: is a stock database already: not guarded, and no onewrite log next to it"
            ),
        };
        text
    }
}
