//! Block remapping's figure, and what remapping does to flash.
//!
//! - [`traffic`]: the paper's figure 4.
//! - [`flash`]: the same work on our flash device; the paper has no such figure.

mod flash;
mod traffic;

use super::Figure;

const RECORD_BYTES: u32 = 8192;
/// SQLite's default, in pages.
const AUTOCHECKPOINT: u32 = 1_000;

const COPY: &str = "onewrite:layout=gathered";
const EXCHANGE: &str = "onewrite:checkpoint=exchange";
const FORWARD: &str = "onewrite:checkpoint=forward";
/// The paper's region, which a thread keeps whole.
const REGION: &str = "onewrite:checkpoint=forward,region=150m";

/// The figures that can be reproduced.
pub const FIGURES: &[Figure] = &[
    Figure {
        name: "figure-4",
        title: "bytes written and elapsed time of inserts of 8 KB: WAL, DB remap, DB remap+",
        trials: traffic::trials,
        extra_s: 4.0,
        run: traffic::figure_4,
    },
    Figure {
        name: "flash",
        title: "what remapping does to NAND, to the files' extents and to a later scan (ours)",
        trials: |_| Vec::new(),
        extra_s: 60.0,
        run: flash::flash,
    },
];
