//! Recorded SQL, once more: the same statements with the same values in the same order, under a journal
//! mode of one's choice.
//!
//! [`stage`] reads a trace once: what it holds, and the files that its databases began with. [`engine`]
//! plays it on one thread, and [`results`] compares what each statement returned with what it returned
//! under the first mode and when it was recorded. [`digest`] is the content of a database in one number.
//! [`sqlite`] and [`clock`] are the only ones that call SQLite without rusqlite, and the only ones with unsafe code.

pub mod clock;
pub mod digest;
pub mod engine;
pub mod results;
pub mod sqlite;
pub mod stage;
