//! Crash images against a model. For every sector the model keeps the list of its possible
//! contents.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const SECTORS: u64 = 40;

#[derive(Clone, Debug)]
enum Step {
    Write {
        sector: u64,
        sectors: u64,
    },
    Zero {
        sector: u64,
        sectors: u64,
    },
    Flush,
    /// A write-through write: a write and a flush that stands for FUA.
    Fua {
        sector: u64,
        sectors: u64,
    },
    Mark,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range = || (0..SECTORS - 12, 1..12u64);
    let step = prop_oneof![
        6 => range().prop_map(|(sector, sectors)| Step::Write { sector, sectors }),
        1 => range().prop_map(|(sector, sectors)| Step::Zero { sector, sectors }),
        1 => Just(Step::Flush),
        2 => range().prop_map(|(sector, sectors)| Step::Fua { sector, sectors }),
        1 => Just(Step::Mark),
    ];
    prop::collection::vec(step, 1..40)
}

/// Sector `s` as event `tag` wrote it.
fn content(tag: u8, sectors: u64) -> Vec<u8> {
    vec![tag; (sectors * SECTOR) as usize]
}

/// Plays the steps: the history, and for each sector its possible contents at the end, the durable
/// one first.
fn play(steps: &[Step]) -> (History, Vec<Vec<u8>>) {
    let mut history = History::default();
    let mut may = vec![vec![0u8]; SECTORS as usize];
    for (step, tag) in steps.iter().zip(1u8..) {
        let from = history.end();
        match step {
            Step::Write { sector, sectors } | Step::Fua { sector, sectors } => {
                let data = content(tag, *sectors).into();
                let offset = sector * SECTOR;
                history.push(Event::Write { offset, data }, 0);
                for held in &mut may[*sector as usize..(sector + sectors) as usize] {
                    held.push(tag);
                }
            }
            Step::Zero { sector, sectors } => {
                let (offset, bytes) = (sector * SECTOR, sectors * SECTOR);
                history.push(Event::Zero { offset, bytes }, 0);
                for held in &mut may[*sector as usize..(sector + sectors) as usize] {
                    held.push(0);
                }
            }
            Step::Mark => history.push(Event::Mark(7), 0),
            Step::Flush => {
                history.push(Event::Flush(Covers::Everything), 0);
                may.iter_mut()
                    .for_each(|held| drop(held.drain(..held.len() - 1)));
            }
        }
        if let Step::Fua { sector, sectors } = step {
            history.push(Event::Flush(Covers::Everything), 0);
            assert!(history.assume_fua(history.end().0 - 1, from));
            for held in &mut may[*sector as usize..(sector + sectors) as usize] {
                held.drain(..held.len() - 1);
            }
        }
    }
    (history, may)
}

fn sectors_of(image: &Image) -> Vec<u8> {
    (0..SECTORS)
        .map(|sector| {
            let mut bytes = [0; SECTOR as usize];
            image.read(sector * SECTOR, &mut bytes);
            assert!(
                bytes.iter().all(|byte| *byte == bytes[0]),
                "sector {sector} is torn"
            );
            bytes[0]
        })
        .collect()
}

proptest! {
    #[test]
    fn a_sector_holds_its_durable_content_or_a_later_write(steps in steps(), seed: u64) {
        let (history, may) = play(&steps);
        let mut cutter = Cutter::new(Image::new(SECTORS * SECTOR), &history);
        cutter.advance(history.end());
        for part in 0..16 {
            let crash = cutter.crash(seed ^ part, Tear::Sectors);
            for (sector, (held, may)) in sectors_of(&crash.image).iter().zip(&may).enumerate() {
                prop_assert!(may.contains(held), "sector {} holds {}, may {:?}", sector, held, may);
            }
        }
    }

    #[test]
    fn in_order_is_the_state_after_some_write(steps in steps(), seed: u64) {
        let steps: Vec<_> = steps.into_iter().filter(|s| !matches!(s, Step::Fua { .. })).collect();
        let (history, _) = play(&steps);
        let base = Image::new(SECTORS * SECTOR);
        let mut states = Vec::new();
        for end in 0..=history.end().0 {
            let mut everything = history.clone();
            everything.push(Event::Flush(Covers::Everything), 0);
            let mut cutter = Cutter::new(base.clone(), &history);
            cutter.advance(Position(end));
            cutter.flush_everything();
            states.push(sectors_of(&cutter.durable));
        }
        let mut cutter = Cutter::new(base, &history);
        cutter.advance(history.end());
        let crash = cutter.crash(seed, Tear::InOrder);
        prop_assert!(states.contains(&sectors_of(&crash.image)));
        prop_assert_eq!(crash.torn, 0);
    }

    #[test]
    fn the_same_seed_cuts_the_same_way(steps in steps(), seed: u64) {
        let (history, _) = play(&steps);
        let cut = || {
            let mut cutter = Cutter::new(Image::new(SECTORS * SECTOR), &history);
            cutter.advance(history.end());
            let crash = cutter.crash(seed, Tear::Sectors);
            (sectors_of(&crash.image), crash.fingerprint)
        };
        prop_assert_eq!(cut(), cut());
    }
}

