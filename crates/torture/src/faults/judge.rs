//! Judges whether a worker's reports, and the files afterwards, keep the promises.

use super::calls::{Fault, Work};
use super::inspect::{Facts, View};
use super::scenario::{GROUP, Scenario};
use super::tracer::{End, Injection, Lasts, Run, Seen};
use super::worker::{Event, Outcome};
use crate::database::JournalMode;
use nix::sys::signal::Signal;
use std::collections::BTreeMap;

/// The reports of one worker, evaluated.
#[derive(Debug, Default)]
pub struct Story {
    /// Rows of every batch whose COMMIT returned success, in order.
    pub acknowledged: Vec<(i64, i64)>,
    /// Rows of every batch whose COMMIT returned an error.
    pub unknown: BTreeMap<i64, i64>,
    /// The last mode that `PRAGMA journal_mode` reported as set.
    pub mode: Option<String>,
    /// Outcomes while calls could fail.
    pub disturbed: Vec<(String, Outcome)>,
    /// Outcomes of the work after the fault.
    pub afterwards: Vec<(String, Outcome)>,
    /// Outcomes after the connection was opened again.
    pub reopened: Option<Vec<(String, Outcome)>>,
    /// Wrong data without an error.
    pub wrong: Vec<String>,
    /// The worker finished.
    pub done: bool,
}

impl Story {
    /// Reads a worker's reports, on top of the commits of the worker before it.
    pub fn of(events: &[Event], before: Option<&Story>) -> Self {
        let mut story = Story {
            acknowledged: before.map_or_else(Vec::new, |before| before.acknowledged.clone()),
            mode: before.and_then(|before| before.mode.clone()),
            ..Story::default()
        };
        let mut part = Part::Before;
        for event in events {
            match event {
                Event::Begin => part = Part::Disturbed,
                Event::End => part = Part::Afterwards,
                Event::Reopens => {
                    part = Part::Reopened;
                    story.reopened = Some(Vec::new());
                }
                Event::Done => story.done = true,
                Event::WrongAnswer(what) => story.wrong.push(what.clone()),
                Event::Commit {
                    batch,
                    rows,
                    outcome,
                } => {
                    match outcome.is_ok() {
                        true => story.acknowledged.push((*batch, *rows)),
                        false => drop(story.unknown.insert(*batch, *rows)),
                    }
                    story.note(part, format!("commit {batch}"), outcome);
                }
                Event::RolledBack { batch, outcome } => {
                    story.note(part, format!("rollback {batch}"), outcome);
                }
                Event::Step { what, outcome } => story.note(part, what.clone(), outcome),
                Event::Mode {
                    wanted,
                    got,
                    outcome,
                } => {
                    // A failed switch may be half done.
                    story.mode = outcome.is_ok().then(|| got.clone());
                    story.note(part, format!("journal_mode={wanted}: {got}"), outcome);
                }
            }
        }
        story
    }

