//! The promise of each mode, and the judgment whether the state after a cut keeps it.

use std::collections::HashSet;
use std::fmt;

use onewrite_flash::history::{History, Position};
use onewrite_torture::failure::{Failure, Promise};
use onewrite_workload::mode::{Mode, Synchronous};

use super::case::TearArg;
use super::protocol::{Found, Note, Point, What};

/// Every transaction of the workloads writes at least this many pages: clock, commits, their index,
/// and totals.
const LEAST_FRAMES: u64 = 4;
/// The pages of the tables and indexes, at least, and one of the schema.
const CREATION_FRAMES: u64 = 10;
/// The time that scheduling may add to the milliseconds of group synch.
const TOLERANCE_MICROS: u64 = 500_000;

/// The acknowledged commits that may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contract {
    /// Nothing.
    Full,
    /// Any number of the newest, back to the last complete checkpoint.
    Prefix,
    /// The newest, up to this many frames and this many milliseconds.
    Group { frames: u64, milliseconds: u64 },
}

impl fmt::Display for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("every acknowledged commit"),
            Self::Prefix => f.write_str("a prefix of the commits"),
            Self::Group {
                frames,
                milliseconds,
            } => write!(f, "all but the newest {frames} frames or {milliseconds} ms"),
        }
    }
}

impl Contract {
    /// The contract of `mode`.
    pub fn of(mode: &Mode) -> Result<Self, String> {
        let level = mode.synchronous().unwrap_or(Synchronous::Full);
        let value = |name: &str| {
            let pragma = mode.pragmas().iter().rev().find(|p| p.name == name);
            pragma.map(|pragma| pragma.value.trim_matches('\''))
        };
        let journal = mode.journal().name;
        if level == Synchronous::Off || matches!(journal, "off" | "memory") {
            return Err(format!("mode {mode} promises nothing after a power cut"));
        }
        let in_full = level != Synchronous::Normal && value("onewrite_sync") != Some("normal");
        if mode.journal().is_lsmvbt() && value("lsmvbt_torn") == Some("double") {
            // It flushes at every commit, at every level.
            return Ok(Self::Full);
        }
        if !in_full && !mode.journal().is_log() && !mode.journal().is_lsmvbt() {
            return Err(format!(
                "mode {mode}: SQLite's rollback journals promise nothing after a power cut below \
                 synchronous=full"
            ));
        }
        if journal == "delete" && level != Synchronous::Extra {
            return Err(format!(
                "mode {mode}: below synchronous=extra the deletion of the journal, which is the \
                 commit, is not durable when COMMIT returns"
            ));
        }
        let group = value("onewrite_group_synch").and_then(|group| group.split_once(','));
        match group {
            _ if !in_full => Ok(Self::Prefix),
            None => Ok(Self::Full),
            Some((frames, milliseconds)) => Ok(Self::Group {
                frames: frames.parse().map_err(|_| format!("mode {mode}: frames"))?,
                milliseconds: milliseconds
                    .parse()
                    .map_err(|_| format!("mode {mode}: milliseconds"))?,
            }),
        }
    }

    /// Whether a mode promises this on a device that tears writes in that way.
    pub fn holds_on(mode: &Mode, tear: TearArg) -> Result<(), String> {
        let mut trusts = mode.pragmas().iter().filter(|p| p.name == "lsmvbt_torn");
        match trusts.next_back() {
            Some(torn) if torn.value.contains("trust") && tear == TearArg::Sectors => Err(format!(
                "mode {mode} promises nothing on a device that tears writes at 512 bytes: add --tear 4k"
            )),
            _ => Ok(()),
        }
    }

    /// Judges whether `found` keeps the contract. Returns how many acknowledged commits were lost,
    /// within what it allows.
    pub fn judge(self, expected: &Expected, found: &Found) -> Result<u64, Failure> {
        if !found.tables {
            self.judge_missing(expected)?;
        }
        expected.was_meant(found.last)?;
        let mut lost = self.judge_one(expected, found.last, "the database")?;
        if let Some(before) = expected.second_life {
            // The work after a power cut leaves the attached database alone.
            return match found.mirror == before.mirror {
                true => Ok(lost),
                false => Err(tell_mirror(before.mirror, found.mirror)),
            };
        }
        if let Some(mirror) = found.mirror {
            expected.was_meant(mirror)?;
            lost += self.judge_one(expected, mirror, "the attached database")?;
        }
        Ok(lost)
    }

    /// Judges a database without its tables.
    fn judge_missing(self, expected: &Expected) -> Result<(), Failure> {
        let commits = expected.acknowledged.len() as u64;
        let may_be_lost = match self {
            _ if expected.created_for_good => false,
            _ if !expected.created => commits == 0,
            Self::Full => false,
            Self::Prefix => true,
            Self::Group { frames, .. } => CREATION_FRAMES + commits * LEAST_FRAMES <= frames,
        };
        match may_be_lost {
            true => Ok(()),
            false => Err(lost(format!(
                "the tables were acknowledged, and are gone; {commits} commits with them"
            ))),
        }
    }

