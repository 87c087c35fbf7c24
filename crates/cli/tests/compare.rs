//! `onewrite compare` as a user runs it: its document, its errors, and sums that add up.

mod common;

use std::process::{Command, Output};

use common::{can_make, onewrite, path, text};
use onewrite_iotrace::scratch::FileSystem;
use serde_json::Value;

fn compare(args: &[&str]) -> Output {
    onewrite("compare", args)
}

/// The document of one round that must succeed. Standard output has nothing else.
fn document(args: &[&str]) -> Value {
    rounds(&[args, &["--repeat", "1"]].concat())
}

/// The document of a comparison that must succeed.
fn rounds(args: &[&str]) -> Value {
    let output = compare(&[args, &["--json"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

fn runs(document: &Value) -> &[Value] {
    document["runs"].as_array().expect("runs")
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("a whole number, not {value}"))
}

/// Asserts for every phase of every run that the bytes by file add up to all bytes, and that each
/// is reported.
fn assert_sums(document: &Value) {
    for run in runs(document) {
        let phases = [
            ("run", &run["device"]["write_bytes"], &run["by_file"]),
            (
                "setup",
                &run["setup"]["write_bytes"],
                &run["setup"]["by_file"],
            ),
            (
                "after",
                &run["after"]["write_bytes"],
                &run["after"]["by_file"],
            ),
            (
                "checkpoint",
                &run["checkpoint"]["write_bytes"],
                &run["checkpoint"]["by_file"],
            ),
            (
                "close",
                &run["close"]["write_bytes"],
                &run["close"]["by_file"],
            ),
        ];
        for (phase, total, by_file) in phases {
            let by_file = by_file.as_object().unwrap_or_else(|| {
                panic!(
                    "{} {phase}: no bytes by file: {}",
                    run["mode"], document["notes"]
                )
            });
            assert_eq!(by_file.len(), 5, "{by_file:?}");
            let sum: u64 = by_file.values().map(number).sum();
            assert_eq!(sum, number(total), "{} {phase}: {by_file:?}", run["mode"]);
        }
    }
}

fn by_file(run: &Value, kind: &str) -> u64 {
    number(&run["by_file"][kind])
}

#[test]
fn the_document_has_every_field_of_its_contract() {
    let dir = tempfile::tempdir().expect("a directory");
    let modes = "delete,truncate,persist,memory,wal,off,wal:synchronous=normal";
    let document = document(&[
        "--dir",
        path(dir.path()),
        "--modes",
        modes,
        "--count",
        "40",
        "--op",
        "update",
    ]);
    assert_eq!(document["version"], 1);
    assert_eq!(document["sqlite"], rusqlite::version());
    for field in ["filesystem", "kernel"] {
        assert!(
            document[field]
                .as_str()
                .is_some_and(|text| !text.is_empty()),
            "{field}"
        );
    }
    let raw = &document["raw"];
    assert!(
        raw["append_fdatasync_per_s"]
            .as_f64()
            .is_some_and(|rate| rate > 0.0),
        "{raw}"
    );
    for field in ["direct_dsync_4k_per_s", "direct_4k_per_s"] {
        assert!(
            raw.get(field).is_some() && raw["min"].get(field).is_some(),
            "{raw}"
        );
    }
    assert_eq!(raw["samples"], 8);
    assert_eq!(document["failed"], Value::Array(Vec::new()));
    let asked: Vec<&str> = modes.split(',').collect();
    let got: Vec<&str> = runs(&document)
        .iter()
        .filter_map(|run| run["mode"].as_str())
        .collect();
    assert_eq!(got, asked);
    for run in runs(&document) {
        let mode = run["mode"].as_str().unwrap_or_default();
        let own = mode.ends_with("=normal");
        assert_eq!(run["synchronous"], if own { "normal" } else { "full" });
        assert_eq!(run["pragmas"]["synchronous"], if own { 1 } else { 2 });
        assert_eq!(run["pragmas"]["journal_mode"], run["journal_mode"]);
        assert_eq!(run["pragmas"]["wal_autocheckpoint"], 0);
        assert_eq!((&run["op"], &run["count"]), (&"update".into(), &40.into()));
        assert_eq!((&run["threads"], &run["processes"]), (&1.into(), &1.into()));
        for field in ["elapsed_s", "ops_per_s", "cpu_s"] {
            assert!(
                run[field].as_f64().is_some_and(|figure| figure > 0.0),
                "{mode} {field}"
            );
        }
        let rate = run["elapsed_s"].as_f64().zip(run["ops_per_s"].as_f64());
        assert!(rate.is_some_and(|(elapsed, rate)| (elapsed * rate - 40.0).abs() < 0.01));
        let latency = ["p50", "p99", "p999", "max"].map(|field| number(&run["latency_us"][field]));
        assert!(latency.is_sorted() && latency[0] > 0, "{latency:?}");
        // Other processes use the device, so the report has no figures for it.
        for field in ["device", "by_file", "per_op"] {
            assert_eq!(run[field], Value::Null, "{field}");
        }
        assert_eq!(run["setup"]["write_bytes"], Value::Null);
        assert!(run["setup"]["elapsed_s"].as_f64().is_some());
        assert_eq!(run["checked"]["rows"], 40);
        for field in ["integrity_check", "content", "stock_after_close"] {
            assert_eq!(run["checked"][field], "ok");
        }
    }
    assert_eq!(
        std::fs::read_dir(dir.path())
            .expect("the directory")
            .count(),
        0
    );
}

#[test]
fn bytes_by_file_are_all_bytes_on_ext4() {
    if !can_make(FileSystem::Ext4) {
        return;
    }
    for op in ["insert", "update", "delete"] {
        let modes = "delete,truncate,persist,wal,off";
        let document = document(&[
            "--scratch",
            "ext4",
            "--modes",
            modes,
            "--op",
            op,
            "--count",
            "200",
        ]);
        assert_eq!(
            (&document["filesystem"], &document["device"]),
            (&"ext4".into(), &"loop".into())
        );
        assert_sums(&document);
        for run in runs(&document) {
            let device = &run["device"];
            let mode = run["mode"].as_str().unwrap_or_default();
            let writes = number(&device["writes"]);
            // Each transaction writes at least its log or its database once, and waits for it.
            assert!(
                writes >= 200 && number(&device["flushes"]) >= 200,
                "{mode} {device}"
            );
            assert!(
                number(&device["write_requests"]) >= writes,
                "{mode} {device}"
            );
            match mode {
                "off" => assert_eq!(by_file(run, "log_bytes"), 0),
                _ => assert!(
                    by_file(run, "log_bytes") >= 200 * 4096,
                    "{mode} {}",
                    run["by_file"]
                ),
            }
            match mode {
                "wal" => assert_eq!(by_file(run, "database_bytes"), 0),
                _ => assert!(by_file(run, "database_bytes") >= 200 * 4096, "{mode}"),
            }
            // Journaling of journal: the paper has 20 to 44 KB a transaction.
            let journaled = by_file(run, "fs_journal_bytes") / 200;
            let expected = match mode {
                "delete" | "truncate" | "wal" => 10_000..80_000,
                "persist" => 5_000..40_000,
                _ => 0..8_000,
            };
            assert!(
                expected.contains(&journaled),
                "{op} {mode}: {journaled} bytes a transaction"
            );
        }
    }
}

#[test]
fn bytes_by_file_are_all_bytes_on_xfs() {
    if !can_make(FileSystem::Xfs) {
        return;
    }
    let modes = "delete,truncate,persist,wal";
    let document = document(&["--scratch", "xfs", "--modes", modes, "--count", "200"]);
    assert_sums(&document);
    for run in runs(&document) {
        assert!(
            by_file(run, "log_bytes") >= 200 * 4096,
            "{} {}",
            run["mode"],
            run["by_file"]
        );
        assert!(
            by_file(run, "fs_journal_bytes") >= 200 * 512,
            "{}",
            run["by_file"]
        );
    }
}

#[test]
fn bytes_by_file_are_all_bytes_on_btrfs() {
    if !can_make(FileSystem::Btrfs) {
        return;
    }
    let modes = "delete,truncate,persist,wal,onewrite";
    let document = document(&["--scratch", "btrfs", "--modes", modes, "--count", "50"]);
    assert_sums(&document);
    for run in runs(&document) {
        let by_file_of = &run["by_file"];
        assert!(by_file(run, "log_bytes") >= 50 * 4096, "{by_file_of}");
        // A sync writes the log trees, each block twice.
        let journal = by_file(run, "fs_journal_bytes");
        assert!(journal >= 50 * 2 * 16_384, "{by_file_of}");
    }
}

#[test]
fn waldio_writes_one_page_a_transaction_and_journals_nothing() {
    if !can_make(FileSystem::Ext4) {
        return;
    }
    let document = document(&["--scratch", "ext4", "--modes", "waldio", "--count", "1000"]);
    assert_sums(&document);
    let run = &runs(&document)[0];
    let (device, per_op) = (&run["device"], &run["per_op"]);
    // Every five seconds ext4 journals the time stamp of a written file: 24 KiB.
    let elapsed_s = run["elapsed_s"].as_f64().expect("a time");
    let stamps = (elapsed_s / 5.0) as u64 * 24_576;
    let journal = by_file(run, "fs_journal_bytes");
    assert!(journal <= 32_000 + stamps, "{}", run["by_file"]);
    let pages = number(&device["write_bytes"]) - journal;
    assert!(pages <= 4_300_000, "{device}");
    assert!(
        number(&device["writes"]) <= 1_020 && number(&device["flushes"]) <= 1_020,
        "{device}"
    );
    let quotient = number(&device["write_bytes"]) as f64 / 1000.0;
    assert_eq!(per_op["write_bytes"].as_f64(), Some(quotient));
    assert_eq!(run["pragmas"]["onewrite_status"]["mode"], "waldio");
    assert!(number(&run["setup"]["write_bytes"]) > 0);
}

#[test]
fn a_table_with_indexes_and_an_application_in_stock_and_our_modes() {
    let dir = tempfile::tempdir().expect("a directory");
    for (op, rows, record_size) in [("indexed", 50, Some(100)), ("app", 1_050, None)] {
        let place = ["--dir", path(dir.path()), "--modes", "wal,swal,onewrite"];
        let document = document(&[&place[..], &["--op", op, "--count", "50"]].concat());
        assert_eq!(document["failed"], Value::Array(Vec::new()));
        let modes: Vec<_> = runs(&document).iter().map(|run| &run["mode"]).collect();
        assert_eq!(modes, ["wal", "swal", "onewrite"]);
        let mut all = std::collections::HashSet::new();
        for run in runs(&document) {
            assert_eq!((&run["op"], &run["count"]), (&op.into(), &50.into()));
            assert_eq!(run["record_size"], Value::from(record_size));
            // `app` has more tables than that of the messages, and the same rows in every mode.
            let found = number(&run["checked"]["rows"]);
            assert!(if op == "app" {
                found > rows
            } else {
                found == rows
            });
            all.insert(found);
            for field in ["integrity_check", "content", "stock_after_close"] {
                assert_eq!(run["checked"][field], "ok", "{op} {}", run["mode"]);
            }
        }
        assert_eq!(all.len(), 1, "{all:?}");
    }
}

#[test]
fn threads_and_processes_share_the_transactions() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = path(dir.path());
    for (op, modes, rows) in [
        ("insert", "wal,delete,waldio", 61..=61),
        ("delete", "wal,delete,waldio", 0..=0),
        ("indexed", "wal,onewrite", 61..=61),
        ("app", "wal,onewrite", 1_061..=4_000),
    ] {
        let workers = ["--threads", "2", "--processes", "2", "--op", op];
        let place = ["--dir", dir, "--count", "61", "--modes", modes];
        let document = document(&[workers, place].concat());
        assert_eq!(runs(&document).len(), modes.split(',').count());
        for run in runs(&document) {
            let found = number(&run["checked"]["rows"]);
            assert!(rows.contains(&found), "{op}: {found} rows");
            assert_eq!(run["checked"]["content"], "ok");
            assert!(run["cpu_s"].as_f64().is_some_and(|seconds| seconds > 0.0));
        }
    }
}

/// 400 transactions. First 2,000 a second become due, and the run takes its time. Then a million a
/// second become due, and the run cannot keep up: each transaction waits for the earlier ones.
#[test]
fn with_a_rate_transactions_become_due_and_latencies_count_from_then() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = |rate: &str| {
        let args = ["--dir", path(dir.path()), "--modes", "delete"];
        let load = ["--count", "400", "--threads", "2", "--rate", rate];
        let document = document(&[&args[..], &load].concat());
        let run = runs(&document)[0].clone();
        assert_eq!(number(&run["rate"]).to_string(), rate);
        let notes = document["notes"].to_string();
        assert!(notes.contains("latencies count from then"), "{notes}");
        (run, notes.contains("kept up with"))
    };
    let (paced, _) = run("2000");
    let per_second = paced["ops_per_s"].as_f64().expect("a rate");
    assert!(per_second < 4_000.0, "{per_second}");
    let (flooded, is_behind) = run("1000000");
    assert!(is_behind);
    let micros = flooded["elapsed_s"].as_f64().expect("a time") * 1e6;
    let half = number(&flooded["latency_us"]["p50"]) as f64;
    // All were due at once, so half of them wait for 200 others. Measured from its own start, one takes a
    // 200th of the time. A busy device may stop for a while among the last ones.
    assert!(half > micros / 10.0, "{half} of {micros}");
}

/// Two names of one mode. However noisy the machine is, the document is consistent.
#[test]
fn rounds_are_paired_until_their_ratio_is_decided_or_a_limit_is_reached() {
    let dir = tempfile::tempdir().expect("a directory");
    let modes = "wal,wal:synchronous=full";
    let place = ["--dir", path(dir.path()), "--modes", modes];
    let size = ["--count", "20", "--repeat", "2", "--max-rounds", "10"];
    let document = rounds(&[&place[..], &size[..]].concat());
    let order: Vec<(u64, bool)> = runs(&document)
        .iter()
        .map(|run| (number(&run["repeat"]), run["mode"] == "wal"))
        .collect();
    let first = [(1, true), (1, false), (2, false), (2, true)];
    assert_eq!(order[..4], first);
    assert!([14, 20].contains(&order.len()), "{order:?}");
    let ratios = &document["ratios"];
    assert_eq!(
        (&ratios["base"], &ratios["confidence"]),
        (&"wal".into(), &0.95.into())
    );
    let mode = &ratios["modes"][0];
    assert_eq!(mode["mode"], "wal:synchronous=full");
    assert_eq!(number(&mode["rounds"]) as usize * 2, order.len());
    for figure in ["rate", "cpu", "p99"] {
        let bounds = ["low", "ratio", "high"].map(|bound| mode[figure][bound].as_f64());
        assert!(
            bounds[0].is_some() && bounds.is_sorted(),
            "{figure}: {mode}"
        );
    }
    let is_noisy = mode["verdict"] == "too-noisy";
    assert_eq!(ratios["warning"].is_string(), is_noisy, "{ratios}");
    assert!(is_noisy <= (order.len() == 20), "{ratios}");
}

/// With a rate rare latencies count, so a second table has them.
#[test]
fn with_a_rate_people_get_a_table_of_latencies() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = ["--dir", path(dir.path()), "--modes", "off"];
    let size = ["--count", "20", "--repeat", "1"];
    for (rate, has_it) in [(&[][..], false), (&["--rate", "10000"][..], true)] {
        let output = compare(&[&place[..], &size, rate].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let table = text(&output.stdout);
        assert_eq!(table.contains("p99.9"), has_it, "{table}");
        assert_eq!(table.matches("│ off ").count(), 1 + usize::from(has_it));
    }
}

#[test]
fn people_get_a_table() {
    let dir = tempfile::tempdir().expect("a directory");
    let args = [
        "--modes",
        "wal,off,wal:synchronous=off",
        "--count",
        "20",
        "--repeat",
        "2",
    ];
    let output = compare(&[&["--dir", path(dir.path())], &args[..]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    for part in ["20 x insert", "ops/s", "times", "raw rates", "SQLite 3."] {
        assert!(table.contains(part), "{part} in {table}");
    }
    // No column for a device that others use.
    assert!(!table.contains("fs journal"), "{table}");
    let wal: Vec<&str> = table
        .lines()
        .filter(|line| line.contains(" wal "))
        .collect();
    assert!(wal.iter().any(|line| line.contains(" 1.00 ")), "{table}");
    // Two rounds are too few to decide, and the report says so.
    assert!(table.contains("from 2 paired rounds"), "{table}");
    let advice =
        "too few rounds to say whether off, wal:synchronous=off is faster or slower than wal";
    assert!(table.contains(advice), "{table}");
    // Two repetitions, one line for each mode.
    assert_eq!(
        table.matches("│ wal:synchronous=off ").count(),
        1,
        "{table}"
    );
    assert!(
        text(&output.stderr).contains("--scratch"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_wrong_command_line_is_explained_and_exits_with_2() {
    for (args, part) in [
        (
            vec!["--modes", "wal,walido"],
            "no mode is called \"walido\"; the modes are delete,",
        ),
        (
            vec!["--modes", "waldio:lay=4"],
            "it takes sync, group_commit,",
        ),
        (
            vec!["--modes", "waldio:sync=maybe"],
            "it can be auto, persistent, full, normal",
        ),
        (
            vec!["--modes", "wal:layout=sector"],
            "mode wal: no variation is called \"layout\"",
        ),
        (
            vec!["--count", "3", "--threads", "4"],
            "fewer transactions than there are workers",
        ),
        (
            vec!["--repeat", "3", "--max-rounds", "2"],
            "--max-rounds 2 is fewer rounds than --repeat 3",
        ),
        (vec!["--count", "0"], "invalid value '0' for '--count"),
        (vec!["--record-size", "16"], "17..=1000000"),
        (vec!["--scratch", "fat"], "ext4, xfs, btrfs"),
        (
            vec!["--scratch", "ext4", "--dir", "."],
            "cannot be used with",
        ),
        (
            vec!["--op", "upsert"],
            "insert, update, delete, indexed, app",
        ),
    ] {
        let output = compare(&args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(part), "{args:?}: {said}");
        assert_eq!(text(&output.stdout), "");
    }
}

#[test]
fn what_cannot_be_done_is_explained_and_exits_with_1() {
    let output = compare(&["--dir", "/no/such/directory", "--count", "1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("/no/such/directory"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_mode_that_fails_does_not_hide_the_others() {
    let dir = tempfile::tempdir().expect("a directory");
    // `direct` keeps the stock layout, so that stock programs can read its log.
    let modes = "direct:layout=page8k,wal";
    let output = compare(&[
        "--dir",
        path(dir.path()),
        "--modes",
        modes,
        "--count",
        "5",
        "--json",
    ]);
    let document: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    let ran: Vec<_> = runs(&document).iter().map(|run| &run["mode"]).collect();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(ran, ["wal"]);
    assert_eq!(document["failed"][0]["mode"], "direct:layout=page8k");
    assert!(
        text(&output.stderr).contains("direct:layout=page8k: "),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn without_root_it_says_what_is_lost_and_works() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root, to give it up");
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let dir = tempfile::tempdir_in("/tmp").expect("a directory");
    let all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(dir.path(), all).expect("permissions");
    let program = dir.path().join("onewrite");
    onewrite_common::files::copy_program(env!("CARGO_BIN_EXE_onewrite"), &program);
    let nobody = |args: &[&str]| {
        let mut command = Command::new(&program);
        command
            .arg("compare")
            .args(args)
            .uid(65534)
            .gid(65534)
            .current_dir(dir.path());
        command.output().expect("the command")
    };
    let output = nobody(&["--modes", "wal", "--count", "10"]);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("without root") && said.contains("no device bytes"),
        "{said}"
    );
    let output = nobody(&["--scratch", "ext4", "--modes", "wal", "--count", "10"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("takes root"),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(
        std::fs::read_dir(dir.path())
            .expect("the directory")
            .count(),
        1
    );
}
