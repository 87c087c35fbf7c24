//! Damaged bytes: clear errors, no panic, no endless work, no wrong data returned.

use lsmvbt::{Db, Durability, Error, MAGIC, MemoryFile, Options, PAGE_SIZE, Torn, TreeId};

use crate::drive::{Model, options, read_all, transaction};
use crate::random::{Random, Seed, seeds};

/// A database with some content, closed cleanly, and that content.
fn database(random: &mut Random) -> (MemoryFile, Model) {
    let file = MemoryFile::new();
    let mut db = Db::open(file.storage(), Options::default()).unwrap();
    let mut model = Model::default();
    let mut count = 0;
    for _ in 0..12 {
        model = transaction(&mut db, &model, random, 200, &mut count).unwrap();
        db.commit(Durability::Flush).unwrap();
    }
    db.close().unwrap();
    (file, model)
}

/// Opens, reads and changes everything; `Ok` is its content.
fn use_it(file: &MemoryFile) -> Result<Model, Error> {
    let mut db = Db::open(file.storage(), options(Torn::Trust))?;
    let view = db.snapshot()?;
    let model = read_all(&mut db, view.version())?;
    let findings = db.check()?;
    db.begin_write()?;
    for (tree, _) in db.trees(view.version())? {
        match db.clear_tree(tree) {
            Ok(()) | Err(Error::Damaged { .. }) => {}
            Err(e) => return Err(e),
        }
    }
    drop(view);
    db.commit(Durability::Flush)?;
    if findings.is_empty() {
        Ok(model)
    } else {
        Err(Error::Transaction("the check found something"))
    }
}

#[test]
fn a_flipped_bit_is_told_or_does_not_matter() {
    for seed in seeds(2) {
        let _told = Seed("damage", seed);
        let mut random = Random::new(seed);
        let (file, model) = database(&mut random);
        let good = file.bytes();
        let mut told = 0;
        for page in 0..good.len() / PAGE_SIZE {
            file.set_bytes(&good);
            file.damage(
                page as u64,
                random.below(4096) as usize,
                1 << random.below(8),
            );
            match use_it(&file) {
                Ok(found) => assert_eq!(found, model, "page {page}: something else was read"),
                Err(_) => told += 1,
            }
        }
        assert!(told > 0);
    }
}

/// Changes some bytes of a page and makes its checksum right again.
fn forge(bytes: &mut [u8], page: usize, random: &mut Random) {
    let page = &mut bytes[page * PAGE_SIZE..(page + 1) * PAGE_SIZE];
    for _ in 0..1 + random.below(4) {
        let at = match random.below(3) {
            0 => 16 + random.below(112) as usize,
            1 => PAGE_SIZE - 1 - random.below(400) as usize,
            _ => 8 + random.below(4088) as usize,
        };
        page[at] = random.below(256) as u8;
    }
    if &page[..16] == MAGIC {
        let crc = crc32c::crc32c(&page[..PAGE_SIZE - 4]).to_le_bytes();
        page[PAGE_SIZE - 4..].copy_from_slice(&crc);
    } else {
        let crc = crc32c::crc32c(&page[4..]).to_le_bytes();
        page[..4].copy_from_slice(&crc);
    }
}

#[test]
fn forged_pages_do_no_harm() {
    let mut answered = 0;
    for seed in seeds(2) {
        let _told = Seed("forged", seed);
        let mut random = Random::new(seed);
        let (file, _) = database(&mut random);
        let good = file.bytes();
        for _ in 0..60 {
            let mut bytes = good.clone();
            let page = random.below((good.len() / PAGE_SIZE) as u64) as usize;
            forge(&mut bytes, page, &mut random);
            file.set_bytes(&bytes);
            // Any answer is right, but there must be one.
            answered += u64::from(use_it(&file).is_ok());
        }
    }
    println!("{answered} forgeries were not noticed");
}

#[test]
fn what_is_no_database_is_told() {
    let file = MemoryFile::new();
    let open = |bytes: &[u8]| {
        file.set_bytes(bytes);
        Db::open(file.storage(), Options::default()).err()
    };
    let mut sqlite = vec![7; 3 * PAGE_SIZE];
    sqlite[..16].copy_from_slice(b"SQLite format 3\0");
    assert!(matches!(open(&sqlite), Some(Error::NotADatabase)));
    assert_eq!(file.bytes(), sqlite, "it was changed");
    assert!(matches!(
        open(&vec![0xff; PAGE_SIZE]),
        Some(Error::NotADatabase)
    ));
    assert!(
        open(&vec![0; 3 * PAGE_SIZE]).is_none(),
        "as many zeros as making one may leave are an empty database"
    );
    // More begins an image of a disk, say.
    let mut image = vec![0; 5 * PAGE_SIZE];
    image[4 * PAGE_SIZE] = 1;
    assert!(matches!(open(&image), Some(Error::NotADatabase)));
    assert_eq!(file.bytes(), image, "it was changed");
    let mut newer = vec![0; 2 * PAGE_SIZE];
    newer[..16].copy_from_slice(MAGIC);
    newer[16] = 9;
    let crc = crc32c::crc32c(&newer[..PAGE_SIZE - 4]).to_le_bytes();
    newer[PAGE_SIZE - 4..PAGE_SIZE].copy_from_slice(&crc);
    assert!(matches!(
        open(&newer),
        Some(Error::NewerFormat { found: 9, .. })
    ));
}

#[test]
fn a_failed_flush_stops_everybody_until_all_have_closed() {
    let file = MemoryFile::new();
    let mut a = Db::open(file.storage(), options(Torn::Trust)).unwrap();
    let mut b = Db::open(file.storage(), options(Torn::Trust)).unwrap();
    a.begin_write().unwrap();
    let tree = a.create_tree(lsmvbt::TreeKind::Integer).unwrap();
    a.put_integer(tree, 1, b"one").unwrap();
    a.commit(Durability::Flush).unwrap();
    a.begin_write().unwrap();
    a.put_integer(tree, 2, b"two").unwrap();
    file.fail_syncs(true);
    assert!(matches!(a.commit(Durability::Flush), Err(Error::Io { .. })));
    file.fail_syncs(false);
    file.drop_page_cache(&mut |_| false);
    assert!(matches!(a.begin_write(), Err(Error::Poisoned)));
    assert!(matches!(b.begin_write(), Err(Error::Poisoned)));
    assert!(matches!(b.snapshot(), Err(Error::Poisoned)));
    drop((a, b));
    let mut c = Db::open(file.storage(), options(Torn::Trust)).unwrap();
    let view = c.snapshot().unwrap();
    assert_eq!(
        c.get_integer(view.version(), TreeId(1), 1)
            .unwrap()
            .as_deref(),
        Some(&b"one"[..])
    );
    assert_eq!(c.get_integer(view.version(), TreeId(1), 2).unwrap(), None);
}
