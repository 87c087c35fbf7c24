//! Plays a trace on one thread, in the order in which calls returned when it was recorded.
//!
//! One thread, so that every mode does the same in the same order and results can be compared. Where a
//! statement finds the database locked that was not when it was recorded (a thread's COMMIT is recorded
//! a moment after another's BEGIN went through; a reader blocks a writer in a rollback journal), its
//! connection waits: the events of the others go on, and its own keep their order. What was refused
//! when it was recorded, for a lock or for want of memory or space, is left out: the program tried again,
//! and that is in the trace too.

mod files;
mod run;

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onewrite_record::event::{Event, Outcome, When};
use onewrite_workload::latency::Latencies;
use onewrite_workload::mode::{Mode, Synchronous};

use crate::results::Comparison;
use crate::sqlite::{Connection, Statement};
use crate::stage::Staged;
pub use files::{FIRST, Files};

/// Events that may wait for locks: more of them are a mode that cannot play this trace.
const MOST_WAITING: usize = 100_000;

/// How fast.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Speed {
    /// One statement after the other.
    Full,
    /// Not before its time since the first one.
    Recorded,
}

/// How a trace is to be played.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// The journal mode.
    pub mode: &'a Mode,
    /// `PRAGMA synchronous` in place of what the program says; the mode may say it too.
    pub synchronous: Option<Synchronous>,
    /// Where the databases are to be.
    pub dir: &'a Path,
    /// How fast.
    pub speed: Speed,
    /// Set to stop.
    pub stop: &'a AtomicBool,
    /// Counts events as they are played.
    pub done: &'a AtomicU64,
}

/// What came of it, beside results.
#[derive(Debug, Default)]
pub struct Played {
    /// From the first event to the last.
    pub elapsed: Duration,
    /// Runs of statements, those of scripts included.
    pub statements: u64,
    /// Transactions that wrote something.
    pub commits: u64,
    /// Of the calls that committed.
    pub latencies: Option<Latencies>,
    /// Runs that were left out because SQLite had refused them when they were recorded.
    pub refused_when_recorded: u64,
    /// Statements left out: they set what a replay sets itself.
    pub replaced: u64,
    /// Runs that had to wait for another connection's lock.
    pub waited: u64,
    /// Runs whose connection was outside a transaction, or within one, where it was not when recorded.
    pub other_transactions: u64,
    /// Why the trace could not be played to its end.
    pub stuck: Option<String>,
}

/// A connection or statement: its process and its number there.
type Key = (u64, u64);

/// An event that is played, or waits.
#[derive(Debug)]
struct Job {
    ordinal: u64,
    process: u64,
    event: Event,
    /// Of a script: what has been done of it.
    part: Part,
    counted: bool,
}

/// How far a script has come.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    offset: usize,
    rows: onewrite_record::rows::Rows,
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
    /// Why there is none.
    failure: Option<crate::sqlite::Failure>,
    connection: Key,
    sql: Vec<u8>,
    kind: Kind,
    rows: onewrite_record::rows::Rows,
    /// Its run was left out.
    skipping: bool,
}

/// What a statement is to a replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Played and compared.
    Ordinary,
    /// Played; what it returns is the file's or the machine's.
    OfTheFile,
    /// Not played: the replay says it itself.
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

/// Plays a trace, event by event.
pub struct Engine<'a> {
    options: Options<'a>,
    files: Files<'a>,
    comparison: Comparison<'a>,
    played: Played,
    latencies: Latencies,
    connections: HashMap<Key, Opened>,
    statements: HashMap<Key, Prepared>,
    /// Connections of statements, of those that wait to be prepared too.
    owners: HashMap<Key, Key>,
    /// Paths that the next ATTACH of a connection names.
    attach: HashMap<Key, VecDeque<Vec<u8>>>,
    waiting: HashMap<Key, VecDeque<Job>>,
    waiting_count: usize,
    process: u64,
    ordinal: u64,
    began: Option<(Instant, u64)>,
}

impl<'a> Engine<'a> {
    /// Lays the starting files out in the directory, under the mode.
    ///
    /// # Errors
    /// The mode cannot be had for one of them, or the directory not written.
    pub fn new(
        options: Options<'a>,
        staged: &'a Staged,
        comparison: Comparison<'a>,
    ) -> Result<Self, String> {
        Ok(Self {
            options,
            files: Files::lay_out(options, staged)?,
            comparison,
            played: Played::default(),
            latencies: Latencies::new(),
            connections: HashMap::new(),
            statements: HashMap::new(),
            owners: HashMap::new(),
            attach: HashMap::new(),
            waiting: HashMap::new(),
            waiting_count: 0,
            process: 0,
            ordinal: 0,
            began: None,
        })
    }

    /// Plays the next event.
    ///
    /// # Errors
    /// The mode cannot be had, or the machine refuses something.
    pub fn play(&mut self, event: Event) -> Result<(), String> {
        self.ordinal += 1;
        self.options.done.store(self.ordinal, Ordering::Relaxed);
        match event {
            Event::Process { number, .. } | Event::From(number) => {
                self.process = number;
                return Ok(());
            }
            Event::Database { path, .. } => return self.files.begins(&path),
            _ => {}
        }
        if let Some(at) = time_of(&event) {
            self.wait_for(at);
        }
        let job = Job {
            ordinal: self.ordinal,
            process: self.process,
            event,
            part: Part::default(),
            counted: false,
        };
        self.submit(job)
    }

