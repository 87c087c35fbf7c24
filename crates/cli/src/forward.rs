//! Passes signals on to the program that a command runs, so that the command can be stopped in its
//! place. `docker stop` and systemd send SIGTERM to the command alone.
//!
//! Signals of the terminal (Ctrl-C) are not passed on: the program gets these itself.

use std::io;
use std::process::{Child, ExitStatus};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};

const PASSED_ON: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// The signals that this process gets, from [`Forward::install`] on.
pub struct Forward {
    signals: SignalsInfo<WithOrigin>,
}

impl Forward {
    /// Call it before the program starts. From then on none of these signals ends this process.
    pub fn install() -> Result<Forward, String> {
        let signals = PASSED_ON.iter().chain([&SIGCHLD]);
        let signals =
            SignalsInfo::new(signals).map_err(|error| format!("cannot handle signals: {error}"))?;
        Ok(Forward { signals })
    }

    /// Waits until the program has ended.
    pub fn wait(&mut self, program: &mut Child) -> io::Result<ExitStatus> {
        loop {
            // SIGCHLD ends this wait when the program ends.
            if let Some(status) = self.look(program)? {
                return Ok(status);
            }
            for origin in self.signals.wait() {
                pass_on(program, &origin);
            }
        }
    }

    /// Passes on what has come, and looks whether the program has ended.
    pub fn look(&mut self, program: &mut Child) -> io::Result<Option<ExitStatus>> {
        for origin in self.signals.pending() {
            pass_on(program, &origin);
        }
        program.try_wait()
    }
}

/// The program was not waited for yet, so its number is no other's.
fn pass_on(program: &Child, origin: &Origin) {
    let is_sent = matches!(origin.cause, Cause::Sent(_));
    let signal =
        Signal::from_named_raw(origin.signal).filter(|_| is_sent && origin.signal != SIGCHLD);
    let pid = i32::try_from(program.id()).ok().and_then(Pid::from_raw);
    if let (Some(signal), Some(pid)) = (signal, pid) {
        // It may just have ended.
        let _ = kill_process(pid, signal);
    }
}
