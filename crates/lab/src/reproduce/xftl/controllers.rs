//! The paper's platform, and its unknown settings.
//!
//! [`BOARD`] is the platform as the slides name it (an OpenSSD board, its Greedy FTL, ext4) and as
//! its public firmware has it. The slides leave four settings open: how many dies work at a time,
//! what a flush writes, where copies go, and how ext4 was made. So `controllers` varies all four,
//! each setting with its source.

use clap::Parser;
use serde::Serialize;

use super::nand::Nand;
use onewrite_cli::ftl::choices::GC_AHEAD_MOST;
use onewrite_cli::ftl::device::{Shape, Tuned};
use onewrite_flash::ftl::Config;
use onewrite_flash::nand::timing::Timing;

/// The pages that a flush writes, in the words of `onewrite ftl create --flush`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Flush {
    Nothing,
    Journal,
    Changed,
    Whole,
}

impl Flush {
    fn word(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Journal => "journal",
            Self::Changed => "changed",
            Self::Whole => "whole",
        }
    }

    fn source(self) -> &'static str {
        match self {
            Self::Nothing => {
                "a flush writes no map: pages are found by their out-of-band areas, as in Linux's pblk \
                 (Bjorling et al., FAST '17)"
            }
            Self::Journal => {
                "a flush writes the map's changed entries as a journal: SPDK's FTL (lib/ftl, P2L log)"
            }
            Self::Changed => {
                "a flush writes the map's changed pieces: DFTL's translation pages (Gupta et al., ASPLOS '09), \
                 written when the host flushes"
            }
            Self::Whole => {
                "a flush writes the map whole: ftl_flush and logging_pmap_table of the board's public firmware \
                 (OpenSSD Jasmine 1.1.0, ftl_greedy/ftl.c, called by ata_flush_cache), the Greedy FTL that the slides \
                 say X-FTL was added to"
            }
        }
    }
}

/// The destination of garbage collection's copies, in the words of `onewrite ftl create --copies`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Copies {
    Apart,
    AmongHost,
}

impl Copies {
    fn word(self) -> &'static str {
        match self {
            Self::Apart => "apart",
            Self::AmongHost => "among-host",
        }
    }

    fn source(self) -> &'static str {
        match self {
            Self::Apart => {
                "copies go to blocks of their own: this project's own FTL, whose cold pages are not collected again and again"
            }
            Self::AmongHost => {
                "copies go to the blocks of the host's pages: garbage_collection of the same firmware"
            }
        }
    }
}

/// The place of the map's pieces, in the words of `onewrite ftl create --map`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MapTo {
    OneDie,
    Striped,
}

impl MapTo {
    fn word(self) -> &'static str {
        match self {
            Self::OneDie => "one-die",
            Self::Striped => "striped",
        }
    }

    fn source(self) -> &'static str {
        match self {
            Self::OneDie => "one die writes the map: an assumption, the dearest",
            Self::Striped => {
                "all dies write the map in turn: logging_pmap_table of the same firmware goes from bank to bank"
            }
        }
    }
}

/// The unit in which ext4 allocates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Clusters {
    /// Blocks of 4 KiB: the default of mkfs from 512 MiB on, and the largest on x86. A database's
    /// pages of 8 KiB then lie across two of the device's.
    Usual,
    /// The size of the device's pages.
    Page,
}

impl Clusters {
    /// Options of mkfs.ext4, for a device with such pages.
    pub fn options(self, page_bytes: u64) -> Vec<String> {
        let words = match self {
            Self::Usual => ["-b", "4096"].map(str::to_owned).to_vec(),
            Self::Page => ["-O", "bigalloc", "-C"].map(str::to_owned).to_vec(),
        };
        let size = (self == Self::Page).then(|| page_bytes.to_string());
        words.into_iter().chain(size).collect()
    }

    fn source(self) -> &'static str {
        match self {
            Self::Usual => "ext4 as mkfs makes it on the x86 machine that the slides name",
            Self::Page => {
                "ext4 in clusters of the device's page (bigalloc): an assumption, the kindest to the journals"
            }
        }
    }
}

