//! Failing calls on log files, by the storage layer's hook for tests.

use onewrite::storage::LockByte;
use onewrite::storage::observer::{Call, Observer, observe};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The calls that may fail.
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
    /// Space for new blocks.
    NewBlocks,
    /// The lock of the process that flushes.
    FlushLock,
}

impl Which {
    fn is(self, call: &Call<'_>, after_new_blocks: bool) -> bool {
        use onewrite::storage::Durability;
        match (self, call) {
            (Which::Flush, Call::Flush) => true,
            (Which::FlushOfNewBlocks, Call::Flush) => after_new_blocks,
            (Which::NewBlocks, Call::Initialize { .. }) => true,
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
    /// Our log of the database, and SQLite's.
    logs: [PathBuf; 2],
    which: Which,
    errno: i32,
    /// So many such calls pass before.
    passes: u32,
    /// How long the call takes before it fails.
    takes: Duration,
    /// Whether new blocks were made since the last flush.
    after_new_blocks: bool,
    fired: Arc<AtomicU32>,
    /// Writes of frames after the failed call.
    frames_after: Arc<AtomicU32>,
    /// The call ends only after this is set.
    released: Arc<AtomicBool>,
}

static RULES: Mutex<Vec<Rule>> = Mutex::new(Vec::new());

fn rules() -> MutexGuard<'static, Vec<Rule>> {
    RULES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The next such call on the log of a database fails, once. Undone when it goes out of scope.
pub struct Refusal {
    logs: [PathBuf; 2],
    fired: Arc<AtomicU32>,
    frames_after: Arc<AtomicU32>,
    released: Arc<AtomicBool>,
}

impl Refusal {
    pub fn of(database: &Path, which: Which, errno: i32) -> Refusal {
        Refusal::slow(database, which, errno, Duration::ZERO)
    }

    /// As [`Refusal::of`], behind so many such calls that pass.
    pub fn after(passes: u32, database: &Path, which: Which, errno: i32) -> Refusal {
        let refusal = Refusal::of(database, which, errno);
        let mut rules = rules();
        let rule = rules.iter_mut().find(|rule| rule.logs == refusal.logs);
        rule.expect("the rule").passes = passes;
        drop(rules);
        refusal
    }

    /// The call takes this long, then fails.
    pub fn slow(database: &Path, which: Which, errno: i32, takes: Duration) -> Refusal {
        Refusal::made(database, which, errno, takes, true)
    }

    /// The call waits for [`Refusal::release`], then fails; 0 is no failure.
    pub fn held(database: &Path, which: Which, errno: i32) -> Refusal {
        Refusal::made(database, which, errno, Duration::ZERO, false)
    }

    fn made(
        database: &Path,
        which: Which,
        errno: i32,
        takes: Duration,
        is_released: bool,
    ) -> Refusal {
        let released = Arc::new(AtomicBool::new(is_released));
        let logs = ["-onewrite", "-wal"].map(|suffix| super::companion(database, suffix));
        let (fired, frames_after) = (Arc::default(), Arc::default());
        rules().push(Rule {
            logs: logs.clone(),
            which,
            errno,
            passes: 0,
            takes,
            after_new_blocks: false,
            fired: Arc::clone(&fired),
            frames_after: Arc::clone(&frames_after),
            released: Arc::clone(&released),
        });
        Refusal {
            logs,
            fired,
            frames_after,
            released,
        }
    }

    /// Lets a held call end.
    pub fn release(&self) {
        self.released.store(true, Ordering::SeqCst);
    }

    /// Whether the held call was released.
    pub fn is_released(&self) -> bool {
        self.released.load(Ordering::SeqCst)
    }

    /// Waits until there is such a call.
    pub fn wait(&self) {
        let begin = Instant::now();
        while !self.has_come() {
            assert!(begin.elapsed() < Duration::from_secs(60), "it never comes");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The number of frame writes since then.
    pub fn frames_after(&self) -> u32 {
        self.frames_after.load(Ordering::SeqCst)
    }

    /// Whether there was such a call. It has failed by now or is about to.
    pub fn has_come(&self) -> bool {
        self.fired.load(Ordering::SeqCst) > 0
    }
}

impl Drop for Refusal {
    fn drop(&mut self) {
        self.release();
        rules().retain(|rule| rule.logs != self.logs);
    }
}

struct Refuser;

impl Observer for Refuser {
    fn company_lasts(&self, _usually: Duration) -> Duration {
        COMPANY
    }

    fn lock(&self, path: &Path, byte: LockByte) -> io::Result<()> {
        let of_flush = |rule: &&mut Rule| {
            byte == LockByte::Flush
                && rule.which == Which::FlushLock
                && rule.logs.iter().any(|log| log == path)
        };
        match rules().iter_mut().find(of_flush) {
            Some(rule) if rule.fired.swap(1, Ordering::SeqCst) == 0 => {
                Err(io::Error::from_raw_os_error(rule.errno))
            }
            _ => Ok(()),
        }
    }

    fn before(&self, path: &Path, call: &Call<'_>) -> io::Result<()> {
        super::shared_blocks::note(path, call);
        let mut refused = None;
        for rule in rules()
            .iter_mut()
            .filter(|rule| rule.logs.iter().any(|log| log == path))
        {
            let is_first = rule.fired.load(Ordering::SeqCst) == 0;
            let is_such = is_first && rule.which.is(call, rule.after_new_blocks);
            if is_such && rule.passes > 0 {
                rule.passes -= 1;
            } else if is_such {
                rule.fired.store(1, Ordering::SeqCst);
                refused = Some((rule.takes, rule.errno, Arc::clone(&rule.released)));
            } else if !is_first && Which::Frames.is(call, false) {
                rule.frames_after.fetch_add(1, Ordering::SeqCst);
            }
            match call {
                Call::Initialize { .. } => rule.after_new_blocks = true,
                Call::Flush => rule.after_new_blocks = false,
                _ => {}
            }
        }
        let Some((takes, errno, released)) = refused else {
            return Ok(());
        };
        std::thread::sleep(takes);
        let begin = Instant::now();
        while !released.load(Ordering::SeqCst) && begin.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(1));
        }
        // No test code released it. Those who look must see that it is over.
        released.store(true, Ordering::SeqCst);
        match errno {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

/// How long those that have committed stay in company.
pub const COMPANY: Duration = Duration::from_secs(2);

pub fn register() {
    assert!(observe(Box::new(Refuser)), "the only hook");
}
