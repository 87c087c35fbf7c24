//! Runs a worker under ptrace and makes one of its system calls fail.
//!
//! The worker asks to be traced and installs a seccomp filter that stops it before every call of
//! [`CALLS`]. The caller may be SQLite, the engine or the C library, on any thread. Calls between
//! two marks (a look at a path that does not exist) are counted. The wanted call is refused with an
//! error number, or shortened, or runs and then reports a failure. So there is no call site that a
//! hook could miss. The tracer cannot see a page fault in a mapping (SIGBUS).
//!
//! To refuse a call, the tracer gives it arguments that the kernel must refuse, and then another
//! result. Every processor can do that. To skip a call, some processors need a register set of its
//! own.

use super::calls::{self, CALLS, Fault, Shape, SystemCall, Target, Work};
use super::registers::Registers;
use crate::failure::Failure;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::mpsc;
use std::time::Duration;

/// The path of the marks; no file ever exists there.
const MARKS: &str = "/onewrite-faults/";
/// The most often that a call is interrupted, or a lock refused. A program may retry as often as it
/// likes, but an endless signal does not exist. And SQLite tries for ten seconds to lock the
/// wal-index before it gives up.
const MOST_REFUSALS: u64 = 40;

/// A signal of the worker to the tracer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Faults may come from here on.
    Begin,
    /// No faults may come from here on.
    End,
    /// Inspect the files in their current state.
    Snapshot,
}

impl Mark {
    fn word(self) -> &'static str {
        match self {
            Mark::Begin => "begin",
            Mark::End => "end",
            Mark::Snapshot => "snapshot",
        }
    }

    /// Sends the mark to the tracer.
    pub fn tell(self) {
        // The lookup fails as intended.
        let _ = std::fs::metadata(format!("{MARKS}{}", self.word()));
    }
}

/// Makes the worker traced from here on.
///
/// # Errors
/// Errors of the kernel.
pub fn be_traced() -> Result<(), Failure> {
    let harness = |error: &dyn std::fmt::Display| Failure::Harness(format!("tracing: {error}"));
    ptrace::traceme().map_err(|e| harness(&e))?;
    nix::sys::signal::raise(Signal::SIGSTOP).map_err(|e| harness(&e))?;
    let rules = CALLS.iter().map(|call| (call.number, Vec::new())).collect();
    let processor = std::env::consts::ARCH;
    let processor = processor.try_into().map_err(|e| harness(&e))?;
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Trace(0),
        processor,
    )
    .map_err(|e| harness(&e))?;
    let program: BpfProgram = filter.try_into().map_err(|e| harness(&e))?;
    seccompiler::apply_filter(&program).map_err(|e| harness(&e))
}

/// How long a fault lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lasts {
    /// One call.
    Once,
    /// This one and all that belong with it.
    ForGood,
}

/// The call to make fail, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Injection {
    /// The call.
    pub call: &'static SystemCall,
    /// Its number among calls of that name, from 1.
    pub nth: u64,
    /// The event that replaces it.
    pub fault: Fault,
    /// How long the fault lasts.
    pub lasts: Lasts,
}

/// An observed call.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The call.
    pub call: &'static SystemCall,
    /// Its number among calls of that name, from 1.
    pub nth: u64,
    /// The file's path; empty if there is none.
    pub path: String,
    /// The flags that decide which faults fit.
    pub shape: Shape,
}

/// How a worker ended.
#[derive(Debug)]
pub struct Run {
    /// The calls between the marks.
    pub seen: Vec<Seen>,
    /// The first call that failed on purpose.
    pub fired: Option<Seen>,
    /// The number of calls that failed on purpose.
    pub fired_count: u64,
    /// The exit code, or the signal that ended it.
    pub end: End,
    /// The worker's output.
    pub output: String,
}

/// The end of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It exited with this code.
    Exited(i32),
    /// A signal ended it.
    Signaled(Signal),
    /// It did not end in time, and was killed.
    TimedOut,
}

