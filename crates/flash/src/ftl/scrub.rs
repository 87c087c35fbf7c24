//! Moving blocks before their bit errors are too many.
//!
//! A block is *due* when a read of it needed a part of what error correction can repair. It is also
//! due after so many reads since it was erased. The second rule is for its pages that nobody reads:
//! reads of others disturb them. The weakest page has three times the errors of the strongest, so
//! that below a third one may stand for all. The next command that writes moves its valid pages. An
//! open block is closed first.
//!
//! Counts of reads are in memory. A power cut forgets them; then the first rule is left, and
//! recovery reads of every block. So the first command that writes after a cut refreshes blocks.
//!
//! A device whose power goes after every few operations has no time for that, and loses pages
//! ([`super::lost`]). It finds all other pages of the block.

use std::collections::BTreeSet;

use super::blocks::State;
use super::flaw::Flaw;
use super::streams::Stream;
use super::{Ftl, FtlError};
use crate::nand::{BlockNo, Ppn};

/// When a block is moved because of bit errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scrub {
    /// At this percentage of the bits that error correction repairs; 0 is never.
    pub percent: u32,
    /// After this many reads since it was erased; 0 is never.
    pub reads: u32,
}

/// The reads of each block, and those that are due.
#[derive(Clone, Debug)]
pub(super) struct Disturbed {
    reads: Vec<u32>,
    due: BTreeSet<BlockNo>,
}

impl Disturbed {
    pub(super) fn new(blocks: u32) -> Self {
        Self {
            reads: vec![0; blocks as usize],
            due: BTreeSet::new(),
        }
    }

    /// A block was erased.
    pub(super) fn is_new(&mut self, block: BlockNo) {
        self.reads[block.0 as usize] = 0;
        self.due.remove(&block);
    }
}

impl Ftl {
    /// A page was read, and perhaps corrected.
    pub(super) fn was_read(&mut self, ppn: Ppn) {
        let block = self.nand.geometry().block_of(ppn);
        let Scrub { percent, reads } = self.config.scrub;
        let counted = &mut self.disturbed.reads[block.0 as usize];
        *counted = counted.saturating_add(1);
        let is_read_often = reads > 0 && *counted >= reads;
        let is_weak = percent > 0 && self.nand.corrected_percent() >= percent;
        if is_read_often || is_weak {
            self.disturbed.due.insert(block);
        }
    }

