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
    Changed,
    Whole,
}

impl Flush {
    fn word(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Changed => "changed",
            Self::Whole => "whole",
        }
    }

    fn source(self) -> &'static str {
        match self {
            Self::Nothing => {
                "a flush writes no map: this project's own FTL, which finds pages by their out-of-band areas"
            }
            Self::Changed => {
                "a flush writes the map's changed pieces: an assumption, the least that a controller does that \
                 does not look at out-of-band areas"
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

/// Channels of the board.
const CHANNELS: u32 = 2;
/// Entries of the X-L2P table, as many as the largest transactions take. The device keeps a page
/// back for each, and one that must become full can have few.
pub const TABLE: u32 = 256;
/// The same while TPC-C's tables are loaded.
pub const TPCC_TABLE: u32 = 4096;

/// A setting: of the device, and of the file system on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Controller {
    /// Dies that work at a time, on [`CHANNELS`] channels, or on one if there is only one die.
    pub dies: u32,
    /// The pages that a flush writes.
    pub flush: Flush,
    pub copies: Copies,
    pub clusters: Clusters,
}

/// The paper's platform: see the module. Figures that vary none of its settings run on it.
pub const BOARD: Controller = Controller {
    dies: 8,
    flush: Flush::Whole,
    copies: Copies::AmongHost,
    clusters: Clusters::Usual,
};

/// The board, the same with separate copies, and every combination of dies and flushes in larger
/// clusters.
pub const ALL: [Controller; 8] = {
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
        of(8, Flush::Whole),
        of(8, Flush::Changed),
        of(8, Flush::Nothing),
        of(1, Flush::Whole),
        of(1, Flush::Changed),
        of(1, Flush::Nothing),
    ]
};

impl Controller {
    /// The name in tables.
    pub fn name(self) -> String {
        let dies = match self.dies {
            1 => "1 die".to_owned(),
            dies => format!("{dies} dies"),
        };
        let flush = match self.flush {
            Flush::Nothing => "no map at flush",
            Flush::Changed => "changed map at flush",
            Flush::Whole => "whole map at flush",
        };
        let clusters = match self.clusters {
            Clusters::Usual => "4 KiB",
            Clusters::Page => "8 KiB",
        };
        let copies = match self.copies {
            Copies::Apart => ", copies apart",
            Copies::AmongHost => "",
        };
        format!("{dies}, {flush}{copies}, clusters of {clusters}")
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
            "{dies}; {}; {}; {}",
            self.flush.source(),
            self.copies.source(),
            self.clusters.source()
        )
    }

    /// The shape of a device with `host` MiB for the host and `spare` percent of spare NAND.
    pub fn shape(self, host: u32, spare: u32, table: u32) -> Result<Shape, String> {
        /// A parser for the options alone.
        #[derive(Parser)]
        struct Only {
            #[command(flatten)]
            shape: Shape,
        }
        // Bookkeeping and the reserve take some 50 MiB of this geometry.
        let mib = (host * 100).div_ceil(100 - spare.min(90)).max(host + 100);
        let (mib, spare, table) = (mib.to_string(), spare.to_string(), table.to_string());
        let channels = self.dies.min(CHANNELS);
        let (ways, channels) = ((self.dies / channels).to_string(), channels.to_string());
        let words = [
            "x",
            "--mib",
            &mib,
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
            controller.shape(80, 30, TABLE).unwrap().make().unwrap();
            for other in &ALL[index + 1..] {
                assert_ne!(controller.name(), other.name());
                assert_ne!(controller.source(), other.source());
            }
        }
        assert!(ALL.contains(&BOARD));
    }
}
