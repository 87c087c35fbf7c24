//! A device's work, and its expected life.

use serde::{Deserialize, Serialize};

/// Commands and pages since the device was opened. [`crate::nand::Operations`] has the NAND's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statistics {
    /// Pages that the host read.
    pub host_reads: u64,
    /// Pages that the host wrote, in transactions or not.
    pub host_writes: u64,
    /// Pages that the host trimmed.
    pub host_trims: u64,
    /// Flushes.
    pub flushes: u64,
    /// Transactions committed.
    pub commits: u64,
    /// Transactions aborted.
    pub aborts: u64,
    /// Pages that garbage collection copied.
    pub gc_copies: u64,
    /// Of those: pages copied while the device would only have waited.
    pub gc_ahead: u64,
    /// Blocks that garbage collection emptied.
    pub gc_blocks: u64,
    /// Pages that wear levelling copied.
    pub wear_copies: u64,
    /// Blocks that wear levelling moved.
    pub wear_blocks: u64,
    /// Pages that complete pairs.
    #[serde(default)]
    pub padding_writes: u64,
    /// Pages copied because of bit errors.
    #[serde(default)]
    pub scrub_copies: u64,
    /// Blocks moved because of bit errors.
    #[serde(default)]
    pub scrub_blocks: u64,
    /// Pages copied out of blocks that failed.
    pub failed_copies: u64,
    /// Pieces of the page map written.
    pub map_writes: u64,
    /// Pieces of the X-L2P table written.
    pub table_writes: u64,
    /// Roots written.
    pub root_writes: u64,
    /// Pages programmed together with the page before, on another plane.
    #[serde(default)]
    pub multi_plane: u64,
    /// Pieces of the page map read for entries that were not in memory.
    #[serde(default)]
    pub map_reads: u64,
    /// Of the pages that the host read: those that nobody had written. They take no read of the NAND.
    #[serde(default)]
    pub blank_reads: u64,
    /// Of the pieces written: those to make room for entries in memory.
    #[serde(default)]
    pub map_write_backs: u64,
}

impl Statistics {
    /// The work since an earlier state of the same device.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            host_reads: self.host_reads - before.host_reads,
            host_writes: self.host_writes - before.host_writes,
            host_trims: self.host_trims - before.host_trims,
            flushes: self.flushes - before.flushes,
            commits: self.commits - before.commits,
            aborts: self.aborts - before.aborts,
            gc_copies: self.gc_copies - before.gc_copies,
            gc_ahead: self.gc_ahead - before.gc_ahead,
            gc_blocks: self.gc_blocks - before.gc_blocks,
            wear_copies: self.wear_copies - before.wear_copies,
            wear_blocks: self.wear_blocks - before.wear_blocks,
            padding_writes: self.padding_writes - before.padding_writes,
            scrub_copies: self.scrub_copies - before.scrub_copies,
            scrub_blocks: self.scrub_blocks - before.scrub_blocks,
            failed_copies: self.failed_copies - before.failed_copies,
            map_writes: self.map_writes - before.map_writes,
            table_writes: self.table_writes - before.table_writes,
            root_writes: self.root_writes - before.root_writes,
            multi_plane: self.multi_plane - before.multi_plane,
            map_reads: self.map_reads - before.map_reads,
            blank_reads: self.blank_reads - before.blank_reads,
            map_write_backs: self.map_write_backs - before.map_write_backs,
        }
    }

    /// Pages programmed, by these figures: the host's, copies, and bookkeeping. Programs that failed
    /// are in none of them.
    pub fn programs(&self) -> u64 {
        let copies = self.gc_copies + self.wear_copies + self.scrub_copies + self.failed_copies;
        let bookkeeping = self.map_writes + self.table_writes + self.root_writes;
        self.host_writes + copies + bookkeeping + self.padding_writes
    }
}

/// The wear of a device.
#[derive(Clone, Debug, Serialize)]
pub struct Wear {
    /// Times that each block was erased.
    pub erases: Vec<u32>,
    /// Valid pages of each block.
    pub valid: Vec<u32>,
    /// Blocks that are open. A block is erased when it is opened.
    pub open_blocks: u32,
    /// Pages programmed in them. The others of their pages are to come, without an erase.
    pub open_pages: u64,
    /// Bad blocks.
    pub bad_blocks: u32,
    /// Times that a block can be erased.
    pub endurance: u32,
    /// Pages programmed for each page that the host wrote; `None` if it wrote none.
    pub write_amplification: Option<f64>,
    /// Bytes that the host can write in the whole life of the device, if it continues like this and
    /// wear stays level; `None` if it wrote none.
    pub life_bytes: Option<f64>,
}
