//! `onewrite inspect`: shows the contents of a log, or of a database and its log, on disk.
//!
//! `look` reads the files into a `report`; `text` and `json` show it. It opens files only for
//! reading and locks nothing, so that it does not disturb a database in use. It reads again until
//! the result makes sense, because others may write meanwhile. A second walk over the log lists the
//! frames, one at a time, so that a log of any size takes little memory.

pub(crate) mod advice;
pub(crate) mod dropped;
mod header;
mod json;
pub(crate) mod judge;
mod listing;
pub(crate) mod look;
pub(crate) mod lsmvbt;
pub(crate) mod report;
mod text;
pub(crate) mod users;

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::Outcome;
pub use header::DatabaseHeader;
use look::Wanted;
pub use look::log_of;
use report::Report;
pub use report::counted;

/// Explains the words below the options of `inspect --help`.
pub const AFTER_HELP: &str = "\
FILE may be a -onewrite log, a log of SQLite's own (-wal), or a database. For a database, its header and \
the logs next to it are shown. Nothing is changed, and the database may be in use meanwhile.

A frame is valid if it has the salts of the log's header and its checksum follows from the frame \
before it. Recovery takes these frames, up to the last one that ends a transaction. \
After the valid frames there may be:
  zeros              initialized, never written
  other-generation   a frame with other salts, from before the log started again
  checksum-mismatch  this log's salts, but it does not follow: a torn write, damage, or the rest of
                     a transaction that was rolled back
  no-side-entry      an escaped frame whose displaced bytes are missing
  no-frame           anything else
  unknown-kind       a record of a newer version, or a damaged one
  cut-short          the file ends there

The exit code is 1 if something is damaged, missing, or belongs to another database. Standard output \
and the JSON's \"problems\" say what is wrong, and where.

Examples:
  onewrite inspect app.db
  onewrite inspect app.db-onewrite --all
  onewrite inspect app.db --json | jq .log.committed";

/// The options of `onewrite inspect`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A log or a database
    file: PathBuf,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// List this many of the last valid frames, and the places after them
    #[arg(long, value_name = "N", default_value_t = 16)]
    frames: u32,

    /// List every frame
    #[arg(long, conflicts_with = "frames")]
    all: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// FILE cannot be read at all.
pub fn run(args: &Args) -> Outcome {
    let wanted = Wanted::Frames(if args.all { u32::MAX } else { args.frames });
    let mut report = look::at(&args.file, wanted).map_err(|e| e.to_string())?;
    let mut out = BufWriter::new(io::stdout().lock());
    let shown = match args.json {
        true => json::write(&mut report, &mut out),
        false => text::write(&mut report, &mut out),
    };
    match shown.and_then(|()| out.flush()) {
        // The reader of the output has seen enough.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {}
        Err(e) => return Err(format!("cannot show {}: {e}", args.file.display())),
        Ok(()) => {}
    }
    Ok(exit_code(&report))
}

/// Looks at a file once and writes the report as a JSON document; returns the number of problems.
///
/// # Errors
/// The file cannot be read at all, or `out` cannot be written.
pub fn describe(file: &Path, frames: u32, out: &mut impl Write) -> io::Result<usize> {
    let mut report = look::once(file, Wanted::Frames(frames))?;
    json::write(&mut report, out)?;
    Ok(report.problems.len())
}

fn exit_code(report: &Report) -> ExitCode {
    match report.problems.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
