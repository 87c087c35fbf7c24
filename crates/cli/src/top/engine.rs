//! Watches the machine: reads events, finds the files that they name, and keeps the accounts.
//!
//! [`Engine::tick`] is called every [`TICK`]. Once a second it looks at the databases' own counts,
//! and where writes belong that no waiting thread handed over. Without root it has those counts
//! alone. A tick takes [`SLICE`] of time and one look at most. The next one goes on with the rest of
//! the events and processes. Between two ticks the caller looks at keys and signals.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant, SystemTime};

use onewrite_common::files::companion;
use onewrite_iotrace::device::{Counters, SECTOR_BYTES};
use onewrite_iotrace::io::Kind;
use onewrite_iotrace::live::{Disk, Handed, Live, Seen, What};

use super::databases::Source;
use super::ledger::{All, FileOf, Ledger, Pair, Waiting, Write, of_database};
use super::processes::{Databases, Processes};

/// The time between two readings.
pub const TICK: Duration = Duration::from_millis(200);

/// The time between two looks at the databases' own counts.
const LOOK: Duration = Duration::from_secs(1);

/// The longest time that a tick takes events, and the longest that it looks at processes.
const SLICE: Duration = Duration::from_millis(50);

/// The time between two looks at every process.
const LOOK_AT_ALL: Duration = Duration::from_secs(10);

/// Writes that wait until their file is known.
const MOST_PARKED: usize = 100_000;

/// The files of a database that its bytes can be in.
const FILES: [(&str, Kind); 4] = [
    ("", Kind::Database),
    ("-wal", Kind::Log),
    ("-onewrite", Kind::Log),
    ("-journal", Kind::RollbackJournal),
];

/// A device that holds a database.
pub struct Watched {
    disk: Disk,
    /// Its counters when the watch began.
    before: Counters,
}

/// The bytes that a device wrote.
pub struct Written {
    /// Its name.
    pub name: String,
    /// Bytes that it counted.
    pub counted: u64,
    /// Bytes that the trace saw.
    pub traced: u64,
}

/// Everything that was counted up to a moment.
#[derive(Clone)]
pub struct Snapshot {
    /// The moment.
    pub at: Instant,
    /// The cost of each program's use of each database.
    pub sums: All,
    /// The commits of each database.
    pub commits: Vec<(u64, Source)>,
    /// Looks at each database that saw a checkpoint held up.
    pub held: Vec<u64>,
}

/// See the module.
pub struct Engine {
    live: Option<Live>,
    ledger: Ledger,
    /// The databases that were found.
    pub databases: Databases,
    /// The programs.
    pub processes: Processes,
    disks: HashMap<u32, Watched>,
    /// The files by the numbers that the disks have for them.
    owners: Vec<FileOf>,
    parked: Vec<(Write, u64)>,
    /// The beginning.
    pub begin: Instant,
    begin_time: SystemTime,
    looked: Option<Instant>,
    looked_at_all: Instant,
    events: VecDeque<Seen>,
    /// Whether the kernel may have more events than were taken.
    has_more: bool,
    /// Facts that the user should know.
    pub notes: Vec<String>,
    /// How often a device may be written in full.
    pub full_writes: f64,
}

impl Engine {
    /// Begins, with a trace if there is one.
    pub fn start(live: Option<Live>) -> Result<Self, String> {
        let mut engine = Self {
            live,
            ledger: Ledger::default(),
            databases: Databases::default(),
            processes: Processes::default(),
            disks: HashMap::new(),
            owners: Vec::new(),
            parked: Vec::new(),
            begin: Instant::now(),
            begin_time: SystemTime::now(),
            looked: None,
            looked_at_all: Instant::now(),
            events: VecDeque::new(),
            has_more: false,
            notes: Vec::new(),
            full_writes: super::life::USUAL_FULL_WRITES,
        };
        engine.processes.look_at_all(&mut engine.databases);
        engine.watch_found()?;
        engine.look();
        engine.begin = Instant::now();
        Ok(engine)
    }

    /// Whether it has a trace.
    pub fn is_traced(&self) -> bool {
        self.live.is_some()
    }

    /// Events that the kernel had no room for.
    pub fn lost(&self) -> u64 {
        let lost = self.live.as_ref().map(Live::lost);
        lost.and_then(Result::ok).unwrap_or(0)
    }

