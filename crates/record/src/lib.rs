//! The SQL that a program sent to SQLite, as events. This crate has their encoding, the trace file
//! that holds them, masking, and importers for SQL from other sources.
//!
//! [`event`] has the events and their bytes, [`mod@file`] the compressed file, and [`rows`] the
//! rows that a statement returned. [`mask`] removes sensitive values. [`sql`] parses the little
//! that we need of a statement's text. [`import`] reads the formats of other projects.
//! `docs/formats.md` has the bytes.
//!
//! Callers: the preloaded library (`crates/preload`) encodes events, `onewrite record` writes them,
//! and `onewrite replay` reads them. This crate does not link SQLite: programs that have one link
//! this crate.

pub mod event;
pub mod file;
pub mod import;
pub mod mask;
pub mod rows;
pub mod sql;
pub mod wire;

/// The environment variable that names the recorder's socket. The preloaded library reads it, and
/// so do programs that load the library as an extension.
pub const SOCKET_VARIABLE: &str = "ONEWRITE_RECORD";

/// The environment variable that names the extension which the preloaded library loads, for
/// `onewrite run`.
pub const EXTENSION_VARIABLE: &str = "ONEWRITE_RUN_EXTENSION";

/// The environment variable that names the file to which the preloaded library reports the result
/// of that load. Each process writes one line, and one for each database that it opens.
pub const REPORT_VARIABLE: &str = "ONEWRITE_RUN_REPORT";

/// Begins the line for a database. Its full path follows.
pub const OPENED: &str = "opened ";
