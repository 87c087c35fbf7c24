//! Trees: search, insertion and deletion, the three splits, garbage collection, the catalog.
//!
//! Order within a node: for every version, the entries visible at it are in key order. Entries
//! whose lifetimes do not meet may stand in any order. A new entry only lives together with the
//! live ones. So it is put between its live neighbors, and no dead key is ever compared. Undo keeps
//! this, because two entries that are visible together after it were alive together before.
//!
//! A router carries the low key of its child. The first visible router of a node covers everything
//! below it, whatever its key says.

pub(crate) mod catalog;
pub(crate) mod check;
pub(crate) mod collect;
mod diff;
pub(crate) mod edit;
mod nearer;
pub(crate) mod pack;
pub(crate) mod search;
pub(crate) mod split;
pub(crate) mod sweep;
pub(crate) mod value;
