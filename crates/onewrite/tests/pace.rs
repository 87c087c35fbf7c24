//! `onewrite_sync=auto` on modeled devices: one with slow write-through writes, one with slow
//! flushes, and some where there is nothing to choose.
//!
//! The model is a clock. Calls on the log advance it by the times of
//! `crates/flash/models/emmc.toml`. The devices of `crates/flash` themselves lie below a loop
//! device, which has no FUA.

use onewrite::log::header::{HEADER_BYTES, LogHeader};
use onewrite::storage::observer::{Call, Observer, Route, observe};
use onewrite::storage::pace::{KnownPace, Pace};
use onewrite::storage::{Capabilities, DirectAlign, Durability, WriteCache};
use rusqlite::Connection;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

/// A modeled device. Times are in microseconds.
#[derive(Clone, Copy)]
struct Device {
    name: &'static str,
    write: u64,
    flush: u64,
    fua: u64,
    cache: WriteCache,
    has_fua: bool,
}

const EMMC: Device = Device {
    name: "emmc",
    write: 77,
    flush: 1_000,
    fua: 990,
    cache: WriteCache::WriteBack,
    has_fua: true,
};

/// Many devices are like this.
const EMMC_WITH_SLOW_FUA: Device = Device {
    name: "emmc-slow-fua",
    fua: 2_600,
    ..EMMC
};

/// FUA bypasses the cache that a flush must empty.
const NVME_WITH_SLOW_FLUSH: Device = Device {
    name: "nvme-slow-flush",
    write: 17,
    flush: 4_000,
    fua: 1_600,
    ..EMMC
};

const CARD: Device = Device {
    name: "slow-card",
    flush: 30_000,
    fua: 28_000,
    ..EMMC
};

const NO_FUA: Device = Device {
    name: "no-fua",
    has_fua: false,
    ..EMMC
};

const NO_CACHE: Device = Device {
    name: "no-cache",
    has_fua: false,
    cache: WriteCache::WriteThrough,
    ..EMMC
};

const DEVICES: [Device; 6] = [
    EMMC,
    EMMC_WITH_SLOW_FUA,
    NVME_WITH_SLOW_FLUSH,
    CARD,
    NO_FUA,
    NO_CACHE,
];

static CLOCK_US: AtomicU64 = AtomicU64::new(0);
static FLUSHES: AtomicU64 = AtomicU64::new(0);

struct Model;

fn device_of(path: &Path) -> Option<Device> {
    let directory = path.parent()?.file_name()?.to_str()?;
    DEVICES.into_iter().find(|device| device.name == directory)
}

impl Observer for Model {
    fn before(&self, path: &Path, call: &Call<'_>) -> io::Result<()> {
        let Some(device) = device_of(path) else {
            return Ok(());
        };
        let takes = match call {
            Call::Write {
                route: Route::Direct,
                durability: Durability::WriteThrough,
                ..
            } => device.fua,
            Call::Write {
                route: Route::Direct,
                ..
            } => device.write,
            Call::Flush => {
                FLUSHES.fetch_add(1, Ordering::SeqCst);
                device.flush
            }
            _ => 0,
        };
        CLOCK_US.fetch_add(takes, Ordering::SeqCst);
        Ok(())
    }

    fn capabilities(&self, path: &Path, found: &mut Capabilities) {
        let Some(device) = device_of(path) else {
            return;
        };
        found.direct = Ok(DirectAlign {
            memory: 512,
            offset: 512,
        });
        found.device = device.name.to_owned();
        found.is_only_device = true;
        // The file system here may refuse it: then the blocks are filled with zeros.
        found.write_zeroes = Ok(());
        found.write_cache = device.cache;
        found.fua = match device.has_fua {
            true => Ok(()),
            false => Err("the test says so".to_owned()),
        };
    }

    fn clock(&self) -> Option<Duration> {
        Some(Duration::from_micros(CLOCK_US.load(Ordering::SeqCst)))
    }
}

/// All tests share one clock.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        assert!(observe(Box::new(Model)));
        onewrite::register().expect("the VFS onewrite");
    });
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A database on a device.
struct Fixture {
    _directory: tempfile::TempDir,
    database: PathBuf,
}

impl Fixture {
    fn on(device: Device) -> Fixture {
        let directory = tempfile::tempdir().expect("a directory");
        let at = directory.path().join(device.name);
        std::fs::create_dir(&at).expect("a directory");
        Fixture {
            database: at.join("db"),
            _directory: directory,
        }
    }

    fn open(&self, mode: &str) -> Connection {
        let db =
            Connection::open_with_flags_and_vfs(&self.database, Default::default(), c"onewrite");
        let db = db.expect("a connection");
        sql(&db, &format!("PRAGMA journal_mode={mode}"));
        sql(&db, "CREATE TABLE IF NOT EXISTS t(x)");
        db
    }

    fn log(&self) -> PathBuf {
        let mut log = self.database.clone().into_os_string();
        log.push("-onewrite");
        log.into()
    }

    fn header(&self) -> LogHeader {
        let bytes = std::fs::read(self.log()).expect("the log");
        LogHeader::parse(&bytes).expect("its header")
    }
}

