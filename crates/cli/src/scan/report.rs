//! The facts about each database, and the JSON document.

use std::path::Path;

use onewrite::storage::{Holder, openers};
use onewrite::wal::faults::Fault;
use onewrite_common::mounts::{self, Mount, holding};
use serde::Serialize;

use super::find::Found;
use super::versions::{Linked, Search};
use crate::doctor::disk;
use crate::doctor::hazards::{self, Hazard, Place};
use crate::top::databases::Database;

/// Version of the JSON document.
const VERSION: u32 = 1;

/// The only page size of LS-MVBT.
const LSMVBT_PAGE_BYTES: u32 = 4096;

/// The document.
#[derive(Debug, Serialize)]
pub struct Report {
    version: u32,
    /// The databases, by path.
    pub databases: Vec<OfDatabase>,
    /// Directories that could not be read.
    pub unread_directories: u64,
    /// Facts that the reader should know.
    pub notes: Vec<String>,
}

/// A database.
#[derive(Debug, Serialize)]
pub struct OfDatabase {
    /// Its path, as its program sees it.
    pub path: String,
    /// Bytes of the file.
    pub size: u64,
    /// The journal mode.
    pub journal_mode: String,
    /// Bytes of a page.
    pub page_size: u32,
    /// Bytes of the log or the rollback journal.
    pub log_size: u64,
    /// The type of the file system.
    pub file_system: String,
    /// Its mount point.
    pub mount_point: String,
    /// The device.
    pub device: Option<String>,
    /// The programs that have it open.
    pub programs: Vec<OfProgram>,
    /// Settings that lose commits, each with its improvement.
    pub findings: Vec<Hazard>,
}

/// A program that has a database open.
#[derive(Debug, Serialize)]
pub struct OfProgram {
    /// The process.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Each SQLite in it.
    pub sqlite: Vec<Linked>,
}

impl Report {
    /// Looks at every database that was found.
    pub fn of(found: &mut Found) -> Self {
        let mut search = Search::default();
        let own = mounts::read(mounts::OF_THIS_THREAD).unwrap_or_default();
        let begin = std::time::SystemTime::now();
        let mut databases = Vec::new();
        for number in 0..found.databases.all.len() {
            let Some(database) = found.databases.all.get_mut(number) else {
                continue;
            };
            if !database.is_wanted {
                continue;
            }
            database.look(begin);
            let programs = programs(found, number, &mut search);
            if let Some(database) = found.databases.all.get(number) {
                databases.push(of_database(database, programs, &own));
            }
        }
        let lsmvbt = found.databases.lsmvbt.iter();
        databases.extend(lsmvbt.map(|(path, here)| of_lsmvbt(path, here, &mut search, &own)));
        databases.sort_by(|one, other| one.path.cmp(&other.path));
        Self {
            version: VERSION,
            databases,
            unread_directories: found.unread,
            notes: notes(!found.databases.lsmvbt.is_empty()),
        }
    }
}

fn notes(has_lsmvbt: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if !rustix::process::geteuid().is_root() {
        let what = "without root only your own programs are seen, and files that you may read";
        notes.push(what.to_owned());
    }
    if has_lsmvbt {
        let what = "lsmvbt: a database of LS-MVBT, which only the SQLite with that engine reads: see \
                    docs/lsmvbt-sqlite.md";
        notes.push(what.to_owned());
    }
    notes
}

fn programs(found: &Found, number: usize, search: &mut Search) -> Vec<OfProgram> {
    let mut users: Vec<u32> = found.processes.users_of(number).collect();
    users.sort_unstable();
    let name = |pid: &u32| {
        let process = found.processes.all.get(pid);
        process.map_or_else(String::new, |process| process.name.clone())
    };
    let of = |pid: &u32| OfProgram {
        pid: *pid,
        name: name(pid),
        sqlite: search.of(*pid),
    };
    users.iter().map(of).collect()
}

