//! `onewrite top` names each program and database that is written to. Its commits are those that the
//! programs count, its bytes those that the device counts ([`exact`]). A killed one leaves nothing
//! running, and users without root learn what can be known ([`people`]). It names those that hold a
//! checkpoint up ([`readers`]).

#[path = "../common/mod.rs"]
mod common;
mod exact;
mod hard;
mod people;
mod programs;
mod readers;
mod running;

use std::path::Path;
use std::process::Command;

use running::{Top, database, list, number};
use rustix::process::{Pid, Signal, kill_process};
