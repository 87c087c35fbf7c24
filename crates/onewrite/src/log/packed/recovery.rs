//! Recovery: SQLite asks for one frame after the other, in a log that no process writes. So the log
//! is read in large pieces, and a frame that later ones refer to is decompressed only once. Called by
//! [`super`] and by `log`.
//!
//! The state between frames is dropped when recovery ends, or as soon as a frame is written. Where no
//! connection has said that it recovers, it is also dropped when a frame is read as published.

use std::io;
use std::sync::PoisonError;

use super::Packed;
use super::chain::Chain;
use super::window::{Window, Windowed};
use crate::log::memory::MAX_BYTES;
use crate::log::scan::LogBytes;
use crate::sync::MutexGuard;
use crate::sync::atomic::Ordering;
use crate::wal::{FrameNo, History, Salts};

/// The data that recovery has read, frame after frame, of a log that no process writes.
pub struct Recovery {
    /// Where it reads.
    pub window: Window,
    /// The frames that differences refer to.
    pub bases: Bases,
}

/// The frames that differences refer to, and the pages of those that were read. It is not yet known
/// whether they are published.
pub struct Bases {
    /// Sorted.
    frames: Vec<FrameNo>,
    /// For each frame its page, if it is kept.
    pages: Vec<Option<Box<[u8]>>>,
    bytes: usize,
}

impl Bases {
    /// Frames in any order, of which none was read yet.
    pub fn new(mut frames: Vec<FrameNo>) -> Bases {
        frames.sort_unstable();
        frames.dedup();
        let pages = frames.iter().map(|_| None).collect();
        Bases {
            frames,
            pages,
            bytes: 0,
        }
    }

    /// The page of a frame.
    pub fn page(&self, frame: FrameNo) -> Option<&[u8]> {
        let index = self.frames.binary_search(&frame).ok()?;
        self.pages[index].as_deref()
    }

    /// Keeps the page of a frame that others refer to, within a bound.
    pub fn read(&mut self, frame: FrameNo, page: &[u8]) {
        let Ok(index) = self.frames.binary_search(&frame) else {
            return;
        };
        if self.bytes + page.len() > MAX_BYTES {
            self.pages.fill(None);
            self.bytes = 0;
        }
        if self.pages[index].replace(page.into()).is_none() {
            self.bytes += page.len();
        }
    }
}

impl Packed {
    /// A connection of this process has SQLite's locks of recovery. Others go on reading what was
    /// published before, until [`Packed::recovered`].
    pub fn recovery_begins(&self) {
        self.recovering.store(true, Ordering::Relaxed);
    }

    /// Call it with the chain's lock, so that the answer fits the chain.
    pub(super) fn is_recovering(&self) -> bool {
        self.recovering.load(Ordering::Relaxed)
    }

    /// Walks over the whole log, for recovery. Returns its last frame.
    ///
    /// # Errors
    /// An I/O error.
    pub fn survey<B: LogBytes + ?Sized>(&self, log: &B, salts: Salts) -> io::Result<FrameNo> {
        let mut window = Window::default();
        let mut chain = self.chain_mut();
        if chain.writing {
            // The log is being opened while a connection of this process writes. The writer's
            // gathered frames go after the frames that it knows, of a generation that may not be in
            // the file yet.
            drop(chain);
            let mut apart = Chain::new(self.form, self.page);
            apart.restart(salts);
            apart.reach_end(&Windowed::new(log, &mut window))?;
            return Ok(apart.tail().last);
        }
        if self.is_recovering() {
            chain.set_aside();
        }
        chain.restart(salts);
        chain.bases = Some(Vec::new());
        let walked = chain.reach_end(&Windowed::new(log, &mut window));
        let bases = chain.bases.take().unwrap_or_default();
        walked?;
        let last = chain.tail().last;
        drop(chain);
        // Recovery reads frame after frame, from the first on.
        *self.recovery() = Some(Recovery {
            window,
            bases: Bases::new(bases),
        });
        self.recovers.store(true, Ordering::Relaxed);
        Ok(last)
    }

    /// Recovery has ended, and its locks are about to be released. If it has published the frames up to
    /// `last`, those are the walked ones, unless there were more.
    pub fn recovered(&self, published: Option<(History, FrameNo)>) {
        if let Some((history, last)) = published {
            self.adopt_walk(history, last);
        }
        let mut chain = self.chain_mut();
        chain.aside = None;
        self.recovering.store(false, Ordering::Relaxed);
        drop(chain);
        self.forget_recovery();
    }

    fn adopt_walk(&self, history: History, last: FrameNo) {
        let mut chain = self.chain_mut();
        let walked = self.recovers.load(Ordering::Relaxed) && !chain.writing;
        let is_all = chain.salts() == Some(history.salts) && chain.tail().last == last;
        if walked && is_all {
            chain.goes_on_in(history);
            chain.publish(last);
        }
    }

    pub(super) fn recovery(&self) -> MutexGuard<'_, Option<Recovery>> {
        self.recovery.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The data it has read are no longer useful, or may no longer be true.
    pub(super) fn forget_recovery(&self) {
        if self.recovers.load(Ordering::Relaxed) {
            *self.recovery() = None;
            self.recovers.store(false, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_referred_to_is_kept_and_no_more_than_fits() {
        let mut bases = Bases::new(vec![FrameNo(9), FrameNo(2), FrameNo(9), FrameNo(5)]);
        bases.read(FrameNo(1), &[1; 512]);
        bases.read(FrameNo(2), &[2; 512]);
        bases.read(FrameNo(9), &[9; 512]);
        assert_eq!(bases.page(FrameNo(1)), None);
        assert_eq!(bases.page(FrameNo(2)), Some(&[2; 512][..]));
        assert_eq!(bases.page(FrameNo(5)), None);
        assert_eq!(bases.page(FrameNo(9)), Some(&[9; 512][..]));
        let large = vec![5; MAX_BYTES];
        bases.read(FrameNo(5), &large);
        assert_eq!(bases.page(FrameNo(5)), Some(&large[..]));
        assert_eq!(bases.page(FrameNo(9)), None);
    }
}
