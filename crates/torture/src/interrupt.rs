//! Ctrl-C, SIGTERM and SIGHUP as a request that long work looks at, so that what was mounted and
//! made is taken down in order.

use crate::failure::Failure;
use std::sync::atomic::{AtomicBool, Ordering};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Makes the signals requests from now on.
///
/// # Errors
/// The system's.
pub fn install() -> Result<(), Failure> {
    ctrlc::set_handler(|| REQUESTED.store(true, Ordering::SeqCst))
        .map_err(|error| Failure::Harness(format!("cannot handle signals: {error}")))
}

/// # Errors
/// [`Failure::Stopped`], once somebody has asked for it.
pub fn check() -> Result<(), Failure> {
    match REQUESTED.load(Ordering::SeqCst) {
        true => Err(Failure::Stopped),
        false => Ok(()),
    }
}
