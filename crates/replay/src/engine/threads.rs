//! Plays a trace on as many threads as connections were open at once.
//!
//! The calling thread reads the trace, some way ahead. A connection is opened, used and closed by
//! one thread, which may have another connection afterwards. Whichever thread ends an event starts
//! those that may begin then. A call that finds a lock waits in SQLite's busy handler, or is made
//! again where SQLite does not ask its handler. A transaction that SQLite refuses for its old
//! snapshot is played again from its beginning (`again`). If all threads wait for locks for `PATIENCE`, the
//! replay ends with the text of a waiting statement.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::atomic;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use onewrite_record::event::Event;

use super::again::{Again, MOST_ATTEMPTS};
use super::order::{Interval, Order};
use super::races::{Effect, Raced, Races, effect_of};
use super::run::was_refused;
use super::{
    Files, Job, Key, MOST_WAITING, Next, Options, Owners, Pace, Played, Player, Speed, Step,
    Together, count, lock, time_of, when_of,
};
use crate::results::Comparison;

/// The longest time in which every thread may wait for a lock.
const PATIENCE: Duration = Duration::from_secs(10);

/// The time until a call looks for a lock again. A flush of a device takes as long.
const TRY_EVERY: Duration = Duration::from_millis(1);

/// The time between two looks at whether to stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Plays all events.
///
/// # Errors
/// A database cannot enter the mode, or the machine refuses something.
pub(super) fn play<'a>(
    player: Player<'a>,
    next: Next<'_>,
) -> Result<(Played, Comparison<'a>), String> {
    let shared = Arc::new(Shared {
        state: Mutex::default(),
        reader: Condvar::new(),
        waiters: Condvar::new(),
        pace: Pace::default(),
        speed: player.options.speed,
    });
    std::thread::scope(|scope| {
        let mut crew = Crew {
            player,
            scope,
            shared,
            threads: Vec::new(),
        };
        let races = Reader::new(&mut crew).read_all(next);
        crew.finish(races.statements)
    })
}

/// Shared by the threads.
struct Shared {
    state: Mutex<State>,
    /// The reader waits here.
    reader: Condvar,
    /// Calls that found a lock wait here.
    waiters: Condvar,
    pace: Pace,
    speed: Speed,
}

type Desk = Sender<(Key, Job)>;

#[derive(Default)]
struct State {
    order: Order<Job>,
    /// Threads of connections.
    desks: HashMap<Key, Desk>,
    /// Threads without a connection.
    free: Vec<Desk>,
    /// First events of connections, for which there is no thread yet.
    unmanned: Vec<(Key, Job)>,
    /// Runs at this moment, and whether another one ran meanwhile.
    runs: HashMap<Key, bool>,
    overlapped: u64,
    /// Since when every event has waited for a lock.
    still_since: Option<Instant>,
    /// The threads end.
    is_over: bool,
    failure: Option<String>,
    stuck: Option<String>,
}

impl State {
    fn fail(&mut self, error: String) {
        if !self.is_over {
            (self.is_over, self.failure) = (true, Some(error));
        }
    }

    fn begins(&mut self, key: Key, event: &Event) {
        if when_of(event).is_none() {
            return;
        }
        let mut news = u64::from(!self.runs.is_empty());
        for overlaps in self.runs.values_mut() {
            news += u64::from(!std::mem::replace(overlaps, true));
        }
        self.overlapped += news;
        self.runs.insert(key, !self.runs.is_empty());
    }
}

impl Shared {
    /// Begins what may begin.
    fn start(&self, state: &mut State) {
        while let Some((key, job)) = state.order.next() {
            state.still_since = None;
            state.begins(key, &job.event);
            let desk = match state.desks.get(&key) {
                Some(desk) => Some(desk.clone()),
                None => state.free.pop(),
            };
            match desk {
                Some(desk) => {
                    // A thread that is gone has failed, which the reader finds.
                    let _ = desk.send((key, job));
                    state.desks.insert(key, desk);
                }
                None => state.unmanned.push((key, job)),
            }
        }
        self.reader.notify_one();
    }

    /// An event is over. `is_last` where its connection is gone.
    fn complete(&self, key: Key, is_last: bool) {
        let mut state = lock(&self.state);
        state.order.complete(key);
        state.runs.remove(&key);
        state.still_since = None;
        if is_last && state.order.forget(key) {
            let desk = state.desks.remove(&key);
            state.free.extend(desk);
        }
        self.start(&mut state);
        self.waiters.notify_all();
    }

