//! `scripts/tried` and the totals of `scripts/fuzz`, with planted reports.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn tried(arguments: &[&str]) -> Output {
    Command::new(root().join("scripts/tried"))
        .args(arguments)
        .output()
        .expect("scripts/tried")
}

/// The page for these reports, and the exit code.
fn page(reports: &[(&str, String)]) -> (String, Option<i32>) {
    let directory = TempDir::new().expect("a directory");
    for (name, text) in reports {
        fs::write(directory.path().join(name), text).expect("a report");
    }
    let results = directory.path().to_string_lossy();
    let output = tried(&[&results, "--page", "-"]);
    let text = String::from_utf8(output.stdout).expect("text");
    (text, output.status.code())
}

fn soak(mode: &str, failures: u64, anomalies: &Value) -> Value {
    json!({
        "version": 1, "mode": mode, "acknowledged": 1000, "processes": 50, "elapsed_s": 5400.0,
        "failures": failures, "events": {"killed": 7, "all killed": 3, "power cut": 2, "clock jump": 5},
        "checked": {"transactions": 10, "anomalies": anomalies}
    })
}

fn powercut(failure: &Value) -> Value {
    json!({
        "filesystem": "ext4", "mode": "onewrite", "images": 2000, "second_images": 500,
        "distinct_images": 900, "commits_lost_as_allowed": 0, "failure": failure
    })
}

fn lockstep(mutant: &Value, losses: u64) -> Value {
    json!({
        "sqlite": "3.40.1", "mode": "onewrite", "mutant": mutant, "orders": 3000, "steps": 60000,
        "orders_per_second": 2.0, "losses": losses
    })
}

fn fuzz(findings: u64) -> Value {
    let session = json!({
        "commit": "0123456789abcdef", "changed": false, "date": "2026-11-26T00:00:00+00:00",
        "machine": "a machine",
        "targets": [{"target": "pair", "runs": 40000, "seconds": 360.0, "edges": 9, "findings": findings}]
    });
    json!({"version": 1, "kind": "fuzz", "sessions": [session, session.clone()], "totals": {}})
}

fn sqlite_tests(unexplained: u64) -> Value {
    let sums = json!({"files": 300, "tests": 200_000, "explained": 5, "unexplained": unexplained});
    json!({"version": 1, "kind": "sqlite-tests", "sqlite": "3.54.1", "modes": {"direct": sums}})
}

#[test]
fn numbers_of_the_same_kind_add_up() {
    let two = format!("{}\n{}\n", powercut(&json!(null)), powercut(&json!(null)));
    let (page, code) = page(&[
        ("a.json", soak("direct", 0, &json!({})).to_string()),
        ("b.json", soak("direct", 0, &json!({})).to_string()),
        ("c.json", soak("swal", 0, &json!({})).to_string()),
        ("cuts.jsonl", two),
        // A planted fault is to be found, and is not in the sums.
        (
            "lockstep.json",
            json!([lockstep(&json!(null), 0), lockstep(&json!("reset-rule"), 1)]).to_string(),
        ),
        ("fuzz.json", fuzz(0).to_string()),
        ("tcl.json", sqlite_tests(0).to_string()),
        (
            "models.log",
            "test result: ok. 16 passed; 0 failed; 0 ignored\n".to_owned(),
        ),
    ]);
    assert_eq!(code, Some(0), "{page}");
    for row in [
        "| `direct` | 3.0 | 2,000 | 100 | 20 | 4 | 10 | 0 | 0 |",
        "| `swal` | 1.5 | 1,000 | 50 | 10 | 2 | 5 | 0 | 0 |",
        "| all | 4.5 | 3,000 | 150 | 30 | 6 | 15 | 0 | 0 |",
        "| `onewrite` on ext4 | 4,000 | 1,000 | 0 |",
        "| `onewrite`, SQLite 3.40.1 | 3,000 | 60,000 | 0 |",
        "| pair | 80,000 | 0.2 | 0 |",
        "| `direct`, SQLite 3.54.1 | 300 | 200,000 | 0 |",
        "| `models` | 16 | 0 |",
        "| fuzz.json | 0123456789ab | 2026-11-26T00:00:00+00:00 | a machine |",
        "| a.json | not recorded | not recorded | not recorded |",
    ] {
        assert!(page.lines().any(|line| line == row), "{row} in:\n{page}");
    }
    assert!(!page.contains("Not all is well"), "{page}");
}

#[test]
fn a_loss_shows_and_ends_with_1() {
    let anomaly = json!({"lost-append": {"count": 1, "example": []}});
    for (report, shown) in [
        (soak("swal", 2, &json!({})), "soak, `swal`: 2 losses"),
        (soak("swal", 0, &anomaly), "soak, `swal`: 1 loss"),
        (
            powercut(&json!({"cut": 7})),
            "power cuts, `onewrite` on ext4: 1 loss",
        ),
        (
            lockstep(&json!(null), 3),
            "lock-step, `onewrite`, SQLite 3.40.1: 3 losses",
        ),
        (fuzz(1), "fuzz, pair: 1 loss"),
        (
            sqlite_tests(4),
            "SQLite's tests, `direct`, SQLite 3.54.1: 4 losses",
        ),
        (
            json!({"broken": {"promise": "durable", "detail": "7 are lost"}}),
            "{\"broken\": ",
        ),
    ] {
        let (page, code) = page(&[
            ("good.json", soak("direct", 0, &json!({})).to_string()),
            ("bad.json", report.to_string()),
        ]);
        assert_eq!(code, Some(1), "{page}");
        assert!(page.contains("**Not all is well:**"), "{page}");
        assert!(
            page.contains(&format!("- bad.json: {shown}")),
            "{shown}: {page}"
        );
    }
}

