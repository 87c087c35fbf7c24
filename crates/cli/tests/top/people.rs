//! Tables, messages, users without root, and what a kill leaves.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use crate::common::{instances, onewrite, path, text};
use crate::programs::Program;
use crate::*;

/// A user without rights.
const NOBODY: u32 = 65534;

#[test]
fn a_wrong_time_is_explained() {
    for (value, part) in [("0", "more than 0"), ("1d", "60s"), ("x", "60s")] {
        let output = onewrite("top", &["--for", value]);
        assert_eq!(output.status.code(), Some(2), "{value}");
        let said = text(&output.stderr);
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn people_get_a_line_for_each_program() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: a trace takes root");
        return;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let mut program = Program::python(&dir.path().join("people.db"), "wal", 20);
    let page = dir.path().join("page.html");
    let mut child = Top::start(&["--for", "600s", "--html", path(&page)]);
    program.go();
    program.wait_done();
    kill_process(Pid::from_child(&child.0), Signal::INT).expect("a signal");
    let table = std::io::read_to_string(child.0.stdout.take().expect("a pipe")).expect("a table");
    let line = table.lines().find(|line| line.contains("people.db"));
    let line = line.unwrap_or_else(|| panic!("{table}"));
    for part in ["python3", &program.pid().to_string(), "wal", "KiB"] {
        assert!(line.contains(part), "{part} in {table}");
    }
    assert!(
        table.contains("estimates from the counted pages"),
        "{table}"
    );
    let page = fs::read_to_string(page).expect("the page");
    for part in ["people.db", "bytes_per_day", "Programs"] {
        assert!(page.contains(part), "{part} in {page}");
    }
}

/// A shell that becomes the program after `top` has seen it.
const BECOMES: &str = r#"echo ready; read line; exec "$@""#;

/// Commits for some seconds.
const COMMITS: &str = "
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute('CREATE TABLE t(x)')
for i in range(25):
    db.execute('INSERT INTO t VALUES (1)')
    time.sleep(0.1)
print('done', flush=True)
sys.stdin.readline()
";

#[test]
fn a_shell_that_becomes_a_program_has_the_programs_name() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let path = dir.path().join("becomes.db");
    let mut shell = Command::new("sh");
    shell.args(["-c", BECOMES, "sh", "python3", "-c", COMMITS]);
    let mut program = Program::start(shell.arg(&path));
    let top = Top::start(&["--json", "--for", "600s"]);
    program.go();
    program.wait_done();
    let document = top.stop();
    let program = &list(database(&document, &path), "programs")[0];
    let [name, command] = ["name", "command"].map(|it| program[it].as_str().expect("text"));
    assert!(name.starts_with("python3"), "{program:#}");
    assert!(!command.contains("read line"), "{program:#}");
}

#[test]
fn a_kill_leaves_no_mount_and_the_next_start_removes_its_trace() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: a trace takes root");
        return;
    }
    let mounts = || fs::read_to_string("/proc/self/mountinfo").expect("the mounts");
    let before = mounts().matches(" - tracefs ").count();
    let mut top = Top::start(&["--json", "--for", "600s"]);
    let pid = top.pid();
    assert_eq!(instances(pid), 1);
    top.0.kill().expect("a kill");
    top.0.wait().expect("its end");
    assert_eq!(mounts().matches(" - tracefs ").count(), before);
    let next = Top::start(&["--json", "--for", "600s"]);
    assert_eq!(instances(pid), 0);
    let pid = next.pid();
    assert_eq!(next.stop()["traced"], true);
    assert_eq!(instances(pid), 0);
}

/// Starts the screen on a terminal, waits until it is drawn, and closes the terminal. Prints the exit
/// code, which is negative after a signal.
const CLOSED_TERMINAL: &str = "
import fcntl, os, pty, struct, sys, termios
pid, terminal = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 80, 0, 0))
    os.execv(sys.argv[1], [sys.argv[1], 'top', '--for', '100s'])
seen = b''
while b'onewrite' not in seen:
    seen += os.read(terminal, 65536)
os.close(terminal)
print(pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
";

#[test]
fn a_terminal_that_is_closed_ends_the_screen_in_order() {
    let output = Command::new("python3")
        .args(["-c", CLOSED_TERMINAL, env!("CARGO_BIN_EXE_onewrite")])
        .output()
        .expect("python3");
    let said = text(&output.stdout);
    let (pid, code) = said.trim().split_once(' ').expect("two numbers");
    // A signal for the terminal's end may come before or after that.
    assert!(["0", "130"].contains(&code), "{code}");
    if rustix::process::geteuid().is_root() {
        assert_eq!(instances(pid.parse().expect("a number")), 0);
    }
}

#[test]
fn without_root_there_are_commits_and_the_reason_for_no_bytes() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: needs root, to give it up");
        return;
    }
    let dir = tempfile::tempdir_in("/tmp").expect("a directory");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).expect("permissions");
    let copy = dir.path().join("onewrite");
    onewrite_common::files::copy_program(env!("CARGO_BIN_EXE_onewrite"), &copy);
    let database_path = dir.path().join("own.db");
    let mut python = Command::new("python3");
    python
        .args(["-c", crate::programs::PYTHON])
        .arg(&database_path)
        .args(["wal", "40"])
        .uid(NOBODY)
        .gid(NOBODY);
    let mut program = Program::start(&mut python);
    let mut command = Command::new(&copy);
    command
        .args(["top", "--json", "--for", "600s"])
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir(dir.path());
    let top = Top::of(&mut command);
    program.go();
    program.wait_done();
    let document = top.stop();
    assert_eq!(document["traced"], false);
    let own = database(&document, &database_path);
    assert_eq!(own["commits"], 40, "{own:#}");
    assert!(own["bytes"].is_null() && own["programs"][0]["pid"] == program.pid());
    let notes = document["notes"].to_string();
    assert!(notes.contains("sudo"), "{notes}");
}
