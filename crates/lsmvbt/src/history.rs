//! The history: which versions stay readable, and which one was the newest at a time.
//!
//! The database keeps a number of versions, or those of a span of time. For the latter the directory
//! has *samples*: a version, and the clock's time when it began. The commit that adds a sample writes
//! the directory as one of its pages, so a crash loses a sample only with its commit. There is one
//! for each 64th part of the span at most. The oldest sample is the oldest version that is kept. The
//! commit that adds one removes those that are too old, and later transactions collect by that.
//!
//! A clock may jump. The age of a sample is the sum of the steps between the samples after it. A step
//! back counts as 0, and one forward as an eighth of the span at most. So a jump drops no more than
//! this eighth too early, and nothing waits for a clock to reach a time again.
//!
//! | key in the directory | value | what |
//! | --- | --- | --- |
//! | -17 - version | seconds since 1970 | that version began at this time |

use crate::core::Core;
use crate::error::{Error, Result};
use crate::page::{CAPACITY, Entry, INF, Node};
use crate::recover::HEADER_TRIES;
use crate::shared::{CURRENT, DURABLE};
use crate::tree::catalog::{DIRECTORY, METAS};
use crate::types::Durability;

/// The key of a sample of version 0. Those of the meta values are above.
const SAMPLES: i64 = -1 - METAS as i64;
/// More samples are thinned out.
const MOST: usize = 80;