    fn note(&mut self, part: Part, what: String, outcome: &Outcome) {
        let pair = (what, outcome.clone());
        match part {
            Part::Before => {
                // No fault disturbs this part. A failure in it is found with the rest.
                if !outcome.is_ok() {
                    self.wrong.push(format!("before any fault: {pair:?}"));
                }
            }
            Part::Disturbed => self.disturbed.push(pair),
            Part::Afterwards => self.afterwards.push(pair),
            Part::Reopened => {
                if let Some(reopened) = &mut self.reopened {
                    reopened.push(pair);
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Part {
    Before,
    Disturbed,
    Afterwards,
    Reopened,
}

/// SQLite's primary result codes by name.
pub fn code_name(code: i32) -> String {
    let primary = match code & 0xff {
        0 => "OK",
        1 => "ERROR",
        2 => "INTERNAL",
        3 => "PERM",
        4 => "ABORT",
        5 => "BUSY",
        6 => "LOCKED",
        7 => "NOMEM",
        8 => "READONLY",
        10 => "IOERR",
        11 => "CORRUPT",
        13 => "FULL",
        14 => "CANTOPEN",
        15 => "PROTOCOL",
        17 => "SCHEMA",
        21 => "MISUSE",
        26 => "NOTADB",
        _ => return code.to_string(),
    };
    match code >> 8 {
        0 => primary.to_owned(),
        extended => format!("{primary}/{extended}"),
    }
}

const PERM: i32 = 3;
const BUSY: i32 = 5;
const NOMEM: i32 = 7;
const READONLY: i32 = 8;
const IOERR: i32 = 10;
const CORRUPT: i32 = 11;
const FULL: i32 = 13;
const CANTOPEN: i32 = 14;
const PROTOCOL: i32 = 15;
const NOTADB: i32 = 26;

/// The mode that a later connection reports for a database left in this mode. Among the rollback
/// modes, SQLite chooses again in each connection.
fn remembered(mode: &str) -> &str {
    match mode {
        "truncate" | "persist" => "delete",
        other => other,
    }
}

/// The primary codes that are right for a fault. For its own files, SQLite's own VFS decides, and
/// it is nowhere stricter than this.
fn right_codes(scenario: Scenario, injection: &Injection, first: &Seen) -> Vec<i32> {
    let fault = injection.fault;
    let mut right = codes_for_call(fault, first).to_vec();
    if !is_ours(first) {
        right.extend(codes_of_sqlite(fault, first));
    }
    if matches!(scenario, Scenario::GroupSynch | Scenario::GroupCommit) {
        // A group that cannot be written poisons the log.
        right.push(IOERR);
    }
    if injection.lasts == Lasts::ForGood {
        // Other calls fail after the first. A file can no longer be created, or is opened
        // read-only; the database cannot be read. SQLite's own VFS treats ENOSPC as a full disk,
        // and an exhausted quota as an I/O error.
        right.extend(match fault.error_name() {
            "ENOSPC" => &[READONLY, CANTOPEN][..],
            "EDQUOT" => &[READONLY, CANTOPEN, IOERR],
            "EIO" => &[CORRUPT],
            _ => &[],
        });
    }
    right
}

/// Whether it is a call of our VFS, on one of its files.
fn is_ours(seen: &Seen) -> bool {
    seen.path.ends_with("-onewrite")
}

/// The codes that SQLite's own VFS reports for failures on its own files, besides the expected
/// ones.
fn codes_of_sqlite(fault: Fault, first: &Seen) -> &'static [i32] {
    match (first.call.work, fault.error_name()) {
        // SQLite opens the database read-only if it cannot open it for writing.
        (Work::Open, _) => &[READONLY],
        // SQLite treats a read that fails with EIO as a damaged file system
        // (SQLITE_IOERR_CORRUPTFS).
        (Work::Read, "EIO") => &[CORRUPT],
        // SQLite asks whether the database still has its name. Without an answer the database
        // counts as moved.
        (Work::Look, _) => &[READONLY],
        _ => &[],
    }
}

fn codes_for_call(fault: Fault, first: &Seen) -> &'static [i32] {
    let is_log = is_ours(first);
    let work = first.call.work;
    if work == Work::Control && first.call.name == "fcntl" && !first.shape.duplicates {
        // SQLite reports IOERR if it sees the cause. It reports BUSY if it could not release the
        // lock before.
        return &[BUSY, IOERR, PROTOCOL];
    }
    match fault.error_name() {
        "ENOSPC" | "EDQUOT" => match work {
            Work::Flush => &[IOERR, FULL],
            Work::Open => &[FULL, CANTOPEN],
            _ if is_log => &[FULL],
            // SQLite's own VFS reports IOERR if a size or a quota is refused.
            _ => &[FULL, IOERR],
        },
        "EROFS" => &[READONLY, CANTOPEN, IOERR],
        "EMFILE" => &[CANTOPEN],
        "ENOMEM" => &[NOMEM, IOERR],
        "EINTR" if work == Work::Flush => &[IOERR],
        "EINTR" => &[],
        "EACCES" | "EPERM" | "EBUSY" => &[CANTOPEN, READONLY, PERM, IOERR],
        "short" => &[],
        _ => match work {
            Work::Open | Work::Look | Work::Close => &[IOERR, CANTOPEN],
            _ => &[IOERR],
        },
    }
}

/// The case to judge.
pub struct Case<'a> {
    /// The scenario.
    pub scenario: Scenario,
    /// The mode.
    pub mode: JournalMode,
    /// The injected fault; none in the run without a fault.
    pub injection: Option<&'a Injection>,
    /// The worker's run.
    pub run: &'a Run,
    /// The worker's reports.
    pub story: &'a Story,
}

impl Case<'_> {
    /// The faults in the worker's actions and reports; empty if there are none.
    pub fn broken(&self) -> Vec<String> {
        let mut broken = self.story.wrong.clone();
        self.check_end(&mut broken);
        self.check_codes(&mut broken);
        self.check_going_on(&mut broken);
        self.check_poison(&mut broken);
        broken
    }

    fn check_end(&self, broken: &mut Vec<String>) {
        match self.run.end {
            End::TimedOut => broken.push("the process hung".to_owned()),
            End::Exited(0 | 1) if self.scenario == Scenario::Detach => {}
            End::Signaled(Signal::SIGKILL) if self.story.done => {}
            end => broken.push(format!(
                "the process ended with {end:?}: {}",
                self.run.output.lines().last().unwrap_or_default()
            )),
        }
    }

    fn check_codes(&self, broken: &mut Vec<String>) {
        let first = self.run.fired.as_ref().zip(self.injection);
        for (what, outcome) in self.story.disturbed.iter().filter(|(_, o)| !o.is_ok()) {
            let named = format!(
                "{what}: {} \"{}\" {:?}",
                code_name(outcome.code),
                outcome.message,
                outcome.logged
            );
            match first {
                Some((seen, injection)) => {
                    let right = right_codes(self.scenario, injection, seen);
                    let is_left_out = outcome.message.starts_with("no such table");
                    let is_right = right.contains(&(outcome.code & 0xff)) || self.is_begun(outcome);
                    if !is_left_out && !is_right {
                        broken.push(format!("the wrong code: {named}"));
                    }
                    if outcome.message.is_empty() {
                        broken.push(format!("no message: {named}"));
                    }
                    // SQLite itself does not report some failures of its own files.
                    let is_busy = outcome.code & 0xff == BUSY;
                    if outcome.logged.is_empty() && is_ours(seen) && !is_busy {
                        broken.push(format!("nothing through sqlite3_log: {named}"));
                    }
                }
                None => broken.push(format!("an error without a fault: {named}")),
            }
        }
    }

    /// Whether the creation of an LS-MVBT database had begun and failed. The connection has not
    /// changed engines, so the file belongs to another engine for it until it is opened again.
    fn is_begun(&self, outcome: &Outcome) -> bool {
        let makes = self.mode == JournalMode::Lsmvbt && self.scenario == Scenario::OpenNew;
        makes && outcome.code & 0xff == NOTADB
    }

    /// The fault is gone: the same connection continues, or a new one does.
    fn check_going_on(&self, broken: &mut Vec<String>) {
        let lock_is_left =
            self.run.fired.as_ref().is_some_and(|first| {
                first.call.name == "fcntl" && !first.path.ends_with("-onewrite")
            });
        let stays = self
            .injection
            .is_some_and(|injection| injection.lasts == Lasts::ForGood);
        let is_open = self
            .run
            .fired
            .as_ref()
            .is_some_and(|first| stays || (first.call.work == Work::Open && !is_ours(first)));
        // A log that this user may not write is opened read-only, as SQLite opens its own files.
        let is_open = is_open || self.is_refused_open();
        for (what, outcome) in self.story.afterwards.iter().filter(|(_, o)| !o.is_ok()) {
            // IOERR: the log is poisoned, or the wal-index could not be mapped. BUSY: SQLite could
            // not release a lock, and finds it held until the connection is closed.
            let says_so = match outcome.code & 0xff {
                IOERR | CANTOPEN => true,
                BUSY => lock_is_left,
                // SQLite has opened the database or the wal-index read-only.
                READONLY => is_open,
                NOTADB => self.is_begun(outcome),
                _ => false,
            };
            if !says_so {
                broken.push(format!(
                    "the fault is gone, but {what}: {} \"{}\"",
                    code_name(outcome.code),
                    outcome.message
                ));
            }
        }
        let failed = self.story.reopened.iter().flatten();
        for (what, outcome) in failed.filter(|(_, o)| !o.is_ok()) {
            broken.push(format!(
                "opening it again does not help: {what}: {} \"{}\" {:?}",
                code_name(outcome.code),
                outcome.message,
                outcome.logged
            ));
        }
    }

    /// The fault says that this user, or nobody, may open the file.
    fn is_refused_open(&self) -> bool {
        self.injection.is_some_and(|injection| {
            injection.call.work == Work::Open
                && ["EACCES", "EROFS"].contains(&injection.fault.error_name())
        })
    }

    /// With a log that stays closed to it, the database is used in `wal`. If that connection is
    /// killed, SQLite's own log must be recovered before the mode is entered again.
    fn may_be_in_wal(&self) -> bool {
        let is_of_log = |first: &Seen| first.path.ends_with("-onewrite");
        self.is_refused_open() && self.run.fired.as_ref().is_some_and(is_of_log)
    }

    /// A later flush never makes up for a failed one.
    fn check_poison(&self, broken: &mut Vec<String>) {
        let (Some(first), Some(injection)) = (&self.run.fired, self.injection) else {
            return;
        };
        let is_log = first.path.ends_with("-onewrite")
            || (self.mode == JournalMode::Direct && first.path.ends_with("-wal"));
        let flushes = first.call.work == Work::Flush && !first.shape.only_begins
            || first.call.name == "pwritev2";
        let fails = matches!(injection.fault, Fault::Fails(_))
            && injection.fault.error_name() != "EINTR"
            || matches!(injection.fault, Fault::DoneButFails(_));
        if !(self.scenario.must_poison() && is_log && flushes && fails) {
            return;
        }
        let first = self.story.disturbed.first();
        if first.is_none_or(|(_, outcome)| outcome.is_ok()) {
            // The first commit made everything before it durable, so a later one fails alone.
            return;
        }
        let mut failed = false;
        for (what, outcome) in self.story.disturbed.iter().chain(&self.story.afterwards) {
            if !what.starts_with("commit") {
                continue;
            }
            if failed && outcome.is_ok() {
                broken.push(format!("a failed flush became success: {what}"));
            }
            failed |= !outcome.is_ok();
        }
        if !failed {
            broken.push("a failed flush was reported to nobody".to_owned());
        }
    }

    /// The faults on disk. `so_far` are the commits that had returned by then.
    pub fn broken_on_disk(&self, facts: Option<&Facts>, so_far: &Story) -> Vec<String> {
        let Some(facts) = facts else {
            return vec!["looking at the database took too long, or killed the process".to_owned()];
        };
        let mut broken = Vec::new();
        if facts.guarded {
            if facts.stock_first.code & 0xff != 26 || facts.stock_changed {
                broken.push(format!(
                    "stock SQLite got at a guarded database: {:?}",
                    facts.stock_first
                ));
            }
        } else {
            self.check_view("stock SQLite", &facts.stock_first, so_far, &mut broken);
        }
        self.check_view("ours", &facts.ours, so_far, &mut broken);
        if facts.commit != 0 {
            broken.push(format!("no commit afterwards: {}", code_name(facts.commit)));
        }
        if facts.guarded_after_close {
            broken.push("guarded after a clean close".to_owned());
        } else {
            self.check_view(
                "stock SQLite after the close",
                &facts.stock_last,
                so_far,
                &mut broken,
            );
            let mut ours = facts.ours.batches.clone();
            ours.insert(9000, 1);
            if ours != facts.stock_last.batches {
                broken
                    .push("stock SQLite sees other rows after the close than ours did".to_owned());
            }
        }
        // A switch changes the header in a transaction with a rollback journal. If SQLite cannot
        // delete the journal, it reports the new mode all the same. The next process that finds the
        // journal rolls the change back. SQLite does so in its own modes, too.
        let leaves_journal = self.run.fired.as_ref().is_some_and(|first| {
            first.call.name == "unlink" && !is_ours(first) && !self.mode.is_guarded()
        });
        if let Some(mode) = &so_far.mode
            && !leaves_journal
            && self.scenario != Scenario::Detach
            && facts.ours.code == 0
            && facts.ours.mode != remembered(mode)
            && !(facts.ours.mode == "wal" && self.may_be_in_wal())
        {
            broken.push(format!(
                "journal_mode said {mode}, and the database is in {}",
                facts.ours.mode
            ));
        }
        broken
    }

    fn check_view(&self, who: &str, view: &View, so_far: &Story, broken: &mut Vec<String>) {
        if view.code != 0 {
            broken.push(format!(
                "{who} cannot open it: {} {}",
                code_name(view.code),
                view.message
            ));
            return;
        }
        if view.integrity != "ok" || view.wrong_rows > 0 {
            broken.push(format!("{who} finds it damaged: {view:?}"));
        }
        let found = |batch: i64| view.batches.get(&batch).copied().unwrap_or(0);
        let may_lose = match self.scenario {
            Scenario::GroupSynch => GROUP.0 as usize,
            _ => 0,
        };
        let acknowledged = &so_far.acknowledged;
        let kept = acknowledged.len().saturating_sub(may_lose);
        for (at, &(batch, rows)) in acknowledged.iter().enumerate() {
            let whole = found(batch) == rows;
            if !whole && (at < kept || found(batch) != 0) {
                broken.push(format!(
                    "{who}: commit {batch} returned, and {} of its {rows} rows are there",
                    found(batch)
                ));
            }
        }
        for (&batch, &rows) in &so_far.unknown {
            if ![0, rows].contains(&found(batch)) {
                broken.push(format!(
                    "{who}: commit {batch} failed, and {} of its {rows} rows are there",
                    found(batch)
                ));
            }
        }
        let is_known = |batch: &i64| {
            *batch == 9000
                || so_far.unknown.contains_key(batch)
                || acknowledged.iter().any(|(known, _)| known == batch)
        };
        if let Some(stranger) = view.batches.keys().find(|batch| !is_known(batch)) {
            broken.push(format!("{who}: batch {stranger} was never committed"));
        }
    }
}
