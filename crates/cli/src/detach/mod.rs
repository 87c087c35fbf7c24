//! `onewrite detach`: makes a stock database of one that was not closed cleanly.
//!
//! SQLite itself recovers the log, through the onewrite VFS. It reads the log, copies it into the
//! database and closes as the last connection, which ends the guard. Where the log is missing,
//! damaged or that of another database, the database goes on without it, but only if the user says
//! so. The log is set aside.
//!
//! This code looks at the files directly only while this process has no connection to the database.
//! A second descriptor on it would drop SQLite's locks.

mod report;

use onewrite_common::files::companion;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use onewrite::log::scan::{OpenedLog, Survey, Writers, survey_file};
use onewrite::log::{HeaderError, LogId};
use onewrite::storage::{Access, Create, DirectIo, LockByte, LockKind, LogFile};
use onewrite::{DATABASE_HEADER_BYTES, DiscardError};
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::inspect::{DatabaseHeader, counted, log_of, lsmvbt, users};
use crate::{Outcome, given, rights};
use report::{Done, GivenUp, Recovered, Report};

/// Explains the steps below the options of `detach --help`.
pub const AFTER_HELP: &str = "\
A database in a journal mode of onewrite is a stock database again as soon as its last connection is \
closed. After a crash, or where the last connection could not do this, it stays guarded. Its newest \
transactions are then in the log next to it (DB-onewrite), and stock SQLite says \"file is not a database\". \
Any program that uses onewrite recovers it by opening it. This command does so, and closes it again.

Afterwards DB is a stock database in SQLite's WAL mode. DB-onewrite is removed, and with it the journal \
mode, so that any program may use the file and any tool may copy it alone. Stock SQLite checks the result \
(PRAGMA integrity_check). To use onewrite again, set PRAGMA journal_mode=onewrite again.

--discard is for a database whose log is missing, damaged, or that of another database. Transactions that \
are only in that log are not in the database afterwards: at least everything since the last checkpoint. If \
a checkpoint was interrupted, the database may be damaged without the log; the final check shows that. The \
log is kept as DB-onewrite-orphan-ID. A log that can be recovered is recovered, with or without --discard. \
First look at the files with `onewrite verify DB`, and save them with `onewrite salvage DB -o OUT`.

Nothing is done while another process has the database open.

Examples:
  onewrite detach app.db
  onewrite detach --discard app.db
  onewrite detach app.db --json | jq .recovered.transactions";

/// The options of `onewrite detach`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The database
    #[arg(value_name = "DB")]
    database: PathBuf,

    /// Continue without a log that cannot be recovered, and keep that log under another name
    #[arg(long)]
    discard: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// The database is in use, or cannot become a stock one without giving something up.
pub fn run(args: &Args) -> Outcome {
    let named = |e: String| format!("{}: {e}", args.database.display());
    let unread = |e: io::Error| named(given::why_unread(&args.database, &e));
    let path = fs::canonicalize(&args.database).map_err(unread)?;
    if path.is_dir() {
        return Err(unread(io::ErrorKind::IsADirectory.into()));
    }
    let state = state_of(&path).map_err(named)?;
    let writes = match &state {
        State::Ours => true,
        State::Broken(_) => args.discard,
        State::Stock | State::Newer(_) => false,
    };
    if writes {
        rights::check_recovery(&path)?;
        check_room(&path)?;
    }
    onewrite::register().map_err(|e| e.to_string())?;
    let mut report = Report::new(&path);
    match state {
        State::Stock => return show(&report, args.json),
        State::Ours => {
            report.recovered = Some(recover(&path).map_err(named)?);
            report.discard_not_needed = args.discard;
            report.done = Done::Recovered;
        }
        State::Newer(why) => return Err(named(why)),
        State::Broken(broken) if args.discard => {
            report.given_up = Some(discard(&path, &broken).map_err(named)?);
            report.done = Done::Discarded;
        }
        State::Broken(broken) => return Err(named(broken.way_out())),
    }
    let (mode, check) = verify(&path).map_err(named)?;
    let is_ok = check == "ok";
    let is_all = report.recovered.as_ref().is_none_or(Recovered::is_all);
    report.journal_mode = Some(mode);
    report.integrity_check = Some(check);
    let shown = show(&report, args.json)?;
    match (is_ok, is_all) {
        (true, true) => Ok(shown),
        (true, false) => Ok(ExitCode::FAILURE),
        (false, _) => Err(named("the database is damaged; see above".to_owned())),
    }
}

