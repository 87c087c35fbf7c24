//! The requests to every engine: durable transactions on three tables of numbered rows.
//!
//! A key is a number below 2^63; a value is bytes. SQL engines keep each table as `(k INTEGER
//! PRIMARY KEY, v BLOB)`. Key-value engines have keys of 8 bytes, big-endian. There a table is what
//! they call a database, table, column family or keyspace. Every engine has its default settings,
//! except for durability: see [`Setting`].
//!
//! [`crate::worker`] calls this module, in a process that does nothing else.

mod fjall;
mod lmdb;
mod plain;
mod postgres;
mod redb;
mod rocks;
mod sqlite;
mod turso;

use std::path::Path;

use turso::Journal;

/// An error, in the engine's words.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// As [`std::result::Result`].
pub type Result<T> = std::result::Result<T, Error>;

/// The table of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// Rows of one size; an application's messages.
    Row,
    /// An application's conversations.
    Chat,
    /// Messages by time.
    Time,
}

impl Table {
    /// All tables.
    pub const ALL: [Self; 3] = [Self::Row, Self::Chat, Self::Time];

    /// The table's name in an engine.
    pub fn name(self) -> &'static str {
        ["row", "chat", "time"][self as usize]
    }
}

/// A transaction under way.
pub trait Transaction {
    /// The value of a key, if there is one.
    fn get(&mut self, table: Table, key: u64) -> Result<Option<Vec<u8>>>;

    /// Sets the value of a key.
    fn put(&mut self, table: Table, key: u64, value: &[u8]) -> Result<()>;
}

/// The body of a transaction. It runs again if the engine aborts it in favor of another.
pub type Body<'a> = &'a mut dyn FnMut(&mut dyn Transaction) -> Result<()>;

/// Receives each row of a scan.
pub type Each<'a> = &'a mut dyn FnMut(u64, &[u8]) -> Result<()>;

