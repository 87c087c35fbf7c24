//! Everything that reached a device, in the order of its answers.
//!
//! The loop driver handles requests of a buffered loop device one after the other. The device also
//! answers one after the other, so the order is total. A flush therefore covers every write before
//! it in the history. That includes a write whose completion the kernel had not yet seen when it
//! sent the flush. A real device may be less generous, but then the kernel knew of no guarantee
//! either.

use std::sync::Arc;

/// A place in a history: the number of events before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub usize);

/// The writes that a completed flush makes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Covers {
    /// Every write before it.
    Everything,
    /// Only the writes since a position. No real flush is like that: it stands for write-through
    /// writes (FUA). A device without FUA, such as a loop device, got them as writes and a flush.
    WritesSince(Position),
}

/// A request that reached the device, or the caller's mark.
#[derive(Clone, Debug)]
pub enum Event {
    /// Bytes were written; they are in the cache.
    Write {
        /// The offset, in bytes.
        offset: u64,
        /// The data.
        data: Arc<[u8]>,
    },
    /// A range was discarded or zeroed, and reads as zeros; that is in the cache too.
    Zero {
        /// The offset, in bytes.
        offset: u64,
        /// How many bytes.
        bytes: u64,
    },
    /// A flush was completed.
    Flush(Covers),
    /// The caller set a mark; the caller's own table has its meaning.
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

    /// The position after the last event.
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

    /// The marks before `position`, oldest first, each with the position after it.
    pub fn marks(&self, position: Position) -> impl Iterator<Item = (Position, u64)> {
        let events = self.events.iter().take(position.0).enumerate();
        events.filter_map(|(index, event)| match event {
            Event::Mark(mark) => Some((Position(index + 1), *mark)),
            _ => None,
        })
    }

    /// Treats the flush that is event `flush` as a device with FUA treats a write-through write. It
    /// covers the writes since `from`, and no others. `false` if that event is not a flush.
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
