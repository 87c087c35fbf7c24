//! Zipfian numbers, by the method of Gray et al. (SIGMOD '94) that YCSB uses.

/// YCSB's constant of the distribution.
const THETA: f64 = 0.99;

/// A distribution over so many items: few are drawn often.
#[derive(Clone, Debug)]
pub struct Zipfian {
    items: u32,
    zeta: f64,
    eta: f64,
}

impl Zipfian {
    /// The distribution over `items` items.
    pub fn new(items: u32) -> Self {
        let zeta =
            |items: u32| -> f64 { (1..=items).map(|item| f64::from(item).powf(-THETA)).sum() };
        let zeta_all = zeta(items);
        let eta = (1.0 - (2.0 / f64::from(items)).powf(1.0 - THETA)) / (1.0 - zeta(2) / zeta_all);
        Self {
            items,
            zeta: zeta_all,
            eta,
        }
    }

    /// The item for a number drawn evenly from 0 to 1: from 0, the most frequent, to one less than
    /// the number of items.
    pub fn rank(&self, uniform: f64) -> u32 {
        let share = uniform * self.zeta;
        if share < 1.0 {
            return 0;
        }
        if share < 1.0 + 0.5f64.powf(THETA) {
            return 1;
        }
        let alpha = 1.0 / (1.0 - THETA);
        let rank = f64::from(self.items) * (self.eta * uniform - self.eta + 1.0).powf(alpha);
        (rank as u32).min(self.items - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Draws;

    #[test]
    fn few_items_are_drawn_often() {
        const STEPS: u32 = 1 << 30;
        let items = 10_000;
        let zipfian = Zipfian::new(items);
        let mut draws = Draws::of(1, 1);
        let mut ranks = vec![0u32; items as usize];
        for _ in 0..100_000 {
            let uniform = f64::from(draws.below(STEPS)) / f64::from(STEPS);
            ranks[zipfian.rank(uniform) as usize] += 1;
        }
        // The share of rank 0 is 1/zeta, and that of rank 1 less by 2 to the power of the constant.
        let first = 100_000.0 / zipfian.zeta;
        let off = |found: u32, expected: f64| (f64::from(found) / expected - 1.0).abs();
        assert!(off(ranks[0], first) < 0.05, "{}", ranks[0]);
        assert!(off(ranks[1], first * 0.5f64.powf(THETA)) < 0.05);
        assert!(ranks[5_000..].iter().sum::<u32>() > 1_000);
    }
}
