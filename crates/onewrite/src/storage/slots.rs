//! Slots for pages, in memory that all processes with an open log share. They lie in the file of the
//! shared words ([`super::shared`]), far enough behind these for a kernel with large pages.
//! `log::page_ring` defines what they mean.
//!
//! A log that one process uses has none. They are made when they are first needed, and all of their
//! blocks are allocated before they are mapped. They hold only what a crash of the system may lose.
#![cfg_attr(
    any(shuttle, loom),
    allow(dead_code, unused_imports, reason = "a model has no file of slots")
)]

use super::error::{Operation, StorageError};
use super::open::{Access, Create, open_buffered};
use super::shared::Opened;
#[cfg(not(any(shuttle, loom)))]
use super::sys::MappedSlots;
use crate::sync::atomic::{AtomicU64, AtomicUsize};
use std::fs::File;

/// Where they begin in the file, in bytes: no kernel has larger pages.
pub(super) const SLOTS_AT: u64 = 64 << 10;
/// They take at most this share of the free space.
const SPACE_PART: u64 = 16;

/// A word of a page. It is as large as the processor loads at once, so processes of two sizes agree on
/// the bytes.
pub type PageWord = AtomicUsize;

/// Describes the page in a slot.
#[repr(C)]
#[derive(Default, Debug)]
pub struct SlotHeader {
    /// Odd while the slot is being filled.
    pub sequence: AtomicU64,
    /// The generation of the frame.
    pub salts: AtomicU64,
    /// The number of its page in the upper half, its own in the lower.
    pub frame: AtomicU64,
    /// The CRC-32C of these two and the page.
    pub crc: AtomicU64,
}

/// How many slots there are, and how large.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotLayout {
    /// Their number.
    pub slots: usize,
    /// Bytes of the page in each: a multiple of those of a [`PageWord`].
    pub page_bytes: usize,
}

/// Whether slots are made that are not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Make {
    /// They are.
    IfMissing,
    /// They are not.
    Never,
}

impl SlotLayout {
    /// Bytes from the first header to the first page.
    pub(super) fn header_bytes(self) -> usize {
        (self.slots * size_of::<SlotHeader>()).next_multiple_of(4096)
    }

    /// Bytes of headers and pages.
    pub(super) fn bytes(self) -> usize {
        self.header_bytes() + self.slots * self.page_bytes
    }

    /// The words of a page.
    pub(super) fn page_words(self) -> usize {
        self.page_bytes / size_of::<usize>()
    }
}

enum Memory {
    #[cfg(not(any(shuttle, loom)))]
    Mapped(MappedSlots),
    Own(Box<[SlotHeader]>, Box<[PageWord]>),
}

/// See the module.
pub struct SharedSlots {
    layout: SlotLayout,
    memory: Memory,
    access: Access,
}

impl SharedSlots {
    /// Slots that no other process shares.
    pub fn private(layout: SlotLayout) -> SharedSlots {
        let headers = (0..layout.slots).map(|_| SlotHeader::default());
        let words = (0..layout.slots * layout.page_words()).map(|_| PageWord::default());
        SharedSlots {
            layout,
            memory: Memory::Own(headers.collect(), words.collect()),
            access: Access::ReadWrite,
        }
    }

    /// The slots next to the shared words in a file that is open there.
    ///
    /// # Errors
    /// There are none, or the file at that path is another one by now; no space; an I/O error.
    #[cfg(not(any(shuttle, loom)))]
    pub(super) fn open(
        of: &Opened,
        layout: SlotLayout,
        make: Make,
    ) -> Result<SharedSlots, StorageError> {
        let error = |e: rustix::io::Errno| StorageError::io(&of.path, Operation::Open, e);
        let file = open_buffered(&of.path, Create::Never, of.access)?;
        if !of.is(&file).map_err(error)? {
            return Err(error(rustix::io::Errno::STALE));
        }
        if make == Make::IfMissing {
            allocate(&file, layout).map_err(error)?;
        }
        let end = SLOTS_AT + layout.bytes() as u64;
        if (rustix::fs::fstat(&file).map_err(error)?.st_size as u64) < end {
            return Err(error(rustix::io::Errno::NODATA));
        }
        let mapped = MappedSlots::new(&file, layout, of.access).map_err(error)?;
        Ok(SharedSlots {
            layout,
            memory: Memory::Mapped(mapped),
            access: of.access,
        })
    }

    /// The processes of a model have none.
    #[cfg(any(shuttle, loom))]
    pub(super) fn open(of: &Opened, _: SlotLayout, _: Make) -> Result<SharedSlots, StorageError> {
        let none = rustix::io::Errno::NODATA;
        Err(StorageError::io(&of.path, Operation::Open, none))
    }

    /// How they lie.
    pub fn layout(&self) -> SlotLayout {
        self.layout
    }

    /// Whether this process may fill them.
    pub fn is_writable(&self) -> bool {
        self.access == Access::ReadWrite
    }

    /// The header and the page of a slot; `None` if there is no such slot.
    pub fn slot(&self, slot: usize) -> Option<(&SlotHeader, &[PageWord])> {
        let (headers, words) = match &self.memory {
            #[cfg(not(any(shuttle, loom)))]
            Memory::Mapped(mapped) => (mapped.headers(), mapped.words()),
            Memory::Own(headers, words) => (&headers[..], &words[..]),
        };
        let page = self.layout.page_words();
        let words = words.get(slot.checked_mul(page)?..)?.get(..page)?;
        Some((headers.get(slot)?, words))
    }
}

/// Makes the blocks of all slots, so that no access fails for lack of space.
fn allocate(file: &File, layout: SlotLayout) -> rustix::io::Result<()> {
    let bytes = layout.bytes() as u64;
    let space = rustix::fs::fstatvfs(file)?;
    let has_space = space.f_bavail.saturating_mul(space.f_frsize) / SPACE_PART >= bytes;
    if !has_space || SLOTS_AT + bytes > super::most_bytes_of_a_file() {
        return Err(rustix::io::Errno::NOSPC);
    }
    let flags = rustix::fs::FallocateFlags::empty();
    rustix::fs::fallocate(file, flags, SLOTS_AT, bytes)
}
