//! A flash translation layer: logical pages that can be rewritten, on NAND, where pages cannot.
//!
//! ```text
//! mod         commands: read, write, trim, flush
//! map         where each logical page is (L2P), in pieces
//! demand      a map that is not whole in memory
//! blocks      what each block is used for, which pages are valid, wear
//! streams     where the next page goes
//! append      programs it; what happens when that fails
//! gc          makes room: garbage collection, wear levelling
//! victim      which block garbage collection empties
//! padding     completes paired pages
//! scrub       moves blocks before their bit errors are too many
//! lost        pages that had too many
//! ahead       collects garbage while dies would only wait
//! checkpoint  pieces of the map and the root to flash
//! recovery    everything back from flash
//! oob         what each page says of itself
//! ```
//!
//! A write goes to the next page of an open block, with its logical page and a sequence number in
//! the out-of-band area. Then the map is changed, in memory. From time to time the changed pieces
//! of the map are written, and then the *root*, which has their places. After a power cut recovery
//! finds the newest root, reads the pieces, and scans the blocks that were written to since. A
//! logical page is the page with the highest sequence number, if that is higher than its piece's.
//!
//! **Guarantees.** A read returns the last write. When [`Ftl::flush`] returns, all earlier writes
//! and trims outlive a power cut, at any NAND operation, also in recovery. After later operations,
//! each logical page has one of its states, whole. No rule of NAND is broken. The FTL handles
//! failed programs and erases as long as blocks are left.
//!
//! The reasons:
//! - A block is erased only when it is opened again, and only after the device was waited for. The
//!   writes that made its pages invalid are then on the medium.
//! - A block that was open when the power went takes no more pages. Its last page may have been
//!   begun and look erased.
//! - A trimmed page stays valid until the piece of the map that forgets it is on the medium.
//!   Otherwise an older version could come back in its place.
//! - Recovery writes nothing, so that a cut in it changes nothing.
//!
//! [`crate::xftl`] adds transactions. `docs/xftl.md` has the design, formats included.

mod ahead;
mod append;
mod blocks;
pub(crate) mod checkpoint;
mod config;
mod demand;
mod error;
pub(crate) mod flaw;
mod gc;
mod lost;
mod map;
pub(crate) mod oob;
mod padding;
mod recovery;
pub mod saved;
mod scrub;
mod stats;
mod streams;
#[cfg(test)]
mod usual;
mod victim;

use std::collections::BTreeMap;
use std::sync::Arc;

use ahead::Ahead;
use blocks::Blocks;
use config::Limits;
use flaw::Flaw;
#[cfg(test)]
pub(crate) use lost::LostPage;
use map::Map;
use oob::{Content, Kept, Oob};
use scrub::Disturbed;
use streams::{Stream, Streams};

pub use config::{Config, CopiesGo, FlushWrites, MapGoes};
pub use error::FtlError;
pub use recovery::Recovery;
pub use scrub::Scrub;
pub use stats::{Statistics, Wear};
pub use victim::CollectsBy;

use crate::nand::{Nand, Page, Ppn};
use crate::xftl::table::Table;

/// A logical page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lpn(pub u32);

/// A transaction, named by the host; 0 is not one. A name may be used again after commit, abort or
/// a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tid(pub u64);

/// See the module.
#[derive(Clone, Debug)]
pub struct Ftl {
    pub(crate) nand: Nand,
    pub(crate) config: Config,
    pub(crate) limits: Limits,
    pub(crate) map: Map,
    pub(crate) blocks: Blocks,
    streams: Streams,
    /// The sequence number of the next programmed page.
    sequence: u64,
    /// The pieces and the X-L2P table have every change before this sequence number, if the map has
    /// a journal; otherwise 0.
    logged: u64,
    /// The place of the newest root; `None` on a device that has none yet.
    root: Option<Ppn>,
    /// Trims that are not yet on the medium: their pages are still valid.
    trims: BTreeMap<Lpn, Ppn>,
    /// The X-L2P table; empty unless there are transactions.
    pub(crate) table: Table,
    /// Pages programmed since the map was written.
    since_checkpoint: u32,
    /// Blocks opened since the last check of wear.
    since_levelling: u32,
    /// Garbage collection ahead of need.
    ahead: Ahead,
    /// By die: whether its last program is a copy that nobody has to wait for.
    copying: Vec<bool>,
    disturbed: Disturbed,
    pub(crate) statistics: Statistics,
    /// Pages that the NAND had programmed when the device was opened.
    programs_before: u64,
    /// Pages that were found lost, until the model takes note.
    #[cfg(test)]
    pub(crate) lost: Vec<LostPage>,
    #[cfg(test)]
    pub(crate) flaw: Option<Flaw>,
}

