//! Strict group commit: every COMMIT returns durable, and the waiting commits of all threads and
//! processes share one write and one flush.
//!
//! If a connection is not alone, its commit leaves the frames in the log's page cache and is
//! published. SQLite releases the write lock, and the next connection continues. Then comes
//! `SQLITE_FCNTL_COMMIT_PHASETWO`. There the connection becomes the *leader*, which makes
//! everything published durable with one `fdatasync`. Or it becomes a *follower*, whose commit a
//! leader's flush covers. The kernel writes adjacent frames in one write, and it keeps the frames
//! of a process that dies.
//!
//! Threads of a process wait for their leader on a condition variable, processes for one another on
//! a futex. The leader among processes holds an open-file-description lock, which the kernel
//! releases if it dies. Shared memory tells all how far the log is durable
//! ([`crate::log::shared`]).
//!
//! A lone connection writes and flushes inside `xSync`, in one direct write, at no extra cost.
//!
//! [`super::turns`] decides who may write next.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::commit::delay::CommitDelay;
use crate::commit::stuck::Stuck;
use crate::commit::transaction::Promise;
use crate::commit::turns::Turns;
use crate::commit::{SharedLog, Writer};
use crate::log::arrivals::Arrivals;
use crate::log::shared::{Committer, Contention, Shared};
use crate::log::{Log, LogError};
use crate::mode::SyncPolicy;
use crate::storage::{Access, LockByte, LockKind};
use crate::sync::atomic::Ordering;
use crate::sync::{Condvar, Instant, Mutex, MutexGuard, fence};
use crate::waits::stall::{self, Phase};
use crate::waits::{LONGEST_LOOK, LOOK, OVERDUE, STUCK_FLUSH, TURN};
use crate::wal::{FrameNo, History, IndexView};

/// A failed wait for the log's restart is repeated once the log has grown by this fraction.
const RESTART_PART: u32 = 8;
/// The state that the connections of this process share.
#[derive(Default)]
pub struct GroupCommit {
    leading: Mutex<Leading>,
    /// Only the leader uses it.
    delay: Mutex<CommitDelay>,
    turns: Turns,
    /// Another process leads, and does not finish.
    stuck: Stuck,
}

#[derive(Default)]
struct Leading {
    is_led: bool,
    /// The threads that wait for another's flush, in order of arrival.
    followers: Vec<Arc<Follower>>,
    counts: Counts,
}

/// A thread that waits for another's flush. Each is woken separately, when its commit is durable or
/// it must lead. If all were woken, most would only contend for the mutex and sleep again.
struct Follower {
    until: (History, FrameNo),
    call: Mutex<Option<Call>>,
    called: Condvar,
}

/// Why a waiting thread is woken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    /// To look: its commit is durable, or has failed.
    Look,
    /// To lead.
    Lead,
}

impl Follower {
    fn new(until: (History, FrameNo)) -> Arc<Self> {
        Arc::new(Self {
            until,
            call: Mutex::default(),
            called: Condvar::default(),
        })
    }

    fn call(&self, call: Call) {
        *self.call.lock().unwrap_or_else(PoisonError::into_inner) = Some(call);
        self.called.notify_one();
    }

