//! Real processes on a real file, stopped with SIGSTOP and killed with SIGKILL.
//!
//! The test starts itself again as workers. Each writer commits numbered rows under one common
//! counter, and notes the acknowledged ones in its own file. Between them it changes single rows of its
//! own, so that pages are late. Readers verify whole snapshots all the time.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lsmvbt::{
    Caching, Db, DirectFile, Durability, Error, Options, Torn, TreeId, TreeKind, Version,
};

use crate::drive::options;
use crate::random::{Random, number};

const TABLE: TreeId = TreeId(1);
const INDEX: TreeId = TreeId(2);
/// Rows that are changed one by one, each writer its own.
const SINGLE: TreeId = TreeId(3);
const KEPT: i64 = 200;
const WRITERS: i64 = 4;
/// Rows of a writer in `SINGLE`, some twelve in a leaf.
const OWN: i64 = 120;

/// The setting of all workers.
const TORN: &str = "LSMVBT_WORKER_TORN";

fn open(dir: &Path) -> Result<Db, Error> {
    open_with(dir, torn_of(&std::env::var(TORN).unwrap_or_default()))
}

fn torn_of(name: &str) -> Torn {
    match name {
        "double" => Torn::Double,
        _ => Torn::Trust,
    }
}

fn open_with(dir: &Path, torn: Torn) -> Result<Db, Error> {
    let storage = DirectFile::open(&dir.join("db"), Caching::Direct).expect("opening the file");
    let options = Options {
        recovery_pages: 64,
        heal_at_once: 64,
        late_after: 1,
        ..options(torn)
    };
    Db::open(Box::new(storage), options)
}

fn patiently<T>(mut work: impl FnMut() -> Result<T, Error>) -> T {
    loop {
        match work() {
            Ok(done) => return done,
            Err(Error::Busy) => std::thread::sleep(Duration::from_micros(200)),
            Err(e) => panic!("{e}"),
        }
    }
}

fn value(n: i64, writer: u32) -> Vec<u8> {
    let mut value = writer.to_le_bytes().to_vec();
    value.resize(20 + (n % 90) as usize, n as u8);
    value
}

/// The row that change `k` of a writer changes.
fn row_of(k: i64, writer: i64) -> i64 {
    writer * OWN + k * 77 % OWN
}

/// The changes of single rows that a writer has made in this version, after verifying that they are all
/// there: `k` is the newest if each row has the last change up to it that was its own.
fn verify_single(db: &mut Db, view: Version, writer: i64) -> Result<i64, Error> {
    let mut found = Vec::new();
    for row in writer * OWN..(writer + 1) * OWN {
        let value = db.get_integer(view, SINGLE, row)?.expect("a row");
        found.push(i64::from_le_bytes(value[..8].try_into().expect("a number")));
    }
    let newest = found.iter().copied().max().unwrap_or(0);
    let mut expected = vec![0; OWN as usize];
    for k in (newest - 2 * OWN).max(1)..=newest {
        expected[(row_of(k, writer) - writer * OWN) as usize] = k;
    }
    assert_eq!(found, expected, "writer {writer}");
    Ok(newest)
}

fn change_single(db: &mut Db, k: i64, writer: i64) {
    let mut value = k.to_le_bytes().to_vec();
    // Of several lengths, so that its cell changes its place.
    value.resize(240 + (k * 37 % 60) as usize, k as u8);
    let row = row_of(k, writer);
    db.put_integer(SINGLE, row, &value).expect("a change");
}

/// The counter of a version, after verifying all of it.
fn verify(db: &mut Db, view: Version) -> Result<i64, Error> {
    let newest = i64::from(db.meta(view, 0)?);
    let mut cursor = db.cursor(view, TABLE)?;
    let mut expected = (newest - KEPT + 1).max(1);
    let mut more = cursor.first(db)?;
    while more {
        assert_eq!(
            cursor.integer_key()?,
            expected,
            "a row is missing or too many"
        );
        let found = cursor.value(db)?;
        let writer = u32::from_le_bytes([found[0], found[1], found[2], found[3]]);
        assert_eq!(found, value(expected, writer), "row {expected}");
        expected += 1;
        more = cursor.next(db)?;
    }
    assert_eq!(expected, newest + 1, "the newest row");
    assert_eq!(
        db.count(view, INDEX)?,
        newest.min(KEPT) as u64,
        "index and table differ"
    );
    Ok(newest)
}

