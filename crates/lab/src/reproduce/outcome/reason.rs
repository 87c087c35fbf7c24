//! Why a row differs from the paper's: a sentence, and a count that predicts the row's figure.
//!
//! No reason decides for itself whether it holds ([`Row::is_accounted_for_by`]). All five papers use
//! this.

use serde::Serialize;

use super::{Kind, Row, Side, Verdict};
use crate::reproduce::experiment::Experiment;

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

/// Finds the sentences for all rows that differ.
pub fn explain(
    rows: &[Row],
    reasons: &[Reason],
    experiment: &mut Experiment<'_>,
) -> Result<Vec<Difference>, String> {
    let mut differences = explain_by(rows, reasons, |predict, row| predict(experiment, row))?;
    for (difference, row) in differences.iter_mut().zip(differing(rows)) {
        // Other load slows both runs of a round.
        let has_rounds = row.ratio.as_ref().is_some_and(|r| r.rounds.is_some());
        if row.kind == Kind::Timed && !has_rounds && !difference.holds {
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
    use super::super::Stated;
    use super::*;

    /// A row whose ratio is 2 in the paper, and 6 here.
    fn row() -> Row {
        Row::new("a", "rate", "1/s", Kind::Counted)
            .ratio("b", Some(Stated::about(2.0, "test")), Some(6.0))
            .judged()
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
        let row = row();
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
        let row = row();
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
