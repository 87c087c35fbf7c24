//! Pragmas of LS-MVBT: status, history, reading as of a version, and assumptions about page writes.

use std::time::{Duration, Instant};

use lsmvbt::{Caching, Db, DirectFile, Options};

use lsmvbt_sqlite::sqlite::Connection;

use crate::support::{Setup, one, refused, run};

const ENGINE: &str = "lsmvbt";

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("no number: {text}"))
}

#[test]
fn earlier_versions_are_read_with_their_schema_as_long_as_they_are_kept() {
    let setup = Setup::new();
    let a = setup.open("x", ENGINE);
    run(&a, "CREATE TABLE t(x); INSERT INTO t VALUES (1)");
    assert_eq!(one(&a, "PRAGMA lsmvbt_history"), "0", "off by default");
    assert_eq!(one(&a, "PRAGMA lsmvbt_history = 1000"), "1000");
    let first = one(&a, "PRAGMA lsmvbt_version");
    run(
        &a,
        "INSERT INTO t VALUES (2); ALTER TABLE t RENAME TO u; INSERT INTO u VALUES (3)",
    );
    let last = one(&a, "PRAGMA lsmvbt_version");
    assert!(number(&last) >= number(&first) + 3, "{first} to {last}");

    let b = setup.open("x", ENGINE);
    assert_eq!(one(&b, "SELECT count(*) FROM u"), "3");
    assert_eq!(one(&b, &format!("PRAGMA lsmvbt_version = {first}")), first);
    assert_eq!(
        one(&b, "SELECT count(*) FROM t"),
        "1",
        "as of the first version"
    );
    assert_eq!(refused(&b, "SELECT count(*) FROM u"), "no such table: u");
    assert_eq!(
        refused(&b, "INSERT INTO t VALUES (9)"),
        "attempt to write a readonly database"
    );
    run(&a, "INSERT INTO u VALUES (4)");
    assert_eq!(
        one(&b, "SELECT count(*) FROM t"),
        "1",
        "whatever is written meanwhile"
    );
    run(&b, "PRAGMA lsmvbt_version = 0");
    assert_eq!(one(&b, "SELECT count(*) FROM u"), "4");
    run(&b, "INSERT INTO u VALUES (5)");

    let newest = number(&one(&b, "PRAGMA lsmvbt_version"));
    let message = refused(&b, &format!("PRAGMA lsmvbt_version = {}", newest + 1));
    assert!(message.contains("cannot be read"), "{message}");
    run(
        &a,
        "PRAGMA lsmvbt_history = 0; INSERT INTO u VALUES (6); INSERT INTO u VALUES (7)",
    );
    let message = refused(&b, &format!("PRAGMA lsmvbt_version = {first}"));
    assert!(message.contains("cannot be read"), "{message}");
    assert_eq!(one(&a, "PRAGMA integrity_check"), "ok");
}

#[test]
fn a_chosen_version_is_read_until_it_is_given_up_without_a_history() {
    let setup = Setup::new();
    let a = setup.open("x", ENGINE);
    run(&a, "CREATE TABLE t(x); INSERT INTO t VALUES (1)");
    let b = setup.open("x", ENGINE);
    assert_eq!(one(&b, "PRAGMA lsmvbt_history"), "0");
    let version = one(&b, "PRAGMA lsmvbt_version");
    let pin = format!("PRAGMA lsmvbt_version = {version}");
    assert_eq!(one(&b, &pin), version);
    for _ in 0..20 {
        run(&a, "UPDATE t SET x = x + 1; INSERT INTO t VALUES (100)");
        assert_eq!(one(&b, "SELECT group_concat(x) FROM t"), "1");
        assert_eq!(one(&b, &pin), version, "it is chosen already");
    }
    assert!(refused(&a, &pin).contains("cannot be read"));
    run(&b, "PRAGMA lsmvbt_version = 0");
    assert_eq!(one(&b, "SELECT count(*) FROM t"), "21");
    run(&a, "UPDATE t SET x = 0");
    assert!(refused(&b, &pin).contains("cannot be read"));
    assert_eq!(one(&a, "PRAGMA integrity_check"), "ok");
}

