//! `onewrite backup`: a consistent copy of a database in use, as a stock database.
//!
//! SQLite's backup API copies pages through the onewrite VFS, which knows every mode. In the modes
//! with a log, one read transaction holds the snapshot and stops no writer. In a rollback mode it
//! would stop all writers, so each step has its own, and a commit in between makes SQLite begin
//! again. After `RESTARTS` of these, one read transaction holds the database for the rest.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use crate::inspect::{DatabaseHeader, counted, dropped, lsmvbt};
use crate::partial::{Existing, IMAGE, Partial};
use crate::regular::open_regular;
use onewrite::DATABASE_HEADER_BYTES;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, ErrorCode, OpenFlags};
use serde::Serialize;

use crate::progress::Progress;
use crate::{Outcome, given, interrupt, rights};

/// The text below the options of `backup --help`.
pub const AFTER_HELP: &str = "\
DB may be in use, in any journal mode. FILE is a stock database in journal mode delete, as DB was at one \
moment. Any tool may copy or open it. FILE gets its name when it is complete and on the device. Until then \
the work is in FILE-onewrite-partial. If this backup is killed, the next backup to FILE removes that.

Writers continue meanwhile. In a mode with a log (onewrite, waldio, swal, direct, wal) the log may grow \
until the backup ends, because no checkpoint can pass it. In a rollback mode (delete, truncate, persist) a \
commit makes the backup begin again. After three of these it makes writers wait until it is done, and says so.

A database that a killed process left is recovered first, as by any program that opens it. If recovery would \
drop transactions behind a damaged place in its log, there is no backup without --recover, and FILE stays as \
it is. A power cut can leave such a place, too: transactions that were not durable yet, or not at NORMAL.

Examples:
  onewrite backup app.db /backup/app.db
  onewrite backup --force app.db /backup/app.db
  onewrite backup --pause 20 app.db /backup/app.db --json";

/// The options of `onewrite backup`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The database
    #[arg(value_name = "DB")]
    database: PathBuf,

    /// The copy
    file: PathBuf,

    /// Replace FILE, as a whole and at the end
    #[arg(long)]
    force: bool,

    /// Recover a log though recovery drops transactions behind a damaged or torn place
    #[arg(long)]
    recover: bool,

    /// Pause between steps of about 1 MiB, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pause: u64,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Approximate bytes of a step.
const STEP_BYTES: u32 = 1 << 20;
/// SQLite may begin again this often before writers have to wait.
const RESTARTS: u32 = 3;
/// How long others may keep the database locked.
const PATIENCE: Duration = Duration::from_secs(30);
/// The time between two attempts to read a locked database.
const RETRY: Duration = Duration::from_millis(5);
/// In a rollback mode, writers get in between two steps.
const BREATH: Duration = Duration::from_millis(1);

/// The JSON document.
#[derive(Serialize)]
struct Report {
    version: u32,
    #[serde(serialize_with = "crate::output::lossy")]
    database: PathBuf,
    #[serde(serialize_with = "crate::output::lossy")]
    output: PathBuf,
    /// Of the database.
    journal_mode: String,
    pages: i64,
    page_size: i64,
    bytes: i64,
    /// How often a commit made the backup begin again.
    restarts: u32,
    /// Writers waited for the rest of it.
    held_writers: bool,
    seconds: f64,
}

/// Runs the subcommand.
///
/// # Errors
/// The database cannot be read, or FILE cannot be made. Then FILE does not exist, or is the old
/// one.
pub fn run(args: &Args) -> Outcome {
    let named = |e: String| format!("{}: {e}", args.database.display());
    let unread = |e: io::Error| named(given::why_unread(&args.database, &e));
    let path = fs::canonicalize(&args.database).map_err(unread)?;
    if path.is_dir() {
        return Err(unread(io::ErrorKind::IsADirectory.into()));
    }
    check_source(&path).map_err(named)?;
    if let Some(dropped) = dropped::by_recovery(&path) {
        let name = path.display();
        if !args.recover {
            return Err(format!(
                "{dropped}. The backup would be without what stands behind it, so none was made. \"onewrite salvage \
                 {name} -o OUT\" makes a database of all that is whole. With --recover this command takes what \
                 recovery leaves"
            ));
        }
        eprintln!("onewrite: {dropped}");
    }
    if fs::canonicalize(&args.file).is_ok_and(|file| file == path) {
        return Err(named("cannot be its own backup".to_owned()));
    }
    interrupt::install()?;
    let existing = match args.force {
        true => Existing::Replace,
        false => Existing::Keep,
    };
    let hint = |e: String| match args.force || !e.contains("already") {
        true => e,
        false => format!("{e}, or replace it with --force"),
    };
    let target = std::path::absolute(&args.file).map_err(|e| e.to_string())?;
    let partial = Partial::begin(&target, existing).map_err(hint)?;
    let begun = Instant::now();
    let image = partial.create(IMAGE, &path)?;
    let mut report = copy(&path, &partial, args)?;
    as_stock(&image).map_err(|e| partial.failed(&e))?;
    check_copy(&partial.path(IMAGE), report.pages)?;
    if interrupt::is_requested() {
        return Err("stopped".to_owned());
    }
    partial.finish(IMAGE)?;
    report.seconds = begun.elapsed().as_secs_f64();
    crate::output::print(args.json, &report, || report.render())?;
    Ok(ExitCode::SUCCESS)
}

