//! Random pages, edits and torn writes against [`super::change`] and [`super::place`].

use onewrite_common::random::SplitMix64;

use super::cell;
use super::change::{Cleared, change_of, late_node};
use super::node::{Ended, Entry, INF, Node};
use super::{CAPACITY, Image, PageType, Stamp, verify};
use crate::types::{PAGE_SIZE, PageNo, TreeKind};

const SALT: u64 = 99;
const PAGE: PageNo = PageNo(77);

struct Dice(SplitMix64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0.next() % n.max(1)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// A row of this kind of tree: its entry and the bytes in its cell.
fn row(dice: &mut Dice, kind: TreeKind, key: i64, start: u64, most: u64) -> (Entry, Vec<u8>) {
    let is_row = kind == TreeKind::Integer;
    let total = match dice.below(100) {
        0..6 => 1300 + dice.below(6000),
        6..50 => dice.below(24),
        _ => dice.below(most),
    };
    let local = cell::local_len(total as usize, is_row);
    let fill = dice.below(256) as u8;
    let zeros = dice.chance(20);
    let bytes: Vec<u8> = (0..local)
        .map(|i| match (zeros, i % 97) {
            (true, _) => 0,
            (false, 0) => dice.below(256) as u8,
            _ => fill,
        })
        .collect();
    let entry = Entry {
        start,
        end: INF,
        key: if is_row { key } else { 0 },
        total: total as u32,
        key_len: match kind {
            TreeKind::Integer => 0,
            TreeKind::Bytes => dice.below(total + 1) as u32,
            TreeKind::Custom => total as u32,
        },
        overflow: if local < total as usize {
            5000 + dice.below(9) as u32
        } else {
            0
        },
        ..Entry::default()
    };
    (entry, bytes)
}

/// Random changes of a leaf in this version.
fn edit(dice: &mut Dice, node: &mut Node, version: u64, most: u64) {
    let kind = node.tree_kind.unwrap();
    for _ in 0..1 + dice.below(5) {
        let len = node.len() as u64;
        let at = dice.below(len + 1) as usize;
        let is_live = at < node.len() && node.entries()[at].live();
        let ended = match dice.below(3) {
            0 => Ended::Moved,
            1 => Ended::Replaced,
            _ => Ended::Killed,
        };
        if is_live && dice.chance(60) {
            let e = node.entries()[at];
            match e.start < version {
                true if node.size() + 12 <= CAPACITY => node.end(at, version, ended),
                true => {}
                false => {
                    node.remove(at);
                }
            }
        }
        if dice.chance(75) {
            let bits = dice.below(50);
            let key = dice.below(1 << bits) as i64 - 9;
            let (e, bytes) = row(dice, kind, key, version, most);
            let cost = 2 + 24 + bytes.len();
            // One of a version and row is there once.
            let is_new = node.entries().iter().all(|o| {
                (o.start, o.key, o.total) != (e.start, e.key, e.total) || node.local(o) != bytes
            });
            if is_new && node.size() + cost <= CAPACITY {
                let at = (at + dice.below(2) as usize).min(node.len());
                node.insert(at, e, &bytes);
            }
        }
    }
    if dice.chance(20) {
        // Collected.
        let oldest = version - 1 - dice.below(3);
        node.sift(|e| e.live() || e.overflow != 0 || e.end > oldest);
    }
}

fn visible(node: &Node, view: u64) -> Vec<(i64, u32, u32, u32, u64, Vec<u8>)> {
    let seen = node.entries().iter().filter(|e| e.visible(view));
    seen.map(|e| {
        (
            e.key,
            e.total,
            e.key_len,
            e.overflow,
            e.start,
            node.local(e).to_vec(),
        )
    })
    .collect()
}

/// Some bytes of the new image, and the rest of the old one.
fn mix(dice: &mut Dice, old: &Image, new: &Image) -> Box<Image> {
    let mut image = Box::new(*old);
    let unit = [1, 8, 64, 512, 512, 512, 1024][dice.below(7) as usize];
    let percent = dice.below(101);
    for at in (0..PAGE_SIZE).step_by(unit) {
        if dice.chance(percent) {
            image[at..at + unit].copy_from_slice(&new[at..at + unit]);
        }
    }
    image
}

fn bytes_of(cleared: &Cleared) -> Box<Image> {
    let stamp = Stamp {
        ver: 1,
        from: 0,
        durable: 0,
    };
    cleared.stamped(stamp).unwrap()
}

fn random_change(dice: &mut Dice, len: usize) -> Vec<u8> {
    (0..len).map(|_| dice.below(256) as u8).collect()
}

/// The change in an image, of exactly as many bytes as it has room for, or fewer.
fn carried(dice: &mut Dice, image: &Cleared, stamp: Stamp, seen: &mut [u64; 4]) -> Box<Image> {
    let room = image.room();
    let len = match dice.below(4) {
        0 => room,
        1 => room.saturating_sub(dice.below(3) as usize),
        2 => dice.below(room as u64 + 1) as usize,
        _ => 9.min(room),
    };
    let mut made = image.stamped(stamp).unwrap();
    if len < 9 {
        image.carry(&mut made, None);
        assert_eq!(change_of(&made), None);
        return made;
    }
    seen[0] += u64::from(len == room);
    let change = random_change(dice, len);
    image.carry(&mut made, Some(&change));
    verify(&made, PAGE, SALT).unwrap();
    assert_eq!(change_of(&made).as_ref(), Some(&change), "{room} {len}");
    made
}

fn garbage(dice: &mut Dice, change: &[u8], in_place: &Image, next: &Cleared) {
    let mut bad = change.to_vec();
    match dice.below(4) {
        0 => bad.truncate(dice.below(bad.len() as u64) as usize),
        1 => bad = random_change(dice, bad.len()),
        _ => {
            for _ in 0..1 + dice.below(3) {
                let at = dice.below(bad.len() as u64) as usize;
                bad[at] = dice.below(256) as u8;
            }
        }
    }
    if bad.len() >= 8
        && let Some(made) = Cleared::by(&bad, in_place).unwrap()
    {
        assert_eq!(bytes_of(&made), bytes_of(next), "garbage was accepted");
    }
    // In an image.
    let mut image = bytes_of(next);
    for _ in 0..dice.below(40) {
        image[16 + dice.below(400) as usize] = dice.below(256) as u8;
    }
    image[18] |= 3;
    let _ = change_of(&image);
    let _ = super::change::late_page_of(&image);
    let _ = Node::decode(&image, PAGE, SALT);
    let _ = Cleared::by(change, &image).unwrap().map(|made| {
        assert_eq!(bytes_of(&made), bytes_of(next));
    });
}

/// Both have the same entries for a reader of this version, of the one before, and of the oldest that is read.
fn assert_same_views(late: &Node, node: &Node, reader: Option<u64>) {
    let version = late.ver;
    let views = [Some(version), Some(version + 1), Some(version - 1), reader];
    for view in views.into_iter().flatten() {
        assert_eq!(visible(late, view), visible(node, view), "{view}");
    }
}

#[test]
fn a_change_makes_the_next_image_of_any_mixture() {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse().ok());
    let first: u64 = number("LSMVBT_FIRST").unwrap_or(0);
    let seeds = 200 * number("LSMVBT_SCALE").unwrap_or(1);
    let mut seen = [0u64; 4];
    for seed in first..first + seeds {
        let mut dice = Dice(SplitMix64::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let kind = [TreeKind::Integer, TreeKind::Bytes, TreeKind::Custom][dice.below(3) as usize];
        let bits = dice.below(40);
        let birth = 1 + dice.below(1 << bits);
        let mut version = birth + dice.below(300);
        let mut node = Node::new(PAGE, PageType::Leaf, Some(kind), 3, 0, birth);
        let most = [30, 200, 700, 1300][dice.below(4) as usize];
        while node.size() < dice.below(CAPACITY as u64) as usize {
            edit(&mut dice, &mut node, version, most);
            version += 1;
        }
        let stamp = |ver: u64| Stamp {
            ver,
            from: ver - 1,
            durable: ver - 1,
        };
        let mut in_place = match dice.chance(50) {
            true => node.encode(SALT, stamp(version)).unwrap(),
            false => node.encode_tight(SALT, stamp(version)).unwrap(),
        };
        for _ in 0..12 {
            let before = Node::decode(&in_place, PAGE, SALT).unwrap();
            let mut node = before.clone();
            version += 1 + dice.below(3) * dice.below(200);
            edit(&mut dice, &mut node, version, most);
            let reader = dice
                .chance(40)
                .then(|| version - 1 - dice.below(4).min(version - 2));
            let keeps = |e: &Entry| {
                e.live() || e.overflow != 0 || reader.is_some_and(|r| e.start <= r && r < e.end)
            };
            let Some(next) = node.next_image(&before, &in_place, keeps).unwrap() else {
                seen[1] += 1;
                in_place = node.encode(SALT, stamp(version)).unwrap();
                continue;
            };
            let Some(change) = next.change_from(&in_place) else {
                panic!("no change");
            };
            seen[2] += 1;
            let same = Cleared::by(&change, &in_place)
                .unwrap()
                .expect("the change fits");
            assert_eq!(bytes_of(&same), bytes_of(&next), "{seed}");
            let at_home = Node::decode(&bytes_of_version(&next, version), PAGE, SALT).unwrap();
            let late = late_node(&before, &at_home);
            assert!(late.fits() && late.ver == version, "{seed}");
            assert_same_views(&late, &node, reader);
            late.encode(SALT, stamp(version)).unwrap();
            let written = carried(&mut dice, &next, stamp(version + 1), &mut seen);
            for _ in 0..12 {
                let torn = mix(&mut dice, &in_place, &written);
                let made = Cleared::by(&change, &torn).unwrap().expect("repaired");
                assert_eq!(bytes_of(&made), bytes_of(&next), "{seed}");
                // As it is carried on by another handle.
                let again = carried(&mut dice, &made, stamp(version + 1), &mut seen);
                let third = mix(&mut dice, &torn, &again);
                let made = Cleared::by(&change, &third)
                    .unwrap()
                    .expect("repaired twice");
                assert_eq!(bytes_of(&made), bytes_of(&next), "{seed}");
                garbage(&mut dice, &change, &torn, &next);
            }
            version += 1;
            in_place = written;
        }
    }
    println!("{seen:?}");
    assert!(seen[0] > 50 && seen[2] > seen[1], "{seen:?}");
}

fn bytes_of_version(cleared: &Cleared, ver: u64) -> Box<Image> {
    let durable = ver - 1;
    cleared
        .stamped(Stamp {
            ver,
            from: ver,
            durable,
        })
        .unwrap()
}