/// Entries of the X-L2P table, unless the user sets them: as many as `onewrite ftl create` makes. The
/// slides do not state the paper's. All workloads have room in it: the load of TPC-C's tables is a
/// transaction, and on transactional files so is a WAL's checkpoint. The device keeps a page back for
/// each entry.
pub const TABLE: u32 = 4096;

/// Pages of the write buffer, as `onewrite ftl mount --block` has them.
const WRITE_BUFFER: u32 = 64;
/// As every device of `onewrite ftl create`, like the next one.
const MAP_INTERVAL: u32 = 8_192;
const WEAR_GAP: u32 = 64;
const GC_AHEAD: u32 = Config::GC_AHEAD;

/// Parts of the device that are there by choice, and numbers that no source states (docs/xftl.md), in every figure.
#[derive(clap::Args, Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Parts {
    /// X-FTL's device: planes of each die, which program pages together [default: the NAND's]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4))]
    planes: Option<u32>,

    /// The same: entries of the page map in the controller's memory; 0 is all of them
    #[arg(long, value_name = "ENTRIES", default_value_t = 0)]
    map_cache: u32,

    /// The same: a cell has two pages, so that a power cut may take both, and the FTL pads
    #[arg(long)]
    paired_pages: bool,

    /// The same: entries of the X-L2P table, for each of which it keeps a page back
    #[arg(long, value_name = "ENTRIES", default_value_t = TABLE, value_parser = clap::value_parser!(u32).range(32..=65536))]
    pub table: u32,

    /// The same: MB (10^6 bytes) a second between page register and controller [default: the NAND's]
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    transfer_rate: Option<u32>,

    /// The same: pages of the write buffer below ext4; transactional files have none
    #[arg(long, value_name = "PAGES", default_value_t = WRITE_BUFFER, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub write_buffer: u32,

    /// The same: programmed pages after which the FTL writes the changed pieces of its map in any case
    #[arg(long, value_name = "PAGES", default_value_t = MAP_INTERVAL, value_parser = clap::value_parser!(u32).range(64..=10_000_000))]
    map_interval: u32,

    /// The same: the difference in erases from which wear leveling moves a block
    #[arg(long, value_name = "ERASES", default_value_t = WEAR_GAP, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    wear_gap: u32,

    /// The same: free blocks beyond the reserve that garbage collection makes ahead of need, on each plane; 0 is none
    #[arg(long, value_name = "BLOCKS", default_value_t = GC_AHEAD, value_parser = clap::value_parser!(u32).range(0..=GC_AHEAD_MOST as i64))]
    gc_ahead: u32,
}

impl Default for Parts {
    fn default() -> Self {
        Self::NONE
    }
}

impl Parts {
    /// No choice.
    pub const NONE: Self = Self {
        planes: None,
        map_cache: 0,
        paired_pages: false,
        table: TABLE,
        transfer_rate: None,
        write_buffer: WRITE_BUFFER,
        map_interval: MAP_INTERVAL,
        wear_gap: WEAR_GAP,
        gc_ahead: GC_AHEAD,
    };

    /// The choices, in words that follow others.
    fn description(self) -> String {
        let mut text = String::new();
        if let Some(planes) = self.planes {
            text.push_str(&format!(", {planes} planes"));
        }
        if self.map_cache > 0 {
            text.push_str(&format!(
                ", {} entries of the map in memory",
                self.map_cache
            ));
        }
        if self.paired_pages {
            text.push_str(", paired pages");
        }
        if self.table != TABLE {
            text.push_str(&format!(", {} entries of the X-L2P table", self.table));
        }
        if let Some(rate) = self.transfer_rate {
            text.push_str(&format!(", transfer of {rate} MB/s"));
        }
        if self.write_buffer != WRITE_BUFFER {
            text.push_str(&format!(", write buffer of {} pages", self.write_buffer));
        }
        if self.map_interval != MAP_INTERVAL {
            text.push_str(&format!(", map written every {} pages", self.map_interval));
        }
        if self.wear_gap != WEAR_GAP {
            text.push_str(&format!(", wear gap of {} erases", self.wear_gap));
        }
        if self.gc_ahead != GC_AHEAD {
            text.push_str(&format!(", {} blocks made ahead of need", self.gc_ahead));
        }
        text
    }
}

