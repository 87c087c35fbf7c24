//! Where a replay's databases are: a scratch file system, or a directory of the user's.

use std::path::{Path, PathBuf};

use onewrite_iotrace::meter::{Meter, Watched};
use onewrite_iotrace::scratch::{FileSystem, Options, Scratch};
use onewrite_iotrace::tracefs::Tracefs;
use tempfile::TempDir;

use crate::{directory, interrupt};

/// What a user of a directory should know.
const WITHOUT_DEVICE: &str = "rates and latencies, but no device bytes, writes and flushes: those take a \
                              device of its own, --scratch (root)";

/// Where the databases are.
pub enum Place {
    /// A file system of our own. Tracing ends before it.
    Scratch {
        tracefs: Option<Tracefs>,
        scratch: Box<Scratch>,
        file_system: FileSystem,
    },
    /// A directory, removed again.
    Dir(TempDir),
}

impl Place {
    /// Makes the file system of this type, or a directory in `dir`; without either whichever can be had.
    pub fn choose(
        dir: Option<&Path>,
        scratch: Option<FileSystem>,
        bytes: u64,
        notes: &mut Vec<String>,
    ) -> Result<Self, String> {
        let wanted = match (dir, scratch) {
            (Some(_), _) => None,
            (None, Some(file_system)) => Some(file_system),
            (None, None) => {
                let can =
                    rustix::process::geteuid().is_root() && FileSystem::Ext4.missing().is_none();
                can.then_some(FileSystem::Ext4)
            }
        };
        match wanted {
            Some(file_system) => Self::scratch(file_system, bytes, notes),
            None => {
                let parent = dir.map_or_else(|| PathBuf::from("."), Path::to_owned);
                directory::check(&parent, "give another with --dir")?;
                notes.push(WITHOUT_DEVICE.to_owned());
                let made = tempfile::Builder::new()
                    .prefix("onewrite-replay-")
                    .tempdir_in(&parent);
                made.map(Self::Dir).map_err(|error| {
                    format!("cannot make a directory in {}: {error}", parent.display())
                })
            }
        }
    }

    fn scratch(
        file_system: FileSystem,
        bytes: u64,
        notes: &mut Vec<String>,
    ) -> Result<Self, String> {
        let parent = std::env::temp_dir();
        let options = Options {
            file_system,
            bytes,
            parent: &parent,
            stop: interrupt::requested(),
        };
        let scratch = Scratch::create(&options).map_err(|error| error.to_string())?;
        notes.push(format!(
            "scratch {} image of {} MiB on a loop device",
            file_system.name(),
            bytes >> 20
        ));
        let tracefs = Tracefs::open(&scratch.host_dir().join("tracing"))
            .inspect_err(|error| notes.push(format!("no tracing: {error}")))
            .ok();
        Ok(Self::Scratch {
            tracefs,
            scratch: Box::new(scratch),
            file_system,
        })
    }

    /// The directory to work in.
    pub fn root(&self) -> &Path {
        match self {
            Self::Scratch { scratch, .. } => scratch.root(),
            Self::Dir(dir) => dir.path(),
        }
    }

    /// What the report calls it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Scratch { file_system, .. } => file_system.name(),
            Self::Dir(_) => "directory",
        }
    }

    /// Something to watch the device with, if it is ours alone.
    pub fn meter(&self, database: &Path) -> Result<Option<Meter>, String> {
        let Self::Scratch {
            tracefs,
            scratch,
            file_system,
        } = self
        else {
            return Ok(None);
        };
        let watched = Watched {
            device: scratch.device(),
            file_system: *file_system,
            root: scratch.root(),
            database,
            tracefs: tracefs.as_ref(),
        };
        Meter::new(&watched)
            .map(Some)
            .map_err(|error| error.to_string())
    }

    /// Takes down what was made.
    pub fn remove(self) -> Result<(), String> {
        match self {
            Self::Scratch {
                tracefs, scratch, ..
            } => {
                drop(tracefs);
                scratch.remove().map_err(|error| error.to_string())
            }
            Self::Dir(dir) => {
                let path = dir.path().to_owned();
                dir.close()
                    .map_err(|error| format!("cannot remove {}: {error}", path.display()))
            }
        }
    }
}
