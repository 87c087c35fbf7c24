//! A history next to commits that a power cut takes back.

use lsmvbt::{Db, Durability, Error, MemoryFile, PowerCut, Torn, TreeId, TreeKind, Version};

use crate::drive::options;
use crate::random::{Random, Seed, seeds};

const TREES: usize = 4;
const HISTORY: u64 = 5;
const SPAN: u32 = 64;

/// So large that a page is soon full of earlier versions, and those are collected that nobody needs.
fn value(n: u8) -> [u8; 400] {
    [n; 400]
}

fn commit(db: &mut Db, trees: [TreeId; TREES], n: u8, durability: Durability) -> Version {
    db.begin_write().unwrap();
    for tree in trees {
        for key in 0..3 {
            db.put_integer(tree, key, &value(n)).unwrap();
        }
    }
    db.commit(durability).unwrap()
}

/// Commits that were not flushed drop versions from the history. When a power cut takes these commits
/// back, the history reaches back to the same versions again.
fn run(seed: u64, set: fn(&mut Db)) -> (u32, u32) {
    let _told = Seed("kept", seed);
    let mut random = Random::new(seed);
    let file = MemoryFile::new();
    let mut db = Db::open(file.storage(), options(Torn::Trust)).unwrap();
    file.set_clock(1_800_000_000);
    set(&mut db);
    db.begin_write().unwrap();
    let trees = [0; TREES].map(|_| db.create_tree(TreeKind::Integer).unwrap());
    db.commit(Durability::Flush).unwrap();
    let mut commits = Vec::new();
    for n in 0..40 {
        file.set_clock(1_800_000_000 + 10 * u32::from(n));
        let durability = match n {
            0..20 => Durability::Flush,
            _ => Durability::Later,
        };
        commits.push(commit(&mut db, trees, n, durability));
    }
    file.power_cut(PowerCut::Atomic, &mut |n| random.below(n));
    db.abandon();
    let mut db = Db::open(file.storage(), options(Torn::Trust)).unwrap();
    let view = db.snapshot().unwrap();
    let read = |db: &mut Db, version| {
        trees.map(|tree| db.get_integer(version, tree, 1).unwrap().unwrap()[0])
    };
    let newest = read(&mut db, view.version())[0];
    let mut kept = 0;
    for (n, version) in (0..=newest).zip(commits) {
        match db.snapshot_at(version) {
            Ok(view) => assert_eq!(read(&mut db, view.version()), [n; TREES], "{newest}"),
            Err(Error::NoSuchVersion { .. }) => continue,
            Err(e) => panic!("{e}"),
        }
        kept += 1;
    }
    (kept, u32::from(newest < 39))
}

fn runs(set: fn(&mut Db)) {
    let (mut kept, mut cut) = (0, 0);
    for seed in seeds(60) {
        let of_run = run(seed, set);
        kept += of_run.0;
        cut += of_run.1;
    }
    assert!(kept > 100 && cut > 20, "{kept} {cut}");
}

#[test]
fn what_was_taken_back_has_dropped_no_version_of_a_history() {
    runs(|db| db.set_history(HISTORY).unwrap());
}

#[test]
fn what_was_taken_back_has_dropped_no_version_of_a_time() {
    runs(|db| db.set_history_time(SPAN).unwrap());
}
