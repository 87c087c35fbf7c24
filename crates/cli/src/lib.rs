//! The parts of the `onewrite` command, as a library. `onewrite-lab` runs the same comparisons, and
//! `crates/hostile` feeds arbitrary bytes to the code that reads files.
//!
//! Each subcommand is a module that parses its arguments with clap and returns an [`Outcome`].
//! Figures go to standard output, everything else to standard error.

pub mod arguments;
pub mod backup;
pub mod compare;
pub mod detach;
pub mod device;
pub mod directory;
pub mod doctor;
pub mod exporter;
pub mod forward;
pub mod ftl;
mod given;
pub mod html;
pub mod import;
pub mod inspect;
pub mod interrupt;
pub mod output;
pub mod partial;
pub mod place;
pub mod preload;
pub mod progress;
pub mod record;
mod regular;
pub mod replay;
mod rights;
pub mod run;
pub mod salvage;
pub mod scan;
pub mod shell;
pub mod status;
pub mod text_table;
pub mod top;
pub mod trace;
pub mod verify;

use std::io::{self, Write};
use std::process::ExitCode;

/// The result of a subcommand: an exit code, or the text of an error.
pub type Outcome = Result<ExitCode, String>;

/// Turns a subcommand's outcome into the exit code of `program`, and prints its error. The code is
/// 0 when all was done and right, 1 when something was not, and 130 when the user stopped it.
pub fn exit(program: &str, outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(code) => code,
        Err(_) if interrupt::is_requested() => {
            say(format_args!("{program}: stopped"));
            ExitCode::from(interrupt::EXIT_CODE)
        }
        Err(message) => {
            say(format_args!("{program}: {message}"));
            ExitCode::FAILURE
        }
    }
}

/// Prints a line on standard error. Where that is gone, as after the terminal was closed, `eprintln`
/// would be a panic.
fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
}
