//! Group synch: commits return before their frames are written, and a group of them shares one
//! write (WALDIO's relaxed durability, off by default).
//!
//! Two bounds limit the loss. The commit that fills a group of `frames` frames writes it at once. A
//! thread writes it at the latest `interval` after its first commit. Order is never lost: groups
//! are written one after the other, each in one write of consecutive frames.
//!
//! Frames of a group are published in the wal-index but not in the file. No other process may see
//! that. So a group is opened only under the log's exclusive presence lock, which proves that no
//! other process uses the log. The lock is shared again once the group is written. A process that
//! opens the log waits for that. If this process dies, its wal-index dies with it, because no other
//! process had it.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::commit::run::Run;
use crate::commit::{SharedLog, Writer};
use crate::log::{Covered, ErrorKind, Log, LogError};
use crate::mode::{GroupSynch, SyncPolicy};
use crate::storage::{AlignedBuf, Durability, Patience, Short};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Instant, Mutex, MutexGuard};
use crate::waits::IDLE;
use crate::wal::{FrameNo, History, Salts, array};

/// The commits of this process that wait for their write.
#[derive(Default)]
pub struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    /// Whether frames wait: lets others pass without the mutex.
    any: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    run: Option<Run>,
    /// The policy of the strictest commit in the group.
    policy: Option<SyncPolicy>,
    /// The last frame of the commits that are certainly published: all but the last one.
    published: FrameNo,
    /// The number of the recovery that they follow.
    recovery: u32,
    due: Option<Instant>,
    thread: Thread,
    /// How often the thread was asked to end.
    stops: u64,
    blocks: AlignedBuf,
    sizes: Sizes,
}

/// The state of the thread that writes overdue groups.
#[derive(Default, PartialEq, Eq)]
enum Thread {
    #[default]
    None,
    /// Waits without a deadline: must be woken.
    Idle,
    /// Waits for a deadline: will check the new one by itself.
    Timing,
}

