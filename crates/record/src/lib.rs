//! The SQL that a program sent to SQLite, as events: how they are encoded, the trace file that holds
//! them, masking, and importers that make them of SQL from elsewhere.
//!
//! [`event`] is what happened and its bytes, [`mod@file`] the compressed file, [`rows`] what a statement
//! returned, [`mask`] takes what is sensitive out of it, [`sql`] the little that must be known of a
//! statement's text, [`import`] reads other people's formats.
//! `docs/formats.md` has the bytes.
//!
//! The preloaded library (`crates/preload`) encodes events; `onewrite record` writes them down;
//! `onewrite replay` reads them. This crate knows no SQLite: it is linked into programs that have one.

pub mod event;
pub mod file;
pub mod import;
pub mod mask;
pub mod rows;
pub mod sql;
pub mod wire;

/// The environment variable that names the socket of the recorder, for the preloaded library and for
/// programs that load it as an extension.
pub const SOCKET_VARIABLE: &str = "ONEWRITE_RECORD";

/// The environment variable that names the extension which the preloaded library is to load, for
/// `onewrite run`.
pub const EXTENSION_VARIABLE: &str = "ONEWRITE_RUN_EXTENSION";

/// The environment variable that names the file to which the preloaded library reports what came of
/// that, a line each process.
pub const REPORT_VARIABLE: &str = "ONEWRITE_RUN_REPORT";
