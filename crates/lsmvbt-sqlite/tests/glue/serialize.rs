//! Images of databases in memory: they are stock ones.

use lsmvbt_sqlite::sqlite::Connection;

use crate::support::{Setup, on_other_engines, one, refused, run};

on_other_engines! {
    an_image_comes_back_as_a_stock_database
    a_transaction_has_no_image_and_goes_on
    a_database_that_is_open_becomes_one_in_memory
    the_bytes_of_the_file_are_no_image
}

const ROWS: &str = "SELECT group_concat(a || b, ' ') FROM t";

fn filled(setup: &Setup, engine: &str) -> Connection {
    let connection = setup.open("x", engine);
    run(
        &connection,
        "CREATE TABLE t(a INTEGER PRIMARY KEY, b); CREATE INDEX i ON t(b)",
    );
    run(
        &connection,
        "INSERT INTO t VALUES (1, 'x'), (2, zeroblob(0) || 'y')",
    );
    run(
        &connection,
        "CREATE TABLE w(k PRIMARY KEY, v) WITHOUT ROWID",
    );
    run(&connection, "INSERT INTO w VALUES ('k', zeroblob(100000))");
    connection
}

fn is_whole(connection: &Connection) {
    assert_eq!(one(connection, ROWS), "1x 2y");
    assert_eq!(
        one(connection, "SELECT length(v) FROM w WHERE k = 'k'"),
        "100000"
    );
    assert_eq!(one(connection, "PRAGMA integrity_check"), "ok");
}

fn an_image_comes_back_as_a_stock_database(engine: &str) {
    let setup = Setup::new();
    let connection = filled(&setup, engine);
    let image = connection.serialize("main").expect("an image");
    assert!(image.starts_with(b"SQLite format 3\0"));
    is_whole(&connection);
    assert_eq!(one(&connection, "PRAGMA journal_mode"), engine);
    assert_eq!(
        one(
            &connection,
            "SELECT count(*) FROM pragma_database_list WHERE name <> 'temp'"
        ),
        "1"
    );
    let memory = Connection::open(":memory:").expect("a database");
    memory.deserialize("main", &image).expect("its image");
    is_whole(&memory);
    run(&memory, "INSERT INTO t VALUES (3, 'z')");
    assert_eq!(one(&memory, "SELECT count(*) FROM t"), "3");
    // The image is a file of stock SQLite, too; and the same again.
    std::fs::write(setup.path("copy"), &image).expect("a file");
    is_whole(&setup.open("copy", "stock"));
    assert_eq!(
        connection.serialize("main").expect("an image").len(),
        image.len()
    );
    // Of an attached database.
    run(
        &memory,
        &format!("ATTACH '{}' AS \"o \"\"o\"", setup.path("x")),
    );
    assert_eq!(
        memory.serialize("o \"o").expect("an image").len(),
        image.len()
    );
    is_whole(&connection);
}

fn a_transaction_has_no_image_and_goes_on(engine: &str) {
    let setup = Setup::new();
    let connection = filled(&setup, engine);
    run(&connection, "BEGIN; INSERT INTO t VALUES (3, 'z')");
    let error = connection.serialize("main").expect_err("a transaction");
    assert!(error.message.contains("within a transaction"), "{error}");
    assert_eq!(one(&connection, ROWS), "1x 2y 3z");
    run(&connection, "ROLLBACK");
    is_whole(&connection);
    connection.serialize("main").expect("an image");
    connection
        .serialize("nothing")
        .expect_err("no such database");
    is_whole(&connection);
}

fn a_database_that_is_open_becomes_one_in_memory(engine: &str) {
    let setup = Setup::new();
    let image = filled(&setup, engine).serialize("main").expect("an image");
    let connection = setup.open("x", engine);
    run(&connection, "DELETE FROM t");
    connection.deserialize("main", &image).expect("its image");
    is_whole(&connection);
    run(&connection, "UPDATE t SET b = 'only here'");
    // The file is as it was left.
    let file = setup.open("x", engine);
    assert_eq!(one(&file, "SELECT count(*) FROM t"), "0");
    assert_eq!(one(&file, "PRAGMA integrity_check"), "ok");
    // Not while it is read or written.
    run(&file, "BEGIN; INSERT INTO t VALUES (4, 'q')");
    assert_eq!(
        file.deserialize("main", &image)
            .err()
            .map(|e| e.code & 0xff),
        Some(5)
    );
    run(&file, "COMMIT");
    assert_eq!(one(&file, ROWS), "4q");
}

fn the_bytes_of_the_file_are_no_image(engine: &str) {
    let setup = Setup::new();
    drop(filled(&setup, engine));
    let bytes = std::fs::read(setup.path("x")).expect("the file");
    // Whole, and its first page.
    for size in [bytes.len(), bytes.len().min(4096)] {
        let memory = Connection::open(":memory:").expect("a database");
        let image = &bytes[..size];
        memory.deserialize("main", image).expect("not read yet");
        assert_eq!(
            refused(&memory, "SELECT * FROM t"),
            "file is not a database"
        );
    }
    is_whole(&setup.open("x", engine));
}
