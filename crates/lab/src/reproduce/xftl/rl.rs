//! RL Benchmark: SQLite, the Android application by RedLicense Labs that the paper traced.
//!
//! Its tests are those of SQLite's own old speed comparison:
//!
//! - 1,000 inserts, each a transaction; 25,000 inserts in one; 25,000 into an indexed table;
//! - selects without an index; an index is made; 5,000 selects by it;
//! - 1,000 updates of ranges; 25,000 updates by the index;
//! - inserts from a select; deletions without and with an index; the tables are dropped.
//!
//! The order and the numbers are from memory, because no source of the application was available.
//! The content of a row is this project's choice. The trace itself was never published.

use onewrite_flash::random::Random;
use onewrite_workload::databases::Databases;
use rusqlite::Connection;

use super::cycles::{Logs, copy};
use super::test_device::TestDevice;
use super::trial::{Measured, set_cache, settings};

const SCHEMA: &str = "CREATE TABLE t1 (a INTEGER, b INTEGER, c TEXT);
    CREATE TABLE t2 (a INTEGER, b INTEGER, c TEXT);
    CREATE TABLE t3 (a INTEGER, b INTEGER, c TEXT);
    CREATE INDEX i3 ON t3 (c);";

/// Rows that are inserted one by one, and updates of ranges.
const SINGLE: u32 = 1_000;
/// Rows that are inserted and updated in one transaction.
const MANY: u32 = 25_000;

fn insert(
    connection: &Connection,
    table: &str,
    rows: u32,
    random: &mut Random,
) -> rusqlite::Result<()> {
    let mut insert = connection.prepare(&format!("INSERT INTO {table} VALUES (?1, ?2, ?3)"))?;
    for row in 0..rows {
        let number = random.below(100_000) as i64;
        insert.execute((row, number, format!("the number is {number:06}")))?;
    }
    Ok(())
}

fn together(
    connection: &Connection,
    what: impl FnOnce() -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    connection.execute_batch("BEGIN")?;
    what()?;
    connection.execute_batch("COMMIT")
}

/// Runs all statements; returns the number of transactions.
fn statements(connection: &Connection, random: &mut Random) -> rusqlite::Result<u32> {
    connection.execute_batch(SCHEMA)?;
    insert(connection, "t1", SINGLE, random)?;
    together(connection, || insert(connection, "t2", MANY, random))?;
    together(connection, || insert(connection, "t3", MANY, random))?;
    connection.execute_batch("CREATE INDEX i2a ON t2 (a); CREATE INDEX i2b ON t2 (b)")?;
    let mut select =
        connection.prepare("SELECT count(*), avg(b) FROM t2 WHERE b >= ?1 AND b < ?1 + 100")?;
    for number in 0..100 {
        let _: i64 = select.query_row([number * 100], |row| row.get(0))?;
    }
    for number in 0..SINGLE {
        connection.execute(
            "UPDATE t1 SET b = b * 2 WHERE a >= ?1 AND a < ?1 + 10",
            [number],
        )?;
    }
    together(connection, || {
        let mut update = connection.prepare("UPDATE t2 SET b = ?2 WHERE a = ?1")?;
        (0..MANY).try_for_each(|row| {
            update
                .execute((row, random.below(100_000) as i64))
                .map(drop)
        })
    })?;
    together(connection, || {
        connection.execute_batch("INSERT INTO t1 SELECT b, a, c FROM t2; INSERT INTO t2 SELECT b, a, c FROM t1 LIMIT 5000")
    })?;
    connection.execute_batch(
        "DELETE FROM t2 WHERE c LIKE '%50%'; DELETE FROM t2 WHERE a > 10 AND a < 20000;
         DROP TABLE t1; DROP TABLE t2; DROP TABLE t3",
    )?;
    // In order: the tables and the index; the inserts; two times many; two indexes; updates; two
    // more; two deletions; three tables.
    Ok(4 + SINGLE + 2 + 2 + SINGLE + 2 + 2 + 3)
}

/// Runs it on an empty database.
pub fn run(
    device: &mut TestDevice,
    journal: &str,
    seed: u64,
    cache_mib: u32,
) -> Result<Measured, String> {
    let text = |error: onewrite_workload::Error| error.to_string();
    let path = device.root().join("test.db");
    let databases = Databases::open(&settings(journal)?, &path, 1).map_err(text)?;
    set_cache(&databases, 1, cache_mib)?;
    let logs = Logs::begin(journal, &path, 1, &databases)?;
    let before = device.report()?;
    let count = statements(databases.first(), &mut Random::new(seed))
        .map_err(|error| format!("RL Benchmark: {error}"))?;
    logs.iter().try_for_each(|_| copy(&databases))?;
    let after = device.report()?;
    let checkpoints = logs.map(|logs| logs.checkpoints()).transpose()?;
    databases.close().map_err(text)?;
    Ok(Measured {
        before,
        after,
        count,
        checkpoints,
        fio: None,
    })
}