/// SQLite would make a database of an empty file. It finds a file that is no database only at the
/// end.
fn check_source(path: &Path) -> Result<(), String> {
    let mut head = Vec::new();
    let begin = DATABASE_HEADER_BYTES as u64;
    let read = open_regular(path).and_then(|file| file.take(begin).read_to_end(&mut head));
    if read.map_err(|e| given::why_unread(path, &e))? == 0 {
        return Err(given::EMPTY.to_owned());
    }
    let refusal = lsmvbt::refusal(&head).or_else(|| given::no_database(path, &head, "backup"));
    refusal.map_or(Ok(()), Err)
}

fn copy(path: &Path, partial: &Partial, args: &Args) -> Result<Report, String> {
    let named = |text: String| format!("{}: {text}", args.database.display());
    let in_words = |e| named(in_words(e));
    let of_copy = |e: rusqlite::Error| match e.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => partial.failed(&io::ErrorKind::StorageFull.into()),
        _ => in_words(e),
    };
    onewrite::register().map_err(|e| e.to_string())?;
    let source = open_source(path, PATIENCE)
        .map_err(|e| rights::why_unreadable(path).map_or_else(|| in_words(e), named))?;
    let text = |sql| source.query_row(sql, [], |row| row.get::<_, String>(0));
    let number = |sql| source.query_row(sql, [], |row| row.get::<_, i64>(0));
    let journal_mode = text("PRAGMA journal_mode").map_err(in_words)?;
    let has_log = !["delete", "truncate", "persist", "memory", "off"].contains(&&*journal_mode);
    if has_log {
        hold(&source).map_err(in_words)?;
    }
    let page_size = number("PRAGMA page_size").map_err(in_words)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let image = partial.path(IMAGE);
    let mut copy = Connection::open_with_flags_and_vfs(image, flags, "unix").map_err(of_copy)?;
    copy.execute_batch("PRAGMA journal_mode=off; PRAGMA synchronous=off")
        .map_err(of_copy)?;
    let steps = Steps {
        pages: (i64::from(STEP_BYTES) / page_size.max(1)).clamp(1, 4096) as i32,
        pause: Duration::from_millis(args.pause),
        is_held: has_log,
    };
    let done = steps.run(&source, &mut copy).map_err(|e| match e {
        // The source is only read.
        Stopped::Sqlite(e) => of_copy(e),
        Stopped::Told(text) => named(text),
    })?;
    copy.close().map_err(|(_, e)| of_copy(e))?;
    // The copy is complete. If closing fails, the next open repairs that.
    let _ = source.close();
    Ok(Report {
        version: 1,
        database: path.to_owned(),
        output: args.file.clone(),
        journal_mode,
        pages: done.pages,
        page_size,
        bytes: done.pages * page_size,
        restarts: done.restarts,
        held_writers: done.is_held && !has_log,
        seconds: 0.0,
    })
}

/// Opens the database in its own mode, whatever the environment asks for.
pub fn open_source(path: &Path, patience: Duration) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let uri = format!("file:{}?journal_mode=wal", escaped(path));
    let source = Connection::open_with_flags_and_vfs(&uri, flags, onewrite::VFS_NAME)
        .map_err(|e| without_uri(e, &uri))?;
    source.busy_timeout(patience)?;
    source.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    Ok(source)
}

/// The same error, without the URI, which the user has not given.
fn without_uri(error: rusqlite::Error, uri: &str) -> rusqlite::Error {
    let rusqlite::Error::SqliteFailure(code, Some(text)) = error else {
        return error;
    };
    let text = text
        .strip_suffix(uri)
        .map_or(&*text, |it| it.trim_end_matches(": "));
    rusqlite::Error::SqliteFailure(code, Some(text.to_owned()))
}

