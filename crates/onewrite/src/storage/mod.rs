//! Block I/O under the log: aligned buffers, direct files, preallocation, capability probe.
//!
//! It guarantees:
//!
//! - A [`LogFile`] is one open log. A write that returns with [`Durability::WriteThrough`] survives
//!   a power cut, as far as the file system and the device keep their word. After an error that
//!   could have left part of a write behind, nothing is retried.
//! - Bytes below [`LogFile::size`] are allocated. They read back as what was written or as zeros,
//!   never as earlier content of the device ([`LogFile::initialize`]).
//! - Where direct I/O is refused or not real, the same calls use the page cache, and
//!   [`Capabilities`] gives the reason.
//! - Every error names the file, the operation and the offset ([`StorageError`]).
//!
//! It knows nothing of SQLite, frames or transactions. The log layer calls it, with log files only.
//! Opening and closing a database file or its `-shm` in this process would drop all POSIX locks
//! held on it. A `Description` is the exception: it holds SQLite's locks for `vfs::locks`.

mod aligned;
mod atomic;
mod blocks;
mod capabilities;
mod counters;
mod description;
mod device;
mod error;
mod file;
mod holders;
mod initialize;
mod kept;
mod lock;
#[doc(hidden)]
pub mod observer;
mod open;
pub mod pace;
mod probe;
mod reserve;
mod shared;
mod slots;
mod sys;

pub use crate::waits::{MOMENT, Patience, Short, try_within};
pub use aligned::{AlignedBuf, BUFFER_ALIGN};
pub use atomic::{AtomicWrites, Descriptor, atomic_writes};
pub use blocks::{Move, Remap, is_refusal};
pub use capabilities::{Capabilities, DirectAlign, DurableWrite, IN_MEMORY, VOLATILE};
pub use counters::{IoCounters, IoCounts};
pub(crate) use description::{Description, close_in_child, open_descriptors, own_locks};
pub use device::WriteCache;
pub use error::{Operation, StorageError, is_denial};
pub use file::{Durability, LogFile};
pub use holders::{Holder, lock_holders, openers};
pub use initialize::{Init, ParseInitError, most_bytes_of_a_file};
pub use kept::close_kept_databases;
pub(crate) use kept::kept_database;
pub use lock::{LockByte, LockKind, is_byte_locked, is_present, lock_path};
pub use open::{
    Access, Create, DirectIo, NewFile, make_blocks, make_in_place, remove_file, sync_directory,
};
pub use probe::NO_BARRIERS;
pub use reserve::Reserve;
pub use shared::{SharedPage, SharedWords};
pub use slots::{Make, PageWord, SharedSlots, SlotHeader, SlotLayout};
pub(crate) use sys::{OfdCommand, OfdConflict, OfdRange, OfdType, descriptor as descriptor_of};
pub(crate) use sys::{has_raised_privileges, process_number, without_signals};
