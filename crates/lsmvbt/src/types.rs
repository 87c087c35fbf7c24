//! Numbers with a meaning, and the options of a handle.

use std::time::Duration;

/// Bytes of a page.
pub const PAGE_SIZE: usize = 4096;

/// A page of the file: byte offset divided by [`PAGE_SIZE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PageNo(pub u32);

impl PageNo {
    /// Byte offset of the page in the file.
    pub fn offset(self) -> u64 {
        u64::from(self.0) * PAGE_SIZE as u64
    }
}

/// A version of the whole database. Every write transaction makes one. Numbers only grow and are
/// never used twice, but some may be skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Version(pub u64);

/// A tree of the database, by its logical number (1 and up), which never changes while the tree
/// exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeId(pub u32);

/// How a tree orders its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeKind {
    /// Keys are 64-bit integers; the payload is the value.
    Integer,
    /// Keys are bytes in the order of `memcmp`; values are bytes.
    Bytes,
    /// Keys are bytes that only the caller can compare (SQLite's index records). The payload is the
    /// key.
    Custom,
}

/// The event that a commit waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// One flush: when the call returns, a power cut cannot undo the commit.
    #[default]
    Flush,
    /// No flush, unless [`Options::later`] is over. A power cut may undo the newest commits. It
    /// never undoes a part of one, and never an older one without the newer ones. The death of
    /// processes undoes none. With [`Torn::Double`] the same as `Flush`.
    Later,
}

/// The effect that a power cut may have on a single 4 KiB write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Torn {
    /// Ask the storage: [`Torn::Trust`] if it promises 4 KiB, else [`Torn::Double`].
    #[default]
    Auto,
    /// A 4 KiB write is all or nothing. One page written per page changed.
    Trust,
    /// It may be torn: pages are written to a slot and flushed before they are written in place.
    /// At most twice the pages, and a head for each slot; still one flush.
    Double,
}

/// The five optimizations of LS-MVBT. All are on by default. A database may be opened with any of
/// them off, at any time, to measure its effect. All off is the multi-version B-tree that came
/// before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Optimizations {
    /// Lazy split: only the upper half of a full node moves, to one new node.
    pub lazy_split: bool,
    /// Reserved buffer space: percent of a node that only a lazily split node may fill (0 to 40).
    pub reserve_percent: u8,
    /// Lazy garbage collection: dead entries go when their node is changed anyway and needs the
    /// space. Off: a pass collects them every few commits, in pages that would otherwise be clean.
    pub lazy_gc: bool,
    /// Metadata embedding: the commit's version stands in the pages it changed. Off: every commit
    /// also writes the header.
    pub metadata_embedding: bool,
    /// No sibling redistribution: a split never touches the siblings.
    pub no_redistribution: bool,
}

impl Default for Optimizations {
    fn default() -> Self {
        Optimizations {
            lazy_split: true,
            reserve_percent: 10,
            lazy_gc: true,
            metadata_embedding: true,
            no_redistribution: true,
        }
    }
}

impl Optimizations {
    /// None of the five: legacy MVBT.
    pub fn none() -> Self {
        Optimizations {
            lazy_split: false,
            reserve_percent: 0,
            lazy_gc: false,
            metadata_embedding: false,
            no_redistribution: false,
        }
    }
}

