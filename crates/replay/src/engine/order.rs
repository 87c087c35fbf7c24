//! The recorded order: which event may begin.
//!
//! An event may begin once every event has returned that had returned before it began when it was
//! recorded. So two events run together only where they did so in the recording. Events of one
//! connection keep the order of the trace.
//!
//! The unfinished event that returned first may always begin. So the order alone never stands
//! still. Where every running event waits for a lock, their connections are set aside, and others
//! go on without them: one of those holds the lock. Once one of the others is over, the lock may be
//! free, and the order holds again for all.
//!
//! The events that are read ahead are limited. An event may begin only when the trace has been
//! read some way past it, because events are written when they return, and not at once.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::Key;

/// An event may begin when this many later ones have been read.
const LOOK_AHEAD: u64 = 4096;

/// Events that are read and not over. Those of connections that were set aside do not count.
const MOST_EVENTS: usize = 4 * LOOK_AHEAD as usize;

/// The same in bytes.
const MOST_BYTES: usize = 64 << 20;

/// When an event began and when it returned, in nanoseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interval {
    /// The beginning.
    pub begin: u64,
    /// The return.
    pub end: u64,
}

struct Entry<T> {
    ordinal: u64,
    interval: Interval,
    bytes: usize,
    event: T,
}

struct Line<T> {
    queue: VecDeque<Entry<T>>,
    bytes: usize,
    /// The return of its last event.
    end: u64,
    is_aside: bool,
}

struct Running {
    ordinal: u64,
    interval: Interval,
    /// Events that were over when it last looked for a lock.
    tried: u64,
    waits: bool,
    has_waited: bool,
}

/// See the module. `T` is an event, and each connection has a line of them.
pub struct Order<T> {
    lines: HashMap<Key, Line<T>>,
    running: BTreeMap<Key, Running>,
    /// The first unfinished event of each line that is not set aside, by its return.
    returns: BTreeSet<(u64, u64, Key)>,
    /// The first event of each line that has not begun, by its beginning.
    ready: BTreeSet<(u64, u64, Key)>,
    /// Events that have not begun.
    queued: usize,
    /// Those of lines that are not set aside.
    count: usize,
    bytes: usize,
    /// The last event that was read.
    read: u64,
    /// Nothing more is read before these are over.
    has_ended: bool,
    over: u64,
    latest_begun: u64,
    /// Events that were read too late to keep their place.
    pub late: u64,
    /// Events that found a lock.
    pub waited: u64,
    /// Events that passed one which waits for a lock.
    pub passed: u64,
}

impl<T> Default for Order<T> {
    fn default() -> Self {
        Self {
            lines: HashMap::new(),
            running: BTreeMap::new(),
            returns: BTreeSet::new(),
            ready: BTreeSet::new(),
            queued: 0,
            count: 0,
            bytes: 0,
            read: 0,
            has_ended: false,
            over: 0,
            latest_begun: 0,
            late: 0,
            waited: 0,
            passed: 0,
        }
    }
}

impl<T> Order<T> {
    /// Adds the next event of the trace. Without times it follows the last one of its line.
    pub fn add(&mut self, key: Key, ordinal: u64, when: Option<Interval>, bytes: usize, event: T) {
        self.read = ordinal;
        self.has_ended = false;
        self.late += u64::from(when.is_some_and(|when| when.end < self.latest_begun));
        let line = self.lines.entry(key).or_insert_with(|| Line {
            queue: VecDeque::new(),
            bytes: 0,
            end: 0,
            is_aside: false,
        });
        let interval = when.unwrap_or(Interval {
            begin: line.end,
            end: line.end,
        });
        line.end = interval.end;
        line.bytes += bytes;
        line.queue.push_back(Entry {
            ordinal,
            interval,
            bytes,
            event,
        });
        self.queued += 1;
        if !line.is_aside {
            self.count += 1;
            self.bytes += bytes;
        }
        if line.queue.len() == 1 && !self.running.contains_key(&key) {
            self.returns.insert((interval.end, ordinal, key));
            self.ready.insert((interval.begin, ordinal, key));
        }
    }

    /// The trace is at its end, or something waits until the events so far are over.
    pub fn end(&mut self) {
        self.has_ended = true;
    }

