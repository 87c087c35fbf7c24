//! The errors of watching a device, with enough context to act on.

use std::fmt;
use std::path::{Path, PathBuf};

/// Why a device could not be made or watched.
#[derive(Debug)]
pub enum Error {
    /// The operating system returned an error.
    Io {
        /// The failed operation, for example `read`.
        doing: String,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A required program is not installed.
    Missing {
        /// The program.
        program: &'static str,
        /// The package with the program, by the name most distributions use.
        package: &'static str,
    },
    /// A program failed.
    Command {
        /// The command line.
        command: String,
        /// Its standard error, or how it ended.
        message: String,
    },
    /// A file of the kernel's, or a structure on disk, does not have the expected form.
    Format {
        /// The file or device.
        path: PathBuf,
        /// The expected and the actual content.
        message: String,
    },
    /// It needs a right that this process lacks, or another kernel.
    Unavailable(String),
    /// The user asked to stop.
    Interrupted,
}

impl Error {
    /// A closure for `map_err` that names the operation and the file.
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
