//! The device as the kernel sees it. A read returns the last write, whether on the medium or in the
//! cache. Everything that arrives is recorded.
//!
//! The cache loses nothing here. [`crate::cut`] computes the effect of a power cut from the
//! history, as often as the caller wants.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::history::{Covers, Event, History, Position};
use crate::image::Image;
use crate::medium::Medium;

/// A device; clones are the same device.
#[derive(Clone, Debug)]
pub struct Device {
    state: Arc<Mutex<State>>,
    bytes: u64,
}

#[derive(Debug)]
struct State {
    content: Image,
    recording: Option<History>,
    begin: Instant,
    flushes: FlushHandling,
}

/// The device's reaction to a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushHandling {
    /// The cache is on the medium when the flush is answered.
    Obeyed,
    /// The device answers and does nothing: a device that lies.
    Ignored,
}

impl Device {
    /// A device of `bytes` bytes, all zero.
    pub fn new(bytes: u64) -> Self {
        let state = State {
            content: Image::new(bytes),
            recording: None,
            begin: Instant::now(),
            flushes: FlushHandling::Obeyed,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            bytes,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether flushes do anything, from now on.
    pub fn handle_flushes(&self, handling: FlushHandling) {
        self.state().flushes = handling;
    }

    /// Puts another content under the device. It must not be mounted, and the kernel must not cache
    /// any of it ([`crate::host::Host::drop_cache`]).
    pub fn load(&self, content: Image) {
        self.state().content = content;
    }

    /// A copy of the content, including the cache.
    pub fn content(&self) -> Image {
        self.state().content.clone()
    }

    /// Begins a new history.
    pub fn record(&self) {
        let mut state = self.state();
        state.begin = Instant::now();
        state.recording = Some(History::default());
    }

    /// Ends the recording: the power is off. Later requests are not in the history.
    pub fn stop(&self) -> History {
        self.state().recording.take().unwrap_or_default()
    }

    /// Adds the caller's mark to the history, and returns the position after it.
    pub fn mark(&self, mark: u64) -> Position {
        self.state().note(Event::Mark(mark))
    }
}

impl Medium for Device {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.state().content.read(offset, out);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        state.content.write(offset, data);
        if state.recording.is_some() {
            state.note(Event::Write {
                offset,
                data: data.into(),
            });
        }
        Ok(())
    }

    fn zero(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let mut state = self.state();
        state.content.zero(offset, bytes);
        state.note(Event::Zero { offset, bytes });
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let mut state = self.state();
        if state.flushes == FlushHandling::Obeyed {
            state.note(Event::Flush(Covers::Everything));
        }
        Ok(())
    }
}

impl State {
    fn note(&mut self, event: Event) -> Position {
        let now = self.begin.elapsed().as_micros() as u64;
        match &mut self.recording {
            Some(history) => {
                history.push(event, now);
                history.end()
            }
            None => Position(0),
        }
    }
}
