//! The scripts of one race: the steps of each process, first in turn and then all at once.

use crate::database::JournalMode;
use crate::random::Random;
use crate::scripted::Step;

/// Our processes. Each index is one process.
pub const OURS: [usize; 2] = [0, 1];
/// Stock processes through the linked SQLite.
pub const STOCK: [usize; 2] = [2, 3];
/// The system's shell, if there is one.
pub const SHELL: usize = 4;

/// A script for a process.
#[derive(Debug, Clone)]
pub struct Script {
    /// The process.
    pub process: usize,
    /// Its steps.
    pub steps: Vec<Step>,
}

fn script(process: usize, steps: impl Into<Vec<Step>>) -> Script {
    Script {
        process,
        steps: steps.into(),
    }
}

/// The subject of a race.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// All processes do random steps.
    Scramble,
    /// Stock is idle with its cache in a rollback mode when ours enters.
    IdleCache,
    /// Stock died in a rollback transaction; several processes enter and recover.
    HotJournal,
    /// Stock died with commits in its log; several processes enter and recover.
    HotLog,
    /// Our process died while the database was guarded; several processes enter.
    OursDied,
    /// The last of our processes close while stock enters.
    LastClose,
    /// Our processes are connected to a database in a rollback mode that remembers one of our
    /// modes. All of them switch it at once.
    SwitchTogether,
}

const KINDS: [(Kind, u64); 7] = [
    (Kind::Scramble, 40),
    (Kind::IdleCache, 16),
    (Kind::HotJournal, 12),
    (Kind::HotLog, 12),
    (Kind::OursDied, 10),
    (Kind::LastClose, 10),
    (Kind::SwitchTogether, 10),
];

/// A race: the setup in turn, and the scripts that then run at once.
#[derive(Debug)]
pub struct Race {
    /// Its subject.
    pub kind: Kind,
    /// One after the other.
    pub before: Vec<Script>,
    /// All at once.
    pub at_once: Vec<Script>,
}

/// Draws races between `count` processes, ours asking for `mode`.
#[derive(Debug, Clone, Copy)]
pub struct Scripts {
    /// The number of processes.
    pub count: usize,
    /// The journal mode of our processes.
    pub mode: JournalMode,
}

impl Scripts {
    /// Draws one race.
    pub fn draw(&self, random: &mut Random) -> Race {
        let kind = KINDS[random.weighted(&KINDS.map(|(_, weight)| weight))].0;
        let mut before = Vec::new();
        if kind != Kind::Scramble {
            before.extend((0..self.count).map(|process| script(process, [Step::Close])));
        }
        before.extend(self.set_up(kind, random));
        let at_once = match kind {
            Kind::Scramble => (0..self.count)
                .map(|process| self.anything(process, random))
                .collect(),
            Kind::LastClose => self.closing(random),
            Kind::SwitchTogether => self.switching(random),
            Kind::IdleCache | Kind::HotJournal | Kind::HotLog | Kind::OursDied => {
                self.coming_in(random)
            }
        };
        Race {
            kind,
            before,
            at_once,
        }
    }

    fn set_up(&self, kind: Kind, random: &mut Random) -> Vec<Script> {
        let rollback = *random.choose(&[
            JournalMode::Delete,
            JournalMode::Truncate,
            JournalMode::Persist,
        ]);
        let ours = Step::Open(Some(self.mode));
        let count = random.between(1, 3);
        match kind {
            Kind::Scramble => Vec::new(),
            Kind::IdleCache => STOCK
                .iter()
                .map(|process| script(*process, [Step::Switch(rollback), Step::Read(0)]))
                .collect(),
            Kind::HotJournal => {
                let steps = [
                    Step::Switch(rollback),
                    Step::Transactions(count),
                    self.death(random, Step::DieInTransaction),
                    Step::Transactions(50),
                ];
                vec![script(STOCK[0], steps)]
            }
            Kind::HotLog => {
                let steps = [
                    Step::Switch(JournalMode::Wal),
                    Step::NoCheckpoints,
                    Step::Transactions(count),
                    self.death(random, Step::DieInTransaction),
                    Step::Transactions(50),
                ];
                vec![script(STOCK[0], steps)]
            }
            Kind::OursDied => {
                let death = self.death(random, Step::DieInTransaction);
                vec![script(
                    OURS[0],
                    [
                        ours,
                        Step::Transactions(count),
                        death,
                        Step::Transactions(50),
                    ],
                )]
            }
            Kind::LastClose => {
                let steps = [ours, Step::Transactions(count)];
                OURS.iter().map(|process| script(*process, steps)).collect()
            }
            Kind::SwitchTogether => {
                let mut scripts = vec![script(STOCK[0], [Step::Switch(rollback), Step::Close])];
                scripts
                    .extend(OURS.map(|process| script(process, [Step::Open(None), Step::Read(0)])));
                scripts
            }
        }
    }

