//! Images in the heads of slots: torn heads, the pages that a commit writes, and files of format 5, which
//! have no such heads.

use lsmvbt::{Db, Durability, MemoryFile, Options, PowerCut, Torn, TreeId, TreeKind};

use crate::drive::options;
use crate::marks::{commit as commit_row, made as made_of};
use crate::random::{Random, Seed, seeds};

const PAGE: usize = 4096;
const SECTOR: usize = 512;
const TREE: TreeId = TreeId(1);

fn open(file: &MemoryFile, cache_pages: usize) -> Db {
    let options = Options {
        cache_pages,
        recovery_pages: 64,
        heal_at_once: 64,
        ..options(Torn::Double)
    };
    Db::open(file.storage(), options).expect("a database")
}

/// A row that differs from those of other numbers in each sector of its page.
fn value(key: i64, number: u8) -> Vec<u8> {
    let mut bytes = vec![number; 300];
    bytes[0] = key as u8;
    bytes
}

fn set(db: &mut Db, rows: i64, number: u8) -> lsmvbt::Result<()> {
    db.begin_write()?;
    for key in 0..rows {
        db.put_integer(TREE, key, &value(key, number))?;
    }
    db.write(Durability::Flush)
}

fn commit(db: &mut Db, rows: i64, number: u8) {
    set(db, rows, number).expect("written");
    db.commit(Durability::Flush).expect("committed");
}

/// The number that all rows have.
fn number(db: &mut Db, rows: i64) -> u8 {
    assert_eq!(db.check().expect("checked"), Vec::<String>::new());
    let view = db.snapshot().expect("a snapshot");
    assert_eq!(
        db.count(view.version(), TREE).expect("counted"),
        rows as u64
    );
    let mut row = |key| {
        let found = db.get_integer(view.version(), TREE, key).expect("read");
        found.expect("a row")
    };
    let numbers: Vec<u8> = (0..rows)
        .map(|key| *row(key).last().expect("bytes"))
        .collect();
    assert!(numbers.iter().all(|n| *n == numbers[0]), "{numbers:?}");
    numbers[0]
}