    /// Waits for a lock a moment. Returns whether to look for it again.
    fn wait(&self, key: Key) -> bool {
        let mut state = lock(&self.state);
        let is_still = state.order.waits(key);
        self.start(&mut state);
        if is_still {
            let since = *state.still_since.get_or_insert_with(Instant::now);
            if since.elapsed() > PATIENCE {
                return false;
            }
        }
        if state.is_over {
            return false;
        }
        let waited = self.waiters.wait_timeout(state, TRY_EVERY);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.order.tries(key);
        !state.is_over
    }

    fn is_over(&self) -> bool {
        lock(&self.state).is_over
    }
}

/// The threads, and the parts from which each is made.
struct Crew<'scope, 'env, 'a> {
    player: Player<'a>,
    scope: &'scope Scope<'scope, 'env>,
    shared: Arc<Shared>,
    threads: Vec<ScopedJoinHandle<'scope, (Played, Comparison<'a>)>>,
}

impl<'scope, 'env, 'a: 'scope> Crew<'scope, 'env, 'a> {
    /// Makes a thread for an event.
    fn hire(&mut self, key: Key, job: Job) -> Result<(), String> {
        let (desk, jobs) = channel();
        let (options, files) = (self.player.options, Arc::clone(&self.player.files));
        let (comparison, shared) = (self.player.comparison.fork(), Arc::clone(&self.shared));
        let thread = Builder::new()
            .name("replay".to_owned())
            .spawn_scoped(self.scope, move || {
                work(options, files, comparison, &shared, &jobs)
            })
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        self.threads.push(thread);
        // The desk comes first: the event may be over at once, and the connection's next one follows it.
        lock(&self.shared.state).desks.insert(key, desk.clone());
        // It receives, or has failed, which the reader finds.
        let _ = desk.send((key, job));
        Ok(())
    }

    /// Ends the threads and adds up what they did.
    fn finish(self, raced: u64) -> Result<(Played, Comparison<'a>), String> {
        let elapsed = self.shared.pace.elapsed();
        let mut state = lock(&self.shared.state);
        state.is_over = true;
        state.desks.clear();
        state.free.clear();
        self.shared.waiters.notify_all();
        drop(state);
        let mut player = self.player;
        player.played.elapsed = elapsed;
        let threads = self.threads.len() as u64;
        for thread in self.threads {
            let (played, comparison) = thread
                .join()
                .map_err(|_| "a thread of the replay ended early".to_owned())?;
            player.played.merge(&played);
            player.comparison.merge(comparison);
        }
        let mut state = lock(&self.shared.state);
        if let Some(failure) = state.failure.take() {
            return Err(failure);
        }
        player.played.stuck = state.stuck.take();
        player.played.waited = state.order.waited;
        player.played.together = Some(Together {
            threads,
            overlapped: state.overlapped,
            raced,
            passed: state.order.passed,
            late: state.order.late,
            tried_again: player.played.tried_again,
        });
        Ok(player.finish())
    }
}

/// Plays the events of one connection after the other.
fn work<'a>(
    options: Options<'a>,
    files: Arc<Files<'a>>,
    comparison: Comparison<'a>,
    shared: &Arc<Shared>,
    jobs: &Receiver<(Key, Job)>,
) -> (Played, Comparison<'a>) {
    let mut player = Player::new(options, files, comparison);
    let line = Rc::new(Cell::new((0, 0)));
    let (waiting, known) = (Arc::clone(shared), Rc::clone(&line));
    player.patience = Some(Rc::new(move || waiting.wait(known.get())));
    for (key, mut job) in jobs {
        line.set(key);
        if let Some(at) = time_of(&job.event) {
            let stop = || shared.is_over();
            shared.pace.wait_for(at, shared.speed, &stop);
        }
        if let Err(end) = play_one(&mut player, key, &mut job, shared) {
            let mut state = lock(&shared.state);
            match end {
                End::Failed(error) => state.fail(error),
                End::Locked if !state.is_over => {
                    let text = player.describe(&job);
                    let what = "waits for a lock that nothing releases in this mode";
                    (state.is_over, state.stuck) = (true, Some(format!("{what}: {text}")));
                }
                End::Locked => {}
                End::Refused if !state.is_over => {
                    let text = player.describe(&job);
                    let what = format!("was refused {MOST_ATTEMPTS} times for an old snapshot");
                    (state.is_over, state.stuck) = (true, Some(format!("{what}: {text}")));
                }
                End::Refused => {}
            }
            shared.reader.notify_one();
            shared.waiters.notify_all();
            break;
        }
        count(&player.options);
        let bytes = bytes_of(&job.event);
        player.keep(key, job, bytes);
        let is_last = player.connections.is_empty() && player.statements.is_empty();
        shared.complete(key, is_last);
    }
    player.finish()
}

