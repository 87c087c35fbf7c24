//! Reads the files, and finds what is wrong with them.

pub use onewrite_common::files::companion;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use onewrite::DATABASE_HEADER_BYTES;
use onewrite::log::header::{self, HEADER_BYTES};
use onewrite::log::scan::{Survey, Writers};
use onewrite::log::{Geometry, HeaderError, LogHeader};
use onewrite::mode::Layout;
use onewrite::storage::{Access, Create, DirectIo, LockByte, LockKind, LogFile};
use onewrite::wal::{self, PageSize, WalHeader};
use rustix::fs::{Access as May, AtFlags, CWD, accessat};
use rustix::io::Errno;

use super::header::DatabaseHeader;
use super::judge::{Judge, Owner};
use super::listing::Listing;
use super::report::{self, Database, Frames, Header, Kind, Log, Report, hex};
use super::users::Published;
use super::{advice, lsmvbt, users};
use crate::given;
use crate::regular::open_regular;

/// A database in use may become guarded, or its log start again, between two looks. A problem is
/// reported once this many looks in a row have found one.
const LOOKS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(5);

/// How much of a log is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// The headers alone.
    Headers,
    /// Every frame, and a list of this many of the last valid ones.
    Frames(u32),
}

/// Looks at a file.
pub fn at(file: &Path, wanted: Wanted) -> io::Result<Report> {
    let named = |e: io::Error| {
        let why = given::why_unread(file, &e);
        io::Error::new(e.kind(), format!("{}: {why}", file.display()))
    };
    let path = fs::canonicalize(file).map_err(named)?;
    if path.is_dir() {
        return Err(named(io::ErrorKind::IsADirectory.into()));
    }
    let mut report = look(file, &path, wanted).map_err(named)?;
    for _ in 1..LOOKS {
        if report.problems.is_empty() {
            break;
        }
        std::thread::sleep(PAUSE);
        report = look(file, &path, wanted).map_err(named)?;
    }
    Ok(report)
}

/// Looks at a file that no process is writing.
pub fn once(file: &Path, wanted: Wanted) -> io::Result<Report> {
    look(file, file, wanted)
}

fn look(file: &Path, path: &Path, wanted: Wanted) -> io::Result<Report> {
    let (head, size) = head_of(path)?;
    if let Some(refusal) = lsmvbt::refusal(&head) {
        return Err(io::Error::new(io::ErrorKind::Unsupported, refusal));
    }
    let kind = kind_of(path, &head);
    let mut report = Report::new(file.to_owned(), kind);
    match kind {
        Kind::Database => database(&mut report, path, &head, size, wanted)?,
        Kind::Log => {
            let owner = Owner::of_log(path);
            report.log = Some(our_log(&mut report, path, wanted, &owner)?.0);
        }
        Kind::Wal => {
            let owner = Owner::of_log(path);
            report.wal = Some(stock_log(&mut report, path, wanted, &owner)?);
        }
        Kind::Empty => empty(&mut report, path, wanted)?,
        Kind::Unknown => {
            let what = format!(
                "neither an onewrite log, nor a log of SQLite, nor a database: it begins with {}. Give {}",
                given::beginning(&head),
                given::owner(path).map_or("one of these".to_owned(), |it| it.display().to_string())
            );
            report.problem(path, Some(0), what);
        }
    }
    Ok(report)
}

/// The first bytes of a file, up to a database header's, and its size.
fn head_of(path: &Path) -> io::Result<(Vec<u8>, u64)> {
    let file = open_regular(path)?;
    let size = file.metadata()?.len();
    let mut head = Vec::new();
    file.take(DATABASE_HEADER_BYTES as u64)
        .read_to_end(&mut head)?;
    Ok((head, size))
}

fn kind_of(path: &Path, head: &[u8]) -> Kind {
    let name = path.as_os_str().as_encoded_bytes();
    let begins = |magic: &[u8]| head.starts_with(magic);
    if head.is_empty() {
        Kind::Empty
    } else if begins(b"SQLite format 3\0") {
        Kind::Database
    } else if begins(b"onewrite") || name.ends_with(b"-onewrite") {
        Kind::Log
    } else if begins(&[0x37, 0x7f, 0x06, 0x82])
        || begins(&[0x37, 0x7f, 0x06, 0x83])
        || name.ends_with(b"-wal")
    {
        Kind::Wal
    } else {
        Kind::Unknown
    }
}

