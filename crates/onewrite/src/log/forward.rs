//! A log that moves forward (remap+ of Park and Shin, CF '15). After a checkpoint by exchange its
//! frames begin in contiguous blocks, and not in those that the database had.
//!
//! After the first chunk the file has a *region* of initialized blocks, which a separate thread
//! makes. After each checkpoint the blocks at the log's start are exchanged with a piece of the
//! region. Each time it is the next piece, and after the region's end the first again. A frame's
//! position in the file does not change, so readers and recovery need not know. A log that grows
//! into the region grows into ready blocks.
//!
//! Blocks that were never written (`onewrite_init=unwritten`) need no region. If most of the
//! checkpoint's exchanged pages were growth, the log's start gets new blocks instead.
//!
//! With `onewrite_region` the region is a [`Reserve`] instead: a file of its own, which a thread
//! makes again as the log takes its blocks. The log's own file does not become longer for it.
//!
//! `checkpoint` calls this with all readers and writers excluded, when the database is durable and
//! the wal-index says that the log restarts. Why nothing is lost is in `docs/durability.md`, RM25
//! to RM28, and RM31.

use std::io;
use std::path::Path;

use rustix::io::Errno;

use super::{Log, space};
use crate::mode::{Layout, Region};
use crate::storage::{
    Access, Durability, Init, LogFile, Reserve, StorageError, most_bytes_of_a_file,
};
use crate::sync::atomic::Ordering;
use crate::wal::{self, FrameNo};

/// Bytes of the region. The paper has 150 MB.
const REGION_BYTES: u64 = 24 << 20;
/// The file system keeps at least this many times the region free.
const LEAVES_FREE: u64 = 2;

/// The kind of the blocks that the checkpoint took from the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// Mostly of pages that the database had: it gave written blocks for them.
    Rewritten,
    /// Mostly of pages that are new there: the log's blocks for them were never written.
    Grown,
}

/// A thread makes the region, until this is dropped.
struct Replenishing<'a>(&'a Log);

impl Drop for Replenishing<'_> {
    fn drop(&mut self) {
        self.0.ends_replenishing();
    }
}

impl Log {
    /// Moves the log's next frames to contiguous blocks, if there are any; returns whether there
    /// were. `last` is the last checkpointed frame.
    ///
    /// # Errors
    /// An I/O error: the blocks were exchanged, or not; nothing is lost.
    pub fn go_forward(
        &self,
        last: FrameNo,
        taken: Taken,
        region: Option<Region>,
    ) -> io::Result<bool> {
        if self.geometry.layout() != Layout::Gathered || self.file.access() != Access::ReadWrite {
            return Ok(false);
        }
        let start = self.geometry.frames_begin();
        let end = self.geometry.end_of(last);
        if region.is_some() {
            let Some(reserve) = self.reserve.get() else {
                return Ok(false);
            };
            // A checkpoint may just have cut the log.
            let end = end.min(self.file.size().map_err(io::Error::other)?);
            return reserve.give(&self.file, start, end.saturating_sub(start));
        }
        if self.init() == Init::Unwritten {
            // The database's blocks are written, and a commit into them changes no extent.
            if taken == Taken::Grown {
                self.renew(start, end)?;
            }
            return Ok(taken == Taken::Grown);
        }
        let size = self.file.size().map_err(io::Error::other)?;
        let region = space::chunk_end(&self.geometry, 0).max(end);
        let piece = end.saturating_sub(start);
        let next = self.next_piece.load(Ordering::Relaxed);
        let next = match next >= region && next + piece <= size {
            true => next,
            false => region,
        };
        if piece == 0 || next + piece > size {
            return Ok(false);
        }
        self.file.exchange_within(start, next, piece)?;
        self.next_piece.store(next + piece, Ordering::Relaxed);
        Ok(true)
    }

    fn renew(&self, start: u64, end: u64) -> io::Result<()> {
        // The call frees blocks in pieces. Cut short by a power cut, it would leave frames at the
        // log's start to which the header must no longer lead.
        let header = self.write_wal_header(&[0; wal::HEADER_BYTES], Durability::WriteThrough);
        header.map_err(io::Error::other)?;
        // The size must not change here: a checkpoint may just have cut the log, or another thread
        // may be filling it.
        match self.file.size().map_err(io::Error::other)?.min(end) {
            end if start < end => self.file.renew(start, end - start, self.init()),
            _ => Ok(()),
        }
    }

    /// Bytes of the region that are ready.
    pub fn region_bytes(&self) -> u64 {
        if let Some(reserve) = self.reserve.get() {
            return reserve.bytes();
        }
        let size = self.file.size().unwrap_or(0);
        size.saturating_sub(space::chunk_end(&self.geometry, 0))
    }

