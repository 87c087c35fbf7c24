//! `onewrite ftl`, and SQLite on its mounts: `PRAGMA journal_mode=xftl` on transactional files.

mod below;
mod blktrace;
mod command;
#[path = "../common/mod.rs"]
mod common;
mod cuts;
mod mode;
mod processes;
mod replay;
#[path = "../../../onewrite/tests/common/shim.rs"]
mod shim;
mod super_journal;
mod support;
mod transactions;
