//! Tables, exit codes, messages, and Ctrl-C.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use onewrite_iotrace::scratch::FileSystem;
use serde_json::Value;

use crate::common::{can_make, instances, path, text};
use crate::*;

#[test]
fn people_get_tables() {
    if !can_make(FileSystem::Ext4) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let picture = dir.path().join("picture.png");
    let command = "dd if=/dev/zero of=file bs=4096 count=4 conv=fsync 2>&1";
    let args = ["--scratch", "ext4", "--per", "4", "--plot", path(&picture)];
    let output = trace(&[&args[..], &["--", "sh", "-c", command]].concat());
    let table = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for part in [
        "on ext4 (loop",
        "file-system journal",
        "other file",
        "file ",
        "dd ",
        "jbd2/loop",
        "p99 us",
        "each",
        "exact: bytes, requests and flushes are those that the device counted",
    ] {
        assert!(table.contains(part), "{part} in {table}");
    }
    assert!(
        fs::read(&picture)
            .expect("the picture")
            .starts_with(b"\x89PNG")
    );
    let args = [
        "--scratch",
        "ext4",
        "--insert",
        "wal,onewrite",
        "--count",
        "3",
    ];
    let table = text(&trace(&args).stdout);
    assert!(
        table.contains("by journal mode; figures are those of one of 3"),
        "{table}"
    );
}

/// A run of sixteen blocks in order and one of sixteen blocks backwards, side by side.
#[test]
fn traces_stand_side_by_side_with_seeks_and_stages() {
    if !can_make(FileSystem::Ext4) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let setup = "dd if=/dev/zero of=file bs=4096 count=16 conv=fsync && sync";
    let write = |place: &str| {
        format!(
            "for i in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do \
             dd if=/dev/zero of=file bs=4096 count=1 seek=$(({place})) conv=notrunc oflag=direct; done"
        )
    };
    for (name, place) in [("forwards", "i"), ("backwards", "15-i")] {
        let args = ["--scratch", "ext4", "--setup", setup, "--", "sh", "-c"];
        let document = document(&[&args[..], &[&write(place)]].concat());
        let run = &runs(&document)[0];
        assert_exact(run);
        let seeks = list(run, "seeks");
        let of_writes = seeks.iter().find(|seeks| seeks["of"] == "write");
        let of_writes = of_writes.expect("writes");
        // The file system's own blocks can come before, between and after.
        let sequential = number(&of_writes["sequential"]);
        match name {
            "forwards" => assert!(sequential >= 13, "{of_writes}"),
            _ => assert!(sequential <= 2, "{of_writes}"),
        }
        let stages = list(run, "stages_us");
        for stage in [
            "queue_to_driver",
            "driver_to_completion",
            "queue_to_completion",
        ] {
            let found = stages
                .iter()
                .find(|of| of["of"] == "write" && of["stage"] == stage);
            let count = number(&found.unwrap_or_else(|| panic!("{stage} in {stages:?}"))["count"]);
            assert_eq!(count, number(&run["total"]["writes"]), "{stage}");
        }
        let file = dir.path().join(format!("{name}.json"));
        fs::write(file, document.to_string()).expect("the document");
    }
    let files = ["forwards", "backwards"].map(|name| dir.path().join(format!("{name}.json")));
    let both = files.each_ref().map(|file| path(file)).join(",");
    let page = dir.path().join("both.html");
    let output = trace(&["--show", &both, "--html", path(&page)]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    for part in [
        "forwards",
        "backwards",
        "write, sequential, %",
        "written, other file, KiB",
        "64.0 (1.00)",
    ] {
        assert!(table.contains(part), "{part} in {table}");
    }
    let page = fs::read_to_string(page).expect("the page");
    assert!(page.contains("seek distance"));
    // Both runs, as one document that can be shown again.
    let again = trace(&["--show", &both, "--json"]);
    let again: Value = serde_json::from_slice(&again.stdout).expect("a document");
    assert_eq!(runs(&again).len(), 2);
}

#[test]
fn what_is_no_document_of_a_trace_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("other.json");
    for (content, expected) in [
        ("[]", "`onewrite trace --json` prints the documents"),
        (
            r#"{"version": 9, "kernel": "", "runs": []}"#,
            "its version is 9, not 1",
        ),
        (
            r#"{"version": 1, "kernel": "", "runs": []}"#,
            "have no trace",
        ),
    ] {
        fs::write(&file, content).expect("the file");
        let output = trace(&["--show", path(&file)]);
        let error = text(&output.stderr);
        assert!(
            !output.status.success() && error.contains(expected),
            "{error}"
        );
    }
    let output = trace(&["--show", path(&dir.path().join("missing.json"))]);
    assert!(text(&output.stderr).contains("missing.json: No such file"));
}

