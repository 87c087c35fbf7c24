//! The ratio of two modes over paired rounds, with its interval: statistics alone.
//!
//! A round runs each mode once, one after the other. Other programs slow both runs of a round, so
//! their ratio leaves that out. Each round gives the logarithm of one ratio. The estimate is the
//! median of the means of every two logarithms. Its source is Hodges and Lehmann, "Estimates of
//! location based on rank tests", Annals of Mathematical Statistics 34, 1963. The interval holds
//! every ratio that Wilcoxon's signed-rank test does not reject, by the test's exact distribution
//! (Hollander and Wolfe, "Nonparametric Statistical Methods", section 3.3).
//!
//! Why this test: it needs a symmetric distribution, and no other assumption. The difference of two
//! errors is symmetric if both have one distribution, whatever that is. A round in which the device
//! stalled counts by its rank, however long the stall was. A bootstrap of so few rounds gives
//! intervals that are too short. The sign test needs half as many rounds again, for normal errors.
//!
//! [`Looks`] decides after how many rounds the intervals are computed. Looking after every round and
//! stopping at a welcome result would deceive. So the k-th look spends 1 / (k (k + 1)) of the error
//! that is allowed. These shares add up to one, so all looks together hold the confidence
//! (Bonferroni). `ratios` and `rounds` call this module.

use serde::Serialize;

/// How often all intervals of one ratio, over all looks, hold its true value.
pub const CONFIDENCE: f64 = 0.95;

/// The fewest rounds of a first look of several: the test's least error is then 2 in 128.
pub const FIRST_LOOK: u32 = 7;

/// The fewest rounds of a first look of several, where so many ratios share the error: the test's
/// least error is 2 in 2 to the power of the rounds.
pub fn first_look(ratios: u32) -> u32 {
    let share = (1.0 - CONFIDENCE) / 2.0 / f64::from(ratios.max(1));
    let enough = |rounds: &u32| 0.5_f64.powf(f64::from(*rounds) - 1.0) <= share;
    (FIRST_LOOK..64).find(enough).unwrap_or(64)
}

/// A ratio and the bounds of its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The estimate.
    pub ratio: f64,
    /// The least ratio that the rounds allow; null if they are too few.
    pub low: Option<f64>,
    /// The largest ratio that they allow; null if they are too few.
    pub high: Option<f64>,
}

impl Interval {
    /// The ratio whose logarithms these are. The interval misses it with at most the probability
    /// `error`. `None` without a number.
    pub fn of(logarithms: &[f64], error: f64) -> Option<Self> {
        let logarithms: Vec<f64> = logarithms
            .iter()
            .copied()
            .filter(|logarithm| logarithm.is_finite())
            .collect();
        let means = means(&logarithms);
        let ratio =
            (*means.get((means.len().max(1) - 1) / 2)? + *means.get(means.len() / 2)?) / 2.0;
        let cut = outside(logarithms.len(), error);
        let bound = |at: usize| means.get(at).copied().map(f64::exp);
        Some(Self {
            ratio: ratio.exp(),
            low: cut.and_then(bound),
            high: cut.and_then(|cut| bound(means.len() - 1 - cut)),
        })
    }

    /// Both bounds, if the rounds were enough for them.
    pub fn bounds(&self) -> Option<(f64, f64)> {
        self.low.zip(self.high)
    }
}

/// The sorted means of every two numbers, each number with itself included (Walsh averages).
fn means(numbers: &[f64]) -> Vec<f64> {
    let mut means = Vec::with_capacity(numbers.len() * (numbers.len() + 1) / 2);
    for (first, a) in numbers.iter().enumerate() {
        means.extend(numbers.iter().skip(first).map(|b| (a + b) / 2.0));
    }
    means.sort_by(f64::total_cmp);
    means
}

