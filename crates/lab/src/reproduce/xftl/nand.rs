//! The NAND of a device: its chips, their pages and blocks, and how many work at a time.
//!
//! The board's chips are of its time, and so may be a ratio. So NAND is an axis, as the FTL and the
//! size are. The FTL is the same on each.

use onewrite_flash::nand::timing::Timing;
use serde::Serialize;

/// NAND by its name on the command line.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Nand {
    /// The board's: eight dies of MLC, pages of 8 KiB
    Board,
    /// The board's virtual pages of 32 KiB
    #[value(name = "board-32k")]
    #[serde(rename = "board-32k")]
    Board32k,
    /// TLC of 2024: four dies of two planes, pages of 16 KiB, a word line at a time
    #[value(name = "tlc-3d")]
    #[serde(rename = "tlc-3d")]
    Tlc3d,
    /// The same chips with one bit a cell, as a drive's write cache has them
    SlcCache,
}

/// The shape of a device's NAND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chips {
    /// The name in tables; empty for the board's own.
    pub name: &'static str,
    /// The file of its times (`crates/flash/models/nand`).
    pub timing: &'static str,
    pub page_bytes: u32,
    pub pages_per_block: u32,
    pub planes: u32,
    pub channels: u32,
    /// Dies on each channel.
    pub ways: u32,
    /// The source of the shape. The file of times names that of the times.
    pub source: &'static str,
}

const BOARD: Chips = Chips {
    name: "",
    timing: "openssd",
    page_bytes: 8_192,
    pages_per_block: 128,
    planes: 1,
    channels: 2,
    ways: 4,
    source: "the board's eight banks, four on each of two channels (include/jasmine.h, BANK_BMP)",
};

const TLC_3D: Chips = Chips {
    name: "TLC of 2024",
    timing: "tlc-3d",
    page_bytes: 16_384,
    // A block of 24 MiB has two planes.
    pages_per_block: 768,
    planes: 2,
    channels: 2,
    ways: 2,
    source: "ConZone (Yu et al., DATE 2025), ssd_config.h: a drive for consumers with two channels of two dies, \
             planes of 16 KiB pages, two a die, and blocks of 24 MiB",
};

impl Nand {
    /// Its chips.
    pub const fn chips(self) -> Chips {
        match self {
            Self::Board => BOARD,
            // Two planes of two chips are programmed together and on a bus twice as wide.
            Self::Board32k => Chips {
                name: "pages of 32 KiB",
                timing: "openssd-virtual",
                page_bytes: 32_768,
                source: "two planes and two chips behind each page: the same firmware (include/jasmine.h, \
                         BYTES_PER_PAGE)",
                ..BOARD
            },
            Self::Tlc3d => TLC_3D,
            Self::SlcCache => Chips {
                name: "SLC cache of 2024",
                timing: "slc-cache",
                // One bit instead of three in each cell.
                pages_per_block: TLC_3D.pages_per_block / 3,
                source: "the same drive with blocks of one bit a cell, a third as large",
                ..TLC_3D
            },
        }
    }

    /// Dies.
    pub const fn dies(self) -> u32 {
        self.chips().channels * self.chips().ways
    }

    /// The factor by which a run is longer than on the board, so that it fills as many open blocks.
    /// In a run that is too short it is luck whether a block is collected.
    pub const fn longer(self) -> u32 {
        const fn open(nand: Nand) -> u32 {
            nand.dies() * nand.chips().planes * nand.chips().pages_per_block
        }
        open(self).div_ceil(open(Self::Board))
    }

    /// Bytes of a page. The databases have pages of the same size.
    pub fn page_bytes(self) -> u64 {
        u64::from(self.chips().page_bytes)
    }

    /// Its times.
    pub fn timing(self) -> Result<Timing, String> {
        Timing::built_in(self.chips().timing).ok_or_else(|| "no such NAND".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::super::controllers::BOARD;
    use super::super::targets::{judge, tests::ran};
    use super::super::trial::Ran;
    use super::*;
    use clap::ValueEnum;

    /// Two programs a transaction in both, and in WAL an erase.
    #[test]
    fn a_time_is_predicted_from_the_times_of_its_own_nand() {
        let predicted = |nand| {
            let of = |mode, erases| Ran {
                controller: BOARD.on(nand),
                erases,
                ..ran(mode, 3.0, 1, 1)
            };
            judge(&[of("WAL", 200), of("X-FTL", 0)])[0].notes.join(" ")
        };
        for (nand, expected) in [
            // (2 * 1,352.5 + 1,500) us to 2 * 1,352.5.
            (Nand::Board, "WAL 1.55"),
            // (2 * 85.2 + 3,500) us to 2 * 85.2.
            (Nand::SlcCache, "WAL 21.53"),
        ] {
            let told = predicted(nand);
            assert!(told.contains(expected), "{told}");
        }
    }

    #[test]
    fn each_nand_has_times_and_a_source_and_a_name_of_its_own() {
        let all = Nand::value_variants();
        for (index, nand) in all.iter().enumerate() {
            assert!(nand.timing().is_ok(), "{nand:?}");
            assert!(!nand.chips().source.is_empty());
            let differs = |other: &Nand| other.chips().name != nand.chips().name;
            assert!(all[index + 1..].iter().all(differs), "{nand:?}");
        }
        assert_eq!((Nand::Board.dies(), Nand::Tlc3d.dies()), (8, 4));
        // 1,024 pages on the board, and 6,144 and 2,048.
        let longer = [Nand::Board, Nand::Tlc3d, Nand::SlcCache].map(Nand::longer);
        assert_eq!(longer, [1, 6, 2]);
        // 24 MiB of a die, on two planes.
        let chips = Nand::Tlc3d.chips();
        assert_eq!(chips.pages_per_block * chips.page_bytes * 2, 24 << 20);
    }
}
