//! A process keeps a database open for a while after its last connection (`onewrite_linger`). So the
//! next one finds guard and log as they are. The rules are LI1 to LI12 of `docs/durability.md`.
//!
//! When a connection of the application closes, it asks for EXCLUSIVE, to checkpoint and to end the
//! guard. Instead, an idle connection of our own is opened, or given more time. One thread closes
//! these connections when their time is over; their close then does what the last close does.

#[cfg(all(test, not(any(shuttle, loom))))]
mod tests;

use std::cell::{Cell, RefCell};
use std::fs;
use std::mem;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::time::Duration;

use serde::Serialize;

use super::background::{Served, Service, is_serving, serving};
use super::claim::File;
use super::database::Database;
use super::events::later::held_back;
use super::events::teller;
use super::host::{Connection, Host, OwnConnection, SqlError, at_exit};
use super::inner::LockLevel;
use super::settings::Settings;
use super::{convert, host, thunks};
use crate::commit::SharedLog;
use crate::mode::CheckpointPolicy;
use crate::storage::{process_number, without_signals};
use crate::sync::{self, Builder, Instant};
use crate::waits::{AT_EXIT, AT_FORK, LINGER_LOOK, LOOK};

/// The most databases that a process keeps open.
const MOST: u64 = 64;
/// Such a database has some eight descriptors. At most a quarter of what the process may have goes to
/// them.
const DESCRIPTORS: u64 = 32;

/// A connection of our own.
enum Phase {
    /// A thread opens it.
    Opens,
    Open(OwnConnection),
    /// A thread closes it.
    Closes,
}

/// A database that is kept open.
struct Kept {
    number: u64,
    host: &'static Host,
    log: Weak<SharedLog>,
    path: PathBuf,
    file: Option<File>,
    until: Instant,
    phase: Phase,
}

impl Kept {
    fn is_of(&self, log: &Arc<SharedLog>) -> bool {
        ptr::eq(self.log.as_ptr(), Arc::as_ptr(log))
    }
}

struct State {
    /// The process that has them. A child that no handler of fork knows inherits them.
    process: u64,
    kept: Vec<Kept>,
    has_thread: bool,
    is_exiting: bool,
    /// Threads that are about to fork: no further database is kept open.
    forks: u32,
    /// Files that the parent had open so when it forked. SQLite counts locks on them that this process
    /// has not.
    inherited: Vec<File>,
    next_number: u64,
    failure: Option<String>,
}

static STATE: Mutex<State> = Mutex::new(State {
    process: 0,
    kept: Vec::new(),
    has_thread: false,
    is_exiting: false,
    forks: 0,
    inherited: Vec::new(),
    next_number: 0,
    failure: None,
});
static CHANGED: Condvar = Condvar::new();

/// The number of databases, so that a process without any takes no lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The process that has them. In a child that no handler of fork knows, it is the parent.
static OWNER: AtomicU64 = AtomicU64::new(0);
/// Whether the process has inherited files.
static HAS_INHERITED: AtomicBool = AtomicBool::new(false);
/// How many of these connections have begun to close, by the database. Some databases share a place.
static CLOSINGS: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

fn closings_of(file: Option<File>) -> &'static AtomicU64 {
    let (device, inode) = file.unwrap_or_default();
    let place = device.wrapping_mul(31).wrapping_add(inode) % CLOSINGS.len() as u64;
    &CLOSINGS[place as usize]
}

