//! Processes next to a remapping checkpoint. One dies inside the call; readers may not write the
//! wal-index; a program has signal handlers; and a process comes after a kill.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;
use std::{env, fs, io, thread};

use onewrite::storage::observer::{Call, Observer, observe};
use rusqlite::{Connection, OpenFlags};

use super::database::{Database, Mount, connect, query};

const PATH: &str = "REMAP_HELPER_PATH";
const FREEZES: &str = "REMAP_HELPER_FREEZES";
const SIGNALS: &str = "REMAP_HELPER_SIGNALS";
const ROWS: u32 = 300;
/// Ends an answer, on its own line.
const END: &str = "====";

/// Another process with a connection. It executes the statements it is sent, one a line, and
/// answers each with a line. It is this program again; as a separate test it does nothing.
#[test]
fn helper() {
    let Some(path) = env::var_os(PATH) else {
        return;
    };
    if let Some(root) = env::var_os(FREEZES) {
        let root = fs::File::open(root).expect("the root");
        observe(Box::new(Freezer(root, AtomicBool::new(false))));
    }
    if env::var_os(SIGNALS).is_some() {
        signals::begin();
    }
    let db = connect(Path::new(&path), "onewrite");
    for line in io::stdin().lines().map_while(Result::ok) {
        let answer = match line.as_str() {
            "signals" => signals::COUNT.load(Ordering::SeqCst).to_string(),
            statement => query(&db, statement).unwrap_or_else(|e| format!("ERROR {e}")),
        };
        println!("{END}{answer}");
    }
}

/// Freezes the file system before the first exchange, which then waits in the kernel.
struct Freezer(fs::File, AtomicBool);

impl Observer for Freezer {
    fn before(&self, _: &Path, call: &Call<'_>) -> io::Result<()> {
        if matches!(call, Call::Remap { .. }) && !self.1.swap(true, Ordering::SeqCst) {
            freeze(&self.0, FIFREEZE)?;
            println!("{END}frozen");
        }
        Ok(())
    }
}

const FIFREEZE: libc::Ioctl = 0xc004_5877_u32 as libc::Ioctl;
const FITHAW: libc::Ioctl = 0xc004_5878_u32 as libc::Ioctl;

#[allow(unsafe_code)]
fn freeze(root: &fs::File, how: libc::Ioctl) -> io::Result<()> {
    // SAFETY: the descriptor is open; the kernel ignores the argument.
    match unsafe { libc::ioctl(root.as_raw_fd(), how, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A program that gets a thousand signals a second, and writes to a pipe each time, as event loops
/// do.
#[allow(unsafe_code)]
mod signals {
    use super::{AtomicU64, Ordering};

    pub static COUNT: AtomicU64 = AtomicU64::new(0);
    static PIPE: AtomicU64 = AtomicU64::new(0);

    extern "C" fn handle(_: libc::c_int) {
        COUNT.fetch_add(1, Ordering::SeqCst);
        // SAFETY: write() may be called from a handler; a full pipe refuses.
        unsafe { libc::write(PIPE.load(Ordering::SeqCst) as i32, [1u8].as_ptr().cast(), 1) };
    }

    pub fn begin() {
        let mut pipe = [0; 2];
        let mut every = libc::timeval {
            tv_sec: 0,
            tv_usec: 1000,
        };
        let again = &raw mut every;
        // SAFETY: structures of this function, and a handler that lives as long as the program.
        unsafe {
            assert_eq!(libc::pipe2(pipe.as_mut_ptr(), libc::O_NONBLOCK), 0);
            PIPE.store(pipe[1] as u64, Ordering::SeqCst);
            // No SA_RESTART, so interruptible calls are interrupted.
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as *const () as usize;
            assert_eq!(
                libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()),
                0
            );
            let timer = libc::itimerval {
                it_interval: *again,
                it_value: *again,
            };
            assert_eq!(
                libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()),
                0
            );
        }
    }
}

pub struct Helper {
    child: Child,
    stdin: ChildStdin,
    answers: Receiver<String>,
}

impl Helper {
    pub fn start(path: &Path, with: &[(&str, &Path)]) -> Helper {
        let mut child = Command::new(env::current_exe().expect("this program"))
            .args(["--exact", "processes::helper", "--nocapture"])
            .env(PATH, path)
            .envs(with.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a helper");
        let stdin = child.stdin.take().expect("its input");
        let stdout = child.stdout.take().expect("its output");
        let answers = answers_of(stdout);
        Helper {
            child,
            stdin,
            answers,
        }
    }

    fn send(&mut self, statement: &str) {
        writeln!(self.stdin, "{statement}").expect("sent");
    }

    fn answer(&self) -> String {
        let long = Duration::from_secs(120);
        self.answers.recv_timeout(long).expect("an answer")
    }

    pub fn ask(&mut self, statement: &str) -> String {
        self.send(statement);
        let answer = self.answer();
        assert!(!answer.starts_with("ERROR"), "{statement}: {answer}");
        answer
    }

    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Ends the helper by SIGKILL.
    fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("waited");
    }

    pub fn end(self) {
        let Helper {
            mut child, stdin, ..
        } = self;
        drop(stdin);
        assert!(child.wait().expect("waited").success());
    }
}

fn answers_of(stdout: ChildStdout) -> Receiver<String> {
    let (send, answers) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if let Some((_, answer)) = line.split_once(END)
                && send.send(answer.to_owned()).is_err()
            {
                return;
            }
        }
    });
    answers
}

