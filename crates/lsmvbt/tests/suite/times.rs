//! A history by time: which versions it keeps, whatever the clock does, and what they cost.

use lsmvbt::{Db, Durability, Error, MemoryFile, PowerCut, Torn, TreeId, TreeKind, Version};

use crate::drive::options;
use crate::random::{Random, Seed, seeds};

const TREE: TreeId = TreeId(1);
/// Seconds of history, and between two samples.
const SPAN: u32 = 640;
const RESOLUTION: u32 = SPAN / 64;
const BEGIN: u32 = 1_800_000_000;

struct World {
    file: MemoryFile,
    torn: Torn,
    db: Option<Db>,
    /// The clock, and the seconds that have really passed.
    clock: u32,
    real: u32,
    /// Each commit: its version, the clock's time, the real time. Its number is the row's value.
    commits: Vec<(Version, u32, u32)>,
}

impl World {
    fn new(torn: Torn) -> World {
        let file = MemoryFile::new();
        file.set_clock(BEGIN);
        let mut world = World {
            file,
            torn,
            db: None,
            clock: BEGIN,
            real: 0,
            commits: Vec::new(),
        };
        let db = world.db();
        db.begin_write().unwrap();
        assert_eq!(db.create_tree(TreeKind::Integer).unwrap(), TREE);
        db.commit(Durability::Flush).unwrap();
        db.set_history_time(SPAN).unwrap();
        world
    }

    fn db(&mut self) -> &mut Db {
        let (file, torn) = (&self.file, self.torn);
        self.db
            .get_or_insert_with(|| Db::open(file.storage(), options(torn)).unwrap())
    }

    /// Seconds pass, and the clock says so.
    fn wait(&mut self, seconds: u32) {
        self.real += seconds;
        self.set_clock(self.clock + seconds);
    }

    fn set_clock(&mut self, clock: u32) {
        self.clock = clock;
        self.file.set_clock(clock);
    }

    fn commit(&mut self) {
        let value = (self.commits.len() as u64).to_le_bytes();
        let db = self.db();
        db.begin_write().unwrap();
        db.put_integer(TREE, 1, &value).unwrap();
        let version = db.commit(Durability::Flush).unwrap();
        self.commits.push((version, self.clock, self.real));
    }

    /// Power is cut, or the process is killed; nothing that was committed is lost.
    fn crash(&mut self, power: bool, dice: &mut Random) {
        let db = self.db.take();
        if power {
            self.file
                .power_cut(PowerCut::Atomic, &mut |n| dice.below(n));
        } else {
            self.file.kill_all();
        }
        db.into_iter().for_each(Db::abandon);
    }

    fn value(&mut self, version: Version) -> lsmvbt::Result<Option<u64>> {
        let db = self.db();
        let view = db.snapshot_at(version)?;
        let found = db.get_integer(view.version(), TREE, 1)?;
        Ok(found.map(|value| u64::from_le_bytes(value.try_into().unwrap())))
    }

    /// The commit that was the newest at a time, by the samples.
    fn value_at(&mut self, time: u32) -> lsmvbt::Result<Option<u64>> {
        let version = self.db().version_at(time)?;
        self.value(version)
    }

    /// The number of the oldest commit that counts as kept.
    fn oldest(&mut self) -> usize {
        let oldest = self.db().status().unwrap().oldest;
        self.commits.partition_point(|commit| commit.0 < oldest)
    }

    /// Nothing of the span has been dropped.
    fn check_age(&mut self) {
        let oldest = self.oldest();
        assert!(oldest == 0 || self.age(oldest - 1) >= SPAN);
    }

    /// Every version that counts as kept shows what it showed. Returns the number of the oldest.
    fn check(&mut self) -> usize {
        let oldest = self.db().status().unwrap().oldest;
        let commits = self.commits.clone();
        for (number, (version, ..)) in commits.iter().enumerate() {
            match self.value(*version) {
                Ok(value) => assert_eq!(value, Some(number as u64)),
                Err(Error::NoSuchVersion { .. }) => assert!(*version < oldest),
                Err(e) => panic!("{e}"),
            }
        }
        assert_eq!(self.db().check().unwrap(), Vec::<String>::new());
        self.oldest()
    }

    /// Real seconds since a commit was replaced by the next one.
    fn age(&self, number: usize) -> u32 {
        let ended = self.commits.get(number + 1).map_or(self.real, |c| c.2);
        self.real - ended
    }
}

