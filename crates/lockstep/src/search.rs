//! The search through orders: first every order with few preemptions, then random ones.

use crate::order::{Order, Turn};
use crate::run::Beginning;
use crate::world::{Choice, World};

/// A failing order, and its message.
#[derive(Clone, Debug)]
pub struct Found {
    pub order: Order,
    pub message: String,
}

/// The state of a search between orders.
pub struct Search {
    random: u64,
    /// Untried orders with as many turns as the search has reached.
    frontier: Vec<Order>,
    /// Orders with one turn more.
    next: Vec<Order>,
    depth: usize,
    /// Some of the next orders were left out, because there are too many.
    is_cut: bool,
    /// The search tried all orders with this many turns.
    pub exhausted: usize,
    processes: u8,
    steps: u32,
}

/// The most preemptions in systematic orders. More are left to chance.
const DEEPEST: usize = 3;
/// The largest number of orders that wait to be tried.
const MOST_WAITING: usize = 400_000;

impl Search {
    pub fn new(seed: u64, processes: usize) -> Search {
        Search {
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            frontier: vec![Order::default()],
            next: Vec::new(),
            depth: 0,
            is_cut: false,
            exhausted: 0,
            processes: processes as u8,
            steps: 1,
        }
    }

    fn random(&mut self, below: u32) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((self.random >> 33) % u64::from(below.max(1))) as u32
    }

    /// The next order. `systematic` orders come sorted by their number of preemptions, while there
    /// are any.
    pub fn next(&mut self, systematic: bool) -> Order {
        if systematic {
            if self.frontier.is_empty() && self.depth < DEEPEST && !self.next.is_empty() {
                self.depth += 1;
                self.frontier = std::mem::take(&mut self.next);
                // There are too many of the deepest orders to try all. In random order, the tried
                // ones are a sample.
                self.shuffle();
            }
            if let Some(order) = self.frontier.pop() {
                if self.frontier.is_empty() && !self.is_cut {
                    self.exhausted = self.depth;
                }
                return order;
            }
        }
        self.any()
    }

    fn shuffle(&mut self) {
        for at in (1..self.frontier.len()).rev() {
            let other = self.random(at as u32 + 1) as usize;
            self.frontier.swap(at, other);
        }
    }

    /// A systematic order was tried, with these choices. Orders with one preemption more come
    /// later.
    pub fn note(&mut self, order: &Order, choices: &[Choice]) {
        self.steps = self.steps.max(choices.len() as u32);
        if order.0.len() != self.depth || self.depth >= DEEPEST {
            return;
        }
        let last = order.0.last().map_or(0, |(step, _)| *step) as usize;
        let has_killed = order
            .0
            .iter()
            .any(|(_, turn)| matches!(turn, Turn::Kill(_)));
        for (at, choice) in choices.iter().enumerate().skip(last) {
            let mut turns = Vec::new();
            for process in 0..self.processes {
                let others =
                    (process != choice.current || at == 0) && choice.runnable & 1 << process != 0;
                if others && !(at == 0 && process == 0) {
                    turns.push(Turn::To(process));
                }
                if process == choice.current && choice.may_kill && !has_killed {
                    turns.push(Turn::Kill(process));
                }
            }
            for turn in turns {
                if self.next.len() < MOST_WAITING {
                    let mut more = order.clone();
                    more.0.push((at as u32 + 1, turn));
                    self.next.push(more);
                } else {
                    self.is_cut = true;
                }
            }
        }
    }

    /// A random order: few turns, or many, or some close to each other. Sometimes a process is
    /// killed.
    fn any(&mut self) -> Order {
        let steps = self.steps;
        let count = match self.random(8) {
            0..=4 => 2 + self.random(4),
            5 | 6 => 5 + self.random(12),
            _ => 20 + self.random(60),
        };
        let mut turns = Vec::new();
        let center = self.random(steps) + 1;
        let is_close = self.random(3) == 0;
        for _ in 0..count {
            let step = match is_close {
                true => (center + self.random(24)).saturating_sub(12).max(1),
                false => self.random(steps) + 1,
            };
            let process = self.random(self.processes.into()) as u8;
            turns.push((step, Turn::To(process)));
        }
        if self.random(4) == 0 {
            let victim = self.random(self.processes.into()) as u8;
            turns.push((self.random(steps) + 1, Turn::Kill(victim)));
        }
        turns.sort_by_key(|(step, _)| *step);
        Order(turns)
    }
}

/// Removes turns from a failing order as long as it still fails.
pub fn shrink(world: &mut World, beginning: &Beginning, found: Found) -> Found {
    let mut best = found;
    let fails = |world: &mut World, order: &Order| {
        world.try_order(beginning, order);
        world.failure.clone()
    };
    loop {
        let before = best.order.0.len();
        let mut at = 0;
        while at < best.order.0.len() {
            let mut less = best.order.clone();
            less.0.remove(at);
            match fails(world, &less) {
                Some(message) => {
                    best = Found {
                        order: less,
                        message,
                    };
                }
                None => at += 1,
            }
        }
        if best.order.0.len() == before {
            return best;
        }
    }
}