/// A setting: of the device, and of the file system on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Controller {
    /// Dies that work at a time, on the NAND's channels, or on one if there is only one die.
    pub dies: u32,
    pub nand: Nand,
    /// The pages that a flush writes.
    pub flush: Flush,
    pub copies: Copies,
    pub map: MapTo,
    pub clusters: Clusters,
    pub parts: Parts,
}

/// The paper's platform: see the module. Figures that vary none of its settings run on it.
pub const BOARD: Controller = Controller {
    dies: Nand::Board.dies(),
    nand: Nand::Board,
    flush: Flush::Whole,
    copies: Copies::AmongHost,
    map: MapTo::Striped,
    clusters: Clusters::Usual,
    parts: Parts::NONE,
};

/// An FTL by its name on the command line: what its flush writes.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ftl {
    /// The whole map, to all dies: the board
    Board,
    /// The whole map, to one die
    OneDie,
    /// The changed pieces of the map
    Changed,
    /// A journal of the map
    Journal,
    /// Nothing
    Nothing,
}

impl Ftl {
    /// All of them: the board, the same with a map on one die, and FTLs as they are today.
    pub const ALL: [Self; 5] = [
        Self::Board,
        Self::OneDie,
        Self::Changed,
        Self::Journal,
        Self::Nothing,
    ];

    /// The board with this FTL.
    pub fn controller(self) -> Controller {
        let flush = match self {
            Self::Board | Self::OneDie => Flush::Whole,
            Self::Changed => Flush::Changed,
            Self::Journal => Flush::Journal,
            Self::Nothing => Flush::Nothing,
        };
        let map = match self {
            Self::OneDie => MapTo::OneDie,
            _ => MapTo::Striped,
        };
        Controller {
            flush,
            map,
            ..BOARD
        }
    }
}

/// The board, the same with separate copies or a map on one die, and every combination of dies and flushes in larger
/// clusters.
pub const ALL: [Controller; 10] = {
    const fn of(dies: u32, flush: Flush) -> Controller {
        Controller {
            dies,
            flush,
            clusters: Clusters::Page,
            ..BOARD
        }
    }
    [
        BOARD,
        Controller {
            copies: Copies::Apart,
            ..BOARD
        },
        Controller {
            map: MapTo::OneDie,
            ..BOARD
        },
        of(8, Flush::Whole),
        of(8, Flush::Changed),
        of(8, Flush::Journal),
        of(8, Flush::Nothing),
        of(1, Flush::Whole),
        of(1, Flush::Changed),
        of(1, Flush::Nothing),
    ]
};

impl Controller {
    /// The same with these parts.
    pub fn with(self, parts: Parts) -> Self {
        Self { parts, ..self }
    }

    /// Whether it is this setting, on whatever NAND and with whatever parts.
    pub fn is_setting(self, setting: Self) -> bool {
        setting.on(self.nand).with(self.parts) == self
    }

    /// The same with other NAND, and all of its dies.
    pub fn on(self, nand: Nand) -> Self {
        Self {
            dies: match self.dies {
                1 => 1,
                _ => nand.dies(),
            },
            nand,
            ..self
        }
    }

    /// Pages of a stream that are programmed at a time.
    pub fn programs_at_a_time(self) -> u32 {
        self.dies * self.planes()
    }

    /// Planes of each die.
    pub fn planes(self) -> u32 {
        self.parts.planes.unwrap_or(self.nand.chips().planes)
    }

    /// Bytes of a page of the device, and of the databases on it.
    pub fn page_bytes(self) -> u64 {
        self.nand.page_bytes()
    }

