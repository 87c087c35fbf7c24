//! Random runs of the model.

use super::recovery::Alive;
use super::*;
use crate::random::number;

/// The findings of runs.
#[derive(Default, Debug, Clone)]
pub struct Outcome {
    pub runs: u64,
    pub bugs: u64,
    pub crashes: u64,
    pub commits: u64,
    pub late_commits: u64,
    /// Torn pages that their carriers have repaired.
    pub repairs: u64,
    /// Commits whose page stays in its slot, and such pages that recovery has left there.
    pub stay_commits: u64,
    pub left_in_slots: u64,
    pub first: String,
}

pub fn runs(double: bool, mutant: Option<Mutant>, count: u64) -> Outcome {
    let mut sum = Outcome::default();
    let first = number("LSMVBT_FIRST").unwrap_or(0);
    for seed in first..first + count {
        one(seed, double, mutant, &mut sum);
    }
    sum
}

pub fn until_caught(double: bool, mutant: Mutant, seeds: impl Iterator<Item = u64>) -> Outcome {
    let mut sum = Outcome::default();
    for seed in seeds {
        one(seed, double, Some(mutant), &mut sum);
        if sum.bugs > 0 {
            break;
        }
    }
    sum
}

fn one(seed: u64, double: bool, mutant: Option<Mutant>, sum: &mut Outcome) {
    sum.runs += 1;
    if let Err(what) = Run::new(seed, double, mutant).all(sum) {
        sum.bugs += 1;
        if sum.first.is_empty() {
            sum.first = format!("seed {seed}: {what}");
        }
    }
}

struct Run {
    random: Random,
    double: bool,
    mutant: Option<Mutant>,
    world: World,
    /// Worlds that a crash may leave.
    candidates: Vec<World>,
    /// How many of the newest of them may be there: fewer where only the process has died.
    newest: Option<usize>,
    /// Whether the last of them is being committed.
    committing: bool,
    values: u64,
    /// Whether most transactions change one row.
    small: bool,
    /// Whether commits may have late pages.
    late: bool,
    shown: BTreeMap<u64, World>,
    /// The row that has changed last.
    last: Option<(u32, i64)>,
}

impl Run {
    fn new(seed: u64, double: bool, mutant: Option<Mutant>) -> Run {
        Run {
            random: Random::new(seed),
            double,
            mutant,
            world: World::new(),
            candidates: vec![World::new()],
            newest: None,
            committing: false,
            values: 0,
            small: false,
            late: seed % 2 == 1,
            shown: BTreeMap::new(),
            last: None,
        }
    }

    fn all(&mut self, sum: &mut Outcome) -> Result<(), String> {
        let mut disk = Disk::default();
        disk.tears = self.double;
        Engine::make(&mut disk, self.double);
        let random = Random::new(self.random.next());
        let mut engine = self.open(disk, random, 1, None).map_err(|e| match e.3 {
            Stop::Bug(what) => what,
            Stop::Crash => "a crash without a fuse".into(),
        })?;
        for _ in 0..12 {
            // With late pages and `Double`, most crashes come in the commits that leave them.
            let most = if self.late && self.double { 8 } else { 4 };
            engine.disk.fuse = match most - self.random.below(most) {
                3.. => None,
                2 => Some(1 + self.random.below(200)),
                _ => Some(1 + self.random.below(60)),
            };
            self.shown.retain(|id, _| engine.snapshots.contains_key(id));
            let stop = match self.round(&mut engine, sum) {
                Ok(()) => None,
                Err(Stop::Crash) => Some(()),
                Err(Stop::Bug(what)) => return Err(what),
            };
            sum.late_commits += engine.late_commits;
            sum.repairs += engine.repairs;
            sum.stay_commits += engine.stay_commits;
            sum.left_in_slots += engine.left_in_slots;
            (engine.late_commits, engine.repairs) = (0, 0);
            (engine.stay_commits, engine.left_in_slots) = (0, 0);
            if stop.is_some() {
                sum.crashes += 1;
            }
            engine = self.again(engine, stop.is_some())?;
        }
        Ok(())
    }