fn made(file: &MemoryFile, rows: i64) -> Db {
    let mut db = open(file, 2000);
    db.begin_write().expect("a transaction");
    assert_eq!(db.create_tree(TreeKind::Integer).expect("a tree"), TREE);
    db.commit(Durability::Flush).expect("committed");
    (1..=2).for_each(|n| commit(&mut db, rows, n));
    db
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn is_whole(page: &[u8]) -> bool {
    crc32c::crc32c(&page[4..]) == u32_at(page, 0)
}

/// The places of the slots' first heads.
fn heads(bytes: &[u8]) -> [usize; 2] {
    let newest = bytes.chunks(PAGE).take(2).max_by_key(|h| u32_at(h, 32));
    let header = newest.expect("a header");
    let [start, pages] = [80, 84].map(|at| u32_at(header, at) as usize);
    [start * PAGE, (start + pages) * PAGE]
}

fn opened(bytes: &[u8]) -> (MemoryFile, Db) {
    let file = MemoryFile::new();
    file.set_bytes(bytes);
    let db = open(&file, 2000);
    (file, db)
}

/// A head holds the images of its commit. If any of its sectors is missing, the commit never happened.
#[test]
fn a_head_that_is_torn_anywhere_is_no_commit() {
    const ROWS: i64 = 5;
    let file = MemoryFile::new();
    let mut db = made(&file, ROWS);
    commit(&mut db, ROWS, 3);
    let before = file.bytes();
    let pages = db.stats().slot_pages_written;
    set(&mut db, ROWS, 4).expect("written");
    assert_eq!(db.stats().slot_pages_written, pages + 1, "a head alone");
    // Nothing is in place yet.
    let after = file.bytes();
    db.abandon();
    let changed: Vec<usize> = heads(&after)
        .into_iter()
        .filter(|at| after[*at..*at + PAGE] != before[*at..*at + PAGE])
        .collect();
    let [at] = changed[..] else {
        panic!("{changed:?}");
    };
    for sectors in 0..1 << (PAGE / SECTOR) {
        for zeros in [false, true] {
            let mut torn = after.clone();
            for sector in (0..PAGE / SECTOR).filter(|sector| sectors >> sector & 1 == 0) {
                let range = at + sector * SECTOR..at + (sector + 1) * SECTOR;
                match zeros {
                    true => torn[range].fill(0),
                    false => torn[range.clone()].copy_from_slice(&before[range]),
                }
            }
            let is_there = torn[at..at + PAGE] == after[at..at + PAGE];
            let (file, mut db) = opened(&torn);
            let expected = if is_there { 4 } else { 3 };
            assert_eq!(number(&mut db, ROWS), expected, "{sectors:#b} {zeros}");
            // And it goes on from there.
            commit(&mut db, ROWS, 5);
            file.power_cut(PowerCut::Torn, &mut |_| 0);
            db.abandon();
            assert_eq!(number(&mut open(&file, 2000), ROWS), 5);
        }
    }
}

/// The images are redone from the heads where the pages in place are torn.
#[test]
fn torn_pages_are_redone_from_the_heads() {
    const ROWS: i64 = 30;
    let mut torn = 0;
    for seed in seeds(60) {
        let _seed = Seed("heads", seed);
        let mut random = Random::new(seed);
        let file = MemoryFile::new();
        let mut db = made(&file, ROWS);
        (3..10).for_each(|n| commit(&mut db, ROWS, n));
        file.power_cut(PowerCut::Torn, &mut |n| random.below(n));
        db.abandon();
        let bytes = file.bytes();
        let pages = bytes.chunks(PAGE).skip(2);
        torn += pages.filter(|page| !is_whole(page) && page[16] < 8).count();
        for _ in 0..2 {
            let mut db = open(&file, 2000);
            assert_eq!(number(&mut db, ROWS), 9);
            file.kill_all();
            db.abandon();
        }
    }
    assert!(torn > 0 || seeds(60).len() < 60);
}

/// One page of a slot, and one in place, where no page is late.
#[test]
fn a_commit_of_one_row_anywhere_is_two_pages() {
    let (file, keys) = made_of(16, Torn::Double);
    let options = Options {
        torn: Torn::Double,
        late_after: u32::MAX,
        ..Options::default()
    };
    let mut db = Db::open(file.storage(), options).expect("opened");
    let mut random = Random::new(1);
    let mut update = |db: &mut Db| {
        let key = random.below(keys as u64) as i64;
        let before = db.stats();
        commit_row(db, key - key % 4 + 1, &[2; 500]);
        let now = db.stats();
        [
            now.pages_written - before.pages_written,
            now.slot_pages_written - before.slot_pages_written,
            now.header_pages_written - before.header_pages_written,
            now.flushes - before.flushes,
        ]
    };
    // The slots of larger transactions become smaller meanwhile.
    for _ in 0..130 {
        update(&mut db);
    }
    // The header reserves 4,096 numbers at once.
    let mut of_header = 0;
    for commit in 0..3000 {
        let [pages, of_slot, header, flushes] = update(&mut db);
        assert_eq!([pages, of_slot, flushes], [1, 1, 1], "{commit}");
        of_header += header;
    }
    assert!(of_header <= 1, "{of_header}");
}

/// The pages of a slot are counted before it is written, by what writes it.
#[test]
fn slots_have_room_for_what_is_written_to_them() {
    let file = MemoryFile::new();
    let mut db = open(&file, 1 << 20);
    db.begin_write().expect("a transaction");
    assert_eq!(db.create_tree(TreeKind::Integer).expect("a tree"), TREE);
    db.commit(Durability::Flush).expect("committed");
    let mut random = Random::new(11);
    let mut key = 0;
    for round in 0..300 {
        db.begin_write().expect("a transaction");
        for _ in 0..1 + random.below(40) {
            let size = [20, 400, 3900, 4032, 4033][random.below(5) as usize];
            let row = vec![round as u8; size];
            db.put_integer(TREE, key, &row).expect("a row");
            key += 1 + random.below(2) as i64;
        }
        let before = db.stats().slot_pages_written;
        db.write(Durability::Flush).expect("written");
        let written = db.stats().slot_pages_written - before;
        let bytes = file.bytes();
        let [first, second] = heads(&bytes);
        let size = (second - first) / PAGE;
        // New slots are filled with zeros first, both of them.
        let written = written as usize % (2 * size);
        assert!(written <= size, "{written} of {size}");
        db.commit(Durability::Flush).expect("committed");
    }
    file.power_cut(PowerCut::Torn, &mut |_| 0);
    db.abandon();
    let mut db = open(&file, 2000);
    assert_eq!(db.check().expect("checked"), Vec::<String>::new());
}

// ---- format 5

/// Databases as the release left them that wrote format 5, after power cuts with torn pages: 12 rows whose
/// newest commit stands in a slot alone; 40 rows of a commit in rounds; 40 rows of one that was cut in its
/// third round. The last number is that of all rows.
const OF_FORMAT_5: [(&[u8], i64, u8); 3] = [
    (include_bytes!("format5/one-slot.lsmvbt"), 12, 3),
    (include_bytes!("format5/rounds-last.lsmvbt"), 40, 3),
    (include_bytes!("format5/rounds-open.lsmvbt"), 40, 2),
];

fn formats(bytes: &[u8]) -> Vec<u8> {
    let headers = bytes.chunks(PAGE).take(2);
    let whole = headers.filter(|h| crc32c::crc32c(&h[..PAGE - 4]) == u32_at(h, PAGE - 4));
    whole.map(|header| header[14]).collect()
}

/// True if a head of a slot holds images.
fn holds_images(bytes: &[u8]) -> bool {
    let heads = heads(bytes).map(|at| &bytes[at..at + PAGE]);
    heads
        .iter()
        .any(|head| is_whole(head) && head[16] == 7 && head[48] != 0)
}

#[test]
fn slots_of_format_5_are_redone_and_the_next_commit_makes_it_one_of_the_newest() {
    for (bytes, rows, last) in OF_FORMAT_5 {
        assert_eq!(formats(bytes), *b"55");
        let torn = bytes.chunks(PAGE).skip(2);
        let torn = torn.filter(|page| !is_whole(page) && page[16] != 0);
        assert!(torn.count() > 0, "nothing to redo");
        let (file, mut db) = opened(bytes);
        assert_eq!(number(&mut db, rows), last);
        file.kill_all();
        db.abandon();
        let mut db = open(&file, 2000);
        assert_eq!(number(&mut db, rows), last);
        commit(&mut db, rows, 7);
        assert_eq!(formats(&file.bytes()), *b"77");
        assert!(holds_images(&file.bytes()));
        file.power_cut(PowerCut::Torn, &mut |_| 0);
        db.abandon();
        let mut db = open(&file, 2000);
        assert_eq!(number(&mut db, rows), 7);
        db.close().expect("closed");
    }
}

/// The recovery of such a file, and its first commits, are cut at any of their steps. No head holds images
/// while a header of an earlier format is whole: a release of that format would take the file for its own.
#[test]
fn an_upgrade_that_is_cut_loses_nothing_and_earlier_releases_refuse_what_they_cannot_read() {
    let (mut upgraded, mut old) = (0, 0);
    for seed in seeds(400) {
        let _seed = Seed("upgrade", seed);
        let mut random = Random::new(seed);
        let (bytes, rows, mut last) = OF_FORMAT_5[random.below(3) as usize];
        let file = MemoryFile::new();
        file.set_bytes(bytes);
        // The newest commit that a flush has covered.
        let mut acknowledged = last;
        for _ in 0..4 {
            let cache = [0, 2000][random.below(2) as usize];
            file.kill_after(Some(1 + random.below(60)));
            let options = Options {
                cache_pages: cache,
                recovery_pages: 64,
                heal_at_once: 64,
                ..options(Torn::Double)
            };
            let mut begun = last;
            if let Ok(mut db) = Db::open(file.storage(), options) {
                for next in last + 1..last + 4 {
                    begun = next;
                    let done = set(&mut db, rows, next);
                    if done.and_then(|()| db.commit(Durability::Flush)).is_err() {
                        break;
                    }
                    acknowledged = next;
                }
                db.abandon();
            }
            file.kill_after(None);
            match random.chance(70) {
                true => file.power_cut(PowerCut::Torn, &mut |n| random.below(n)),
                false => file.kill_all(),
            }
            let bytes = file.bytes();
            if holds_images(&bytes) {
                let formats = formats(&bytes);
                assert!(formats.iter().all(|format| *format == b'7'), "{formats:?}");
                upgraded += 1;
            } else {
                old += 1;
            }
            let (_, mut copy) = opened(&bytes);
            last = number(&mut copy, rows);
            assert!(
                (acknowledged..=begun).contains(&last),
                "{acknowledged} {last}"
            );
        }
    }
    println!("{old} without such heads, {upgraded} with them");
    assert!(seeds(400).len() < 400 || (upgraded > 100 && old > 100));
}

/// A header of format 1 reserves no numbers, so a commit need not write another one.
#[test]
fn a_commit_to_a_file_of_format_1_makes_it_one_of_the_newest() {
    let (file, mut db) = opened(include_bytes!("format1/killed-double.lsmvbt"));
    db.begin_write().expect("a transaction");
    assert!(db.delete_integer(TreeId(2), 3).expect("deleted"));
    db.commit(Durability::Flush).expect("committed");
    assert!(holds_images(&file.bytes()));
    assert_eq!(formats(&file.bytes()), *b"77");
    file.power_cut(PowerCut::Torn, &mut |_| 0);
    db.abandon();
    let mut db = open(&file, 2000);
    let view = db.snapshot().expect("a snapshot");
    assert_eq!(db.count(view.version(), TreeId(2)).expect("counted"), 1);
}