    /// How long the caller may wait before the next tick: less if this one left events behind.
    pub fn pause(&self) -> Duration {
        let is_behind = self.has_more || !self.events.is_empty();
        if is_behind { Duration::ZERO } else { TICK }
    }

    /// Takes the events since the last call. Returns whether the counts of the databases were looked
    /// at.
    pub fn tick(&mut self) -> Result<bool, String> {
        self.take(Instant::now() + SLICE)?;
        if self.looked_at_all.elapsed() > LOOK_AT_ALL {
            self.looked_at_all = Instant::now();
            self.processes.begin_look();
        }
        self.processes
            .look_until(Instant::now() + SLICE, &mut self.databases);
        self.watch_found()?;
        if self.looked.is_some_and(|at| at.elapsed() < LOOK) {
            return Ok(false);
        }
        self.look();
        Ok(true)
    }

    /// Takes the last events, also those that a reading holds back. The trace ends before, so there
    /// are not ever more.
    pub fn finish(&mut self) -> Result<(), String> {
        if let Some(live) = &self.live {
            live.stop().map_err(|error| error.to_string())?;
        }
        // The first reading holds back what is younger than its beginning.
        let mut readings = 0;
        while readings < 2 {
            self.take(Instant::now() + SLICE)?;
            let is_empty = self.pause() > Duration::ZERO;
            readings += u32::from(is_empty);
        }
        self.look();
        Ok(())
    }

    /// Takes events until there are no more, or until this moment.
    fn take(&mut self, until: Instant) -> Result<(), String> {
        loop {
            while let Some(seen) = self.events.pop_front() {
                self.apply(&seen);
                if Instant::now() >= until {
                    return Ok(());
                }
            }
            let Some(live) = &mut self.live else {
                return Ok(());
            };
            let read = live.read(&mut self.events);
            self.has_more = read.map_err(|error| error.to_string())?;
            if self.events.is_empty() && !self.has_more {
                return Ok(());
            }
        }
    }

    fn apply(&mut self, seen: &Seen) {
        match seen.what {
            What::FlushBegun { fd } => {
                let waiting = self.waiting(seen, fd);
                self.ledger.begin(seen.tid, waiting);
            }
            What::FlushEnded => self.ledger.end(seen.tid, seen.at_ns),
            What::Locked { device, inode } => self.locked(seen.tid, device, inode),
            What::Handed(write) => self.handed(seen.tid, &write),
        }
    }

    fn waiting(&mut self, seen: &Seen, fd: i32) -> Waiting {
        let pid = self.processes.of_thread(seen.tid);
        let found = self.processes.descriptor(pid, fd, &mut self.databases);
        let (device, file) = match found {
            Some(found) => (found.device, found.file),
            None => self.unknown(seen.tid, pid),
        };
        let file = file.filter(|(_, kind)| *kind != Kind::WalIndex);
        Waiting {
            pid,
            at_ns: seen.at_ns,
            device,
            file: file.map(|(number, kind)| self.databases.file(number, kind)),
        }
    }

    /// A descriptor that was never seen open: a rollback journal, or its directory, which are open
    /// for a moment only.
    fn unknown(&self, tid: u32, pid: u32) -> (u32, Option<(usize, Kind)>) {
        let of_process = || self.processes.only_rollback(pid, &self.databases);
        let number = self.ledger.open_transaction(tid).or_else(of_process);
        let database = number.and_then(|number| self.databases.all.get(number));
        (
            database.map_or(0, |database| database.device),
            number.map(|number| (number, Kind::RollbackJournal)),
        )
    }

    fn locked(&mut self, tid: u32, device: u32, inode: u64) {
        let pid = self.processes.of_thread(tid);
        let mut database = self.databases.locked(device, inode);
        if database.is_none() {
            // Any descriptor: this looks at all of them, if they are not known yet.
            let _ = self.processes.descriptor(pid, 0, &mut self.databases);
            database = self.databases.locked(device, inode);
        }
        if let Some(database) = database {
            self.ledger.locked(Pair { database, pid });
        }
    }

