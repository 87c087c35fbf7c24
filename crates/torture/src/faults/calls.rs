//! The system calls that can be made to fail, and which faults fit each.
//!
//! The table is x86-64's: numbers, and which argument is a path, a descriptor or a length.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What a call works on, as far as the tracer must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The argument of this number points to a path.
    Path(usize),
    /// The argument of this number is a descriptor.
    Descriptor(usize),
    /// A path after a directory's descriptor; an empty path means the descriptor itself.
    PathAt(usize),
    /// An address in a mapping.
    Mapping,
    /// Nothing in the file system.
    Nothing,
}

/// What kind of work a call does: decides which faults fit, and what fails together for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Opening a file.
    Open,
    /// Reading it.
    Read,
    /// Writing it.
    Write,
    /// Making it durable.
    Flush,
    /// Changing its size or its blocks.
    Space,
    /// Locking, and the other uses of fcntl.
    Control,
    /// Asking about a file or path.
    Look,
    /// Removing or making a name.
    Name,
    /// Permissions and owner.
    Permission,
    /// Mapping it.
    Map,
    /// Closing it.
    Close,
    /// Starting a thread.
    Thread,
}

/// One system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SystemCall {
    /// Its number.
    pub number: i64,
    /// Its name.
    pub name: &'static str,
    /// What it works on.
    pub target: Target,
    /// What it does.
    pub work: Work,
}

const fn call(number: i64, name: &'static str, target: Target, work: Work) -> SystemCall {
    SystemCall {
        number,
        name,
        target,
        work,
    }
}

/// All that are watched.
pub const CALLS: &[SystemCall] = &[
    call(0, "read", Target::Descriptor(0), Work::Read),
    call(1, "write", Target::Descriptor(0), Work::Write),
    call(2, "open", Target::Path(0), Work::Open),
    call(3, "close", Target::Descriptor(0), Work::Close),
    call(4, "stat", Target::Path(0), Work::Look),
    call(5, "fstat", Target::Descriptor(0), Work::Look),
    call(6, "lstat", Target::Path(0), Work::Look),
    call(8, "lseek", Target::Descriptor(0), Work::Look),
    call(9, "mmap", Target::Descriptor(4), Work::Map),
    call(16, "ioctl", Target::Descriptor(0), Work::Control),
    call(17, "pread64", Target::Descriptor(0), Work::Read),
    call(18, "pwrite64", Target::Descriptor(0), Work::Write),
    call(21, "access", Target::Path(0), Work::Look),
    call(25, "mremap", Target::Mapping, Work::Map),
    call(72, "fcntl", Target::Descriptor(0), Work::Control),
    call(74, "fsync", Target::Descriptor(0), Work::Flush),
    call(75, "fdatasync", Target::Descriptor(0), Work::Flush),
    call(77, "ftruncate", Target::Descriptor(0), Work::Space),
    call(79, "getcwd", Target::Nothing, Work::Look),
    call(83, "mkdir", Target::Path(0), Work::Name),
    call(84, "rmdir", Target::Path(0), Work::Name),
    call(87, "unlink", Target::Path(0), Work::Name),
    call(89, "readlink", Target::Path(0), Work::Look),
    call(91, "fchmod", Target::Descriptor(0), Work::Permission),
    call(93, "fchown", Target::Descriptor(0), Work::Permission),
    call(138, "fstatfs", Target::Descriptor(0), Work::Look),
    call(257, "openat", Target::PathAt(1), Work::Open),
    call(262, "newfstatat", Target::PathAt(1), Work::Look),
    call(263, "unlinkat", Target::PathAt(1), Work::Name),
    call(267, "readlinkat", Target::PathAt(1), Work::Look),
    call(269, "faccessat", Target::PathAt(1), Work::Look),
    call(277, "sync_file_range", Target::Descriptor(0), Work::Flush),
    call(285, "fallocate", Target::Descriptor(0), Work::Space),
    call(295, "preadv", Target::Descriptor(0), Work::Read),
    call(296, "pwritev", Target::Descriptor(0), Work::Write),
    call(327, "preadv2", Target::Descriptor(0), Work::Read),
    call(328, "pwritev2", Target::Descriptor(0), Work::Write),
    call(332, "statx", Target::PathAt(1), Work::Look),
    call(435, "clone3", Target::Nothing, Work::Thread),
    call(439, "faccessat2", Target::PathAt(1), Work::Look),
];

/// The call with this number, if it is watched.
pub fn by_number(number: i64) -> Option<&'static SystemCall> {
    CALLS.iter().find(|call| call.number == number)
}

/// The call with this name.
pub fn by_name(name: &str) -> Option<&'static SystemCall> {
    CALLS.iter().find(|call| call.name == name)
}

/// Error numbers by name; the ones that are put in.
const ERRORS: &[(&str, i32)] = &[
    ("EPERM", 1),
    ("EINTR", 4),
    ("EIO", 5),
    ("EAGAIN", 11),
    ("ENOMEM", 12),
    ("EACCES", 13),
    ("EBUSY", 16),
    ("EMFILE", 24),
    ("ENOTTY", 25),
    ("ENOSPC", 28),
    ("EROFS", 30),
    ("ENOLCK", 37),
    ("EOPNOTSUPP", 95),
    ("EDQUOT", 122),
];

