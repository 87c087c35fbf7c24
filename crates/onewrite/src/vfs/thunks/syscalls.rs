//! Three of the system calls that SQLite's VFS "unix" makes, put into its table (`xSetSystemCall`).
//! `fcntl` for locks goes to [`Table::answer`]; `open` and `close` tell which descriptors are
//! SQLite's.
//!
//! All connections of a SQLite share the table, even those that do not use our VFS. They share
//! SQLite's count of locks, so they must share ours. SQLite uses the table for as long as it is
//! loaded, so this library stays loaded too.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_short, c_void};
use std::mem;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::storage::{OfdCommand, OfdConflict, OfdRange, OfdType, close_in_child};
use crate::vfs::events::teller;
use crate::vfs::ffi::{Api, SQLITE_OK, Untyped, sqlite3_vfs};
use crate::vfs::locks::{Answer, Held, Request, Table, Why};
use crate::vfs::{background, linger};

type Open = unsafe extern "C" fn(*const c_char, c_int, c_int) -> c_int;
type Close = unsafe extern "C" fn(c_int) -> c_int;
/// SQLite calls it with `...`; our replacement takes a pointer. In the calling conventions of Linux
/// (x86-64, AArch64, 32-bit ARM, RISC-V), integers and pointers in variable arguments come in the
/// same registers as without `...`.
type Fcntl = unsafe extern "C" fn(c_int, c_int, *mut c_void) -> c_int;
type VariadicFcntl = unsafe extern "C" fn(c_int, c_int, ...) -> c_int;

/// One SQLite in this process.
struct Host {
    /// Its VFS "unix".
    unix: AtomicPtr<sqlite3_vfs>,
    open: AtomicPtr<c_void>,
    close: AtomicPtr<c_void>,
    fcntl: AtomicPtr<c_void>,
    table: Table,
}

/// The functions for one table. The host's number distinguishes them, because SQLite does not say
/// which SQLite calls.
struct Thunks {
    open: Open,
    close: Close,
    fcntl: Fcntl,
}

const MOST_HOSTS: usize = 4;
static HOSTS: [Host; MOST_HOSTS] = [const { Host::new() }; MOST_HOSTS];
const THUNKS: [Thunks; MOST_HOSTS] = [
    Thunks::of::<0>(),
    Thunks::of::<1>(),
    Thunks::of::<2>(),
    Thunks::of::<3>(),
];

impl Host {
    const fn new() -> Host {
        Host {
            unix: AtomicPtr::new(ptr::null_mut()),
            open: AtomicPtr::new(ptr::null_mut()),
            close: AtomicPtr::new(ptr::null_mut()),
            fcntl: AtomicPtr::new(ptr::null_mut()),
            table: Table::new(),
        }
    }
}

impl Thunks {
    const fn of<const HOST: usize>() -> Thunks {
        Thunks {
            open: open::<HOST>,
            close: close::<HOST>,
            fcntl: fcntl::<HOST>,
        }
    }
}

/// The VFS "unix" of a SQLite, if its system calls can be replaced.
fn unix_of(api: &Api) -> Option<&'static sqlite3_vfs> {
    // SAFETY: SQLite's own VFS lives as long as SQLite.
    let unix = unsafe { (api.vfs_find)(c"unix".as_ptr()).as_ref() }?;
    let has_table =
        unix.iVersion >= 3 && unix.xGetSystemCall.is_some() && unix.xSetSystemCall.is_some();
    has_table.then_some(unix)
}

fn present(unix: &sqlite3_vfs, name: &CStr) -> Option<Untyped> {
    let get = unix.xGetSystemCall?;
    // SAFETY: a method of the VFS, and a C string.
    unsafe { get(ptr::from_ref(unix).cast_mut(), name.as_ptr()) }
}

fn replace(unix: &sqlite3_vfs, name: &CStr, call: Untyped) -> bool {
    let Some(set) = unix.xSetSystemCall else {
        return false;
    };
    // SAFETY: as above; `call` has the type that SQLite calls `name` with.
    unsafe { set(ptr::from_ref(unix).cast_mut(), name.as_ptr(), Some(call)) == SQLITE_OK }
}

