//! Processes that write, read and are killed, and the checks that nothing was lost.
//!
//! The command `onewrite-torture` (and the integration tests, which run it) proves five properties
//! of a journal mode on a running machine. Power cuts are tested elsewhere.
//!
//! - [`kill`]: processes die by kill -9 at any moment, and every acknowledged commit survives.
//! - [`races`]: stock SQLite and ours open, write, close, switch modes and die at the same time,
//!   and neither harms the other.
//! - [`crash`]: stock SQLite cannot use the files of a crash, and can use them after a clean close.
//! - [`group_synch`]: the relaxed mode loses no more than its bound, and never out of order.
//! - [`soak`]: a bank runs on another SQLite than the linked one, whose own faults lose nothing.
//!
//! An orchestrator never opens SQLite itself. It reads the database's bytes, which a process with a
//! connection must not do. Everything else happens in workers, which are this same program.

pub mod checks;
pub mod crash;
pub mod database;
pub mod digest;
pub mod failure;
pub mod faults;
pub mod files;
pub mod group_synch;
pub mod interrupt;
pub mod kill;
pub mod ledger;
pub mod model;
pub mod probe;
pub mod processes;
pub mod races;
pub mod random;
pub mod scripted;
pub mod session;
pub mod setup;
pub mod soak;
pub mod steps;
pub mod transactions;
pub mod workers;
