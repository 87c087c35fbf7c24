//! The paper's platform, and its unknown settings.
//!
//! [`BOARD`] is the platform as the slides name it (an OpenSSD board, its Greedy FTL, ext4) and as
//! its public firmware has it. The slides leave four settings open: how many dies work at a time,
//! what a flush writes, where copies go, and how ext4 was made. So `controllers` varies all four,
//! each setting with its source.

use clap::Parser;
use serde::Serialize;

use onewrite_cli::ftl::device::Shape;

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
    /// Options of mkfs.ext4.
    pub fn options(self) -> &'static [&'static str] {
        match self {
            Self::Usual => &["-b", "4096"],
            Self::Page => &["-O", "bigalloc", "-C", "8192"],
        }
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

/// The pages of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pages {
    /// 8 KiB, the chip's pages that the slides name.
    Usual,
    /// 32 KiB, the virtual pages of the board's firmware: two planes of two chips, which are
    /// programmed together and on a bus twice as wide (`include/jasmine.h`, `BYTES_PER_PAGE`).
    Virtual,
}

/// The NAND of [`Controller::shape`].
pub const NAND: &str = "openssd";

/// The board's own pages.
pub const BOARD_PAGES: Pages = Pages::Virtual;

/// Channels of the board.
const CHANNELS: u32 = 2;
/// Entries of the X-L2P table, as many as the largest transactions take. The device keeps a page
/// back for each, and one that must become full can have few.
pub const TABLE: u32 = 256;
/// The same while TPC-C's tables are loaded, and where a WAL's checkpoint is a transaction.
pub const LARGE_TABLE: u32 = 4096;

/// Parts of the device that are there by choice (docs/xftl.md), in every figure.
#[derive(clap::Args, Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Parts {
    /// X-FTL's device: planes of each die, which program pages together
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4))]
    planes: u32,

    /// The same: entries of the page map in the controller's memory; 0 is all of them
    #[arg(long, value_name = "ENTRIES", default_value_t = 0)]
    map_cache: u32,

    /// The same: a cell has two pages, so that a power cut may take both, and the FTL pads
    #[arg(long)]
    paired_pages: bool,
}

impl Default for Parts {
    fn default() -> Self {
        Self::NONE
    }
}

impl Parts {
    /// No choice.
    pub const NONE: Self = Self {
        planes: 1,
        map_cache: 0,
        paired_pages: false,
    };

    /// The choices, in words that follow others.
    fn description(self) -> String {
        let mut text = String::new();
        if self.planes > 1 {
            text.push_str(&format!(", {} planes", self.planes));
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
        text
    }
}

/// A setting: of the device, and of the file system on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Controller {
    /// Dies that work at a time, on [`CHANNELS`] channels, or on one if there is only one die.
    pub dies: u32,
    /// The pages that a flush writes.
    pub flush: Flush,
    pub copies: Copies,
    pub map: MapTo,
    pub clusters: Clusters,
    pub parts: Parts,
}

/// The paper's platform: see the module. Figures that vary none of its settings run on it.
pub const BOARD: Controller = Controller {
    dies: 8,
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

    /// Pages of a stream that are programmed at a time.
    pub fn programs_at_a_time(self) -> u32 {
        self.dies * self.parts.planes
    }

    /// The name in tables.
    pub fn name(self) -> String {
        let clusters = match self.clusters {
            Clusters::Usual => "4 KiB",
            Clusters::Page => "8 KiB",
        };
        format!("{}, clusters of {clusters}", self.ftl_name())
    }

    /// The name without the file system.
    pub fn ftl_name(self) -> String {
        let dies = match self.dies {
            1 => "1 die".to_owned(),
            dies => format!("{dies} dies"),
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
        format!("{dies}, {flush}{map}{copies}{parts}")
    }

    /// The source of the setting.
    pub fn source(self) -> String {
        let dies = match self.dies {
            1 => "one operation at a time, the least that a board can do",
            _ => {
                "the board's eight banks, four on each of two channels (include/jasmine.h, BANK_BMP)"
            }
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
    pub fn shape(self, host: u32, spare: u32, table: u32) -> Result<Shape, String> {
        self.shape_of(Pages::Usual, host, spare, table)
    }

    /// The same with other pages.
    pub fn shape_of(
        self,
        pages: Pages,
        host: u32,
        spare: u32,
        table: u32,
    ) -> Result<Shape, String> {
        /// A parser for the options alone.
        #[derive(Parser)]
        struct Only {
            #[command(flatten)]
            shape: Shape,
        }
        let (host, spare, table) = (host.to_string(), spare.to_string(), table.to_string());
        let (page_size, nand) = match pages {
            Pages::Usual => ("8192", NAND),
            Pages::Virtual => ("32768", "openssd-virtual"),
        };
        let channels = self.dies.min(CHANNELS);
        let (ways, channels) = ((self.dies / channels).to_string(), channels.to_string());
        let Parts {
            planes, map_cache, ..
        } = self.parts;
        let (planes, map_cache) = (planes.to_string(), map_cache.to_string());
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
            page_size,
            "--nand",
            nand,
            "--planes",
            &planes,
            "--map-cache",
            &map_cache,
            "--pages",
            pairs,
        ];
        Ok(Only::try_parse_from(words)
            .map_err(|error| error.to_string())?
            .shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_a_device_and_has_a_name_and_a_source_of_its_own() {
        for (index, controller) in ALL.iter().enumerate() {
            let (nand, config) = controller.shape(80, 30, TABLE).unwrap().make().unwrap();
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
            let (nand, config) = controller.shape(96, 30, TABLE).unwrap().make().unwrap();
            (nand.geometry().planes_per_die, config, controller.name())
        };
        let (planes, none, name) = with(Parts::NONE);
        assert_eq!((planes, none.cached_entries, none.pairs), (1, 0, false));
        let (planes, _, two) = with(Parts {
            planes: 2,
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
        assert!(!name.contains("plane") && !name.contains("pages"), "{name}");
    }
}
