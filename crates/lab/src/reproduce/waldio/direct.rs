//! Plain direct writes: figure 6.

use onewrite_cli::compare::paired::CONFIDENCE;
use onewrite_workload::files::Way;

use super::data;
use crate::reproduce::experiment::Experiment;
use crate::reproduce::outcome::{Kind, Predicted, Reason, Row, Shown, Side, Stated, explain};
use crate::reproduce::rounds::Paired;

/// Writes of each size.
const WRITES: u32 = 2_000;

const RATE: &str = "direct writes";

/// Figure 6: MB a second by the size of a write.
pub fn figure_6(experiment: &mut Experiment<'_>) -> Result<Shown, String> {
    let count = experiment.choice().count.unwrap_or(WRITES).clamp(1, WRITES);
    let repeats = experiment.choice().rounds();
    // A round has each size once.
    let mut rounds = Vec::new();
    for _ in 0..repeats {
        let mut rates = Vec::new();
        for (bytes, _) in data::DIRECT_WRITES {
            let run = experiment.records(Way::ODirect, bytes, count, 1)?;
            rates.push(run.ops_per_s * bytes as f64 / 1e6);
        }
        rounds.push(rates);
    }
    let rows = rows_of(&rounds);
    let differences = explain(&rows, REASONS, experiment)?;
    Ok(Shown {
        figure: "figure-6",
        title: "direct writes by their size",
        how: format!(
            "{count} writes, one after the other, into blocks that are there already; none waits for more than \
             the device's cache; {repeats} rounds, each with every size"
        ),
        rows,
        differences,
        sequences: Vec::new(),
        notes: Vec::new(),
    })
}

/// A row for each size, from the rates of all sizes in each round.
fn rows_of(rounds: &[Vec<f64>]) -> Vec<Row> {
    let largest = data::DIRECT_WRITES.last().and_then(|(_, stated)| *stated);
    let row = |(at, (bytes, stated)): (usize, (usize, Option<Stated>))| {
        let rate = |round: &Vec<f64>| round.get(at).copied().unwrap_or(f64::NAN);
        let mut rates: Vec<f64> = rounds.iter().map(rate).collect();
        rates.sort_by(f64::total_cmp);
        let row = Row::new(name(bytes), RATE, "MB/s", Kind::Timed).ran("O_DIRECT");
        let row = row.paper(stated).ours(onewrite_common::median(&rates));
        if bytes >= LARGEST {
            return row.judged();
        }
        let paper = stated.zip(largest).map(|(of, to)| Stated {
            amount: of.amount / to.amount,
            ..of
        });
        let to_largest = |round: &Vec<f64>| rate(round) / round.last().copied().unwrap_or(f64::NAN);
        let paired = Paired {
            ratios: rounds.iter().map(to_largest).collect(),
            error: 1.0 - CONFIDENCE,
            trials: Vec::new(),
        };
        row.rounds("16 KiB", paper, &paired).judged()
    };
    data::DIRECT_WRITES
        .into_iter()
        .enumerate()
        .map(row)
        .collect()
}

const LARGEST: usize = 16384;

fn name(bytes: usize) -> &'static str {
    match bytes {
        512 => "512 B",
        1024 => "1 KiB",
        2048 => "2 KiB",
        4096 => "4 KiB",
        8192 => "8 KiB",
        _ => "16 KiB",
    }
}

/// Sizes between the smallest and the largest write.
const BETWEEN: [usize; 4] = [1024, 2048, 4096, 8192];

const LINE: &str = "the fixed time, and the time a byte, of writes of 1 to 8 KiB";

const SMALL_WRITES: Reason = Reason {
    of: |row| row.name == "512 B",
    side: Side::Below,
    sentence: "A write here takes a fixed time and a time for each byte, and a small one takes no less than that; on the \
               paper's device one of 512 bytes and one of 16 KiB take about as long.",
    count: LINE,
    predict: by_sizes_between,
};

const REASONS: &[Reason] = &[
    SMALL_WRITES,
    Reason {
        side: Side::Above,
        sentence: "A write of 16 KiB takes longer here than one of 512 bytes, by the time for each byte; on the paper's \
                   device both take about as long, so that small ones lose less.",
        ..SMALL_WRITES
    },
];

