//! Gathers what the kernel reports while something is watched: trace records, and the names under which
//! files are created.
//!
//! A thread empties the kernel's buffers every few milliseconds into memory and looks at nothing until
//! there is much of it: a short watch costs next to nothing while it lasts. Of a long one, if it was given a
//! [`Digest`], it then digests all but the youngest, so that memory stays bounded; without one there is an
//! end to what is gathered. What the kernel had to drop is counted.

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

/// How often the kernel's buffers are emptied.
const INTERVAL: Duration = Duration::from_millis(20);

/// The most that is gathered without a digest; what comes after it is lost.
const MAX_BYTES: usize = 1 << 30;

/// How much is held back, in bytes, and for how long, where there is a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// Only what is beyond this is digested while the watch lasts.
    pub(crate) bytes: usize,
    /// What is younger is not digested: an older event of another CPU may not have been gathered.
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

/// Events that are digested between two readings: some milliseconds of work, so that the kernel's buffers are
/// emptied in time also by a thread that gets little of the processor.
const AT_A_TIME: usize = 4096;

/// What was reported, as far as it has not been digested.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    /// Sub-buffers of each CPU, in the order in which they were filled.
    pub(crate) cpus: Vec<VecDeque<Vec<u8>>>,
    bytes: usize,
    /// The names that were created.
    pub(crate) names: Names,
    /// Events that the kernel had no room for.
    pub(crate) lost: u64,
    /// Whether more came than may be gathered.
    pub(crate) too_much: bool,
}

impl Gathered {
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

/// Where the digest is put for the thread.
type Shared<K> = Arc<Mutex<Option<Digest<K>>>>;

/// A watch under way.
pub(crate) struct Collector<K: Keep + 'static> {
    stop: Arc<AtomicBool>,
    digest: Shared<K>,
    thread: Option<JoinHandle<Result<Gathered, Error>>>,
}

impl<K: Keep + 'static> Collector<K> {
    /// Begins to gather what `readers` have and, if there is a `watch`, which names are created.
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
            gathered: Gathered::default(),
            stop: Arc::clone(&stop),
            digest: Arc::clone(&digest),
        };
        let thread = thread::Builder::new()
            .name("trace".to_owned())
            .spawn(move || work.gather())
            .map_err(Error::io("start a thread to read", Path::new("the trace")))?;
        Ok(Self {
            stop,
            digest,
            thread: Some(thread),
        })
    }

    /// Digests with this from now on, what was gathered before included.
    pub(crate) fn digest_with(&self, digest: Digest<K>) {
        *lock(&self.digest) = Some(digest);
    }

    /// Ends the watch. Tracing must have been stopped, so that there is an end to read to. Returns what is
    /// left, and the digest if there was one.
    pub(crate) fn finish(mut self) -> Result<(Gathered, Option<Digest<K>>), Error> {
        let gathered = self.join()?;
        let digest = lock(&self.digest).take();
        Ok((gathered, digest))
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

/// A digest is whole between two calls; one that panicked within is found out by its thread's end.
fn lock<K>(digest: &Mutex<Option<Digest<K>>>) -> std::sync::MutexGuard<'_, Option<Digest<K>>> {
    digest.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K: Keep + 'static> Drop for Collector<K> {
    fn drop(&mut self) {
        let _ = self.join();
    }
}

/// The thread's.
struct Work<K> {
    readers: Vec<CpuReader>,
    watch: Option<Watch>,
    held: Held,
    gathered: Gathered,
    stop: Arc<AtomicBool>,
    digest: Shared<K>,
}

impl<K: Keep> Work<K> {
    fn gather(&mut self) -> Result<Gathered, Error> {
        loop {
            // Looked at before reading, so that the last round reads what was there at the stop.
            let last = self.stop.load(Ordering::Acquire);
            let begin_ns = now_ns();
            self.read()?;
            if last {
                break;
            }
            let much = self.gathered.bytes() > self.held.bytes;
            if !much || self.digest(begin_ns)? == Taken::All {
                thread::sleep(INTERVAL);
            }
        }
        for reader in &self.readers {
            self.gathered.lost += reader.overrun()?;
        }
        Ok(std::mem::take(&mut self.gathered))
    }

    fn read(&mut self) -> Result<(), Error> {
        for (cpu, reader) in self.readers.iter_mut().enumerate() {
            while let Some(sub_buffer) = reader.next()? {
                self.gathered.too_much |= self.gathered.bytes() > MAX_BYTES;
                if !self.gathered.too_much {
                    self.gathered.add(cpu, sub_buffer.to_vec());
                }
            }
        }
        match &self.watch {
            Some(watch) => watch.read(&mut self.gathered.names),
            None => Ok(()),
        }
    }

    /// What was recorded a while before the last reading began was read by it.
    fn digest(&mut self, begin_ns: u64) -> Result<Taken, Error> {
        let delay = u64::try_from(self.held.delay.as_nanos()).unwrap_or(u64::MAX);
        match &mut *lock(&self.digest) {
            Some(digest) => {
                let limit_ns = begin_ns.saturating_sub(delay);
                digest.take(&mut self.gathered, limit_ns, AT_A_TIME)
            }
            None => Ok(Taken::All),
        }
    }
}