    fn judge_one(self, expected: &Expected, last: Point, what: &str) -> Result<u64, Failure> {
        let gone: Vec<_> = expected
            .acknowledged
            .iter()
            .filter(|a| a.point.tick > last.tick)
            // The relaxed modes bound the loss, and let a reader see a commit before it is durable.
            .filter(|a| !a.was_read || self == Self::Full)
            .collect();
        let tell = |bound: &str| {
            lost(format!(
                "{what} ends at tick {}, {} acknowledged commits later than that are gone, up to \
                 tick {}; {bound}",
                last.tick,
                gone.len(),
                gone.iter().map(|a| a.point.tick).max().unwrap_or(0)
            ))
        };
        if last.tick < expected.floor {
            return Err(tell(&format!(
                "a complete checkpoint was acknowledged at tick {}",
                expected.floor
            )));
        }
        let changed = expected
            .acknowledged
            .iter()
            .find(|a| a.point.tick == last.tick && a.point.chain != last.chain);
        if let Some(changed) = changed {
            let acknowledged = changed.point;
            return Err(lost(format!(
                "{what} has {last:?}, acknowledged was {acknowledged:?}"
            )));
        }
        match self {
            Self::Full if !gone.is_empty() => return Err(tell("none may be lost")),
            Self::Full | Self::Prefix => {}
            Self::Group {
                frames,
                milliseconds,
            } => {
                let oldest = gone.iter().map(|a| expected.now - a.microseconds).max();
                if gone.len() as u64 * LEAST_FRAMES > frames {
                    return Err(tell(&format!("{frames} frames may be lost")));
                }
                if oldest > Some(milliseconds * 1000 + TOLERANCE_MICROS) {
                    return Err(tell(&format!(
                        "the oldest had been acknowledged for {} ms, {milliseconds} ms are allowed",
                        oldest.unwrap_or(0) / 1000
                    )));
                }
            }
        }
        Ok(gone.len() as u64)
    }
}

fn tell_mirror(before: Option<Point>, after: Option<Point>) -> Failure {
    lost(format!(
        "the attached database ended with {before:?}, and after a second power cut with {after:?}"
    ))
}

fn lost(detail: String) -> Failure {
    Failure::broken(Promise::AcknowledgedCommitsSurvive, detail)
}

#[derive(Clone, Copy, Debug)]
struct Acknowledged {
    point: Point,
    microseconds: u64,
    /// It counts as acknowledged because a reader has seen it.
    was_read: bool,
}

/// The events before a cut.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The creation of the tables was acknowledged.
    created: bool,
    /// A checkpoint followed it.
    created_for_good: bool,
    acknowledged: Vec<Acknowledged>,
    meant: HashSet<Point>,
    withdrawn: HashSet<Point>,
    /// The database ends at this tick or later, whatever the contract.
    floor: i64,
    /// The findings of the check before this history, if the power has gone before.
    second_life: Option<Found>,
    /// The time of the cut, in microseconds since the recording began.
    now: u64,
}

impl Expected {
    /// Collects the notes of a history before `position`. `before` is the medium's state when the
    /// history began.
    pub fn at(
        history: &History,
        notes: &[Note],
        position: Position,
        before: Option<Found>,
    ) -> Self {
        let start = before.map_or(Point { tick: 0, chain: 0 }, |found| found.last);
        let mut expected = Self {
            created: before.is_some_and(|found| found.tables),
            created_for_good: before.is_some_and(|found| found.tables),
            acknowledged: Vec::new(),
            meant: HashSet::from([start]),
            withdrawn: HashSet::new(),
            floor: start.tick,
            second_life: before,
            now: history.microseconds(position),
        };
        let mut latest = start.tick;
        let mut latest_at_checkpoint = start.tick;
        for (behind, mark) in history.marks(position) {
            match notes.get(mark as usize) {
                Some(Note::Created) => expected.created = true,
                Some(Note::CheckpointBegins) => latest_at_checkpoint = latest,
                Some(Note::CheckpointDone) => {
                    expected.floor = latest_at_checkpoint;
                    expected.created_for_good |= expected.created;
                }
                Some(Note::Commit { what, point, .. }) => {
                    expected.add(*what, *point, history.microseconds(behind));
                    if *what == What::Acknowledged {
                        latest = latest.max(point.tick);
                    }
                }
                Some(Note::Closed | Note::WriteThrough { .. } | Note::LogFlush | Note::LogCall)
                | None => {}
            }
        }
        expected
    }

    fn add(&mut self, what: What, point: Point, microseconds: u64) {
        match what {
            What::Intent => {
                self.meant.insert(point);
                self.withdrawn.remove(&point);
            }
            // A commit that a reader has seen counts like a promised one.
            What::Acknowledged | What::Read => self.acknowledged.push(Acknowledged {
                point,
                microseconds,
                was_read: what == What::Read,
            }),
            What::Withdrawn => {
                self.withdrawn.insert(point);
            }
        }
    }

