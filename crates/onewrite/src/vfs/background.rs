//! Checkpoints that no commit pays for (`onewrite_background_checkpoint`): their choice, and the
//! connection of the thread that runs them. [`crate::checkpoint::Background`] is the thread's state.
//! The rules are BG1 to BG19 of `docs/durability.md`.
//!
//! SQLite runs its automatic checkpoint inside the call that commits. It asks for the checkpoint lock,
//! and ignores a refusal. So our VFS refuses, and the thread runs the same checkpoint (PASSIVE) on a
//! connection of its own.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, TryLockError};

use super::convert;
use super::database::{Database, logs_at};
use super::events::{later, teller};
use super::ffi;
use super::guard::Look;
use super::header::{GUARD_BYTE, Header, READ_VERSION_AT, WAL_VERSION, guarded_by};
use super::host::{self, Connection, Host, SqlError, at_exit};
use super::settings::Settings;
use super::thunks;
use crate::checkpoint::{Background, Fill};
use crate::commit::SharedLog;
use crate::commit::group_commit::{gave_up_restart, patience_for_restart};
use crate::log::{ErrorKind, LogError};
use crate::mode::{CheckpointPolicy, JournalMode};
use crate::storage::{Access, without_signals};
use crate::sync::{self, Builder, Instant, JoinHandle};
use crate::waits::{AT_EXIT, AT_FORK, LOOK};
use crate::wal::{IndexView, Salts};

/// A commit checkpoints by itself when the log has so many times the frames of
/// `wal_autocheckpoint`. The thread has fallen behind then, or a reader keeps the log.
const MOST: u32 = 4;

/// A process with no more commits than this starts no thread, and none with an eighth of
/// `wal_autocheckpoint`: it may be about to end.
const FEW: u32 = 16;

/// The most such threads in a process. Each has a stack and a connection. If more databases are busy, the
/// commits of the others checkpoint.
const MOST_THREADS: usize = 16;

/// The one that runs a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checkpoint {
    /// The commit that it follows.
    Commit,
    /// The thread, soon.
    Thread,
    /// The application, which has asked for it.
    Application,
}

/// While it is kept, the threads of these logs begin no checkpoint.
pub struct Held(Vec<Arc<SharedLog>>);

impl Held {
    fn new(logs: Vec<Arc<SharedLog>>) -> Held {
        Background::hold_all(logs.iter().map(|log| &log.background));
        Held(logs)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.iter().for_each(|log| log.background.release());
    }
}

/// The log that a connection of our own serves.
#[derive(Clone)]
pub struct Served {
    pub log: Arc<SharedLog>,
    /// Its database. An automatic extension of the application may open others in the same thread.
    pub database: PathBuf,
    pub by: Service,
    /// Of the application's connection for which it is opened.
    pub settings: Settings,
}

/// The purpose of such a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// It is the thread's, and checkpoints.
    Checkpoints,
    /// It keeps the database open (`linger`).
    Lingers,
}

sync::thread_local! {
    /// The service of the connection that this thread opens.
    static SERVED: RefCell<Option<Served>> = const { RefCell::new(None) };
}

/// The service of the connection that this thread opens to a database, if it has one.
pub fn served(database: &Path) -> Option<Served> {
    let served = SERVED.try_with(|it| it.borrow().clone()).ok().flatten();
    served.filter(|served| served.database == database)
}

/// Whether it has one.
pub fn is_serving() -> bool {
    SERVED.try_with(|it| it.borrow().is_some()).unwrap_or(false)
}

/// Opens such a connection in `work`. `None` if this thread is ending and has lost its data.
pub fn serving<T>(served: Served, work: impl FnOnce() -> T) -> Option<T> {
    SERVED.try_with(|it| it.replace(Some(served))).ok()?;
    let done = convert::in_our_own_connection(work);
    let _ = SERVED.try_with(|it| it.replace(None));
    Some(done)
}

impl Database {
    /// Whether this is a connection of our own, for this purpose.
    pub fn serves(&self, service: Service) -> bool {
        self.served.as_ref().is_some_and(|it| it.by == service)
    }

    /// Whether this is the connection of a thread that checkpoints.
    pub fn is_of_the_background(&self) -> bool {
        self.serves(Service::Checkpoints)
    }

