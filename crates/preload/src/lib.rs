//! The library that `onewrite record` and `onewrite run` preload (`LD_PRELOAD`) into a program with a
//! dynamically linked SQLite.
//!
//! It has functions of SQLite's names, which the dynamic linker finds before SQLite's own. Each calls
//! the one that the caller would have had (`real`) with the same arguments and returns what that
//! returns. Around it, `hooks` tell what happened to the recorder (`state`, `sink`), or load our
//! extension before the first database is opened (`load`).
//!
//! What it guarantees: SQLite is asked nothing that changes what the program sees; no failure of the
//! recorder reaches the program (recording ends, and standard error says so once); nothing is recorded
//! of what SQLite does within a call, as its full-text search does; nothing is locked while SQLite works;
//! a forked child records for itself.
#![allow(unsafe_code)]

mod environment;
mod extension;
mod hooks;
mod load;
mod real;
mod sink;
mod state;