fn show(report: &Report, as_json: bool) -> Outcome {
    crate::output::print(as_json, report, || report.render())?;
    Ok(ExitCode::SUCCESS)
}

/// The reason why the database cannot be opened.
struct Broken {
    why: String,
    guard: Option<LogId>,
    change_counter: u32,
    pages: u32,
}

impl Broken {
    fn way_out(&self) -> String {
        let log = match self.guard {
            Some(id) => format!(
                "put the log {id} back next to the database, if you have it. \"onewrite salvage DB -o OUT\" \
                 makes a new database of what is here, and changes nothing. \"onewrite detach --discard\" \
                 makes this one a stock database without that log: as its last checkpoint left it \
                 (change counter {}, {}), without the transactions since then",
                self.change_counter,
                counted(self.pages.into(), "page")
            ),
            None => {
                "put the database that it belongs to back. \"onewrite salvage LOG -o OUT\" makes a new \
                     database of its content. \"onewrite detach --discard\" sets it aside and leaves this \
                     database as it is"
                    .to_owned()
            }
        };
        format!("{}: {log}", self.why)
    }
}

/// The state of the files, before SQLite opens them.
enum State {
    Stock,
    Ours,
    Newer(String),
    Broken(Broken),
}

fn state_of(path: &Path) -> Result<State, String> {
    let head = head_of::<DATABASE_HEADER_BYTES>(path)
        .and_then(|head| head.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound)))
        .map_err(|e| given::why_unread(path, &e))?;
    let header = match DatabaseHeader::parse(&head) {
        Some(header) => header,
        None => {
            let refusal = lsmvbt::refusal(&head);
            let refusal = refusal.or_else(|| given::no_database(path, &head, "detach"));
            return Err(refusal.unwrap_or_else(|| given::EMPTY.to_owned()));
        }
    };
    let log_path = log_of(path);
    let cannot = |e: io::Error| format!("{}: {e}", log_path.display());
    let log = open_if_there(&log_path).map_err(cannot)?;
    let broken = |why: String| {
        State::Broken(Broken {
            why,
            guard: header.guard,
            change_counter: header.change_counter,
            pages: header.pages,
        })
    };
    let log = match log {
        None if header.guard.is_none() => return Ok(State::Stock),
        None => return Ok(broken(format!("its log {} is missing", log_path.display()))),
        Some(file) => onewrite::log::header::of(&file).map_err(cannot)?,
    };
    if log.is_none() && header.guard.is_none() {
        // A process died, or the power failed, right after the log was made.
        return Ok(State::Ours);
    }
    // A guarded database's log was written.
    let log = log.unwrap_or(Err(HeaderError::Lost));
    Ok(match (log, header.guard) {
        (Err(e @ HeaderError::Version(_)), _) => {
            State::Newer(format!("{}: {e}", log_path.display()))
        }
        (Err(e), _) => broken(format!("{}: {e}", log_path.display())),
        (Ok(log), Some(id)) if log.id != id => broken(format!(
            "{} belongs to another database: its id is {}, this one is guarded for {id}",
            log_path.display(),
            log.id
        )),
        (Ok(log), None) if !log.is_empty() => broken(format!(
            "{} holds transactions of another database that once had this name",
            log_path.display()
        )),
        (Ok(_), Some(_)) => match foreign_file(path) {
            Some(file) => {
                return Err(format!(
                    "{} belongs to another database, and SQLite would apply it to this one: \
                     rename it first (\"onewrite verify\" shows its contents)",
                    file.display()
                ));
            }
            None => State::Ours,
        },
        (Ok(_), _) => State::Ours,
    })
}

/// A log or a hot journal of stock SQLite. There was none when the database was guarded, and stock
/// SQLite has made none since.
fn foreign_file(path: &Path) -> Option<PathBuf> {
    let (wal, journal) = (companion(path, "-wal"), companion(path, "-journal"));
    if fs::metadata(&wal).is_ok_and(|file| file.len() > 0) {
        return Some(wal);
    }
    // SQLite zeroes the first byte of a journal that it keeps.
    let first = head_of::<1>(&journal).ok().flatten()?;
    first
        .first()
        .is_some_and(|&byte| byte != 0)
        .then_some(journal)
}

