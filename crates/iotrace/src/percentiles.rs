//! Percentiles of what was measured: times in nanoseconds, or distances in bytes.

/// Each is a figure that was measured, by the nearest rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percentiles {
    /// How many were measured.
    pub count: u64,
    /// Half are no larger.
    pub p50: u64,
    /// 90 of 100 are no larger.
    pub p90: u64,
    /// 99 of 100 are no larger.
    pub p99: u64,
    /// The largest.
    pub max: u64,
}

impl Percentiles {
    /// Those of these figures; `None` if there are none.
    pub fn of(mut all: Vec<u64>) -> Option<Self> {
        all.sort_unstable();
        let at = |share: usize| {
            let rank = (all.len() * share).div_ceil(100).max(1);
            all.get(rank - 1).copied()
        };
        Some(Self {
            count: all.len() as u64,
            p50: at(50)?,
            p90: at(90)?,
            p99: at(99)?,
            max: all.last().copied()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_figures_that_were_measured() {
        let all: Vec<u64> = (1..=200).rev().collect();
        let of = Percentiles::of(all).unwrap();
        assert_eq!((of.count, of.p50, of.p90), (200, 100, 180));
        assert_eq!((of.p99, of.max), (198, 200));
        let one = Percentiles::of(vec![7]).unwrap();
        assert_eq!((one.p50, one.p99, one.max), (7, 7, 7));
        assert_eq!(Percentiles::of(Vec::new()), None);
    }
}