    /// Returns `certain`, or equally often a death at a random moment of the following steps.
    fn death(&self, random: &mut Random, certain: Step) -> Step {
        if random.one_in(2) {
            certain
        } else {
            Step::DieAfter(random.below(20_000))
        }
    }

    /// All processes enter at once, each a moment later or sooner.
    fn coming_in(&self, random: &mut Random) -> Vec<Script> {
        let mut scripts = Vec::new();
        for process in 0..self.count {
            let mut steps = vec![pause(random)];
            let is_ours = OURS.contains(&process);
            if is_ours {
                steps.push(Step::Open(Some(self.mode)));
            }
            steps.push(match random.below(3) {
                0 => Step::Read(0),
                _ => Step::Transactions(random.between(1, 2)),
            });
            if !is_ours && random.one_in(2) {
                steps.push(Step::Close);
            }
            if !random.one_in(4) {
                scripts.push(script(process, steps));
            }
        }
        scripts
    }

    /// Our processes close while stock enters.
    fn closing(&self, random: &mut Random) -> Vec<Script> {
        let mut scripts: Vec<_> = OURS
            .iter()
            .map(|process| script(*process, [pause(random), Step::Close]))
            .collect();
        for process in STOCK
            .into_iter()
            .chain([SHELL])
            .filter(|process| *process < self.count)
        {
            let work = if random.one_in(2) {
                Step::Read(0)
            } else {
                Step::Transactions(1)
            };
            scripts.push(script(process, [pause(random), work, pause(random), work]));
        }
        scripts
    }

    /// Our processes switch modes, and commit at once.
    fn switching(&self, random: &mut Random) -> Vec<Script> {
        OURS.iter()
            .map(|process| {
                let moment = Step::Pause(random.below(400));
                script(
                    *process,
                    [moment, Step::Open(Some(self.mode)), Step::Transactions(2)],
                )
            })
            .collect()
    }

    /// Some steps of any kind.
    fn anything(&self, process: usize, random: &mut Random) -> Script {
        let mut steps = vec![pause(random)];
        for _ in 0..random.between(1, 5) {
            steps.push(self.any_step(process, random));
        }
        if random.one_in(6) {
            let index = random.below(steps.len() as u64) as usize;
            steps.insert(index, Step::DieAfter(random.below(15_000)));
        } else if random.one_in(8) {
            steps.push(Step::DieInTransaction);
        }
        script(process, steps)
    }

    fn any_step(&self, process: usize, random: &mut Random) -> Step {
        let is_ours = OURS.contains(&process);
        match random.below(20) {
            0..6 => Step::Transactions(random.between(1, 3)),
            6..10 => Step::Read(if random.one_in(3) {
                random.below(8000)
            } else {
                0
            }),
            10..14 => Step::Close,
            14..16 if is_ours => Step::Open(Some(self.mode)),
            14..16 => pause(random),
            16..18 => self.any_switch(is_ours, random),
            18 => Step::Checkpoint,
            _ => Step::Tune,
        }
    }

    fn any_switch(&self, is_ours: bool, random: &mut Random) -> Step {
        use JournalMode::{Delete, Persist, Truncate, Wal};
        if is_ours && !random.one_in(4) {
            return Step::Switch(self.mode);
        }
        Step::Switch(*random.choose(&[Delete, Delete, Truncate, Persist, Wal, Wal]))
    }
}

fn pause(random: &mut Random) -> Step {
    // Usually no pause: a race that starts 5 ms late is not a race.
    Step::Pause(if random.one_in(3) {
        random.below(3000)
    } else {
        random.below(100)
    })
}