    /// Whether more events may be read.
    pub fn has_room(&self) -> bool {
        self.count < MOST_EVENTS && self.bytes < MOST_BYTES
    }

    /// Whether all events are over.
    pub fn is_empty(&self) -> bool {
        self.running.is_empty() && self.ready.is_empty()
    }

    /// The events that wait in lines that were set aside.
    pub fn aside(&self) -> usize {
        self.queued - self.count
    }

    /// Whether the first of the events that have not begun may begin, as far as the order goes.
    fn may_begin(&self) -> Option<(u64, u64, Key)> {
        let first = *self.ready.first()?;
        let before = self.returns.first().map_or(u64::MAX, |first| first.0);
        (first.0 <= before).then_some(first)
    }

    /// Begins an event that may begin.
    pub fn next(&mut self) -> Option<(Key, T)> {
        let first = self.may_begin()?;
        let (begin, ordinal, key) = first;
        if !self.has_ended && self.has_room() && ordinal + LOOK_AHEAD > self.read {
            return None;
        }
        self.ready.remove(&first);
        let line = self.lines.get_mut(&key)?;
        let entry = line.queue.pop_front()?;
        line.bytes -= entry.bytes;
        self.queued -= 1;
        self.count -= 1;
        self.bytes -= entry.bytes;
        let mut others = self.running.values();
        self.passed += u64::from(others.any(|other| other.interval.end < begin));
        self.latest_begun = self.latest_begun.max(begin);
        let running = Running {
            ordinal,
            interval: entry.interval,
            tried: self.over,
            waits: false,
            has_waited: false,
        };
        self.running.insert(key, running);
        Some((key, entry.event))
    }

    /// The running event of a line is over.
    pub fn complete(&mut self, key: Key) {
        let Some(running) = self.running.remove(&key) else {
            return;
        };
        self.over += 1;
        self.waited += u64::from(running.has_waited);
        self.returns
            .remove(&(running.interval.end, running.ordinal, key));
        self.bring_back(key);
        let others: Vec<Key> = self.running.keys().copied().collect();
        for other in others {
            self.bring_back(other);
        }
        let Some(line) = self.lines.get_mut(&key) else {
            return;
        };
        if let Some(next) = line.queue.front() {
            let (begin, end) = (next.interval.begin, next.interval.end);
            self.returns.insert((end, next.ordinal, key));
            self.ready.insert((begin, next.ordinal, key));
        }
    }

    /// A line that was set aside counts again.
    fn bring_back(&mut self, key: Key) {
        let Some(line) = self.lines.get_mut(&key).filter(|line| line.is_aside) else {
            return;
        };
        line.is_aside = false;
        self.count += line.queue.len();
        self.bytes += line.bytes;
        if let Some(running) = self.running.get(&key) {
            self.returns
                .insert((running.interval.end, running.ordinal, key));
        }
    }

    /// The connection of a line is gone. Returns false if the line has more events.
    pub fn forget(&mut self, key: Key) -> bool {
        let line = self.lines.get(&key);
        let has_more = line.is_some_and(|line| !line.queue.is_empty());
        if !has_more {
            self.lines.remove(&key);
        }
        !has_more
    }

    /// The running event of a line found a lock, and waits. Returns whether every running event
    /// does, although nothing came to its end meanwhile, and nothing else may begin.
    pub fn waits(&mut self, key: Key) -> bool {
        let Some(running) = self.running.get_mut(&key) else {
            return false;
        };
        (running.waits, running.has_waited) = (true, true);
        let over = self.over;
        let mut all = self.running.values();
        if !all.all(|running| running.waits && running.tried == over) || self.may_begin().is_some()
        {
            return false;
        }
        for (key, running) in &self.running {
            self.returns
                .remove(&(running.interval.end, running.ordinal, *key));
            if let Some(line) = self.lines.get_mut(key).filter(|line| !line.is_aside) {
                line.is_aside = true;
                self.count -= line.queue.len();
                self.bytes -= line.bytes;
            }
        }
        self.may_begin().is_none()
    }

    /// The running event of a line looks for the lock again.
    pub fn tries(&mut self, key: Key) {
        let over = self.over;
        if let Some(running) = self.running.get_mut(&key) {
            (running.waits, running.tried) = (false, over);
        }
    }
}

#[cfg(test)]
mod tests;
