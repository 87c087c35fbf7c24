//! A failed cut, kept so that a user can examine and repeat it.
//!
//! ```text
//! history   the medium before, and all writes (crates/flash, saved.rs)
//! case.json where the power went, the drawn values, acknowledged commits, the failure
//! image     the medium after the cut, as a raw image: mount -o loop
//! ```

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use onewrite_flash::cut::Tear;
use onewrite_flash::history::History;
use onewrite_flash::image::{BLOCK, Image};
use onewrite_flash::saved;
use serde::{Deserialize, Serialize};

use super::protocol::{Broken, Check, FileSystemArg, Found, Note};
use super::workload::Workload;

/// How writes may be torn and reordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum TearArg {
    /// Any subset in any order, torn at 512-byte sectors
    Sectors,
    /// Any subset in any order, never torn below 4 KiB
    #[value(name = "4k")]
    Blocks,
    /// In order and whole
    InOrder,
}

impl From<TearArg> for Tear {
    fn from(arg: TearArg) -> Self {
        match arg {
            TearArg::Sectors => Self::Sectors,
            TearArg::Blocks => Self::Blocks,
            TearArg::InOrder => Self::InOrder,
        }
    }
}

impl From<Tear> for TearArg {
    fn from(tear: Tear) -> Self {
        match tear {
            Tear::Sectors => Self::Sectors,
            Tear::Blocks => Self::Blocks,
            Tear::InOrder => Self::InOrder,
        }
    }
}

/// The position of the cut, and the seed of what survived.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CutAt {
    pub position: usize,
    pub seed: u64,
    pub tear: TearArg,
}

/// See the module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Case {
    pub version: u32,
    pub failure: String,
    pub file_system: FileSystemArg,
    pub mode: String,
    pub workload: Workload,
    pub fua: bool,
    pub broken: Option<Broken>,
    pub run_seed: u64,
    pub round: u64,
    pub cut: usize,
    pub at: CutAt,
    pub check: Check,
    pub never_torn: Vec<Range<u64>>,
    pub before: Option<Found>,
    pub notes: Vec<Note>,
}

impl Case {
    /// Writes the case to a new directory.
    pub fn save(
        &self,
        directory: &Path,
        base: &Image,
        history: &History,
        image: &Image,
    ) -> Result<(), String> {
        let text = |error: std::io::Error| format!("{}: {error}", directory.display());
        fs::create_dir_all(directory).map_err(text)?;
        saved::save(&directory.join("history"), base, history)
            .map_err(|error| error.to_string())?;
        let json = serde_json::to_vec_pretty(self).map_err(|error| error.to_string())?;
        fs::write(directory.join("case.json"), json).map_err(text)?;
        let file = File::create(directory.join("image")).map_err(text)?;
        file.set_len(image.bytes()).map_err(text)?;
        for (number, block) in image.blocks() {
            file.write_all_at(block, number * BLOCK as u64)
                .map_err(text)?;
        }
        Ok(())
    }

    /// Reads a case.
    pub fn load(directory: &Path) -> Result<Self, String> {
        let path = directory.join("case.json");
        let text = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Reads the history of a case.
    pub fn history(&self, directory: &Path) -> Result<(Image, History), String> {
        saved::load(&directory.join("history")).map_err(|error| error.to_string())
    }
}
