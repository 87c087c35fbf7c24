//! Where `ONEWRITE_LOG` sends events: standard error, a file, or a journal.
//!
//! Nothing stays open between events, so a file may be renamed at any time, and a fork copies
//! nothing. A failure is ignored. One event is one write(2) or one datagram.
#![allow(unsafe_code)]

use std::fmt::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{mem, ptr};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, fcntl_getfl, fstat, open};
use rustix::stdio;

use super::line::{cut, push};
use super::{Kind, MESSAGE, environment};
use environment::Sink;

type Fields<'a> = &'a [(&'static str, String)];

/// Writes an event; `text` is its line for people.
pub fn write(kind: &Kind, fields: Fields<'_>, text: &str) {
    match environment::sink() {
        Ok(Sink::Stderr) => print(text),
        Ok(Sink::File(path)) => append(&path, &line(kind, fields)),
        Ok(Sink::Journal(socket)) => send(&socket, &entry(kind, fields, text)),
        Ok(Sink::None) | Err(_) => {}
    }
}

/// The line in a file, with its end.
fn line(kind: &Kind, fields: Fields<'_>) -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut line = format!(
        "time={} pid={} program=",
        time(now.unwrap_or_default().as_millis() as u64),
        std::process::id()
    );
    let program = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    push(&mut line, program.trim_end());
    let _ = writeln!(line, " {}", super::line::of(kind.name, fields));
    line.into_bytes()
}

/// The time in UTC, as RFC 3339 has it, from the milliseconds since 1970.
fn time(ms: u64) -> String {
    let (days, of_day) = (ms / 86_400_000, ms % 86_400_000);
    let (year, month, day) = date(days);
    let (s, ms) = (of_day / 1000, of_day % 1000);
    let (hour, minute, s) = (s / 3600, s / 60 % 60, s % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{s:02}.{ms:03}Z")
}

/// Year, month and day of a day since 1970-01-01. Years are counted from March, so that the leap day
/// is their last.
fn date(days: u64) -> (u64, u64, u64) {
    const ERA: u64 = 146_097;
    let days = days + 719_468;
    let (era, of_era) = (days / ERA, days % ERA);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

fn append(path: &Path, line: &[u8]) {
    // A named pipe without a reader is refused, and a full one takes nothing.
    let flags = OFlags::WRONLY
        | OFlags::APPEND
        | OFlags::CREATE
        | OFlags::CLOEXEC
        | OFlags::NONBLOCK
        | OFlags::NOCTTY;
    let Ok(file) = open(path, flags, Mode::from_raw_mode(0o640)) else {
        return;
    };
    if !takes_lines(file.as_fd()) {
        return;
    }
    // On a full disk the last line may be cut.
    let line = match IS_CUT.swap(false, Relaxed) {
        true => &[b"\n", line].concat(),
        false => line,
    };
    without_signals(|| {
        let written = rustix::io::write(&file, line);
        let is_cut = written.is_ok_and(|bytes| (1..line.len()).contains(&bytes));
        IS_CUT.fetch_or(is_cut, Relaxed);
        written.is_err()
    });
}

/// Whether the last line of this process in a file has no end.
static IS_CUT: AtomicBool = AtomicBool::new(false);

/// Whether a descriptor is for lines. A program that has closed standard error may get this number
/// for a file of its own that it reads, or for a connection to another machine.
fn takes_lines(fd: BorrowedFd<'_>) -> bool {
    let Ok(stat) = fstat(fd) else { return false };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Fifo | FileType::CharacterDevice => true,
        FileType::RegularFile => {
            let flags = fcntl_getfl(fd);
            flags.is_ok_and(|flags| flags & OFlags::RWMODE == OFlags::WRONLY)
        }
        FileType::Socket => is_of_this_machine(fd),
        _ => false,
    }
}

fn is_of_this_machine(socket: BorrowedFd<'_>) -> bool {
    let mut domain: libc::c_int = 0;
    let mut length = mem::size_of_val(&domain) as libc::socklen_t;
    // SAFETY: `domain` has room for `length` bytes.
    let code = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_DOMAIN,
            ptr::from_mut(&mut domain).cast(),
            &raw mut length,
        )
    };
    code == 0 && domain == libc::AF_UNIX
}

/// An entry in the journal's native protocol: a line for each field. A value of several lines comes
/// after its length.
fn entry(kind: &Kind, fields: Fields<'_>, text: &str) -> Vec<u8> {
    let mut entry = Vec::new();
    let mut add = |name: &str, value: &str| {
        let value = cut(value);
        entry.extend_from_slice(name.as_bytes());
        if value.contains('\n') {
            entry.push(b'\n');
            entry.extend_from_slice(&(value.len() as u64).to_le_bytes());
        } else {
            entry.push(b'=');
        }
        entry.extend_from_slice(value.as_bytes());
        entry.push(b'\n');
    };
    add("MESSAGE", text);
    add("PRIORITY", &kind.priority.to_string());
    add("SYSLOG_IDENTIFIER", "onewrite");
    add("ONEWRITE_EVENT", kind.name);
    for (name, value) in fields {
        // The text of a message is the entry's own.
        if kind.name != MESSAGE.name || *name != "text" {
            add(&format!("ONEWRITE_{}", name.to_ascii_uppercase()), value);
        }
    }
    entry
}

