//! The result of a figure: rows with the paper's value next to ours, and the reason for each
//! difference.
//!
//! If the paper has a baseline, a row is judged by its ratio to it. The papers measured on phones,
//! not on this machine, so rates are not compared, but the gain of a mode is. Bytes are compared
//! directly. [`judge`] has the rules.
//!
//! A [`Reason`] explains a row that differs. It names a count, and from that count it predicts the
//! row's figure. The prediction is compared with the figure: a reason holds if it accounts for at
//! least half of the difference from the paper ([`Row::is_accounted_for_by`]). No reason decides
//! for itself whether it holds. All five papers use this.

mod judge;
mod reason;

use onewrite_cli::compare::paired::Interval;
use serde::Serialize;

use super::experiment::Trial;
use super::rounds::Paired;
pub use judge::{Verdict, is_near_count};
pub use reason::{Difference, Predicted, Reason, explain, explain_by};

/// The meaning of a number in a paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// This number, as rounded.
    About,
    /// Not more.
    AtMost,
    /// Not less.
    AtLeast,
}

/// A number that a paper states.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Stated {
    /// The number, in the unit of its row.
    pub amount: f64,
    /// The number's meaning.
    pub bound: Bound,
    /// The place in the paper, or the numbers it was computed from.
    pub from: &'static str,
}

impl Stated {
    /// About `amount`.
    pub const fn about(amount: f64, from: &'static str) -> Self {
        Self {
            amount,
            bound: Bound::About,
            from,
        }
    }

    /// At most `amount`.
    pub const fn at_most(amount: f64, from: &'static str) -> Self {
        Self {
            amount,
            bound: Bound::AtMost,
            from,
        }
    }

    /// At least `amount`.
    pub const fn at_least(amount: f64, from: &'static str) -> Self {
        Self {
            amount,
            bound: Bound::AtLeast,
            from,
        }
    }
}

/// How exactly a run should repeat a row's figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Counted: bytes, writes.
    Counted,
    /// Timed, on another machine.
    Timed,
}

/// Ratios to another row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// The name of the other row.
    pub to: &'static str,
    /// The paper's.
    pub paper: Option<Stated>,
    /// Ours: of paired rounds the estimate.
    pub ours: Option<f64>,
    /// The ratios that the paired rounds allow; null if they do not decide.
    pub interval: Option<Interval>,
    /// The paired rounds; null if they do not decide.
    pub rounds: Option<usize>,
}

/// One line of a figure.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The paper's name for it.
    pub name: &'static str,
    /// The mode here, with its variations. Null if it does not exist yet, or the row is not a mode.
    pub ran: Option<String>,
    /// The measured quantity.
    pub quantity: &'static str,
    /// The unit.
    pub unit: &'static str,
    /// How exactly a run should repeat it.
    pub kind: Kind,
    /// The paper's value; null if its text does not state it.
    pub paper: Option<Stated>,
    /// Our value; null if it was not measured.
    pub ours: Option<f64>,
    /// The ratio to the baseline.
    pub ratio: Option<Ratio>,
    /// Set by [`Row::judged`].
    pub verdict: Verdict,
    /// The trials of its rounds.
    #[serde(skip)]
    pub trials: Vec<Trial>,
}

/// The side of the paper's figure on which ours lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// Ours is larger.
    Above,
    /// Ours is smaller.
    Below,
}

impl Row {
    /// A row without figures.
    pub fn new(name: &'static str, quantity: &'static str, unit: &'static str, kind: Kind) -> Self {
        Self {
            name,
            ran: None,
            quantity,
            unit,
            kind,
            paper: None,
            ours: None,
            ratio: None,
            verdict: Verdict::NotCompared,
            trials: Vec::new(),
        }
    }

    /// Sets the mode that was run.
    pub fn ran(mut self, mode: &str) -> Self {
        self.ran = Some(mode.to_owned());
        self
    }

    /// Sets the paper's value, if its text has one.
    pub fn paper(mut self, stated: Option<Stated>) -> Self {
        self.paper = stated;
        self
    }

    /// Sets our value, if it was measured.
    pub fn ours(mut self, amount: Option<f64>) -> Self {
        self.ours = amount;
        self
    }

    /// Sets the ratios of counts, or of medians.
    pub fn ratio(mut self, to: &'static str, paper: Option<Stated>, ours: Option<f64>) -> Self {
        self.ratio = Some(Ratio {
            to,
            paper,
            ours,
            interval: None,
            rounds: None,
        });
        self
    }