    /// Plays what still waits, closes every connection and returns what came of it.
    ///
    /// # Errors
    /// As for [`Engine::play`].
    pub fn finish(mut self) -> Result<(Played, Comparison<'a>, Files<'a>), String> {
        self.retry()?;
        if self.waiting_count > 0 && self.played.stuck.is_none() {
            self.played.stuck = Some(self.describe_waiting());
        }
        self.played.elapsed = self
            .began
            .map_or(Duration::ZERO, |(began, _)| began.elapsed());
        self.statements.clear();
        self.connections.clear();
        self.played.latencies = Some(self.latencies);
        Ok((self.played, self.comparison, self.files))
    }

    /// Whether to stop playing: a lock that nothing will release.
    pub fn is_stuck(&self) -> bool {
        self.played.stuck.is_some()
    }

    fn wait_for(&mut self, at: u64) {
        let (began, first) = *self.began.get_or_insert((Instant::now(), at));
        if self.options.speed == Speed::Recorded {
            let due = Duration::from_nanos(at.saturating_sub(first));
            // Piece by piece, so that it can be stopped.
            while let Some(left) = due.checked_sub(began.elapsed()) {
                if left.is_zero() || self.options.stop.load(Ordering::Relaxed) {
                    return;
                }
                std::thread::sleep(left.min(Duration::from_millis(100)));
            }
        }
    }

    /// The connection whose order an event keeps.
    fn line(&mut self, job: &Job) -> Option<Key> {
        let own = |number: u64| (job.process, number);
        match &job.event {
            Event::Open { connection, .. }
            | Event::Close { connection, .. }
            | Event::Exec { connection, .. }
            | Event::Attach { connection, .. } => Some(own(*connection)),
            Event::Prepare {
                connection,
                statement,
                ..
            } => {
                self.owners.insert(own(*statement), own(*connection));
                Some(own(*connection))
            }
            Event::Run { statement, .. }
            | Event::More { statement, .. }
            | Event::Finalize { statement } => self.owners.get(&own(*statement)).copied(),
            _ => None,
        }
    }

    fn submit(&mut self, job: Job) -> Result<(), String> {
        let Some(line) = self.line(&job) else {
            return Ok(());
        };
        if let Some(queue) = self.waiting.get_mut(&line) {
            queue.push_back(job);
            self.waiting_count += 1;
            if self.waiting_count > MOST_WAITING {
                self.played.stuck = Some(self.describe_waiting());
            }
            return Ok(());
        }
        let ends = may_release(&job.event);
        if let Some(job) = self.attempt(job)? {
            self.played.waited += 1;
            self.waiting.insert(line, VecDeque::from([job]));
            self.waiting_count += 1;
            return Ok(());
        }
        match ends && self.waiting_count > 0 {
            true => self.retry(),
            false => Ok(()),
        }
    }

    /// Plays a job; gives it back where it found a lock.
    fn attempt(&mut self, mut job: Job) -> Result<Option<Job>, String> {
        match self.execute(&mut job)? {
            Step::Done => Ok(None),
            Step::Locked => Ok(Some(job)),
        }
    }

    /// Lets those who wait try again, until none gets on.
    fn retry(&mut self) -> Result<(), String> {
        loop {
            let mut moved = false;
            let mut lines: Vec<(u64, Key)> = self
                .waiting
                .iter()
                .filter_map(|(line, queue)| Some((queue.front()?.ordinal, *line)))
                .collect();
            lines.sort_unstable();
            for (_, line) in lines {
                moved |= self.retry_line(line)?;
            }
            if !moved {
                return Ok(());
            }
        }
    }

    fn retry_line(&mut self, line: Key) -> Result<bool, String> {
        let mut moved = false;
        while let Some(job) = self.waiting.get_mut(&line).and_then(VecDeque::pop_front) {
            if let Some(job) = self.attempt(job)? {
                if let Some(queue) = self.waiting.get_mut(&line) {
                    queue.push_front(job);
                }
                return Ok(moved);
            }
            self.waiting_count -= 1;
            moved = true;
        }
        self.waiting.remove(&line);
        Ok(moved)
    }

    fn describe_waiting(&self) -> String {
        let first = self
            .waiting
            .values()
            .filter_map(VecDeque::front)
            .min_by_key(|job| job.ordinal);
        let text = first.map_or_else(String::new, |job| match &job.event {
            Event::Exec { sql, .. } => String::from_utf8_lossy(sql).into_owned(),
            Event::Run { statement, .. } => self
                .statements
                .get(&(job.process, *statement))
                .map_or_else(String::new, |one| {
                    String::from_utf8_lossy(&one.sql).into_owned()
                }),
            other => format!("{other:?}"),
        });
        let text: String = text.chars().take(120).collect();
        format!(
            "{} statements wait for a lock that nothing releases in this mode; the first is: {text}",
            self.waiting_count
        )
    }
}

/// When an event was recorded.
fn time_of(event: &Event) -> Option<u64> {
    match event {
        Event::Open { at, .. } | Event::Close { at, .. } | Event::Prepare { at, .. } => Some(*at),
        Event::Run {
            when: When { at, .. },
            ..
        }
        | Event::More {
            when: When { at, .. },
            ..
        }
        | Event::Exec {
            when: When { at, .. },
            ..
        } => Some(*at),
        _ => None,
    }
}

/// Whether somebody may get on after it.
fn may_release(event: &Event) -> bool {
    let ends =
        |outcome: &Outcome| outcome.code != onewrite_record::event::ROW && outcome.autocommit;
    match event {
        Event::Run { outcome, .. } | Event::More { outcome, .. } | Event::Exec { outcome, .. } => {
            ends(outcome)
        }
        Event::Close { .. } | Event::Finalize { .. } => true,
        _ => false,
    }
}
