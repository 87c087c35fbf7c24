//! Advice about files that do not belong together. No advice here may lose a committed transaction.

use std::path::Path;

use onewrite::log::LogId;

/// A guarded database without its log.
pub fn log_missing(id: LogId) -> String {
    format!(
        "missing: the database is guarded for the log {id}, which holds its newest transactions; put \
         that log back next to the database. To read the database without it: \
         \"onewrite salvage DB -o OUT\""
    )
}

/// A guarded database with a log whose header is zeros.
pub fn header_zeroed(id: LogId) -> String {
    format!(
        "its header is zeros, but the database is guarded for the log {id}, which holds its newest \
         transactions. Keep the file, and put that log back next to the database. To read the database \
         without it: \"onewrite salvage DB -o OUT\""
    )
}

/// A log whose header is zeros, though it was written.
pub fn header_lost(first: u64) -> String {
    format!(
        "its header is zeros, but there are bytes behind it, from byte {first} on: the log was written, and \
         has lost its header. Without it nothing here is read. Keep the file, and put a whole copy of it in \
         its place. To read the database without it: \"onewrite salvage DB -o OUT\""
    )
}

/// SQLite's own log without a header.
pub fn wal_header_zeroed(first: u64) -> String {
    format!(
        "its header is zeros, so to SQLite the log is empty. But there are bytes behind it, from byte {first} \
         on. Either the power failed while the first transaction was written, which then did not commit. Or \
         the header was lost, and with it what the log held: keep a copy of the file"
    )
}

/// A guarded database with the log of another.
pub fn log_of_another(found: LogId, guard: LogId) -> String {
    format!(
        "of another database: its id is {found}, the database is guarded for {guard}. Keep both files and \
         put the right log back. \"onewrite salvage LOG -o OUT\" reads this one by itself"
    )
}

/// A log with transactions next to a database that is not guarded.
pub fn log_without_guard(log: &Path) -> String {
    format!(
        "it holds transactions, but the database is not guarded for it: the database was replaced or \
         restored since. They are never replayed into this database. Keep the log: \
         \"onewrite salvage {} -o OUT\" reads it",
        log.display()
    )
}

/// A log of SQLite's own next to a database without bytes.
pub fn log_of_empty_database(log: &Path) -> String {
    format!(
        "it holds transactions, but the database has 0 bytes: it was cut or replaced since. SQLite \
         deletes this log when it opens the database. Copy the log first: \
         \"onewrite salvage {} -o OUT\" reads it",
        log.display()
    )
}

/// A `-wal` or hot `-journal` of stock SQLite next to a guarded database.
pub fn stock_file_next_to_guard() -> &'static str {
    "a file of stock SQLite next to a guarded database: it belongs to another database, and stock SQLite \
     would apply it before it reads the guard. Rename the file; \
     \"onewrite salvage DB --log FILE -o OUT\" tries it on a copy"
}
