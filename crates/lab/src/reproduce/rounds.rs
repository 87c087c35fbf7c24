//! Figures whose ratios are decided by paired rounds.
//!
//! A round runs every trial of a figure once, in the order of `compare`'s rounds. Other load slows
//! the runs of a round alike, so each round gives one ratio. [`Interval`] is `compare`'s statistic.
//! Rounds are added until no row is open, as in `compare` and `matrix`. The ratios of a figure that are
//! judged share the error of a look: all of them hold at once with the confidence of one.

use std::time::{Duration, Instant};

use onewrite_cli::compare::paired::{Interval, Looks};
use onewrite_cli::compare::report::Run;

use super::experiment::{Experiment, Trial};
use super::outcome::Row;
use super::{counted, spoken};

/// One ratio from each round, and the trials that it was made from.
#[derive(Clone, Debug)]
pub struct Paired {
    /// In the order of the rounds.
    pub ratios: Vec<f64>,
    /// How often the interval may miss the true ratio.
    pub error: f64,
    /// The trials of each round.
    pub trials: Vec<Trial>,
}

impl Paired {
    /// The ratio and its interval; `None` without a round.
    pub fn interval(&self) -> Option<Interval> {
        let logarithms: Vec<f64> = self.ratios.iter().map(|ratio| ratio.ln()).collect();
        Interval::of(&logarithms, self.error)
    }
}

impl Experiment<'_> {
    /// Runs these trials in rounds until no row is open, and makes the rows at each look. A row that
    /// was decided stays as it is. Further rounds have the trials of open rows alone.
    pub fn decided(
        &mut self,
        trials: &[Trial],
        mut rows: impl FnMut(&mut Self) -> Result<Vec<Row>, String>,
    ) -> Result<Vec<Row>, String> {
        let (mut looks, mut sharing) = (self.choice().looks(1), 1);
        let (mut wanted, mut known) = (different(trials), Vec::new());
        for round in 1..=looks.most() {
            let is_new = self.together(&wanted).count() < round as usize;
            let begun = Instant::now();
            if is_new {
                self.round(&wanted)?;
            }
            if round == 1 {
                sharing = judged_by_rounds(&rows(self)?);
                looks = self.choice().looks(sharing);
            }
            if is_new && round == 1 {
                self.announce(&looks, begun.elapsed());
            }
            let Some(error) = looks.look(round, round == looks.most()) else {
                continue;
            };
            self.set_error(error / f64::from(sharing));
            known = newer(known, rows(self)?);
            let open = known.iter().filter(|row| row.is_open());
            let of_open: Vec<Trial> = open.flat_map(|row| row.trials.clone()).collect();
            wanted = different(&of_open);
            if wanted.is_empty() {
                break;
            }
            let open = known.iter().filter(|row| row.is_open()).count();
            let ratios = counted(open, "ratio");
            let line = format!("onewrite: {ratios} undecided after round {round}");
            self.progress().tell(&line);
        }
        Ok(known)
    }

    /// Says how long the rounds take. The first estimate knows only the raw rate of the device.
    fn announce(&self, looks: &Looks, round: Duration) {
        let (least, most) = (looks.next(), looks.most());
        let (shortest, longest) = (spoken(round * least), spoken(round * most));
        let line = match least < most {
            true => format!("{least} to {most} rounds decide this figure: {shortest} to {longest}"),
            false => format!(
                "{} of this figure: {longest}",
                counted(most as usize, "round")
            ),
        };
        self.progress().tell(&format!("onewrite: {line}"));
    }

    /// A ratio of each round in which all of these trials ran. `ratio` gets the runs in the order of
    /// the trials.
    pub fn paired(&self, trials: &[Trial], ratio: impl Fn(&[&Run]) -> f64) -> Paired {
        Paired {
            ratios: self.together(trials).map(|runs| ratio(&runs)).collect(),
            error: self.error(),
            trials: trials.to_vec(),
        }
    }

    /// One trial's figure to that of another.
    pub fn to(&self, of: Trial, to: Trial, figure: fn(&Run) -> f64) -> Paired {
        self.paired(&[of, to], |runs| match runs {
            [of, to] => figure(of) / figure(to),
            _ => f64::NAN,
        })
    }

    /// The runs of the trials in each round in which all of them ran.
    fn together<'a>(&'a self, trials: &'a [Trial]) -> impl Iterator<Item = Vec<&'a Run>> {
        let first = trials.first().map_or(&[][..], |trial| self.runs_of(trial));
        first.iter().filter_map(|run| {
            let in_round = |trial| {
                self.runs_of(trial)
                    .iter()
                    .find(|one| one.repeat == run.repeat)
            };
            trials.iter().map(in_round).collect()
        })
    }
}

