//! The rules that must hold for a changed pair.

use std::path::Path;

use onewrite::log::header::HEADER_BYTES;
use onewrite::log::scan::{Survey, Writers};
use onewrite::log::{Geometry, LogHeader};
use onewrite::mode::Layout;
use onewrite::wal::WalHeader;
use rusqlite::{Connection, OpenFlags};

use super::base::{DIGEST, State, connect, text};
use super::{Base, Done, Files, directory};
use crate::bytes::Bytes;

/// How to open the database, and the operations on it.
#[derive(Clone, Copy, Debug)]
pub struct How {
    reader_first: bool,
    exclusive: bool,
    mapped: bool,
    discard: bool,
    checkpoint: &'static str,
    /// Bytes of the row to write.
    row: usize,
    again: bool,
}

impl How {
    /// Drawn from the input.
    pub fn of(input: &mut Bytes<'_>) -> Self {
        let (flags, more) = (input.byte(), input.byte());
        Self {
            reader_first: flags & 1 == 1,
            exclusive: flags & 6 == 6,
            mapped: flags & 8 == 8,
            discard: flags & 16 == 16,
            checkpoint: ["PASSIVE", "FULL", "RESTART", "TRUNCATE"][usize::from(flags >> 6)],
            row: [10, 700, 5000, 40_000][usize::from(more & 3)],
            again: more & 4 == 4,
        }
    }
}

/// The expected answer of SQLite.
#[derive(Debug)]
enum Expected<'a> {
    /// Anything.
    Unknown,
    /// This state.
    State(&'a State),
    /// An error: SQLite cannot open the database.
    Refusal,
}

/// Opens the files and runs the operations of the input.
pub fn check(base: &Base, files: &Files, done: Done, how: &How) {
    let expected = expect(base, files, done);
    let directory = directory();
    let path = files.write(directory.path());
    if how.reader_first {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
        let found = connect(&path, "onewrite", flags).and_then(|db| text(&db, DIGEST));
        compare(base, &expected, &found, "a reader");
    }
    let answer = use_it(base, &path, how, &expected);
    match (&expected, answer) {
        (Expected::Unknown, _) => {}
        (Expected::Refusal, _) => {
            let after = Files::read(&path);
            assert!(after == *files, "{}: refused, and changed", base.name);
        }
        (Expected::State(_), Ok(last)) => {
            let db = connect(&path, "unix", OpenFlags::default());
            let found = db.and_then(|db| text(&db, DIGEST));
            assert_eq!(found.as_ref(), Ok(&last), "{}: stock SQLite", base.name);
        }
        (Expected::State(_), Err(e)) => panic!("{}: {e}", base.name),
    }
    if how.discard {
        discard(base, &path, &expected, files);
    }
    // Stock SQLite and ours open whatever is left once more.
    for vfs in ["unix", "onewrite"] {
        let _ = connect(&path, vfs, OpenFlags::default()).and_then(|db| text(&db, DIGEST));
    }
}

/// Reads, checks, checkpoints and writes; returns the final content.
fn use_it(
    base: &Base,
    path: &Path,
    how: &How,
    expected: &Expected<'_>,
) -> rusqlite::Result<String> {
    let db = connect(path, "onewrite", OpenFlags::default())?;
    if how.mapped {
        db.pragma_update(None, "mmap_size", 1 << 20)?;
    }
    if how.exclusive {
        text(&db, "PRAGMA locking_mode=EXCLUSIVE")?;
    }
    let found = text(&db, DIGEST);
    compare(base, expected, &found, "ours");
    if matches!(expected, Expected::Refusal) {
        // Asking again would only take time: SQLite reads an invalid header many times over.
        run(&db, &row(how.row))?;
        panic!("{}: refused to read, and written", base.name);
    }
    let integrity = text(&db, "PRAGMA integrity_check(20)");
    if matches!(expected, Expected::State(_)) {
        let integrity = integrity.as_deref();
        let is_ok =
            integrity.is_ok_and(|answer| answer.contains("Text(") && is_the_word_ok(answer));
        assert!(is_ok, "{}: integrity_check: {integrity:?}", base.name);
    }
    let status = text(&db, "PRAGMA onewrite_status");
    assert!(status.is_ok(), "{}: onewrite_status: {status:?}", base.name);
    let steps = [
        format!("PRAGMA wal_checkpoint({})", how.checkpoint),
        row(how.row),
        "PRAGMA cache_size=5".to_owned(),
        row(how.row / 2),
    ];
    let mut done = Ok(());
    for step in &steps {
        done = done.and(run(&db, step));
    }
    if how.again {
        // In the same connection, after any error above.
        done = done.and(run(&db, "UPDATE t SET w = w || 'x' WHERE v = 77"));
        done = done.and(run(&db, "PRAGMA wal_checkpoint"));
    }
    let last = text(&db, DIGEST);
    done.and(last)
}