    /// The times of its NAND.
    pub fn timing(self) -> Result<Timing, String> {
        let mut timing = self.nand.timing()?;
        if let Some(rate) = self.parts.transfer_rate {
            timing.transfer_mb_per_s = f64::from(rate);
        }
        Ok(timing)
    }

    /// The name in tables.
    pub fn name(self) -> String {
        let kib = match self.clusters {
            Clusters::Usual => 4,
            Clusters::Page => self.page_bytes() >> 10,
        };
        format!("{}, clusters of {kib} KiB", self.ftl_name())
    }

    /// The name without the file system.
    pub fn ftl_name(self) -> String {
        let dies = match self.dies {
            1 => "1 die".to_owned(),
            dies => format!("{dies} dies"),
        };
        let nand = match self.nand.chips().name {
            "" => String::new(),
            name => format!("{name}, "),
        };
        let flush = match self.flush {
            Flush::Nothing => "no map at flush",
            Flush::Journal => "journal of the map at flush",
            Flush::Changed => "changed map at flush",
            Flush::Whole => "whole map at flush",
        };
        let copies = match self.copies {
            Copies::Apart => ", copies apart",
            Copies::AmongHost => "",
        };
        let map = match (self.dies, self.map) {
            (2.., MapTo::OneDie) => " by one die",
            _ => "",
        };
        let parts = self.parts.description();
        format!("{nand}{dies}, {flush}{map}{copies}{parts}")
    }

    /// The source of the setting.
    pub fn source(self) -> String {
        let dies = match self.dies {
            1 => "one operation at a time, the least that a board can do",
            _ => self.nand.chips().source,
        };
        format!(
            "{dies}; {}; {}; {}; {}",
            self.flush.source(),
            self.map.source(),
            self.copies.source(),
            self.clusters.source()
        )
    }