impl State {
    /// The state of this process.
    fn own(mut guard: MutexGuard<'static, State>) -> MutexGuard<'static, State> {
        let process = process_number();
        if guard.process != process {
            // The connections belong to the parent, and so does the thread.
            let kept = mem::take(&mut guard.kept);
            guard
                .inherited
                .extend(kept.iter().filter_map(|kept| kept.file));
            HAS_INHERITED.store(!guard.inherited.is_empty(), Ordering::Release);
            mem::forget(kept);
            guard.has_thread = false;
            guard.forks = 0;
            guard.process = process;
            OWNER.store(process, Ordering::Release);
            guard.note_count();
        }
        guard
    }

    fn note_count(&self) {
        COUNT.store(self.kept.len(), Ordering::Release);
    }

    fn remove(&mut self, number: u64) {
        self.kept.retain(|kept| kept.number != number);
        self.note_count();
        CHANGED.notify_all();
    }

    /// Ends the time of the one that would be closed first.
    fn hurry_oldest(&mut self, now: Instant) {
        let is_open = |kept: &&mut Kept| matches!(kept.phase, Phase::Open(_));
        let open = self.kept.iter_mut().filter(is_open);
        if let Some(oldest) = open.min_by_key(|kept| kept.until) {
            oldest.until = now;
            CHANGED.notify_all();
        }
    }
}

fn state() -> MutexGuard<'static, State> {
    State::own(sync::lock_static(&STATE))
}