fn host_of(unix: &sqlite3_vfs) -> Option<usize> {
    let address = ptr::from_ref(unix).cast_mut();
    HOSTS.iter().position(|host| {
        let taken = host.unix.compare_exchange(
            ptr::null_mut(),
            address,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        taken.is_ok_and(|before| before.is_null()) || taken == Err(address)
    })
}

/// Puts our calls into the table of a SQLite. May be called again: it leaves our calls that are
/// there, and puts back those that were removed (SQLite's tests do that).
pub fn install(api: &Api) {
    if cfg!(any(shuttle, loom)) {
        // The processes of a model are one process: its locks are the model's own.
        return;
    }
    static ONCE: Once = Once::new();
    let Some((unix, number)) = unix_of(api).and_then(|unix| Some((unix, host_of(unix)?))) else {
        return;
    };
    ONCE.call_once(|| {
        stay_loaded(in_child as *const c_void);
        // SAFETY: the child's handler neither locks nor allocates.
        let code =
            unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child)) };
        NOTICES_FORK.store(code == 0, Ordering::Release);
    });
    let (host, thunks) = (&HOSTS[number], &THUNKS[number]);
    // SAFETY: SQLite itself keeps functions of any type like this.
    let untyped = unsafe {
        [
            mem::transmute::<Open, Untyped>(thunks.open),
            mem::transmute::<Close, Untyped>(thunks.close),
            mem::transmute::<Fcntl, Untyped>(thunks.fcntl),
        ]
    };
    let places = [&host.open, &host.close, &host.fcntl];
    let names = [c"open", c"close", c"fcntl"];
    // `fcntl` comes last: the others must know its descriptors.
    for ((name, ours), place) in names.into_iter().zip(untyped).zip(places) {
        let Some(before) = present(unix, name) else {
            return;
        };
        if before as usize == ours as usize {
            continue;
        }
        if place.load(Ordering::Acquire).is_null() {
            place.store(before as *mut c_void, Ordering::Release);
        }
        if !replace(unix, name, ours) {
            return;
        }
    }
}

/// How the locks of a database are held. `is_locked`: whether a connection has locked it.
pub fn held_on(api: &Api, path: &Path, is_locked: bool) -> Held {
    let number = unix_of(api).and_then(host_of);
    let Some(number) =
        number.filter(|number| !HOSTS[*number].fcntl.load(Ordering::Acquire).is_null())
    else {
        return Held::Posix(Why::NoTable);
    };
    HOSTS[number].table.held_on(path, is_locked)
}

static NOTICES_FORK: AtomicBool = AtomicBool::new(false);

/// Whether the handlers of fork are called.
pub fn notices_fork() -> bool {
    NOTICES_FORK.load(Ordering::Acquire)
}

/// From now on this SQLite is not unloaded.
pub fn stays_loaded(api: &Api) {
    stay_loaded(api.open_v2 as *const c_void);
}

/// A library that a plugin loaded may be unloaded with it. From now on the one with this function is
/// not.
fn stay_loaded(function: *const c_void) {
    // SAFETY: dladdr fills the structure, or returns 0; the name is that of a loaded library.
    unsafe {
        let mut here: libc::Dl_info = mem::zeroed();
        if libc::dladdr(function, &raw mut here) != 0 && !here.dli_fname.is_null() {
            let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
            libc::dlopen(here.dli_fname, flags);
        }
    }
}

unsafe extern "C" fn before_fork() {
    linger::before_fork();
    background::before_fork();
    teller::before_fork();
}

unsafe extern "C" fn after_fork() {
    teller::after_fork();
    background::after_fork();
    linger::after_fork();
}

/// The child does not hold the parent's locks.
unsafe extern "C" fn in_child() {
    teller::after_fork();
    background::after_fork_in_child();
    linger::after_fork_in_child();
    close_in_child();
    for host in &HOSTS {
        host.table.forked();
    }
}

unsafe extern "C" fn open<const HOST: usize>(
    path: *const c_char,
    flags: c_int,
    mode: c_int,
) -> c_int {
    let host = &HOSTS[HOST];
    quietly(|| host.table.before_open());
    // SAFETY: the call that was in the table, with its own arguments.
    let fd = unsafe {
        mem::transmute::<*mut c_void, Open>(host.open.load(Ordering::Acquire))(path, flags, mode)
    };
    if fd >= 0 {
        quietly(|| host.table.forget(fd));
    }
    fd
}

unsafe extern "C" fn close<const HOST: usize>(fd: c_int) -> c_int {
    let host = &HOSTS[HOST];
    quietly(|| host.table.forget(fd));
    // SAFETY: as in `open`.
    unsafe { mem::transmute::<*mut c_void, Close>(host.close.load(Ordering::Acquire))(fd) }
}

