//! Plays a trace on one thread, in the order in which calls returned when it was recorded.
//!
//! With one thread every mode does the same in the same order, so that results compare. A statement
//! may find the database locked where it was not locked when recorded. For example, a thread's
//! COMMIT is recorded a moment after another's BEGIN went through, or a reader blocks a writer in a
//! rollback journal. Then its connection waits. The events of other connections go on, and its own
//! keep their order. The replay leaves out statements that SQLite refused when they were recorded,
//! for a lock or because memory or space ran out. The program tried again, and that is in the trace
//! too.

mod files;
mod run;

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onewrite_record::event::{Event, Outcome, When};
use onewrite_workload::latency::Latencies;
use onewrite_workload::mode::{Mode, Synchronous};

use crate::contents::Contents;
use crate::results::Comparison;
use crate::sqlite::{Connection, Statement};
pub use files::{FIRST, Files};

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
    pub latencies: Option<Latencies>,
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
}

/// The progress of a script.
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

/// Plays a trace, event by event.
pub struct Engine<'a> {
    options: Options<'a>,
    files: Files<'a>,
    comparison: Comparison<'a>,
    played: Played,
    latencies: Latencies,
    connections: HashMap<Key, Opened>,
    statements: HashMap<Key, Prepared>,
    /// Connections of statements, including statements that wait to be prepared.
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
    /// One of them cannot enter the mode, or the directory cannot be written.
    pub fn new(
        options: Options<'a>,
        contents: &'a Contents,
        comparison: Comparison<'a>,
    ) -> Result<Self, String> {
        Ok(Self {
            options,
            files: Files::lay_out(options, contents)?,
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
    /// A database cannot enter the mode, or the machine refuses something.
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

    /// Plays the events that still wait, closes every connection and returns the outcome.
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

    /// Whether to stop playing: nothing will release a lock.
    pub fn is_stuck(&self) -> bool {
        self.played.stuck.is_some()
    }

    fn wait_for(&mut self, at: u64) {
        let (began, first) = *self.began.get_or_insert((Instant::now(), at));
        if self.options.speed == Speed::Recorded {
            let due = Duration::from_nanos(at.saturating_sub(first));
            // In pieces, so that the replay can be stopped.
            while let Some(left) = due.checked_sub(began.elapsed()) {
                if left.is_zero() || self.options.stop.load(Ordering::Relaxed) {
                    return;
                }
                std::thread::sleep(left.min(Duration::from_millis(100)));
            }
        }
    }

    /// The connection that an event must stay in order with.
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

    /// Plays a job. Gives it back where it found a lock.
    fn attempt(&mut self, mut job: Job) -> Result<Option<Job>, String> {
        match self.execute(&mut job)? {
            Step::Done => Ok(None),
            Step::Locked => Ok(Some(job)),
        }
    }

    /// Lets waiting connections try again, until none advances.
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

/// The time at which an event was recorded.
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

/// Whether a waiting connection may advance after it.
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