const CONTENT: &str = "replace(hex(zeroblob(700)), '00', printf('%04d', v))";

/// A database with all pages in the database file, and none in the log.
fn prepared(mount: &Mount, how: &str) -> Database {
    let database = Database::make(mount, "onewrite", how, "unwritten");
    database.sql("PRAGMA wal_autocheckpoint=0");
    database.sql("CREATE TABLE t(id INTEGER PRIMARY KEY, v INT, x)");
    database.sql(&format!(
        "INSERT INTO t(id, v, x) WITH RECURSIVE s(v, id) AS \
         (SELECT 0, 0 UNION ALL SELECT 0, id + 1 FROM s WHERE id < {}) SELECT id, v, {CONTENT} FROM s",
        ROWS - 1
    ));
    database.sql("PRAGMA wal_checkpoint(TRUNCATE)");
    database
}

fn change_to(v: u32) -> String {
    let content = CONTENT.replace("v)", &format!("{v})"));
    format!("UPDATE t SET v = {v}, x = {content}")
}

/// The value of all rows. An error means that the database cannot be read; wrong content fails the
/// test.
fn value(db: &Connection) -> rusqlite::Result<String> {
    let values = query(db, "SELECT DISTINCT v FROM t")?;
    assert_eq!(
        query(db, &format!("SELECT count(*) FROM t WHERE x <> {CONTENT}"))?,
        "0"
    );
    Ok(values)
}

fn stopped(db: Database) -> std::path::PathBuf {
    let Database { path, db } = db;
    db.close().map_err(|(_, e)| e).expect("closed");
    path
}

