//! The report as text.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::Report;
use super::outcome::{Bound, Difference, Ratio, Row, Sequence, Shown, Side, Stated, Verdict};

/// A missing figure.
const NONE: &str = "-";

/// Prints all figures, and the machine that they were measured on.
pub fn render(report: &Report) -> String {
    let mut text = format!("{}\n", report.title);
    for shown in &report.figures {
        text.push_str(&figure(shown));
    }
    text.push_str(&format!(
        "\n{}{}, Linux {}, SQLite {}\n",
        report.filesystem,
        on_device(report),
        report.kernel,
        report.sqlite
    ));
    text.push_str(&format!("raw rates a second: {}\n", rates(report)));
    for note in &report.notes {
        text.push_str(&format!("{note}\n"));
    }
    text
}

/// The device's own rates.
pub fn rates(report: &Report) -> String {
    let rate =
        |rate: Option<f64>| rate.map_or_else(|| NONE.to_owned(), |rate| format!("{rate:.0}"));
    format!(
        "4 KiB direct and durable {}, direct {}, 4,120-byte append and fdatasync {}",
        rate(report.raw.direct_dsync_4k_per_s),
        rate(report.raw.direct_4k_per_s),
        rate(report.raw.append_fdatasync_per_s)
    )
}

/// The device below the file system, in words.
pub fn on_device(report: &Report) -> String {
    match (&report.device, &report.device_model) {
        (_, Some(model)) => format!(
            " on a device of the model {} ({})",
            model.name, model.description
        ),
        (Some(device), None) => format!(" on {device}"),
        (None, None) => String::new(),
    }
}

/// A figure's table, and a sentence for each difference.
pub fn figure(shown: &Shown) -> String {
    let mut text = format!(
        "\n{}: {}\n{}\n{}\n",
        shown.figure,
        shown.title,
        shown.how,
        table(&shown.rows)
    );
    for one in &shown.sequences {
        text.push_str(&format!("{}\n", sequence(one)));
    }
    let undecided = undecided(&shown.rows);
    for sentence in sentences(&shown.differences).into_iter().chain(undecided) {
        text.push_str(&format!("{sentence}\n"));
    }
    for note in &shown.notes {
        text.push_str(&format!("Note: {note}.\n"));
    }
    text
}

