//! The region of devices in which a claim of the paper holds.
//!
//! A device has one figure, of one seed or one median. Another seed moves it by up to a [`Spread`],
//! so that near the paper's value a claim neither holds nor fails: it is undecided. Such a device is
//! run with more seeds. Then all of them must say the same, or it stays undecided. Between two
//! neighbouring sizes of the same FTL a figure may cross the value, though no device that was run
//! has it.

use onewrite_cli::html::grouped;

use crate::reproduce::outcome::{Bound, Stated, is_near_count};

/// The largest factor between runs of one device that differ in one thing.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    pub factor: f64,
    /// Seeds, or power cuts.
    pub between: &'static str,
}

const fn of_seeds(factor: f64) -> Spread {
    Spread {
        factor,
        between: "seeds",
    }
}

/// The largest factors between seeds 1 to 4 of all devices in docs/xftl.md that ran with four, rounded up:
/// times and erases to X-FTL's.
pub const TIMES: Spread = of_seeds(1.5);
pub const ERASES: Spread = of_seeds(1.6);
/// The same for pages of the host. Most are equal to a hundredth; the rest is where ext4 puts the
/// database.
pub const PAGES: Spread = of_seeds(1.25);

/// A device, and its figures: one for each seed, at least one.
#[derive(Clone, Debug)]
pub struct Point {
    pub host_mib: u32,
    pub ftl: String,
    pub figures: Vec<f64>,
}

/// A figure decides a claim, or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Holds,
    Fails,
    Undecided,
}

impl Point {
    /// The device, and the range of several seeds.
    fn name(&self) -> String {
        let device = format!("{} MiB, {}", grouped(u64::from(self.host_mib)), self.ftl);
        let (low, high) = self.range();
        match self.figures.len() {
            0 | 1 => device,
            seeds => format!("{device} ({low:.2} to {high:.2}, {seeds} seeds)"),
        }
    }

    /// The median.
    fn figure(&self) -> f64 {
        median(&self.figures)
    }

    fn range(&self) -> (f64, f64) {
        let least = self.figures.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.figures.iter().copied().fold(0.0, f64::max);
        (least, most)
    }

    /// Several seeds decide by their own range. One seed decides if the spread between seeds, as
    /// measured on other devices, would not change the answer.
    pub fn is_undecided(&self, stated: Stated, spread: Spread) -> bool {
        self.decision(stated, spread) == Decision::Undecided
    }

    fn decision(&self, stated: Stated, spread: Spread) -> Decision {
        let amount = stated.amount;
        if let [_, _, ..] = self.figures[..] {
            return self.decision_of_seeds(stated);
        }
        let figure = self.figure();
        let (low, high) = (figure / spread.factor, figure * spread.factor);
        let (all, some) = match stated.bound {
            // Of the figures that the spread allows, one may be near the paper's.
            Bound::About => (
                is_near_count(figure, amount),
                is_near_count(amount.clamp(low, high), amount),
            ),
            Bound::AtLeast => (low >= amount, high >= amount),
            Bound::AtMost => (high <= amount, low <= amount),
        };
        match (all, some) {
            (true, _) => Decision::Holds,
            (_, true) => Decision::Undecided,
            _ => Decision::Fails,
        }
    }

    /// Several seeds decide together. A third seed may have any value between two.
    fn decision_of_seeds(&self, stated: Stated) -> Decision {
        let (low, high) = self.range();
        let amount = stated.amount;
        let holds = |figure: f64| match stated.bound {
            Bound::About => is_near_count(figure, amount),
            Bound::AtLeast => figure >= amount,
            Bound::AtMost => figure <= amount,
        };
        match (holds(low), holds(high)) {
            (true, true) => Decision::Holds,
            (false, false) if !holds(amount.clamp(low, high)) => Decision::Fails,
            _ => Decision::Undecided,
        }
    }
}

/// The median; 0 of none.
pub fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    onewrite_common::median(&sorted).unwrap_or_default()
}

/// Where a claim holds, where it is undecided, between which sizes it crosses the paper's value, and
/// in how many devices it fails.
pub fn told(points: &[Point], stated: Stated, spread: Spread) -> String {
    let of = |decision, is_wanted: fn(&&Point) -> bool| {
        let is_it = move |point: &&Point| point.decision(stated, spread) == decision;
        points
            .iter()
            .filter(is_it)
            .filter(is_wanted)
            .map(Point::name)
            .collect::<Vec<String>>()
    };
    let all = |_: &&Point| true;
    let has_one = |point: &&Point| point.figures.len() < 2;
    let holds = of(Decision::Holds, all);
    let undecided = of(Decision::Undecided, has_one);
    let differ = of(Decision::Undecided, |point| point.figures.len() > 1);
    let mut parts = vec![match holds.is_empty() {
        true => "holds in no device that was run".to_owned(),
        false => format!("holds in: {}", holds.join("; ")),
    }];
    if !undecided.is_empty() {
        parts.push(format!(
            "undecided, as a factor of {:.2} between {} allows both, in: {}",
            spread.factor,
            spread.between,
            undecided.join("; ")
        ));
    }
    if !differ.is_empty() {
        parts.push(format!(
            "undecided, as its seeds differ, in: {}",
            differ.join("; ")
        ));
    }
    parts.extend(crossings(points, stated, spread));
    parts.push(format!(
        "fails in {} of {}",
        of(Decision::Fails, all).len(),
        points.len()
    ));
    parts.join(". It ").replace(". It undecided", ". Undecided")
}