/// The line through points, by least squares: its value at 0, and its slope.
fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let n = points.len().max(1) as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(|(x, _)| *x), mean(|(_, y)| *y));
    let both = points
        .iter()
        .map(|(px, py)| (px - x) * (py - y))
        .sum::<f64>();
    let squares = points
        .iter()
        .map(|(px, _)| (px - x) * (px - x))
        .sum::<f64>();
    let slope = both / squares.max(1e-12);
    (y - slope * x, slope)
}

/// The rate of a small write to that of a large one, from the times of the sizes between them.
fn by_sizes_between(experiment: &mut Experiment<'_>, row: &Row) -> Result<Predicted, String> {
    let count = experiment.choice().count.unwrap_or(WRITES).clamp(1, WRITES);
    let mut points = Vec::new();
    for bytes in BETWEEN {
        let run = experiment.records(Way::ODirect, bytes, count, super::REPEATS)?;
        points.push((bytes as f64, 1e6 / run.ops_per_s));
    }
    let (fixed, a_byte) = line(&points);
    let us = |bytes: usize| fixed + a_byte * bytes as f64;
    let (small, large) = paper_costs();
    Ok(Predicted::new(
        on_the_line(row, &points),
        format!(
            "{fixed:.0} us a write and {:.1} us a KiB, by which one of 512 bytes takes {:.0} us and one of 16 KiB {:.0}; {small:.0} \
             and {large:.0} us by the paper's rates",
            a_byte * 1024.0,
            us(512),
            us(LARGEST)
        ),
    ))
}

/// The row's figure if writes take the times of the line through these points of bytes and us.
fn on_the_line(row: &Row, points: &[(f64, f64)]) -> f64 {
    let (fixed, a_byte) = line(points);
    let rate = |bytes: usize| bytes as f64 / (fixed + a_byte * bytes as f64);
    match row.ratio {
        Some(_) => rate(512) / rate(LARGEST),
        None => rate(512),
    }
}

/// Microseconds of a write of 512 bytes and of 16 KiB from the paper's rates.
fn paper_costs() -> (f64, f64) {
    let us = |at: usize| {
        let (bytes, stated) = data::DIRECT_WRITES.get(at).copied().unwrap_or((0, None));
        bytes as f64 / stated.map_or(1.0, |stated| stated.amount)
    };
    (us(0), us(data::DIRECT_WRITES.len() - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::outcome::tests::can_fail;

    /// A write of 512 bytes has 0.064 of the rate of one of 16 KiB, and 0.029 in the paper.
    #[test]
    fn the_times_of_sizes_between_can_speak_against_their_reasons() {
        let row = |ours: f64| rows_of(&vec![vec![ours, 1.0, 1.0, 1.0, 1.0, 1.0]; 7]).remove(0);
        let predicted = |row: &Row, fixed: f64, a_byte: f64| {
            let points = BETWEEN.map(|bytes| (bytes as f64, fixed + a_byte * bytes as f64));
            on_the_line(row, &points)
        };
        let above = row(0.064);
        // 50 us a write and 55 for 16 KiB. Planted: bytes take no time, and nothing else does.
        let wrong = [predicted(&above, 50.0, 0.0), predicted(&above, 0.0, 55.0)];
        let right = predicted(&above, 50.0, 55.0 / LARGEST as f64);
        can_fail(&above, REASONS, LINE, right, &wrong);
        // Larger writes that take less time, and planted: more.
        let below = row(0.014);
        let of = |more: f64| predicted(&below, 50.0, more / LARGEST as f64);
        can_fail(&below, REASONS, LINE, of(-27.0), &[of(0.0), of(27.0)]);
    }

    #[test]
    fn the_paper_s_rates_are_costs_of_a_write() {
        // 512 B at 2 MB/s, 16 KiB at 70 MB/s.
        let (small, large) = paper_costs();
        assert!((small - 256.0).abs() < 0.1 && (large - 234.06).abs() < 0.1);
    }

    #[test]
    fn a_line_goes_through_its_points() {
        let points = [1.0, 2.0, 4.0].map(|x| (x, 3.0 + 0.5 * x));
        let (fixed, slope) = line(&points);
        assert!((fixed - 3.0).abs() < 1e-9 && (slope - 0.5).abs() < 1e-9);
    }
}