/// The reason why a thread ends early.
enum End {
    Failed(String),
    Locked,
    /// Its transaction was refused too often.
    Refused,
}

fn play_one(player: &mut Player<'_>, key: Key, job: &mut Job, shared: &Shared) -> Result<(), End> {
    loop {
        match player.execute(job).map_err(End::Failed)? {
            Step::Done => return Ok(()),
            Step::Locked if player.is_refused(key, job) => {
                play_again(player, key, job, shared)?;
            }
            Step::Locked if shared.wait(key) => {}
            Step::Locked => return Err(End::Locked),
        }
    }
}

/// Rolls the transaction of an event back, and plays it again up to this event.
fn play_again(
    player: &mut Player<'_>,
    key: Key,
    job: &mut Job,
    shared: &Shared,
) -> Result<(), End> {
    let Again::Jobs(mut jobs) = player.begin_again(key, job).map_err(End::Failed)? else {
        return Err(End::Refused);
    };
    if shared.is_over() {
        return Err(End::Locked);
    }
    // These statements were counted when they were played first.
    let played = std::mem::take(&mut player.played);
    player.is_again = true;
    let done = jobs.iter_mut().try_for_each(|before| {
        let part = before.part;
        play_one(player, key, before, shared)?;
        before.part = part;
        Ok(())
    });
    player.is_again = false;
    player.played = played;
    player.keep_again(key, jobs);
    done
}

/// The next thing that the reader does.
enum Todo {
    Read,
    Hire(Vec<(Key, Job)>),
    /// All events so far are over.
    Rest,
    /// The replay is over.
    Stop,
}

/// Reads the trace.
struct Reader<'r, 'scope, 'env, 'a> {
    crew: &'r mut Crew<'scope, 'env, 'a>,
    owners: Owners,
    open: HashSet<Key>,
    /// By statement.
    effects: HashMap<Key, Effect>,
    races: Races,
    process: u64,
    ordinal: u64,
}

