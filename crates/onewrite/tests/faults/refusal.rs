//! Calls on log files that are refused, by the storage layer's hook for tests.

use onewrite::storage::observer::{Call, Observer, observe};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Which calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// A flush.
    Flush,
    /// A write that is durable when it returns.
    WriteThrough,
    /// A write of frames.
    Frames,
    /// A write of the log's header.
    Header,
    /// The flush that makes new blocks durable.
    FlushOfNewBlocks,
}

impl Which {
    fn is(self, call: &Call<'_>, after_new_blocks: bool) -> bool {
        use onewrite::storage::Durability;
        match (self, call) {
            (Which::Flush, Call::Flush) => true,
            (Which::FlushOfNewBlocks, Call::Flush) => after_new_blocks,
            (Which::WriteThrough, Call::Write { durability, .. }) => {
                *durability == Durability::WriteThrough
            }
            (Which::Frames, Call::Write { offset, .. }) => *offset > 0,
            (Which::Header, Call::Write { offset, .. }) => *offset == 0,
            _ => false,
        }
    }
}

struct Rule {
    log: PathBuf,
    which: Which,
    errno: i32,
    /// How long the call takes before it fails.
    takes: Duration,
    /// Since the last flush new blocks were made.
    after_new_blocks: bool,
    fired: Arc<AtomicU32>,
    /// Frames were written after it.
    frames_after: Arc<AtomicU32>,
}

static RULES: Mutex<Vec<Rule>> = Mutex::new(Vec::new());

fn rules() -> MutexGuard<'static, Vec<Rule>> {
    RULES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The next such call on the log of a database fails, once. Undone when it goes out of scope.
pub struct Refusal {
    log: PathBuf,
    fired: Arc<AtomicU32>,
    frames_after: Arc<AtomicU32>,
}

impl Refusal {
    pub fn of(database: &Path, which: Which, errno: i32) -> Refusal {
        Refusal::slow(database, which, errno, Duration::ZERO)
    }

    /// It takes so long until it fails.
    pub fn slow(database: &Path, which: Which, errno: i32, takes: Duration) -> Refusal {
        let log = super::beside(database, "-onewrite");
        let (fired, frames_after) = (Arc::default(), Arc::default());
        rules().push(Rule {
            log: log.clone(),
            which,
            errno,
            takes,
            after_new_blocks: false,
            fired: Arc::clone(&fired),
            frames_after: Arc::clone(&frames_after),
        });
        Refusal {
            log,
            fired,
            frames_after,
        }
    }

    /// How often frames were written since then.
    pub fn frames_after(&self) -> u32 {
        self.frames_after.load(Ordering::SeqCst)
    }

    /// Whether there was such a call, whether it has failed by now or is about to.
    pub fn has_come(&self) -> bool {
        self.fired.load(Ordering::SeqCst) > 0
    }
}

impl Drop for Refusal {
    fn drop(&mut self) {
        rules().retain(|rule| rule.log != self.log);
    }
}

struct Refuser;

impl Observer for Refuser {
    fn before(&self, path: &Path, call: &Call<'_>) -> io::Result<()> {
        let mut refused = None;
        for rule in rules().iter_mut().filter(|rule| rule.log == path) {
            let is_first = rule.fired.load(Ordering::SeqCst) == 0;
            if is_first && rule.which.is(call, rule.after_new_blocks) {
                rule.fired.store(1, Ordering::SeqCst);
                refused = Some((rule.takes, rule.errno));
            } else if !is_first && Which::Frames.is(call, false) {
                rule.frames_after.fetch_add(1, Ordering::SeqCst);
            }
            match call {
                Call::Initialize { .. } => rule.after_new_blocks = true,
                Call::Flush => rule.after_new_blocks = false,
                _ => {}
            }
        }
        let Some((takes, errno)) = refused else {
            return Ok(());
        };
        std::thread::sleep(takes);
        Err(io::Error::from_raw_os_error(errno))
    }
}

pub fn register() {
    assert!(observe(Box::new(Refuser)), "the only hook");
}
