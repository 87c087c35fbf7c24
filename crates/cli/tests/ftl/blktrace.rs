//! `onewrite ftl replay` of blktrace's own files, next to the text that blkparse makes of them.

use std::path::PathBuf;
use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{onewrite, path, text};

const QUEUE: u32 = 1 | 1 << (16 + 4);
const ISSUE: u32 = 7 | 1 << (16 + 6);
const COMPLETE: u32 = 8 | 1 << (16 + 7);
const WRITE: u32 = 1 << (16 + 1);
const FLUSH: u32 = 1 << (16 + 2);
const DISCARD: u32 = 1 << (16 + 13);
const FUA: u32 = 1 << (16 + 15);
const PC: u32 = 1 << (16 + 9);
const NOTIFY: u32 = 1 << (16 + 10);

/// A record: processor, microseconds, action, sector, bytes, data.
type Event = (u32, u64, u32, u64, u32, u16);

/// The work of two processors. blkparse prints [`TEXT`] of it.
const EVENTS: [Event; 13] = [
    (0, 0, NOTIFY, 0, 0, 16),
    (1, 5, NOTIFY | 2, 0, 0, 33),
    (0, 10, QUEUE | WRITE, 1 << 31, 8192, 0),
    (0, 20, ISSUE | WRITE, 1 << 31, 8192, 0),
    (1, 1020, ISSUE, 16, 8192, 0),
    (0, 1500, ISSUE | PC, 0, 36, 16),
    (0, 2020, ISSUE | DISCARD | WRITE, 32, 8192, 8),
    (1, 3020, ISSUE | FLUSH, 0, 0, 0),
    (0, 3030, ISSUE | WRITE | FLUSH | FUA, 64, 4096, 0),
    (1, 3040, COMPLETE | WRITE, 1 << 31, 8192, 0),
    (0, 3050, COMPLETE, 16, 8192, 0),
    (0, 3060, QUEUE | WRITE, 96, 4096, 0),
    (1, 3070, 15 | QUEUE | WRITE, 96, 4096, 16),
];

const TEXT: &str = "\
8,0 0 0 0.000010000 7 Q W 2147483648 + 16 [a]
8,0 1 0 0.000005000 0 m N hello
8,0 0 0 0.000020000 7 D W 2147483648 + 16 [a]
8,0 1 0 0.001020000 7 D R 16 + 16 [a]
8,0 0 0 0.001500000 7 D R 36 (12 00 00 00 24 00 ..) [a]
8,0 0 0 0.002020000 7 D D 32 + 16 [a]
8,0 1 0 0.003020000 7 D FN [a]
8,0 0 0 0.003030000 7 D FWF 64 + 8 [a]
8,0 1 0 0.003040000 7 C W 2147483648 + 16 [0]
8,0 0 0 0.003050000 7 C R 16 + 16 [0]
8,0 0 0 0.003060000 7 Q W 96 + 8 [a]
8,0 1 0 0.003070000 7 A W 96 + 8 <- (8,1) 32
";

struct Traced {
    dir: TempDir,
}

