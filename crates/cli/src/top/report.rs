//! Figures between two moments, and the JSON document.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::databases::{Database, Source};
use super::engine::{Engine, Snapshot};
use super::estimate::{Estimate, Facts};
use super::ledger::{self, All, Pair, Sums};
use super::life;
use super::processes::Process;
use crate::doctor::disk;
use crate::inspect::users::Reader;

/// Version of the JSON document.
const VERSION: u32 = 1;

/// Seconds of a day.
pub const DAY_S: f64 = 86_400.0;

/// The document.
#[derive(Debug, Serialize)]
pub struct Report {
    version: u32,
    kernel: String,
    /// The length of the watch.
    pub seconds: f64,
    /// Whether the kernel's trace was read; without it there are commits alone.
    pub traced: bool,
    /// The databases that were written to, the busiest first.
    pub databases: Vec<OfDatabase>,
    /// The devices that hold databases.
    pub devices: Vec<OfDevice>,
    /// How often a device may be written in full, for its years.
    pub full_writes: f64,
    /// Events that the kernel had no room for.
    pub lost_events: u64,
    /// Facts that the reader should know.
    pub notes: Vec<String>,
}

/// A device.
#[derive(Debug, Serialize)]
pub struct OfDevice {
    /// Its name.
    pub name: String,
    /// Bytes that the device itself counted.
    counted_bytes: u64,
    /// Bytes that the trace saw.
    traced_bytes: u64,
    /// Bytes of databases.
    database_bytes: u64,
    /// Bytes of the whole disk.
    pub size: Option<u64>,
    /// Bytes of databases a day, at this rate.
    pub bytes_per_day: f64,
    /// Years until databases alone have written what the disk is rated for.
    pub life_years: Option<f64>,
}

/// A database.
#[derive(Clone, Debug, Serialize)]
pub struct OfDatabase {
    /// Its path, as its program sees it.
    pub path: String,
    /// The type of its file system.
    pub file_system: String,
    /// The device.
    pub device: Option<String>,
    /// The journal mode.
    pub journal_mode: String,
    page_size: u32,
    /// Bytes of the log or the rollback journal on disk.
    pub log_size: u64,
    /// Where the number of commits comes from.
    pub commits_from: Source,
    /// The figures of all programs together.
    #[serde(flatten)]
    pub figures: Figures,
    /// The cost of a commit in other modes; null where it is not known.
    pub estimate: Option<Estimate>,
    /// Seconds in which a reader of an old state held the checkpoint up.
    pub checkpoint_held_s: u64,
    /// The processes of these readers when that was last seen, the oldest first.
    pub checkpoint_held_by: Vec<OfReader>,
    /// The programs, the busiest first.
    pub programs: Vec<OfProgram>,
}

/// A process that holds a checkpoint up.
#[derive(Clone, Debug, Serialize)]
pub struct OfReader {
    /// The process.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Frames in the log that it does not see.
    pub frames_behind: u32,
}

/// A program's part.
#[derive(Clone, Debug, Serialize)]
pub struct OfProgram {
    /// The process; null for several that have ended.
    pub pid: Option<u32>,
    /// How many processes: several that have ended are one line, if they have the same name.
    pub processes: u32,
    /// Its name.
    pub name: String,
    /// Its command line.
    pub command: String,
    /// Its figures. Its commits are its share by write transactions, where several write.
    #[serde(flatten)]
    pub figures: Figures,
}

/// Figures of a time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// Commits.
    pub commits: u64,
    /// Commits a second.
    pub commits_per_s: f64,
    /// Bytes to the device.
    pub bytes: Option<u64>,
    /// The same a second.
    pub bytes_per_s: Option<f64>,
    /// The same for each commit.
    pub bytes_per_commit: Option<f64>,
    /// The same a day, at this rate.
    pub bytes_per_day: Option<f64>,
    /// Of these, bytes of the log or the rollback journal.
    pub log_bytes: Option<u64>,
    /// Bytes of the database file.
    pub database_bytes: Option<u64>,
    /// Bytes of the file system's journal.
    pub fs_journal_bytes: Option<u64>,
    /// Flushes of the device's cache.
    pub flushes: Option<f64>,
    /// The same for each commit.
    pub flushes_per_commit: Option<f64>,
    /// Waits for a flush.
    pub waits: Option<u64>,
    /// How long a commit waited for its flushes; null if none did.
    pub flush_us: Option<Times>,
}

/// Times in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Times {
    count: u64,
    /// Half of them took no longer.
    pub p50: u64,
    /// 99 % of them took no longer.
    pub p99: u64,
    max: u64,
}