/// A path as it stands in a URI.
fn escaped(path: &Path) -> String {
    let mut text = String::new();
    for &byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => {
                text.push(char::from(byte));
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// Begins a read transaction, which lasts until the connection is closed.
fn hold(source: &Connection) -> rusqlite::Result<()> {
    source.execute_batch("BEGIN; SELECT count(*) FROM sqlite_schema")
}

/// How the pages are copied.
struct Steps {
    /// Pages of a step.
    pages: i32,
    pause: Duration,
    /// A read transaction holds the snapshot.
    is_held: bool,
}

/// The result of copying.
struct Copied {
    pages: i64,
    restarts: u32,
    is_held: bool,
}

/// Why copying has ended early.
enum Stopped {
    Sqlite(rusqlite::Error),
    Told(String),
}

impl From<rusqlite::Error> for Stopped {
    fn from(error: rusqlite::Error) -> Self {
        Stopped::Sqlite(error)
    }
}

impl Steps {
    fn run(mut self, source: &Connection, copy: &mut Connection) -> Result<Copied, Stopped> {
        let progress = Progress::default();
        let backup = Backup::new(source, copy)?;
        let (mut restarts, mut left, mut waits_since) = (0, i32::MAX, None);
        loop {
            if interrupt::is_requested() {
                return Err(Stopped::Told("stopped".to_owned()));
            }
            let step = backup.step(self.pages)?;
            let at = backup.progress();
            progress.amount(
                "copying",
                (at.pagecount - at.remaining) as u64,
                at.pagecount as u64,
            );
            match step {
                StepResult::Done => {
                    return Ok(Copied {
                        pages: at.pagecount.into(),
                        restarts,
                        is_held: self.is_held,
                    });
                }
                StepResult::More => waits_since = None,
                _ => {
                    let since = *waits_since.get_or_insert_with(Instant::now);
                    if since.elapsed() > PATIENCE {
                        return Err(Stopped::Told(in_use()));
                    }
                    thread::sleep(RETRY);
                    continue;
                }
            }
            if at.remaining > left {
                restarts += 1;
            }
            left = at.remaining;
            if restarts >= RESTARTS && !self.is_held {
                hold(source)?;
                self.is_held = true;
                progress.tell(
                    "onewrite: commits made the backup begin again: writers wait until it is done",
                );
            }
            thread::sleep(
                self.pause
                    .max(if self.is_held { Duration::ZERO } else { BREATH }),
            );
        }
    }
}

fn in_words(error: rusqlite::Error) -> String {
    let text = error.to_string();
    // onewrite refuses a database at the end of sqlite3_open, where SQLite calls extensions.
    let text = text.trim_start_matches("automatic extension loading failed: ");
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => in_use(),
        Some(ErrorCode::DiskFull) => rights::NO_SPACE.to_owned(),
        _ if rights::is_without_index(&error) => rights::NO_INDEX.to_owned(),
        // The engine's own text has the way out.
        Some(ErrorCode::CannotOpen) if text.contains("onewrite salvage") => text.to_owned(),
        Some(ErrorCode::CannotOpen) => format!(
            "{text}: \"onewrite verify\" says why; \"onewrite salvage\" reads what is there"
        ),
        _ => text.to_owned(),
    }
}

fn in_use() -> String {
    "another process has it locked: try again".to_owned()
}

/// Makes the copied header that of a stock database in a rollback mode. Such a database needs no
/// file next to it, even where it is only read.
fn as_stock(image: &File) -> io::Result<()> {
    const VERSIONS_AT: u64 = 18;
    image.write_all_at(&[1, 1], VERSIONS_AT)
}

/// Whether stock SQLite opens the copy.
fn check_copy(image: &Path, pages: i64) -> Result<(), String> {
    let header = DatabaseHeader::read(image);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = Connection::open_with_flags_and_vfs(image, flags, "unix").and_then(|copy| {
        copy.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        copy.query_row("PRAGMA page_count", [], |row| row.get::<_, i64>(0))
    });
    let is_stock = header.is_some_and(|header| header.guard.is_none());
    match opened {
        Ok(found) if found == pages && is_stock => Ok(()),
        Ok(found) => Err(format!(
            "the copy has {found} pages, but {pages} were copied"
        )),
        Err(e) => Err(format!("the copy cannot be opened: {e}")),
    }
}

impl Report {
    fn render(&self) -> String {
        let held = match self.held_writers {
            true => "; writers had to wait",
            false => "",
        };
        format!(
            "{}: a stock database of {} ({} bytes), as {} was at one moment{held}\n",
            self.output.display(),
            counted(self.pages as u64, "page"),
            self.bytes,
            self.database.display()
        )
    }
}
