//! Everything that reached a device, in the order in which it answered.
//!
//! The loop driver handles requests of a buffered loop device one after the other, and the device
//! answers one after the other, so that the order is total. A flush therefore covers every write
//! before it in the history, also one that the kernel had not yet seen completed when it sent the
//! flush; a real device may be less generous, but then the kernel knew of no guarantee either.

use std::sync::Arc;

/// A place in a history: the number of events before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub usize);

/// What a completed flush makes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Covers {
    /// Every write before it.
    Everything,
    /// Only the writes since a position. No real flush is like that: it stands for write-through
    /// writes (FUA) that a device without FUA, as a loop device is, got as writes and a flush.
    WritesSince(Position),
}

/// Something that reached the device, or that the caller noted in between.
#[derive(Clone, Debug)]
pub enum Event {
    /// Bytes were written; they are in the cache.
    Write {
        /// Where, in bytes.
        offset: u64,
        /// What.
        data: Arc<[u8]>,
    },
    /// A range was discarded or zeroed, and reads as zeros; that is in the cache too.
    Zero {
        /// Where, in bytes.
        offset: u64,
        /// How many bytes.
        bytes: u64,
    },
    /// A flush was completed.
    Flush(Covers),
    /// The caller noted something; what it means is in the caller's own table.
    Mark(u64),
}

impl Event {
    /// The bytes it changes: offset and length; nothing for flushes and marks.
    pub fn range(&self) -> Option<(u64, u64)> {
        match self {
            Self::Write { offset, data } => Some((*offset, data.len() as u64)),
            Self::Zero { offset, bytes } => Some((*offset, *bytes)),
            Self::Flush(_) | Self::Mark(_) => None,
        }
    }
}

/// A recorded history; see the module.
#[derive(Clone, Debug, Default)]
pub struct History {
    events: Vec<Event>,
    microseconds: Vec<u64>,
}

impl History {
    /// Adds an event that happened `microseconds` after the recording began.
    pub fn push(&mut self, event: Event, microseconds: u64) {
        self.events.push(event);
        self.microseconds.push(microseconds);
    }

    /// All events.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The position behind the last event.
    pub fn end(&self) -> Position {
        Position(self.events.len())
    }

    /// When the last event before `position` happened, in microseconds since the recording began.
    pub fn microseconds(&self, position: Position) -> u64 {
        let before = position.0.checked_sub(1);
        before
            .and_then(|index| self.microseconds.get(index))
            .copied()
            .unwrap_or(0)
    }

    /// The marks before `position`, oldest first, each with the position behind it.
    pub fn marks(&self, position: Position) -> impl Iterator<Item = (Position, u64)> {
        let events = self.events.iter().take(position.0).enumerate();
        events.filter_map(|(index, event)| match event {
            Event::Mark(mark) => Some((Position(index + 1), *mark)),
            _ => None,
        })
    }

    /// Takes the flush that is event `flush` for what a device with FUA does at a write-through write:
    /// it covers the writes since `from`, and no others. `false` if that event is no flush.
    pub fn assume_fua(&mut self, flush: usize, from: Position) -> bool {
        match self.events.get_mut(flush) {
            Some(Event::Flush(covers)) => {
                *covers = Covers::WritesSince(from);
                true
            }
            _ => false,
        }
    }
}
