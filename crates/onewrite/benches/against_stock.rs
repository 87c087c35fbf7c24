//! The cost of each of our modes compared with stock WAL where nothing is committed. It measures
//! random point reads and full scans with a log of 1,000 frames, recovery of that log, and its
//! checkpoint. It also measures a bulk load in one transaction, and memory.
//!
//! `cargo bench -p onewrite` prints the tables. The modes take turns in short rounds, because the
//! machine's speed changes. Ratios are of the medians, of clock time and of processor time; other
//! work on the machine affects the latter less. `ONEWRITE_BENCH_DIR` names a directory for the
//! databases (default: the temporary directory), `ONEWRITE_BENCH_ROUNDS` the rounds.
//!
//! Reads are measured twice. The process that wrote the log remembers frames. Another process finds
//! every logged page only in the file, and must decompress it there. Those are a third of all
//! pages, and in a small database all of them. Recovery is measured with the files in the page
//! cache, as after a kill, and without, as after a crash.

#![allow(missing_docs, reason = "a benchmark has no public items")]
#![allow(unsafe_code, reason = "a global allocator is unsafe to implement")]

use onewrite_common::files::{COMPANIONS, companion};
use std::alloc::{GlobalAlloc, Layout, System};
use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use rusqlite::{Connection, OpenFlags};

const LOG_FRAMES: i64 = 1000;
const READS: u64 = 20_000;
const BULK_ROWS: u64 = 200_000;
const MODES: [&str; 5] = ["wal", "direct", "waldio", "swal", "onewrite"];

/// Counts the allocations of Rust code. SQLite itself uses C's malloc, so these are ours.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does all the work; counting does not touch its memory.
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

/// The time of a measured step, in seconds.
#[derive(Clone, Copy)]
struct Took {
    clock: f64,
    processor: f64,
}

fn processor_seconds() -> f64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the clock is written to this frame's variable. Linux has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

fn time<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Took)> {
    let (clock, processor) = (Instant::now(), processor_seconds());
    let done = work()?;
    let took = Took {
        processor: processor_seconds() - processor,
        clock: clock.elapsed().as_secs_f64(),
    };
    Ok((done, took))
}

fn open(path: &Path, mode: &str) -> Result<Connection> {
    let connection = open_as_it_is(path, mode)?;
    let found: String =
        connection.query_row(&format!("PRAGMA journal_mode={mode}"), [], |row| row.get(0))?;
    if found != mode {
        return Err(format!("journal mode {found} instead of {mode}").into());
    }
    Ok(connection)
}

fn open_as_it_is(path: &Path, mode: &str) -> Result<Connection> {
    let vfs = if mode == "wal" {
        "unix"
    } else {
        onewrite::VFS_NAME
    };
    let flags = OpenFlags::default();
    Ok(Connection::open_with_flags_and_vfs(path, flags, vfs)?)
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

/// The content of a database, with a log of about 1,000 frames.
#[derive(Clone, Copy)]
enum Data {
    /// 100,000 rows, and scattered updates: a third of the pages are in the log.
    Large,
    /// 20,000 rows, and updates all over: every page of the table is in the log.
    Small,
}

impl Data {
    fn word(self) -> &'static str {
        match self {
            Data::Large => "large",
            Data::Small => "small",
        }
    }

    fn rows(self) -> u64 {
        match self {
            Data::Large => 100_000,
            Data::Small => 20_000,
        }
    }

    /// The row of an update.
    fn updated(self, nth: u64, random: &mut Random) -> u64 {
        match self {
            Data::Large => random.below(self.rows()),
            Data::Small => nth * self.rows() / LOG_FRAMES as u64,
        }
    }
}

fn prepare(path: &Path, mode: &str, data: Data) -> Result<Connection> {
    let connection = open(path, mode)?;
    connection.execute_batch(
        "PRAGMA wal_autocheckpoint=0; CREATE TABLE t(id INTEGER PRIMARY KEY, value TEXT)",
    )?;
    connection.execute_batch("BEGIN")?;
    let mut insert = connection.prepare("INSERT INTO t(value) VALUES (?1)")?;
    for row in 0..data.rows() {
        insert.execute([format!("{row:0100}")])?;
    }
    drop(insert);
    connection.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")?;
    let mut random = Random(7);
    let mut update = connection.prepare("UPDATE t SET value = ?1 WHERE id = ?2")?;
    for nth in 0..LOG_FRAMES as u64 {
        let value = format!("{:0100}", random.below(data.rows()));
        update.execute((value, 1 + data.updated(nth, &mut random) as i64))?;
    }
    drop(update);
    Ok(connection)
}

