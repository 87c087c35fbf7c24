//! What is not known of the paper's board: how many dies work at a time, and what a flush writes.
//!
//! Nothing in the paper's slides says either. So every combination is run, and each has its source here. The one
//! that the other figures are run on was chosen when results had been seen, and is no better founded than the rest: to say
//! anything about X-FTL, all of [`ALL`] have to be looked at.

use clap::Parser;
use serde::Serialize;

use crate::ftl::device::Shape;

/// What a flush writes, as `onewrite ftl create --flush` calls it.
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

/// A setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Controller {
    /// Dies that work at a time, each on a channel of its own.
    pub dies: u32,
    /// What a flush writes.
    pub flush: Flush,
}

/// The one that figures are run on which do not vary it: see the module.
pub const USUAL: Controller = Controller {
    dies: 1,
    flush: Flush::Changed,
};

/// All of them.
pub const ALL: [Controller; 6] = {
    const fn of(dies: u32, flush: Flush) -> Controller {
        Controller { dies, flush }
    }
    [
        of(1, Flush::Nothing),
        of(1, Flush::Changed),
        of(1, Flush::Whole),
        of(4, Flush::Nothing),
        of(4, Flush::Changed),
        of(4, Flush::Whole),
    ]
};

impl Controller {
    /// As tables call it.
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
        format!("{dies}, {flush}")
    }

    /// Where it is from.
    pub fn source(self) -> String {
        let dies = match self.dies {
            1 => "one operation at a time, the least that a board can do",
            _ => "the board's four channels (include/jasmine.h, NUM_CHNLS_MAX), one bank on each",
        };
        format!("{dies}; {}", self.flush.source())
    }

    /// A device of `host` MiB for the host; percent of NAND are spare.
    pub fn shape(self, host: u32, spare: u32) -> Result<Shape, String> {
        /// Only for its options.
        #[derive(Parser)]
        struct Only {
            #[command(flatten)]
            shape: Shape,
        }
        // Bookkeeping and the reserve take some 60 MiB of this geometry.
        let mib = (host * 100).div_ceil(100 - spare.min(90)).max(host + 100);
        let (mib, spare, dies) = (mib.to_string(), spare.to_string(), self.dies.to_string());
        let words = [
            "x",
            "--mib",
            &mib,
            "--spare",
            &spare,
            "--channels",
            &dies,
            "--flush",
            self.flush.word(),
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
            controller.shape(80, 30).unwrap().make().unwrap();
            for other in &ALL[index + 1..] {
                assert_ne!(controller.name(), other.name());
                assert_ne!(controller.source(), other.source());
            }
        }
        assert!(ALL.contains(&USUAL));
    }
}