impl Times {
    fn of(sums: &Sums) -> Option<Self> {
        let times = &sums.waits_us;
        (!times.is_empty()).then(|| Self {
            count: times.len(),
            p50: times.value_at_quantile(0.5),
            p99: times.value_at_quantile(0.99),
            max: times.max(),
        })
    }
}

impl Figures {
    fn of(commits: u64, sums: Option<&Sums>, time: Duration) -> Self {
        let seconds = time.as_secs_f64().max(f64::EPSILON);
        let per_commit = |figure: f64| (commits > 0).then(|| figure / commits as f64);
        let bytes = sums.map(Sums::bytes);
        let bytes_per_s = bytes.map(|bytes| bytes as f64 / seconds);
        let flushes = sums.map(|sums| sums.flushes);
        Self {
            commits,
            commits_per_s: commits as f64 / seconds,
            bytes,
            bytes_per_s,
            bytes_per_commit: bytes.and_then(|bytes| per_commit(bytes as f64)),
            bytes_per_day: bytes_per_s.map(|rate| rate * DAY_S),
            log_bytes: sums.map(|sums| sums.log_bytes),
            database_bytes: sums.map(|sums| sums.database_bytes),
            fs_journal_bytes: sums.map(|sums| sums.fs_journal_bytes),
            flushes,
            flushes_per_commit: flushes.and_then(per_commit),
            waits: sums.map(|sums| sums.log_waits + sums.database_waits),
            flush_us: sums.and_then(Times::of),
        }
    }

    /// The share of the file system's journal.
    pub fn journal_share(&self) -> Option<f64> {
        let (journal, bytes) = (self.fs_journal_bytes?, self.bytes?);
        (bytes > 0).then(|| journal as f64 / bytes as f64)
    }

    fn is_idle(&self) -> bool {
        self.commits == 0 && self.bytes.unwrap_or(0) == 0 && self.waits.unwrap_or(0) == 0
    }
}

impl Report {
    /// Commits a second of all databases. (The sum of no numbers is -0, which shows.)
    pub fn commits_per_s(&self) -> f64 {
        let of_each = self.databases.iter().map(|of| of.figures.commits_per_s);
        of_each.fold(0.0, |sum, rate| sum + rate)
    }

    /// Bytes a day of all databases, as far as they are known.
    pub fn bytes_per_day(&self) -> f64 {
        let of_each = self.databases.iter();
        let known = of_each.filter_map(|of| of.figures.bytes_per_day);
        known.fold(0.0, |sum, bytes| sum + bytes)
    }

    /// Everything between the beginning and now.
    pub fn of(engine: &Engine) -> Self {
        let now = engine.snapshot();
        let begin = Snapshot {
            at: engine.begin,
            sums: All::new(),
            commits: Vec::new(),
            held: Vec::new(),
        };
        Self::between(engine, &begin, &now)
    }

    /// Everything between two moments.
    pub fn between(engine: &Engine, from: &Snapshot, to: &Snapshot) -> Self {
        let time = to.at.duration_since(from.at);
        let all = engine.databases.all.iter().enumerate();
        let mut databases: Vec<OfDatabase> = all
            .map(|(number, database)| of_database(engine, number, database, (from, to), time))
            .filter(|database| !database.figures.is_idle())
            .collect();
        databases.sort_by_key(|database| {
            let figures = &database.figures;
            std::cmp::Reverse((figures.bytes.unwrap_or(0), figures.commits))
        });
        Self {
            version: VERSION,
            kernel: crate::place::kernel_release(),
            seconds: time.as_secs_f64(),
            traced: engine.is_traced(),
            devices: devices(engine, &databases),
            full_writes: engine.full_writes,
            databases,
            lost_events: engine.lost(),
            notes: engine.notes.clone(),
        }
    }
}

fn devices(engine: &Engine, databases: &[OfDatabase]) -> Vec<OfDevice> {
    let of = |written: super::engine::Written| {
        let own = databases.iter();
        let own = own.filter(|database| database.device.as_ref() == Some(&written.name));
        let a_day = own.clone().filter_map(|it| it.figures.bytes_per_day);
        let bytes_per_day = a_day.fold(0.0, |sum, bytes| sum + bytes);
        let size = disk::size_of(&written.name);
        OfDevice {
            database_bytes: own.filter_map(|database| database.figures.bytes).sum(),
            name: written.name,
            counted_bytes: written.counted,
            traced_bytes: written.traced,
            life_years: size.and_then(|size| life::years(size, engine.full_writes, bytes_per_day)),
            size,
            bytes_per_day,
        }
    };
    engine.devices().into_iter().map(of).collect()
}

