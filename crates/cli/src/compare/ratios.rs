//! The ratios of a comparison: each mode to the one that others are compared with, over the rounds
//! in which both ran.
//!
//! `rounds` makes them at each look, with [`super::paired`]'s intervals. The table, the page, the
//! document and `onewrite-lab matrix` show them.

use serde::Serialize;

use super::paired::{CONFIDENCE, Interval};
use super::report::Run;
use super::table::{base, medians};

/// A difference of rates that matters: 3 %.
pub const MARGIN: f64 = 0.03;

/// One mode in one round.
#[derive(Clone, Copy, Debug)]
struct Sample<'a> {
    mode: &'a str,
    round: u32,
    per_s: f64,
    cpu_s: f64,
    p99_us: f64,
    write_bytes: Option<u64>,
}

/// Ratios to one mode.
#[derive(Clone, Debug, Serialize)]
pub struct Ratios {
    /// The mode that others are compared with.
    pub base: String,
    /// How often the intervals hold the true ratio.
    pub confidence: f64,
    /// A difference that matters: 0.03 is 3 %.
    pub margin: f64,
    /// Each other mode.
    pub modes: Vec<Compared>,
    /// The warning about rates that are not decided; null if all are.
    pub warning: Option<String>,
}

/// One mode's ratios.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// The mode as it was given.
    pub mode: String,
    /// Rounds in which both modes ran.
    pub rounds: usize,
    /// Transactions a second.
    pub rate: Interval,
    /// Processor time.
    pub cpu: Option<Interval>,
    /// Latency of the 99th of a hundred transactions.
    pub p99: Option<Interval>,
    /// Bytes written, of all these rounds together: counts are exact. Null without a device of our
    /// own.
    pub write_bytes: Option<f64>,
    /// The verdict on the rate.
    pub verdict: Verdict,
}

/// The verdict of the rounds on a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// More than that of the other.
    Faster,
    /// Less.
    Slower,
    /// At most the margin away.
    Same,
    /// Faster or the same within the margin.
    NotSlower,
    /// Slower or the same within the margin.
    NotFaster,
    /// It may be faster or slower by more than the margin: the machine is too noisy.
    TooNoisy,
    /// Too few rounds for an interval.
    TooFewRounds,
}

impl Verdict {
    fn of(rate: &Interval) -> Self {
        let Some((low, high)) = rate.bounds() else {
            return Self::TooFewRounds;
        };
        let (least, most) = (1.0 - MARGIN, 1.0 + MARGIN);
        match (low, high) {
            _ if low < least && high > most => Self::TooNoisy,
            _ if low >= least && high <= most => Self::Same,
            _ if low > 1.0 => Self::Faster,
            _ if high < 1.0 => Self::Slower,
            _ if low >= least => Self::NotSlower,
            _ => Self::NotFaster,
        }
    }

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Same => "the same",
            Self::NotSlower => "not slower",
            Self::NotFaster => "not faster",
            Self::TooNoisy => "too noisy to say",
            Self::TooFewRounds => "too few rounds",
        }
    }

    /// Whether more rounds would say more.
    pub fn is_open(self) -> bool {
        matches!(self, Self::TooNoisy | Self::TooFewRounds)
    }
}

impl Ratios {
    /// From the runs so far; each interval misses the true ratio with at most the probability
    /// `error`. `None` without a mode to compare with, or without another.
    pub fn of(runs: &[Run], error: f64) -> Option<Self> {
        let base = base(&medians(runs))?.mode.clone();
        let samples: Vec<Sample<'_>> = runs.iter().map(Sample::of).collect();
        Self::of_samples(&samples, &base, error)
    }

