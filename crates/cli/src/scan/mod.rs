//! `onewrite scan`: SQLite databases on disk, their programs, and settings that lose commits.
//!
//! It traces nothing and changes nothing. `find` looks for databases with the code of `top`,
//! `versions` for the SQLite in a program. The settings are those that `doctor` knows
//! (`doctor/hazards.rs`).

mod find;
mod report;
mod text;
mod versions;

use std::path::PathBuf;
use std::process::ExitCode;

use crate::{Outcome, interrupt, output};
use report::Report;

/// Explains the findings below the options of `scan --help`.
pub const AFTER_HELP: &str = "\
Without DIR: the databases that programs have open at this moment. With DIR: all databases below it. Nothing is \
changed, and no database is locked. Databases of LS-MVBT are listed, too.

It finds:
  no_barriers, data_writeback   mount options that lose commits or data at a power cut
  write_cache_denied            a volatile cache that the kernel was told not to flush
  usb                           a disk behind a USB bridge
  memory, network, fuse, overlay  file systems that lose commits, or leave them to others
  wal_reset                     a program whose SQLite has the WAL-reset bug (before 3.51.3), in WAL mode

Examples:
  sudo onewrite scan
  sudo onewrite scan /var/lib --json";

/// The options of `onewrite scan`.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Look at every file below this directory, or at this database
    dir: Option<PathBuf>,

    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    interrupt::install()?;
    let mut found = find::all(args.dir.as_deref())?;
    let report = Report::of(&mut found);
    output::print(args.json, &report, || text::render(&report))?;
    Ok(interrupt::exit_code(ExitCode::SUCCESS))
}