    /// Whether the automatic checkpoints of this connection are a thread's.
    pub fn checkpoints_by_thread(&self) -> bool {
        let usually = || {
            let (mode, log) = (self.mode(), self.log());
            // The mode's log may have another layout, whose frames are whole pages.
            self.host.is_over_sqlites_own()
                && mode.is_some_and(JournalMode::usually_checkpoints_by_thread)
                && log.is_none_or(|log| !log.geometry().layout().has_fixed_positions())
        };
        self.settings.get().background.unwrap_or_else(usually)
    }

    /// The log, if checkpoints of this connection may be left to a thread. A child of fork has none.
    fn log_with_background(&self) -> Option<Arc<SharedLog>> {
        let may = self.checkpoints_by_thread()
            && !self.is_of_the_background()
            && !self.read_only
            && !self.snapshots.flush_nothing.get();
        let log = self.log().filter(|_| may)?;
        log.file().is_of_this_process().then_some(log)
    }

    /// A commit has ended. SQLite calls its hook behind it where a statement has run to its end. The
    /// statement is searched for among all of the connection's, so only where a checkpoint may follow.
    pub fn note_commit(&self, is_done: bool) {
        let frames = self.last_commit.get().map(|index| index.last_frame.0);
        if is_done && self.quiet.is_quiet(frames) {
            self.committed_by.set(None);
            self.has_just_committed.set(false);
            return;
        }
        let by_thread = || is_done && self.checkpoints_by_thread();
        let connection = self.connection.get().filter(|_| by_thread());
        let committed = connection.map(Connection::committing);
        self.committed_by.set(committed.flatten());
        self.has_just_committed
            .set(is_done && committed != Some(None));
        if let Some(Some(_)) = committed {
            self.quiet.await_checkpoint(frames);
        }
    }

    /// Decides about the checkpoint that SQLite begins right behind a commit. `known` is what SQLite has
    /// answered before.
    ///
    /// With SQLite's own hook every commit with so many frames in the log checkpoints. So the first
    /// checkpoint behind such a commit is that one, and any other is the application's.
    pub fn whose_checkpoint(&self, known: Option<Answer>) -> Checkpoint {
        let (Some(log), Some(connection)) = (self.log_with_background(), self.connection.get())
        else {
            return Checkpoint::Commit;
        };
        let committed = self.last_commit.get();
        let known = known.filter(|known| committed.is_some_and(|index| known.holds(index)));
        let asked = || {
            let threshold = connection.autocheckpoint();
            // A callback of the application may have used another SQLite.
            host::enter(self.host);
            threshold
        };
        let threshold = known.map_or_else(asked, |known| Some(known.threshold));
        let (Some(threshold), Some(index)) = (threshold, committed) else {
            return Checkpoint::Application;
        };
        let fill = Fill {
            salts: index.salts,
            frames: index.last_frame.0,
            copied: self.inner.backfilled().unwrap_or_default().0,
            threshold,
        };
        if fill.frames < threshold {
            return Checkpoint::Application;
        }
        self.quiet
            .note_answer(known.unwrap_or(Answer::behind(fill)));
        let is_left = fill.frames < threshold.saturating_mul(MOST)
            && (log.background.has_thread()
                || is_here_to_stay(&log, threshold) && self.may_start_thread(&log, connection))
            && log.background.leave(fill, || self.start_thread(&log));
        match is_left {
            true => Checkpoint::Thread,
            false => Checkpoint::Commit,
        }
    }

    /// A VFS over ours may store other bytes in the log than in the database. And a checkpoint that
    /// remaps keeps writers out, which must not meet a writer that expects to be alone.
    fn may_start_thread(&self, log: &Arc<SharedLog>, connection: Connection) -> bool {
        let may = connection.uses_our_file()
            && self.remaps_by(log).is_none()
            && thunks::notices_fork()
            && !IS_EXITING.load(Ordering::Acquire)
            && connection.allows_threads();
        host::enter(self.host);
        may
    }

