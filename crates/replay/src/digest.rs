//! What a database holds, in one number that does not depend on how it lies in the file.
//!
//! The schema's texts and every table's rows, with the tables in the order of their names and the rows
//! in none. Of virtual tables only what they keep in ordinary ones.

use std::path::Path;

use onewrite_record::event::{DONE, ROW};
use onewrite_record::rows::Rows;

use crate::sqlite::{Connection, Failure};

/// The digest of a database that nobody has open. Opened as any program would: a log beside it is
/// recovered, so this is for a copy, or one's own.
///
/// # Errors
/// SQLite's, and where `integrity_check` is not satisfied.
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
