//! A multi-version B-tree with lazy split (LS-MVBT): an embedded key-value store of many trees.
//! Every version is a snapshot. A commit takes one flush and no journal.
//!
//! Every entry carries the versions `[start, end)` in which it is alive. A change ends an entry and
//! adds another one in the same page, so that the pages themselves hold the data for recovery. A
//! typical insert writes one page and flushes once. `docs/lsmvbt.md` has the design and the file to
//! the byte.
//!
//! ```
//! use lsmvbt::{Db, Durability, MemoryFile, Options, TreeKind};
//!
//! # fn main() -> lsmvbt::Result<()> {
//! let file = MemoryFile::new();
//! let mut db = Db::open(file.storage(), Options::default())?;
//! db.begin_write()?;
//! let tree = db.create_tree(TreeKind::Bytes)?;
//! db.put(tree, b"key", b"old")?;
//! db.commit(Durability::Flush)?;
//!
//! let before = db.snapshot()?;
//! db.begin_write()?;
//! db.put(tree, b"key", b"new")?;
//! db.commit(Durability::Flush)?;
//! assert_eq!(db.get(before.version(), tree, b"key")?.as_deref(), Some(&b"old"[..]));
//! let now = db.snapshot()?;
//! assert_eq!(db.get(now.version(), tree, b"key")?.as_deref(), Some(&b"new"[..]));
//! # Ok(())
//! # }
//! ```
//!
//! The engine knows nothing of SQLite. It reaches the outside only through [`Storage`]. There is no
//! global state. Unsafe code only maps shared memory, and gives hints to the processor.

mod again;
mod cache;
mod close;
mod commit;
mod core;
mod cursor;
mod db;
mod double;
mod error;
mod found;
mod freemap;
mod give_back;
mod grow;
mod header;
mod heads;
mod heal;
mod history;
mod home;
mod late;
mod lost;
mod make;
mod marks;
mod page;
mod payloads;
mod prefetch;
mod reached;
mod readers;
mod records;
mod recover;
mod regions;
mod room;
mod rounds;
mod same_file;
mod shared;
mod slots;
mod snapshot;
mod space;
mod stays;
mod storage;
mod time;
mod tree;
mod turns;
mod txn;
mod types;
mod unflushed;
mod unowned;
mod vacuum;

pub use cursor::{Cursor, READABLE_BEHIND, Seek};
pub use db::Db;
pub use error::{Error, Result};
pub use header::MAGIC;
pub use payloads::{Abbreviation, Around, Found, Payloads, Sought, Span};
pub use snapshot::Snapshot;
pub use storage::{
    AtomicWrites, Caching, Device, DirectFile, Facts, Lock, LockMode, MemoryFile, PowerCut,
    READERS, Storage, Writes, writes_in_place,
};
pub use time::seconds_of;
pub use types::{
    Change, ChangeKind, Durability, Held, Optimizations, Options, PAGE_SIZE, PageNo, Stats, Status,
    Torn, TreeId, TreeKind, Vacuumed, Version,
};
pub use vacuum::Vacuum;
