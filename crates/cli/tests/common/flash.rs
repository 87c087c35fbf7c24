//! The counts of a run of `compare --device ftl`.

use serde_json::Value;

/// Three FTLs, by what a flush writes: none of the map, its changed pieces, or all of it.
pub const FTLS: [&str; 3] = [
    "ftl:time=none",
    "ftl:flush=changed,copies=among-host,time=none",
    "ftl:board,time=none",
];

/// A whole number of a run.
pub fn number(run: &Value, pointer: &str) -> u64 {
    let found = run.pointer(pointer).and_then(Value::as_u64);
    found.unwrap_or_else(|| panic!("no {pointer} in {run}"))
}

/// Checks that the NAND's programs of each run are the host's pages, the map's and the moved ones, and
/// that the host's pages are the bytes that the kernel wrote.
pub fn counts_add_up(document: &Value, flash: &str, modes: &[&str]) {
    assert_eq!(document["flash_model"]["name"], flash);
    assert_eq!(document["device_model"], Value::Null);
    let runs = document["runs"].as_array().expect("runs");
    let mut ran: Vec<&str> = runs.iter().filter_map(|run| run["mode"].as_str()).collect();
    ran.sort_unstable();
    let mut wanted = modes.to_vec();
    wanted.sort_unstable();
    assert_eq!(ran, wanted, "{document}");
    for run in runs {
        let pages = |name: &str| number(run, &format!("/flash/statistics/{name}"));
        let copies = pages("gc_copies") + pages("wear_copies") + pages("failed_copies");
        let copies = copies + pages("scrub_copies") + pages("padding_writes");
        let map = pages("map_writes") + pages("table_writes") + pages("root_writes");
        let host = pages("host_writes");
        let programs = number(run, "/flash/nand/programs");
        assert_eq!(programs, host + map + copies, "{flash}: {run}");
        assert_eq!(number(run, "/flash/nand/failures"), 0);
        // A commit is durable in a page of its own. The kernel writes blocks of 4 KiB, of which
        // each is in one page, and two at most share one. The last few are of opening the
        // database.
        let kernel = ["/device", "/after", "/checkpoint"]
            .map(|of| number(run, &format!("{of}/write_bytes")));
        let blocks = kernel.iter().sum::<u64>() / 4096;
        let count = number(run, "/count");
        assert!(host >= count.max(blocks / 2), "{flash}: {run}");
        assert!(host <= blocks + 16, "{flash}: {run}");
        let flushes = pages("flushes");
        assert!(flushes >= number(run, "/device/flushes"), "{flash}: {run}");
        // Without the option a flush writes none of the map. That is written from time to time.
        let is_flushed = map > 0 && (flash != FTLS[0] || map >= flushes);
        assert_eq!(is_flushed, flash != FTLS[0], "{flash}: {run}");
        let times = run["flash"]["write_amplification"].as_f64();
        let times = times.expect("a figure");
        assert!(
            (times - programs as f64 / host as f64).abs() < 1e-9,
            "{run}"
        );
        assert!(run["flash"]["life_years"].as_f64() > Some(0.0), "{run}");
    }
}
