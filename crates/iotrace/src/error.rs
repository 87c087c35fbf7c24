//! What can go wrong when a device is watched, with enough context to act on it.

use std::fmt;
use std::path::{Path, PathBuf};

/// Why a device could not be made or watched.
#[derive(Debug)]
pub enum Error {
    /// The operating system returned an error.
    Io {
        /// What was being done, for example `read`.
        doing: String,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A program that is needed is not installed.
    Missing {
        /// The program.
        program: &'static str,
        /// The package that brings it, by the name most distributions use.
        package: &'static str,
    },
    /// A program that was run failed.
    Command {
        /// The command line.
        command: String,
        /// What it wrote to its standard error, or how it ended.
        message: String,
    },
    /// A file of the kernel's does not look as expected, or a structure on disk does not.
    Format {
        /// The file or device.
        path: PathBuf,
        /// What was expected and what is there.
        message: String,
    },
    /// It takes a right that this process does not have, or a kernel that this one is not.
    Unavailable(String),
    /// The user asked to stop.
    Interrupted,
}

impl Error {
    /// A closure for `map_err` that says what was done to which file.
    pub(crate) fn io<E: Into<std::io::Error>>(doing: &str, path: &Path) -> impl FnOnce(E) -> Self {
        let (doing, path) = (doing.to_owned(), path.to_owned());
        move |source| Self::Io {
            doing,
            path,
            source: source.into(),
        }
    }

    pub(crate) fn format(path: &Path, message: impl Into<String>) -> Self {
        Self::Format {
            path: path.to_owned(),
            message: message.into(),
        }
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
            Self::Missing { program, package } => {
                write!(
                    f,
                    "{program} is not installed; it is in the package {package}"
                )
            }
            Self::Command { command, message } => write!(f, "{command}: {message}"),
            Self::Format { path, message } => write!(f, "{}: {message}", path.display()),
            Self::Unavailable(text) => f.write_str(text),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
