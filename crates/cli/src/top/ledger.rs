//! Accounts: which database, and which program, causes each write and each flush.
//!
//! Pure: no I/O. `engine` gives it events with their files, in the order of time. The rules are in
//! docs/top.md:
//!
//! - A thread that waits for a flush of a file hands over the data of that file alone.
//! - The journal works for those who wait at that moment, in equal parts.
//! - A page that a thread of the kernel writes later belongs to the file that has the sector.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use hdrhistogram::Histogram;
use onewrite_iotrace::io::Kind;

/// The longest flush that is told apart, in microseconds.
const LONGEST_US: u64 = 600_000_000;

/// A program's use of a database.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Pair {
    /// The database's number.
    pub database: usize,
    /// The program.
    pub pid: u32,
}

/// The cost of each program's use of each database. A copy shares those that stay as they are: of a
/// thousand programs that have ended, it copies none.
pub type All = BTreeMap<Pair, Arc<Sums>>;

/// Those of one database, without a look at any other.
pub fn of_database(all: &All, database: usize) -> impl Iterator<Item = (&Pair, &Arc<Sums>)> {
    let pair = |pid| Pair { database, pid };
    all.range(pair(0)..=pair(u32::MAX))
}

/// A file of a database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileOf {
    /// The database's number.
    pub database: usize,
    /// Its purpose.
    pub kind: Kind,
    /// Whether the database is in a rollback mode.
    pub is_rollback: bool,
}

/// A thread that waits for a flush.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// Its process.
    pub pid: u32,
    /// The beginning, in nanoseconds.
    pub at_ns: u64,
    /// The device below the file; 0 if there is none.
    pub device: u32,
    /// The file, if it is a database's.
    pub file: Option<FileOf>,
}

/// A write that was handed to a device.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    /// The thread.
    pub tid: u32,
    /// The device.
    pub device: u32,
    /// Its bytes.
    pub bytes: u64,
    /// The flushes of the device's cache that it causes.
    pub flushes: u32,
    /// It belongs to the file system's journal.
    pub is_journal: bool,
    /// The file system marks it as metadata.
    pub is_metadata: bool,
}

/// The cost of a program's use of a database.
#[derive(Clone, Debug)]
pub struct Sums {
    /// Bytes of the log or the rollback journal.
    pub log_bytes: u64,
    /// Bytes of the database file.
    pub database_bytes: u64,
    /// Bytes of the file system's journal.
    pub fs_journal_bytes: u64,
    /// Flushes of the device's cache.
    pub flushes: f64,
    /// Waits for a flush of the log.
    pub log_waits: u64,
    /// Waits for a flush of the database file.
    pub database_waits: u64,
    /// Write transactions, by their lock.
    pub begun: u64,
    /// Microseconds that a commit waited for its flushes.
    pub waits_us: Histogram<u64>,
}

impl Default for Sums {
    fn default() -> Self {
        // It grows with the longest time: most programs' times are short, and there may be many.
        let Ok(waits_us) = Histogram::new(2) else {
            unreachable!("a number of digits that the histogram takes")
        };
        Self {
            log_bytes: 0,
            database_bytes: 0,
            fs_journal_bytes: 0,
            flushes: 0.0,
            log_waits: 0,
            database_waits: 0,
            begun: 0,
            waits_us,
        }
    }
}

impl Sums {
    /// Bytes written in all.
    pub fn bytes(&self) -> u64 {
        self.log_bytes + self.database_bytes + self.fs_journal_bytes
    }

    /// Adds those of another program.
    pub fn add(&mut self, other: &Self) {
        self.log_bytes += other.log_bytes;
        self.database_bytes += other.database_bytes;
        self.fs_journal_bytes += other.fs_journal_bytes;
        self.flushes += other.flushes;
        self.log_waits += other.log_waits;
        self.database_waits += other.database_waits;
        self.begun += other.begun;
        self.waits_us += &other.waits_us;
    }

    fn add_wait(&mut self, ns: u64) {
        // It takes every time up to the longest.
        let _ = self.waits_us.record((ns / 1000).min(LONGEST_US));
    }

