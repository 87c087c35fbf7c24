//! One round records a history and cuts it at many points. It also cuts some of recovery's writes.

use std::path::{Path, PathBuf};

use onewrite_flash::cut::{Cutter, Tear};
use onewrite_flash::history::Position;
use onewrite_flash::image::Image;
use onewrite_flash::random::Random;
use onewrite_torture::failure::{Failure, Promise};
use onewrite_workload::mode::Vfs;
use serde::Serialize;

use super::case::{Case, CutAt};
use super::promise::{Contract, Expected};
use super::protocol::{Check, FileSystemArg, Found, Opening, Work};
use super::test_device::{Recorded, Stop, TestDevice};
use super::workload::Workload;
use onewrite_cli::interrupt;

/// Percentage of cuts that are followed by a second cut in recovery's writes.
const SECOND_PERCENT: u32 = 25;
/// Percentage of checks that show a guarded database to stock SQLite first.
const STOCK_PERCENT: u32 = 15;
/// Transactions after a cut, if work goes on.
const SECOND_LIFE_TRANSACTIONS: u32 = 4;

/// The settings of every round.
#[derive(Clone, Debug)]
pub struct Plan {
    pub file_system: FileSystemArg,
    pub mode: String,
    pub vfs: Vfs,
    pub journal: &'static str,
    pub contract: Contract,
    pub tear: Tear,
    pub transactions: u32,
    pub seed: u64,
    pub keep: PathBuf,
}

/// The counts of all rounds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Tally {
    /// Histories recorded.
    pub histories: u64,
    /// Their writes and flushes.
    pub writes: u64,
    pub flushes: u64,
    /// Flushes that stand for FUA writes.
    pub write_throughs: u64,
    /// Commits acknowledged in them.
    pub acknowledged: u64,
    /// Crash images checked, first cuts and second ones.
    pub images: u64,
    pub second_images: u64,
    /// First cuts that differ in what survived.
    pub distinct_images: u64,
    /// Images in which some write was lost or torn.
    pub images_with_losses: u64,
    /// Over all images: writes that were in the cache, lost whole, and torn.
    pub cached_writes: u64,
    pub lost_writes: u64,
    pub torn_writes: u64,
    /// Images in which the database was guarded.
    pub guarded: u64,
    /// Acknowledged commits that were lost as the mode allows, over all images.
    pub commits_lost_as_allowed: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Self) {
        self.histories += other.histories;
        self.writes += other.writes;
        self.flushes += other.flushes;
        self.write_throughs += other.write_throughs;
        self.acknowledged += other.acknowledged;
        self.images += other.images;
        self.second_images += other.second_images;
        self.distinct_images += other.distinct_images;
        self.images_with_losses += other.images_with_losses;
        self.cached_writes += other.cached_writes;
        self.lost_writes += other.lost_writes;
        self.torn_writes += other.torn_writes;
        self.guarded += other.guarded;
        self.commits_lost_as_allowed += other.commits_lost_as_allowed;
    }

    fn recorded(&mut self, recorded: &Recorded) {
        use super::protocol::{Note, What};
        use onewrite_flash::history::Event;
        self.histories += 1;
        self.write_throughs += recorded.write_throughs() as u64;
        for event in recorded.history.events() {
            match event {
                Event::Flush(_) => self.flushes += 1,
                Event::Mark(_) => {}
                Event::Write { .. } | Event::Zero { .. } => self.writes += 1,
            }
        }
        let acknowledged = |note: &&Note| {
            matches!(
                note,
                Note::Commit {
                    what: What::Acknowledged,
                    ..
                }
            )
        };
        self.acknowledged += recorded.notes.iter().filter(acknowledged).count() as u64;
    }
}

/// The reason why a round ended early.
pub enum Ended {
    /// A promise was broken. The case is kept, or the reason is here why not.
    Found {
        failure: Failure,
        workload: Workload,
        round: u64,
        cut: Option<usize>,
        kept: Result<PathBuf, String>,
    },
    Stop(Stop),
}

impl From<Stop> for Ended {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

/// One round on one device.
pub struct Round<'a> {
    pub plan: &'a Plan,
    pub device: &'a mut TestDevice,
    pub workload: Workload,
    pub number: u64,
    pub tally: Tally,
}

