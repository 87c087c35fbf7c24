//! The journal modes to search.

use std::ffi::CStr;

/// A journal mode, and the VFS that it uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// SQLite's WAL, without the engine.
    Stock,
    /// SQLite's WAL through the engine's VFS.
    Wal,
    Direct,
    Waldio,
    Onewrite,
    Swal,
}

impl Mode {
    pub fn is_ours(self) -> bool {
        self != Mode::Stock
    }

    /// Whether SQLite writes the log without the engine.
    pub fn is_sqlites(self) -> bool {
        matches!(self, Mode::Stock | Mode::Wal)
    }

    /// The argument of `PRAGMA journal_mode`.
    pub fn pragma(self) -> &'static str {
        match self {
            Mode::Stock | Mode::Wal => "wal",
            Mode::Direct => "direct",
            Mode::Waldio => "waldio",
            Mode::Onewrite => "onewrite",
            Mode::Swal => "swal",
        }
    }

    /// The simulated kernel has no threads, so none is asked for.
    pub fn uri(self) -> &'static CStr {
        match self {
            Mode::Stock => c"file:/db/db?vfs=unix",
            _ => c"file:/db/db?vfs=onewrite&onewrite_background_checkpoint=off",
        }
    }
}
