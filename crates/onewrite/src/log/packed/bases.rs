//! The frames that differences may refer to.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::record::Record;
use crate::sync::MutexGuard;
use crate::wal::{FrameNo, History, PageNo};

/// The number of pages whose last whole frame is remembered.
const MAX_BASES: usize = 4096;

/// How many of the last whole frames are tried as dictionaries for other pages.
const RECENT: usize = 2;

/// The frames that differences may refer to: whole ones of this history, by page.
#[derive(Default)]
pub struct Bases {
    history: Option<History>,
    frames: HashMap<PageNo, WholeFrame, BuildHasherDefault<PageHasher>>,
    /// The last ones, the newest first.
    recent: [Option<FrameNo>; RECENT],
    /// No frame is newer.
    newest: FrameNo,
}

/// Page numbers are mostly consecutive. One multiplication spreads them, where the standard hash takes more
/// than a hundred instructions.
#[derive(Default)]
struct PageHasher(u64);

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        // The golden ratio's fraction (Knuth, The Art of Computer Programming, 6.4).
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// A frame that holds its page whole.
#[derive(Clone, Copy, Debug)]
pub struct WholeFrame {
    /// The frame.
    pub frame: FrameNo,
    /// Bytes of the page in it.
    pub bytes: usize,
    /// Bytes of all differences from it.
    difference_bytes: usize,
    /// Their number.
    differences: usize,
}

impl WholeFrame {
    /// A frame that nothing refers to yet.
    pub fn new(frame: FrameNo, bytes: usize) -> WholeFrame {
        WholeFrame {
            frame,
            bytes,
            difference_bytes: 0,
            differences: 0,
        }
    }

    /// The bytes that the page took in each commit since it was last stored whole, on average. A
    /// difference grows from commit to commit. As soon as one takes more than this, another whole
    /// page is cheaper in the long run (the marginal value theorem).
    pub fn mean_bytes(&self) -> usize {
        (self.bytes + self.difference_bytes) / (1 + self.differences)
    }

    fn add_difference(&mut self, bytes: usize) {
        self.difference_bytes += bytes;
        self.differences += 1;
    }
}

/// How a frame that another process has logged stores its page, as its record's header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Logged {
    /// The page.
    pub page: PageNo,
    /// The frame that it is a difference from; `None` if it holds the page whole.
    pub base: Option<FrameNo>,
    /// Bytes of its data.
    bytes: usize,
}

impl Logged {
    /// As this record says.
    pub fn of(record: &Record) -> Logged {
        Logged {
            page: record.frame.page,
            base: record.kind.base(),
            bytes: record.data,
        }
    }
}

/// The view of [`Bases`] for the packer of a run.
pub struct Known<'a> {
    history: History,
    bases: MutexGuard<'a, Bases>,
}

impl<'a> Known<'a> {
    /// This history of the log, as far as it is known.
    pub fn new(bases: MutexGuard<'a, Bases>, history: impl Into<History>) -> Known<'a> {
        Known {
            history: history.into(),
            bases,
        }
    }

    /// The history of the run.
    pub fn history(&self) -> History {
        self.history
    }

    fn are_present(&self) -> bool {
        self.bases.history == Some(self.history)
    }

    /// The last frame that holds the page whole.
    pub fn whole_frame_of(&self, page: PageNo) -> Option<WholeFrame> {
        let frame = self.bases.frames.get(&page).copied();
        frame.filter(|_| self.are_present())
    }

    /// The last frames that hold a page whole, the newest first.
    pub fn recent_wholes(&self) -> impl Iterator<Item = FrameNo> + use<> {
        let recent = match self.are_present() {
            true => self.bases.recent,
            false => [None; RECENT],
        };
        recent.into_iter().flatten()
    }
}

impl Bases {
    /// A run is published: its whole pages, and the bytes of its differences, by page.
    pub fn add(
        &mut self,
        history: impl Into<History>,
        wholes: &[(PageNo, WholeFrame)],
        differences: &[(PageNo, usize)],
    ) {
        self.turn_to(history.into());
        for (_, whole) in wholes {
            self.note_recent(whole.frame);
        }
        self.frames.extend(wholes.iter().copied());
        for (page, bytes) in differences {
            if let Some(whole) = self.frames.get_mut(page) {
                whole.add_difference(*bytes);
            }
        }
    }

