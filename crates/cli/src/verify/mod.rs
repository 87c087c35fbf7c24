//! `onewrite verify`: says whether a database and its logs are whole, and what would be lost.
//!
//! It looks as `inspect` does ([`crate::inspect`]): it opens files only for reading, locks nothing,
//! and uses no SQLite. It also looks around the database: for set-aside logs, a hot journal, and a
//! database that is too short.

mod around;
mod report;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::Outcome;
use crate::inspect::look::{self, Wanted};
pub(crate) use around::{cut_short, is_hot_journal, left_index, set_aside};
use report::Report;

/// Explains the words below the options of `verify --help`.
pub const AFTER_HELP: &str = "\
Reads the database's header, the guard, the log of onewrite and SQLite's own next to it, every frame's \
checksum, and set-aside logs (DB-onewrite-orphan-*). Nothing is changed or locked. The database may be in \
use meanwhile; the report says so. DB may also be a log.

A file of 0 bytes is whole: to SQLite it is a database without tables. The report says that it is empty. \
A log with transactions next to one is a problem, because no open brings them back.

It does not read the database's tables: use PRAGMA integrity_check for that.

With --quick it reads headers and queries locks: some milliseconds, for the liveness probe of a \
container. It finds a damaged header, a missing log, and a log that a process could not write.

Exit code:
  0  whole: nothing is wrong, and opening the database brings back everything that is committed
  1  something is wrong, or holds transactions that opening the database does not bring back
  2  DB could not be read, or is a database of LS-MVBT

Never delete a log that this command names. `onewrite salvage` reads it into a new database.

Examples:
  onewrite verify app.db
  onewrite verify --quick app.db
  onewrite verify app.db --json | jq .problems";

/// The options of `onewrite verify`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A database, or a log
    #[arg(value_name = "DB")]
    file: PathBuf,

    /// Read headers only, no frames
    #[arg(long)]
    quick: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The exit code where nothing could be read.
const COULD_NOT_LOOK: u8 = 2;

/// Runs the subcommand.
///
/// # Errors
/// Standard output cannot be written.
pub fn run(args: &Args) -> Outcome {
    let report = match verify(&args.file, args.quick) {
        Ok(report) => report,
        Err(e) => {
            if args.json {
                let failed = serde_json::json!({
                    "version": report::VERSION, "file": args.file.to_string_lossy(), "verdict": "unread",
                    "error": e.to_string(),
                });
                print(&format!("{failed:#}\n"))?;
            }
            eprintln!("onewrite: {e}");
            return Ok(ExitCode::from(COULD_NOT_LOOK));
        }
    };
    let text = match args.json {
        true => serde_json::to_string_pretty(&report).map_err(|e| e.to_string())? + "\n",
        false => report.render(),
    };
    print(&text)?;
    Ok(match report.is_whole() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn print(text: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write to standard output: {e}"))
        }
        _ => Ok(()),
    }
}

/// Looks at a database or a log.
fn verify(file: &Path, quick: bool) -> io::Result<Report> {
    let wanted = match quick {
        true => Wanted::Headers,
        false => Wanted::Frames(0),
    };
    let found = look::at(file, wanted)?;
    let path = fs::canonicalize(file)?;
    let mut report = Report::of(found, quick);
    around::look(&path, &mut report)?;
    report.note_unclosed(&path);
    Ok(report)
}

/// Verifies a file and writes the JSON document; returns whether the file is whole.
///
/// # Errors
/// The file cannot be read at all, or `out` cannot be written.
pub fn describe(file: &Path, quick: bool, out: &mut impl Write) -> io::Result<bool> {
    let report = verify(file, quick)?;
    serde_json::to_writer(out, &report).map_err(io::Error::from)?;
    Ok(report.is_whole())
}
