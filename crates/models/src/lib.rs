//! The engine's threads and shared memory under model checkers: `tests/model` under shuttle,
//! `tests/orders.rs` under loom. docs/testing.md says how to run them. This crate has only tests.
//! It is apart from the engine so that a checker compiles neither SQLite nor proptest without need.
