//! The rounds of a comparison: each runs every mode once, until the ratios are decided.
//!
//! A round is short, and its order changes. The second round has the reverse order of the first.
//! Later pairs of rounds have a shuffled order and its reverse. So a drift of the machine favors no mode.
//! `compare`, `bench` and `onewrite-lab matrix` call [`Comparison::measure`]; `reproduce` takes the
//! order alone.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use onewrite_workload::clock::process_peak_kib;
use onewrite_workload::connection::SYNC_CALL;
use onewrite_workload::mode::Mode;
use onewrite_workload::plan::Plan;
use onewrite_workload::raw::{Rates, RawBench};

use super::paired::Looks;
use super::ratios::Ratios;
use super::report::{Failed, Raw, RawAround, Report, Run};
use super::session::{self, Terms};
use crate::place::{self, Place};
use crate::progress::Progress;
use crate::{directory, interrupt};

/// How many rounds.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    /// At least.
    pub least: u32,
    /// At most, if the ratios stay open. With one mode, or without one to compare with, there are
    /// only the least.
    pub most: u32,
    /// No further round begins, after the least, that would end later than this.
    pub within: Option<Duration>,
}

/// Whether more rounds would say more.
pub type IsOpen<'a> = &'a dyn Fn(&Ratios) -> bool;

/// The modes to compare, and how.
#[derive(Clone, Copy)]
pub struct Comparison<'a> {
    /// The transactions.
    pub plan: &'a Plan,
    /// The same for every mode.
    pub terms: Terms,
    /// The modes, in the order of the report.
    pub modes: &'a [Mode],
    /// How many rounds.
    pub rounds: Rounds,
    /// Called at each look.
    pub is_open: IsOpen<'a>,
}

/// The results so far.
#[derive(Default)]
struct Ledger {
    runs: Vec<Run>,
    failed: Vec<Failed>,
    notes: Vec<String>,
    samples: Vec<Rates>,
    /// Set when the user stopped the comparison.
    is_cut: bool,
}

impl Comparison<'_> {
    /// All rounds. With `raw` the device's own rates are measured between the runs of the least
    /// rounds. A comparison that the user stops keeps its complete runs.
    pub fn measure(
        &self,
        place: &Place,
        raw: Option<&RawBench<'_>>,
        progress: &Progress,
    ) -> Result<Report, String> {
        let mut ledger = Ledger {
            notes: place.notes.clone(),
            ..Ledger::default()
        };
        ledger.sample(raw, progress)?;
        let ratios = self.rounds(&mut ledger, place, raw, progress)?;
        let mut said = HashSet::new();
        ledger.notes.retain(|note| said.insert(note.clone()));
        Ok(Report {
            version: 1,
            filesystem: place.file_system.clone(),
            device: place.device_name(),
            device_model: place.device_model(),
            flash_model: place.flash_model(),
            aged: place.aged,
            kernel: place::kernel_release(),
            sqlite: rusqlite::version().to_owned(),
            sqlite_sync: SYNC_CALL,
            raw: Raw::of(&ledger.samples, raw.map_or(0, RawBench::writes)),
            runs: ledger.runs,
            ratios,
            peak_rss_kib: process_peak_kib(),
            failed: ledger.failed,
            notes: ledger.notes,
        })
    }

    fn rounds(
        &self,
        ledger: &mut Ledger,
        place: &Place,
        raw: Option<&RawBench<'_>>,
        progress: &Progress,
    ) -> Result<Option<Ratios>, String> {
        let Rounds {
            least,
            most,
            within,
        } = self.rounds;
        let mut looks = Looks::new(least, most);
        progress.expect(0);
        let begun = Instant::now();
        let mut ratios = None;
        for round in 1..=looks.most() {
            let expected = match self.has_pairs(&ledger.failed) {
                true => looks.next(),
                false => least,
            };
            progress.expect_in_all(expected * self.modes.len() as u32);
            // Of the rounds that were asked for, not of those that are added.
            let raw = raw.filter(|_| round <= least);
            self.round(round, ledger, place, raw, progress)?;
            let later = begun.elapsed() + begun.elapsed() / round;
            let is_late = round >= least && within.is_some_and(|within| later > within);
            let is_alone = round >= least && !self.has_pairs(&ledger.failed);
            let is_last = ledger.is_cut || is_late || is_alone || round == looks.most();
            if let Some(error) = looks.look(round, is_last) {
                ratios = Ratios::of(&ledger.runs, error);
                let is_decided = !ratios.as_ref().is_some_and(self.is_open);
                if is_last || is_decided && round >= least {
                    break;
                }
            }
        }
        Ok(ratios)
    }

    /// Whether there is stock WAL, and another mode to compare with it, of those that did not fail.
    fn has_pairs(&self, failed: &[Failed]) -> bool {
        let runs = |mode: &&Mode| failed.iter().all(|failed| failed.mode != mode.spec());
        let modes: Vec<&Mode> = self.modes.iter().filter(runs).collect();
        let first = modes.first().map(|mode| mode.spec());
        modes.iter().any(|mode| mode.journal().name == "wal")
            && modes.iter().any(|mode| Some(mode.spec()) != first)
    }

    /// Every mode once, except those that failed before.
    fn round(
        &self,
        round: u32,
        ledger: &mut Ledger,
        place: &Place,
        raw: Option<&RawBench<'_>>,
        progress: &Progress,
    ) -> Result<(), String> {
        for at in order(self.modes.len(), round, self.plan.seed) {
            let Some(mode) = self.modes.get(at) else {
                continue;
            };
            progress.next_run();
            if ledger
                .failed
                .iter()
                .any(|failed| failed.mode == mode.spec())
            {
                continue;
            }
            let before = ledger.samples.last().copied();
            let measured = session::run(self.terms, self.plan, place, mode, round, progress)
                .and_then(|measured| ledger.sample(raw, progress).map(|()| measured));
            match measured {
                Ok((run, said)) => {
                    let after = raw.and(ledger.samples.last().copied());
                    let around = before.zip(after);
                    let raw_around = around.map(|(before, after)| RawAround::of(before, after));
                    ledger.notes.extend(behind(&run));
                    ledger.notes.extend(said);
                    ledger.runs.push(Run {
                        raw_around: raw_around.unwrap_or_default(),
                        ..run
                    });
                }
                Err(error) if interrupt::is_requested() => {
                    let note = interrupt::cut_short(ledger.runs.len(), error)?;
                    ledger.notes.push(note);
                    ledger.is_cut = true;
                    return Ok(());
                }
                Err(error) => ledger.failed.push(Failed {
                    mode: mode.spec().to_owned(),
                    error,
                }),
            }
        }
        Ok(())
    }
}

