//! A log as the connections of this process share it. It has the log's file, the commits that wait
//! for one write or one flush, and the turns of the writers. It also has the counts of remapping
//! checkpoints, and the threads.
//!
//! [`Log`] knows only the file. A thread that works for the log ends when the last connection
//! leaves. After that, no code of this process touches the file.

use std::ops::Deref;
// No thread waits for what these tell, under the model checkers either.
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};

use crate::checkpoint::{Background, Counters};
use crate::commit::group_commit::GroupCommit;
use crate::commit::group_synch::Queue;
use crate::commit::latency::Latency;
use crate::commit::write_back::WriteBack;
use crate::log::Log;
use crate::mode::Region;
use crate::storage::{Init, without_signals};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{self, Builder, JoinHandle, Mutex, MutexGuard};

/// See the module.
pub struct SharedLog {
    log: Log,
    /// Counts of checkpoints by block remapping.
    pub(crate) remapped: Counters,
    /// The thread that checkpoints, so that no commit does. Its connection is not counted below.
    pub(crate) background: Background,
    pub(crate) group_synch: Queue,
    pub(crate) group_commit: GroupCommit,
    pub(crate) write_back: WriteBack,
    /// How long commits took.
    pub(crate) latency: Latency,
    /// The number of this process's connections that have the log open.
    connections: AtomicUsize,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Whether the events of this process have told of the log, and of its poison.
    is_told: AtomicBool,
    is_poison_told: AtomicBool,
}

impl Deref for SharedLog {
    type Target = Log;

    fn deref(&self) -> &Log {
        &self.log
    }
}

impl From<Log> for SharedLog {
    fn from(log: Log) -> SharedLog {
        SharedLog {
            log,
            remapped: Counters::default(),
            background: Background::default(),
            group_synch: Queue::default(),
            group_commit: GroupCommit::default(),
            write_back: WriteBack::default(),
            latency: Latency::default(),
            connections: AtomicUsize::new(0),
            threads: Mutex::default(),
            is_told: AtomicBool::new(false),
            is_poison_told: AtomicBool::new(false),
        }
    }
}

impl SharedLog {
    /// Whether this is asked for the first time.
    pub(crate) fn is_new_here(&self) -> bool {
        !self.is_told.load(Relaxed) && !self.is_told.swap(true, Relaxed)
    }

    /// Why the log is poisoned, the first time that this is asked for after that.
    pub(crate) fn new_poison(&self) -> Option<&str> {
        let why = self.log.poisoned()?;
        (!self.is_poison_told.swap(true, Relaxed)).then_some(why)
    }

    /// Counts a connection that begins to use the log.
    pub(super) fn enter(&self) {
        self.connections.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts a connection that stops using the log. The last one waits for the threads, which have
    /// little left to do.
    pub(super) fn leave(&self) {
        if self.connections.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        if !self.log.file().is_of_this_process() {
            self.forget_threads();
            return;
        }
        self.background.stop();
        self.group_synch.stop_thread();
        self.write_back.stop_thread();
        let threads = std::mem::take(&mut *self.threads());
        for thread in threads {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }

    /// A child of fork has none of the threads, so it can neither join nor detach them. What they share
    /// with it may be locked for ever.
    fn forget_threads(&self) {
        if let Ok(mut threads) = self.threads.try_lock() {
            std::mem::forget(std::mem::take(&mut *threads));
        }
    }

    /// Ends the thread that checkpoints. A child of fork has none. `false` if it has yet to open its
    /// connection.
    pub(crate) fn stop_background(&self) -> bool {
        !self.log.file().is_of_this_process() || self.background.stop()
    }

    /// Whether at most one of this process's connections has the log open.
    pub(crate) fn is_open_once(&self) -> bool {
        self.connections.load(Ordering::Acquire) <= 1
    }

    /// Runs `work` in a separate thread. `false` if no thread can be started.
    pub(super) fn in_background(&self, work: impl FnOnce() + Send + 'static) -> bool {
        let thread = Builder::new().name("onewrite".into());
        let started = without_signals(|| thread.spawn(sync::background(work)));
        let mut threads = self.threads();
        sync::forget_finished(&mut threads);
        started.map(|thread| threads.push(thread)).is_ok()
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the region through which the log moves forward ([`crate::log::forward`]), in the
    /// background, if there is space for it.
    pub(crate) fn prepare_region(self: &Arc<Self>, region: Option<Region>) {
        if let Some(region) = region {
            if self.log.lacks_reserve(region) {
                let log = Arc::clone(self);
                if !self.in_background(move || log.replenish(region)) {
                    self.log.ends_replenishing();
                }
            }
            return;
        }
        if self.log.init() == Init::Unwritten {
            return;
        }
        if let Some(wanted) = self.log.lacks_region() {
            let log = Arc::clone(self);
            self.in_background(move || log.make_region(wanted, || log.is_in_use()));
        }
    }

    fn replenish(&self, region: Region) {
        match self.log.replenish(region, || self.is_in_use()) {
            Ok(made) => self
                .remapped
                .count_replenished(made, self.log.region_bytes()),
            Err(e) => self
                .remapped
                .count_region_refusal(&e.to_string(), self.log.region_bytes()),
        }
    }

    fn is_in_use(&self) -> bool {
        self.connections.load(Ordering::Acquire) > 0
    }
}
