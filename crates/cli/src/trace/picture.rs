//! `--plot`: the writes by place and time, as in WALDIO's figures 2, 11 and 12, and their bytes
//! over time. With several modes, the volume of each comes first.

use onewrite_iotrace::device::SECTOR_BYTES;
use onewrite_iotrace::io::{Io, Kind, Op};
use onewrite_plot::{
    Addresses, Arrangement, Axis, BarSeries, Bars, Error, Mark, Moved, Picture, Region, Series,
    Shape, Traffic, Unit, colors, grid, stack,
};

use super::Traced;

/// The size of a picture of several, two of them side by side.
const SMALL: (u32, u32) = (520, 330);

/// Draws all traces as one picture.
pub fn draw(traced: &[Traced]) -> Result<Picture, Error> {
    if let [one] = traced {
        let drawn = [addresses(one, Addresses::SIZE)?, traffic(one)?];
        return Ok(stack(&drawn, &title(one)));
    }
    let each: Result<Vec<_>, _> = traced.iter().map(|one| addresses(one, SMALL)).collect();
    let what = traced.first().map_or("", |one| one.what.as_str());
    let title = format!("{what}, by journal mode");
    Ok(stack(&[volume(traced)?, grid(&each?, 2, &title)], &title))
}

fn title(traced: &Traced) -> String {
    match &traced.mode {
        Some(mode) => format!("{mode}: {}", traced.what),
        None => traced.what.clone(),
    }
}

/// The look of a kind, here and in the legend.
fn series() -> Vec<Series> {
    let look = |kind| match kind {
        Kind::FsJournal => (colors::FS_JOURNAL, Shape::Square),
        Kind::FsMetadata => (colors::FS_METADATA, Shape::Diamond),
        Kind::Database => (colors::DATABASE, Shape::Circle),
        Kind::Log => (colors::LOG, Shape::Triangle),
        Kind::RollbackJournal => (colors::ROLLBACK_JOURNAL, Shape::TriangleDown),
        Kind::WalIndex => (colors::WAL_INDEX, Shape::Ring),
        Kind::Other => (colors::OTHER, Shape::Plus),
        Kind::Unknown => (colors::UNKNOWN, Shape::Cross),
    };
    let of = |kind: Kind| {
        let (color, shape) = look(kind);
        Series {
            name: kind.label().to_owned(),
            color,
            shape,
        }
    };
    Kind::ALL.map(of).to_vec()
}

fn index(kind: Kind) -> usize {
    let found = Kind::ALL.iter().position(|other| *other == kind);
    found.unwrap_or(Kind::ALL.len() - 1)
}

/// Seconds from the beginning.
fn at_s(traced: &Traced, io: &Io) -> f64 {
    let at = io.issued_ns.unwrap_or(io.completed_ns);
    at.saturating_sub(traced.from.at_ns) as f64 / 1e9
}

fn writes(traced: &Traced) -> impl Iterator<Item = &Io> {
    let all = traced.recording.between(&traced.from, &traced.to);
    all.filter(|io| io.op == Op::Write)
}

fn seconds(traced: &Traced) -> f64 {
    let elapsed = traced.to.at_ns.saturating_sub(traced.from.at_ns);
    elapsed as f64 / 1e9
}

fn subtitle(traced: &Traced) -> String {
    let summary = traced.summary();
    format!(
        "{}: {:.1} KiB in {}, {}",
        traced.file_system,
        summary.total.write_bytes as f64 / 1024.0,
        counted(summary.total.writes, "write"),
        counted(summary.flushes, "flush"),
    )
}

/// A number of things.
fn counted(count: u64, what: &str) -> String {
    let plural = match what.ends_with('h') {
        true => "es",
        false => "s",
    };
    let plural = if count == 1 { "" } else { plural };
    format!("{count} {what}{plural}")
}

fn addresses(traced: &Traced, size: (u32, u32)) -> Result<Picture, Error> {
    let mut marks = Vec::new();
    for io in writes(traced) {
        let mut address = io.sector * SECTOR_BYTES;
        for piece in &io.pieces {
            let bytes = piece.sectors * SECTOR_BYTES;
            marks.push(Mark {
                at_s: at_s(traced, io),
                address,
                bytes,
                series: index(traced.recording.kind(piece)),
            });
            address += bytes;
        }
    }
    let all = traced.recording.between(&traced.from, &traced.to);
    let flushes = all.filter(|io| io.op == Op::Flush);
    let region = |sectors: &std::ops::Range<u64>| Region {
        name: "file-system journal".to_owned(),
        bytes: sectors.start * SECTOR_BYTES..sectors.end * SECTOR_BYTES,
    };
    let picture = Addresses {
        title: title(traced),
        subtitle: Some(subtitle(traced)),
        size,
        seconds: seconds(traced),
        series: series(),
        regions: traced.recording.journal.iter().map(region).collect(),
        marks,
        flushes: flushes.map(|io| at_s(traced, io)).collect(),
    };
    picture.draw()
}

fn traffic(traced: &Traced) -> Result<Picture, Error> {
    let moved = writes(traced).flat_map(|io| {
        io.pieces.iter().map(move |piece| Moved {
            at_s: at_s(traced, io),
            bytes: piece.sectors * SECTOR_BYTES,
            series: index(traced.recording.kind(piece)),
        })
    });
    let picture = Traffic {
        title: String::new(),
        subtitle: None,
        seconds: seconds(traced),
        series: series(),
        legend: false,
        moved: moved.collect(),
    };
    picture.draw()
}

/// Bytes of each, stacked by purpose.
pub(super) fn volume(traced: &[Traced]) -> Result<Picture, Error> {
    let summaries: Vec<_> = traced.iter().map(Traced::summary).collect();
    let per = |traced: &Traced| traced.per.unwrap_or(1).max(1) as f64;
    let each = series()
        .into_iter()
        .enumerate()
        .filter_map(|(place, series)| {
            let bytes = summaries.iter().zip(traced).map(|(summary, traced)| {
                let moved = summary.by_kind.get(place).map(|(_, moved)| *moved);
                moved.unwrap_or_default().write_bytes as f64 / per(traced)
            });
            let bytes: Vec<f64> = bytes.collect();
            let any = bytes.iter().any(|bytes| *bytes > 0.0);
            any.then(|| BarSeries::new(series.name, series.color, bytes))
        });
    let first = traced.first();
    let picture = Bars {
        title: first.map_or(String::new(), |one| one.what.clone()),
        subtitle: first.map(|one| format!("{}, by journal mode", one.file_system)),
        categories: traced
            .iter()
            .map(|one| one.mode.clone().unwrap_or_else(|| one.what.clone()))
            .collect(),
        axis: Axis::new(
            match first.and_then(|one| one.per) {
                Some(_) => "written to the device, each",
                None => "written to the device",
            },
            Unit::Bytes,
        ),
        arrangement: Arrangement::Stacked,
        series: each.collect(),
    };
    picture.draw()
}
