//! A database in a directory of its own.

use std::path::PathBuf;

use super::companion;
use super::writer::{FOUR_COMMITS, Then, Writer};

pub struct Case {
    pub directory: tempfile::TempDir,
}

impl Case {
    pub fn new() -> Case {
        Case {
            directory: tempfile::tempdir().expect("a temporary directory"),
        }
    }

    /// A writer was killed after four commits.
    pub fn killed(mode: &str, layout: &str) -> Case {
        let case = Case::new();
        Writer::start(&case.database(), mode, layout, FOUR_COMMITS, Then::Wait).kill();
        case
    }

    pub fn database(&self) -> PathBuf {
        self.directory.path().join("test.db")
    }

    pub fn file(&self, suffix: &str) -> PathBuf {
        companion(&self.database(), suffix)
    }
}