/// How many means lie outside the interval at each end. `None` if so few rounds allow no interval
/// with that error.
fn outside(rounds: usize, error: f64) -> Option<usize> {
    // The probability of each sum of ranks, up to the middle of its symmetric distribution.
    let mut sums = vec![0.0; rounds * (rounds + 1) / 4 + 1];
    *sums.first_mut()? = 1.0;
    for rank in 1..=rounds {
        for sum in (0..sums.len()).rev() {
            let without = sums.get(sum).copied().unwrap_or(0.0);
            let with = sum.checked_sub(rank).and_then(|less| sums.get(less));
            let both = (without + with.copied().unwrap_or(0.0)) / 2.0;
            if let Some(place) = sums.get_mut(sum) {
                *place = both;
            }
        }
    }
    let mut tail = 0.0;
    let within = sums.iter().take_while(|probability| {
        tail += **probability;
        tail <= error / 2.0
    });
    within.count().checked_sub(1)
}

/// After how many rounds the ratios are looked at, and the error that each look may make.
#[derive(Clone, Copy, Debug)]
pub struct Looks {
    /// Rounds before the next look.
    next: u32,
    /// Rounds of the last look.
    most: u32,
    /// Looks so far.
    taken: u32,
}

impl Looks {
    /// Looks from `least` to `most` rounds.
    pub fn new(least: u32, most: u32) -> Self {
        Self {
            next: match least < most {
                true => least.max(FIRST_LOOK).min(most),
                false => least,
            },
            most: most.max(least),
            taken: 0,
        }
    }

    /// Rounds of the next look.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Rounds of the last look.
    pub fn most(&self) -> u32 {
        self.most
    }

    /// The error that a look after so many rounds may make; `None` if none is due. At the end,
    /// `is_last`, one always is.
    pub fn look(&mut self, rounds: u32, is_last: bool) -> Option<f64> {
        if rounds < self.next && !is_last {
            return None;
        }
        self.taken += 1;
        self.next = (self.next * 7).div_ceil(5).min(self.most);
        let only = self.taken == 1 && (is_last || rounds >= self.most);
        let share = match only {
            true => 1.0,
            false => 1.0 / f64::from(self.taken * (self.taken + 1)),
        };
        Some((1.0 - CONFIDENCE) * share)
    }
}

#[cfg(test)]
mod tests {
    use onewrite_torture::random::Random;

    use super::*;

    /// One round's error.
    type Error = fn(&mut Random) -> f64;

