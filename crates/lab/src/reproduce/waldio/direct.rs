//! Plain direct writes: figure 6.

use onewrite_workload::files::Way;

use super::data;
use crate::reproduce::experiment::Experiment;
use crate::reproduce::outcome::{Checked, Kind, Reason, Row, Shown, Side, Stated, explain};

/// Writes of each size.
const WRITES: u32 = 2_000;

/// Repetitions of each size.
const REPEATS: u32 = 3;

const RATE: &str = "direct writes";

/// Figure 6: MB a second by the size of a write.
pub fn figure_6(experiment: &mut Experiment<'_>) -> Result<Shown, String> {
    let count = experiment.choice().count.unwrap_or(WRITES).clamp(1, WRITES);
    let repeats = experiment.choice().repeats.unwrap_or(REPEATS);
    let mut rates = Vec::new();
    for (bytes, stated) in data::DIRECT_WRITES {
        let run = experiment.records(Way::ODirect, bytes, count, repeats)?;
        rates.push((bytes, stated, run.ops_per_s * bytes as f64 / 1e6));
    }
    let largest = rates.last().map(|(_, stated, rate)| (*stated, *rate));
    let rows: Vec<Row> = rates
        .iter()
        .map(|(bytes, stated, rate)| {
            let row = Row::new(name(*bytes), RATE, "MB/s", Kind::Timed).ran("O_DIRECT");
            let row = row.paper(*stated).ours(Some(*rate));
            match largest {
                Some((most, most_here)) if *bytes < LARGEST => {
                    let paper = stated.zip(most).map(|(of, to)| Stated {
                        amount: of.amount / to.amount,
                        ..of
                    });
                    row.ratio("16 KiB", paper, Some(rate / most_here)).judged()
                }
                _ => row.judged(),
            }
        })
        .collect();
    let differences = explain(&rows, REASONS, experiment)?;
    Ok(Shown {
        figure: "figure-6",
        title: "direct writes by their size",
        how: format!(
            "{count} writes, one after the other, into blocks that are there already; none waits for more than \
             the device's cache; median of {repeats}"
        ),
        rows,
        differences,
        sequences: Vec::new(),
        notes: Vec::new(),
    })
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

const SMALL_WRITES: Reason = Reason {
    of: |row| row.name == "512 B",
    side: Side::Below,
    sentence: "A write of 512 bytes takes longer here than one of whole blocks, where on the paper's device both \
               take about as long.",
    check: small_takes_longer,
};

const REASONS: &[Reason] = &[
    SMALL_WRITES,
    Reason {
        side: Side::Above,
        sentence: "A write of 16 KiB takes longer here than one of 512 bytes, where on the paper's device both take \
                   about as long, so that small ones lose less.",
        check: cost_of_a_larger_write,
        ..SMALL_WRITES
    },
];

/// Microseconds of a small write and of a large one.
fn costs(experiment: &mut Experiment<'_>) -> Result<(f64, f64), String> {
    let count = experiment.choice().count.unwrap_or(WRITES).clamp(1, WRITES);
    let mut us = |bytes| -> Result<f64, String> {
        let run = experiment.records(Way::ODirect, bytes, count, REPEATS)?;
        Ok(1e6 / run.ops_per_s)
    };
    Ok((us(512)?, us(LARGEST)?))
}

/// The same from the paper's rates.
fn paper_costs() -> (f64, f64) {
    let us = |at: usize| {
        let (bytes, stated) = data::DIRECT_WRITES.get(at).copied().unwrap_or((0, None));
        bytes as f64 / stated.map_or(1.0, |stated| stated.amount)
    };
    (us(0), us(data::DIRECT_WRITES.len() - 1))
}

fn told((small, large): (f64, f64)) -> String {
    format!("a write of 512 bytes takes {small:.0} us and one of 16 KiB {large:.0} us")
}

fn small_takes_longer(experiment: &mut Experiment<'_>, _: &Row) -> Result<Checked, String> {
    let (here, paper) = (costs(experiment)?, paper_costs());
    Ok(Checked::new(
        here.0 / here.1 > paper.0 / paper.1 * 1.2,
        format!("{} here; {} by the paper's rates", told(here), told(paper)),
    ))
}

fn cost_of_a_larger_write(experiment: &mut Experiment<'_>, _: &Row) -> Result<Checked, String> {
    let (here, paper) = (costs(experiment)?, paper_costs());
    Ok(Checked::new(
        here.1 / here.0 > paper.1 / paper.0,
        format!("{} here; {} by the paper's rates", told(here), told(paper)),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paper_s_rates_are_costs_of_a_write() {
        // 512 B at 2 MB/s, 16 KiB at 70 MB/s.
        let (small, large) = paper_costs();
        assert!((small - 256.0).abs() < 0.1 && (large - 234.06).abs() < 0.1);
    }
}