    fn start_thread(&self, log: &Arc<SharedLog>) -> Result<JoinHandle<()>, String> {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            at_exit(hold_at_exit);
        });
        let place = Place::take().ok_or("the process has as many such threads as it may")?;
        let host = self.host;
        let path = self.paths.database.clone();
        let served = Served {
            log: Arc::clone(log),
            database: path.clone(),
            by: Service::Checkpoints,
            settings: Settings {
                read_durable: false,
                background: Some(false),
                checkpoint: CheckpointPolicy::Copy,
                ..self.settings.get()
            },
        };
        let work = move || {
            let _place = place;
            serve(host, &path, served);
        };
        let thread = Builder::new().name("onewrite-ckpt".into());
        let started = without_signals(|| thread.spawn(work));
        started.map_err(|e| format!("no thread can be started: {e}"))
    }

    /// A checkpoint that the application asks for: waits for the one of the thread, which begins none
    /// while the result is kept. A connection that only reads has another log than the one with the
    /// thread.
    pub fn hold_thread(&self) -> Option<Held> {
        let is_ours = |log: &Arc<SharedLog>| log.file().is_of_this_process();
        let log = self.log().filter(is_ours)?;
        if self.is_of_the_background() {
            return None;
        }
        let mut logs = logs_at(log.file().path());
        if !logs.iter().any(|other| Arc::ptr_eq(other, &log)) {
            logs.push(log);
        }
        Some(Held::new(logs))
    }

    /// Called before EXCLUSIVE is asked for: the connection closes, or leaves the mode. The thread's
    /// connection must not be in the way. If the application has another, that is.
    pub fn before_exclusive(&self) {
        self.end_lingering();
        if let Some(log) = self.log().filter(|log| log.is_open_once())
            && !log.stop_background()
        {
            // The thread returns into SQLite, which the application may unload.
            thunks::stays_loaded(self.host);
        }
    }

    /// The thread may never catch up with a writer that pauses nowhere. So a writer waits for a pass
    /// that is to copy what the one before has left, before it chooses what it reads.
    pub fn is_thread_to_catch_up(&self, log: &SharedLog) -> bool {
        log.background.writers_wait()
            && self.checkpoints_by_thread()
            && log.file().is_of_this_process()
    }

    /// See [`Database::is_thread_to_catch_up`].
    pub fn await_thread(&self, log: &SharedLog) {
        let Some(index) = self.inner.index_view() else {
            return;
        };
        let patience = patience_for_restart(log, index);
        if !patience.is_zero() && !log.background.await_idle(patience) {
            gave_up_restart(log, index, self.inner.index_view());
        }
    }

    /// A connection that serves a log looks at the database: it must be the log's, in the same mode.
    /// It changes nothing there.
    pub(super) fn look_for(&self, served: &Served) -> Result<Look, LogError> {
        let log = &served.log;
        let is_it = |header: &Header| match log.id() {
            Some(id) => header[READ_VERSION_AT] == GUARD_BYTE && guarded_by(header) == Some(id),
            None => header[READ_VERSION_AT] == WAL_VERSION,
        };
        let is_there = self.read_header()?.is_some_and(|header| is_it(&header))
            && log.file().access() == Access::ReadWrite
            && log.file().same_as_path()?;
        if !is_there {
            let what = "is not the database of the log that this connection serves";
            return Err(LogError::new(ErrorKind::Taken, &self.paths.database, what));
        }
        self.log.replace(Some(Arc::clone(log)));
        Ok(Look::Settled)
    }
}

/// A connection's knowledge of SQLite's hook: behind which commits it checkpoints. It is learned from
/// commits behind which no checkpoint came, and from SQLite's answer where one came. An application may set
/// another threshold unseen (`sqlite3_wal_autocheckpoint`). Then a checkpoint comes that was not expected: it
/// runs in its commit, and all of this is forgotten.
#[derive(Default)]
pub struct Quiet {
    /// It does not checkpoint behind commits with so few frames in the log.
    up_to: Cell<u32>,
    /// The frames of the last commit, behind which a checkpoint may come.
    awaited: Cell<Option<u32>>,
    answer: Cell<Option<Answer>>,
}

/// SQLite's answer about its hook, with the commits for which it counts. To ask takes longer than all else
/// that the engine does for a checkpoint which it leaves to the thread.
#[derive(Clone, Copy)]
pub struct Answer {
    threshold: u32,
    salts: Salts,
    /// The log grows to so many frames.
    until: u32,
}

impl Answer {
    fn behind(fill: Fill) -> Answer {
        Answer {
            threshold: fill.threshold,
            salts: fill.salts,
            until: fill.frames.saturating_add(fill.step()),
        }
    }

    fn holds(&self, committed: IndexView) -> bool {
        committed.salts == self.salts && committed.last_frame.0 < self.until
    }
}

