//! Writes the command's man pages into a directory, for packages of distributions. They say what
//! `--help` says.
//!
//! ```sh
//! cargo run -p onewrite-cli --example man-pages -- target/man
//! ```

#[allow(dead_code)] // its main is not run
#[path = "../src/main.rs"]
mod program;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::CommandFactory;

fn main() -> ExitCode {
    let Some(directory) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("man-pages DIRECTORY");
        return ExitCode::from(2);
    };
    match clap_mangen::generate_to(program::Cli::command(), &directory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", directory.display());
            ExitCode::FAILURE
        }
    }
}
