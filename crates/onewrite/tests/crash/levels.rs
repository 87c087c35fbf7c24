//! Commits that need not be durable when they return, alone and next to those that must be.

use super::history::Config;
use super::random::{Random, seed};
use super::record::Device;
use super::{Counts, crash, depth_of, everything};

/// Connections that take turns, so that their commits are published before they are durable, and one that
/// is less durable.
pub const MIXED: &str = "groups next to one that is less durable";

/// A commit at FULL makes all commits before it durable: C14.
#[test]
fn a_commit_at_full_makes_those_before_it_durable_at_whatever_level() {
    let mut random = Random::new(seed(MIXED));
    let mut total = Counts::default();
    for mode in ["onewrite", "direct", "waldio", "swal"] {
        for less in ["synchronous=NORMAL", "onewrite_sync=normal"] {
            for device in Device::ALL {
                let config = Config {
                    mode,
                    less,
                    device,
                    page: [512, 4096][random.below(2) as usize],
                    group_commit: "on",
                    ..Config::USUAL
                };
                let depth = depth_of(MIXED, config.page);
                let (counts, found) = crash(&config, MIXED, &mut random, depth, |events| events);
                total.add(&counts);
                if let Err(wrong) = found {
                    panic!("{wrong}");
                }
            }
        }
    }
    println!("{total:?}");
}

/// Commits that return before they are durable may be lost, the last ones first. A commit is never
/// lost in part, and none is lost after a close.
#[test]
fn normal() {
    let synchronous = "NORMAL";
    everything(
        "synchronous=NORMAL",
        Config {
            synchronous,
            ..Config::USUAL
        },
    );
    let sync = "normal";
    everything(
        "onewrite_sync=normal",
        Config {
            sync,
            ..Config::USUAL
        },
    );
}

/// The same at NORMAL, where `onewrite_synchronous=full` makes each commit durable.
#[test]
fn normal_with_a_floor() {
    for (mode, layout) in [
        ("waldio", "embedded"),
        ("waldio", "gathered"),
        ("onewrite", "packed"),
        ("swal", "compressed"),
        ("direct", "stock"),
    ] {
        let base = Config {
            mode,
            layout,
            synchronous: "NORMAL",
            floor: "full",
            ..Config::USUAL
        };
        everything(&format!("a floor in {mode}, {layout}"), base);
    }
}
