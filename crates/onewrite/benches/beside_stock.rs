//! What a mode of ours costs where it should cost nothing: random point reads with a full log, and
//! a bulk load in one transaction, each beside stock WAL; and the memory that it takes.
//!
//! `cargo bench -p onewrite` prints the table. The modes take turns in short rounds, because the
//! machine's speed changes; ratios are of the medians. `ONEWRITE_BENCH_DIR` names a directory for
//! the databases (default: the temporary directory), `ONEWRITE_BENCH_ROUNDS` the rounds.

#![allow(missing_docs, reason = "a benchmark has no public items")]
#![allow(unsafe_code, reason = "a global allocator is unsafe to implement")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::env;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use rusqlite::{Connection, OpenFlags};

const ROWS: u64 = 100_000;
const LOG_FRAMES: i64 = 1000;
const READS: u64 = 20_000;
const BULK_ROWS: u64 = 200_000;
const MODES: [&str; 3] = ["wal", "direct", "waldio"];

/// Counts what Rust code allocates: SQLite itself uses C's malloc, so this is ours.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is left to the system's allocator; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(now, Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn open(path: &Path, mode: &str) -> Result<Connection> {
    let vfs = if mode == "wal" {
        "unix"
    } else {
        onewrite::VFS_NAME
    };
    let connection = Connection::open_with_flags_and_vfs(path, OpenFlags::default(), vfs)?;
    let found: String =
        connection.query_row(&format!("PRAGMA journal_mode={mode}"), [], |row| row.get(0))?;
    if found != mode {
        return Err(format!("journal mode {found} instead of {mode}").into());
    }
    Ok(connection)
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// A database of 100,000 rows whose log holds about 1,000 frames of scattered updates.
fn prepare(path: &Path, mode: &str) -> Result<Connection> {
    let connection = open(path, mode)?;
    connection.execute_batch(
        "PRAGMA wal_autocheckpoint=0; CREATE TABLE t(id INTEGER PRIMARY KEY, value TEXT)",
    )?;
    connection.execute_batch("BEGIN")?;
    let mut insert = connection.prepare("INSERT INTO t(value) VALUES (?1)")?;
    for row in 0..ROWS {
        insert.execute([format!("{row:0100}")])?;
    }
    drop(insert);
    connection.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")?;
    let mut random = Random(7);
    let mut update = connection.prepare("UPDATE t SET value = ?1 WHERE id = ?2")?;
    for _ in 0..LOG_FRAMES {
        update.execute((
            format!("{:0100}", random.below(ROWS)),
            1 + random.below(ROWS) as i64,
        ))?;
    }
    drop(update);
    Ok(connection)
}

/// Seconds for 20,000 random point reads, through a new connection with a small cache, so that
/// pages come from the log and the database rather than from SQLite's cache.
fn point_reads(path: &Path, mode: &str, seed: u64) -> Result<f64> {
    let connection = open(path, mode)?;
    connection.execute_batch("PRAGMA cache_size=50; PRAGMA wal_autocheckpoint=0")?;
    let mut select = connection.prepare("SELECT value FROM t WHERE id = ?1")?;
    let mut random = Random(seed);
    let start = Instant::now();
    let mut bytes = 0;
    for _ in 0..READS {
        bytes += select.query_row([1 + random.below(ROWS) as i64], |row| {
            row.get_ref(0)?.as_str().map(str::len).map_err(Into::into)
        })?;
    }
    let elapsed = start.elapsed().as_secs_f64();
    if bytes as u64 != READS * 100 {
        return Err("a row has another length than was stored".into());
    }
    Ok(elapsed)
}

/// Seconds for 200,000 rows in one transaction, checkpoint not included, and the peak of what our
/// code allocated meanwhile.
fn bulk_load(dir: &Path, mode: &str) -> Result<(f64, usize)> {
    let path = dir.join(format!("bulk-{mode}.db"));
    remove(&path);
    let connection = open(&path, mode)?;
    connection.execute_batch(
        "PRAGMA wal_autocheckpoint=0; CREATE TABLE t(id INTEGER PRIMARY KEY, value TEXT)",
    )?;
    let before = NOW.load(Relaxed);
    PEAK.store(before, Relaxed);
    let start = Instant::now();
    connection.execute_batch("BEGIN")?;
    let mut insert = connection.prepare("INSERT INTO t(value) VALUES (?1)")?;
    let value = "v".repeat(100);
    for _ in 0..BULK_ROWS {
        insert.execute([&value])?;
    }
    drop(insert);
    connection.execute_batch("COMMIT")?;
    let elapsed = start.elapsed().as_secs_f64();
    let peak = PEAK.load(Relaxed) - before;
    drop(connection);
    remove(&path);
    Ok((elapsed, peak))
}

fn remove(path: &Path) {
    for suffix in ["", "-wal", "-shm", "-journal", "-onewrite"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        // What is not there need not be removed.
        let _ = std::fs::remove_file(PathBuf::from(name));
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<()> {
    onewrite::register()?;
    let place = env::var_os("ONEWRITE_BENCH_DIR").map_or_else(env::temp_dir, PathBuf::from);
    let rounds: usize = env::var("ONEWRITE_BENCH_ROUNDS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(15);
    let dir = tempfile::tempdir_in(place)?;
    let mut read_times: [Vec<f64>; 3] = Default::default();
    let mut bulk_times: [Vec<f64>; 3] = Default::default();
    let mut peaks = [0; 3];
    let paths = MODES.map(|mode| dir.path().join(format!("read-{mode}.db")));
    let before = NOW.load(Relaxed);
    let mut held = Vec::new();
    let mut frame_memory = [0; 3];
    for (i, mode) in MODES.iter().enumerate() {
        let start = NOW.load(Relaxed);
        held.push(prepare(&paths[i], mode)?);
        frame_memory[i] = NOW.load(Relaxed) - start;
    }
    for round in 0..rounds {
        for (i, mode) in MODES.iter().enumerate() {
            read_times[i].push(point_reads(&paths[i], mode, 11 + round as u64)?);
        }
    }
    drop(held);
    let left = NOW.load(Relaxed).saturating_sub(before);
    for _ in 0..rounds.min(7) {
        for (i, mode) in MODES.iter().enumerate() {
            let (seconds, peak) = bulk_load(dir.path(), mode)?;
            bulk_times[i].push(seconds);
            peaks[i] = peaks[i].max(peak);
        }
    }
    let reads = read_times.map(|mut times| median(&mut times));
    let bulks = bulk_times.map(|mut times| median(&mut times));
    println!("mode     reads us  of wal   bulk s  of wal   log memory KiB   bulk memory KiB");
    for (i, mode) in MODES.iter().enumerate() {
        println!(
            "{mode:<8} {:>8.2}  {:>5.3}  {:>7.3}  {:>5.3}   {:>14}   {:>15}",
            reads[i] / READS as f64 * 1e6,
            reads[i] / reads[0],
            bulks[i],
            bulks[i] / bulks[0],
            frame_memory[i] / 1024,
            peaks[i] / 1024,
        );
    }
    println!("left after all connections closed: {} KiB", left / 1024);
    Ok(())
}