impl<'r, 'scope, 'env, 'a: 'scope> Reader<'r, 'scope, 'env, 'a> {
    fn new(crew: &'r mut Crew<'scope, 'env, 'a>) -> Self {
        Self {
            crew,
            owners: Owners::default(),
            open: HashSet::new(),
            effects: HashMap::new(),
            races: Races::default(),
            process: 0,
            ordinal: 0,
        }
    }

    /// Reads until the end, or until a thread fails, and waits until all events are over.
    fn read_all(mut self, next: Next<'_>) -> Races {
        if let Err(error) = self.read_until_end(next) {
            lock(&self.crew.shared.state).fail(error);
        }
        self.races
    }

    fn read_until_end(&mut self, next: Next<'_>) -> Result<(), String> {
        while self.waits_for(false)? {
            let Some(event) = next()? else {
                self.rest()?;
                return Ok(());
            };
            self.take(event)?;
        }
        Ok(())
    }

    /// Waits until all events so far are over.
    fn rest(&mut self) -> Result<bool, String> {
        self.crew.shared.end_reading();
        self.waits_for(true)
    }

    /// Waits until there is room for another event, or until all are over. Returns false where the
    /// replay is over.
    fn waits_for(&mut self, all: bool) -> Result<bool, String> {
        loop {
            if self
                .crew
                .player
                .options
                .stop
                .load(atomic::Ordering::Relaxed)
            {
                return Err("stopped".to_owned());
            }
            match self.crew.shared.todo(all) {
                Some(Todo::Hire(jobs)) => {
                    for (key, job) in jobs {
                        self.crew.hire(key, job)?;
                    }
                }
                Some(Todo::Read | Todo::Rest) => return Ok(true),
                Some(Todo::Stop) => return Ok(false),
                None if self.crew.has_lost_a_thread() => {
                    return Err("a thread of the replay ended early".to_owned());
                }
                None => {}
            }
        }
    }

    /// Takes the next event.
    fn take(&mut self, event: Event) -> Result<(), String> {
        self.ordinal += 1;
        match &event {
            Event::Process { number, .. } | Event::From(number) => self.process = *number,
            Event::Database { path, .. } => {
                // Another file of this name: all uses of the last one end first.
                if !self.crew.player.files.has_begun(path) || self.rest()? {
                    self.crew.player.files.begins(path)?;
                }
            }
            _ => {
                if let Some(line) = self.line(&event) {
                    self.submit(line, event);
                    return Ok(());
                }
            }
        }
        count(&self.crew.player.options);
        Ok(())
    }

    /// The connection of an event, if it was opened.
    fn line(&mut self, event: &Event) -> Option<Key> {
        let line = self.owners.line(self.process, event)?;
        match event {
            Event::Open { .. } => {
                self.open.insert(line);
            }
            Event::Close { .. } if self.open.remove(&line) => {}
            // Statements outlive their connection.
            Event::Run { .. } | Event::More { .. } | Event::Finalize { .. } => {}
            _ if self.open.contains(&line) => {}
            _ => {
                self.owners.forget(self.process, event);
                return None;
            }
        }
        Some(line)
    }

    fn submit(&mut self, line: Key, event: Event) {
        let when = interval_of(&event);
        let mut job = Job::new(self.ordinal, self.process, event);
        job.raced = self.race(line, &job.event, when);
        let bytes = bytes_of(&job.event);
        let shared = &self.crew.shared;
        let mut state = lock(&shared.state);
        state.order.add(line, self.ordinal, when, bytes, job);
        shared.start(&mut state);
    }

    /// Notes what an event means for races.
    fn race(&mut self, line: Key, event: &Event, when: Option<Interval>) -> Option<Raced> {
        let own = |number: u64| (self.process, number);
        match event {
            Event::Open { path, .. } | Event::Attach { path, .. } => self.races.uses(line, path),
            Event::Close { .. } => self.races.forget(line),
            Event::Prepare { statement, sql, .. } => {
                self.effects.insert(own(*statement), effect_of(sql));
            }
            Event::Finalize { statement } => {
                self.effects.remove(&own(*statement));
            }
            Event::Run {
                statement, outcome, ..
            } if !was_refused(outcome) => {
                let effect = self.effect(own(*statement));
                let races = &mut self.races;
                return Some(races.run(line, *statement, effect, when?, outcome));
            }
            Event::More {
                statement, outcome, ..
            } => {
                let effect = self.effect(own(*statement));
                let races = &mut self.races;
                return Some(races.goes_on(line, *statement, effect, when?, outcome));
            }
            Event::Exec { sql, outcome, .. } if !was_refused(outcome) => {
                let effect = effect_of(sql);
                return Some(self.races.run(line, 0, effect, when?, outcome));
            }
            _ => {}
        }
        None
    }

    fn effect(&self, statement: Key) -> Effect {
        self.effects
            .get(&statement)
            .copied()
            .unwrap_or(Effect::None)
    }
}

impl Crew<'_, '_, '_> {
    /// A thread ended that should receive events.
    fn has_lost_a_thread(&self) -> bool {
        self.threads.iter().any(ScopedJoinHandle::is_finished) && !self.shared.is_over()
    }
}

impl Shared {
    /// What the reader does next; `None` if there was nothing for a while.
    fn todo(&self, all: bool) -> Option<Todo> {
        let mut state = lock(&self.state);
        for _ in 0..2 {
            if state.order.aside() > MOST_WAITING {
                let what = format!("more than {MOST_WAITING} events wait for a lock");
                (state.is_over, state.stuck) = (true, Some(what));
            }
            if state.is_over {
                return Some(Todo::Stop);
            }
            if !state.unmanned.is_empty() {
                return Some(Todo::Hire(std::mem::take(&mut state.unmanned)));
            }
            if all && state.order.is_empty() {
                return Some(Todo::Rest);
            }
            if !all && state.order.has_room() {
                return Some(Todo::Read);
            }
            let waited = self.reader.wait_timeout(state, LOOK_EVERY);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        None
    }

    /// Nothing more is read before the events so far are over.
    fn end_reading(&self) {
        let mut state = lock(&self.state);
        state.order.end();
        self.start(&mut state);
    }
}

/// When an event began and returned. Of some only the beginning is known.
fn interval_of(event: &Event) -> Option<Interval> {
    let begin = time_of(event)?;
    let took = when_of(event).map_or(0, |when| when.took);
    let end = begin.saturating_add(took);
    Some(Interval { begin, end })
}

/// The bytes that an event keeps, about.
fn bytes_of(event: &Event) -> usize {
    use onewrite_record::event::Value;
    match event {
        Event::Prepare { sql, .. } | Event::Exec { sql, .. } => sql.len(),
        Event::Run { values, .. } => values
            .iter()
            .map(|value| match value {
                Value::Text(bytes) | Value::Blob(bytes) => bytes.len(),
                _ => size_of::<Value>(),
            })
            .sum(),
        _ => 0,
    }
}
