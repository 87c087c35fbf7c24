//! Helpers that several tests of the command share.
#![allow(dead_code)] // not every test that includes this module needs all of it

mod support;

use std::process::{Command, Output};
use std::sync::Once;

pub use support::*;

/// `onewrite SUBCOMMAND ARGS`, run to its end.
pub fn onewrite(subcommand: &str, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onewrite"))
        .arg(subcommand)
        .args(args)
        .output()
        .expect("the command")
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