    fn open(
        &self,
        disk: Disk,
        random: Random,
        ids: u64,
        alive: Option<Alive>,
    ) -> Result<Engine, Box<(Disk, Random, u64, Stop)>> {
        Engine::open(disk, self.double, self.mutant, random, ids, alive)
    }

    /// Opens again, after a crash with more crashes on the way.
    fn again(&mut self, engine: Engine, crashed: bool) -> Result<Engine, String> {
        let mut alive = (self.late && crashed && self.random.chance(50)).then_some(Alive {
            next: engine.next,
            lost: engine.lost,
            current: engine.current,
            stays: engine.stays,
            snapshots: engine.snapshots,
        });
        let (mut disk, mut random, mut ids) = (engine.disk, engine.random, engine.ids);
        self.newest = Some(1 + usize::from(std::mem::take(&mut self.committing)));
        if crashed && !self.random.chance(40) {
            self.newest = None;
            alive = None;
            disk.power_cut(&mut self.random);
        }
        for attempt in 0.. {
            let fuse = crashed && attempt < 4 && self.random.chance(50);
            let most = *self.random.pick(&[8, 25]);
            disk.fuse = fuse.then(|| 1 + self.random.below(most));
            match self.open(disk, random, ids, alive.take()) {
                Ok(mut engine) => {
                    engine.disk.fuse = None;
                    return self.accept(engine).map_err(|e| match e {
                        Stop::Bug(what) => what,
                        Stop::Crash => "a crash without a fuse".into(),
                    });
                }
                Err(stopped) => {
                    let stop;
                    (disk, random, ids, stop) = *stopped;
                    if let Stop::Bug(what) = stop {
                        return Err(what);
                    }
                    if self.random.chance(70) {
                        self.newest = None;
                        disk.power_cut(&mut self.random);
                    }
                }
            }
        }
        Err("never".into())
    }

    fn accept(&mut self, mut engine: Engine) -> Step<Engine> {
        let found = engine.scan(engine.current, &mut BTreeSet::new())?;
        let states = self.candidates.len();
        let first = states - self.newest.take().unwrap_or(states).min(states);
        let known = self.candidates[first..].iter().rposition(|c| *c == found);
        let Some(known) = known else {
            return bug("recovery found neither an old state nor a new one");
        };
        self.candidates.truncate(first + known + 1);
        self.world = found;
        if engine.snapshots.is_empty() && self.random.chance(50) {
            engine.sweep()?;
        }
        engine.check_free()?;
        Ok(engine)
    }

    fn round(&mut self, engine: &mut Engine, sum: &mut Outcome) -> Step<()> {
        let flush = *self.random.pick(&[100, 100, 70, 20]);
        engine.late = self.late && self.random.chance(80);
        self.small = engine.late && self.random.chance(80);
        for _ in 0..1 + self.random.below(60) {
            if engine.late && self.random.chance(5) {
                self.small = !self.small;
            }
            self.between(engine)?;
            engine.begin()?;
            if engine.durable == engine.current {
                self.candidates = vec![self.world.clone()];
            }
            let new = self.work(engine)?;
            let version = engine.version();
            if engine.scan(version, &mut BTreeSet::new())? != new {
                return bug("the transaction does not see what it did");
            }
            let base = engine.txn()?.base;
            if engine.scan(base, &mut BTreeSet::new())? != self.world {
                return bug("the base changed under the transaction");
            }
            if self.random.chance(12) {
                engine.rollback()?;
            } else {
                self.candidates.push(new.clone());
                let flush = self.random.chance(flush);
                self.committing = true;
                if self.double && self.random.chance(12) {
                    engine.write_double()?;
                    engine.rollback()?;
                    self.candidates.pop();
                } else if engine.late && !self.double && self.random.chance(5) {
                    engine.write_to_roll_back()?;
                    engine.rollback()?;
                    self.candidates.pop();
                } else {
                    engine.commit(flush)?;
                    self.world = new;
                    sum.commits += 1;
                }
                self.committing = false;
            }
            engine.check_free()?;
            if engine.scan(engine.current, &mut BTreeSet::new())? != self.world {
                return bug("the state after the transaction");
            }
        }
        if self.random.chance(50) {
            return Err(Stop::Crash);
        }
        engine.snapshots.clear();
        engine.close()
    }

