//! Crash states, byte by byte. For every layout and at every moment of small histories, the result
//! of a power cut is opened. It must hold a whole number of transactions, including all
//! acknowledged ones.
//!
//! `ONEWRITE_SEED` replays a run; `ONEWRITE_CRASH_ROUNDS` (1 by default) makes it longer;
//! `ONEWRITE_CRASH_KEEP` keeps an image that failed; `ONEWRITE_CRASH_VERBOSE` prints each step.

mod budget;
mod chance;
mod disk;
mod explore;
mod history;
mod levels;
#[path = "../common/random.rs"]
mod random;
mod record;
#[path = "../common/shim.rs"]
mod shim;
mod vfs;

use disk::Disk;
use explore::{Counts, Explorer};
use history::{Config, History, Maker, Player, Step, checkpoint};
use random::{Random, seed};
use record::{Device, Event, File, Reach};
use std::path::{Path, PathBuf};
use std::time::Instant;

const ALL: [&str; 14] = [
    "single inserts",
    "next to one at NORMAL",
    "in turns",
    "several pages",
    "spills and savepoints",
    "more than is gathered",
    "passive and full checkpoints",
    "restarts",
    "truncations",
    "through wal",
    "through delete",
    "closes",
    "beyond the first chunk",
    "a new database",
];

/// The first commit of a connection, of about so many pages, at the start of a log that another has
/// used. They are not in `ALL`, because they are for large pages, of which few are gathered.
const FIRST_COMMITS: [&str; 6] = [
    "a first commit of 1 page",
    "a first commit of 2 pages",
    "a first commit of 3 pages",
    "a first commit of 4 pages",
    "a first commit of 5 pages",
    "a first commit of 6 pages",
];

/// Connections that take turns, and a stock one that writes and checkpoints.
const NEXT_TO_STOCK: &str = "next to a stock connection";

