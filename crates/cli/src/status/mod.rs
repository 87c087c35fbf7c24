//! `onewrite status`: whose a database is, its journal mode, and whether it was closed cleanly.
//!
//! It looks as `inspect` does ([`crate::inspect`]): it opens files only for reading, locks nothing,
//! and uses no SQLite. So it recovers nothing and makes no `-shm`. `report` gathers, `text` shows.

mod report;
mod text;

use std::path::PathBuf;
use std::process::ExitCode;

use crate::{Outcome, output};
use report::Report;

/// Explains the words below the options of `status --help`.
pub const AFTER_HELP: &str = "\
Says whether DB is a stock SQLite database or in a journal mode of onewrite, whether stock SQLite \
can open it now, which programs have it open, how much of its log is not in the database yet, how \
to copy it, and the way back to stock SQLite. Nothing is changed, recovered or locked, and it takes no root. DB may \
be in use.

States:
  clean           closed, and complete without its log
  in-use          a process has it open; its newest transactions may be in the log
  needs-recovery  not closed in order, and nobody has it open: the next open recovers it
  broken          something is wrong with the files: `onewrite verify DB` says more

Programs are found by their open files: without root only your own. Locks also show those of other \
users, but not an idle connection in a rollback mode.

Exit code:
  0  any state but broken
  1  DB cannot be read, is not a database, or is broken

Examples:
  onewrite status app.db
  onewrite status app.db --json | jq -r .journal_mode";

/// The options of `onewrite status`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The database
    #[arg(value_name = "DB")]
    database: PathBuf,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// There is no database that can be read, or standard output cannot be written.
pub fn run(args: &Args) -> Outcome {
    let report = Report::of(&args.database).map_err(|e| output::on_one_line(&e))?;
    output::print(args.json, &report, || text::render(&report))?;
    Ok(match report.problems.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
