use std::collections::BTreeMap;

use super::*;
use crate::ftl::Config;
use crate::nand::timing::Timing;
use crate::nand::{Geometry, Nand};
use crate::random::Random;

pub(super) fn ftl() -> Ftl {
    let mut config = Config::new(1000);
    config.table_capacity = 150;
    ftl_of(Geometry::openssd(160), config, 512)
}

pub(super) fn ftl_of(geometry: Geometry, mut config: Config, page_bytes: u32) -> Ftl {
    let geometry = Geometry {
        page_bytes,
        pages_per_block: 16,
        ..geometry.with_channels(2, 1)
    };
    config.checkpoint_every = 300;
    Ftl::open(
        Nand::new(geometry, Timing::built_in("emmc").unwrap()).unwrap(),
        config,
    )
    .unwrap()
    .0
}

/// A power cut: everything that is not on flash is gone.
pub(super) fn cut(files: Files) -> Files {
    let config = *files.ftl().config();
    let mut nand = files.into_ftl().into_nand();
    nand.power_off();
    nand.power_on();
    Files::mount(Ftl::open(nand, config).unwrap().0).unwrap()
}

pub(super) fn content(files: &mut Files, name: &[u8]) -> Option<Vec<u8>> {
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

#[test]
fn what_was_written_lazily_is_seen_and_costs_no_page() {
    let mut files = Files::format(ftl()).unwrap();
    let (a, b) = (files.create(b"a").unwrap(), files.create(b"b").unwrap());
    files.write(a, 0, &[1; 600]).unwrap();
    files.commit(a).unwrap();
    let programs = files.ftl().nand().operations().programs;
    files.write_lazily(a, 24, &[2; 4]).unwrap();
    files.share(a, b).unwrap();
    files.commit(b).unwrap();
    assert_eq!(files.ftl().nand().operations().programs, programs);
    let expected = |byte| {
        let mut page = vec![1; 600];
        page[24..28].fill(byte);
        page
    };
    assert_eq!(content(&mut files, b"a"), Some(expected(2)));
    files.write_lazily(a, 24, &[3; 4]).unwrap();
    assert_eq!(content(&mut files, b"a"), Some(expected(3)));
    files.abort(a).unwrap();
    assert_eq!(content(&mut files, b"a"), Some(expected(2)));
    let mut files = cut(files);
    assert_eq!(content(&mut files, b"a"), Some(expected(1)));
    // If the page is written after all, or the file system is unmounted, the bytes are on the
    // device.
    files.write_lazily(a, 24, &[4; 4]).unwrap();
    files.commit(a).unwrap();
    files.write(a, 599, &[1]).unwrap();
    files.write(a, 0, &[1]).unwrap();
    files.commit(a).unwrap();
    let mut files = cut(files);
    assert_eq!(content(&mut files, b"a"), Some(expected(4)));
    files.write_lazily(a, 24, &[5; 4]).unwrap();
    files.commit(a).unwrap();
    files.settle().unwrap();
    assert_eq!(content(&mut cut(files), b"a"), Some(expected(5)));
}

#[test]
fn lazy_writes_can_be_switched_off() {
    let mut files = Files::format(ftl()).unwrap();
    let file = files.create(b"a").unwrap();
    files.write(file, 0, &[1; 600]).unwrap();
    files.commit(file).unwrap();
    files.write_lazy(LazyWrites::Refused);
    let refused = files.write_lazily(file, 24, &[2; 4]);
    assert_eq!(refused, Err(FilesError::Refused));
    assert_eq!(content(&mut files, b"a"), Some(vec![1; 600]));
}

#[test]
fn lazily_written_bytes_take_a_bounded_number_of_pages_in_memory() {
    let mut files = Files::format(ftl()).unwrap();
    let file = files.create(b"a").unwrap();
    let pages = LAZY_PAGES as u64 + 10;
    files
        .write(file, 0, &vec![1; pages as usize * 512])
        .unwrap();
    files.commit(file).unwrap();
    for page in 0..pages {
        files.write_lazily(file, page * 512, &[2]).unwrap();
        files.commit(file).unwrap();
    }
    assert_eq!(files.lazy.len(), LAZY_PAGES);
    let now = content(&mut files, b"a").unwrap();
    assert!(now.iter().step_by(512).all(|byte| *byte == 2));
    let after = content(&mut cut(files), b"a").unwrap();
    assert_eq!(
        after.iter().step_by(512).filter(|byte| **byte == 2).count(),
        10
    );
}

/// The state of a file in the model.
#[derive(Clone, Default)]
struct Known {
    committed: Vec<u8>,
    now: Vec<u8>,
    /// The lazily written bytes, as on the device.
    on_device: [u8; LAZY_BYTES],
    /// Their page is written by the transaction.
    is_written: bool,
}

/// At a file's beginning.
const LAZY_BYTES: usize = 16;

impl Known {
    fn of(content: Vec<u8>) -> Self {
        let mut known = Self {
            now: content.clone(),
            committed: content,
            ..Self::default()
        };
        known.on_device = known.head();
        known
    }

    fn head(&self) -> [u8; LAZY_BYTES] {
        let mut head = [0; LAZY_BYTES];
        let bytes = self.now.len().min(LAZY_BYTES);
        head[..bytes].copy_from_slice(&self.now[..bytes]);
        head
    }

    /// The content after a power cut, if `now` is committed.
    fn if_committed(&self) -> Vec<u8> {
        let on_device = if self.is_written {
            self.head()
        } else {
            self.on_device
        };
        Self::with_head(&self.now, &on_device)
    }

    fn with_head(content: &[u8], head: &[u8]) -> Vec<u8> {
        let mut content = content.to_vec();
        let bytes = content.len().min(LAZY_BYTES);
        content[..bytes].copy_from_slice(&head[..bytes]);
        content
    }

    fn after_cut(&self) -> Vec<u8> {
        Self::with_head(&self.committed, &self.on_device)
    }

    fn commit(&mut self) {
        if std::mem::take(&mut self.is_written) {
            self.on_device = self.head();
        }
        self.committed.clone_from(&self.now);
    }

    fn abort(&mut self) {
        self.is_written = false;
        self.now.clone_from(&self.committed);
    }

    fn resize(&mut self, bytes: usize) {
        self.is_written |= bytes < 512 && bytes < self.now.len();
        self.now.resize(bytes, 0);
    }

    fn fill(&mut self, at: usize, length: usize, byte: u8) {
        self.is_written |= at < 512;
        self.now.resize(self.now.len().max(at + length), 0);
        self.now[at..at + length].fill(byte);
    }
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
    let mut model: BTreeMap<Vec<u8>, Known> = BTreeMap::new();
    let mut cuts = 0;
    for step in 0..6_000 {
        let name = vec![b'a' + random.below(5) as u8];
        let known = files.lookup(&name).ok();
        assert_eq!(known.is_some(), model.contains_key(&name), "step {step}");
        let cut_here = random.percent(4);
        if cut_here {
            files.ftl_mut().nand_mut().faults.power_off_after = Some(random.below(12) as u64);
        }
        // The file's content if this is done, and its possible contents if the power goes during
        // it.
        let (done, mut could_be): (Result<(), FilesError>, Vec<Option<Vec<u8>>>) =
            match (known, random.below(22)) {
                (None, _) => {
                    let done = files.create(&name).map(drop);
                    if done.is_ok() {
                        model.insert(name.clone(), Default::default());
                    }
                    (done, vec![None, Some(Vec::new())])
                }
                (Some(file), 0..10) => {
                    let (at, length) = (random.below(9_000), 1 + random.below(3_000));
                    let byte = random.next() as u8;
                    model.get_mut(&name).unwrap().fill(at, length, byte);
                    (
                        files.write(file, at as u64, &vec![byte; length]),
                        Vec::new(),
                    )
                }
                (Some(file), 10) => {
                    let bytes = random.below(9_000);
                    model.get_mut(&name).unwrap().resize(bytes);
                    (files.truncate(file, bytes as u64), Vec::new())
                }
                (Some(file), 11) => {
                    model.get_mut(&name).unwrap().abort();
                    (files.abort(file), Vec::new())
                }
                (Some(file), 12) => {
                    let before = model[&name].after_cut();
                    let done = files.remove(file);
                    if done.is_ok() {
                        model.remove(&name);
                    }
                    (done, vec![Some(before), None])
                }
                (Some(file), 13..16) => {
                    let byte = random.next() as u8;
                    let known = model.get_mut(&name).unwrap();
                    // If there is no such page, the call makes it.
                    let is_there = files.place(file, 0).unwrap().is_some();
                    let was_written = known.is_written;
                    let is_lazy = is_there && known.now.len() >= LAZY_BYTES;
                    known.fill(0, LAZY_BYTES, byte);
                    known.is_written = was_written || !is_lazy;
                    let done = files.write_lazily(file, 0, &[byte; LAZY_BYTES]);
                    (done, Vec::new())
                }
                (Some(file), _) => {
                    let done = files.commit(file);
                    let known = model.get_mut(&name).unwrap();
                    let could_be = vec![Some(known.after_cut()), Some(known.if_committed())];
                    if done.is_ok() {
                        known.commit();
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
            if let Some(known) = model.get(&name) {
                assert_eq!(
                    content(&mut files, &name).as_ref(),
                    Some(&known.now),
                    "step {step}"
                );
            }
            continue;
        }
        files = cut(files);
        cuts += 1;
        if done.is_ok() || could_be.is_empty() {
            could_be = vec![model.get(&name).map(Known::after_cut)];
        }
        let found = content(&mut files, &name);
        assert!(could_be.contains(&found), "step {step}: {:?}", done);
        match found {
            Some(found) => model.insert(name, Known::of(found)),
            None => model.remove(&name),
        };
        for (name, known) in &mut model {
            let expected = known.after_cut();
            assert_eq!(
                content(&mut files, name).as_ref(),
                Some(&expected),
                "step {step}"
            );
            *known = Known::of(expected);
        }
    }
    assert!(cuts > 100, "{cuts}");
}
