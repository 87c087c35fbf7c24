//! Helpers that several tests of the command share.
#![allow(dead_code, unused_imports)] // not every test that includes this module needs all of it

pub mod flash;
mod support;

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Once;
use std::thread;
use std::time::{Duration, Instant};

pub use support::*;

/// `onewrite SUBCOMMAND ARGS`, run to its end.
pub fn onewrite(subcommand: &str, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onewrite"))
        .arg(subcommand)
        .args(args)
        .output()
        .expect("the command")
}

/// The limit of [`until`].
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Asks until there is an answer.
pub fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "no {what} within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Builds the libraries that `record`, `run` and `shell` preload.
pub fn build_libraries() {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        // A build of one package has other features than one of the whole workspace, and would
        // change the libraries under other tests. So it is made only where the workspace was not
        // built before.
        if std::env::var_os("ONEWRITE_BUILT").is_none() {
            let packages = ["build", "-p", "onewrite-preload", "-p", "onewrite"];
            let built = Command::new(env!("CARGO")).args(packages).status();
            assert!(built.expect("cargo").success());
        }
    });
}

/// Debian's Python, or another one with a dynamically linked SQLite and the modules in `imports`.
pub fn python(imports: &str) -> Option<PathBuf> {
    let told = std::env::var_os("ONEWRITE_PYTHON").map(PathBuf::from);
    let names = told
        .into_iter()
        .chain(["/usr/bin/python3".into(), "python3".into()]);
    let check = format!(
        "import _sqlite3, {imports}; m = open('/proc/self/maps').read(); assert 'libsqlite3.so' in m"
    );
    let found = names.into_iter().find(|name| {
        let tried = Command::new(name).args(["-c", &check]).output();
        tried.is_ok_and(|output| output.status.success())
    });
    if found.is_none() {
        println!("SKIPPED: no python3 with a dynamically linked SQLite and {imports}");
    }
    found
}
