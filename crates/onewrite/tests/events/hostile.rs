//! Events must not harm the program: files at the number of standard error, full disks, floods.

use std::fs::{self, OpenOptions};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use onewrite_iotrace::scratch::{FileSystem, Options, Scratch};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::stdio::dup2_stderr;

use super::child::{end, play, start};
use super::{events, made};

/// A file of the program's own.
const DATA: &[u8] = b"precious data, which no library may overwrite";
/// Of a log that is almost as long as the process may write.
const LONG: u64 = 64 << 20;
/// Room for a part of a line.
const ROOM: u64 = 40;

/// The scenes of these tests; `false` for another's.
pub fn scene(name: &str, path: &Path) -> bool {
    match name {
        "data at standard error" => at_standard_error(path, true),
        "a log at standard error" => at_standard_error(path, false),
        "a connection at standard error" => connection_at_standard_error(path),
        "no room" => no_room(path),
        "flood" => flood(path),
        "a pipe with room for a page" => full_pipe(path),
        _ => return false,
    }
    true
}

fn data(path: &Path) -> std::path::PathBuf {
    path.with_extension("data")
}

/// The program has closed standard error, and its next file got the number.
fn at_standard_error(path: &Path, is_read: bool) {
    let file = OpenOptions::new()
        .read(is_read)
        .write(true)
        .open(data(path));
    dup2_stderr(file.expect("a file")).expect("standard error");
    drop(made(&path.with_extension(is_read.to_string()), "onewrite"));
}

/// The same with a connection to another machine.
fn connection_at_standard_error(path: &Path) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("an address");
    let client = std::net::TcpStream::connect(address).expect("a connection");
    let (mut server, _) = listener.accept().expect("a connection");
    dup2_stderr(&client).expect("standard error");
    drop(made(path, "onewrite"));
    client.shutdown(std::net::Shutdown::Write).expect("its end");
    let mut got = Vec::new();
    std::io::Read::read_to_end(&mut server, &mut got).expect("all of it");
    assert!(got.is_empty(), "{}", String::from_utf8_lossy(&got));
}

/// The first event has room for a part of its line.
fn no_room(path: &Path) {
    let before = getrlimit(Resource::Fsize);
    let limited = Rlimit {
        current: Some(LONG + ROOM),
        ..before
    };
    setrlimit(Resource::Fsize, limited).expect("a limit");
    drop(made(path, "onewrite"));
    setrlimit(Resource::Fsize, before).expect("a limit");
    drop(made(&path.with_extension("second"), "onewrite"));
}

/// Every commit fails with the same message.
fn flood(path: &Path) {
    super::scenes::fail_flushes(path, 1000);
}

/// Commits next to a standard error that takes a part of a line, in a pipe a page of it.
fn commits_without_standard_error(path: &Path, mut reader: fs::File, stderr: &fs::File) {
    let before = std::io::stderr()
        .as_fd()
        .try_clone_to_owned()
        .expect("a copy");
    dup2_stderr(stderr).expect("standard error");
    onewrite::register().expect("the VFS onewrite");
    let flags = rusqlite::OpenFlags::default() | rusqlite::OpenFlags::SQLITE_OPEN_URI;
    // The reason has the value, which is longer than the room.
    let name = format!(
        "file:{}?onewrite_stall_log={}",
        path.display(),
        "x".repeat(5000)
    );
    let db = rusqlite::Connection::open_with_flags_and_vfs(name, flags, onewrite::VFS_NAME);
    // Without the wait that this is about, nothing here takes long.
    let seconds = 60;
    #[allow(unsafe_code)]
    // SAFETY: a timer of this process.
    unsafe {
        libc::alarm(seconds)
    };
    let refused = db.and_then(|db| super::rows::query(&db, "PRAGMA schema_version"));
    drop(made(&path.with_extension("other"), "onewrite"));
    let mut bytes = vec![0; 1 << 20];
    let mut text = Vec::new();
    while let Ok(n @ 1..) = std::io::Read::read(&mut reader, &mut bytes) {
        text.extend_from_slice(&bytes[..n]);
    }
    // The next line says that one was left out.
    drop(made(&path.with_extension("third"), "onewrite"));
    while let Ok(n @ 1..) = std::io::Read::read(&mut reader, &mut bytes) {
        text.extend_from_slice(&bytes[..n]);
    }
    dup2_stderr(before).expect("standard error");
    assert!(refused.is_err(), "{refused:?}");
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().filter(|line| line.starts_with("onewrite: "));
    let lines: Vec<_> = lines.collect();
    assert!(lines.iter().all(|line| line.len() < 4096), "{lines:?}");
    let last = lines[lines.len() - 2..].join("|");
    assert!(
        last.contains("left out") && last.contains("mode_entered"),
        "{last}"
    );
}

/// Fills a descriptor, without a wait.
fn fill(into: &fs::File, piece: &[u8]) {
    let before = rustix::fs::fcntl_getfl(into).expect("flags");
    let nonblock = before | rustix::fs::OFlags::NONBLOCK;
    rustix::fs::fcntl_setfl(into, nonblock).expect("flags");
    while rustix::io::write(into, piece).is_ok() {}
    rustix::fs::fcntl_setfl(into, before).expect("flags");
}

fn never_waits(file: &fs::File) {
    let flags = rustix::fs::fcntl_getfl(file).expect("flags");
    rustix::fs::fcntl_setfl(file, flags | rustix::fs::OFlags::NONBLOCK).expect("flags");
}

