//! Ctrl-C, SIGTERM and SIGHUP as a request that long work checks. So the run can unmount and remove
//! everything in order.

use crate::failure::Failure;
use std::sync::atomic::{AtomicBool, Ordering};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Turns the signals into requests from now on.
///
/// # Errors
/// Errors of the system.
pub fn install() -> Result<(), Failure> {
    ctrlc::set_handler(|| REQUESTED.store(true, Ordering::SeqCst))
        .map_err(|error| Failure::Harness(format!("cannot handle signals: {error}")))
}

/// # Errors
/// [`Failure::Stopped`] after the user has asked for it.
pub fn check() -> Result<(), Failure> {
    match REQUESTED.load(Ordering::SeqCst) {
        true => Err(Failure::Stopped),
        false => Ok(()),
    }
}