/// The I/Os of a trace.
pub fn sequence(sequence: &Sequence) -> String {
    let Sequence { name, ios, more } = sequence;
    let more = match more {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!("{name}: {}{more}", ios.join(", "))
}

/// A column: its head, its alignment, and its content.
type Column = (&'static str, CellAlignment, fn(&Row) -> String);

const LEFT: CellAlignment = CellAlignment::Left;
const RIGHT: CellAlignment = CellAlignment::Right;

const COLUMNS: [Column; 6] = [
    ("in the paper", LEFT, |row| row.name.to_owned()),
    ("here", LEFT, |row| {
        row.ran.clone().unwrap_or_else(|| NONE.to_owned())
    }),
    ("what", LEFT, |row| {
        format!("{}, {}", row.quantity, row.unit)
    }),
    ("paper", RIGHT, |row| or_none(row.paper, stated)),
    ("ours", RIGHT, |row| match (row.ours, &row.ran) {
        (Some(ours), _) => number(ours),
        (None, Some(_)) => NONE.to_owned(),
        (None, None) => "not here".to_owned(),
    }),
    ("", LEFT, verdict),
];

/// The columns before the last one, if a row has a ratio.
const RATIO_COLUMNS: [Column; 3] = [
    ("ratio to", LEFT, |row| {
        ratio(row).map_or_else(String::new, |ratio| ratio.to.to_owned())
    }),
    ("paper's\nratio", RIGHT, |row| {
        or_none(ratio(row).and_then(|ratio| ratio.paper), stated)
    }),
    ("our\nratio", RIGHT, |row| {
        or_none(ratio(row).and_then(|ratio| ratio.ours), number)
    }),
];

/// The column behind those, if a row has rounds.
const INTERVAL: Column = ("interval,\nrounds", RIGHT, |row| {
    let rounds = ratio(row).and_then(|ratio| Some((ratio.interval?, ratio.rounds?)));
    rounds.map_or_else(String::new, |(interval, rounds)| match interval.bounds() {
        Some((low, high)) => format!("{} to {}, {rounds}", number(low), number(high)),
        None => format!("-, {rounds}"),
    })
});

fn ratio(row: &Row) -> Option<&Ratio> {
    row.ratio.as_ref()
}

fn or_none<T>(value: Option<T>, text: fn(T) -> String) -> String {
    value.map_or_else(|| NONE.to_owned(), text)
}

/// A figure's rows.
pub fn table(rows: &[Row]) -> Table {
    let mut columns = COLUMNS.to_vec();
    if rows.iter().any(|row| row.ratio.is_some()) {
        let last = columns.pop();
        columns.extend(RATIO_COLUMNS);
        let has_rounds = |row: &Row| ratio(row).is_some_and(|ratio| ratio.rounds.is_some());
        if rows.iter().any(has_rounds) {
            columns.push(INTERVAL);
        }
        columns.extend(last);
    }
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    // On a narrower terminal, the table breaks lines between words.
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(columns.iter().map(|(head, ..)| *head));
    for row in rows {
        table.add_row(columns.iter().map(|(_, _, cell)| cell(row)));
    }
    for (column, (_, alignment, _)) in table.column_iter_mut().zip(&columns) {
        column.set_cell_alignment(*alignment);
    }
    table
}

fn verdict(row: &Row) -> String {
    let side = match row.side() {
        Some(Side::Above) => "more",
        Some(Side::Below) => "less",
        None => "",
    };
    match row.verdict {
        Verdict::Same => "same".to_owned(),
        Verdict::Magnitude => side.to_owned(),
        Verdict::Misses => format!("{side}: misses"),
        Verdict::Undecided => "undecided".to_owned(),
        Verdict::NotCompared => String::new(),
    }
}

/// One sentence about the rows that the rounds did not decide.
pub fn undecided(rows: &[Row]) -> Option<String> {
    let open = rows.iter().filter(|row| row.verdict == Verdict::Undecided);
    let names: Vec<String> = open
        .map(|row| format!("{} ({})", row.name, row.quantity))
        .collect();
    (!names.is_empty()).then(|| {
        format!(
            "{}: undecided: the rounds allow the paper's direction, and none or the other. Use a quiet machine, or \
             --max-rounds.",
            names.join(", ")
        )
    })
}

fn stated(stated: Stated) -> String {
    let sign = match stated.bound {
        Bound::About => "",
        Bound::AtMost => "<= ",
        Bound::AtLeast => ">= ",
    };
    format!("{sign}{}", number(stated.amount))
}

/// Three digits, or all digits before the point.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// One sentence for all rows that share it, with each check.
pub fn sentences(differences: &[Difference]) -> Vec<String> {
    let mut groups: Vec<(&Difference, Vec<&Difference>)> = Vec::new();
    for difference in differences {
        let same = |other: &Difference| {
            other.why == difference.why
                && other.holds == difference.holds
                && other.checked == difference.checked
                && other.not_decided == difference.not_decided
                && other.verdict == difference.verdict
                && other.side == difference.side
        };
        match groups.iter_mut().find(|(first, _)| same(first)) {
            Some((_, group)) => group.push(difference),
            None => groups.push((difference, vec![difference])),
        }
    }
    groups
        .iter()
        .map(|(first, all)| sentence(first, all))
        .collect()
}

fn sentence(first: &Difference, all: &[&Difference]) -> String {
    let rows: Vec<String> = all
        .iter()
        .map(|difference| format!("{} ({})", difference.row, difference.quantity))
        .collect();
    let side = match first.side {
        Side::Above => "more",
        Side::Below => "less",
    };
    let how = match first.verdict {
        Verdict::Misses => format!("{side} than in the paper, and not in its direction"),
        _ => format!("{side} than in the paper"),
    };
    let mut measured = first.checked.clone().unwrap_or_default();
    for difference in all {
        if let Some(of_row) = &difference.of_row {
            let (row, quantity) = (difference.row, difference.quantity);
            let before = if measured.ends_with(':') { "" } else { "," };
            measured.push_str(&format!("{before} {row} ({quantity}) {of_row}"));
        }
    }
    let measured = format!("{measured}.{}", predictions(first.count, all));
    let why = match (first.why, first.holds) {
        (Some(why), true) => format!("{why} Measured: {measured}"),
        (Some(why), false) => {
            format!("no reason found. What was supposed, \"{why}\", is not borne out: {measured}")
        }
        (None, _) => "no reason known.".to_owned(),
    };
    let noise = first.not_decided.as_ref();
    let noise = noise.map_or_else(String::new, |noise| format!("{noise}; "));
    format!("{}: {how}: {noise}{why}", rows.join(", "))
}

/// The figure of each row as the reason's count predicts it, next to the measured one.
fn predictions(count: Option<&str>, all: &[&Difference]) -> String {
    let Some(count) = count else {
        return String::new();
    };
    let each: Vec<String> = all
        .iter()
        .filter_map(|difference| {
            let predicted = number(difference.predicted?);
            let ours = number(difference.ours);
            let (row, quantity) = (difference.row, difference.quantity);
            Some(format!("{row} ({quantity}) {predicted}, is {ours}"))
        })
        .collect();
    format!(" Predicted from {count}: {}.", each.join("; "))
}

#[cfg(test)]
mod tests {
    use super::super::outcome::Kind;
    use super::super::rounds::Paired;
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (1293.4, "1293"),
            (28.04, "28.0"),
            (1.666, "1.67"),
            (0.028, "0.0280"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn an_undecided_row_has_its_interval_and_rounds() {
        let paired = Paired {
            ratios: vec![0.8, 1.3, 0.9, 1.2, 0.85, 1.25, 1.0],
            error: 0.05,
            trials: Vec::new(),
        };
        let row = Row::new("DB remap", "elapsed", "s", Kind::Timed)
            .ran("exchange")
            .rounds("WAL", Some(Stated::about(1.05, "test")), &paired)
            .judged();
        let rows = [row];
        let text = format!("{}{}", table(&rows), undecided(&rows).unwrap());
        for part in [
            "undecided",
            "0.85 to 1.25, 7",
            "DB remap (elapsed): undecided",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(undecided(&[]), None);
    }

    #[test]
    fn rows_with_the_same_reason_share_a_sentence() {
        let difference = |row, why: Option<&'static str>, holds| Difference {
            row,
            quantity: "written",
            verdict: Verdict::Magnitude,
            side: Side::Below,
            why,
            count: why.map(|_| "syncs"),
            predicted: why.map(|_| 12.0),
            ours: 11.5,
            checked: why.map(|_| "12 KiB".to_owned()),
            of_row: (row == "B").then(|| "14".to_owned()),
            holds,
            not_decided: (row == "E").then(|| "not decided: noise".to_owned()),
        };
        let all = [
            difference("A", Some("Because."), true),
            difference("B", Some("Because."), true),
            difference("C", None, false),
            difference("D", Some("Because."), false),
            difference("E", None, false),
        ];
        assert_eq!(
            sentences(&all),
            [
                "A (written), B (written): less than in the paper: Because. Measured: 12 KiB, B (written) 14. Predicted \
                 from syncs: A (written) 12.0, is 11.5; B (written) 12.0, is 11.5.",
                "C (written): less than in the paper: no reason known.",
                "D (written): less than in the paper: no reason found. What was supposed, \"Because.\", is not borne \
                 out: 12 KiB. Predicted from syncs: D (written) 12.0, is 11.5.",
                "E (written): less than in the paper: not decided: noise; no reason known."
            ]
        );
    }
}
