//! Tables, messages, users without root, and what a kill leaves.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use crate::common::{instances, onewrite, text};
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
    let mut child = Top::start(&["--once", "--for", "600s"]);
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

#[test]
fn without_root_there_are_commits_and_the_reason_for_no_bytes() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: needs root, to give it up");
        return;
    }
    let dir = tempfile::tempdir_in("/tmp").expect("a directory");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).expect("permissions");
    let copy = dir.path().join("onewrite");
    fs::copy(env!("CARGO_BIN_EXE_onewrite"), &copy).expect("a copy");
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

/// The screen on a terminal: it shows the database, and `q` restores the terminal.
#[test]
fn the_screen_shows_the_database_and_ends_with_q() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: a trace takes root");
        return;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let mut program = Program::python(&dir.path().join("onscreen.db"), "wal", 200_000);
    program.go();
    // The terminal is Python's; it waits for the name, presses q, and passes on the exit code.
    let script = "
import os, pty, select, sys, time
pid, fd = pty.fork()
if pid == 0:
    os.environ['TERM'] = 'xterm'
    os.environ['COLUMNS'] = '140'
    os.execv(sys.argv[1], [sys.argv[1], 'top'])
import fcntl, struct, termios
seen, pressed, end = b'', False, time.monotonic() + 120
while time.monotonic() < end:
    if select.select([fd], [], [], 0.2)[0]:
        try:
            part = os.read(fd, 65536)
        except OSError:
            break
        if not part:
            break
        seen += part
    # Another size: the screen is drawn again, with every word in one piece.
    width = 140 + int(time.monotonic()) % 2
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack('HHHH', 50, width, 0, 0))
    if not pressed and b'onscreen.db' in seen and b'commit/s' in seen:
        os.write(fd, b'q')
        pressed = True
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print('code', code, 'pressed', pressed, 'restored', b'[?1049l' in seen)
";
    let output = Command::new("python3")
        .args(["-c", script, env!("CARGO_BIN_EXE_onewrite")])
        .output()
        .expect("python3");
    let said = text(&output.stdout);
    assert_eq!(
        said,
        "code 0 pressed True restored True\n",
        "{}",
        text(&output.stderr)
    );
}