/// A file without bytes. A log with transactions next to one is of a database that was here before,
/// and no open brings them back.
fn empty(report: &mut Report, path: &Path, wanted: Wanted) -> io::Result<()> {
    let name = path.as_os_str().as_encoded_bytes();
    if name.ends_with(b"-onewrite") || name.ends_with(b"-wal") {
        report.notes.push("0 bytes: the log is empty".to_owned());
        return Ok(());
    }
    report.in_use = users::has_users(path)?;
    let owner = Owner::of_database(path);
    let log_path = log_of(path);
    if has_bytes(&log_path) {
        let (log, header) = our_log(report, &log_path, wanted, &owner)?;
        if header.is_some_and(|it| !it.is_empty()) {
            report.problem(&log_path, Some(32), advice::log_without_guard(&log_path));
        }
        report.log = Some(log);
    }
    let wal_path = companion(path, "-wal");
    if has_bytes(&wal_path) {
        let wal = stock_log(report, &wal_path, wanted, &owner)?;
        if wal.wal_header.is_some() {
            report.problem(&wal_path, None, advice::log_of_empty_database(&wal_path));
        }
        report.wal = Some(wal);
    }
    if report.problems.is_empty() {
        report.notes.push(EMPTY_DATABASE.to_owned());
    }
    Ok(())
}

/// The note about a database without bytes.
const EMPTY_DATABASE: &str = "0 bytes: to SQLite this is a valid database without tables. If it held \
                              tables, they are gone: restore a backup";

fn has_bytes(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.len() > 0)
}

/// The log of onewrite that belongs to a database.
pub fn log_of(database: &Path) -> PathBuf {
    companion(database, "-onewrite")
}

fn database(
    report: &mut Report,
    path: &Path,
    head: &[u8],
    size: u64,
    wanted: Wanted,
) -> io::Result<()> {
    let Some(header) = DatabaseHeader::parse(head) else {
        let what = format!(
            "the database is cut short: {} bytes of its header",
            head.len()
        );
        report.problem(path, Some(head.len() as u64), what);
        return Ok(());
    };
    if header.page_size.is_none() {
        report.problem(path, Some(16), "the header has an impossible page size");
    }
    report.database = Some(Database {
        path: path.to_owned(),
        size,
        page_size: header.page_size.map(|page| page.bytes() as u32),
        reserved_bytes: header.reserved_bytes,
        write_version: header.write_version,
        read_version: header.read_version,
        guarded: header.guard.is_some(),
        log_id: header.guard.map(|id| id.to_string()),
        change_counter: header.change_counter,
        version_valid_for: header.version_valid_for,
        pages: header.pages,
    });
    report.in_use = users::has_users(path)?;
    logs_of_database(report, path, &header, wanted)
}

fn logs_of_database(
    report: &mut Report,
    path: &Path,
    header: &DatabaseHeader,
    wanted: Wanted,
) -> io::Result<()> {
    let log_path = log_of(path);
    let owner = Owner::of_database(path);
    let found = match has_bytes(&log_path) {
        true => Some(our_log(report, &log_path, wanted, &owner)?),
        false => None,
    };
    match (header.guard, found.as_ref().map(|(_, header)| header)) {
        (Some(id), None) => {
            report.problem(&log_path, None, advice::log_missing(id));
        }
        // A header that is not zeros is a problem already, and so is one that was lost.
        (Some(id), Some(None)) if !report.problems.iter().any(|it| it.file == log_path) => {
            // It cannot be that the log was never written.
            report.notes.clear();
            report.problem(&log_path, Some(0), advice::header_zeroed(id));
        }
        (Some(id), Some(Some(log))) if log.id != id => {
            report.problem(&log_path, Some(24), advice::log_of_another(log.id, id));
        }
        (None, Some(Some(log))) if !log.is_empty() => {
            report.problem(&log_path, Some(32), advice::log_without_guard(&log_path));
        }
        _ => {}
    }
    report.log = found.map(|(log, _)| log);
    let wal = companion(path, "-wal");
    if has_bytes(&wal) {
        report.wal = Some(stock_log(report, &wal, wanted, &owner)?);
        if header.guard.is_some() {
            report.problem(&wal, None, advice::stock_file_next_to_guard());
        }
    }
    Ok(())
}

fn open(path: &Path) -> io::Result<LogFile> {
    let opened = LogFile::open(path, Create::Never, Access::ReadOnly, DirectIo::Never);
    opened.map_err(
        |e| match accessat(CWD, path, May::READ_OK, AtFlags::EACCESS) {
            // The caller has words for it.
            Err(Errno::ACCESS) => io::ErrorKind::PermissionDenied.into(),
            _ => io::Error::other(e),
        },
    )
}

fn read_head<const N: usize>(file: &LogFile) -> io::Result<([u8; N], usize)> {
    let mut head = [0; N];
    let n = file.read_at(&mut head, 0).map_err(io::Error::other)?;
    Ok((head, n))
}

