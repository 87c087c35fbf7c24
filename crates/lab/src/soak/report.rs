//! The report of a soak.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::programs::{Missing, Program};

/// The number of findings kept in words.
const KEPT: usize = 20;
/// SQLite's primary codes.
const BUSY: i64 = 5;
const LOCKED: i64 = 6;
const IO_ERROR: i64 = 10;
const FULL: i64 = 13;
const CANTOPEN: i64 = 14;
const PROTOCOL: i64 = 15;

/// See the module.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    pub version: u32,
    pub mode: String,
    pub seed: u64,
    pub programs: Vec<Program>,
    /// The languages of the workers, by number.
    pub workers: Vec<&'static str>,
    pub missing: Vec<Missing>,
    /// The conditions that this soak does not make.
    pub not_done: Vec<String>,
    /// How often each event happened.
    pub events: BTreeMap<&'static str, u64>,
    /// Writes that the device's cache held at power cuts, and those that were lost or torn.
    pub cached_writes: u64,
    pub lost_writes: u64,
    pub torn_writes: u64,
    pub processes: u64,
    /// The name of the other library, and the processes that loaded it.
    pub other_library: Option<String>,
    pub processes_with_other: u64,
    /// Rows by language that were written while the worker's wall clock was wrong.
    pub rows_by_wrong_clock: BTreeMap<&'static str, u64>,
    pub acknowledged: u64,
    /// The workers' errors, by step, language, and SQLite's code.
    pub errors: BTreeMap<String, u64>,
    /// Backups that failed, with the reason.
    pub failed_copies: BTreeMap<String, u64>,
    pub failures: u64,
    pub wrong: Vec<String>,
    pub elapsed_s: f64,
    pub stopped_early: bool,
    /// The merged history, and what its check found.
    pub history: Option<PathBuf>,
    pub checked: Option<crate::history::Report>,
    /// The directory of the run, if it was kept.
    pub kept: Option<PathBuf>,
}

impl Report {
    pub fn count(&mut self, event: &'static str) {
        *self.events.entry(event).or_default() += 1;
    }

    /// Notes a failure.
    pub fn fail(&mut self, what: &str) {
        eprintln!("WRONG: {what}");
        self.failures += 1;
        if self.wrong.len() < KEPT {
            self.wrong.push(what.to_owned());
        }
    }

    /// Counts the workers' notes. Errors that a full disk explains are right only while it is full.
    pub fn gather(&mut self, directory: &Path, full: &[(u64, u64)]) -> Result<(), String> {
        for number in 0..self.workers.len() {
            let language = self.workers[number];
            let path = directory.join(format!("notes-{number}"));
            // A worker that never ran has no notes.
            let bytes = std::fs::read(&path).unwrap_or_default();
            for line in String::from_utf8_lossy(&bytes).lines() {
                self.judge(language, line, full);
            }
        }
        Ok(())
    }

    fn judge(&mut self, language: &str, line: &str, full: &[(u64, u64)]) {
        let mut words = line.splitn(4, ' ');
        let (Some(time), Some(kind), Some(code), Some(what)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return;
        };
        let (time, code): (u64, i64) = (time.parse().unwrap_or(0), code.parse().unwrap_or(0));
        let name = format!("{kind} {language} {code}");
        *self.errors.entry(name).or_default() += 1;
        let is_full = full.iter().any(|(from, to)| (*from..=*to).contains(&time));
        let is_right = match code & 0xff {
            _ if kind == "wrong" => false,
            BUSY | LOCKED => true,
            FULL | IO_ERROR | CANTOPEN | PROTOCOL => is_full,
            _ => false,
        };
        if !is_right {
            self.fail(&format!("{kind} {language} {code} at {time}: {what}"));
        }
    }
}
