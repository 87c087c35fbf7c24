//! Hostile bytes: all our code that reads bytes from disk, as functions of input bytes.
//!
//! ```text
//! headers   the log's header, SQLite's, the guard in the database's
//! frames    each layout's walk over its frames
//! tools     inspect, verify, salvage, the kernel's trace ring, the record of a power cut
//! pair      a database and its log through real SQLite
//! ```
//!
//! A [`Target`] panics when the code breaks a promise, and never otherwise, for any input. The
//! fuzzer in `fuzz/` searches for such input by coverage. `tests/bounded.rs` runs the kept corpus
//! and random changes of it, without a fuzzer. Most inputs are small programs, not files. They
//! choose a valid file that the engine made, and its changes, with checksums repaired or not.

mod bytes;
mod change;
mod frames;
mod headers;
mod pair;
mod tools;

/// Code that reads bytes from disk.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of its fuzzer and of its corpus.
    pub name: &'static str,
    /// Reads `data`.
    pub run: fn(&[u8]),
    /// How many random inputs the bounded test tries.
    pub runs: u32,
    /// The most bytes of a random input.
    pub max_bytes: usize,
}

/// All of them.
pub const TARGETS: [Target; 10] = [
    target("wal", headers::wal, 200_000, 4096 + 64),
    target("log_header", headers::log, 200_000, 256),
    target("database_header", headers::database, 200_000, 256),
    target("frames", frames::run, 20_000, 256),
    target("inspect", tools::inspect, 3_000, 256),
    target("verify", tools::verify, 2_000, 256),
    target("salvage", tools::salvage, 3_000, 256),
    target("trace", tools::trace, 200_000, 4096),
    target("history", tools::history, 50_000, 9000),
    target("pair", pair::run, 6_000, 256),
];

const fn target(name: &'static str, run: fn(&[u8]), runs: u32, max_bytes: usize) -> Target {
    Target {
        name,
        run,
        runs,
        max_bytes,
    }
}

/// Runs the target of this name on `data`.
///
/// # Panics
/// If the code breaks a promise, or there is no such target.
pub fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    match target {
        Some(target) => (target.run)(data),
        None => panic!("there is no target {name}"),
    }
}
