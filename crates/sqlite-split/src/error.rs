//! The errors of cutting an amalgamation.

use std::fmt;

/// An amalgamation could not be cut: the plan was not made for this version of SQLite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// A line that must occur once is missing or repeated.
    Lines {
        /// The line that was searched for.
        what: String,
        /// The numbers of the lines found, from 1.
        found: Vec<usize>,
    },
    /// A function is not declared, or declared in more than one way.
    Declarations {
        /// The function.
        name: String,
        /// How many different declarations there are.
        found: usize,
    },
    /// A function is not defined once in the files where the plan expects it.
    Definitions {
        /// The function.
        name: String,
        /// The files.
        files: String,
        /// The number of definitions found there.
        found: usize,
    },
    /// `btree.h` declares a function that the plan does not know.
    Unplanned(String),
    /// A declaration could not be understood.
    Declaration(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lines { what, found } if found.is_empty() => {
                write!(f, "not in the amalgamation: {what}")
            }
            Self::Lines { what, found } => write!(
                f,
                "more than once in the amalgamation, at lines {found:?}: {what}"
            ),
            Self::Declarations { name, found } => {
                write!(f, "{name} has {found} different declarations, not one")
            }
            Self::Definitions { name, files, found } => {
                write!(f, "{name} is defined {found} times in {files}, not once")
            }
            Self::Unplanned(name) => {
                write!(f, "btree.h declares {name}, which the plan does not know")
            }
            Self::Declaration(text) => {
                write!(f, "this declaration could not be understood: {text}")
            }
        }
    }
}

impl std::error::Error for Error {}
