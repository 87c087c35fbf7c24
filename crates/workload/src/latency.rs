//! The latencies of transactions.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The longest distinct latency, in microseconds (ten minutes); a longer one counts as this.
const LONGEST_US: u64 = 600_000_000;

/// A histogram of latencies in microseconds, exact to three significant digits.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

/// A latency in microseconds and its number of occurrences. Histograms consist of these. One
/// process can send them to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Latency in microseconds.
    pub us: u64,
    /// Number of transactions that took this long.
    pub count: u64,
}

/// The figures of a report, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    /// Half of the transactions took at most this long.
    pub p50: u64,
    /// 99 of 100 took at most this long.
    pub p99: u64,
    /// 999 of 1,000 took at most this long.
    pub p999: u64,
    /// The longest.
    pub max: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

impl Latencies {
    /// An empty histogram.
    pub fn new() -> Self {
        Self(Histogram::new_with_bounds(1, LONGEST_US, 3).expect("constant, valid bounds"))
    }

    /// Counts one transaction that took `nanos` nanoseconds.
    pub fn record_nanos(&mut self, nanos: u64) {
        self.record(Bucket {
            us: nanos.div_ceil(1000),
            count: 1,
        });
    }

    /// Adds a bucket of another histogram.
    pub fn record(&mut self, bucket: Bucket) {
        self.0.saturating_record_n(bucket.us.max(1), bucket.count);
    }

    /// Adds everything another histogram holds.
    pub fn add(&mut self, other: &Self) {
        other
            .buckets()
            .into_iter()
            .for_each(|bucket| self.record(bucket));
    }

    /// Everything that was recorded.
    pub fn buckets(&self) -> Vec<Bucket> {
        self.0
            .iter_recorded()
            .map(|v| Bucket {
                us: v.value_iterated_to(),
                count: v.count_at_value(),
            })
            .collect()
    }

    /// Number of transactions recorded.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The figures for a report.
    pub fn percentiles(&self) -> Percentiles {
        Percentiles {
            p50: self.0.value_at_quantile(0.50),
            p99: self.0.value_at_quantile(0.99),
            p999: self.0.value_at_quantile(0.999),
            max: self.0.max(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_what_was_recorded() {
        let mut all = Latencies::new();
        for us in 1..=1000 {
            all.record_nanos(us * 1000);
        }
        let p = all.percentiles();
        assert_eq!(all.count(), 1000);
        assert!((499..=501).contains(&p.p50), "{p:?}");
        assert!((989..=991).contains(&p.p99), "{p:?}");
        assert!((998..=999).contains(&p.p999), "{p:?}");
        assert_eq!(p.max, 1000);
    }

    #[test]
    fn a_histogram_sent_as_buckets_is_the_same_histogram() {
        let mut sent = Latencies::new();
        for us in [1u64, 250, 250, 251, 90_000] {
            sent.record_nanos(us * 1000);
        }
        let mut received = Latencies::new();
        sent.buckets().into_iter().for_each(|b| received.record(b));
        assert_eq!(received.count(), 5);
        assert_eq!(received.percentiles(), sent.percentiles());
    }

    #[test]
    fn a_latency_beyond_the_bounds_is_counted_not_lost() {
        let mut all = Latencies::new();
        all.record_nanos(u64::MAX);
        all.record_nanos(0);
        assert_eq!(all.count(), 2);
    }
}
