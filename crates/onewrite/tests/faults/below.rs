//! A VFS between ours and SQLite's default one. A test can make its calls on databases fail. It
//! also keeps what a device would hold of a database's header, as kernels do. A failed flush drops
//! the writes before it, though they can still be read. It also runs a test's code at the moment
//! when a connection lowers its lock.

use super::shim::{self, Call, Watch};
use rusqlite::ffi::{SQLITE_OK, SQLITE_OPEN_MAIN_DB};
use std::collections::HashMap;
use std::ffi::{CStr, c_int};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

const HEADER_BYTES: usize = onewrite::DATABASE_HEADER_BYTES;

/// The calls that can fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    Sync,
    /// `xWrite` of the header alone, or of a part of it.
    WriteHeader,
    /// `xRead` of the header alone.
    ReadHeader,
    /// `xShmMap`.
    Map,
}

/// Which of the calls fail.
#[derive(Clone, Copy)]
enum Turn {
    Nth(u32),
    /// All of them.
    Always,
    /// This call and all after it.
    From(u32),
}

struct Rule {
    method: Method,
    code: c_int,
    turn: Turn,
    seen: u32,
    fired: u32,
}

#[derive(Default)]
struct State {
    rules: HashMap<PathBuf, Rule>,
    headers: HashMap<PathBuf, Header>,
    /// Files that were deleted, and whether durably.
    deleted: HashMap<PathBuf, bool>,
    lowered: HashMap<PathBuf, Lowered>,
    unlocked: HashMap<PathBuf, Unlocked>,
}

/// Code to run when a connection has released its lock so many times.
struct Unlocked {
    left: u32,
    work: Box<dyn FnOnce() + Send>,
}

/// Code to run when a connection goes from EXCLUSIVE to SHARED.
struct Lowered {
    is_exclusive: bool,
    work: Box<dyn FnOnce() + Send>,
}

/// SQLite's locks on a database.
const UNLOCKED: c_int = 0;
const SHARED: c_int = 1;
const EXCLUSIVE: c_int = 4;

