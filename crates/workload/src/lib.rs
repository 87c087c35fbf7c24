//! The built-in workloads: their transactions, their journal modes, and their checks.
//!
//! - [`mode`] turns a mode name as a user writes it into pragmas.
//! - [`connection`] opens a database under a mode and reads back the settings in force.
//! - [`databases`] opens all files of a plan.
//! - [`plan`] determines the transactions of a run, and the expected content of the database.
//! - [`team`] runs the transactions on one or more threads and times each of them.
//! - [`files`] is the part of Mobibench without SQLite.
//! - [`raw`] measures the limits of the device itself, for comparison with a rate.
//!
//! The caller is the `onewrite` command; nothing here prints.

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
pub mod zipfian;

pub use draws::shuffle;
pub use error::Error;
