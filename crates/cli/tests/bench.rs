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
        // The second and the third file and their logs do not count as other files.
        assert!(
            bytes("other_bytes") < bytes("log_bytes") / 10,
            "{by_file:?}"
        );
        let sum: u64 = by_file.values().filter_map(Value::as_u64).sum();
        assert_eq!(Some(sum), run["device"]["write_bytes"].as_u64(), "{run}");
        // SQLite's own default.
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
    assert_eq!(runs.len(), 9);
    for run in runs {
        assert_eq!(run["checked"], "ok", "{run}");
        let number = |value: &Value| value.as_u64().expect("a number");
        let by_file = run["by_file"].as_object().expect("bytes by file");
        let sum: u64 = by_file.values().map(number).sum();
        assert_eq!(sum, number(&run["device"]["write_bytes"]), "{run}");
        let flushes = number(&run["device"]["flushes"]);
        match run["way"].as_str() {
            // The page cache or the device's cache takes them; nothing asks for more.
            Some("write" | "o-direct" | "mmap" | "mmap-ms-async") => assert!(flushes < 10, "{run}"),
            _ => assert!(flushes >= 200, "{run}"),
        }
        if run["way"] == "o-direct" {
            assert!(number(&by_file["other_bytes"]) >= 200 * 4096, "{run}");
        }
    }
}