/// What happens instead of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// It fails with this error number, and does nothing.
    Fails(&'static str),
    /// It is done, and says that it failed with this error number.
    DoneButFails(&'static str),
    /// It reads or writes only the first half.
    Short,
}

impl Fault {
    /// The error number that the program sees; none for a short read or write.
    pub fn errno(self) -> Option<i32> {
        match self {
            Fault::Fails(name) | Fault::DoneButFails(name) => ERRORS
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, number)| *number),
            Fault::Short => None,
        }
    }

    /// The error's name; "short" where there is none.
    pub fn error_name(self) -> &'static str {
        match self {
            Fault::Fails(name) | Fault::DoneButFails(name) => name,
            Fault::Short => "short",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Fails(name) => out.write_str(name),
            Fault::DoneButFails(name) => write!(out, "done-{name}"),
            Fault::Short => out.write_str("short"),
        }
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        if word == "short" {
            return Ok(Fault::Short);
        }
        let (done, name) = match word.strip_prefix("done-") {
            Some(name) => (true, name),
            None => (false, word),
        };
        let (name, _) = ERRORS
            .iter()
            .find(|(known, _)| *known == name)
            .ok_or_else(|| format!("there is no fault '{word}'"))?;
        Ok(if done {
            Fault::DoneButFails(name)
        } else {
            Fault::Fails(name)
        })
    }
}

/// Flags of a call that decide which faults fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shape {
    /// An open that may create the file.
    pub creates: bool,
    /// An open for writing.
    pub for_writing: bool,
    /// An fcntl that makes a descriptor.
    pub duplicates: bool,
    /// A flush that only begins: it does not say what became of the data.
    pub only_begins: bool,
    /// Nothing but the kernel's own pages (`/proc`, `/sys`, `/dev`).
    pub is_system_file: bool,
}

/// The faults that fit a call.
pub fn faults_of(call: &SystemCall, shape: Shape) -> Vec<Fault> {
    use Fault::{DoneButFails, Fails, Short};
    let mut faults = match call.work {
        Work::Open => vec![
            Fails("EIO"),
            Fails("EMFILE"),
            Fails("EINTR"),
            Fails("EACCES"),
        ],
        Work::Read => vec![Fails("EIO"), Fails("EINTR"), Short],
        Work::Write => vec![
            Fails("EIO"),
            Fails("ENOSPC"),
            Fails("EDQUOT"),
            Fails("EROFS"),
            Fails("EINTR"),
            DoneButFails("EIO"),
            Short,
        ],
        Work::Flush => vec![
            Fails("EIO"),
            Fails("ENOSPC"),
            Fails("EDQUOT"),
            Fails("EINTR"),
        ],
        Work::Space => vec![
            Fails("EIO"),
            Fails("ENOSPC"),
            Fails("EDQUOT"),
            Fails("EROFS"),
            Fails("EINTR"),
        ],
        Work::Control if shape.duplicates => vec![Fails("EMFILE")],
        Work::Control if call.name == "ioctl" => vec![Fails("EIO"), Fails("ENOTTY")],
        Work::Control => vec![Fails("EIO"), Fails("ENOLCK"), Fails("EINTR")],
        Work::Look => vec![Fails("EIO"), Fails("EACCES")],
        Work::Name => vec![
            Fails("EIO"),
            Fails("EROFS"),
            Fails("EACCES"),
            Fails("EBUSY"),
        ],
        Work::Permission => vec![Fails("EIO"), Fails("EPERM")],
        Work::Map => vec![Fails("ENOMEM"), Fails("EACCES")],
        Work::Close => vec![DoneButFails("EIO")],
        Work::Thread => vec![Fails("EAGAIN")],
    };
    if call.name == "fallocate" {
        faults.push(Fails("EOPNOTSUPP"));
    }
    if shape.for_writing {
        faults.push(Fails("EROFS"));
    }
    if shape.creates {
        faults.extend([Fails("ENOSPC"), Fails("EDQUOT")]);
    }
    if shape.is_system_file {
        faults.retain(|fault| matches!(fault.error_name(), "EIO" | "EMFILE" | "EINTR" | "short"));
    }
    faults
}

/// Whether `later` fails too, once `fault` has begun at a call of `first`'s work and stays for good.
pub fn fails_with(fault: Fault, first: &SystemCall, later: &SystemCall, shape: Shape) -> bool {
    if first.name == later.name {
        return !(later.work == Work::Open && fault.error_name() == "EROFS") || shape.for_writing;
    }
    let changes = matches!(later.work, Work::Write | Work::Space)
        || (later.work == Work::Open && shape.creates);
    match fault {
        Fault::Short => first.work == later.work,
        // A device that is gone.
        Fault::Fails("EIO") => {
            matches!(
                first.work,
                Work::Read | Work::Write | Work::Flush | Work::Space
            ) && matches!(
                later.work,
                Work::Read | Work::Write | Work::Flush | Work::Space
            ) && !shape.is_system_file
        }
        // A disk or a quota that is full.
        Fault::Fails("ENOSPC" | "EDQUOT") => changes,
        // A file system that has gone read-only.
        Fault::Fails("EROFS") => {
            changes || later.work == Work::Name || (later.work == Work::Open && shape.for_writing)
        }
        Fault::Fails("EMFILE") => later.work == Work::Open || shape.duplicates,
        Fault::Fails(_) | Fault::DoneButFails(_) => false,
    }
}
