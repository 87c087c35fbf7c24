//! A newcomer's mistakes, and the command's answers: the file or directory, the reason, and the way
//! out.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{onewrite, path, text};
use onewrite_iotrace::scratch::{Mounted, private_mounts};
use rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};

/// The limit for any step here.
const PATIENCE: Duration = Duration::from_secs(60);

/// The command failed and printed nothing else. The message has all of these parts, and no internal
/// name that the user has never seen.
fn assert_says(output: &Output, code: i32, parts: &[&str]) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert_eq!(text(&output.stdout), "");
    for part in parts {
        assert!(said.contains(part), "{part:?} in {said}");
    }
    for name in [
        "onewrite-compare-",
        "onewrite-scratch-",
        "onewrite-doctor-",
        "onewrite-raw",
        "os error",
    ] {
        assert!(!said.contains(name), "{name:?} in {said}");
    }
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("SKIPPED: takes root");
    }
    is_root
}

#[test]
fn an_unknown_mode_is_answered_with_the_known_ones() {
    let output = onewrite("compare", &["--modes", "wall"]);
    assert_says(&output, 2, &["wall", "--modes", "waldio", "direct"]);
}

#[test]
fn a_directory_that_is_none_is_named_with_the_option_for_another() {
    let directory = tempfile::tempdir().expect("a directory");
    let (none, file) = (directory.path().join("none"), directory.path().join("file"));
    fs::write(&file, b"").expect("a file");
    for (place, why) in [(&none, "no such directory"), (&file, "not a directory")] {
        let output = onewrite("compare", &["--dir", path(place)]);
        assert_says(&output, 1, &[path(place), why, "--dir"]);
        let output = onewrite(
            "compare",
            &["--scratch", "ext4", "--scratch-dir", path(place)],
        );
        assert_says(&output, 1, &[path(place), why, "--scratch-dir"]);
    }
}

#[test]
fn a_database_that_is_not_there_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let none = directory.path().join("app.db");
    for command in ["inspect", "detach", "status"] {
        let output = onewrite(command, &[path(&none)]);
        assert_says(
            &output,
            1,
            &[path(&none), "no such file", "give a database"],
        );
    }
    let output = onewrite("replay", &[path(&none)]);
    let expected = ["no such file", "give a trace", "onewrite record"];
    assert_says(&output, 1, &[&[path(&none)], &expected[..]].concat());
    let trace = directory.path().join("a.trace");
    let output = onewrite("import", &["-o", path(&trace), path(&none)]);
    assert_says(
        &output,
        1,
        &[path(&none), "no such file", "a script of SQL"],
    );
    assert!(!trace.exists());
}

