//! The connections and statements of this process, and the results of their runs.
//!
//! One mutex guards all of it, and is never held while SQLite works. Events are recorded in the
//! order in which calls returned. A run that returns many rows is recorded when it is over. Before
//! that, it is also recorded each time another event follows, with its number of rows so far. So a
//! replay steps it as far as the program had when it did something else.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use onewrite_record::event::{DONE, Event, Outcome, ROW, Value, When};
use onewrite_record::rows::{Row, Rows};

use crate::real::Real;
use crate::sink::{Sink, say};

thread_local! {
    /// The depth of SQLite calls on this thread: calls that SQLite itself makes are not the
    /// program's.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

/// Whether this call is the program's own, and not made by SQLite within another call.
pub fn is_outermost() -> bool {
    DEPTH.with(|depth| depth.get() == 0)
}

/// Calls SQLite.
pub fn within<T>(call: impl FnOnce() -> T) -> T {
    DEPTH.with(|depth| depth.set(depth.get() + 1));
    let result = call();
    DEPTH.with(|depth| depth.set(depth.get() - 1));
    result
}

/// Calls the program back.
pub fn outside<T>(call: impl FnOnce() -> T) -> T {
    let inside = DEPTH.with(|depth| depth.replace(0));
    let result = call();
    DEPTH.with(|depth| depth.set(inside));
    result
}

/// Nanoseconds since 1970.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

fn thread() -> u64 {
    THREAD.with(|thread| {
        if thread.get() == 0 {
            // SAFETY: it takes nothing.
            thread.set(unsafe { libc::gettid() } as u64);
        }
        thread.get()
    })
}

/// The state of this process.
pub struct State {
    sink: Sink,
    connections: HashMap<usize, Connection>,
    statements: HashMap<usize, Statement>,
    /// Statements with unrecorded rows.
    untold: HashSet<usize>,
    numbers: u64,
}

struct Connection {
    number: u64,
    real: &'static Real,
}

struct Statement {
    number: u64,
    connection: usize,
    real: &'static Real,
    attaches: Option<Vec<u8>>,
    values: Vec<Value>,
    run: Option<Run>,
}

struct Run {
    /// When the part began that is not told yet, its time inside SQLite, and its thread.
    when: When,
    rows: Rows,
    autocommit: bool,
    told: bool,
}

/// The content of the mutex.
enum Slot {
    /// Nothing has looked for a recorder yet.
    New,
    /// There is one.
    Recorded(Box<State>),
    /// There is none, or no longer.
    Off,
}

static STATE: AtomicPtr<Mutex<Slot>> = AtomicPtr::new(ptr::null_mut());

/// In a child of `fork`: the state belongs to the parent, and may stay locked for good.
extern "C" fn forked() {
    STATE.store(ptr::null_mut(), Ordering::Release);
    THREAD.with(|thread| thread.set(0));
}

fn state() -> &'static Mutex<Slot> {
    static AT_FORK: Once = Once::new();
    let known = STATE.load(Ordering::Acquire);
    // SAFETY: null, or a leaked box.
    if let Some(state) = unsafe { known.as_ref() } {
        return state;
    }
    AT_FORK.call_once(|| {
        // SAFETY: a function that takes nothing and is there as long as the process.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    });
    // The search for a recorder runs under the lock, so that one thread does it.
    let fresh = Box::into_raw(Box::new(Mutex::new(Slot::New)));
    let placed =
        STATE.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire);
    match placed {
        // SAFETY: leaked above.
        Ok(_) => unsafe { &*fresh },
        Err(other) => {
            // SAFETY: nothing has seen it; the other is a leaked box.
            unsafe {
                drop(Box::from_raw(fresh));
                &*other
            }
        }
    }
}

/// Runs `work` on the state, where there is a recorder. A panic in it ends the recording, not the
/// program.
pub fn with<T>(work: impl FnOnce(&mut State) -> T) -> Option<T> {
    let mut guard = state().lock().unwrap_or_else(PoisonError::into_inner);
    if matches!(*guard, Slot::New) {
        let sink = Sink::open();
        *guard = sink.map_or(Slot::Off, |sink| Slot::Recorded(Box::new(State::new(sink))));
    }
    let Slot::Recorded(state) = &mut *guard else {
        return None;
    };
    if !state.sink.is_open() {
        return None;
    }
    let result = catch_unwind(AssertUnwindSafe(|| work(state)));
    if result.is_err() {
        say("recording failed: nothing is recorded from here on");
        *guard = Slot::Off;
    }
    result.ok()
}

impl State {
    fn new(sink: Sink) -> Self {
        Self {
            sink,
            connections: HashMap::new(),
            statements: HashMap::new(),
            untold: HashSet::new(),
            numbers: 0,
        }
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// The SQLite of a connection.
    pub fn real_of_connection(&self, db: usize) -> Option<&'static Real> {
        self.connections.get(&db).map(|connection| connection.real)
    }

    /// The SQLite of a statement.
    pub fn real_of_statement(&self, statement: usize) -> Option<&'static Real> {
        self.statements
            .get(&statement)
            .map(|statement| statement.real)
    }

    /// The connection of a recorded statement.
    pub fn connection_of(&self, statement: usize) -> Option<usize> {
        self.statements
            .get(&statement)
            .map(|statement| statement.connection)
    }

    /// Records rows so far before the next event, unless that event is the statement's own.
    fn tell_untold(&mut self, except: usize) {
        let untold: Vec<usize> = self
            .untold
            .iter()
            .copied()
            .filter(|one| *one != except)
            .collect();
        for one in untold {
            self.tell(one, ROW);
        }
    }

    /// Records the result of a run.
    fn tell(&mut self, key: usize, code: u32) {
        self.untold.remove(&key);
        let Some(statement) = self.statements.get_mut(&key) else {
            return;
        };
        let Some(run) = &mut statement.run else {
            return;
        };
        let when = run.when;
        let outcome = Outcome {
            code,
            autocommit: run.autocommit,
            rows: Some(run.rows),
        };
        let event = match run.told {
            true => Event::More {
                when,
                statement: statement.number,
                outcome,
            },
            false => Event::Run {
                when,
                statement: statement.number,
                values: statement.values.clone(),
                outcome,
            },
        };
        run.told = true;
        if code != ROW {
            statement.run = None;
        }
        self.sink.put(&event);
    }

    /// A connection was opened; `path` is empty for one without a file.
    #[expect(clippy::too_many_arguments, reason = "they are the event's")]
    pub fn opened(
        &mut self,
        db: usize,
        real: &'static Real,
        at: u64,
        flags: u64,
        name: &[u8],
        path: &[u8],
        version: Vec<u8>,
    ) {
        self.tell_untold(0);
        if !path.is_empty() {
            self.sink.ask(&Event::Opening {
                path: path.to_vec(),
            });
        }
        let connection = self.number();
        self.connections.insert(
            db,
            Connection {
                number: connection,
                real,
            },
        );
        let (name, path) = (name.to_vec(), path.to_vec());
        self.sink.put(&Event::Open {
            at,
            connection,
            flags,
            name,
            path,
            version,
        });
        self.sink.flush();
    }

    /// A connection was closed.
    pub fn closed(&mut self, db: usize, at: u64) {
        self.tell_untold(0);
        if let Some(connection) = self.connections.remove(&db) {
            self.sink.put(&Event::Close {
                at,
                connection: connection.number,
            });
            self.sink.flush();
        }
    }

    /// A statement was prepared, or, with `statement` 0, could not be.
    pub fn prepared(&mut self, db: usize, statement: usize, at: u64, code: u32, sql: Vec<u8>) {
        let Some((connection, real)) = self.connections.get(&db).map(|c| (c.number, c.real)) else {
            return;
        };
        self.tell_untold(0);
        let number = match statement {
            0 => 0,
            _ => self.number(),
        };
        if statement != 0 {
            let attaches = (onewrite_record::sql::verb(&sql) == "ATTACH").then(|| sql.clone());
            let known = Statement {
                number,
                connection: db,
                real,
                attaches,
                values: Vec::new(),
                run: None,
            };
            self.statements.insert(statement, known);
        }
        self.sink.put(&Event::Prepare {
            at,
            connection,
            statement: number,
            code,
            sql,
        });
    }

    /// A value was bound to the parameter with this number, from 1.
    pub fn bound(&mut self, statement: usize, parameter: usize, value: Value) {
        let Some(statement) = self.statements.get_mut(&statement) else {
            return;
        };
        let values = &mut statement.values;
        if values.len() < parameter {
            values.resize(parameter, Value::Null);
        }
        if let Some(place) = parameter.checked_sub(1).and_then(|at| values.get_mut(at)) {
            *place = value;
        }
    }

    /// All values are cleared. A run that is not over yet began with them.
    pub fn cleared(&mut self, key: usize) {
        if self.untold.contains(&key) {
            self.tell_untold(key);
            self.tell(key, ROW);
        }
        if let Some(statement) = self.statements.get_mut(&key) {
            statement.values.clear();
        }
    }

    /// A step begins. A database that it attaches is announced first.
    pub fn steps(&mut self, key: usize) {
        let Some(statement) = self.statements.get(&key) else {
            return;
        };
        if let (Some(sql), None) = (&statement.attaches, &statement.run) {
            let bound = match statement.values.first() {
                Some(Value::Text(text) | Value::Blob(text)) => text.clone(),
                _ => Vec::new(),
            };
            let name = onewrite_record::sql::attached(sql).map_or(bound, |(_, name)| name);
            let db = statement.connection;
            self.attaches(db, &name);
        }
    }

    /// A step was made.
    pub fn stepped(
        &mut self,
        key: usize,
        began: u64,
        took: u64,
        code: u32,
        row: Option<Row>,
        autocommit: bool,
    ) {
        let Some(statement) = self.statements.get_mut(&key) else {
            return;
        };
        let when = When {
            at: began,
            took: 0,
            thread: thread(),
        };
        let run = statement.run.get_or_insert(Run {
            when,
            rows: Rows::default(),
            autocommit,
            told: false,
        });
        // Another event followed since the last step: this part has a time of its own.
        if run.told && !self.untold.contains(&key) {
            run.when = when;
        }
        run.when.took += took;
        run.autocommit = autocommit;
        if let Some(row) = row {
            run.rows.add(row);
        }
        if code == ROW {
            self.untold.insert(key);
            return;
        }
        self.tell_untold(key);
        self.tell(key, code);
        if autocommit || code != DONE {
            self.sink.flush();
        }
    }

    /// A statement was reset: its run is over.
    pub fn was_reset(&mut self, key: usize, autocommit: bool) {
        let Some(run) = self
            .statements
            .get_mut(&key)
            .and_then(|one| one.run.as_mut())
        else {
            return;
        };
        run.autocommit = autocommit;
        self.tell_untold(key);
        self.tell(key, 0);
        if autocommit {
            self.sink.flush();
        }
    }

    /// A statement is finalized.
    pub fn finalized(&mut self, key: usize, autocommit: bool) {
        self.was_reset(key, autocommit);
        if let Some(statement) = self.statements.remove(&key) {
            self.sink.put(&Event::Finalize {
                statement: statement.number,
            });
        }
    }

    /// `sqlite3_exec` is about to run a text. Databases that it attaches are announced first.
    pub fn executes(&mut self, db: usize, sql: &[u8]) {
        let mut rest = sql;
        let has_attach = sql
            .windows(6)
            .any(|word| word.eq_ignore_ascii_case(b"attach"));
        while has_attach && !rest.is_empty() {
            if let Some((_, name)) = onewrite_record::sql::attached(rest) {
                self.attaches(db, &name);
            }
            let end = onewrite_record::sql::statement_end(rest).unwrap_or(rest.len());
            rest = rest.get(end..).unwrap_or_default();
        }
    }

    /// `sqlite3_exec` has run a text.
    pub fn executed(&mut self, db: usize, began: u64, took: u64, sql: &[u8], outcome: Outcome) {
        let Some(connection) = self
            .connections
            .get(&db)
            .map(|connection| connection.number)
        else {
            return;
        };
        self.tell_untold(0);
        let when = When {
            at: began,
            took,
            thread: thread(),
        };
        self.sink.put(&Event::Exec {
            when,
            connection,
            sql: sql.to_vec(),
            outcome,
        });
        if outcome.autocommit {
            self.sink.flush();
        }
    }

    fn attaches(&mut self, db: usize, name: &[u8]) {
        let Some(connection) = self
            .connections
            .get(&db)
            .map(|connection| connection.number)
        else {
            return;
        };
        self.tell_untold(0);
        let path = crate::hooks::full_path(name);
        if !path.is_empty() {
            self.sink.ask(&Event::Opening { path: path.clone() });
        }
        self.sink.put(&Event::Attach { connection, path });
    }

    /// The program registered something with SQLite.
    pub fn taught(&mut self, db: usize, what: &str, name: &[u8]) {
        if let Some(connection) = self
            .connections
            .get(&db)
            .map(|connection| connection.number)
        {
            let (what, name) = (what.as_bytes().to_vec(), name.to_vec());
            self.sink.put(&Event::Taught {
                connection,
                what,
                name,
            });
        }
    }

    /// The program used something that is not recorded.
    pub fn unrecorded(&mut self, name: &str) {
        self.sink.put(&Event::Unrecorded {
            name: name.as_bytes().to_vec(),
        });
    }
}