/// A recorded history, and the medium that it began on.
struct Recording<'a> {
    base: &'a Image,
    recorded: &'a Recorded,
    before: Option<Found>,
}

impl Round<'_> {
    fn seed(&self) -> u64 {
        Random::of_part(self.plan.seed, self.number).next()
    }

    /// Records a history and checks `cuts` crash images of it. Asks `goes_on` before each, and
    /// stops if it refuses.
    pub fn run(&mut self, cuts: usize, goes_on: &dyn Fn() -> bool) -> Result<(), Ended> {
        let work = Work {
            workload: self.workload,
            transactions: self.plan.transactions,
            seed: self.seed(),
        };
        let recorded = self.device.record(work).map_err(|stop| self.unkept(stop))?;
        self.tally.recorded(&recorded);
        let base = self.device.empty().clone();
        let recording = Recording {
            base: &base,
            recorded: &recorded,
            before: None,
        };
        let mut random = Random::of_part(self.seed(), 1);
        let end = recorded.closed().0;
        let mut positions: Vec<_> = (0..cuts).map(|_| random.below(end + 1)).collect();
        positions.sort_unstable();
        let mut seen = std::collections::HashSet::new();
        let mut cutter = self.cutter(&recording);
        for (nth, position) in positions.into_iter().enumerate() {
            if interrupt::is_requested() {
                return Err(Stop::Interrupted.into());
            }
            cutter.advance(Position(position));
            let seed = Random::of_part(self.seed(), nth as u64 + 2).next();
            if !goes_on() {
                break;
            }
            self.cut(&recording, &cutter, seed, nth, Some(&mut seen))?;
        }
        Ok(())
    }

    fn cutter<'s>(&self, recording: &Recording<'s>) -> Cutter<'s> {
        let never_torn = self.device.never_torn();
        Cutter::new(recording.base.clone(), &recording.recorded.history).never_torn(never_torn)
    }

    fn unkept(&self, stop: Stop) -> Ended {
        match stop {
            Stop::Failed(failure @ Failure::Broken { .. }) => Ended::Found {
                failure,
                workload: self.workload,
                round: self.number,
                cut: None,
                kept: Err("it happened while the history was recorded, before any cut".to_owned()),
            },
            stop => Ended::Stop(stop),
        }
    }

    /// Cuts at the cutter's position and checks; sometimes cuts again.
    fn cut(
        &mut self,
        recording: &Recording<'_>,
        cutter: &Cutter<'_>,
        seed: u64,
        nth: usize,
        seen: Option<&mut std::collections::HashSet<u64>>,
    ) -> Result<(), Ended> {
        let mut random = Random::new(seed);
        let crash = cutter.crash(random.next(), self.plan.tear);
        let is_second = recording.before.is_some();
        let again = !is_second && random.percent(SECOND_PERCENT);
        let check = self.draw_check(&mut random, again);
        self.tally.cached_writes += crash.cached as u64;
        self.tally.lost_writes += crash.lost as u64;
        self.tally.torn_writes += crash.torn as u64;
        self.tally.images_with_losses += u64::from(crash.lost + crash.torn > 0);
        self.tally.distinct_images += u64::from(seen.is_some_and(|s| s.insert(crash.fingerprint)));
        let (after, found) = self.device.check(crash.image.clone(), check);
        let expected = Expected::at(
            &recording.recorded.history,
            &recording.recorded.notes,
            cutter.position(),
            recording.before,
        );
        let verdict = found.and_then(|found| {
            let lost = self.plan.contract.judge(&expected, &found)?;
            unchanged(recording, &found)?;
            Ok((found, lost))
        });
        let (found, lost) = match verdict {
            Ok(good) => good,
            Err(stop) => {
                let at = CutAt {
                    position: cutter.position().0,
                    seed,
                    tear: self.plan.tear.into(),
                };
                return Err(self.keep(stop, recording, at, check, nth, &crash.image));
            }
        };
        self.tally.guarded += u64::from(found.guarded);
        self.tally.commits_lost_as_allowed += lost;
        match is_second {
            true => self.tally.second_images += 1,
            false => self.tally.images += 1,
        }
        if !again {
            return Ok(());
        }
        let recording = Recording {
            base: &crash.image,
            recorded: &after,
            before: Some(found),
        };
        let mut cutter = self.cutter(&recording);
        cutter.advance(Position(random.below(after.history.end().0 + 1)));
        self.cut(&recording, &cutter, random.next(), nth, None)
    }

    fn draw_check(&self, random: &mut Random, again: bool) -> Check {
        let ours = self.plan.vfs == Vfs::Onewrite;
        let opening = match (ours, self.plan.journal, random.below(4)) {
            (false, _, 0..2) | (true, "direct", 0) => Opening::Stock,
            (true, _, 0..2) => Opening::Plain,
            _ => Opening::AsApplication,
        };
        let goes_on = again && opening != Opening::Stock && random.percent(60);
        Check {
            opening,
            show_to_stock: ours && random.percent(STOCK_PERCENT),
            then: goes_on.then(|| Work {
                workload: Workload::Checkpoint,
                transactions: SECOND_LIFE_TRANSACTIONS,
                seed: random.next(),
            }),
        }
    }

    fn keep(
        &self,
        stop: Stop,
        recording: &Recording<'_>,
        at: CutAt,
        check: Check,
        nth: usize,
        image: &Image,
    ) -> Ended {
        let failure = match stop {
            Stop::Failed(failure @ Failure::Broken { .. }) => failure,
            stop => return Ended::Stop(stop),
        };
        let case = Case {
            version: 1,
            failure: failure.to_string(),
            file_system: self.plan.file_system,
            mode: self.plan.mode.clone(),
            workload: self.workload,
            fua: self.device.has_fua(),
            broken: self.device.broken(),
            run_seed: self.plan.seed,
            round: self.number,
            cut: nth,
            at,
            check,
            never_torn: self.device.never_torn().to_vec(),
            before: recording.before,
            notes: recording.recorded.notes.clone(),
        };
        let name = format!("powercut-{}-{}-{nth}", self.plan.seed, self.number);
        let directory = self.plan.keep.join(name);
        let kept = case.save(
            &directory,
            recording.base,
            &recording.recorded.history,
            image,
        );
        Ended::Found {
            failure,
            workload: self.workload,
            round: self.number,
            cut: Some(nth),
            kept: kept.map(|()| directory),
        }
    }
}

