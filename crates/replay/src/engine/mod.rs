//! Plays a trace. `one` uses one thread, in the order in which calls returned when it was recorded.
//! `threads` uses one for each open connection.
//!
//! With one thread every mode does the same in the same order, so that all results compare. With
//! several, events run together that did so in the recording (`order`). Results of transactions
//! that raced (`races`) are counted apart.
//!
//! The replay leaves out statements that SQLite refused when they were recorded, for a lock or
//! because memory or space ran out. The program tried again, and that is in the trace too.

mod again;
mod files;
mod one;
mod order;
mod races;
mod run;
mod threads;

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use onewrite_record::event::{Event, When};
use onewrite_workload::latency::Latencies;
use onewrite_workload::mode::{Mode, Synchronous};

use crate::contents::Contents;
use crate::results::Comparison;
use crate::sqlite::{Connection, Statement};
use again::Begun;
pub use files::{FIRST, Files};
pub use races::Raced;

/// Events that may wait for locks. With more of them the mode cannot play this trace.
const MOST_WAITING: usize = 100_000;

/// The speed of a replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Speed {
    /// One statement after the other.
    Full,
    /// Each event no earlier than its time since the first one.
    Recorded,
}

/// The threads of a replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Threads {
    /// One for all connections.
    One,
    /// One for each connection. Calls overlap only if they did so in the recording.
    Recorded,
}

/// The options of a replay.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// The journal mode.
    pub mode: &'a Mode,
    /// `PRAGMA synchronous` in place of the program's own; the mode may set it too.
    pub synchronous: Option<Synchronous>,
    /// The directory of the databases.
    pub dir: &'a Path,
    /// The speed.
    pub speed: Speed,
    /// The threads.
    pub threads: Threads,
    /// Set this to stop.
    pub stop: &'a AtomicBool,
    /// Counts events as they are played.
    pub done: &'a AtomicU64,
}

/// The outcome of a replay, apart from results.
#[derive(Debug, Default)]
pub struct Played {
    /// From the first event to the last.
    pub elapsed: Duration,
    /// Runs of statements, including those of scripts.
    pub statements: u64,
    /// Transactions that wrote something.
    pub commits: u64,
    /// Latencies of the calls that committed.
    pub latencies: Latencies,
    /// Runs left out because SQLite refused them when they were recorded.
    pub refused_when_recorded: u64,
    /// Statements left out because they set what a replay sets itself.
    pub replaced: u64,
    /// Runs that waited for another connection's lock.
    pub waited: u64,
    /// Runs after which the connection was outside a transaction, or within one, unlike when
    /// recorded.
    pub other_transactions: u64,
    /// The reason why the trace could not be played to its end.
    pub stuck: Option<String>,
    /// Transactions that were refused for their old snapshot, rolled back, and tried again.
    pub tried_again: u64,
    /// With several threads.
    pub together: Option<Together>,
}

/// The counts of several threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Together {
    /// Threads: as many as connections were open at once.
    pub threads: u64,
    /// Runs of statements during which another connection's event ran.
    pub overlapped: u64,
    /// Recorded runs of statements of transactions that raced.
    pub raced: u64,
    /// Events that began before one that had returned before them when recorded: that one waited
    /// for a lock, and nothing else could go on.
    pub passed: u64,
    /// Events that the trace has too late to keep their place in the order.
    pub late: u64,
    /// Times that a transaction was rolled back and tried again, because another one had committed
    /// after its snapshot.
    pub tried_again: u64,
}

impl Played {
    /// Adds what another thread played.
    fn merge(&mut self, other: &Self) {
        self.statements += other.statements;
        self.commits += other.commits;
        self.latencies.add(&other.latencies);
        self.refused_when_recorded += other.refused_when_recorded;
        self.replaced += other.replaced;
        self.other_transactions += other.other_transactions;
        self.tried_again += other.tried_again;
    }
}

/// A connection or statement: its process and its number there.
type Key = (u64, u64);

