//! SQLite on the glue: the same SQL on stock SQLite and on another engine, in one library, with the
//! same results. The engine is the one in `model`, so that failures here are the glue's.

mod abbreviated;
mod areas;
mod backup;
mod backup_ends;
mod connections;
mod conversions;
mod counts;
mod differential;
mod full;
mod header;
mod held;
mod history;
mod messages;
mod model;
mod order;
mod pragmas;
mod raw;
mod read_only;
mod refused;
mod serialize;
mod support;
mod turns;
mod upkeep;
mod vacuum;
