//! A main database that is open through our VFS: its mode, its lock, its log.
//!
//! SQLite uses a database file and its log from one thread at a time, under the connection's mutex.
//! So does this. State that connections of one process share is in [`SharedLog`], found by path.

use onewrite_common::files::companion;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, TryLockError, Weak};

use super::atomic::Atomic;
use super::background::{self, Quiet, Served};
use super::claim::Claim;
use super::company::WRITE_LOCK;
use super::events::Event;
use super::ffi;
use super::host::{self, BusyHandler, Committed, Connection, Host};
use super::inner::{Inner, LockLevel};
use super::settings::Settings;
use super::stall::Stall;
use super::state::{FirstLock, GuardState, HeldLocks, IndexState, Requested, Snapshots};
use crate::checkpoint::Remapper;
use crate::commit::{SharedLog, Writer};
use crate::log::shared::Committer;
use crate::log::{ErrorKind, Log, LogError, OpenLog};
use crate::mode::{JournalMode, UpgradeOfWal};
use crate::storage::{Access, MOMENT, NewFile, Short, process_number, try_within};
use crate::sync::{self, Instant};
use crate::wal::{IndexView, PageSize};

/// A switch of the journal mode that is under way on this connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Switch {
    /// None is.
    Idle,
    /// None is yet: SQLite is asked for its own mode.
    Asks,
    /// To one of SQLite's own modes.
    ToStock,
    /// To one of our modes.
    To(JournalMode),
}

/// The facts about a database when it is opened.
pub struct Opened {
    pub host: &'static Host,
    pub claim: Option<Claim>,
    pub inner: Inner,
    pub paths: Paths,
    pub read_only: bool,
    pub takes_no_lock: bool,
    pub may_only_read_index: bool,
    pub wanted: Option<JournalMode>,
    pub wanted_by_uri: Option<JournalMode>,
    pub upgrade_by_uri: Option<UpgradeOfWal>,
}

/// See the module.
///
/// SQLite calls back into this file while one of its methods runs a statement on the connection. So
/// nothing here is ever borrowed mutably as a whole. State that changes is in cells, and no borrow
/// of a cell is held over a call into SQLite.
pub struct Database {
    /// The SQLite that has opened it.
    pub host: &'static Host,
    /// No other SQLite of this process has the file open. Released after the file is closed.
    pub claim: Option<Claim>,
    pub inner: Inner,
    /// The identity of this connection for others that use the log.
    pub committer: Committer,
    pub connection: Cell<Option<Connection>>,
    /// Whether connections share this file and its pages (SQLite's shared cache).
    pub is_shared: AtomicBool,
    /// How long it waits for other processes.
    pub patience: Arc<BusyHandler>,
    pub paths: Paths,
    pub read_only: bool,
    /// `immutable=1` or `nolock=1`: SQLite never takes a lock.
    pub takes_no_lock: bool,
    /// `readonly_shm=1`: it uses the wal-index that others have made.
    pub may_only_read_index: bool,
    pub lock: Cell<LockLevel>,
    /// Whether the database is unchanged since this connection, under EXCLUSIVE, has flushed it.
    pub is_flushed: Cell<bool>,
    pub settings: Cell<Settings>,
    pub switch: Cell<Switch>,
    pub requested: Requested,
    pub first_lock: FirstLock,
    pub guard: GuardState,
    /// The log while the database is in one of our modes, decided again at every first lock.
    pub log: RefCell<Option<Arc<SharedLog>>>,
    /// SQLite's open log, if it is the one in `log`.
    pub writer: RefCell<Option<Writer>>,
    pub held: HeldLocks,
    /// Whether it has committed, and done nothing since.
    pub has_just_committed: Cell<bool>,
    /// The statement that has, where its checkpoint may be left to a thread.
    pub committed_by: Cell<Option<Committed>>,
    /// The commits behind which no checkpoint comes.
    pub quiet: Quiet,
    /// The log when it last released the write lock.
    pub last_commit: Cell<Option<IndexView>>,
    /// If this is a connection of our own: for which log, and why.
    pub served: Option<Served>,
    /// Whether SQLite itself uses our file, and not a VFS over ours. Noted with `onewrite_linger` only.
    pub has_our_file: Cell<bool>,
    pub snapshots: Snapshots,
    pub index: IndexState,
    /// The waits of its next commit.
    pub stall: Stall,
    /// When recovery of the wal-index began.
    pub recovery_began: Cell<Option<Instant>>,
    /// Events that wait until others can go on.
    pub untold: RefCell<Vec<Event>>,
    /// The last commit when the checkpoint under way began.
    pub to_checkpoint: Cell<Option<IndexView>>,
    /// A checkpoint by block remapping.
    pub remapper: Remapper,
    /// The file's transactions, in journal mode `xftl`.
    pub atomic: RefCell<Option<Atomic>>,
    /// The last error, for `onewrite_status` and for a failed pragma's message.
    pub last_error: RefCell<Option<String>>,
}

