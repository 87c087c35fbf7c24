//! Why a row differs from the paper's: a sentence, and a count that predicts the row's figure.
//!
//! No reason decides for itself whether it holds ([`Row::is_accounted_for_by`]). All five papers use
//! this.

use serde::Serialize;

use super::{Kind, Row, Side, Verdict};
use crate::reproduce::experiment::Experiment;
use onewrite_cli::compare::report::Raw;

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
    /// Why the figure decides nothing, if the machine was not at rest; null otherwise. This is no
    /// reason: it predicts nothing.
    pub not_decided: Option<String>,
}

/// Finds the sentences for all rows that differ.
pub fn explain(
    rows: &[Row],
    reasons: &[Reason],
    experiment: &mut Experiment<'_>,
) -> Result<Vec<Difference>, String> {
    let mut differences = explain_by(rows, reasons, |predict, row| predict(experiment, row))?;
    doubt(&mut differences, rows, &experiment.raw());
    Ok(differences)
}

/// Marks the timed figures that a machine which was not at rest leaves open.
fn doubt(differences: &mut [Difference], rows: &[Row], raw: &Raw) {
    let noise = noise(raw);
    for (difference, row) in differences.iter_mut().zip(differing(rows)) {
        let is_open = !difference.holds && is_exposed_to_noise(row);
        difference.not_decided = noise.clone().filter(|_| is_open);
    }
}

/// Whether other load on the machine can make this figure differ. It slows both runs of a round.
fn is_exposed_to_noise(row: &Row) -> bool {
    let has_rounds = row.ratio.as_ref().is_some_and(|r| r.rounds.is_some());
    row.kind == Kind::Timed && !has_rounds
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
            not_decided: None,
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

/// How far the raw rates of a run were apart, if the machine was not at rest.
fn noise(raw: &Raw) -> Option<String> {
    let (least, most) = raw
        .min
        .append_fdatasync_per_s
        .zip(raw.max.append_fdatasync_per_s)?;
    let varied = most / least;
    (varied > AT_REST).then(|| {
        format!(
            "not decided: raw rates varied by {varied:.1} times in this run (appends with fdatasync, {least:.0} to \
             {most:.0} a second)"
        )
    })
}

#[cfg(test)]
mod tests {
    use onewrite_workload::raw::Rates;

    use super::super::Stated;
    use super::*;
    use crate::reproduce::rounds::Paired;

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

    /// Raw rates of a run, with these appends a second.
    fn raw(appends: &[f64]) -> Raw {
        let rates = |append_fdatasync: &f64| Rates {
            direct_dsync_4k: None,
            direct_4k: None,
            append_fdatasync: *append_fdatasync,
        };
        Raw::of(&appends.iter().map(rates).collect::<Vec<_>>(), 1_000)
    }

    #[test]
    fn a_noisy_machine_decides_nothing_and_is_no_reason() {
        let told = noise(&raw(&[1_000.0, 400.0, 900.0])).expect("planted noise");
        assert!(
            told.starts_with("not decided: raw rates varied by 2.5 times"),
            "{told}"
        );
        assert_eq!(noise(&raw(&[1_000.0, 700.0])), None);
        let median = Row::new("a", "time", "ms", Kind::Timed)
            .ratio("b", Some(Stated::at_most(0.2, "test")), Some(0.9))
            .judged();
        assert!(is_exposed_to_noise(&median));
        let mut differences = explain_by(std::slice::from_ref(&median), &[], |(), _| {
            unreachable!("there is no reason")
        })
        .unwrap();
        doubt(
            &mut differences,
            std::slice::from_ref(&median),
            &raw(&[9.0, 3.0]),
        );
        let told = &differences[0];
        assert_eq!((told.holds, told.why, told.predicted), (false, None, None));
        assert!(told.not_decided.is_some());
    }

    #[test]
    fn noise_speaks_neither_of_counts_nor_of_paired_rounds() {
        let paired = Paired {
            ratios: vec![0.9; 7],
            error: 0.05,
            trials: Vec::new(),
        };
        let stated = Some(Stated::at_most(0.2, "test"));
        let rounds = Row::new("a", "time", "ms", Kind::Timed)
            .rounds("b", stated, &paired)
            .judged();
        let rows = [row(), rounds];
        assert!(rows.iter().all(Row::differs));
        let mut differences =
            explain_by(&rows, &[], |(), _| unreachable!("there is no reason")).unwrap();
        doubt(&mut differences, &rows, &raw(&[9.0, 3.0]));
        assert!(differences.iter().all(|told| told.not_decided.is_none()));
    }
}