    /// Moves the blocks that are due.
    pub(super) fn scrub(&mut self) -> Result<(), FtlError> {
        if self.leaves_out(Flaw::NoScrub) {
            return Ok(());
        }
        let blocks: Vec<BlockNo> = self.disturbed.due.iter().copied().collect();
        for block in blocks {
            self.make_room()?;
            if self.streams.close_block(block) {
                self.blocks.set_state(block, State::Closed);
            }
            match self.blocks.state(block) {
                State::Closed => {
                    self.statistics.scrub_blocks += 1;
                    self.statistics.scrub_copies += self.empty(block, Stream::Copies)?;
                }
                // Nobody needs its pages; or they are moved anyway.
                State::Free | State::Open | State::Failing | State::Bad => {}
            }
            self.disturbed.is_new(block);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Scrub;
    use crate::ftl::flaw::Flaw;
    use crate::ftl::{Config, FlushWrites, Ftl, FtlError, Lpn, Tid};
    use crate::nand::timing::Timing;
    use crate::nand::{BitErrors, Geometry, Nand};

    /// Reads alone make bits wrong: pages cannot be read after some 3,300 of them at the earliest.
    const BY_READS: BitErrors = BitErrors {
        corrects: 40,
        per_erase: 0.0,
        per_read: 1_000.0,
        per_day: 0.0,
    };

    fn ftl(scrub: Scrub) -> Ftl {
        ftl_with(scrub, BY_READS, 250.0)
    }

    /// A device with such errors, whose reads take so many microseconds.
    fn ftl_with(scrub: Scrub, errors: BitErrors, read_us: f64) -> Ftl {
        let config = Config {
            table_capacity: 20,
            scrub,
            ..Config::new(400)
        };
        ftl_of(config, errors, read_us)
    }

    fn ftl_of(config: Config, errors: BitErrors, read_us: f64) -> Ftl {
        let geometry = Geometry {
            page_bytes: 512,
            pages_per_block: 16,
            ..Geometry::openssd(96)
        };
        let timing = Timing {
            read_us,
            ..Timing::built_in("openssd").unwrap()
        };
        let nand = Nand::new(geometry, timing).unwrap();
        let (mut ftl, _) = Ftl::open(nand.with_bit_errors(errors), config).unwrap();
        (0..400).for_each(|lpn| ftl.write(Lpn(lpn), &[1; 512]).unwrap());
        ftl
    }

    /// One page is read all the time, and another one is written. Then all pages are read.
    fn read_on(ftl: &mut Ftl) -> Result<(), FtlError> {
        for n in 0..20_000_u32 {
            ftl.read(Lpn(0))?;
            if n % 50 == 0 {
                ftl.write(Lpn(399), &[2; 512])?;
            }
        }
        (0..399).try_for_each(|lpn| ftl.read(Lpn(lpn)).map(|page| assert_eq!(*page, [1; 512])))
    }

    /// All pages are read in turn.
    fn read_all(ftl: &mut Ftl) -> Result<(), FtlError> {
        (0..20_000_u32).try_for_each(|n| {
            if n % 50 == 0 {
                ftl.write(Lpn(399), &[1; 512])?;
            }
            ftl.read(Lpn(n % 400))
                .map(|page| assert_eq!(*page, [1; 512]))
        })
    }

    /// A read takes a second, and pages cannot be read after 5,000 seconds at the earliest.
    #[test]
    fn time_alone_loses_pages_unless_their_blocks_are_moved() {
        let by_days = BitErrors {
            per_read: 0.0,
            per_day: 6e7,
            ..BY_READS
        };
        let made = |percent| ftl_with(Scrub { percent, reads: 0 }, by_days, 1e6);
        let lost = read_all(&mut made(0));
        let is_lost = lost.as_ref().is_err_and(FtlError::is_lost);
        assert!(is_lost, "{lost:?}");
        let mut moved = made(30);
        read_all(&mut moved).unwrap();
        assert!(
            moved.statistics().scrub_blocks >= 50,
            "each of 25 blocks, several times"
        );
        // A page that nobody reads is found too late.
        let lost = read_on(&mut made(30));
        assert!(lost.is_err(), "{lost:?}");
    }

    /// A block that was erased a few times has too many wrong bits, wherever its pages are from.
    #[test]
    fn wear_alone_ends_the_device_and_moving_blocks_does_not_help() {
        let by_erases = BitErrors {
            per_read: 0.0,
            per_erase: 1e6,
            ..BY_READS
        };
        let write_on = |errors| {
            let mut ftl = ftl_with(
                Scrub {
                    percent: 30,
                    reads: 0,
                },
                errors,
                250.0,
            );
            (0..20_000_u32).try_for_each(|n| {
                ftl.write(Lpn(n % 400), &[1; 512])?;
                ftl.read(Lpn(n % 400)).map(drop)
            })
        };
        let lost = write_on(by_erases);
        assert!(lost.is_err(), "{lost:?}");
        write_on(BY_READS).unwrap();
    }

    #[test]
    fn without_scrubbing_a_page_that_is_read_too_often_is_lost() {
        let lost = read_on(&mut ftl(Scrub::default()));
        let is_lost = lost.as_ref().is_err_and(FtlError::is_lost);
        assert!(is_lost, "{lost:?}");
    }

    /// The power goes after every write. Recovery's own reads disturb the bookkeeping.
    #[test]
    fn a_device_whose_bookkeeping_is_lost_cannot_be_opened_and_says_what_was_lost() {
        let live = |percent: u32| {
            let config = Config {
                table_capacity: 20,
                scrub: Scrub { percent, reads: 0 },
                flush: FlushWrites::Map,
                ..Config::new(400)
            };
            let errors = BitErrors {
                per_read: 20_000.0,
                ..BY_READS
            };
            let mut ftl = ftl_of(config, errors, 250.0);
            let mut moved = 0;
            for _ in 0..1_000 {
                // The other pieces of the map stay where they are.
                ftl.write(Lpn(399), &[2; 512]).unwrap();
                ftl.flush().unwrap();
                let pieces = ftl.map.pieces.clone();
                moved += ftl.statistics().scrub_blocks;
                let nand = ftl.into_nand();
                let kept = nand.clone();
                match Ftl::open(nand, config) {
                    Ok((opened, _)) => ftl = opened,
                    Err(error) => return Err((error, pieces, Box::new(kept))),
                }
            }
            Ok(moved)
        };
        let (error, pieces, nand) = live(0).unwrap_err();
        let mut numbered = (0..).zip(pieces);
        let is_lost = |piece: &(u32, crate::ftl::map::Piece)| {
            let page = piece.1.ppn.unwrap();
            let content = format!("piece {} of the page map", piece.0);
            error == FtlError::LostBookkeeping { page, content } && nand.is_lost(page, 64)
        };
        assert!(numbered.any(|piece| is_lost(&piece)), "{error}");
        assert!(
            error.is_lost()
                && error
                    .to_string()
                    .contains("restore its content from a backup")
        );
        // Where blocks are moved in time, nothing is lost.
        let moved = live(30).unwrap();
        assert!(moved > 50, "{moved}");
    }

    /// Whether the pages that are not lost have their last contents after a power cut.
    fn finds_all_but_the_lost(flaw: Option<Flaw>) -> bool {
        let never = Scrub {
            percent: 0,
            reads: u32::MAX,
        };
        let mut ftl = ftl(never);
        (0..100).for_each(|lpn| ftl.write(Lpn(lpn), &[2; 512]).unwrap());
        ftl.flush().unwrap();
        let place = |ftl: &Ftl, lpn: u32| ftl.map.get(Lpn(lpn)).unwrap();
        let places: Vec<_> = (0..100).map(|lpn| place(&ftl, lpn)).collect();
        let lost = |ftl: &Ftl, lpn: u32, more| ftl.nand().is_lost(places[lpn as usize], more);
        while !(0..100).any(|lpn| lost(&ftl, lpn, 0)) {
            (0..100).for_each(|lpn| drop(ftl.read(Lpn(lpn))));
        }
        let config = *ftl.config();
        let (mut ftl, _) = Ftl::open_as(ftl.into_nand(), config, flaw).unwrap();
        // They are read again.
        let left: Vec<u32> = (0..100).filter(|lpn| !lost(&ftl, *lpn, 20)).collect();
        assert!((50..100).contains(&left.len()), "{left:?}");
        let mut reads = left.iter().map(|lpn| ftl.read(Lpn(*lpn)));
        reads.all(|page| page.is_ok_and(|page| *page == [2; 512]))
    }

    /// Nothing is programmed meanwhile, so that the block would stay open.
    #[test]
    fn an_open_block_is_moved_too() {
        let mut ftl = ftl(Scrub {
            percent: 0,
            reads: 2_000,
        });
        ftl.write(Lpn(398), &[1; 512]).unwrap();
        ftl.trim(Lpn(397)).unwrap();
        for n in 0..20_000_u32 {
            ftl.read(Lpn(398)).unwrap();
            if n % 50 == 0 {
                ftl.trim(Lpn(397)).unwrap();
            }
        }
        let s = ftl.statistics();
        assert!((5..=10).contains(&s.scrub_blocks), "{s:?}");
    }

    #[test]
    fn recovery_finds_what_follows_a_lost_page_in_its_block() {
        assert!(finds_all_but_the_lost(None));
        assert!(!finds_all_but_the_lost(Some(Flaw::ErrorEndsBlock)));
    }

    #[test]
    fn a_block_is_moved_before_its_errors_are_too_many() {
        for scrub in [
            Scrub {
                percent: 30,
                reads: 0,
            },
            Scrub {
                percent: 0,
                reads: 2_000,
            },
        ] {
            let mut ftl = ftl(scrub);
            read_on(&mut ftl).unwrap();
            let s = ftl.statistics();
            assert!((5..40).contains(&s.scrub_blocks), "{s:?}");
            assert!(s.scrub_copies > 0);
            assert_eq!(s.programs(), ftl.nand().operations().programs);
        }
    }

    /// Pages of 1 KiB that lose their content with time: some of them in 100 days.
    fn aged(percent: u32, written: u32) -> Ftl {
        let geometry = Geometry {
            page_bytes: 1024,
            pages_per_block: 16,
            ..Geometry::openssd(256)
        };
        let config = Config {
            table_capacity: 40,
            scrub: Scrub { percent, reads: 0 },
            wear_gap: 2,
            ..Config::new(400)
        };
        let errors = BitErrors {
            per_read: 0.0,
            per_day: 40_000.0,
            ..BY_READS
        };
        let nand = Nand::new(geometry, Timing::built_in("emmc").unwrap()).unwrap();
        let (mut ftl, _) = Ftl::open(nand.with_bit_errors(errors), config).unwrap();
        (0..written).for_each(|lpn| ftl.write(Lpn(lpn), &[7; 1024]).unwrap());
        ftl.flush().unwrap();
        ftl.nand_mut().pass(100 * 86_400_000_000_000);
        ftl
    }

    fn readable(ftl: &mut Ftl, pages: std::ops::Range<u32>) -> Vec<u32> {
        pages.filter(|lpn| ftl.read(Lpn(*lpn)).is_ok()).collect()
    }

    #[test]
    fn recovery_finds_all_readable_pages_without_scrubbing_too() {
        for percent in [30, 0] {
            let mut ftl = aged(percent, 400);
            let good = readable(&mut ftl, 0..400);
            assert!((200..400).contains(&good.len()), "{}", good.len());
            let config = *ftl.config();
            let (mut ftl, _) = Ftl::open(ftl.into_nand(), config).unwrap();
            let mut pages = good.iter().map(|lpn| ftl.read(Lpn(*lpn)));
            assert!(pages.all(|page| page.is_ok_and(|page| *page == [7; 1024])));
        }
    }

    #[test]
    fn a_lost_page_ends_no_other_and_is_an_error_until_it_is_written_or_trimmed() {
        let mut ftl = aged(30, 100);
        let good = readable(&mut ftl, 0..100);
        let lost: Vec<u32> = (0..100).filter(|lpn| !good.contains(lpn)).collect();
        assert!((9..60).contains(&lost.len()), "{lost:?}");
        let (rewritten, rest) = lost.split_at(3);
        let (trimmed, left) = rest.split_at(3);
        (200..300).for_each(|lpn| ftl.write(Lpn(lpn), &[8; 1024]).unwrap());
        let write = |ftl: &mut Ftl, lpn: u32| ftl.write(Lpn(lpn), &[9; 1024]).unwrap();
        rewritten.iter().for_each(|lpn| write(&mut ftl, *lpn));
        trimmed.iter().for_each(|lpn| ftl.trim(Lpn(*lpn)).unwrap());
        ftl.write_in(Tid(1), Lpn(399), &[9; 1024]).unwrap();
        ftl.commit(Tid(1)).unwrap();
        ftl.flush().unwrap();
        let look = |ftl: &mut Ftl| {
            let mut is = |lpn: &u32, byte| ftl.read(Lpn(*lpn)).is_ok_and(|page| page[0] == byte);
            assert!(good.iter().all(|lpn| is(lpn, 7)));
            assert!((200..300).all(|lpn| is(&lpn, 8)));
            assert!(rewritten.iter().chain([&399]).all(|lpn| is(lpn, 9)));
            assert!(trimmed.iter().all(|lpn| is(lpn, 0)));
            assert!(left.iter().all(|lpn| ftl.read(Lpn(*lpn)).is_err()));
        };
        look(&mut ftl);
        // Neither after a power cut nor when garbage collection has moved them again.
        let config = *ftl.config();
        let (mut ftl, _) = Ftl::open(ftl.into_nand(), config).unwrap();
        look(&mut ftl);
        (0..30_000).for_each(|n| ftl.write(Lpn(300 + n % 99), &[5; 1024]).unwrap());
        assert!(ftl.statistics().wear_copies > 100);
        ftl.flush().unwrap();
        look(&mut ftl);
        let (mut ftl, _) = Ftl::open(ftl.into_nand(), config).unwrap();
        look(&mut ftl);
    }
}