/// The files of a database.
#[derive(Clone, Debug)]
pub struct Paths {
    pub database: PathBuf,
    pub wal: PathBuf,
    pub journal: PathBuf,
    pub log: PathBuf,
    pub shm: PathBuf,
}

impl Paths {
    pub fn of(database: PathBuf) -> Paths {
        Paths {
            wal: companion(&database, "-wal"),
            journal: companion(&database, "-journal"),
            log: companion(&database, "-onewrite"),
            shm: companion(&database, "-shm"),
            database,
        }
    }
}

impl Database {
    pub fn new(opened: Opened) -> Database {
        let served = background::served(&opened.paths.database);
        Database {
            host: opened.host,
            claim: opened.claim,
            inner: opened.inner,
            committer: new_committer(),
            connection: Cell::new(None),
            is_shared: AtomicBool::new(false),
            patience: Arc::default(),
            paths: opened.paths,
            read_only: opened.read_only,
            takes_no_lock: opened.takes_no_lock,
            may_only_read_index: opened.may_only_read_index,
            lock: Cell::new(LockLevel::NONE),
            is_flushed: Cell::new(false),
            switch: Cell::new(Switch::Idle),
            requested: Requested {
                mode: opened.wanted,
                mode_in_uri: opened.wanted_by_uri,
                upgrade_in_uri: opened.upgrade_by_uri,
                ..Requested::default()
            },
            first_lock: FirstLock::default(),
            guard: GuardState::default(),
            log: RefCell::new(None),
            writer: RefCell::new(None),
            held: HeldLocks::default(),
            has_just_committed: Cell::new(false),
            committed_by: Cell::new(None),
            quiet: Quiet::default(),
            last_commit: Cell::new(None),
            settings: Cell::new(
                served
                    .as_ref()
                    .map_or_else(Settings::default, |it| it.settings),
            ),
            served,
            has_our_file: Cell::new(false),
            snapshots: Snapshots::default(),
            index: IndexState::default(),
            stall: Stall::default(),
            recovery_began: Cell::new(None),
            untold: RefCell::new(Vec::new()),
            to_checkpoint: Cell::new(None),
            remapper: Remapper::default(),
            atomic: RefCell::new(None),
            last_error: RefCell::new(None),
        }
    }

    /// The database's present mode, if it is our own.
    pub fn mode(&self) -> Option<JournalMode> {
        self.log.borrow().as_ref().map(|log| log.mode())
    }

    /// The log, while the database is in one of our modes.
    pub fn log(&self) -> Option<Arc<SharedLog>> {
        self.log.borrow().clone()
    }

    /// Whether our guard is in header byte 19.
    pub fn is_guarded(&self) -> bool {
        self.mode().is_some_and(JournalMode::is_guarded)
    }

    /// Notes and logs an error. Returns SQLite's code for it.
    pub fn fail(&self, error: &LogError) -> c_int {
        let code = code_of(error.kind());
        let message = error.to_string();
        // A short read is SQLite's way to find out where a file ends.
        if code != ffi::SQLITE_IOERR_SHORT_READ {
            let before = self.last_error.replace(Some(message.clone()));
            // Every failure is logged, even if it equals the last. But a poisoned log fails in
            // every call, for one reason.
            if error.kind() != ErrorKind::Poisoned || before.as_ref() != Some(&message) {
                host::log(code, &message);
            }
        }
        code
    }

