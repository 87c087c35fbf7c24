//! Ctrl-C, SIGTERM and SIGHUP as a request that long work looks at, so that everything that was
//! mounted, attached or created is taken down in order.

use std::sync::atomic::{AtomicBool, Ordering};

/// The exit code of a command that was stopped, as a shell reports SIGINT.
pub const EXIT_CODE: u8 = 130;

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Makes the signals requests from now on.
pub fn install() -> Result<(), String> {
    ctrlc::set_handler(|| REQUESTED.store(true, Ordering::SeqCst))
        .map_err(|error| format!("cannot handle signals: {error}"))
}

/// The flag that a signal sets.
pub fn requested() -> &'static AtomicBool {
    &REQUESTED
}

/// Whether the user has asked to stop.
pub fn is_requested() -> bool {
    REQUESTED.load(Ordering::SeqCst)
}