    fn sleep(&self) -> Call {
        let mut call = self.call.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match *call {
                Some(call) => return call,
                None => {
                    let woken = self.called.wait(call);
                    call = woken.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

/// Counters of group commit in this process, since the log was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Counts {
    /// Flushes for a group.
    pub flushes: u64,
    /// Commits that were published before they were durable.
    pub commits: u64,
    /// Statements that waited for the commits they were about to read.
    pub reads: u64,
    /// Waits for another process's flush that reached their bound.
    pub timed_out: u64,
    /// How often a checkpoint that follows a commit waited for another one.
    pub checkpoint_waits: u64,
}

/// How a waiting connection reads the present wal-index.
pub type Look<'a> = &'a dyn Fn() -> Option<IndexView>;

impl GroupCommit {
    fn leading(&self) -> MutexGuard<'_, Leading> {
        self.leading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The turns to write.
    pub fn turns(&self) -> &Turns {
        &self.turns
    }

    /// The counters.
    pub fn counts(&self) -> Counts {
        self.leading().counts
    }

    /// Counts a checkpoint that waits for another one.
    pub fn note_checkpoint_wait(&self) {
        self.leading().counts.checkpoint_waits += 1;
    }

    /// Returns when everything up to the published frame `until` is durable.
    ///
    /// # Errors
    /// The flush failed, here or elsewhere: the log is poisoned. Whether the frame survives a crash
    /// is unknown.
    fn wait(
        &self,
        log: &Log,
        until: (History, FrameNo),
        waiter: Waiter,
        look: Look<'_>,
    ) -> Result<(), LogError> {
        stall::measured(Phase::Group, || self.lead_or_wait(log, until, waiter, look))
    }

    fn lead_or_wait(
        &self,
        log: &Log,
        until: (History, FrameNo),
        waiter: Waiter,
        look: Look<'_>,
    ) -> Result<(), LogError> {
        let (history, frame) = until;
        let came = Instant::now();
        let flushes = log.shared().flushes();
        // The end of the flush wakes this thread. It looks only because the other process may have died.
        let mut pause = LOOK;
        match waiter {
            Waiter::Commit => log.shared().arrivals().arrive(),
            Waiter::Reader => log.shared().arrivals().hurry(),
        }
        loop {
            log.check_poison()?;
            if log.is_durable(history, frame) {
                return Ok(());
            }
            if !self.lead_or_follow(until) {
                continue;
            }
            let flush = || {
                if Instant::now() - came < STUCK_FLUSH {
                    return self.lead(log, until, pause, look);
                }
                self.stuck.note(flushes);
                self.leading().counts.timed_out += 1;
                flush(log, history, frame, look)
            };
            if matches!(self.flush_for_all(log, flush)?, Led::Flushed) {
                // A process that may not write shared memory cannot note it there.
                return Ok(());
            }
            pause = (2 * pause).min(LONGEST_LOOK);
        }
    }

    /// Whether this thread leads now. If not, others have flushed.
    fn lead_or_follow(&self, until: (History, FrameNo)) -> bool {
        let mut leading = self.leading();
        if !leading.is_led {
            leading.is_led = true;
            return true;
        }
        let follower = Follower::new(until);
        leading.followers.push(Arc::clone(&follower));
        drop(leading);
        follower.sleep() == Call::Lead
    }

    /// The leader's flush; others may come to wait meanwhile. At its end the durable ones are
    /// woken, and the first of the others leads. The same holds if the flush panics.
    fn flush_for_all(
        &self,
        log: &Log,
        flush: impl FnOnce() -> Result<Led, LogError>,
    ) -> Result<Led, LogError> {
        let mut lead = Lead {
            group: self,
            log,
            has_flushed: false,
        };
        let led = flush();
        lead.has_flushed = matches!(led, Ok(Led::Flushed));
        led
    }

    /// Passes the lead on: see [`GroupCommit::flush_for_all`].
    fn pass_lead(&self, log: &Log, has_flushed: bool) {
        let mut leading = self.leading();
        leading.counts.flushes += u64::from(has_flushed);
        let has_failed = log.check_poison().is_err();
        let is_done = |follower: &mut Arc<Follower>| {
            let (history, frame) = follower.until;
            has_failed || log.is_durable(history, frame)
        };
        let done: Vec<_> = leading.followers.extract_if(.., is_done).collect();
        leading.is_led = !leading.followers.is_empty();
        let next = leading.is_led.then(|| leading.followers.remove(0));
        drop(leading);
        if let Some(next) = next {
            next.call(Call::Lead);
        }
        for follower in done {
            follower.call(Call::Look);
        }
    }

    /// Makes everything published durable, unless another process does. Then waits for that, at most
    /// for `pause`.
    fn lead(
        &self,
        log: &Log,
        (history, frame): (History, FrameNo),
        pause: Duration,
        look: Look<'_>,
    ) -> Result<Led, LogError> {
        let (file, shared) = (log.file(), log.shared());
        // Without the right to write there is no exclusive lock, and an extra flush does no harm.
        if file.access() != Access::ReadWrite {
            return flush(log, history, frame, look);
        }
        let seen = shared.flushes();
        let leads = match file.try_lock(LockByte::Flush, LockKind::Exclusive) {
            Ok(leads) => leads,
            // A commit that waits here is published: for a lock that cannot be taken (ENOLCK) it must not
            // fail. As above.
            Err(_) if file.is_of_this_process() => return flush(log, history, frame, look),
            Err(e) => return Err(e.into()),
        };
        if !leads {
            if self.stuck.is(seen) {
                return flush(log, history, frame, look);
            }
            shared.wait_for_flush(seen, pause);
            return Ok(Led::Covered);
        }
        let _ends = FlushLock(log);
        match log.is_durable(history, frame) {
            true => Ok(Led::Covered),
            false => self.flush_with_others(log, history, frame, look),
        }
    }

    /// Waits for commits that may be about to arrive, then flushes.
    fn flush_with_others(
        &self,
        log: &Log,
        history: History,
        frame: FrameNo,
        look: Look<'_>,
    ) -> Result<Led, LogError> {
        let arrivals = log.shared().arrivals();
        self.await_followers(arrivals);
        let begun = arrivals.begin();
        let began = Instant::now();
        let led = flush(log, history, frame, look);
        match led {
            Ok(Led::Flushed) => {
                let took = Instant::now() - began;
                arrivals.end(begun, took);
                self.delay().flushed(took);
            }
            _ => arrivals.give_up(begun),
        }
        led
    }

    /// Lets others join the flush that this thread is about to make.
    fn await_followers(&self, arrivals: Arrivals<'_>) {
        if arrivals.are_complete() || arrivals.are_gone() {
            return;
        }
        let patience = self.delay().patience();
        if !patience.is_zero() {
            arrivals.wait(Instant::now() + patience);
            self.delay().waited(arrivals.are_complete());
        }
    }

    fn delay(&self) -> MutexGuard<'_, CommitDelay> {
        self.delay.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a writer may wait for the log to restart, and a checkpoint that leads to it for another
/// one.
pub fn patience_for_restart(log: &Log, index: IndexView) -> Duration {
    match log.shared().restart_failed(index.history()) {
        None => TURN,
        Some(until) if index.last_frame >= until => OVERDUE,
        Some(_) => Duration::ZERO,
    }
}

/// A wait failed: a reader stays, or no connection checkpoints. No new wait before the log has grown,
/// in any process. Otherwise those of one process would wait without success, while others write.
///
/// `began` is the wal-index when the wait began, `now` when it ended. If the log has restarted at the
/// last moment, nothing failed. A note about the old generation would replace one about the new.
pub fn gave_up_restart(log: &Log, began: IndexView, now: Option<IndexView>) {
    let Some(now) = now.filter(|now| now.history() == began.history()) else {
        return;
    };
    let frames = now.last_frame.0;
    let until = FrameNo(frames.saturating_add(frames / RESTART_PART));
    log.shared().set_restart_failed(now.history(), until);
}

/// This thread leads in its process. However that ends, the others are woken or one of them leads.
struct Lead<'a> {
    group: &'a GroupCommit,
    log: &'a Log,
    has_flushed: bool,
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        self.group.pass_lead(self.log, self.has_flushed);
    }
}

/// This process leads among all processes.
struct FlushLock<'a>(&'a Log);

impl Drop for FlushLock<'_> {
    fn drop(&mut self) {
        // If it fails, the lock ends with the process.
        let _ = self.0.file().unlock(LockByte::Flush);
        self.0.shared().note_flush();
    }
}