#[test]
fn tpcc_runs_whole_with_several_terminals_and_keeps_its_conditions() {
    if !can_make(FileSystem::Ext4) {
        return;
    }
    let args = ["--scratch", "ext4", "--modes", "persist,wal,onewrite"];
    let size = ["--count", "92", "--threads", "4"];
    let document = document(&[&["tpcc"], &args[..], &size[..]].concat());
    let runs = document["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 3, "{}", document["failed"]);
    for run in runs {
        assert_eq!(run["warehouses"], 1);
        assert_eq!(run["checked"]["content"], "ok");
        assert_eq!(run["checked"]["stock_after_close"], "ok");
        // The rows that the specification gives a warehouse, and those that the run has added.
        assert!(run["checked"]["rows"].as_u64() > Some(590_000), "{run}");
        let count = |kind: &str| -> u64 {
            let kinds = run["kinds"].as_array().expect("kinds");
            let named = kinds.iter().filter(|row| {
                let name = row["kind"].as_str().expect("a name");
                name.split(',').next() == Some(kind)
            });
            named.filter_map(|row| row["count"].as_u64()).sum()
        };
        // Four decks of 23 cards.
        assert_eq!((count("new-order"), count("payment")), (40, 40), "{run}");
        let others = ["order-status", "delivery", "stock-level"].map(count);
        assert_eq!(others, [4, 4, 4], "{run}");
        // The database is larger than SQLite's default cache.
        assert!(
            run["state"]["database_kib"].as_u64() > Some(60_000),
            "{run}"
        );
    }
}

#[test]
fn readers_of_the_web_server_are_told_apart_from_its_writers() {
    let dir = tempfile::tempdir().expect("a directory");
    let args = ["--dir", path(dir.path()), "--modes", "wal,waldio"];
    let size = ["--count", "400", "--readers", "3"];
    let document = document(&[&["web"], &args[..], &size[..]].concat());
    let runs = document["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 2, "{}", document["failed"]);
    for run in runs {
        assert_eq!((&run["threads"], &run["readers"]), (&8.into(), &3.into()));
        assert_eq!(run["checked"]["stock_after_close"], "ok");
        let kinds = run["kinds"].as_array().expect("kinds");
        assert_eq!((kinds.len(), &kinds[0]["kind"]), (1, &"read".into()));
        assert!(kinds[0]["count"].as_u64() > Some(3), "{run}");
        assert!(kinds[0]["latency_us"]["max"].as_u64() > Some(0), "{run}");
    }
}

#[test]
fn only_the_web_server_has_readers() {
    let dir = tempfile::tempdir().expect("a directory");
    let output = onewrite(
        "bench",
        &["ycsb-a", "--dir", path(dir.path()), "--readers", "2"],
    );
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("ycsb-a has none, web has"), "{said}");
}

/// The log has its full length when the run begins, is reused, and is checkpointed meanwhile. The
/// cache is smaller than the database.
#[test]
fn a_steady_state_is_one_and_a_fresh_one_is_not() {
    if !can_make(FileSystem::Ext4) {
        return;
    }
    let runs = |more: &[&str]| -> Vec<Value> {
        let args = [
            "--op",
            "update",
            "--scratch",
            "ext4",
            "--modes",
            "wal,onewrite",
        ];
        let args = [
            &args[..],
            &["--count", "2500", "--repeat", "1", "--json"],
            more,
        ]
        .concat();
        let output = onewrite("compare", &args);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let mut document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        match document["runs"].take() {
            Value::Array(runs) => runs,
            other => panic!("runs, not {other}"),
        }
    };
    let number = |value: &Value| value.as_u64().expect("a number");
    for (steady, fresh) in runs(&["--steady"]).iter().zip(runs(&[])) {
        let state = &steady["state"];
        assert_eq!(
            (&steady["count"], &state["warm_up"]),
            (&2500.into(), &2000.into())
        );
        assert!(
            number(&state["database_kib"]) > 3 * number(&state["cache_kib"]),
            "{state}"
        );
        assert_eq!(state["log_kib_before"], state["log_kib_after"], "{steady}");
        assert!(number(&state["log_kib_before"]) > 3_900, "{state}");
        assert!(number(&steady["by_file"]["database_bytes"]) > 0, "{steady}");
        assert_eq!(steady["pragmas"]["wal_autocheckpoint"], 1000);

        assert_eq!(fresh["by_file"]["database_bytes"], 0, "{fresh}");
        let state = &fresh["state"];
        assert!(
            number(&state["database_kib"]) < number(&state["cache_kib"]),
            "{state}"
        );
        if fresh["mode"] == "wal" {
            assert!(number(&state["log_kib_before"]) < 100, "{state}");
            let journal = |run: &Value| number(&run["by_file"]["fs_journal_bytes"]);
            assert!(journal(steady) * 10 < journal(&fresh), "{steady} {fresh}");
        }
    }
}

#[test]
fn a_steady_state_sizes_its_own_warm_up() {
    let dir = tempfile::tempdir().expect("a directory");
    let modes = "wal:synchronous=off,onewrite:synchronous=off";
    for (op, two_logs) in [("insert", 2000), ("indexed", 667), ("message", 1000)] {
        let place = ["--dir", path(dir.path()), "--modes", modes, "--op", op];
        let size = ["--steady", "--count", "50", "--repeat", "1", "--json"];
        let output = onewrite("compare", &[place, size].concat());
        assert!(output.status.success(), "{op}: {}", text(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        for run in document["runs"].as_array().expect("runs") {
            let state = &run["state"];
            assert!(state["warm_up"].as_u64() > Some(two_logs), "{op}: {state}");
            let kib = |name: &str| state[name].as_u64().expect("a size");
            assert!(kib("cache_kib") >= 64, "{op}: {state}");
            assert!(kib("database_kib") >= 4 * kib("cache_kib"), "{op}: {state}");
        }
    }
}

#[test]
fn an_aged_file_system_says_how_old_it_is() {
    if !can_make(FileSystem::Ext4) {
        return;
    }
    let args = [
        "message",
        "--scratch",
        "ext4",
        "--aged=5",
        "--modes",
        "wal,onewrite",
    ];
    let document = document(&[&args[..], &["--count", "100"]].concat());
    let aged = &document["aged"];
    assert_eq!(aged["seed"], 5);
    assert!(aged["pieces"].as_u64() >= Some(12), "{aged}");
    assert!(aged["full_percent"].as_f64() > Some(50.0), "{aged}");
    assert_eq!(document["runs"].as_array().expect("runs").len(), 2);
    assert!(document["notes"].to_string().contains("aged with seed 5"));
}

#[test]
fn a_terminal_shows_how_much_is_left_of_all_modes() {
    let dir = tempfile::tempdir().expect("a directory");
    let command = format!(
        "{} bench sns --modes wal,persist --count 3000 --dir {}",
        env!("CARGO_BIN_EXE_onewrite"),
        path(dir.path())
    );
    let output = std::process::Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .env("TERM", "xterm")
        .output()
        .expect("script, of bsdutils");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("[2 of 2, in all about"), "{said}");
}

#[test]
fn a_steady_run_that_is_too_short_for_a_checkpoint_says_so() {
    if !can_make(FileSystem::Ext4) {
        return;
    }
    let args = [
        "--op",
        "update",
        "--scratch",
        "ext4",
        "--modes",
        "persist,wal,onewrite",
    ];
    let size = [
        "--steady",
        "--warm-up",
        "100",
        "--cache-kib",
        "64",
        "--count",
        "20",
        "--repeat",
        "1",
        "--json",
    ];
    let output = onewrite("compare", &[&args[..], &size[..]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let notes = document["notes"].to_string();
    for mode in ["wal", "onewrite"] {
        let told = format!("{mode}: --steady, but no checkpoint fell into the run");
        assert!(notes.contains(&told), "{notes}");
    }
    // It has no checkpoints.
    assert!(!notes.contains("persist: --steady"), "{notes}");
}
