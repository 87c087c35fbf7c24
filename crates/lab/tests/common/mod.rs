//! Helpers that several tests of the command share.
#![allow(dead_code, unused_imports)] // not every test that includes this module needs all of it

#[path = "../../../cli/tests/common/support.rs"]
mod support;

use std::process::{Command, Output};

pub use support::*;

/// Whether this is root with FUSE, which a device of our own takes.
pub fn can_run() -> bool {
    let can = rustix::process::geteuid().is_root() && std::path::Path::new("/dev/fuse").exists();
    if !can {
        eprintln!("SKIPPED: needs root and /dev/fuse");
    }
    can
}

/// `onewrite-lab SUBCOMMAND ARGS`, run to its end.
pub fn onewrite_lab(subcommand: &str, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onewrite-lab"))
        .arg(subcommand)
        .args(args)
        .output()
        .expect("the command")
}
