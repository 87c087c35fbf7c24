//! The content of a trace: block I/Os, their purposes, and the tasks that asked for them.

use std::fmt;

/// The purpose of bytes on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The file system's own journal: ext4's jbd2 journal, XFS's log, Btrfs's log trees.
    FsJournal,
    /// Other metadata of the file system: inodes, bitmaps, directories, trees, superblocks.
    FsMetadata,
    /// A database file.
    Database,
    /// A log: our `-onewrite`, stock SQLite's `-wal`.
    Log,
    /// A rollback journal: `-journal`, and the super-journal of several databases.
    RollbackJournal,
    /// A wal-index: `-shm`.
    WalIndex,
    /// Another file.
    Other,
    /// The trace does not show it.
    Unknown,
}

impl Kind {
    /// All of them, in the order in which reports list them.
    pub const ALL: [Self; 8] = [
        Self::FsJournal,
        Self::FsMetadata,
        Self::Database,
        Self::Log,
        Self::RollbackJournal,
        Self::WalIndex,
        Self::Other,
        Self::Unknown,
    ];

    /// Its name in JSON and in lists of events.
    pub fn key(self) -> &'static str {
        match self {
            Self::FsJournal => "fs_journal",
            Self::FsMetadata => "fs_metadata",
            Self::Database => "database",
            Self::Log => "log",
            Self::RollbackJournal => "rollback_journal",
            Self::WalIndex => "wal_index",
            Self::Other => "other",
            Self::Unknown => "unknown",
        }
    }

    /// Its name for people.
    pub fn label(self) -> &'static str {
        match self {
            Self::FsJournal => "file-system journal",
            Self::FsMetadata => "file-system metadata",
            Self::Database => "database",
            Self::Log => "log",
            Self::RollbackJournal => "rollback journal",
            Self::WalIndex => "wal-index",
            Self::Other => "other file",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.label())
    }
}

/// The operation of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// Bytes were read.
    Read,
    /// A process wrote bytes, or the device filled sectors with zeros.
    Write,
    /// Sectors were given up.
    Discard,
    /// The device flushed its cache. One flush may answer several requests for one.
    Flush,
    /// A process waited for a flush without data, as `fdatasync` does where nothing else is left to
    /// do. The kernel counts it as a write request of no bytes.
    FlushRequest,
}

impl Op {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Read,
        Self::Write,
        Self::Discard,
        Self::Flush,
        Self::FlushRequest,
    ];

    /// Its name in JSON and in lists of events.
    pub fn key(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Discard => "discard",
            Self::Flush => "flush",
            Self::FlushRequest => "flush_request",
        }
    }
}

/// The flags of an I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// The device must flush its cache before it (`REQ_PREFLUSH`).
    pub flush_before: bool,
    /// It must be durable when it returns (`REQ_FUA`). The kernel sends a flush afterwards to a
    /// device that cannot do that.
    pub fua: bool,
    /// A task waits for it (`REQ_SYNC`).
    pub sync: bool,
    /// The file system marks it as metadata (`REQ_META`).
    pub metadata: bool,
}

/// An index into [`crate::trace::Recording::files`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// An index into [`crate::trace::Recording::tasks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(pub u32);

/// The owner of sectors when they were moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The file system's journal.
    FsJournal,
    /// Other metadata of the file system.
    FsMetadata,
    /// A file.
    File(FileId),
    /// Not known.
    Unknown,
}

/// Sectors of an I/O with one owner and one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// How many sectors of 512 bytes.
    pub sectors: u64,
    /// Their owner.
    pub owner: Owner,
    /// The task that asked; `None` if it asked before the trace began.
    pub task: Option<TaskId>,
}

/// A thread that asked for an I/O. A kernel thread writes back pages later.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Task {
    /// Its number (`gettid`).
    pub tid: u32,
    /// Its process (`getpid`), where the kernel still knew it.
    pub pid: Option<u32>,
    /// Its name (`comm`), at most 15 bytes.
    pub name: String,
}

/// A file that owned sectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its path below the file system's root: the name under which it was first seen.
    pub path: String,
    /// Its purpose.
    pub kind: Kind,
}

/// An I/O that the device completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Io {
    /// The operation.
    pub op: Op,
    /// The time when the block layer got its first part, in nanoseconds of `CLOCK_MONOTONIC`;
    /// `None` if that was before the trace began.
    pub queued_ns: Option<u64>,
    /// The time when the device got it.
    pub issued_ns: Option<u64>,
    /// The time when the device completed it.
    pub completed_ns: u64,
    /// Its first sector of 512 bytes; 0 without data.
    pub sector: u64,
    /// How many sectors; 0 without data.
    pub sectors: u64,
    /// Its flags: those of all its parts together.
    pub asked: Asked,
    /// The kernel's error number; 0 is success.
    pub error: i32,
    /// Its sectors from the first to the last. Without data: one piece of no sectors, to name the task.
    pub pieces: Vec<Piece>,
}

impl Io {
    /// How many bytes it moved.
    pub fn bytes(&self) -> u64 {
        self.sectors * crate::device::SECTOR_BYTES
    }

    /// Nanoseconds from its issue to the device to its completion.
    pub fn device_ns(&self) -> Option<u64> {
        self.issued_ns
            .map(|issued| self.completed_ns.saturating_sub(issued))
    }

    /// Nanoseconds from the block layer to the device.
    pub fn queue_ns(&self) -> Option<u64> {
        Some(self.issued_ns?.saturating_sub(self.queued_ns?))
    }

    /// Nanoseconds from the block layer to its completion.
    pub fn whole_ns(&self) -> Option<u64> {
        self.queued_ns
            .map(|queued| self.completed_ns.saturating_sub(queued))
    }
}
