//! The findings in a file, as they go to JSON. Field names are part of the command's interface.

use std::path::PathBuf;

use onewrite::log::scan::{Behind, Found, Survey};
use serde::Serialize;

use super::listing::Listing;

/// Everything about the named file.
#[derive(Serialize)]
pub struct Report {
    /// The version of this document's format.
    pub version: u32,
    #[serde(serialize_with = "crate::output::lossy")]
    pub file: PathBuf,
    pub kind: Kind,
    pub damaged: bool,
    /// Another process has the database open, as far as locks show.
    pub in_use: bool,
    /// A process could not write the log of onewrite; `problems` says so, too.
    #[serde(skip)]
    pub poisoned: bool,
    pub problems: Vec<Problem>,
    /// Facts that are worth knowing, but not wrong.
    pub notes: Vec<String>,
    pub database: Option<Database>,
    pub log: Option<Log>,
    pub wal: Option<Log>,
}

/// The kind of the named file.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Database,
    Log,
    Wal,
    Empty,
    Unknown,
}

/// A problem, and where it is.
#[derive(Serialize, Clone, Debug)]
pub struct Problem {
    #[serde(serialize_with = "crate::output::lossy")]
    pub file: PathBuf,
    /// In bytes, where the place is known.
    pub offset: Option<u64>,
    pub what: String,
}

/// A database's header, as it is on disk.
#[derive(Serialize)]
pub struct Database {
    #[serde(serialize_with = "crate::output::lossy")]
    pub path: PathBuf,
    pub size: u64,
    pub page_size: Option<u32>,
    pub reserved_bytes: u8,
    pub write_version: u8,
    pub read_version: u8,
    pub guarded: bool,
    /// The log's id, while the database is guarded.
    pub log_id: Option<String>,
    pub change_counter: u32,
    pub version_valid_for: u32,
    pub pages: u32,
}

/// A log.
#[derive(Serialize)]
pub struct Log {
    #[serde(serialize_with = "crate::output::lossy")]
    pub path: PathBuf,
    pub size: u64,
    /// Another process has the log open; `None` where that is unknown.
    pub in_use: Option<bool>,
    /// The format version, if it is newer than those that are known here; `problems` says so, too.
    #[serde(skip)]
    pub newer_version: Option<u32>,
    /// The header of an onewrite log; a `-wal` file has none.
    pub header: Option<Header>,
    /// SQLite's header, where there is one that SQLite would accept.
    pub wal_header: Option<WalHeader>,
    /// A summary of the frames; `None` where there is no header to begin from.
    #[serde(flatten)]
    pub frames: Option<Frames>,
}

/// The header block of a `-onewrite` log.
#[derive(Serialize)]
pub struct Header {
    pub format_version: u32,
    pub mode: String,
    pub layout: String,
    pub page_size: Option<usize>,
    pub id: String,
    pub empty: bool,
}

/// SQLite's WAL header.
#[derive(Serialize)]
pub struct WalHeader {
    pub page_size: usize,
    pub checkpoints: u32,
    pub salts: String,
    pub checksum_byte_order: &'static str,
}

/// The frames of a log.
#[derive(Serialize)]
pub struct Frames {
    pub slot_bytes: u64,
    pub valid_frames: u32,
    pub committed: Option<Committed>,
    pub end: End,
    pub totals: Totals,
    pub behind: BehindEnd,
    /// Last, because it is written while the log is read again.
    pub frames: Listing,
}

/// The last transaction that recovery finds.
#[derive(Serialize)]
pub struct Committed {
    pub frame: u32,
    pub database_pages: u32,
}

/// Where the valid frames end, and why.
#[derive(Serialize)]
pub struct End {
    /// In bytes.
    pub offset: u64,
    pub reason: &'static str,
    /// The salts of a frame of another generation.
    pub salts: Option<String>,
}

/// Sums over the valid frames.
#[derive(Serialize)]
pub struct Totals {
    pub frames: u32,
    pub transactions: u64,
    pub escaped: u64,
    pub distinct_pages: Option<usize>,
    pub bytes_used: u64,
    pub bytes_beyond: u64,
}

/// The places after the valid frames, counted by kind.
#[derive(Serialize)]
pub struct BehindEnd {
    pub zeros: u64,
    pub other_generation: u64,
    pub present_generation: u64,
    pub present_generation_commits: u64,
    pub other: u64,
}

impl Report {
    /// An empty report about a file.
    pub fn new(file: PathBuf, kind: Kind) -> Report {
        Report {
            version: 1,
            file,
            kind,
            damaged: false,
            in_use: false,
            poisoned: false,
            problems: Vec::new(),
            notes: Vec::new(),
            database: None,
            log: None,
            wal: None,
        }
    }

    /// Adds a problem.
    pub fn problem(
        &mut self,
        file: &std::path::Path,
        offset: Option<u64>,
        what: impl Into<String>,
    ) {
        self.damaged = true;
        self.problems.push(Problem {
            file: file.to_owned(),
            offset,
            what: what.into(),
        });
    }
}

impl Frames {
    /// A survey in the words of the document.
    pub fn of(survey: &Survey, slot_bytes: u64, frames: Listing) -> Frames {
        let Behind {
            zeros,
            other_generation,
            present,
            present_commits,
            other,
        } = survey.behind;
        Frames {
            slot_bytes,
            valid_frames: survey.valid,
            committed: survey.committed.map(|commit| Committed {
                frame: commit.frame.0,
                database_pages: commit.pages,
            }),
            end: End::of(survey),
            totals: Totals {
                frames: survey.valid,
                transactions: survey.transactions,
                escaped: survey.escaped,
                distinct_pages: survey.distinct_pages(),
                bytes_used: survey.used_bytes,
                bytes_beyond: survey.bytes_beyond(),
            },
            behind: BehindEnd {
                zeros,
                other_generation,
                present_generation: present,
                present_generation_commits: present_commits,
                other,
            },
            frames,
        }
    }
}

impl End {
    fn of(survey: &Survey) -> End {
        let salts = |end: Found| (end.header.salts.0 != [0; 8]).then(|| hex(&end.header.salts.0));
        End {
            offset: survey.end.map_or(survey.used_bytes, |end| end.offset),
            reason: survey.end.map_or("end-of-file", |end| end.verdict.word()),
            salts: survey
                .end
                .filter(|end| end.verdict == onewrite::log::scan::Verdict::OtherGeneration)
                .and_then(salts),
        }
    }
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A number with its noun.
pub fn counted(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    }
}
