//! Draws the README's picture: commits a second and device bytes a commit against the number of
//! writers.
//!
//! Reads documents of `onewrite compare --json`, one for each number of threads, and writes an SVG or
//! a PNG. Of several repetitions it takes the one with the median rate, as the table of `compare`
//! does. Caller: `scripts/picture`.
//!
//! ```text
//! writers SUBTITLE PICTURE DOCUMENT...
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::{env, fs};

use onewrite_plot::{Axis, LineSeries, Lines, Scale, Series, Shape, Unit, colors, grid};
use serde_json::Value;

/// One repetition: commits a second, and device bytes a commit.
type Run = (f64, f64);

/// The repetitions of each mode and number of writers.
type Runs = BTreeMap<(String, u64), Vec<Run>>;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [subtitle, picture, documents @ ..] = arguments.as_slice() else {
        return Err("use: writers SUBTITLE PICTURE DOCUMENT...".into());
    };
    let mut runs = Runs::new();
    for document in documents {
        read(
            &serde_json::from_str(&fs::read_to_string(document)?)?,
            &mut runs,
        )
        .ok_or_else(|| format!("{document}: a figure is missing"))?;
    }
    let rates = lines(
        "commits a second",
        subtitle,
        Unit::Number,
        |run| run.0,
        &runs,
    );
    let bytes = lines(
        "device bytes a commit",
        subtitle,
        Unit::Bytes,
        |run| run.1,
        &runs,
    );
    grid(
        &[rates.draw()?, bytes.draw()?],
        2,
        "commits and bytes against writers",
    )
    .save(Path::new(picture))?;
    Ok(())
}

/// Takes the runs of a document; nothing if it lacks a figure, or if a run or a check failed.
fn read(document: &Value, into: &mut Runs) -> Option<()> {
    if !document["failed"].as_array()?.is_empty() {
        return None;
    }
    for run in document["runs"].as_array()? {
        let checked = &run["checked"];
        if checked["content"] != "ok" || checked["stock_after_close"] != "ok" {
            return None;
        }
        let key = (run["mode"].as_str()?.to_owned(), run["threads"].as_u64()?);
        let figures = (
            run["ops_per_s"].as_f64()?,
            run["per_op"]["write_bytes"].as_f64()?,
        );
        into.entry(key).or_default().push(figures);
    }
    Some(())
}

/// The run with the median rate.
fn median(runs: &[Run]) -> Run {
    let mut sorted = runs.to_vec();
    sorted.sort_by(|one, other| one.0.total_cmp(&other.0));
    sorted
        .get((sorted.len() - 1) / 2)
        .copied()
        .unwrap_or_default()
}

fn lines(title: &str, subtitle: &str, unit: Unit, of: fn(Run) -> f64, runs: &Runs) -> Lines {
    let mut points: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for ((mode, writers), runs) in runs {
        let point = (*writers as f64, of(median(runs)));
        points.entry(mode).or_default().push(point);
    }
    let line = |(mode, points): (&str, Vec<(f64, f64)>)| {
        let (name, color, shape) = series_of(mode);
        let name = name.to_owned();
        LineSeries {
            series: Series { name, color, shape },
            points,
        }
    };
    Lines {
        title: title.to_owned(),
        subtitle: Some(subtitle.to_owned()),
        x: Axis::new("writers", Unit::Number),
        x_scale: Scale::Logarithmic,
        y: Axis::new(title, unit),
        lines: points.into_iter().map(line).collect(),
    }
}

/// Stock is grey, as in the reports.
fn series_of(mode: &str) -> (&str, colors::Color, Shape) {
    match mode {
        "wal" => ("wal (stock SQLite)", colors::OTHER, Shape::Square),
        "onewrite" => ("onewrite", colors::DATABASE, Shape::Circle),
        _ => (mode, colors::LOG, Shape::Diamond),
    }
}