    fn of_samples(samples: &[Sample<'_>], base: &str, error: f64) -> Option<Self> {
        let mut names: Vec<&str> = Vec::new();
        for sample in samples {
            if sample.mode != base && !names.contains(&sample.mode) {
                names.push(sample.mode);
            }
        }
        let compared = names
            .iter()
            .filter_map(|mode| Compared::of(samples, base, mode, error));
        let modes: Vec<Compared> = compared.collect();
        (!modes.is_empty()).then(|| Self {
            base: base.to_owned(),
            confidence: CONFIDENCE,
            margin: MARGIN,
            warning: warning(&modes, base),
            modes,
        })
    }

    /// The ratios of a mode.
    pub fn find(&self, mode: &str) -> Option<&Compared> {
        self.modes.iter().find(|compared| compared.mode == mode)
    }

    /// Whether more rounds would say more of a rate.
    pub fn is_open(&self) -> bool {
        self.modes.iter().any(|mode| mode.verdict.is_open())
    }

    /// Whether the machine is too noisy to decide some rate.
    pub fn is_too_noisy(&self) -> bool {
        let is_noisy = |mode: &Compared| mode.verdict == Verdict::TooNoisy;
        self.modes.iter().any(is_noisy)
    }
}

/// One line about the rates that are not decided.
fn warning(modes: &[Compared], base: &str) -> Option<String> {
    let of = |verdict: Verdict| -> Option<String> {
        let modes = modes.iter().filter(|mode| mode.verdict == verdict);
        let names: Vec<&str> = modes.map(|mode| mode.mode.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    if let Some(noisy) = of(Verdict::TooNoisy) {
        let rounds = modes.iter().map(|mode| mode.rounds).max().unwrap_or(0);
        return Some(format!(
            "this machine is too noisy to say whether {noisy} is faster or slower than {base} by {:.0} %: \
             use a quiet machine, or --repeat {}",
            MARGIN * 100.0,
            4 * rounds
        ));
    }
    let few = of(Verdict::TooFewRounds)?;
    Some(format!(
        "too few rounds to say whether {few} is faster or slower than {base}: give --repeat 7 or more"
    ))
}

impl Compared {
    fn of(samples: &[Sample<'_>], base: &str, mode: &str, error: f64) -> Option<Self> {
        let pairs = pairs(samples, base, mode);
        let interval = |of: fn(&Sample<'_>) -> f64| {
            let logarithms: Vec<f64> = pairs
                .iter()
                .map(|(base, mode)| (of(mode) / of(base)).ln())
                .collect();
            Interval::of(&logarithms, error)
        };
        let rate = interval(|sample| sample.per_s)?;
        let bytes = |sample: &Sample<'_>| sample.write_bytes;
        let of_base: Option<u64> = pairs.iter().map(|(base, _)| bytes(base)).sum();
        let of_mode: Option<u64> = pairs.iter().map(|(_, mode)| bytes(mode)).sum();
        Some(Self {
            mode: mode.to_owned(),
            rounds: pairs.len(),
            verdict: Verdict::of(&rate),
            rate,
            cpu: interval(|sample| sample.cpu_s),
            p99: interval(|sample| sample.p99_us),
            write_bytes: of_mode
                .zip(of_base)
                .map(|(mode, base)| mode as f64 / base.max(1) as f64),
        })
    }
}

impl<'a> Sample<'a> {
    fn of(run: &'a Run) -> Self {
        Self {
            mode: &run.mode,
            round: run.repeat,
            per_s: run.ops_per_s,
            cpu_s: run.cpu_s,
            p99_us: run.latency_us.p99 as f64,
            write_bytes: run.device.map(|device| device.write_bytes),
        }
    }
}

/// The runs of two modes, by round; a round in which one of them failed is left out.
fn pairs<'a>(
    samples: &'a [Sample<'a>],
    base: &str,
    mode: &str,
) -> Vec<(&'a Sample<'a>, &'a Sample<'a>)> {
    let of = |mode: &str, round: u32| {
        samples
            .iter()
            .find(|sample| sample.mode == mode && sample.round == round)
    };
    let mut rounds: Vec<u32> = samples.iter().map(|sample| sample.round).collect();
    rounds.sort_unstable();
    rounds.dedup();
    let pair = |round: &u32| of(base, *round).zip(of(mode, *round));
    rounds.iter().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use onewrite_torture::random::Random;

    use super::*;

    fn sample(mode: &str, round: u32, per_s: f64) -> Sample<'_> {
        Sample {
            mode,
            round,
            per_s,
            cpu_s: 1.0,
            p99_us: 1e6 / per_s,
            write_bytes: Some(4096),
        }
    }

    /// Rounds of a machine whose speed changes up to eightfold from one to the next; the mode is
    /// always 1.1 times as fast. In some rounds one of the two failed. Modes take turns in going
    /// first.
    fn rounds(count: u32) -> Vec<Sample<'static>> {
        let mut random = Random::new(9);
        let mut samples = Vec::new();
        for round in 1..=count {
            let speed = 100.0 * 2_f64.powf(random.below(3001) as f64 / 1000.0);
            let mut pair = [
                sample("wal", round, speed),
                sample("onewrite", round, 1.1 * speed),
            ];
            if round.is_multiple_of(2) {
                pair.reverse();
            }
            let failed = match round % 5 {
                0 => Some("wal"),
                3 => Some("onewrite"),
                _ => None,
            };
            samples.extend(pair.into_iter().filter(|one| Some(one.mode) != failed));
        }
        samples
    }