/// The same file twice in a connection, once as of an earlier version: what a query says of then, the
/// rows that differ, and a backup of then while others write.
#[test]
fn an_attached_version_is_compared_with_now_and_backed_up() {
    let setup = Setup::new();
    let a = setup.open("x", ENGINE);
    run(&a, "CREATE TABLE t(x INTEGER PRIMARY KEY, y)");
    assert_eq!(one(&a, "PRAGMA lsmvbt_history = 1000"), "1000");
    run(&a, "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')");
    let then = one(&a, "PRAGMA lsmvbt_version");
    run(
        &a,
        "UPDATE t SET y = 'B' WHERE x = 2; DELETE FROM t WHERE x = 3",
    );
    run(&a, "INSERT INTO t VALUES (4, 'd')");
    let attach =
        |version: &str| format!("ATTACH 'file:{}?version={version}' AS old", setup.path("x"));
    run(&a, &attach(&then));
    let rows = |sql: &str| {
        one(
            &a,
            &format!("SELECT group_concat(x || y, ' ') FROM ({sql})"),
        )
    };
    assert_eq!(rows("SELECT * FROM old.t ORDER BY x"), "1a 2b 3c");
    assert_eq!(rows("SELECT * FROM main.t ORDER BY x"), "1a 2B 4d");
    assert_eq!(
        rows("SELECT * FROM main.t EXCEPT SELECT * FROM old.t"),
        "2B 4d"
    );
    assert_eq!(
        rows("SELECT * FROM old.t EXCEPT SELECT * FROM main.t"),
        "2b 3c"
    );
    // In one transaction with changes, which it does not see.
    run(&a, "BEGIN; INSERT INTO t SELECT x + 10, y FROM old.t");
    assert_eq!(
        refused(&a, "INSERT INTO old.t VALUES (9, 'z')"),
        "attempt to write a readonly database"
    );
    run(&a, "COMMIT");
    assert_eq!(rows("SELECT * FROM old.t ORDER BY x"), "1a 2b 3c");
    assert_eq!(one(&a, "PRAGMA integrity_check"), "ok");

    // A backup of then, with commits of others before, during and after.
    run(&a, "DETACH old");
    let b = Connection::open(&format!("file:{}?version={then}", setup.path("x"))).expect("then");
    run(&a, "PRAGMA lsmvbt_history = 0; DELETE FROM t WHERE x = 1");
    let step = |sql: &str| run(&a, sql);
    step("INSERT INTO t VALUES (5, 'e')");
    for engine in ["stock", ENGINE] {
        let copy = setup.path(&format!("copy.{engine}"));
        run(&b, &format!("VACUUM INTO 'file:{copy}?engine={engine}'"));
        step("UPDATE t SET y = y || '!'");
        let copy = Connection::open(&copy).expect("the copy");
        assert_eq!(one(&copy, "PRAGMA integrity_check"), "ok");
        let sql = "SELECT group_concat(x || y, ' ') FROM (SELECT * FROM t ORDER BY x)";
        assert_eq!(one(&copy, sql), "1a 2b 3c", "{engine}");
    }
    assert_eq!(one(&b, "SELECT count(*) FROM t"), "3");
    drop(b);
    step("UPDATE t SET y = 'gone'");
    for version in [then.as_str(), "0x", "99999", "-1"] {
        let refused = refused(&a, &attach(version));
        assert!(refused.contains("unable to open database"), "{refused}");
    }
    assert_eq!(one(&a, "PRAGMA integrity_check"), "ok");
}

#[test]
fn history_is_remembered_and_not_changed_within_a_transaction() {
    let setup = Setup::new();
    let a = setup.open("x", ENGINE);
    run(&a, "CREATE TABLE t(x); PRAGMA lsmvbt_history = 7");
    drop(a);
    let a = setup.open("x", ENGINE);
    assert_eq!(one(&a, "PRAGMA lsmvbt_history"), "7");
    run(&a, "BEGIN; INSERT INTO t VALUES (1)");
    assert_eq!(
        refused(&a, "PRAGMA lsmvbt_history = 8"),
        "lsmvbt_history = 8: not within a transaction"
    );
    // Nothing was read yet in this one. It held, and a rollback did not take it back.
    run(&a, "COMMIT; BEGIN");
    assert_eq!(
        refused(&a, "PRAGMA lsmvbt_history = 8"),
        "lsmvbt_history = 8: not within a transaction"
    );
    run(&a, "ROLLBACK");
    assert_eq!(one(&a, "PRAGMA lsmvbt_history"), "7");
    assert_eq!(
        refused(&a, "PRAGMA lsmvbt_history = many"),
        "lsmvbt_history = many: it is a number of versions, 0 or more, or a time, such as '1 hour'"
    );
    assert_eq!(one(&a, "SELECT count(*) FROM t"), "1");
}

