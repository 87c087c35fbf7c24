//! The facts about a database, and the JSON document. Its field names are part of the command's
//! interface.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use onewrite::mode::JournalMode;
use onewrite::storage::openers;
use serde::Serialize;

use crate::given::{self, quoted};
use crate::inspect::look::{self, Wanted, companion};
use crate::inspect::report::{self as inspected, Kind, Problem, hex};
use crate::inspect::{advice, counted, users};
use crate::{rights, verify};

/// Version of the JSON document.
const VERSION: u32 = 1;

/// A problem is reported if this many looks in a row find one.
const LOOKS: u32 = 4;
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// The highest format that stock SQLite can read: a database in WAL mode.
const STOCK_READ_VERSION: u8 = 2;

/// The document.
#[derive(Serialize)]
pub struct Report {
    version: u32,
    /// The name that the user gave.
    pub file: String,
    /// Whose the database is.
    pub kind: Whose,
    /// `onewrite`, `waldio`, `swal`, `direct`, `wal`, or `rollback` for those that SQLite does not
    /// store; null where the log does not say.
    pub journal_mode: Option<String>,
    /// The word for its condition.
    pub state: State,
    /// Whether stock SQLite can open it now, as this user.
    pub stock_sqlite_opens: bool,
    /// Whether it is guarded for a log of onewrite.
    pub guarded: bool,
    /// The id of that log.
    pub log_id: Option<String>,
    /// Another process has it open, as far as locks and open files show.
    pub in_use: bool,
    /// The programs that have it open, as far as this user can see them.
    pub programs: Vec<Program>,
    /// The log that holds the frames; null without one.
    pub log: Option<Log>,
    /// Whatever is wrong.
    pub problems: Vec<Problem>,
    /// Facts that are worth knowing, but not wrong.
    pub notes: Vec<String>,
    /// The command that makes it a stock database for good; null for a stock or a broken database.
    pub way_out: Option<String>,
    /// How to copy it; null for a broken database.
    pub copy: Option<String>,
    /// Its header is one that SQLite accepts, or it is empty.
    #[serde(skip)]
    pub has_valid_header: bool,
    /// This user may not make the files that SQLite reads it with.
    #[serde(skip)]
    pub lacks_rights: bool,
    /// Its wal-index names commits of a log that is not there.
    #[serde(skip)]
    pub lacks_log: bool,
    /// `inspect` found a problem, and has looked again already.
    #[serde(skip)]
    is_settled: bool,
}

/// Whose a database is.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Whose {
    /// SQLite's alone.
    Stock,
    /// In a mode of onewrite, or remembers one.
    Onewrite,
}

/// The condition of a database.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Closed, and complete without its log.
    Clean,
    /// A process has it open.
    InUse,
    /// The next open recovers it.
    NeedsRecovery,
    /// See the problems.
    Broken,
}

/// A program that has the database open.
#[derive(Serialize)]
pub struct Program {
    /// The process.
    pub pid: u32,
    /// Its name.
    pub name: String,
}

/// A log.
#[derive(Serialize)]
pub struct Log {
    /// Its path.
    pub path: String,
    /// Bytes of the file.
    pub size: u64,
    /// The format version of onewrite; null for SQLite's own log.
    pub format_version: Option<u32>,
    /// How frames lie in it; null for SQLite's own log.
    pub layout: Option<String>,
    /// Where its valid frames end, in bytes; 0 without any. Null where the header is damaged, as in
    /// the following fields.
    pub used_bytes: Option<u64>,
    /// Committed frames.
    pub frames: Option<u32>,
    /// Their transactions.
    pub transactions: Option<u64>,
    /// Committed frames that are not in the database yet; null where that is unknown.
    pub frames_not_checkpointed: Option<u32>,
}