/// A log of onewrite; its header where it can be read.
fn our_log(
    report: &mut Report,
    path: &Path,
    wanted: Wanted,
    owner: &Owner,
) -> io::Result<(Log, Option<LogHeader>)> {
    let file = open(path)?;
    let size = file.size().map_err(io::Error::other)?;
    let in_use = has_users(report, path, &file, owner)?;
    let mut log = Log {
        path: path.to_owned(),
        size,
        in_use: Some(in_use),
        newer_version: None,
        header: None,
        wal_header: None,
        frames: None,
    };
    let head = read_head::<HEADER_BYTES>(&file)?.0;
    let header = match header::of(&file)? {
        Some(Ok(header)) => header,
        None => {
            let what = "made, and never written: the log is empty";
            report.notes.push(format!("{}: {what}", path.display()));
            return Ok((log, None));
        }
        Some(Err(e)) => {
            let what = match (e, header::first_behind(&file, HEADER_BYTES)?) {
                (HeaderError::Lost, Some(at)) => advice::header_lost(at),
                _ => e.to_string(),
            };
            report.problem(path, Some(place_of(&e)), what);
            log.newer_version = newer(&e);
            return Ok((log, None));
        }
    };
    log.header = Some(describe(&header));
    let Some(wal) = wal_of(report, path, &header) else {
        return Ok((log, Some(header)));
    };
    log.wal_header = Some(describe_wal(&wal));
    let Ok(geometry) = Geometry::new(header.layout, wal.page_size, 1) else {
        return Ok((log, Some(header)));
    };
    let Wanted::Frames(listed) = wanted else {
        return Ok((log, Some(header)));
    };
    let writers = if in_use {
        Writers::Maybe
    } else {
        Writers::None
    };
    let database = owner.file();
    let survey = Survey::with_database(&file, geometry, wal, writers, database.as_ref())?;
    if read_head::<HEADER_BYTES>(&file)?.0 != head {
        report.notes.push(format!(
            "{}: the log started again while it was read; look again",
            path.display()
        ));
    } else {
        let judge = Judge {
            path,
            survey: &survey,
            unit: geometry.unit(),
            in_use,
            published: published_in(&file, &wal, owner)?,
        };
        judge.judge(report, owner);
    }
    let slot_bytes = geometry.slot_bytes();
    let listing = Listing::new(file, geometry, wal, &survey, listed).with_database(database);
    log.frames = Some(Frames::of(&survey, slot_bytes, listing));
    Ok((log, Some(header)))
}

/// Whether the log is in use. Reports that it is poisoned.
fn has_users(report: &mut Report, path: &Path, file: &LogFile, owner: &Owner) -> io::Result<bool> {
    let is_locked = |byte, kind| {
        let locked = file.is_locked_by_other(byte, kind);
        locked.map_err(io::Error::other)
    };
    let in_use = owner.has_users || is_locked(LockByte::Presence, LockKind::Exclusive)?;
    report.in_use |= in_use;
    if is_locked(LockByte::Poison, LockKind::Shared)? {
        let what = "poisoned: a process that has it open could not write it; close every connection, \
                    then open the database again to recover";
        report.problem(path, None, what);
        report.poisoned = true;
    }
    Ok(in_use)
}

/// The frames that the wal-index calls published, if all of them should be in the file.
fn published_in(file: &LogFile, wal: &WalHeader, owner: &Owner) -> io::Result<Option<Published>> {
    // A process that holds a group back has published frames that are not in the file yet.
    let keeps_back = file
        .is_locked_by_other(LockByte::Presence, LockKind::Shared)
        .map_err(io::Error::other)?;
    let published = owner.published.filter(|_| !keeps_back);
    Ok(published.filter(|published| published.salts == wal.salts.0))
}

/// SQLite's header in a log of onewrite, if the log should have frames.
fn wal_of(report: &mut Report, path: &Path, header: &LogHeader) -> Option<WalHeader> {
    if header.is_empty() {
        let what = match header.mode.is_guarded() {
            true => "the log is empty: the database holds everything",
            false => "this file only remembers the mode; the frames are in the -wal file",
        };
        report.notes.push(format!("{}: {what}", path.display()));
        return None;
    }
    let Some(wal) = header.wal_header() else {
        let what = format!("SQLite's header in it is damaged: {}", why_not(&header.wal));
        report.problem(path, Some(32), what);
        return None;
    };
    if header.layout == Layout::Stock {
        let what = "it says that it holds frames in layout stock, which has its own file";
        report.problem(path, Some(16), what);
        return None;
    }
    if header.page_size != Some(wal.page_size) {
        let what = format!(
            "the header says pages of {} bytes, SQLite's header in it {}",
            header.page_size.map_or(0, PageSize::bytes),
            wal.page_size.bytes()
        );
        report.problem(path, Some(20), what);
        return None;
    }
    Some(wal)
}

