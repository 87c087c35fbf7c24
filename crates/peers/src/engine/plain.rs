//! RocksDB without transactions. A row is written without a lock, and such writes share the log's flush.
//! A transaction of several rows is a batch of writes. A lock of the application excludes other
//! writers, so it does not share a flush.

use std::path::Path;
use std::sync::Mutex;

use rocksdb::{AsColumnFamilyRef, DB, WriteBatch, WriteOptions};

use super::rocks::{durable, families, options, rows};
use super::{Body, Each, Engine, Result, Session, Table, Transaction};

/// A store.
pub struct Store {
    store: DB,
    /// Held by the one transaction that is under way.
    writer: Mutex<()>,
}

impl Store {
    /// Opens the store in `dir`.
    pub fn open(dir: &Path) -> Result<Self> {
        Ok(Self {
            store: DB::open_cf_descriptors(&options(), dir, families())?,
            writer: Mutex::new(()),
        })
    }

    fn family(&self, table: Table) -> Result<impl AsColumnFamilyRef + '_> {
        let family = self.store.cf_handle(table.name());
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

/// The transaction under way. It reads its own writes.
struct Open<'a> {
    store: &'a Store,
    written: Vec<(Table, u64, Vec<u8>)>,
}

impl Open<'_> {
    fn batch(self) -> Result<WriteBatch> {
        let mut batch = WriteBatch::default();
        for (table, key, value) in self.written {
            batch.put_cf(&self.store.family(table)?, key.to_be_bytes(), value);
        }
        Ok(batch)
    }
}

impl Transaction for Open<'_> {
    fn get(&mut self, table: Table, key: u64) -> Result<Option<Vec<u8>>> {
        let mut own = self.written.iter().rev();
        let own = own.find(|row| (row.0, row.1) == (table, key));
        if let Some((_, _, value)) = own {
            return Ok(Some(value.clone()));
        }
        let family = self.store.family(table)?;
        Ok(self.store.store.get_cf(&family, key.to_be_bytes())?)
    }

    fn put(&mut self, table: Table, key: u64, value: &[u8]) -> Result<()> {
        self.written.push((table, key, value.to_vec()));
        Ok(())
    }
}

impl Session for Seat<'_> {
    fn write(&mut self, body: Body<'_>) -> Result<()> {
        let _alone = self.store.writer.lock().map_err(|_| "a writer panicked")?;
        let mut open = Open {
            store: self.store,
            written: Vec::new(),
        };
        body(&mut open)?;
        Ok(self.store.store.write_opt(open.batch()?, &self.durable)?)
    }

    fn put(&mut self, table: Table, key: u64, value: &[u8]) -> Result<()> {
        let family = self.store.family(table)?;
        let (store, key) = (&self.store.store, key.to_be_bytes());
        Ok(store.put_cf_opt(&family, key, value, &self.durable)?)
    }

    fn get(&mut self, table: Table, key: u64) -> Result<Option<Vec<u8>>> {
        let family = self.store.family(table)?;
        Ok(self.store.store.get_cf(&family, key.to_be_bytes())?)
    }

    fn scan(&mut self, table: Table, first: u64, limit: usize, each: Each<'_>) -> Result<()> {
        let family = self.store.family(table)?;
        rows(
            self.store.store.raw_iterator_cf(&family),
            first,
            limit,
            each,
        )
    }
}