    fn handed(&mut self, tid: u32, handed: &Handed) {
        self.processes.name(tid, handed.name);
        let mut disks = self.disks.iter();
        let found = disks.find_map(|(number, watched)| {
            Some((*number, &watched.disk, watched.disk.start_of(handed)?))
        });
        let Some((number, disk, start)) = found else {
            return;
        };
        let write = Write {
            tid,
            device: number,
            bytes: handed.sectors * SECTOR_BYTES,
            flushes: disk.flushes(handed),
            is_journal: disk.is_journal(start, handed),
            is_metadata: handed.asked.metadata,
        };
        let owners = &self.owners;
        let owner = || owners.get(disk.owner(start)? as usize).copied();
        if !self.ledger.handed(&write, owner) && self.parked.len() < MOST_PARKED {
            self.parked.push((write, start));
        }
    }

    /// Watches the devices that were found.
    fn watch_found(&mut self) -> Result<(), String> {
        if self.processes.found.is_empty() {
            return Ok(());
        }
        for found in self.processes.found.drain(..) {
            let (number, name) = (found.device.kernel_number(), found.device.name().to_owned());
            for database in &mut self.databases.all {
                if database.device == number {
                    database.device_name = Some(name.clone());
                }
            }
            let disk =
                Disk::new(found.device, &found.kind).and_then(|disk| Ok((disk.counters()?, disk)));
            match disk {
                Ok((before, disk)) => {
                    self.disks.insert(number, Watched { disk, before });
                }
                Err(error) => self.notes.push(format!("{name} is not watched: {error}")),
            }
        }
        let Some(live) = &self.live else {
            return Ok(());
        };
        let disks = self.disks.values().map(|watched| &watched.disk);
        live.watch(disks).map_err(|error| error.to_string())
    }

    /// Looks at the databases' own counts.
    fn look(&mut self) {
        self.looked = Some(Instant::now());
        for database in &mut self.databases.all {
            let device = self.disks.get(&database.device);
            database.device_name = device.map(|w| w.disk.device().name().to_owned());
            database.look(self.begin_time);
        }
        if !self.parked.is_empty() {
            self.locate();
            self.unpark();
        }
    }

    /// Looks where the files of the databases lie.
    fn locate(&mut self) {
        self.owners.clear();
        for watched in self.disks.values_mut() {
            watched.disk.forget_files();
        }
        for (number, database) in self.databases.all.iter().enumerate() {
            let Some(watched) = self.disks.get_mut(&database.device) else {
                continue;
            };
            if database.is_gone {
                continue;
            }
            let here = database.here();
            for (suffix, kind) in FILES {
                let owner = u32::try_from(self.owners.len()).unwrap_or(u32::MAX);
                // A file that is not there has no sectors.
                if watched
                    .disk
                    .locate(&companion(&here, suffix), owner)
                    .is_ok()
                {
                    self.owners.push(self.databases.file(number, kind));
                }
            }
        }
    }

    fn unpark(&mut self) {
        for (write, start) in self.parked.drain(..) {
            let disk = self.disks.get(&write.device);
            let owner = disk.and_then(|watched| watched.disk.owner(start));
            let file = owner.and_then(|owner| self.owners.get(owner as usize));
            self.ledger.later(&write, file.copied());
        }
    }

    /// Everything that was counted so far.
    pub fn snapshot(&self) -> Snapshot {
        let counted = |(number, database): (usize, &super::databases::Database)| {
            let (mut log, mut file) = (0, 0);
            for (_, sums) in of_database(&self.ledger.sums, number) {
                log += sums.log_waits;
                file += sums.database_waits;
            }
            database.counted(log, file)
        };
        Snapshot {
            at: Instant::now(),
            sums: self.ledger.sums.clone(),
            commits: self.databases.all.iter().enumerate().map(counted).collect(),
            held: self.databases.all.iter().map(|it| it.held_looks).collect(),
        }
    }

    /// The bytes that each device wrote since its watch began.
    pub fn devices(&self) -> Vec<Written> {
        let of = |(number, watched): (&u32, &Watched)| {
            let now = watched.disk.counters().ok()?;
            Some(Written {
                name: watched.disk.device().name().to_owned(),
                counted: now.since(watched.before).write_bytes,
                traced: self.ledger.devices.get(number).copied().unwrap_or(0),
            })
        };
        let mut devices: Vec<Written> = self.disks.iter().filter_map(of).collect();
        devices.sort_by(|one, other| one.name.cmp(&other.name));
        devices
    }

    /// Whether a write to this database's device makes itself durable without a flush.
    pub fn has_fua(&self, device: u32) -> bool {
        let disk = self.disks.get(&device);
        disk.is_some_and(|watched| watched.disk.device().has_fua())
    }
}
