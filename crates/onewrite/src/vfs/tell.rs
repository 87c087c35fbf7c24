//! When a database's events are written ([`super::events`]), except those of slow commits
//! ([`super::stall`]).
//!
//! Their place may be a file on a file system that hangs. So a connection that keeps others from
//! writing, or from opening the database, writes its events when it has let them go on.

use std::time::Duration;

use serde::Serialize;

use super::company::{FIRST_READ_LOCK, LOG_READ_LOCKS};
use super::database::Database;
use super::events::{CHECKPOINT_HELD, Event, MODE_ENTERED, MODE_REFUSED, POISONED, RECOVERED};
use super::inner::LockLevel;
use crate::commit::SharedLog;
use crate::storage::lock_holders;
use crate::sync::Instant;
use crate::wal::{FrameNo, IndexView, Salts};

/// The first byte of `-shm` that SQLite locks.
const FIRST_LOCK_BYTE: u64 = 120;

/// A reader that holds a checkpoint up.
#[derive(Serialize)]
pub struct Reader {
    pid: u32,
    program: String,
    /// The last frame that it sees.
    frame: u32,
}

impl Database {
    /// Writes an event as soon as others can go on.
    fn tell_soon(&self, event: Event) {
        self.untold.borrow_mut().push(event);
        // Within the first lock it may have others that this does not show.
        if self.lock.get() == LockLevel::SHARED {
            self.tell_untold();
        }
    }

    /// Writes the events that wait, if others can go on. Called at the end of calls that release locks.
    pub fn tell_untold(&self) {
        let is_in_the_way = self.lock.get() > LockLevel::SHARED || self.held.write.get();
        if !is_in_the_way && !self.untold.borrow().is_empty() {
            self.untold.take().into_iter().for_each(Event::tell);
        }
    }

    /// The database is in one of our modes, with this log.
    pub(super) fn tell_of_mode(&self, log: &SharedLog) {
        if !log.is_new_here() {
            return;
        }
        let capabilities = log.file().capabilities();
        let event = Event::new(&MODE_ENTERED, &self.paths.database)
            .with("mode", log.mode())
            .with("layout", log.geometry().layout())
            .with("sync", log.sync_policy(self.settings.get().commit.sync))
            .with("filesystem", &capabilities.filesystem)
            .with("device", &capabilities.device);
        self.tell_soon(event);
    }

    /// The database does not get this mode.
    pub(super) fn tell_of_refusal(&self, mode: &str, why: &str) {
        Event::new(&MODE_REFUSED, &self.paths.database)
            .with("mode", mode)
            .with("why", why)
            .tell();
    }

    /// The log is poisoned.
    pub(super) fn tell_of_poison(&self, log: &SharedLog) {
        if let Some(why) = log.new_poison() {
            self.tell_soon(Event::new(&POISONED, &self.paths.database).with("why", why));
        }
    }

    /// SQLite has taken the locks for recovery.
    pub fn recovery_begins(&self) {
        self.recovery_began.set(Some(Instant::now()));
        let Some(index) = self.inner.writable_index() else {
            return;
        };
        let moment = crate::log::shared::moment();
        let number = index.note_recovery(moment ^ self.committer.0);
        if let Some(writer) = self.writer.borrow_mut().as_mut() {
            writer.recovery_begins(Salts::new(number, moment as u32));
        }
    }

    /// Recovery has ended. An empty log is recovered whenever a database is opened.
    pub(super) fn tell_of_recovery(&self, index: Option<IndexView>) {
        let began = self.recovery_began.take();
        let took = began.map_or(Duration::ZERO, |began| Instant::now() - began);
        if let Some(index) = index.filter(|index| index.last_frame > FrameNo(0)) {
            let event = Event::new(&RECOVERED, &self.paths.database)
                .with("frames", index.last_frame.0)
                .with("us", took.as_micros());
            self.untold.borrow_mut().push(event);
        }
    }

    /// A checkpoint begins.
    pub(super) fn checkpoint_begins(&self) {
        self.to_checkpoint.set(self.inner.index_view());
    }

    /// It has ended, with or without having copied what was there when it began.
    pub(super) fn checkpoint_ends(&self) {
        self.end_own_checkpoint();
        let (Some(wanted), Some(now)) = (self.to_checkpoint.take(), self.inner.index_view()) else {
            return;
        };
        let copied = self.inner.backfilled().unwrap_or(wanted.last_frame);
        if wanted.salts == now.salts && copied < wanted.last_frame {
            self.tell_of_readers(copied, wanted.last_frame);
        }
    }

    /// Only if readers are the reason: a checkpoint may fail for others, which have their own error.
    fn tell_of_readers(&self, copied: FrameNo, wanted: FrameNo) {
        let database = &self.paths.database;
        if !Event::is_due(&CHECKPOINT_HELD, database) {
            return;
        }
        let Some(mark) = self.oldest_mark(wanted) else {
            return;
        };
        let mut event = Event::new(&CHECKPOINT_HELD, database)
            .with("left", wanted.0 - copied.0)
            .with("frame", mark.0);
        let readers = self.readers_before(wanted);
        if let Some(oldest) = readers.iter().min_by_key(|reader| reader.frame) {
            let all: Vec<String> = readers
                .iter()
                .map(|reader| format!("{}:{}", reader.pid, reader.program))
                .collect();
            event = event
                .with("pid", oldest.pid)
                .with("program", &oldest.program)
                .with("readers", all.join(" "));
        }
        event.tell();
    }

    /// The oldest read mark that a reader holds and that is before this frame. SQLite asks in the same
    /// way: it takes the mark's lock for a moment.
    fn oldest_mark(&self, frame: FrameNo) -> Option<FrameNo> {
        let index = self.inner.index()?;
        let marks = (1..=LOG_READ_LOCKS).map(|lock| (lock, index.read_mark(lock as usize)));
        let is_held = |lock| self.is_read_lock_held(FIRST_READ_LOCK + lock);
        let old = marks.filter(|(lock, mark)| *mark < frame && is_held(*lock));
        old.map(|(_, mark)| mark).min()
    }

    /// The processes that read an older state than the last commit's, as far as this user can see them.
    pub(super) fn readers_behind(&self) -> Vec<Reader> {
        let index = self.inner.index_view();
        index.map_or_else(Vec::new, |index| self.readers_before(index.last_frame))
    }

    fn readers_before(&self, frame: FrameNo) -> Vec<Reader> {
        let Some(index) = self.inner.index() else {
            return Vec::new();
        };
        // The search goes through all processes of the machine. A program may ask for the status whenever it
        // connects, and mostly no mark is old.
        if !(1..=LOG_READ_LOCKS).any(|mark| index.read_mark(mark as usize) < frame) {
            return Vec::new();
        }
        let first = FIRST_LOCK_BYTE + FIRST_READ_LOCK as u64;
        let range = first + 1..first + 1 + LOG_READ_LOCKS as u64;
        let holders = lock_holders(&self.paths.shm, range).into_iter();
        let readers = holders.filter_map(|holder| {
            let marks = holder
                .bytes
                .iter()
                .map(|byte| index.read_mark((byte - first) as usize));
            Some(Reader {
                frame: marks.filter(|mark| *mark < frame).min()?.0,
                pid: holder.pid,
                program: holder.program,
            })
        });
        readers.collect()
    }
}
