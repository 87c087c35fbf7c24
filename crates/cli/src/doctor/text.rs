//! The report for people.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use onewrite::storage::WriteCache;

use super::Report;
use super::advice::ModeAdvice;
use super::facts::{Answer, Facts};
use super::trial::Rates;
use crate::text_table::terminal_width;

/// Width of the text where that of the terminal is not known.
const WIDTH: u16 = 100;

/// Why a rate may be far below one divided by the time of a write.
const TWO_MEASURES: &str = "The rates are averages: a few slow writes, as of a device with other work, make \
                            them low. The times are medians of at most 16 writes.";

/// The whole report; it ends with the recommendation.
pub fn render(report: &Report) -> String {
    let mut text = format!("{}\n\n", report.directory);
    for (name, value) in place(&report.facts, &report.kernel) {
        let _ = writeln!(text, "  {name:<18}{value}");
    }
    let _ = writeln!(
        text,
        "\nMeasured, median of {} x {} writes:\n",
        report.raw.samples, report.raw.writes_per_sample
    );
    for (name, rate) in rates(&report.raw) {
        let _ = writeln!(text, "  {name:<46}{:>9}", per_second(rate));
    }
    if let Some(durable) = &report.raw.durable {
        let of = |what: &str, us: u32| format!("  {what:<46}{us:>6} us\n");
        text += &of("one write-through write", durable.pace.write_through_us);
        text += &of("one write and a flush", durable.pace.write_and_flush_us);
        let _ = writeln!(text, "\n{}", wrap("", TWO_MEASURES));
        let chosen = format!("{}: {}", durable.auto, durable.why);
        let _ = writeln!(text, "\n{}", wrap("onewrite_sync=auto is ", &chosen));
    }
    let _ = writeln!(text, "\n{}", modes(report));
    for advice in &report.modes {
        let label = format!("{}: ", advice.mode);
        if let Some(details) = details(advice) {
            let _ = writeln!(text, "\n{}", wrap(&label, &details));
        }
    }
    for warning in &report.warnings {
        let _ = writeln!(text, "\n{}", wrap("Note: ", warning));
    }
    let advice = &report.recommendation;
    let label = format!("Recommended: {}, because ", advice.mode);
    let _ = writeln!(text, "\n{}.", wrap(&label, &advice.reason));
    text
}

fn place(facts: &Facts, kernel: &str) -> Vec<(&'static str, String)> {
    let mounted = facts
        .mount_point
        .as_ref()
        .map_or_else(String::new, |point| format!(" on {}", point.display()));
    let options = match facts.mount_options.as_slice() {
        [] => "none that matter for durable writes".to_owned(),
        options => options.join(", "),
    };
    vec![
        (
            "file system",
            format!("{}{mounted}, Linux {kernel}", facts.filesystem),
        ),
        ("mount options", options),
        ("device", device(facts)),
        ("direct I/O", direct(facts)),
        ("FUA", answer(&facts.fua)),
        ("write cache", write_cache(facts).to_owned()),
        ("flushes", answer(&facts.barriers)),
        ("write-zeroes", answer(&facts.write_zeroes)),
        ("exchange", answer(&facts.exchange)),
        ("clone", answer(&facts.clone)),
        ("atomic writes", atomic(facts)),
    ]
}

fn device(facts: &Facts) -> String {
    let Some(name) = &facts.device else {
        return "not known".to_owned();
    };
    let file = facts
        .backing_file
        .as_ref()
        .map_or_else(String::new, |file| format!(" ({})", file.display()));
    let name = onewrite_iotrace::device::described(name);
    format!(
        "{name}{file}, blocks of {} bytes, physical {}",
        facts.logical_block_bytes, facts.physical_block_bytes
    )
}

fn direct(facts: &Facts) -> String {
    let direct = &facts.direct_io;
    match (direct.memory_align_bytes, direct.offset_align_bytes) {
        (Some(memory), Some(offset)) => {
            format!("yes, aligned to {offset} bytes in the file and {memory} in memory")
        }
        _ => answer(&direct.answer),
    }
}

fn answer(answer: &Answer) -> String {
    match &answer.reason {
        None => "yes".to_owned(),
        Some(reason) => format!("no: {reason}"),
    }
}

fn write_cache(facts: &Facts) -> &'static str {
    match facts.write_cache {
        WriteCache::WriteBack => "volatile: a completed write is durable only after a flush",
        WriteCache::WriteThrough => "no volatile cache: a completed write is durable",
        WriteCache::Unknown => "not known",
    }
}

fn atomic(facts: &Facts) -> String {
    let writes = &facts.atomic_writes;
    let bytes =
        |bytes: Option<u32>| bytes.map_or("no promise".to_owned(), |n| format!("{n} bytes"));
    format!(
        "file system: {}; device: {}",
        bytes(writes.file_system_bytes),
        bytes(writes.device_bytes)
    )
}

fn rates(raw: &Rates) -> [(&'static str, Option<f64>); 4] {
    [
        (
            "durable 4 KiB overwrite, direct I/O",
            raw.direct_dsync_4k_per_s,
        ),
        ("the same, not durable", raw.direct_4k_per_s),
        (
            "durable 4 KiB overwrite, page cache, fdatasync",
            raw.buffered_fdatasync_4k_per_s,
        ),
        (
            "append of 4,120 bytes, fdatasync",
            raw.append_fdatasync_per_s,
        ),
    ]
}

fn per_second(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}/s"))
}

fn modes(report: &Report) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(terminal_width().unwrap_or(WIDTH).min(WIDTH));
    table.set_header([
        "mode",
        "a commit of one page at synchronous=FULL",
        "at most,\nlog growing",
        "at most,\nlog reused",
    ]);
    for advice in &report.modes {
        table.add_row([
            advice.mode.to_owned(),
            advice.commit.clone(),
            per_second(advice.growing_limit_per_s),
            per_second(advice.limit_per_s),
        ]);
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// The values of the settings, and the limits.
fn details(advice: &ModeAdvice) -> Option<String> {
    let settings = advice.settings.as_ref()?;
    let mut details = format!(
        "on auto, layout {}, onewrite_sync {}, onewrite_init {}",
        settings.layout, settings.sync, settings.init
    );
    for limit in &advice.limits {
        details.push_str("; ");
        details.push_str(limit);
    }
    details.push('.');
    Some(details)
}

/// Breaks a paragraph into lines.
fn wrap(label: &str, text: &str) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in format!("{label}{text}").split_whitespace() {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > usize::from(WIDTH) {
            out.push('\n');
            column = 0;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += width;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_keep_their_words_and_the_width() {
        let words = "word ".repeat(80);
        let wrapped = wrap("Note: ", &words);
        assert!(wrapped.lines().all(|line| line.len() <= usize::from(WIDTH)));
        assert_eq!(wrapped.split_whitespace().count(), 81);
    }
}
