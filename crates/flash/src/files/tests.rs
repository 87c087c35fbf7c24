use std::collections::BTreeMap;

use super::*;
use crate::ftl::Config;
use crate::nand::timing::Timing;
use crate::nand::{Geometry, Nand};
use crate::random::Random;

fn ftl() -> Ftl {
    let geometry = Geometry {
        page_bytes: 512,
        pages_per_block: 16,
        ..Geometry::openssd(160).with_channels(2)
    };
    let mut config = Config::new(1000);
    config.table_capacity = 150;
    config.checkpoint_every = 300;
    Ftl::open(
        Nand::new(geometry, Timing::built_in("emmc").unwrap()).unwrap(),
        config,
    )
    .unwrap()
    .0
}

/// A power cut: everything that is not on flash is gone.
fn cut(files: Files) -> Files {
    let config = *files.ftl().config();
    let mut nand = files.into_ftl().into_nand();
    nand.power_off();
    nand.power_on();
    Files::mount(Ftl::open(nand, config).unwrap().0).unwrap()
}

fn content(files: &mut Files, name: &[u8]) -> Option<Vec<u8>> {
    let file = files.lookup(name).ok()?;
    let mut bytes = vec![0; files.size(file).unwrap() as usize];
    assert_eq!(files.read(file, 0, &mut bytes), Ok(bytes.len()));
    Some(bytes)
}

#[test]
fn what_was_synced_is_there_after_a_cut_and_nothing_else_is() {
    let mut files = Files::format(ftl()).unwrap();
    let file = files.create(b"a").unwrap();
    files.write(file, 700, b"hello").unwrap();
    files.commit(file).unwrap();
    files.write(file, 0, &[1; 3000]).unwrap();
    assert_eq!(files.size(file), Ok(3000));
    let mut files = cut(files);
    let mut expected = vec![0; 700];
    expected.extend(b"hello");
    assert_eq!(content(&mut files, b"a"), Some(expected));
    assert_eq!(content(&mut files, b"b"), None);
}

#[test]
fn an_abort_takes_back_data_and_size() {
    let mut files = Files::format(ftl()).unwrap();
    let file = files.create(b"a").unwrap();
    files.write(file, 0, &[7; 4000]).unwrap();
    files.commit(file).unwrap();
    let free = files.space().1;
    files.truncate(file, 10).unwrap();
    files.write(file, 9_000, &[8; 9000]).unwrap();
    assert_ne!(content(&mut files, b"a"), Some(vec![7; 4000]));
    files.abort(file).unwrap();
    assert_eq!(content(&mut files, b"a"), Some(vec![7; 4000]));
    assert_eq!(files.space().1, free);
    files.truncate(file, 10).unwrap();
    files.truncate(file, 4000).unwrap();
    files.commit(file).unwrap();
    let mut shorter = vec![7; 10];
    shorter.resize(4000, 0);
    assert_eq!(content(&mut cut(files), b"a"), Some(shorter));
}

#[test]
fn files_that_share_a_transaction_are_committed_and_aborted_together() {
    let mut files = Files::format(ftl()).unwrap();
    let (a, b) = (files.create(b"a").unwrap(), files.create(b"b").unwrap());
    let write = |files: &mut Files, byte| {
        files.write(a, 0, &[byte; 2000]).unwrap();
        files.write(b, 0, &[byte; 2000]).unwrap();
        files.share(a, b).unwrap();
    };
    write(&mut files, 1);
    files.commit(a).unwrap();
    assert!(!files.is_changed(b));
    write(&mut files, 2);
    files.abort(b).unwrap();
    assert!(!files.is_changed(a));
    let mut files = cut(files);
    for name in [b"a", b"b"] {
        assert_eq!(content(&mut files, name), Some(vec![1; 2000]));
    }
}

#[test]
fn names_are_durable_at_once_and_rename_replaces() {
    let mut files = Files::format(ftl()).unwrap();
    let (a, b) = (files.create(b"a").unwrap(), files.create(b"b").unwrap());
    files.write(a, 0, b"one").unwrap();
    files.commit(a).unwrap();
    files.write(b, 0, b"two").unwrap();
    files.commit(b).unwrap();
    assert_eq!(files.create(b"a"), Err(FilesError::Exists));
    files.rename(a, b"b").unwrap();
    let mut files = cut(files);
    assert_eq!(files.list().count(), 1);
    assert_eq!(content(&mut files, b"b"), Some(b"one".to_vec()));
    let b = files.lookup(b"b").unwrap();
    let free = files.space().1;
    files.remove(b).unwrap();
    assert!(files.space().1 > free);
    assert_eq!(cut(files).list().count(), 0);
}