fn of_database(
    engine: &Engine,
    number: usize,
    database: &Database,
    (from, to): (&Snapshot, &Snapshot),
    time: Duration,
) -> OfDatabase {
    let of = |snapshot: &Snapshot| snapshot.commits.get(number).copied();
    let (commits, source) = of(to).unwrap_or((0, Source::Flushes));
    let commits = commits.saturating_sub(of(from).map_or(0, |(commits, _)| commits));
    let parts = parts(number, from, to);
    let mut all = Sums::default();
    for (_, sums) in &parts {
        all.add(sums);
    }
    let figures = Figures::of(commits, engine.is_traced().then_some(&all), time);
    let held = |snapshot: &Snapshot| snapshot.held.get(number).copied().unwrap_or(0);
    let held = held(to).saturating_sub(held(from));
    OfDatabase {
        path: database.path.display().to_string(),
        file_system: database.file_system.clone(),
        device: database.device_name.clone(),
        journal_mode: database.mode.clone(),
        page_size: database.page_size,
        log_size: database.log_bytes,
        commits_from: source,
        estimate: estimate(engine, database, &figures),
        // A look is a second.
        checkpoint_held_s: held,
        checkpoint_held_by: if held > 0 {
            holders(database)
        } else {
            Vec::new()
        },
        programs: programs(engine, number, &parts, commits, time),
        figures,
    }
}

fn holders(database: &Database) -> Vec<OfReader> {
    let of = |reader: &Reader| OfReader {
        pid: reader.pid,
        name: reader.program.clone(),
        frames_behind: database.held_at.saturating_sub(reader.frame),
    };
    database.holders.iter().map(of).collect()
}

/// The cost of each program between two moments.
fn parts(number: usize, from: &Snapshot, to: &Snapshot) -> Vec<(u32, Sums)> {
    let own = ledger::of_database(&to.sums, number);
    let before = |pair: &Pair| from.sums.get(pair);
    // Most programs of a long watch have ended, and cost nothing any more.
    let own =
        own.filter(|(pair, sums)| before(pair).is_none_or(|before| !Arc::ptr_eq(before, sums)));
    let since = |(pair, sums): (&Pair, &Arc<Sums>)| {
        let mut sums = Sums::clone(sums);
        if let Some(before) = before(pair) {
            sums.log_bytes -= before.log_bytes;
            sums.database_bytes -= before.database_bytes;
            sums.fs_journal_bytes -= before.fs_journal_bytes;
            sums.flushes -= before.flushes;
            sums.log_waits -= before.log_waits;
            sums.database_waits -= before.database_waits;
            sums.begun -= before.begun;
            // The later one has every time of the earlier one.
            let _ = sums.waits_us.subtract(&before.waits_us);
        }
        (pair.pid, sums)
    };
    own.map(since).collect()
}

fn programs(
    engine: &Engine,
    number: usize,
    parts: &[(u32, Sums)],
    commits: u64,
    time: Duration,
) -> Vec<OfProgram> {
    let mut programs = match engine.is_traced() {
        true => traced_programs(engine, parts, commits, time),
        false => users(engine, number, commits, time),
    };
    programs.sort_by_key(|program| {
        let figures = &program.figures;
        let most = std::cmp::Reverse((figures.bytes, figures.commits));
        (most, program.pid)
    });
    programs
}

fn traced_programs(
    engine: &Engine,
    parts: &[(u32, Sums)],
    commits: u64,
    time: Duration,
) -> Vec<OfProgram> {
    let parts = Part::joined(engine, parts);
    let weights: Vec<u64> = weights(&parts);
    let all: u64 = weights.iter().sum();
    let of = |(part, weight): (&Part, u64)| {
        let own = (commits as f64 * weight as f64 / all.max(1) as f64).round() as u64;
        program(engine, part, Figures::of(own, Some(&part.sums), time))
    };
    let programs = parts.iter().zip(weights).map(of);
    programs.filter(|p| !p.figures.is_idle()).collect()
}

/// Without a trace nothing tells which of the users wrote.
fn users(engine: &Engine, number: usize, commits: u64, time: Duration) -> Vec<OfProgram> {
    let users: Vec<u32> = engine.processes.users_of(number).collect();
    let own = if users.len() == 1 { commits } else { 0 };
    let of = |pid: &u32| {
        let part = Part::of(engine, *pid, Sums::default());
        program(engine, &part, Figures::of(own, None, time))
    };
    users.iter().map(of).collect()
}