    fn was_meant(&self, point: Point) -> Result<(), Failure> {
        // Before its first commit, the attached database stands at tick 0, whatever the first
        // database holds.
        if point.tick == 0 || self.meant.contains(&point) && !self.withdrawn.contains(&point) {
            return Ok(());
        }
        let history = match self.withdrawn.contains(&point) {
            true => "it was rolled back",
            false => "nobody ever meant to commit it",
        };
        Err(Failure::broken(
            Promise::NothingElseAppears,
            format!("the database ends with {point:?}: {history}"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use onewrite_flash::history::Event;

    use super::*;

    fn point(tick: i64) -> Point {
        Point {
            tick,
            chain: tick * 10,
        }
    }

    fn found(tick: i64) -> Found {
        Found {
            tables: true,
            last: point(tick),
            mirror: None,
            guarded: true,
        }
    }

    /// Ten commits, one a millisecond, and a complete checkpoint after the fifth.
    fn ten_commits() -> (History, Vec<Note>) {
        let (mut history, mut notes) = (History::default(), vec![Note::Created]);
        for tick in 1..=10 {
            for what in [What::Intent, What::Acknowledged] {
                notes.push(Note::Commit {
                    what,
                    writer: 0,
                    point: point(tick),
                });
            }
            if tick == 5 {
                notes.extend([Note::CheckpointBegins, Note::CheckpointDone]);
            }
        }
        for mark in 0..notes.len() as u64 {
            history.push(Event::Mark(mark), mark * 500);
        }
        (history, notes)
    }

    fn verdict(contract: Contract, found: Found) -> Result<u64, String> {
        let (history, notes) = ten_commits();
        let expected = Expected::at(&history, &notes, history.end(), None);
        contract
            .judge(&expected, &found)
            .map_err(|failure| failure.to_string())
    }

    #[test]
    fn full_loses_nothing() {
        assert_eq!(verdict(Contract::Full, found(10)), Ok(0));
        assert!(verdict(Contract::Full, found(9)).is_err());
    }

    #[test]
    fn what_was_read_may_be_lost_no_more_than_what_was_acknowledged() {
        let (mut history, mut notes) = ten_commits();
        let note = |what| Note::Commit {
            what,
            writer: 0,
            point: point(11),
        };
        for what in [What::Intent, What::Read] {
            notes.push(note(what));
            history.push(Event::Mark(notes.len() as u64 - 1), 9_000);
        }
        let expected = Expected::at(&history, &notes, history.end(), None);
        assert!(Contract::Full.judge(&expected, &found(10)).is_err());
        assert!(Contract::Full.judge(&expected, &found(11)).is_ok());
        assert!(Contract::Prefix.judge(&expected, &found(10)).is_ok());
    }

    #[test]
    fn a_prefix_reaches_back_to_the_last_checkpoint() {
        assert_eq!(verdict(Contract::Prefix, found(7)), Ok(3));
        assert_eq!(verdict(Contract::Prefix, found(5)), Ok(5));
        assert!(verdict(Contract::Prefix, found(4)).is_err());
    }

    #[test]
    fn group_synch_is_bounded_by_frames() {
        let group = |frames| Contract::Group {
            frames,
            milliseconds: 2,
        };
        assert_eq!(verdict(group(8), found(8)), Ok(2));
        assert!(verdict(group(8), found(7)).is_err());
    }

    #[test]
    fn what_nobody_meant_is_no_state() {
        let mut strange = found(10);
        strange.last.chain += 1;
        assert!(verdict(Contract::Prefix, strange).is_err());
        let mut empty = found(0);
        empty.tables = false;
        assert!(verdict(Contract::Prefix, empty).is_err());
        let mut behind = found(10);
        behind.mirror = Some(point(9));
        assert!(verdict(Contract::Full, behind).is_err());
        assert_eq!(verdict(Contract::Prefix, behind), Ok(1));
    }

    #[test]
    fn every_mode_has_its_contract() {
        let contract = |mode: &str| Contract::of(&Mode::parse(mode).unwrap());
        assert_eq!(contract("waldio"), Ok(Contract::Full));
        assert_eq!(contract("waldio:sync=normal"), Ok(Contract::Prefix));
        assert_eq!(contract("direct:synchronous=normal"), Ok(Contract::Prefix));
        let group = Contract::Group {
            frames: 40,
            milliseconds: 10,
        };
        assert_eq!(contract("waldio:group_synch=40/10"), Ok(group));
        assert_eq!(contract("delete:synchronous=extra"), Ok(Contract::Full));
        assert!(contract("wal:synchronous=off").is_err());
        assert!(contract("delete:synchronous=normal").is_err());
        assert!(contract("delete").is_err());
        assert_eq!(contract("lsmvbt:torn=trust"), Ok(Contract::Full));
        let normal = |torn: &str| contract(&format!("lsmvbt:torn={torn},synchronous=normal"));
        assert_eq!(normal("double"), Ok(Contract::Full));
        assert_eq!(normal("trust"), Ok(Contract::Prefix));
        assert_eq!(contract("lsmvbt:synchronous=normal"), Ok(Contract::Prefix));
        assert!(contract("lsmvbt:torn=double,synchronous=off").is_err());
    }
}