fn one_write(sectors: u64) -> History {
    let mut history = History::default();
    let data = content(1, sectors).into();
    history.push(Event::Write { offset: 0, data }, 0);
    history
}

fn outcomes(history: &History, tear: Tear) -> BTreeSet<Vec<u8>> {
    let mut cutter = Cutter::new(Image::new(SECTORS * SECTOR), history);
    cutter.advance(history.end());
    (0..2000)
        .map(|seed| sectors_of(&cutter.crash(seed, tear).image))
        .collect()
}

#[test]
fn blocks_of_4_kib_are_never_torn_and_sectors_are() {
    let history = one_write(16);
    let whole_blocks = |outcome: &Vec<u8>| {
        [&outcome[..8], &outcome[8..16]]
            .iter()
            .all(|block| block.iter().all(|sector| *sector == block[0]))
    };
    let blocks = outcomes(&history, Tear::Blocks);
    assert!(blocks.iter().all(whole_blocks));
    assert_eq!(blocks.len(), 4);
    assert!(!outcomes(&history, Tear::Sectors).iter().all(whole_blocks));
}

#[test]
fn two_writes_of_one_sector_may_arrive_in_either_order() {
    let mut history = one_write(1);
    let data = content(2, 1).into();
    history.push(Event::Write { offset: 0, data }, 0);
    let first: BTreeSet<u8> = outcomes(&history, Tear::Sectors)
        .iter()
        .map(|outcome| outcome[0])
        .collect();
    assert_eq!(first, BTreeSet::from([0, 1, 2]));
}

#[test]
fn a_fua_write_leaves_what_was_written_before_it_in_the_cache() {
    let mut history = one_write(1);
    let from = history.end();
    let data = content(2, 1).into();
    let offset = SECTOR;
    history.push(Event::Write { offset, data }, 0);
    history.push(Event::Flush(Covers::Everything), 0);
    assert!(history.assume_fua(history.end().0 - 1, from));
    let found: BTreeSet<_> = outcomes(&history, Tear::Sectors)
        .iter()
        .map(|outcome| (outcome[0], outcome[1]))
        .collect();
    assert_eq!(found, BTreeSet::from([(0, 2), (1, 2)]));
}

#[test]
fn only_a_flush_can_stand_for_fua() {
    let mut history = one_write(1);
    assert!(!history.assume_fua(0, Position(0)));
    assert!(!history.assume_fua(1, Position(0)));
}

#[test]
fn a_range_that_is_never_torn_is_written_whole_or_not_at_all() {
    let history = one_write(16);
    let range = 2 * SECTOR..5 * SECTOR;
    let ranges = std::slice::from_ref(&range);
    let mut cutter = Cutter::new(Image::new(SECTORS * SECTOR), &history).never_torn(ranges);
    cutter.advance(history.end());
    let outcomes: BTreeSet<_> = (0..2000)
        .map(|seed| sectors_of(&cutter.crash(seed, Tear::Sectors).image))
        .collect();
    assert!(outcomes.iter().all(|o| o[2] == o[3] && o[3] == o[4]));
    assert!(outcomes.iter().any(|o| o[1] != o[2]) && outcomes.iter().any(|o| o[4] != o[5]));
}
