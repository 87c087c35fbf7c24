//! Errors around a device, with enough context to act on.

use std::fmt;
use std::path::{Path, PathBuf};

/// Why a device could not be set up, or a history could not be saved or read.
#[derive(Debug)]
pub enum Error {
    /// The operating system returned an error.
    Io {
        /// The failed operation, for example `mount`.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The loop device or a mount was not available.
    Host(onewrite_iotrace::Error),
    /// A file is not a latency model.
    Model {
        /// The file.
        path: PathBuf,
        /// The reason.
        message: String,
    },
    /// A file is not a saved device.
    Device {
        /// The file.
        path: PathBuf,
        /// The reason.
        message: String,
    },
    /// A file is not a saved history.
    Format {
        /// The file.
        path: PathBuf,
        /// The expected content, and at which byte.
        message: String,
    },
}

impl Error {
    /// A closure for `map_err` that names the operation and the file.
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
