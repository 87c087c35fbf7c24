//! Leads a traced process through a commit, and stops it at a chosen step. Between two system calls it
//! goes on by single instructions, until shared memory shows the step.

use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use onewrite::storage::SharedWords;
use onewrite_common::files::companion;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const IN_TIME: Duration = Duration::from_secs(120);
/// Bytes of a copy of the wal-index's header. SQLite writes the second one first.
const HEADER: usize = 48;

/// Where a commit is that a leader is to make durable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Step {
    /// The block is held, and nothing is written.
    Writes,
    /// It is still held, and half of the batch is written.
    HalfWritten,
    /// It is still held, and the batch is written.
    Written,
    /// It is open behind the batch, which is not published.
    Opened,
    /// One copy of the wal-index's header is being written.
    HalfPublished,
    /// The commit is published.
    Published,
    /// The block is closed, and the flush has not begun.
    Flushes,
    /// The flush is over, and nothing says so.
    Flushed,
}

pub const ALL: [Step; 8] = [
    Step::Writes,
    Step::HalfWritten,
    Step::Written,
    Step::Opened,
    Step::HalfPublished,
    Step::Published,
    Step::Flushes,
    Step::Flushed,
];

/// What processes share.
pub struct Files {
    log: PathBuf,
    words: File,
    index: File,
}

/// The word of the open block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    Closed,
    Open,
    Held,
}

impl Files {
    /// This process must have no connection of its own: closing `-shm` would release its locks.
    pub fn of(database: &Path) -> Files {
        let open = |suffix| File::open(companion(database, suffix)).expect("a file");
        Files {
            log: companion(database, "-onewrite"),
            words: open("-onewrite-shm"),
            index: open("-shm"),
        }
    }

    pub fn word(&self) -> Word {
        let mut word = [0; 8];
        let at = std::mem::offset_of!(SharedWords, open_block) as u64;
        self.words.read_exact_at(&mut word, at).expect("the word");
        match u64::from_ne_bytes(word) & 3 {
            0 => Word::Closed,
            1 => Word::Open,
            _ => Word::Held,
        }
    }

    /// Both copies of the wal-index's header.
    fn headers(&self) -> [[u8; HEADER]; 2] {
        let mut headers = [[0; HEADER]; 2];
        let bytes = headers.as_flattened_mut();
        self.index.read_exact_at(bytes, 0).expect("the headers");
        headers
    }
}

/// A thread that is traced, and stopped.
pub struct Traced<'a> {
    thread: Pid,
    process: i32,
    files: &'a Files,
    before: [[u8; HEADER]; 2],
    began: Instant,
}

