//! The errors of NAND: refused and failed operations.

use std::fmt;

use super::geometry::{BlockNo, Ppn};

/// Why an operation was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NandError {
    /// The power is off.
    PowerOff,
    /// The page's content is not what was programmed. Programming it, or erasing its block, was
    /// interrupted or failed.
    Uncorrectable(Ppn),
    /// The chip reports that programming failed. The rest of the block is still readable; the block
    /// must be given up.
    ProgramFailed(Ppn),
    /// The chip reports that erasing failed: the block must be given up.
    EraseFailed(BlockNo),
    /// The controller broke a rule of NAND. That is always a bug of the controller.
    Rule(Rule),
}

/// A broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A page that was programmed, or begun, is programmed without an erase in between.
    ProgramWithoutErase(Ppn),
    /// The pages of a block are programmed in order; this one is not the next.
    OutOfOrder {
        /// The page.
        page: Ppn,
        /// The next page in order.
        next: Ppn,
    },
    /// A page is programmed whole, with its out-of-band area. This length is wrong.
    PartialProgram {
        /// The page.
        page: Ppn,
        /// Bytes given for the data area.
        bytes: usize,
    },
    /// A bad block is programmed or erased.
    BadBlock(BlockNo),
    /// There is no such page or block.
    Outside(u32),
}

impl fmt::Display for NandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PowerOff => write!(f, "the power is off"),
            Self::Uncorrectable(page) => write!(f, "page {} cannot be read", page.0),
            Self::ProgramFailed(page) => write!(f, "programming page {} failed", page.0),
            Self::EraseFailed(block) => write!(f, "erasing block {} failed", block.0),
            Self::Rule(rule) => write!(f, "a rule of NAND was broken: {rule}"),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ProgramWithoutErase(page) => {
                write!(f, "page {} programmed twice without an erase", page.0)
            }
            Self::OutOfOrder { page, next } => {
                write!(f, "page {} programmed before page {}", page.0, next.0)
            }
            Self::PartialProgram { page, bytes } => {
                write!(f, "page {} programmed with {bytes} bytes", page.0)
            }
            Self::BadBlock(block) => write!(f, "bad block {} used", block.0),
            Self::Outside(number) => write!(f, "there is no page or block {number}"),
        }
    }
}

impl std::error::Error for NandError {}