/// The command, a file that it cannot use, its exit code, and the parts of its message.
type Wrong<'a> = (&'a [&'a str], i32, &'a [&'a str]);

#[test]
fn a_file_of_another_kind_is_answered_with_the_kind_and_the_way_out() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = |name: &str, content: &[u8]| {
        let file = directory.path().join(name);
        fs::write(&file, content).expect("a file");
        path(&file).to_owned()
    };
    let (words, empty) = (
        file("notes.txt", b"hello, this is a text"),
        file("empty.db", b""),
    );
    let (owner, index) = (file("app.db", b""), file("app.db-shm", &[1; 32768]));
    let at = |name: &str| path(&directory.path().join(name)).to_owned();
    let (copy, none, place) = (at("copy.db"), at("none"), path(directory.path()));
    let text = "it begins with \"hello, this is a\"";
    let wrong: &[Wrong] = &[
        (
            &["backup", &words, &copy],
            1,
            &[&words, text, "Give a database"],
        ),
        (
            &["backup", &empty, &copy],
            1,
            &[&empty, "0 bytes", "restore a backup"],
        ),
        (
            &["backup", place, &copy],
            1,
            &[place, "a directory", "give a database"],
        ),
        (
            &["backup", &index, &copy],
            1,
            &[&index, "onewrite backup ", &owner],
        ),
        (&["detach", &words], 1, &[&words, text, "Give a database"]),
        (
            &["detach", &empty],
            1,
            &[&empty, "0 bytes", "restore a backup"],
        ),
        (
            &["detach", &index],
            1,
            &[&index, "onewrite detach ", &owner],
        ),
        (
            &["salvage", &words, "-o", &copy],
            2,
            &[&words, "Give a database or its log"],
        ),
        (
            &["salvage", &index, "-o", &copy],
            2,
            &[&index, &format!("Give {owner}")],
        ),
        (
            &["salvage", &empty, "-o", &copy],
            2,
            &[&empty, "nothing to salvage"],
        ),
        (
            &["salvage", place, "-o", &copy],
            2,
            &[place, "a directory", "give a database"],
        ),
        (&["status", &words], 1, &[&words, text, "Give one of these"]),
        (
            &["scan", &none],
            1,
            &[&none, "no such file", "give a directory"],
        ),
        (
            &["replay", &words],
            1,
            &[
                &words,
                "not a trace",
                "onewrite record -o",
                "onewrite import",
            ],
        ),
        (
            &["replay", &empty],
            1,
            &[&empty, "not a trace", "onewrite record -o"],
        ),
    ];
    for (args, code, parts) in wrong {
        assert_says(&onewrite(args[0], &args[1..]), *code, parts);
    }
    for args in [
        &["backup", "file:app.db", &copy][..],
        &["detach", "file:app.db"],
    ] {
        let output = onewrite(args[0], &args[1..]);
        assert_says(
            &output,
            1,
            &["file:app.db", "no such file", "give the path"],
        );
    }
    // These report what they found.
    for (command, file, way_out) in [
        ("inspect", &words, "Give one of these"),
        ("verify", &index, &format!("Give {owner}")),
    ] {
        let output = onewrite(command, &[file]);
        assert_eq!(output.status.code(), Some(1));
        assert!(text_of(&output).contains(way_out), "{}", text_of(&output));
    }
}

fn text_of(output: &Output) -> String {
    text(&output.stdout)
}

#[test]
fn a_flash_device_that_is_none_is_answered_with_the_way_to_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| path(&directory.path().join(name)).to_owned();
    let (none, words, device) = (at("none"), at("notes.txt"), at("a.device"));
    let below_none = at("none/a.device");
    fs::write(&words, "hello").expect("a file");
    let create = "onewrite ftl create";
    for command in ["inspect", "cut"] {
        let output = onewrite("ftl", &[command, &none]);
        assert_says(&output, 1, &[&none, "no such file", create]);
        let output = onewrite("ftl", &[command, &words]);
        assert_says(&output, 1, &[&words, "is no saved flash device", create]);
    }
    let output = onewrite("ftl", &["replay", &none, &words]);
    assert_says(&output, 1, &[&none, "no such file", create]);
    let output = onewrite("ftl", &["create", &words]);
    assert_says(&output, 1, &[&words, "exists already", "another name"]);
    let output = onewrite("ftl", &["create", &below_none]);
    assert_says(&output, 1, &[&none, "no such directory", "another file"]);
    assert!(onewrite("ftl", &["create", &device]).status.success());
    let output = onewrite("ftl", &["mount", &device]);
    assert_says(&output, 2, &["<DIRECTORY>", "--block"]);
    if !is_root() {
        return;
    }
    let output = onewrite("ftl", &["mount", &none, path(directory.path())]);
    assert_says(&output, 1, &[&none, "no such file", create]);
    let output = onewrite("ftl", &["mount", &device, &none]);
    assert_says(&output, 1, &[&none, "no such directory", "make it"]);
}

#[test]
fn a_directory_is_called_that_and_what_is_expected_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = path(directory.path());
    let trace = directory.path().join("a.trace");
    let trace = path(&trace);
    for (command, args, expected) in [
        ("inspect", vec![place], "give a database"),
        ("detach", vec![place], "give a database"),
        ("status", vec![place], "give a database"),
        ("replay", vec![place], "give a trace"),
        ("import", vec!["-o", trace, place], "a script of SQL"),
    ] {
        let output = onewrite(command, &args);
        assert_says(&output, 1, &[place, "this is a directory", expected]);
    }
    let uri = format!("file://{place}/app.db");
    for command in ["status", "inspect"] {
        let output = onewrite(command, &[&uri]);
        assert_says(&output, 1, &[&uri, "no such file", "give the path"]);
    }
}

