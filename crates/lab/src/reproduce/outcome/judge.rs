//! The verdict on a row: the rules alone, on the paper's figure and ours.
//!
//! - A *count* is the paper's if it is at most a tenth off. Otherwise its direction decides.
//! - A *timed ratio* has paired rounds ([`by_rounds`]). The interval of the ratio decides, and the
//!   direction comes first. Rounds that allow both answers decide nothing.
//! - A *bound* on a median that has no rounds holds or not, with some slack ([`bound_holds`]).
//!
//! [`super::Row::judged`] calls this.

use onewrite_cli::compare::paired::Interval;
use serde::Serialize;

use super::{Bound, Kind, Stated};

/// How our value compares with the paper's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The same as in the paper.
    Same,
    /// In the paper's direction, but by more or less.
    Magnitude,
    /// Not in the paper's direction, without its effect, or beyond its bound.
    Misses,
    /// The rounds allow both: more of them, or a quieter machine, would say.
    Undecided,
    /// One of the two is missing, or the machine alone decides it.
    NotCompared,
}

/// The largest factor between two counts that are the same.
const NEAR_COUNT: f64 = 1.1;

/// How much of the paper's effect ours may lack or exceed, as a part of it.
const NEAR_EFFECT: f64 = 0.5;

/// The largest factor between two ratios of times that are the same. Half of a large effect is more.
const NEAR_TIME: f64 = 1.5;

/// How far from 1 a count's ratio may be and still mean "no difference".
const LEVEL_COUNT: f64 = 0.02;

/// The same for times that a paper calls comparable.
const LEVEL_TIME: f64 = 0.15;

/// Whether a counted figure is the paper's: a tenth more or less.
pub fn is_near_count(ours: f64, paper: f64) -> bool {
    (paper / NEAR_COUNT..=paper * NEAR_COUNT).contains(&ours)
}

/// The verdict on a count, or on the ratio of two.
pub fn by_count(paper: f64, ours: f64, is_ratio: bool) -> Verdict {
    let (paper, ours) = (paper.max(1e-9), ours.max(1e-9));
    let direction = |ratio: f64| match ratio - 1.0 {
        off if off > LEVEL_COUNT => 1,
        off if off < -LEVEL_COUNT => -1,
        _ => 0,
    };
    if (ours / paper).max(paper / ours) <= NEAR_COUNT {
        Verdict::Same
    } else if is_ratio && direction(paper) != direction(ours) {
        Verdict::Misses
    } else {
        Verdict::Magnitude
    }
}

/// Whether a paper's bound holds for one value. A statement that one is no slower than another is as
/// exact as a median of times.
pub fn bound_holds(paper: Stated, ours: f64, kind: Kind, is_ratio: bool) -> bool {
    let slack = match (is_ratio, kind) {
        (false, _) => 0.0,
        (true, Kind::Counted) => LEVEL_COUNT,
        (true, Kind::Timed) => LEVEL_TIME,
    };
    match paper.bound {
        Bound::AtMost => ours <= paper.amount * (1.0 + slack),
        Bound::AtLeast => ours >= paper.amount * (1.0 - slack),
        Bound::About => false,
    }
}

/// The verdict of paired rounds on a ratio.
pub fn by_rounds(paper: Stated, ratio: &Interval) -> Verdict {
    let Some((low, high)) = ratio.bounds() else {
        return Verdict::Undecided;
    };
    let (all, none) = match paper.bound {
        Bound::AtMost => (high <= paper.amount, low > paper.amount),
        Bound::AtLeast => (low >= paper.amount, high < paper.amount),
        Bound::About => return about(paper.amount.ln(), low.ln(), high.ln()),
    };
    match (all, none) {
        (true, _) => Verdict::Same,
        (_, true) => Verdict::Misses,
        _ => Verdict::Undecided,
    }
}

