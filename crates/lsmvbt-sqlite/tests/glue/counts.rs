//! Counts of the pages that a commit under SQLite writes.

use lsmvbt_sqlite::sqlite::Connection;

use crate::support::{Setup, one, run};

const ENGINE: &str = "lsmvbt";
const ROWS: u32 = 4_000;
const COMMITS: u32 = 400;

/// Pages written so far, of the header and of slots as well.
fn pages_written(connection: &Connection) -> u32 {
    let status = one(connection, "PRAGMA onewrite_status").replace('\'', "''");
    let count = |name: &str| -> u32 {
        let field = format!("SELECT json_extract('{status}', '$.{name}')");
        one(connection, &field).parse().expect("a count")
    };
    [
        "pages_written",
        "header_pages_written",
        "slot_pages_written",
    ]
    .map(count)
    .iter()
    .sum()
}

/// A commit need not keep what the statement's own snapshot shows: without it, full pages have room for the
/// change of another one.
#[test]
fn a_random_commit_writes_one_page() {
    for torn in ["trust", "double"] {
        let setup = Setup::new();
        let a = setup.open("x", ENGINE);
        let set = format!("PRAGMA lsmvbt_torn = {torn}; PRAGMA lsmvbt_recovery_pages = 64");
        run(&a, &set);
        run(
            &a,
            &format!(
                "CREATE TABLE t(x INTEGER PRIMARY KEY, y); \
                 WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < {ROWS}) \
                 INSERT INTO t SELECT i, randomblob(500) FROM c; \
                 DELETE FROM t WHERE x % 4 = 0"
            ),
        );
        // After that no page is marked.
        drop(a);
        let a = setup.open("x", ENGINE);
        run(&a, &set);
        run(&a, "UPDATE t SET y = randomblob(500) WHERE x = 1");
        let before = pages_written(&a);
        for i in 0..COMMITS {
            let row = i * 2_477 % ROWS / 4 * 4 + 1 + i % 3;
            let update = format!("UPDATE t SET y = randomblob(500) WHERE x = {row}");
            run(&a, &update);
        }
        let pages = pages_written(&a) - before;
        // 16 for the 8 commits before the first late page, with `double`, and a header with every 16th.
        assert!(pages <= COMMITS + 8 + COMMITS / 16 + 4, "{torn}: {pages}");
    }
}

/// With `double` a leaf that changes again stays in its slot. When it is split, it is written in place, with the new
/// leaf and the page above.
#[test]
fn an_appended_row_writes_one_page() {
    for (torn, splits_cost) in [("trust", 1), ("double", 3)] {
        let setup = Setup::new();
        let a = setup.open("x", ENGINE);
        run(&a, &format!("PRAGMA lsmvbt_torn = {torn}"));
        run(&a, "CREATE TABLE t(x INTEGER PRIMARY KEY, y)");
        run(&a, "INSERT INTO t VALUES (1, randomblob(100))");
        let splits = |connection: &Connection| {
            let status = one(connection, "PRAGMA onewrite_status").replace('\'', "''");
            let all = "'$.append_splits') + json_extract(s, '$.lazy_splits') + json_extract(s, '$.legacy_splits'";
            let sum = format!("SELECT json_extract(s, {all}) FROM (SELECT '{status}' AS s)");
            one(connection, &sum).parse::<u32>().expect("a number")
        };
        let (pages, split) = (pages_written(&a), splits(&a));
        for _ in 0..COMMITS {
            run(&a, "INSERT INTO t(y) VALUES (randomblob(100))");
        }
        let (pages, split) = (pages_written(&a) - pages, splits(&a) - split);
        assert!((8..20).contains(&split), "{torn}: {split}");
        // And a header with every 16th page of the file.
        let most = COMMITS + split * splits_cost + 8;
        assert!(pages <= most, "{torn}: {pages} of {most}");
    }
}