/// Another process that prepares a database and keeps it open.
struct Holder(Child);

impl Holder {
    fn new(path: &Path, mode: &str, data: Data) -> Result<Holder> {
        let mut child = Command::new(env::current_exe()?)
            .args(["--hold", data.word(), mode])
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(said) = child.stdout.take() {
            BufReader::new(said).read_line(&mut line)?;
        }
        let holder = Holder(child);
        match line.trim() {
            "ready" => Ok(holder),
            _ => Err(format!("{mode}: the process that prepares it failed").into()),
        }
    }
}

impl Drop for Holder {
    /// Closing its input ends it.
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn hold(data: &str, mode: &str, path: &Path) -> Result<()> {
    let data = match data {
        "small" => Data::Small,
        _ => Data::Large,
    };
    let _held = prepare(path, mode, data)?;
    println!("ready");
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// A new connection with a small cache, so that pages come from the log and the database rather than
/// from SQLite's cache.
fn reader(path: &Path, mode: &str) -> Result<Connection> {
    let connection = open(path, mode)?;
    connection.execute_batch("PRAGMA cache_size=50; PRAGMA wal_autocheckpoint=0")?;
    // The wal-index is mapped, and positions are found.
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    Ok(connection)
}

/// 20,000 random point reads.
fn point_reads(path: &Path, mode: &str, data: Data, seed: u64) -> Result<Took> {
    let connection = reader(path, mode)?;
    let mut select = connection.prepare("SELECT value FROM t WHERE id = ?1")?;
    let mut random = Random(seed);
    let read = || {
        let mut bytes = 0;
        for _ in 0..READS {
            bytes += select.query_row([1 + random.below(data.rows()) as i64], |row| {
                row.get_ref(0)?.as_str().map(str::len).map_err(Into::into)
            })?;
        }
        Ok(bytes)
    };
    let (bytes, took) = time(read)?;
    if bytes as u64 != READS * 100 {
        return Err("a row has another length than was stored".into());
    }
    Ok(took)
}

/// Three full scans.
fn scans(path: &Path, mode: &str, data: Data) -> Result<Took> {
    let connection = reader(path, mode)?;
    let (bytes, took) = time(|| {
        let mut bytes = 0;
        for _ in 0..3 {
            let sum: i64 =
                connection.query_row("SELECT sum(length(value)) FROM t", [], |row| row.get(0))?;
            bytes += sum;
        }
        Ok(bytes)
    })?;
    if bytes as u64 != 3 * data.rows() * 100 {
        return Err("the rows have other lengths than were stored".into());
    }
    Ok(took)
}

/// The place of the files when recovery begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cache {
    Warm,
    Cold,
}

/// Writes a file to the device and drops it from the page cache. No connection has it open.
fn cool(path: &Path) -> Result<()> {
    use std::os::fd::AsRawFd;
    if path.exists() {
        let file = std::fs::File::open(path)?;
        file.sync_all()?;
        // SAFETY: the descriptor is open. The advice may be ignored.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    }
    Ok(())
}

/// Recovery of a copy of the database and its log as a crash would leave them, and its checkpoint.
fn recovery_and_checkpoint(path: &Path, mode: &str, cache: Cache) -> Result<(Took, Took)> {
    let copy = path.with_extension("copy");
    remove(&copy);
    for suffix in ["", "-wal", "-onewrite"] {
        let (from, to) = (companion(path, suffix), companion(&copy, suffix));
        // Another process copies: closing a descriptor here would drop SQLite's locks.
        if from.exists() && !Command::new("cp").args([&from, &to]).status()?.success() {
            return Err(format!("cannot copy {}", from.display()).into());
        }
        if cache == Cache::Cold {
            cool(&to)?;
        }
    }
    let (connection, recovery) = time(|| {
        let connection = open_as_it_is(&copy, mode)?;
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        Ok(connection)
    })?;
    let (frames, checkpoint) = time(|| {
        let frames: i64 =
            connection.query_row("PRAGMA wal_checkpoint(FULL)", [], |row| row.get(2))?;
        Ok(frames)
    })?;
    if frames < LOG_FRAMES {
        return Err(format!("{mode}: {frames} frames were recovered").into());
    }
    drop(connection);
    remove(&copy);
    Ok((recovery, checkpoint))
}

/// 200,000 rows in one transaction, checkpoint not included. Returns also the peak of our
/// allocations meanwhile.
fn bulk_load(dir: &Path, mode: &str) -> Result<(Took, usize)> {
    let path = dir.join(format!("bulk-{mode}.db"));
    remove(&path);
    let connection = open(&path, mode)?;
    connection.execute_batch(
        "PRAGMA wal_autocheckpoint=0; CREATE TABLE t(id INTEGER PRIMARY KEY, value TEXT)",
    )?;
    let before = NOW.load(Relaxed);
    PEAK.store(before, Relaxed);
    let ((), took) = time(|| {
        connection.execute_batch("BEGIN")?;
        let mut insert = connection.prepare("INSERT INTO t(value) VALUES (?1)")?;
        let value = "v".repeat(100);
        for _ in 0..BULK_ROWS {
            insert.execute([&value])?;
        }
        drop(insert);
        connection.execute_batch("COMMIT")?;
        Ok(())
    })?;
    let peak = PEAK.load(Relaxed) - before;
    drop(connection);
    remove(&path);
    Ok((took, peak))
}

fn remove(path: &Path) {
    for suffix in COMPANIONS.into_iter().chain([""]) {
        // The file may not exist.
        let _ = std::fs::remove_file(companion(path, suffix));
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    onewrite_common::median(&values).unwrap_or(f64::NAN)
}

/// One measurement, by mode.
struct Measure {
    name: &'static str,
    /// How many of them one call makes, and the unit of one.
    per: f64,
    unit: &'static str,
    took: [Vec<Took>; MODES.len()],
}

impl Measure {
    fn new(name: &'static str, per: f64, unit: &'static str) -> Measure {
        Measure {
            name,
            per,
            unit,
            took: Default::default(),
        }
    }

    fn print(&self) {
        println!(
            "{:<34} {:>10} {:>8} {:>10}",
            self.name, self.unit, "of wal", "processor"
        );
        let of = |took: &[Took], what: fn(&Took) -> f64| median(took.iter().map(what));
        for (mode, took) in MODES.iter().zip(&self.took) {
            let clock = of(took, |took| took.clock);
            let processor = of(took, |took| took.processor);
            println!(
                "  {mode:<32} {:>10.2} {:>8.3} {:>10.3}",
                clock * self.per,
                clock / of(&self.took[0], |took| took.clock),
                processor / of(&self.took[0], |took| took.processor),
            );
        }
    }
}

fn main() -> Result<()> {
    onewrite::register()?;
    let arguments: Vec<_> = env::args_os().collect();
    if let [_, word, data, mode, path] = &arguments[..]
        && word == "--hold"
    {
        return hold(
            &data.to_string_lossy(),
            &mode.to_string_lossy(),
            path.as_ref(),
        );
    }
    let place = env::var_os("ONEWRITE_BENCH_DIR").map_or_else(env::temp_dir, PathBuf::from);
    let rounds: usize = env::var("ONEWRITE_BENCH_ROUNDS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(15);
    let dir = tempfile::tempdir_in(place)?;
    // `cargo bench --bench against_stock -- recovery` runs a part; cargo itself adds `--bench`.
    let parts: Vec<_> = env::args().skip(1).filter(|a| a != "--bench").collect();
    let is_wanted = |part| parts.is_empty() || parts.iter().any(|wanted| wanted == part);
    if is_wanted("reads") {
        logged_by_others(dir.path(), rounds, Data::Large)?;
        logged_by_others(dir.path(), rounds, Data::Small)?;
    }
    if is_wanted("recovery") {
        recovered(dir.path(), rounds)?;
    }
    if is_wanted("own") {
        logged_here(dir.path(), rounds)?;
    }
    Ok(())
}

fn holders(dir: &Path, data: Data) -> Result<([PathBuf; MODES.len()], Vec<Holder>)> {
    let paths = MODES.map(|mode| dir.join(format!("{}-{mode}.db", data.word())));
    let all = paths.iter().zip(MODES);
    let holders: Result<_> = all
        .map(|(path, mode)| Holder::new(path, mode, data))
        .collect();
    Ok((paths, holders?))
}

/// Measurements that find the log in the file.
fn logged_by_others(dir: &Path, rounds: usize, data: Data) -> Result<()> {
    let names = match data {
        Data::Large => [
            "reads, a third from the log",
            "full scan, a third from the log",
        ],
        Data::Small => ["reads, all from the log", "full scan, all from the log"],
    };
    let mut reads = Measure::new(names[0], 1e6 / READS as f64, "us");
    let mut scanned = Measure::new(names[1], 1e3 / 3.0, "ms");
    let (paths, holders) = holders(dir, data)?;
    for round in 0..rounds {
        for (i, (path, mode)) in paths.iter().zip(MODES).enumerate() {
            reads.took[i].push(point_reads(path, mode, data, 11 + round as u64)?);
            scanned.took[i].push(scans(path, mode, data)?);
        }
    }
    drop(holders);
    paths.iter().for_each(|path| remove(path));
    reads.print();
    scanned.print();
    Ok(())
}

fn recovered(dir: &Path, rounds: usize) -> Result<()> {
    let (paths, holders) = holders(dir, Data::Large)?;
    for (cache, names) in [
        (Cache::Warm, ["recovery", "checkpoint after it"]),
        (Cache::Cold, ["recovery, not cached", "checkpoint after it"]),
    ] {
        let mut recoveries = Measure::new(names[0], 1e3, "ms");
        let mut checkpoints = Measure::new(names[1], 1e3, "ms");
        for _ in 0..rounds {
            for (i, (path, mode)) in paths.iter().zip(MODES).enumerate() {
                let (recovery, checkpoint) = recovery_and_checkpoint(path, mode, cache)?;
                recoveries.took[i].push(recovery);
                checkpoints.took[i].push(checkpoint);
            }
        }
        recoveries.print();
        checkpoints.print();
    }
    drop(holders);
    Ok(())
}

/// Measurements of a process that wrote the log itself, and its memory.
fn logged_here(dir: &Path, rounds: usize) -> Result<()> {
    let mut reads = Measure::new("reads, a third from own log", 1e6 / READS as f64, "us");
    let mut scanned = Measure::new("full scan, a third from own log", 1e3 / 3.0, "ms");
    let mut bulk = Measure::new("bulk load", 1.0, "s");
    let mut peaks = [0; MODES.len()];
    let mut frame_memory = [0; MODES.len()];
    let paths = MODES.map(|mode| dir.join(format!("own-{mode}.db")));
    let before = NOW.load(Relaxed);
    let mut held = Vec::new();
    for (i, (path, mode)) in paths.iter().zip(MODES).enumerate() {
        let start = NOW.load(Relaxed);
        held.push(prepare(path, mode, Data::Large)?);
        frame_memory[i] = NOW.load(Relaxed) - start;
    }
    for round in 0..rounds {
        for (i, (path, mode)) in paths.iter().zip(MODES).enumerate() {
            reads.took[i].push(point_reads(path, mode, Data::Large, 11 + round as u64)?);
            scanned.took[i].push(scans(path, mode, Data::Large)?);
        }
    }
    drop(held);
    let left = NOW.load(Relaxed).saturating_sub(before);
    for _ in 0..rounds.min(7) {
        for (i, mode) in MODES.iter().enumerate() {
            let (took, peak) = bulk_load(dir, mode)?;
            bulk.took[i].push(took);
            peaks[i] = peaks[i].max(peak);
        }
    }
    for measure in [reads, scanned, bulk] {
        measure.print();
    }
    println!("{:<34} {:>10} {:>10}", "memory, KiB", "log", "bulk load");
    for (i, mode) in MODES.iter().enumerate() {
        println!(
            "  {mode:<32} {:>10} {:>10}",
            frame_memory[i] / 1024,
            peaks[i] / 1024
        );
    }
    println!("left after all connections closed: {} KiB", left / 1024);
    Ok(())
}
