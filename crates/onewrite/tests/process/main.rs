//! The process around the engine: how it was started, how it forks, how its threads end, which
//! SQLite settings it changes, and what it shares with other processes.
#![allow(unsafe_code)]

mod children;
mod fork;
mod pages;
mod privileges;
mod refused;
mod shared_cache;
mod thread_exit;

use rusqlite::Connection;
use std::path::Path;

fn open(path: &Path) -> Connection {
    onewrite::register().expect("the VFS onewrite");
    let flags = rusqlite::OpenFlags::default() | rusqlite::OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags_and_vfs(path, flags, c"onewrite").expect("a connection")
}

/// The first column of a statement's first row, as text.
fn sql(db: &Connection, statement: &str) -> String {
    let mut statement = db.prepare(statement).expect("a statement");
    let mut rows = statement.query([]).expect("a query");
    let first = rows.next().expect("a row");
    first.map_or_else(String::new, |row| {
        let value = row.get_ref(0).expect("a value");
        match value {
            rusqlite::types::ValueRef::Integer(number) => number.to_string(),
            other => other.as_str().expect("text").to_owned(),
        }
    })
}

/// Whether stock SQLite may use the database.
fn is_stock(path: &Path) -> bool {
    std::fs::read(path).expect("the database")[19] != onewrite::GUARD_BYTE
}
