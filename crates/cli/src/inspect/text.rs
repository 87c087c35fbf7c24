//! The report for people.

use std::io::{self, Write};

use onewrite::mode::JournalMode;

use super::report::{Database, Frames, Kind, Log, Report, counted};

/// Writes the whole report. Problems come last, where the reader sees them.
pub fn write(report: &mut Report, out: &mut impl Write) -> io::Result<()> {
    if let Some(database) = &report.database {
        write_database(database, out)?;
    }
    if let Some(log) = &report.log {
        write_log(log, "onewrite log", out)?;
    }
    if let Some(wal) = &report.wal {
        write_log(wal, "log of SQLite's own", out)?;
    }
    if matches!(report.kind, Kind::Empty | Kind::Unknown) {
        writeln!(out, "{}", report.file.display())?;
    }
    for note in &report.notes {
        writeln!(out, "note: {note}")?;
    }
    for problem in &report.problems {
        let file = problem.file.display();
        match problem.offset {
            Some(offset) => writeln!(out, "problem: {file}, byte {offset}: {}", problem.what)?,
            None => writeln!(out, "problem: {file}: {}", problem.what)?,
        }
    }
    Ok(())
}

/// A line of a name and a value.
fn line(out: &mut impl Write, name: &str, value: impl std::fmt::Display) -> io::Result<()> {
    writeln!(out, "  {name:<16} {value}")
}

fn write_database(database: &Database, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}: database", database.path.display())?;
    let guard = match &database.log_id {
        Some(id) => format!("guarded, newest transactions are in the log {id}"),
        None => "not guarded: a stock database".to_owned(),
    };
    line(out, "guard", guard)?;
    let page = database
        .page_size
        .map_or("impossible".to_owned(), |size| size.to_string());
    let reserved = database.reserved_bytes;
    line(
        out,
        "page size",
        format_args!("{page} bytes, {reserved} of them reserved"),
    )?;
    let (write, read) = (database.write_version, database.read_version);
    line(
        out,
        "versions",
        format_args!("write {write}, read {read} (0x{read:02x})"),
    )?;
    let (counter, valid) = (database.change_counter, database.version_valid_for);
    line(
        out,
        "change counter",
        format_args!("{counter}, page count valid for {valid}"),
    )?;
    let (size, pages) = (database.size, database.pages);
    line(
        out,
        "size",
        format_args!("{size} bytes, {}", counted(pages.into(), "page")),
    )?;
    writeln!(out)
}

fn write_log(log: &Log, what: &str, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}: {what}", log.path.display())?;
    let in_use = if log.in_use == Some(true) {
        ", in use by another process"
    } else {
        ""
    };
    line(out, "file", format_args!("{} bytes{in_use}", log.size))?;
    if let Some(header) = &log.header {
        line(out, "format version", header.format_version)?;
        line(
            out,
            "mode",
            format_args!("{}, layout {}", header.mode, header.layout),
        )?;
        match header.page_size {
            Some(size) => line(out, "page size", format_args!("{size} bytes"))?,
            None if header.mode == JournalMode::Direct.name() => {
                line(out, "page size", "none: the frames are in the -wal file")?;
            }
            None => line(out, "page size", "none: no database uses the log")?,
        }
        line(out, "id", &header.id)?;
    }
    match &log.wal_header {
        None => line(out, "WAL header", "none")?,
        Some(wal) => {
            let salts = format_args!(
                "salts {}, checkpoint {}, pages of {} bytes, {} checksums",
                wal.salts, wal.checkpoints, wal.page_size, wal.checksum_byte_order
            );
            line(out, "WAL header", salts)?;
        }
    }
    if let Some(frames) = &log.frames {
        write_frames(frames, out)?;
    }
    writeln!(out)
}

fn write_frames(frames: &Frames, out: &mut impl Write) -> io::Result<()> {
    write_totals(frames, out)?;
    let mut is_first = true;
    frames.frames.each::<io::Error>(|found| {
        if std::mem::take(&mut is_first) {
            writeln!(out)?;
            if frames.frames.first() > 1 {
                writeln!(
                    out,
                    "  frames from {} on (--all lists every one)",
                    found.frame
                )?;
            }
            let (frame, offset) = ("frame", "byte");
            let (page, commit, salts) = ("page", "commit", "salts");
            writeln!(
                out,
                "  {frame:>8} {offset:>12} {page:>10} {commit:>10}  {salts:<16}  state"
            )?;
        }
        let commit = match found.header.commit_pages {
            0 => "-".to_owned(),
            pages => pages.to_string(),
        };
        let escaped = if found.is_escaped { ", escaped" } else { "" };
        writeln!(
            out,
            "  {:>8} {:>12} {:>10} {commit:>10}  {}  {}{escaped}",
            found.frame.0,
            found.offset,
            found.header.page.0,
            super::report::hex(&found.header.salts.0),
            found.verdict
        )
    })
}

fn write_totals(frames: &Frames, out: &mut impl Write) -> io::Result<()> {
    let totals = &frames.totals;
    let distinct = match totals.distinct_pages {
        Some(pages) => counted(pages as u64, "distinct page"),
        None => "very many distinct pages".to_owned(),
    };
    let sums = format_args!(
        "{} ({} escaped), {}, {distinct}, up to byte {}",
        counted(totals.frames.into(), "frame"),
        totals.escaped,
        counted(totals.transactions, "transaction"),
        totals.bytes_used
    );
    line(out, "valid", sums)?;
    match &frames.committed {
        Some(last) => {
            let pages = counted(last.database_pages.into(), "page");
            let last = last.frame;
            line(
                out,
                "committed",
                format_args!("up to frame {last}: a database of {pages}"),
            )?;
        }
        None => line(out, "committed", "nothing")?,
    }
    let end = &frames.end;
    let salts = end
        .salts
        .as_ref()
        .map(|salts| format!(" (salts {salts})"))
        .unwrap_or_default();
    line(
        out,
        "ends",
        format_args!("at byte {}: {}{salts}", end.offset, end.reason),
    )?;
    let behind = &frames.behind;
    let counts = [
        (behind.zeros, "zeros"),
        (behind.other_generation, "other-generation"),
        (behind.present_generation, "of this generation"),
        (behind.other, "else"),
    ];
    let counts: Vec<_> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    let places = match counts.is_empty() {
        true => "nothing".to_owned(),
        false => format!("places for frames: {}", counts.join(", ")),
    };
    line(
        out,
        "behind",
        format_args!("{} bytes, {places}", totals.bytes_beyond),
    )
}
