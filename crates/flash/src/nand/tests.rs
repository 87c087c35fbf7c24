use super::*;

fn geometry() -> Geometry {
    Geometry {
        page_bytes: 16,
        pages_per_block: 4,
        blocks_per_plane: 2,
        planes_per_die: 1,
        dies_per_channel: 1,
        channels: 2,
    }
}

fn nand() -> Nand {
    let mut timing = Timing::built_in("openssd").unwrap();
    timing.endurance = 5;
    Nand::new(geometry(), timing).unwrap()
}

fn data(byte: u8) -> Arc<[u8]> {
    vec![byte; 16].into()
}

const OOB: OobBytes = [7; OOB_BYTES];

#[test]
fn what_was_programmed_is_read_and_what_was_erased_is_gone() {
    let mut nand = nand();
    assert_eq!(nand.read(Ppn(0)), Ok(Page::Erased));
    nand.program(Ppn(0), data(1), OOB).unwrap();
    let page = Page::Programmed {
        data: data(1),
        oob: OOB,
    };
    assert_eq!(nand.read(Ppn(0)), Ok(page));
    assert_eq!(nand.read_oob(Ppn(0)), Ok(Some(OOB)));
    assert_eq!(nand.read_oob(Ppn(1)), Ok(None));
    nand.erase(BlockNo(0)).unwrap();
    assert_eq!(nand.read(Ppn(0)), Ok(Page::Erased));
    assert_eq!((nand.wear(BlockNo(0)), nand.wear(BlockNo(1))), (1, 0));
}

#[test]
fn a_broken_rule_is_an_error_and_changes_nothing() {
    let mut nand = nand();
    let refused = |rule| Err(NandError::Rule(rule));
    nand.program(Ppn(0), data(1), OOB).unwrap();
    let before = nand.blocks[0].page(0).clone();
    assert_eq!(
        nand.program(Ppn(0), data(2), OOB),
        refused(Rule::ProgramWithoutErase(Ppn(0)))
    );
    assert_eq!(
        nand.program(Ppn(2), data(2), OOB),
        refused(Rule::OutOfOrder {
            page: Ppn(2),
            next: Ppn(1)
        })
    );
    assert_eq!(
        nand.program(Ppn(1), vec![0; 15].into(), OOB),
        refused(Rule::PartialProgram {
            page: Ppn(1),
            bytes: 15
        })
    );
    assert_eq!(nand.read(Ppn(16)), Err(NandError::Rule(Rule::Outside(16))));
    assert_eq!(nand.erase(BlockNo(4)), refused(Rule::Outside(4)));
    nand.mark_bad(BlockNo(1)).unwrap();
    assert_eq!(nand.erase(BlockNo(1)), refused(Rule::BadBlock(BlockNo(1))));
    assert_eq!(
        nand.program(Ppn(4), data(2), OOB),
        refused(Rule::BadBlock(BlockNo(1)))
    );
    assert_eq!(nand.blocks[0].page(0), &before);
    assert_eq!(nand.operations().programs, 1);
    nand.program(Ppn(1), data(2), OOB).unwrap();
}

#[test]
fn blocks_wear_out() {
    let mut nand = nand();
    for _ in 0..5 {
        nand.erase(BlockNo(3)).unwrap();
    }
    let failed = Err(NandError::EraseFailed(BlockNo(3)));
    assert_eq!(nand.erase(BlockNo(3)), failed);
    let not_erased = Err(NandError::Rule(Rule::ProgramWithoutErase(Ppn(12))));
    assert_eq!(nand.program(Ppn(12), data(1), OOB), not_erased);
}

#[test]
fn a_program_that_fails_costs_its_page_only() {
    let mut nand = nand();
    nand.program(Ppn(0), data(1), OOB).unwrap();
    nand.faults.fail_one_in = 1;
    let failed = Err(NandError::ProgramFailed(Ppn(1)));
    assert_eq!(nand.program(Ppn(1), data(2), OOB), failed);
    assert_eq!(nand.read(Ppn(1)), Err(NandError::Uncorrectable(Ppn(1))));
    assert!(matches!(nand.read(Ppn(0)), Ok(Page::Programmed { .. })));
}

