//! The findings of `onewrite verify`: as text, or as one JSON document. Its field names are part of
//! the command's interface.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::inspect::counted;
use crate::inspect::report::{self as inspected, Kind, Log, Problem};

/// Version of the JSON document.
pub const VERSION: u32 = 1;

/// The JSON document.
#[derive(Serialize)]
pub struct Report {
    version: u32,
    #[serde(serialize_with = "crate::output::lossy")]
    file: PathBuf,
    kind: Kind,
    verdict: Verdict,
    /// Another process has it open, as far as locks show.
    pub in_use: bool,
    /// Only headers were read.
    quick: bool,
    /// Whatever is wrong or would be lost, and what to do.
    problems: Vec<Problem>,
    /// Facts that are worth knowing, but not wrong.
    pub notes: Vec<String>,
    database: Option<inspected::Database>,
    /// The transactions that opening the database brings back; null where there are none, or with
    /// `quick`.
    recovery: Option<Recovery>,
    /// There is a log of SQLite's own with a header.
    #[serde(skip)]
    has_wal: bool,
    /// The logs that were set aside.
    pub orphans: Vec<Orphan>,
}

/// The verdict in a word.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    /// Nothing is wrong.
    Whole,
    /// See the problems.
    Broken,
}

/// The content of a log that recovery takes.
#[derive(Serialize)]
struct Recovery {
    #[serde(serialize_with = "crate::output::lossy")]
    log: PathBuf,
    frames: u32,
    transactions: u64,
    /// The database's size afterwards.
    database_pages: u32,
}

/// A log that was set aside.
#[derive(Serialize)]
pub struct Orphan {
    #[serde(serialize_with = "crate::output::lossy")]
    pub path: PathBuf,
    pub id: Option<String>,
    /// Null where it cannot be read, or with `quick`.
    pub frames: Option<u32>,
    /// Null where it cannot be read, or with `quick`.
    pub transactions: Option<u64>,
}

impl Report {
    /// The findings of `inspect` in the file.
    pub fn of(found: inspected::Report, quick: bool) -> Self {
        let logs = [&found.log, &found.wal];
        let recovery = logs.into_iter().flatten().find_map(Recovery::of);
        let has_wal = found.wal.is_some_and(|wal| wal.wal_header.is_some());
        let mut report = Report {
            version: VERSION,
            file: found.file,
            kind: found.kind,
            verdict: Verdict::Whole,
            in_use: found.in_use,
            quick,
            problems: Vec::new(),
            notes: found.notes,
            database: found.database,
            recovery,
            has_wal,
            orphans: Vec::new(),
        };
        for problem in found.problems {
            report.add(problem);
        }
        report
    }

    /// Adds what to do with a database that a program left guarded. Not next to a problem, which
    /// says what to do first.
    pub fn note_unclosed(&mut self, database: &Path) {
        let is_guarded = self.database().is_some_and(|found| found.guarded);
        if is_guarded && !self.in_use && self.is_whole() {
            let name = database.display();
            self.notes.push(format!(
                "{name}: nobody has it open, and it was not closed: the next open with onewrite recovers it. \
                 \"onewrite detach {name}\" makes it a stock database"
            ));
        }
    }

    /// Whether nothing is wrong.
    pub fn is_whole(&self) -> bool {
        self.verdict == Verdict::Whole
    }

    /// The database's header.
    pub fn database(&self) -> Option<&inspected::Database> {
        self.database.as_ref()
    }

    /// Whether only headers are read.
    pub fn is_quick(&self) -> bool {
        self.quick
    }

    /// Whether a log has frames that recovery takes.
    pub fn has_frames(&self) -> bool {
        self.recovery.is_some()
    }

    /// Whether there is a log of SQLite's own with a header.
    pub fn has_wal(&self) -> bool {
        self.has_wal
    }

    /// Adds a problem.
    pub fn problem(&mut self, file: &Path, offset: Option<u64>, what: impl Into<String>) {
        self.add(Problem {
            file: file.to_owned(),
            offset,
            what: what.into(),
        });
    }

    /// Adds a problem that was found.
    pub fn add(&mut self, problem: Problem) {
        self.verdict = Verdict::Broken;
        self.problems.push(problem);
    }

    /// The report for people.
    pub fn render(&self) -> String {
        let mut text = String::new();
        let file = self.file.display();
        let verdict = match (self.is_whole(), self.in_use) {
            (true, true) => "whole, in use",
            (true, false) => "whole",
            (false, true) => "NOT WHOLE, in use",
            (false, false) => "NOT WHOLE",
        };
        let verdict = match self.kind {
            Kind::Empty => format!("{verdict}, empty"),
            _ => verdict.to_owned(),
        };
        let depth = if self.quick { " (headers alone)" } else { "" };
        let _ = writeln!(text, "{file}: {verdict}{depth}");
        if let Some(database) = &self.database {
            let guard = match &database.log_id {
                Some(id) => format!("guarded for the log {id}"),
                None => "not guarded: a stock database".to_owned(),
            };
            let _ = writeln!(
                text,
                "  {guard}, {}",
                counted(database.pages.into(), "page")
            );
        }
        if let Some(recovery) = &self.recovery {
            let _ = writeln!(
                text,
                "  {}: {} in {}, all checksums right; a database of {}",
                recovery.log.display(),
                counted(recovery.transactions, "transaction"),
                counted(recovery.frames.into(), "frame"),
                counted(recovery.database_pages.into(), "page")
            );
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        for problem in &self.problems {
            let file = problem.file.display();
            let _ = match problem.offset {
                Some(offset) => writeln!(text, "problem: {file}, byte {offset}: {}", problem.what),
                None => writeln!(text, "problem: {file}: {}", problem.what),
            };
        }
        text
    }
}

impl Recovery {
    fn of(log: &Log) -> Option<Recovery> {
        let frames = log.frames.as_ref()?;
        let committed = frames.committed.as_ref()?;
        Some(Recovery {
            log: log.path.clone(),
            frames: committed.frame,
            transactions: frames.totals.transactions,
            database_pages: committed.database_pages,
        })
    }
}
