//! Values that several commands accept on their command lines.

use std::str::FromStr;

use clap::ValueEnum;
use onewrite_iotrace::scratch::FileSystem;
use onewrite_workload::mode::{Mode, Synchronous};

/// Journal modes, separated by commas.
#[derive(Clone, Debug)]
pub struct Modes(pub Vec<Mode>);

impl FromStr for Modes {
    type Err = onewrite_workload::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Mode::parse_list(text).map(Self)
    }
}

/// The type of a scratch file system.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[expect(missing_docs, reason = "clap would repeat each name as its help")]
pub enum ScratchArg {
    Ext4,
    Xfs,
    Btrfs,
}

impl From<ScratchArg> for FileSystem {
    fn from(arg: ScratchArg) -> Self {
        match arg {
            ScratchArg::Ext4 => Self::Ext4,
            ScratchArg::Xfs => Self::Xfs,
            ScratchArg::Btrfs => Self::Btrfs,
        }
    }
}

/// A level of `PRAGMA synchronous`.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[expect(missing_docs, reason = "clap would repeat each name as its help")]
pub enum SynchronousArg {
    Off,
    Normal,
    Full,
    Extra,
}

impl From<SynchronousArg> for Synchronous {
    fn from(arg: SynchronousArg) -> Self {
        match arg {
            SynchronousArg::Off => Self::Off,
            SynchronousArg::Normal => Self::Normal,
            SynchronousArg::Full => Self::Full,
            SynchronousArg::Extra => Self::Extra,
        }
    }
}