    /// The file's size with a whole region, in bytes, if a region must be made. That is at most
    /// once per process, and not on a nearly full file system.
    pub fn lacks_region(&self) -> Option<u64> {
        let wanted = space::chunk_end(&self.geometry, 0) + REGION_BYTES;
        let has = self.file.size().is_ok_and(|size| size >= wanted);
        if has || self.region_begun.swap(true, Ordering::AcqRel) || wanted > most_bytes_of_a_file()
        {
            return None;
        }
        let free = self.file.free_space().unwrap_or(0);
        (free > REGION_BYTES * (LEAVES_FREE + 1)).then_some(wanted)
    }

    /// Makes the region up to byte `wanted`, as long as `is_used`. For a separate thread.
    pub fn make_region(&self, wanted: u64, is_used: impl Fn() -> bool) {
        let (file, geometry) = (&self.file, &self.geometry);
        let size = |file: &LogFile| file.size().unwrap_or(wanted);
        let mut before = 0;
        // It stops when the log cannot grow, or at the log's end.
        while (before..wanted).contains(&size(file)) && is_used() {
            self.space.refresh(size(file));
            before = size(file) + 1;
            let made: Result<(), StorageError> =
                self.space.prepare_next(file, geometry, self.init());
            if self.made_ready(made).is_err() {
                return;
            }
        }
    }

    /// Whether a thread has to make the region in a file of its own, whole or again. The caller's
    /// thread does so then.
    pub fn lacks_reserve(&self, region: Region) -> bool {
        let ready = self.reserve.get().map_or(0, Reserve::bytes);
        ready < region.bytes() && !self.is_replenishing.swap(true, Ordering::AcqRel)
    }

    /// Makes the region whole, as long as `is_used`. Returns the bytes of new blocks. For a separate
    /// thread, after [`Log::lacks_reserve`]. A region for which a nearly full file system has no
    /// space is given up.
    ///
    /// # Errors
    /// No space; no files without a name; an I/O error.
    pub fn replenish(&self, region: Region, is_used: impl Fn() -> bool) -> io::Result<u64> {
        let _ends = Replenishing(self);
        let reserve = self.reserve.get();
        reserve.map_or(Ok(()), Reserve::free_given)?;
        let wanted = region.bytes();
        let lacking = wanted.saturating_sub(reserve.map_or(0, Reserve::bytes));
        if self.file.free_space()? <= lacking * (LEAVES_FREE + 1) {
            self.give_reserve_up()?;
            return Err(Errno::NOSPC.into());
        }
        if reserve.is_none() {
            let log = self.file.path();
            let directory = log.parent().filter(|dir| !dir.as_os_str().is_empty());
            let made = Reserve::new(directory.unwrap_or(Path::new(".")))?;
            // Only one thread comes here.
            let _ = self.reserve.set(made);
        }
        let reserve = self.reserve.get();
        reserve.map_or(Ok(0), |reserve| {
            reserve.replenish(wanted, self.init(), is_used)
        })
    }

    /// Makes the log longer, for which a full file system has the blocks of the region: frames need
    /// them more.
    pub(super) fn rather_than_region(
        &self,
        grow: impl Fn() -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        match grow() {
            // A flush that found no space has lost earlier writes, and is not retried.
            Err(e) if e.is_no_space() && !e.is_of_flush() => {
                match self.give_reserve_up().unwrap_or(false) {
                    true => grow(),
                    false => Err(e),
                }
            }
            other => other,
        }
    }

    /// Frees the blocks of the region in a file of its own. Returns whether there were any.
    ///
    /// # Errors
    /// An I/O error.
    pub fn give_reserve_up(&self) -> io::Result<bool> {
        self.reserve.get().map_or(Ok(false), Reserve::give_up)
    }

    /// No thread makes the region now: a later checkpoint may begin one.
    pub fn ends_replenishing(&self) {
        self.is_replenishing.store(false, Ordering::Release);
    }

    /// Whether a write into ready blocks may still find no space. They may be shared with another
    /// file, or the file system may never overwrite blocks.
    pub fn may_lack_space_for_ready_blocks(&self) -> bool {
        let never_writes_over = self.file.capabilities().filesystem == "btrfs";
        self.geometry.layout() == Layout::Gathered || never_writes_over
    }

    /// Whether a store into memory that is mapped from a file here may find no space, unless the file's
    /// blocks are written in place. An overlay does not say what is below it.
    pub fn may_lack_space_for_mapped_blocks(&self) -> bool {
        ["btrfs", "overlay"].contains(&&*self.file.capabilities().filesystem)
    }

    /// Whether the file system's blocks are so small that SQLite's wal-index has holes: SQLite makes it by
    /// one byte in each 4 KiB.
    pub fn leaves_holes_in_index(&self) -> bool {
        self.file.block_bytes().is_ok_and(|bytes| bytes < 4096)
    }
}
