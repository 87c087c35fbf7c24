//! Plays one event at a time, on the connections of one thread.

use std::rc::Rc;
use std::time::Instant;

use onewrite_record::event::{DONE, Event, Outcome, ROW, UNKNOWN, Value};
use onewrite_record::rows::Rows;
use onewrite_record::sql;

use super::{Job, Key, Kind, Opened, Part, Player, Prepared, Step};
use crate::clock;
use crate::results::{Comparable, Result as Came};
use crate::sqlite::{BUSY, Connection, Failure, LOCKED, Statement};

/// Primary result codes that depend on the machine at that moment: busy, locked, out of memory,
/// interrupted, I/O error, full, cannot open, locking protocol.
const OF_THE_MOMENT: [u32; 8] = [5, 6, 7, 9, 10, 13, 14, 15];

/// `sqlite3_exec` was stopped by its callback.
const ABORT: u32 = 4;

/// Pragmas with the same answers in every journal mode.
const SAME_EVERYWHERE: &[&str] = &[
    "table_info",
    "table_xinfo",
    "table_list",
    "index_list",
    "index_info",
    "index_xinfo",
    "foreign_key_list",
    "foreign_keys",
    "foreign_key_check",
    "user_version",
    "application_id",
    "encoding",
    "integrity_check",
    "quick_check",
    "collation_list",
    "case_sensitive_like",
];

/// Whether SQLite refused a run when it was recorded. A replay leaves it out.
pub(super) fn was_refused(outcome: &Outcome) -> bool {
    OF_THE_MOMENT.contains(&outcome.code)
}