#[test]
fn what_is_no_sql_is_not_imported_and_an_earlier_trace_stays() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    let (trace, script) = (at("a.trace"), at("script.sql"));
    let import = |file: &Path| onewrite("import", &["-o", path(&trace), path(file)]);
    fs::write(&script, "-- a comment\n; /**/ select 1; hello; .mode").expect("a script");
    let output = import(&script);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let before = fs::read(&trace).expect("a trace");
    fs::copy(&trace, at("copy.trace")).expect("a copy");
    let database = Connection::open(at("app.db")).expect("a database");
    database
        .execute_batch("CREATE TABLE t(a)")
        .expect("a table");
    fs::write(at("hello"), "hello").expect("a file");
    fs::write(at("list"), "[]").expect("a file");
    fs::write(at("bytes"), [0, 1, 2, 0xff]).expect("a file");
    for (name, words) in [
        ("hello", ["\"hello\"", "a script of SQL"]),
        ("bytes", ["no statement of SQL", "a script of SQL"]),
        ("list", ["no SQL", "--format json"]),
        ("app.db", ["a database", "--start"]),
        ("copy.trace", ["a trace already", "onewrite replay"]),
    ] {
        let file = at(name);
        assert_says(&import(&file), 1, &[&[path(&file)], &words[..]].concat());
        assert!(fs::read(&trace).expect("a trace") == before, "{name}");
    }
}