/// The versions that stay readable next to the newest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum History {
    /// This number of versions.
    Versions(u64),
    /// The versions of this many seconds; not 0.
    Seconds(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sample {
    version: u64,
    time: u32,
}

impl Sample {
    fn key(self) -> i64 {
        SAMPLES - self.version as i64
    }
}

/// Seconds that lie between two samples at least. So no span needs more than [`MOST`].
fn resolution(span: u32) -> u32 {
    span.div_ceil(64)
}

/// The samples of a version of the directory from version `since` on, the oldest first.
fn samples(directory: &Node, view: u64, since: u64) -> Vec<Sample> {
    let entries = directory.entries().iter();
    let mut samples: Vec<Sample> = entries
        .filter(|e| e.key <= SAMPLES && e.visible(view))
        .map(|e| Sample {
            version: (SAMPLES - e.key) as u64,
            time: e.child,
        })
        .filter(|sample| sample.version >= since)
        .collect();
    samples.sort_unstable_by_key(|sample| sample.version);
    samples
}

/// The number of samples that are older than needed: a newer one has left the span as well.
fn too_old(samples: &[Sample], span: u32) -> usize {
    let longest = (span / 8).max(1);
    let mut age = 0u64;
    for (at, pair) in samples.windows(2).enumerate().rev() {
        let step = pair[1].time.saturating_sub(pair[0].time);
        age += u64::from(step.min(longest));
        if age >= u64::from(span) {
            return at;
        }
    }
    0
}

/// Removes every second sample, but for the newest. The one before it gets its time: then what the
/// samples say of a time may be older than it was, and is never younger. The oldest sample is still
/// the oldest version kept.
fn thin(samples: &mut Vec<Sample>) {
    let (Some(last), mut thinned) = (samples.pop(), Vec::new()) else {
        return;
    };
    for pair in samples.chunks(2) {
        let time = pair.iter().map(|sample| sample.time).max().unwrap_or(0);
        thinned.extend(pair.first().map(|first| Sample { time, ..*first }));
    }
    thinned.push(last);
    *samples = thinned;
}

/// Replaces the samples of the directory. One whose time changes keeps its start: it must not go with
/// this transaction.
fn put(directory: &mut Node, samples: &[Sample], version: u64) {
    let known: Vec<Entry> = directory.entries().to_vec();
    let is_there = |e: &Entry| {
        let mut same = samples.iter();
        same.any(|sample| sample.key() == e.key && sample.time == e.child)
    };
    directory.sift(|e| e.key > SAMPLES || is_there(e));
    for sample in samples {
        let before = known.iter().find(|e| e.key == sample.key());
        if before.is_some_and(is_there) {
            continue;
        }
        let entries = directory.entries();
        let after = entries.iter().position(|e| e.key > sample.key());
        let e = Entry {
            start: before.map_or(version, |e| e.start),
            end: INF,
            key: sample.key(),
            child: sample.time,
            ..Default::default()
        };
        directory.insert(after.unwrap_or(entries.len()), e, &[]);
    }
}

impl Core {
    /// The oldest version that is kept while `newest` is the newest one.
    pub(crate) fn kept_since(&mut self, newest: u64) -> Result<u64> {
        let since = self.header.history_since;
        if self.header.history_seconds == 0 {
            return Ok(self.counted_since(newest));
        }
        let directory = self.catalog_node(DIRECTORY)?;
        let oldest = samples(&directory, newest, since).first().copied();
        Ok(oldest.map_or(since, |sample| sample.version))
    }

    /// The same for a history of a number of versions.
    pub(crate) fn counted_since(&self, newest: u64) -> u64 {
        let lost = self.header.counted.with_newer(&self.lost);
        let low = lost.back(newest, self.header.history);
        low.max(self.header.history_since)
    }

    /// Reads from the directory what belongs to the header. A writer may change first one and then
    /// the other while this handle reads, so it reads again if there is another header afterwards.
    ///
    /// `read` gets the newest version. The directory is never older: then it would miss samples.
    fn with_header<T>(&mut self, read: impl Fn(&mut Core, u64) -> Result<T>) -> Result<T> {
        if self.txn.is_some() {
            let current = self.load(CURRENT)?;
            return read(self, current);
        }
        for _ in 0..HEADER_TRIES {
            self.learn_header()?;
            let current = self.load(CURRENT)?;
            self.sync_cache()?;
            let found = read(self, current);
            if self.knows_newest_header()? {
                return found;
            }
        }
        Err(Error::Busy)
    }

    /// The oldest version that can be read.
    pub(crate) fn oldest_kept(&mut self) -> Result<u64> {
        self.with_header(Core::oldest_of_header)
    }

    fn oldest_of_header(&mut self, current: u64) -> Result<u64> {
        if !self.header.has_history() {
            return Ok(current);
        }
        self.kept_since(current)
    }

    /// The oldest version that the open transaction keeps. It stays what it was at its beginning: a
    /// reader that begins meanwhile relies on that.
    pub(crate) fn txn_keeps_since(&mut self) -> Result<u64> {
        let txn = self.txn()?;
        let base = txn.base;
        if let Some(since) = txn.kept_since {
            return Ok(since);
        }
        // From the base: spilled pages stay collected even if this transaction is rolled back.
        let since = self.kept_since(base)?;
        // A crash may go back to the newest durable version, whose history reaches further back. All
        // commits since then are this handle's.
        if self.load(DURABLE)? >= base {
            self.durable_keeps_since = since;
        }
        let since = since.min(self.durable_keeps_since);
        self.txn()?.kept_since = Some(since);
        Ok(since)
    }

    /// Adds a sample to the transaction if the last one is old enough.
    pub(crate) fn sample_the_time(&mut self) -> Result<()> {
        let span = self.header.history_seconds;
        if span == 0 {
            return Ok(());
        }
        let (version, since) = (self.version()?, self.header.history_since);
        let time = self.storage.now();
        let directory = self.catalog_node(DIRECTORY)?;
        let mut samples = samples(&directory, version, since);
        drop(directory);
        match samples.last() {
            Some(last) => {
                let is_near = last.time.abs_diff(time) < resolution(span);
                if is_near || last.version == version {
                    return Ok(());
                }
            }
            // The versions since then are kept until this time is too old.
            None => samples.push(Sample {
                version: since,
                time,
            }),
        }
        samples.push(Sample { version, time });
        // A crash that goes back to the newest durable version takes later samples back, and must find
        // an earlier one. Without any, all versions would count as kept.
        let durable = self.load(DURABLE)?;
        let needed = samples.iter().rposition(|sample| sample.version <= durable);
        samples.drain(..too_old(&samples, span).min(needed.unwrap_or(0)));
        if samples.len() > MOST {
            thin(&mut samples);
        }
        self.txn_keeps_since()?;
        let directory = self.node_mut(DIRECTORY)?;
        put(directory, &samples, version);
        while directory.size() > CAPACITY && samples.len() > 2 {
            thin(&mut samples);
            put(directory, &samples, version);
        }
        if directory.size() > CAPACITY {
            // A directory without room for a sample. All versions are kept.
            samples.retain(|sample| sample.version != version);
            put(directory, &samples, version);
        }
        Ok(())
    }

    /// Makes room in a directory that is full: the samples become fewer.
    pub(crate) fn thin_samples(&mut self) -> Result<()> {
        let (version, since) = (self.version()?, self.header.history_since);
        self.txn_keeps_since()?;
        let directory = self.node_mut(DIRECTORY)?;
        let mut samples = samples(directory, version, since);
        while directory.size() > CAPACITY && samples.len() > 2 {
            thin(&mut samples);
            put(directory, &samples, version);
        }
        Ok(())
    }

    pub(crate) fn set_history(&mut self, history: History) -> Result<()> {
        self.begin_write(None)?;
        let by_time = self.header.history_seconds > 0;
        let set = self.write_history(history);
        self.rollback()?;
        set?;
        if by_time && matches!(history, History::Versions(_)) {
            return self.forget_samples();
        }
        Ok(())
    }

    /// They would be in the way of a later history by time, which goes back further.
    fn forget_samples(&mut self) -> Result<()> {
        match self.begin_write(None) {
            Err(Error::Busy) => return Ok(()),
            begun => begun?,
        };
        let forget = |core: &mut Core| {
            put(core.node_mut(DIRECTORY)?, &[], 0);
            Ok(())
        };
        if let Err(e) = self.changing(forget) {
            self.rollback()?;
            return Err(e);
        }
        self.commit(Durability::Flush)?;
        Ok(())
    }

    fn write_history(&mut self, history: History) -> Result<()> {
        let base = self.txn()?.base;
        let since = self.kept_since(base)?;
        let mut header = self.header.clone();
        let by_time = header.history_seconds > 0;
        (header.history, header.history_seconds) = match history {
            History::Versions(versions) => (versions, 0),
            History::Seconds(seconds) => (0, seconds),
        };
        let is_more = header.history > self.header.history;
        if is_more || by_time || header.history_seconds > 0 {
            header.history_since = since;
        }
        self.write_header(header, None)?;
        self.flush_storage()
    }

    /// The version that was the newest at a time, as far as the samples know: see
    /// [`crate::Db::version_at`].
    pub(crate) fn version_at(&mut self, time: u32) -> Result<u64> {
        self.with_header(|core, current| core.version_of_header(current, time))
    }

    fn version_of_header(&mut self, current: u64, time: u32) -> Result<u64> {
        let span = self.header.history_seconds;
        if span == 0 {
            return Err(Error::NoTimes);
        }
        if time >= self.storage.now() {
            return Ok(current);
        }
        let directory = self.catalog_node(DIRECTORY)?;
        let samples = samples(&directory, current, self.header.history_since);
        let Some(at) = samples.iter().rposition(|sample| sample.time <= time) else {
            let oldest = samples.first().map(|sample| sample.time);
            return Err(Error::NoVersionAt {
                asked: time,
                oldest,
            });
        };
        let known = samples[at];
        let is_over = time - known.time >= resolution(span);
        let version = match samples.get(at + 1) {
            // The next commit so long after this sample has made the next one.
            Some(next) if is_over => next.version - 1,
            None if is_over => current,
            _ => known.version,
        };
        // A history that began in a state that recovery has made is kept since then, by the state's
        // number. Nor does a range that was made of several reach further back than the sample.
        let before = self.lost.before(version);
        Ok(before.map_or(version, |before| before.max(known.version)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample((version, time): (u64, u32)) -> Sample {
        Sample { version, time }
    }

    #[test]
    fn fewer_samples_never_date_a_version_before_its_time() {
        let all = [(1, 10), (5, 20), (9, 30), (12, 40), (20, 50), (21, 60)].map(sample);
        let thinned = |count: usize| {
            let mut samples = all[..count].to_vec();
            thin(&mut samples);
            samples
        };
        assert_eq!(
            thinned(6),
            [(1, 20), (9, 40), (20, 50), (21, 60)].map(sample)
        );
        assert_eq!(thinned(5), [(1, 20), (9, 40), (20, 50)].map(sample));
        assert_eq!(thinned(1), [(1, 10)].map(sample));
        assert_eq!(thinned(0), []);
    }

    #[test]
    fn a_span_needs_no_more_samples_than_the_directory_takes() {
        for span in 1..100_000u32 {
            assert!(span.div_ceil(resolution(span)) <= 64, "{span}");
        }
    }
}