    fn access(&self) -> Access {
        match self.read_only {
            true => Access::ReadOnly,
            false => Access::ReadWrite,
        }
    }

    /// Whether the database can be written and its log can only be read, because of permissions.
    pub fn may_not_write_log(&self) -> bool {
        let log = self.log.borrow();
        let reads = |log: &Arc<SharedLog>| log.file().access() == Access::ReadOnly;
        !self.read_only && log.as_ref().is_some_and(reads)
    }

    /// Parameters for opening a log of this database.
    pub fn open_log<'a>(
        &'a self,
        path: &'a Path,
        mode: JournalMode,
        page: PageSize,
    ) -> Result<OpenLog<'a>, LogError> {
        Ok(OpenLog {
            path,
            companions_of: &self.paths.log,
            mode,
            page,
            access: self.access(),
            new_file: self.permissions()?,
            init: self.settings.get().init,
            direct: self.settings.get().direct,
            patience: &*self.patience,
        })
    }

    /// The log gets the database's permissions and owner, as SQLite's own log does.
    pub fn permissions(&self) -> Result<NewFile, LogError> {
        let path = &self.paths.database;
        let stat = rustix::fs::stat(path).map_err(|e| {
            LogError::io(
                ErrorKind::Read,
                path,
                "look at the permissions of",
                &e.into(),
            )
        })?;
        Ok(NewFile {
            mode: stat.st_mode & 0o777,
            owner: Some((stat.st_uid, stat.st_gid)),
        })
    }

    /// SQLite opens its log, and the log is ours.
    pub fn open_writer(&self) -> bool {
        let Some(log) = self.log() else { return false };
        self.note_whose_file();
        self.warn_of_memory(&log);
        let open = match self.is_of_the_background() {
            true => Writer::in_background,
            false => Writer::new,
        };
        let mut writer = open(log, self.settings.get().commit, self.committer);
        writer.patience = self.patience.clone();
        self.writer.replace(Some(writer));
        true
    }

    /// After an error of the log: tells other processes if the log is poisoned.
    pub fn spread_poison(&self) {
        let Some(log) = self.log().filter(|log| log.poisoned().is_some()) else {
            return;
        };
        // The others first: they must not go on with this log.
        if !self.index.is_invalidated.get() {
            self.invalidate_index_of(&log);
        }
        self.tell_of_poison(&log);
    }

    fn invalidate_index_of(&self, log: &Log) {
        if self.held.write.get() || self.remapper.has_write_lock() {
            self.inner.invalidate_index();
            self.index.is_invalidated.set(true);
        } else if self.lock_to_invalidate(log) {
            self.inner.invalidate_index();
            // Not if the lock was refused: the next failing call tries again.
            self.index.is_invalidated.set(true);
            self.inner
                .shm_lock(WRITE_LOCK, 1, ffi::SQLITE_SHM_UNLOCK_EXCLUSIVE);
        }
    }

    /// Takes the write lock, to make the wal-index invalid. Stock connections, which only SQLite's own
    /// log has, are told nothing before that, so it waits for them.
    fn lock_to_invalidate(&self, log: &Log) -> bool {
        let lock = || {
            let flags = ffi::SQLITE_SHM_LOCK_EXCLUSIVE;
            self.inner.shm_lock(WRITE_LOCK, 1, flags) == ffi::SQLITE_OK
        };
        match log.id() {
            Some(_) => lock(),
            None => try_within(MOMENT, &Short, || Ok::<_, LogError>(lock())).unwrap_or(false),
        }
    }
}

/// SQLite's result code for an error.
pub fn code_of(kind: ErrorKind) -> c_int {
    match kind {
        ErrorKind::CantOpen | ErrorKind::Denied | ErrorKind::Unsuited => ffi::SQLITE_CANTOPEN,
        ErrorKind::Full => ffi::SQLITE_FULL,
        ErrorKind::Read => ffi::SQLITE_IOERR_READ,
        ErrorKind::ShortRead => ffi::SQLITE_IOERR_SHORT_READ,
        ErrorKind::Write => ffi::SQLITE_IOERR_WRITE,
        ErrorKind::Flush | ErrorKind::Poisoned => ffi::SQLITE_IOERR_FSYNC,
        ErrorKind::Lock => ffi::SQLITE_IOERR_LOCK,
        ErrorKind::Busy => ffi::SQLITE_BUSY,
        ErrorKind::ReadOnly => ffi::SQLITE_READONLY,
        ErrorKind::Taken => ffi::SQLITE_READONLY_DBMOVED,
        ErrorKind::Corrupt => ffi::SQLITE_IOERR_DATA,
        ErrorKind::Underneath(code) => code,
    }
}

