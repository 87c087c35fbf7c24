//! What can go wrong around a device, with enough context to act on it.

use std::fmt;
use std::path::{Path, PathBuf};

/// Why a device could not be set up, or a history not be saved or read.
#[derive(Debug)]
pub enum Error {
    /// The operating system returned an error.
    Io {
        /// What was being done, for example `mount`.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The loop device or a mount could not be had.
    Host(onewrite_iotrace::Error),
    /// A file is no latency model.
    Model {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// A file is no saved device.
    Device {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// A saved history is not one.
    Format {
        /// The file.
        path: PathBuf,
        /// What was expected at which byte.
        message: String,
    },
}

impl Error {
    /// A closure for `map_err` that says what was done to which file.
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            doing,
            path,
            source,
        }
    }
}

impl From<onewrite_iotrace::Error> for Error {
    fn from(error: onewrite_iotrace::Error) -> Self {
        Self::Host(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io {
                doing,
                path,
                source,
            } => write!(f, "{doing} {}: {source}", path.display()),
            Self::Host(error) => error.fmt(f),
            Self::Model { path, message } => {
                write!(f, "{} is no model of a device: {message}", path.display())
            }
            Self::Device { path, message } => {
                write!(f, "{} is no saved flash device: {message}", path.display())
            }
            Self::Format { path, message } => {
                write!(f, "{} is no saved history: {message}", path.display())
            }
        }
    }
}

impl std::error::Error for Error {}