#[test]
fn the_exit_code_is_the_commands() {
    if !can_make(FileSystem::Ext4) {
        return;
    }
    for (command, code) in [("exit 7", 7), ("kill -9 $$", 137)] {
        let output = trace(&["--scratch", "ext4", "--json", "--", "sh", "-c", command]);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).expect("the document");
        let run = &runs(&document)[0];
        let signal = (code > 128).then_some(code - 128);
        assert_eq!(run["signal"].as_i64(), signal.map(i64::from));
        assert_eq!(run["exit_code"].is_null(), signal.is_some());
    }
}

#[test]
fn what_cannot_be_traced_is_explained() {
    let said = |args: &[&str], code: i32| {
        let output = trace(args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert_eq!(text(&output.stdout), "", "{args:?}");
        said
    };
    for (args, part) in [
        (&[][..], "--seconds"),
        (&["--insert", "wal"], "--scratch"),
        (
            &["--scratch", "ext4", "--insert", "walido"],
            "no mode is called",
        ),
        (&["--seconds", "0"], "more than 0"),
        (&["--seconds", "1", "--", "true"], "cannot be used with"),
        (&["--plot", "a.jpg", "--", "true"], ".svg or .png"),
        (&["--per", "0", "--", "true"], "--per"),
    ] {
        let said = said(args, 2);
        assert!(said.contains(part), "{args:?}: {said}");
    }
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: tracing takes root");
        return;
    }
    for (args, part) in [
        (
            &["--dir", "/proc", "--seconds", "1"][..],
            "only ext4, XFS and Btrfs",
        ),
        (&["--dir", "/no/such", "--seconds", "1"], "/no/such"),
        (
            &["--device", "/dev/null", "--seconds", "1"],
            "no block device",
        ),
        (
            &["--events", "/no/such/file", "--", "true"],
            "/no/such/file",
        ),
    ] {
        let said = said(args, 1);
        assert!(said.contains(part), "{args:?}: {said}");
    }
    if !can_make(FileSystem::Ext4) {
        return;
    }
    let error = said(&["--scratch", "ext4", "--", "no-such-command"], 1);
    assert!(
        error.contains("no-such-command") && error.contains("PATH"),
        "{error}"
    );
    let error = said(&["--scratch", "ext4", "--setup", "exit 3", "--", "true"], 1);
    assert!(
        error.contains("set-up failed") && error.contains("exit 3"),
        "{error}"
    );
}

#[test]
fn without_root_it_says_so() {
    use std::os::unix::process::CommandExt;
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: needs root, to give it up");
        return;
    }
    let dir = tempfile::tempdir_in("/tmp").expect("a directory");
    use std::os::unix::fs::PermissionsExt;
    let all = fs::Permissions::from_mode(0o755);
    fs::set_permissions(dir.path(), all).expect("permissions");
    let program = dir.path().join("onewrite");
    onewrite_common::files::copy_program(env!("CARGO_BIN_EXE_onewrite"), &program);
    let mut command = Command::new(&program);
    let output = command
        .args(["trace", "--", "true"])
        .uid(65534)
        .gid(65534)
        .current_dir(dir.path())
        .output()
        .expect("the command");
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("needs root") && said.contains("sudo"),
        "{said}"
    );
}

#[test]
fn ctrl_c_ends_the_trace_and_shows_what_was_seen() {
    if !can_make(FileSystem::Ext4) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let script = "dd if=/dev/zero of=file bs=4096 count=4 conv=fsync 2>/dev/null; sleep 100";
    let child = Command::new(env!("CARGO_BIN_EXE_onewrite"))
        .args(["trace", "--scratch", "ext4", "--json", "--scratch-dir"])
        .arg(dir.path())
        .args(["--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command");
    let pid = child.id();
    let begin = Instant::now();
    while !is_sleeping(pid) {
        assert!(
            begin.elapsed() < Duration::from_secs(120),
            "it never came to sleep"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(instances(pid), 1);
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&child),
        rustix::process::Signal::INT,
    )
    .expect("a signal");
    let output = child.wait_with_output().expect("its end");
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).expect("the document");
    assert_exact(&runs(&document)[0]);
    assert!(of_kind(&runs(&document)[0], "other", "write_bytes") >= 16 << 10);
    assert_eq!(instances(pid), 0);
    assert_eq!(fs::read_dir(dir.path()).expect("the directory").count(), 0);
}

/// Whether a process of the traced command is `sleep`.
fn is_sleeping(pid: u32) -> bool {
    let children = |pid: u32| -> Vec<u32> {
        let path = format!("/proc/{pid}/task/{pid}/children");
        let text = fs::read_to_string(Path::new(&path)).unwrap_or_default();
        text.split_ascii_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .collect()
    };
    let name = |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let below = children(pid).into_iter().flat_map(|child| {
        let mut all = children(child);
        all.push(child);
        all
    });
    below.into_iter().any(|pid| name(pid).trim() == "sleep")
}