/// The company in which a connection commits.
pub(super) struct Company {
    /// The connection.
    pub(super) committer: Committer,
    /// The company that others had noted when the connection last committed.
    seen: u64,
    /// Whether others have noted company between that commit and the present one. A writer that was
    /// refused sleeps in SQLite's busy handler, longer than company lasts. It stays until a commit is
    /// published, because one that fails is tried again.
    came: bool,
}

impl Company {
    pub(super) fn of(committer: Committer, shared: &Shared) -> Company {
        Company {
            committer,
            seen: shared.company_noted(),
            came: false,
        }
    }

    /// The connection commits, under the write lock.
    pub(super) fn note_commit(&mut self, shared: &Shared) {
        self.came |= shared.company_noted() != self.seen;
        shared.note_committer(self.committer);
        self.seen = shared.company_noted();
    }

    /// The commit is published.
    pub(super) fn note_published(&mut self) {
        self.came = false;
    }
}

/// The kinds of waiters for a flush.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiter {
    /// A connection that has published a commit.
    Commit,
    /// A connection that is about to read published commits, or to copy them.
    Reader,
}

/// The result of leading.
enum Led {
    /// It has made everything published durable, including the frame that it waited for.
    Flushed,
    /// Another process does so, or has done so.
    Covered,
}

