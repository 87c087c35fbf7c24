//! The layouts of a log: their names, and their numbers in a log's header. `log::layout` places
//! frames by them.

use std::fmt;

/// `onewrite_layout`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// SQLite's own.
    Stock,
    /// The frame header inside the page: one frame, one block (WALDIO's header embedding).
    Embedded,
    /// Padded to sectors of 512 bytes.
    Sector,
    /// Header and page padded to 4 KiB each.
    Page4k,
    /// The whole frame padded to 8 KiB.
    Page8k,
    /// Compressed pages, one after the other (S-WAL).
    Compressed,
    /// Compressed pages of a commit in whole blocks.
    Packed,
    /// Frame headers in separate blocks, so that a page lies in the log as it lies in the database
    /// (block remapping).
    Gathered,
}

impl Layout {
    /// The layout's number in a log's header.
    pub fn code(self) -> u32 {
        match self {
            Layout::Stock => 0,
            Layout::Embedded => 1,
            Layout::Sector => 2,
            Layout::Page4k => 3,
            Layout::Page8k => 4,
            Layout::Compressed => 5,
            Layout::Packed => 6,
            Layout::Gathered => 7,
        }
    }

    /// All of them.
    pub const ALL: [Layout; 8] = [
        Layout::Stock,
        Layout::Embedded,
        Layout::Sector,
        Layout::Page4k,
        Layout::Page8k,
        Layout::Compressed,
        Layout::Packed,
        Layout::Gathered,
    ];

    /// Whether a frame's position follows from its number.
    pub fn has_fixed_positions(self) -> bool {
        !matches!(self, Layout::Compressed | Layout::Packed)
    }

    /// The layout with this number.
    pub fn from_code(code: u32) -> Option<Layout> {
        Layout::ALL.into_iter().find(|layout| layout.code() == code)
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Layout::Stock => "stock",
            Layout::Embedded => "embedded",
            Layout::Sector => "sector",
            Layout::Page4k => "page4k",
            Layout::Page8k => "page8k",
            Layout::Compressed => "compressed",
            Layout::Packed => "packed",
            Layout::Gathered => "gathered",
        })
    }
}