struct Header {
    written: [u8; HEADER_BYTES],
    on_device: [u8; HEADER_BYTES],
    /// Bytes written since the last flush, whether that flush succeeded or not.
    dirty: [bool; HEADER_BYTES],
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

struct Held(MutexGuard<'static, Option<State>>);

impl Held {
    fn state(&mut self) -> &mut State {
        self.0.get_or_insert_default()
    }
}

fn held() -> Held {
    Held(STATE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Calls on one database that fail. Ends when it goes out of scope.
pub struct Failing(PathBuf);

impl Failing {
    fn set(database: &Path, method: Method, code: c_int, turn: Turn) -> Failing {
        let rule = Rule {
            method,
            code,
            turn,
            seen: 0,
            fired: 0,
        };
        held().state().rules.insert(database.to_owned(), rule);
        Failing(database.to_owned())
    }

    /// The next call fails.
    pub fn once(database: &Path, method: Method, code: c_int) -> Failing {
        Failing::nth(database, method, code, 1)
    }

    /// The `nth` call fails, counted from 1.
    pub fn nth(database: &Path, method: Method, code: c_int, nth: u32) -> Failing {
        Failing::set(database, method, code, Turn::Nth(nth))
    }

    /// The `nth` call and all after it fail.
    pub fn from(database: &Path, method: Method, code: c_int, nth: u32) -> Failing {
        Failing::set(database, method, code, Turn::From(nth))
    }

    /// All calls fail.
    pub fn always(database: &Path, method: Method, code: c_int) -> Failing {
        Failing::set(database, method, code, Turn::Always)
    }

    /// Whether a call has failed.
    pub fn has_come(&self) -> bool {
        let mut held = held();
        held.state()
            .rules
            .get(&self.0)
            .is_some_and(|rule| rule.fired > 0)
    }
}

impl Drop for Failing {
    fn drop(&mut self) {
        held().state().rules.remove(&self.0);
    }
}

fn failure(path: &Path, method: Method) -> Option<c_int> {
    let mut held = held();
    let rule = held.state().rules.get_mut(path)?;
    if rule.method != method {
        return None;
    }
    rule.seen += 1;
    let fails = match rule.turn {
        Turn::Nth(nth) => rule.seen == nth,
        Turn::From(nth) => rule.seen >= nth,
        Turn::Always => true,
    };
    rule.fired += u32::from(fails);
    fails.then_some(rule.code)
}

/// From now on, keeps what the device holds of a database's header. At first that is what the file
/// holds.
pub fn watch_header(database: &Path) {
    let bytes = super::bytes(database);
    let now: [u8; HEADER_BYTES] = *bytes.first_chunk().expect("a header");
    let header = Header {
        written: now,
        on_device: now,
        dirty: [false; HEADER_BYTES],
    };
    held().state().headers.insert(database.to_owned(), header);
}

/// The bytes of the header that a power cut would leave.
pub fn header_on_device(database: &Path) -> [u8; HEADER_BYTES] {
    held()
        .state()
        .headers
        .get(database)
        .expect("watched")
        .on_device
}

/// Whether the last deletion of a file was to be durable; `None` if there was none.
pub fn was_deleted_durably(path: &Path) -> Option<bool> {
    held().state().deleted.get(path).copied()
}

/// Runs `work` once, when a connection that holds the database EXCLUSIVE lowers its lock to SHARED.
pub fn when_lowered(database: &Path, work: impl FnOnce() + Send + 'static) {
    let lowered = Lowered {
        is_exclusive: false,
        work: Box::new(work),
    };
    held().state().lowered.insert(database.to_owned(), lowered);
}

/// Runs `work` once, after the `nth` time that a connection releases its lock, counted from 1.
pub fn when_unlocked(database: &Path, nth: u32, work: impl FnOnce() + Send + 'static) {
    let unlocked = Unlocked {
        left: nth,
        work: Box::new(work),
    };
    let mut held = held();
    held.state().unlocked.insert(database.to_owned(), unlocked);
}

fn note_unlocked(path: &Path) {
    let mut held = held();
    let unlocked = &mut held.state().unlocked;
    let Some(waiting) = unlocked.get_mut(path) else {
        return;
    };
    waiting.left -= 1;
    if waiting.left == 0
        && let Some(unlocked) = unlocked.remove(path)
    {
        drop(held);
        (unlocked.work)();
    }
}

fn note_write(path: &Path, bytes: &[u8], offset: usize) {
    let mut held = held();
    let Some(header) = held.state().headers.get_mut(path) else {
        return;
    };
    for (at, &byte) in bytes.iter().enumerate() {
        if offset + at < HEADER_BYTES {
            header.written[offset + at] = byte;
        }
    }
    if offset < HEADER_BYTES {
        // The kernel writes whole blocks.
        header.dirty = [true; HEADER_BYTES];
    }
}

fn note_sync(path: &Path, code: c_int) {
    let mut held = held();
    let Some(header) = held.state().headers.get_mut(path) else {
        return;
    };
    if std::mem::replace(&mut header.dirty, [false; HEADER_BYTES])[0] && code == SQLITE_OK {
        header.on_device = header.written;
    }
}

struct Faults;

impl Watch for Faults {
    const NAME: &CStr = c"below";
    const FILES: c_int = SQLITE_OPEN_MAIN_DB;

    fn delete(path: &Path, durably: bool, call: impl Call) -> c_int {
        held().state().deleted.insert(path.to_owned(), durably);
        call()
    }

    fn read(path: &Path, offset: u64, size: usize, call: impl Call) -> c_int {
        let is_header = offset == 0 && size == HEADER_BYTES;
        if is_header && let Some(code) = failure(path, Method::ReadHeader) {
            return code;
        }
        call()
    }

    fn write(path: &Path, offset: u64, bytes: &[u8], call: impl Call) -> c_int {
        let at = offset as usize;
        let is_header = at + bytes.len() <= HEADER_BYTES;
        if is_header && let Some(code) = failure(path, Method::WriteHeader) {
            return code;
        }
        note_write(path, bytes, at);
        call()
    }

    fn sync(path: &Path, call: impl Call) -> c_int {
        let code = failure(path, Method::Sync).unwrap_or_else(call);
        note_sync(path, code);
        code
    }

    fn lock(path: &Path, level: c_int, call: impl Call) -> c_int {
        let code = call();
        if let Some(lowered) = held().state().lowered.get_mut(path) {
            lowered.is_exclusive |= level == EXCLUSIVE && code == SQLITE_OK;
        }
        code
    }

    fn unlock(path: &Path, level: c_int, call: impl Call) -> c_int {
        let code = call();
        let is_lowered = |lowered: &Lowered| level == SHARED && lowered.is_exclusive;
        let mut held = held();
        let lowered = &mut held.state().lowered;
        if lowered.get(path).is_some_and(is_lowered)
            && let Some(lowered) = lowered.remove(path)
        {
            drop(held);
            (lowered.work)();
        } else {
            drop(held);
        }
        if level == UNLOCKED {
            note_unlocked(path);
        }
        code
    }

    fn shm_map(path: &Path, call: impl Call) -> c_int {
        failure(path, Method::Map).unwrap_or_else(call)
    }
}

/// Registers it as the default VFS.
pub fn register() {
    shim::register::<Faults>();
}