/// `Text([111, 107])`, as a text column prints.
fn is_the_word_ok(answer: &str) -> bool {
    answer == format!("{:?}", rusqlite::types::ValueRef::Text(b"ok"))
}

fn row(bytes: usize) -> String {
    format!("INSERT INTO t(v, w) VALUES(77, printf('%.*c', {bytes}, 'n'))")
}

fn run(db: &Connection, statement: &str) -> rusqlite::Result<()> {
    let mut statement = db.prepare(statement)?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(())
}

fn compare(base: &Base, expected: &Expected<'_>, found: &rusqlite::Result<String>, who: &str) {
    match expected {
        Expected::Unknown => {}
        Expected::State(state) => {
            let same = found.as_ref() == Ok(&state.digest);
            assert!(same, "{}: {who} found {found:?}, not {state:?}", base.name);
        }
        Expected::Refusal => {
            let code = found.as_ref().err().and_then(|e| e.sqlite_error_code());
            let refused = code == Some(rusqlite::ErrorCode::CannotOpen);
            assert!(
                refused,
                "{}: {who} found {found:?}, not a refusal",
                base.name
            );
        }
    }
}

fn discard(base: &Base, path: &Path, expected: &Expected<'_>, files: &Files) {
    let discarded = onewrite::discard_log(path);
    let expects_the_database_alone =
        base.is_guarded && matches!(expected, Expected::Refusal) && files.wal.is_empty();
    if expects_the_database_alone {
        assert!(discarded.is_ok(), "{}: {discarded:?}", base.name);
        let found = connect(path, "unix", OpenFlags::default()).and_then(|db| text(&db, DIGEST));
        let state = &base.states[0];
        assert_eq!(
            found.as_ref(),
            Ok(&state.digest),
            "{}: discarded",
            base.name
        );
    }
}

fn expect<'a>(base: &'a Base, files: &Files, done: Done) -> Expected<'a> {
    if done.mended || done.foreign || files.database != base.database {
        return Expected::Unknown;
    }
    match base.is_guarded {
        true => expect_guarded(base, files),
        false => expect_direct(base, files),
    }
}

fn expect_guarded<'a>(base: &'a Base, files: &Files) -> Expected<'a> {
    let header = base.log.get(..HEADER_BYTES);
    if files.log.get(..HEADER_BYTES) != header || !files.wal.is_empty() {
        return Expected::Refusal;
    }
    let header = LogHeader::parse(&files.log).expect("the base's header");
    let wal = header.wal_header().expect("the base's WAL header");
    by_survey(base, &files.log, header.layout, wal)
}

fn expect_direct<'a>(base: &'a Base, files: &Files) -> Expected<'a> {
    let is_blank = files.log.iter().take(HEADER_BYTES).all(|&byte| byte == 0);
    if files.log.get(..HEADER_BYTES) != base.log.get(..HEADER_BYTES) && !is_blank {
        return Expected::Refusal;
    }
    match files.wal.first_chunk().and_then(WalHeader::parse) {
        Some(wal) => by_survey(base, &files.wal, Layout::Stock, wal),
        None => Expected::State(&base.states[0]),
    }
}

fn by_survey<'a>(base: &'a Base, log: &[u8], layout: Layout, wal: WalHeader) -> Expected<'a> {
    let geometry = Geometry::new(layout, wal.page_size, 1).expect("any unit will do");
    let survey = Survey::of(log, geometry, wal, Writers::None).expect("bytes in memory");
    if survey.unread.is_some() {
        // Records that only a newer version could read.
        return Expected::Refusal;
    }
    let frame = survey.committed.map_or(0, |commit| commit.frame.0);
    let state = base.states.iter().rfind(|state| state.frame == frame);
    match state {
        Some(state) => Expected::State(state),
        None => panic!("{}: no transaction ended with frame {frame}", base.name),
    }
}