/// The effects of a cut in a program, over many seeds: all three cases, and never a page that may
/// be programmed.
#[test]
fn a_power_cut_leaves_a_page_done_torn_or_seemingly_untouched() {
    let mut seen = [0; 3];
    for seed in 0..60 {
        let mut nand = nand();
        nand.faults.random = crate::random::Random::new(seed);
        nand.faults.power_off_after = Some(0);
        assert_eq!(nand.program(Ppn(0), data(1), OOB), Err(NandError::PowerOff));
        assert_eq!(nand.read(Ppn(0)), Err(NandError::PowerOff));
        nand.power_on();
        match nand.read(Ppn(0)) {
            Ok(Page::Programmed { .. }) => seen[0] += 1,
            Err(NandError::Uncorrectable(_)) => seen[1] += 1,
            Ok(Page::Erased) => seen[2] += 1,
            other => panic!("{other:?}"),
        }
        assert!(matches!(
            nand.program(Ppn(0), data(1), OOB),
            Err(NandError::Rule(Rule::ProgramWithoutErase(_)))
        ));
    }
    assert!(seen.iter().all(|seen| *seen > 5), "{seen:?}");
}

#[test]
fn a_block_whose_erase_was_interrupted_must_be_erased_again() {
    for seed in 0..20 {
        let mut nand = nand();
        nand.program(Ppn(0), data(1), OOB).unwrap();
        nand.wait();
        nand.faults.random = crate::random::Random::new(seed);
        nand.faults.power_off_after = Some(0);
        assert_eq!(nand.erase(BlockNo(0)), Err(NandError::PowerOff));
        nand.power_on();
        for page in 0..2 {
            assert!(matches!(
                nand.program(Ppn(page), data(1), OOB),
                Err(NandError::Rule(Rule::ProgramWithoutErase(_)))
            ));
        }
        nand.erase(BlockNo(0)).unwrap();
        nand.program(Ppn(0), data(1), OOB).unwrap();
    }
}

/// Programs on two dies, the power goes: the first may be lost unless it was waited for.
#[test]
fn other_dies_are_interrupted_too_unless_they_were_waited_for() {
    let lost = |wait: bool| {
        (0..40).any(|seed| {
            let mut nand = nand();
            nand.faults.random = crate::random::Random::new(seed);
            nand.program(Ppn(0), data(1), OOB).unwrap();
            if wait {
                nand.wait();
            }
            nand.power_off();
            nand.power_on();
            !matches!(nand.read(Ppn(0)), Ok(Page::Programmed { .. }))
        })
    };
    assert!(lost(false));
    assert!(!lost(true));
}

#[test]
fn dies_work_at_the_same_time_and_one_die_does_not() {
    let time = |first: Ppn, second: Ppn| {
        let mut nand = nand();
        nand.program(first, data(1), OOB).unwrap();
        nand.program(second, data(1), OOB).unwrap();
        nand.wait();
        nand.now().0
    };
    // 56 bytes at 156 MB/s are 358 ns.
    assert_eq!(time(Ppn(0), Ppn(1)), 2 * (1_300_000 + 358));
    assert_eq!(time(Ppn(0), Ppn(4)), 1_300_000 + 2 * 358);
    let mut nand = nand();
    nand.read(Ppn(0)).unwrap();
    assert_eq!(nand.now().0, 250_000 + 102);
    nand.erase(BlockNo(0)).unwrap();
    nand.wait();
    assert_eq!(nand.now().0, 250_102 + 1_500_000);
}

/// Two pages of two dies, read one after the other, and at the same time.
#[test]
fn a_page_that_is_loaded_is_read_by_its_die_meanwhile_unless_that_does_something_else() {
    // 16 bytes at 156 MB/s are 102 ns.
    let (cells, transfer) = (250_000, 102);
    let mut nand = nand();
    nand.load(Ppn(0));
    nand.load(Ppn(4));
    // The die has one register, and it is in use.
    nand.load(Ppn(1));
    assert_eq!(nand.now().0, 0);
    nand.read(Ppn(0)).unwrap();
    nand.read(Ppn(4)).unwrap();
    assert_eq!(nand.now().0, cells + 2 * transfer);
    // A second read is not free: the fetched page is no longer in the register.
    nand.read(Ppn(0)).unwrap();
    assert_eq!(nand.now().0, 2 * cells + 3 * transfer);
    nand.load(Ppn(0));
    nand.read(Ppn(1)).unwrap();
    let before = nand.now().0;
    nand.read(Ppn(0)).unwrap();
    assert_eq!(nand.now().0, before + cells + transfer);
    nand.load(Ppn(0));
    nand.pass(cells);
    nand.program(Ppn(0), data(1), OOB).unwrap();
    nand.wait();
    let before = nand.now().0;
    assert!(matches!(nand.read(Ppn(0)), Ok(Page::Programmed { .. })));
    assert_eq!(nand.now().0, before + cells + transfer);
    // No wait is needed to know that the programmed page is there.
    let before = nand.now();
    nand.load(Ppn(4));
    nand.wait();
    assert_eq!(nand.now(), before);
    assert_eq!(nand.operations().reads, 6);
}

