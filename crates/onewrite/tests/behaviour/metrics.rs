//! `PRAGMA onewrite_metrics`: what a program may serve under its own `/metrics`.

use super::{open, sql, status};
use onewrite_common::exposition::Kind;
use onewrite_common::metrics::{ALL, Source};
use std::collections::BTreeMap;

/// The samples without their label `database`, which must be this one.
fn samples(text: &str, database: &str) -> BTreeMap<String, f64> {
    let label = format!("database=\"{database}\"");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        assert!(line.contains(&label), "{line}");
        let (name, value) = line.rsplit_once(' ').expect("a value");
        let name = name.replace(&format!("{label},"), "").replace(&label, "");
        (name.replace("{}", ""), value.parse().expect("a number"))
    };
    lines.map(sample).collect()
}

#[test]
fn the_metrics_count_what_the_connection_has_done() {
    for mode in ["onewrite", "waldio", "direct"] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a \"name\"");
        let name = path.to_string_lossy().replace('"', "\\\"");
        let db = open(&path);
        if mode == "waldio" {
            sql(&db, "PRAGMA onewrite_layout=sector");
        }
        assert_eq!(sql(&db, &format!("PRAGMA journal_mode={mode}")), mode);
        sql(&db, "CREATE TABLE t(x)");
        let before = samples(&sql(&db, "PRAGMA onewrite_metrics"), &name);
        for level in ["full", "normal"] {
            sql(&db, &format!("PRAGMA synchronous={level}"));
            for _ in 0..5 {
                sql(&db, "INSERT INTO t VALUES(1)");
            }
            sql(&db, "BEGIN");
            sql(&db, "INSERT INTO t VALUES(2)");
            sql(&db, "ROLLBACK");
            sql(&db, "SELECT * FROM t");
        }
        let status = status(&db);
        let text = sql(&db, "PRAGMA onewrite_metrics");
        let after = samples(&text, &name);
        let count = "onewrite_commit_duration_seconds_count";
        assert_eq!(after[count] - before[count], 10.0, "{mode}: {text}");
        let top = "onewrite_commit_duration_seconds_bucket{le=\"+Inf\"}";
        assert_eq!(after[top], after[count]);
        let sum = after["onewrite_commit_duration_seconds_sum"];
        assert!(sum > 0.0 && sum < 600.0, "{sum}");
        let age = after["onewrite_last_commit_age_seconds"];
        assert!((0.0..600.0).contains(&age), "{age}");
        for (metric, field) in [
            ("onewrite_writes_total", &status["writes"]),
            ("onewrite_write_bytes_total", &status["write_bytes"]),
            ("onewrite_flushes_total", &status["flushes"]),
            ("onewrite_log_bytes", &status["log_bytes"]),
            ("onewrite_log_frames", &status["frames"]),
        ] {
            assert_eq!(Some(after[metric]), field.as_f64(), "{metric}");
        }
        assert_eq!(after["onewrite_poisoned"], 0.0);
        assert!(!after.contains_key("onewrite_last_checkpoint_age_seconds"));
        sql(&db, "PRAGMA wal_checkpoint");
        let text = sql(&db, "PRAGMA onewrite_metrics");
        let after = samples(&text, &name);
        assert!(after.contains_key("onewrite_last_checkpoint_age_seconds"));
        assert_eq!(names(&text), of_pragma(), "{mode}");
    }
}

/// The metrics with their kinds, as the text has them.
fn names(text: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let mut names: Vec<_> = lines.map(str::to_owned).collect();
    names.sort();
    names
}

/// The same, as the table has them. Ages need an event, which the test has made.
fn of_pragma() -> Vec<String> {
    let ours = ALL.iter().filter(|(_, source)| *source != Source::Exporter);
    let mut names: Vec<_> = ours
        .map(|(metric, _)| format!("{} {}", metric.name, metric.kind.word()))
        .collect();
    names.sort();
    names
}

#[test]
fn a_stock_mode_has_only_the_mode_and_the_guard() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let db = open(&path);
    sql(&db, "CREATE TABLE t(x)");
    let text = sql(&db, "PRAGMA onewrite_metrics");
    let expected = ["onewrite_guarded gauge", "onewrite_info gauge"];
    assert_eq!(names(&text), expected);
    assert!(text.contains("mode=\"\""), "{text}");
}

#[test]
fn a_counter_says_so_in_its_name() {
    for (metric, _) in ALL {
        let is_counter = metric.kind == Kind::Counter;
        assert_eq!(
            metric.name.ends_with("_total"),
            is_counter,
            "{}",
            metric.name
        );
    }
}

/// The page, relative to this crate's folder.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
/// If this variable is set, the test writes the page.
const WRITE: &str = "ONEWRITE_WRITE_SETTINGS";

#[test]
fn the_page_has_the_metrics_as_they_are() {
    let page = std::fs::read_to_string(PAGE).expect("docs/metrics.md");
    let begin = "<!-- begin metrics: from the table in crates/common/src/metrics.rs -->\n";
    let end = "<!-- end metrics -->\n";
    let (before, rest) = page.split_once(begin).expect("a place for the table");
    let (_, after) = rest.split_once(end).expect("an end of the table");
    let expected = format!("{before}{begin}\n{}\n{end}{after}", table());
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(PAGE, &expected).expect("written");
    } else {
        assert!(
            page == expected,
            "docs/metrics.md is not as the table in the code has it: run {WRITE}=1 cargo test -p onewrite --test \
             behaviour the_page_has_the_metrics_as_they_are"
        );
    }
}

fn table() -> String {
    let head = "| Prometheus | OpenTelemetry | unit | kind | from | meaning |\n";
    let rows = ALL.iter().map(|(metric, source)| {
        let from = match source {
            Source::Pragma => "pragma",
            Source::Exporter => "exporter",
            Source::Both => "both",
        };
        format!(
            "| `{}` | `{}` | `{}` | {} | {from} | {} |\n",
            metric.name,
            metric.otel,
            metric.unit,
            metric.kind.word(),
            metric.help
        )
    });
    let rows: String = rows.collect();
    format!("{head}| --- | --- | --- | --- | --- | --- |\n{rows}")
}
