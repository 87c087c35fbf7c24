//! The scenes of a child.

use std::ffi::c_int;
use std::io;
use std::path::{Path, PathBuf};
use std::ptr::null;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, Once};
use std::thread;
use std::time::Duration;

use onewrite::storage::observer::{Call, Observer, observe};
use rusqlite::{Connection, ffi};

use super::{PLANTED, connect, made, sql};

pub fn play(scene: &str, path: &Path) {
    match scene {
        "enter" => drop(made(path, "onewrite")),
        "commits" => commits(path),
        "refused" => refused(path),
        "killed" => {
            let db = made(path, "onewrite");
            sql(&db, "INSERT INTO t VALUES('committed')");
            std::process::abort();
        }
        "read" => drop(sql(&connect(path), "SELECT count(*) FROM t")),
        "poisoned" => poisoned(path),
        "checkpoint" => {
            let db = connect(path);
            sql(&db, "INSERT INTO t VALUES('new')");
            sql(&db, "PRAGMA wal_checkpoint");
            sql(&db, "PRAGMA wal_checkpoint");
        }
        "many" => many(path),
        "flush" => flush(path),
        "busy" => busy(path),
        "growth" => growth(path),
        "own_checkpoint" => own_checkpoint(path),
        "group" => group(path),
        "fast" => {
            let db = made(path, "onewrite");
            for _ in 0..100 {
                sql(&db, "INSERT INTO t VALUES('fast')");
            }
        }
        other => {
            let places = [
                super::hostile::scene,
                super::rotation::scene,
                super::forks::scene,
            ];
            let is_one = places.iter().any(|play| play(other, path));
            assert!(is_one, "no scene {other}");
        }
    }
}

fn commits(path: &Path) {
    let db = made(path, "onewrite");
    for _ in 0..300 {
        sql(&db, "INSERT INTO t VALUES('more')");
    }
    sql(&db, "PRAGMA wal_checkpoint");
}

fn refused(path: &Path) {
    let db = connect(path);
    db.execute_batch("CREATE TABLE t(x); BEGIN")
        .expect("a transaction");
    let answer = db.query_row("PRAGMA journal_mode=onewrite", [], |_| Ok(()));
    answer.expect_err("not within a transaction");
}

/// Four threads, each with its own databases.
fn many(path: &Path) {
    let work = |thread: usize| {
        let path = path.to_owned();
        thread::spawn(move || {
            for number in 0..25 {
                let path: PathBuf = format!("{}-{thread}-{number}", path.display()).into();
                drop(made(&path, "onewrite"));
            }
        })
    };
    let threads: Vec<_> = (0..4).map(work).collect();
    threads
        .into_iter()
        .for_each(|it| it.join().expect("a thread"));
}

/// The behavior of the device from now on.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
enum Device {
    Good,
    SlowFlush,
    SlowGrowth,
    FailingFlush,
}

static DEVICE: AtomicU64 = AtomicU64::new(0);

struct Planted;

impl Observer for Planted {
    fn before(&self, _path: &Path, call: &Call<'_>) -> io::Result<()> {
        let device = DEVICE.load(Ordering::Relaxed);
        let is = |wanted: Device| device == wanted as u64;
        let is_durable = match call {
            Call::Flush => true,
            Call::Write { durability, .. } => {
                *durability == onewrite::storage::Durability::WriteThrough
            }
            _ => false,
        };
        if is(Device::FailingFlush) && is_durable {
            return Err(io::Error::from_raw_os_error(5));
        }
        let is_growth = matches!(call, Call::Initialize { .. });
        if is(Device::SlowFlush) && is_durable || is(Device::SlowGrowth) && is_growth {
            thread::sleep(PLANTED);
        }
        Ok(())
    }
}

fn device(device: Device) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| assert!(observe(Box::new(Planted))));
    DEVICE.store(device as u64, Ordering::Relaxed);
}

fn poisoned(path: &Path) {
    fail_flushes(path, 3);
}