impl Player<'_> {
    /// Plays an event.
    pub(super) fn execute(&mut self, job: &mut Job) -> Result<Step, String> {
        if let Some(at) = super::time_of(&job.event) {
            clock::set(at, job.ordinal);
        }
        self.raced.clone_from(&job.raced);
        let own = |number: u64| (job.process, number);
        match &job.event {
            Event::Open {
                connection,
                flags,
                name,
                path,
                ..
            } => {
                let key = own(*connection);
                return self.open(key, *flags, name, path);
            }
            Event::Close { connection, .. } => {
                self.connections.remove(&own(*connection));
            }
            Event::Attach { connection, path } => {
                let waiting = self.attach.entry(own(*connection)).or_default();
                waiting.push_back(path.clone());
            }
            Event::Prepare {
                connection,
                statement,
                code,
                sql,
                ..
            } => {
                let (connection, statement) = (own(*connection), own(*statement));
                return self.prepare(job.ordinal, connection, statement, *code, sql);
            }
            Event::Run {
                statement,
                values,
                outcome,
                ..
            } => {
                let key = own(*statement);
                if let Some(known) = self.statements.get(&key) {
                    self.note_beginning(known.connection, &mut job.part);
                }
                return self.run(job.ordinal, key, Some(values), outcome);
            }
            Event::More {
                statement, outcome, ..
            } => {
                return self.run(job.ordinal, own(*statement), None, outcome);
            }
            Event::Finalize { statement } => self.finalize(own(*statement)),
            Event::Exec {
                connection,
                sql,
                outcome,
                ..
            } => {
                let key = own(*connection);
                let (ordinal, mut part) = (job.ordinal, job.part);
                let step = self.script(ordinal, key, sql, outcome, &mut part, job.counted);
                job.part = part;
                job.counted = true;
                return step;
            }
            _ => {}
        }
        Ok(Step::Done)
    }

    fn open(&mut self, key: Key, flags: u64, name: &[u8], path: &[u8]) -> Result<Step, String> {
        match self.files.open(name, path, flags) {
            Ok((connection, writable)) => {
                if let Some(patience) = &self.patience {
                    let patience = Rc::clone(patience);
                    connection.on_busy(Box::new(move || patience()));
                }
                let opened = Opened {
                    connection,
                    path: path.to_vec(),
                    writable,
                    in_mode: false,
                };
                self.connections.insert(key, opened);
                Ok(Step::Done)
            }
            Err(failure) if failure.code == BUSY => Ok(Step::Locked),
            Err(failure) => Err(format!(
                "cannot open {}: {failure}",
                String::from_utf8_lossy(name)
            )),
        }
    }

    /// Enters the mode before the first statement that is not a pragma: some pragmas must come
    /// before it. Returns false where a lock prevents it.
    fn enter(&mut self, key: Key, text: &[u8]) -> Result<bool, String> {
        let Some(opened) = self.connections.get_mut(&key) else {
            return Ok(true);
        };
        let waits = !opened.in_mode && opened.writable && !opened.path.is_empty();
        if !waits || sql::verb(text) == "PRAGMA" {
            return Ok(true);
        }
        let entered = self.files.enter(&opened.connection);
        match entered {
            Ok(entered) => {
                opened.in_mode = entered;
                Ok(entered)
            }
            Err(error) => Err(format!("mode {}: {error}", self.options.mode)),
        }
    }

    fn kind(&self, text: &[u8]) -> Kind {
        if let Some((name, has_value)) = sql::pragma(text) {
            let sets_synchronous =
                self.options.synchronous.is_some() || self.options.mode.synchronous().is_some();
            return match (name.as_str(), has_value) {
                ("journal_mode" | "busy_timeout", true) => Kind::Replaced,
                ("synchronous", true) if sets_synchronous => Kind::Replaced,
                (name, _) if SAME_EVERYWHERE.contains(&name) => Kind::Ordinary,
                _ => Kind::OfTheFile,
            };
        }
        match sql::verb(text).as_str() {
            "ATTACH" => Kind::Attach,
            "EXPLAIN" => Kind::OfTheFile,
            "VACUUM" if sql::first_call(text, &["into"]).is_some() => Kind::Replaced,
            _ => Kind::Ordinary,
        }
    }

    fn prepare(
        &mut self,
        ordinal: u64,
        connection: Key,
        statement: Key,
        code: u32,
        text: &[u8],
    ) -> Result<Step, String> {
        if OF_THE_MOMENT.contains(&code) {
            return Ok(Step::Done);
        }
        let kind = self.kind(text);
        if kind != Kind::Replaced && !self.enter(connection, text)? {
            return Ok(Step::Locked);
        }
        let Some(opened) = self.connections.get(&connection) else {
            return Ok(Step::Done);
        };
        let prepared = match kind {
            Kind::Replaced => Ok(None),
            _ => opened
                .connection
                .prepare(text)
                .map(|(statement, _)| statement),
        };
        let (prepared, failure) = match prepared {
            Ok(prepared) => (prepared, None),
            Err(failure) if is_lock(failure.code) => return Ok(Step::Locked),
            Err(failure) => (None, Some(failure)),
        };
        if code != 0 || statement.1 == 0 {
            // It failed when it was recorded, and must fail again.
            let came = failure.as_ref().map_or(0, |failure| failure.code);
            let outcome = Outcome {
                code,
                autocommit: true,
                rows: None,
            };
            let came = Came {
                code: came,
                rows: Rows::default(),
            };
            let message = failure.as_ref().map(|failure| failure.message.as_str());
            return self.compare(ordinal, text, Comparable::CodeOnly, &outcome, came, message);
        }
        let sql = text.to_vec();
        let rows = Rows::default();
        let known = Prepared {
            statement: prepared,
            failure,
            connection,
            sql,
            kind,
            rows,
            skipping: false,
        };
        self.statements.insert(statement, known);
        Ok(Step::Done)
    }

    fn compare(
        &mut self,
        ordinal: u64,
        text: &[u8],
        comparable: Comparable,
        outcome: &Outcome,
        came: Came,
        message: Option<&str>,
    ) -> Result<Step, String> {
        if self.is_again {
            return Ok(Step::Done);
        }
        let raced = self.raced.as_ref();
        self.comparison
            .add(ordinal, text, comparable, outcome, came, message, raced)
            .map_err(|error| format!("the results of the first mode: {error}"))?;
        Ok(Step::Done)
    }

    /// Steps a statement as far as the program did.
    fn run(
        &mut self,
        ordinal: u64,
        key: Key,
        values: Option<&Vec<Value>>,
        outcome: &Outcome,
    ) -> Result<Step, String> {
        let Some(mut known) = self.statements.remove(&key) else {
            return Ok(Step::Done);
        };
        let step = self.run_known(ordinal, &mut known, values, outcome);
        self.statements.insert(key, known);
        step
    }

    fn run_known(
        &mut self,
        ordinal: u64,
        known: &mut Prepared,
        values: Option<&Vec<Value>>,
        outcome: &Outcome,
    ) -> Result<Step, String> {
        if values.is_some() {
            known.skipping = was_refused(outcome);
            known.rows = Rows::default();
            match (known.kind, known.skipping) {
                (Kind::Replaced, _) => self.played.replaced += 1,
                (_, true) => self.played.refused_when_recorded += 1,
                _ => {}
            }
        }
        if known.skipping || known.kind == Kind::Replaced {
            return Ok(Step::Done);
        }
        if !self.enter(known.connection, &known.sql)? {
            return Ok(Step::Locked);
        }
        if known.kind == Kind::Attach && values.is_some() {
            self.prepare_attach(known, values)?;
        }
        let Some(statement) = &known.statement else {
            let failure = known.failure.as_ref();
            let came = Came {
                code: failure.map_or(DONE, |failure| failure.code),
                rows: Rows::default(),
            };
            let text = failure.map(|failure| failure.message.as_str());
            return self.compare(ordinal, &known.sql, Comparable::Fully, outcome, came, text);
        };
        if let Some(values) = values {
            statement.reset();
            if known.kind != Kind::Attach
                && let Err(failure) = statement.bind(values)
            {
                return Err(format!("bind: {failure}"));
            }
            self.played.statements += 1;
        }
        let before = known.rows;
        let code = advance(statement, outcome, &mut known.rows, &mut self.meter());
        let (code, failure) = match code {
            code if is_lock(code) && known.rows == before && values.is_some() => {
                statement.reset();
                self.played.statements -= 1;
                return Ok(Step::Locked);
            }
            code @ (ROW | DONE) => (code, None),
            code => (code, Some(statement.failure())),
        };
        let code = ended_with(statement, outcome.code, code);
        if outcome.code != ROW && statement.connection().autocommit() != outcome.autocommit {
            self.played.other_transactions += 1;
        }
        let came = Came {
            code,
            rows: known.rows,
        };
        let comparable = match known.kind {
            Kind::OfTheFile => Comparable::CodeOnly,
            _ => Comparable::Fully,
        };
        let message = failure.map(|failure| failure.message);
        self.compare(
            ordinal,
            &known.sql,
            comparable,
            outcome,
            came,
            message.as_deref(),
        )
    }

    fn meter(&mut self) -> Meter<'_> {
        Meter {
            latencies: &mut self.played.latencies,
            commits: &mut self.played.commits,
        }
    }

    /// The current place of the next path that a connection attaches.
    fn attached_place(&mut self, connection: Key, named: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let announced = self.attach.get_mut(&connection);
        let path = announced.and_then(std::collections::VecDeque::pop_front);
        // A path that was not announced (in an imported list) is not a replay's own file either.
        let path = path.unwrap_or_else(|| named.to_vec());
        if path.is_empty() || path == b":memory:" {
            return Ok(None);
        }
        let place = self.files.place_to_attach(&path)?;
        Ok(Some(
            std::os::unix::ffi::OsStrExt::as_bytes(place.as_os_str()).to_vec(),
        ))
    }

    /// Prepares an ATTACH with the current file name of its database.
    fn prepare_attach(
        &mut self,
        known: &mut Prepared,
        values: Option<&Vec<Value>>,
    ) -> Result<(), String> {
        let literal = sql::attached(&known.sql).map(|(_, name)| name);
        let bound = values.and_then(|values| match values.first() {
            Some(Value::Text(name) | Value::Blob(name)) => Some(name.clone()),
            _ => None,
        });
        let named = literal.or(bound).unwrap_or_default();
        let place = self.attached_place(known.connection, &named)?;
        let Some(opened) = self.connections.get(&known.connection) else {
            return Ok(());
        };
        let mut values = values.cloned().unwrap_or_default();
        let text = match (&place, sql::attached(&known.sql)) {
            (Some(place), Some((at, _))) => with_name(&known.sql, at, place),
            (Some(place), None) => {
                if let Some(first) = values.first_mut() {
                    *first = Value::Text(place.clone());
                }
                known.sql.clone()
            }
            (None, _) => known.sql.clone(),
        };
        match opened.connection.prepare(&text) {
            Ok((statement, _)) => {
                if let Some(statement) = &statement {
                    statement
                        .bind(&values)
                        .map_err(|failure| format!("ATTACH: {failure}"))?;
                }
                known.statement = statement;
            }
            Err(failure) => (known.statement, known.failure) = (None, Some(failure)),
        }
        Ok(())
    }

    /// Runs a script as `sqlite3_exec` does.
    fn script(
        &mut self,
        ordinal: u64,
        key: Key,
        text: &[u8],
        outcome: &Outcome,
        part: &mut Part,
        again: bool,
    ) -> Result<Step, String> {
        if was_refused(outcome) {
            self.played.refused_when_recorded += u64::from(!again);
            return Ok(Step::Done);
        }
        let mut comparable = Comparable::Fully;
        let mut result = Ok(0);
        let connection = match self.connections.get(&key) {
            Some(opened) => opened.connection.clone(),
            None => return Ok(Step::Done),
        };
        while let Some(rest) = text.get(part.offset..).filter(|rest| !rest.is_empty()) {
            let end = sql::statement_end(rest).unwrap_or(rest.len());
            let piece = rest.get(..end).unwrap_or(rest);
            let kind = self.kind(piece);
            if kind == Kind::OfTheFile || kind == Kind::Replaced {
                comparable = Comparable::CodeOnly;
            }
            if kind == Kind::Replaced {
                self.played.replaced += 1;
                part.offset += end;
                continue;
            }
            if !self.enter(key, piece)? {
                return Ok(Step::Locked);
            }
            self.note_beginning(key, part);
            let place = match kind {
                Kind::Attach => {
                    let named = sql::attached(piece)
                        .map(|(_, name)| name)
                        .unwrap_or_default();
                    self.attached_place(key, &named)?
                }
                _ => None,
            };
            let rewritten =
                place.and_then(|place| Some(with_name(piece, sql::attached(piece)?.0, &place)));
            let piece = rewritten.as_deref().unwrap_or(piece);
            match self.piece(&connection, piece, outcome, part) {
                Ok(true) => part.offset += end,
                Ok(false) => return Ok(Step::Locked),
                Err(failure) => {
                    result = Err(failure);
                    break;
                }
            }
        }
        if outcome.code != UNKNOWN && connection.autocommit() != outcome.autocommit {
            self.played.other_transactions += 1;
        }
        let code = match &result {
            Ok(code) => *code,
            Err(failure) => failure.code,
        };
        // The program stopped it after this number of rows.
        let code = match (outcome.code, outcome.rows) {
            (ABORT, Some(rows)) if rows.count == part.rows.count => ABORT,
            _ => code,
        };
        let came = Came {
            code,
            rows: part.rows,
        };
        let message = result.err().map(|failure| failure.message);
        self.compare(ordinal, text, comparable, outcome, came, message.as_deref())
    }

    /// Plays one statement of a script. Returns false where it found a lock.
    fn piece(
        &mut self,
        connection: &Connection,
        text: &[u8],
        outcome: &Outcome,
        part: &mut Part,
    ) -> Result<bool, Failure> {
        let statement = match connection.prepare(text) {
            Ok((Some(statement), _)) => statement,
            Ok((None, _)) => return Ok(true),
            Err(failure) if is_lock(failure.code) => return Ok(false),
            Err(failure) => return Err(failure),
        };
        let before = part.rows;
        let most = match (outcome.code, outcome.rows) {
            (ABORT, Some(rows)) => rows.count,
            _ => u64::MAX,
        };
        loop {
            let code = self.meter().step(&statement);
            match code {
                ROW => {
                    part.rows.add(statement.row_as_text());
                    if part.rows.count >= most {
                        break;
                    }
                }
                DONE => break,
                code if is_lock(code) && part.rows == before => return Ok(false),
                _ => return Err(statement.failure()),
            }
        }
        self.played.statements += 1;
        part.statements += 1;
        Ok(true)
    }
}