#[test]
fn what_is_set_before_anything_is_written_holds_or_is_refused() {
    let setup = Setup::new();
    let a = setup.open("x", ENGINE);
    assert_eq!(one(&a, "PRAGMA lsmvbt_history = 5"), "5");
    assert_eq!(one(&a, "PRAGMA lsmvbt_torn = trust"), "trust");
    run(&a, "PRAGMA encoding = 'UTF-16le'; CREATE TABLE t(x)");
    assert_eq!(one(&a, "PRAGMA lsmvbt_torn"), "trust");
    drop(a);
    let a = setup.open("x", ENGINE);
    assert_eq!(one(&a, "PRAGMA lsmvbt_history"), "5");
    assert_eq!(one(&a, "PRAGMA encoding"), "UTF-16le");

    let b = setup.open("y", ENGINE);
    run(&b, "BEGIN; SELECT * FROM sqlite_schema");
    let message = refused(&b, "PRAGMA lsmvbt_history = 5");
    assert_eq!(message, "lsmvbt_history = 5: not within a transaction");
    run(&b, "COMMIT; CREATE TABLE t(x)");

    let stock = setup.open("z", "stock");
    let message = refused(&stock, "PRAGMA lsmvbt_history = 5");
    assert!(message.contains("journal_mode = lsmvbt"), "{message}");
    run(
        &stock,
        "PRAGMA journal_mode = lsmvbt; PRAGMA lsmvbt_history = 5",
    );
    assert_eq!(one(&stock, "PRAGMA lsmvbt_history"), "5");
}

/// A process opens with `auto`, and then has its pragma. Neither flushes, also where a page is late.
#[test]
fn a_torn_that_opens_the_database_after_a_crash_does_not_flush() {
    let setup = Setup::new();
    let a = setup.open("x", ENGINE);
    run(
        &a,
        "PRAGMA lsmvbt_torn = trust; PRAGMA lsmvbt_recovery_pages = 64; CREATE TABLE t(x INTEGER PRIMARY KEY, y)",
    );
    let rows = "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 4000) \
                INSERT INTO t SELECT i, zeroblob(500) FROM c";
    run(&a, rows);
    // After that no page is marked, so that pages may be late.
    drop(a);
    let a = setup.open("x", ENGINE);
    run(
        &a,
        "PRAGMA lsmvbt_torn = trust; PRAGMA lsmvbt_recovery_pages = 64",
    );
    for x in 0..60 {
        run(
            &a,
            &format!("UPDATE t SET y = 'new' WHERE x = {}", x * 37 % 4000 + 1),
        );
    }
    let status = one(&a, "PRAGMA onewrite_status").replace('\'', "''");
    let late = format!("SELECT json_extract('{status}', '$.late_commits')");
    assert_ne!(one(&a, &late), "0");
    for torn in ["trust", "double"] {
        // As after the death of the process.
        std::fs::copy(setup.path("x"), setup.path(torn)).expect("a copy");
        let b = setup.open(torn, ENGINE);
        assert_eq!(one(&b, &format!("PRAGMA lsmvbt_torn = {torn}")), torn);
        if torn == "trust" {
            let status = one(&b, "PRAGMA onewrite_status").replace('\'', "''");
            let flushes = format!("SELECT json_extract('{status}', '$.flushes')");
            assert_eq!(one(&b, &flushes), "0");
        }
        assert_eq!(one(&b, "SELECT count(*) FROM t WHERE y = 'new'"), "60");
        // It can be changed later, and a wrong word changes nothing.
        assert_eq!(refused(&b, "PRAGMA lsmvbt_torn = maybe"), WORDS_OF_TORN);
        assert_eq!(one(&b, "PRAGMA lsmvbt_torn = double"), "double");
        run(&b, "UPDATE t SET y = 'newer' WHERE y = 'new'");
    }
    // A word that opens the database, and that is none.
    std::fs::copy(setup.path("x"), setup.path("y")).expect("a copy");
    let b = setup.open("y", ENGINE);
    assert_eq!(refused(&b, "PRAGMA lsmvbt_torn = maybe"), WORDS_OF_TORN);
    assert_eq!(one(&b, "SELECT count(*) FROM t WHERE y = 'new'"), "60");
}