    fn add_bytes(&mut self, kind: Kind, bytes: u64) {
        match kind {
            Kind::Database => self.database_bytes += bytes,
            _ => self.log_bytes += bytes,
        }
    }
}

/// See the module.
#[derive(Default)]
pub struct Ledger {
    /// The cost of each program's use of each database.
    pub sums: All,
    /// Bytes handed to each device, for any file.
    pub devices: HashMap<u32, u64>,
    waiting: HashMap<u32, Waiting>,
    /// Nanoseconds of the flushes of a transaction in a rollback mode, by thread.
    open: HashMap<(u32, usize), u64>,
    /// The program that last wrote to a database.
    last: HashMap<usize, u32>,
}

impl Ledger {
    fn of(&mut self, pair: Pair) -> &mut Sums {
        Arc::make_mut(self.sums.entry(pair).or_default())
    }

    /// A thread begins to wait.
    pub fn begin(&mut self, tid: u32, waiting: Waiting) {
        if let Some(file) = waiting.file {
            self.last.insert(file.database, waiting.pid);
        }
        self.waiting.insert(tid, waiting);
    }

    /// A thread has waited.
    pub fn end(&mut self, tid: u32, at_ns: u64) {
        let Some(waiting) = self.waiting.remove(&tid) else {
            return;
        };
        let Some(file) = waiting.file else { return };
        let took_ns = at_ns.saturating_sub(waiting.at_ns);
        let sums = self.of(pair(&waiting, file));
        match file.kind {
            Kind::Database => sums.database_waits += 1,
            _ => sums.log_waits += 1,
        }
        if !file.is_rollback {
            // A checkpoint also waits, for the database; no commit waits for that.
            if file.kind == Kind::Log {
                sums.add_wait(took_ns);
            }
            return;
        }
        let open = self.open.entry((tid, file.database)).or_default();
        *open += took_ns;
        if file.kind == Kind::Database
            && let Some(all_ns) = self.open.remove(&(tid, file.database))
        {
            self.of(pair(&waiting, file)).add_wait(all_ns);
        }
    }

    /// A transaction that will write has begun.
    pub fn locked(&mut self, pair: Pair) {
        self.last.insert(pair.database, pair.pid);
        self.of(pair).begun += 1;
    }

    /// A write was handed to a device. `owner` is the file that has the sector, where it is known.
    /// Returns whether the write is accounted for.
    pub fn handed(&mut self, write: &Write, owner: impl FnOnce() -> Option<FileOf>) -> bool {
        *self.devices.entry(write.device).or_default() += write.bytes;
        if write.is_journal {
            self.share_out(write);
            return true;
        }
        let waiting = self.waiting.get(&write.tid);
        if let Some(waiting) = waiting.filter(|waiting| waiting.device == write.device) {
            if let Some(file) = waiting.file {
                let pair = pair(waiting, file);
                let sums = self.of(pair);
                sums.flushes += f64::from(write.flushes);
                match write.is_metadata {
                    true => sums.fs_journal_bytes += write.bytes,
                    false => sums.add_bytes(file.kind, write.bytes),
                }
            }
            return true;
        }
        self.later(write, owner())
    }

    /// A write outside of a flush, for the file that has the sector.
    pub fn later(&mut self, write: &Write, owner: Option<FileOf>) -> bool {
        let Some(file) = owner else {
            return write.bytes == 0;
        };
        let pid = self.last.get(&file.database).copied().unwrap_or(0);
        let pair = Pair {
            database: file.database,
            pid,
        };
        let sums = self.of(pair);
        sums.flushes += f64::from(write.flushes);
        sums.add_bytes(file.kind, write.bytes);
        true
    }

    /// Shares out a write of the journal among those who wait on its device.
    fn share_out(&mut self, write: &Write) {
        let waiting = self.waiting.values();
        let waiting = waiting.filter(|waiting| waiting.device == write.device);
        let waiting: Vec<Waiting> = waiting.copied().collect();
        let count = waiting.len() as u64;
        for (place, waiting) in waiting.iter().enumerate() {
            let Some(file) = waiting.file else { continue };
            let odd = u64::from((place as u64) < write.bytes % count);
            let sums = self.of(pair(waiting, file));
            sums.fs_journal_bytes += write.bytes / count + odd;
            sums.flushes += f64::from(write.flushes) / count as f64;
        }
    }

