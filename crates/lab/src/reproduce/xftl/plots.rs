//! Pictures of figures: bars of time by workload and mode, lines by updates and by writes between
//! fsyncs.

use std::path::Path;

use onewrite_plot::{
    Arrangement, Axis, BarSeries, Bars, LineSeries, Lines, Picture, Scale, Series, Shape, Unit,
    colors,
};

use super::restart::{Group, Restarted, groups};
use super::trial::Ran;

/// Marks of lines.
const SHAPES: [Shape; 3] = [Shape::Circle, Shape::Square, Shape::Triangle];

/// A picture of each figure that was run, with the figure's name.
pub fn draw(ran: &[Ran], restarts: &[Restarted]) -> Result<Vec<(&'static str, Picture)>, String> {
    let mut pictures = Vec::new();
    for (figure, title) in super::FIGURES {
        let of: Vec<&Ran> = ran.iter().filter(|one| one.figure == figure).collect();
        let drawn = match figure {
            "restart" if !restarts.is_empty() => restart(restarts).draw(),
            _ if of.is_empty() => continue,
            "updates" | "fio" => lines(&of, title).draw(),
            _ => bars(&of, title).draw(),
        };
        pictures.push((figure, drawn.map_err(|error| error.to_string())?));
    }
    Ok(pictures)
}

/// Saves the pictures as SVG and PNG; returns the files.
pub fn save(ran: &[Ran], restarts: &[Restarted], dir: &Path) -> Result<Vec<String>, String> {
    let mut files = Vec::new();
    for (figure, picture) in draw(ran, restarts)? {
        for ending in ["svg", "png"] {
            let file = dir.join(format!("xftl-{figure}.{ending}"));
            picture.save(&file).map_err(|error| error.to_string())?;
            files.push(file.display().to_string());
        }
    }
    Ok(files)
}

/// Each distinct value once, in the order of the runs.
fn each_once<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut once = Vec::new();
    for one in all {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once
}

fn subtitle() -> Option<String> {
    Some("the device's own time; lower is better".to_owned())
}

/// Names a run's device, if the runs are of devices of several sizes.
fn size_of(ran: &[&Ran]) -> impl Fn(&Ran) -> String + use<> {
    let sizes = each_once(ran.iter().map(|one| one.fullness.host_mib));
    move |one| match sizes.len() {
        1 => String::new(),
        _ => format!(", {} MiB", one.fullness.host_mib),
    }
}

fn bars(ran: &[&Ran], title: &str) -> Bars {
    let size = size_of(ran);
    let category = |one: &Ran| match one.figure {
        "controllers" => format!("{}{}", one.controller.name(), size(one)),
        "space" => format!("{}{}", one.controller.ftl_name(), size(one)),
        "activities" => one.fullness.name(),
        _ => format!("{}{}", one.workload, size(one)),
    };
    let categories = each_once(ran.iter().map(|one| category(one)));
    let modes = each_once(ran.iter().map(|one| one.mode));
    let series = modes.iter().enumerate().map(|(index, mode)| {
        let value = |name: &String| {
            let found = ran
                .iter()
                .find(|one| one.mode == *mode && category(one) == *name);
            found.map(|one| one.ms_per_transaction / 1e3)
        };
        BarSeries {
            name: (*mode).to_owned(),
            color: colors::of(index),
            values: categories.iter().map(value).collect(),
        }
    });
    Bars {
        title: title.to_owned(),
        subtitle: subtitle(),
        series: series.collect(),
        categories,
        axis: Axis::new("time a transaction", Unit::Seconds),
        arrangement: Arrangement::Grouped,
    }
}

/// The last number in a workload's name: pages a transaction, or writes between fsyncs.
fn number(workload: &str) -> f64 {
    let digits = |word: &&str| word.chars().all(|digit| digit.is_ascii_digit());
    let word = workload.split(' ').rfind(digits);
    word.and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

fn lines(ran: &[&Ran], title: &str) -> Lines {
    let is_fio = ran.iter().any(|one| one.figure == "fio");
    let size = size_of(ran);
    let name = |one: &Ran| match one.jobs {
        0 | 1 => format!("{}{}", one.mode, size(one)),
        jobs => format!("{}, {jobs} jobs{}", one.mode, size(one)),
    };
    let modes = each_once(ran.iter().map(|one| name(one)));
    let line = |(index, mode): (usize, &String)| LineSeries {
        series: Series {
            name: mode.clone(),
            color: colors::of(index),
            shape: SHAPES[index % SHAPES.len()],
        },
        points: ran
            .iter()
            .filter(|one| name(one) == *mode)
            .map(|one| (number(&one.workload), one.ms_per_transaction / 1e3))
            .collect(),
    };
    let (x, y) = match is_fio {
        true => ("writes between fsyncs", "time a page"),
        false => ("pages updated in a transaction", "time a transaction"),
    };
    Lines {
        title: title.to_owned(),
        subtitle: subtitle(),
        x: Axis::new(x, Unit::Number),
        x_scale: Scale::Linear,
        y: Axis::new(y, Unit::Seconds),
        lines: modes.iter().enumerate().map(line).collect(),
    }
}

fn restart(restarts: &[Restarted]) -> Bars {
    let groups = groups(restarts);
    let several = groups
        .iter()
        .any(|group| !group.is_on_device_of(&groups[0]));
    let medians: Vec<&Restarted> = groups.iter().filter_map(Group::median).collect();
    let name = |one: &&Restarted| match several {
        true => format!(
            "{}, {} MiB, {}",
            one.mode,
            one.fullness.host_mib,
            one.controller.ftl_name()
        ),
        false => one.mode.to_owned(),
    };
    let part = |name: &str, index, value: fn(&Restarted) -> Option<f64>| BarSeries {
        name: name.to_owned(),
        color: colors::of(index),
        values: medians
            .iter()
            .map(|one| value(one).map(|ms| ms / 1e3))
            .collect(),
    };
    Bars {
        title: "Restart after a power cut".to_owned(),
        subtitle: Some("the device's own time, next to the paper's restart times".to_owned()),
        categories: medians.iter().map(name).collect(),
        axis: Axis::new("time", Unit::Seconds),
        arrangement: Arrangement::Grouped,
        series: vec![
            part("FTL, from flash", 0, |one| Some(one.ftl_ms)),
            part("mount", 1, |one| Some(one.mount_ms)),
            part("SQLite, to its first row", 2, |one| Some(one.sqlite_ms)),
            part("the paper's, of SQLite", 3, |one| one.paper_ms),
        ],
    }
}
