//! `onewrite salvage`: makes a new database of everything that can be proven whole. Its source is a
//! database and a log that recovery does not bring together, or a log alone.
//!
//! ```text
//! source   the files, and whether they belong together; never written
//! pages    committed frames over a copy of the database, as recovery would
//! btree    pages that do not make a whole database, read one by one
//! rows     a new database of their rows
//! ```
//!
//! The image of pages is the result where it is whole: all pages exist, and SQLite's
//! integrity_check finds nothing. Otherwise rows are recovered from it.

mod btree;
mod pages;
mod report;
mod rows;
mod shape;
mod source;

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use onewrite::DATABASE_HEADER_BYTES;
use rusqlite::{Connection, OpenFlags};

use crate::inspect::DatabaseHeader;
use crate::inspect::look::companion;
use crate::inspect::users::{self, Published};
use crate::partial::{Existing, IMAGE, Partial, ROWS};
use crate::{Outcome, interrupt};
use btree::{Pages, be32};
use pages::PageSet;
pub use report::Report;
use source::{Belongs, Source};

/// Explains the steps below the options of `salvage --help`.
pub const AFTER_HELP: &str = "\
FROM is a database whose log is missing, damaged, or that of another database; or it is a log alone. Files \
are only opened for reading, nothing is changed. OUT is a new stock database. It gets its name when it is \
complete and on the device.

A database may be guarded for the log next to it, or for a set-aside one (DB-onewrite-orphan-*). Then OUT is \
the result of their recovery. --log names a log that the database does not know. That log is tried on a \
copy, and refused where the result is not whole. A whole result is then the only proof that they fit.

A log alone holds whole pages. Where they make a whole database, OUT is that database. Otherwise OUT has \
their rows: tables by the schema, if page 1 exists, and rows of no known table in lost_and_found \
(rootpgno, pgno, nfield, id, c0, c1, ...), as with SQLite's .recover.

Frames that no checksum proves are never used. The report says what is missing.

Exit code:
  0  everything that is known to have been committed is in OUT
  1  OUT was made, but something is missing or not proven
  2  nothing was made

Examples:
  onewrite salvage app.db -o saved.db
  onewrite salvage app.db-onewrite-orphan-a5e4611d49184779 -o saved.db
  onewrite salvage backup.db --log app.db-onewrite -o saved.db";

/// The options of `onewrite salvage`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A database, or a log
    from: PathBuf,

    /// The new database
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,

    /// A log to try on a copy of the database
    #[arg(long, value_name = "LOG")]
    log: Option<PathBuf>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The exit code where nothing was made.
const NOTHING_MADE: u8 = 2;