    /// A number in 0..1.
    fn uniform(random: &mut Random) -> f64 {
        ((random.next() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// Box and Muller's normal number.
    fn normal(random: &mut Random) -> f64 {
        let (a, b) = (uniform(random), uniform(random));
        (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    }

    /// One run's error: small, and once in five a stall of any length.
    fn stalled(random: &mut Random) -> f64 {
        let stall = match random.one_in(5) {
            true => -uniform(random).ln(),
            false => 0.0,
        };
        0.02 * normal(random) - stall
    }

    /// How often the interval of `rounds` rounds holds the true ratio, over 1,000 seeds.
    fn coverage(rounds: usize, error: Error) -> f64 {
        let truth: f64 = 1.07;
        let held = (0..1_000).filter(|seed| {
            let mut random = Random::new(*seed);
            let round = |_| truth.ln() + error(&mut random);
            let logarithms: Vec<f64> = (0..rounds).map(round).collect();
            let interval = Interval::of(&logarithms, 0.05).expect("rounds");
            let (low, high) = interval.bounds().expect("enough rounds");
            (low..=high).contains(&truth)
        });
        held.count() as f64 / 1_000.0
    }

    /// The table of Hollander and Wolfe, A.4, for 5 %.
    #[test]
    fn the_distribution_is_that_of_the_tables() {
        let tables = [
            (5, None),
            (6, Some(0)),
            (7, Some(2)),
            (8, Some(3)),
            (9, Some(5)),
            (10, Some(8)),
            (15, Some(25)),
            (20, Some(52)),
        ];
        for (rounds, cut) in tables {
            assert_eq!(outside(rounds, 0.05), cut, "{rounds}");
        }
    }

    #[test]
    fn an_interval_holds_the_truth_as_often_as_it_says() {
        let errors: [(&str, Error); 3] = [
            ("normal", |random| 0.1 * normal(random)),
            ("uniform", |random| uniform(random) - 0.5),
            ("stalls in both runs", |random| {
                stalled(random) - stalled(random)
            }),
        ];
        for (name, error) in errors {
            for rounds in [6, 8, 12, 20] {
                let held = coverage(rounds, error);
                assert!((0.94..=0.985).contains(&held), "{name}, {rounds}: {held}");
            }
        }
    }

    #[test]
    fn a_first_look_can_decide_each_of_the_ratios_that_share_its_error() {
        assert_eq!(first_look(1), FIRST_LOOK);
        for ratios in [1, 2, 6, 14, 40] {
            let rounds = first_look(ratios);
            let error = Looks::new(rounds, 40).look(rounds, false);
            let error = error.expect("a look") / f64::from(ratios);
            assert!(outside(rounds as usize, error).is_some(), "{ratios}");
            let fewer = rounds as usize - 1;
            assert!(outside(fewer, error).is_none(), "{ratios}");
        }
    }

    /// The same look after every round would miss a ratio of 1 far more often than once in twenty.
    #[test]
    fn all_looks_together_hold_the_truth_as_often_as_they_say() {
        let missed = |spend: bool| {
            let missed = (0..400).filter(|seed| {
                let mut random = Random::new(*seed);
                let (mut looks, mut logarithms) = (Looks::new(1, 28), Vec::new());
                (1..=28).any(|rounds| {
                    logarithms.push(normal(&mut random));
                    let error = match spend {
                        true => looks.look(rounds, rounds == 28),
                        false => Some(0.05),
                    };
                    let bounds = error.and_then(|error| Interval::of(&logarithms, error)?.bounds());
                    bounds.is_some_and(|(low, high)| low > 1.0 || high < 1.0)
                })
            });
            missed.count() as f64 / 400.0
        };
        assert!(missed(true) <= 0.05, "{}", missed(true));
        assert!(missed(false) > 0.15, "{}", missed(false));
    }

    #[test]
    fn a_stall_in_one_round_moves_the_estimate_little() {
        let mut logarithms = vec![0.1; 11];
        logarithms.push(-5.0);
        let interval = Interval::of(&logarithms, 0.05).expect("rounds");
        assert!(
            (interval.ratio - 0.1_f64.exp()).abs() < 1e-9,
            "{interval:?}"
        );
        assert_eq!(interval.high, Some(0.1_f64.exp()));
    }

    #[test]
    fn too_few_rounds_give_an_estimate_and_no_interval() {
        let interval = Interval::of(&[0.0; 5], 0.05).expect("rounds");
        assert_eq!((interval.ratio, interval.bounds()), (1.0, None));
        assert_eq!(Interval::of(&[], 0.05), None);
        assert_eq!(Interval::of(&[f64::NAN], 0.05), None);
    }

    #[test]
    fn a_fixed_number_of_rounds_has_one_look_with_the_whole_error() {
        let mut looks = Looks::new(5, 5);
        let due: Vec<u32> = (1..=5)
            .filter(|n| looks.look(*n, *n == 5).is_some())
            .collect();
        assert_eq!(due, [5]);
        let error = Looks::new(5, 5).look(5, true).expect("a look");
        assert!((error - 0.05).abs() < 1e-12, "{error}");
    }

    #[test]
    fn looks_come_further_and_further_apart() {
        let mut looks = Looks::new(1, 30);
        let due: Vec<u32> = (1..=30)
            .filter(|n| looks.look(*n, *n == 30).is_some())
            .collect();
        assert_eq!(due, [7, 10, 14, 20, 28, 30]);
    }
}
