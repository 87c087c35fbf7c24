//! `onewrite-lab check-history` finds nothing in histories of a serial database, and each planted
//! fault by its name.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use onewrite_torture::random::Random;
use serde_json::Value;

/// Where planted transactions begin; the clean history is before it.
const AFTER: u64 = 1_000_000;

#[derive(Clone, Debug)]
enum Operation {
    Append(i64, i64),
    Read(i64, Vec<i64>),
}
use Operation::{Append, Read};

/// A line of a history: type, process, operations, time.
#[derive(Clone, Debug)]
struct Line(&'static str, u64, Vec<Operation>, u64);

fn text(lines: &[Line]) -> String {
    let mut text = String::new();
    for Line(kind, process, operations, time) in lines {
        let words: Vec<_> = operations
            .iter()
            .map(|operation| match operation {
                Append(key, value) => format!("[:append {key} {value}]"),
                Read(key, _) if *kind == "invoke" => format!("[:r {key} nil]"),
                Read(key, list) => format!("[:r {key} {list:?}]"),
            })
            .collect();
        writeln!(
            text,
            "{{:type :{kind}, :process {process}, :f :txn, :value [{}], :time {time}}}",
            words.join(" ")
        )
        .expect("a string");
    }
    text
}

/// A client of the model.
enum Client {
    Idle,
    Invoked(Vec<Operation>),
    /// It has taken effect, or not.
    Done(&'static str, Vec<Operation>),
}

/// The history of a database that runs one transaction after the other, between the beginning and
/// the end of each. Some fail, and of some the end is never known, applied or not.
fn serial(seed: u64, transactions: u64) -> Vec<Line> {
    let mut random = Random::new(seed);
    let mut lists: HashMap<i64, Vec<i64>> = HashMap::new();
    let mut clients: Vec<(u64, Client)> = (0..8).map(|n| (n, Client::Idle)).collect();
    let (mut lines, mut begun, mut value) = (Vec::new(), 0, 0);
    for time in 0.. {
        let number = random.below(8) as usize;
        let (process, client) = &mut clients[number];
        *client = match std::mem::replace(client, Client::Idle) {
            Client::Idle if begun == transactions => break,
            Client::Idle => {
                begun += 1;
                // New keys come into use, as in a soak.
                let base = (begun / 50 * 10) as i64;
                let operations: Vec<_> = (0..random.between(1, 4))
                    .map(|_| {
                        let key = base + random.below(5) as i64;
                        value += 1;
                        match random.one_in(2) {
                            true => Read(key, Vec::new()),
                            false => Append(key, value),
                        }
                    })
                    .collect();
                lines.push(Line("invoke", *process, operations.clone(), time));
                Client::Invoked(operations)
            }
            Client::Invoked(operations) => match random.below(12) {
                0 => Client::Done("fail", operations),
                1 => Client::Done("info", operations),
                2 => {
                    apply(&mut lists, &operations);
                    Client::Done("info", operations)
                }
                _ => Client::Done("ok", apply(&mut lists, &operations)),
            },
            Client::Done(kind, operations) => {
                let is_lost = kind == "info" && random.one_in(2);
                if !is_lost {
                    lines.push(Line(kind, *process, operations, time));
                }
                if kind == "info" {
                    *process += 8;
                }
                Client::Idle
            }
        };
    }
    lines
}

fn apply(lists: &mut HashMap<i64, Vec<i64>>, operations: &[Operation]) -> Vec<Operation> {
    let mut apply = |operation: &Operation| match operation {
        Append(key, value) => {
            lists.entry(*key).or_default().push(*value);
            operation.clone()
        }
        Read(key, _) => Read(*key, lists.get(key).cloned().unwrap_or_default()),
    };
    operations.iter().map(&mut apply).collect()
}

/// Checks a history, and returns the names of what was found.
fn found(history: &str) -> Vec<String> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), history).expect("a file");
    let path = file.path().to_str().expect("a path");
    let output = Command::new(env!("CARGO_BIN_EXE_onewrite-lab"))
        .args(["check-history", "--json", path])
        .output()
        .expect("the command");
    let errors = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).expect(&errors);
    let anomalies = report["anomalies"].as_object().expect("anomalies");
    for (name, anomaly) in anomalies {
        assert!(anomaly["example"][0].is_string(), "{name} without example");
    }
    let names: Vec<_> = anomalies.keys().cloned().collect();
    assert_eq!(output.status.code(), Some(i32::from(!names.is_empty())));
    names
}

/// A transaction with its beginning and its end.
fn transaction(
    kind: &'static str,
    process: u64,
    times: (u64, u64),
    operations: Vec<Operation>,
) -> [Line; 2] {
    let invoke = Line("invoke", process, operations.clone(), AFTER + times.0);
    [invoke, Line(kind, process, operations, AFTER + times.1)]
}

/// The findings in a clean history with these transactions behind it.
fn with(planted: Vec<[Line; 2]>) -> Vec<String> {
    let mut lines = serial(1, 300);
    let mut planted: Vec<Line> = planted.into_iter().flatten().collect();
    planted.sort_by_key(|line| line.3);
    lines.extend(planted);
    found(&text(&lines))
}

