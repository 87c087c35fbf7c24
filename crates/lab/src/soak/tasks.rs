//! Processes that look at the database and end: checks, backups, shells.

use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// The work of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Checks the database.
    Check,
    /// Makes a copy with this method, begun at this time.
    Copy {
        method: &'static str,
        copy: PathBuf,
        began: u64,
    },
    /// Checks a copy.
    Verify { method: &'static str, copy: PathBuf },
    /// SQLite's own shell.
    Shell,
}

/// A process at work.
struct Task {
    kind: Kind,
    child: Child,
}

/// A process that has ended.
pub struct Done {
    pub kind: Kind,
    pub status: ExitStatus,
    /// Its standard output.
    pub output: String,
    pub errors: String,
}

/// See the module.
#[derive(Default)]
pub struct Tasks(Vec<Task>);

impl Tasks {
    /// Starts one. Its output must fit into a pipe.
    pub fn start(&mut self, kind: Kind, command: &mut Command) -> Result<(), String> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn();
        let child = child.map_err(|error| format!("{kind:?}: {error}"))?;
        self.0.push(Task { kind, child });
        Ok(())
    }

    pub fn is_running(&self, is_it: impl Fn(&Kind) -> bool) -> bool {
        self.0.iter().any(|task| is_it(&task.kind))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that have ended.
    pub fn done(&mut self) -> Result<Vec<Done>, String> {
        let mut done = Vec::new();
        let mut left = Vec::new();
        for mut task in self.0.drain(..) {
            match task.child.try_wait().map_err(|error| error.to_string())? {
                None => left.push(task),
                Some(status) => done.push(finish(task, status)),
            }
        }
        self.0 = left;
        Ok(done)
    }

    /// Kills those that use the database. Copies are outside of it, and go on being checked.
    pub fn kill(&mut self) -> usize {
        let (other, using): (Vec<_>, Vec<_>) = self
            .0
            .drain(..)
            .partition(|task| matches!(task.kind, Kind::Verify { .. }));
        self.0 = other;
        let killed = using.len();
        for mut task in using {
            // It may have ended.
            let _ = task.child.kill();
            let _ = task.child.wait();
            if let Kind::Copy { copy, .. } = task.kind {
                remove(&copy);
            }
        }
        killed
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        for task in &mut self.0 {
            // It may have ended.
            let _ = task.child.kill();
            let _ = task.child.wait();
        }
    }
}

fn finish(mut task: Task, status: ExitStatus) -> Done {
    let mut text = (String::new(), String::new());
    if let Some(mut pipe) = task.child.stdout.take() {
        // Output that cannot be read is judged as wrong, because it is not as expected.
        let _ = pipe.read_to_string(&mut text.0);
    }
    if let Some(mut pipe) = task.child.stderr.take() {
        let _ = pipe.read_to_string(&mut text.1);
    }
    Done {
        kind: task.kind,
        status,
        output: text.0,
        errors: text.1,
    }
}

/// Removes a copy and what its maker left next to it.
pub fn remove(copy: &Path) {
    let name = copy.as_os_str().to_string_lossy();
    for end in ["", "-journal", "-wal", "-shm", "-onewrite-partial"] {
        // Most of them do not exist.
        let _ = std::fs::remove_file(format!("{name}{end}"));
    }
}

/// A command with SQLite's own shell that dies with this process.
pub fn shell() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "sqlite3"]);
    command.args(["-batch", "-bail", "-init", "/dev/null"]);
    command
}
