//! Programs with more privileges than the user that starts them.

use super::children::{self, printed, this_program};
use super::{open, sql};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;

/// A user that owns nothing.
const NOBODY: u32 = 65_534;

/// The mode that a program gets if it sets none itself, with this mode in its environment.
fn mode_in(program: &Path, database: &Path) -> String {
    let mut child = children::child(program, "privileges::child", database);
    let child = child
        .env("ONEWRITE_JOURNAL_MODE", "waldio")
        .env("ONEWRITE_MAKE_DEFAULT", "1")
        .uid(NOBODY)
        .gid(NOBODY);
    printed(child)
}

#[test]
fn a_program_with_raised_privileges_ignores_the_environment() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: a program of another user needs root");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let set_mode = |path: &Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("permissions");
    };
    set_mode(at, 0o755);
    for (name, mode, expected) in [
        ("plain", 0o755, "mode=waldio default=onewrite"),
        ("setuid", 0o4755, "mode=stock default=unix"),
        ("setgid", 0o2755, "mode=stock default=unix"),
    ] {
        let program = at.join(name);
        onewrite_common::files::copy_program(this_program(), &program);
        set_mode(&program, mode);
        let place = at.join(format!("{name}.d"));
        std::fs::create_dir(&place).expect("a directory");
        chown(&place, Some(NOBODY), Some(NOBODY)).expect("an owner");
        let text = mode_in(&program, &place.join("db"));
        assert!(text.contains(expected), "{name}: {text}");
    }
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn child() {
    let path = std::env::var(children::DATABASE).expect("a database");
    // A database without pages stays in its mode.
    sql(&open(path.as_ref()), "CREATE TABLE t(x)");
    let db = open(path.as_ref());
    sql(&db, "INSERT INTO t VALUES(1)");
    let status: serde_json::Value =
        serde_json::from_str(&sql(&db, "PRAGMA onewrite_status")).expect("JSON");
    let mode = status["mode"].as_str().unwrap_or("stock");
    // SAFETY: null asks for the default VFS, which lives as long as SQLite.
    let default = unsafe {
        let vfs = rusqlite::ffi::sqlite3_vfs_find(std::ptr::null());
        std::ffi::CStr::from_ptr((*vfs).zName)
    };
    println!("mode={mode} default={}", default.to_string_lossy());
}
