//! When a cell is red: the rule, on the ratios of a mode to stock WAL.
//!
//! A ratio with an interval is red if the whole interval is beyond the limit, clear if none of it
//! is, and undecided otherwise. Bytes are counts, and have no interval.

use onewrite_cli::compare::paired::Interval;
use onewrite_cli::compare::ratios::{Compared, Ratios};
use serde::{Deserialize, Serialize};

/// The least ratio of rates.
const RATE: f64 = 0.97;
/// The largest ratio of processor time.
const CPU: f64 = 1.15;
/// The largest ratio of p99 under the same load.
const P99: f64 = 1.0;
/// The largest ratio of bytes: 1.00 when rounded. ext4 journals time stamps every five seconds, so
/// equal modes differ by less than that.
const BYTES: f64 = 1.005;

/// The state of a cell for a mode; later ones weigh more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Not worse than stock.
    Clear,
    /// The rounds do not say.
    Undecided,
    /// Worse than stock.
    Red,
}

/// A ratio and what the rule says of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// `rate`, `cpu`, `bytes` or `p99`.
    pub name: String,
    /// The limit of the ratio.
    pub limit: f64,
    /// The ratio.
    pub ratio: f64,
    /// The least ratio of the interval; null for a count, and for too few rounds.
    pub low: Option<f64>,
    /// The largest ratio of the interval.
    pub high: Option<f64>,
    /// The verdict of the rule.
    pub state: State,
}

/// One mode of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// The mode as it was given.
    pub mode: String,
    /// The worst of its figures.
    pub state: State,
    /// Its figures.
    pub figures: Vec<Figure>,
    /// Why it could not be run, or what was wrong with its database. Then it is red.
    pub problem: Option<String>,
}

impl Judged {
    /// From the ratios without an offered rate, and those with one.
    pub fn of(mode: &str, free: Option<&Compared>, paced: Option<&Compared>) -> Self {
        let figures = [
            free.map(|ratios| at_least("rate", ratios.rate, RATE)),
            free.and_then(|ratios| ratios.write_bytes.map(bytes)),
            free.and_then(|ratios| ratios.cpu.map(|cpu| at_most("cpu", cpu, CPU))),
            paced.and_then(|ratios| ratios.p99.map(|p99| at_most("p99", p99, P99))),
        ];
        let figures: Vec<Figure> = figures.into_iter().flatten().collect();
        let worst = figures.iter().map(|figure| figure.state).max();
        Self {
            mode: mode.to_owned(),
            state: worst.unwrap_or(State::Undecided),
            figures,
            problem: None,
        }
    }

    /// A mode that could not be run, or whose database was not as it must be.
    pub fn failed(mode: &str, problem: String) -> Self {
        Self {
            mode: mode.to_owned(),
            state: State::Red,
            figures: Vec::new(),
            problem: Some(problem),
        }
    }

    /// The figures that are red, as letters: rate, bytes, cpu, p99. `?` is undecided.
    pub fn word(&self) -> String {
        let red = self
            .figures
            .iter()
            .filter(|figure| figure.state == State::Red);
        let letters: String = red
            .filter_map(|figure| figure.name.chars().next())
            .collect();
        match self.state {
            _ if self.problem.is_some() => "fail".to_owned(),
            State::Red => letters,
            State::Undecided => "?".to_owned(),
            State::Clear => "ok".to_owned(),
        }
    }
}

/// Whether more rounds without an offered rate would say more.
pub fn is_free_open(ratios: &Ratios) -> bool {
    let is_open = |mode: &Compared| Judged::of("", Some(mode), None).is_open();
    ratios.modes.iter().any(is_open)
}

/// Whether more rounds with an offered rate would say more.
pub fn is_paced_open(ratios: &Ratios) -> bool {
    let is_open = |mode: &Compared| Judged::of("", None, Some(mode)).is_open();
    ratios.modes.iter().any(is_open)
}

impl Judged {
    /// Whether one of its figures is undecided.
    fn is_open(&self) -> bool {
        let mut figures = self.figures.iter();
        figures.any(|figure| figure.state == State::Undecided)
    }
}

fn at_least(name: &str, interval: Interval, limit: f64) -> Figure {
    let state = match interval.bounds() {
        Some((_, high)) if high < limit => State::Red,
        Some((low, _)) if low >= limit => State::Clear,
        _ => State::Undecided,
    };
    figure(name, interval, limit, state)
}

fn at_most(name: &str, interval: Interval, limit: f64) -> Figure {
    let state = match interval.bounds() {
        Some((low, _)) if low > limit => State::Red,
        Some((_, high)) if high <= limit => State::Clear,
        _ => State::Undecided,
    };
    figure(name, interval, limit, state)
}

fn bytes(ratio: f64) -> Figure {
    let interval = Interval {
        ratio,
        low: None,
        high: None,
    };
    let state = if ratio > BYTES {
        State::Red
    } else {
        State::Clear
    };
    figure("bytes", interval, BYTES, state)
}

fn figure(name: &str, interval: Interval, limit: f64, state: State) -> Figure {
    Figure {
        name: name.to_owned(),
        limit,
        ratio: interval.ratio,
        low: interval.low,
        high: interval.high,
        state,
    }
}

#[cfg(test)]
mod tests {
    use onewrite_cli::compare::ratios::Verdict;

    use super::*;

    fn interval(low: f64, high: f64) -> Interval {
        Interval {
            ratio: (low + high) / 2.0,
            low: Some(low),
            high: Some(high),
        }
    }

    fn compared(rate: Interval, cpu: Interval, p99: Interval, bytes: f64) -> Compared {
        Compared {
            mode: "onewrite".to_owned(),
            rounds: 7,
            rate,
            cpu: Some(cpu),
            p99: Some(p99),
            write_bytes: Some(bytes),
            verdict: Verdict::Same,
        }
    }

    fn word(rate: Interval, cpu: Interval, p99: Interval, bytes: f64) -> String {
        let ratios = compared(rate, cpu, p99, bytes);
        Judged::of("onewrite", Some(&ratios), Some(&ratios)).word()
    }

    #[test]
    fn a_cell_is_red_when_a_whole_interval_is_beyond_its_limit() {
        let (well, even, ill) = (interval(0.97, 1.0), interval(0.9, 1.2), interval(1.16, 1.3));
        assert_eq!(word(well, well, well, 1.0), "ok");
        assert_eq!(word(interval(0.8, 0.96), well, well, 1.0), "r");
        assert_eq!(word(well, ill, well, 1.0), "c");
        assert_eq!(word(well, well, interval(1.01, 1.02), 1.0), "p");
        assert_eq!(word(well, well, well, 1.01), "b");
        assert_eq!(word(interval(0.1, 0.2), ill, ill, 2.0), "rbcp");
        assert_eq!(word(even, well, well, 1.0), "?");
        assert_eq!(word(well, even, well, 1.0), "?");
        assert_eq!(word(well, well, even, 1.0), "?");
        // A planted slow mode is red although something else is undecided.
        assert_eq!(word(interval(0.1, 0.2), even, even, 1.0), "r");
    }

    #[test]
    fn too_few_rounds_decide_nothing_and_a_failure_is_red() {
        let few = Interval {
            ratio: 0.1,
            low: None,
            high: None,
        };
        assert_eq!(word(few, few, few, 0.5), "?");
        assert_eq!(Judged::of("onewrite", None, None).word(), "?");
        let failed = Judged::failed("onewrite", "it broke".to_owned());
        assert_eq!(
            (failed.state, failed.word()),
            (State::Red, "fail".to_owned())
        );
    }
}