/// An event that is played, or waits.
#[derive(Debug)]
struct Job {
    ordinal: u64,
    process: u64,
    event: Event,
    /// Of a script: the part that has been played.
    part: Part,
    counted: bool,
    /// Its transaction, where several threads play.
    raced: Option<Raced>,
}

impl Job {
    fn new(ordinal: u64, process: u64, event: Event) -> Self {
        Self {
            ordinal,
            process,
            event,
            part: Part::default(),
            counted: false,
            raced: None,
        }
    }
}

/// The progress of a script.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    offset: usize,
    rows: onewrite_record::rows::Rows,
    /// Statements that were counted.
    statements: u64,
    /// Where the present transaction began, if it began in this event.
    beginning: Option<Beginning>,
}

/// The part of a script before a transaction, as in [`Part`].
#[derive(Clone, Copy, Debug)]
struct Beginning {
    offset: usize,
    rows: onewrite_record::rows::Rows,
    statements: u64,
}

impl Part {
    /// Where the next statement begins.
    fn here(&self) -> Beginning {
        Beginning {
            offset: self.offset,
            rows: self.rows,
            statements: self.statements,
        }
    }
}

impl From<Beginning> for Part {
    fn from(before: Beginning) -> Self {
        Self {
            offset: before.offset,
            rows: before.rows,
            statements: before.statements,
            beginning: None,
        }
    }
}

struct Opened {
    connection: Connection,
    /// The path as recorded; empty without a file.
    path: Vec<u8>,
    writable: bool,
    /// The mode is in force on this connection.
    in_mode: bool,
}

struct Prepared {
    statement: Option<Statement>,
    /// The reason why there is none.
    failure: Option<crate::sqlite::Failure>,
    connection: Key,
    sql: Vec<u8>,
    kind: Kind,
    rows: onewrite_record::rows::Rows,
    /// Its run was left out.
    skipping: bool,
}

/// The role of a statement in a replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Played and compared.
    Ordinary,
    /// Played; its answer depends on the file or the machine.
    OfTheFile,
    /// Not played: the replay sets this itself.
    Replaced,
    /// Names a file.
    Attach,
}

/// Whether an event was played.
enum Step {
    Done,
    /// It found a lock.
    Locked,
}

/// Plays events on the connections of one thread.
struct Player<'a> {
    options: Options<'a>,
    files: Arc<Files<'a>>,
    comparison: Comparison<'a>,
    played: Played,
    connections: HashMap<Key, Opened>,
    statements: HashMap<Key, Prepared>,
    /// Paths that the next ATTACH of a connection names.
    attach: HashMap<Key, VecDeque<Vec<u8>>>,
    /// The transaction of the present event.
    raced: Option<Raced>,
    /// Transactions that may have to be played again, by connection. With several threads.
    begun: HashMap<Key, Begun>,
    /// An event is played again, and its result is not compared.
    is_again: bool,
    /// Waits for a lock that a call finds. Without it the event is given back.
    patience: Option<Rc<dyn Fn() -> bool>>,
}

impl<'a> Player<'a> {
    fn new(options: Options<'a>, files: Arc<Files<'a>>, comparison: Comparison<'a>) -> Self {
        Self {
            options,
            files,
            comparison,
            played: Played::default(),
            connections: HashMap::new(),
            statements: HashMap::new(),
            attach: HashMap::new(),
            raced: None,
            begun: HashMap::new(),
            is_again: false,
            patience: None,
        }
    }

    /// Closes every connection.
    fn finish(self) -> (Played, Comparison<'a>) {
        drop(self.statements);
        drop(self.connections);
        (self.played, self.comparison)
    }

    /// The text of an event's statement, for a message.
    fn describe(&self, job: &Job) -> String {
        let text = match &job.event {
            Event::Exec { sql, .. } | Event::Prepare { sql, .. } => {
                String::from_utf8_lossy(sql).into_owned()
            }
            Event::Run { statement, .. } | Event::More { statement, .. } => self
                .statements
                .get(&(job.process, *statement))
                .map_or_else(String::new, |one| {
                    String::from_utf8_lossy(&one.sql).into_owned()
                }),
            other => format!("{other:?}"),
        };
        text.chars().take(120).collect()
    }
}