fn send(socket: &Path, entry: &[u8]) {
    let Ok(from) = UnixDatagram::unbound() else {
        return;
    };
    // A full queue refuses it.
    if from.set_nonblocking(true).is_ok() {
        let _ = from.send_to(entry, socket);
    }
}

/// `PIPE_BUF`: a pipe takes so many bytes whole, or none of them.
const MOST_BYTES: usize = 4096;
/// Lines that standard error took none of, since the last that it took.
static LEFT_OUT: AtomicU32 = AtomicU32::new(0);

/// Prints a line on standard error, if it takes one now. Without std's lock, which a fork may have
/// left locked. A line that it does not take is counted, and the next one says so.
pub fn print(message: &str) {
    // Where the program has closed it, the calls fail.
    let stderr = stdio::stderr();
    if !takes_lines(stderr) {
        return;
    }
    let left_out = LEFT_OUT.swap(0, Relaxed);
    let is_printed = print_at_once(stderr, printed(message, left_out).as_bytes());
    if !is_printed {
        LEFT_OUT.fetch_add(left_out.saturating_add(1), Relaxed);
    }
}

/// The line, with its end, behind one about those that were left out.
fn printed(message: &str, left_out: u32) -> String {
    let mut line = match left_out {
        0 => String::new(),
        _ => format!("onewrite: {left_out} lines before this one were left out\n"),
    };
    let _ = write!(line, "onewrite: {message}");
    let mut end = line.len().min(MOST_BYTES - 1);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    line.truncate(end);
    line.push('\n');
    line
}

/// Writes without a wait. `false` if nothing was written.
fn print_at_once(stderr: BorrowedFd<'_>, line: &[u8]) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(stderr, PollFlags::OUT)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let is_writable = poll(&mut fds, Some(&at_once)) == Ok(1) && fds[0].revents() == PollFlags::OUT;
    let kind = fstat(stderr).map(|stat| FileType::from_raw_mode(stat.st_mode));
    // Others may fill it in between, and a terminal may have room for less than a line. So a pipe and a
    // terminal are opened once more, for this alone: the flag of the program's own description is the
    // program's. Where that is not allowed, the line goes there.
    let own = match kind {
        Ok(FileType::Fifo | FileType::CharacterDevice) if is_writable => {
            let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            open("/proc/self/fd/2", flags, Mode::empty()).ok()
        }
        _ => None,
    };
    let mut written = 0;
    if is_writable {
        without_signals(|| {
            written = match (&own, kind) {
                (Some(own), _) => rustix::io::write(own, line).unwrap_or(0),
                (None, Ok(FileType::Socket)) => send_at_once(stderr, line),
                (None, _) => rustix::io::write(stderr, line).unwrap_or(0),
            };
            written == 0
        });
    }
    written > 0
}

fn send_at_once(socket: BorrowedFd<'_>, line: &[u8]) -> usize {
    // SAFETY: the line's bytes.
    let sent = unsafe {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        libc::send(socket.as_raw_fd(), line.as_ptr().cast(), line.len(), flags)
    };
    usize::try_from(sent).unwrap_or(0)
}

/// A pipe that nobody reads would kill the program, which never asked to write there. So would a file
/// at the process's limit of file sizes. And a terminal (`stty tostop`) would stop it in the background;
/// there a write is allowed while the signal is blocked. `write` returns whether it has failed.
fn without_signals(write: impl FnOnce() -> bool) {
    // SAFETY: the sets are initialized, and the mask is this thread's.
    unsafe {
        let (mut fatal, mut before) = (mem::zeroed(), mem::zeroed());
        libc::sigemptyset(&mut fatal);
        libc::sigaddset(&mut fatal, libc::SIGPIPE);
        libc::sigaddset(&mut fatal, libc::SIGXFSZ);
        libc::sigaddset(&mut fatal, libc::SIGTTOU);
        if libc::pthread_sigmask(libc::SIG_BLOCK, &fatal, &mut before) != 0 {
            return;
        }
        if write() {
            let at_once: libc::timespec = mem::zeroed();
            libc::sigtimedwait(&fatal, ptr::null_mut(), &at_once);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_that_of_the_calendar() {
        for (ms, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_000, "2024-02-29T23:59:59.000Z"),
            (1_798_761_600_001, "2027-01-01T00:00:00.001Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(time(ms), expected);
        }
    }

    #[test]
    fn a_value_of_several_lines_has_its_length() {
        let fields = [("code", "14".to_owned()), ("text", "a\nb".to_owned())];
        let entry = entry(&MESSAGE, &fields, "a\nb");
        let expected = b"MESSAGE\n\x03\0\0\0\0\0\0\0a\nb\nPRIORITY=4\nSYSLOG_IDENTIFIER=onewrite\n\
            ONEWRITE_EVENT=message\nONEWRITE_CODE=14\n";
        assert_eq!(entry, expected.as_slice());
    }
}
