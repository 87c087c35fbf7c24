//! Random power cuts.

use super::disk::Chance;
use super::random::Random;
use super::record::File;
use std::collections::HashMap;

/// The effect of a power cut on a write that is not durable.
#[derive(Clone, Copy)]
enum Fate {
    Whole,
    Lost,
    /// Of every sector, so many of 256 arrive.
    Torn(u64),
    /// The first sectors arrive.
    Begun(u64),
    /// The last sectors arrive.
    Ended(u64),
}

/// A random power cut. Each write arrives whole, not at all, or torn. The odds are drawn for every
/// cut.
pub struct Cut {
    random: Random,
    fates: HashMap<(File, usize), Fate>,
    whole: u64,
    lost: u64,
    /// Only the newest changes are in doubt: all before this number have arrived.
    old_arrive: u64,
}

impl Cut {
    pub fn new(random: &mut Random) -> Cut {
        let mut random = Random::new(random.next());
        Cut {
            whole: [0, 40, 128, 200][random.below(4) as usize],
            lost: [0, 20, 50][random.below(3) as usize],
            old_arrive: [u64::MAX, u64::MAX, 2, 6][random.below(4) as usize],
            fates: HashMap::new(),
            random,
        }
    }

    fn draw(&mut self, from_end: u64) -> Fate {
        if from_end > self.old_arrive {
            return Fate::Whole;
        }
        let dice = self.random.below(256);
        if dice < self.whole {
            return Fate::Whole;
        }
        if dice < self.whole + self.lost {
            return Fate::Lost;
        }
        match self.random.below(5) {
            0 => Fate::Lost,
            1 => Fate::Begun(self.random.next()),
            2 => Fate::Ended(self.random.next()),
            _ => Fate::Torn([16, 128, 240][self.random.below(3) as usize]),
        }
    }
}

impl Chance for Cut {
    fn reached(&mut self, file: File, change: usize, changes: usize, sector: u64) -> bool {
        let fate = match self.fates.get(&(file, change)) {
            Some(fate) => *fate,
            None => {
                let fate = match self.draw((changes - change) as u64) {
                    Fate::Begun(n) => Fate::Begun(sector + n % 20),
                    Fate::Ended(n) => Fate::Ended(sector + n % 20),
                    fate => fate,
                };
                self.fates.insert((file, change), fate);
                fate
            }
        };
        match fate {
            Fate::Whole => true,
            Fate::Lost => false,
            Fate::Torn(of_256) => self.random.below(256) < of_256,
            Fate::Begun(end) => sector < end,
            Fate::Ended(begin) => sector >= begin,
        }
    }

    fn sizes(&mut self, _: File, changes: usize) -> usize {
        match self.random.below(3) {
            0 => changes,
            1 => 0,
            _ => self.random.below(changes as u64 + 1) as usize,
        }
    }

    fn name(&mut self, _: File) -> bool {
        self.random.one_in(2)
    }
}