#[test]
fn the_versions_of_the_span_are_kept_and_older_ones_go() {
    for torn in [Torn::Trust, Torn::Double] {
        let mut world = World::new(torn);
        for step in 0..400 {
            world.wait(4);
            world.commit();
            world.check_age();
            if step % 50 == 49 {
                let oldest = world.check();
                assert!(world.age(oldest) <= SPAN + 3 * RESOLUTION, "{step}");
            }
        }
        assert_eq!(world.db().status().unwrap().history_seconds, SPAN);
        // Each time of the span has its version, to the resolution.
        for back in 0..SPAN {
            let time = world.clock - back;
            let found = world.value_at(time).unwrap().unwrap() as usize;
            let right = world.commits.partition_point(|c| c.1 <= time) - 1;
            assert!(found <= right, "{back}");
            assert!(time - world.commits[found].1 < RESOLUTION + 4, "{back}");
        }
        let error = world.value_at(BEGIN).unwrap_err();
        assert!(matches!(
            error,
            Error::NoVersionAt {
                oldest: Some(_),
                ..
            }
        ));
        assert!(
            error.to_string().contains("not to 2027-01-15 08:00:00"),
            "{error}"
        );
        assert_eq!(world.value_at(u32::MAX).unwrap(), Some(399));
    }
}

/// A span that is not a multiple of 64 seconds has no more samples than the directory takes.
#[test]
fn a_version_by_time_is_never_a_younger_one() {
    for span in [90, 120, 180, 250] {
        let mut world = World::new(Torn::Trust);
        world.db().set_history_time(span).unwrap();
        for _ in 0..2 * span {
            world.wait(1);
            world.commit();
        }
        for back in 0..span {
            let time = world.clock - back;
            let found = world.value_at(time).unwrap().unwrap() as usize;
            let right = world.commits.partition_point(|c| c.1 <= time) - 1;
            assert!(found <= right, "{span}: {back}");
            let age = time - world.commits[found].1;
            assert!(age <= span.div_ceil(64) + 1, "{span}: {back} {age}");
        }
    }
}

/// A time between two commits belongs to the earlier one.
#[test]
fn a_time_after_the_last_commit_of_a_sample_is_known_exactly() {
    let mut world = World::new(Torn::Trust);
    for _ in 0..3 {
        world.commit();
        world.wait(2);
        world.commit();
        world.wait(100);
    }
    for (number, late) in [
        (0, 0),
        (0, 9),
        (1, 10),
        (1, 101),
        (2, 102),
        (2, 103),
        (3, 200),
        (5, 305),
    ] {
        let found = world.value_at(BEGIN + late).unwrap();
        assert_eq!(found, Some(number), "after {late} s");
    }
    world.value_at(BEGIN - 1).unwrap_err();
}

/// A commit writes its page and flushes once. In each 64th of the span one writes the directory too.
#[test]
fn times_cost_a_page_for_each_sample_and_no_flush() {
    let mut world = World::new(Torn::Trust);
    world.commit();
    world.commit();
    let mut counts = |seconds: u32, commits: u32| {
        let before = world.db().stats();
        for _ in 0..commits {
            world.wait(seconds);
            world.commit();
        }
        let after = world.db().stats();
        let pages = after.pages_written - before.pages_written;
        (pages, after.flushes - before.flushes)
    };
    assert_eq!(counts(0, 50), (50, 50));
    assert_eq!(counts(1, 50), (55, 50));
    assert_eq!(counts(RESOLUTION, 20), (40, 20));
}

#[test]
fn times_are_known_after_crashes_and_by_other_handles() {
    for torn in [Torn::Trust, Torn::Double] {
        let mut world = World::new(torn);
        let mut dice = Random::new(3);
        for round in 0..30 {
            for _ in 0..5 {
                world.wait(RESOLUTION);
                world.commit();
            }
            world.crash(round % 2 == 0, &mut dice);
            let first = world.commits.len().saturating_sub(60);
            for number in first..world.commits.len() {
                let time = world.commits[number].1;
                assert_eq!(world.value_at(time).unwrap(), Some(number as u64));
            }
            let mut other = Db::open(world.file.storage(), options(torn)).unwrap();
            let time = world.commits[world.commits.len() - 2].1;
            let version = other.version_at(time).unwrap();
            assert_eq!(version, world.commits[world.commits.len() - 2].0);
        }
        world.check();
    }
}

/// A clock that is set back drops nothing, and what it has dated far ahead goes when its time is over.
#[test]
fn a_clock_that_jumps_back_drops_nothing_and_keeps_nothing_for_ever() {
    let year = 365 * 86_400;
    for (ahead, forward) in [(year, true), (100, true), (year, false)] {
        let mut world = World::new(Torn::Trust);
        world.set_clock(BEGIN + ahead);
        for _ in 0..40 {
            world.wait(RESOLUTION);
            world.commit();
        }
        world.set_clock(world.clock - ahead);
        for _ in 0..20 {
            world.wait(RESOLUTION);
            world.commit();
            assert_eq!(world.check(), 0, "nothing is older than the span");
        }
        if forward {
            // An eighth of the span is lost, not all of it.
            world.set_clock(world.clock + ahead);
        }
        world.commit();
        let oldest = world.check();
        assert!(world.age(oldest) + SPAN / 8 + 3 * RESOLUTION > world.age(0).min(SPAN));
        for _ in 0..64 {
            world.wait(RESOLUTION);
            world.commit();
        }
        let oldest = world.check();
        assert!(
            (59..=60).contains(&oldest),
            "{oldest}: all from before the last jump is gone"
        );
    }
}

