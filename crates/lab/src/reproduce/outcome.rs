//! The result of a figure: rows with the paper's value next to ours, and the reason for each
//! difference.
//!
//! If the paper has a baseline, a row is judged by its ratio to it. The papers measured on phones,
//! not on this machine, so rates are not compared, but the gain of a mode is. Bytes are compared
//! directly.
//!
//! A [`Reason`] explains a row that differs. It names a count, and from that count it predicts the
//! row's figure. The prediction is compared with the figure: a reason holds if it accounts for at
//! least half of the difference from the paper ([`Row::is_accounted_for_by`]). No reason decides
//! for itself whether it holds. All five papers use this.

use serde::Serialize;

use super::experiment::Experiment;

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
    /// Counted: bytes, writes. It differs from the paper if it is off by more than a tenth.
    Counted,
    /// Timed, on another machine. It differs if it is off by more than half.
    Timed,
}

/// Whether a counted figure is the paper's: a tenth more or less.
pub fn is_near_count(ours: f64, paper: f64) -> bool {
    let near = Kind::Counted.near();
    (paper / near..=paper * near).contains(&ours)
}

impl Kind {
    /// The largest factor between two figures that count as the same.
    fn near(self) -> f64 {
        match self {
            Self::Counted => 1.1,
            Self::Timed => 1.5,
        }
    }

    /// How far from 1 a ratio may be and still mean "no difference".
    fn level(self) -> f64 {
        match self {
            Self::Counted => 0.02,
            Self::Timed => 0.15,
        }
    }
}

/// Ratios to another row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// The name of the other row.
    pub to: &'static str,
    /// The paper's.
    pub paper: Option<Stated>,
    /// Ours.
    pub ours: Option<f64>,
}

