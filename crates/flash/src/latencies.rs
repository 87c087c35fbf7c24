//! The latency of each request, by kind, for percentiles.
//!
//! A histogram has 32 buckets for each power of two of nanoseconds, so that a percentile is at most
//! 1/32 too high. Two of the same device can be subtracted: the requests of a part of its life.

use serde::{Deserialize, Serialize};

/// Buckets for each power of two, as a power of two.
const FINE: u32 = 5;

/// The latencies of one kind of request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latencies {
    /// Requests by bucket, to the last one that has any.
    counts: Vec<u64>,
}

/// The kinds of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByKind<T> {
    /// Reads.
    pub read: T,
    /// Writes.
    pub write: T,
    /// Trims.
    pub trim: T,
    /// Flushes.
    pub flush: T,
}

/// The bucket of a number of nanoseconds.
fn bucket(ns: u64) -> usize {
    let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(FINE + 1);
    ((u64::from(shift) << FINE) + (ns >> shift)) as usize
}

/// The most nanoseconds of a bucket.
fn most(bucket: usize) -> u64 {
    let (bucket, fine) = (bucket as u64, 1_u64 << FINE);
    let shift = (bucket >> FINE).saturating_sub(1);
    let head = bucket - (shift << FINE);
    debug_assert!(head < 2 * fine);
    ((u128::from(head + 1) << shift) - 1) as u64
}

impl Latencies {
    /// Adds a request.
    pub fn add(&mut self, ns: u64) {
        let bucket = bucket(ns);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
    }

    /// Requests.
    pub fn requests(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The latency in nanoseconds that this part of the requests does not exceed, rounded up to its
    /// bucket's end; `None` without a request.
    pub fn quantile(&self, part: f64) -> Option<u64> {
        let wanted = (self.requests() as f64 * part).ceil().max(1.0) as u64;
        let mut seen = 0;
        let reaches = |(_, count): &(usize, &u64)| {
            seen += **count;
            seen >= wanted
        };
        let found = self.counts.iter().enumerate().find(reaches);
        found.map(|(bucket, _)| most(bucket))
    }

    /// The requests since an earlier state of the same device.
    pub fn since(&self, before: &Self) -> Self {
        let earlier = before.counts.iter().chain(std::iter::repeat(&0));
        let counts = self.counts.iter().zip(earlier);
        Self {
            counts: counts.map(|(now, before)| now - before).collect(),
        }
    }
}

impl<T> ByKind<T> {
    /// Something of each kind.
    pub fn map<U>(&self, mut of: impl FnMut(&T) -> U) -> ByKind<U> {
        ByKind {
            read: of(&self.read),
            write: of(&self.write),
            trim: of(&self.trim),
            flush: of(&self.flush),
        }
    }

    /// Each kind with its name.
    pub fn named(&self) -> [(&'static str, &T); 4] {
        [
            ("read", &self.read),
            ("write", &self.write),
            ("trim", &self.trim),
            ("flush", &self.flush),
        ]
    }
}

impl ByKind<Latencies> {
    /// The requests since an earlier state of the same device.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            read: self.read.since(&before.read),
            write: self.write.since(&before.write),
            trim: self.trim.since(&before.trim),
            flush: self.flush.since(&before.flush),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_ends_at_most_a_32nd_above_its_numbers() {
        for ns in (0..2_000).chain([1 << 20, (1 << 33) + 12_345, u64::MAX - 1, u64::MAX]) {
            let end = most(bucket(ns));
            assert!(end >= ns && end - ns <= ns / 32, "{ns}: {end}");
            assert_eq!(bucket(end), bucket(ns));
            assert!(end == u64::MAX || bucket(end + 1) == bucket(ns) + 1, "{ns}");
        }
    }

    #[test]
    fn quantiles_are_of_the_requests_since() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantile(0.5), None);
        (0..100).for_each(|_| latencies.add(9));
        let before = latencies.clone();
        (1..=100).for_each(|ns| latencies.add(ns * 1_000));
        let since = latencies.since(&before);
        assert_eq!(since.requests(), 100);
        let median = since.quantile(0.5).unwrap();
        assert!((50_000..=51_600).contains(&median), "{median}");
        let last = since.quantile(1.0).unwrap();
        assert!((100_000..=103_200).contains(&last), "{last}");
        assert_eq!(latencies.quantile(0.5), Some(9));
    }
}