fn wait(state: MutexGuard<'static, State>) -> MutexGuard<'static, State> {
    CHANGED.wait(state).unwrap_or_else(PoisonError::into_inner)
}

fn wait_for(state: MutexGuard<'static, State>, most: Duration) -> MutexGuard<'static, State> {
    let woken = CHANGED.wait_timeout(state, most);
    woken.unwrap_or_else(PoisonError::into_inner).0
}

/// The fields of `onewrite_status` about all of them.
#[derive(Serialize)]
pub struct Counts {
    /// The number of databases that the process keeps open.
    lingering: usize,
    /// Why the last database that was to be kept open was not.
    linger_why_not: Option<String>,
}

/// See [`Counts`].
pub fn counts() -> Counts {
    let state = state();
    Counts {
        lingering: state.kept.len(),
        linger_why_not: state.failure.clone(),
    }
}

sync::thread_local! {
    /// Whether this thread closes one of these connections.
    static CLOSES: Cell<bool> = const { Cell::new(false) };
}

/// A connection that ends the guard for this one does not wait for it (`await_lingering`).
fn close_one(connection: OwnConnection) {
    let outer = CLOSES.with(|it| it.replace(true));
    // The thread may be in a call of another SQLite.
    host::as_before(|| convert::in_our_own_connection(|| drop(connection)));
    CLOSES.with(|it| it.set(outer));
}

/// Closes those connections in this thread, and waits for those that another thread opens or closes. A
/// fork waits for this, so nothing here calls the application (Y5).
fn close(is_meant: impl Fn(&Kept) -> bool) -> MutexGuard<'static, State> {
    let mut state = state();
    while let Some(kept) = state.kept.iter_mut().find(|kept| is_meant(kept)) {
        let number = kept.number;
        state = match mem::replace(&mut kept.phase, Phase::Closes) {
            Phase::Open(connection) => {
                closings_of(kept.file).fetch_add(1, Ordering::AcqRel);
                drop(state);
                let ((), lines) = held_back(|| close_one(connection));
                teller::tell(lines);
                let mut state = self::state();
                state.remove(number);
                state
            }
            other => {
                kept.phase = other;
                wait(state)
            }
        };
    }
    state
}

impl Database {
    /// Notes whether SQLite itself uses our file. Once a connection closes, SQLite must not be asked.
    pub fn note_whose_file(&self) {
        if self.settings.get().linger.is_some() && !self.has_our_file.get() {
            let connection = self.connection.get();
            let is_ours = connection.is_some_and(Connection::uses_our_file);
            self.has_our_file.set(is_ours);
            host::enter(self.host);
        }
    }

    /// EXCLUSIVE is asked for. Whether that is because the connection closes: no statement runs then, no
    /// transaction is open, and the log still is. With `locking_mode=EXCLUSIVE` SQLite asks before it
    /// opens the log, or in a transaction. Of a file that connections share it cannot be known.
    fn closes(&self) -> bool {
        let connection = self.connection.get().filter(|_| !self.is_shared());
        self.ends_its_log() && connection.is_some_and(|connection| !connection.is_running())
    }

    /// As `closes`. The connection may also close this database alone (`DETACH`), or leave the mode.
    pub(super) fn ends_its_log(&self) -> bool {
        self.lock.get() == LockLevel::SHARED && self.has_idle_log()
    }

    /// Whether SQLite has the log open, outside a transaction.
    pub(super) fn has_idle_log(&self) -> bool {
        self.writer.borrow().is_some() && !self.held.read.get() && !self.held.write.get()
    }

    /// EXCLUSIVE is asked for. Whether the connection only closes, and the process keeps the database
    /// open from now on.
    pub fn lingers_on(&self) -> bool {
        let Some(linger) = self.settings.get().linger else {
            return false;
        };
        let may = self.closes()
            && self.served.is_none()
            && !convert::is_ending()
            && self.has_our_file.get()
            && !self.read_only
            && !self.may_not_write_log();
        let log = self.log().filter(|log| {
            may && log.mode().is_guarded()
                && log.file().is_of_this_process()
                && log.poisoned().is_none()
        });
        log.is_some_and(|log| self.keep_open(&log, linger.time()))
    }

    fn keep_open(&self, log: &Arc<SharedLog>, time: Duration) -> bool {
        let mut state = state();
        while let Some(kept) = state.kept.iter_mut().find(|kept| kept.is_of(log)) {
            if matches!(kept.phase, Phase::Open(_)) {
                kept.until = kept.until.max(Instant::now() + time);
                return !state.is_exiting;
            }
            state = wait(state);
        }
        if state.is_exiting || state.forks > 0 {
            return false;
        }
        if state.kept.len() as u64 >= most() {
            state.hurry_oldest(Instant::now());
            state.failure = Some("the process keeps as many databases open as it may".to_owned());
            return false;
        }
        let number = state.next_number;
        state.next_number += 1;
        state.kept.push(Kept {
            number,
            host: self.host,
            log: Arc::downgrade(log),
            path: self.paths.database.clone(),
            file: self.file(),
            until: Instant::now() + time,
            phase: Phase::Opens,
        });
        state.note_count();
        drop(state);
        // A fork waits for this, too.
        let open = || is_open(number, self.open_kept(log).map_err(|e| e.message));
        let (is_open, lines) = held_back(open);
        lines.tell(|| {});
        is_open
    }

    /// Opens the connection that keeps the database open.
    fn open_kept(&self, log: &Arc<SharedLog>) -> Result<OwnConnection, SqlError> {
        let refused = |why: &str| SqlError {
            code: super::ffi::SQLITE_ERROR,
            message: why.to_owned(),
        };
        if !self.host.allows_threads() {
            return Err(refused("this SQLite has no mutexes"));
        }
        if !thunks::notices_fork() {
            return Err(refused(
                "a fork would not be noticed with this VFS underneath",
            ));
        }
        thunks::stays_loaded(self.host);
        host::enter(self.host);
        let served = Served {
            log: Arc::clone(log),
            database: self.paths.database.clone(),
            by: Service::Lingers,
            settings: Settings {
                background: Some(false),
                checkpoint: CheckpointPolicy::Copy,
                linger: None,
                stall_log: None,
                ..self.settings.get()
            },
        };
        serving(served, || {
            let path = &self.paths.database;
            let connection = OwnConnection::open(self.host, path, super::VFS_NAME)?;
            // It is to flush both files when it checkpoints.
            connection.query("PRAGMA synchronous=FULL")?;
            connection.query("PRAGMA schema_version")?;
            Ok(connection)
        })
        .unwrap_or_else(|| Err(refused("the thread is ending")))
    }

    fn file(&self) -> Option<File> {
        self.claim.as_ref().map(super::claim::Claim::file)
    }

    /// The connection that keeps the database open closes before its time. If the application has the
    /// database open, its connections end the guard, and need no EXCLUSIVE of this one.
    pub fn leaves_the_end_to_others(&self) -> bool {
        self.serves(Service::Lingers) && self.log().is_some_and(|log| !log.is_open_once())
    }

    /// A connection needs EXCLUSIVE: the process no longer keeps the database open.
    pub fn end_lingering(&self) {
        if COUNT.load(Ordering::Acquire) > 0
            && self.served.is_none()
            && let Some(log) = self.log()
        {
            drop(close(|kept| kept.is_of(&log)));
        }
    }

    /// Called when a file is opened, and before the first lock. A connection that is being closed may
    /// have EXCLUSIVE. And one may keep another file open that had this name before. Returns how
    /// often this database began to be closed so.
    ///
    /// No connection of our own waits here. The thread that checkpoints is waited for by the one that
    /// closes, and by a fork. If that one is in its way, the next commit asks again.
    pub fn await_lingering(&self) -> u64 {
        let is_own = self.served.is_some() || CLOSES.with(Cell::get);
        if COUNT.load(Ordering::Acquire) > 0 && !is_own {
            let file = self.file();
            drop(close(|kept| {
                let is_over = matches!(kept.phase, Phase::Closes) || kept.file != file;
                kept.path == self.paths.database && is_over
            }));
        }
        self.closings()
    }

    /// See [`CLOSINGS`].
    pub fn closings(&self) -> u64 {
        closings_of(self.file()).load(Ordering::Acquire)
    }

    /// Whether SQLite may believe that the file is at its path. If the log is at its own, the
    /// connection that keeps the database open checkpoints into the file, wherever that is.
    pub fn ends_where_it_was(&self) -> bool {
        self.serves(Service::Lingers)
            && self
                .log()
                .is_some_and(|log| log.file().same_as_path().unwrap_or(false))
    }
}

/// The opened connection, or why there is none. Whether the database is kept open.
fn is_open(number: u64, opened: Result<OwnConnection, String>) -> bool {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        at_exit(close_at_exit);
    });
    let mut state = state();
    let failure = match opened {
        Ok(connection) => {
            let has_thread = state.has_thread || start_thread();
            if has_thread && !state.is_exiting {
                state.has_thread = true;
                state.failure = None;
                if let Some(kept) = state.kept.iter_mut().find(|kept| kept.number == number) {
                    kept.phase = Phase::Open(connection);
                }
                CHANGED.notify_all();
                return true;
            }
            drop(state);
            drop(connection);
            state = self::state();
            "no thread can be started".to_owned()
        }
        Err(why) => why,
    };
    state.failure = Some(failure);
    state.remove(number);
    false
}