const WORDS_OF_TORN: &str = "lsmvbt_torn = maybe: it can be auto, trust or double";

/// A commit to two pages of its own writes a page of the header as well where recovery may not read the
/// whole file, and recovery reads less. One to a single page leaves it late.
#[test]
fn the_pages_that_recovery_reads_are_a_choice_between_a_commit_and_recovery() {
    let setup = Setup::new();
    let count = |connection: &Connection, name: &str| {
        let status = one(connection, "PRAGMA onewrite_status").replace('\'', "''");
        let json = format!("SELECT json_extract('{status}', '$.{name}')");
        number(&one(connection, &json))
    };
    let a = setup.open("x", ENGINE);
    run(&a, "CREATE TABLE t(x INTEGER PRIMARY KEY, y)");
    assert_eq!(one(&a, "PRAGMA lsmvbt_recovery_pages"), "128");
    run(
        &a,
        "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 4000) \
         INSERT INTO t SELECT i, zeroblob(500) FROM c",
    );
    run(&a, "DELETE FROM t WHERE x % 4 = 0");
    drop(a);
    let headers = |torn: &str, pages: u32, rows: u32| {
        let a = setup.open("x", ENGINE);
        run(&a, &format!("PRAGMA lsmvbt_torn = {torn}"));
        let set = format!("PRAGMA lsmvbt_recovery_pages = {pages}");
        assert_eq!(one(&a, &set), pages.to_string());
        assert_eq!(count(&a, "recovery_pages"), u64::from(pages));
        run(&a, "UPDATE t SET y = zeroblob(501) WHERE x = 1");
        let before = count(&a, "header_pages_written");
        for i in 0..200 {
            let x = (i * 37) % 1000 * 4 + 1;
            let other = if rows == 2 { 4002 - x } else { x };
            let rows = format!("x IN ({x}, {other})");
            run(&a, &format!("UPDATE t SET y = zeroblob(502) WHERE {rows}"));
        }
        count(&a, "header_pages_written") - before
    };
    let (many, few) = (headers("trust", 64, 2), headers("trust", 4096, 2));
    assert!(many > 120 && few < 90, "{many} and {few}");
    let late = headers("trust", 64, 1);
    assert!(late < 40, "{late}");
    assert_eq!(headers("double", 64, 2), 0, "the slots name the pages");
    let a = setup.open("x", ENGINE);
    for wrong in ["63", "-1", "many", "99999999999"] {
        let set = format!("PRAGMA lsmvbt_recovery_pages = {wrong}");
        let why = "it is a number of pages, 64 or more";
        let told = format!("lsmvbt_recovery_pages = {wrong}: {why}");
        assert_eq!(refused(&a, &set), told);
    }
    run(&a, "BEGIN; SELECT * FROM t");
    let set = "PRAGMA lsmvbt_recovery_pages = 64";
    let told = "lsmvbt_recovery_pages = 64: not within a transaction";
    assert_eq!(refused(&a, set), told);
}

/// The root of each tree is read when it is used.
#[test]
fn opening_reads_the_schema_and_not_every_table() {
    let setup = Setup::new();
    let a = setup.open("x", ENGINE);
    run(&a, "BEGIN");
    for i in 0..300 {
        run(&a, &format!("CREATE TABLE t{i}(x)"));
    }
    run(&a, "COMMIT");
    drop(a);
    let a = setup.open("x", ENGINE);
    assert_eq!(one(&a, "SELECT count(*) FROM t7"), "0");
    let status = one(&a, "PRAGMA onewrite_status").replace('\'', "''");
    let read = one(
        &a,
        &format!("SELECT json_extract('{status}', '$.pages_read')"),
    );
    assert!(number(&read) < 40, "{read}");
}