fn make(name: &'static str, page: u32, random: &mut Random) -> History {
    let mut m = Maker::new(page, random);
    let mut steps = vec![Step::Mode(None)];
    match name {
        "single inserts" => steps.extend(m.some(5)),
        "next to one at NORMAL" => {
            for _ in 0..3 {
                steps.extend([m.one(), m.one(), m.at_normal(), m.one()]);
            }
        }
        levels::MIXED => {
            for _ in 0..2 {
                steps.extend([m.turn(), m.one(), m.at_normal(), m.turn(), m.at_normal()]);
                steps.extend([m.at_normal(), m.one(), m.at_normal(), checkpoint("PASSIVE")]);
                steps.extend([m.turn(), m.at_normal(), m.one()]);
            }
        }
        "a group behind one at NORMAL" => {
            for _ in 0..2 {
                steps.extend([m.one(), m.at_normal(), m.grouped(), m.one()]);
            }
        }
        "in turns" => steps.extend([
            m.turn(),
            m.one(),
            m.turn(),
            m.pages(3),
            m.turn(),
            checkpoint("PASSIVE"),
            m.turn(),
            m.one(),
            checkpoint("RESTART"),
            m.turn(),
            m.one(),
            m.turn(),
        ]),
        NEXT_TO_STOCK => steps.extend([
            m.turn(),
            m.one(),
            m.at_stock(),
            m.turn(),
            m.pages(3),
            m.at_stock(),
            m.one(),
            Step::StockSql("PRAGMA wal_checkpoint(PASSIVE)".to_owned()),
            m.turn(),
            m.at_stock(),
            m.one(),
            Step::StockSql("PRAGMA wal_checkpoint(RESTART)".to_owned()),
            m.turn(),
            m.one(),
            checkpoint("RESTART"),
            m.at_stock(),
            m.turn(),
            Step::StockSql("PRAGMA wal_checkpoint(TRUNCATE)".to_owned()),
            m.one(),
            m.turn(),
        ]),
        "several pages" => {
            steps.extend([m.one(), m.pages(4), m.pages(9), m.one(), m.pages(2)]);
        }
        "spills and savepoints" => steps.extend([
            m.one(),
            m.spill_and_savepoint(),
            m.one(),
            m.rolled_back(40),
            m.one(),
            m.spill_and_savepoint(),
            m.shrink(),
        ]),
        "more than is gathered" => {
            let pages = (1 << 20) / page + 20;
            steps.extend([
                m.one(),
                m.pages(pages),
                m.one(),
                m.rolled_back(pages),
                m.one(),
            ]);
        }
        "passive and full checkpoints" => steps.extend([
            m.one(),
            checkpoint("PASSIVE"),
            m.one(),
            m.pages(3),
            checkpoint("FULL"),
            m.one(),
            m.one(),
        ]),
        "restarts" => steps.extend([
            m.pages(4),
            m.one(),
            checkpoint("RESTART"),
            m.one(),
            m.one(),
            checkpoint("RESTART"),
            m.pages(2),
            m.one(),
        ]),
        "truncations" => steps.extend([
            m.pages(3),
            checkpoint("TRUNCATE"),
            m.one(),
            Step::Sql(vec!["PRAGMA journal_size_limit=0".to_owned()]),
            checkpoint("RESTART"),
            m.one(),
            m.pages(3),
            checkpoint("TRUNCATE"),
            m.one(),
        ]),
        "through wal" => steps.extend([
            m.one(),
            Step::Mode(Some("wal")),
            m.one(),
            m.one(),
            Step::Mode(None),
            m.one(),
            Step::Reopen,
            m.one(),
        ]),
        "through delete" => steps.extend([
            m.one(),
            Step::Mode(Some("delete")),
            m.one(),
            Step::Mode(None),
            m.one(),
            Step::Mode(Some("delete")),
            m.one(),
            Step::Mode(Some("wal")),
            m.one(),
            Step::Mode(None),
            m.one(),
        ]),
        "closes" => steps.extend([
            m.one(),
            m.one(),
            Step::Reopen,
            m.one(),
            Step::Reopen,
            m.pages(3),
            Step::Reopen,
        ]),
        "beyond the first chunk" => {
            let frames = if page > 4096 { 300 } else { 800 };
            steps.extend([
                m.one(),
                m.pages(frames),
                m.one(),
                m.shrink(),
                m.pages(frames),
                checkpoint("TRUNCATE"),
                m.one(),
            ]);
        }
        "a new database" => {
            let mut first = history::schema();
            let Step::Transaction(more) = m.pages(2) else {
                unreachable!("a transaction")
            };
            first.extend(more);
            steps.extend([Step::Transaction(first), m.one(), m.one(), Step::Reopen]);
        }
        _ => {
            let pages = (1..).zip(FIRST_COMMITS).find(|(_, first)| *first == name);
            let (pages, _) = pages.unwrap_or_else(|| unreachable!("no history {name}"));
            steps.extend([m.pages(8), checkpoint("RESTART"), m.turn_of(pages), m.one()]);
        }
    }
    let spare = vec![m.one(), m.one()];
    History { name, steps, spare }
}

/// A directory in memory if there is one: the tests check what is written, not where.
fn directory(kind: &str) -> tempfile::TempDir {
    let memory = PathBuf::from("/dev/shm");
    let place = if memory.is_dir() {
        memory
    } else {
        std::env::temp_dir()
    };
    tempfile::Builder::new()
        .prefix(&format!("onewrite-crash-{kind}-"))
        .tempdir_in(place)
        .expect("a temporary directory")
}

/// Plays a history in `directory` and records it.
fn record_history(directory: &Path, config: &Config, history: &History) -> (Disk, Vec<Event>) {
    record::device(directory, config.device);
    let fresh = history.name == "a new database";
    if !fresh {
        history::make_first(directory, config);
    }
    let disk = Disk::of(directory, config.device);
    record::start(directory);
    let mut player = Player::new(directory, config, 0);
    if let Err(e) = player.play(&history.steps) {
        let status = player
            .connection()
            .and_then(|connection| history::run(connection, "PRAGMA onewrite_status"));
        panic!("{} {config:?}: {e}: {e:?}: {status:?}", history.name);
    }
    player.close().expect("a close");
    (disk, record::stop(directory))
}

