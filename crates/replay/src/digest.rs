//! The content of a database as one number that does not depend on the file's layout.
//!
//! It covers the schema's texts and the rows of every table, with tables in the order of their
//! names and rows in no order. Of virtual tables it covers only their ordinary tables.

use std::path::Path;

use onewrite_record::event::{DONE, ROW};
use onewrite_record::rows::Rows;

use crate::sqlite::{Connection, Failure};

/// The digest of a database that no other program has open. Opening recovers a log next to it, as
/// any program would. So use this for a copy, or for a database of the caller.
///
/// # Errors
/// SQLite's, and where `integrity_check` reports a problem.
pub fn of_file(path: &Path) -> Result<u64, String> {
    let name = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
    let read_write = 2;
    let connection =
        Connection::open(name, read_write, "unix").map_err(|error| error.to_string())?;
    of(&connection).map_err(|error| error.to_string())
}

fn of(connection: &Connection) -> Result<u64, Failure> {
    connection.ask("PRAGMA writable_schema=0")?;
    let check = connection.ask("PRAGMA quick_check(1)")?;
    if let Some(problem) = check.filter(|found| found != "ok") {
        return Err(Failure {
            code: 11,
            message: problem,
        });
    }
    let schema = "SELECT type, name, tbl_name, sql FROM sqlite_schema \
                  WHERE name NOT LIKE 'sqlite_stat%' ORDER BY name";
    let mut digest = fold(0, &rows(connection, schema)?);
    for table in tables(connection)? {
        let name = table.replace('"', "\"\"");
        digest = fold(
            digest,
            &rows(connection, &format!("SELECT * FROM \"{name}\""))?,
        );
    }
    Ok(digest)
}

/// Ordinary tables, by name.
fn tables(connection: &Connection) -> Result<Vec<String>, Failure> {
    let sql = "SELECT name FROM sqlite_schema WHERE type='table' AND sql NOT LIKE 'CREATE VIRTUAL%' \
               AND name NOT LIKE 'sqlite_stat%' ORDER BY name";
    let mut names = Vec::new();
    if let (Some(statement), _) = connection.prepare(sql.as_bytes())? {
        loop {
            match statement.step() {
                ROW => names.extend(statement.text(0)),
                DONE => break,
                _ => return Err(statement.failure()),
            }
        }
    }
    Ok(names)
}

fn rows(connection: &Connection, sql: &str) -> Result<Rows, Failure> {
    let mut rows = Rows::default();
    if let (Some(statement), _) = connection.prepare(sql.as_bytes())? {
        loop {
            match statement.step() {
                ROW => rows.add(statement.row()),
                DONE => break,
                _ => return Err(statement.failure()),
            }
        }
    }
    Ok(rows)
}

fn fold(digest: u64, rows: &Rows) -> u64 {
    // Not in the order of the scan, which is the planner's choice.
    let mixed = rows.unordered ^ rows.count;
    (digest.rotate_left(17) ^ mixed).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
