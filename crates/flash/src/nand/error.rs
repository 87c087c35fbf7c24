//! What NAND refuses or fails to do.

use std::fmt;

use super::geometry::{BlockNo, Ppn};

/// Why an operation was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NandError {
    /// The power is off.
    PowerOff,
    /// What is in the page is not what was programmed: its programming, or the erasing of its block, was
    /// interrupted or failed.
    Uncorrectable(Ppn),
    /// The chip says that programming failed. What else is in the block can still be read; the block is
    /// to be given up.
    ProgramFailed(Ppn),
    /// The chip says that erasing failed: the block is to be given up.
    EraseFailed(BlockNo),
    /// The controller broke a rule of NAND. Never right, whatever the controller does about it.
    Rule(Rule),
}

/// A rule that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A page that was programmed, or begun to be, is programmed without an erase in between.
    ProgramWithoutErase(Ppn),
    /// The pages of a block are programmed in order; this one is not the next.
    OutOfOrder {
        /// The page.
        page: Ppn,
        /// What would have been the next.
        next: Ppn,
    },
    /// A page is programmed whole, with its out-of-band area: not so many bytes.
    PartialProgram {
        /// The page.
        page: Ppn,
        /// Bytes that were given for the data area.
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
