//! Parts of tests that need their own process: this program again, running one of its ignored
//! tests.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Names the database for a child.
pub const DATABASE: &str = "ONEWRITE_TEST_DATABASE";

/// Longer than any child takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A command that runs the ignored test `name` of this program, or of a copy of it, on a database.
pub fn child(program: &Path, name: &str, database: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .args(["--exact", name, "--ignored", "--nocapture"])
        .args(["--test-threads", "1"])
        .env(DATABASE, database)
        .env_remove("RUST_TEST_THREADS");
    command
}

pub fn this_program() -> std::path::PathBuf {
    std::env::current_exe().expect("this program")
}

/// The output of a child. If the child hangs, this ends it and fails the test.
pub fn printed(command: &mut Command) -> String {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program runs");
    let begin = Instant::now();
    let status = loop {
        match child.try_wait().expect("a child of ours") {
            Some(status) => break status,
            None if begin.elapsed() > PATIENCE => {
                child.kill().expect("a child of ours");
                let _ = child.wait();
                panic!("{command:?} hangs");
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let mut text = String::new();
    let mut out = child.stdout.take().expect("a pipe");
    out.read_to_string(&mut text).expect("UTF-8");
    assert!(status.success(), "{command:?}: {status}\n{text}");
    text
}
