//! Replays recorded SQL: the same statements with the same values in the same order, under a
//! journal mode that the caller chooses.
//!
//! [`contents`] reads a trace once, for its totals and the files that its databases began with.
//! [`engine`] plays it, on one thread or on one for each connection.
//! [`results`] compares each statement's rows with those of the
//! first mode and with the recorded ones. [`digest`] is the content of a database as one number.
//! Only [`sqlite`] and [`clock`] call SQLite without rusqlite, and only they have unsafe code.

pub mod clock;
pub mod contents;
pub mod digest;
pub mod engine;
pub mod results;
pub mod sqlite;
