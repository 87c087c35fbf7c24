//! `onewrite record`: writes the SQL that a program sends to SQLite into a file.
//!
//! The program runs with a preloaded library (`crates/preload`), which sends its calls over a Unix
//! socket. `server` receives them. `recorder` writes the trace, and copies databases when they are
//! first opened. So the program needs no disk space, no time for compression, and does not notice a
//! full disk.

mod recorder;
mod server;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use onewrite_record::SOCKET_VARIABLE;
use onewrite_record::mask::{Integers, Mask};
use onewrite_replay::clock;

use crate::forward::Forward;
use crate::{Outcome, interrupt, preload};
use recorder::{Output, Recorder, Summary};
use server::Socket;

/// The text below the options of `record --help`.
pub const AFTER_HELP: &str = "\
The program must use a dynamically linked SQLite (libsqlite3.so). Every process that the command starts is \
recorded. The trace holds the databases as they were when first opened, each statement with its values and \
times, and a checksum of its results. docs/record-replay.md lists what is not recorded.

A trace holds the program's data and its databases: protect it as you protect those. --mask replaces texts, BLOBs and \
floating-point numbers by others of the same type, length, classes of characters and magnitude. Equal values stay equal; \
the key is forgotten. --mask=all also replaces integers; then a replay does not find rows by a number that SQLite \
assigned. Lengths, equality, common beginnings and all names stay visible: docs/record-replay.md says what masking \
does and does not protect. Masking is for programs that begin with empty databases.

With --connect no program is started. It records programs that have ONEWRITE_RECORD=SOCKET in their environment. They \
preload the library (LD_PRELOAD), or load it as an extension, which works with any SQLite that loads extensions.

Examples:
  onewrite record -o app.trace -- python3 app.py
  onewrite record -o app.trace --connect /run/app.socket
  onewrite replay app.trace --modes wal,onewrite";

/// The options of `onewrite record`.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The trace to write
    #[arg(short, long, value_name = "TRACE")]
    output: PathBuf,

    /// Mask values on the way: texts, BLOBs and floating-point numbers, or integers too; see below
    #[arg(long, value_enum, value_name = "WHAT", num_args = 0..=1, require_equals = true, default_missing_value = "text")]
    mask: Option<MaskArg>,

    /// Record all programs that connect to this new socket, until Ctrl-C
    #[arg(long, value_name = "SOCKET", conflicts_with = "command")]
    connect: Option<PathBuf>,

    /// The program and its arguments
    #[arg(
        required_unless_present = "connect",
        trailing_var_arg = true,
        value_name = "COMMAND"
    )]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum MaskArg {
    Text,
    All,
}

/// Records.
pub fn run(args: &Args) -> Outcome {
    let integers = |mask| match mask {
        MaskArg::Text => Integers::Kept,
        MaskArg::All => Integers::Masked,
    };
    let mask = args.mask.map(|mask| Mask::new(integers(mask))).transpose();
    let mask = mask.map_err(|error| format!("no random numbers: {error}"))?;
    clock::register()?;
    if let Some(socket) = &args.connect {
        return wait_at(socket, Output::open(&args.output)?, mask);
    }
    let library = preload::library(preload::PRELOAD, "ONEWRITE_PRELOAD_LIBRARY")?;
    let Some(program) = args.command.first() else {
        return Err("no command given".to_owned());
    };
    if let Some(obstacle) = preload::obstacle(program) {
        return Err(obstacle);
    }
    // An existing trace of that name stays where nothing can be recorded.
    let output = Output::open(&args.output)?;
    let socket = Socket::listen(None)?;
    let mut signals = Forward::install()?;
    let mut command = preload::command(&args.command, &library);
    let mut child = match command.env(SOCKET_VARIABLE, socket.address()).spawn() {
        Ok(child) => child,
        Err(error) => return Ok(preload::not_started(program, &error)),
    };
    let recorder = Arc::new(Recorder::new(output, mask));
    let server = socket.serve(Arc::clone(&recorder));
    let status = loop {
        match signals.look(&mut child) {
            Ok(Some(status)) => break status,
            Ok(None) => std::thread::sleep(Duration::from_millis(50)),
            Err(error) => return Err(format!("cannot wait for the program: {error}")),
        }
        recorder.flush_now_and_then();
    };
    server.drain(&recorder);
    let code = preload::exit_code(status);
    let summary = recorder.finish()?;
    if summary.connections == 0 {
        let why = preload::why_nothing_was_seen(program);
        eprintln!("onewrite: nothing was recorded: {why}");
        return Ok(match status.success() {
            true => ExitCode::FAILURE,
            false => code,
        });
    }
    tell(&summary);
    Ok(code)
}

fn tell(summary: &Summary) {
    eprintln!("onewrite: {summary}");
    for note in &summary.notes {
        eprintln!("onewrite: {note}");
    }
}

/// Records programs that connect by themselves, until the user stops it.
fn wait_at(socket: &Path, output: Output, mask: Option<Mask>) -> Outcome {
    interrupt::install()?;
    let listening = Socket::listen(Some(socket))?;
    let recorder = Arc::new(Recorder::new(output, mask));
    let _server = listening.serve(Arc::clone(&recorder));
    eprintln!(
        "onewrite: recording programs that connect to {}, until Ctrl-C: set {SOCKET_VARIABLE}={} in the environment of \
         the program, and preload {} or load it as an extension",
        socket.display(),
        socket.display(),
        preload::PRELOAD
    );
    while !interrupt::is_requested() {
        std::thread::sleep(Duration::from_millis(50));
        recorder.flush_now_and_then();
    }
    let summary = recorder.finish()?;
    if summary.connections == 0 {
        eprintln!("onewrite: nothing was recorded: no program connected");
        return Ok(ExitCode::FAILURE);
    }
    tell(&summary);
    Ok(ExitCode::SUCCESS)
}