fn sql(db: &Connection, statement: &str) -> String {
    let mut statement = db.prepare(statement).expect("a statement");
    let mut rows = statement.query([]).expect("a query");
    let first = rows.next().expect("a row");
    first.map_or_else(String::new, |row| row.get::<_, String>(0).expect("text"))
}

fn status(db: &Connection) -> serde_json::Value {
    serde_json::from_str(&sql(db, "PRAGMA onewrite_status")).expect("JSON")
}

/// The numbers of flushes and of write-through writes in three commits.
fn of_three_commits(db: &Connection) -> (u64, u64) {
    let count = |status: &serde_json::Value, what: &str| status[what].as_u64().expect("a number");
    sql(db, "INSERT INTO t VALUES(0)");
    let before = status(db);
    for _ in 0..3 {
        sql(db, "INSERT INTO t VALUES(1)");
    }
    let after = status(db);
    let of = |what| count(&after, what) - count(&before, what);
    (of("flushes"), of("write_through"))
}

#[test]
fn auto_takes_the_way_that_is_faster_on_the_device() {
    let _alone = alone();
    for mode in ["waldio", "onewrite"] {
        for (device, policy, each, calls) in [
            (EMMC, "persistent", [990, 1_077], (0, 3)),
            (EMMC_WITH_SLOW_FUA, "full", [2_600, 1_077], (3, 0)),
            (NVME_WITH_SLOW_FLUSH, "persistent", [1_600, 4_017], (0, 3)),
        ] {
            let fixture = Fixture::on(device);
            let db = fixture.open(mode);
            let found = status(&db);
            assert_eq!(found["sync"], "auto");
            assert_eq!(found["sync_in_use"], policy, "{} {mode}", device.name);
            assert_eq!(found["write_through_us"], each[0], "{found:#}");
            assert_eq!(found["write_and_flush_us"], each[1]);
            let why = found["sync_why"].as_str().expect("a reason");
            assert!(why.contains(&each[0].to_string()), "{why}");
            assert_eq!(of_three_commits(&db), calls, "{} {mode}", device.name);
            // An explicit setting is followed.
            sql(&db, "PRAGMA onewrite_sync=persistent");
            assert_eq!(of_three_commits(&db).1, 3);
        }
    }
}

/// Without FUA both ways are a write and a flush. Without a cache neither needs a flush. So nothing
/// is timed.
#[test]
fn where_there_is_nothing_to_choose_nothing_is_timed() {
    let _alone = alone();
    for (device, why) in [(NO_FUA, "no FUA"), (NO_CACHE, "no volatile cache")] {
        let fixture = Fixture::on(device);
        let before = FLUSHES.load(Ordering::SeqCst);
        let db = fixture.open("waldio");
        let found = status(&db);
        assert_eq!(found["sync_in_use"], "persistent");
        assert!(found["write_through_us"].is_null(), "{found:#}");
        let said = found["sync_why"].as_str().expect("a reason");
        assert!(said.contains(why), "{said}");
        // Flushes of the header and first chunk, of the guard, and of the table.
        let flushes = FLUSHES.load(Ordering::SeqCst) - before;
        assert!(flushes <= 5, "{flushes}");
        assert_eq!(fixture.header().pace, None);
    }
}

/// The next log on the device, in this process or another, is not timed again.
#[test]
fn the_answer_is_remembered_in_the_log() {
    let _alone = alone();
    let fixture = Fixture::on(EMMC);
    drop(fixture.open("waldio"));
    let known = fixture.header().pace.expect("a pace in the header");
    let emmc = Pace {
        write_through_us: 990,
        write_and_flush_us: 1_077,
    };
    assert_eq!(known.pace, emmc);
    let before = FLUSHES.load(Ordering::SeqCst);
    let db = fixture.open("waldio");
    let flushes = FLUSHES.load(Ordering::SeqCst) - before;
    assert!(flushes <= 4, "{flushes}");
    assert_eq!(fixture.header().pace, Some(known));
    drop(db);
    // The pace in the log's header counts only if it is of this device.
    let slow = Pace {
        write_through_us: 5_000,
        ..emmc
    };
    for (device, policy) in [(known.device, "full"), (known.device ^ 1, "persistent")] {
        let mut bytes = std::fs::read(fixture.log()).expect("the log");
        let mut header = fixture.header();
        header.pace = Some(KnownPace { device, pace: slow });
        bytes[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
        std::fs::write(fixture.log(), &bytes).expect("the log");
        let db = fixture.open("waldio");
        assert_eq!(status(&db)["sync_in_use"], policy);
    }
}

/// A slow card must not make the setup long: no pair of timings begins after 50 ms.
#[test]
fn the_timing_has_a_bound() {
    let _alone = alone();
    let fixture = Fixture::on(CARD);
    let (flushes, time) = (
        FLUSHES.load(Ordering::SeqCst),
        CLOCK_US.load(Ordering::SeqCst),
    );
    let db = fixture.open("waldio");
    let flushes = FLUSHES.load(Ordering::SeqCst) - flushes;
    let time = CLOCK_US.load(Ordering::SeqCst) - time;
    assert_eq!(status(&db)["write_through_us"], CARD.fua);
    let one_pair = CARD.fua + CARD.write + CARD.flush;
    assert!(
        time < 50_000 + one_pair + 5 * (CARD.flush + CARD.write),
        "{time}"
    );
    assert!(flushes <= 6, "{flushes}");
}
