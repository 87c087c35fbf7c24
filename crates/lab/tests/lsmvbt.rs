//! The command on the SQLite with both B-tree engines:
//! `cargo test -p onewrite-lab --features lsmvbt --test lsmvbt`.
#![cfg(feature = "lsmvbt")]

mod common;

use common::{can_make, can_run, onewrite_lab, path, text};
use onewrite_iotrace::scratch::FileSystem;
use serde_json::Value;

fn document(subcommand: &str, args: &[&str]) -> Value {
    let output = onewrite_lab(subcommand, &[args, &["--json"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("a whole number, not {value}"))
}

#[test]
fn power_cuts_lose_nothing() {
    if !can_run() {
        return;
    }
    for arguments in [
        "--mode lsmvbt --cuts 100",
        "--mode lsmvbt:torn=trust --tear 4k --cuts 100",
        "--mode lsmvbt --fs xfs --cuts 60",
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let mut all: Vec<&str> = arguments.split_whitespace().collect();
        all.extend(["--time-limit", "60", "--dir", path(dir.path())]);
        let report = document("powercut", &all);
        eprintln!("{arguments}: {report:#}");
        assert!(number(&report["images"]) >= 10, "{report:#}");
        assert_eq!(report["commits_lost_as_allowed"], 0, "{report:#}");
    }
}

#[test]
fn a_soak_finds_nothing_but_a_planted_defect() {
    if !can_run() {
        return;
    }
    let soak = |more: &str| {
        let dir = tempfile::tempdir().expect("a directory");
        let arguments =
            "--mode lsmvbt --events 40 --seconds 30 --hurry 12 --rate 20 --workers 4 --disk 64";
        let all: Vec<&str> = arguments
            .split(' ')
            .chain(more.split_whitespace())
            .collect();
        onewrite_lab("soak", &[&all[..], &["--dir", path(dir.path())]].concat())
    };
    let output = soak("");
    assert!(
        output.status.success(),
        "{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert!(number(&report["acknowledged"]) > 0, "{report:#}");

    let output = soak("--broken acknowledges-rolled-back");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let output = soak("--library /none");
    assert!(
        text(&output.stderr).contains("no extension"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn the_slides_are_reproduced_with_a_reason_for_every_count_that_differs() {
    if !can_make(FileSystem::Ext4) {
        return;
    }
    let args = [
        "lsmvbt",
        "--scratch",
        "ext4",
        "--count",
        "200",
        "--repeat",
        "1",
    ];
    let document = document("reproduce", &args);
    assert_eq!(
        document["failed"].as_array().map(Vec::len),
        Some(0),
        "{document:#}"
    );
    let figures = document["figures"].as_array().expect("figures");
    assert_eq!(figures.len(), 6);
    for figure in figures {
        for row in figure["rows"].as_array().expect("rows") {
            // The steps of slide 56 have no name, so nothing is run for them.
            let is_unnamed = row["name"]
                .as_str()
                .is_some_and(|name| name.ends_with("unnamed"));
            assert_eq!(row["ours"].is_number(), !is_unnamed, "{row:#}");
            let differs = matches!(row["verdict"].as_str(), Some("magnitude" | "misses"));
            let same =
                |told: &&Value| told["row"] == row["name"] && told["quantity"] == row["quantity"];
            if differs && row["kind"] == "counted" {
                let told = figure["differences"]
                    .as_array()
                    .and_then(|all| all.iter().find(same));
                let told = told.unwrap_or_else(|| panic!("not told: {row:#}"));
                assert_eq!(told["holds"], true, "{told:#}");
            }
        }
    }
}

#[test]
fn all_papers_are_a_site_and_finished_ones_are_kept() {
    if !can_run() || !can_make(FileSystem::Ext4) || !can_make(FileSystem::Xfs) {
        return;
    }
    const PAPERS: [&str; 5] = ["waldio", "swal", "block-remapping", "lsmvbt", "xftl"];
    let site = tempfile::tempdir().expect("a directory");
    let file = |name: &str| std::fs::read_to_string(site.path().join(name)).expect("a file");
    let run = |more: &[&str]| {
        let args = [
            "--all",
            "--quick",
            "--seed",
            "7",
            "--html",
            path(site.path()),
        ];
        let output = onewrite_lab("reproduce", &[&args, more].concat());
        let said = text(&output.stderr);
        assert!(output.status.success(), "{said}");
        said
    };
    let said = run(&[]);
    assert!(said.contains("paper 5 of 5, about"), "{said}");
    let contents = file("index.html");
    for paper in PAPERS {
        let page = file(&format!("{paper}.html"));
        for fact in [
            "<dt>seed</dt><dd>7</dd>",
            "<dt>commit</dt>",
            "<dt>date</dt>",
            "<dt>processor</dt>",
        ] {
            assert!(page.contains(fact), "{paper} has no {fact}");
        }
        assert!(
            !page.contains("<script") && !page.contains("src="),
            "{paper}"
        );
        assert!(
            contents.contains(&format!("href=\"{paper}.html\"")),
            "{contents}"
        );
        let done: Value = serde_json::from_str(&file(&format!("{paper}.json"))).expect("JSON");
        assert_eq!(
            (&done["counts"]["failed"], &done["version"]),
            (&0.into(), &1.into())
        );
        let figures = done["document"]["figures"].as_array().expect("figures");
        let rows = figures
            .iter()
            .map(|figure| figure["rows"].as_array().map_or(0, Vec::len));
        assert_eq!(
            number(&done["counts"]["rows"]),
            rows.sum::<usize>() as u64,
            "{paper}"
        );
        assert!(
            page.matches("<tr>").count() as u64 > number(&done["counts"]["rows"]),
            "{paper}"
        );
    }
    // Nothing is left to do, and then one paper.
    assert!(!run(&["--resume"]).contains("paper 1 of"));
    let kept = file("swal.json");
    std::fs::remove_file(site.path().join("block-remapping.html")).expect("removed");
    let said = run(&["--resume"]);
    assert!(said.contains("block-remapping, paper 1 of 1"), "{said}");
    assert!(site.path().join("block-remapping.html").exists());
    assert_eq!(file("swal.json"), kept);
    // Other options make other figures, and there is no time for them.
    let args = [
        "--all",
        "--quick",
        "--seed",
        "8",
        "--resume",
        "--html",
        path(site.path()),
    ];
    let output = onewrite_lab("reproduce", &[&args[..], &["--time-limit", "0"]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("not run: 0 minutes were over"));
}

/// A commit flushes once, whatever is read meanwhile, and recovery finds it.
#[test]
fn commits_and_recoveries_are_counted_by_size() {
    if !can_make(FileSystem::Ext4) {
        return;
    }
    let modes = "wal,lsmvbt:torn=trust,lsmvbt:torn=double";
    let args = "--scratch ext4 --sizes 1 --row 300 --count 100 --repeat 1 --modes";
    let args: Vec<&str> = args.split_whitespace().chain([modes]).collect();
    let document = document("sizes", &args);
    let rows = |name: &str| document[name].as_array().expect("rows").clone();
    let commits = rows("commits");
    assert_eq!((commits.len(), rows("recoveries").len()), (18, 9));
    for row in &commits {
        let counts = &row["counts"];
        let is_ours = row["mode"] != "wal";
        // Where the file grows, the file system's journal takes some more.
        let flushes = number(&counts["flushes"]);
        let most = if is_ours { 130 } else { 240 };
        assert!((100..=most).contains(&flushes), "{row:#}");
        assert!(number(&counts["written_bytes"]) >= 100 * 4096, "{row:#}");
        assert_eq!(counts["splits"].is_number(), is_ours, "{row:#}");
        assert!(counts["us"].as_f64().is_some_and(|us| us > 0.0), "{row:#}");
    }
    for row in rows("recoveries") {
        assert!(number(&row["read_bytes"]) >= 4096, "{row:#}");
    }
}
