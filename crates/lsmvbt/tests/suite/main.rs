//! The engine against a map of versions, against power cuts, and against damage; and the crash model.
//!
//! Runs are random and print their seed; `LSMVBT_SEED` gives it back. `LSMVBT_SCALE` multiplies how much
//! is done: 1 is what CI runs.

mod crash;
mod cursors;
mod damage;
mod drive;
mod full;
mod map;
mod model;
mod pages;
mod processes;
mod random;
mod several;
mod slots;
