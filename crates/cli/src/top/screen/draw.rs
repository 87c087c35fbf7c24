//! Draws the table, or one database over time.

use std::collections::VecDeque;

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line as Text, Span};
use ratatui::widgets::{
    Axis, Block, Cell, Chart, Dataset, GraphType, Paragraph, Row, Table, TableState, Wrap,
};

use super::state::{Line, State};
use crate::top::report::{OfDatabase, Report};
use crate::top::table::{cells_of, held, lost, of_processes};
use crate::top::words::{bytes, bytes_or_none, per_second, shortened, small, years};

/// A column: its head, its width, and the narrowest terminal that shows it. The path of the database
/// takes the rest.
struct Column {
    head: &'static str,
    width: u16,
    from: u16,
    is_word: bool,
}

/// The most rows of notes.
const MOST_NOTES: u16 = 4;

/// The narrowest that a path is shown.
const PATH: u16 = 16;

const fn words(head: &'static str, width: u16, from: u16) -> Column {
    Column {
        head,
        width,
        from,
        is_word: true,
    }
}

const fn figure(head: &'static str, width: u16, from: u16) -> Column {
    Column {
        head,
        width,
        from,
        is_word: false,
    }
}

/// The columns, in the order of [`cells`].
const COLUMNS: [Column; 14] = [
    words("program", 15, 0),
    words("pid", 8, 66),
    words("database", 0, 0),
    words("mode", 8, 76),
    figure("commit/s", 8, 0),
    figure("B/commit", 8, 72),
    figure("fl/commit", 9, 110),
    figure("fs jrnl", 7, 118),
    figure("log", 8, 126),
    figure("p50 ms", 6, 132),
    figure("p99 ms", 6, 84),
    figure("B/day", 8, 0),
    figure("onewrite~", 9, 98),
    figure("direct~", 8, 140),
];

/// Draws everything.
pub fn all(frame: &mut Frame<'_>, state: &mut State) {
    let width = frame.area().width;
    let (notes, foot_text) = (notes(&state.report), footer(state));
    let notes_rows: u16 = notes.iter().map(|note| rows(note, width)).sum();
    let foot_rows: u16 = foot_text
        .iter()
        .map(|text| rows(&text.to_string(), width))
        .sum();
    let areas = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(notes_rows.min(MOST_NOTES)),
        Constraint::Min(3),
        Constraint::Length(foot_rows),
    ]);
    let [head, note, body, foot] = areas.areas(frame.area());
    let wrap = Wrap { trim: true };
    frame.render_widget(Paragraph::new(headline(state)), head);
    frame.render_widget(Paragraph::new(notes.join("\n")).wrap(wrap), note);
    let alone = state.alone.clone();
    match alone {
        Some(path) => one(frame, body, state, &path),
        None => table(frame, body, state),
    }
    frame.render_widget(Paragraph::new(foot_text).wrap(wrap), foot);
}

/// Lost events come first.
fn notes(report: &Report) -> Vec<String> {
    let lost = lost(report).into_iter();
    lost.chain(report.notes.iter().cloned()).collect()
}

/// The rows that a text takes, wrapped at words; an empty one takes a row, too.
fn rows(text: &str, width: u16) -> u16 {
    let (mut rows, mut used) = (1, 0);
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > usize::from(width) {
            (rows, used) = (rows + 1, length);
        } else {
            used += usize::from(used > 0) + length;
        }
    }
    rows
}

fn headline(state: &State) -> Text<'static> {
    let report = &state.report;
    let mut text = format!(
        "  {} databases  {} commits/s",
        report.databases.len(),
        per_second(report.commits_per_s())
    );
    if report.traced {
        text.push_str(&format!("  {} a day", bytes(report.bytes_per_day())));
        let lives = report.devices.iter().filter_map(|device| device.life_years);
        if let Some(shortest) = lives.min_by(f64::total_cmp) {
            text.push_str(&format!(", ~{}", years(shortest)));
        }
    }
    text.push_str(&format!("  by {}", state.order.name()));
    if !state.filter.is_empty() || state.is_typing {
        text.push_str(&format!("  filter: {}", state.filter));
    }
    if state.is_typing {
        text.push('_');
    }
    let title = Span::styled("onewrite top", Style::new().add_modifier(Modifier::BOLD));
    Text::from(vec![title, Span::raw(text)])
}

/// The keys, and the estimate for the chosen line.
fn footer(state: &State) -> Vec<Text<'static>> {
    let lines = state.lines();
    let chosen = match &state.alone {
        Some(path) => state.report.databases.iter().find(|d| d.path == *path),
        None => lines.get(state.chosen).map(|line| line.database),
    };
    let estimate = chosen.map(estimate).unwrap_or_default();
    let above = state.answer.clone().unwrap_or(estimate);
    let keys = match (&state.alone, state.is_typing) {
        (_, true) => "Enter keeps the filter  Esc clears it",
        (Some(_), _) => "Esc back  r record  q quit",
        (None, _) => "q quit  s sort  / filter  r record  Enter one database  Up Down choose",
    };
    let dim = Style::new().add_modifier(Modifier::DIM);
    vec![Text::from(above), Text::styled(keys, dim)]
}

fn estimate(database: &OfDatabase) -> String {
    let Some(estimate) = &database.estimate else {
        return String::new();
    };
    let (now, one, direct) = (&database.figures, &estimate.onewrite, &estimate.direct);
    format!(
        "a commit now: {}, {} flushes; estimated: onewrite {}, {}; direct {}, {}",
        bytes_or_none(now.bytes_per_commit),
        small(now.flushes_per_commit),
        bytes(one.bytes_per_commit),
        small(Some(one.flushes_per_commit)),
        bytes(direct.bytes_per_commit),
        small(Some(direct.flushes_per_commit)),
    )
}