/// How much to check.
#[derive(Clone, Copy)]
struct Depth {
    cuts: u32,
    sparse: u64,
}

/// Records a history, changes the recording as `change` does, and checks every crash of it.
fn crash(
    config: &Config,
    name: &'static str,
    random: &mut Random,
    depth: Depth,
    change: impl Fn(Vec<Event>) -> Vec<Event>,
) -> (Counts, Result<(), String>) {
    record::install();
    let history = make(name, config.page, random);
    let recorded = directory("history");
    let (disk, events) = record_history(recorded.path(), config, &history);
    let images = directory("image");
    record::device(images.path(), config.device);
    let digests = history::digests(&history, history.name == "a new database");
    let mut explorer = Explorer::new(
        *config,
        &history,
        digests,
        images.path(),
        Random::new(random.next()),
    );
    explorer.cuts = depth.cuts;
    explorer.sparse = depth.sparse;
    let found = explorer.explore(disk, &change(events));
    explorer.counts.histories = 1;
    let counts = explorer.counts;
    let found = found.map_err(|e| format!("{name}, {config:?}: {e}"));
    if found.is_err() && std::env::var_os("ONEWRITE_CRASH_KEEP").is_some() {
        println!("the image is kept in {}", images.keep().display());
    }
    (counts, found)
}

fn rounds() -> u64 {
    let given = std::env::var("ONEWRITE_CRASH_ROUNDS").ok();
    given.map_or(1, |text| {
        text.parse().expect("ONEWRITE_CRASH_ROUNDS is a number")
    })
}

/// Histories with too many points to check each one.
fn depth_of(name: &str, page: u32) -> Depth {
    let sparse = match name {
        "more than is gathered" | "beyond the first chunk" => 60,
        "spills and savepoints" => 12,
        _ if page == 65_536 => 3,
        _ => 1,
    };
    Depth { cuts: 2, sparse }
}

/// Every history, each with some page size on some kind of device.
fn everything(test: &str, base: Config) {
    let mut random = Random::new(seed(test));
    let (begun, mut total) = (Instant::now(), Counts::default());
    for _ in 0..rounds() {
        for name in ALL {
            let page = match name {
                // Its pages are whole blocks.
                _ if base.layout == "gathered" => {
                    [4096, 4096, 4096, 65_536][random.below(4) as usize]
                }
                "beyond the first chunk" => [512, 1024][random.below(2) as usize],
                "more than is gathered" => [4096, 65_536][random.below(2) as usize],
                _ => [512, 1024, 4096, 4096, 4096, 65_536][random.below(6) as usize],
            };
            let config = Config {
                page,
                device: Device::ALL[random.below(3) as usize],
                reserved_in_use: base.embeds_headers() && random.one_in(3),
                pads_commits: base.pads_commits || random.one_in(4),
                ..base
            };
            let depth = depth_of(name, page);
            let (counts, found) = crash(&config, name, &mut random, depth, |events| events);
            if std::env::var_os("ONEWRITE_CRASH_VERBOSE").is_some() {
                println!("{:?} {test} {name} {config:?}: {counts:?}", begun.elapsed());
            }
            total.add(&counts);
            if let Err(wrong) = found {
                panic!("{wrong}");
            }
        }
    }
    println!("{test}: {total:?} in {:?}", begun.elapsed());
}

fn everything_in_layout(layout: &'static str) {
    let config = Config {
        layout,
        ..Config::USUAL
    };
    everything(layout, config);
}

fn everything_in_mode(mode: &'static str) {
    let config = Config {
        mode,
        ..Config::USUAL
    };
    everything(mode, config);
}

