//! `onewrite run`: an unchanged program under a journal mode of onewrite.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use onewrite_record::{EXTENSION_VARIABLE, OPENED, REPORT_VARIABLE};
use onewrite_workload::mode::{JOURNALS, Mode, Vfs};
use rustix::fs::{MemfdFlags, memfd_create};
use tempfile::NamedTempFile;

use crate::forward::Forward;
use crate::inspect::DatabaseHeader;
use crate::{Outcome, backup, preload};

/// The text below the options of `run --help`.
pub const AFTER_HELP: &str = "\
The program must use a dynamically linked SQLite (libsqlite3.so) of version 3.40 or later, as Debian's \
Python, Perl, PHP, Tcl and the sqlite3 shell do. Python wheels, Go and Node programs often carry an SQLite \
of their own. Then nothing changes, and this command says so. Every process that the command starts is included.

A database gets the mode where its program asks for no journal mode, or for WAL. Where the program asks for \
another of SQLite's own (PRAGMA journal_mode=delete), it gets that. The program gets the answer \"wal\". A connection that names a VFS \
keeps it. Where the mode is not possible for a database, it gets WAL, or keeps the mode that it has.

Signals that are sent to this command go on to the program. When the program has ended, also by a kill, the \
databases that it left open are closed, so that any SQLite can open them.

This command sets these variables; set them yourself to do without it:
  LD_PRELOAD=libonewrite_preload.so ONEWRITE_RUN_EXTENSION=.../libonewrite.so
  ONEWRITE_MAKE_DEFAULT=1 ONEWRITE_JOURNAL_MODE=onewrite ONEWRITE_UPGRADE_WAL=1

Examples:
  onewrite run -- python3 app.py
  onewrite run --mode waldio -- perl worker.pl";

/// The options of `onewrite run`.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The journal mode: onewrite, waldio, swal or direct; xftl on transactional files
    #[arg(long, default_value = "onewrite", value_parser = mode)]
    mode: Mode,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn mode(spec: &str) -> Result<Mode, String> {
    if spec.contains(':') {
        return Err(
            "set a mode's variations in the program, as pragmas or URI parameters".to_owned(),
        );
    }
    let ours = JOURNALS.iter().filter(|it| it.vfs == Vfs::Onewrite);
    let names: Vec<&str> = ours.map(|it| it.name).collect();
    let mode = Mode::parse(spec).map_err(|_| format!("use {}", names.join(", ")))?;
    match mode.journal().vfs {
        Vfs::Onewrite => Ok(mode),
        Vfs::Stock => Err(
            "onewrite has no part in that mode: run the program without this command".to_owned(),
        ),
    }
}

/// How a program ended.
pub enum Ended {
    /// The program could not be started; the user has seen why.
    NotStarted(ExitCode),
    /// Its status, and the library's report: a line for each SQLite that it was loaded into.
    Exited(ExitStatus, String),
}

/// The file that the library adds its lines to, in every process of the program.
enum ReportFile {
    Named(NamedTempFile),
    /// A container may have no directory for temporary files.
    InMemory(File),
}

impl ReportFile {
    fn make() -> Result<ReportFile, String> {
        let named = tempfile::Builder::new().prefix("onewrite-run-").tempfile();
        named.map(ReportFile::Named).or_else(|error| {
            let file = ReportFile::in_memory();
            file.map_err(|_| format!("cannot make a temporary file: {error}"))
        })
    }

    /// # Errors
    /// The kernel makes none, or `/proc` is missing, where other processes find it.
    fn in_memory() -> io::Result<ReportFile> {
        let file = memfd_create("onewrite-run", MemfdFlags::CLOEXEC)?;
        let report = ReportFile::InMemory(file.into());
        fs::metadata(report.path())?;
        Ok(report)
    }

    /// The path by which all processes open it.
    fn path(&self) -> PathBuf {
        match self {
            ReportFile::Named(file) => file.path().to_owned(),
            ReportFile::InMemory(file) => {
                format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into()
            }
        }
    }
}

/// Runs a program with the extension preloaded, and these variables set.
pub fn preloaded(command: &[OsString], variables: &[(&str, &str)]) -> Result<Ended, String> {
    let library = preload::library(preload::PRELOAD, "ONEWRITE_PRELOAD_LIBRARY")?;
    let extension = preload::library(preload::EXTENSION, "ONEWRITE_EXTENSION_LIBRARY")?;
    let Some(program) = command.first() else {
        return Err("no command given".to_owned());
    };
    if let Some(obstacle) = preload::obstacle(program) {
        return Err(obstacle);
    }
    let report = ReportFile::make()?;
    let mut signals = Forward::install()?;
    let started = preload::command(command, &library)
        .env(EXTENSION_VARIABLE, &extension)
        .env(REPORT_VARIABLE, report.path())
        .env_remove("ONEWRITE_JOURNAL_MODE")
        .env_remove("ONEWRITE_UPGRADE_WAL")
        .envs(variables.iter().copied())
        .spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(error) => return Ok(Ended::NotStarted(preload::not_started(program, &error))),
    };
    let status = signals
        .wait(&mut child)
        .map_err(|error| format!("cannot wait for the program: {error}"))?;
    let told = fs::read(report.path()).unwrap_or_default();
    close_for(&told);
    let told = String::from_utf8_lossy(&told).into_owned();
    Ok(Ended::Exited(status, told))
}

/// A program that is killed, or exits without closing a database, leaves it guarded. So this opens
/// each database that it had, and closes it.
fn close_for(told: &[u8]) {
    let opened = told
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.strip_prefix(OPENED.as_bytes()));
    let opened: BTreeSet<&Path> = opened
        .map(|path| Path::new(OsStr::from_bytes(path)))
        .collect();
    for path in opened {
        let header = DatabaseHeader::read(path);
        if header.is_none_or(|header| header.guard.is_none()) {
            continue;
        }
        // It does not wait for others: the last of them to close, or the next to open, does the same.
        let closed = onewrite::register()
            .map_err(|error| error.to_string())
            .and_then(|()| backup::open_source(path, Duration::ZERO).map_err(|e| e.to_string()));
        if let Err(error) = closed {
            eprintln!("onewrite: {} is still guarded: {error}", path.display());
        }
    }
}

/// Runs the program.
pub fn run(args: &Args) -> Outcome {
    let variables = [
        ("ONEWRITE_MAKE_DEFAULT", "1"),
        ("ONEWRITE_JOURNAL_MODE", args.mode.journal().name),
        ("ONEWRITE_UPGRADE_WAL", "1"),
    ];
    let (status, told) = match preloaded(&args.command, &variables)? {
        Ended::NotStarted(code) => return Ok(code),
        Ended::Exited(status, told) => (status, told),
    };
    if let Some(program) = args.command.first().filter(|_| told.is_empty()) {
        let why = preload::why_nothing_was_seen(program);
        eprintln!("onewrite: nothing ran in mode {}: {why}", args.mode);
        return Ok(match status.success() {
            true => ExitCode::FAILURE,
            false => preload::exit_code(status),
        });
    }
    Ok(preload::exit_code(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modes_are_those_of_the_extension() {
        for (spec, refused) in [
            ("onewrit", "use direct, waldio, swal, onewrite"),
            ("wal", "onewrite has no part in that mode"),
            (
                "waldio:layout=page4k",
                "set a mode's variations in the program",
            ),
        ] {
            let error = mode(spec).expect_err(spec);
            assert!(error.starts_with(refused), "{error}");
        }
        assert!(mode("direct").is_ok());
    }
}