unsafe extern "C" fn fcntl<const HOST: usize>(
    fd: c_int,
    command: c_int,
    argument: *mut c_void,
) -> c_int {
    let host = &HOSTS[HOST];
    // SAFETY: for these commands SQLite passes a lock structure.
    let asked = unsafe { LockPointer::of(command, argument) };
    let answer = asked.map_or(Answer::PassOn, |(kind, lock)| {
        // SAFETY: SQLite has the descriptor open during the call.
        let borrowed = (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) });
        let Some((fd, request)) = borrowed.zip(lock.request()) else {
            return Answer::PassOn;
        };
        let answer = catch_unwind(AssertUnwindSafe(|| host.table.answer(fd, kind, request)));
        let answer = answer.unwrap_or(Answer::Failed(libc::EIO));
        if let (Answer::Done(conflict), OfdCommand::Get) = (answer, kind) {
            lock.say(conflict);
        }
        answer
    });
    match answer {
        // SAFETY: as in `open`; this one takes its last argument as `...`.
        Answer::PassOn => unsafe {
            let original = host.fcntl.load(Ordering::Acquire);
            mem::transmute::<*mut c_void, VariadicFcntl>(original)(fd, command, argument)
        },
        Answer::Done(_) => 0,
        Answer::Failed(error) => {
            set_errno(error);
            -1
        }
    }
}

/// No panic may unwind into SQLite.
fn quietly(work: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(work));
}

fn set_errno(error: c_int) {
    // SAFETY: the location is the thread's own.
    unsafe {
        #[cfg(target_os = "android")]
        let errno = libc::__errno();
        #[cfg(not(target_os = "android"))]
        let errno = libc::__errno_location();
        *errno = error;
    }
}

/// The lock structure of a call; its type depends on the command.
enum LockPointer {
    Native(*mut libc::flock),
    /// 32-bit programs built for large files use separate commands.
    #[cfg(all(target_pointer_width = "32", target_env = "gnu"))]
    Large(*mut libc::flock64),
}

impl LockPointer {
    /// # Safety
    /// `argument` is what a program passes with `command`.
    unsafe fn of(command: c_int, argument: *mut c_void) -> Option<(OfdCommand, LockPointer)> {
        let native = LockPointer::Native(argument.cast());
        Some(match command {
            libc::F_GETLK => (OfdCommand::Get, native),
            libc::F_SETLK => (OfdCommand::Set, native),
            libc::F_SETLKW => (OfdCommand::SetWait, native),
            #[cfg(all(target_pointer_width = "32", target_env = "gnu"))]
            12..=14 => {
                let commands = [OfdCommand::Get, OfdCommand::Set, OfdCommand::SetWait];
                let large = LockPointer::Large(argument.cast());
                (commands[(command - 12) as usize], large)
            }
            _ => return None,
        })
    }

    /// The request; `None` for one that SQLite never makes.
    fn request(&self) -> Option<Request> {
        // SAFETY: SQLite's lock structure, valid during its call.
        let (kind, whence, start, len) = unsafe {
            match self {
                LockPointer::Native(lock) => fields(
                    (**lock).l_type,
                    (**lock).l_whence,
                    (**lock).l_start,
                    (**lock).l_len,
                ),
                #[cfg(all(target_pointer_width = "32", target_env = "gnu"))]
                LockPointer::Large(lock) => fields(
                    (**lock).l_type,
                    (**lock).l_whence,
                    (**lock).l_start,
                    (**lock).l_len,
                ),
            }
        };
        let kind = match kind {
            libc::F_RDLCK => OfdType::Read,
            libc::F_WRLCK => OfdType::Write,
            libc::F_UNLCK => OfdType::Unlock,
            _ => return None,
        };
        let is_plain = whence == libc::SEEK_SET && start >= 0 && len >= 0;
        is_plain.then_some(Request {
            kind,
            range: OfdRange { start, len },
        })
    }

    /// Writes the answer to `F_GETLK`.
    fn say(&self, conflict: Option<OfdConflict>) {
        let kind = match conflict.map(|conflict| conflict.kind) {
            None | Some(OfdType::Unlock) => libc::F_UNLCK,
            Some(OfdType::Read) => libc::F_RDLCK,
            Some(OfdType::Write) => libc::F_WRLCK,
        };
        // SAFETY: as in `request`.
        unsafe {
            match self {
                LockPointer::Native(lock) => {
                    (**lock).l_type = kind as c_short;
                    if let Some(conflict) = conflict {
                        (**lock).l_pid = conflict.pid;
                        (**lock).l_start = conflict.range.start as libc::off_t;
                        (**lock).l_len = conflict.range.len as libc::off_t;
                    }
                }
                #[cfg(all(target_pointer_width = "32", target_env = "gnu"))]
                LockPointer::Large(lock) => {
                    (**lock).l_type = kind as c_short;
                    if let Some(conflict) = conflict {
                        (**lock).l_pid = conflict.pid;
                        (**lock).l_start = conflict.range.start;
                        (**lock).l_len = conflict.range.len;
                    }
                }
            }
        }
    }
}

/// Offsets of either width.
fn fields(
    kind: c_short,
    whence: c_short,
    start: impl Into<i64>,
    len: impl Into<i64>,
) -> (c_int, c_int, i64, i64) {
    (kind.into(), whence.into(), start.into(), len.into())
}