    /// Sets the ratios of times, each of a round.
    pub fn rounds(mut self, to: &'static str, paper: Option<Stated>, ours: &Paired) -> Self {
        let interval = ours.interval();
        self.ratio = Some(Ratio {
            to,
            paper,
            ours: interval.map(|interval| interval.ratio),
            interval,
            rounds: Some(ours.ratios.len()),
        });
        self.trials.clone_from(&ours.trials);
        self
    }

    /// Sets the verdict.
    pub fn judged(mut self) -> Self {
        self.verdict = self.verdict_of();
        self
    }

    /// The two figures to compare: the paper's and ours.
    fn compared(&self) -> Option<(Stated, f64)> {
        let ratio = self.ratio.as_ref().and_then(|r| r.paper.zip(r.ours));
        let value = || {
            self.paper.zip(self.ours).filter(|(paper, _)| {
                // A higher rate tells about the machine, not the mode.
                self.kind == Kind::Counted || paper.bound != Bound::About
            })
        };
        ratio.or_else(value)
    }

    fn verdict_of(&self) -> Verdict {
        let Some((paper, ours)) = self.compared() else {
            return Verdict::NotCompared;
        };
        let ratio = self.ratio.as_ref().filter(|ratio| ratio.paper.is_some());
        if let Some(interval) = ratio.and_then(|ratio| ratio.interval) {
            return judge::by_rounds(paper, &interval);
        }
        match (paper.bound, self.kind) {
            (Bound::About, Kind::Counted) => judge::by_count(paper.amount, ours, ratio.is_some()),
            // One ratio of times does not say how far the next one is from it.
            (Bound::About, Kind::Timed) => Verdict::Undecided,
            _ if judge::bound_holds(paper, ours, self.kind, ratio.is_some()) => Verdict::Same,
            _ => Verdict::Misses,
        }
    }

    /// The side of the paper's figure on which our compared figure lies.
    pub fn side(&self) -> Option<Side> {
        let (paper, ours) = self.compared()?;
        Some(match ours > paper.amount {
            true => Side::Above,
            false => Side::Below,
        })
    }

    /// Whether a predicted figure accounts for at least half of the difference between the paper's
    /// figure and ours. One that does not differ from the paper's, or differs to the other side, or
    /// by much more than ours, does not.
    pub fn is_accounted_for_by(&self, predicted: f64) -> bool {
        self.compared().is_some_and(|(paper, ours)| {
            let left = (predicted - ours).abs();
            predicted.is_finite() && left * 2.0 <= (paper.amount - ours).abs()
        })
    }

    /// Our compared figure; 0 without one.
    pub fn compared_figure(&self) -> f64 {
        self.compared().map_or(0.0, |(_, ours)| ours)
    }

    /// The paper's figure that ours is compared with; 0 without one.
    pub fn compared_paper(&self) -> f64 {
        self.compared().map_or(0.0, |(paper, _)| paper.amount)
    }

    /// Whether paired rounds decide the row's verdict.
    pub fn is_judged_by_rounds(&self) -> bool {
        let is_judged = |ratio: &Ratio| ratio.paper.is_some() && ratio.rounds.is_some();
        self.ratio.as_ref().is_some_and(is_judged)
    }

    /// Whether more rounds would say more.
    pub fn is_open(&self) -> bool {
        self.verdict == Verdict::Undecided && !self.trials.is_empty()
    }

    /// Whether the row needs an explanation.
    pub fn differs(&self) -> bool {
        matches!(self.verdict, Verdict::Magnitude | Verdict::Misses)
    }
}

/// A figure after its run.
#[derive(Clone, Debug, Serialize)]
pub struct Shown {
    /// The name on the command line.
    pub figure: &'static str,
    /// The paper's title for it.
    pub title: &'static str,
    /// How it was run here.
    pub how: String,
    /// The figures.
    pub rows: Vec<Row>,
    /// The differences from the paper.
    pub differences: Vec<Difference>,
    /// For figures that are traces: the device's I/Os, in order.
    pub sequences: Vec<Sequence>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

impl Shown {
    /// A figure that is not a trace.
    pub fn of(
        figure: &'static str,
        title: &'static str,
        how: String,
        rows: Vec<Row>,
        differences: Vec<Difference>,
        notes: Vec<String>,
    ) -> Self {
        Self {
            figure,
            title,
            how,
            rows,
            differences,
            sequences: Vec::new(),
            notes,
        }
    }
}

/// A sequence of I/Os.
#[derive(Clone, Debug, Serialize)]
pub struct Sequence {
    /// The name of the traced mode.
    pub name: &'static str,
    /// Time, purpose, size and place of each.
    pub ios: Vec<String>,
    /// The number of further I/Os.
    pub more: usize,
}

#[cfg(test)]
pub mod tests {
    use super::*;

