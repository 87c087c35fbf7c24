//! `onewrite backup` and `onewrite shell` on databases in use: the system's own sqlite3 reads the
//! results.

#[path = "../logs/command.rs"]
mod command;
#[path = "../common/mod.rs"]
mod common;
#[path = "../logs/writer.rs"]
mod writer;

mod backup;
mod rights;
mod shell;

use command::{onewrite, without_wishes};
use onewrite_common::files::companion;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::path;

/// Every journal mode.
const MODES: [&str; 9] = [
    "onewrite", "waldio", "swal", "direct", "wal", "delete", "truncate", "persist", "memory",
];

fn run(mut command: Command) -> Output {
    command.stdin(Stdio::null()).output().expect("it starts")
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The answer of the system's own sqlite3.
fn stock_shell(database: &Path, sql: &str) -> String {
    let output = Command::new("sqlite3").arg(database).arg(sql).output();
    let output = output.expect("sqlite3 is installed");
    lossy(&output.stdout).trim().to_owned() + lossy(&output.stderr).trim()
}

/// The names in a directory that begin with `begin`, sorted.
fn names(directory: &Path, begin: &str) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string());
    let mut names: Vec<_> = names.map(|name| name.expect("UTF-8")).collect();
    names.retain(|name| name.starts_with(begin));
    names.sort();
    names
}