impl Quiet {
    /// Whether no checkpoint is expected behind a commit with so many frames in the log.
    fn is_quiet(&self, frames: Option<u32>) -> bool {
        if let Some(before) = self.awaited.take() {
            self.up_to.set(self.up_to.get().max(before));
            self.answer.set(None);
        }
        frames.is_some_and(|frames| frames <= self.up_to.get())
    }

    fn await_checkpoint(&self, frames: Option<u32>) {
        self.awaited.set(frames);
    }

    fn note_answer(&self, answer: Answer) {
        self.up_to.set(answer.threshold.saturating_sub(1));
        self.answer.set(Some(answer));
    }

    /// A checkpoint begins, or a threshold may be set. Returns SQLite's answer, so far as there is one.
    pub fn forget(&self) -> Option<Answer> {
        self.awaited.set(None);
        self.up_to.set(0);
        self.answer.take()
    }
}

/// A process may open the database, commit once, and close it. A thread would only be in its way.
fn is_here_to_stay(log: &SharedLog, threshold: u32) -> bool {
    log.latency.commits() > u64::from(FEW.min(threshold / 8))
}

/// The number of these threads.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// One of [`MOST_THREADS`].
struct Place;

impl Place {
    fn take() -> Option<Place> {
        let one_more = |threads| (threads < MOST_THREADS).then_some(threads + 1);
        let taken = THREADS.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        // Not made where it is not taken: its drop would give one back.
        taken.ok().map(|_| Place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Whether handlers of `exit` run: no further thread begins.
static IS_EXITING: AtomicBool = AtomicBool::new(false);

/// The process exits. The handlers that follow may end what SQLite needs. So the threads are kept out
/// of SQLite from now on. A signal handler may have called `exit`, so nothing is waited for for ever.
extern "C" fn hold_at_exit() {
    let end = Instant::now() + AT_EXIT;
    IS_EXITING.store(true, Ordering::Release);
    let logs = loop {
        match SERVING.try_lock() {
            Ok(logs) => break logs.clone(),
            Err(TryLockError::Poisoned(logs)) => break logs.into_inner().clone(),
            Err(_) if Instant::now() < end => sync::sleep(LOOK),
            Err(_) => return,
        }
    };
    for log in logs {
        if log.file().is_of_this_process() {
            log.background.hold_at_exit(end);
        }
    }
}

/// The logs that have a thread, which is about to use SQLite or may do so again.
static SERVING: Mutex<Vec<Arc<SharedLog>>> = Mutex::new(Vec::new());

/// An entry there, until the thread is done with SQLite.
struct Serving(Arc<SharedLog>);

impl Serving {
    fn new(log: &Arc<SharedLog>) -> Serving {
        sync::lock_static(&SERVING).push(Arc::clone(log));
        Serving(Arc::clone(log))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        sync::lock_static(&SERVING).retain(|other| !Arc::ptr_eq(other, &self.0));
    }
}

/// What keeps the threads out of SQLite while this one forks.
struct Fork {
    /// No thread begins or ends meanwhile.
    serving: MutexGuard<'static, Vec<Arc<SharedLog>>>,
    held: Vec<Arc<SharedLog>>,
}

std::thread_local! {
    static FORKING: RefCell<Option<Fork>> = const { RefCell::new(None) };
}

/// Called before fork(2): the child has no such thread. If it were inside SQLite now, it would keep
/// SQLite's mutexes locked in the child for ever.
pub fn before_fork() {
    let end = Instant::now() + AT_FORK;
    // A thread that has lost its data is ending, and hardly forks.
    let _ = FORKING.try_with(|forking| {
        let mut held: Vec<Arc<SharedLog>> = Vec::new();
        // A thread needs the list to end, so the list is not locked while that is waited for.
        let serving = loop {
            let serving = sync::lock_static(&SERVING);
            let is_new = |log: &&Arc<SharedLog>| {
                // A child of fork has inherited its parent's.
                log.file().is_of_this_process() && !held.iter().any(|other| Arc::ptr_eq(log, other))
            };
            let Some(log) = serving.iter().find(is_new).cloned() else {
                break serving;
            };
            drop(serving);
            // A thread may be in a callback of the application, which needs a lock that this thread has.
            log.background.hold_until(end);
            held.push(log);
        };
        forking.replace(Some(Fork { serving, held }));
    });
}

/// Called in the parent.
pub fn after_fork() {
    let forked = FORKING.try_with(RefCell::take).ok().flatten();
    if let Some(Fork { serving, held }) = forked {
        drop(serving);
        held.iter().for_each(|log| log.background.release());
    }
}

/// Called in the child, which has none of the threads. It frees no log here.
pub fn after_fork_in_child() {
    let forked = FORKING.try_with(RefCell::take).ok().flatten();
    if let Some(Fork { serving, held }) = forked {
        drop(serving);
        std::mem::forget(held);
    }
    THREADS.store(0, Ordering::Release);
}

/// The thread. Forks, closes and commits wait for it, so another one writes its messages (Y5).
fn serve(host: &'static Host, path: &Path, served: Served) {
    let ((), lines) = later::held_back(|| serve_quietly(host, path, served));
    teller::tell(lines);
}

fn serve_quietly(host: &'static Host, path: &Path, served: Served) {
    let log = Arc::clone(&served.log);
    let _ends = log.background.until_it_ends();
    let _serving = Serving::new(&log);
    let done = serving(served, || {
        host::with_connection(host, path, super::VFS_NAME, |query| {
            query("PRAGMA synchronous=NORMAL")?;
            query("SELECT count(*) FROM sqlite_schema")?;
            log.background.serve(|| {
                let done = query("PRAGMA wal_checkpoint(PASSIVE)").map(drop);
                teller::tell(later::so_far());
                done.or_else(passing)
            });
            Ok(())
        })
    });
    if let Some(Err(why)) = done.map(|done| done.or_else(passing)) {
        log.background.give_up(why);
    }
}

/// Another connection was in the way: the next commit asks again. Any other error would come again;
/// commits then checkpoint as they did, and SQLite ignores their errors.
fn passing(error: SqlError) -> Result<(), String> {
    match error.code & 0xff {
        ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED => Ok(()),
        _ => Err(error.message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wal::FrameNo;

    /// Whether the statement is searched for; then no checkpoint follows.
    fn commit(quiet: &Quiet, frames: u32) -> bool {
        let searches = !quiet.is_quiet(Some(frames));
        if searches {
            quiet.await_checkpoint(Some(frames));
        }
        searches
    }

    #[test]
    fn the_statement_is_searched_for_only_where_the_log_is_longer_than_before() {
        let quiet = Quiet::default();
        assert!((1..=9).all(|frames| commit(&quiet, frames)));
        // The log restarts.
        assert!((1..=9).all(|frames| !commit(&quiet, frames)));
        assert!(commit(&quiet, 10));
        assert!(
            !quiet.is_quiet(None),
            "without a wal-index nothing is known"
        );
    }

    #[test]
    fn behind_a_commit_with_as_many_frames_as_the_threshold_a_checkpoint_is_expected() {
        let quiet = Quiet::default();
        assert!(commit(&quiet, 7));
        quiet.forget();
        quiet.note_answer(Answer::behind(fill(7, 7)));
        assert!(!commit(&quiet, 6));
        assert!(commit(&quiet, 7));
    }

    fn fill(frames: u32, threshold: u32) -> Fill {
        Fill {
            salts: Salts([1; 8]),
            frames,
            copied: 0,
            threshold,
        }
    }

    #[test]
    fn an_answer_counts_until_the_log_has_grown_by_an_eighth_of_the_threshold_or_restarts() {
        let answer = Answer::behind(fill(85, 80));
        let holds = |salts, frames| {
            answer.holds(IndexView {
                salts: Salts([salts; 8]),
                last_frame: FrameNo(frames),
                checksum: [0; 8],
                recovery: 0,
            })
        };
        assert!(holds(1, 86) && holds(1, 94));
        assert!(!holds(1, 95) && !holds(2, 86));
    }

    #[test]
    fn a_commit_behind_which_no_checkpoint_came_ends_the_answer() {
        let quiet = Quiet::default();
        quiet.note_answer(Answer::behind(fill(80, 80)));
        assert!(commit(&quiet, 81));
        assert!(quiet.answer.get().is_some(), "the checkpoint is to come");
        assert!(commit(&quiet, 82));
        assert!(quiet.answer.get().is_none());
    }

    #[test]
    fn a_checkpoint_that_was_not_expected_ends_it() {
        let quiet = Quiet::default();
        assert!(commit(&quiet, 100));
        assert!(!commit(&quiet, 50));
        quiet.forget();
        assert!(commit(&quiet, 50));
    }
}
