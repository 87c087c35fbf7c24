//! Turns Ctrl-C, SIGTERM and SIGHUP into a request. Long work looks at it, and takes down in order
//! everything that it mounted, attached or created.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// The exit code of a command that was stopped, as a shell reports SIGINT.
pub const EXIT_CODE: u8 = 130;

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// From now on these signals set the request.
pub fn install() -> Result<(), String> {
    ctrlc::set_handler(|| REQUESTED.store(true, Ordering::SeqCst))
        .map_err(|error| format!("cannot handle signals: {error}"))
}

/// The flag that a signal sets.
pub fn requested() -> &'static AtomicBool {
    &REQUESTED
}

/// Forgets the request, so that the next signal is one more.
pub fn withdraw() {
    REQUESTED.store(false, Ordering::SeqCst);
}

/// Whether the user has asked to stop.
pub fn is_requested() -> bool {
    REQUESTED.load(Ordering::SeqCst)
}

/// The note of a report that was stopped after this many complete runs; the error itself if there
/// is none.
pub fn cut_short(runs: usize, error: String) -> Result<String, String> {
    match runs {
        0 => Err(error),
        1 => Ok("stopped after one complete run".to_owned()),
        runs => Ok(format!("stopped after {runs} complete runs")),
    }
}

/// The exit code of a command that has shown its report: `code`, unless the user has stopped it.
pub fn exit_code(code: ExitCode) -> ExitCode {
    if !is_requested() {
        return code;
    }
    crate::say(format_args!("onewrite: stopped"));
    ExitCode::from(EXIT_CODE)
}