/// Runs `command`, which calls [`be_traced`], to its end. At [`Mark::Snapshot`] the worker stops
/// while `snapshot` runs.
///
/// # Errors
/// Errors of the harness. The worker's faults are in the result.
pub fn run(
    mut command: Command,
    injection: Option<&Injection>,
    limit: Duration,
    snapshot: &mut dyn FnMut() -> Result<(), Failure>,
) -> Result<Run, Failure> {
    let mut child = command.spawn()?;
    let guard = Guard::watch(&mut child, limit)?;
    let mut tracer = Tracer::new(&child, injection)?;
    let traced = tracer.follow(snapshot);
    if traced.is_err() {
        let _ = child.kill();
        // The tracer may have reaped it.
        let _ = child.wait();
    }
    let (output, timed_out) = guard.finish();
    let end = traced?;
    Ok(Run {
        seen: tracer.seen,
        fired: tracer.fired,
        fired_count: tracer.fired_count,
        end: if timed_out { End::TimedOut } else { end },
        output,
    })
}

/// Reads the worker's output, and kills the worker when its time is up.
struct Guard {
    reader: std::thread::JoinHandle<String>,
    watchdog: std::thread::JoinHandle<bool>,
    done: mpsc::Sender<()>,
}

impl Guard {
    fn watch(child: &mut Child, limit: Duration) -> Result<Self, Failure> {
        let mut stdout = child
            .stdout
            .take()
            .ok_or_else(|| Failure::Harness("a worker without a pipe".into()))?;
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // The output before a worker's death counts, even if it ends in the middle of a line.
            let _ = stdout.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let pid = rustix::process::Pid::from_raw(child.id().cast_signed())
            .ok_or_else(|| Failure::Harness("a worker without a process id".into()))?;
        // A process descriptor cannot refer to another process after this one is gone.
        let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
            .map_err(|e| Failure::Harness(format!("pidfd_open: {e}")))?;
        let (done, wait) = mpsc::channel();
        let watchdog = std::thread::spawn(move || {
            let timed_out = wait.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout);
            if timed_out {
                let kill = rustix::process::Signal::KILL;
                let _ = rustix::process::pidfd_send_signal(&process, kill);
            }
            timed_out
        });
        Ok(Self {
            reader,
            watchdog,
            done,
        })
    }

    fn finish(self) -> (String, bool) {
        let _ = self.done.send(());
        let timed_out = self.watchdog.join().unwrap_or(true);
        (self.reader.join().unwrap_or_default(), timed_out)
    }
}

struct Tracer<'a> {
    main: Pid,
    memory: File,
    injection: Option<&'a Injection>,
    armed: bool,
    counts: BTreeMap<&'static str, u64>,
    seen: Vec<Seen>,
    fired: Option<Seen>,
    fired_count: u64,
    /// Threads whose call is running with a fault.
    after: HashMap<Pid, After>,
}

/// The address of a length in the program's memory, and the length.
type Length = (*mut std::ffi::c_void, nix::libc::c_long);

/// The changes to a thread when its call is done.
struct After {
    /// The arguments as the program gave them.
    arguments: [u64; 6],
    /// The length as the program gave it.
    length: Option<Length>,
    /// The error that the call returns.
    errno: Option<i32>,
}

fn harness(what: &str, error: impl std::fmt::Display) -> Failure {
    Failure::Harness(format!("ptrace: {what}: {error}"))
}

impl<'a> Tracer<'a> {
    fn new(child: &Child, injection: Option<&'a Injection>) -> Result<Self, Failure> {
        let main = Pid::from_raw(child.id().cast_signed());
        match waitpid(main, Some(WaitPidFlag::__WALL)) {
            Ok(WaitStatus::Stopped(_, Signal::SIGSTOP)) => {}
            other => return Err(harness("the worker's first stop", format!("{other:?}"))),
        }
        let options = ptrace::Options::PTRACE_O_TRACESECCOMP
            | ptrace::Options::PTRACE_O_TRACECLONE
            | ptrace::Options::PTRACE_O_TRACEEXEC
            | ptrace::Options::PTRACE_O_TRACESYSGOOD
            | ptrace::Options::PTRACE_O_EXITKILL;
        ptrace::setoptions(main, options).map_err(|e| harness("options", e))?;
        let memory = File::open(format!("/proc/{main}/mem"))?;
        ptrace::cont(main, None).map_err(|e| harness("continue", e))?;
        Ok(Self {
            main,
            memory,
            injection,
            armed: false,
            counts: BTreeMap::new(),
            seen: Vec::new(),
            fired: None,
            fired_count: 0,
            after: HashMap::new(),
        })
    }

