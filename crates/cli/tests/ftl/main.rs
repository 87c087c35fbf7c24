//! `onewrite ftl`, and SQLite on what it mounts: `PRAGMA journal_mode=xftl` on transactional files.

mod command;
#[path = "../common/mod.rs"]
mod common;
mod cuts;
mod mode;
mod processes;
mod support;
mod transactions;
