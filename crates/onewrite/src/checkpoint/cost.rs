//! The cost of remapping and of copying: bytes that the device gets, by measurement.
//!
//! Measured on Linux 6.18 on loop devices (`docs/modes/remap.md` has the runs). One call writes
//! little by itself. A checkpoint's metadata goes out together, when the database is flushed.

use std::time::Duration;

use super::Run;
use crate::storage::Remap;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Cost {
    /// Bytes of metadata that a checkpoint with one call writes.
    pub base_bytes: u64,
    /// Bytes that every further call adds.
    pub call_bytes: u64,
    /// Microseconds of a call.
    pub call_us: u64,
    /// Microseconds of a page in it.
    pub page_us: u64,
}

impl Cost {
    /// The measured cost of this method.
    pub fn of(how: Remap) -> Cost {
        match how {
            Remap::Exchange => Cost {
                base_bytes: 1536,
                call_bytes: 137,
                call_us: 110,
                page_us: 7,
            },
            // On Btrfs a copy writes as much metadata; a call's share could not be measured.
            Remap::Clone => Cost {
                base_bytes: 3072,
                call_bytes: 100,
                call_us: 35,
                page_us: 3,
            },
        }
    }

    /// The same with a measured time per call, in microseconds: the more fragmented the files, the
    /// longer calls take.
    pub fn with_calls_of(self, call_us: u64) -> Cost {
        Cost {
            call_us: self.call_us.max(call_us),
            ..self
        }
    }

    /// Bytes of metadata for these runs.
    pub fn bytes(&self, runs: &[Run]) -> u64 {
        match runs.len() as u64 {
            0 => 0,
            calls => self.base_bytes + (calls - 1) * self.call_bytes,
        }
    }

    /// The time of the calls.
    pub fn time(&self, runs: &[Run]) -> Duration {
        let pages: usize = runs.iter().map(|run| run.pages).sum();
        let us = self.call_us * runs.len() as u64 + self.page_us * pages as u64;
        Duration::from_micros(us)
    }

    /// Whether remapping these runs writes less than copying them.
    pub fn is_worth(&self, runs: &[Run]) -> bool {
        let copied: u64 = runs.iter().map(|run| run.place.bytes).sum();
        self.bytes(runs) < copied
    }
}

#[cfg(test)]
mod tests {
    use super::super::blocks::Remapped;
    use super::super::counts::Counters;
    use super::*;
    use crate::storage::Move;
    use crate::waits::REMAPPING;

    #[test]
    fn slow_calls_are_given_up_and_tried_again_later() {
        let runs: Vec<_> = [(5, 2), (6, 9), (3, 11)]
            .into_iter()
            .enumerate()
            .map(|(first, (log, database))| Run {
                place: Move {
                    log: log * 4096,
                    database: database * 4096,
                    bytes: 4096,
                },
                first,
                pages: 1,
            })
            .collect();
        let counters = Counters::default();
        let cost = || Cost::of(Remap::Exchange).with_calls_of(counters.snapshot().recent_call_us);
        assert!(cost().time(&runs) < REMAPPING);
        let slow = Remapped {
            done: vec![true; 3],
            took: Duration::from_secs(3),
            ..Remapped::default()
        };
        counters.count_checkpoint(&runs, &slow, 3);
        let mut given_up = 0;
        while cost().time(&runs) > REMAPPING {
            counters.count_impatience("too slow");
            given_up += 1;
        }
        assert_eq!(given_up, 1);
    }
}
