//! The matrix as a table and as JSON.

use super::conditions::{Condition, Tally};
use super::judge::{Story, code_name};
use super::scenario::Scenario;
use super::tracer::{Injection, Lasts, Run};
use crate::database::JournalMode;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A broken promise.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// The arguments of `onewrite-torture` that repeat it.
    pub replay: String,
    /// The faults.
    pub broken: Vec<String>,
}

/// One row: a scenario and a fault.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Row {
    /// How often the fault was injected.
    pub injections: u64,
    /// How often the worker never reached the call.
    pub not_reached: u64,
    /// The calls that failed.
    pub calls: BTreeSet<&'static str>,
    /// How often the application noticed nothing, because the work succeeded anyway.
    pub absorbed: u64,
    /// The count of each result code.
    pub codes: BTreeMap<String, u64>,
    /// How often the connection had to be opened again.
    pub reopened: u64,
    /// How many injections broke a promise.
    pub broken: u64,
}

/// The whole report.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The journal mode.
    pub mode: JournalMode,
    /// The number of injected faults.
    pub injections: u64,
    /// System calls of the runs without a fault.
    pub calls: u64,
    /// By scenario and fault.
    pub rows: BTreeMap<String, BTreeMap<String, Row>>,
    /// Conditions that no single call makes.
    pub conditions: BTreeMap<String, Tally>,
    /// The skipped parts, and the reasons.
    pub skipped: BTreeMap<String, String>,
    /// The broken promises.
    pub findings: Vec<Finding>,
}

impl Report {
    /// An empty report.
    pub fn new(mode: JournalMode) -> Self {
        Self {
            mode,
            injections: 0,
            calls: 0,
            rows: BTreeMap::new(),
            conditions: BTreeMap::new(),
            skipped: BTreeMap::new(),
            findings: Vec::new(),
        }
    }

    /// Skips a scenario.
    pub fn skip(&mut self, scenario: Scenario, why: &str) {
        self.skipped.insert(scenario.to_string(), why.to_owned());
    }

    /// Counts a run.
    pub fn record(
        &mut self,
        scenario: Scenario,
        injection: Option<&Injection>,
        run: &Run,
        story: &Story,
    ) {
        let Some(injection) = injection else {
            self.calls += run.seen.len() as u64;
            return;
        };
        let fault = match injection.lasts {
            Lasts::Once => format!("{} once", injection.fault),
            Lasts::ForGood => format!("{} for good", injection.fault),
        };
        let rows = self.rows.entry(scenario.to_string()).or_default();
        let row = rows.entry(fault).or_default();
        if run.fired.is_none() {
            row.not_reached += 1;
            return;
        }
        self.injections += 1;
        row.injections += 1;
        row.calls.insert(injection.call.name);
        let mut codes: BTreeSet<i32> = story
            .disturbed
            .iter()
            .filter(|(_, outcome)| !outcome.is_ok())
            .map(|(_, outcome)| outcome.code)
            .collect();
        if run.end == super::tracer::End::Exited(1) {
            // The command `onewrite detach` reports errors in words.
            codes.insert(1);
        }
        row.absorbed += u64::from(codes.is_empty());
        for code in codes {
            *row.codes.entry(code_name(code)).or_default() += 1;
        }
        row.reopened += u64::from(story.reopened.is_some());
    }

    /// Records the results of a condition.
    pub fn record_condition(&mut self, condition: Condition, tally: Tally) {
        if let Some(why) = &tally.skipped {
            self.skipped.insert(condition.to_string(), why.clone());
            return;
        }
        if !tally.broken.is_empty() {
            self.findings.push(Finding {
                replay: format!("faults --mode {} --condition {condition}", self.mode),
                broken: tally.broken.clone(),
            });
        }
        self.conditions.insert(condition.to_string(), tally);
    }

    /// Records broken promises.
    pub fn find(&mut self, replay: String, broken: Vec<String>) {
        let words: Vec<&str> = replay.split(' ').collect();
        let after = |name: &str| {
            let at = words.iter().position(|word| *word == name)?;
            words.get(at + 1).copied()
        };
        if let (Some(scenario), Some(fault)) = (after("--scenario"), after("--errno")) {
            let lasts = if words.contains(&"--forever") {
                "for good"
            } else {
                "once"
            };
            let rows = self.rows.entry(scenario.to_owned()).or_default();
            rows.entry(format!("{fault} {lasts}")).or_default().broken += 1;
        }
        self.findings.push(Finding { replay, broken });
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            out,
            "{:<20} {:<20} {:>6} {:>8} {:>8}  {:<7} codes",
            "scenario", "fault", "number", "absorbed", "reopened", "verdict"
        )?;
        for (scenario, rows) in &self.rows {
            for (fault, row) in rows {
                let codes: Vec<String> = row
                    .codes
                    .iter()
                    .map(|(code, count)| format!("{code} {count}"))
                    .collect();
                let verdict = if row.broken == 0 { "kept" } else { "BROKEN" };
                writeln!(
                    out,
                    "{scenario:<20} {fault:<20} {:>6} {:>8} {:>8}  {verdict:<7} {}",
                    row.injections,
                    row.absorbed,
                    row.reopened,
                    codes.join(", ")
                )?;
            }
        }
        for (condition, tally) in &self.conditions {
            let codes: Vec<String> = tally
                .codes
                .iter()
                .map(|(code, count)| format!("{code} {count}"))
                .collect();
            let verdict = if tally.broken.is_empty() {
                "kept"
            } else {
                "BROKEN"
            };
            let dash = "-";
            writeln!(
                out,
                "{condition:<20} {:<20} {:>6} {dash:>8} {dash:>8}  {verdict:<7} {}",
                "condition",
                tally.tried,
                codes.join(", ")
            )?;
        }
        for (scenario, why) in &self.skipped {
            writeln!(out, "SKIPPED: {scenario}: {why}")?;
        }
        for finding in &self.findings {
            writeln!(out, "BROKEN: onewrite-torture {}", finding.replay)?;
            for what in &finding.broken {
                writeln!(out, "    {what}")?;
            }
        }
        write!(
            out,
            "{}: {} system calls, {} faults put in, {} broken promises",
            self.mode,
            self.calls,
            self.injections,
            self.findings.len()
        )
    }
}