    fn follow(
        &mut self,
        snapshot: &mut dyn FnMut() -> Result<(), Failure>,
    ) -> Result<End, Failure> {
        let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
        loop {
            // If a kill -9 has ended a thread meanwhile, that is not an error. Its end is reported
            // next.
            let status = match waitpid(None, Some(flags)) {
                Ok(status) => status,
                Err(nix::errno::Errno::EINTR) => continue,
                Err(e) => return Err(harness("wait", e)),
            };
            match status {
                WaitStatus::Exited(pid, code) if pid == self.main => return Ok(End::Exited(code)),
                WaitStatus::Signaled(pid, signal, _) if pid == self.main => {
                    return Ok(End::Signaled(signal));
                }
                WaitStatus::PtraceEvent(pid, _, event) => {
                    if event == ptrace::Event::PTRACE_EVENT_SECCOMP as i32 {
                        self.before_call(pid, snapshot)?;
                    } else {
                        if event == ptrace::Event::PTRACE_EVENT_EXEC as i32 {
                            self.memory = File::open(format!("/proc/{}/mem", self.main))?;
                        }
                        let _ = ptrace::cont(pid, None);
                    }
                }
                WaitStatus::PtraceSyscall(pid) => self.after_call(pid),
                // A new thread begins with a stop of its own.
                WaitStatus::Stopped(pid, Signal::SIGSTOP | Signal::SIGTRAP) => {
                    let _ = ptrace::cont(pid, None);
                }
                WaitStatus::Stopped(pid, signal) => {
                    let _ = ptrace::cont(pid, signal);
                }
                _ => {}
            }
        }
    }

    fn before_call(
        &mut self,
        pid: Pid,
        snapshot: &mut dyn FnMut() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Ok(mut registers) = Registers::of(pid) else {
            return Ok(());
        };
        let Some(call) = calls::by_number(registers.number()) else {
            let _ = ptrace::cont(pid, None);
            return Ok(());
        };
        let fault = self.look_at(call, &registers.arguments(), snapshot)?;
        match fault {
            None => {}
            Some(fault) => {
                let mut after = After {
                    arguments: registers.arguments(),
                    length: None,
                    errno: fault.errno(),
                };
                match fault {
                    Fault::Short => after.length = self.shorten(pid, call, &mut registers)?,
                    Fault::Fails(_) => spoil(call, &mut registers),
                    Fault::DoneButFails(_) => {}
                }
                registers.store(pid).map_err(|e| harness("registers", e))?;
                self.after.insert(pid, after);
                let _ = ptrace::syscall(pid, None);
                return Ok(());
            }
        }
        let _ = ptrace::cont(pid, None);
        Ok(())
    }

    fn after_call(&mut self, pid: Pid) {
        if let Some(after) = self.after.remove(&pid)
            && let Ok(mut registers) = Registers::of(pid)
        {
            registers.restore_arguments(after.arguments);
            if let Some(errno) = after.errno {
                registers.set_result(-i64::from(errno));
            }
            let _ = registers.store(pid);
            if let Some((address, length)) = after.length {
                let _ = ptrace::write(pid, address, length);
            }
        }
        let _ = ptrace::cont(pid, None);
    }