/// If the device is not known, a write-through write is assumed to make only its own blocks
/// durable. It does not cover commits at NORMAL before it, nor the headers of `gathered`, which are
/// in other blocks.
#[test]
fn a_device_that_is_not_known_and_has_fua() {
    let mut random = Random::new(seed("a device that is not known"));
    let mut total = Counts::default();
    let usual = Config {
        device: Device::UnknownFua,
        ..Config::USUAL
    };
    let in_mode = |mode| Config { mode, ..usual };
    let gathered = Config {
        layout: "gathered",
        ..usual
    };
    for config in [
        usual,
        gathered,
        in_mode("onewrite"),
        in_mode("swal"),
        in_mode("direct"),
    ] {
        for name in [
            "next to one at NORMAL",
            "several pages",
            "a group behind one at NORMAL",
        ] {
            if name == "a group behind one at NORMAL" && config.mode != "waldio" {
                continue; // No other mode has group synch.
            }
            let depth = Depth { cuts: 4, sparse: 1 };
            let (counts, found) = crash(&config, name, &mut random, depth, |events| events);
            total.add(&counts);
            if let Err(wrong) = found {
                panic!("{wrong}");
            }
        }
    }
    println!("{total:?}");
}

#[test]
fn embedded() {
    everything("embedded", Config::USUAL);
}

#[test]
fn sector() {
    everything_in_layout("sector");
}

#[test]
fn page4k() {
    everything_in_layout("page4k");
}

#[test]
fn page8k() {
    everything_in_layout("page8k");
}

#[test]
fn gathered() {
    everything_in_layout("gathered");
}

#[test]
fn direct() {
    everything_in_mode("direct");
}

#[test]
fn packed() {
    everything_in_mode("onewrite");
}

#[test]
fn compressed() {
    everything_in_mode("swal");
}

#[test]
fn packed_with_zstd() {
    let base = Config {
        mode: "onewrite",
        compressing: Some(("zstd", "on")),
        ..Config::USUAL
    };
    everything("onewrite, zstd", base);
}

#[test]
fn compressed_without_differences() {
    let base = Config {
        mode: "swal",
        compressing: Some(("zstd", "off")),
        ..Config::USUAL
    };
    everything("swal, zstd, each page by itself", base);
}

#[test]
fn stored_pages() {
    for mode in ["onewrite", "swal"] {
        let base = Config {
            mode,
            compressing: Some(("none", "on")),
            ..Config::USUAL
        };
        everything("pages as they are", base);
    }
}

#[test]
fn group_synch() {
    let group = "3,2";
    everything(
        "group synch",
        Config {
            group,
            ..Config::USUAL
        },
    );
}

/// Commits of connections that take turns are published before they are durable.
#[test]
fn group_commit() {
    for mode in ["onewrite", "waldio", "swal", "direct"] {
        let config = Config {
            mode,
            group_commit: "on",
            ..Config::USUAL
        };
        everything(&format!("group commit in {mode}"), config);
    }
}

/// In `direct` a stock connection may write behind a commit that is not durable, and checkpoint it.
#[test]
fn group_commit_next_to_stock() {
    let mut random = Random::new(seed(NEXT_TO_STOCK));
    let mut total = Counts::default();
    for device in Device::ALL {
        for page in [512, 1024, 4096, 65_536] {
            let config = Config {
                mode: "direct",
                page,
                device,
                ..Config::USUAL
            };
            let depth = depth_of(NEXT_TO_STOCK, page);
            let (counts, found) =
                crash(&config, NEXT_TO_STOCK, &mut random, depth, |events| events);
            total.add(&counts);
            if let Err(wrong) = found {
                panic!("{wrong}");
            }
        }
    }
    println!("{total:?}");
}

#[test]
fn write_then_flush() {
    let sync = "full";
    everything(
        "onewrite_sync=full",
        Config {
            sync,
            ..Config::USUAL
        },
    );
}

/// A commit that SQLite pads to the end of a sector has more than one commit frame. The last of
/// them may be written in part before `xSync`, in part after it.
#[test]
fn padded() {
    for mode in ["onewrite", "swal", "direct"] {
        let config = Config {
            mode,
            pads_commits: true,
            ..Config::USUAL
        };
        everything(&format!("padded {mode}"), config);
    }
}