impl Report {
    /// Looks at a database.
    ///
    /// # Errors
    /// The file cannot be read, or is not a database.
    pub fn of(file: &Path) -> Result<Report, String> {
        let mut report = Self::look(file)?;
        // A process may write it between the looks at its size and at its locks.
        for _ in 1..LOOKS {
            if report.state != State::Broken || report.is_settled {
                break;
            }
            std::thread::sleep(PAUSE);
            report = Self::look(file)?;
        }
        if matches!(report.state, State::Clean | State::InUse) {
            return Ok(report);
        }
        // A process may have closed it between the looks at its guard and at its locks.
        std::thread::sleep(PAUSE);
        match report.is_still(file) {
            true => Ok(report),
            false => Self::look(file),
        }
    }

    /// Whether a look at the headers, which is cheap, finds the same.
    fn is_still(&self, file: &Path) -> bool {
        let (Ok(found), Ok(path)) = (look::at(file, Wanted::Headers), fs::canonicalize(file))
        else {
            return false;
        };
        let is_guarded = found.database.as_ref().is_some_and(|it| it.guarded);
        let size = |log: Option<&Log>| log.map(|it| it.size);
        (is_guarded, found.in_use) == (self.guarded, self.in_use)
            && size(log(&path, &found).as_ref()) == size(self.log.as_ref())
    }

    fn look(file: &Path) -> Result<Report, String> {
        let found = look::at(file, Wanted::Frames(0)).map_err(|e| e.to_string())?;
        let path = fs::canonicalize(file).map_err(|e| format!("{}: {e}", file.display()))?;
        if let Some(error) = no_database(file, &path, &found) {
            return Err(error);
        }
        let mut report = Report {
            version: VERSION,
            file: file.display().to_string(),
            kind: Whose::Stock,
            journal_mode: None,
            state: State::Clean,
            stock_sqlite_opens: false,
            guarded: found.database.as_ref().is_some_and(|it| it.guarded),
            log_id: found.database.as_ref().and_then(|it| it.log_id.clone()),
            in_use: found.in_use,
            programs: programs(&path),
            log: None,
            problems: Vec::new(),
            notes: Vec::new(),
            way_out: None,
            copy: None,
            lacks_rights: false,
            lacks_log: false,
            is_settled: !found.problems.is_empty(),
            has_valid_header: match &found.database {
                Some(database) => database.page_size.is_some(),
                None => found.kind == Kind::Empty,
            },
        };
        let read_version = found.database.as_ref().map_or(0, |it| it.read_version);
        report.stock_sqlite_opens = report.has_valid_header && read_version <= STOCK_READ_VERSION;
        report.look_at_modes(&found);
        report.log = log(&path, &found);
        report.problems = found.problems;
        if found.kind == Kind::Empty {
            report.notes.extend(found.notes);
        }
        if let Some(database) = &found.database {
            let wal = found.wal.as_ref();
            report.look_at_file(
                &path,
                database,
                wal.is_some_and(|it| it.wal_header.is_some()),
            );
        }
        report.look_at_rights(&path);
        let journal = report.look_around(&path).map_err(|e| e.to_string())?;
        report.advise(journal.as_deref());
        Ok(report)
    }

    /// The mode, and whose it is.
    fn look_at_modes(&mut self, found: &inspected::Report) {
        let remembered = found.log.as_ref().and_then(|log| log.header.as_ref());
        let remembered = remembered.map(|header| header.mode.clone());
        let is_wal = found
            .database
            .as_ref()
            .is_some_and(|it| it.write_version == 2 || it.guarded);
        self.journal_mode = match (is_wal, remembered) {
            _ if !self.has_valid_header => None,
            (true, Some(mode)) => Some(mode),
            (true, None) if self.guarded || found.log.is_some() => None,
            (true, None) => Some("wal".to_owned()),
            (false, remembered) => {
                if let Some(mode) = remembered.filter(|_| found.problems.is_empty()) {
                    self.notes.push(format!(
                        "its log remembers the mode {mode}, but the database is in a rollback mode now"
                    ));
                }
                Some("rollback".to_owned())
            }
        };
        if self.guarded || found.log.is_some() {
            self.kind = Whose::Onewrite;
            self.way_out = Some(format!("onewrite detach {}", quoted(&self.file)));
        }
    }