    /// Halves the length of a read or write. Direct I/O needs whole sectors. Returns the length in
    /// memory that it changed, and where.
    fn shorten(
        &self,
        pid: Pid,
        call: &SystemCall,
        registers: &mut Registers,
    ) -> Result<Option<Length>, Failure> {
        let half = |length: u64| match length / 2 {
            half if half >= 512 => half - half % 512,
            0 | 256 => length,
            half => half,
        };
        let arguments = registers.arguments();
        if !(call.name.starts_with("preadv") || call.name.starts_with("pwritev")) {
            registers.set_argument(2, half(arguments[2]));
            return Ok(None);
        }
        let at = arguments[1] + 8;
        let mut bytes = [0; 8];
        self.memory.read_exact_at(&mut bytes, at)?;
        let before = u64::from_ne_bytes(bytes);
        let length = half(before).cast_signed();
        let address = std::ptr::without_provenance_mut(usize::try_from(at).unwrap_or(0));
        ptrace::write(pid, address, length as nix::libc::c_long)
            .map_err(|e| harness("memory", e))?;
        Ok(Some((address, before.cast_signed() as nix::libc::c_long)))
    }

    /// Decides what happens to a call.
    fn look_at(
        &mut self,
        call: &'static SystemCall,
        arguments: &[u64; 6],
        snapshot: &mut dyn FnMut() -> Result<(), Failure>,
    ) -> Result<Option<Fault>, Failure> {
        if call.work == Work::Look && matches!(call.target, Target::PathAt(_) | Target::Path(_)) {
            let path = self.path_of(call, arguments).unwrap_or_default();
            if let Some(mark) = path.to_str().and_then(|path| path.strip_prefix(MARKS)) {
                match mark {
                    "begin" => self.armed = true,
                    "end" => self.armed = false,
                    _ => snapshot()?,
                }
                return Ok(None);
            }
        }
        if !self.armed {
            return Ok(None);
        }
        let Some(path) = self.path_of(call, arguments) else {
            return Ok(None);
        };
        let Some(shape) = shape_of(call, arguments, &path) else {
            return Ok(None);
        };
        if call.name == "fcntl" && self.is_unlock_of_sqlite(arguments, &path) {
            return Ok(None);
        }
        let nth = self.counts.entry(call.name).or_default();
        *nth += 1;
        let seen = Seen {
            call,
            nth: *nth,
            path: path.to_string_lossy().into_owned(),
            shape,
        };
        Ok(self.decide(seen))
    }

    /// Whether SQLite's own VFS releases a lock. If that fails, SQLite conflicts with its own lock,
    /// and then tries for ten seconds in each statement. This project cannot change that.
    fn is_unlock_of_sqlite(&self, arguments: &[u64; 6], path: &Path) -> bool {
        let mut kind = [0; 2];
        // The VFS itself does so, or ours on its behalf.
        [nix::libc::F_SETLK, nix::libc::F_OFD_SETLK]
            .iter()
            .any(|set| arguments[1] == *set as u64)
            && !path.to_string_lossy().ends_with("-onewrite")
            && self.memory.read_exact_at(&mut kind, arguments[2]).is_ok()
            && i32::from(i16::from_ne_bytes(kind)) == nix::libc::F_UNLCK
    }

    fn decide(&mut self, seen: Seen) -> Option<Fault> {
        let Some(injection) = self.injection else {
            self.seen.push(seen);
            return None;
        };
        let is_it = match &self.fired {
            None => seen.call.number == injection.call.number && seen.nth == injection.nth,
            Some(_) if injection.lasts == Lasts::Once => false,
            Some(first) => {
                let is_refused =
                    injection.fault.error_name() == "EINTR" || injection.call.work == Work::Control;
                !(is_refused && self.fired_count >= MOST_REFUSALS)
                    && calls::fails_with(injection.fault, first.call, seen.call, seen.shape)
            }
        };
        if !is_it {
            return None;
        }
        self.fired_count += 1;
        self.fired.get_or_insert(seen);
        Some(injection.fault)
    }