impl<'a> Traced<'a> {
    pub fn attach(thread: i32, process: i32, files: &'a Files) -> Traced<'a> {
        let traced = Traced {
            thread: Pid::from_raw(thread),
            process,
            files,
            before: files.headers(),
            began: Instant::now(),
        };
        ptrace::attach(traced.thread).expect("attached");
        traced.await_stop();
        let options = ptrace::Options::PTRACE_O_TRACESYSGOOD;
        ptrace::setoptions(traced.thread, options).expect("options");
        traced
    }

    fn await_stop(&self) -> WaitStatus {
        let flags = WaitPidFlag::__WALL | WaitPidFlag::WNOHANG;
        let stop = loop {
            match waitpid(self.thread, Some(flags)).expect("a stop") {
                WaitStatus::StillAlive => std::thread::yield_now(),
                stop => break stop,
            }
            assert!(self.began.elapsed() < IN_TIME, "the step does not come");
        };
        assert!(
            matches!(stop, WaitStatus::Stopped(..) | WaitStatus::PtraceSyscall(_)),
            "{stop:?}"
        );
        stop
    }

    /// Goes on to the begin or the end of the next system call.
    fn next_call(&self) -> nix::libc::ptrace_syscall_info {
        loop {
            ptrace::syscall(self.thread, None).expect("goes on");
            if matches!(self.await_stop(), WaitStatus::PtraceSyscall(_)) {
                return ptrace::syscall_info(self.thread).expect("the call");
            }
        }
    }

    /// Goes on until a call of this kind begins, with a file as its first argument. A writer that holds
    /// a block makes no call but the write into it. Returns the arguments.
    #[allow(unsafe_code)]
    fn call_of(&self, wanted: i64, is_file: impl Fn(&Path) -> bool) -> [u64; 6] {
        loop {
            let call = self.next_call();
            if call.op != nix::libc::PTRACE_SYSCALL_INFO_ENTRY {
                continue;
            }
            // SAFETY: the field above says which one it is.
            let entry = unsafe { call.u.entry };
            let number = entry.nr.cast_signed();
            if self.files.word() == Word::Held {
                assert_eq!(number, nix::libc::SYS_pwrite64, "while it holds a block");
            }
            let link = format!("/proc/{}/fd/{}", self.process, entry.args[0]);
            if number == wanted && std::fs::read_link(link).is_ok_and(|path| is_file(&path)) {
                return entry.args;
            }
        }
    }

    fn call_of_log(&self, number: i64) -> [u64; 6] {
        self.call_of(number, |path| path == self.files.log)
    }

    /// Lets it go on until it answers.
    pub fn release_at_answer(self) {
        self.call_of(nix::libc::SYS_write, |path| {
            path.as_os_str().as_encoded_bytes().starts_with(b"pipe:")
        });
        ptrace::detach(self.thread, None).expect("detached");
    }

    fn instructions_until(&self, is_there: impl Fn(&Files) -> bool) {
        while !is_there(self.files) {
            ptrace::step(self.thread, None).expect("a step");
            self.await_stop();
        }
    }

    /// Goes on to a step of the next commit.
    pub fn reach(&self, step: Step) {
        let [_, descriptor_bytes, length, offset, ..] = self.call_of_log(nix::libc::SYS_pwrite64);
        if step == Step::HalfWritten {
            self.write_half(descriptor_bytes, length, offset);
        }
        if step > Step::HalfWritten {
            self.next_call();
        }
        if step >= Step::Opened {
            self.instructions_until(|files| files.word() == Word::Open);
            assert_eq!(self.files.headers(), self.before);
        }
        let [first, second] = self.before;
        if step >= Step::HalfPublished {
            self.instructions_until(|files| files.headers()[1] != second);
            assert_eq!(self.files.headers()[0], first);
        }
        if step >= Step::Published {
            self.instructions_until(|files| {
                let [now, other] = files.headers();
                now != first && now == other
            });
        }
        if step >= Step::Flushes {
            self.call_of_log(nix::libc::SYS_fdatasync);
            assert_eq!(self.files.word(), Word::Closed);
        }
        if step >= Step::Flushed {
            self.next_call();
        }
    }

    /// As a kill in the middle of the call leaves it.
    fn write_half(&self, address: u64, length: u64, offset: u64) {
        let memory = File::open(format!("/proc/{}/mem", self.process)).expect("its memory");
        let mut half = vec![0; length as usize / 2];
        memory.read_exact_at(&mut half, address).expect("the batch");
        let log = File::options().write(true).open(&self.files.log);
        log.expect("the log")
            .write_all_at(&half, offset)
            .expect("written");
    }

    /// kill -9. The thread ends for its tracer first.
    pub fn kill(self) {
        self.end();
    }

    fn end(&self) {
        kill(Pid::from_raw(self.process), Signal::SIGKILL).expect("killed");
        while !matches!(
            waitpid(self.thread, Some(WaitPidFlag::__WALL)),
            Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) | Err(_)
        ) {}
    }

    /// Leaves the process stopped.
    pub fn stop(self) {
        ptrace::detach(self.thread, Signal::SIGSTOP).expect("detached");
    }
}

impl Drop for Traced<'_> {
    fn drop(&mut self) {
        // Nobody could wait for the process otherwise.
        if std::thread::panicking() {
            self.end();
        }
    }
}