/// The neighbouring sizes of an FTL between which the paper's value lies, if it holds in neither.
fn crossings(points: &[Point], stated: Stated, spread: Spread) -> Vec<String> {
    let mut sorted: Vec<&Point> = points.iter().collect();
    sorted.sort_by(|a, b| (&a.ftl, a.host_mib).cmp(&(&b.ftl, b.host_mib)));
    let crosses = |pair: &&[&Point]| {
        let [a, b] = pair else {
            return false;
        };
        let is_between = (a.figure() - stated.amount) * (b.figure() - stated.amount) < 0.0;
        let holds = |point: &Point| point.decision(stated, spread) == Decision::Holds;
        a.ftl == b.ftl && is_between && !holds(a) && !holds(b)
    };
    let pairs = sorted.windows(2).filter(crosses);
    let told = pairs.map(|pair| {
        format!(
            "crosses between {} and {} MiB on {}",
            grouped(pair[0].host_mib.into()),
            grouped(pair[1].host_mib.into()),
            pair[0].ftl
        )
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPREAD: Spread = of_seeds(1.2);

    fn point(host_mib: u32, ftl: &str, figure: f64) -> Point {
        Point {
            host_mib,
            ftl: ftl.to_owned(),
            figures: vec![figure],
        }
    }

    #[test]
    fn a_claim_holds_fails_or_is_undecided_by_the_spread() {
        let decided = |figure, stated| point(128, "board", figure).decision(stated, SPREAD);
        let about = Stated::about(3.0, "test");
        for (figure, decision) in [
            (3.0, Decision::Holds),
            (3.25, Decision::Holds),
            // A seed away from a tenth off.
            (3.9, Decision::Undecided),
            (2.3, Decision::Undecided),
            (4.0, Decision::Fails),
            (2.2, Decision::Fails),
        ] {
            assert_eq!(decided(figure, about), decision, "{figure}");
        }
        let doubled = Stated::at_least(2.0, "test");
        assert_eq!(decided(2.5, doubled), Decision::Holds);
        assert_eq!(decided(2.1, doubled), Decision::Undecided);
        assert_eq!(decided(1.9, doubled), Decision::Undecided);
        assert_eq!(decided(1.6, doubled), Decision::Fails);
        let at_most = Stated::at_most(2.0, "test");
        assert_eq!(decided(1.6, at_most), Decision::Holds);
        assert_eq!(decided(2.1, at_most), Decision::Undecided);
        assert_eq!(decided(2.5, at_most), Decision::Fails);
    }

    #[test]
    fn several_seeds_decide_by_their_own_range() {
        let seeds = |figures: &[f64]| Point {
            figures: figures.to_vec(),
            ..point(128, "board", 0.0)
        };
        let decided = |figures: &[f64], stated| seeds(figures).decision(stated, SPREAD);
        let about = Stated::about(3.0, "test");
        // One of 2.6 decides nothing; three that are all below do.
        assert_eq!(decided(&[2.6], about), Decision::Undecided);
        assert_eq!(decided(&[2.6, 2.5, 2.65], about), Decision::Fails);
        assert_eq!(decided(&[2.8, 3.1, 3.0], about), Decision::Holds);
        // Planted: one of them contradicts the others.
        assert_eq!(decided(&[2.8, 3.1, 2.5], about), Decision::Undecided);
        assert_eq!(decided(&[2.6, 3.4], about), Decision::Undecided);
        let doubled = Stated::at_least(2.0, "test");
        assert_eq!(decided(&[2.1, 2.05, 2.2], doubled), Decision::Holds);
        assert_eq!(decided(&[2.1, 1.95, 2.2], doubled), Decision::Undecided);
        assert_eq!(decided(&[1.9, 1.95], doubled), Decision::Fails);
        let text = told(&[seeds(&[2.1, 1.95, 2.2])], doubled, SPREAD);
        let expected = "Undecided, as its seeds differ, in: 128 MiB, board (1.95 to 2.20, 3 seeds)";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn neighbours_around_the_value_say_where_it_is_crossed() {
        let about = Stated::about(11.7, "slide 22");
        let points = [
            point(2_048, "board", 24.0),
            point(128, "board", 5.3),
            point(512, "board", 7.2),
            // Crossed from one FTL to another: that is no size.
            point(128, "one die", 50.0),
        ];
        let text = told(&points, about, SPREAD);
        assert_eq!(
            text,
            "holds in no device that was run. It crosses between 512 and 2,048 MiB on board. It fails in 4 of 4"
        );
        // A device that has the value says more than its neighbours.
        let points = [point(512, "board", 11.0), point(2_048, "board", 24.0)];
        let text = told(&points, about, SPREAD);
        assert_eq!(text, "holds in: 512 MiB, board. It fails in 1 of 2");
    }
}