fn full_pipe(path: &Path) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let reader = fs::File::from(std::os::fd::OwnedFd::from(reader));
    let writer = fs::File::from(std::os::fd::OwnedFd::from(writer));
    fill(&writer, &[b'\n'; 4096]);
    std::io::Read::read_exact(&mut &reader, &mut [0; 4096]).expect("a page");
    never_waits(&reader);
    commits_without_standard_error(path, reader, &writer);
}

/// Events and warnings go to no file that a program reads and writes itself.
#[test]
fn a_file_at_the_number_of_standard_error_stays_as_it_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    fs::write(data(&path), DATA).expect("a file");
    let to_stderr = [("ONEWRITE_LOG", "stderr")];
    play("data at standard error", &path, &to_stderr);
    assert_eq!(fs::read(data(&path)).expect("a file"), DATA);
    // `program 2>file` gives it a file, too: for writing alone.
    play("a log at standard error", &path, &to_stderr);
    let log = fs::read_to_string(data(&path)).expect("a file");
    assert!(log.contains("event=mode_entered"), "{log}");
}

#[test]
fn a_connection_at_the_number_of_standard_error_gets_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let to_stderr = [("ONEWRITE_LOG", "stderr")];
    play("a connection at standard error", &path, &to_stderr);
}

#[test]
fn after_a_full_disk_the_next_event_has_a_line_of_its_own() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("log");
    let file = fs::File::create(&log).expect("a file");
    file.set_len(LONG).expect("its size");
    file.write_all_at(b"\n", LONG - 1).expect("an end");
    let place = log.to_str().expect("a name");
    let path = directory.path().join("db");
    play("no room", &path, &[("ONEWRITE_LOG", place)]);
    let bytes = fs::read(&log).expect("a file");
    let text = String::from_utf8_lossy(&bytes[LONG as usize..]).into_owned();
    let (cut, rest) = text.split_once('\n').expect("two lines");
    assert_eq!(cut.len() as u64, ROOM, "{text}");
    let second = events(rest, "mode_entered");
    assert_eq!(second.len(), 1, "{text}");
    let expected = path.with_extension("second");
    assert_eq!(second[0]["database"], expected.to_str().expect("a name"));
}

/// A file system that takes no writes, as one whose device hangs.
pub struct Frozen(fs::File);

impl Frozen {
    #[allow(unsafe_code)]
    fn control(&self, request: u32) -> bool {
        // SAFETY: the argument of these requests is not used.
        unsafe { libc::ioctl(self.0.as_raw_fd(), request as _, 0) == 0 }
    }

    pub fn new(root: &Path) -> Frozen {
        let frozen = Frozen(fs::File::open(root).expect("the root"));
        assert!(
            frozen.control(FREEZE),
            "{}",
            std::io::Error::last_os_error()
        );
        frozen
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.control(THAW);
    }
}

/// `FIFREEZE` and `FITHAW` of `linux/fs.h`.
const FREEZE: u32 = 0xc004_5877;
const THAW: u32 = 0xc004_5878;

/// Whether a thread of the process waits for a frozen file system.
pub fn waits_for_it(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let place = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("wchan"));
    threads
        .filter_map(|thread| place(thread).ok())
        .any(|place| place.contains("rwsem"))
}

/// The process waits that writes there. While it begins to use the database, it keeps others off: it
/// may not wait then.
#[test]
fn a_file_system_that_hangs_under_the_log_holds_up_no_other_process() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: a scratch file system takes root");
        return;
    }
    if let Some(missing) = FileSystem::Ext4.missing() {
        println!("SKIPPED: {missing}");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let scratch = Scratch::create(&Options {
        file_system: FileSystem::Ext4,
        bytes: 64 << 20,
        parent: directory.path(),
        stop: &AtomicBool::new(false),
    })
    .expect("a scratch file system");
    let log = scratch.root().join("log");
    fs::write(&log, "").expect("a file");
    let path = directory.path().join("db");
    drop(made(&path, "onewrite"));
    let frozen = Frozen::new(scratch.root());
    let mut waiting = start(
        "read",
        &path,
        &[("ONEWRITE_LOG", log.to_str().expect("a name"))],
    );
    while !waits_for_it(waiting.id()) {
        let ended = waiting.try_wait().expect("a state");
        assert!(ended.is_none(), "it has written its event");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    play("checkpoint", &path, &[]);
    drop(frozen);
    let (is_good, errors) = end(waiting);
    assert!(is_good, "{errors}");
    let text = fs::read_to_string(&log).expect("a file");
    assert_eq!(events(&text, "mode_entered").len(), 1, "{text}");
    scratch.remove().expect("nothing left");
}

#[test]
fn a_message_that_repeats_does_not_flood_the_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let text = super::told("flood", &directory.path().join("db"), &[]);
    let messages = events(&text, "message");
    // The seconds that 1,000 failures take are as many as the machine needs.
    let seconds: std::collections::HashSet<_> = messages
        .iter()
        .map(|it| it["time"][..19].to_owned())
        .collect();
    let kinds: std::collections::HashSet<_> = messages.iter().map(|it| &it["text"]).collect();
    assert!(!messages.is_empty(), "{text}");
    assert!(
        messages.len() <= (seconds.len() + 1) * kinds.len(),
        "{} messages of {} kinds in {} seconds",
        messages.len(),
        kinds.len(),
        seconds.len()
    );
}

/// A program that nobody reads, as behind a pager.
#[test]
fn no_commit_waits_for_standard_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let to_stderr = [("ONEWRITE_LOG", "stderr")];
    play(
        "a pipe with room for a page",
        &directory.path().join("db"),
        &to_stderr,
    );
}
