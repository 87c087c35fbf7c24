//! Databases of LS-MVBT: each command says what they are, and which program is for them.

use std::fs;

use serde_json::{Value, json};

use super::case::Case;
use super::{inspect_json, lossy, onewrite, run, snapshot};

/// The first pages of a database of this format, as docs/formats.md has them.
fn first_pages(format: u8) -> Vec<u8> {
    let mut bytes = format!("LSMVBT format {format}\0").into_bytes();
    bytes.extend([format, 0, 0, 0]);
    bytes.extend(4096_u32.to_le_bytes());
    bytes.resize(3 * 4096, 0x5a);
    bytes
}

#[test]
fn each_command_says_whose_it_is_and_which_program_is_for_it() {
    for format in [6, 1] {
        let case = Case::new();
        fs::write(case.database(), first_pages(format)).expect("a database");
        let what = format!("a database of LS-MVBT (format {format})");
        let database = case.database();
        let (name, out) = (database.to_str().expect("UTF-8"), case.file(".out"));
        let out = out.to_str().expect("UTF-8");
        let before = snapshot(case.directory.path());
        for (args, code) in [
            (vec!["verify", name], 2),
            (vec!["verify", "--quick", name], 2),
            (vec!["status", name], 1),
            (vec!["inspect", name], 1),
            (vec!["detach", name], 1),
            (vec!["backup", name, out], 1),
            (vec!["shell", name, ".dump"], 1),
            (vec!["salvage", name, "-o", out], 2),
        ] {
            let output = run(onewrite(&args));
            let said = lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
            for words in [
                name,
                &what,
                "PRAGMA integrity_check",
                ".backup",
                "docs/lsmvbt-sqlite.md",
            ] {
                assert!(said.contains(words), "{args:?}: {words}: {said}");
            }
            assert_eq!(lossy(&output.stdout), "");
            assert_eq!(snapshot(case.directory.path()), before, "{args:?}");
        }
        let output = run(onewrite(&["verify", name, "--json"]));
        let found: Value = serde_json::from_slice(&output.stdout).expect("one document");
        assert_eq!(found["verdict"], json!("unread"), "{found:#}");
    }
}

/// Text that only begins alike is not called one.
#[test]
fn what_only_begins_alike_is_none() {
    let case = Case::new();
    fs::write(case.database(), "LSMVBT formation flight").expect("a file");
    let (found, code) = inspect_json(&case.database(), &[]);
    assert_eq!((code, &found["kind"]), (1, &json!("unknown")), "{found:#}");
}
