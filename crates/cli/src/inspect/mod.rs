//! `onewrite inspect`: what a log, or a database and the log beside it, hold on disk.
//!
//! `look` reads the files into a `report`, `text` and `json` show it. Files are opened for
//! reading alone and nothing is locked, so that a database in use stays undisturbed; what others
//! write meanwhile is read again until it makes sense. Frames are listed in a second walk over the
//! log, one at a time, so that a log of any size is shown in little memory.

pub(crate) mod advice;
mod header;
mod json;
mod judge;
mod listing;
pub(crate) mod look;
pub(crate) mod report;
mod text;
pub(crate) mod users;

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::Outcome;
pub use header::DatabaseHeader;
use look::Wanted;
pub use look::log_beside;
use report::Report;
pub use report::counted;

/// Explains the words below the options of `inspect --help`.
pub const AFTER_HELP: &str = "\
FILE may be a -onewrite log, a log of SQLite's own (-wal), or a database: then its header and the logs
beside it are shown. Nothing is changed, and the database may be in use meanwhile.

A frame is valid if it has the salts of the log's header and its checksum follows from the frame
before it: those are the frames that recovery takes, up to the last one that ends a transaction.
What may stand where the next frame would be:
  zeros              initialized, never written
  other-generation   a frame with other salts, of before the log started again
  checksum-mismatch  this log's salts, but it does not follow: a torn write, damage, or what is left of
                     a transaction that was rolled back
  no-side-entry      an escaped frame whose displaced bytes are missing
  no-frame           anything else
  cut-short          the file ends there

The exit code is 1 if something is damaged, missing, or belongs to another database; what is wrong,
and where, is said on standard output and in the JSON's \"problems\".

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

    /// List so many of the last valid frames, and what stands behind them
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
        // Whoever reads the output has seen enough.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {}
        Err(e) => return Err(format!("cannot show {}: {e}", args.file.display())),
        Ok(()) => {}
    }
    Ok(exit_code(&report))
}

/// Looks at a file once and writes what it is as a JSON document; the number of problems.
///
/// # Errors
/// The file cannot be read at all, or `out` not be written.
pub fn describe(file: &Path, frames: u32, out: &mut impl Write) -> io::Result<usize> {
    let mut report = look::once(file, Wanted::Frames(frames))?;
    json::write(&mut report, out)?;
    Ok(report.problems.len())
}

/// Why a file that the user named cannot be read, and the way out.
pub fn why_unread(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "there is no such file: give a database, or a log beside one".to_owned()
        }
        io::ErrorKind::PermissionDenied => "no permission to read it, or the log beside it: run \
                                            this as who owns the database"
            .to_owned(),
        _ => error.to_string(),
    }
}

fn exit_code(report: &Report) -> ExitCode {
    match report.problems.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
