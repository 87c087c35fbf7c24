//! The meta values of very many versions: more than the directory's page holds.

use lsmvbt::{Db, Durability, Error, MemoryFile, PowerCut, Torn, TreeKind, Version};

use crate::drive::options;
use crate::random::Random;

/// More changes than fit into the directory, and into the first page of their own.
const MANY: u32 = 1_500;

/// The versions that were committed, with their meta values.
type Known = Vec<(Version, [u32; 16])>;

fn open(file: &MemoryFile, torn: Torn) -> Db {
    Db::open(file.storage(), options(torn)).unwrap()
}

/// Sets a value, and commits.
fn commit(db: &mut Db, known: &mut Known, index: usize, value: u32) -> lsmvbt::Result<()> {
    db.begin_write()?;
    db.set_meta(index, value)?;
    let mut metas = known.last().map_or([0; 16], |(_, metas)| *metas);
    metas[index] = value;
    let version = db.write_version().unwrap();
    // A commit that a crash interrupts may have happened.
    known.push((version, metas));
    db.commit(Durability::Flush)?;
    Ok(())
}

/// Every version has its values.
fn holds(db: &mut Db, known: &Known) {
    for (version, metas) in known {
        let view = db.snapshot_at(*version).unwrap();
        assert_eq!(db.metas(view.version()).unwrap(), *metas, "{version:?}");
        assert_eq!(db.meta(view.version(), 3).unwrap(), metas[3], "{version:?}");
    }
    assert_eq!(db.check().unwrap(), Vec::<String>::new());
}

#[test]
fn a_history_has_more_of_them_than_the_directory_holds() {
    for torn in [Torn::Trust, Torn::Double] {
        let file = MemoryFile::new();
        let mut db = open(&file, torn);
        db.set_history(u64::MAX >> 1).unwrap();
        let mut known = Known::new();
        for n in 1..=MANY {
            if n % 7 == 0 {
                db.begin_write().unwrap();
                db.set_meta(5, n).unwrap();
                db.set_meta(5, n + 1).unwrap();
                db.rollback().unwrap();
            }
            if n % 400 == 0 {
                db = open(&file, torn);
            }
            commit(&mut db, &mut known, (n % 3) as usize, n).unwrap();
        }
        holds(&mut db, &known);
        let mut other = open(&file, torn);
        holds(&mut other, &known);
        drop(other);
        // Without the history their pages are free again.
        db.set_history(0).unwrap();
        for n in 0..3 {
            commit(&mut db, &mut known, 0, n).unwrap();
        }
        let last = known.split_off(known.len() - 1);
        holds(&mut db, &last);
        assert_eq!(db.reclaim().unwrap(), 0, "no page is lost");
        let before = db.status().unwrap();
        db.begin_write().unwrap();
        let tree = db.create_tree(TreeKind::Integer).unwrap();
        db.put_integer(tree, 1, &[7; 3 * 4096]).unwrap();
        db.commit(Durability::Flush).unwrap();
        let after = db.status().unwrap();
        // The file had to grow, so these pages were looked for.
        assert!(after.free_pages > before.free_pages, "{after:?}");
        assert_eq!(db.check().unwrap(), Vec::<String>::new());
    }
}

fn is_crash(n: u32) -> bool {
    n.is_multiple_of(3)
}

/// Commits until the values have moved twice, with the power cut or the process killed at every
/// step on the way.
fn crashes(torn: Torn, is_power_cut: bool) {
    let file = MemoryFile::new();
    let mut random = Random::new(1);
    let mut db = open(&file, torn);
    db.set_history(u64::MAX >> 1).unwrap();
    let mut known = Known::new();
    for n in 1..=MANY {
        file.kill_after(is_crash(n).then_some(u64::from(n / 3) % 30));
        let done = commit(&mut db, &mut known, (n % 4) as usize, n);
        file.kill_after(None);
        if !is_crash(n) {
            done.unwrap();
            continue;
        }
        if is_power_cut {
            let how = match torn {
                Torn::Trust => PowerCut::Atomic,
                _ => PowerCut::Torn,
            };
            file.power_cut(how, &mut |n| random.below(n));
        } else {
            file.kill_all();
        }
        db.abandon();
        db = open(&file, torn);
        let newest = db.current_version().unwrap();
        let Some((version, metas)) = known.last().copied() else {
            continue;
        };
        let view = db.snapshot().unwrap();
        let found = db.metas(view.version()).unwrap();
        assert!(done.is_err() || found == metas, "{version:?}, {newest:?}");
        drop(view);
        if found != metas || newest < version {
            known.pop();
        }
    }
    holds(&mut db, &known);
    assert!(known.len() > 400, "{}", known.len());
}

#[test]
fn a_crash_loses_none_of_them() {
    for torn in [Torn::Trust, Torn::Double] {
        crashes(torn, false);
        crashes(torn, true);
    }
}

/// It would read a 0 for each value that has moved, as long as it does not look at the header.
#[test]
fn a_release_that_knows_no_page_of_them_is_not_joined() {
    let file = MemoryFile::new();
    let _earlier = open(&file, Torn::Trust);
    let ready = 0;
    let of_formats_2_and_3 = 0x4c53_4d56_4254_0004;
    let shared = file.storage();
    shared.shm_store(ready, of_formats_2_and_3).unwrap();
    let joined = Db::open(file.storage(), options(Torn::Trust));
    assert!(matches!(joined, Err(Error::Busy)));
}

#[test]
fn a_read_of_them_that_fails_is_an_error_and_no_zero() {
    for torn in [Torn::Trust, Torn::Double] {
        let file = MemoryFile::new();
        let mut known = Known::new();
        commit(&mut open(&file, torn), &mut known, 3, 77).unwrap();
        let mut db = open(&file, torn);
        let view = db.snapshot().unwrap();
        // The directory.
        file.fail_read_of(2);
        let failed = db.metas(view.version());
        assert!(matches!(failed, Err(Error::Io { .. })), "{failed:?}");
        assert_eq!(db.meta(view.version(), 3).unwrap(), 77);
    }
}
