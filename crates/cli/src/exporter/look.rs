//! Looks at databases and their logs, as `inspect` does, and writes what it sees as metrics.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use onewrite::mode::JournalMode;
use onewrite_common::exposition::{Exposition, Label, Metric};
use onewrite_common::files::COMPANIONS;
use onewrite_common::metrics as m;
use rustix::time::{ClockId, clock_gettime};

use crate::inspect::look::{self, Wanted};
use crate::inspect::report::{Log, Report};
use crate::inspect::users;

/// Names that a pattern does not mean: a log is no database.
const SET_ASIDE: &str = "-onewrite-orphan-";

/// A database, or a pattern of names.
#[derive(Debug)]
pub struct Pattern(String);

impl Pattern {
    /// Checks the pattern.
    pub fn new(pattern: &str) -> Result<Pattern, String> {
        match glob::Pattern::new(pattern) {
            Ok(_) => Ok(Pattern(pattern.to_owned())),
            Err(e) => Err(format!(
                "{pattern}: {}: write a bracket as [[] or []]",
                e.msg
            )),
        }
    }

    /// The databases now. A name that is no pattern is one even where there is no such file.
    fn databases(&self) -> Vec<PathBuf> {
        if !self.0.contains(['*', '?', '[']) || Path::new(&self.0).exists() {
            return vec![PathBuf::from(&self.0)];
        }
        let found = glob::glob(&self.0).into_iter().flatten().flatten();
        found.filter(|path| is_no_companion(path)).collect()
    }
}

fn is_no_companion(path: &Path) -> bool {
    let name = path.to_string_lossy();
    !COMPANIONS.iter().any(|suffix| name.ends_with(suffix)) && !name.contains(SET_ASIDE)
}

/// The text for all databases.
pub fn metrics(patterns: &[Pattern]) -> String {
    let begin = Instant::now();
    let mut databases: Vec<_> = patterns.iter().flat_map(Pattern::databases).collect();
    databases.sort();
    databases.dedup();
    let mut text = Exposition::default();
    for path in &databases {
        let name = path.to_string_lossy();
        Database {
            text: &mut text,
            label: ("database", &name),
        }
        .look(path);
    }
    let took = begin.elapsed().as_secs_f64();
    text.add(&m::SCRAPE_DURATION, &[], took);
    let used = clock_gettime(ClockId::ProcessCPUTime);
    let used = used.tv_sec as f64 + used.tv_nsec as f64 / 1e9;
    text.add(&m::PROCESS_CPU, &[], used);
    text.to_string()
}

struct Database<'a> {
    text: &'a mut Exposition,
    label: Label<'a>,
}

impl Database<'_> {
    fn number(&mut self, metric: &'static Metric, value: u64) {
        self.text.add(metric, &[self.label], value);
    }

    fn look(&mut self, path: &Path) {
        let report = look::at(path, Wanted::Headers);
        let database = report.as_ref().ok().and_then(|it| it.database.as_ref());
        self.number(&m::UP, database.is_some().into());
        let (Ok(report), Some(database)) = (&report, database) else {
            return;
        };
        let header = report.log.as_ref().and_then(|log| log.header.as_ref());
        let mode = header.map_or("", |header| &header.mode);
        let info = [
            self.label,
            ("mode", mode),
            ("version", env!("CARGO_PKG_VERSION")),
        ];
        self.text.add(&m::INFO, &info, 1);
        self.number(&m::GUARDED, database.guarded.into());
        self.number(&m::DATABASE_BYTES, database.size);
        self.number(&m::IN_USE, report.in_use.into());
        self.number(&m::POISONED, report.poisoned.into());
        self.number(&m::PROBLEMS, report.problems.len() as u64);
        if let Some(log) = log_in_use(report) {
            self.of_log(log);
        }
        // A dead process may have left counts that are older than the log.
        if report.in_use {
            self.of_index(&database.path);
        }
    }

    fn of_log(&mut self, log: &Log) {
        self.number(&m::LOG_BYTES, log.size);
        let changed = fs::metadata(&log.path).and_then(|file| file.modified());
        if let Ok(changed) = changed {
            // A clock that was set back leaves a time in the future.
            let age = changed.elapsed().unwrap_or(Duration::ZERO);
            self.text.add(&m::LOG_AGE, &[self.label], age.as_secs_f64());
        }
    }

    fn of_index(&mut self, database: &Path) {
        let Some(progress) = users::progress(database) else {
            return;
        };
        let last = progress.last_frame;
        let oldest = progress.behind.first().map(|mark| mark.frame);
        for (metric, value) in [
            (&m::LOG_FRAMES, last),
            (&m::BEHIND, last.saturating_sub(progress.checkpointed)),
            (&m::READERS, progress.readers.len() as u32),
            (&m::OLD_READERS, progress.behind.len() as u32),
            (&m::READER_LAG, oldest.map_or(0, |oldest| last - oldest)),
        ] {
            self.number(metric, value.into());
        }
        // Several marks may be as old as the first.
        if let [reader, ..] = &users::readers_with(database, &progress.behind)[..] {
            self.number(&m::OLDEST_READER_PID, reader.pid.into());
        }
    }
}

/// The log that holds the frames: that of onewrite, or in `direct` and `wal` SQLite's own.
fn log_in_use(report: &Report) -> Option<&Log> {
    let is_ours = |log: &&Log| {
        let header = log.header.as_ref();
        header.is_some_and(|header| header.mode != JournalMode::Direct.name())
    };
    let ours = report.log.as_ref().filter(is_ours);
    ours.or(report.wal.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_finds_databases_and_not_their_logs() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        for name in [
            "a.db",
            "b.db",
            "a.db-wal",
            "a.db-onewrite",
            "a.db-onewrite-orphan-1",
        ] {
            fs::write(at(name), "").expect("a file");
        }
        let pattern = |name: &str| Pattern::new(&at(name).to_string_lossy()).expect("a pattern");
        assert_eq!(pattern("*").databases(), [at("a.db"), at("b.db")]);
        assert_eq!(pattern("none.db").databases(), [at("none.db")]);
        assert!(pattern("none*").databases().is_empty());
        assert!(Pattern::new("a[").is_err());
    }
}