/// The options of a handle. None of them is stored in the file.
#[derive(Clone, Debug)]
pub struct Options {
    /// The effect that a power cut may have on one page write. The first handle's value holds for
    /// all that come while it is open; [`crate::Db::set_torn`] changes it.
    pub torn: Torn,
    /// The five switches.
    pub optimizations: Optimizations,
    /// Pages kept in memory, clean and dirty ones together. Beyond it, clean pages are dropped, and
    /// dirty ones are written before their transaction commits (spilled).
    pub cache_pages: usize,
    /// Pages at most that recovery must read, unless one transaction wrote more: by default an eighth of
    /// those that SQLite's log has when it is full. Of a file with no more pages, soon all are marked, and a commit
    /// costs its own pages. In a larger one, a commit whose pages are anywhere writes a page of the header as
    /// well, unless its page may be late ([`Options::late_after`]).
    pub recovery_pages: u32,
    /// In a file of at most so many pages the first transaction after a crash finds all pages that nothing
    /// leads to any more. In a larger one, each transaction looks at some pages.
    pub heal_at_once: u32,
    /// So many commits in a row that changed one leaf each must come before the first one that leaves
    /// its leaf *late*: it writes the page that the commit before has changed, and that page carries its
    /// change. So it costs no page of the header, wherever in the file its row is. `u32::MAX`: none does,
    /// and with [`Torn::Double`] no page stays in its slot.
    /// Any commit of another kind brings the late page home, which costs a flush.
    pub late_after: u32,
    /// A commit flushes at least this long after the first one of [`Durability::Later`] that no flush
    /// has followed. So a power cut takes back no more than this time of a handle that goes on
    /// committing.
    pub later: Duration,
    /// With [`Torn::Double`], the new pages of a transaction are written in place before its commit, and need no
    /// slot: for a copy or an import, whose slots would else be larger than its content. It costs three
    /// flushes more where there are more new pages than the smallest slot has.
    pub new_in_place: bool,
    /// No writing at all; opening a database that must be recovered, or that is not there, fails with
    /// [`crate::Error::NeedsRecovery`]. Handles that write leave a clean file when they close next
    /// to this one.
    pub read_only: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            torn: Torn::Auto,
            optimizations: Optimizations::default(),
            cache_pages: 2000,
            recovery_pages: 128,
            heal_at_once: 4096,
            late_after: 8,
            later: Duration::from_secs(1),
            new_in_place: false,
            read_only: false,
        }
    }
}

/// The work of a handle since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Transactions committed.
    pub commits: u64,
    /// Commits that wrote one page, reached by the changes that pages carry: see [`Options::late_after`].
    pub late_commits: u64,
    /// Pages of commits written in place.
    pub pages_written: u64,
    /// Pages written to the slots of [`Torn::Double`], their heads included. An image may stand in a head.
    pub slot_pages_written: u64,
    /// Pages of zeros written behind those by which commits have made the file longer.
    pub zero_pages_written: u64,
    /// Header and free-map pages written.
    pub header_pages_written: u64,
    /// Dirty pages written before their commit.
    pub spilled: u64,
    /// Flushes.
    pub flushes: u64,
    /// Pages read from the storage.
    pub pages_read: u64,
    /// Splits in which only the upper half moved.
    pub lazy_splits: u64,
    /// Splits in which nothing moved, because the new entry was the last one.
    pub append_splits: u64,
    /// Splits in which every live entry was copied.
    pub legacy_splits: u64,
    /// Dead entries collected.
    pub collected: u64,
    /// Dead entries that a full node could not drop, because a reader, or the history, still sees
    /// them. They are the cost of long readers.
    pub kept_for_readers: u64,
    /// Pages in memory that were copied before a change, because something else holds them: the
    /// cache, a savepoint, a cursor.
    pub copied: u64,
    /// Version reached by this handle's newest commit.
    pub last_commit: u64,
}

/// The state of the database, for `status` commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The newest version.
    pub current: Version,
    /// The newest version known to survive a power cut.
    pub durable: Version,
    /// The oldest version that can be read by [`crate::Db::snapshot_at`].
    pub oldest: Version,
    /// The oldest version that a reader (of any process) is reading, if there is one.
    pub oldest_reader: Option<Version>,
    /// Pages in the file in use or free: the high-water mark.
    pub pages: u32,
    /// Free pages among them.
    pub free_pages: u32,
    /// Regions that recovery would read now.
    pub marked_regions: u32,
    /// Versions that are kept for time travel; 0 if their number does not count.
    pub history: u64,
    /// Seconds whose versions are kept for time travel; 0 if time does not count.
    pub history_seconds: u32,
    /// True for [`Torn::Double`].
    pub double: bool,
}

/// A row that differs between two versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The row's key.
    pub key: i64,
    /// Its change from the first version to the second.
    pub kind: ChangeKind,
}

/// The change of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// Only the second version has it.
    Insert,
    /// Both have it, with different values.
    Update,
    /// Only the first version has it.
    Delete,
}

/// The result of a vacuum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vacuumed {
    /// Pages by which the file is shorter.
    pub given_back: u32,
    /// Earlier versions are kept, so that no page was moved: only what was free at the end of the file
    /// was given back.
    pub held: Option<Held>,
}

/// The reason why earlier versions are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// The history: see [`crate::Db::set_history`].
    History,
    /// A reader, of any process, of this version or a later one.
    Reader(Version),
}
