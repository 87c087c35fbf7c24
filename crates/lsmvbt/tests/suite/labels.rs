//! The rules of the protocol have labels: docs/lsmvbt.md has the rules, the engine and the model cite
//! them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The labels in a text: `MV` and a number.
fn labels(text: &str) -> BTreeSet<u32> {
    let after = text.split("MV").skip(1);
    let numbers = after.map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    numbers.flatten().filter_map(|n| n.parse().ok()).collect()
}

fn labels_below(directory: &Path) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => found.extend(labels_below(&path)),
            false => found.extend(labels(&fs::read_to_string(&path).expect("a source file"))),
        }
    }
    found
}

#[test]
fn the_page_the_engine_and_the_model_have_the_same_rules() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(here.join("../../docs/lsmvbt.md")).expect("the page");
    let rules = page.lines().filter(|line| line.starts_with("| MV"));
    let rules: BTreeSet<u32> = rules.flat_map(labels).collect();
    assert!(rules.len() > 20, "{rules:?}");
    assert_eq!(labels_below(&here.join("src")), rules);
    assert_eq!(labels_below(&here.join("tests/suite/model")), rules);
}