fn write(dir: &Path, id: u32) {
    let mut ledger = OpenOptions::new()
        .create(true)
        .append(true)
        .open(dir.join(format!("ledger-{id}")))
        .unwrap();
    let mut singles = OpenOptions::new()
        .create(true)
        .append(true)
        .open(dir.join(format!("single-{id}")))
        .unwrap();
    let mut db = patiently(|| open(dir));
    let view = patiently(|| db.snapshot());
    let mut k = verify_single(&mut db, view.version(), i64::from(id)).unwrap();
    drop(view);
    loop {
        for _ in 0..k % 23 {
            patiently(|| db.begin_write());
            k += 1;
            change_single(&mut db, k, i64::from(id));
            db.commit(Durability::Flush).unwrap();
            singles.write_all(format!("{k}\n").as_bytes()).unwrap();
        }
        let view = patiently(|| db.begin_write());
        let n = i64::from(db.meta(view, 0).unwrap()) + 1;
        one(&mut db, n, id);
        k += 1;
        change_single(&mut db, k, i64::from(id));
        // Now and then it rolls back, and does the same again.
        if n % 17 == 0 && db.stats().commits % 3 == 0 {
            db.rollback().unwrap();
            let view = patiently(|| db.begin_write());
            let n = i64::from(db.meta(view, 0).unwrap()) + 1;
            one(&mut db, n, id);
            change_single(&mut db, k, i64::from(id));
            db.commit(Durability::Flush).unwrap();
            ledger.write_all(format!("{n}\n").as_bytes()).unwrap();
            continue;
        }
        db.commit(Durability::Flush).unwrap();
        ledger.write_all(format!("{n}\n").as_bytes()).unwrap();
    }
}

fn one(db: &mut Db, n: i64, id: u32) {
    db.put_integer(TABLE, n, &value(n, id)).unwrap();
    let key = |n: i64| (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    db.put(INDEX, &key(n), &n.to_be_bytes()).unwrap();
    if n > KEPT {
        assert!(db.delete_integer(TABLE, n - KEPT).unwrap());
        assert!(db.delete(INDEX, &key(n - KEPT)).unwrap());
    }
    db.set_meta(0, n as u32).unwrap();
}

fn read(dir: &Path) {
    let mut db = patiently(|| open(dir));
    let mut last = 0;
    loop {
        let view = patiently(|| db.snapshot());
        let newest = verify(&mut db, view.version()).unwrap();
        assert!(newest >= last, "the newest version went back");
        last = newest;
        for writer in 0..WRITERS {
            verify_single(&mut db, view.version(), writer).unwrap();
        }
    }
}

/// The workers of the test run this; run as a test, it does nothing.
#[test]
fn worker() {
    let Ok(role) = std::env::var("LSMVBT_WORKER") else {
        return;
    };
    let dir = std::env::var("LSMVBT_WORKER_DIR").unwrap();
    match role.parse() {
        Ok(id) => write(Path::new(&dir), id),
        Err(_) => read(Path::new(&dir)),
    }
}

fn spawn(dir: &Path, role: &str, torn: &str) -> Child {
    let errors = File::create(dir.join(format!("errors-{role}-{}", std::process::id()))).unwrap();
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "processes::worker",
            "--nocapture",
            "--test-threads=1",
        ])
        .env("LSMVBT_WORKER", role)
        .env("LSMVBT_WORKER_DIR", dir)
        .env(TORN, torn)
        .stdout(Stdio::null())
        .stderr(errors)
        .spawn()
        .unwrap()
}

