//! Gathers what the kernel reports while something is watched: trace records, and the names under which
//! files are created.
//!
//! A thread empties the kernel's buffers every few milliseconds into memory and looks at nothing;
//! everything is parsed when the watch is over. What the kernel had to drop is counted.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::Error;
use crate::names::{Names, Watch};
use crate::tracefs::CpuReader;

/// How often the kernel's buffers are emptied.
const INTERVAL: Duration = Duration::from_millis(20);

/// The most that is gathered; what comes after it is lost.
const MAX_BYTES: usize = 1 << 30;

/// Everything that was reported.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    /// Each sub-buffer of each CPU, in the order in which they were filled on that CPU.
    pub(crate) sub_buffers: Vec<Vec<u8>>,
    /// The names that were created.
    pub(crate) names: Names,
    /// Events that the kernel had no room for.
    pub(crate) lost: u64,
    /// Whether more came than may be gathered.
    pub(crate) too_much: bool,
}

/// A watch under way.
#[derive(Debug)]
pub(crate) struct Collector {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Gathered, Error>>>,
}

impl Collector {
    /// Begins to gather what `readers` have and, if there is a `watch`, which names are created.
    pub(crate) fn start(readers: Vec<CpuReader>, watch: Option<Watch>) -> Result<Self, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .name("trace".to_owned())
            .spawn(move || gather(readers, watch.as_ref(), &stopped))
            .map_err(Error::io("start a thread to read", Path::new("the trace")))?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    /// Ends the watch. Tracing must have been stopped, so that there is an end to read to.
    pub(crate) fn finish(mut self) -> Result<Gathered, Error> {
        self.join()
    }

    fn join(&mut self) -> Result<Gathered, Error> {
        self.stop.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else {
            return Ok(Gathered::default());
        };
        thread
            .join()
            .unwrap_or_else(|_| Err(Error::Unavailable("the trace reader panicked".to_owned())))
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.join();
    }
}

fn gather(
    mut readers: Vec<CpuReader>,
    watch: Option<&Watch>,
    stop: &AtomicBool,
) -> Result<Gathered, Error> {
    let (mut gathered, mut bytes) = (Gathered::default(), 0);
    loop {
        // Looked at before reading, so that the last round reads what was there at the stop.
        let last = stop.load(Ordering::Acquire);
        for reader in &mut readers {
            while let Some(sub_buffer) = reader.next()? {
                bytes += sub_buffer.len();
                gathered.too_much |= bytes > MAX_BYTES;
                if !gathered.too_much {
                    gathered.sub_buffers.push(sub_buffer.to_vec());
                }
            }
        }
        if let Some(watch) = watch {
            watch.read(&mut gathered.names)?;
        }
        if last {
            break;
        }
        thread::sleep(INTERVAL);
    }
    for reader in &readers {
        gathered.lost += reader.overrun()?;
    }
    Ok(gathered)
}