/// The outcome of a replay: what was played, its results, and the databases.
pub type Outcome<'a> = (Played, Comparison<'a>, Arc<Files<'a>>);

/// The next event of a trace; `None` at its end.
pub type Next<'n> = &'n mut dyn FnMut() -> Result<Option<Event>, String>;

/// Plays a trace.
pub struct Engine<'a> {
    options: Options<'a>,
    files: Arc<Files<'a>>,
    comparison: Comparison<'a>,
}

impl<'a> Engine<'a> {
    /// Lays the starting files out in the directory, under the mode.
    ///
    /// # Errors
    /// One of them cannot enter the mode, or the directory cannot be written.
    pub fn new(
        options: Options<'a>,
        contents: &'a Contents,
        comparison: Comparison<'a>,
    ) -> Result<Self, String> {
        Ok(Self {
            options,
            files: Arc::new(Files::lay_out(options, contents)?),
            comparison,
        })
    }

    /// Plays all events.
    ///
    /// # Errors
    /// A database cannot enter the mode, or the machine refuses something.
    pub fn play(self, next: Next<'_>) -> Result<Outcome<'a>, String> {
        let player = Player::new(self.options, Arc::clone(&self.files), self.comparison);
        let (played, comparison) = match self.options.threads {
            Threads::One => one::play(player, next)?,
            Threads::Recorded => threads::play(player, next)?,
        };
        Ok((played, comparison, self.files))
    }
}

/// The beginning of a replay, and the recorded time of its first event.
#[derive(Default)]
struct Pace(OnceLock<(Instant, u64)>);

impl Pace {
    /// Begins with the first event, and waits for the time of the others where `speed` says it.
    fn wait_for(&self, at: u64, speed: Speed, stop: &dyn Fn() -> bool) {
        let (began, first) = *self.0.get_or_init(|| (Instant::now(), at));
        if speed == Speed::Recorded {
            let due = Duration::from_nanos(at.saturating_sub(first));
            // In pieces, so that the replay can be stopped.
            while let Some(left) = due.checked_sub(began.elapsed()) {
                if left.is_zero() || stop() {
                    return;
                }
                std::thread::sleep(left.min(Duration::from_millis(100)));
            }
        }
    }

    fn elapsed(&self) -> Duration {
        let began = self.0.get();
        began.map_or(Duration::ZERO, |(began, _)| began.elapsed())
    }
}

/// The connections of statements.
#[derive(Default)]
struct Owners(HashMap<Key, Key>);

impl Owners {
    /// The connection that an event must stay in order with.
    fn line(&mut self, process: u64, event: &Event) -> Option<Key> {
        let own = |number: u64| (process, number);
        match event {
            Event::Open { connection, .. }
            | Event::Close { connection, .. }
            | Event::Exec { connection, .. }
            | Event::Attach { connection, .. } => Some(own(*connection)),
            Event::Prepare {
                connection,
                statement,
                ..
            } => {
                self.0.insert(own(*statement), own(*connection));
                Some(own(*connection))
            }
            Event::Run { statement, .. } | Event::More { statement, .. } => {
                self.0.get(&own(*statement)).copied()
            }
            Event::Finalize { statement } => self.0.remove(&own(*statement)),
            _ => None,
        }
    }

    /// Forgets a statement that is not prepared after all.
    fn forget(&mut self, process: u64, event: &Event) {
        if let Event::Prepare { statement, .. } = event {
            self.0.remove(&(process, *statement));
        }
    }
}

/// The time at which an event was recorded.
fn time_of(event: &Event) -> Option<u64> {
    match event {
        Event::Open { at, .. } | Event::Close { at, .. } | Event::Prepare { at, .. } => Some(*at),
        _ => when_of(event).map(|when| when.at),
    }
}

/// The time and the thread of a run.
fn when_of(event: &Event) -> Option<&When> {
    match event {
        Event::Run { when, .. } | Event::More { when, .. } | Event::Exec { when, .. } => Some(when),
        _ => None,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts an event as played.
fn count(options: &Options<'_>) {
    options.done.fetch_add(1, Ordering::Relaxed);
}
