//! Starts, kills and waits for the processes of a run.
//!
//! Every worker is this same program with another subcommand. A worker that finds a broken promise
//! writes it to its standard output as one JSON document and exits with 1. It exits with 2 if the
//! harness itself failed. No worker outlives the process that started it, whichever way that one
//! ends.

use crate::failure::{Failure, Promise};
use rustix::process::{Pid, Signal, getpid, kill_process, set_parent_process_death_signal};
use std::fs::OpenOptions;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Ends this process as `kill -9` does: closes, flushes and unlocks nothing.
pub fn die() -> ! {
    // If the kernel refuses, an abort is the nearest replacement.
    let _ = kill_process(getpid(), Signal::KILL);
    std::process::abort()
}

/// Asks the kernel to kill this process when its parent ends.
///
/// # Errors
/// Errors of the kernel.
pub fn die_with_parent() -> Result<(), Failure> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| Failure::Harness(format!("PR_SET_PDEATHSIG: {error}")))
}

/// Kills process `id`, which must be a descendant that nobody has reaped yet.
pub fn kill_descendant(id: u32) {
    if let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) {
        // ESRCH: it has ended by itself.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// The command that runs this program with `arguments`; its standard error goes to `log`.
///
/// # Errors
/// The program or the log cannot be opened.
pub fn this_program(arguments: &[String], log: &Path) -> Result<Command, Failure> {
    let log_file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)
        .map_err(|error| Failure::io("open", log, error))?;
    let program: PathBuf = std::env::current_exe()?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log_file);
    Ok(command)
}

/// A worker that runs until it is killed, or finds a failure.
pub struct Worker {
    child: Child,
    name: String,
}

impl Worker {
    /// Starts this program with `arguments`.
    ///
    /// # Errors
    /// The worker cannot be started.
    pub fn start(name: &str, arguments: &[String], log: &Path) -> Result<Self, Failure> {
        let child = this_program(arguments, log)?.spawn()?;
        Ok(Self {
            child,
            name: name.to_owned(),
        })
    }

    /// Sends the worker the signal that kills it, without waiting for its end.
    pub fn signal(&mut self) {
        // An error would mean that it has ended already.
        let _ = self.child.kill();
    }

    /// Kills the worker and waits until it is gone, with all of its locks.
    ///
    /// # Errors
    /// A failure that it had found before the kill.
    pub fn kill(mut self) -> Result<(), Failure> {
        self.signal();
        self.reap()
    }

    /// Checks that the worker runs.
    ///
    /// # Errors
    /// The failure that it has found, if it has ended.
    pub fn check(&mut self) -> Result<(), Failure> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(_) => {
                self.reap()?;
                Err(Failure::Harness(format!("{} ended by itself", self.name)))
            }
        }
    }

    fn reap(&mut self) -> Result<(), Failure> {
        let mut output = String::new();
        if let Some(mut stdout) = self.child.stdout.take() {
            stdout.read_to_string(&mut output)?;
        }
        let status = self.child.wait()?;
        outcome(&self.name, status, &output).map(drop)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs this program with `arguments` to its end and returns its standard output. A process that
/// killed itself on request counts as successful.
///
/// # Errors
/// The failure that it found, or that it did not end within `limit`.
pub fn run_to_end(
    name: &str,
    arguments: &[String],
    log: &Path,
    limit: Duration,
) -> Result<String, Failure> {
    let mut child = this_program(arguments, log)?.spawn()?;
    let reader = child.stdout.take().map(|mut stdout| {
        std::thread::spawn(move || {
            let mut output = String::new();
            stdout.read_to_string(&mut output).map(|_| output)
        })
    });
    let deadline = Instant::now() + limit;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            let detail = format!("{name} did not end within {} s", limit.as_secs());
            return Err(Failure::broken(Promise::Progress, detail));
        }
        std::thread::sleep(Duration::from_micros(500));
    };
    let output = match reader.map(std::thread::JoinHandle::join) {
        Some(Ok(output)) => output?,
        _ => String::new(),
    };
    outcome(name, status, &output)?;
    Ok(output)
}

/// The meaning of a worker's exit.
fn outcome(name: &str, status: ExitStatus, output: &str) -> Result<(), Failure> {
    use std::os::unix::process::ExitStatusExt;
    if status.success() || status.signal() == Some(Signal::KILL.as_raw()) {
        return Ok(());
    }
    match serde_json::from_str::<Failure>(output.trim()) {
        Ok(failure) => Err(failure.at(name)),
        Err(_) => {
            let detail = format!("{name} ended with {status} and said {output:?}");
            Err(Failure::broken(Promise::NoOtherErrors, detail))
        }
    }
}