/// The connection of one thread.
pub trait Session {
    /// Executes a transaction. The engine excludes other writers, or detects conflicts with them.
    /// The transaction is durable when this returns, unless the engine is one of those that lose
    /// commits.
    fn write(&mut self, body: Body<'_>) -> Result<()>;

    /// A transaction of one row.
    fn put(&mut self, table: Table, key: u64, value: &[u8]) -> Result<()> {
        self.write(&mut |transaction| transaction.put(table, key, value))
    }

    /// The value of a key, in a snapshot of its own.
    fn get(&mut self, table: Table, key: u64) -> Result<Option<Vec<u8>>>;

    /// At most `limit` rows in the order of keys, from `first` on, in one snapshot.
    fn scan(&mut self, table: Table, first: u64, limit: usize, each: Each<'_>) -> Result<()>;
}

/// Use of resources by the processes of a server.
#[derive(Clone, Copy, Debug, Default)]
pub struct Server {
    /// Processor time until now, in nanoseconds.
    pub cpu_nanos: u64,
    /// Memory now, in KiB. Pages that several processes share count once.
    pub memory_kib: u64,
}

/// An open store.
pub trait Engine: Sync {
    /// Makes a session for a thread. Called on that thread.
    fn session(&self) -> Result<Box<dyn Session + '_>>;

    /// Checks that the store is sound, if the engine can tell: `ok`, or the fault.
    fn check(&self) -> Result<String> {
        Ok("ok".to_owned())
    }

    /// The use of resources by other processes than this one, if the engine is a server.
    fn server(&self) -> Result<Server> {
        Ok(Server::default())
    }
}

/// An engine and its settings.
#[derive(Debug)]
pub struct Setting {
    /// The name in the report.
    pub name: &'static str,
    /// Whether a commit survives a power cut as soon as it has returned.
    pub durable: bool,
    /// The settings, in the engine's words.
    pub settings: &'static str,
    open: Open,
}

#[derive(Clone, Copy, Debug)]
enum Open {
    /// SQLite in this mode of the `onewrite` command.
    Sqlite(&'static str),
    Lmdb,
    Redb,
    RocksDb,
    PlainRocksDb,
    Fjall,
    Turso(Journal),
    Postgres,
}

impl Setting {
    /// Opens the store in `dir`, and creates it if it does not exist.
    pub fn open(&self, dir: &Path) -> Result<Box<dyn Engine>> {
        Ok(match self.open {
            Open::Sqlite(mode) => Box::new(sqlite::Store::open(dir, mode)?),
            Open::Lmdb => Box::new(lmdb::Store::open(dir)?),
            Open::Redb => Box::new(redb::Store::open(dir)?),
            Open::RocksDb => Box::new(rocks::Store::open(dir)?),
            Open::PlainRocksDb => Box::new(plain::Store::open(dir)?),
            Open::Fjall => Box::new(fjall::Store::open(dir)?),
            Open::Turso(journal) => Box::new(turso::Store::open(dir, journal)?),
            Open::Postgres => Box::new(postgres::Store::open(dir)?),
        })
    }

    /// The advice to install the engine, if that is necessary.
    pub fn missing(&self) -> Option<String> {
        match self.open {
            Open::Postgres => postgres::missing(),
            _ => None,
        }
    }

    /// The setting with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|setting| setting.name == name)
    }
}

const fn sqlite(name: &'static str, mode: &'static str, settings: &'static str) -> Setting {
    Setting {
        name,
        durable: true,
        settings,
        open: Open::Sqlite(mode),
    }
}

/// Every engine, in the order of the report.
pub const SETTINGS: &[Setting] = &[
    sqlite(
        "sqlite-delete",
        "delete",
        "journal_mode=delete, synchronous=full",
    ),
    sqlite("sqlite-wal", "wal", "journal_mode=wal, synchronous=full"),
    Setting {
        name: "sqlite-wal-normal",
        durable: false,
        settings: "journal_mode=wal, synchronous=normal",
        open: Open::Sqlite("wal:synchronous=normal"),
    },
    sqlite("direct", "direct", "journal_mode=direct, synchronous=full"),
    sqlite("waldio", "waldio", "journal_mode=waldio, synchronous=full"),
    sqlite(
        "waldio-group",
        "waldio:group_commit=on",
        "journal_mode=waldio, onewrite_group_commit=on, synchronous=full",
    ),
    sqlite("swal", "swal", "journal_mode=swal, synchronous=full"),
    sqlite(
        "onewrite",
        "onewrite",
        "journal_mode=onewrite, synchronous=full",
    ),
    sqlite(
        "lsmvbt",
        "lsmvbt:torn=double",
        "SQLite on LS-MVBT, lsmvbt_torn=double, synchronous=full",
    ),
    sqlite(
        "lsmvbt-trust",
        "lsmvbt:torn=trust",
        "the same with lsmvbt_torn=trust: for devices that never tear a page",
    ),
    Setting {
        name: "lmdb",
        durable: true,
        settings: "no flags; map of 4 GiB",
        open: Open::Lmdb,
    },
    Setting {
        name: "redb",
        durable: true,
        settings: "Durability::Immediate",
        open: Open::Redb,
    },
    Setting {
        name: "rocksdb",
        durable: true,
        settings: "TransactionDB, WriteOptions::sync",
        open: Open::RocksDb,
    },
    Setting {
        name: "rocksdb-plain",
        durable: true,
        settings: "DB, WriteOptions::sync; transactions of several rows under a lock",
        open: Open::PlainRocksDb,
    },
    Setting {
        name: "fjall",
        durable: true,
        settings: "SingleWriterTxDatabase, PersistMode::SyncData",
        open: Open::Fjall,
    },
    Setting {
        name: "turso",
        durable: true,
        settings: "its WAL, synchronous=full",
        open: Open::Turso(Journal::Wal),
    },
    Setting {
        name: "turso-mvcc",
        durable: true,
        settings: "journal_mode=mvcc, BEGIN CONCURRENT, synchronous=full",
        open: Open::Turso(Journal::Mvcc),
    },
    Setting {
        name: "postgres",
        durable: true,
        settings: "a server's defaults: synchronous_commit=on, READ COMMITTED, FOR UPDATE",
        open: Open::Postgres,
    },
];

/// The number of a key of 8 bytes.
fn number(key: &[u8]) -> Result<u64> {
    let key = key.try_into();
    Ok(u64::from_be_bytes(
        key.map_err(|_| "a key has not 8 bytes")?,
    ))
}

#[cfg(test)]
mod tests;