    /// Other processes have published these frames.
    pub fn learn(&mut self, history: impl Into<History>, logged: &[(FrameNo, Logged)]) {
        if logged.is_empty() {
            return;
        }
        self.turn_to(history.into());
        for (frame, logged) in logged {
            let known = self.frames.get_mut(&logged.page);
            match (logged.base, known) {
                (Some(base), Some(known)) if known.frame == base => {
                    known.add_difference(logged.bytes);
                }
                (Some(_), _) => {}
                // Two threads may have walked, and this one comes later.
                (None, Some(known)) if known.frame >= *frame => {}
                (None, _) => {
                    let whole = WholeFrame::new(*frame, logged.bytes);
                    self.frames.insert(logged.page, whole);
                    self.note_recent(*frame);
                }
            }
        }
    }

    /// Forgets frames behind the last published one. Recovery has dropped them, or they have filled a
    /// sector behind a resealed commit: others come in their places.
    pub fn forget_behind(&mut self, history: History, last: FrameNo) {
        if self.history != Some(history) || self.newest <= last {
            return;
        }
        self.newest = last;
        self.frames.retain(|_, whole| whole.frame <= last);
        for recent in &mut self.recent {
            *recent = recent.filter(|frame| *frame <= last);
        }
    }

    /// Forgets another generation, or what are too many.
    fn turn_to(&mut self, history: History) {
        if self.history != Some(history) || self.frames.len() > MAX_BASES {
            self.frames.clear();
            self.recent = [None; RECENT];
            self.newest = FrameNo(0);
            self.history = Some(history);
        }
    }

    fn note_recent(&mut self, frame: FrameNo) {
        self.newest = self.newest.max(frame);
        self.recent.rotate_right(1);
        self.recent[0] = Some(frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wal::Salts;

    #[test]
    fn a_difference_may_take_what_the_page_took_on_average() {
        let (salts, page) = (Salts([1; 8]), PageNo(3));
        let mut bases = Bases::default();
        let mean = |bases: &Bases| bases.frames[&page].mean_bytes();
        bases.add(salts, &[(page, WholeFrame::new(FrameNo(1), 1000))], &[]);
        assert_eq!(mean(&bases), 1000);
        bases.add(salts, &[], &[(page, 100)]);
        assert_eq!(mean(&bases), 550);
        bases.add(salts, &[], &[(page, 200)]);
        assert_eq!(mean(&bases), 1300 / 3);
        bases.add(salts, &[(page, WholeFrame::new(FrameNo(4), 900))], &[]);
        assert_eq!(mean(&bases), 900);
        bases.add(Salts([2; 8]), &[], &[(page, 100)]);
        assert!(bases.frames.is_empty());
    }

    #[test]
    fn what_others_have_logged_is_referred_to_like_own_frames() {
        let (salts, page) = (Salts([1; 8]), PageNo(3));
        let logged = |frame, base: Option<u32>, bytes| {
            let base = base.map(FrameNo);
            (FrameNo(frame), Logged { page, base, bytes })
        };
        let mut bases = Bases::default();
        let known = |bases: &Bases| {
            let whole = bases.frames.get(&page)?;
            Some((whole.frame.0, whole.mean_bytes()))
        };
        bases.learn(salts, &[logged(4, Some(1), 100)]);
        assert_eq!(known(&bases), None, "its base is not known");
        bases.learn(salts, &[logged(5, None, 1000), logged(6, Some(5), 100)]);
        assert_eq!(known(&bases), Some((5, 550)));
        bases.learn(salts, &[logged(2, None, 900), logged(7, Some(2), 10)]);
        assert_eq!(known(&bases), Some((5, 550)), "an older one");
        bases.learn(salts, &[logged(8, None, 800)]);
        assert_eq!(
            (known(&bases), bases.recent[0]),
            (Some((8, 800)), Some(FrameNo(8)))
        );
        bases.learn(Salts([2; 8]), &[logged(1, None, 700)]);
        assert_eq!(known(&bases), Some((1, 700)), "of another generation");
    }
}
