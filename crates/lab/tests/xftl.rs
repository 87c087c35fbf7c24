//! `onewrite-lab reproduce xftl` as a user runs it, on small devices.

mod common;
mod printed;

use common::{can_make, onewrite_lab, text};
use onewrite_iotrace::scratch::FileSystem;
use printed::{differences_are_told, figures, ours, row};
use serde_json::Value;

/// The document of X-FTL's figures.
fn xftl(args: &[&str]) -> Value {
    let output = onewrite_lab("reproduce", &[&["xftl", "--json"], args].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document = serde_json::from_slice(&output.stdout).expect("one JSON document");
    figures(&document).iter().for_each(differences_are_told);
    document
}

#[test]
fn restarts_have_their_spread_and_the_ftl_s_own_part() {
    if !can_make(FileSystem::Ext4) || !std::path::Path::new("/dev/fuse").exists() {
        return;
    }
    let document = xftl(&["restart", "--size", "96", "--count", "200", "--cuts", "2"]);
    let restarts = document["restarts"].as_array().expect("restarts");
    assert_eq!(restarts.len(), 4 * 2, "modes, and cuts: {document}");
    for one in restarts {
        assert!(one["ftl_ms"].as_f64().expect("a number") > 1.0, "{one}");
    }
    for cuts in restarts.chunks(2) {
        let of = |cut: &Value, name: &str| cut[name].as_u64().expect("a number");
        let half = of(&cuts[0], "operations") / 2;
        let whole = of(&cuts[1], "operations");
        assert!(of(&cuts[0], "cut") < half, "{cuts:?}");
        assert!((half..whole).contains(&of(&cuts[1], "cut")), "{cuts:?}");
    }
    // A device in use has garbage to collect, and a new one does not.
    let used = xftl(&[
        "restart", "--size", "96", "--count", "200", "--cuts", "1", "--in-use",
    ]);
    let operations = |document: &Value| document["restarts"][0]["operations"].as_u64();
    assert!(operations(&used) > operations(&document), "{used}");
    let how = figures(&used)[0]["how"].as_str().expect("words");
    assert!(how.contains("a device that was in use"), "{how}");
    let figures = figures(&document);
    assert_eq!(figures.len(), 1);
    let [whole, sqlite] = ["all of it", SQLITE].map(|part| ours(&figures[0], "WAL", part));
    assert!(whole > sqlite, "{document}");
    // Slide 31: 20.1, 153.0 and 3.5 ms, SQLite's own part.
    let paper = |name, part| row(&figures[0], name, part)["ratio"]["paper"]["amount"].as_f64();
    for (name, part, expected) in [
        ("rollback journal", SQLITE, 20.1 / 3.5),
        ("WAL", SQLITE, 153.0 / 3.5),
        ("WAL", "SQLite, by the rollback journal's", 153.0 / 20.1),
    ] {
        assert_eq!(paper(name, part), Some(expected), "{document}");
    }
    assert_eq!(paper("WAL", "mount"), None, "{document}");
    // On the same files WAL has a log to read, and X-FTL has none.
    let of = |name| ours_of(&figures[0], name);
    assert!(of("WAL, transactional files") > 1.0, "{document}");
}

/// The part of a restart that is judged.
const SQLITE: &str = "SQLite, to its first row";

/// A restart's ratio to X-FTL.
fn ours_of(figure: &Value, name: &str) -> f64 {
    let row = row(figure, name, SQLITE);
    row["ratio"]["ours"].as_f64().expect("a ratio")
}

#[test]
fn a_flush_s_cost_is_told_by_size_and_ftl() {
    let document = xftl(&["flush", "--size", "128,1024", "--ftl", "board,journal"]);
    let costs = document["flushes"].as_array().expect("costs");
    assert_eq!(costs.len(), 8, "sizes, FTLs, and 1 and 5 pages: {document}");
    let programs = |size: u64, flush: &str| {
        let is_it = |cost: &&Value| {
            cost["host_mib"] == size && cost["controller"]["flush"] == flush && cost["pages"] == 5
        };
        let cost = costs.iter().find(is_it).expect("the cost");
        cost["flush"]["programs"].as_f64().expect("a number")
    };
    // A piece of the map for each 16 MiB, and the root.
    assert_eq!(
        (programs(128, "whole"), programs(1024, "whole")),
        (9.0, 65.0)
    );
    assert!(programs(1024, "journal") < 2.0, "{document}");
}

#[test]
fn x_ftl_stands_next_to_wal_on_every_file_system_and_programs_add_up() {
    if !can_make(FileSystem::Ext4) || !std::path::Path::new("/dev/fuse").exists() {
        return;
    }
    let document = xftl(&[
        "space", "--size", "96", "--ftl", "journal", "--count", "200", "--seeds", "1",
    ]);
    let ran = document["ran"].as_array().expect("runs");
    let of = |mode: &str, name: &str| {
        let one = ran.iter().find(|one| one["mode"] == mode);
        let one = one.unwrap_or_else(|| panic!("{mode} was not run: {document}"));
        one[name]
            .as_f64()
            .unwrap_or_else(|| panic!("{name}: {one}"))
    };
    for one in ran {
        let mode = one["mode"].as_str().expect("a mode");
        let parts = [
            "host_writes",
            "gc_copies",
            "wear_copies",
            "scrub_copies",
            "failed_copies",
            "padding_writes",
            "map_writes",
            "table_writes",
            "root_writes",
        ];
        let sum: f64 = parts.iter().map(|part| of(mode, part)).sum();
        let programs = of(mode, "programs");
        assert_eq!(sum, programs, "{one}");
        // A block is used up by its pages, wherever the run begins and ends. The board's has 128.
        let used = of(mode, "used_blocks") * 128.0;
        assert!((used - programs).abs() < 1e-6, "{one}");
        assert_eq!(one["fullness"]["host_mib"], 96);
    }
    assert_eq!(ran.len(), 7);
    // 5 pages, and the change counter's.
    let pages = |mode: &str| of(mode, "host_writes") / of(mode, "transactions");
    assert!((4.8..5.2).contains(&pages("X-FTL")), "{document}");
    assert!(
        (5.8..6.2).contains(&pages("X-FTL, counter written")),
        "{document}"
    );
    // A journal of the map makes WAL's flush as cheap as a commit.
    let cells = document["cells"].as_array().expect("cells");
    let others = cells[0]["others"].as_array().expect("others");
    let wal = others
        .iter()
        .find(|other| other["mode"] == "WAL")
        .expect("WAL");
    let ratio = wal["ratios"][0]["time"].as_f64().expect("a ratio");
    assert!((0.7..2.0).contains(&ratio), "{document}");
    assert!(of("rollback journal", "flushes") > 3.0 * of("WAL", "flushes"));
}

#[test]
fn parts_of_the_device_reach_every_figure_and_are_named() {
    if !can_make(FileSystem::Ext4) || !std::path::Path::new("/dev/fuse").exists() {
        return;
    }
    let document = xftl(&[
        "updates",
        "restart",
        "flush",
        "--size",
        "96",
        "--count",
        "20",
        "--cuts",
        "1",
        "--ftl",
        "board",
        "--planes",
        "2",
        "--map-cache",
        "4096",
        "--paired-pages",
        "--table",
        "6144",
    ]);
    for of in ["ran", "restarts", "flushes"] {
        let all = document[of].as_array().expect("runs");
        assert!(!all.is_empty(), "{of}");
        for one in all {
            let parts = &one["controller"]["parts"];
            let expected = serde_json::json!({
                "planes": 2, "map_cache": 4096, "paired_pages": true, "table": 6144,
                "transfer_rate": null, "write_buffer": 64, "map_interval": 8192, "wear_gap": 64,
                "gc_ahead": 4
            });
            assert_eq!(*parts, expected, "{one}");
        }
    }
    for one in document["ran"].as_array().expect("runs") {
        let of = |name: &str| one[name].as_u64().expect("a number");
        assert!(of("map_reads") > 0 && of("padding_writes") > 0, "{one}");
    }
    let how = figures(&document)[0]["how"].as_str().expect("words");
    let named = ", 2 planes, 4096 entries of the map in memory, paired pages, 6144 entries of the X-L2P table";
    assert!(how.contains(named), "{how}");
}

#[test]
fn nand_is_an_axis_whose_pages_are_the_database_s_and_edges_take_more_seeds() {
    if !can_make(FileSystem::Ext4) || !std::path::Path::new("/dev/fuse").exists() {
        return;
    }
    let document = xftl(&[
        "space",
        "flush",
        "--size",
        "96",
        "--count",
        "20",
        "--ftl",
        "journal",
        "--nand",
        "board,slc-cache",
        "--seeds",
        "2",
    ]);
    for of in ["ran", "flushes"] {
        let all = document[of].as_array().expect("runs");
        for nand in ["board", "slc-cache"] {
            let of_it = |one: &&Value| one["controller"]["nand"] == nand;
            assert!(all.iter().any(|one| of_it(&one)), "{of}: no {nand}");
        }
    }
    let shape = document["shape"].as_str().expect("words");
    for part in [
        "pages of 8 KiB",
        "pages of 16 KiB",
        "4096 entries of the X-L2P table",
    ] {
        assert!(shape.contains(part), "{shape}");
    }
    let ran = document["ran"].as_array().expect("runs");
    let number = |one: &Value, name: &str| one[name].as_u64().expect("a number");
    for one in ran.iter().filter(|one| one["mode"] == "X-FTL") {
        // A page of the database is one of the device: a commit of n pages writes n of them.
        let written = number(one, "host_writes") as f64 / number(one, "transactions") as f64;
        assert!((4.7..5.1).contains(&written), "{one}");
    }
    for one in ran.iter().filter(|one| one["mode"] == "WAL") {
        // A log's frames have pages of the same size, or its cycles would not be whole.
        assert_eq!(one["checkpoints"]["at_end"], 0, "{one}");
    }
    let cells = document["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 2, "{document}");
    let seeds = |cell: &Value| {
        let others = cell["others"].as_array().expect("others");
        let wal = others.iter().find(|other| other["mode"] == "WAL");
        let ratios = wal.expect("WAL")["ratios"].as_array().expect("ratios");
        ratios
            .iter()
            .map(|one| number(one, "seed"))
            .collect::<Vec<u64>>()
    };
    // 1.64 times as many pages of the host are near the paper's 2 on the board.
    assert_eq!(seeds(&cells[0]), [1, 2], "{document}");
}

/// X-FTL as in its paper.
const XFTL: &str = "X-FTL, counter written";

#[test]
fn conditions_that_no_source_states_are_axes_and_change_what_they_name() {
    if !can_make(FileSystem::Ext4) || !std::path::Path::new("/dev/fuse").exists() {
        return;
    }
    let of = |with: &[&str]| {
        let usual = [
            "space", "--size", "96", "--ftl", "journal", "--count", "20", "--seeds", "1",
        ];
        let document = xftl(&[&usual, with].concat());
        move |mode: &str, name: &str| {
            let ran = document["ran"].as_array().expect("runs");
            let one = ran.iter().find(|one| one["mode"] == mode).expect("a run");
            one[name].as_f64().expect("a number")
        }
    };
    let usual = of(&[]);
    let new = of(&["--warm-up", "0", "--precondition", "0"]);
    for mode in ["WAL", XFTL] {
        assert!(usual(mode, "gc_blocks") > 0.0, "{mode}");
        // Nothing was programmed before but the database and what fills the device.
        assert_eq!(new(mode, "gc_blocks"), 0.0, "{mode}");
    }
    let uncached = of(&["--cache-size", "1"]);
    assert!(uncached(XFTL, "host_reads") > usual(XFTL, "host_reads") * 1.5);
    // 8 KiB take 52 us at 156 MB/s, and 819 at 10.
    let slow = of(&["--transfer-rate", "10"]);
    assert_eq!(slow(XFTL, "host_writes"), usual(XFTL, "host_writes"));
    let later = slow(XFTL, "ms_per_transaction") - usual(XFTL, "ms_per_transaction");
    assert!(later > 0.76, "{later}");
}

#[test]
fn ext4_with_a_journal_is_clean_for_fsck_after_power_cuts() {
    if !can_make(FileSystem::Ext4) || !std::path::Path::new("/dev/fuse").exists() {
        return;
    }
    if std::process::Command::new("fio")
        .arg("--version")
        .output()
        .is_err()
    {
        println!("SKIPPED: no fio");
        return;
    }
    let document = xftl(&["fsck", "--size", "96", "--count", "40", "--cuts", "2"]);
    let checks = document["checks"].as_array().expect("checks");
    assert_eq!(checks.len(), 3 * 2, "file systems, and cuts: {document}");
    for one in checks {
        let of = |name: &str| one[name].as_f64().expect("a number");
        assert!(of("fsck_reads") > 0.0 && of("fsck_ms") > 0.0, "{one}");
        assert!(of("cut") < of("operations"), "{one}");
        if one["mode"] == "ext4, no journal" {
            // The control: fsck sees what a cut does to blocks that are being allocated.
            assert!(one["mount_ms"].is_null(), "{one}");
            assert_eq!(one["is_clean"], false, "{one}");
        } else {
            assert!(of("mount_ms") > 0.0, "{one}");
            assert_eq!(one["is_clean"], true, "{one}");
        }
    }
}

#[test]
fn garbage_collection_finds_as_many_valid_pages_in_each_mode() {
    if !can_make(FileSystem::Ext4) || !std::path::Path::new("/dev/fuse").exists() {
        return;
    }
    let document = xftl(&[
        "activities",
        "--size",
        "128",
        "--count",
        "400",
        "--validity",
        "50",
        "--table",
        "256",
    ]);
    let ran = document["ran"].as_array().expect("runs");
    assert_eq!(ran.len(), 4, "modes: {document}");
    for one in ran {
        let sought = &one["sought"];
        assert_eq!(sought["is_reached"], true, "{one}");
        let tolerance = sought["tolerance"].as_f64().expect("a number");
        assert!(tolerance <= 3.0, "{one}");
        // From the counts, not from what the search says of itself.
        let count = |name: &str| one[name].as_f64().expect("a count");
        let valid = count("gc_copies") * 100.0 / (count("gc_blocks") * 128.0);
        assert!((valid - 50.0).abs() <= tolerance, "{one}");
        assert!((10.0..=100.0).contains(&count("full_percent")), "{one}");
    }
}

#[test]
fn wal_has_whole_checkpoint_cycles_in_every_workload() {
    if !can_make(FileSystem::Ext4) || !std::path::Path::new("/dev/fuse").exists() {
        return;
    }
    let document = xftl(&["android", "updates", "--size", "96", "--count", "20"]);
    let ran = document["ran"].as_array().expect("runs");
    let wal: Vec<&Value> = ran.iter().filter(|one| one["mode"] == "WAL").collect();
    assert_eq!(wal.len(), 4 + 4, "{document}");
    for one in &wal {
        let of = |name: &str| one["checkpoints"][name].as_u64().expect("a number");
        assert!(of("automatic") >= 1, "{one}");
        // One file, one log. The applications have 3 and 20 files, and RL Benchmark its own length.
        let workload = one["workload"].as_str().expect("a name");
        let is_one_log = workload.starts_with("partsupply") || workload.contains("mail");
        assert!(!is_one_log || of("at_end") == 0, "{one}");
        // All modes run the same transactions.
        let same = ran
            .iter()
            .filter(|other| other["workload"] == one["workload"]);
        for other in same {
            assert_eq!(other["transactions"], one["transactions"], "{other}");
            assert_eq!(other["checkpoints"].is_null(), other["mode"] != "WAL");
        }
    }
}

#[test]
fn fio_s_own_counts_are_those_of_the_device() {
    if !can_make(FileSystem::Ext4) || !std::path::Path::new("/dev/fuse").exists() {
        return;
    }
    if std::process::Command::new("fio")
        .arg("--version")
        .output()
        .is_err()
    {
        println!("SKIPPED: no fio");
        return;
    }
    let document = xftl(&["fio", "--size", "96", "--count", "40"]);
    let ran = document["ran"].as_array().expect("runs");
    assert_eq!(ran.len(), 2 * 5 * 3, "jobs, fsyncs and modes: {document}");
    for one in ran {
        let of = |name: &str| one[name].as_u64().expect("a number");
        assert_eq!(one["fio"]["writes"], of("transactions"), "{one}");
        let workload = one["workload"].as_str().expect("a name");
        let every: u64 = workload
            .rsplit(' ')
            .next()
            .and_then(|number| number.parse().ok())
            .expect("a number");
        let groups = of("transactions") / every;
        match one["mode"].as_str() {
            // Data only, and each job's transactions are its own.
            Some("X-FTL") => {
                assert_eq!(of("host_writes"), of("transactions"), "{one}");
                assert_eq!(of("commits"), groups, "{one}");
            }
            _ => {
                assert!(of("host_writes") > of("transactions"), "{one}");
                assert!(of("flushes") * of("jobs") >= groups, "{one}");
            }
        }
    }
}

#[test]
fn without_fio_the_error_names_its_package() {
    if !can_make(FileSystem::Ext4) {
        return;
    }
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_onewrite-lab"))
        .args(["reproduce", "xftl", "fio"])
        .env("PATH", "")
        .output()
        .expect("the command");
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr) + &text(&output.stdout);
    assert!(said.contains("apt-get install fio"), "{said}");
}

/// A count of a run.
fn count(one: &Value, name: &str) -> f64 {
    let found = one[name].as_f64();
    found.unwrap_or_else(|| panic!("{name}: {one}"))
}

#[test]
fn each_setting_of_the_board_changes_what_it_names() {
    if !can_make(FileSystem::Ext4) || !std::path::Path::new("/dev/fuse").exists() {
        return;
    }
    // 20 pages: a cycle of the log is 50 transactions. On a new device no copies blur the counts.
    let document = xftl(&[
        "controllers",
        "--size",
        "96",
        "--fill",
        "30",
        "--count",
        "20",
        "--updates",
        "20",
        "--warm-up",
        "0",
        "--precondition",
        "0",
    ]);
    let ran = document["ran"].as_array().expect("runs");
    assert_eq!(ran.len(), 10 * 3, "settings, and modes: {document}");
    let of = |mode: &'static str| ran.iter().filter(move |one| one["mode"] == mode);
    for one in of("WAL").chain(of("rollback journal")) {
        let controller = &one["controller"];
        let flushes = count(one, "flushes");
        let (map, roots) = (count(one, "map_writes"), count(one, "root_writes"));
        // Six pieces of the map. A flush to which nothing was written before writes nothing.
        let is_as_named = match controller["flush"].as_str().expect("a flush") {
            "whole" => map == 6.0 * roots && roots > 0.9 * flushes,
            "changed" => map >= roots && map < 3.0 * roots && roots > 0.9 * flushes,
            "journal" => map < roots / 2.0 && roots > 0.9 * flushes,
            _ => map < flushes / 10.0 && roots < flushes / 10.0,
        };
        assert!(is_as_named, "{one}");
        // Larger clusters begin where a page does.
        let across = count(one, "across_percent");
        assert!(controller["clusters"] == "usual" || across == 0.0, "{one}");
    }
    let ms = |mode, is_it: fn(&Value) -> bool| {
        let one = of(mode)
            .find(|one| is_it(&one["controller"]))
            .expect("a run");
        count(one, "ms_per_transaction")
    };
    let board = ms("WAL", |c| {
        c["copies"] == "among-host" && c["map"] == "striped"
    });
    assert!(
        board * 1.5 < ms("WAL", |c| c["map"] == "one-die"),
        "{document}"
    );
    let one_die = ms("X-FTL", |c| c["dies"] == 1);
    assert!(
        ms("X-FTL", |c| c["dies"] == 8) * 2.0 < one_die,
        "{document}"
    );
    // One length of a transaction says nothing of the others: no time is judged.
    let figures = figures(&document);
    assert_eq!(figures.len(), 10, "{document}");
    for row in figures
        .iter()
        .flat_map(|one| one["rows"].as_array().expect("rows"))
    {
        assert_eq!(row["verdict"], "not-compared", "{row}");
    }
}

#[test]
fn tpc_c_has_both_mixes_and_whole_cycles_of_its_log() {
    if !can_make(FileSystem::Ext4) || !std::path::Path::new("/dev/fuse").exists() {
        return;
    }
    let document = xftl(&[
        "tpcc",
        "--count",
        "20",
        "--warm-up",
        "0",
        "--precondition",
        "0",
    ]);
    let ran = document["ran"].as_array().expect("runs");
    assert_eq!(ran.len(), 2 * 3, "mixes, and modes: {document}");
    let one = |workload: &str, mode: &str| {
        let mut all = ran.iter();
        let one = all.find(|one| one["workload"] == workload && one["mode"] == mode);
        one.unwrap_or_else(|| panic!("no {workload}, {mode}: {document}"))
    };
    let mixes = ["TPC-C", "TPC-C, read-intensive"];
    for mix in mixes {
        let [journal, wal, xftl] = ["rollback journal", "WAL", "X-FTL"].map(|mode| one(mix, mode));
        // A database of more than 100 MiB, and a log that SQLite has copied a whole number of times.
        assert!(count(wal, "database_pages") > 6_000.0, "{wal}");
        assert_eq!(wal["checkpoints"]["at_end"], 0, "{wal}");
        assert!(wal["checkpoints"]["automatic"].as_u64() >= Some(1), "{wal}");
        for other in [journal, xftl] {
            assert_eq!(other["transactions"], wal["transactions"], "{other}");
        }
        // A commit for each transaction that writes, and several flushes of the journal.
        assert_eq!(count(xftl, "flushes"), 0.0, "{xftl}");
        let commits = count(xftl, "commits");
        assert!(
            commits > 0.0 && commits <= count(xftl, "transactions"),
            "{xftl}"
        );
        assert!(count(journal, "flushes") > 3.0 * commits, "{journal}");
        assert!(count(wal, "flushes") >= commits, "{wal}");
    }
    // The slides state nothing of it.
    for row in figures(&document)
        .iter()
        .flat_map(|one| one["rows"].as_array().expect("rows"))
    {
        assert_eq!(row["verdict"], "not-compared", "{row}");
    }
    let writes = |mix| {
        let one = one(mix, "X-FTL");
        count(one, "host_writes") / count(one, "transactions")
    };
    assert!(writes(mixes[1]) * 4.0 < writes(mixes[0]), "{document}");
}