impl Ftl {
    /// Bytes of a page.
    pub fn page_bytes(&self) -> u32 {
        self.nand.geometry().page_bytes
    }

    /// Logical pages.
    pub fn pages(&self) -> u32 {
        self.config.logical_pages
    }

    /// The device's configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The NAND below.
    pub fn nand(&self) -> &Nand {
        &self.nand
    }

    /// The NAND below, for faults and time. Programming or erasing it behind the device's back
    /// breaks the device.
    pub fn nand_mut(&mut self) -> &mut Nand {
        &mut self.nand
    }

    /// Takes the NAND out: the only part of a device that outlives a power cut.
    pub fn into_nand(self) -> Nand {
        self.nand
    }

    /// The device's work since it was opened.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Reads a logical page, as committed. One that was never written is zeros.
    ///
    /// # Errors
    /// If there is no such page, or it cannot be read.
    pub fn read(&mut self, lpn: Lpn) -> Result<Arc<[u8]>, FtlError> {
        self.check_page(lpn)?;
        self.fetch_to_read(lpn)?;
        self.statistics.host_reads += 1;
        let ppn = self.map.get(lpn);
        self.statistics.blank_reads += u64::from(ppn.is_none());
        self.read_at(lpn, ppn)
    }

    /// Whether a logical page was never written, or was trimmed durably.
    pub fn is_blank(&self, lpn: Lpn) -> bool {
        let is_mapped = self.check_page(lpn).is_ok() && self.map.get(lpn).is_some();
        !is_mapped && !self.trims.contains_key(&lpn)
    }

    /// A logical page will be read soon, as committed. Its die may read it already, if it is idle.
    pub fn load(&mut self, lpn: Lpn) {
        if self.check_page(lpn).is_ok()
            && self.knows(lpn)
            && let Some(ppn) = self.map.get(lpn)
        {
            self.nand.load(ppn);
        }
    }

    /// Writes a logical page. It outlives a power cut after the next flush.
    ///
    /// # Errors
    /// If there is no such page, or the data has another length than a page. If an active
    /// transaction has written the page, or the device is worn out or without power.
    pub fn write(&mut self, lpn: Lpn, data: &[u8]) -> Result<(), FtlError> {
        self.check_page(lpn)?;
        self.check_length(data)?;
        self.check_holder(lpn, None)?;
        self.prepare()?;
        self.fetch(lpn)?;
        let ppn = self.append_host(Content::Data(lpn), data)?;
        self.statistics.host_writes += 1;
        self.blocks.mark_valid(ppn);
        self.remap(lpn, Some(ppn));
        Ok(())
    }