    const HERE: &str = "test";

    /// Seven rounds that are all alike.
    pub fn alike(ratio: f64) -> Paired {
        Paired {
            ratios: vec![ratio; 7],
            error: 0.05,
            trials: Vec::new(),
        }
    }

    /// The reason with this count is for the row. It holds with the figure that the right counts
    /// predict, and with none of those that planted wrong ones do.
    pub fn can_fail(row: &Row, reasons: &[Reason], count: &str, right: f64, planted: &[f64]) {
        assert!(row.differs(), "{row:?}");
        let is_it = |r: &&Reason| r.count == count && (r.of)(row) && Some(r.side) == row.side();
        assert!(reasons.iter().any(|r| is_it(&r)), "{count}: {row:?}");
        assert!(row.is_accounted_for_by(right), "{right}: {row:?}");
        for wrong in planted {
            assert!(!row.is_accounted_for_by(*wrong), "{wrong}: {row:?}");
        }
    }

    #[test]
    fn a_row_of_times_is_judged_by_its_rounds_and_one_of_counts_by_its_ratio() {
        let row = |kind| Row::new("a", "time", "s", kind);
        let stated = Some(Stated::about(0.9, HERE));
        let timed = |ratio| row(Kind::Timed).rounds("b", stated, &alike(ratio)).judged();
        assert_eq!(timed(0.9).verdict, Verdict::Same);
        assert_eq!(timed(1.1).verdict, Verdict::Misses);
        assert_eq!(timed(0.7).verdict, Verdict::Magnitude);
        let ratio = timed(1.1).ratio.expect("a ratio");
        assert_eq!(ratio.rounds, Some(7));
        let bounds = ratio.interval.and_then(|interval| interval.bounds());
        let (low, high) = bounds.expect("bounds");
        assert!((low - 1.1).abs() < 1e-9 && (high - 1.1).abs() < 1e-9);
        assert_eq!(timed(1.1).side(), Some(Side::Above));
        // One median of each says nothing of an effect.
        let medians = row(Kind::Timed).ratio("b", stated, Some(0.9)).judged();
        assert_eq!(medians.verdict, Verdict::Undecided);
        let counts = row(Kind::Counted).ratio("b", stated, Some(0.9)).judged();
        assert_eq!(counts.verdict, Verdict::Same);
        // Nothing is stated: there is nothing to decide.
        let alone = row(Kind::Timed).rounds("b", None, &alike(0.9)).judged();
        assert_eq!(alone.verdict, Verdict::NotCompared);
    }

    #[test]
    fn rates_of_other_machines_are_not_compared_but_bounds_and_bytes_are() {
        let plain = |kind, stated, ours| {
            Row::new("a", "x", "y", kind)
                .paper(Some(stated))
                .ours(Some(ours))
                .judged()
                .verdict
        };
        let about = Stated::about(587.0, HERE);
        assert_eq!(plain(Kind::Timed, about, 2000.0), Verdict::NotCompared);
        assert_eq!(plain(Kind::Counted, about, 2000.0), Verdict::Magnitude);
        assert_eq!(plain(Kind::Counted, about, 590.0), Verdict::Same);
        let at_most = Stated::at_most(336.0, HERE);
        assert_eq!(plain(Kind::Timed, at_most, 40.0), Verdict::Same);
        assert_eq!(plain(Kind::Timed, at_most, 400.0), Verdict::Misses);
        let at_least = Stated::at_least(0.5, HERE);
        assert_eq!(plain(Kind::Counted, at_least, 0.4), Verdict::Misses);
        assert_eq!(plain(Kind::Counted, at_least, 0.6), Verdict::Same);
        // A median is not so exact that a twentieth beyond a bound means something.
        let median = |ours| {
            let row = Row::new("a", "x", "ms", Kind::Timed);
            row.ratio("b", Some(Stated::at_least(1.0, HERE)), Some(ours))
        };
        assert_eq!(median(0.95).judged().verdict, Verdict::Same);
        assert_eq!(median(0.6).judged().verdict, Verdict::Misses);
    }
}
