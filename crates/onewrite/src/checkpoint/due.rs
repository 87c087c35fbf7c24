//! When the thread that checkpoints makes a pass ([`super::background`]). The rule is BG13 of
//! `docs/durability.md`.
//!
//! A pass next to a steady writer leaves the frames of the commits that came meanwhile, so the log
//! cannot restart. Each pass flushes the database, and copies once more the pages that every commit
//! changes. So the first pass comes later than the threshold, with most of the work, and a second one right
//! after it, while little is left. Writers wait for the second, so that it leaves nothing.

use crate::wal::Salts;

/// Next to commits, the first pass comes when the log is longer than the threshold by this part, and the
/// second not before that. So a threshold has at most 1.6 passes. With SQLite's default of 1,000 frames the
/// log's first chunk has room for that, and a slow first pass for some 100 frames.
const SLACK: u32 = 4;

/// Writers wait for any pass when the log is longer than the threshold by this part.
const LONG: u32 = 3;

/// Each further pass comes when the log has grown by this part of the threshold.
const STEP: u32 = 8;

/// The log as a commit leaves it.
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    /// The log's generation.
    pub salts: Salts,
    /// Its frames.
    pub frames: u32,
    /// The frames that the database has.
    pub copied: u32,
    /// `wal_autocheckpoint` of the connection, in frames.
    pub threshold: u32,
}

/// The last pass that was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pass {
    salts: Salts,
    frames: u32,
    /// Its number in this generation, from 1.
    number: u32,
}

/// When to make a pass for a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    Now,
    /// When no commit has come for a while.
    InQuiet,
    Later,
}

impl Fill {
    /// The pass that is asked for now.
    pub fn pass(&self, last: Option<Pass>) -> Pass {
        Pass {
            salts: self.salts,
            frames: self.frames,
            number: self.of_generation(last).map_or(0, |pass| pass.number) + 1,
        }
    }

    /// `last` is the last pass of this process; `copied` shows those of others.
    pub fn due(&self, last: Option<Pass>) -> Due {
        let begun = self.begun(last);
        let first = self.longer_by(self.threshold / SLACK);
        let now = match self.of_generation(last).map_or(0, |pass| pass.number) {
            _ if self.is_first(begun) => first,
            0 | 1 => first.max(begun.saturating_add(1)),
            // It has left something, though writers have waited.
            _ => first.max(begun.saturating_add(self.step())),
        };
        match self.frames {
            frames if frames >= now => Due::Now,
            frames if frames >= self.threshold && self.is_first(begun) => Due::InQuiet,
            _ => Due::Later,
        }
    }

    /// Whether a pass follows one that has left something: writers wait for it.
    pub fn catches_up(&self, last: Option<Pass>) -> bool {
        !self.is_first(self.begun(last))
    }

    /// Whether writers wait for any pass. Otherwise the log would soon need more space than it has.
    pub fn is_long(&self) -> bool {
        self.frames >= self.longer_by(self.threshold / LONG)
    }

    /// How far passes of this generation have come.
    fn begun(&self, last: Option<Pass>) -> u32 {
        let tried = self.of_generation(last).map_or(0, |pass| pass.frames);
        self.copied.max(tried)
    }

    fn of_generation(&self, last: Option<Pass>) -> Option<Pass> {
        last.filter(|pass| pass.salts == self.salts)
    }

    fn is_first(&self, begun: u32) -> bool {
        begun.saturating_mul(2) < self.threshold
    }

    /// The frames by which the log grows from one further pass to the next.
    pub fn step(&self) -> u32 {
        (self.threshold / STEP).max(1)
    }

    fn longer_by(&self, frames: u32) -> u32 {
        self.threshold.saturating_add(frames.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(frames: u32, copied: u32) -> Fill {
        Fill {
            salts: Salts([1; 8]),
            frames,
            copied,
            threshold: 1_000,
        }
    }

    #[test]
    fn the_first_pass_waits_for_a_quiet_moment_and_not_for_long() {
        assert_eq!(fill(999, 0).due(None), Due::Later);
        assert_eq!(fill(1_000, 0).due(None), Due::InQuiet);
        assert_eq!(fill(1_249, 0).due(None), Due::InQuiet);
        assert_eq!(fill(1_250, 0).due(None), Due::Now);
        assert!(!fill(1_250, 0).catches_up(None));
    }

    /// Whether this process has made the first pass, or another one, and after one that was
    /// refused.
    #[test]
    fn the_second_pass_comes_at_once_and_the_next_when_the_log_has_grown() {
        let tried = Some(fill(1_250, 0).pass(None));
        for (copied, last) in [(1_250, tried), (1_250, None), (0, tried)] {
            assert_eq!(fill(1_250, copied).due(last), Due::Later);
            assert_eq!(fill(1_251, copied).due(last), Due::Now);
            assert!(fill(1_251, copied).catches_up(last));
        }
        // A pass in a quiet moment that was none.
        let tried = Some(fill(1_000, 0).pass(None));
        assert_eq!(fill(1_249, 1_000).due(tried), Due::Later);
        assert_eq!(fill(1_250, 1_000).due(tried), Due::Now);
        let tried = Some(fill(1_260, 1_000).pass(tried));
        assert_eq!(fill(1_384, 1_000).due(tried), Due::Later);
        assert_eq!(fill(1_385, 1_000).due(tried), Due::Now);
    }

    #[test]
    fn a_log_that_has_restarted_is_a_new_one() {
        let tried = Some(Pass {
            salts: Salts([0; 8]),
            frames: 1_250,
            number: 3,
        });
        assert_eq!(fill(1_000, 0).due(tried), Due::InQuiet);
        assert_eq!(fill(1_250, 0).due(tried), Due::Now);
        assert!(!fill(1_250, 0).catches_up(tried));
    }

    #[test]
    fn a_threshold_of_one_frame_is_one() {
        let fill = |frames, copied| Fill {
            threshold: 1,
            ..fill(frames, copied)
        };
        assert_eq!(fill(1, 0).due(None), Due::InQuiet);
        assert_eq!(fill(2, 0).due(None), Due::Now);
        assert_eq!(fill(2, 2).due(None), Due::Later);
        assert_eq!(fill(3, 2).due(None), Due::Now);
    }
}