impl Ledger {
    fn sample(&mut self, raw: Option<&RawBench<'_>>, progress: &Progress) -> Result<(), String> {
        if let Some(bench) = raw {
            progress.say("raw device rates");
            let rates = bench.measure().map_err(|error| error.to_string())?;
            self.samples.push(rates);
        }
        Ok(())
    }
}

/// The raw rates of the device below a place. One thread writes, so a worker's count of transactions
/// is enough.
pub fn raw_bench(place: &Place, count: u32) -> Result<RawBench<'_>, String> {
    let bench = RawBench::prepare(place.root(), count);
    let bench = bench.map_err(|error| directory::explain(place.given(), &error))?;
    Ok(bench.stopped_by(interrupt::requested()))
}

/// The order of so many modes in a round, from 1.
pub fn order(modes: usize, round: u32, seed: u64) -> Vec<usize> {
    let mut order: Vec<u32> = (0..u32::try_from(modes).unwrap_or(u32::MAX)).collect();
    let pair = round.saturating_sub(1) / 2;
    if pair > 0 {
        onewrite_workload::shuffle(&mut order, seed ^ u64::from(pair) << 32);
    }
    if round.is_multiple_of(2) {
        order.reverse();
    }
    order.into_iter().map(|at| at as usize).collect()
}

/// The note on a mode that did not keep up with the rate.
fn behind(run: &Run) -> Option<String> {
    /// The moments are drawn, and the last transaction takes its time: less than the rate is not
    /// behind it yet.
    const MUCH: f64 = 0.8;
    let due = run.rate.map(f64::from)?;
    (run.ops_per_s < MUCH * due).then(|| {
        format!(
            "{} kept up with {:.0} of {due} transactions a second: its latencies grow with the length of the run",
            run.mode, run.ops_per_s
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_two_modes_precede_each_other_equally_often() {
        let mut before = 0;
        for round in 1..=40 {
            let order = order(5, round, 7);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3, 4]);
            let place = |mode: usize| order.iter().position(|at| *at == mode);
            before += u32::from(place(1) < place(4));
        }
        assert_eq!(before, 20);
        assert_eq!(order(3, 1, 7), [0, 1, 2]);
        assert_eq!(order(3, 2, 7), [2, 1, 0]);
        let drawn = |seed| {
            (3..20)
                .map(|round| order(5, round, seed))
                .collect::<Vec<_>>()
        };
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
    }
}