/// The lock of the dead process is free only after the call. A new connection waits, and then finds
/// everything.
#[test]
fn killed_inside_the_call() {
    let Some(mount) = Mount::xfs() else { return };
    let database = prepared(&mount, "exchange");
    let root = fs::File::open(mount.root()).expect("the root");
    let mut killed = Helper::start(&database.path, &[(FREEZES, mount.root())]);
    killed.ask("PRAGMA onewrite_checkpoint=exchange");
    killed.ask("PRAGMA wal_autocheckpoint=0");
    killed.ask(&change_to(1));
    assert_eq!(value(&database.db).as_deref(), Ok("1"));
    // Whatever the result of this test, no process may wait forever.
    let (done, is_done) = channel::<()>();
    let rescue = root.try_clone().expect("a descriptor");
    let watch = thread::spawn(move || {
        if is_done.recv_timeout(Duration::from_secs(60)) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        let _ = freeze(&rescue, FITHAW);
    });
    killed.send("PRAGMA wal_checkpoint");
    assert_eq!(killed.answer(), "frozen");
    // The process is about to enter the call, or waits there.
    thread::sleep(Duration::from_millis(300));
    killed.child.kill().expect("a signal");
    thread::sleep(Duration::from_millis(300));
    assert!(
        killed.child.try_wait().expect("a look").is_none(),
        "it is in the call, and cannot die"
    );
    database
        .db
        .busy_timeout(Duration::from_millis(300))
        .expect("a timeout");
    let meanwhile = value(&database.db);
    freeze(&root, FITHAW).expect("thawed");
    drop(done);
    watch.join().expect("the watch");
    killed.child.wait().expect("waited");
    let refused = meanwhile.expect_err("its locks are held");
    use rusqlite::ErrorCode::{DatabaseBusy, FileLockingProtocolFailed};
    let is_locked = |code| matches!(code, Some(DatabaseBusy | FileLockingProtocolFailed));
    assert!(is_locked(refused.sqlite_error_code()), "{refused}");
    database
        .db
        .busy_timeout(Duration::from_secs(5))
        .expect("a timeout");
    assert_eq!(value(&database.db).as_deref(), Ok("1"));
    database.check();
    let repaired = database.status()["remapped"]["repaired_frames"].as_u64();
    assert!(repaired > Some(0), "the exchange was made when it was dead");
    database.sql("PRAGMA onewrite_checkpoint=exchange");
    database.sql("PRAGMA cache_size=2");
    assert!(database.sql("PRAGMA wal_checkpoint").starts_with("0|"));
    assert_eq!(value(&database.db).as_deref(), Ok("1"));
    database.close_and_check();
}

fn with_readonly_index(path: &Path) -> Connection {
    onewrite::register().expect("the VFS onewrite");
    let uri = format!("file:{}?vfs=onewrite&readonly_shm=1", path.display());
    let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
    let db = Connection::open_with_flags(uri, flags).expect("opened");
    db.busy_timeout(Duration::from_secs(5)).expect("a timeout");
    query(&db, "PRAGMA cache_size=2").expect("few pages");
    db
}

/// Such a reader has a private wal-index while no other connection is open, and trusts it
/// afterwards.
#[test]
fn a_reader_that_cannot_write_the_wal_index_reads_right_when_a_checkpoint_has_come_and_gone() {
    for how in ["exchange", "forward", "clone"] {
        let Some(mount) = Mount::xfs() else { return };
        let path = stopped(prepared(&mount, how));
        let mut killed = Helper::start(&path, &[]);
        killed.ask("PRAGMA wal_autocheckpoint=0");
        killed.ask(&change_to(1));
        killed.kill();
        let reader = with_readonly_index(&path);
        assert_eq!(value(&reader).as_deref(), Ok("1"), "{how}");
        for round in 2..6 {
            let mut writer = Helper::start(&path, &[]);
            writer.ask(&format!("PRAGMA onewrite_checkpoint={how}"));
            writer.ask("PRAGMA wal_autocheckpoint=0");
            // Once with the log as the reader knows it, then with frames that it does not know.
            if round > 2 {
                writer.ask(&change_to(round));
            }
            assert!(writer.ask("PRAGMA wal_checkpoint").starts_with("0|"));
            let status = writer.ask("PRAGMA onewrite_status");
            let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
            let pages = status["remapped"]["remapped_pages"].as_u64();
            assert!(pages > Some(100), "{how}: {}", status["remapped"]);
            let expected = if round > 2 { round } else { 1 };
            // Next to the writer, and after it has closed.
            assert_eq!(value(&reader), Ok(expected.to_string()), "{how} {round}");
            writer.end();
            assert_eq!(value(&reader), Ok(expected.to_string()), "{how} {round}");
        }
    }
}

