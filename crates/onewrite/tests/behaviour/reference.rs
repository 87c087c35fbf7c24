//! The reference pages say what the program says.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{MODES, open_in, sql, status};

const PAGE: &str = include_str!("../../../../docs/reference/status.md");

/// Fields that not every machine has: only where the device was timed.
const SOMETIMES: [&str; 2] = ["write_through_us", "write_and_flush_us"];

#[test]
fn the_reference_has_every_field_of_the_status() {
    let mut told = BTreeSet::from(SOMETIMES.map(str::to_owned));
    // The fields of objects that are null here.
    told.extend(
        [
            "base_bytes",
            "call_bytes",
            "page_us",
            "why",
            "by",
            "why_not",
            // There is no reader.
            "pid",
            "program",
            "frame",
        ]
        .map(str::to_owned),
    );
    for mode in MODES {
        let directory = tempfile::tempdir().expect("a directory");
        let db = open_in(&directory.path().join("db"), mode);
        sql(&db, "CREATE TABLE t(x)");
        fields(&status(&db), &mut told);
    }
    // The first cell of a row, and a heading that names an object.
    let listed: BTreeSet<String> = PAGE
        .lines()
        .filter_map(|line| line.strip_prefix("| ").or(line.strip_prefix("### ")))
        .filter_map(|line| line.split(" | ").next())
        .filter(|cell| cell.starts_with('`'))
        .flat_map(|cell| cell.split(", "))
        .map(|name| name.trim_matches('`').to_owned())
        .collect();
    let missing: Vec<_> = told.difference(&listed).collect();
    let invented: Vec<_> = listed.difference(&told).collect();
    assert!(
        missing.is_empty() && invented.is_empty(),
        "docs/reference/status.md has not {missing:?}, and has {invented:?} for nothing"
    );
}

/// The names of all fields, of nested objects too.
fn fields(value: &Value, into: &mut BTreeSet<String>) {
    let Value::Object(object) = value else { return };
    for (name, inner) in object {
        into.insert(name.clone());
        fields(inner, into);
    }
}