const X: i64 = 90_001;
const Y: i64 = 90_002;
/// A process of its own for each planted transaction.
const P: u64 = 70_000;

fn list(values: &[i64]) -> Vec<i64> {
    values.to_vec()
}

#[test]
fn histories_of_a_serial_database_are_clean() {
    for seed in 0..40 {
        assert_eq!(found(&text(&serial(seed, 500))), [""; 0], "seed {seed}");
    }
}

#[test]
fn a_line_that_a_kill_has_cut_is_unknown() {
    let whole = text(&serial(3, 200));
    for cut in [1, 10, 40] {
        assert_eq!(found(&whole[..whole.len() - cut]), [""; 0], "{cut} bytes");
    }
}

#[test]
fn g0_is_found() {
    let names = with(vec![
        transaction("ok", P, (0, 9), vec![Append(X, 1), Append(Y, 1)]),
        transaction("ok", P + 1, (1, 8), vec![Append(X, 2), Append(Y, 2)]),
        transaction(
            "ok",
            P + 2,
            (10, 11),
            vec![Read(X, list(&[1, 2])), Read(Y, list(&[2, 1]))],
        ),
    ]);
    assert_eq!(names, ["G0"]);
}

#[test]
fn g1a_an_aborted_read_is_found() {
    let names = with(vec![
        transaction("fail", P, (0, 1), vec![Append(X, 1)]),
        transaction("ok", P + 1, (2, 3), vec![Read(X, list(&[1]))]),
    ]);
    assert!(names.contains(&"G1a".to_owned()), "{names:?}");
}

#[test]
fn g1b_an_intermediate_read_is_found() {
    let names = with(vec![
        transaction("ok", P, (0, 9), vec![Append(X, 1), Append(X, 2)]),
        transaction("ok", P + 1, (1, 8), vec![Read(X, list(&[1]))]),
    ]);
    assert!(names.contains(&"G1b".to_owned()), "{names:?}");
}

#[test]
fn g1c_a_circle_of_reads_is_found() {
    let names = with(vec![
        transaction("ok", P, (0, 9), vec![Append(X, 1), Read(Y, list(&[2]))]),
        transaction("ok", P + 1, (1, 8), vec![Append(Y, 2), Read(X, list(&[1]))]),
    ]);
    assert_eq!(names, ["G1c"]);
}

#[test]
fn g_single_a_read_skew_is_found() {
    let names = with(vec![
        transaction("ok", P, (0, 9), vec![Append(X, 1), Append(Y, 1)]),
        transaction(
            "ok",
            P + 1,
            (1, 8),
            vec![Read(X, list(&[1])), Read(Y, list(&[]))],
        ),
        transaction("ok", P + 2, (10, 11), vec![Read(Y, list(&[1]))]),
    ]);
    assert_eq!(names, ["G-single"]);
}

#[test]
fn g2_item_a_write_skew_is_found() {
    let names = with(vec![
        transaction("ok", P, (0, 9), vec![Read(X, list(&[])), Append(Y, 1)]),
        transaction("ok", P + 1, (1, 8), vec![Read(Y, list(&[])), Append(X, 2)]),
        transaction(
            "ok",
            P + 2,
            (10, 11),
            vec![Read(X, list(&[2])), Read(Y, list(&[1]))],
        ),
    ]);
    assert_eq!(names, ["G2-item"]);
}

#[test]
fn a_lost_update_is_found() {
    let names = with(vec![
        transaction("ok", P, (0, 9), vec![Read(X, list(&[])), Append(X, 1)]),
        transaction("ok", P + 1, (1, 8), vec![Read(X, list(&[])), Append(X, 2)]),
        transaction("ok", P + 2, (10, 11), vec![Read(X, list(&[1, 2]))]),
    ]);
    assert!(names.contains(&"lost-update".to_owned()), "{names:?}");
}

#[test]
fn a_transaction_that_does_not_see_itself_is_found() {
    let names = with(vec![transaction(
        "ok",
        P,
        (0, 1),
        vec![Append(X, 1), Read(X, list(&[]))],
    )]);
    assert!(names.contains(&"internal".to_owned()), "{names:?}");
}

#[test]
fn a_snapshot_that_moves_is_found() {
    let names = with(vec![
        transaction("ok", P, (0, 9), vec![Append(X, 1)]),
        transaction(
            "ok",
            P + 1,
            (1, 8),
            vec![Read(X, list(&[])), Read(X, list(&[1]))],
        ),
    ]);
    assert!(names.contains(&"internal".to_owned()), "{names:?}");
}

#[test]
fn an_element_that_is_there_twice_is_found() {
    let names = with(vec![
        transaction("ok", P, (0, 1), vec![Append(X, 1)]),
        transaction("ok", P + 1, (2, 3), vec![Read(X, list(&[1, 1]))]),
    ]);
    assert!(names.contains(&"duplicate-element".to_owned()), "{names:?}");
}