/// The sizes of the groups that this process wrote.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Sizes {
    /// Groups written.
    pub groups: u64,
    /// Commits in them.
    pub commits: u64,
    /// Frames in them.
    pub frames: u64,
    /// Frames of the largest.
    pub largest: u32,
    /// Groups that were written because their interval was over, not because they were full.
    pub by_interval: u64,
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sizes of the groups.
    pub fn sizes(&self) -> Sizes {
        self.waiting().sizes
    }

    /// Copies a part of a waiting frame, from byte `at` of the frame on.
    pub fn read(&self, frame: FrameNo, salts: Salts, at: usize, out: &mut [u8]) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let waiting = self.waiting();
        let bytes = waiting.run.as_ref().and_then(|run| run.frame(frame));
        match bytes.filter(|bytes| bytes[8..16] == salts.0) {
            Some(bytes) => {
                out.copy_from_slice(&bytes[at..at + out.len()]);
                true
            }
            None => false,
        }
    }

    /// Writes the waiting frames. Those that a child of fork has inherited are its parent's, which
    /// writes them and goes on; its thread may have the mutex, too.
    ///
    /// # Errors
    /// The write failed: acknowledged commits are lost, and the log is poisoned.
    pub fn write_all(&self, log: &Log) -> Result<(), LogError> {
        if !self.any.load(Ordering::Acquire) || !log.file().is_of_this_process() {
            return Ok(());
        }
        self.write(&mut self.waiting(), log)
    }

    fn write(&self, waiting: &mut Waiting, log: &Log) -> Result<(), LogError> {
        let Some(run) = waiting.run.take_if(|run| !run.is_empty()) else {
            // A group that could not be written is gone, and nothing may be written after it.
            return log.check_poison();
        };
        let written = write_group(&run, waiting, log);
        waiting.sizes.groups += 1;
        waiting.sizes.frames += u64::from(run.frames());
        waiting.sizes.largest = waiting.sizes.largest.max(run.frames());
        (waiting.due, waiting.policy) = (None, None);
        if let Err(e) = &written {
            // The frames can no longer be read: the log is poisoned. It stays exclusively ours, so
            // that no other process builds on a wal-index that is ahead of the file.
            log.poison(&format!("a group of commits could not be written: {e}"));
            return written;
        }
        self.any.store(false, Ordering::Release);
        let mut run = run;
        run.clear();
        waiting.run = Some(run);
        log.show()
    }

    /// Adds a commit. `false` if it cannot wait, because other processes use the log.
    fn join(
        &self,
        log: &Arc<SharedLog>,
        commit: &Run,
        (bounds, policy, recovery): (GroupSynch, SyncPolicy, u32),
        patience: &dyn Patience,
    ) -> Result<bool, LogError> {
        let mut guard = self.waiting();
        // A caller that checked before it had the mutex may have checked too early.
        log.check_poison()?;
        let waiting = &mut *guard;
        let run = waiting
            .run
            .get_or_insert_with(|| Run::new(log.geometry().page()));
        let begins = run.is_empty();
        if begins && !log.hide()? {
            return Ok(false);
        }
        if commit.first() <= run.last() && !run.is_empty() {
            // A commit whose publication failed is superseded.
            run.truncate(commit.first());
        }
        if !run.accepts(commit.first()) {
            self.write(waiting, log)?;
            return Ok(false);
        }
        // Room is made before the commit is acknowledged: a full disk fails only this commit.
        let end = log.geometry().end_of(commit.last());
        if let Err(e) = log.make_room(end, Covered::ByItself, patience) {
            if begins {
                // There is no group whose write would share the log again.
                log.show()?;
            }
            return Err(e);
        }
        waiting.published = FrameNo(commit.first().0.saturating_sub(1));
        waiting.recovery = recovery;
        run.append(commit);
        let full = run.frames() >= bounds.frames;
        self.any.store(true, Ordering::Release);
        waiting.sizes.commits += 1;
        waiting.policy = Some(strictest(waiting.policy, policy));
        if full {
            return self.write(waiting, log).map(|()| true);
        }
        let due = Instant::now() + bounds.interval;
        waiting.due = Some(waiting.due.map_or(due, |earlier| earlier.min(due)));
        match waiting.thread {
            Thread::Timing => {}
            Thread::Idle => self.changed.notify_one(),
            Thread::None => return self.start_thread(guard, log).map(|()| true),
        }
        Ok(true)
    }

    fn start_thread(
        &self,
        mut waiting: MutexGuard<'_, Waiting>,
        log: &Arc<SharedLog>,
    ) -> Result<(), LogError> {
        // It may be asked to end before it runs.
        let stops = waiting.stops;
        let its_log = Arc::clone(log);
        match log.in_background(move || its_log.group_synch.write_overdue(&its_log, stops)) {
            true => waiting.thread = Thread::Timing,
            // No thread would write this group in time.
            false => self.write(&mut waiting, log)?,
        }
        Ok(())
    }

    /// Ends the thread when the last connection closes. A commit of a connection that opens
    /// meanwhile starts another.
    pub fn stop_thread(&self) {
        self.waiting().stops += 1;
        self.changed.notify_one();
    }

    /// The thread's work: writes groups whose interval is over. `stops` is the number when it was
    /// started.
    fn write_overdue(&self, log: &Log, stops: u64) {
        let mut waiting = self.waiting();
        loop {
            if waiting.stops != stops {
                // The error is in the log: it is poisoned.
                let _ = self.write(&mut waiting, log);
                waiting.thread = Thread::None;
                return;
            }
            let now = Instant::now();
            match waiting.due {
                Some(due) if due <= now => {
                    waiting.sizes.by_interval += 1;
                    // The error is in the log: it is poisoned.
                    let _ = self.write(&mut waiting, log);
                }
                Some(due) => {
                    waiting.thread = Thread::Timing;
                    waiting = self.wait(waiting, due - now).0;
                }
                None => {
                    waiting.thread = Thread::Idle;
                    let (woken, timed_out) = self.wait(waiting, IDLE);
                    waiting = woken;
                    if timed_out && waiting.due.is_none() {
                        waiting.thread = Thread::None;
                        return;
                    }
                }
            }
        }
    }

    fn wait<'a>(
        &self,
        waiting: MutexGuard<'a, Waiting>,
        time: Duration,
    ) -> (MutexGuard<'a, Waiting>, bool) {
        let woken = self.changed.wait_timeout(waiting, time);
        let (guard, result) = woken.unwrap_or_else(PoisonError::into_inner);
        (guard, result.timed_out())
    }
}