/// A second power cut in recovery changes nothing: the check finds the same again.
fn unchanged(recording: &Recording<'_>, found: &Found) -> Result<(), Failure> {
    use super::protocol::{Note, What};
    let Some(before) = recording.before else {
        return Ok(());
    };
    let worked = recording.recorded.notes.iter().any(|note| {
        matches!(
            note,
            Note::Commit {
                what: What::Intent,
                ..
            }
        )
    });
    if worked || (before.tables, before.last) == (found.tables, found.last) {
        return Ok(());
    }
    let detail = format!("the first recovery found {before:?}, the second {found:?}");
    Err(Failure::broken(Promise::AcknowledgedCommitsSurvive, detail))
}

/// Repeats the cut of a kept case and checks it.
pub fn replay(device: &mut TestDevice, directory: &Path, case: &Case) -> Result<Found, Stop> {
    let (base, history) = case
        .history(directory)
        .map_err(|error| Stop::Failed(Failure::Harness(error)))?;
    let mut cutter = Cutter::new(base.clone(), &history).never_torn(&case.never_torn);
    cutter.advance(Position(case.at.position));
    let mut random = Random::new(case.at.seed);
    let crash = cutter.crash(random.next(), case.at.tear.into());
    let (_, found) = device.check(crash.image, case.check);
    let found = found?;
    let mode = onewrite_workload::mode::Mode::parse(&case.mode)
        .map_err(|error| Stop::Failed(Failure::Harness(error.to_string())))?;
    let contract = super::contract(&mode, case.broken)
        .map_err(|error| Stop::Failed(Failure::Harness(error)))?;
    let expected = Expected::at(&history, &case.notes, cutter.position(), case.before);
    contract.judge(&expected, &found)?;
    let recorded = Recorded {
        history,
        notes: case.notes.clone(),
    };
    let recording = Recording {
        base: &base,
        recorded: &recorded,
        before: case.before,
    };
    unchanged(&recording, &found)?;
    Ok(found)
}
