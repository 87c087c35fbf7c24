//! `PRAGMA synchronous`, and the floor below which it does not fall (`onewrite_synchronous`).
//!
//! A pragma that says less goes on in SQLite with the floor's level. So `PRAGMA synchronous` reads what
//! holds, and OFF, at which a checkpoint flushes nothing, does not occur. An answer of our own would
//! give the statement a column, without a name: Python raises MemoryError for that, and PHP ends. A
//! SQLite that is compiled to run at NORMAL says no pragma: there the log holds the floor
//! (`commit/floor.rs`).

use super::database::Database;
use super::pragma::{Answer, Failure};
use super::settings::SYNCHRONOUS;
use crate::mode::Floor;

/// SQLite's levels, by their numbers.
const LEVELS: [&str; 4] = ["off", "normal", "full", "extra"];
const OFF: u8 = 0;
const FULL: u8 = 2;

impl Database {
    /// `PRAGMA synchronous=value`.
    pub(super) fn set_synchronous(&self, value: &str) -> Answer {
        let floor = self.settings.get().commit.floor.level();
        let connection = self.connection.get();
        if connection.is_some_and(|connection| !connection.is_autocommit()) {
            // Within a transaction SQLite refuses every level.
            return Answer::Pass;
        }
        let said = level_of(value);
        let level = said.max(floor);
        if let Some(writer) = self.writer.borrow_mut().as_mut() {
            writer.synchronous_changed();
        }
        self.snapshots.flush_nothing.set(level == OFF);
        self.snapshots.are_relaxed.set(level < FULL);
        match said < level {
            true => Answer::PassAs(b'0' + level),
            false => Answer::Pass,
        }
    }

    /// The connection's level as SQLite has it.
    pub(super) fn synchronous(&self) -> Option<u8> {
        let (connection, schema) = self.connection_and_schema().ok()??;
        let answer = connection.query(&format!("PRAGMA {schema}.synchronous"));
        answer.ok()??.parse().ok()
    }

    /// The floor was set. The log holds it for a connection at NORMAL. At OFF a checkpoint flushes
    /// nothing, so the level itself changes.
    pub(super) fn raise_to_floor(&self) -> Result<(), Failure> {
        let floor = self.settings.get().commit.floor.level();
        if floor == 0 || self.synchronous() != Some(OFF) {
            return Ok(());
        }
        self.set_level(floor)
    }

    /// Whether this floor can be set now.
    pub(super) fn check_floor(&self, floor: Floor) -> Result<(), String> {
        let connection = self.connection.get();
        let in_transaction = connection.is_some_and(|connection| !connection.is_autocommit());
        match in_transaction && floor != Floor::None && self.synchronous() == Some(OFF) {
            true => Err(format!(
                "{SYNCHRONOUS}: the connection is at OFF, which cannot change within a transaction"
            )),
            false => Ok(()),
        }
    }

    fn set_level(&self, level: u8) -> Result<(), Failure> {
        let both = self.connection_and_schema().map_err(|e| self.why(e))?;
        let (connection, schema) = both.ok_or("the connection is not known to the VFS")?;
        let set = connection.query(&format!("PRAGMA {schema}.synchronous={level}"));
        set.map(drop).map_err(|e| self.why(e))
    }

    /// Whether this connection's reads need not wait for the durability of others' commits.
    pub(super) fn reads_relaxed(&self) -> bool {
        let has_floor = self.settings.get().commit.floor.level() > 0;
        self.snapshots.are_relaxed.get() && !has_floor
    }
}

/// The name of a level.
pub(super) fn name_of(level: u8) -> Option<&'static str> {
    LEVELS.get(usize::from(level)).copied()
}

/// The level that SQLite sets for a word (`getSafetyLevel` of its pragma.c).
fn level_of(value: &str) -> u8 {
    let digits = value.len() - value.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    if digits > 0 {
        let number: u32 = value[..digits].parse().unwrap_or(0);
        // Of the number plus one SQLite keeps three bits, and takes 0 for OFF.
        return (number.wrapping_add(1) & 7).saturating_sub(1) as u8;
    }
    match value.to_ascii_lowercase().as_str() {
        "off" | "no" | "false" => 0,
        "full" => 2,
        "extra" => 3,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_mean_what_they_mean_to_sqlite() {
        let db = rusqlite::Connection::open_in_memory().expect("a database");
        let words = [
            "off", "no", "false", "on", "yes", "true", "normal", "NORMAL", "full", "Extra", "what",
            "0", "1", "2", "3", "4", "6", "7", "8", "2x", "258",
        ];
        for word in words {
            db.execute_batch(&format!("PRAGMA synchronous='{word}'"))
                .expect("a level");
            let level: u8 = db
                .query_row("PRAGMA synchronous", (), |row| row.get(0))
                .expect("a level");
            assert_eq!(level_of(word), level, "{word}");
        }
    }
}