fn strictest(a: Option<SyncPolicy>, b: SyncPolicy) -> SyncPolicy {
    match a {
        Some(SyncPolicy::Normal) | None => b,
        Some(stricter) => stricter,
    }
}

fn write_group(run: &Run, waiting: &mut Waiting, log: &Log) -> Result<(), LogError> {
    let geometry = log.geometry();
    // Room was made when the commits joined, and no other process has the log open.
    log.make_room(geometry.end_of(run.last()), Covered::ByItself, &Short)?;
    let mut load = |offset: u64, out: &mut [u8]| log.load_block(offset, out);
    let (offset, side) = geometry
        .encode(
            run.first(),
            run.bytes(),
            run.last(),
            &mut load,
            &mut waiting.blocks,
        )
        .map_err(|e| {
            LogError::io(
                ErrorKind::Read,
                log.file().path(),
                "read back a block of",
                &e,
            )
        })?;
    let first = run.frame(run.first());
    let history = History {
        salts: Salts(first.map_or([0; 8], |frame| array(&frame[8..16]))),
        recovery: waiting.recovery,
    };
    let policy = waiting.policy.unwrap_or(SyncPolicy::Full);
    let everything_before = log.durable_before(run.first(), history);
    let in_one_write = side.is_none()
        && policy == SyncPolicy::Persistent
        && (everything_before || log.file().write_through_covers_all_before());
    if in_one_write && !everything_before {
        log.file().write_back()?;
    }
    if let Some(side) = side {
        log.make_room(
            side.offset + side.bytes.len() as u64,
            Covered::ByItself,
            &Short,
        )?;
        log.file()
            .write_at(side.bytes.as_slice(), side.offset, Durability::None)?;
    }
    let durability = if in_one_write {
        Durability::WriteThrough
    } else {
        Durability::None
    };
    log.file()
        .write_at(waiting.blocks.as_slice(), offset, durability)?;
    if policy != SyncPolicy::Normal && !in_one_write {
        log.file().flush()?;
    }
    if policy != SyncPolicy::Normal {
        log.set_durable(waiting.published, history);
    }
    Ok(())
}

impl Writer {
    /// Leaves the collected commit to the group, if that is wanted and possible.
    pub(super) fn try_group(&mut self, policy: SyncPolicy) -> Result<bool, LogError> {
        let Some(bounds) = self.config.group_synch else {
            return Ok(false);
        };
        let alone = !self.run_is_out
            && !self.transaction.spilled
            && self.header.is_none()
            && !self.run.is_empty()
            && self.run.last() == self.transaction.commit
            && self.log.mode().may_defer_durability();
        if !alone {
            return Ok(false);
        }
        let log = Arc::clone(&self.log);
        for frame in self.run.first().0..=self.run.last().0 {
            log.forget_frame(FrameNo(frame));
        }
        let recovery = self.transaction.history.map_or(0, |of| of.recovery);
        let how = (bounds, policy, recovery);
        let joined = log
            .group_synch
            .join(&log, &self.run, how, &*self.patience)?;
        self.run_is_out |= joined;
        Ok(joined)
    }
}