#[test]
fn pages_of_one_byte_share_memory_and_erased_blocks_take_none() {
    let mut nand = nand();
    nand.program(Ppn(0), data(1), OOB).unwrap();
    nand.program(Ppn(1), data(1), OOB).unwrap();
    let place = |page: Page| match page {
        Page::Programmed { data, .. } => data.as_ptr(),
        other => panic!("{other:?}"),
    };
    let (one, other) = (nand.read(Ppn(0)).unwrap(), nand.read(Ppn(1)).unwrap());
    assert_eq!(place(one), place(other));
    assert_eq!(nand.blocks[0].pages.len(), 2);
    assert_eq!(nand.blocks[1].pages.capacity(), 0);
    nand.erase(BlockNo(0)).unwrap();
    assert_eq!(nand.blocks[0].pages.capacity(), 0);
    // 64 GiB, of which a page is used.
    let geometry = Geometry {
        page_bytes: 32 << 10,
        pages_per_block: 128,
        ..Geometry::openssd(16_384)
    };
    let mut large = Nand::new(geometry, Timing::built_in("openssd").unwrap()).unwrap();
    assert_eq!(large.geometry().bytes(), 64 << 30);
    let last = geometry.ppn(BlockNo(16_383), 0);
    large.program(last, vec![3; 32 << 10].into(), OOB).unwrap();
    assert!(matches!(large.read(last), Ok(Page::Programmed { .. })));
}

#[test]
fn planes_program_pages_with_the_same_number_together_if_they_are_sent_together() {
    let geometry = Geometry {
        blocks_per_plane: 2,
        planes_per_die: 2,
        channels: 1,
        ..geometry()
    };
    let mut nand = Nand::new(geometry, Timing::built_in("openssd").unwrap()).unwrap();
    let program = ns(nand.timing().program_us);
    let transfer = nand.timing().transfer_ns(16 + OOB_BYTES as u64);
    let page = |block: u32, page: u32| geometry.ppn(BlockNo(block), page);
    let mut took = |pages: &[Ppn], pause: u64| {
        let begin = nand.now().0;
        for ppn in pages {
            nand.program(*ppn, data(1), OOB).unwrap();
            nand.pass(pause);
        }
        nand.wait();
        nand.now().0 - begin
    };
    // Blocks 0 and 2 are on the first plane, 1 and 3 on the second.
    let together = 2 * transfer + program;
    assert_eq!(took(&[page(0, 0), page(1, 0)], 0), together);
    let apart = 2 * (transfer + program);
    assert_eq!(took(&[page(0, 1), page(1, 1)], 1), apart);
    assert_eq!(took(&[page(0, 2), page(3, 0)], 0), apart, "another number");
    assert_eq!(took(&[page(0, 3), page(2, 0)], 0), apart, "one plane");
}

#[test]
fn a_power_cut_interrupts_each_page_that_is_programmed_together() {
    let geometry = Geometry {
        planes_per_die: 2,
        channels: 1,
        ..geometry()
    };
    let mut left = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let mut nand = Nand::new(geometry, Timing::built_in("openssd").unwrap()).unwrap();
        nand.faults.random = crate::random::Random::new(seed);
        let pages = [0, 1].map(|block| geometry.ppn(BlockNo(block), 0));
        for page in pages {
            nand.program(page, data(1), OOB).unwrap();
        }
        nand.power_off();
        nand.power_on();
        left.insert(pages.map(|page| match nand.read(page) {
            Ok(Page::Erased) => 0,
            Ok(_) => 1,
            Err(_) => 2,
        }));
    }
    assert_eq!(left.len(), 9, "{left:?}");
}

/// An interrupted program has used its page up.
#[test]
fn without_power_no_command_breaks_a_rule() {
    let mut nand = nand();
    nand.faults.power_off_after = Some(0);
    for _ in 0..2 {
        assert_eq!(nand.program(Ppn(0), data(1), OOB), Err(NandError::PowerOff));
        assert_eq!(nand.erase(BlockNo(0)), Err(NandError::PowerOff));
    }
    nand.power_on();
    let again = NandError::Rule(Rule::ProgramWithoutErase(Ppn(0)));
    assert_eq!(nand.program(Ppn(0), data(1), OOB), Err(again));
}