fn acknowledged(dir: &Path, ledger: &str, id: u32) -> Vec<i64> {
    let text = std::fs::read_to_string(dir.join(format!("{ledger}-{id}"))).unwrap_or_default();
    // The last line may have been cut by the kill.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().filter_map(|l| l.parse().ok()).collect()
}

/// Sends a signal: `STOP` or `CONT`.
fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    let sent = Command::new("kill").args(["-s", name, &id]).status();
    assert!(sent.unwrap().success(), "{name}");
}

#[test]
fn killed_processes_lose_nothing_and_disturb_nobody() {
    lose_nothing("trust");
}

#[test]
fn nor_do_they_where_pages_may_tear() {
    lose_nothing("double");
}

fn lose_nothing(torn: &str) {
    let kills = number("LSMVBT_KILLS").unwrap_or(15);
    let seed = number("LSMVBT_SEED").unwrap_or(1);
    let mut random = Random::new(seed);
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    let open = || open_with(dir, torn_of(torn));
    let mut db = open().unwrap();
    db.begin_write().unwrap();
    assert_eq!(db.create_tree(TreeKind::Integer).unwrap(), TABLE);
    assert_eq!(db.create_tree(TreeKind::Bytes).unwrap(), INDEX);
    assert_eq!(db.create_tree(TreeKind::Integer).unwrap(), SINGLE);
    for row in 0..WRITERS * OWN {
        db.put_integer(SINGLE, row, &[0; 300]).unwrap();
    }
    db.commit(Durability::Flush).unwrap();
    db.close().unwrap();

    let roles = ["0", "1", "2", "3", "reader", "reader"];
    let mut children: Vec<Child> = roles.iter().map(|r| spawn(dir, r, torn)).collect();
    for _ in 0..kills {
        std::thread::sleep(Duration::from_millis(20 + random.below(150)));
        let all = random.chance(10);
        let victim = random.below(roles.len() as u64) as usize;
        if random.chance(40) {
            // In the middle of something, next to the others.
            signal(&children[victim], "STOP");
            std::thread::sleep(Duration::from_millis(random.below(60)));
            if random.chance(40) {
                signal(&children[victim], "CONT");
                continue;
            }
        }
        for (i, child) in children.iter_mut().enumerate() {
            if let Some(status) = child.try_wait().unwrap() {
                let errors = format!("errors-{}-{}", roles[i], std::process::id());
                let text = std::fs::read_to_string(dir.join(errors)).unwrap_or_default();
                panic!(
                    "seed {seed}: {} ended by itself: {status}\n{text}",
                    roles[i]
                );
            }
            if all || i == victim {
                child.kill().unwrap();
                child.wait().unwrap();
            }
        }
        for (i, child) in children.iter_mut().enumerate() {
            if all || i == victim {
                *child = spawn(dir, roles[i], torn);
            }
        }
    }
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let begun = Instant::now();
    let mut db = open().unwrap();
    let took = begun.elapsed();
    let view = db.snapshot().unwrap();
    let newest = verify(&mut db, view.version()).unwrap();
    let (mut sum, mut singles) = (0, 0);
    for id in 0..4 {
        let single = verify_single(&mut db, view.version(), i64::from(id)).unwrap();
        let last = acknowledged(dir, "single", id).last().copied().unwrap_or(0);
        assert!(
            single >= last,
            "seed {seed}: change {last} of writer {id} is lost"
        );
        singles += last;
        for n in acknowledged(dir, "ledger", id) {
            assert!(
                n <= newest,
                "seed {seed}: commit {n} of writer {id} is lost, {newest} is the newest"
            );
            if n > newest - KEPT {
                let found = db.get_integer(view.version(), TABLE, n).unwrap();
                assert_eq!(found, Some(value(n, id)), "seed {seed}: commit {n}");
            }
            sum += 1;
        }
    }
    let findings = db.check().unwrap();
    assert!(findings.is_empty(), "{findings:?}");
    println!(
        "{kills} kills, {sum} acknowledged commits of {newest}, {singles} of single rows, recovered in {took:?}"
    );
    assert!(sum > 0 && singles > 0);
}