#[test]
fn a_reader_that_cannot_write_the_wal_index_reads_during_checkpoints() {
    let Some(mount) = Mount::xfs() else { return };
    let path = stopped(prepared(&mount, "exchange"));
    let mut writer = Helper::start(&path, &[]);
    writer.ask("PRAGMA onewrite_checkpoint=exchange");
    writer.ask("PRAGMA wal_autocheckpoint=0");
    writer.ask("SELECT count(*) FROM t");
    let reader = with_readonly_index(&path);
    let mut last = 0;
    for v in 1..25 {
        writer.ask(&change_to(v));
        if v % 2 == 0 {
            // Undisturbed, next to a reader of the log that it copies.
            assert!(writer.ask("PRAGMA wal_checkpoint").starts_with("0|"));
        }
        writer.send("PRAGMA wal_checkpoint");
        for _ in 0..3 {
            let seen: u32 = value(&reader).expect("read").parse().expect("a number");
            assert!(seen >= last && seen <= v, "{last} {seen} {v}");
            last = seen;
        }
        writer.answer();
    }
    assert_eq!(value(&reader).as_deref(), Ok("24"));
    // It is chance how many of them met no reader; this one meets none.
    writer.ask(&change_to(25));
    assert!(writer.ask("PRAGMA wal_checkpoint").starts_with("0|"));
    assert_eq!(value(&reader).as_deref(), Ok("25"));
    let status = writer.ask("PRAGMA onewrite_status");
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    let pages = status["remapped"]["remapped_pages"].as_u64();
    assert!(pages > Some(100), "{}", status["remapped"]);
}

#[test]
fn a_program_with_signal_handlers() {
    let Some(mount) = Mount::xfs() else { return };
    let path = stopped(prepared(&mount, "exchange"));
    let mut program = Helper::start(&path, &[(SIGNALS, Path::new("1"))]);
    program.ask("PRAGMA onewrite_checkpoint=exchange");
    for v in 1..40 {
        program.ask(&change_to(v));
        assert!(program.ask("PRAGMA wal_checkpoint").starts_with("0|"));
    }
    let status = program.ask("PRAGMA onewrite_status");
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    assert!(status["remapped"]["remapped_pages"].as_u64() > Some(1000));
    let signals: u64 = program.ask("signals").parse().expect("a number");
    assert!(signals > 50, "{signals}");
    assert_eq!(program.ask("PRAGMA integrity_check"), "ok");
    program.end();
    let db = connect(&path, "unix");
    assert_eq!(value(&db).as_deref(), Ok("39"));
}

/// Even without a commit since: any new connection, including a read-only one, finds an empty log.
#[test]
fn after_a_checkpoint_and_a_kill_a_read_only_connection_can_open_it() {
    for how in ["copy", "clone", "exchange", "forward"] {
        for kind in ["PASSIVE", "FULL", "RESTART", "TRUNCATE"] {
            let Some(mount) = Mount::xfs() else { return };
            let path = stopped(prepared(&mount, "exchange"));
            let mut killed = Helper::start(&path, &[]);
            killed.ask(&format!("PRAGMA onewrite_checkpoint={how}"));
            killed.ask(&change_to(1));
            let done = killed.ask(&format!("PRAGMA wal_checkpoint({kind})"));
            assert!(done.starts_with("0|"), "{how} {kind}: {done}");
            killed.kill();
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
            let reader = Connection::open_with_flags_and_vfs(&path, flags, c"onewrite");
            let reader = reader.expect("opened");
            assert_eq!(value(&reader).as_deref(), Ok("1"), "{how} {kind}");
            drop(reader);
            let db = connect(&path, "onewrite");
            query(&db, &change_to(2)).expect("written");
            assert_eq!(value(&db).as_deref(), Ok("2"), "{how} {kind}");
            assert_eq!(query(&db, "PRAGMA integrity_check").as_deref(), Ok("ok"));
        }
    }
}