/// The most databases that this process keeps open.
fn most() -> u64 {
    let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let descriptors = descriptors.current.unwrap_or(u64::MAX);
    MOST.min(descriptors / DESCRIPTORS)
}

fn start_thread() -> bool {
    let thread = Builder::new().name("onewrite".into());
    // Nobody joins it. It ends when no database is left.
    without_signals(|| thread.spawn(close_in_time)).is_ok()
}

/// The thread.
fn close_in_time() {
    let mut state = state();
    let mut looked = Instant::now();
    loop {
        let Some(first) = state.kept.iter().map(|kept| kept.until).min() else {
            state.has_thread = false;
            CHANGED.notify_all();
            return;
        };
        let now = Instant::now();
        if first <= now {
            drop(state);
            state = close(|kept| kept.until <= now);
        } else if now - looked >= LINGER_LOOK {
            looked = now;
            state = end_replaced(state, now);
        } else {
            state = wait_for(state, LINGER_LOOK.min(first - now));
        }
    }
}

/// Ends the time of those whose path leads to another file by now, or to none.
fn end_replaced(state: MutexGuard<'static, State>, now: Instant) -> MutexGuard<'static, State> {
    let files = state.kept.iter();
    let files: Vec<_> = files
        .map(|kept| (kept.number, kept.path.clone(), kept.file))
        .collect();
    drop(state);
    let is_another = |path: &Path, file: Option<File>| {
        let now = fs::metadata(path).ok().map(|stat| (stat.dev(), stat.ino()));
        now != file
    };
    let replaced: Vec<u64> = files
        .into_iter()
        .filter(|(_, path, file)| is_another(path, *file))
        .map(|(number, ..)| number)
        .collect();
    let mut state = self::state();
    for kept in &mut state.kept {
        if replaced.contains(&kept.number) {
            kept.until = now;
        }
    }
    state
}

/// Another SQLite of this process opens a file: no other keeps it open any more. Whether one did.
///
/// Not for a connection of our own: a fork waits for that one, and keeps the list of these connections
/// locked. Where another SQLite has the file, it is not the one that this connection serves.
pub fn end_in_other_hosts(host: &'static Host, path: &Path) -> bool {
    !is_serving() && end_at(path, |kept| !ptr::eq(kept.host, host))
}

/// The process no longer keeps the file at this path open.
pub fn end(path: &Path) {
    end_at(path, |_| true);
}

fn end_at(path: &Path, is_such: impl Fn(&Kept) -> bool) -> bool {
    let Ok(stat) = fs::metadata(path) else {
        return false;
    };
    let file = Some((stat.dev(), stat.ino()));
    let is_meant = |kept: &Kept| kept.file == file && is_such(kept);
    let found = state().kept.iter().any(is_meant);
    drop(close(is_meant));
    found
}

/// The process exits: the thread closes all of them. A signal handler may have called `exit`, so this
/// waits for nothing for ever, and uses no SQLite in this thread.
extern "C" fn close_at_exit() {
    let end = Instant::now() + AT_EXIT;
    let mut state = loop {
        match STATE.try_lock() {
            Ok(state) => break State::own(state),
            Err(_) if Instant::now() < end => sync::sleep(LOOK),
            Err(_) => return,
        }
    };
    state.is_exiting = true;
    for kept in &mut state.kept {
        kept.until = Instant::now();
    }
    CHANGED.notify_all();
    while (state.has_thread || !state.kept.is_empty()) && Instant::now() < end {
        state = wait_for(state, end - Instant::now());
    }
    drop(state);
    teller::await_told_at_exit(end);
}

std::thread_local! {
    static FORKING: RefCell<Option<MutexGuard<'static, State>>> = const { RefCell::new(None) };
}

/// Called before fork(2). SQLite counts the locks of all connections, and so a child would open the
/// database without one. So the process keeps none open, and its thread is not in SQLite.
pub fn before_fork() {
    let _ = FORKING.try_with(|forking| forking.replace(Some(close_to_fork())));
}

/// SQLite may have a message for the application, which may need a lock that this thread has. So another
/// thread closes them, and is waited for no longer than `AT_FORK`.
fn close_to_fork() -> MutexGuard<'static, State> {
    let mut state = state();
    if state.kept.is_empty() {
        return state;
    }
    state.forks += 1;
    let next = state.next_number;
    drop(state);
    let close_all = move || drop(close(|kept| kept.number < next));
    let thread = Builder::new().name("onewrite".into());
    if without_signals(|| thread.spawn(close_all)).is_err() {
        close_all();
    }
    let end = Instant::now() + AT_FORK;
    let mut state = self::state();
    loop {
        let now = Instant::now();
        if state.kept.is_empty() || now >= end {
            state.forks -= 1;
            return state;
        }
        state = wait_for(state, end - now);
    }
}

/// Whether the parent had the file open when it forked, and could not close it in time. Every open asks
/// this: it takes the lock only in a process that has inherited files, or may have.
///
/// Never for a connection of our own. A fork waits for it, and keeps the list locked. Its file was open
/// before, by a connection of the application for which this was asked.
pub fn is_inherited(file: File) -> bool {
    let may_be = || {
        let is_inherited = || OWNER.load(Ordering::Acquire) != process_number();
        HAS_INHERITED.load(Ordering::Acquire) || COUNT.load(Ordering::Acquire) > 0 && is_inherited()
    };
    !is_serving() && may_be() && state().inherited.contains(&file)
}

/// Called in the parent.
pub fn after_fork() {
    let _ = FORKING.try_with(RefCell::take);
}

/// Called in the child, which has not the thread.
pub fn after_fork_in_child() {
    let state = FORKING.try_with(RefCell::take).ok().flatten();
    if let Some(mut state) = state {
        state.has_thread = false;
    }
}