/// Write transactions of each program; waits for a flush where no transaction was seen to begin.
fn weights(parts: &[Part]) -> Vec<u64> {
    let begun: Vec<u64> = parts.iter().map(|part| part.sums.begun).collect();
    if begun.iter().any(|begun| *begun > 0) {
        return begun;
    }
    let waits = |sums: &Sums| sums.log_waits.max(sums.database_waits);
    parts.iter().map(|part| waits(&part.sums)).collect()
}

fn program(engine: &Engine, part: &Part, figures: Figures) -> OfProgram {
    let process = part.pid.and_then(|pid| engine.processes.all.get(&pid));
    OfProgram {
        pid: part.pid,
        processes: part.processes,
        name: part.name.clone(),
        command: process.map_or_else(String::new, |process| process.command.clone()),
        figures,
    }
}

/// A program, or several that have ended.
struct Part {
    pid: Option<u32>,
    processes: u32,
    name: String,
    sums: Sums,
}

impl Part {
    fn of(engine: &Engine, pid: u32, sums: Sums) -> Self {
        let process = engine.processes.all.get(&pid);
        let name = process.map(|process| process.name.clone());
        Self {
            pid: Some(pid),
            processes: 1,
            name: name
                .filter(|name| !name.is_empty())
                .unwrap_or_else(|| "?".to_owned()),
            sums,
        }
    }

    /// Programs, with those that have ended in one part for each name.
    fn joined(engine: &Engine, parts: &[(u32, Sums)]) -> Vec<Self> {
        let mut joined: Vec<Self> = Vec::new();
        let mut ended: HashMap<String, Self> = HashMap::new();
        for (pid, sums) in parts {
            let part = Self::of(engine, *pid, sums.clone());
            if !Process::has_ended(*pid) {
                joined.push(part);
                continue;
            }
            match ended.entry(part.name.clone()) {
                Entry::Vacant(entry) => {
                    entry.insert(part);
                }
                Entry::Occupied(mut entry) => {
                    let all = entry.get_mut();
                    all.pid = None;
                    all.processes += 1;
                    all.sums.add(sums);
                }
            }
        }
        joined.extend(ended.into_values());
        joined
    }
}

fn estimate(engine: &Engine, database: &Database, figures: &Figures) -> Option<Estimate> {
    if !["wal", "delete", "truncate", "persist"].contains(&database.mode.as_str()) {
        return None;
    }
    let bytes = figures.database_bytes?;
    let pages = database.pages_per_commit(bytes, figures.commits)?;
    (figures.commits > 0).then(|| {
        Estimate::of(&Facts {
            pages,
            page_size: f64::from(database.page_size),
            database_bytes: bytes as f64 / figures.commits as f64,
            commits_per_s: figures.commits_per_s,
            has_fua: engine.has_fua(database.device),
        })
    })
}

#[cfg(test)]
impl Report {
    /// Two programs, each with a database.
    pub fn example() -> Self {
        let figures = |commits_per_s: f64, day: f64, p99: u64| Figures {
            commits: commits_per_s as u64,
            commits_per_s,
            bytes: Some(day as u64 / 1000),
            bytes_per_day: Some(day),
            flush_us: Some(Times {
                count: 10,
                p50: 100,
                p99,
                max: p99,
            }),
            ..Figures::default()
        };
        let database = |path: &str, name: &str, figures: Figures| OfDatabase {
            path: path.to_owned(),
            file_system: "ext4".to_owned(),
            device: Some("sda1".to_owned()),
            journal_mode: "wal".to_owned(),
            page_size: 4096,
            log_size: 1 << 20,
            commits_from: Source::WalIndex,
            figures: figures.clone(),
            estimate: None,
            checkpoint_held_s: 0,
            checkpoint_held_by: Vec::new(),
            programs: vec![OfProgram {
                pid: Some(7),
                processes: 1,
                name: name.to_owned(),
                command: name.to_owned(),
                figures,
            }],
        };
        let gib = f64::from(1 << 30);
        Self {
            version: VERSION,
            kernel: "6.18".to_owned(),
            seconds: 5.0,
            traced: true,
            databases: vec![
                database("/var/one.db", "app-one", figures(123.0, 10.0 * gib, 900)),
                database("/var/two.db", "app-two", figures(7.5, gib, 150_000)),
            ],
            devices: vec![OfDevice {
                name: "sda1".to_owned(),
                counted_bytes: 12 << 20,
                traced_bytes: 12 << 20,
                database_bytes: 11 << 20,
                size: Some(1 << 40),
                bytes_per_day: 11.0 * gib,
                life_years: Some(91.74),
            }],
            full_writes: 360.0,
            lost_events: 0,
            notes: Vec::new(),
        }
    }
}
