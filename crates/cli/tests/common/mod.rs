//! What several tests of the command share.
#![allow(dead_code)] // not every test that includes this module needs all of it

mod support;

use std::process::{Command, Output};

pub use support::*;

/// `onewrite SUBCOMMAND ARGS`, run to its end.
pub fn onewrite(subcommand: &str, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onewrite"))
        .arg(subcommand)
        .args(args)
        .output()
        .expect("the command")
}