fn flush(log: &Log, history: History, frame: FrameNo, look: Look<'_>) -> Result<Led, LogError> {
    log.check_poison_everywhere()?;
    if log.is_durable(history, frame) {
        return Ok(Led::Covered);
    }
    // Read before the flush. These frames are in the file, because they were written before
    // publication.
    let published = look().filter(|index| index.history() == history);
    let last = published.map_or(frame, |index| index.last_frame.max(frame));
    // The flush begins only after that read. The fence pairs with the one in
    // `Shared::set_deferred`.
    fence(Ordering::Acquire);
    log.shared().open_block().close();
    log.file().flush().inspect_err(|e| {
        log.poison(&format!("a flush failed: {e}"));
    })?;
    log.set_durable(last, history);
    Ok(Led::Flushed)
}

impl SharedLog {
    /// The frame up to which promised commits may be published but not durable; `None` if all are
    /// durable.
    fn deferred_until(&self, seen: IndexView) -> Option<FrameNo> {
        let until = match self.shared().is_shared() {
            // Recovery has begun a history. Commits that were deferred before may be in it.
            true if self.shared().durable(seen.history()).is_none() => {
                (seen.last_frame > FrameNo(0)).then_some(seen.last_frame)
            }
            true => self.shared().deferred(seen.history()),
            // Other processes do not tell this one what they promise. In SQLite's own log it goes
            // on as a stock process, which cannot know either.
            false if self.id().is_none() => None,
            false => Some(seen.last_frame),
        };
        let until = until?.min(seen.last_frame);
        (!self.is_durable(seen.history(), until)).then_some(until)
    }

    /// Whether a promised commit of a snapshot may not be durable.
    pub fn may_hold_deferred(&self, seen: IndexView) -> bool {
        self.deferred_until(seen).is_some()
    }

    /// Returns when every promised commit of a snapshot is durable: before a checkpoint, and before
    /// a statement reads it.
    ///
    /// # Errors
    /// As for a commit that waits.
    pub fn await_deferred(&self, seen: IndexView, look: Look<'_>) -> Result<(), LogError> {
        let Some(until) = self.deferred_until(seen) else {
            return Ok(());
        };
        self.group_commit.leading().counts.reads += 1;
        self.group_commit
            .wait(self, (seen.history(), until), Waiter::Reader, look)
    }
}

impl Writer {
    /// Whether the commit can be made durable after its publication. `alone_in_transaction` tells
    /// whether the transaction writes no other database. With several, SQLite would not report an
    /// error after publication.
    pub(super) fn may_defer(
        &self,
        policy: SyncPolicy,
        index: Option<IndexView>,
        alone_in_transaction: &dyn Fn() -> bool,
    ) -> bool {
        let Some(index) = index else {
            // Without a wal-index in shared memory there are no other connections.
            return false;
        };
        let shared = self.log.shared();
        let in_company = || {
            self.company.came
                || shared.contention() > Contention::None
                || shared.arrivals().come_back()
                || shared.deferred(index.history()).is_some()
        };
        self.config.groups_commits(self.log.mode())
            && policy != SyncPolicy::Normal
            && shared.is_shared()
            && in_company()
            && alone_in_transaction()
    }

    /// Leaves the commit in the page cache, to be published first.
    pub(super) fn defer(&mut self, history: History) -> Result<(), LogError> {
        self.write_for_leader()?;
        self.log
            .shared()
            .set_deferred(history, self.transaction.commit);
        self.promise = Promise::Deferred(history, self.transaction.commit);
        self.log.group_commit.leading().counts.commits += 1;
        Ok(())
    }

