//! The command on the SQLite with both B-tree engines: `cargo test -p onewrite-cli --features
//! lsmvbt --test lsmvbt`.
#![cfg(feature = "lsmvbt")]

mod common;

use std::path::Path;

use common::flash::{self, FTLS, counts_add_up};
use common::{can_make, onewrite, path, text};
use onewrite_iotrace::scratch::FileSystem;
use serde_json::Value;

fn document(subcommand: &str, args: &[&str]) -> Value {
    let output = onewrite(subcommand, &[args, &["--json"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("a whole number, not {value}"))
}

#[test]
fn every_variation_is_in_force_and_every_database_is_as_it_must_be() {
    let dir = tempfile::tempdir().expect("a directory");
    let modes = "wal,lsmvbt:torn=double,lsmvbt:torn=trust,lsmvbt:lazy_split=off,reserve=0,\
                 lazy_gc=off,embedding=off,redistribution=on,lsmvbt:synchronous=normal";
    for op in ["insert", "update", "delete", "indexed", "app"] {
        let dir = path(dir.path());
        let args = ["--dir", dir, "--modes", modes, "--count", "60", "--op", op];
        let document = document("compare", &[&args[..], &["--repeat", "1"]].concat());
        let runs = document["runs"].as_array().expect("runs");
        assert_eq!(runs.len(), 5, "{op}");
        for run in runs {
            assert_eq!(run["checked"]["content"], "ok", "{op} {run:#}");
            assert_eq!(run["checked"]["stock_after_close"], "ok", "{op} {run:#}");
        }
        let status = |run: usize| &runs[run]["pragmas"]["onewrite_status"];
        assert_eq!(status(1)["torn"], "double");
        assert_eq!(status(2)["torn"], "trust");
        // The database and its table are made before the pragma can be set; after it, none of the 60
        // commits writes a slot.
        let slots = |run: usize| number(&status(run)["slot_pages_written"]);
        assert!(
            slots(2) < 60 && slots(1) >= slots(2) + 60,
            "{op} {} {}",
            slots(1),
            slots(2)
        );
        assert_eq!(status(3)["lazy_split"], "off");
        assert_eq!(status(3)["redistribution"], "on");
        // The default depends on the disk below, and says why.
        let torn = status(4)["torn"].as_str().expect("a setting");
        let reason = status(4)["torn_auto"].as_str().expect("a reason");
        assert!(reason.starts_with(torn), "{torn}: {reason}");
    }
}

#[test]
fn a_row_is_one_page_and_one_flush_where_page_writes_are_trusted() {
    if !can_make(FileSystem::Ext4) {
        return;
    }
    let modes = "wal,lsmvbt:torn=trust,lsmvbt:torn=double";
    let args = [
        "--scratch",
        "ext4",
        "--modes",
        modes,
        "--count",
        "400",
        "--repeat",
        "1",
    ];
    let document = document("compare", &args);
    let bytes: Vec<u64> = document["runs"]
        .as_array()
        .expect("runs")
        .iter()
        .map(|run| number(&run["device"]["write_bytes"]))
        .collect();
    // The bound. With `double` the page is the head of a slot, with its image.
    assert!(bytes[1] * 100 <= bytes[0] * 33, "{bytes:?}");
    assert!(bytes[2] * 100 <= bytes[0] * 33, "{bytes:?}");
    let flushes = number(&document["runs"][1]["device"]["flushes"]);
    assert!((400..420).contains(&flushes), "{flushes}");
}

/// As `tests/device.rs` has it for the other modes.
#[test]
fn what_flash_programs_is_what_the_host_wrote_the_map_and_what_was_moved() {
    if !Path::new("/dev/fuse").exists() {
        println!("SKIPPED: no /dev/fuse");
        return;
    }
    if !can_make(FileSystem::Ext4) {
        return;
    }
    let modes = ["lsmvbt:torn=double", "lsmvbt:torn=trust"];
    let joined = modes.join(",");
    for flash in FTLS {
        let args = ["--device", flash, "--modes", &joined];
        let more = ["--count", "60", "--repeat", "1"];
        let document = document("compare", &[&args[..], &more].concat());
        counts_add_up(&document, flash, &modes);
        let runs = document["runs"].as_array().expect("runs");
        let doubled = runs.iter().find(|run| run["mode"] == modes[0]);
        let written = flash::number(doubled.expect("a run"), "/flash/statistics/host_writes");
        // The head of a slot with the image of the leaf, which only comes in place when another one changes.
        assert!((60..2 * 60).contains(&written), "{document}");
    }
}

#[test]
fn what_does_not_fit_is_refused_in_words() {
    let output = onewrite("compare", &["--modes", "lsmvbt:layout=sector"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("torn, lazy_split, reserve"), "{said}");
}
