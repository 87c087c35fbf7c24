//! Hostile bytes: all our code that reads bytes from disk, as functions of input bytes.
//!
//! ```text
//! headers   the log's header and SQLite's
//! frames    each layout's walk over its frames
//! records   the kernel's trace ring, the record of a power cut
//! tools     inspect, verify, salvage, the guard in a database's header
//! pair      a database and its log through real SQLite
//! ```
//!
//! A [`Target`] panics when the code breaks a promise, and never otherwise, for any input. The
//! fuzzer in `fuzz/` searches for such input by coverage. `tests/bounded.rs` runs the kept corpus
//! and random changes of it, without a fuzzer. Most inputs are small programs, not files. They
//! choose a valid file that the engine made, and its changes, with checksums repaired or not.
//!
//! A fuzzer calls the function of its target, and its program has no code of the others. The
//! features leave out what takes long to compile: SQLite, and the command.

mod bytes;
#[cfg_attr(not(feature = "sqlite"), allow(dead_code))]
mod change;
mod frames;
mod headers;
#[cfg(feature = "sqlite")]
mod pair;
mod records;
mod sleep;
#[cfg(feature = "tools")]
mod tools;

pub use frames::run as frames;
pub use headers::{log as log_header, wal};
#[cfg(feature = "sqlite")]
pub use pair::run as pair;
pub use records::{history, trace};
#[cfg(feature = "tools")]
pub use tools::{database as database_header, inspect, salvage, verify};

/// Code that reads bytes from disk.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of its fuzzer and of its corpus.
    pub name: &'static str,
    /// Reads the input. Panics if the code breaks a promise.
    pub run: fn(&[u8]),
    /// How many random inputs the bounded test tries.
    pub runs: u32,
    /// The most bytes of a random input.
    pub max_bytes: usize,
}

/// All of them.
pub const TARGETS: &[Target] = &[
    target("wal", wal, 200_000, 4096 + 64),
    target("log_header", log_header, 200_000, 256),
    #[cfg(feature = "tools")]
    target("database_header", database_header, 200_000, 256),
    target("frames", frames, 20_000, 256),
    #[cfg(feature = "tools")]
    target("inspect", inspect, 3_000, 256),
    #[cfg(feature = "tools")]
    target("verify", verify, 2_000, 256),
    #[cfg(feature = "tools")]
    target("salvage", salvage, 3_000, 256),
    target("trace", trace, 200_000, 4096),
    target("history", history, 50_000, 9000),
    #[cfg(feature = "sqlite")]
    target("pair", pair, 6_000, 256),
];

const fn target(name: &'static str, run: fn(&[u8]), runs: u32, max_bytes: usize) -> Target {
    Target {
        name,
        run,
        runs,
        max_bytes,
    }
}