    /// Makes a commit durable that was published before.
    ///
    /// # Errors
    /// The flush failed: the log is poisoned, and it is unknown whether the commit survives.
    pub fn await_own(&mut self, look: Look<'_>) -> Result<(), LogError> {
        let Some(until) = self.promise.take_deferred() else {
            return Ok(());
        };
        let log = std::sync::Arc::clone(&self.log);
        log.group_commit.wait(&log, until, Waiter::Commit, look)
    }
}

#[cfg(all(test, not(any(shuttle, loom))))]
mod tests {
    use super::*;
    use crate::log::OpenLog;
    use crate::mode::Layout;
    use crate::wal::Salts;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc;

    /// The kernel releases the lock, and nobody is woken.
    #[test]
    fn those_who_wait_for_the_flush_of_a_dead_process_go_on() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db-onewrite");
        let log = Log::create(&OpenLog::for_test(&path), Layout::Packed).expect("a log");
        let theirs = Log::open_guarded(&OpenLog::for_test(&path), log.id().expect("an id"));
        let theirs = theirs.expect("the same log");
        let lock = theirs.file().try_lock(LockByte::Flush, LockKind::Exclusive);
        assert!(lock.expect("a lock"));
        let log = SharedLog::from(log);
        let until = (Salts([1; 8]).into(), FrameNo(7));
        std::thread::scope(|scope| {
            let waits = || log.group_commit.wait(&log, until, Waiter::Commit, &|| None);
            let waiter = scope.spawn(waits);
            std::thread::sleep(3 * LOOK);
            assert!(!waiter.is_finished(), "the other process flushes");
            theirs.file().unlock(LockByte::Flush).expect("unlocked");
            waiter.join().expect("no panic").expect("durable");
        });
        let counts = log.group_commit.counts();
        assert_eq!((counts.flushes, counts.timed_out), (1, 0));
    }

    #[test]
    fn a_wait_that_the_restart_ends_at_the_last_moment_is_not_noted_as_failed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db-onewrite");
        let log = Log::create(&OpenLog::for_test(&path), Layout::Packed).expect("a log");
        let seen = |generation: u8, frames| IndexView {
            salts: Salts([generation, 2, 3, 4, 5, 6, 7, 8]),
            last_frame: FrameNo(frames),
            checksum: [0; 8],
            recovery: 0,
        };
        let failed = |seen: IndexView| log.shared().restart_failed(seen.history());
        let (old, later, new) = (seen(1, 800), seen(1, 880), seen(2, 8));
        gave_up_restart(&log, old, Some(later));
        let part = FrameNo(880 + 880 / RESTART_PART);
        assert_eq!(failed(old), Some(part), "as the log is when the wait ends");
        gave_up_restart(&log, new, Some(new));
        let noted = failed(new);
        assert!(noted.is_some());
        gave_up_restart(&log, old, Some(new));
        gave_up_restart(&log, old, None);
        assert_eq!((failed(old), failed(new)), (None, noted));
    }

    #[test]
    fn a_leader_that_panics_passes_the_lead_on() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db-onewrite");
        let log = Log::create(&OpenLog::for_test(&path), Layout::Packed).expect("a log");
        let log = Arc::new(SharedLog::from(log));
        let until = (Salts([1; 8]).into(), FrameNo(7));
        assert!(log.group_commit.lead_or_follow(until), "nobody else leads");
        let (leads, led) = mpsc::channel();
        let its_log = Arc::clone(&log);
        // Not joined if the test fails: it would wait forever.
        std::thread::spawn(move || leads.send(its_log.group_commit.lead_or_follow(until)));
        while log.group_commit.leading().followers.is_empty() {
            std::thread::yield_now();
        }
        let flushed = catch_unwind(AssertUnwindSafe(|| {
            log.group_commit
                .flush_for_all(&log, || panic!("a planted panic"))
        }));
        assert!(flushed.is_err());
        assert_eq!(led.recv_timeout(Duration::from_secs(60)), Ok(true));
    }
}
