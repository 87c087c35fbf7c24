//! `onewrite ftl replay` as a user runs it: every format, and a report that adds up.

use std::path::PathBuf;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{onewrite, path, text};
use crate::support::AllParts;

struct Device {
    dir: TempDir,
}

impl Device {
    fn new(more: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let device = Self { dir };
        let file = device.file();
        let usual = ["create", path(&file), "--mib", "64", "--table", "500"];
        let small = ["--pages-per-block", "32"];
        let made = onewrite("ftl", &[&usual[..], &small, more].concat());
        assert!(made.status.success(), "{made:?}");
        device
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("device")
    }

    fn replay(&self, trace: &str, args: &[&str]) -> std::process::Output {
        let (file, of) = (self.file(), self.dir.path().join("trace"));
        std::fs::write(&of, trace).unwrap();
        onewrite("ftl", &[&["replay", path(&file), path(&of)], args].concat())
    }

    fn report(&self, trace: &str, args: &[&str]) -> Value {
        let output = self.replay(trace, &[&["--json"], args].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

fn number(report: &Value, pointer: &str) -> u64 {
    let found = report.pointer(pointer).and_then(Value::as_u64);
    found.unwrap_or_else(|| panic!("no {pointer} in {report}"))
}

/// The same four requests of 8 KiB in each format.
const TRACES: [(&str, &str); 5] = [
    (
        "events",
        r#"{"op":"write","queued_us":0,"completed_us":9,"address":1099511627776,"bytes":8192}
{"op":"read","queued_us":1000,"completed_us":9,"address":8192,"bytes":8192}
{"op":"trim","queued_us":2000,"completed_us":9,"address":16384,"bytes":8192}
{"op":"flush","queued_us":3000,"completed_us":9,"address":0,"bytes":0}
"#,
    ),
    (
        "blkparse",
        "8,0 0 1 0.000000000 1 D W 2147483648 + 16 [a]\n8,0 0 2 0.001000000 1 D R 16 + 16 [a]\n\
         8,0 0 3 0.002000000 1 D D 32 + 16 [a]\n8,0 0 4 0.003000000 1 D FF [a]\nCPU0 (8,0):\n",
    ),
    (
        "fio",
        "fio version 2 iolog\n/a write 1099511627776 8192\n/a wait 1000 0\n/a read 8192 8192\n/a wait 1000 0\n\
         /a trim 16384 8192\n/a wait 1000 0\n/a sync 0 0\n",
    ),
    (
        "fio",
        "fio version 3 iolog\n7 /a write 1099511627776 8192\n1007 /a read 8192 8192\n\
         2007 /a trim 16384 8192\n3007 /a datasync 0 0\n",
    ),
    (
        "msr",
        "128166372003061629,hm,1,Write,1099511627776,8192,41\n128166372003071629,hm,1,Read,8192,8192,41\n\
         128166372003091629,hm,1,Write,16384,8192,41\n",
    ),
];

#[test]
fn each_format_is_recognized_and_has_the_same_requests() {
    for (format, trace) in TRACES {
        for args in [&[][..], &["--format", format]] {
            let report = Device::new(&[]).report(trace, args);
            assert_eq!(report["format"], format);
            let (writes, others) = if format == "msr" { (2, 0) } else { (1, 1) };
            assert_eq!(
                number(&report, "/requests/write/requests"),
                writes,
                "{report}"
            );
            assert_eq!(number(&report, "/requests/write/bytes"), writes * 8192);
            assert_eq!(number(&report, "/requests/read/requests"), 1);
            assert_eq!(number(&report, "/requests/trim/requests"), others);
            assert_eq!(number(&report, "/requests/flush/requests"), others);
            assert_eq!(report["trace_s"], 0.003, "{report}");
            assert_eq!(number(&report, "/moved/folded"), 1);
            // The far address keeps its alignment: the only page read is the one of the read.
            assert_eq!(number(&report, "/statistics/host_reads"), 1);
            assert_eq!(number(&report, "/statistics/host_writes"), writes);
            assert_eq!(number(&report, "/statistics/host_trims"), others);
        }
    }
}

#[test]
fn an_unknown_line_is_an_error_with_its_place_or_is_counted() {
    let device = Device::new(&[]);
    let trace = "8,0 0 1 0.0 1 D W 0 + 16 [a]\nwhat is this\n8,0 0 2 0.1 1 D W 32 + 16 [a]\n";
    let before = std::fs::read(device.file()).unwrap();
    let refused = device.replay(trace, &[]);
    assert!(!refused.status.success());
    let said = text(&refused.stderr);
    assert!(
        said.contains("trace, line 2: it has too few fields"),
        "{said}"
    );
    assert!(said.contains("--lenient"), "{said}");
    assert!(std::fs::read(device.file()).unwrap() == before);
    let report = device.report(trace, &["--lenient"]);
    assert_eq!(number(&report, "/trace/unknown"), 1);
    assert_eq!(number(&report, "/requests/write/requests"), 2);
    let first = report["trace"]["first_unknown"].as_str().unwrap();
    assert!(first.contains("line 2"), "{first}");
    let shown = text(&device.replay(trace, &["--lenient"]).stdout);
    assert!(shown.contains("1 lines are unknown"), "{shown}");
    for (trace, said) in [("nonsense\n", "--format names"), ("", "is empty")] {
        let refused = device.replay(trace, &[]);
        let error = text(&refused.stderr);
        assert!(!refused.status.success() && error.contains(said), "{error}");
    }
}

#[test]
fn one_disk_of_several_can_be_chosen() {
    let device = Device::new(&[]);
    let trace = "1,hm,0,Write,0,8192,1\n2,hm,1,Write,8192,8192,1\n3,hm,1,Read,0,8192,1\n";
    let report = device.report(trace, &["--only", "hm_1"]);
    assert_eq!(number(&report, "/requests/write/requests"), 1);
    assert_eq!(number(&report, "/trace/of_other_disks"), 1);
    assert_eq!(
        report["trace"]["disks"],
        serde_json::json!(["hm_0", "hm_1"])
    );
    let refused = device.replay(trace, &["--only", "hm_2"]);
    let said = text(&refused.stderr);
    assert!(said.contains("it has hm_0 hm_1"), "{said}");
    let both = text(&device.replay(trace, &[]).stdout);
    assert!(
        both.contains("several disks played as one: hm_0 hm_1"),
        "{both}"
    );
}

/// A device in use with every part that is there by choice.
#[test]
fn the_parts_by_choice_are_counted_and_a_queue_makes_it_faster() {
    let parts = AllParts::new(20_000);
    let used = ["--full", "70", "--scrub-reads", "100"];
    let device = || Device::new(&[&used[..], &parts.options()].concat());
    let mut at = 1_u64;
    let mut trace = String::from("fio version 2 iolog\n");
    for n in 0..6_000 {
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(11);
        let op = if n % 3 == 0 { "write" } else { "read" };
        trace += &format!("a {op} {} 8192\n", (at >> 33) % 2000 * 8192);
        if n % 200 == 0 {
            trace += "a sync 0 0\n";
        }
    }
    let one = device().report(&trace, &[]);
    let report = device().report(&trace, &["--queue-depth", "16"]);
    let s = |name: &str| number(&report, &format!("/statistics/{name}"));
    for counted in ["map_reads", "multi_plane", "padding_writes", "scrub_blocks"] {
        assert!(s(counted) > 0, "{counted}: {report}");
    }
    let sum: u64 = [
        "host_writes",
        "gc_copies",
        "wear_copies",
        "scrub_copies",
        "map_writes",
        "root_writes",
        "padding_writes",
    ]
    .iter()
    .map(|name| s(name))
    .sum();
    assert_eq!(number(&report, "/nand/programs"), sum, "{report}");
    let elapsed = |report: &Value| report["elapsed_s"].as_f64().unwrap();
    assert!(elapsed(&report) < elapsed(&one), "{report}");
}

/// The device is overwritten several times at random, with flushes that write the map: garbage is
/// collected, blocks of bookkeeping included.
#[test]
fn the_nands_programs_are_the_hosts_pages_the_map_and_the_moved_pages() {
    for flush in ["nothing", "changed", "journal", "whole"] {
        for copies in ["apart", "among-host"] {
            let device = Device::new(&["--flush", flush, "--copies", copies, "--channels", "2"]);
            let mut at = 1_u64;
            let mut trace = String::from("fio version 2 iolog\n");
            for n in 0..20_000 {
                at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(11);
                trace += &format!("a write {} 8192\n", (at >> 33) % 6000 * 8192);
                if n % 20 == 0 {
                    trace += "a sync 0 0\n";
                }
            }
            let report = device.report(&trace, &[]);
            let s = |name: &str| number(&report, &format!("/statistics/{name}"));
            assert!(s("gc_copies") > 0 && s("gc_blocks") > 0, "{report}");
            let sum = [
                "host_writes",
                "gc_copies",
                "wear_copies",
                "map_writes",
                "table_writes",
                "root_writes",
            ]
            .iter()
            .map(|name| s(name))
            .sum::<u64>();
            assert_eq!(
                number(&report, "/nand/programs"),
                sum,
                "{flush} {copies}: {report}"
            );
            let waf = report["write_amplification"].as_f64().unwrap();
            assert!(
                (waf - sum as f64 / s("host_writes") as f64).abs() < 1e-9,
                "{report}"
            );
            assert!(report["life_bytes"].as_f64().unwrap() > 0.0);
            assert!(number(&report, "/erases/max") > 0);
        }
    }
}
