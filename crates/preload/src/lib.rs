//! The library that `onewrite record` and `onewrite run` preload (`LD_PRELOAD`) into a program with
//! a dynamically linked SQLite.
//!
//! The library has functions with SQLite's names, and the dynamic linker finds them before SQLite's
//! own. Each calls the function that the caller would otherwise reach (`real`) with the same
//! arguments and returns its result. `hooks` also report the call to the recorder (`state`,
//! `sink`), or load the onewrite extension before the first database opens (`load`). One function is
//! the C library's: `dlopen`.
//!
//! The library guarantees:
//!
//! - it asks SQLite nothing that changes what the program sees;
//! - no failure of the recorder reaches the program: recording ends, and standard error says so
//!   once;
//! - it records nothing that SQLite does within a call, such as in its full-text search;
//! - it holds no lock while SQLite works;
//! - a forked child records for itself.
#![allow(unsafe_code)]

mod environment;
mod extension;
mod hooks;
mod load;
mod real;
mod sink;
mod state;