/// Distinguishes connections, of this process and of others.
pub fn new_committer() -> Committer {
    // With the process that it belongs to: a child of fork inherits this.
    static PROCESS: Mutex<Option<(u64, u32)>> = Mutex::new(None);
    static CONNECTIONS: AtomicU32 = AtomicU32::new(1);
    let this = process_number();
    let mut process = sync::lock_static(&PROCESS);
    process.take_if(|(whose, _)| *whose != this);
    let (_, number) = *process.get_or_insert_with(|| {
        let mut random = [0; 4];
        // Without it, some connections of two processes take each other for one, and group less.
        let _ = getrandom::fill(&mut random);
        (this, u32::from_ne_bytes(random))
    });
    drop(process);
    let connection = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
    Committer(u64::from(number) << 32 | u64::from(connection))
}

/// The logs that are open in this process, so that connections to one database share one. There may
/// be several at a path: one of readers, one of writers, one whose file was replaced.
static LOGS: Mutex<Option<HashMap<PathBuf, Arc<Slot>>>> = Mutex::new(None);

/// The logs at a path. An opener may have to wait for another process; that does not block other
/// paths.
type Slot = Mutex<Vec<Weak<SharedLog>>>;

/// The slot of a path. Slots that are no longer needed are dropped.
fn slot_of(path: &Path) -> Arc<Slot> {
    let mut slots = sync::lock_static(&LOGS);
    let slots = slots.get_or_insert_default();
    if let Some(slot) = slots.get(path) {
        return Arc::clone(slot);
    }
    slots.retain(|_, slot| {
        let is_open = |log: &Weak<SharedLog>| log.strong_count() > 0;
        // No thread enters a slot meanwhile. If a thread has panicked with it, nothing is known.
        Arc::strong_count(slot) > 1 || slot.try_lock().is_ok_and(|logs| logs.iter().any(is_open))
    });
    Arc::clone(slots.entry(path.to_owned()).or_default())
}

/// All logs that this process has open at the path; without those of an opener that waits for another
/// process.
pub fn logs_at(path: &Path) -> Vec<Arc<SharedLog>> {
    let slot = slot_of(path);
    let logs = match slot.try_lock() {
        Ok(logs) => logs,
        Err(TryLockError::Poisoned(logs)) => logs.into_inner(),
        Err(TryLockError::WouldBlock) => return Vec::new(),
    };
    let is_ours = |log: &Arc<SharedLog>| log.file().is_of_this_process();
    logs.iter()
        .filter_map(Weak::upgrade)
        .filter(is_ours)
        .collect()
}

/// The log that this process has open at the path, if one `fits`; otherwise the one that `open`
/// opens.
pub fn shared_log(
    wanted: &OpenLog<'_>,
    fits: impl Fn(&Log) -> bool,
    open: impl FnOnce() -> Result<Log, LogError>,
) -> Result<Arc<SharedLog>, LogError> {
    let slot = slot_of(wanted.path);
    let mut logs = None;
    try_within(MOMENT, wanted.patience, || {
        logs = match slot.try_lock() {
            Ok(logs) => Some(logs),
            Err(TryLockError::Poisoned(logs)) => Some(logs.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        Ok::<_, LogError>(logs.is_some())
    })?;
    let Some(mut logs) = logs else {
        let what = "another connection is opening it, and waits for another process";
        return Err(LogError::new(ErrorKind::Busy, wanted.path, what));
    };
    if let Some(log) = logs.iter().find_map(|log| {
        log.upgrade()
            .filter(|log| log.file().is_of_this_process() && fits(log))
    }) {
        return Ok(log);
    }
    logs.retain(|log| log.strong_count() > 0);
    let log = Arc::new(SharedLog::from(open()?));
    logs.push(Arc::downgrade(&log));
    Ok(log)
}
