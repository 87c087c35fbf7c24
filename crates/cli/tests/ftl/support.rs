//! A mounted device, connections to its databases, and other processes.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rusqlite::{Connection, OpenFlags};
use tempfile::{NamedTempFile, TempDir};

use crate::below;
use crate::common::{onewrite, path};

/// The device, and the mount point of its files, in the directory of a [`Mounted`].
const DEVICE: &str = "device";
const FILES: &str = "files";

/// The table of most tests.
pub const TABLE: &str = "CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)";

pub fn can_run() -> bool {
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !can {
        eprintln!("SKIPPED: needs root and /dev/fuse");
    }
    can
}

/// Transactional files as a user mounts them, ended by a signal.
pub struct Unattended {
    child: Child,
    dir: TempDir,
}

impl Unattended {
    pub fn new() -> Self {
        Self::on(new_device(&[]))
    }

    fn on(dir: TempDir) -> Self {
        let said = std::fs::File::create(dir.path().join("said")).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_onewrite"))
            .args(["ftl", "mount"])
            .args([dir.path().join(DEVICE), dir.path().join(FILES)])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(said)
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        // It prints a report at the end.
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        Self { child, dir }
    }

    pub fn files(&self) -> PathBuf {
        self.dir.path().join(FILES)
    }

    /// The file that it writes the device to, before it takes the place of the old one.
    pub fn new_file(&self) -> PathBuf {
        let name = format!("{DEVICE}.{}.new", self.child.id());
        self.dir.path().join(name)
    }

    pub fn interrupt(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    }

    /// Its messages. Waits until they have this text.
    pub fn said(&self, text: &str) -> String {
        for _ in 0..600 {
            let said = std::fs::read_to_string(self.dir.path().join("said")).unwrap();
            if said.contains(text) {
                return said;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("it does not say {text:?}");
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn ended(&mut self) -> std::process::ExitStatus {
        self.child.wait().unwrap()
    }

    pub fn mount_again(mut self) -> Self {
        assert!(!self.is_running());
        let empty = tempfile::tempdir().unwrap();
        Self::on(std::mem::replace(&mut self.dir, empty))
    }
}

impl Drop for Unattended {
    fn drop(&mut self) {
        if self.is_running() {
            self.interrupt();
            let _ = self.child.wait();
        }
    }
}

/// A directory with a device, and with a mount point.
fn new_device(shape: &[&str]) -> TempDir {
    let dir = tempfile::Builder::new()
        .prefix("onewrite-ftl-")
        .tempdir()
        .unwrap();
    let file = dir.path().join(DEVICE);
    let usual = ["create", path(&file), "--mib", "192", "--channels", "2"];
    let made = onewrite("ftl", &[&usual[..], shape].concat());
    assert!(made.status.success(), "{made:?}");
    std::fs::create_dir(dir.path().join(FILES)).unwrap();
    dir
}

/// Transactional files, answered by another process that obeys orders.
pub struct Mounted {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    dir: TempDir,
}

impl Mounted {
    pub fn new() -> Self {
        Self::with(&[])
    }

    pub fn with(shape: &[&str]) -> Self {
        Self::on(new_device(shape))
    }

    /// On an existing device.
    pub fn on(dir: TempDir) -> Self {
        let (file, files) = (dir.path().join(DEVICE), dir.path().join(FILES));
        let mut child = Command::new(env!("CARGO_BIN_EXE_onewrite"))
            .args(["ftl", "mount", "--orders"])
            .args([&file, &files])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        let mut mounted = Self {
            child,
            input,
            output: BufReader::new(output),
            dir,
        };
        assert_eq!(mounted.line(), "ready");
        mounted
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub fn order(&mut self, order: &str) -> String {
        writeln!(self.input.as_mut().unwrap(), "{order}").unwrap();
        self.line()
    }

    pub fn number(&mut self, pointer: &str) -> u64 {
        let report: serde_json::Value = serde_json::from_str(&self.order("report")).unwrap();
        report
            .pointer(pointer)
            .and_then(serde_json::Value::as_u64)
            .unwrap()
    }

    /// The power fails, and returns.
    pub fn lose_power(&mut self) {
        self.order("off");
        self.order("on");
    }

    pub fn device(&self) -> PathBuf {
        self.dir.path().join(DEVICE)
    }

    pub fn files(&self) -> PathBuf {
        self.dir.path().join(FILES)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.files().join(name)
    }

    /// A connection in mode `xftl`.
    pub fn open(&self, name: &str) -> Connection {
        let connection = connect(&self.path(name));
        let mode = ask(&connection, "PRAGMA journal_mode=xftl");
        assert_eq!(mode.as_deref(), Ok("xftl"));
        connection
    }

    /// The same, to a new database with a table `t`.
    pub fn create(&self, name: &str) -> Connection {
        let connection = self.open(name);
        connection.execute_batch(TABLE).unwrap();
        connection
    }

    /// Ends the mount; whether everything was closed.
    pub fn end(mut self) -> bool {
        drop(self.input.take());
        self.child.wait().unwrap().success()
    }

    /// Ends the mount while files may be open, and mounts the device again.
    pub fn mount_again(mut self) -> Self {
        drop(self.input.take());
        assert!(!self.child.wait().unwrap().success());
        let dir = std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap());
        Self::on(dir)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

/// A connection through onewrite's VFS, in the file's own mode.
pub fn connect(path: &Path) -> Connection {
    below::register();
    onewrite::register().unwrap();
    Connection::open_with_flags_and_vfs(path, OpenFlags::default(), "onewrite").unwrap()
}

/// The text of a statement's result.
pub fn ask(connection: &Connection, sql: &str) -> rusqlite::Result<String> {
    connection.query_row(sql, [], |row| row.get(0))
}

pub fn count(connection: &Connection) -> i64 {
    connection
        .query_row("SELECT count(*) FROM t", [], |row| row.get(0))
        .unwrap()
}

pub fn integrity(connection: &Connection) -> String {
    ask(connection, "PRAGMA integrity_check").unwrap()
}

/// All parts of a device that are there by choice: their options, and the file of bit errors that
/// one of them names.
pub struct AllParts {
    rates: NamedTempFile,
}

impl AllParts {
    /// With as many wrong bits in 10^9 for each read of a block.
    pub fn new(per_read: u32) -> Self {
        let rates = NamedTempFile::new().unwrap();
        let text = format!("corrects = 40\nper_erase = 0\nper_read = {per_read}\nper_day = 0\n");
        std::fs::write(rates.path(), text).unwrap();
        Self { rates }
    }

    pub fn options(&self) -> Vec<&str> {
        let mut options = vec![
            "--gc",
            "cost-benefit",
            "--planes",
            "2",
            "--map-cache",
            "300",
        ];
        options.extend(["--pages", "paired", "--bit-errors", path(self.rates.path())]);
        options
    }
}

/// A process that runs `script` with the path. The script has printed a line, and continues when
/// the test lets it.
pub struct Other {
    child: Child,
    input: Option<ChildStdin>,
}

impl Other {
    pub fn new(script: &str, path: &Path) -> Self {
        let mut child = Command::new("python3")
            .args(["-c", script])
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "ready\n");
        let input = child.stdin.take();
        Self { child, input }
    }

    pub fn go_on(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

pub fn fill(connection: &Connection, rows: usize) -> rusqlite::Result<()> {
    for _ in 0..rows {
        connection.execute("INSERT INTO t (b) VALUES (?1)", ["x".repeat(900)])?;
    }
    Ok(())
}