/// Runs the subcommand.
///
/// # Errors
/// The user has stopped it, or standard output cannot be written.
pub fn run(args: &Args) -> Outcome {
    interrupt::install()?;
    let report = match salvage(&args.from, args.log.as_deref(), &args.output) {
        Ok(report) => report,
        Err(e) if interrupt::is_requested() => return Err(e),
        Err(e) => {
            eprintln!("onewrite: {e}");
            return Ok(ExitCode::from(NOTHING_MADE));
        }
    };
    crate::output::print(args.json, &report, || report.render())?;
    Ok(match report.is_whole() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Makes a new database at `output` from the files. No connection of this process may have any of
/// them open.
///
/// # Errors
/// In words: nothing was made.
pub fn salvage(from: &Path, log: Option<&Path>, output: &Path) -> Result<Report, String> {
    let source = Source::of(from, log)?;
    let target = std::path::absolute(output).map_err(|e| e.to_string())?;
    let partial = Partial::begin(&target, Existing::Keep)?;
    let mut report = Report::new(&source, output);
    let made = make(&source, &partial, &mut report)?;
    source.check_unchanged()?;
    if interrupt::is_requested() {
        return Err("stopped".to_owned());
    }
    partial.finish(made)?;
    Ok(report)
}

/// Makes the result; returns its name among the partial files.
fn make(source: &Source, partial: &Partial, report: &mut Report) -> Result<&'static str, String> {
    let image = partial.create(IMAGE, source.like())?;
    let present = assemble(source, &image, partial, report)?;
    report.pages = present.count();
    let wanted = report.database_pages();
    report.missing_pages = u64::from(wanted).saturating_sub(present.count());
    if present.count() == 0 {
        return Err("the files hold no commit: no page could be recovered".to_owned());
    }
    if report.missing_pages == 0 && as_stock(&image).map_err(|e| partial.failed(&e))? {
        let check = check(&partial.path(IMAGE));
        report.integrity_check = Some(check.clone());
        if check == "ok" {
            return Ok(IMAGE);
        }
    }
    if source.is_trial() {
        return Err(format!(
            "{}: not the log of this database: {}. \"onewrite salvage\" reads the log by itself",
            source
                .log
                .as_ref()
                .map_or(Path::new(""), |log| &log.path)
                .display(),
            match report.missing_pages {
                0 => "together they are not whole (PRAGMA integrity_check)".to_owned(),
                pages => format!("{pages} pages are in neither"),
            }
        ));
    }
    let pages = pages_of(source, &image, &present)?;
    partial.create(ROWS, source.like())?;
    let rows = rows::recover(&pages, &partial.path(ROWS)).map_err(|e| match &*e {
        "stopped" => e,
        _ => format!("cannot write {}: {e}", report.output().display()),
    })?;
    report.integrity_check = Some(check(&partial.path(ROWS)));
    report.rows = Some(rows);
    Ok(ROWS)
}

/// Assembles the pages that exist.
fn assemble(
    source: &Source,
    image: &File,
    partial: &Partial,
    report: &mut Report,
) -> Result<PageSet, String> {
    let failed = |e: io::Error| match e.kind() {
        io::ErrorKind::Interrupted => "stopped".to_owned(),
        _ => partial.failed(&e),
    };
    let mut present = PageSet::default();
    let mut original = None;
    if let Some(database) = &source.database {
        let file = File::open(&database.path).map_err(failed)?;
        copy(&file, image).map_err(failed)?;
        if let Some(journal) = &database.journal {
            let name = partial.path(IMAGE);
            let journal = File::open(journal).map_err(failed)?;
            let mine = File::create_new(companion(&name, "-journal")).map_err(failed)?;
            copy(&journal, &mine).map_err(failed)?;
            roll_back(&name)?;
            report.rolled_back = true;
        }
        let size = image.metadata().map_err(failed)?.len();
        let pages = size / database.page_size.bytes() as u64;
        present = PageSet::up_to(u32::try_from(pages).unwrap_or(u32::MAX));
        report.base_pages = counted_pages(image, pages);
        original = Some(file);
    }
    if let Some(log) = &source.log {
        source.check_fits(image)?;
        let (original, published) = (original.as_ref(), source.published());
        let taken = pages::apply(&log.opened, original, published, image, &mut present);
        report.took(taken.map_err(failed)?);
    }
    Ok(present)
}

/// The number of pages in the header of a database, where that is valid; otherwise that of its
/// file.
fn counted_pages(image: &File, pages: u64) -> u32 {
    let mut head = [0; DATABASE_HEADER_BYTES];
    let read = image.read_exact_at(&mut head, 0);
    let header = read.ok().and_then(|()| DatabaseHeader::parse(&head));
    let counted = header.filter(|h| h.change_counter == h.version_valid_for && h.pages > 0);
    counted.map_or(u32::try_from(pages).unwrap_or(u32::MAX), |header| {
        header.pages
    })
}

fn copy(mut from: &File, mut to: &File) -> io::Result<()> {
    const PIECE: usize = 1 << 20;
    let mut piece = vec![0; PIECE];
    loop {
        pages::look_up()?;
        match from.read(&mut piece)? {
            0 => return Ok(()),
            n => to.write_all(piece.get(..n).unwrap_or_default())?,
        }
    }
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags_and_vfs(path, flags, "unix")
}

/// Lets stock SQLite play back the journal of a copy.
fn roll_back(image: &Path) -> Result<(), String> {
    let opened = open(image).and_then(|db| {
        db.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        db.close().map_err(|(_, e)| e)
    });
    opened.map_err(|e| format!("the journal cannot be rolled back: {e}"))
}

/// Makes the header of an image that of a stock database in a rollback mode; `false` where it has
/// no header.
fn as_stock(image: &File) -> io::Result<bool> {
    const VERSIONS_AT: u64 = 18;
    const ID_AT: u64 = 72;
    let mut head = [0; DATABASE_HEADER_BYTES];
    if let Err(e) = image.read_exact_at(&mut head, 0) {
        return match e.kind() {
            io::ErrorKind::UnexpectedEof => Ok(false),
            _ => Err(e),
        };
    }
    let Some(header) = DatabaseHeader::parse(&head) else {
        return Ok(false);
    };
    image.write_all_at(&[1, 1], VERSIONS_AT)?;
    if header.guard.is_some() {
        image.write_all_at(&[0; 8], ID_AT)?;
    }
    Ok(true)
}

/// Stock SQLite's verdict on a database: "ok", or what is wrong with it.
fn check(path: &Path) -> String {
    let checked = open(path).and_then(|db| {
        let mut statement = db.prepare("PRAGMA integrity_check(10)")?;
        let lines = statement.query_map([], |row| row.get::<_, String>(0))?;
        lines.collect::<Result<Vec<_>, _>>()
    });
    match checked {
        Ok(lines) => lines.join("\n"),
        Err(e) => e.to_string(),
    }
}

/// The pages of an image, for reading row by row.
fn pages_of<'a>(
    source: &Source,
    image: &'a File,
    present: &'a PageSet,
) -> Result<Pages<'a>, String> {
    let size = source.page_size().ok_or("its page size is not known")?;
    let mut head = [0; DATABASE_HEADER_BYTES];
    let has_head = present.contains(1) && image.read_exact_at(&mut head, 0).is_ok();
    let reserved = match has_head.then(|| DatabaseHeader::parse(&head)).flatten() {
        Some(header) => usize::from(header.reserved_bytes),
        None => source.reserved_bytes(),
    };
    // SQLite's own limit.
    const LEAST: usize = 480;
    let usable = size.saturating_sub(reserved);
    if usable < LEAST {
        return Err(format!("its header reserves {reserved} bytes of {size}"));
    }
    Ok(Pages {
        file: image,
        present,
        page_size: size,
        usable,
    })
}

