//! The part of the `onewrite` command that reads bytes which others wrote: a library of its own, so that
//! they can be fuzzed (`crates/hostile`). The command itself is `main.rs`.

pub mod inspect;

use std::process::ExitCode;

/// What a subcommand comes to: an exit code, or the text of an error.
pub type Outcome = Result<ExitCode, String>;
