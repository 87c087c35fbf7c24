//! Gathers the kernel's reports during a watch: trace records, and the names of created files.
//!
//! A thread moves the kernel's buffers into memory every few milliseconds. It processes nothing
//! until there is much data, so a short watch costs almost nothing while it lasts. During a long
//! watch with a [`Digest`] it then digests all but the youngest records, which bounds memory.
//! Without a digest, the amount of data has a limit. The collector counts events that the kernel
//! had to drop.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::Error;
use crate::digest::{Digest, Keep, Taken};
use crate::names::{Names, Watch};
use crate::trace::now_ns;
use crate::tracefs::CpuReader;

/// The interval at which the thread empties the kernel's buffers.
const INTERVAL: Duration = Duration::from_millis(20);

/// The most bytes collected without a digest; later ones are lost.
const MAX_BYTES: usize = 1 << 30;

/// The bytes held back where there is a digest, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// During the watch only data beyond this is digested.
    pub(crate) bytes: usize,
    /// Younger events are not digested: an older event of another CPU may not have been collected
    /// yet.
    pub(crate) delay: Duration,
}

impl Default for Held {
    fn default() -> Self {
        Self {
            bytes: 16 << 20,
            delay: Duration::from_secs(1),
        }
    }
}

/// Events digested between two readings: some milliseconds of work. So the thread empties the
/// kernel's buffers in time even if it gets little of the processor.
const AT_A_TIME: usize = 4096;

/// The reports that are not yet digested.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    /// Sub-buffers of each CPU, in the order in which the kernel filled them.
    pub(crate) cpus: Vec<VecDeque<Vec<u8>>>,
    bytes: usize,
    /// The names that were created.
    pub(crate) names: Names,
    /// Events that the kernel had no room for.
    pub(crate) lost: u64,
    /// Whether more data came than the limit allows.
    pub(crate) too_much: bool,
}

impl Collected {
    /// Adds a sub-buffer.
    pub(crate) fn add(&mut self, cpu: usize, sub_buffer: Vec<u8>) {
        if self.cpus.len() <= cpu {
            self.cpus.resize_with(cpu + 1, VecDeque::new);
        }
        self.bytes += sub_buffer.len();
        if let Some(cpu) = self.cpus.get_mut(cpu) {
            cpu.push_back(sub_buffer);
        }
    }

    /// Takes out the next sub-buffer of a CPU.
    pub(crate) fn next(&mut self, cpu: usize) -> Option<Vec<u8>> {
        let sub_buffer = self.cpus.get_mut(cpu)?.pop_front()?;
        self.bytes -= sub_buffer.len();
        Some(sub_buffer)
    }

    /// Bytes of the sub-buffers.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The digest that the caller hands to the thread.
type Shared<K> = Arc<Mutex<Option<Digest<K>>>>;

/// A running watch.
pub(crate) struct Collector<K: Keep + 'static> {
    stop: Arc<AtomicBool>,
    digest: Shared<K>,
    thread: Option<JoinHandle<Result<Collected, Error>>>,
}

impl<K: Keep + 'static> Collector<K> {
    /// Begins to collect records from `readers` and, if there is a `watch`, the names of created
    /// files.
    pub(crate) fn start(
        readers: Vec<CpuReader>,
        watch: Option<Watch>,
        held: Held,
    ) -> Result<Self, Error> {
        let (stop, digest) = (Arc::new(AtomicBool::new(false)), Shared::<K>::default());
        let mut work = Work {
            readers,
            watch,
            held,
            collected: Collected::default(),
            stop: Arc::clone(&stop),
            digest: Arc::clone(&digest),
        };
        let thread = thread::Builder::new()
            .name("trace".to_owned())
            .spawn(move || work.collect())
            .map_err(Error::io("start a thread to read", Path::new("the trace")))?;
        Ok(Self {
            stop,
            digest,
            thread: Some(thread),
        })
    }

    /// Digests with this from now on, including the data collected before.
    pub(crate) fn digest_with(&self, digest: Digest<K>) {
        *lock(&self.digest) = Some(digest);
    }

    /// Ends the watch. Tracing must have stopped, so that reading comes to an end. Returns the
    /// rest, and the digest if there was one.
    pub(crate) fn finish(mut self) -> Result<(Collected, Option<Digest<K>>), Error> {
        let collected = self.join()?;
        let digest = lock(&self.digest).take();
        Ok((collected, digest))
    }

    fn join(&mut self) -> Result<Collected, Error> {
        self.stop.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else {
            return Ok(Collected::default());
        };
        thread
            .join()
            .unwrap_or_else(|_| Err(Error::Unavailable("the trace reader panicked".to_owned())))
    }
}

/// A digest is consistent between two calls. If one panicked inside, the end of its thread shows
/// it.
fn lock<K>(digest: &Mutex<Option<Digest<K>>>) -> std::sync::MutexGuard<'_, Option<Digest<K>>> {
    digest.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K: Keep + 'static> Drop for Collector<K> {
    fn drop(&mut self) {
        let _ = self.join();
    }
}

/// The thread's state.
struct Work<K> {
    readers: Vec<CpuReader>,
    watch: Option<Watch>,
    held: Held,
    collected: Collected,
    stop: Arc<AtomicBool>,
    digest: Shared<K>,
}

impl<K: Keep> Work<K> {
    fn collect(&mut self) -> Result<Collected, Error> {
        loop {
            // Loaded before reading, so that the last round reads everything recorded before the
            // stop.
            let last = self.stop.load(Ordering::Acquire);
            let begin_ns = now_ns();
            self.read()?;
            if last {
                break;
            }
            let much = self.collected.bytes() > self.held.bytes;
            if !much || self.digest(begin_ns)? == Taken::All {
                thread::sleep(INTERVAL);
            }
        }
        for reader in &self.readers {
            self.collected.lost += reader.overrun()?;
        }
        Ok(std::mem::take(&mut self.collected))
    }

    fn read(&mut self) -> Result<(), Error> {
        for (cpu, reader) in self.readers.iter_mut().enumerate() {
            while let Some(sub_buffer) = reader.next()? {
                self.collected.too_much |= self.collected.bytes() > MAX_BYTES;
                if !self.collected.too_much {
                    self.collected.add(cpu, sub_buffer.to_vec());
                }
            }
        }
        match &self.watch {
            Some(watch) => watch.read(&mut self.collected.names),
            None => Ok(()),
        }
    }

    /// The last reading read everything recorded a while before it began.
    fn digest(&mut self, begin_ns: u64) -> Result<Taken, Error> {
        let delay = u64::try_from(self.held.delay.as_nanos()).unwrap_or(u64::MAX);
        match &mut *lock(&self.digest) {
            Some(digest) => {
                let limit_ns = begin_ns.saturating_sub(delay);
                digest.take(&mut self.collected, limit_ns, AT_A_TIME)
            }
            None => Ok(Taken::All),
        }
    }
}