/// The verdict on an effect: all are logarithms of ratios.
fn about(paper: f64, low: f64, high: f64) -> Verdict {
    let level = LEVEL_TIME.ln_1p();
    if paper == 0.0 {
        return match (low, high) {
            _ if low >= -level && high <= level => Verdict::Same,
            _ if low > level || high < -level => Verdict::Misses,
            _ => Verdict::Undecided,
        };
    }
    // The paper's effect is on the positive side.
    let (effect, low, high) = match paper > 0.0 {
        true => (paper, low, high),
        false => (-paper, -high, -low),
    };
    let off = (effect * NEAR_EFFECT).min(NEAR_TIME.ln());
    match (low, high) {
        _ if low > 0.0 && high >= effect - off && low <= effect + off => Verdict::Same,
        _ if low > 0.0 => Verdict::Magnitude,
        // The other direction, or no effect: nothing like the paper's.
        _ if high < effect * (1.0 - NEAR_EFFECT) => Verdict::Misses,
        _ => Verdict::Undecided,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "test";

    /// The verdict on planted rounds: these ratios, one for each.
    fn of_rounds(paper: Stated, ratios: &[f64]) -> Verdict {
        let logarithms: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
        by_rounds(paper, &Interval::of(&logarithms, 0.05).expect("rounds"))
    }

    /// Ten rounds around a ratio, each up to `spread` off.
    fn around(ratio: f64, spread: f64) -> Vec<f64> {
        let off = [-1.0, 0.9, -0.7, 0.8, -0.2, 0.3, -0.5, 0.6, -0.1, 0.1];
        off.iter().map(|off| ratio * (off * spread).exp()).collect()
    }

    /// The paper's remap+ takes 1 / 1.11 of WAL's time, its remap 1 / 0.95.
    #[test]
    fn an_effect_of_a_few_percent_can_come_out_each_way() {
        let faster = Stated::about(1.0 / 1.11, HERE);
        for (ratio, spread, verdict) in [
            (0.90, 0.01, Verdict::Same),
            (0.93, 0.01, Verdict::Same),
            // Its direction, and far more or far less than it.
            (0.70, 0.01, Verdict::Magnitude),
            (0.98, 0.005, Verdict::Magnitude),
            // The other direction, and no effect at all.
            (1.08, 0.01, Verdict::Misses),
            (1.00, 0.01, Verdict::Misses),
            // The machine is too noisy for it.
            (0.95, 0.20, Verdict::Undecided),
            (1.02, 0.20, Verdict::Undecided),
        ] {
            let rounds = around(ratio, spread);
            assert_eq!(of_rounds(faster, &rounds), verdict, "{ratio} {spread}");
            // A statement on rates instead of times: the same, turned round.
            let rates: Vec<f64> = rounds.iter().map(|ratio| 1.0 / ratio).collect();
            let rate = Stated::about(1.11, HERE);
            assert_eq!(of_rounds(rate, &rates), verdict, "{ratio} {spread}");
        }
    }

    /// A factor of 1.5 between two effects was "the same" whatever their direction.
    #[test]
    fn a_large_effect_is_not_the_same_as_a_small_one_next_to_it() {
        let doubled = Stated::about(2.0, HERE);
        let verdict = |ratio| of_rounds(doubled, &around(ratio, 0.01));
        assert_eq!(verdict(2.6), Verdict::Same);
        assert_eq!(verdict(1.5), Verdict::Same);
        assert_eq!(verdict(3.2), Verdict::Magnitude);
        assert_eq!(verdict(1.35), Verdict::Magnitude);
        assert_eq!(verdict(0.9), Verdict::Misses);
        assert_eq!(verdict(1.0), Verdict::Misses);
    }

    /// Half of the logarithm of 7.38 more is 20.
    #[test]
    fn twice_a_large_effect_is_not_the_same() {
        let paper = Stated::about(7.38, HERE);
        let verdict = |ratio| of_rounds(paper, &around(ratio, 0.01));
        assert_eq!(verdict(15.7), Verdict::Magnitude);
        assert_eq!(verdict(3.0), Verdict::Magnitude);
        assert_eq!(verdict(10.5), Verdict::Same);
        assert_eq!(verdict(5.2), Verdict::Same);
        // A small part of it, and none.
        let unsure = [1.2, 0.9, 1.1, 0.95, 1.0, 1.05, 1.15];
        assert_eq!(of_rounds(paper, &unsure), Verdict::Misses);
    }

    #[test]
    fn rounds_decide_bounds_and_statements_of_no_difference() {
        let (most, least, level) = (
            Stated::at_most(0.77, HERE),
            Stated::at_least(1.0, HERE),
            Stated::about(1.0, HERE),
        );
        for (stated, ratio, spread, verdict) in [
            (most, 0.6, 0.01, Verdict::Same),
            (most, 0.9, 0.01, Verdict::Misses),
            (most, 0.77, 0.1, Verdict::Undecided),
            (least, 1.1, 0.01, Verdict::Same),
            (least, 0.95, 0.01, Verdict::Misses),
            (least, 1.0, 0.1, Verdict::Undecided),
            (level, 1.05, 0.02, Verdict::Same),
            (level, 1.3, 0.02, Verdict::Misses),
            (level, 0.8, 0.02, Verdict::Misses),
            (level, 1.15, 0.05, Verdict::Undecided),
        ] {
            let rounds = around(ratio, spread);
            assert_eq!(of_rounds(stated, &rounds), verdict, "{stated:?} {ratio}");
        }
    }

    #[test]
    fn too_few_rounds_decide_nothing() {
        let rounds = around(0.9, 0.01);
        let stated = Stated::about(0.9, HERE);
        assert_eq!(of_rounds(stated, &rounds[..5]), Verdict::Undecided);
        assert_eq!(of_rounds(stated, &rounds[..6]), Verdict::Same);
        let bound = Stated::at_most(1.0, HERE);
        assert_eq!(of_rounds(bound, &[0.1]), Verdict::Undecided);
    }

    #[test]
    fn a_count_is_off_by_a_tenth_or_in_another_direction() {
        assert_eq!(by_count(0.83, 0.80, true), Verdict::Same);
        assert_eq!(by_count(0.83, 0.60, true), Verdict::Magnitude);
        assert_eq!(by_count(0.83, 1.0, true), Verdict::Misses);
        assert_eq!(by_count(2.0, 2.3, true), Verdict::Magnitude);
        // A few hundredths are an effect of a count; one is none.
        assert_eq!(by_count(0.83, 0.97, true), Verdict::Magnitude);
        assert_eq!(by_count(0.83, 0.99, true), Verdict::Misses);
        assert_eq!(by_count(1.0, 1.2, true), Verdict::Misses);
        // A plain count has no direction.
        assert_eq!(by_count(12.0, 0.0, false), Verdict::Magnitude);
        assert_eq!(by_count(0.0, 0.0, false), Verdict::Same);
    }
}