impl Source {
    /// The state that the wal-index of the database names, if the log is that of the database.
    fn published(&self) -> Option<Published> {
        let database = self.database.as_ref().filter(|_| !self.is_trial())?;
        users::published(&database.path)
    }

    /// Whether the log is only tried, on a database that does not know it.
    fn is_trial(&self) -> bool {
        let log = self.log.as_ref();
        self.database.is_some() && log.is_some_and(|log| log.belongs == Belongs::NotProven)
    }

    /// In bytes.
    fn page_size(&self) -> Option<usize> {
        let of_log = self.log.as_ref().map(|log| log.opened.wal.page_size);
        let of_database = self.database.as_ref().map(|database| database.page_size);
        Some(of_database.or(of_log)?.bytes())
    }

    /// Bytes that the log's layout needs; used where page 1 is missing.
    fn reserved_bytes(&self) -> usize {
        let layout = self.log.as_ref().map(|log| log.opened.geometry.layout());
        match layout {
            Some(onewrite::mode::Layout::Embedded) => onewrite::wal::FRAME_HEADER_BYTES,
            _ => 0,
        }
    }

    /// Whether the log can belong to such a database: the page size, the text encoding and the
    /// reserved bytes are the same.
    fn check_fits(&self, image: &File) -> Result<(), String> {
        let (Some(database), Some(log)) = (&self.database, &self.log) else {
            return Ok(());
        };
        let (own, other) = (database.page_size.bytes(), log.opened.wal.page_size.bytes());
        if own != other {
            return Err(format!(
                "{}: not the log of this database: its pages have {other} bytes, the database's {own}",
                log.path.display()
            ));
        }
        let Some(page) = first_page_of(log).map_err(|e| e.to_string())? else {
            return Ok(());
        };
        let mut head = [0; DATABASE_HEADER_BYTES];
        image
            .read_exact_at(&mut head, 0)
            .map_err(|e| e.to_string())?;
        let traits = |head: &[u8]| (head.get(20).copied(), be32(head, 56));
        // An empty database has no encoding yet.
        let is_open = be32(&head, 56) == Some(0);
        match traits(&page) == traits(&head) || is_open {
            true => Ok(()),
            false => Err(format!(
                "{}: not the log of this database: its page 1 has other reserved bytes or another encoding",
                log.path.display()
            )),
        }
    }
}

/// The first page 1 in a log.
fn first_page_of(log: &source::Log) -> io::Result<Option<Vec<u8>>> {
    let mut scan = log.opened.scan(onewrite::log::scan::Writers::None, None)?;
    while let Some(found) = scan.next() {
        let found = found?;
        if found.verdict != onewrite::log::scan::Verdict::Valid {
            break;
        }
        if found.header.page.0 == 1 {
            return Ok(Some(scan.page().to_vec()));
        }
    }
    Ok(None)
}