fn table(frame: &mut Frame<'_>, area: Rect, state: &mut State) {
    if state.report.databases.is_empty() {
        let text = "no SQLite database was written to in the last seconds";
        frame.render_widget(Paragraph::new(text), area);
        return;
    }
    let shown: Vec<usize> = (0..COLUMNS.len())
        .filter(|place| COLUMNS.get(*place).is_some_and(|c| c.from <= area.width))
        .collect();
    let columns = || shown.iter().filter_map(|place| COLUMNS.get(*place));
    let fixed: u16 = columns().map(|column| column.width + 1).sum();
    let path = area.width.saturating_sub(fixed).max(PATH);
    let widths = columns().map(|column| match column.width {
        0 => Constraint::Length(path),
        width => Constraint::Length(width),
    });
    let heads = columns().map(|column| aligned(column.head.to_owned(), column.is_word));
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let lines = state.lines();
    let rows = lines.iter().map(|line| {
        let cells = cells(line, usize::from(path));
        let of = |place: &usize| {
            let text = cells.get(*place).cloned().unwrap_or_default();
            aligned(
                text,
                COLUMNS.get(*place).is_some_and(|column| column.is_word),
            )
        };
        Row::new(shown.iter().map(of).collect::<Vec<_>>())
    });
    let table = Table::new(rows, widths.collect::<Vec<_>>())
        .header(Row::new(heads.collect::<Vec<_>>()).style(bold))
        .column_spacing(1)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut chosen = TableState::new().with_selected(Some(state.chosen));
    frame.render_stateful_widget(table, area, &mut chosen);
}

fn aligned(text: String, is_word: bool) -> Cell<'static> {
    let alignment = match is_word {
        true => Alignment::Left,
        false => Alignment::Right,
    };
    Cell::from(Text::from(text).alignment(alignment))
}

/// The texts of a line, in the order of [`COLUMNS`].
fn cells(line: &Line<'_>, path: usize) -> Vec<String> {
    let (database, program) = (line.database, line.program);
    let mut cells = vec![
        program.name.clone(),
        of_processes(program),
        shortened(&database.path, path),
        database.journal_mode.clone(),
    ];
    cells.extend(cells_of(&program.figures, database));
    let estimate = database.estimate.as_ref();
    cells.push(bytes_or_none(estimate.map(|e| e.onewrite.bytes_per_commit)));
    cells.push(bytes_or_none(estimate.map(|e| e.direct.bytes_per_commit)));
    cells
}

/// One database over time.
fn one(frame: &mut Frame<'_>, area: Rect, state: &State, path: &str) {
    let database = state.report.databases.iter().find(|d| d.path == path);
    let areas = Layout::vertical([
        Constraint::Length(6),
        Constraint::Fill(1),
        Constraint::Fill(1),
    ]);
    let [facts, above, below] = areas.areas(area);
    let text = database.map_or_else(|| format!("{path}\nidle"), facts_of);
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }), facts);
    if let Some(history) = state.history.rates.get(path) {
        plot(
            frame,
            above,
            "commits a second",
            &history.commits,
            per_second,
        );
        plot(frame, below, "bytes a second", &history.bytes, bytes);
    }
}

fn facts_of(database: &OfDatabase) -> String {
    let figures = &database.figures;
    let programs = database.programs.iter();
    let programs = programs.map(|program| {
        let rate = per_second(program.figures.commits_per_s);
        format!("{} ({}): {rate}/s", program.name, of_processes(program))
    });
    let [commits, a_commit, flushes, journal, log, p50, p99, day] = cells_of(figures, database);
    format!(
        "{}\n{} on {}, journal_mode={}, log {log}\n\
         {commits} commits/s, {a_commit} and {flushes} flushes each, {journal} journaling, {day} a day\n\
         flush p50 {p50} ms, p99 {p99} ms\n{}\n{}",
        database.path,
        database.file_system,
        database.device.as_deref().unwrap_or("no device"),
        database.journal_mode,
        programs.collect::<Vec<_>>().join(", "),
        held(database).unwrap_or_default(),
    )
}

fn plot(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &str,
    rates: &VecDeque<f64>,
    word: fn(f64) -> String,
) {
    let room = usize::from(area.width).saturating_sub(12).max(10) * 2;
    let first = rates.len().saturating_sub(room);
    let ago = |place: usize| place as f64 - (rates.len() - 1) as f64;
    let points = rates.iter().enumerate().skip(first);
    let points: Vec<(f64, f64)> = points.map(|(place, rate)| (ago(place), *rate)).collect();
    let most = points.iter().map(|(_, rate)| *rate).fold(1.0, f64::max);
    let begin = points.first().map_or(-1.0, |(at, _)| at.min(-1.0));
    let data = Dataset::default()
        .marker(Marker::Braille)
        .graph_type(GraphType::Line)
        .data(&points);
    let times = Axis::default()
        .bounds([begin, 0.0])
        .labels([format!("{begin:.0} s"), "now".to_owned()]);
    let values = Axis::default()
        .bounds([0.0, most])
        .labels(["0".to_owned(), word(most)]);
    let chart = Chart::new(vec![data]).x_axis(times).y_axis(values);
    frame.render_widget(chart.block(Block::bordered().title(title.to_owned())), area);
}
