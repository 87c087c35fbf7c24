//! `onewrite backup` and `onewrite shell` where SQLite cannot make the wal-index that it needs to read
//! a closed database: the file, the reason and the way out are said.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use onewrite_iotrace::scratch::{Mounted, private_mounts};
use rustix::mount::{MountFlags, mount_remount};

use super::writer::{FOUR_COMMITS, Then, Writer};
use super::{companion, lossy, path, run};

const NOBODY: u32 = 65_534;

/// The command and its library, where any user may run them.
struct Program {
    directory: tempfile::TempDir,
}

impl Program {
    fn new() -> Program {
        super::common::build_libraries();
        let directory = tempfile::tempdir().expect("a directory");
        let all = fs::Permissions::from_mode(0o755);
        fs::set_permissions(directory.path(), all.clone()).expect("permissions");
        let built = Path::new(env!("CARGO_BIN_EXE_onewrite"));
        for name in ["onewrite", "libonewrite.so", "libonewrite_preload.so"] {
            let to = directory.path().join(name);
            let from = built.with_file_name(name);
            onewrite_common::files::copy_program(from.to_str().expect("UTF-8"), &to);
            fs::set_permissions(&to, all.clone()).expect("permissions");
        }
        Program { directory }
    }

    fn run_as(&self, user: u32, args: &[&str]) -> Output {
        let mut command = Command::new(self.directory.path().join("onewrite"));
        super::without_wishes(&mut command);
        command.args(args).current_dir("/").uid(user).gid(user);
        run(command)
    }

    /// `backup` and `shell` fail, and say all of these words.
    fn refuse(&self, user: u32, database: &Path, words: &[&str]) {
        let to = tempfile::tempdir().expect("a directory");
        let all = fs::Permissions::from_mode(0o777);
        fs::set_permissions(to.path(), all).expect("permissions");
        let copy = to.path().join("copy.db");
        for args in [
            &["backup", path(database), path(&copy)][..],
            &["shell", path(database), "SELECT count(*) FROM t"],
            &["shell", path(database), ".dump"],
        ] {
            let output = self.run_as(user, args);
            let said = lossy(&output.stderr);
            if args[2] != ".dump" {
                // SQLite's shell ends a dump that it could not make with 0.
                assert_ne!(output.status.code(), Some(0), "{args:?}: {said}");
            }
            for words in words {
                assert!(said.contains(words), "{args:?}: {words}: {said}");
            }
            assert!(!copy.exists());
        }
        // The way out is one.
        let name = path(database);
        let output = self.run_as(user, &["salvage", name, "-o", path(&copy)]);
        assert!(output.status.success(), "{}", lossy(&output.stderr));
        let output = self.run_as(
            user,
            &[
                "shell",
                &format!("file:{name}?immutable=1"),
                "SELECT count(*) FROM t",
            ],
        );
        assert_eq!(
            (
                lossy(&output.stdout).as_str(),
                lossy(&output.stderr).as_str()
            ),
            ("3\n", "")
        );
    }

    fn succeed(&self, user: u32, database: &Path) {
        let args = ["shell", path(database), "SELECT count(*) FROM t"];
        let output = self.run_as(user, &args);
        assert_eq!(
            (
                lossy(&output.stdout).as_str(),
                lossy(&output.stderr).as_str()
            ),
            ("3\n", "")
        );
    }
}

fn closed(directory: &Path, mode: &str) -> PathBuf {
    let database = directory.join("app.db");
    Writer::start(&database, mode, "auto", FOUR_COMMITS, Then::Wait).finish();
    database
}

#[test]
fn a_user_who_may_only_read_is_told_why_and_the_way_out() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: takes root");
        return;
    }
    let program = Program::new();
    for mode in ["onewrite", "direct", "wal"] {
        let place = tempfile::tempdir().expect("a directory");
        let mode_of = |mode| fs::set_permissions(place.path(), fs::Permissions::from_mode(mode));
        mode_of(0o755).expect("permissions");
        let database = closed(place.path(), mode);
        let index = companion(&database, "-shm");
        program.refuse(
            NOBODY,
            &database,
            &[
                path(&index),
                "no permission",
                "user 0",
                "onewrite salvage",
                "immutable=1",
            ],
        );
        // Nothing more is said where it can be made.
        program.succeed(0, &database);
        mode_of(0o777).expect("permissions");
        program.succeed(NOBODY, &database);
    }
    let place = tempfile::tempdir().expect("a directory");
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("permissions");
    program.succeed(NOBODY, &closed(place.path(), "delete"));
}

#[test]
fn a_file_system_that_is_mounted_read_only_is_the_reason() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: takes root");
        return;
    }
    private_mounts().expect("a mount namespace");
    let program = Program::new();
    let place = tempfile::tempdir().expect("a directory");
    let size = Some(c"size=64m,mode=755");
    let mounted = Mounted::with_options(Path::new("onewrite-test"), place.path(), "tmpfs", size);
    let mounted = mounted.expect("a file system");
    let database = closed(place.path(), "onewrite");
    mount_remount(place.path(), MountFlags::RDONLY, c"").expect("read-only");
    let index = companion(&database, "-shm");
    program.refuse(
        0,
        &database,
        &[
            path(&index),
            "mounted read-only",
            "copy the database",
            "onewrite salvage",
            "immutable=1",
        ],
    );
    mounted.unmount().expect("unmounted");
}