impl Traced {
    /// A device, and a trace `sda` with a file for each of two processors, in this byte order.
    fn new(is_big: bool) -> Self {
        let traced = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        for cpu in 0..2 {
            let own = EVENTS.iter().filter(|event| event.0 == cpu);
            let records: Vec<u8> = own.flat_map(|event| record(event, is_big)).collect();
            std::fs::write(traced.file(&format!("sda.blktrace.{cpu}")), records).unwrap();
        }
        // A processor that did nothing.
        std::fs::write(traced.file("sda.blktrace.2"), "").unwrap();
        std::fs::write(traced.file("text"), TEXT).unwrap();
        traced
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Replays these files of the directory on a new device.
    fn replay(&self, files: &[&str], args: &[&str]) -> Output {
        let device = self.file("device");
        let _ = std::fs::remove_file(&device);
        let create = ["create", path(&device), "--mib", "64", "--table", "500"];
        let made = onewrite("ftl", &create);
        assert!(made.status.success(), "{}", text(&made.stderr));
        let files: Vec<PathBuf> = files.iter().map(|name| self.file(name)).collect();
        let files: Vec<&str> = files.iter().map(|file| path(file)).collect();
        onewrite(
            "ftl",
            &[&["replay", path(&device)], &files[..], args].concat(),
        )
    }

    fn report(&self, files: &[&str], args: &[&str]) -> Value {
        let output = self.replay(files, &[&["--json"], args].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn refused(&self, files: &[&str], args: &[&str]) -> String {
        let output = self.replay(files, args);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        text(&output.stderr)
    }
}

/// `struct blk_io_trace` of the kernel, and the data behind it.
fn record(&(cpu, us, action, sector, bytes, data): &Event, is_big: bool) -> Vec<u8> {
    let mut record = Vec::new();
    let mut field = |number: u64, bytes: usize| {
        let mut field = number.to_le_bytes()[..bytes].to_vec();
        if is_big {
            field.reverse();
        }
        record.extend(field);
    };
    field(0x6561_7407, 4);
    field(0, 4);
    field(1_700_000_000_000_000_000 + us * 1000, 8);
    field(sector, 8);
    for number in [bytes, action, 7, 8 << 20, cpu] {
        field(u64::from(number), 4);
    }
    field(0, 2);
    field(u64::from(data), 2);
    assert_eq!(record.len(), 48);
    record.resize(48 + usize::from(data), 0xEE);
    record
}

#[test]
fn both_byte_orders_and_every_way_to_name_the_files_play_as_blkparses_text() {
    for is_big in [false, true] {
        let traced = Traced::new(is_big);
        let all = ["sda.blktrace.1", "sda.blktrace.0", "sda.blktrace.2"];
        for action in ["D", "Q", "C"] {
            for files in [&["sda"][..], &all] {
                for more in [&[][..], &["--timed", "--queue-depth", "4"]] {
                    let args = [&["--action", action], more].concat();
                    let mut ours = traced.report(files, &args);
                    let mut theirs = traced.report(&["text"], &args);
                    assert_eq!(ours["format"], "blktrace");
                    assert_eq!(ours["trace"]["lines"], EVENTS.len());
                    assert_eq!(theirs["format"], "blkparse");
                    // The names of processes are no lines of the text.
                    let count = |of: &Value| of["trace"]["others"].as_u64().unwrap();
                    assert_eq!(count(&ours), count(&theirs) + 1);
                    for report in [&mut ours, &mut theirs] {
                        report["format"] = Value::Null;
                        report["trace"]["lines"] = Value::Null;
                        report["trace"]["others"] = Value::Null;
                    }
                    assert_eq!(ours, theirs, "{action}");
                }
            }
        }
        let report = traced.report(&["sda"], &[]);
        let requests = |kind: &str| report["requests"][kind]["requests"].as_u64();
        let all = ["write", "read", "trim", "flush"].map(requests);
        assert_eq!(all, [Some(2), Some(1), Some(1), Some(1)], "{report}");
        assert_eq!(report["moved"]["out_of_order"], 0);
        assert_eq!(report["trace"]["disks"], serde_json::json!(["8,0"]));
    }
}

/// `blktrace -o -` writes the buffers of one processor after those of another.
#[test]
fn one_stream_of_all_processors_is_played_by_its_times() {
    let traced = Traced::new(false);
    let files = [1, 0].map(|cpu| traced.file(&format!("sda.blktrace.{cpu}")));
    let stream = files.map(|file| std::fs::read(file).unwrap()).concat();
    std::fs::write(traced.file("stream"), stream).unwrap();
    let whole = traced.report(&["sda"], &["--timed"]);
    assert_eq!(traced.report(&["stream"], &["--timed"]), whole);
}

#[test]
fn a_file_that_is_left_out_is_told_and_one_that_is_cut_off_is_an_error() {
    let traced = Traced::new(false);
    let first = traced.replay(&["sda.blktrace.0"], &[]);
    assert!(first.status.success());
    let said = text(&first.stderr);
    assert!(said.contains("sda.blktrace.1 belongs"), "{said}");
    assert!(!said.contains("sda.blktrace.0 belongs"), "{said}");
    let named = traced.refused(&["sda", "sda.blktrace.0"], &[]);
    assert!(named.contains("named twice"), "{named}");
    let missing = traced.refused(&["sdb"], &[]);
    assert!(missing.contains("no such file"), "{missing}");
    let mixed = traced.refused(&["sda", "text"], &[]);
    assert!(mixed.contains("text, byte 0: no record"), "{mixed}");
    let format = traced.refused(&["text", "text"], &["--format", "blkparse"]);
    assert!(format.contains("named twice"), "{format}");
    let format = traced.refused(&["sda.blktrace.0"], &["--format", "msr"]);
    assert!(format.contains("--format blktrace"), "{format}");

    // The first record of processor 1 has 33 bytes of data, the second begins at byte 81.
    let cut = traced.file("sda.blktrace.1");
    let bytes = std::fs::read(&cut).unwrap();
    std::fs::write(&cut, &bytes[..100]).unwrap();
    let said = traced.refused(&["sda"], &[]);
    let place = "sda.blktrace.1, byte 81: the file ends with 19 of a record's 48 bytes";
    assert!(said.contains(place), "{said}");
    let lenient = traced.report(&["sda"], &["--lenient"]);
    assert_eq!(lenient["trace"]["unknown"], 1);
    assert_eq!(lenient["requests"]["read"]["requests"], 0);
    assert_eq!(lenient["requests"]["write"]["requests"], 2);
    let shown = text(&traced.replay(&["sda"], &["--lenient"]).stdout);
    assert!(shown.contains("1 records are unknown"), "{shown}");

    for cpu in 0..3 {
        std::fs::write(traced.file(&format!("sda.blktrace.{cpu}")), "").unwrap();
    }
    let empty = traced.refused(&["sda"], &[]);
    assert!(empty.contains("sda is empty"), "{empty}");
}
