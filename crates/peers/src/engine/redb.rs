//! redb: a copy-on-write B+tree in a file, one writer at a time.

use std::path::Path;

use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};

use super::{Body, Each, Engine, Result, Session, Table, Transaction};

/// A database file.
pub struct Store(Database);

fn definition(table: Table) -> TableDefinition<'static, u64, &'static [u8]> {
    TableDefinition::new(table.name())
}

impl Store {
    /// Opens `dir/redb`.
    pub fn open(dir: &Path) -> Result<Self> {
        let database = Database::create(dir.join("redb"))?;
        let transaction = database.begin_write()?;
        for table in Table::ALL {
            transaction.open_table(definition(table))?;
        }
        transaction.commit()?;
        Ok(Self(database))
    }
}

impl Engine for Store {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Seat(&self.0)))
    }
}

/// A thread's session: redb keeps all other state itself.
struct Seat<'a>(&'a Database);

/// The tables are open for the whole transaction.
struct Open<'a>([redb::Table<'a, u64, &'static [u8]>; 3]);

impl Transaction for Open<'_> {
    fn get(&mut self, table: Table, key: u64) -> Result<Option<Vec<u8>>> {
        let value = self.0[table as usize].get(key)?;
        Ok(value.map(|value| value.value().to_vec()))
    }

    fn put(&mut self, table: Table, key: u64, value: &[u8]) -> Result<()> {
        self.0[table as usize].insert(key, value)?;
        Ok(())
    }
}

impl Session for Seat<'_> {
    fn write(&mut self, body: Body<'_>) -> Result<()> {
        let mut transaction = self.0.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        let [row, chat, time] = Table::ALL.map(|table| transaction.open_table(definition(table)));
        let mut open = Open([row?, chat?, time?]);
        body(&mut open)?;
        drop(open);
        Ok(transaction.commit()?)
    }

    fn put(&mut self, table: Table, key: u64, value: &[u8]) -> Result<()> {
        let mut transaction = self.0.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        transaction
            .open_table(definition(table))?
            .insert(key, value)?;
        Ok(transaction.commit()?)
    }

    fn get(&mut self, table: Table, key: u64) -> Result<Option<Vec<u8>>> {
        let rows = self.0.begin_read()?.open_table(definition(table))?;
        Ok(rows.get(key)?.map(|value| value.value().to_vec()))
    }

    fn scan(&mut self, table: Table, first: u64, limit: usize, each: Each<'_>) -> Result<()> {
        let rows = self.0.begin_read()?.open_table(definition(table))?;
        for row in rows.range(first..)?.take(limit) {
            let (key, value) = row?;
            each(key.value(), value.value())?;
        }
        Ok(())
    }
}
