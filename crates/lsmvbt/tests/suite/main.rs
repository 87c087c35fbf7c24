//! The engine against a map of versions, against power cuts, and against damage; and the crash
//! model.
//!
//! Runs are random and print their seed; `LSMVBT_SEED` replays it. `LSMVBT_SCALE` multiplies the
//! amount of work: CI runs 1.

mod ahead;
mod bounds;
mod crash;
mod cursors;
mod damage;
mod diff;
mod drive;
mod flushes;
mod full;
mod going_back;
mod grow;
mod headers;
mod heads;
mod heal;
mod hooks;
mod interplay;
mod kept;
mod kills;
mod labels;
mod late;
mod late_double;
mod late_fuzz;
mod late_handles;
mod late_strays;
mod leaks;
mod map;
mod marks;
mod metas;
mod model;
mod pages;
mod parts;
mod pins;
mod prepared;
mod processes;
mod random;
mod refused;
mod remains;
mod rounds;
mod same_file;
mod scan;
mod several;
mod shared;
mod shown;
mod slots;
mod stays;
mod times;
mod vacuum;