#[test]
fn a_full_device_refuses_and_keeps_what_there_was() {
    let mut files = Files::format(ftl()).unwrap();
    let file = files.create(b"a").unwrap();
    files.write(file, 0, &[1; 5000]).unwrap();
    files.commit(file).unwrap();
    // More pages than the X-L2P table has entries.
    files.write(file, 0, &[2; 88_000]).unwrap();
    assert_eq!(files.commit(file), Err(FilesError::NoSpace));
    files.abort(file).unwrap();
    assert_eq!(content(&mut files, b"a"), Some(vec![1; 5000]));
    // More chunks than there are.
    assert_eq!(files.write(file, 10 << 30, b"x"), Err(FilesError::NoSpace));
    files.abort(file).unwrap();
    let mut number = 0;
    let full = loop {
        number += 1;
        match files.create(format!("{number}").as_bytes()) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(full, FilesError::NoSpace);
    assert_eq!(content(&mut cut(files), b"a"), Some(vec![1; 5000]));
}

/// Files against a map of names, under cuts in the middle of the device's operations.
#[test]
fn files_are_a_map_of_names_under_power_cuts() {
    let seed = std::env::var("ONEWRITE_FLASH_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(5);
    println!("ONEWRITE_FLASH_SEED={seed}");
    let mut random = Random::new(seed);
    let mut files = Files::format(ftl()).unwrap();
    // Content as committed, and as it is now.
    let mut model: BTreeMap<Vec<u8>, (Vec<u8>, Vec<u8>)> = BTreeMap::new();
    let mut cuts = 0;
    for step in 0..6_000 {
        let name = vec![b'a' + random.below(5) as u8];
        let known = files.lookup(&name).ok();
        assert_eq!(known.is_some(), model.contains_key(&name), "step {step}");
        let cut_here = random.percent(4);
        if cut_here {
            files.ftl_mut().nand_mut().faults.power_off_after = Some(random.below(12) as u64);
        }
        // What the file would be if this is done, and if the power goes in it.
        let (done, mut could_be): (Result<(), FilesError>, Vec<Option<Vec<u8>>>) =
            match (known, random.below(20)) {
                (None, _) => {
                    let done = files.create(&name).map(drop);
                    if done.is_ok() {
                        model.insert(name.clone(), Default::default());
                    }
                    (done, vec![None, Some(Vec::new())])
                }
                (Some(file), 0..10) => {
                    let (at, length) = (random.below(9_000), 1 + random.below(3_000));
                    let (_, now) = model.get_mut(&name).unwrap();
                    let byte = random.next() as u8;
                    now.resize(now.len().max(at + length), 0);
                    now[at..at + length].fill(byte);
                    (
                        files.write(file, at as u64, &vec![byte; length]),
                        Vec::new(),
                    )
                }
                (Some(file), 10) => {
                    let bytes = random.below(9_000);
                    model.get_mut(&name).unwrap().1.resize(bytes, 0);
                    (files.truncate(file, bytes as u64), Vec::new())
                }
                (Some(file), 11) => {
                    let (committed, now) = model.get_mut(&name).unwrap();
                    now.clone_from(committed);
                    (files.abort(file), Vec::new())
                }
                (Some(file), 12) => {
                    let committed = model[&name].0.clone();
                    let done = files.remove(file);
                    if done.is_ok() {
                        model.remove(&name);
                    }
                    (done, vec![Some(committed), None])
                }
                (Some(file), _) => {
                    let done = files.commit(file);
                    let (committed, now) = model.get_mut(&name).unwrap();
                    let could_be = vec![Some(committed.clone()), Some(now.clone())];
                    if done.is_ok() {
                        committed.clone_from(now);
                    }
                    (done, could_be)
                }
            };
        match &done {
            Ok(()) => {}
            Err(FilesError::Device(error)) if error.is_power_off() => {}
            Err(error) => panic!("step {step}: {error}"),
        }
        if done.is_ok() && !cut_here {
            if let Some((_, now)) = model.get(&name) {
                assert_eq!(
                    content(&mut files, &name).as_ref(),
                    Some(now),
                    "step {step}"
                );
            }
            continue;
        }
        files = cut(files);
        cuts += 1;
        if done.is_ok() || could_be.is_empty() {
            could_be = vec![model.get(&name).map(|(committed, _)| committed.clone())];
        }
        let found = content(&mut files, &name);
        assert!(could_be.contains(&found), "step {step}: {:?}", done);
        match found {
            Some(found) => model.insert(name, (found.clone(), found)),
            None => model.remove(&name),
        };
        for (name, (committed, now)) in &mut model {
            assert_eq!(
                content(&mut files, name).as_ref(),
                Some(&*committed),
                "step {step}"
            );
            now.clone_from(committed);
        }
    }
    assert!(cuts > 100, "{cuts}");
}
