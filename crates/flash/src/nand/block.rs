//! A block and its pages, and the rules of programming it.

use std::sync::Arc;

use super::clock::Nanoseconds;
use super::decay::Stress;
use super::faults::Interrupted;

/// Bytes of the out-of-band area for the controller. The bytes for the chip's error correction are
/// not modelled, and not counted.
pub const OOB_BYTES: usize = 40;

/// The controller's part of a page's out-of-band area.
pub type OobBytes = [u8; OOB_BYTES];

/// The content of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Page {
    /// Every bit is one.
    Erased,
    /// Programmed.
    Programmed {
        /// The data area.
        data: Arc<[u8]>,
        /// The out-of-band area.
        oob: OobBytes,
    },
    /// Error correction cannot read it.
    Unreadable,
}

/// A page that is not in a block's memory.
static ERASED: Page = Page::Erased;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// Its pages, as far as they are not erased: a block that was never used takes no memory.
    pub(super) pages: Vec<Page>,
    /// The number of its pages.
    pub(super) count: u32,
    /// Pages before this one were programmed, or begun.
    pub(super) next: u32,
    /// Programmed only after a completed erase.
    pub(super) needs_erase: bool,
    /// The marker of a bad block, set by the manufacturer or the controller.
    pub(crate) is_bad: bool,
    pub(crate) erases: u32,
    /// Reads of its pages since it was erased, if there are bit errors.
    pub(super) reads: u32,
    /// When its first page was programmed.
    pub(super) programmed_ns: u64,
}

/// Why a page may not be programmed.
pub(crate) enum Refusal {
    NotErased,
    NotNext(u32),
}

impl Block {
    pub(crate) fn new(pages: u32) -> Self {
        Self {
            pages: Vec::new(),
            count: pages,
            next: 0,
            needs_erase: false,
            is_bad: false,
            erases: 0,
            reads: 0,
            programmed_ns: 0,
        }
    }

    /// Its life until now.
    pub(super) fn stress(&self, now: Nanoseconds) -> Stress {
        Stress {
            erases: self.erases,
            reads: self.reads,
            age_ns: now.0.saturating_sub(self.programmed_ns),
        }
    }

    pub(crate) fn page(&self, page: u32) -> &Page {
        self.pages.get(page as usize).unwrap_or(&ERASED)
    }

    /// Whether the rules allow this page to be programmed now.
    pub(crate) fn allows(&self, page: u32) -> Result<(), Refusal> {
        match page {
            page if page < self.next || self.needs_erase => Err(Refusal::NotErased),
            page if page > self.next => Err(Refusal::NotNext(self.next)),
            _ => Ok(()),
        }
    }

    /// Uses up the next page, even if the program fails.
    pub(crate) fn program(&mut self, content: Page) {
        self.pages.resize(self.next as usize, Page::Erased);
        self.pages.push(content);
        self.next += 1;
    }

    /// The last program was interrupted.
    pub(crate) fn interrupt_program(&mut self, left: Interrupted) {
        let Some(last) = self.next.checked_sub(1) else {
            return;
        };
        let content = match left {
            Interrupted::Done => return,
            Interrupted::Torn => Page::Unreadable,
            // It counts as programmed: `next` stays.
            Interrupted::Unseen => Page::Erased,
        };
        self.pages.resize(last as usize, Page::Erased);
        self.pages.push(content);
    }

    /// A page that was programmed is lost.
    pub(crate) fn destroy(&mut self, page: u32) {
        if let Some(page) = self.pages.get_mut(page as usize) {
            *page = Page::Unreadable;
        }
    }

    pub(crate) fn erase(&mut self) {
        self.pages = Vec::new();
        self.next = 0;
        self.needs_erase = false;
        self.reads = 0;
        self.erases += 1;
    }

    /// An erase that was not completed: the pages are as they were, look erased, or are unreadable.
    pub(crate) fn interrupt_erase(&mut self, left: Interrupted) {
        self.needs_erase = true;
        self.erases += 1;
        match left {
            Interrupted::Done => self.pages = Vec::new(),
            Interrupted::Torn => self.pages = vec![Page::Unreadable; self.count as usize],
            Interrupted::Unseen => {}
        }
    }
}