fn of_database(database: &Database, programs: Vec<OfProgram>, own: &[Mount]) -> OfDatabase {
    let here = database.here();
    let of_process = mounts_of(&programs);
    let mounts = of_process.as_deref().unwrap_or(own);
    let mount = holding(mounts, &database.path);
    let device = mount.and_then(device_name);
    let mut findings = mount.map_or_else(Vec::new, |mount| of_mount(mount, device.as_deref()));
    findings.extend(of_versions(&database.mode, &programs));
    OfDatabase {
        path: database.path.display().to_string(),
        size: std::fs::metadata(&here).map_or(0, |meta| meta.len()),
        journal_mode: database.mode.clone(),
        page_size: database.page_size,
        log_size: database.log_bytes,
        file_system: mount.map_or_else(String::new, |mount| mount.filesystem.clone()),
        mount_point: mount.map_or_else(String::new, |mount| mount.point.display().to_string()),
        device,
        programs,
        findings,
    }
}

/// A database of LS-MVBT. It has no log.
fn of_lsmvbt(path: &Path, here: &Path, search: &mut Search, own: &[Mount]) -> OfDatabase {
    let program = |it: Holder| OfProgram {
        pid: it.pid,
        sqlite: search.of(it.pid),
        name: it.program,
    };
    let programs: Vec<OfProgram> = openers(here).into_iter().map(program).collect();
    let of_process = mounts_of(&programs);
    let mount = holding(of_process.as_deref().unwrap_or(own), path);
    let device = mount.and_then(device_name);
    OfDatabase {
        path: path.display().to_string(),
        size: std::fs::metadata(here).map_or(0, |meta| meta.len()),
        journal_mode: "lsmvbt".to_owned(),
        page_size: LSMVBT_PAGE_BYTES,
        log_size: 0,
        file_system: mount.map_or_else(String::new, |mount| mount.filesystem.clone()),
        mount_point: mount.map_or_else(String::new, |mount| mount.point.display().to_string()),
        findings: mount.map_or_else(Vec::new, |mount| of_mount(mount, device.as_deref())),
        device,
        programs,
    }
}

/// The mounts of the first program, whose path it is.
fn mounts_of(programs: &[OfProgram]) -> Option<Vec<Mount>> {
    let pid = programs.first()?.pid;
    mounts::read(format!("/proc/{pid}/mountinfo")).ok()
}

/// The name of the block device of a mount.
fn device_name(mount: &Mount) -> Option<String> {
    let (major, minor) = mount.device;
    let link = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}"));
    let source = || std::fs::canonicalize(&mount.source).ok();
    let path = match major {
        // Btrfs: the number is no device's.
        0 => source().filter(|path| path.starts_with("/dev"))?,
        _ => link.ok()?,
    };
    path.file_name()?.to_str().map(str::to_owned)
}

fn of_mount(mount: &Mount, device: Option<&str>) -> Vec<Hazard> {
    hazards::of(&Place {
        file_system: &mount.filesystem,
        mount_point: &mount.point.display().to_string(),
        options: &mount.options,
        disk: device.map(|name| (name, disk::of(name))),
    })
}

/// Programs with a SQLite that can lose commits of a log.
fn of_versions(mode: &str, programs: &[OfProgram]) -> Vec<Hazard> {
    if !["wal", "direct"].contains(&mode) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for program in programs {
        for linked in &program.sqlite {
            let version = linked.version.as_deref().unwrap_or_default();
            if Fault::of(version).contains(&Fault::WalReset) {
                found.push(wal_reset(program, version, &linked.file));
            }
        }
    }
    found
}

fn wal_reset(program: &OfProgram, version: &str, file: &Path) -> Hazard {
    Hazard {
        key: "wal_reset",
        what: format!(
            "{} ({}) runs SQLite {version}, which has the WAL-reset bug: where two connections write, \
             commits can be lost if the log starts again during a checkpoint",
            program.name, program.pid
        ),
        fix: format!(
            "upgrade {} to SQLite 3.51.3 or later (or 3.50.7, 3.44.6)",
            file.display()
        ),
    }
}