    /// The database of a thread's open transaction in a rollback mode.
    pub fn open_transaction(&self, tid: u32) -> Option<usize> {
        let mut open = self.open.keys();
        open.find(|(thread, _)| *thread == tid)
            .map(|(_, database)| *database)
    }
}

fn pair(waiting: &Waiting, file: FileOf) -> Pair {
    Pair {
        database: file.database,
        pid: waiting.pid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(kind: Kind, is_rollback: bool) -> Option<FileOf> {
        Some(FileOf {
            database: 0,
            kind,
            is_rollback,
        })
    }

    fn waiting(pid: u32, at_ns: u64, file: Option<FileOf>) -> Waiting {
        Waiting {
            pid,
            at_ns,
            device: 5,
            file,
        }
    }

    fn write(tid: u32, bytes: u64) -> Write {
        Write {
            tid,
            device: 5,
            bytes,
            flushes: 1,
            is_journal: false,
            is_metadata: false,
        }
    }

    fn of(ledger: &Ledger, pid: u32) -> &Sums {
        &ledger.sums[&Pair { database: 0, pid }]
    }

    #[test]
    fn what_a_waiting_thread_hands_over_is_its_files() {
        let mut ledger = Ledger::default();
        ledger.begin(11, waiting(1, 1_000, file(Kind::Log, false)));
        assert!(ledger.handed(&write(11, 8192), || None));
        let metadata = Write {
            is_metadata: true,
            ..write(11, 4096)
        };
        assert!(ledger.handed(&metadata, || None));
        ledger.end(11, 201_000);
        let sums = of(&ledger, 1);
        assert_eq!((sums.log_bytes, sums.fs_journal_bytes), (8192, 4096));
        assert_eq!((sums.log_waits, sums.flushes), (1, 2.0));
        assert_eq!((sums.waits_us.len(), sums.waits_us.max()), (1, 200));
        assert_eq!(ledger.devices[&5], 12288);
        // It waits no more: only the sector can say whose it is.
        assert!(!ledger.handed(&write(11, 512), || None));
        assert!(ledger.handed(&write(11, 512), || file(Kind::Database, false)));
        assert_eq!(of(&ledger, 1).database_bytes, 512);
    }

    #[test]
    fn the_journal_works_for_all_who_wait_and_no_byte_is_lost() {
        let mut ledger = Ledger::default();
        ledger.begin(11, waiting(1, 0, file(Kind::Log, false)));
        ledger.begin(22, waiting(2, 0, file(Kind::Log, false)));
        let journal = Write {
            is_journal: true,
            ..write(99, 4097)
        };
        assert!(ledger.handed(&journal, || None));
        let bytes = [1, 2].map(|pid| of(&ledger, pid).fs_journal_bytes);
        assert_eq!(bytes.iter().sum::<u64>(), 4097);
        assert_eq!(of(&ledger, 1).flushes, 0.5);
        // A third one, whose file is no database's, gets its part too.
        ledger.begin(33, waiting(3, 0, None));
        let journal = Write {
            bytes: 3000,
            ..journal
        };
        ledger.handed(&journal, || None);
        assert_eq!(of(&ledger, 1).fs_journal_bytes - bytes[0], 1000);
    }

    #[test]
    fn the_flushes_of_a_rollback_transaction_are_one_commit() {
        let mut ledger = Ledger::default();
        for (at, kind) in [(0, Kind::RollbackJournal), (50_000, Kind::Database)] {
            ledger.begin(11, waiting(1, at, file(kind, true)));
            ledger.end(11, at + 30_000);
        }
        let sums = of(&ledger, 1);
        assert_eq!((sums.waits_us.len(), sums.waits_us.max()), (1, 60));
        assert_eq!((sums.log_waits, sums.database_waits), (1, 1));
        assert_eq!(ledger.open_transaction(11), None);
    }
}
