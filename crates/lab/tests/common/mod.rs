//! Helpers that several tests of the command share.
#![allow(dead_code)] // not every test that includes this module needs all of it

#[path = "../../../cli/tests/common/support.rs"]
mod support;

use std::process::{Command, Output};

pub use support::*;

/// `onewrite-lab SUBCOMMAND ARGS`, run to its end.
pub fn onewrite_lab(subcommand: &str, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onewrite-lab"))
        .arg(subcommand)
        .args(args)
        .output()
        .expect("the command")
}