/// A statement with another file name in place of its own.
fn with_name(text: &[u8], at: std::ops::Range<usize>, place: &[u8]) -> Vec<u8> {
    let mut out = text.get(..at.start).unwrap_or_default().to_vec();
    out.extend_from_slice(&sql::quoted(place));
    out.extend_from_slice(text.get(at.end..).unwrap_or_default());
    out
}

fn is_lock(code: u32) -> bool {
    code == BUSY || code == LOCKED
}

/// Times the calls that commit.
struct Meter<'a> {
    latencies: &'a mut onewrite_workload::latency::Latencies,
    commits: &'a mut u64,
}

impl Meter<'_> {
    fn step(&mut self, statement: &Statement) -> u32 {
        let connection = statement.connection();
        let before = (connection.commits(), connection.pages_written());
        let began = Instant::now();
        let code = statement.step();
        let took = began.elapsed();
        let committed = connection.commits() - before.0;
        // An UPDATE that found no row commits too, and writes nothing.
        let wrote = committed > 0 && connection.pages_written() != before.1;
        if wrote && (code == DONE || code == ROW) {
            *self.commits += committed;
            self.latencies.record_nanos(took.as_nanos() as u64);
        }
        code
    }
}

/// Steps a statement as far as the program did: to the same number of rows, or to its end.
fn advance(
    statement: &Statement,
    outcome: &Outcome,
    rows: &mut Rows,
    meter: &mut Meter<'_>,
) -> u32 {
    let target = match (outcome.code, outcome.rows) {
        (ROW | 0, Some(recorded)) => recorded.count,
        _ => u64::MAX,
    };
    loop {
        if rows.count >= target {
            return ROW;
        }
        match meter.step(statement) {
            ROW => rows.add(statement.row()),
            code => return code,
        }
    }
}

/// The code of a statement that was stepped as far as it was when recorded. It is reset unless rows
/// may follow.
fn ended_with(statement: &Statement, recorded: u32, code: u32) -> u32 {
    match (recorded, code) {
        (0, ROW) => {
            statement.reset();
            0
        }
        (_, ROW) => ROW,
        (_, code) => {
            statement.reset();
            code
        }
    }
}
