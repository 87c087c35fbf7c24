//! Another process: this program again. It executes the orders it is sent, one a line, and answers
//! each with a line.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use std::{env, fs, io, thread};

use rusqlite::Connection;

use super::rows::query;

const ROLE: &str = "ONEWRITE_WAITS_HELPER";
const END: &str = "====";

/// As a separate test it does nothing.
#[test]
fn helper() {
    if env::var_os(ROLE).is_none() {
        return;
    }
    let mut db = None;
    for line in io::stdin().lines().map_while(Result::ok) {
        let answer = obey(&line, &mut db).unwrap_or_else(|e| format!("ERROR {e}"));
        println!("{END}{answer}");
    }
}

fn obey(line: &str, db: &mut Option<Connection>) -> Result<String, String> {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["user", id] => become_user(id.parse().expect("a number")),
        ["open", path] => {
            *db = Some(super::try_open(Path::new(path)).map_err(|e| e.to_string())?);
            Ok("opened".to_owned())
        }
        ["bytes", count, path] => {
            let bytes = fs::read(path).map_err(|e| e.to_string())?;
            let count = count.parse().expect("a number");
            Ok(format!("{:?}", bytes.get(..count)))
        }
        ["lock", kind, first, bytes, path] => {
            let number = |word: &str| word.parse().expect("a number");
            lock(Path::new(path), kind, number(first), number(bytes)).map_err(|e| e.to_string())
        }
        _ => {
            let db = db.as_ref().ok_or("it has no connection")?;
            query(db, line).map_err(|e| e.to_string())
        }
    }
}

#[allow(unsafe_code)]
fn become_user(id: u32) -> Result<String, String> {
    // SAFETY: no pointer is passed.
    let done = unsafe { libc::setgroups(0, std::ptr::null()) == 0 && libc::setgid(id) == 0 };
    // SAFETY: as above.
    match done && unsafe { libc::setuid(id) } == 0 {
        true => Ok("changed".to_owned()),
        false => Err(io::Error::last_os_error().to_string()),
    }
}

/// A lock of the open file, for as long as the process lives. A length of 0 means all bytes to the
/// end.
#[allow(unsafe_code)]
fn lock(path: &Path, kind: &str, first: i64, bytes: i64) -> io::Result<String> {
    let file = fs::File::options()
        .read(true)
        .write(kind == "write")
        .open(path)?;
    // SAFETY: plain integers.
    let mut request: libc::flock = unsafe { std::mem::zeroed() };
    request.l_type = match kind {
        "write" => libc::F_WRLCK,
        _ => libc::F_RDLCK,
    } as libc::c_short;
    request.l_start = first as libc::off_t;
    request.l_len = bytes as libc::off_t;
    // SAFETY: the descriptor is open, and the structure lives.
    let code = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const request) };
    if code != 0 {
        return Err(io::Error::last_os_error());
    }
    // Closing it would release it.
    std::mem::forget(file);
    Ok("locked".to_owned())
}

pub struct Helper {
    child: Child,
    stdin: ChildStdin,
    answers: Receiver<String>,
}

impl Helper {
    pub fn start() -> Helper {
        let mut child = Command::new(env::current_exe().expect("this program"))
            .args(["--exact", "helper::helper", "--nocapture"])
            .env(ROLE, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a helper");
        let stdin = child.stdin.take().expect("its input");
        let answers = answers_of(child.stdout.take().expect("its output"));
        Helper {
            child,
            stdin,
            answers,
        }
    }

    /// A helper that has a database open.
    pub fn with(path: &Path) -> Helper {
        let mut helper = Helper::start();
        helper.ask(&format!("open {}", path.display()));
        helper
    }

    /// Its answer; "ERROR" and the reason if the order failed.
    pub fn answer(&mut self, order: &str) -> String {
        writeln!(self.stdin, "{order}").expect("sent");
        let long = Duration::from_secs(120);
        self.answers.recv_timeout(long).expect("an answer")
    }

    pub fn ask(&mut self, order: &str) -> String {
        let answer = self.answer(order);
        assert!(!answer.starts_with("ERROR"), "{order}: {answer}");
        answer
    }

    /// Takes a lock by itself.
    pub fn lock(&mut self, path: &Path, kind: &str, first: i64, bytes: i64) {
        self.ask(&format!("lock {kind} {first} {bytes} {}", path.display()));
    }

    /// Stops the process with all locks that it holds. Returns when it has stopped.
    #[allow(unsafe_code)]
    pub fn stop(&self) {
        let id = self.child.id() as libc::pid_t;
        let mut status = 0;
        // SAFETY: our own child, which no other code has waited for; the status is an integer of
        // this frame.
        unsafe {
            assert_eq!(libc::kill(id, libc::SIGSTOP), 0);
            assert_eq!(libc::waitpid(id, &raw mut status, libc::WUNTRACED), id);
        }
        assert!(libc::WIFSTOPPED(status));
    }

    #[allow(unsafe_code)]
    pub fn go_on(&self) {
        // SAFETY: our own child.
        assert_eq!(
            unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGCONT) },
            0
        );
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
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