    /// Runs paired by their place among the mode's runs, or against one median, spread eightfold.
    #[test]
    fn a_ratio_is_exact_however_the_machine_changes_between_rounds() {
        let ratios = Ratios::of_samples(&rounds(20), "wal", 0.05).expect("ratios");
        let onewrite = ratios.find("onewrite").expect("the mode");
        let (low, high) = onewrite.rate.bounds().expect("bounds");
        assert!(low > 1.0999 && high < 1.1001, "{low} to {high}");
        assert_eq!(onewrite.rounds, 12);
        assert_eq!(onewrite.verdict, Verdict::Faster);
        assert_eq!(onewrite.write_bytes, Some(1.0));
        assert_eq!(ratios.warning, None);
    }

    #[test]
    fn a_noisy_machine_is_said_to_be_one() {
        let mut random = Random::new(4);
        let mut samples = Vec::new();
        for round in 1..=12 {
            for mode in ["wal", "onewrite"] {
                samples.push(sample(mode, round, 100.0 + random.below(900) as f64));
            }
        }
        let ratios = Ratios::of_samples(&samples, "wal", 0.05).expect("ratios");
        assert_eq!(ratios.modes[0].verdict, Verdict::TooNoisy);
        let warning = ratios.warning.as_deref().expect("a warning");
        assert!(
            warning.contains("too noisy to say whether onewrite is faster"),
            "{warning}"
        );
        assert!(ratios.is_open() && ratios.is_too_noisy());
    }

    #[test]
    fn an_interval_has_one_verdict() {
        let verdict = |low: f64, high: f64| {
            Verdict::of(&Interval {
                ratio: 1.0,
                low: Some(low),
                high: Some(high),
            })
        };
        assert_eq!(verdict(0.5, 1.5), Verdict::TooNoisy);
        assert_eq!(verdict(0.98, 1.02), Verdict::Same);
        assert_eq!(verdict(1.01, 1.3), Verdict::Faster);
        assert_eq!(verdict(0.6, 0.99), Verdict::Slower);
        assert_eq!(verdict(0.98, 1.2), Verdict::NotSlower);
        assert_eq!(verdict(0.8, 1.02), Verdict::NotFaster);
        let few = Ratios::of_samples(&rounds(4), "wal", 0.05).expect("ratios");
        assert_eq!(few.modes[0].verdict, Verdict::TooFewRounds);
        assert!(few.warning.expect("a warning").contains("--repeat 7"));
    }

    #[test]
    fn one_mode_alone_has_no_ratio() {
        assert!(Ratios::of_samples(&[sample("wal", 1, 5.0)], "wal", 0.05).is_none());
        assert!(Ratios::of_samples(&[], "wal", 0.05).is_none());
    }
}
