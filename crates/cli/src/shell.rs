//! `onewrite shell`: the stock `sqlite3` shell on a database in any mode of onewrite.
//!
//! It starts the shell with the preloaded library, as `run` does, but asks for no journal mode: the
//! database keeps its own.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::inspect::{dropped, lsmvbt};
use crate::regular::open_regular;
use crate::{Outcome, preload, rights, run};

/// The text below the options of `shell --help`.
pub const AFTER_HELP: &str = "\
Does everything that the sqlite3 shell does: an interactive prompt, and SQL \
and dot-commands as arguments or from standard input. The shell's own options \
follow DB. The exit code is the shell's. The database keeps its journal mode.

Without this command, sqlite3 says \"file is not a database\" while another \
process uses the database in a mode of onewrite. `sqlite3 DB .dump` then writes \
that into the dump and exits with 0.

Examples:
  onewrite shell app.db
  onewrite shell app.db .dump > app.sql
  onewrite shell app.db -csv \"SELECT * FROM t\"
  onewrite shell app.db < report.sql";

/// The options of `onewrite shell`.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The shell program
    #[arg(long, value_name = "PATH", default_value = "sqlite3")]
    sqlite3: OsString,

    /// The database
    #[arg(value_name = "DB")]
    database: PathBuf,

    /// SQL, dot-commands, and options of the shell
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "SQL"
    )]
    words: Vec<OsString>,
}

/// Runs the shell.
///
/// # Errors
/// There is no shell, or preloading cannot reach it.
pub fn run(args: &Args) -> Outcome {
    if let Some(refusal) = lsmvbt::refusal(&head_of(&args.database)) {
        return Err(format!("{}: {refusal}", args.database.display()));
    }
    let Some(program) = preload::find(&args.sqlite3) else {
        return Err(format!(
            "there is no {}: install it (Debian, Ubuntu: apt install sqlite3; Fedora: dnf install sqlite; Alpine: \
             apk add sqlite), or name one with --sqlite3. \"onewrite backup\" needs none",
            args.sqlite3.to_string_lossy()
        ));
    };
    if preload::carries_sqlite(&program) {
        return Err(format!(
            "{} has its own SQLite linked into it, which cannot be reached: name a sqlite3 that uses \
             libsqlite3.so with --sqlite3",
            program.display()
        ));
    }
    // The shell may end with 0 where every statement fails, as it does with .dump.
    if let Ok(database) = std::fs::canonicalize(&args.database) {
        if let Some(why) = rights::why_unreadable(&database) {
            eprintln!("onewrite: {why}");
        }
        if let Some(dropped) = dropped::by_recovery(&database) {
            eprintln!("onewrite: {dropped}");
        }
    }
    let mut words = vec![program.into_os_string(), args.database.clone().into()];
    words.extend(args.words.iter().cloned());
    let (status, told) = match run::preloaded(&words, &[("ONEWRITE_MAKE_DEFAULT", "1")])? {
        run::Ended::NotStarted(code) => return Ok(code),
        run::Ended::Exited(status, told) => (status, told),
    };
    if told.lines().any(|line| line.starts_with("failed")) {
        // The library has said why. The shell's output is not to be trusted.
        return Err("the shell ran without onewrite".to_owned());
    }
    Ok(preload::exit_code(status))
}

/// The first bytes of a file, as far as it can be read: the shell says what is wrong.
fn head_of(database: &Path) -> Vec<u8> {
    let mut head = Vec::new();
    if let Ok(file) = open_regular(database) {
        let _ = file.take(lsmvbt::HEAD_BYTES).read_to_end(&mut head);
    }
    head
}