#[test]
fn a_report_that_cannot_be_read_ends_with_1() {
    for text in [
        "",
        "{",
        "{\"mode\": 1}",
        "no report",
        "[1]",
        "{\"kind\": \"fuzz\"}",
    ] {
        let (page, code) = page(&[("bad.json", text.to_owned())]);
        assert_eq!(code, Some(1), "{text}: {page}");
        assert!(page.contains("- bad.json: "), "{text}: {page}");
    }
    assert_eq!(page(&[]).1, Some(1), "no report at all");
}

#[test]
fn a_recorded_run_has_commit_date_and_machine() {
    let directory = TempDir::new().expect("a directory");
    let results = directory.path().to_string_lossy();
    let report = soak("direct", 0, &json!({})).to_string();
    let good = tried(&["--record", &results, "good", "--", "echo", &report]);
    assert_eq!(good.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&good.stdout).trim(), report);
    let head = Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .current_dir(root())
        .output()
        .expect("git");
    let head = String::from_utf8_lossy(&head.stdout).trim().to_owned();
    let page = tried(&[&results, "--page", "-"]);
    let text = String::from_utf8_lossy(&page.stdout).into_owned();
    assert_eq!(page.status.code(), Some(0), "{text}");
    let row = text.lines().find(|line| line.starts_with("| good.json |"));
    let row = row.expect("a row");
    assert!(
        row.contains(&head) && row.contains("Linux") && row.contains("| 20"),
        "{row}"
    );
    // A command that fails fails the page, whatever it printed.
    let script = format!("echo '{report}'; exit 3");
    let bad = tried(&["--record", &results, "bad", "--", "sh", "-c", &script]);
    assert_eq!(bad.status.code(), Some(3));
    let page = tried(&[&results, "--page", "-"]);
    assert_eq!(page.status.code(), Some(1));
    let text = String::from_utf8_lossy(&page.stdout).into_owned();
    assert!(
        text.contains("bad.json: the command ended with 3"),
        "{text}"
    );
}

/// The numbers of a page stay on the next one, with their origin.
#[test]
fn figures_whose_reports_are_lost_are_kept_from_the_page() {
    let directory = TempDir::new().expect("a directory");
    let results = directory.path().to_string_lossy();
    let kept = tried(&["--keep-page", "HEAD", &results, "kept"]);
    assert_eq!(kept.status.code(), Some(0), "{kept:?}");
    let page = tried(&[&results, "--page", "-"]);
    let text = String::from_utf8_lossy(&page.stdout).into_owned();
    assert_eq!(page.status.code(), Some(0), "{text}");
    let (figures, reports) = text.split_once("## Reports").expect("reports");
    let before = Command::new("git")
        .args(["show", "HEAD:docs/tried.md"])
        .current_dir(root())
        .output()
        .expect("git");
    let before = String::from_utf8_lossy(&before.stdout).into_owned();
    let (figures_before, reports_before) = before.split_once("## Reports").expect("reports");
    let rows = |text: &str| -> Vec<String> {
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        rows.map(str::to_owned).collect()
    };
    assert!(!rows(figures).is_empty());
    assert_eq!(rows(figures), rows(figures_before));
    assert_eq!(reports.lines().count(), reports_before.lines().count());
    assert!(reports.contains(", lost: its figures are from this page at"));
}

/// A page that was changed by hand, or a report that was added without its page, would differ.
#[test]
fn the_page_is_that_of_the_reports_in_the_tree() {
    let page = tried(&["--page", "-"]);
    let text = String::from_utf8_lossy(&page.stdout).into_owned();
    let kept = fs::read_to_string(root().join("docs/tried.md")).expect("the page");
    assert_eq!(text, kept, "scripts/tried makes it");
}

/// What two sessions of `scripts/fuzz` leave.
#[test]
fn the_totals_of_fuzzing_add_up_over_sessions() {
    let directory = TempDir::new().expect("a directory");
    let totals = directory.path().join("totals.json");
    let program = "
import importlib.machinery, importlib.util, sys
from pathlib import Path
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader('fuzz', sys.argv[1])
fuzz = importlib.util.module_from_spec(importlib.util.spec_from_loader('fuzz', loader))
loader.exec_module(fuzz)
part = lambda runs, edges: {'target': 'pair', 'runs': runs, 'seconds': 1.5, 'edges': edges, 'findings': 0}
for runs, edges in (100, 7), (23, 9), (1, 8):
    fuzz.add(Path(sys.argv[2]), {'targets': [part(runs, edges)]})
assert fuzz.runs_of(['pair=5', 'parsers=60'])['wal'] == 12
assert fuzz.runs_of(['7']) == dict.fromkeys(fuzz.TARGETS, 7)
";
    let status = Command::new("python3")
        .args(["-c", program])
        .arg(root().join("scripts/fuzz"))
        .arg(&totals)
        .status()
        .expect("python3");
    assert!(status.success());
    let document = fs::read_to_string(&totals).expect("the totals");
    let document: Value = serde_json::from_str(&document).expect("JSON");
    let expected = json!({"runs": 124, "seconds": 4.5, "edges": 9, "findings": 0});
    assert_eq!(document["totals"]["pair"], expected);
    assert_eq!(document["sessions"].as_array().map(Vec::len), Some(3));
}
