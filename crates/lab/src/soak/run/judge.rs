//! Judges the output of checks, backups and shells.

use std::path::PathBuf;

use super::super::check::Found;
use super::super::job::{Job, Role, now};
use super::super::tasks::{self, Done, Kind};
use super::Run;

impl Run<'_> {
    pub(super) fn reap(&mut self) -> Result<(), String> {
        for done in self.tasks.done()? {
            match done.kind.clone() {
                Kind::Check => self.judge_check("check", &done),
                Kind::Shell => self.judge_shell(&done),
                Kind::Verify { method, copy } => {
                    self.judge_check(method, &done);
                    if self.report.failures == 0 {
                        tasks::remove(&copy);
                    }
                }
                Kind::Copy {
                    method,
                    copy,
                    began,
                } => self.copied(method, copy, began, &done)?,
            }
        }
        Ok(())
    }

    /// Whether the text is SQLite's for a database that is in use, or a disk that is full.
    fn is_excused(&self, errors: &str) -> bool {
        let is_full =
            self.full_until.is_some() || self.full.last().is_some_and(|(_, until)| now() <= *until);
        let words = ["locked", "busy", "another connection", "has it open"];
        let is_busy = words.iter().any(|word| errors.contains(word));
        let words = [
            "full",
            "No space",
            "disk I/O",
            "unable to open",
            "locking protocol",
        ];
        is_busy || is_full && words.iter().any(|word| errors.contains(word))
    }

    fn judge_check(&mut self, what: &str, done: &Done) {
        match serde_json::from_str::<Found>(&done.output) {
            Ok(found) => {
                self.report.acknowledged = self.report.acknowledged.max(found.acknowledged);
                if done.kind == Kind::Check {
                    self.note_wrong_clocks(&found);
                }
                for (kind, (count, example)) in found.wrong {
                    self.report
                        .fail(&format!("{what}: {count} times {kind}: {example}"));
                }
            }
            Err(_) if self.is_excused(&done.errors) => self.report.count("check not possible"),
            Err(_) => self
                .report
                .fail(&format!("{what}: {}: {}", done.status, done.errors.trim())),
        }
    }

    /// A check sees all rows.
    fn note_wrong_clocks(&mut self, found: &Found) {
        self.report.rows_by_wrong_clock.clear();
        for (process, rows) in &found.wrong_clock {
            let language = self.fleet.language(*process).unwrap_or("unknown");
            *self.report.rows_by_wrong_clock.entry(language).or_default() += rows;
        }
    }

    fn judge_shell(&mut self, done: &Done) {
        let total = self.job.total.to_string();
        let wrong = done.output.lines().find(|line| *line != total);
        if let Some(wrong) = wrong {
            self.report.fail(&format!("a stock shell read {wrong}"));
        } else if !done.status.success() && !self.is_excused(&done.errors) {
            self.report
                .fail(&format!("a stock shell: {}", done.errors.trim()));
        }
    }

    fn copied(
        &mut self,
        method: &'static str,
        copy: PathBuf,
        began: u64,
        done: &Done,
    ) -> Result<(), String> {
        if !done.status.success() {
            let last = done.errors.lines().last().unwrap_or("").to_owned();
            if !self.is_excused(&done.errors) {
                self.report.fail(&format!("{method}: {last}"));
            }
            let reason = format!("{method}: {last}");
            *self.report.failed_copies.entry(reason).or_default() += 1;
            tasks::remove(&copy);
            return Ok(());
        }
        let set = |job: &mut Job| {
            job.copy = copy.clone();
            job.until = began;
            job.integrity = true;
        };
        let mut command = self.command("rust", Role::Verify, set)?;
        let kind = Kind::Verify { method, copy };
        self.tasks.start(kind, &mut command)
    }
}