    /// The shape of a device with `host` MiB for the host and at least `spare` percent of spare NAND.
    pub fn shape(self, host: u32, spare: u32) -> Result<Shape, String> {
        /// A parser for the options alone.
        #[derive(Parser)]
        struct Only {
            #[command(flatten)]
            shape: Shape,
        }
        let (host, spare) = (host.to_string(), spare.to_string());
        let chips = self.nand.chips();
        let page_size = chips.page_bytes.to_string();
        let pages_per_block = chips.pages_per_block.to_string();
        let channels = self.dies.min(chips.channels);
        let (ways, channels) = ((self.dies / channels).to_string(), channels.to_string());
        let Parts {
            map_cache,
            table,
            transfer_rate,
            map_interval,
            wear_gap,
            gc_ahead,
            ..
        } = self.parts;
        let tuned = Tuned {
            transfer_mb_per_s: transfer_rate,
            checkpoint_every: Some(map_interval),
            wear_gap: Some(wear_gap),
        };
        let (map_cache, table) = (map_cache.to_string(), table.to_string());
        let gc_ahead = gc_ahead.to_string();
        let planes = self.planes().to_string();
        let pairs = match self.parts.paired_pages {
            true => "paired",
            false => "independent",
        };
        let words = [
            "x",
            "--host-mib",
            &host,
            "--spare",
            &spare,
            "--channels",
            &channels,
            "--ways",
            &ways,
            "--table",
            &table,
            "--flush",
            self.flush.word(),
            "--copies",
            self.copies.word(),
            "--map",
            self.map.word(),
            "--page-size",
            &page_size,
            "--pages-per-block",
            &pages_per_block,
            "--nand",
            chips.timing,
            "--planes",
            &planes,
            "--map-cache",
            &map_cache,
            "--gc-ahead",
            &gc_ahead,
            "--pages",
            pairs,
        ];
        Ok(Only::try_parse_from(words)
            .map_err(|error| error.to_string())?
            .shape
            .tuned(tuned))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_a_device_and_has_a_name_and_a_source_of_its_own() {
        for (index, controller) in ALL.iter().enumerate() {
            let (nand, config) = controller.shape(80, 30).unwrap().make().unwrap();
            assert_eq!(config.logical_pages, 80 << 7, "of 8 KiB");
            assert!(config.logical_pages <= nand.geometry().pages() / 10 * 7);
            for other in &ALL[index + 1..] {
                assert_ne!(controller.name(), other.name());
                assert_ne!(controller.source(), other.source());
            }
        }
        assert!(ALL.contains(&BOARD));
    }

    #[test]
    fn each_part_is_one_of_the_device_and_has_a_name() {
        let with = |parts| {
            let controller = BOARD.with(parts);
            let (nand, config) = controller.shape(96, 30).unwrap().make().unwrap();
            (nand.geometry().planes_per_die, config, controller.name())
        };
        let (planes, none, name) = with(Parts::NONE);
        assert_eq!((planes, none.cached_entries, none.pairs), (1, 0, false));
        let (planes, _, two) = with(Parts {
            planes: Some(2),
            ..Parts::NONE
        });
        assert!(planes == 2 && two.contains(", 2 planes"), "{two}");
        let (_, config, cache) = with(Parts {
            map_cache: 2_048,
            ..Parts::NONE
        });
        assert_eq!(config.cached_entries, 2_048);
        assert!(
            cache.contains("2048 entries of the map in memory"),
            "{cache}"
        );
        let (_, config, paired) = with(Parts {
            paired_pages: true,
            ..Parts::NONE
        });
        assert!(config.pairs && paired.contains("paired pages"), "{paired}");
        let (_, config, table) = with(Parts {
            table: 256,
            ..Parts::NONE
        });
        assert_eq!((none.table_capacity, config.table_capacity), (TABLE, 256));
        assert!(table.contains("256 entries of the X-L2P table"), "{table}");
        let usual = BOARD.shape(96, 30).unwrap().make().unwrap();
        let tuned = BOARD.with(Parts {
            transfer_rate: Some(40),
            map_interval: 1_024,
            wear_gap: 8,
            gc_ahead: 0,
            write_buffer: 16,
            ..Parts::NONE
        });
        let (nand, config) = tuned.shape(96, 30).unwrap().make().unwrap();
        let numbers = |of: Config| (of.checkpoint_every, of.wear_gap, of.gc_ahead);
        assert_eq!(numbers(config), (1_024, 8, 0));
        assert_eq!(numbers(usual.1), (MAP_INTERVAL, WEAR_GAP, GC_AHEAD));
        let rate = |nand: &onewrite_flash::nand::Nand| nand.timing().transfer_mb_per_s;
        assert_eq!((rate(&usual.0), rate(&nand)), (156.0, 40.0));
        assert_eq!(tuned.timing().unwrap().transfer_mb_per_s, 40.0);
        let named = "transfer of 40 MB/s, write buffer of 16 pages, map written every 1024 pages, wear gap of 8 erases, 0 blocks made ahead of need";
        assert!(tuned.name().contains(named), "{}", tuned.name());
        assert!(
            !name.contains("plane") && !name.contains("entries"),
            "{name}"
        );
    }

    #[test]
    fn nand_is_a_choice_of_every_setting_and_part_of_its_name() {
        for setting in ALL {
            let today = setting.on(Nand::Tlc3d);
            assert!(today.is_setting(setting) && today != setting);
            assert_ne!(today.ftl_name(), setting.ftl_name());
            let (nand, _) = today.shape(512, 30).unwrap().make().unwrap();
            let geometry = nand.geometry();
            assert_eq!(geometry.page_bytes, 16_384);
            assert_eq!(geometry.pages_per_block, 768);
            // The board with one die stays one with one die.
            let dies = if setting.dies == 1 { 1 } else { 4 };
            assert_eq!((geometry.dies(), geometry.planes_per_die), (dies, 2));
            assert_eq!(today.programs_at_a_time(), 2 * dies);
        }
        let one = BOARD.on(Nand::Tlc3d).with(Parts {
            planes: Some(1),
            ..Parts::NONE
        });
        assert_eq!(one.programs_at_a_time(), 4);
    }
}
