//! The simulated system: Linux's calls, on files in memory. A call never blocks. Its outcome may
//! say that the process must wait.

pub mod calls;
pub mod files;
pub mod locks;

use files::{Files, Inode};
use locks::{Locks, Owner};
use onewrite_common::random::SplitMix64;

/// The largest number of simulated processes.
pub const PROCESSES: usize = 3;

/// An open file description.
#[derive(Clone, Copy, Debug)]
struct Description {
    inode: Option<Inode>,
    position: u64,
    flags: i32,
    references: u32,
}

/// Everything except the bytes of files.
#[derive(Clone, Default)]
pub struct Tables {
    locks: Locks,
    descriptions: Vec<Option<Description>>,
    /// By process: the description that each descriptor names.
    descriptors: [Vec<Option<u32>>; PROCESSES],
    /// Nanoseconds since the system began.
    pub clock: u64,
    random: SplitMix64,
}

/// A state of the whole system.
pub struct Snapshot {
    tables: Tables,
    files: files::Snapshot,
}

/// A planted fault. It shows that the search can find one like it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Mutant {
    /// Grants a shared lock of the checkpointer's byte during a checkpoint. That disables the rule
    /// against the WAL-reset fault.
    ResetRule,
    /// Grants the writer's lock while another process writes.
    TwoWriters,
    /// Grants the readers' locks to a writer that restarts the log, although there are readers.
    ReadersIgnored,
    /// A checkpointer claims that it has copied all of the log.
    StaleBackfill,
    /// The second copy of the wal-index header stays as it was when a writer is done, as if it had died
    /// there. So the next connection recovers. This is no fault of the engine: nothing may be lost.
    OldSecondCopy,
    /// The same, and the recovery of an empty log publishes the header of every empty log.
    SameEmptyHeader,
}

impl Mutant {
    fn keeps_the_second_copy(self) -> bool {
        matches!(self, Self::OldSecondCopy | Self::SameEmptyHeader)
    }
}

/// See the module.
#[derive(Default)]
pub struct Kernel {
    pub files: Files,
    pub tables: Tables,
    pub mutant: Option<Mutant>,
    /// The header of the wal-index when a writer began, for a mutant.
    pub old_header: Option<[u8; 48]>,
    /// Whether a connection recovers the wal-index, for a mutant.
    pub recovers: bool,
    /// Calls that this kernel does not know.
    pub unknown: Vec<i64>,
}

impl Kernel {
    pub fn snapshot(&mut self) -> Snapshot {
        Snapshot {
            tables: self.tables.clone(),
            files: self.files.snapshot(),
        }
    }

    pub fn restore(&mut self, to: &Snapshot, all: bool) {
        self.tables.clone_from(&to.tables);
        self.files.restore(&to.files, all);
        self.old_header = None;
        self.recovers = false;
    }

    fn description(&self, process: usize, fd: i64) -> Option<u32> {
        *self.tables.descriptors[process].get(usize::try_from(fd).ok()?)?
    }

    fn described(&mut self, process: usize, fd: i64) -> Option<&mut Description> {
        let number = self.description(process, fd)?;
        self.tables.descriptions[number as usize].as_mut()
    }

    /// The file that a descriptor is open on.
    pub fn inode(&self, process: usize, fd: i64) -> Option<Inode> {
        let number = self.description(process, fd)?;
        self.tables.descriptions[number as usize]?.inode
    }

    fn open_description(&mut self, process: usize, inode: Option<Inode>, flags: i32) -> i64 {
        let description = Description {
            inode,
            position: 0,
            flags,
            references: 0,
        };
        let descriptions = &mut self.tables.descriptions;
        let number = match descriptions.iter().position(Option::is_none) {
            Some(free) => free,
            None => {
                descriptions.push(None);
                descriptions.len() - 1
            }
        };
        descriptions[number] = Some(description);
        self.descriptor(process, number as u32, 3)
    }

    fn descriptor(&mut self, process: usize, description: u32, least: usize) -> i64 {
        if let Some(description) = &mut self.tables.descriptions[description as usize] {
            description.references += 1;
        }
        let table = &mut self.tables.descriptors[process];
        let mut fd = least.max(3);
        while table.get(fd).is_some_and(Option::is_some) {
            fd += 1;
        }
        if table.len() <= fd {
            table.resize(fd + 1, None);
        }
        table[fd] = Some(description);
        fd as i64
    }

    /// Closes a descriptor. Closing any descriptor of a file drops all of the process's own locks
    /// on it.
    fn close(&mut self, process: usize, fd: i64) -> bool {
        let Some(number) = self.description(process, fd) else {
            return false;
        };
        self.tables.descriptors[process][fd as usize] = None;
        let Some(description) = &mut self.tables.descriptions[number as usize] else {
            return false;
        };
        description.references -= 1;
        let (inode, is_last) = (description.inode, description.references == 0);
        if inode.is_some() {
            self.tables
                .locks
                .release(inode, Owner::Process(process as u8));
        }
        if is_last {
            self.tables.locks.release(None, Owner::Description(number));
            self.tables.descriptions[number as usize] = None;
        }
        true
    }

    /// Ends the process: closes its descriptors and drops its locks.
    pub fn death(&mut self, process: usize) {
        for fd in 0..self.tables.descriptors[process].len() {
            self.close(process, fd as i64);
        }
        self.tables
            .locks
            .release(None, Owner::Process(process as u8));
    }

    /// Random numbers that are the same in every run.
    fn random(&mut self) -> u64 {
        self.tables.random.next()
    }
}
