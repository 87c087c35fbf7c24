//! The tables of `sizes`.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};

use super::{Cost, Recovery, Report};

const PAGE: f64 = 4096.0;

/// Both tables, and the notes.
pub fn text(report: &Report) -> String {
    let mut text = format!(
        "A commit ({} of them, of a row of {} bytes, synchronous=FULL, {})\n{}\n",
        report.count,
        report.row,
        report.file_system,
        commits(report)
    );
    text += &format!(
        "\nRecovery after {} commits and a kill\n{}\n",
        report.count,
        recoveries(report)
    );
    for note in &report.notes {
        text += &format!("Note: {note}\n");
    }
    text
}

fn table(header: &[&str], words: usize) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header(header);
    for column in table.column_iter_mut().skip(words) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn or_none(count: Option<u64>, shown: impl Fn(u64) -> String) -> String {
    count.map_or_else(|| "-".to_owned(), shown)
}

fn commits(report: &Report) -> Table {
    let header = [
        "MiB", "workload", "reader", "mode", "flushes", "pages", "header", "device", "splits",
        "kept", "grown", "commits",
    ];
    let units = [
        "", "", "", "", "/commit", "/commit", "pages/c.", "KiB/c.", "all", "entries", "MiB", "/s",
    ];
    let header: Vec<String> = header
        .iter()
        .zip(units)
        .map(|(name, unit)| format!("{name}\n{unit}"))
        .collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut table = table(&header, 4);
    for cost in &report.commits {
        let Cost {
            mib,
            mode,
            workload,
            reader,
            counts,
        } = cost;
        let commits = f64::from(counts.commits);
        let each = |amount: f64| format!("{:.3}", amount / commits);
        table.add_row([
            mib.to_string(),
            workload.name().to_owned(),
            if *reader { "yes" } else { "no" }.to_owned(),
            mode.clone(),
            each(counts.flushes as f64),
            each(counts.written_bytes as f64 / PAGE),
            or_none(counts.header_pages, |pages| each(pages as f64)),
            format!("{:.2}", counts.device_bytes as f64 / 1024.0 / commits),
            or_none(counts.splits, |splits| splits.to_string()),
            or_none(counts.kept, |kept| kept.to_string()),
            format!("{:.2}", counts.grown_bytes as f64 / f64::from(1 << 20)),
            format!("{:.0}", commits * 1e6 / counts.us),
        ]);
    }
    table
}

fn recoveries(report: &Report) -> Table {
    let header = [
        "MiB",
        "workload",
        "mode",
        "pages read",
        "reads",
        "cached, ms",
        "clean",
        "of WAL",
        "more, of WAL",
        "not cached, ms",
        "clean ",
        "of WAL ",
        "more, of WAL ",
    ];
    let mut table = table(&header, 3);
    for recovery in &report.recoveries {
        let wal = report.recoveries.iter().find(|other| {
            other.mode == "wal" && (other.mib, other.workload) == (recovery.mib, recovery.workload)
        });
        let ratio = |time: fn(&Recovery) -> f64| match wal {
            Some(wal) => format!("{:.2}", time(recovery) / time(wal)),
            None => "-".to_owned(),
        };
        let ms = |us: f64| format!("{:.2}", us / 1e3);
        table.add_row([
            recovery.mib.to_string(),
            recovery.workload.name().to_owned(),
            recovery.mode.clone(),
            format!("{:.0}", recovery.read_bytes as f64 / PAGE),
            recovery.read_calls.to_string(),
            ms(recovery.us),
            ms(recovery.clean_us),
            ratio(|one| one.us),
            ratio(|one| one.us - one.clean_us),
            ms(recovery.cold_us),
            ms(recovery.cold_clean_us),
            ratio(|one| one.cold_us),
            ratio(|one| one.cold_us - one.cold_clean_us),
        ]);
    }
    table
}
