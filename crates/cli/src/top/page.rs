//! The report of `top` as a page.

use std::collections::VecDeque;

use onewrite_plot::{Axis, LineSeries, Lines, Picture, Scale, Series, Shape, Unit, colors};

use super::history::{History, Rates};
use super::report::{OfDatabase, Report};
use super::table::{cells_of, closing, head, of_processes};
use super::words::{bytes, shortened};
use crate::html::{Bar, Page, Part, Section, Table};

/// The databases in a plot: the busiest.
const PLOTTED: usize = 5;

/// The points of a line; more are averaged.
const POINTS: usize = 60;

/// The longest path in a legend.
const PATH: usize = 36;

/// The page.
pub fn page(report: &Report, history: &History) -> Result<Page, String> {
    let mut page = Page::of("SQLite on this machine", report)?;
    page.lead = Some(format!("{}.", head(report)));
    page.notes = closing(report).lines().map(str::to_owned).collect();
    if !report.databases.is_empty() {
        page.sections.push(programs(report));
        page.sections.extend(over_time(report, history)?);
        page.sections.extend(estimates(report));
    }
    Ok(page)
}

fn programs(report: &Report) -> Section {
    let mut table = Table::new([
        "program",
        "process",
        "database",
        "journal mode",
        "commits a second",
        "bytes a commit",
        "flushes a commit",
        "journaling of the fs",
        "log size",
        "flush p50, ms",
        "flush p99, ms",
        "bytes a day",
    ]);
    for database in &report.databases {
        for program in &database.programs {
            let mut row = vec![
                program.name.clone(),
                of_processes(program),
                database.path.clone(),
                database.journal_mode.clone(),
            ];
            row.extend(cells_of(&program.figures, database));
            table.rows.push(row);
        }
    }
    let intro = "Each program that wrote to a database, the most bytes first.";
    Section::new("Programs", intro, vec![Part::Table(table)])
}

fn over_time(report: &Report, history: &History) -> Result<Option<Section>, String> {
    let plotted: Vec<(&OfDatabase, &Rates)> = report
        .databases
        .iter()
        .filter_map(|database| Some((database, history.rates.get(&database.path)?)))
        .filter(|(_, rates)| rates.commits.len() > 1)
        .take(PLOTTED)
        .collect();
    if plotted.is_empty() {
        return Ok(None);
    }
    let commits = lines("commits a second", Unit::Number, &plotted, |r| &r.commits)?;
    let written = lines("bytes a second", Unit::Bytes, &plotted, |r| &r.bytes)?;
    let parts = vec![
        Part::Picture(commits, "commits a second over time".to_owned()),
        Part::Picture(written, "bytes a second over time".to_owned()),
    ];
    let intro = "The databases with the most bytes.";
    Ok(Some(Section::new("Over time", intro, parts)))
}

fn lines(
    title: &str,
    unit: Unit,
    plotted: &[(&OfDatabase, &Rates)],
    rates: fn(&Rates) -> &VecDeque<f64>,
) -> Result<Picture, String> {
    let line = |(index, (database, of)): (usize, &(&OfDatabase, &Rates))| LineSeries {
        series: Series {
            name: shortened(&database.path, PATH),
            color: colors::of(index),
            shape: Shape::Circle,
        },
        points: points(rates(of)),
    };
    let lines = Lines {
        title: title.to_owned(),
        subtitle: None,
        x: Axis::new("time", Unit::Seconds),
        x_scale: Scale::Linear,
        y: Axis::new(title, unit),
        lines: plotted.iter().enumerate().map(line).collect(),
    };
    lines.draw().map_err(|error| error.to_string())
}

/// Seconds since the first point, and the average of the seconds that a point stands for.
fn points(rates: &VecDeque<f64>) -> Vec<(f64, f64)> {
    let rates: Vec<f64> = rates.iter().copied().collect();
    let each = rates.len().div_ceil(POINTS).max(1);
    let of = |(place, part): (usize, &[f64])| {
        let sum: f64 = part.iter().sum();
        ((place * each) as f64, sum / part.len() as f64)
    };
    rates.chunks(each).enumerate().map(of).collect()
}

/// Bytes a day now, and as they would be in the modes of onewrite.
fn estimates(report: &Report) -> Option<Section> {
    let mut bars = Vec::new();
    let known = report.databases.iter().filter_map(|database| {
        let estimate = database.estimate.as_ref()?;
        Some((database, estimate, database.figures.bytes_per_day?))
    });
    for (database, estimate, now) in known.take(PLOTTED) {
        let name = shortened(&database.path, PATH);
        for (mode, value, is_base) in [
            (database.journal_mode.as_str(), now, true),
            ("direct, estimated", estimate.direct.bytes_per_day, false),
            (
                "onewrite, estimated",
                estimate.onewrite.bytes_per_day,
                false,
            ),
        ] {
            bars.push(Bar {
                name: format!("{name}: {mode}"),
                value,
                text: bytes(value),
                is_base,
            });
        }
    }
    let intro = "Bytes a day at this rate: now, and an estimate for the modes of onewrite from the pages \
                 that were counted. onewrite compare measures.";
    (!bars.is_empty()).then(|| Section::new("Bytes a day", intro, vec![Part::Bars(bars)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_time_is_averaged_and_time_runs_to_the_right() {
        let short: VecDeque<f64> = [1.0, 2.0, 3.0].into();
        assert_eq!(points(&short), [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0)]);
        let long: VecDeque<f64> = (0..3600).map(|_| 4.0).collect();
        let points = points(&long);
        assert_eq!((points.len(), points[1]), (POINTS, (60.0, 4.0)));
    }

    #[test]
    fn the_page_has_the_programs_the_plots_and_the_document() {
        let report = Report::example();
        let mut history = History::default();
        let rates = history.rates.entry("/var/one.db".to_owned()).or_default();
        rates.commits.extend([1.0, 2.0]);
        rates.bytes.extend([1.0, 2.0]);
        let html = page(&report, &history).unwrap().html();
        for part in [
            "app-one",
            "/var/two.db",
            "commits a second",
            "bytes_per_day",
            "<svg",
        ] {
            assert!(html.contains(part), "{part}");
        }
    }
}
