//! The system calls that can be made to fail, and the faults that fit each.
//!
//! The positions of paths, descriptors and lengths among the arguments are the same on every
//! processor. Numbers are libc's. Newer processors lack calls that others have replaced.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The object of a call, as far as the tracer must know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The argument of this number points to a path.
    Path(usize),
    /// The argument of this number is a descriptor.
    Descriptor(usize),
    /// A path after a directory's descriptor. An empty path means the descriptor itself.
    PathAt(usize),
    /// An address in a mapping.
    Mapping,
    /// Nothing in the file system.
    Nothing,
}

/// The kind of work of a call. It decides which faults fit, and which calls fail together for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Opening a file.
    Open,
    /// Reading a file.
    Read,
    /// Writing a file.
    Write,
    /// Making a file durable.
    Flush,
    /// Changing a file's size or its blocks.
    Space,
    /// Locking, and the other uses of fcntl.
    Control,
    /// Asking about a file or path.
    Look,
    /// Removing or making a name.
    Name,
    /// Permissions and owner.
    Permission,
    /// Mapping a file.
    Map,
    /// Closing a file.
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
    /// The object of the call.
    pub target: Target,
    /// Its kind of work.
    pub work: Work,
}

macro_rules! calls {
    ($($(#[$only:meta])? $number:ident $name:literal $target:expr, $work:ident;)*) => {
        &[$(
            $(#[$only])?
            SystemCall {
                number: nix::libc::$number,
                name: $name,
                target: $target,
                work: Work::$work,
            },
        )*]
    };
}

/// All watched calls.
#[cfg(target_pointer_width = "64")]
pub const CALLS: &[SystemCall] = calls! {
    SYS_read "read" Target::Descriptor(0), Read;
    SYS_write "write" Target::Descriptor(0), Write;
    #[cfg(target_arch = "x86_64")]
    SYS_open "open" Target::Path(0), Open;
    SYS_close "close" Target::Descriptor(0), Close;
    #[cfg(target_arch = "x86_64")]
    SYS_stat "stat" Target::Path(0), Look;
    SYS_fstat "fstat" Target::Descriptor(0), Look;
    #[cfg(target_arch = "x86_64")]
    SYS_lstat "lstat" Target::Path(0), Look;
    SYS_lseek "lseek" Target::Descriptor(0), Look;
    SYS_mmap "mmap" Target::Descriptor(4), Map;
    SYS_ioctl "ioctl" Target::Descriptor(0), Control;
    SYS_pread64 "pread64" Target::Descriptor(0), Read;
    SYS_pwrite64 "pwrite64" Target::Descriptor(0), Write;
    #[cfg(target_arch = "x86_64")]
    SYS_access "access" Target::Path(0), Look;
    SYS_mremap "mremap" Target::Mapping, Map;
    SYS_fcntl "fcntl" Target::Descriptor(0), Control;
    SYS_fsync "fsync" Target::Descriptor(0), Flush;
    SYS_fdatasync "fdatasync" Target::Descriptor(0), Flush;
    SYS_ftruncate "ftruncate" Target::Descriptor(0), Space;
    SYS_getcwd "getcwd" Target::Nothing, Look;
    #[cfg(target_arch = "x86_64")]
    SYS_mkdir "mkdir" Target::Path(0), Name;
    #[cfg(target_arch = "x86_64")]
    SYS_rmdir "rmdir" Target::Path(0), Name;
    SYS_mkdirat "mkdirat" Target::PathAt(1), Name;
    #[cfg(target_arch = "x86_64")]
    SYS_unlink "unlink" Target::Path(0), Name;
    #[cfg(target_arch = "x86_64")]
    SYS_readlink "readlink" Target::Path(0), Look;
    SYS_fchmod "fchmod" Target::Descriptor(0), Permission;
    SYS_fchown "fchown" Target::Descriptor(0), Permission;
    SYS_fstatfs "fstatfs" Target::Descriptor(0), Look;
    SYS_openat "openat" Target::PathAt(1), Open;
    SYS_newfstatat "newfstatat" Target::PathAt(1), Look;
    SYS_unlinkat "unlinkat" Target::PathAt(1), Name;
    SYS_readlinkat "readlinkat" Target::PathAt(1), Look;
    SYS_faccessat "faccessat" Target::PathAt(1), Look;
    SYS_sync_file_range "sync_file_range" Target::Descriptor(0), Flush;
    SYS_fallocate "fallocate" Target::Descriptor(0), Space;
    SYS_preadv "preadv" Target::Descriptor(0), Read;
    SYS_pwritev "pwritev" Target::Descriptor(0), Write;
    SYS_preadv2 "preadv2" Target::Descriptor(0), Read;
    SYS_pwritev2 "pwritev2" Target::Descriptor(0), Write;
    SYS_statx "statx" Target::PathAt(1), Look;
    SYS_clone3 "clone3" Target::Nothing, Thread;
    SYS_faccessat2 "faccessat2" Target::PathAt(1), Look;
};

/// None: there is no tracer, and calls have other numbers and arguments.
#[cfg(not(target_pointer_width = "64"))]
pub const CALLS: &[SystemCall] = calls! {};

/// The call with this number, if it is watched.
pub fn by_number(number: i64) -> Option<&'static SystemCall> {
    CALLS.iter().find(|call| call.number == number)
}

/// The call with this name.
pub fn by_name(name: &str) -> Option<&'static SystemCall> {
    CALLS.iter().find(|call| call.name == name)
}

/// The error numbers that faults use, by name.
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

/// The event that replaces a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// It fails with this error number, and has no effect.
    Fails(&'static str),
    /// It takes effect, and reports a failure with this error number.
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

    /// The error's name; "short" if there is none.
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
    /// A flush that only begins, and does not report the result for the data.
    pub only_begins: bool,
    /// A file of the kernel's own (`/proc`, `/sys`, `/dev`).
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

/// Whether `later` fails too, after `fault` has begun at the call `first` and lasts.
pub fn fails_with(fault: Fault, first: &SystemCall, later: &SystemCall, shape: Shape) -> bool {
    if first.name == later.name {
        return !(later.work == Work::Open && fault.error_name() == "EROFS") || shape.for_writing;
    }
    let changes = matches!(later.work, Work::Write | Work::Space)
        || (later.work == Work::Open && shape.creates);
    match fault {
        Fault::Short => first.work == later.work,
        // The device is gone.
        Fault::Fails("EIO") => {
            matches!(
                first.work,
                Work::Read | Work::Write | Work::Flush | Work::Space
            ) && matches!(
                later.work,
                Work::Read | Work::Write | Work::Flush | Work::Space
            ) && !shape.is_system_file
        }
        // The disk or a quota is full.
        Fault::Fails("ENOSPC" | "EDQUOT") => changes,
        // The file system has become read-only.
        Fault::Fails("EROFS") => {
            changes || later.work == Work::Name || (later.work == Work::Open && shape.for_writing)
        }
        Fault::Fails("EMFILE") => later.work == Work::Open || shape.duplicates,
        Fault::Fails(_) | Fault::DoneButFails(_) => false,
    }
}
