//! The meaning of a log's end: to recovery, and where the log is in use, to its users.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use onewrite::log::scan::{Survey, Verdict};

use super::report::{Report, counted};
use super::users::{self, Published};
use crate::regular::open_regular;

/// The database of a log, and its users.
pub struct Owner {
    /// `None` where there is no such file.
    pub database: Option<PathBuf>,
    /// Another process has it open.
    pub has_users: bool,
    /// The content of the wal-index. It is read before the log, so the log holds at least that.
    pub published: Option<Published>,
}

impl Owner {
    /// The database itself.
    pub fn of_database(database: &Path) -> Owner {
        Owner {
            has_users: users::has_users(database).unwrap_or(false),
            published: users::published(database),
            database: Some(database.to_owned()),
        }
    }

    /// The database that the log belongs to by its name.
    pub fn of_log(log: &Path) -> Owner {
        let name = log.as_os_str().as_bytes();
        let suffixes = [&b"-onewrite"[..], b"-wal"];
        let database = suffixes
            .iter()
            .find_map(|suffix| name.strip_suffix(*suffix))
            .map(|name| PathBuf::from(OsStr::from_bytes(name)))
            .filter(|database| database.is_file());
        match database {
            Some(database) => Owner::of_database(&database),
            None => Owner {
                database: None,
                has_users: false,
                published: None,
            },
        }
    }

    /// The database, to look for pages that an exchange moved there.
    pub fn file(&self) -> Option<File> {
        open_regular(self.database.as_ref()?).ok()
    }
}

/// The findings in a log, and its users.
pub struct Judge<'a> {
    /// The log.
    pub path: &'a Path,
    /// Of the whole log.
    pub survey: &'a Survey,
    /// The file's size is a multiple of this many bytes; 1 where any size is right.
    pub unit: u64,
    /// Another process may write it.
    pub in_use: bool,
    /// The last commit that the wal-index promises of this generation; `None` where the log cannot
    /// be checked against it.
    pub published: Option<Published>,
}

/// Commits that were in a log, and that recovery does not reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lost {
    /// Commits after the place where recovery ends.
    pub transactions: u64,
    /// The last frame that the wal-index names as committed, if recovery does not reach it.
    pub published: Option<u32>,
}

impl Lost {
    /// `published` is the state that the wal-index names, of this generation.
    pub fn of(survey: &Survey, published: Option<Published>) -> Option<Lost> {
        let reached = survey.committed.map_or(0, |commit| commit.frame.0);
        let beyond = published.filter(|published| published.last_frame > reached);
        let lost = Lost {
            transactions: survey.behind.present_commits,
            published: beyond.map(|published| published.last_frame),
        };
        // A process that dies between the write and the publication leaves one commit without
        // an answer (N8). Several are damage.
        let is_exact = |p: Published| p.is_recent && p.last_frame == reached;
        match lost.transactions {
            0 => beyond.map(|_| lost),
            1 if published.is_some_and(is_exact) => None,
            _ => Some(lost),
        }
    }
}

/// The words that follow "recovery ends there".
impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.transactions > 0 {
            let dropped = counted(self.transactions, "transaction");
            // The frame that does not follow may have ended one more.
            write!(f, " and drops at least {dropped} of this log")?;
        }
        match self.published {
            Some(frame) => write!(
                f,
                ", but the wal-index says that frames up to {frame} were committed"
            ),
            None => Ok(()),
        }
    }
}