/// So many commits whose flush fails.
pub fn fail_flushes(path: &Path, count: u32) {
    device(Device::Good);
    let db = made(path, "onewrite");
    // Published, and not durable.
    sql(&db, "PRAGMA synchronous=normal");
    sql(&db, "INSERT INTO t VALUES('not durable')");
    sql(&db, "PRAGMA synchronous=full");
    device(Device::FailingFlush);
    for _ in 0..count {
        db.execute_batch("INSERT INTO t VALUES('lost')")
            .expect_err("the flush fails");
    }
}

fn flush(path: &Path) {
    device(Device::Good);
    let db = made(path, "onewrite");
    device(Device::SlowFlush);
    sql(&db, "INSERT INTO t VALUES('slow')");
    device(Device::Good);
}

fn growth(path: &Path) {
    device(Device::Good);
    let db = made(path, "waldio");
    sql(&db, "PRAGMA wal_autocheckpoint=0");
    device(Device::SlowGrowth);
    // More frames than the first chunk has.
    sql(&db, "INSERT INTO t VALUES(zeroblob(8000000))");
    device(Device::Good);
}

/// At NORMAL a commit flushes nothing, and a checkpoint does.
fn own_checkpoint(path: &Path) {
    device(Device::Good);
    let db = made(path, "onewrite");
    sql(&db, "PRAGMA synchronous=normal");
    sql(&db, "PRAGMA wal_autocheckpoint=1");
    sql(&db, "PRAGMA onewrite_background_checkpoint=off");
    device(Device::SlowFlush);
    sql(&db, "INSERT INTO t VALUES('slow')");
    device(Device::Good);
}

fn group(path: &Path) {
    device(Device::Good);
    let db = made(path, "onewrite");
    device(Device::SlowFlush);
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let path = path.to_owned();
            thread::spawn(move || {
                let db = connect(&path);
                for _ in 0..6 {
                    sql(&db, "INSERT INTO t VALUES('together')");
                }
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|it| it.join().expect("a thread"));
    device(Device::Good);
    drop(db);
}

/// The sleep of the VFS underneath, and a word to the connection that has the write lock.
static SLEEP: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
static RELEASE: Mutex<Option<(Sender<()>, Receiver<()>)>> = Mutex::new(None);

type Sleep = unsafe extern "C" fn(*mut ffi::sqlite3_vfs, c_int) -> c_int;

/// SQLite sleeps because it was refused the lock: only now it is released.
#[allow(unsafe_code)]
unsafe extern "C" fn release_and_sleep(vfs: *mut ffi::sqlite3_vfs, us: c_int) -> c_int {
    if let Some((release, released)) = RELEASE.lock().expect("no panic").take() {
        thread::sleep(PLANTED);
        release.send(()).expect("the other connection");
        released.recv().expect("the other connection");
    }
    // SAFETY: a function of this type was stored.
    unsafe {
        let sleep = std::mem::transmute::<*mut (), Sleep>(SLEEP.load(Ordering::Relaxed));
        sleep(vfs, us)
    }
}

#[allow(unsafe_code)]
fn busy(path: &Path) {
    // SAFETY: the default VFS lives as long as the program, and no other thread uses it yet.
    unsafe {
        ffi::sqlite3_initialize();
        let vfs = &mut *ffi::sqlite3_vfs_find(null());
        let sleep: Sleep = vfs.xSleep.expect("a function");
        SLEEP.store(sleep as *mut (), Ordering::Relaxed);
        vfs.xSleep = Some(release_and_sleep);
    }
    let db = made(path, "onewrite");
    let (release, is_wanted) = channel();
    let (done, released) = channel();
    let (locked, is_locked) = channel();
    let other = path.to_owned();
    let holder = thread::spawn(move || {
        let db: Connection = connect(&other);
        sql(&db, "BEGIN IMMEDIATE");
        locked.send(()).expect("the test");
        is_wanted
            .recv_timeout(Duration::from_secs(120))
            .expect("the test");
        sql(&db, "ROLLBACK");
        done.send(()).expect("the test");
    });
    is_locked.recv().expect("the holder");
    *RELEASE.lock().expect("no panic") = Some((release, released));
    sql(&db, "INSERT INTO t VALUES('late')");
    holder.join().expect("the holder");
}
