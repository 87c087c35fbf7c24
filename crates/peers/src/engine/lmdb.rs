//! LMDB, through `heed`: a copy-on-write B+tree in a memory map, one writer at a time.

use std::path::Path;

use heed::byteorder::BigEndian;
use heed::types::{Bytes, U64};
use heed::{Database, Env, EnvOpenOptions, RwTxn};

use super::{Body, Each, Engine, Result, Session, Table, Transaction};

/// The most that a store may hold, in bytes.
const MAP_BYTES: usize = 4 << 30;

type Rows = Database<U64<BigEndian>, Bytes>;

/// An environment.
pub struct Store {
    env: Env,
    tables: Vec<Rows>,
}

impl Store {
    /// Opens the environment in `dir`.
    pub fn open(dir: &Path) -> Result<Self> {
        let mut options = EnvOpenOptions::new();
        options.map_size(MAP_BYTES).max_dbs(3);
        // SAFETY: only this benchmark uses the directory, and this process opens the files once.
        // Nobody changes the map behind LMDB's back.
        #[allow(unsafe_code)]
        let env = unsafe { options.open(dir) }?;
        let mut transaction = env.write_txn()?;
        let tables = Table::ALL.map(|table| {
            let name = Some(table.name());
            env.create_database(&mut transaction, name)
        });
        let tables = tables.into_iter().collect::<std::result::Result<_, _>>()?;
        transaction.commit()?;
        Ok(Self { env, tables })
    }
}

impl Engine for Store {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Seat(self)))
    }
}

/// A thread's session: LMDB keeps all other state itself.
struct Seat<'a>(&'a Store);

struct Open<'a> {
    transaction: RwTxn<'a>,
    tables: &'a [Rows],
}

impl Transaction for Open<'_> {
    fn get(&mut self, table: Table, key: u64) -> Result<Option<Vec<u8>>> {
        let value = self.tables[table as usize].get(&self.transaction, &key)?;
        Ok(value.map(<[u8]>::to_vec))
    }

    fn put(&mut self, table: Table, key: u64, value: &[u8]) -> Result<()> {
        Ok(self.tables[table as usize].put(&mut self.transaction, &key, value)?)
    }
}

impl Session for Seat<'_> {
    fn write(&mut self, body: Body<'_>) -> Result<()> {
        let mut open = Open {
            transaction: self.0.env.write_txn()?,
            tables: &self.0.tables,
        };
        body(&mut open)?;
        Ok(open.transaction.commit()?)
    }

    fn get(&mut self, table: Table, key: u64) -> Result<Option<Vec<u8>>> {
        let transaction = self.0.env.read_txn()?;
        let value = self.0.tables[table as usize].get(&transaction, &key)?;
        Ok(value.map(<[u8]>::to_vec))
    }

    fn scan(&mut self, table: Table, first: u64, limit: usize, each: Each<'_>) -> Result<()> {
        let transaction = self.0.env.read_txn()?;
        let rows = self.0.tables[table as usize].range(&transaction, &(first..))?;
        for row in rows.take(limit) {
            let (key, value) = row?;
            each(key, value)?;
        }
        Ok(())
    }
}