impl Judge<'_> {
    /// Adds problems and notes to the report.
    pub fn judge(&self, report: &mut Report, owner: &Owner) {
        let survey = self.survey;
        if self.in_use {
            return self.judge_live(report);
        }
        let committed = survey.committed.map_or(0, |commit| commit.frame.0);
        if survey.valid > committed {
            let (first, last) = (committed + 1, survey.valid);
            self.note(report, format_args!(
                "frames {first} to {last} follow, but none of them ends their transaction: recovery drops them"
            ));
        }
        self.judge_end(report);
        self.judge_last_block(report);
        self.judge_size(report, owner);
    }

    /// Frames after the last published commit are the work in progress of a writer.
    fn judge_live(&self, report: &mut Report) {
        let valid = self.survey.valid;
        match self.published {
            Some(published) if published.last_frame > valid => {
                let what = format!(
                    "frame {} is {}, but the wal-index says that frames up to {} are committed: the log was \
                     damaged or replaced while in use",
                    valid.saturating_add(1),
                    self.survey
                        .end
                        .map_or("not there", |end| end.verdict.word()),
                    published.last_frame
                );
                report.problem(self.path, self.survey.end.map(|end| end.offset), what);
            }
            Some(published) => self.note(
                report,
                format_args!("in use: committed up to frame {}", published.last_frame),
            ),
            None => self.note(report, format_args!("in use")),
        }
        if self.survey.grew {
            self.note(
                report,
                format_args!("frames were appended while it was read"),
            );
        }
    }

    fn judge_end(&self, report: &mut Report) {
        let survey = self.survey;
        if survey.grew {
            return self.note(
                report,
                format_args!("frames were appended while it was read"),
            );
        }
        let Some(end) = survey.end else {
            // The last frame ends the file.
            if let Some(lost) = Lost::of(survey, self.published) {
                let what = format!("the log ends after frame {}{lost}", survey.valid);
                report.problem(self.path, Some(survey.used_bytes), what);
            }
            return;
        };
        if let Some(what) = &survey.unread {
            return report.problem(self.path, Some(end.offset), what.as_str());
        }
        if let Some(lost) = Lost::of(survey, self.published) {
            let what = format!(
                "frame {} is {}: recovery ends there{}: a write was torn or lost before its commit was durable, \
                 or the log was damaged",
                end.frame, end.verdict, lost
            );
            report.problem(self.path, Some(end.offset), what);
        } else if survey.behind.present_commits > 0 {
            self.note(report, format_args!(
                "frame {} is {}: the wal-index says that its transaction was never acknowledged",
                end.frame, end.verdict
            ));
        } else if end.verdict == Verdict::CutShort {
            // A write that found no space leaves this, and so does a truncated file. Only the
            // wal-index tells them apart.
            let what = format!(
                "the file ends inside frame {}, at byte {}",
                end.frame, survey.size
            );
            match self.published {
                Some(_) => self.note(report, format_args!(
                    "{what}, as after a full disk. Recovery ends before that frame, and the wal-index names no \
                     commit behind it"
                )),
                None => report.problem(self.path, Some(end.offset), format!(
                    "{what}. It was cut short, or a write found no space: no wal-index is left that could name \
                     a commit behind it"
                )),
            }
        } else if end.is_present {
            self.note(report, format_args!(
                "frame {} is {}: the rest of a transaction that was rolled back or never finished",
                end.frame, end.verdict
            ));
        }
    }

    /// A write that found no space may leave a part of a block at the end, as with [`Verdict::CutShort`].
    fn judge_last_block(&self, report: &mut Report) {
        let survey = self.survey;
        let is_told = Lost::of(survey, self.published).is_some()
            || survey
                .end
                .is_some_and(|end| end.verdict == Verdict::CutShort);
        if survey.size.is_multiple_of(self.unit) || survey.grew || is_told {
            return;
        }
        let what = format!("the file ends inside a block, at byte {}", survey.size);
        match self.published {
            Some(_) => self.note(report, format_args!(
                "{what}, as after a full disk. The wal-index names no commit there"
            )),
            None => report.problem(self.path, Some(survey.size), format!(
                "{what}. It was cut short, or a write found no space: no wal-index is left that could name a \
                 commit there"
            )),
        }
    }

    /// The pages that the last commit counts must be in the log or in the database.
    fn judge_size(&self, report: &mut Report, owner: &Owner) {
        let page_size = report.database.as_ref().and_then(|found| found.page_size);
        let (Some(database), Some(page_size)) = (&owner.database, page_size) else {
            return;
        };
        let size = report.database.as_ref().map_or(0, |found| found.size);
        let first = u32::try_from(size / u64::from(page_size.max(1)) + 1).unwrap_or(u32::MAX);
        if let Some(missing) = self
            .survey
            .pages_missing_from(first)
            .filter(|&pages| pages > 0)
        {
            let what = format!(
                "cut short: {} that the log counts in it are neither there nor in the log",
                counted(missing.into(), "page")
            );
            report.problem(database, Some(size), what);
        }
    }

    fn note(&self, report: &mut Report, what: std::fmt::Arguments<'_>) {
        report
            .notes
            .push(format!("{}: {what}", self.path.display()));
    }
}