#[test]
fn the_status_is_json_and_says_what_is_in_force() {
    let setup = Setup::new();
    let a = setup.open("x", ENGINE);
    run(&a, "CREATE TABLE t(x)");
    let field = |name: &str| {
        let status = one(&a, "PRAGMA onewrite_status").replace('\'', "''");
        one(&a, &format!("SELECT json_extract('{status}', '$.{name}')"))
    };
    assert_eq!(field("engine"), ENGINE);
    let auto = field("torn_auto");
    assert!(auto.starts_with(&format!("{}: ", field("torn"))), "{auto}");
    run(&a, "PRAGMA lsmvbt_torn = double");
    let slots = number(&field("slot_pages_written"));
    run(&a, "INSERT INTO t VALUES (1)");
    assert_eq!(
        number(&field("slot_pages_written")),
        slots + 1,
        "a head with the image"
    );

    assert_eq!(one(&a, "PRAGMA lsmvbt_torn = trust"), "trust");
    // The header that says so is flushed before the first page is written.
    run(&a, "UPDATE t SET x = 1");
    let before =
        ["pages_written", "flushes", "slot_pages_written"].map(|name| number(&field(name)));
    run(&a, "INSERT INTO t VALUES (2)");
    let after = ["pages_written", "flushes", "slot_pages_written"].map(|name| number(&field(name)));
    assert_eq!(after[0] - before[0], 1, "one page");
    assert_eq!(after[1] - before[1], 1, "one flush");
    assert_eq!(after[2], before[2]);

    // All connections share the assumption of one.
    let b = setup.open("x", ENGINE);
    assert_eq!(one(&b, "PRAGMA lsmvbt_torn"), "trust");
    run(&b, "PRAGMA lsmvbt_torn = double; INSERT INTO t VALUES (3)");
    assert_eq!(field("torn"), "double");
    for (name, value) in [
        ("lazy_split", "off"),
        ("reserve", "20"),
        ("lazy_gc", "off"),
        ("embedding", "off"),
        ("redistribution", "on"),
    ] {
        assert_eq!(one(&a, &format!("PRAGMA lsmvbt_{name} = {value}")), value);
        assert_eq!(field(name), value);
        assert_eq!(one(&b, &format!("PRAGMA lsmvbt_{name} = {value}")), value);
    }
    assert_eq!(
        refused(&a, "PRAGMA lsmvbt_reserve = 41"),
        "lsmvbt_reserve = 41: it is percent, 0 to 40"
    );
    assert_eq!(refused(&a, "PRAGMA lsmvbt_torn = maybe"), WORDS_OF_TORN);
    run(
        &a,
        "INSERT INTO t SELECT value FROM (WITH RECURSIVE c(value) AS (SELECT 1 UNION ALL SELECT value+1 FROM c WHERE value<500) SELECT value FROM c)",
    );
    assert_eq!(one(&b, "SELECT count(*) FROM t"), "503");
    assert_eq!(one(&a, "PRAGMA integrity_check"), "ok");
}

#[test]
fn a_database_whose_making_was_cut_short_is_made_again() {
    let setup = Setup::new();
    for (name, bytes) in [("begun", vec![0u8; 12_288]), ("grown", vec![0; 4096])] {
        std::fs::write(setup.path(name), bytes).expect("a file");
        let connection = setup.open(name, ENGINE);
        run(&connection, "CREATE TABLE t(x); INSERT INTO t VALUES (1)");
        assert_eq!(one(&connection, "SELECT x FROM t"), "1");
        assert_eq!(one(&connection, "PRAGMA journal_mode"), ENGINE);
    }
    // Zeros that are no beginning of a database stay as they are.
    let mut other = vec![0u8; 12_288];
    other[5000] = 1;
    std::fs::write(setup.path("other"), &other).expect("a file");
    let connection = setup.open("other", ENGINE);
    let message = refused(&connection, "SELECT * FROM sqlite_schema");
    assert!(
        message.starts_with("file is not a database: ") && message.contains("restore a copy"),
        "{message}"
    );
    drop(connection);
    assert_eq!(std::fs::read(setup.path("other")).expect("the file"), other);
}

/// A connection that begins to make a database records its engine: others can go on without naming
/// the engine.
#[test]
fn a_database_that_was_begun_is_known_by_its_first_bytes() {
    let setup = Setup::new();
    for pages in [1, 3] {
        let name = format!("begun{pages}");
        let mut bytes = vec![0; pages * 4096];
        bytes[..16].copy_from_slice(lsmvbt::MAGIC);
        std::fs::write(setup.path(&name), bytes).expect("a file");
        let connection = Connection::open(&setup.path(&name)).expect("a connection");
        run(&connection, "CREATE TABLE t(x); INSERT INTO t VALUES (1)");
        assert_eq!(one(&connection, "SELECT x FROM t"), "1");
        assert_eq!(one(&connection, "PRAGMA journal_mode"), ENGINE);
    }
}

