//! Registers the VFS, commits in mode onewrite at synchronous=FULL, and is killed; or reads back.
//!
//!     commit DATABASE write    ends by SIGKILL
//!     commit DATABASE read     ends with 0 if each commit is there
//!
//! scripts/release compiles it with the crates that it has packed.

use rusqlite::{Connection, OpenFlags, Result};

const ROWS: u32 = 50;

fn write(db: &Connection) -> Result<()> {
    db.execute_batch("PRAGMA synchronous=FULL; CREATE TABLE t(x)")?;
    for _ in 0..ROWS {
        db.execute("INSERT INTO t VALUES('a row')", ())?;
    }
    Ok(())
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [database, what] = &words[..] else {
        panic!("commit DATABASE write|read");
    };
    onewrite::register().expect("the VFS");
    let db = Connection::open_with_flags_and_vfs(database, OpenFlags::default(), onewrite::VFS_NAME)?;
    let ask = |sql| db.query_row(sql, (), |row| row.get::<_, String>(0));
    if what == "write" {
        assert_eq!(ask("PRAGMA journal_mode=onewrite")?, "onewrite");
        write(&db)?;
        let own = std::process::id().to_string();
        let _ = std::process::Command::new("kill").args(["-KILL", &own]).status();
        panic!("it lives on");
    }
    assert_eq!(ask("SELECT count(*) || '' FROM t")?, ROWS.to_string());
    assert_eq!(ask("PRAGMA journal_mode")?, "onewrite");
    assert_eq!(ask("PRAGMA integrity_check")?, "ok");
    Ok(())
}
