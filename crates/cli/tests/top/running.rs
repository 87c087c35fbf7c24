//! A running `onewrite top`, and its document.
#![allow(dead_code)] // not every test that includes this module needs all of it

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The longest wait of a test.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A running `onewrite top`.
pub struct Top(pub Child);

impl Top {
    /// Begins, and waits until it watches.
    pub fn start(args: &[&str]) -> Self {
        Self::of(
            Command::new(env!("CARGO_BIN_EXE_onewrite"))
                .arg("top")
                .args(args),
        )
    }

    /// The same by a command of the test's.
    pub fn of(command: &mut Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command");
        let said = child.stderr.take().expect("a pipe");
        let mut lines = BufReader::new(said).lines().map_while(Result::ok);
        let watching = lines.any(|line| line.contains("watching"));
        assert!(watching, "it ended early");
        // Its other messages must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Self(child)
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Ends it as Ctrl-C does, and reads its document.
    pub fn stop(mut self) -> Value {
        kill_process(Pid::from_child(&self.0), Signal::INT).expect("a signal");
        let output = self.0.stdout.take().expect("a pipe");
        let document = serde_json::from_reader(output).expect("one JSON document");
        let begin = Instant::now();
        while self.0.try_wait().expect("its end").is_none() {
            assert!(begin.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
        document
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

pub fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().expect("a list")
}

/// The database at this path.
pub fn database<'a>(document: &'a Value, path: &Path) -> &'a Value {
    let databases = list(document, "databases").iter();
    let path = path.to_str().expect("UTF-8");
    let found = databases.clone().find(|database| database["path"] == path);
    found.unwrap_or_else(|| panic!("{path} is missing: {document:#}"))
}