#[test]
fn a_database_without_its_first_tree_gets_it() {
    let setup = Setup::new();
    let path = setup.path("bare");
    let file = DirectFile::open(path.as_ref(), Caching::Buffered).expect("a file");
    let db = Db::open(Box::new(file), Options::default()).expect("a database");
    db.close().expect("closed");
    let connection = setup.open("bare", ENGINE);
    run(&connection, "CREATE TABLE t(x); INSERT INTO t VALUES (1)");
    assert_eq!(one(&connection, "SELECT x FROM t"), "1");
}

#[test]
fn a_connection_that_reads_nothing_keeps_nothing() {
    let setup = Setup::new();
    let (a, b) = (setup.open("x", ENGINE), setup.open("x", ENGINE));
    run(&a, "CREATE TABLE t(x); INSERT INTO t VALUES (1)");
    assert_eq!(one(&b, "SELECT count(*) FROM t"), "1");
    run(&b, "INSERT INTO t VALUES (2)");
    // No connection may read a version for this: `b` is open, and idle.
    number(&one(&a, "PRAGMA lsmvbt_reclaim"));
    run(&b, "BEGIN");
    assert_eq!(one(&b, "SELECT count(*) FROM t"), "2");
    assert_eq!(refused(&a, "PRAGMA lsmvbt_reclaim"), "database is locked");
    run(&b, "COMMIT");
    number(&one(&a, "PRAGMA lsmvbt_reclaim"));
    // Nobody ends a history, so there is no wait for it.
    run(&a, "PRAGMA lsmvbt_history = 5");
    let told = refused(&a, "PRAGMA lsmvbt_reclaim");
    assert!(told.contains("PRAGMA lsmvbt_history = 0"), "{told}");
    run(&a, "PRAGMA lsmvbt_history = 0");
    number(&one(&a, "PRAGMA lsmvbt_reclaim"));
}

/// As SQLite's own pragmas do: `user_version` here.
#[test]
fn a_pragma_waits_for_another_writer_as_busy_timeout_says() {
    for set in [
        "user_version = 3",
        "lsmvbt_history = 5",
        "lsmvbt_history = '1 hour'",
        "lsmvbt_torn = trust",
        "lsmvbt_reclaim",
    ] {
        let pragma = format!("PRAGMA {set}");
        let setup = Setup::new();
        let (a, b) = (setup.open("x", ENGINE), setup.open("x", ENGINE));
        run(&a, "CREATE TABLE t(x)");
        run(&a, "BEGIN IMMEDIATE; INSERT INTO t VALUES (1)");
        let begun = Instant::now();
        b.busy_timeout(150).expect("a timeout");
        assert_eq!(refused(&b, &pragma), "database is locked", "{set}");
        assert!(begun.elapsed() >= Duration::from_millis(150), "{set}");
        b.busy_timeout(20_000).expect("a timeout");
        let waiting = std::thread::spawn(move || run(&b, &pragma));
        std::thread::sleep(Duration::from_millis(200));
        assert!(!waiting.is_finished(), "{set}");
        run(&a, "COMMIT");
        waiting.join().expect(set);
    }
    // In a transaction of its own, waiting could not help.
    let setup = Setup::new();
    let a = setup.open("x", ENGINE);
    a.busy_timeout(20_000).expect("a timeout");
    run(&a, "BEGIN IMMEDIATE");
    let message = refused(&a, "PRAGMA lsmvbt_torn = trust");
    assert_eq!(message, "lsmvbt_torn = trust: not within a transaction");
}

