//! The configuration of a device, and the limits that follow from it.

use super::FtlError;
use super::checkpoint::{ROOT_HEADER_BYTES, ROOT_PIECE_BYTES, ROOT_TABLE_BYTES};
use super::padding;
use super::scrub::Scrub;
use super::streams::most_open;
use super::victim::CollectsBy;
use crate::nand::Geometry;
use crate::xftl::table::{ENTRY_BYTES, TABLE_HEADER_BYTES};

/// The configuration of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Logical pages. The rest of the NAND is for garbage collection.
    pub logical_pages: u32,
    /// Entries of the X-L2P table. These are pages that transactions may have written and not
    /// committed, and pages committed since their piece of the page map was written.
    pub table_capacity: u32,
    /// After this many programmed pages the changed pieces of the page map are written, so that
    /// recovery need not look at older pages.
    pub checkpoint_every: u32,
    /// The largest difference of two blocks' erases. Beyond it, the content of the block with fewer
    /// erases moves to the one with more.
    pub wear_gap: u32,
    /// The pages that a flush writes.
    pub flush: FlushWrites,
    /// The place of garbage collection's copies.
    pub copies: CopiesGo,
    /// The place of the page map's pieces.
    pub map: MapGoes,
    /// The choice of the block that garbage collection empties.
    pub collects: CollectsBy,
    /// Entries of the page map that the controller has memory for; 0 is all of them. Others are
    /// read when they are needed.
    pub cached_entries: u32,
    /// When a block is moved because of bit errors.
    pub scrub: Scrub,
    /// Whether the pages of the NAND are paired.
    pub pairs: bool,
    /// Free blocks beyond the reserve, for each plane of a die, up to which garbage collection
    /// copies while dies are idle; 0 is never. See `ftl/ahead.rs`.
    pub gc_ahead: u32,
}

/// The place of the page map's pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapGoes {
    /// To the block of the root and of the X-L2P table, so that one die writes them one after the
    /// other.
    OneDie,
    /// To a block on each die in turn, so that all dies write them at the same time. The OpenSSD
    /// board's own firmware does this (Jasmine 1.1.0, `ftl_greedy/ftl.c`: `logging_pmap_table`
    /// gives each bank a page of the map, and again until the map ends).
    Striped,
}

/// The place of garbage collection's copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopiesGo {
    /// To separate blocks: a page that outlived its block changes less than the host's current
    /// writes.
    Apart,
    /// To the same blocks as the host's pages, so that fewer blocks are open. The OpenSSD board's
    /// own firmware does this (Jasmine 1.1.0, `ftl_greedy/ftl.c`: `garbage_collection` lets the
    /// host write on in the block that it copied to).
    AmongHost,
}

/// The pages that a flush writes in addition to the host's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushWrites {
    /// Nothing: recovery finds pages by their out-of-band areas. Only trims need a piece of the
    /// map.
    Nothing,
    /// The changed pieces of the page map, as needed by a controller that does not read out-of-band
    /// areas.
    Map,
    /// The changed entries of the page map, in the root: a journal of the map. When they fill it,
    /// the changed pieces are written. SPDK's FTL writes such a journal (`lib/ftl`, P2L log).
    Journal,
    /// The whole page map, if anything has changed. The OpenSSD board's own page-mapping firmware
    /// does this when a flush arrives (Jasmine 1.1.0, `ftl_greedy/ftl.c`: `ftl_flush` and
    /// `logging_pmap_table`).
    WholeMap,
}

impl Config {
    /// The usual [`Self::gc_ahead`].
    pub const GC_AHEAD: u32 = 4;

    /// A device of `logical_pages`, with the usual values otherwise.
    pub fn new(logical_pages: u32) -> Self {
        Self {
            logical_pages,
            table_capacity: 4096,
            checkpoint_every: 8192,
            wear_gap: 64,
            flush: FlushWrites::Nothing,
            copies: CopiesGo::Apart,
            map: MapGoes::OneDie,
            collects: CollectsBy::Greedy,
            cached_entries: 0,
            scrub: Scrub::default(),
            pairs: false,
            gc_ahead: Self::GC_AHEAD,
        }
    }

    /// Pages of padding that each block has at most.
    pub(super) fn padding(&self) -> u32 {
        match self.pairs {
            true => padding::MOST,
            false => 0,
        }
    }

    /// The most logical pages that leave `percent` of the NAND free, and the device's own needs;
    /// otherwise `like` another configuration.
    ///
    /// # Errors
    /// If the NAND is too small for anything.
    pub fn with_spare(geometry: &Geometry, percent: u32, like: Self) -> Result<Self, FtlError> {
        let kept = u64::from(geometry.pages()) * u64::from(100 - percent.min(99)) / 100;
        let mut config = Self {
            logical_pages: kept as u32,
            ..like
        };
        // The device's needs grow with its pages, so one step from above is enough.
        let needs = Limits::of(geometry, &config)?.needs_pages(geometry, &config);
        let most = geometry.pages().saturating_sub(needs);
        config.logical_pages = config.logical_pages.min(most);
        Limits::check(geometry, &config)?;
        Ok(config)
    }

    /// The geometry with the fewest blocks that holds these logical pages, and leaves at least
    /// `percent` of the NAND free. `with` makes a geometry of a number of blocks.
    ///
    /// # Errors
    /// If no geometry holds them.
    pub fn fitting(
        &self,
        percent: u32,
        with: impl Fn(u32) -> Geometry,
    ) -> Result<Geometry, FtlError> {
        let logical = u64::from(self.logical_pages);
        let with_spare = (logical * 100).div_ceil(u64::from(100 - percent.min(99)));
        let (mut blocks, mut needed) = (0, with_spare);
        loop {
            let per_block = u64::from(with(1).pages_per_block.max(1));
            // More blocks need more pages, so that a second step may follow.
            blocks = (blocks + 1).max(needed.div_ceil(per_block) as u32);
            let geometry = with(blocks);
            let needs = Limits::of(&geometry, self)?.needs_pages(&geometry, self);
            needed = with_spare.max(logical + u64::from(needs));
            if u64::from(geometry.pages()) >= needed {
                return Ok(geometry);
            }
        }
    }
}

