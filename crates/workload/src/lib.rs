//! The built-in workloads: what is run, under which journal mode, and how it is checked.
//!
//! [`mode`] turns a mode name as a user writes it into pragmas, [`connection`] opens a database under
//! it and reads back what is in force, [`databases`] all files of a plan, [`plan`] says what a run executes and what must be in the
//! database afterwards, [`team`] runs the transactions on one or more threads and times each of them,
//! [`files`] is the part of Mobibench without SQLite, and [`raw`] measures what the device itself can do, so that a rate has something to be held
//! against. The `onewrite` command is the caller; nothing here prints.

pub mod clock;
pub mod connection;
pub mod databases;
mod draws;
mod engine;
mod error;
pub mod files;
pub mod latency;
mod mapping;
pub mod mode;
mod pace;
pub mod plan;
pub mod raw;
pub mod team;

pub use error::Error;