#[test]
fn an_unknown_pragma_of_the_engine_is_an_error_that_lists_the_known_ones() {
    let setup = Setup::new();
    let full = setup.open("full", ENGINE);
    run(&full, "CREATE TABLE t(x)");
    let all = refused(&full, "PRAGMA lsmvbt_histroy = '1 day'");
    let start = "there is no pragma lsmvbt_histroy: this engine has lsmvbt_history, ";
    assert!(all.starts_with(start), "{all}");
    let names = all.split_once("has ").expect("names").1;
    for name in names.split(", ") {
        assert_ne!(one(&full, &format!("PRAGMA {name}")), "(no row)", "{name}");
    }
    // Also in an empty database, in a stock one, and in capitals. The known ones are none.
    for connection in [full, setup.open("new", ENGINE), setup.open("z", "stock")] {
        for sql in ["PRAGMA lsmvbt_histroy", "PRAGMA main.LSMVBT_histroy = 1"] {
            assert_eq!(refused(&connection, sql).to_ascii_lowercase(), all, "{sql}");
        }
        for name in names.split(", ") {
            let answer = connection.query(&format!("PRAGMA {name}"));
            assert!(answer.is_ok(), "{name}: {answer:?}");
        }
        assert_eq!(one(&connection, "PRAGMA unknown = 1"), "(no row)");
    }
}

#[test]
fn secure_delete_is_off_and_says_why() {
    let setup = Setup::new();
    let a = setup.open("x", ENGINE);
    run(&a, "CREATE TABLE t(x)");
    assert_eq!(one(&a, "PRAGMA secure_delete"), "0");
    assert_eq!(one(&a, "PRAGMA secure_delete = off"), "0");
    for value in ["on", "1", "fast"] {
        let message = refused(&a, &format!("PRAGMA secure_delete = {value}"));
        assert!(message.contains("VACUUM INTO"), "{message}");
    }
    let stock = setup.open("stock", "stock");
    assert_eq!(one(&stock, "PRAGMA secure_delete = on"), "1");
    run(&stock, &format!("ATTACH '{}' AS o", setup.uri("x", ENGINE)));
    assert_eq!(one(&stock, "PRAGMA o.secure_delete"), "0");
}

#[test]
fn a_newer_format_is_no_damage() {
    let setup = Setup::new();
    run(&setup.open("x", ENGINE), "CREATE TABLE t(x)");
    let mut bytes = std::fs::read(setup.path("x")).expect("the file");
    for page in [0, 4096] {
        bytes[page + 14] += 1;
    }
    std::fs::write(setup.path("x"), &bytes).expect("written");
    let connection = Connection::open(&setup.path("x")).expect("opened");
    let message = refused(&connection, "SELECT * FROM t");
    assert!(message.starts_with("file is not a database: "), "{message}");
    drop(connection);
    assert_eq!(std::fs::read(setup.path("x")).expect("the file"), bytes);
}

/// Below FULL a commit of `trust` waits for no flush. An application that needs one asks for a
/// checkpoint, as in stock WAL.
#[test]
fn a_checkpoint_makes_commits_durable() {
    let setup = Setup::new();
    let a = setup.open("x", ENGINE);
    run(
        &a,
        "PRAGMA lsmvbt_torn = trust; PRAGMA synchronous = NORMAL",
    );
    run(&a, "CREATE TABLE t(x)");
    let is_durable = |db: &Connection| {
        let status = one(db, "PRAGMA onewrite_status").replace('\'', "''");
        let same = "json_extract(s, '$.version') = json_extract(s, '$.durable')";
        one(db, &format!("SELECT {same} FROM (SELECT '{status}' AS s)")) == "1"
    };
    let checkpoint = "PRAGMA wal_checkpoint";
    for table in ["u", "v"] {
        run(&a, &format!("CREATE TABLE {table}(x)"));
        assert!(!is_durable(&a));
        // Also those of others.
        let b = setup.open("x", ENGINE);
        assert_eq!(one(&b, checkpoint), "0");
        assert!(is_durable(&a) && is_durable(&b));
        assert_eq!(one(&a, checkpoint), "0");
    }
    let b = setup.open("x", ENGINE);
    run(
        &b,
        "PRAGMA synchronous = NORMAL; INSERT INTO t VALUES (1); BEGIN IMMEDIATE",
    );
    assert_eq!(one(&a, checkpoint), "1", "another writes");
    run(&b, "COMMIT; BEGIN; INSERT INTO t VALUES (2)");
    assert_eq!(refused(&b, checkpoint), "database table is locked");
    run(&b, "COMMIT");
    let missing = setup.open("none", ENGINE);
    assert_eq!(one(&missing, checkpoint), "0");
}