/// A regular file opened for reading; `None` where there is no file.
fn open_if_there(path: &Path) -> io::Result<Option<fs::File>> {
    match fs::metadata(path) {
        Ok(found) if found.is_file() => fs::File::open(path).map(Some),
        Ok(_) => Err(io::Error::other("not a regular file")),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// The first `N` bytes of a file, or as many as it has; `None` where there is no file.
fn head_of<const N: usize>(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let Some(file) = open_if_there(path)? else {
        return Ok(None);
    };
    let mut head = Vec::new();
    file.take(N as u64).read_to_end(&mut head)?;
    Ok(Some(head))
}

fn open(path: &Path, vfs: &str) -> Result<Connection, String> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags_and_vfs(path, flags, vfs).map_err(in_words)?;
    let patience = std::time::Duration::from_secs(1);
    connection.busy_timeout(patience).map_err(in_words)?;
    Ok(connection)
}

fn in_words(error: rusqlite::Error) -> String {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => in_use(),
        Some(ErrorCode::DiskFull) => rights::NO_SPACE.to_owned(),
        _ if rights::is_without_index(&error) => rights::NO_INDEX.to_owned(),
        _ => error.to_string(),
    }
}

/// Refuses a full file system before SQLite opens the database: an open without room for the
/// wal-index leaves a database guarded that was not.
fn check_room(path: &Path) -> Result<(), String> {
    let is_missing = |suffix: &str| !companion(path, suffix).exists();
    let missing = SHARED_BYTES.iter().filter(|(suffix, _)| is_missing(suffix));
    let needed: u64 = missing.map(|(_, bytes)| bytes).sum();
    let directory = path.parent().unwrap_or(Path::new("/"));
    // A file system without a limit counts no blocks.
    let space = rustix::fs::statvfs(directory).ok();
    let Some(space) = space.filter(|it| it.f_blocks > 0) else {
        return Ok(());
    };
    let blocks = match rustix::process::geteuid().is_root() {
        true => space.f_bfree,
        false => space.f_bavail,
    };
    let room = blocks.saturating_mul(space.f_frsize);
    match room < needed {
        true => Err(format!(
            "{}: {room} bytes are left on its file system, and {needed} are needed: {}. Nothing was changed",
            path.display(),
            rights::FREE_SOME
        )),
        false => Ok(()),
    }
}

/// The files of an open database that processes share, with the bytes of a small one.
const SHARED_BYTES: [(&str, u64); 2] = [("-shm", 32 << 10), ("-onewrite-shm", 4 << 10)];

fn in_use() -> String {
    "the database is in use: another process has it open (SQLite's locks do not show which). With \
     onewrite_linger it keeps it open for that time after it has closed it. Nothing is lost; close it \
     there, or run this again when that time is over, or that process has ended"
        .to_owned()
}

/// Lets SQLite recover the log into the database, and leave the mode.
fn recover(path: &Path) -> Result<Recovered, String> {
    // Without this check, a checkpoint would be made while others use the log. In the mode direct that is
    // SQLite's own.
    if is_log_in_use(&log_of(path))? || users::has_users(path).map_err(|e| e.to_string())? {
        return Err(in_use());
    }
    let published = users::published(path);
    let connection = open(path, onewrite::VFS_NAME)?;
    // A read transaction makes SQLite recover, and keeps the log until this code has read it.
    connection
        .execute_batch("BEGIN; PRAGMA schema_version")
        .map_err(in_words)?;
    let survey = log_in_use(&connection, path);
    connection.execute_batch("COMMIT").map_err(in_words)?;
    let is_busy = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
    if is_busy.map_err(in_words)? {
        return Err(in_use());
    }
    let left: Result<String, _> =
        connection.query_row("PRAGMA journal_mode=delete", [], |row| row.get(0));
    match left {
        Ok(mode) if mode == "delete" => {}
        Ok(_) => return Err(in_use()),
        Err(e) => return Err(explain_leaving(e)),
    }
    connection.close().map_err(|(_, e)| in_words(e))?;
    let survey = survey?;
    let (survey, salts) = survey.unzip();
    let published = published.filter(|published| Some(published.salts) == salts);
    Ok(Recovered::of(survey.as_ref(), published))
}