    /// The path of the file that a call works on; empty if it works on no file. `None` for a call
    /// that is not part of the program's work with files.
    fn path_of(&self, call: &SystemCall, arguments: &[u64; 6]) -> Option<PathBuf> {
        let descriptor = |number: u64| {
            let number = number as u32 as i32;
            // Standard streams, and mappings of the C library.
            if number <= 2 {
                return None;
            }
            let link = format!("/proc/{}/fd/{number}", self.main);
            let path = std::fs::read_link(link).ok()?;
            path.is_absolute().then_some(path)
        };
        match call.target {
            Target::Nothing => Some(PathBuf::new()),
            Target::Descriptor(at) => descriptor(arguments[at]),
            Target::Path(at) => self.string(arguments[at]),
            Target::PathAt(at) => match self.string(arguments[at])? {
                path if path.as_os_str().is_empty() => descriptor(arguments[at - 1]),
                path => Some(path),
            },
            Target::Mapping => self.mapped_file(arguments[0]),
        }
    }

    fn string(&self, address: u64) -> Option<PathBuf> {
        use std::os::unix::ffi::OsStringExt;
        if address == 0 {
            return Some(PathBuf::new());
        }
        let mut text = Vec::new();
        let mut at = address;
        // Reads to the end of each page, because the next one may not exist.
        while text.len() < 4096 {
            let mut piece = vec![0; 4096 - (at % 4096) as usize];
            let length = self.memory.read_at(&mut piece, at).ok()?;
            if let Some(end) = piece[..length].iter().position(|&byte| byte == 0) {
                text.extend_from_slice(&piece[..end]);
                return Some(std::ffi::OsString::from_vec(text).into());
            }
            text.extend_from_slice(&piece[..length]);
            at += length as u64;
        }
        None
    }

    /// The file mapped at an address. The memory allocator's mappings have none.
    fn mapped_file(&self, address: u64) -> Option<PathBuf> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.main)).ok()?;
        let line = maps.lines().find(|line| {
            line.split_once('-')
                .is_some_and(|(start, _)| u64::from_str_radix(start, 16) == Ok(address))
        })?;
        let path = Path::new(line.get(line.find('/')?..)?);
        Some(path.to_owned())
    }
}

/// Gives a call arguments that the kernel refuses, whatever the call is.
fn spoil(call: &SystemCall, registers: &mut Registers) {
    const NO_DESCRIPTOR: u64 = u64::MAX;
    const NO_ADDRESS: u64 = 0;
    match call.target {
        Target::Descriptor(at) => registers.set_argument(at, NO_DESCRIPTOR),
        Target::Path(at) => registers.set_argument(at, NO_ADDRESS),
        // Some calls accept a null path and use the descriptor.
        Target::PathAt(at) => {
            registers.set_argument(at - 1, NO_DESCRIPTOR);
            registers.set_argument(at, NO_ADDRESS);
        }
        // No page begins at an odd address.
        Target::Mapping => registers.set_argument(0, 1),
        // A buffer or a request of no bytes.
        Target::Nothing => {
            registers.set_argument(0, NO_ADDRESS);
            registers.set_argument(1, 0);
        }
    }
}

/// The shape of a call; `None` for the program's own files: its code and libraries.
fn shape_of(call: &SystemCall, arguments: &[u64; 6], path: &Path) -> Option<Shape> {
    let outside = ["/lib", "/lib64", "/usr", "/etc"];
    if outside.iter().any(|dir| path.starts_with(dir)) {
        return None;
    }
    let system = ["/proc", "/sys", "/dev"];
    let mut shape = Shape {
        is_system_file: system.iter().any(|dir| path.starts_with(dir))
            && !path.starts_with("/dev/shm"),
        ..Shape::default()
    };
    match call.name {
        "openat" | "open" => {
            let flags = arguments[if call.name == "open" { 1 } else { 2 }];
            shape.creates = flags & nix::libc::O_CREAT as u64 != 0;
            shape.for_writing = flags & nix::libc::O_ACCMODE as u64 != 0;
        }
        "sync_file_range" => {
            let waits = u64::from(nix::libc::SYNC_FILE_RANGE_WAIT_AFTER);
            shape.only_begins = arguments[3] & waits == 0;
        }
        "fcntl" => {
            let duplicating = [nix::libc::F_DUPFD, nix::libc::F_DUPFD_CLOEXEC];
            shape.duplicates = duplicating.contains(&(arguments[1] as i32));
        }
        _ => {}
    }
    Some(shape)
}
