//! RocksDB: a log-structured merge tree. `TransactionDB` locks the keys that a transaction changes.
//! So transactions on different rows commit at the same time and share the log's flush. A plain `DB` has
//! no transactions, only batches of writes: see [`super::plain`].

use std::path::Path;

use rocksdb::{
    AsColumnFamilyRef, ColumnFamilyDescriptor, DBAccess, DBCompressionType,
    DBRawIteratorWithThreadMode, ErrorKind, Options, TransactionDB, TransactionDBOptions,
    TransactionOptions, WriteOptions,
};

use super::{Body, Each, Engine, Result, Session, Table, Transaction, number};

/// The options of a store.
pub fn options() -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options
}

/// Its column families, one for each table.
pub fn families() -> [ColumnFamilyDescriptor; 3] {
    Table::ALL.map(|table| {
        let mut options = Options::default();
        // The same as fjall's. RocksDB's default is Snappy, if it is built in.
        options.set_compression_type(DBCompressionType::Lz4);
        ColumnFamilyDescriptor::new(table.name(), options)
    })
}

/// How a commit is written, so that it is durable when the call returns.
pub fn durable() -> WriteOptions {
    let mut durable = WriteOptions::default();
    durable.set_sync(true);
    durable
}

/// The rows of a scan.
pub fn rows<D: DBAccess>(
    mut rows: DBRawIteratorWithThreadMode<'_, D>,
    first: u64,
    limit: usize,
    each: Each<'_>,
) -> Result<()> {
    rows.seek(first.to_be_bytes());
    for _ in 0..limit {
        let Some((key, value)) = rows.item() else {
            break;
        };
        each(number(key)?, value)?;
        rows.next();
    }
    Ok(rows.status()?)
}

/// A store.
pub struct Store(TransactionDB);

impl Store {
    /// Opens the store in `dir`.
    pub fn open(dir: &Path) -> Result<Self> {
        let transactions = TransactionDBOptions::default();
        let store = TransactionDB::open_cf_descriptors(&options(), &transactions, dir, families())?;
        Ok(Self(store))
    }

    fn family(&self, table: Table) -> Result<impl AsColumnFamilyRef + '_> {
        let family = self.0.cf_handle(table.name());
        Ok(family.ok_or("a column family is missing")?)
    }
}

impl Engine for Store {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Seat {
            store: self,
            durable: durable(),
        }))
    }
}

struct Seat<'a> {
    store: &'a Store,
    durable: WriteOptions,
}

struct Open<'a> {
    store: &'a Store,
    transaction: rocksdb::Transaction<'a, TransactionDB>,
}

impl Transaction for Open<'_> {
    fn get(&mut self, table: Table, key: u64) -> Result<Option<Vec<u8>>> {
        let family = self.store.family(table)?;
        let exclusive = true;
        let value = self
            .transaction
            .get_for_update_cf(&family, key.to_be_bytes(), exclusive)?;
        Ok(value)
    }

    fn put(&mut self, table: Table, key: u64, value: &[u8]) -> Result<()> {
        let family = self.store.family(table)?;
        Ok(self.transaction.put_cf(&family, key.to_be_bytes(), value)?)
    }
}

/// Whether another transaction held the row for too long.
fn conflict(error: &super::Error) -> bool {
    let error = error.downcast_ref::<rocksdb::Error>();
    error.is_some_and(|error| {
        matches!(
            error.kind(),
            ErrorKind::Busy | ErrorKind::TimedOut | ErrorKind::TryAgain
        )
    })
}

impl Session for Seat<'_> {
    fn write(&mut self, body: Body<'_>) -> Result<()> {
        loop {
            let options = TransactionOptions::default();
            let mut open = Open {
                store: self.store,
                transaction: self.store.0.transaction_opt(&self.durable, &options),
            };
            let done = body(&mut open).and_then(|()| Ok(open.transaction.commit()?));
            match done {
                Err(error) if conflict(&error) => {}
                other => return other,
            }
        }
    }

    fn put(&mut self, table: Table, key: u64, value: &[u8]) -> Result<()> {
        let family = self.store.family(table)?;
        let (store, key) = (&self.store.0, key.to_be_bytes());
        Ok(store.put_cf_opt(&family, key, value, &self.durable)?)
    }

    fn get(&mut self, table: Table, key: u64) -> Result<Option<Vec<u8>>> {
        let family = self.store.family(table)?;
        Ok(self.store.0.get_cf(&family, key.to_be_bytes())?)
    }

    fn scan(&mut self, table: Table, first: u64, limit: usize, each: Each<'_>) -> Result<()> {
        let family = self.store.family(table)?;
        rows(self.store.0.raw_iterator_cf(&family), first, limit, each)
    }
}