    /// The file itself, and its wal-index. `has_wal`: there is a log of SQLite's own.
    fn look_at_file(&mut self, path: &Path, database: &inspected::Database, has_wal: bool) {
        let names = fs::metadata(path).map_or(1, |it| it.nlink());
        if names > 1 {
            self.notes.push(format!(
                "the file has {names} names (hard links). SQLite looks for the log next to the name that \
                 it opens: another name may have another log"
            ));
        }
        if self.in_use {
            return;
        }
        if !self.has_frames()
            && let Some(problem) = verify::cut_short(path, database)
        {
            // SQLite takes a part of a page for a page.
            let page_size = u64::from(database.page_size.unwrap_or(1));
            self.stock_sqlite_opens &=
                database.size.div_ceil(page_size) >= u64::from(database.pages);
            self.problems.push(problem);
        }
        if !has_wal && let Some(left) = verify::left_index(path, database) {
            self.lacks_log = left.lacks_log;
            self.notes.push(left.note);
        }
    }

    /// Whether this user may make the files that SQLite reads a database with. A guarded one is refused in
    /// any case.
    fn look_at_rights(&mut self, path: &Path) {
        if self.stock_sqlite_opens
            && let Some(why) = rights::why_unreadable(path)
        {
            self.lacks_rights = true;
            self.stock_sqlite_opens = false;
            self.notes.push(why);
        }
    }

    fn has_frames(&self) -> bool {
        let log = self.log.as_ref();
        log.and_then(|log| log.frames).is_some_and(|it| it > 0)
    }

    /// The state, from everything around the database. Returns its hot journal.
    fn look_around(&mut self, path: &Path) -> io::Result<Option<PathBuf>> {
        let journal = companion(path, "-journal");
        let is_hot = verify::is_hot_journal(&journal)?;
        if is_hot && self.guarded {
            self.problems.push(Problem {
                file: journal.clone(),
                offset: None,
                what: advice::stock_file_next_to_guard().to_owned(),
            });
        }
        // A user of the database may lack the permission to list its directory.
        let set_aside = verify::set_aside(path).unwrap_or_default();
        if !set_aside.is_empty() {
            let logs = counted(set_aside.len() as u64, "log");
            self.notes.push(format!(
                "{logs} of a database that was here before, set aside: \"onewrite verify {}\" says more",
                quoted(&self.file)
            ));
        }
        self.state = if !self.problems.is_empty() {
            State::Broken
        } else if self.in_use {
            State::InUse
        } else if self.guarded || self.has_frames() || is_hot || self.lacks_log {
            State::NeedsRecovery
        } else if !self.programs.is_empty() {
            // An idle connection in a rollback mode holds no lock.
            self.in_use = true;
            State::InUse
        } else {
            State::Clean
        };
        if is_hot && self.state == State::NeedsRecovery {
            self.notes
                .push("a transaction was cut off: the next open rolls it back".to_owned());
        }
        Ok(is_hot.then_some(journal))
    }

    /// Says how to copy it. A broken database gets no command.
    fn advise(&mut self, journal: Option<&Path>) {
        let name = quoted(&self.file);
        let is_ours = self.kind == Whose::Onewrite;
        self.copy = match self.state {
            State::Broken => {
                // A command could drop transactions.
                self.way_out = None;
                None
            }
            State::Clean => Some(
                "the file alone is complete now, as long as no program opens it meanwhile"
                    .to_owned(),
            ),
            State::InUse => Some(format!("not the file alone: onewrite backup {name} COPY")),
            State::NeedsRecovery => {
                let log = self
                    .log
                    .as_ref()
                    .filter(|_| self.has_frames() || self.guarded);
                let log = log.map(|log| log.path.clone());
                let journal = journal.map(|it| it.display().to_string());
                let first = match is_ours {
                    true => format!("onewrite detach {name}"),
                    false => "open and close it with any SQLite".to_owned(),
                };
                Some(match log.or(journal) {
                    Some(log) => {
                        format!(
                            "the file together with {log}; or first {first}, then the file alone"
                        )
                    }
                    None => format!("first {first}, then the file alone"),
                })
            }
        };
    }
}

