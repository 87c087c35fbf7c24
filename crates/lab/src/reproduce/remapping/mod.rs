//! Block remapping's figure.
//!
//! - [`traffic`]: the paper's figure 4.

mod traffic;

use super::Figure;

const RECORD_BYTES: u32 = 8192;
/// SQLite's default, in pages.
const AUTOCHECKPOINT: u32 = 1_000;

const COPY: &str = "onewrite:layout=gathered";
const EXCHANGE: &str = "onewrite:checkpoint=exchange";
const FORWARD: &str = "onewrite:checkpoint=forward";

/// The figures that can be reproduced.
pub const FIGURES: &[Figure] = &[Figure {
    name: "figure-4",
    title: "bytes written and elapsed time of inserts of 8 KB: WAL, DB remap, DB remap+",
    trials: traffic::trials,
    extra_s: 4.0,
    run: traffic::figure_4,
}];
