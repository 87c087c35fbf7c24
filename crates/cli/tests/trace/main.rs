//! `onewrite trace` counts what the device counts, on every file system and in every journal mode
//! ([`exact`]). Its kinds match the work that was done ([`targets`]). Users learn what they need to
//! know, and nothing is left behind ([`people`]).

#[path = "../common/mod.rs"]
mod common;
mod exact;
mod people;
mod targets;

use std::process::Output;

use common::{onewrite, text};
use serde_json::Value;

fn trace(args: &[&str]) -> Output {
    onewrite("trace", args)
}

/// The document of a trace that must succeed.
fn document(args: &[&str]) -> Value {
    let output = trace(&[&["--json"], args].concat());
    let said = text(&output.stderr);
    assert!(output.status.success(), "{args:?}: {said}");
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

fn runs(document: &Value) -> &[Value] {
    document["runs"].as_array().expect("runs")
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

fn list<'a>(run: &'a Value, name: &str) -> &'a [Value] {
    run[name].as_array().expect("a list")
}

/// A figure of a kind.
fn of_kind(run: &Value, kind: &str, figure: &str) -> u64 {
    let found = list(run, "by_kind")
        .iter()
        .find(|entry| entry["kind"] == kind);
    number(&found.expect("every kind is listed")[figure])
}

/// The sums over kinds, files and processes equal the device's counters.
fn assert_exact(run: &Value) {
    let who = &run["mode"];
    assert_eq!(run["lost_events"], 0, "{who}");
    assert_eq!(run["exact"], true, "{who}: {}", run["checks"]);
    let checks = list(run, "checks");
    assert_eq!(checks.len(), 7);
    for check in checks {
        assert_eq!(check["traced"], check["counted"], "{who} {check}");
    }
    let counted = |what: &str| {
        let found = checks.iter().find(|check| check["what"] == what);
        number(&found.expect("a check")["counted"])
    };
    let sum = |list_name: &str, figure: &str| -> u64 {
        list(run, list_name)
            .iter()
            .map(|entry| number(&entry[figure]))
            .sum()
    };
    for by in ["by_kind", "by_process"] {
        assert_eq!(sum(by, "write_bytes"), counted("write_bytes"), "{who} {by}");
        assert_eq!(sum(by, "read_bytes"), counted("read_bytes"), "{who} {by}");
        assert_eq!(
            sum(by, "discard_bytes"),
            counted("discard_bytes"),
            "{who} {by}"
        );
    }
    let writes = sum("by_kind", "writes");
    assert_eq!(writes, number(&run["total"]["writes"]), "{who}");
    let without_data = number(&run["total"]["flush_requests"]);
    assert_eq!(writes + without_data, counted("write_requests"), "{who}");
    assert_eq!(number(&run["flushes"]), counted("flushes"), "{who}");
    // On a private file system nothing is unknown.
    assert_eq!(of_kind(run, "unknown", "write_bytes"), 0, "{who}: {run:#}");
}
