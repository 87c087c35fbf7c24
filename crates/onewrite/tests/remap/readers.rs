//! Readers next to a remapping checkpoint: through the page cache, mapped, and with an older
//! snapshot.

use super::database::{Database, Mount, connect, query};

const ROWS: u32 = 200;

fn filled(mount: &Mount, how: &str) -> Database {
    let database = Database::make(mount, "onewrite", how, "unwritten");
    database.sql("PRAGMA wal_autocheckpoint=0");
    database.sql("CREATE TABLE t(id INTEGER PRIMARY KEY, x)");
    fill(&database, 0);
    database.sql("PRAGMA wal_checkpoint(TRUNCATE)");
    database
}

fn fill(database: &Database, value: u32) {
    database.sql("BEGIN");
    for id in 0..ROWS {
        let x = format!("replace(hex(zeroblob(800)), '00', '{value:04}')");
        database.sql(&format!("REPLACE INTO t(id, x) VALUES({id}, {x})"));
    }
    database.sql("COMMIT");
}

/// The distinct values in the rows.
fn values(db: &rusqlite::Connection) -> String {
    query(db, "SELECT DISTINCT substr(x, 1, 4) || (x = replace(hex(zeroblob(800)), '00', substr(x, 1, 4))) FROM t")
        .expect("values")
}

fn remapped(database: &Database) -> u64 {
    let status = database.status();
    status["remapped"]["remapped_pages"]
        .as_u64()
        .expect("a count")
}

#[test]
fn readers_see_new_content_at_once() {
    for (mount, how) in [(Mount::xfs(), "exchange"), (Mount::btrfs(), "clone")] {
        let Some(mount) = mount else { continue };
        let database = filled(&mount, how);
        let buffered = connect(&database.path, "onewrite");
        let mapped = connect(&database.path, "onewrite");
        query(&mapped, "PRAGMA mmap_size=100000000").expect("mapped");
        query(&mapped, "PRAGMA cache_size=5").expect("few pages");
        for value in 1..40 {
            fill(&database, value);
            let before = remapped(&database);
            assert!(database.sql("PRAGMA wal_checkpoint").starts_with("0|"));
            assert!(
                remapped(&database) > before,
                "{}",
                database.status()["remapped"]
            );
            for reader in [&buffered, &mapped, &database.db] {
                assert_eq!(values(reader), format!("{value:04}1"));
                assert_eq!(
                    query(reader, "PRAGMA integrity_check").expect("a check"),
                    "ok"
                );
            }
        }
    }
}

#[test]
fn a_reader_of_an_older_snapshot_keeps_it_and_nothing_is_remapped_meanwhile() {
    let Some(mount) = Mount::xfs() else { return };
    let database = filled(&mount, "exchange");
    let reader = connect(&database.path, "onewrite");
    fill(&database, 1);
    query(&reader, "BEGIN").expect("begun");
    assert_eq!(values(&reader), "00011");
    let before = remapped(&database);
    // The reader uses the current log: pages may be copied, but nothing may be destroyed.
    database.sql("PRAGMA wal_checkpoint");
    assert_eq!(remapped(&database), before);
    let why = database.status()["remapped"]["why_not"].clone();
    assert_eq!(why, "another connection is reading the log");
    query(&reader, "PRAGMA cache_size=2").expect("few pages");
    assert_eq!(values(&reader), "00011");
    fill(&database, 2);
    database.sql("PRAGMA wal_checkpoint");
    assert_eq!(values(&reader), "00011");
    assert_eq!(remapped(&database), before);
    query(&reader, "COMMIT").expect("ended");
    fill(&database, 3);
    database.sql("PRAGMA wal_checkpoint");
    assert!(remapped(&database) > before);
    assert_eq!(values(&reader), "00031");
}

/// Many connections at once: a transaction is always seen whole, and later reads never go back
/// behind it.
#[test]
fn readers_and_writers_at_work() {
    let Some(mount) = Mount::xfs() else { return };
    let database = filled(&mount, "exchange");
    let path = &database.path;
    std::thread::scope(|scope| {
        let end = std::time::Instant::now() + std::time::Duration::from_secs(8);
        for number in 0..3 {
            scope.spawn(move || {
                let db = connect(path, "onewrite");
                if number == 1 {
                    query(&db, "PRAGMA mmap_size=100000000").expect("mapped");
                }
                let mut last = String::new();
                while std::time::Instant::now() < end {
                    let now = values(&db);
                    assert!(
                        now.len() == 5 && now.ends_with('1') && now >= last,
                        "{last} {now}"
                    );
                    last = now;
                }
            });
        }
        let writer = connect(path, "onewrite");
        let writer = Database {
            path: path.clone(),
            db: writer,
        };
        writer.sql("PRAGMA onewrite_checkpoint=exchange");
        writer.sql("PRAGMA wal_autocheckpoint=300");
        let mut value = 1;
        while std::time::Instant::now() < end {
            fill(&writer, value);
            if value % 3 == 0 {
                writer.sql("PRAGMA wal_checkpoint(RESTART)");
            }
            value += 1;
        }
        println!("{value} transactions, {}", writer.status()["remapped"]);
        assert!(remapped(&writer) > 100, "{}", writer.status()["remapped"]);
    });
    database.check();
}