/// SQLite has not synced on this connection before, so the engine writes the commit out when it is
/// complete. Then the frame that fills the sector comes, and `xSync` only after that.
#[test]
fn padded_first_commits() {
    let mut random = Random::new(seed("first commits, padded"));
    let mut total = Counts::default();
    for mode in ["direct", "waldio", "onewrite", "swal"] {
        for name in FIRST_COMMITS {
            let config = Config {
                mode,
                page: 65_536,
                device: Device::Fua,
                pads_commits: true,
                ..Config::USUAL
            };
            let depth = Depth { cuts: 1, sparse: 6 };
            let (counts, found) = crash(&config, name, &mut random, depth, |events| events);
            total.add(&counts);
            if let Err(wrong) = found {
                panic!("{wrong}");
            }
        }
    }
    println!("{total:?}");
}

#[test]
fn a_group_that_is_not_flushed_is_caught() {
    let mut random = Random::new(seed("a group without its flush"));
    let config = Config {
        mode: "onewrite",
        ..Config::USUAL
    };
    let depth = Depth { cuts: 2, sparse: 1 };
    for name in ["in turns", levels::MIXED] {
        // The direct writes of lone connections, and the recording of the mode's start, stay.
        let (_, found) = crash(&config, name, &mut random, depth, |events| {
            let mut begun = 0;
            let mut keep = |event: &Event| {
                begun += u32::from(matches!(event, Event::Begin(_)));
                begun < 4 || !matches!(event, Event::Flush(File::Log))
            };
            events.into_iter().filter(|event| keep(event)).collect()
        });
        let wrong = found.expect_err("a commit that no flush made durable");
        println!("caught: {wrong}");
    }
}

/// The test must catch a broken engine: here the recording says that the engine did less than it
/// did.
#[test]
fn an_engine_that_does_less_is_caught() {
    let mut random = Random::new(seed("an engine that does less"));
    let plain = |event: Event| match event {
        Event::Write {
            file,
            offset,
            bytes,
            reach: Reach::Through,
        } => Event::Write {
            file,
            offset,
            bytes,
            reach: Reach::Direct,
        },
        other => other,
    };
    let without = |unwanted: fn(&Event) -> bool| {
        move |events: Vec<Event>| {
            events
                .into_iter()
                .filter(|e| !unwanted(e))
                .collect::<Vec<_>>()
        }
    };
    type Change = Box<dyn Fn(Vec<Event>) -> Vec<Event>>;
    let changes: [(&str, &'static str, Change); 5] = [
        (
            "write-through is plain",
            "single inserts",
            Box::new(move |events| events.into_iter().map(plain).collect()),
        ),
        (
            "no flush of the log",
            "restarts",
            Box::new(without(|e| matches!(e, Event::Flush(File::Log)))),
        ),
        (
            "no write-back of the page cache",
            "next to one at NORMAL",
            Box::new(without(|e| matches!(e, Event::WriteBack(_)))),
        ),
        (
            "no flush of the database",
            "closes",
            Box::new(without(|e| matches!(e, Event::Flush(File::Database)))),
        ),
        (
            "no sync of the directory",
            "single inserts",
            Box::new(without(|e| matches!(e, Event::SyncDirectory))),
        ),
    ];
    for (what, name, change) in changes {
        let caught = (0..4).find_map(|_| {
            let config = Config {
                // With FUA, the write of another connection makes nothing durable.
                device: match what {
                    "no write-back of the page cache" => Device::NoFua,
                    _ => Device::Fua,
                },
                sync: "auto",
                ..Config::USUAL
            };
            let depth = Depth { cuts: 4, sparse: 1 };
            crash(&config, name, &mut random, depth, &change).1.err()
        });
        let caught = caught.unwrap_or_else(|| panic!("{what}: nobody noticed"));
        println!("{what}: {}", caught.lines().next().unwrap_or_default());
    }
}