/// Pieces of the map that are kept at a time: without room in memory also those written back.
fn pieces_kept(pieces: u32, config: &Config) -> u32 {
    match config.cached_entries {
        0 => pieces,
        _ => 2 * pieces,
    }
}

/// The limits that follow from a configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Logical pages in a piece of the page map.
    pub(crate) piece_entries: u32,
    /// Pieces of the page map.
    pub(crate) pieces: u32,
    /// Entries in a piece of the X-L2P table.
    pub(crate) table_entries: u32,
    /// Entries of the X-L2P table that fit into the root.
    pub(crate) root_entries: u32,
    /// With fewer free blocks, garbage is collected before anything else. The reserve is the room
    /// that this takes, and a block on each die to copy to, and for the map's pieces if they are
    /// striped.
    pub(crate) reserve: u32,
    /// Free blocks that suffice for garbage collection, however often the power goes: see
    /// [`super::gc`].
    pub(crate) room: u32,
    /// Trimmed pages that may wait to become durable.
    pub(crate) trims: usize,
}

impl Limits {
    /// The limits of a configuration, if it is possible.
    pub(crate) fn check(geometry: &Geometry, config: &Config) -> Result<Self, FtlError> {
        let limits = Self::of(geometry, config)?;
        let needed =
            u64::from(limits.needs_pages(geometry, config)) + u64::from(config.logical_pages);
        match needed <= u64::from(geometry.pages()) && config.logical_pages > 0 {
            true => Ok(limits),
            false => Err(FtlError::Config(format!(
                "{} logical pages take {needed} physical ones, and there are {}",
                config.logical_pages,
                geometry.pages()
            ))),
        }
    }

    fn of(geometry: &Geometry, config: &Config) -> Result<Self, FtlError> {
        geometry.check().map_err(FtlError::Config)?;
        let page = geometry.page_bytes;
        let piece_entries = page / 4;
        let table_entries = page.saturating_sub(TABLE_HEADER_BYTES) / ENTRY_BYTES;
        if piece_entries == 0 || table_entries == 0 {
            return Err(FtlError::Config(format!(
                "pages of {page} bytes are too small"
            )));
        }
        let pages = geometry.pages_per_block;
        if config.pairs && pages < padding::LEAST_PAGES {
            return Err(FtlError::Config(format!(
                "blocks of {pages} pages are too small for pairs"
            )));
        }
        let pieces = config.logical_pages.div_ceil(piece_entries);
        let table_pages = config.table_capacity.div_ceil(table_entries);
        let root = u64::from(ROOT_HEADER_BYTES)
            + u64::from(pieces) * u64::from(ROOT_PIECE_BYTES)
            + u64::from(table_pages) * u64::from(ROOT_TABLE_BYTES);
        if root > u64::from(page) {
            return Err(FtlError::Config(format!(
                "the root of {pieces} pieces of the page map and {table_pages} of the X-L2P table takes \
                 {root} bytes, and a page has {page}"
            )));
        }
        let room = u64::from(page) - root;
        let root_entries =
            room.saturating_sub(u64::from(TABLE_HEADER_BYTES)) / u64::from(ENTRY_BYTES);
        let meta = pieces_kept(pieces, config) + table_pages + 1;
        let meta_blocks = meta.div_ceil(geometry.pages_per_block);
        let room = geometry.pages_per_block.ilog2() + 4 + 2 * meta_blocks;
        // Blocks to copy to, and for pieces of the map, one on each plane of each die.
        let planes = geometry.dies() * geometry.planes_per_die;
        // The host opens blocks on all planes of a die at a time.
        let others = planes - 1 + geometry.planes_per_die - 1;
        let spread = match config.map {
            MapGoes::OneDie => others,
            MapGoes::Striped => 2 * others,
        };
        Ok(Self {
            piece_entries,
            pieces,
            table_entries,
            root_entries: root_entries as u32,
            reserve: room + spread + config.collects.reserve() + 2 * u32::from(config.pairs),
            room,
            trims: (geometry.pages_per_block as usize) * 2,
        })
    }

    /// The number of committed entries of the X-L2P table beyond which pieces of the page map are
    /// written instead. This many cost a commit nothing, or one page if the root has little room.
    pub(crate) fn cheap_entries(&self) -> usize {
        match self.root_entries >= self.table_entries / 2 {
            true => self.root_entries as usize,
            false => self.table_entries as usize,
        }
    }

    /// Physical pages in addition to those of the logical pages. They are: twice the bookkeeping
    /// (old and new); the pages of transactions; trims that wait; the blocks that are open or must
    /// be free. Each other block has one invalid page, without which there would be no garbage to
    /// collect.
    fn needs_pages(&self, geometry: &Geometry, config: &Config) -> u32 {
        let table_pages = config.table_capacity.div_ceil(self.table_entries);
        let meta = 2 * (pieces_kept(self.pieces, config) + table_pages + 1);
        let open = most_open(geometry.dies() * geometry.planes_per_die, config);
        let blocks = (self.reserve + open + 1).saturating_mul(geometry.pages_per_block);
        let invalid = 1 + config.padding();
        meta.saturating_add(config.table_capacity)
            .saturating_add(self.trims as u32)
            .saturating_add(blocks)
            .saturating_add(geometry.blocks().saturating_mul(invalid))
    }
}