/// Times without commits, jumps of the clock, crashes, other spans: what counts as kept is there, and
/// without jumps that is all of the span.
#[test]
fn nothing_of_the_span_is_lost_whatever_happens() {
    for seed in seeds(20) {
        let _seed = Seed("nothing_of_the_span_is_lost_whatever_happens", seed);
        let mut dice = Random::new(seed);
        let torn = *dice.pick(&[Torn::Trust, Torn::Double]);
        let mut world = World::new(torn);
        let jumps = dice.chance(50);
        for _ in 0..300 {
            let longest = if dice.chance(10) { 200 } else { 8 };
            world.wait(dice.below(longest) as u32);
            if jumps && dice.chance(2) {
                world.set_clock(BEGIN + dice.below(100_000) as u32);
            }
            if dice.chance(3) {
                let power = dice.chance(50);
                world.crash(power, &mut dice);
            }
            world.commit();
            if !jumps {
                world.check_age();
            }
        }
        world.check();
    }
}

#[test]
fn a_history_changes_between_versions_and_time() {
    let mut world = World::new(Torn::Trust);
    world.db().set_history(5).unwrap();
    assert!(matches!(world.value_at(BEGIN), Err(Error::NoTimes)));
    for _ in 0..10 {
        world.wait(RESOLUTION);
        world.commit();
    }
    assert_eq!(world.check(), 4);
    // The versions kept so far count as of now.
    world.db().set_history_time(SPAN).unwrap();
    let oldest = world.check();
    world.wait(5);
    for _ in 0..60 {
        world.commit();
        world.wait(RESOLUTION);
        assert_eq!(world.check(), oldest);
    }
    for _ in 0..10 {
        world.commit();
        world.wait(RESOLUTION);
    }
    assert!(world.check() > oldest);
    world.db().set_history(1000).unwrap();
    let oldest = world.check();
    for _ in 0..100 {
        world.wait(RESOLUTION);
        world.commit();
    }
    assert_eq!(world.check(), oldest);
    world.db().set_history_time(SPAN).unwrap();
    world.commit();
    assert_eq!(world.check(), oldest);
    world.db().set_history_time(0).unwrap();
    world.commit();
    assert_eq!(world.check(), world.commits.len() - 1);
}

/// The directory has both samples and what the history keeps of the catalog.
#[test]
fn samples_leave_room_for_the_catalog() {
    let changes = |seconds: u32| {
        let mut world = World::new(Torn::Trust);
        let mut done = 0;
        let mut left: Vec<TreeId> = Vec::new();
        loop {
            world.wait(seconds);
            let db = world.db();
            db.begin_write().unwrap();
            // Chunks of the catalog are full of trees that are gone.
            let changed = match done % 2 {
                0 => (0..640).try_for_each(|_| {
                    left.push(db.create_tree(TreeKind::Integer)?);
                    Ok(())
                }),
                _ => left.drain(..).try_for_each(|tree| db.drop_tree(tree)),
            };
            match changed {
                Ok(()) => drop(db.commit(Durability::Flush).unwrap()),
                Err(Error::TooBig(_)) => break,
                Err(e) => panic!("{e}"),
            }
            done += 1;
            assert!(done < 2000);
        }
        world.db().rollback().unwrap();
        assert_eq!(world.db().check().unwrap(), Vec::<String>::new());
        done
    };
    let (without, with) = (changes(0), changes(2));
    assert!(without > 50 && without - with < 10, "{without}, {with}");
}

/// Found by a review: the answer was a number from before the history, or that of a lost version.
#[test]
fn a_time_is_that_of_a_version_that_can_be_read() {
    let mut of_recovery = 0;
    for seed in seeds(60) {
        let _told = Seed("readable", seed);
        let mut dice = Random::new(seed);
        let torn = [Torn::Trust, Torn::Double][dice.below(2) as usize];
        let mut world = World::new(torn);
        world.db().set_history(0).unwrap();
        for _ in 0..dice.below(5) {
            world.commit();
        }
        // A transaction that has written pages and is cut.
        let db = world.db();
        db.begin_write().unwrap();
        for key in 0..3000 {
            db.put_integer(TREE, key, &[1; 300]).unwrap();
        }
        world.crash(dice.below(2) == 0, &mut dice);
        let newest = world.db().status().unwrap().current;
        let known = world.commits.last().map(|commit| commit.0);
        of_recovery += u32::from(known.is_some_and(|known| known < newest));
        world.db().set_history_time(SPAN).unwrap();
        for _ in 0..4 {
            world.wait(dice.below(40) as u32);
            world.commit();
        }
        world.wait(1);
        for time in BEGIN..=world.clock {
            match world.db().version_at(time) {
                Ok(version) => drop(world.value(version).expect("it can be read")),
                Err(Error::NoVersionAt { .. }) => {}
                Err(e) => panic!("{e}"),
            }
        }
    }
    println!("{of_recovery} began with a state that recovery made");
}