#[test]
fn without_root_or_permission_that_is_what_is_missing() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(directory.path(), open.clone()).expect("permissions");
    let program = directory.path().join("onewrite");
    onewrite_common::files::copy_program(env!("CARGO_BIN_EXE_onewrite"), &program);
    fs::set_permissions(&program, open).expect("permissions");
    let secret = directory.path().join("secret.db");
    fs::write(&secret, b"").expect("a file");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("permissions");

    const NOBODY: u32 = 65_534;
    let nobody = |args: &[&str]| {
        let mut command = Command::new(&program);
        command.args(args).current_dir("/").uid(NOBODY).gid(NOBODY);
        command.output().expect("the command")
    };
    let place = path(directory.path());
    let denied = "no permission to create files there";
    assert_says(
        &nobody(&["compare", "--dir", place]),
        1,
        &[place, denied, "--dir"],
    );
    assert_says(
        &nobody(&["compare", "--count", "1"]),
        1,
        &["cannot work in", denied, "--dir"],
    );
    assert_says(
        &nobody(&["compare", "--scratch", "ext4"]),
        1,
        &["takes root"],
    );
    assert_says(
        &nobody(&["doctor", place]),
        1,
        &[place, "no permission to create a file", "another directory"],
    );
    let copy = directory.path().join("copy.db");
    let readable = directory.path().join("readable.db");
    let stock = Connection::open(&readable).expect("a database");
    stock.execute_batch("CREATE TABLE t(a)").expect("a table");
    stock.close().expect("it closes");
    for args in [
        vec!["backup", path(&readable), path(&copy)],
        vec!["salvage", path(&readable), "-o", path(&copy)],
    ] {
        let output = nobody(&args);
        let code = if args[0] == "backup" { 1 } else { 2 };
        assert_says(
            &output,
            code,
            &[path(&copy), "no permission", "another directory"],
        );
    }
    for args in [
        vec!["inspect", path(&secret)],
        vec!["status", path(&secret)],
        vec!["detach", path(&secret)],
        vec!["backup", path(&secret), path(&copy)],
    ] {
        let output = nobody(&args);
        assert_says(&output, 1, &[path(&secret), "no permission to read"]);
    }
    // It may be read, so only SQLite would find out, and say "disk I/O error".
    let others = directory.path().join("others.db");
    let stock = Connection::open(&others).expect("a database");
    stock.execute_batch("CREATE TABLE t(a)").expect("a table");
    stock.close().expect("it closes");
    // Nothing has to be written to a stock database.
    for args in [
        vec!["detach", path(&others)],
        vec!["detach", "--discard", path(&others)],
    ] {
        let output = nobody(&args);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    fs::write(directory.path().join("others.db-onewrite"), [0; 4096]).expect("an empty log");
    let before = fs::read(&others).expect("the database");
    let output = nobody(&["detach", path(&others)]);
    let way_out = "run this as its owner, user 0";
    assert_says(
        &output,
        1,
        &[path(&others), "no permission to write", way_out],
    );
    assert_eq!(fs::read(&others).expect("the database"), before);
    // Then the directory, in which the log is removed.
    let all = fs::Permissions::from_mode(0o666);
    for file in ["others.db", "others.db-onewrite"] {
        fs::set_permissions(directory.path().join(file), all.clone()).expect("permissions");
    }
    let output = nobody(&["detach", path(&others)]);
    assert_says(
        &output,
        1,
        &[place, "no permission to make and remove", way_out],
    );
    let output = onewrite("detach", &[path(&others)]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn scan_looks_at_a_directory_or_a_database() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("notes.txt");
    fs::write(&file, "no database").expect("a file");
    let output = onewrite("scan", &[path(&file)]);
    assert_says(&output, 1, &[path(&file), "give the directory"]);
    let database = directory.path().join("app.db");
    let stock = Connection::open(&database).expect("a database");
    stock.execute_batch("CREATE TABLE t(a)").expect("a table");
    let output = onewrite("scan", &[path(&database)]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("app.db"));
}

#[test]
fn a_full_disk_is_called_that() {
    if !is_root() {
        return;
    }
    private_mounts().expect("mounts of our own");
    let directory = tempfile::tempdir().expect("a directory");
    let small = Mounted::with_options(
        Path::new("tmpfs"),
        directory.path(),
        "tmpfs",
        Some(c"size=1m"),
    );
    let small = small.expect("a small file system");
    let place = path(directory.path());
    for (command, args) in [("doctor", vec![place]), ("compare", vec!["--dir", place])] {
        let output = onewrite(command, &args);
        assert_says(&output, 1, &[place, "too little space", "make room"]);
        assert_eq!(
            fs::read_dir(directory.path()).expect("a directory").count(),
            0
        );
    }
    // A file that could not be written to its end is removed.
    let script = tempfile::NamedTempFile::new().expect("a file");
    let scattered = (1..40_000u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ n.pow(3));
    let rows = scattered.map(|n| format!("INSERT INTO t VALUES ('{n:x}');\n"));
    fs::write(script.path(), rows.collect::<String>()).expect("a script");
    fs::write(directory.path().join("full"), vec![0; 1_000_000]).expect("a file");
    let trace = directory.path().join("a.trace");
    let output = onewrite("import", &["-o", path(&trace), path(script.path())]);
    assert_says(
        &output,
        1,
        &["cannot write", path(&trace), "no space is left there"],
    );
    assert!(!trace.exists());
    small.unmount().expect("it is unmounted");
}

/// Sends SIGINT once the command has begun to work in `directory`. It says that it was stopped,
/// soon, and leaves nothing.
fn stop(mut command: Command, directory: &Path) {
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command");
    let begun = Instant::now();
    let is_empty = || {
        fs::read_dir(directory)
            .expect("a directory")
            .next()
            .is_none()
    };
    while is_empty() {
        assert!(begun.elapsed() < PATIENCE, "{command:?} does not begin");
        thread::sleep(Duration::from_millis(2));
    }
    // Not at once: the command may still be checking whether it can work there.
    thread::sleep(Duration::from_millis(100));
    kill_process(Pid::from_child(&child), Signal::INT).expect("a signal");
    let output = child.wait_with_output().expect("its end");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.ends_with("onewrite: stopped\n"), "{said}");
    assert_eq!(text(&output.stdout), "");
    assert!(is_empty(), "something is left");
}

#[test]
fn ctrl_c_ends_doctor_and_compare_in_a_directory() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_onewrite"));
    doctor.arg("doctor").arg(directory.path());
    stop(doctor, directory.path());
    let mut compare = Command::new(env!("CARGO_BIN_EXE_onewrite"));
    compare.args(["compare", "--modes", "delete", "--count", "100000", "--dir"]);
    compare.arg(directory.path());
    stop(compare, directory.path());
}