/// Why the file is not a database; `None` if it is one.
fn no_database(file: &Path, path: &Path, found: &inspected::Report) -> Option<String> {
    let name = file.display();
    let companion = given::companion(path, "status").filter(|_| found.kind != Kind::Database);
    if let Some(what) = companion {
        return Some(format!("{name}: {what}"));
    }
    match found.kind {
        Kind::Database | Kind::Empty => None,
        Kind::Log | Kind::Wal => Some(format!(
            "{name}: this is a log: give its database. \"onewrite inspect\" shows a log without one"
        )),
        Kind::Unknown => {
            let what = found.problems.first().map(|it| it.what.as_str());
            Some(format!("{name}: {}", what.unwrap_or("not a database")))
        }
    }
}

fn programs(path: &Path) -> Vec<Program> {
    let mut programs: Vec<Program> = openers(path)
        .into_iter()
        .map(|it| Program {
            pid: it.pid,
            name: it.program,
        })
        .collect();
    programs.sort_by_key(|it| it.pid);
    programs
}

/// The log that holds the frames: that of onewrite, or in `direct` and `wal` SQLite's own. Stock
/// SQLite may have opened a database since that was closed in a mode of onewrite: its log holds the
/// frames then.
fn log(path: &Path, found: &inspected::Report) -> Option<Log> {
    let ours = found.log.as_ref();
    let header = ours.and_then(|log| log.header.as_ref());
    let is_direct = header.is_some_and(|it| it.mode == JournalMode::Direct.name());
    let is_guarded = found.database.as_ref().is_some_and(|it| it.guarded);
    let is_empty = header.is_some_and(|it| it.empty);
    let log = match (ours, &found.wal) {
        (Some(ours), Some(wal)) if is_direct => {
            return Some(described(path, wal, found, Some(ours)));
        }
        (Some(_), Some(wal)) if is_empty && !is_guarded => {
            return Some(described(path, wal, found, None));
        }
        (Some(ours), _) => ours,
        (None, wal) => wal.as_ref()?,
    };
    Some(described(path, log, found, ours))
}

/// A log in the words of the document. `ours` has the header of onewrite.
fn described(
    path: &Path,
    log: &inspected::Log,
    found: &inspected::Report,
    ours: Option<&inspected::Log>,
) -> Log {
    let header = ours.and_then(|log| log.header.as_ref());
    let frames = log.frames.as_ref();
    let committed = frames.and_then(|it| it.committed.as_ref());
    // The header of `direct` is that of the file which remembers the mode.
    let is_empty = log.header.as_ref().is_some_and(|it| it.empty);
    let is_known = frames.is_some() || is_empty;
    let committed = is_known.then(|| committed.map_or(0, |it| it.frame));
    let totals = frames.map(|it| &it.totals);
    Log {
        path: log.path.display().to_string(),
        size: log.size,
        format_version: header
            .map(|it| it.format_version)
            .or(ours.and_then(|log| log.newer_version)),
        layout: header.map(|it| it.layout.clone()),
        used_bytes: is_known.then(|| totals.map_or(0, |it| it.bytes_used)),
        frames: committed,
        transactions: is_known.then(|| totals.map_or(0, |it| it.transactions)),
        frames_not_checkpointed: match (committed, found.in_use) {
            (None | Some(0), _) | (_, false) => committed,
            (_, true) => not_checkpointed(path, log),
        },
    }
}

/// Frames that the wal-index of a database in use names as committed, and no checkpoint has copied.
fn not_checkpointed(path: &Path, log: &inspected::Log) -> Option<u32> {
    let progress = users::progress(path)?;
    let salts = &log.wal_header.as_ref()?.salts;
    // Of another generation: the log began again between two looks.
    let is_same = hex(&progress.salts) == *salts;
    is_same.then(|| progress.last_frame.saturating_sub(progress.checkpointed))
}