/// How our value compares with the paper's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The same as in the paper.
    Same,
    /// In the paper's direction, but by more or less.
    Magnitude,
    /// Not in the paper's direction, or beyond its bound.
    Misses,
    /// One of the two is missing, or the machine alone decides it.
    NotCompared,
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

    /// Sets the ratios.
    pub fn ratio(mut self, to: &'static str, paper: Option<Stated>, ours: Option<f64>) -> Self {
        self.ratio = Some(Ratio { to, paper, ours });
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
        // A statement that one is no slower than another is as exact as timing.
        let of_ratios = self.ratio.as_ref().is_some_and(|r| r.paper.is_some());
        let slack = if of_ratios { self.kind.level() } else { 0.0 };
        let bound_holds = match paper.bound {
            Bound::AtMost => ours <= paper.amount * (1.0 + slack),
            Bound::AtLeast => ours >= paper.amount * (1.0 - slack),
            Bound::About => return self.about(paper.amount, ours),
        };
        if bound_holds {
            Verdict::Same
        } else {
            Verdict::Misses
        }
    }

    fn about(&self, paper: f64, ours: f64) -> Verdict {
        let factor = (ours.max(1e-9) / paper.max(1e-9)).max(paper.max(1e-9) / ours.max(1e-9));
        let direction = |ratio: f64| match ratio - 1.0 {
            off if off > self.kind.level() => 1,
            off if off < -self.kind.level() => -1,
            _ => 0,
        };
        let of_ratios = self.ratio.as_ref().is_some_and(|r| r.paper.is_some());
        if factor <= self.kind.near() {
            Verdict::Same
        } else if of_ratios && direction(paper) != direction(ours) {
            Verdict::Misses
        } else {
            Verdict::Magnitude
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

    /// Whether the row needs an explanation.
    pub fn differs(&self) -> bool {
        matches!(self.verdict, Verdict::Magnitude | Verdict::Misses)
    }
}

/// A row's figure as a reason predicts it, from its count.
#[derive(Clone, Debug, PartialEq)]
pub struct Predicted {
    /// In the unit of the row's compared figure: its ratio if the paper has a baseline.
    pub figure: f64,
    /// The counts behind it, of all rows that the reason covers.
    pub measured: String,
    /// The counts of this row alone.
    pub of_row: Option<String>,
}

impl Predicted {
    /// A prediction without counts of the row alone.
    pub fn new(figure: f64, measured: String) -> Self {
        Self {
            figure,
            measured,
            of_row: None,
        }
    }

    /// A prediction with counts of the row alone.
    pub fn of_row(figure: f64, measured: &str, of_row: String) -> Self {
        Self {
            figure,
            measured: measured.to_owned(),
            of_row: Some(of_row),
        }
    }
}

/// Predicts a row's figure from a run of [`Experiment`].
pub type Predict = fn(&mut Experiment<'_>, &Row) -> Result<Predicted, String>;

/// Why a row may differ from the paper's, in one sentence, and what follows from it in numbers.
#[derive(Clone, Copy)]
pub struct Reason<P = Predict> {
    /// The rows that it may explain.
    pub of: fn(&Row) -> bool,
    /// The side of the paper's figure on which it puts ours.
    pub side: Side,
    /// The sentence.
    pub sentence: &'static str,
    /// The count that the prediction is made from.
    pub count: &'static str,
    /// The prediction.
    pub predict: P,
}

/// A row that differs, and the reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The row's name.
    pub row: &'static str,
    /// The measured quantity.
    pub quantity: &'static str,
    /// The kind of difference.
    pub verdict: Verdict,
    /// The side on which ours lies.
    pub side: Side,
    /// The sentence; null if no reason is known.
    pub why: Option<&'static str>,
    /// The count that it predicts the figure from; null without a reason.
    pub count: Option<&'static str>,
    /// The predicted figure.
    pub predicted: Option<f64>,
    /// The measured figure that it is compared with.
    pub ours: f64,
    /// The counts behind the prediction; null without a reason.
    pub checked: Option<String>,
    /// The part of them that is about this row alone.
    pub of_row: Option<String>,
    /// Whether the prediction accounts for the difference.
    pub holds: bool,
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

/// Finds the sentences for all rows that differ.
pub fn explain(
    rows: &[Row],
    reasons: &[Reason],
    experiment: &mut Experiment<'_>,
) -> Result<Vec<Difference>, String> {
    let mut differences = explain_by(rows, reasons, |predict, row| predict(experiment, row))?;
    for (difference, row) in differences.iter_mut().zip(differing(rows)) {
        if row.kind == Kind::Timed && !difference.holds {
            blame_the_machine(difference, experiment);
        }
    }
    Ok(differences)
}

fn differing(rows: &[Row]) -> impl Iterator<Item = &Row> {
    rows.iter().filter(|row| row.differs())
}

/// The same with predictions of any source.
pub fn explain_by<P: Copy>(
    rows: &[Row],
    reasons: &[Reason<P>],
    mut predicted: impl FnMut(P, &Row) -> Result<Predicted, String>,
) -> Result<Vec<Difference>, String> {
    let mut differences = Vec::new();
    for row in differing(rows) {
        let Some((side, ours)) = row.side().zip(row.compared().map(|(_, ours)| ours)) else {
            continue;
        };
        let mut difference = Difference {
            row: row.name,
            quantity: row.quantity,
            verdict: row.verdict,
            side,
            why: None,
            count: None,
            predicted: None,
            ours,
            checked: None,
            of_row: None,
            holds: false,
        };
        // Takes the first reason that holds. Otherwise takes the last one tried, with the
        // prediction that speaks against it.
        for reason in reasons.iter().filter(|r| r.side == side && (r.of)(row)) {
            let found = predicted(reason.predict, row)?;
            difference.why = Some(reason.sentence);
            difference.count = Some(reason.count);
            difference.predicted = Some(found.figure);
            difference.holds = row.is_accounted_for_by(found.figure);
            difference.checked = Some(found.measured);
            difference.of_row = found.of_row;
            if difference.holds {
                break;
            }
        }
        differences.push(difference);
    }
    Ok(differences)
}

/// The largest factor between the raw rates of one run for a machine at rest.
const AT_REST: f64 = 1.5;

/// The last explanation of a timed figure: the machine was not at rest.
fn blame_the_machine(difference: &mut Difference, experiment: &Experiment<'_>) {
    let raw = experiment.raw();
    let range = raw
        .min
        .append_fdatasync_per_s
        .zip(raw.max.append_fdatasync_per_s);
    let Some((least, most)) = range.filter(|(least, most)| most / least > AT_REST) else {
        return;
    };
    difference.why = Some(
        "The machine was not at rest: the same plain system calls took different times in the course of this run.",
    );
    difference.checked = Some(format!(
        "appends with fdatasync, raw, between {least:.0} and {most:.0} a second"
    ));
    difference.count = None;
    difference.predicted = None;
    difference.of_row = None;
    difference.holds = true;
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "test";

    fn row(kind: Kind, paper: f64, ours: f64) -> Row {
        Row::new("a", "rate", "1/s", kind)
            .ratio("b", Some(Stated::about(paper, HERE)), Some(ours))
            .judged()
    }

    #[test]
    fn a_ratio_on_the_other_side_of_one_misses_and_a_larger_one_does_not() {
        for (paper, ours, verdict) in [
            (2.0, 2.6, Verdict::Same),
            (2.0, 3.2, Verdict::Magnitude),
            (2.0, 1.05, Verdict::Misses),
            (1.0, 1.8, Verdict::Misses),
            (0.5, 1.4, Verdict::Misses),
            (1.05, 1.2, Verdict::Same),
        ] {
            assert_eq!(
                row(Kind::Timed, paper, ours).verdict,
                verdict,
                "{paper} {ours}"
            );
        }
        assert_eq!(row(Kind::Counted, 2.0, 2.3).verdict, Verdict::Magnitude);
        assert_eq!(row(Kind::Timed, 2.0, 3.2).side(), Some(Side::Above));
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
    }

    /// A reason of tests: its prediction is a number.
    fn reason(side: Side, predict: f64) -> Reason<f64> {
        Reason {
            of: |row| row.name == "a",
            side,
            sentence: "because",
            count: "flushes of b",
            predict,
        }
    }

    fn explained(row: &Row, reasons: &[Reason<f64>]) -> Difference {
        let told = explain_by(std::slice::from_ref(row), reasons, |figure, _| {
            Ok(Predicted::new(figure, "counts".to_owned()))
        });
        told.unwrap().remove(0)
    }

    #[test]
    fn a_reason_holds_only_if_its_prediction_accounts_for_most_of_the_difference() {
        let row = row(Kind::Timed, 2.0, 6.0);
        for (predicted, holds) in [
            (6.0, true),
            (4.0, true),
            (8.0, true),
            // Less than half; nothing; to the other side; far too much; no number.
            (3.9, false),
            (2.0, false),
            (0.5, false),
            (8.1, false),
            (f64::NAN, false),
            (f64::INFINITY, false),
        ] {
            let told = explained(&row, &[reason(Side::Above, predicted)]);
            assert_eq!(told.holds, holds, "{predicted}");
            assert_eq!(told.count, Some("flushes of b"));
            assert_eq!((told.ours, told.predicted.is_some()), (6.0, true));
        }
    }

    #[test]
    fn a_wrong_reason_gives_way_to_a_right_one_and_is_told_if_there_is_none() {
        let row = row(Kind::Counted, 2.0, 6.0);
        let (wrong, right) = (reason(Side::Above, 2.5), reason(Side::Above, 5.5));
        let told = explained(&row, &[wrong, right]);
        assert_eq!((told.holds, told.predicted), (true, Some(5.5)));
        let told = explained(&row, &[wrong]);
        assert_eq!((told.holds, told.predicted), (false, Some(2.5)));
        // A reason for the other side is not tried, whatever it predicts.
        let told = explained(&row, &[reason(Side::Below, 6.0)]);
        assert_eq!((told.holds, told.why), (false, None));
    }
}
