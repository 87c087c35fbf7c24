//! Why a command was not done.

use std::fmt;

use super::{Lpn, Tid};
use crate::nand::{NandError, Ppn};

/// Why a command was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FtlError {
    /// The NAND refused or failed, in a way that is not repaired here. After
    /// [`NandError::PowerOff`] the device must be opened again.
    Nand(NandError),
    /// There is no such logical page.
    Outside {
        /// The page.
        page: Lpn,
        /// How many there are.
        pages: u32,
    },
    /// The data does not have a page's length.
    Length {
        /// Bytes given.
        bytes: usize,
        /// Bytes of a page.
        expected: usize,
    },
    /// Another transaction has written the page, and is active.
    Conflict {
        /// The page.
        page: Lpn,
        /// The transaction that has it.
        holder: Tid,
    },
    /// The X-L2P table is full of pages of active transactions. Nothing is lost. The transaction is
    /// as it was before the write, and can be committed or aborted.
    TableFull {
        /// Total entries.
        capacity: u32,
    },
    /// Transaction 0 is not a transaction.
    NoTransaction,
    /// No block is available: too many are worn out to leave room for the stored data.
    WornOut {
        /// Blocks that are bad.
        bad_blocks: u32,
    },
    /// A page's content differs from the maps.
    Corrupt {
        /// The page.
        page: Ppn,
        /// The expected content.
        expected: String,
    },
    /// Bit errors took a page's content. Reads fail until the page is written or trimmed.
    Lost {
        /// The page.
        page: Lpn,
    },
    /// Bit errors took bookkeeping that recovery needs. The device cannot be opened any more.
    LostBookkeeping {
        /// The page.
        page: Ppn,
        /// As the root names it.
        content: String,
    },
    /// Such a device is not possible.
    Config(String),
}

impl From<NandError> for FtlError {
    fn from(error: NandError) -> Self {
        Self::Nand(error)
    }
}

impl FtlError {
    /// Whether a page has more bit errors than can be corrected.
    pub fn is_lost(&self) -> bool {
        matches!(
            self,
            Self::Lost { .. }
                | Self::LostBookkeeping { .. }
                | Self::Nand(NandError::Uncorrectable(_))
        )
    }

    /// Whether the cause is that the power went.
    pub fn is_power_off(&self) -> bool {
        *self == Self::Nand(NandError::PowerOff)
    }
}

impl fmt::Display for FtlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nand(error) => error.fmt(f),
            Self::Outside { page, pages } => {
                write!(f, "there is no logical page {} out of {pages}", page.0)
            }
            Self::Length { bytes, expected } => {
                write!(f, "{bytes} bytes are not a page of {expected}")
            }
            Self::Conflict { page, holder } => write!(
                f,
                "logical page {} was written by transaction {}, which is active",
                page.0, holder.0
            ),
            Self::TableFull { capacity } => write!(
                f,
                "active transactions fill all {capacity} entries of the X-L2P table: commit or abort one"
            ),
            Self::NoTransaction => write!(f, "0 is no transaction"),
            Self::WornOut { bad_blocks } => write!(
                f,
                "the device is worn out: {bad_blocks} blocks are bad, and the rest is full"
            ),
            Self::Corrupt { page, expected } => {
                write!(f, "physical page {} does not hold {expected}", page.0)
            }
            Self::Lost { page } => write!(
                f,
                "logical page {} was lost to bit errors: write or trim it",
                page.0
            ),
            Self::LostBookkeeping { page, content } => write!(
                f,
                "physical page {} cannot be read. It is {content}, without which the device cannot be opened: \
                 make a new one and restore its content from a backup",
                page.0
            ),
            Self::Config(message) => write!(f, "there can be no such device: {message}"),
        }
    }
}

impl std::error::Error for FtlError {}