/// How many ratios the paired rounds judge, at least one.
fn judged_by_rounds(rows: &[Row]) -> u32 {
    let judged = rows.iter().filter(|row| row.is_judged_by_rounds());
    (judged.count() as u32).max(1)
}

/// Each trial once.
pub fn different(trials: &[Trial]) -> Vec<Trial> {
    let mut different: Vec<Trial> = Vec::new();
    for trial in trials {
        if !different.iter().any(|known| known.is_same_work(trial)) {
            different.push(*trial);
        }
    }
    different
}

/// The rows of this look, where they were open at the last one.
fn newer(known: Vec<Row>, found: Vec<Row>) -> Vec<Row> {
    if known.len() != found.len() {
        return found;
    }
    let both = known.into_iter().zip(found);
    both.map(|(known, found)| match known.is_open() {
        true => found,
        false => known,
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use onewrite_workload::plan::Op;

    use super::super::experiment::RECORD_BYTES;
    use super::super::outcome::{Kind, Ratio, Stated, Verdict};
    use super::*;

    fn row(ratio: f64, rounds: usize) -> Row {
        let trial = Trial {
            op: Op::Insert,
            mode: "wal",
            count: 1,
            autocheckpoint: 0,
            repeats: 7,
            record_bytes: RECORD_BYTES,
            warm_up: 0,
        };
        let paired = Paired {
            ratios: vec![ratio; rounds],
            error: 0.05,
            trials: vec![trial],
        };
        let stated = Stated::about(2.0, "test");
        Row::new("a", "rate", "/s", Kind::Timed)
            .rounds("WAL", Some(stated), &paired)
            .judged()
    }

    /// A later look allows less error. It must not take back what an earlier one has decided.
    #[test]
    fn a_decided_row_stays_and_an_open_one_gets_the_next_look() {
        let (decided, open) = (row(2.0, 7), row(2.0, 3));
        assert_eq!(decided.verdict, Verdict::Same);
        assert!(open.is_open() && !decided.is_open());
        let found = newer(vec![decided, open], vec![row(1.0, 10), row(0.5, 10)]);
        let verdicts: Vec<Verdict> = found.iter().map(|row| row.verdict).collect();
        assert_eq!(verdicts, [Verdict::Same, Verdict::Misses]);
        assert_eq!(newer(Vec::new(), vec![row(1.0, 10)]).len(), 1);
    }

    #[test]
    fn ratios_that_nothing_is_stated_of_do_not_share_the_error() {
        let judged = row(2.0, 7);
        let mut shown = judged.clone();
        shown.ratio = shown.ratio.map(|ratio| Ratio {
            paper: None,
            ..ratio
        });
        let counted = Row::new("a", "writes", "", Kind::Counted).ratio("WAL", None, Some(2.0));
        let rows = [judged.clone(), shown, counted, judged];
        assert_eq!(judged_by_rounds(&rows), 2);
        assert_eq!(judged_by_rounds(&[]), 1);
    }

    #[test]
    fn trials_that_differ_in_their_repetitions_alone_are_one() {
        let trials: Vec<Trial> = row(1.0, 1).trials;
        let more = Trial {
            repeats: 1,
            ..trials[0]
        };
        let other = Trial {
            count: 2,
            ..trials[0]
        };
        assert_eq!(different(&[trials[0], more, other, trials[0]]).len(), 2);
    }
}
