//! The command as these tests run it.

use std::process::Command;

/// The command, without environment variables of onewrite.
pub fn onewrite(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onewrite"));
    command.args(arguments);
    without_wishes(&mut command);
    command
}

pub fn without_wishes(command: &mut Command) {
    for name in [
        "ONEWRITE_JOURNAL_MODE",
        "ONEWRITE_MAKE_DEFAULT",
        "ONEWRITE_UPGRADE_WAL",
    ] {
        command.env_remove(name);
    }
}