#[test]
fn orders_that_contradict_each_other_are_found() {
    let names = with(vec![
        transaction("ok", P, (0, 9), vec![Append(X, 1)]),
        transaction("ok", P + 1, (0, 9), vec![Append(X, 2)]),
        transaction("ok", P + 2, (10, 11), vec![Read(X, list(&[1, 2]))]),
        transaction("ok", P + 3, (12, 13), vec![Read(X, list(&[2, 1]))]),
    ]);
    assert_eq!(names, ["incompatible-order"]);
}

#[test]
fn an_acknowledged_append_that_is_lost_is_found() {
    let names = with(vec![
        transaction("ok", P, (0, 1), vec![Append(X, 1)]),
        transaction("ok", P + 1, (2, 3), vec![Read(X, list(&[]))]),
    ]);
    assert!(names.contains(&"lost-append".to_owned()), "{names:?}");
}

#[test]
fn an_append_that_is_lost_after_it_was_read_is_found() {
    let names = with(vec![
        transaction("ok", P, (0, 1), vec![Append(X, 1)]),
        transaction("ok", P + 1, (2, 3), vec![Read(X, list(&[1]))]),
        transaction("ok", P + 2, (4, 5), vec![Read(X, list(&[]))]),
    ]);
    assert_eq!(names, ["G-single-realtime"]);
}

#[test]
fn a_value_that_nobody_wrote_is_found() {
    let names = with(vec![transaction(
        "ok",
        P,
        (0, 1),
        vec![Read(X, list(&[77]))],
    )]);
    assert_eq!(names, ["garbage-read"]);
}

#[test]
fn a_value_that_two_append_is_found() {
    let names = with(vec![
        transaction("ok", P, (0, 1), vec![Append(X, 1)]),
        transaction("ok", P + 1, (2, 3), vec![Append(X, 1)]),
    ]);
    assert!(names.contains(&"duplicate-append".to_owned()), "{names:?}");
}

#[test]
fn writes_against_the_order_of_time_are_found() {
    let names = with(vec![
        transaction("ok", P, (0, 1), vec![Append(X, 1)]),
        transaction("ok", P + 1, (2, 3), vec![Append(X, 2)]),
        transaction("ok", P + 2, (4, 5), vec![Read(X, list(&[2, 1]))]),
    ]);
    assert_eq!(names, ["G0-realtime"]);
}

#[test]
fn a_read_of_the_future_is_found() {
    let names = with(vec![
        transaction("ok", P, (0, 1), vec![Read(X, list(&[1]))]),
        transaction("ok", P + 1, (2, 3), vec![Append(X, 1)]),
    ]);
    assert_eq!(names, ["G1c-realtime"]);
}

#[test]
fn a_write_skew_over_time_is_found() {
    // Each sees nothing of what the other has read or written, and a third proves the order of time.
    let names = with(vec![
        transaction("ok", P, (0, 20), vec![Read(X, list(&[])), Append(Y, 1)]),
        transaction("ok", P + 1, (1, 3), vec![Append(X, 1)]),
        transaction(
            "ok",
            P + 2,
            (4, 5),
            vec![Read(Y, list(&[])), Read(X, list(&[1]))],
        ),
        transaction("ok", P + 3, (6, 7), vec![Read(X, list(&[]))]),
        transaction("ok", P + 4, (30, 31), vec![Read(Y, list(&[1]))]),
    ]);
    assert!(names.contains(&"G-single-realtime".to_owned()), "{names:?}");
}

/// Changes every list of a key that was read.
fn changed(lines: &mut [Line], key: i64, change: impl Fn(&mut Vec<i64>)) {
    for line in lines {
        for operation in &mut line.2 {
            match operation {
                Read(one, list) if *one == key => change(list),
                _ => {}
            }
        }
    }
}

#[test]
fn an_acknowledged_append_that_is_taken_out_of_all_later_reads_is_found() {
    for seed in 0..20 {
        let mut lines = serial(seed, 300);
        // The first append that was acknowledged and that a later transaction's read shows.
        let appends = lines.clone();
        let appends = appends.iter().filter(|line| line.0 == "ok");
        let all = appends.flat_map(|line| line.2.iter().map(move |one| (line, one)));
        let mut shown = all.filter_map(|(line, operation)| match operation {
            Append(key, value) => {
                let end = line.3;
                let reads = |other: &Line| {
                    other.2.iter().any(
                        |one| matches!(one, Read(read, list) if read == key && list.contains(value)),
                    )
                };
                let invoked = |other: &Line| {
                    let begins = lines.iter().rev();
                    let mut begins = begins.filter(|one| one.0 == "invoke" && one.1 == other.1);
                    begins.find(|one| one.3 < other.3).is_some_and(|one| one.3 > end)
                };
                let mut readers = lines.iter().filter(|one| one.0 == "ok" && one.1 != line.1);
                readers
                    .any(|one| reads(one) && invoked(one))
                    .then_some((*key, *value))
            }
            Read(..) => None,
        });
        let (key, value) = shown.next().expect("an append that is read");
        drop(shown);
        changed(&mut lines, key, |list| list.retain(|one| *one != value));
        let names = found(&text(&lines));
        assert!(
            names.contains(&"lost-append".to_owned()),
            "seed {seed}: {names:?}"
        );
    }
}
