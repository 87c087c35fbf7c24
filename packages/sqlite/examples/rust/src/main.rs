//! Reads a database as it was before the last change, and makes a backup of that version.

use rusqlite::{Connection, Result};

fn main() -> Result<()> {
    let path = std::env::args().nth(1).expect("usage: time-travel NEW-DATABASE");
    let db = Connection::open(&path)?;
    let mode: String = db.query_row("PRAGMA journal_mode=lsmvbt", [], |row| row.get(0))?;
    assert_eq!(mode, "lsmvbt", "this is another SQLite");
    db.execute_batch("CREATE TABLE t(a); PRAGMA lsmvbt_history=100; INSERT INTO t VALUES ('first')")?;
    let then: String = db.query_row("PRAGMA lsmvbt_version", [], |row| row.get(0))?;
    db.execute("UPDATE t SET a = 'second'", [])?;
    db.execute_batch(&format!("ATTACH 'file:{path}?version={then}' AS old"))?;
    let of = |schema: &str| db.query_row(&format!("SELECT a FROM {schema}.t"), [], |row| row.get(0));
    let (now, before): (String, String) = (of("main")?, of("old")?);
    db.execute_batch(&format!("VACUUM old INTO '{path}.backup'"))?;
    println!("now {now}, before {before}");
    Ok(())
}
