//! `onewrite-lab matrix` as a user runs it, on two tiny cells.

mod common;

use std::path::Path;

use common::{can_make, onewrite_lab, path, text};
use onewrite_iotrace::scratch::FileSystem;
use serde_json::Value;

const CELLS: [&str; 2] = ["insert/fresh/1t/none/4k", "update/fresh/8t/none/8k"];

fn can_run() -> bool {
    if !Path::new("/dev/fuse").exists() {
        println!("SKIPPED: no /dev/fuse");
        return false;
    }
    can_make(FileSystem::Ext4)
}

/// The planted mode is SQLite's rollback journal. It writes about twice the bytes of stock WAL and
/// flushes twice as often, whatever the machine does.
#[test]
fn a_planted_costly_mode_is_red_and_a_second_run_measures_nothing_again() {
    if !can_run() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (results, page) = (
        dir.path().join("cells.jsonl"),
        dir.path().join("matrix.html"),
    );
    let pictures = dir.path().join("pictures");
    let cells = CELLS.join(",");
    let args = [
        "--cells",
        &cells,
        "--modes",
        "wal,delete",
        "--count",
        "30",
        "--max-rounds",
        "2",
        "--results",
        path(&results),
        "--html",
        path(&page),
        "--scratch-dir",
        path(dir.path()),
        "--pictures",
        path(&pictures),
    ];
    // A run was stopped in the middle of a line.
    std::fs::write(&results, "{\"version\":1,\"cell\":\"ins").expect("a file");
    let output = onewrite_lab("matrix", &[&args[..], &["--json"]].concat());
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("2 of 2 {}", CELLS[1])), "{said}");
    let document: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert_eq!(
        (&document["red"], &document["version"]),
        (&2.into(), &1.into())
    );
    assert_eq!(document["missing"], Value::Array(Vec::new()));
    let measured = document["cells"].as_array().expect("cells");
    let names: Vec<&Value> = measured.iter().map(|cell| &cell["cell"]).collect();
    assert_eq!(names, CELLS);
    for cell in measured {
        assert_eq!(
            (&cell["rounds"], &cell["paced_rounds"]),
            (&2.into(), &2.into())
        );
        assert!(cell["offered_per_s"].as_u64() >= Some(1), "{cell}");
        let delete = &cell["modes"][0];
        assert_eq!(
            (&delete["mode"], &delete["state"]),
            (&"delete".into(), &"red".into())
        );
        let figures = delete["figures"].as_array().expect("figures");
        let names: Vec<&Value> = figures.iter().map(|figure| &figure["name"]).collect();
        assert_eq!(names, ["rate", "bytes", "cpu", "p99"]);
        for figure in figures {
            assert!(
                figure["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0),
                "{figure}"
            );
            // Two rounds decide nothing but counts.
            let is_count = figure["name"] == "bytes";
            let state = if is_count { "red" } else { "undecided" };
            assert_eq!(figure["state"], state, "{cell}");
        }
    }
    let html = std::fs::read_to_string(&page).expect("the page");
    for part in [
        "<svg",
        "delete against stock wal",
        "insert fresh 4k",
        CELLS[1],
    ] {
        assert!(html.contains(part), "{part}");
    }
    let picture = std::fs::read_to_string(pictures.join("matrix-delete.svg")).expect("a picture");
    assert!(html.contains(&picture), "the page shows another");

    let before = std::fs::read_to_string(&results).expect("the results");
    assert_eq!(before.lines().count(), 3, "{before}");
    let output = onewrite_lab("matrix", &args);
    let (shown, said) = (text(&output.stdout), text(&output.stderr));
    assert!(!said.contains(" of 2 "), "{said}");
    assert_eq!(
        std::fs::read_to_string(&results).expect("the results"),
        before
    );
    for part in [
        "insert fresh 4k",
        "update fresh 8k",
        "2 red, 0 undecided and 0 clear",
    ] {
        assert!(shown.contains(part), "{shown}");
    }
}

#[test]
fn a_selection_is_listed_or_refused_in_words() {
    let listed = onewrite_lab("matrix", &["--list", "--cells", "web/steady/*/sd/16k"]);
    let expected: Vec<String> = ["1t", "8t", "32t", "8p"]
        .map(|workers| format!("web/steady/{workers}/sd/16k\n"))
        .to_vec();
    assert_eq!(text(&listed.stdout), expected.concat());
    for (args, part) in [
        (
            ["--cells", "inserts"],
            "--cells inserts: no cell has that name",
        ),
        (["--modes", "onewrite,wal"], "wal comes first"),
    ] {
        let output = onewrite_lab("matrix", &args);
        assert_eq!(output.status.code(), Some(2));
        assert!(
            text(&output.stderr).contains(part),
            "{}",
            text(&output.stderr)
        );
    }
}