/// SQLite's own log.
fn stock_log(report: &mut Report, path: &Path, wanted: Wanted, owner: &Owner) -> io::Result<Log> {
    let file = open(path)?;
    let size = file.size().map_err(io::Error::other)?;
    let mut log = Log {
        path: path.to_owned(),
        size,
        // SQLite locks nothing in its log.
        in_use: owner.database.is_some().then_some(owner.has_users),
        newer_version: None,
        header: None,
        wal_header: None,
        frames: None,
    };
    let (head, n) = read_head::<{ wal::HEADER_BYTES }>(&file)?;
    if n < head.len() {
        let what = format!("cut short: {n} bytes of a header of {}", head.len());
        report.problem(path, Some(n as u64), what);
        return Ok(log);
    }
    if head == [0; wal::HEADER_BYTES] {
        let what = match header::first_behind(&file, wal::HEADER_BYTES)? {
            Some(at) => advice::wal_header_zeroed(at),
            None => "no header yet: the log is empty".to_owned(),
        };
        report.notes.push(format!("{}: {what}", path.display()));
        return Ok(log);
    }
    let Some(wal) = WalHeader::parse(&head) else {
        let what = format!("the header is damaged: {}", why_not(&head));
        report.problem(path, Some(0), what);
        return Ok(log);
    };
    log.wal_header = Some(describe_wal(&wal));
    let Ok(geometry) = Geometry::new(Layout::Stock, wal.page_size, 1) else {
        return Ok(log);
    };
    let Wanted::Frames(listed) = wanted else {
        return Ok(log);
    };
    report.in_use |= owner.has_users;
    let survey = Survey::of(&file, geometry, wal, Writers::Maybe)?;
    if read_head::<{ wal::HEADER_BYTES }>(&file)?.0 != head {
        report.notes.push(format!(
            "{}: the log started again while it was read; look again",
            path.display()
        ));
    } else {
        // The wal-index of a guarded database is that of our log.
        let is_guarded = report.database.as_ref().is_some_and(|found| found.guarded);
        let published = owner.published.filter(|_| !is_guarded);
        let judge = Judge {
            path,
            survey: &survey,
            unit: 1,
            in_use: owner.has_users,
            published: published.filter(|published| published.salts == wal.salts.0),
        };
        judge.judge(report, owner);
    }
    let listing = Listing::new(file, geometry, wal, &survey, listed);
    log.frames = Some(Frames::of(&survey, geometry.slot_bytes(), listing));
    Ok(log)
}

fn describe(header: &LogHeader) -> Header {
    Header {
        format_version: header.version(),
        mode: header.mode.to_string(),
        layout: header.layout.to_string(),
        page_size: header.page_size.map(PageSize::bytes),
        id: header.id.to_string(),
        empty: header.is_empty(),
    }
}

fn describe_wal(wal: &WalHeader) -> report::WalHeader {
    report::WalHeader {
        page_size: wal.page_size.bytes(),
        checkpoints: wal.checkpoints,
        salts: hex(&wal.salts.0),
        checksum_byte_order: match wal.big_endian_checksum() {
            true => "big-endian",
            false => "little-endian",
        },
    }
}

/// The format version, if it is newer than those that are known here.
fn newer(error: &HeaderError) -> Option<u32> {
    match error {
        HeaderError::Version(version) => Some(*version),
        _ => None,
    }
}

/// The offset of an error in the header.
fn place_of(error: &HeaderError) -> u64 {
    match error {
        HeaderError::Truncated(len) => *len as u64,
        HeaderError::Magic | HeaderError::Lost => 0,
        HeaderError::Version(_) => 8,
        HeaderError::Checksum { .. } => HEADER_BYTES as u64 - 4,
        HeaderError::Field { name, .. } => match *name {
            "journal mode" => 12,
            "layout" => 16,
            _ => 20,
        },
    }
}

/// Why SQLite would not accept a WAL header.
fn why_not(bytes: &[u8; wal::HEADER_BYTES]) -> String {
    let word = |at: usize| {
        bytes[at..]
            .first_chunk()
            .map_or(0, |w| u32::from_be_bytes(*w))
    };
    let magic = word(0);
    if magic & !1 != 0x377f_0682 {
        return format!("magic number {magic:08x}, expected 377f0682 or 377f0683");
    }
    if word(4) != 3_007_000 {
        return format!("version {}, expected 3007000", word(4));
    }
    if PageSize::new(word(8)).is_none() {
        return format!("page size {}", word(8));
    }
    let [first, second] = wal::checksum(magic & 1 == 1, [0, 0], &bytes[..24]);
    format!(
        "checksum {:08x} {:08x}, expected {first:08x} {second:08x}",
        word(24),
        word(28)
    )
}
