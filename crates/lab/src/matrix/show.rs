//! The matrix as a heat map: on the terminal, and as a page with a picture for each mode.

use std::path::Path;

use onewrite_cli::html::{Page, Part, Section, Table};
use onewrite_cli::text_table::TextTable;
use onewrite_plot::{Cell as Drawn, Cells, Picture, Series, Shape, colors};

use super::Report;
use super::grid::Cell;
use super::measure::Measured;
use super::rule::{Judged, State};

/// The meaning of the words in cells.
const LEGEND: &str = "red: r rate below 0.97, b bytes above 1.00, c processor time above 1.15, p p99 above 1.00 at \
                      half of stock's rate; ? undecided";

/// A row's name, and its cell in each column.
type Row<'a> = (String, Vec<Option<&'a Judged>>);

/// One mode's map: device and workers across, operation, state and page down.
struct Map<'a> {
    columns: Vec<(String, String)>,
    rows: Vec<Row<'a>>,
}

impl<'a> Map<'a> {
    fn of(report: &'a Report, cells: &[Cell], mode: &str) -> Self {
        let mut columns: Vec<(String, String)> = Vec::new();
        let mut names: Vec<String> = Vec::new();
        for cell in cells {
            let (column, name) = (column(cell), name(cell));
            if !columns.contains(&column) {
                columns.push(column);
            }
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let mut rows: Vec<Row<'a>> = names
            .into_iter()
            .map(|name| (name, vec![None; columns.len()]))
            .collect();
        for cell in cells {
            let at = columns.iter().position(|known| *known == column(cell));
            let row = rows.iter_mut().find(|(known, _)| *known == name(cell));
            let place = row.zip(at).and_then(|((_, cells), at)| cells.get_mut(at));
            if let Some(place) = place {
                *place = find(report, cell, mode);
            }
        }
        Self { columns, rows }
    }
}

fn column(cell: &Cell) -> (String, String) {
    let (device, workers) = cell.column();
    (device.to_owned(), workers)
}

fn name(cell: &Cell) -> String {
    let (op, state, page) = cell.row();
    format!("{op} {state} {page}")
}

fn find<'a>(report: &'a Report, cell: &Cell, mode: &str) -> Option<&'a Judged> {
    let measured = report.cells.iter().find(|one| one.cell == cell.to_string());
    measured?.modes.iter().find(|judged| judged.mode == mode)
}

/// One cell in a line.
pub fn line(cell: &Measured) -> String {
    let modes = cell.modes.iter().map(|judged| {
        let figures = judged.figures.iter();
        let figures = figures.map(|figure| format!("{} {:.2}", figure.name, figure.ratio));
        let figures: Vec<String> = figures.collect();
        format!("{} {} ({})", judged.mode, judged.word(), figures.join(", "))
    });
    format!("{}: {}", cell.cell, modes.collect::<Vec<_>>().join("; "))
}

/// The sum in a sentence.
fn sum(report: &Report) -> String {
    format!(
        "{} red, {} undecided and {} clear cells against stock wal; {} not measured",
        report.red,
        report.undecided,
        report.clear,
        report.missing.len()
    )
}

/// The report as people read it: a map for each mode.
pub fn text(report: &Report, cells: &[Cell]) -> String {
    let mut text = String::new();
    for mode in &report.modes {
        let map = Map::of(report, cells, mode);
        let heads = map
            .columns
            .iter()
            .map(|(device, workers)| format!("{device}\n{workers}"));
        let mut table = TextTable::new(1, std::iter::once("cell".to_owned()).chain(heads));
        for (name, row) in &map.rows {
            let words = row
                .iter()
                .map(|judged| judged.map_or_else(String::new, Judged::word));
            table.row(std::iter::once(name.clone()).chain(words));
        }
        text.push_str(&format!("{mode}\n{table}\n"));
    }
    for cell in &report.cells {
        text.push_str(&format!("{}\n", line(cell)));
    }
    text.push_str(&format!("{LEGEND}\n{}\n", sum(report)));
    text
}

/// The report as a page.
pub fn page(report: &Report, cells: &[Cell]) -> Result<Page, String> {
    let mut page = Page::of("The matrix", report)?;
    page.lead = Some(format!("{}.", sum(report)));
    page.problems = report.problems.clone();
    for mode in &report.modes {
        let picture = picture(report, cells, mode)?;
        let label = format!("cells: where {mode} is worse than stock wal");
        let part = Part::Picture(picture, label);
        page.sections.push(Section::new(mode, LEGEND, vec![part]));
    }
    page.sections.push(figures(report));
    Ok(page)
}

/// Each mode's picture as a file.
pub fn save_pictures(report: &Report, cells: &[Cell], directory: &Path) -> Result<(), String> {
    for mode in &report.modes {
        let name = mode.replace([':', ',', '='], "-");
        let path = directory.join(format!("matrix-{name}.svg"));
        let saved = picture(report, cells, mode)?.save(&path);
        saved.map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn picture(report: &Report, cells: &[Cell], mode: &str) -> Result<Picture, String> {
    let map = Map::of(report, cells, mode);
    drawing(mode, &map)
        .draw()
        .map_err(|error| error.to_string())
}

fn drawing(mode: &str, map: &Map<'_>) -> Cells {
    let kinds = [
        ("clear", colors::WAL_INDEX),
        ("undecided", colors::OTHER),
        ("red", colors::FS_JOURNAL),
    ];
    let kinds = kinds.map(|(name, color)| Series {
        name: name.to_owned(),
        color,
        shape: Shape::Square,
    });
    let drawn = |judged: &Judged| Drawn {
        kind: match judged.state {
            State::Clear => 0,
            State::Undecided => 1,
            State::Red => 2,
        },
        word: judged.word(),
    };
    let row = |(name, cells): &Row<'_>| {
        let cells = cells.iter().map(|judged| judged.map(drawn));
        (name.clone(), cells.collect())
    };
    Cells {
        title: format!("{mode} against stock wal"),
        subtitle: None,
        kinds: kinds.to_vec(),
        columns: map.columns.clone(),
        rows: map.rows.iter().map(row).collect(),
    }
}

/// Every figure of every cell.
fn figures(report: &Report) -> Section {
    let mut table = Table::new([
        "cell", "mode", "figure", "limit", "ratio", "interval", "state",
    ]);
    for cell in &report.cells {
        for judged in &cell.modes {
            for figure in &judged.figures {
                let bounds = figure.low.zip(figure.high);
                let bounds = bounds.map(|(low, high)| format!("{low:.2} to {high:.2}"));
                table.rows.push(vec![
                    cell.cell.clone(),
                    judged.mode.clone(),
                    figure.name.clone(),
                    format!("{:.2}", figure.limit),
                    format!("{:.2}", figure.ratio),
                    bounds.unwrap_or_else(|| "–".to_owned()),
                    format!("{:?}", figure.state).to_lowercase(),
                ]);
            }
        }
    }
    let intro = "Ratios to stock wal, from paired rounds. Bytes are counts, without an interval.";
    Section::new("Every figure", intro, vec![Part::Table(table)])
}