/// Whether another process has the log open.
fn is_log_in_use(log: &Path) -> Result<bool, String> {
    LogFile::open(log, Create::Never, Access::ReadOnly, DirectIo::Never)
        .and_then(|file| file.is_locked_by_other(LockByte::Presence, LockKind::Exclusive))
        .map_err(|e| e.to_string())
}

/// Why the mode could not be left. A locked database means only that others have it open.
fn explain_leaving(error: rusqlite::Error) -> String {
    let text = in_words(error);
    match text.contains("database is locked") {
        true => in_use(),
        false => text,
    }
}

/// The log of the open database as SQLite now sees it, and its salts. In mode direct that is a `-wal` file.
fn log_in_use(connection: &Connection, path: &Path) -> Result<Option<(Survey, [u8; 8])>, String> {
    let mode: String = connection
        .query_row("PRAGMA journal_mode", [], |row| row.get(0))
        .map_err(in_words)?;
    let log = match mode.as_str() {
        "direct" => {
            let mut wal = path.as_os_str().to_owned();
            wal.push("-wal");
            PathBuf::from(wal)
        }
        _ => log_of(path),
    };
    if fs::metadata(&log).map_or(true, |file| file.len() == 0) {
        return Ok(None);
    }
    let Some(log) = OpenedLog::at(&log).map_err(|e| e.to_string())? else {
        return Ok(None);
    };
    let survey = log.survey(Writers::Maybe).map_err(|e| e.to_string())?;
    Ok(Some((survey, log.wal.salts.0)))
}

/// Gives up the log that cannot be recovered.
fn discard(path: &Path, broken: &Broken) -> Result<GivenUp, String> {
    let log = log_of(path);
    let survey = survey_file(&log).ok().flatten();
    let frames = |survey: &Survey| survey.committed.map_or(0, |commit| commit.frame.0);
    let given_up = GivenUp {
        why: broken.why.clone(),
        log,
        kept_as: None,
        frames: survey.as_ref().map(frames),
        transactions: survey.as_ref().map(|survey| survey.transactions),
        was_guarded: broken.guard.is_some(),
        change_counter: broken.change_counter,
        pages: broken.pages,
    };
    match onewrite::discard_log(path) {
        Ok(done) => Ok(GivenUp {
            kept_as: done.kept_as,
            ..given_up
        }),
        Err(DiscardError::InUse) => Err(in_use()),
        Err(other) => Err(other.to_string()),
    }
}

/// Checks the result with stock SQLite, and puts it into the mode that a clean close would have
/// left.
///
/// Returns that mode, and SQLite's verdict.
fn verify(path: &Path) -> Result<(String, String), String> {
    let log = log_of(path);
    let head = head_of::<DATABASE_HEADER_BYTES>(path).map_err(|e| e.to_string())?;
    let guard = head.and_then(|head| DatabaseHeader::parse(&head)?.guard);
    if guard.is_some() || log.exists() {
        // Another process opened it again meanwhile.
        return Err(in_use());
    }
    let connection = open(path, "unix")?;
    let mode: String = connection
        .query_row("PRAGMA journal_mode=wal", [], |row| row.get(0))
        .map_err(in_words)?;
    let check: String = connection
        .query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))
        .map_err(in_words)?;
    connection.close().map_err(|(_, e)| in_words(e))?;
    Ok((mode, check))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The free space of a file system does not count a quota. SQLite meets that.
    #[test]
    fn an_index_that_cannot_be_made_is_called_lack_of_space_and_a_bad_device_is_not() {
        let of = |code| {
            in_words(rusqlite::Error::SqliteFailure(
                rusqlite::ffi::Error::new(code),
                None,
            ))
        };
        for code in [
            rusqlite::ffi::SQLITE_FULL,
            rusqlite::ffi::SQLITE_IOERR_SHMSIZE,
        ] {
            assert!(of(code).contains(rights::FREE_SOME), "{code}: {}", of(code));
        }
        let bad = of(rusqlite::ffi::SQLITE_IOERR_WRITE);
        assert!(!bad.contains(rights::FREE_SOME), "{bad}");
    }
}