    /// Snapshots, sweeps, closings between transactions.
    fn between(&mut self, engine: &mut Engine) -> Step<()> {
        if engine.stays_below(engine.current) && self.random.chance(60) {
            return Err(Stop::Crash);
        }
        if self.random.chance(if self.small { 4 } else { 15 }) {
            self.values += 1;
            engine.snapshots.insert(self.values, engine.current);
            self.shown.insert(self.values, self.world.clone());
        }
        let open: Vec<u64> = engine.snapshots.keys().copied().collect();
        if !open.is_empty() && self.random.chance(20) {
            let id = *self.random.pick(&open);
            let found = engine.scan(engine.snapshots[&id], &mut BTreeSet::new())?;
            if Some(&found) != self.shown.get(&id) {
                return bug("a snapshot changed");
            }
            if self.random.chance(70) {
                engine.snapshots.remove(&id);
            }
        }
        if self.random.chance(if self.small { 3 } else { 12 }) {
            engine.unmark()?;
        }
        if engine.late && self.random.chance(8) {
            engine.turn();
        }
        if engine.snapshots.is_empty() && self.random.chance(3) {
            engine.sweep()?;
        }
        if engine.snapshots.is_empty() && self.random.chance(2) {
            engine.close()?;
        }
        Ok(())
    }

    /// The changes of one transaction.
    fn work(&mut self, engine: &mut Engine) -> Step<World> {
        let mut new = self.world.clone();
        let most = if self.small && self.random.chance(90) {
            3
        } else {
            7
        };
        // Late pages need several leaves.
        let is_few = self.small && new.values().map(BTreeMap::len).sum::<usize>() < 25;
        let most = if is_few && self.random.chance(20) {
            vec![20]
        } else {
            [1, 1, 1, 2, 3, 8, 20][..most].to_vec()
        };
        for _ in 0..*self.random.pick(&most) {
            let dice = match self.small && self.random.chance(85) {
                true => 6 + self.random.below(94),
                false => self.random.below(100),
            };
            let trees: Vec<u32> = new.keys().copied().collect();
            if trees.is_empty() || (dice < 4 && trees.len() < 3) {
                let free: Vec<u32> = (1..=3).filter(|t| !new.contains_key(t)).collect();
                let tree = *self.random.pick(&free);
                engine.create(tree)?;
                new.insert(tree, BTreeMap::new());
                continue;
            }
            // Often the same leaf changes again.
            let repeats = self.double && self.small && self.random.chance(35);
            let last = self
                .last
                .filter(|(tree, _)| repeats && trees.contains(tree));
            let tree = last.map_or(*self.random.pick(&trees), |(tree, _)| tree);
            if dice < 6 {
                engine.drop_tree(tree)?;
                new.remove(&tree);
                continue;
            }
            let Some(map) = new.get_mut(&tree) else {
                continue;
            };
            let known: Vec<i64> = map.keys().copied().collect();
            let key = if let Some((_, key)) = last {
                key
            } else if self.small && !is_few && !known.is_empty() && self.random.chance(80) {
                *self.random.pick(&known)
            } else if self.random.chance(70) {
                self.random.below(40) as i64
            } else {
                map.last_key_value().map_or(0, |e| *e.0) + 1
            };
            self.last = Some((tree, key));
            if dice < if self.small { 85 } else { 70 } {
                self.values += 1;
                let chained = self.random.chance(if self.small { 2 } else { 20 });
                engine.put(tree, key, self.values, chained)?;
                map.insert(key, self.values);
            } else {
                engine.delete(tree, key)?;
                map.remove(&key);
            }
            let spills = match self.double {
                true if self.small => 2,
                true => 20,
                false => 6,
            };
            if self.random.chance(spills) {
                engine.spill()?;
            }
        }
        Ok(new)
    }
}
