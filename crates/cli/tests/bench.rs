//! `onewrite bench` as a user runs it.

mod common;

use common::{can_make, onewrite, path, text};
use onewrite_iotrace::scratch::FileSystem;
use serde_json::Value;

fn document(args: &[&str]) -> Value {
    let output = onewrite("bench", &[args, &["--json"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

#[test]
fn an_application_s_files_are_all_told_apart_and_checked() {
    if !can_make(FileSystem::Ext4) {
        return;
    }
    let modes = "persist,wal,onewrite";
    let args = ["--scratch", "ext4", "--modes", modes, "--count", "150"];
    let document = document(&[&["messenger"], &args[..]].concat());
    let runs = document["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 3);
    for run in runs {
        assert_eq!(run["op"], "messenger");
        assert_eq!(run["count"], 150);
        assert_eq!(run["checked"]["content"], "ok");
        assert_eq!(run["checked"]["stock_after_close"], "ok");
        // 3 files of 20 rows or more in each of their tables, and most of the 46 inserts.
        assert!(run["checked"]["rows"].as_u64() > Some(1_000), "{run}");
        let by_file = run["by_file"].as_object().expect("bytes by file");
        let bytes = |kind: &str| by_file[kind].as_u64().expect("bytes");
        assert!(bytes("log_bytes") > 150 * 512, "{by_file:?}");
        // The second and the third file and their logs are none of the others.
        assert!(
            bytes("other_bytes") < bytes("log_bytes") / 10,
            "{by_file:?}"
        );
        let sum: u64 = by_file.values().filter_map(Value::as_u64).sum();
        assert_eq!(Some(sum), run["device"]["write_bytes"].as_u64(), "{run}");
        // As SQLite does by itself.
        assert_eq!(run["pragmas"]["wal_autocheckpoint"], 1000);
    }
    let notes = document["notes"].to_string();
    assert!(
        notes.contains("generated to published characteristics"),
        "{notes}"
    );
}

#[test]
fn a_trace_is_executed_by_one_thread_and_says_so() {
    let dir = tempfile::tempdir().expect("a directory");
    let args = ["sns", "--dir", path(dir.path()), "--threads", "2"];
    let output = onewrite("bench", &args);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("in their order"), "{said}");
}

#[test]
fn files_are_written_in_every_way_and_their_bytes_add_up() {
    if !can_make(FileSystem::Ext4) {
        return;
    }
    let args = [
        "file",
        "--scratch",
        "ext4",
        "--count",
        "200",
        "--access",
        "random-write",
    ];
    let document = document(&args);
    let runs = document["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 6);
    for run in runs {
        assert_eq!(run["checked"], "ok", "{run}");
        let number = |value: &Value| value.as_u64().expect("a number");
        let by_file = run["by_file"].as_object().expect("bytes by file");
        let sum: u64 = by_file.values().map(number).sum();
        assert_eq!(sum, number(&run["device"]["write_bytes"]), "{run}");
        let flushes = number(&run["device"]["flushes"]);
        match run["way"].as_str() {
            // The page cache takes them, or the device's cache; nothing asks for more.
            Some("write" | "o-direct") => assert!(flushes < 10, "{run}"),
            _ => assert!(flushes >= 200, "{run}"),
        }
        if run["way"] == "o-direct" {
            assert!(number(&by_file["other_bytes"]) >= 200 * 4096, "{run}");
        }
    }
}
