//! Gathers what the kernel reports while something is measured: trace records, and the names under
//! which files are created in one directory.
//!
//! A thread empties the kernel's buffers every few milliseconds into memory and looks at nothing;
//! everything is parsed when the measurement is over. What the kernel had to drop is an error, so
//! that figures are never made from a part of what happened.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::fs::inotify;
use rustix::io::Errno;

use crate::Error;
use crate::tracefs::CpuReader;

/// How often the kernel's buffers are emptied.
const INTERVAL: Duration = Duration::from_millis(20);

/// The most that is gathered; a measurement that reports more has no figures by file.
const MAX_BYTES: usize = 1 << 30;

/// Everything that was reported.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    /// Each sub-buffer of each CPU, in the order in which they were filled on that CPU.
    pub(crate) sub_buffers: Vec<Vec<u8>>,
    /// The names created in the directory, in their order.
    pub(crate) created: Vec<String>,
}

/// A measurement under way.
#[derive(Debug)]
pub(crate) struct Collector {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Gathered, Error>>>,
}

impl Collector {
    /// Begins to gather what `readers` have and which names are created in `dir`.
    pub(crate) fn start(readers: Vec<CpuReader>, dir: &Path) -> Result<Self, Error> {
        let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
        let names = inotify::init(flags).map_err(Error::io("watch", dir))?;
        // Deletions are of no interest, but keep apart two creations under one name, which the kernel
        // would report as one.
        let watched = inotify::WatchFlags::CREATE
            | inotify::WatchFlags::DELETE
            | inotify::WatchFlags::MOVED_TO;
        inotify::add_watch(&names, dir, watched).map_err(Error::io("watch", dir))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .name("trace".to_owned())
            .spawn(move || gather(readers, &names, &stopped))
            .map_err(Error::io("start a thread to watch", dir))?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    /// Ends the measurement. Tracing must have been stopped, so that there is an end to read to.
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
    names: &OwnedFd,
    stop: &AtomicBool,
) -> Result<Gathered, Error> {
    let (mut gathered, mut bytes) = (Gathered::default(), 0);
    loop {
        // Looked at before reading, so that the last round reads what was there at the stop.
        let last = stop.load(Ordering::Acquire);
        for reader in &mut readers {
            while let Some(sub_buffer) = reader.next()? {
                bytes += sub_buffer.len();
                if bytes > MAX_BYTES {
                    let text = "more than 1 GiB of trace: bytes by file take a smaller --count";
                    return Err(Error::Unavailable(text.to_owned()));
                }
                gathered.sub_buffers.push(sub_buffer.to_vec());
            }
        }
        read_names(names, &mut gathered.created)?;
        if last {
            break;
        }
        thread::sleep(INTERVAL);
    }
    for reader in &readers {
        let lost = reader.overrun()?;
        if lost > 0 {
            return Err(Error::Unavailable(format!(
                "the kernel's trace buffer lost {lost} events: bytes by file cannot be told"
            )));
        }
    }
    Ok(gathered)
}

fn read_names(names: &OwnedFd, created: &mut Vec<String>) -> Result<(), Error> {
    let mut buffer = [MaybeUninit::<u8>::uninit(); 8192];
    let mut reader = inotify::Reader::new(names, &mut buffer);
    loop {
        match reader.next() {
            Ok(event) if event.events().contains(inotify::ReadFlags::QUEUE_OVERFLOW) => {
                let text = "the kernel lost names of files: bytes by file cannot be told";
                return Err(Error::Unavailable(text.to_owned()));
            }
            Ok(event) if event.events().contains(inotify::ReadFlags::CREATE) => {
                let name = event
                    .file_name()
                    .map(|name| name.to_string_lossy().into_owned());
                created.push(name.unwrap_or_default());
            }
            Ok(event) if event.events().contains(inotify::ReadFlags::DELETE) => {}
            Ok(_) => {
                let text = "a file was renamed: bytes by file cannot be told";
                return Err(Error::Unavailable(text.to_owned()));
            }
            Err(Errno::AGAIN) => return Ok(()),
            Err(error) => return Err(Error::io("read", Path::new("inotify"))(error)),
        }
    }
}
