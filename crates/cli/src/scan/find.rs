//! Finds databases: those below a directory, and those that programs have open.

use std::fs;
use std::path::{Path, PathBuf};

use onewrite_common::files::why_unread;

use crate::interrupt;
use crate::top::databases::FileId;
use crate::top::processes::{Databases, Processes, is_database};

/// Directories of the kernel, which hold no files of users.
const KERNEL: [&str; 2] = ["/proc", "/sys"];

/// The argument of the command.
const EXPECTED: &str = "a directory to look through, or a database";

/// The result of a search.
#[derive(Default)]
pub struct Found {
    /// The databases, with all of the programs that were looked at.
    pub databases: Databases,
    /// The programs.
    pub processes: Processes,
    /// Directories that could not be read.
    pub unread: u64,
}

/// Finds the databases below `dir`; without one, those that programs have open.
pub fn all(dir: Option<&Path>) -> Result<Found, String> {
    let mut found = Found::default();
    found.processes.look_at_all(&mut found.databases);
    if let Some(dir) = dir {
        let root = dir
            .canonicalize()
            .map_err(|error| format!("{}: {}", dir.display(), why_unread(&error, EXPECTED)))?;
        if !(root.is_dir() || root.is_file() && is_database(&root)) {
            let what = "is neither a database nor a directory: give the directory to look through";
            return Err(format!("{} {what}", dir.display()));
        }
        found.walk(root.clone())?;
        found.keep_below(&root);
    }
    Ok(found)
}

impl Found {
    fn walk(&mut self, root: PathBuf) -> Result<(), String> {
        if root.is_file() {
            self.databases.add(std::process::id(), &root);
            return Ok(());
        }
        let mut dirs = vec![root];
        while let Some(dir) = dirs.pop() {
            if interrupt::is_requested() {
                return Err("stopped before every file was looked at".to_owned());
            }
            let Ok(entries) = fs::read_dir(&dir) else {
                self.unread += 1;
                continue;
            };
            for entry in entries.flatten() {
                // A link is not followed: its target is found where it lies.
                let (path, kind) = (entry.path(), entry.file_type());
                match kind {
                    Ok(kind)
                        if kind.is_dir() && !KERNEL.iter().any(|dir| path == Path::new(dir)) =>
                    {
                        dirs.push(path);
                    }
                    Ok(kind) if kind.is_file() && is_database(&path) => {
                        self.databases.add(std::process::id(), &path);
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Leaves out those elsewhere, which programs have open.
    fn keep_below(&mut self, root: &Path) {
        let lsmvbt = &mut self.databases.lsmvbt;
        lsmvbt.retain(|path, here| path.starts_with(root) && FileId::of(path) == FileId::of(here));
        for database in &mut self.databases.all {
            let here = FileId::of(&database.path) == FileId::of(&database.here());
            database.is_wanted = here && database.path.starts_with(root);
        }
    }
}
