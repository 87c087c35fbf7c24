//! fjall: a log-structured merge tree, here with one writer at a time.

use std::path::Path;

use fjall::{
    KeyspaceCreateOptions, PersistMode, Readable, SingleWriterTxDatabase, SingleWriterTxKeyspace,
    SingleWriterWriteTx,
};

use super::{Body, Each, Engine, Result, Session, Table, Transaction, number};

/// A store.
pub struct Store {
    database: SingleWriterTxDatabase,
    tables: Vec<SingleWriterTxKeyspace>,
}

impl Store {
    /// Opens the store in `dir`.
    pub fn open(dir: &Path) -> Result<Self> {
        let database = SingleWriterTxDatabase::builder(dir.join("fjall")).open()?;
        let tables = Table::ALL
            .iter()
            .map(|table| database.keyspace(table.name(), KeyspaceCreateOptions::default))
            .collect::<fjall::Result<_>>()?;
        Ok(Self { database, tables })
    }
}

impl Engine for Store {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Seat(self)))
    }
}

/// A thread's session: fjall keeps all other state itself.
struct Seat<'a>(&'a Store);

struct Open<'a> {
    transaction: SingleWriterWriteTx<'a>,
    tables: &'a [SingleWriterTxKeyspace],
}

impl Transaction for Open<'_> {
    fn get(&mut self, table: Table, key: u64) -> Result<Option<Vec<u8>>> {
        let table = &self.tables[table as usize];
        let value = self.transaction.get(table, key.to_be_bytes())?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn put(&mut self, table: Table, key: u64, value: &[u8]) -> Result<()> {
        let table = &self.tables[table as usize];
        self.transaction.insert(table, key.to_be_bytes(), value);
        Ok(())
    }
}

impl Session for Seat<'_> {
    fn write(&mut self, body: Body<'_>) -> Result<()> {
        let transaction = self.0.database.write_tx();
        let mut open = Open {
            transaction: transaction.durability(Some(PersistMode::SyncData)),
            tables: &self.0.tables,
        };
        body(&mut open)?;
        Ok(open.transaction.commit()?)
    }

    fn get(&mut self, table: Table, key: u64) -> Result<Option<Vec<u8>>> {
        let value = self.0.tables[table as usize].get(key.to_be_bytes())?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn scan(&mut self, table: Table, first: u64, limit: usize, each: Each<'_>) -> Result<()> {
        let snapshot = self.0.database.read_tx();
        let rows = snapshot.range(&self.0.tables[table as usize], first.to_be_bytes()..);
        for row in rows.take(limit) {
            let (key, value) = row.into_inner()?;
            each(number(&key)?, &value)?;
        }
        Ok(())
    }
}