    /// Forgets a logical page: it reads as zeros. That outlives a power cut after the next flush.
    /// Until then the page may come back as it was.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn trim(&mut self, lpn: Lpn) -> Result<(), FtlError> {
        self.check_page(lpn)?;
        self.check_holder(lpn, None)?;
        self.prepare()?;
        self.fetch(lpn)?;
        self.statistics.host_trims += 1;
        match self.map.set(lpn, None) {
            Some(ppn) if self.leaves_out(Flaw::TrimNotHeld) => self.blocks.mark_invalid(ppn),
            Some(ppn) => {
                self.trims.insert(lpn, ppn);
            }
            None => {}
        }
        match self.trims.len() >= self.limits.trims {
            true => self.persist_trims(),
            false => Ok(()),
        }
    }

    /// Makes all writes and trims outside of transactions durable.
    ///
    /// # Errors
    /// If the device is worn out or without power.
    pub fn flush(&mut self) -> Result<(), FtlError> {
        self.statistics.flushes += 1;
        if !self.trims.is_empty() {
            self.prepare()?;
            self.persist_trims()?;
        }
        if self.config.flush != FlushWrites::Nothing && self.map.has_changed() {
            self.prepare()?;
            self.collect_ahead()?;
            match self.config.flush {
                FlushWrites::WholeMap => self.checkpoint_whole()?,
                FlushWrites::Journal => self.log_map()?,
                _ => self.checkpoint()?,
            }
        }
        self.wait_but_for_copies()
    }

    /// Programs the host's next page.
    pub(crate) fn append_host(&mut self, content: Content, data: &[u8]) -> Result<Ppn, FtlError> {
        let (ppn, _) = self.append(Stream::Host, content, data.into())?;
        Ok(ppn)
    }

    /// Waits until every programmed page is on the medium.
    fn wait(&mut self) -> Result<(), FtlError> {
        self.pad()?;
        self.nand.wait();
        self.check_power()
    }

    /// The same, except for copies. Their originals are on the medium, too, and recovery finds them
    /// there.
    fn wait_but_for_copies(&mut self) -> Result<(), FtlError> {
        self.pad()?;
        for (die, is_copy) in (0..).zip(&self.copying) {
            if !is_copy {
                self.nand.wait_for(die);
            }
        }
        self.check_power()
    }

    fn check_power(&self) -> Result<(), FtlError> {
        match self.nand.is_on() {
            true => Ok(()),
            false => Err(FtlError::Nand(crate::nand::NandError::PowerOff)),
        }
    }

    /// The first step of every command that writes: room, and a checkpoint where one is due.
    pub(crate) fn prepare(&mut self) -> Result<(), FtlError> {
        self.make_room()?;
        self.scrub()?;
        if self.since_checkpoint >= self.config.checkpoint_every {
            self.checkpoint()?;
        }
        self.drop_surplus()
    }

    /// Maps a logical page to a page that is marked valid, or to none. The previous page is not
    /// needed any more. From here on recovery finds the new state, or the power went before.
    pub(crate) fn remap(&mut self, lpn: Lpn, ppn: Option<Ppn>) {
        if let Some(before) = self.map.set(lpn, ppn) {
            self.blocks.mark_invalid(before);
        }
        if let Some(trimmed) = self.trims.remove(&lpn) {
            self.blocks.mark_invalid(trimmed);
        }
    }

    /// The page at a place that a logical page is mapped to.
    pub(crate) fn read_at(&mut self, lpn: Lpn, ppn: Option<Ppn>) -> Result<Arc<[u8]>, FtlError> {
        let Some(ppn) = ppn else {
            return Ok(vec![0; self.page_bytes() as usize].into());
        };
        let (oob, data) = self.read_page(ppn)?;
        if oob.kept == Kept::Lost {
            return Err(FtlError::Lost { page: lpn });
        }
        match oob.content {
            Content::Data(found) | Content::Transaction(_, found) if found == lpn => Ok(data),
            _ => Err(FtlError::Corrupt {
                page: ppn,
                expected: format!("logical page {}", lpn.0),
            }),
        }
    }

    /// A page that the FTL must have written, and its out-of-band area.
    pub(crate) fn read_page(&mut self, ppn: Ppn) -> Result<(Oob, Arc<[u8]>), FtlError> {
        let corrupt = || FtlError::Corrupt {
            page: ppn,
            expected: "a page that this controller programmed".to_owned(),
        };
        let read = self.nand.read(ppn)?;
        self.was_read(ppn);
        let Page::Programmed { data, oob } = read else {
            return Err(corrupt());
        };
        let oob = Oob::decode(&oob).ok_or_else(corrupt)?;
        match crc32c::crc32c(&data) == oob.data_crc {
            true => Ok((oob, data)),
            false => Err(corrupt()),
        }
    }

    pub(crate) fn check_page(&self, lpn: Lpn) -> Result<(), FtlError> {
        let pages = self.config.logical_pages;
        match lpn.0 < pages {
            true => Ok(()),
            false => Err(FtlError::Outside { page: lpn, pages }),
        }
    }

    pub(crate) fn check_length(&self, data: &[u8]) -> Result<(), FtlError> {
        let (bytes, expected) = (data.len(), self.page_bytes() as usize);
        match bytes == expected {
            true => Ok(()),
            false => Err(FtlError::Length { bytes, expected }),
        }
    }

    /// Pages that anything needs, counted by what needs them.
    #[cfg(test)]
    pub(crate) fn needed_pages(&self) -> usize {
        let pieces = self.map.pieces.iter().filter_map(|piece| piece.ppn);
        let written_back = self
            .map
            .cached
            .as_ref()
            .map(|cached| cached.written_back.len());
        let bookkeeping = written_back.unwrap_or(0)
            + pieces.count()
            + self.table.pages.len()
            + usize::from(self.root.is_some());
        self.map.mapped().count() + self.trims.len() + self.table.active_pages() + bookkeeping
    }

    /// Wear, and its meaning.
    pub fn wear(&self) -> Wear {
        let geometry = self.nand.geometry();
        let endurance = self.nand.timing().endurance;
        let written = self.statistics.host_writes;
        // Both since the device was opened.
        let programs = self.nand.operations().programs - self.programs_before;
        let amplification = (written > 0).then(|| programs as f64 / written as f64);
        let all = geometry.bytes() as f64 * f64::from(endurance);
        let (open_blocks, open_pages) = self.streams.filled();
        Wear {
            erases: self
                .blocks
                .all()
                .map(|block| self.nand.wear(block))
                .collect(),
            valid: self
                .blocks
                .all()
                .map(|block| self.blocks.valid_count(block))
                .collect(),
            open_blocks,
            open_pages,
            bad_blocks: self.blocks.bad(),
            endurance,
            write_amplification: amplification,
            life_bytes: amplification.map(|amplification| all / amplification),
        }
    }
}
