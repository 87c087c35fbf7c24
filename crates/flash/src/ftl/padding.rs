//! Padding: no page that was waited for can be lost with its upper page.
//!
//! The rules of this FTL say what is on the medium before what. They rest on waits. With paired
//! pages ([`crate::nand`]) a wait is not enough: the program of an upper page may destroy a lower
//! page that was waited for. So each wait first fills the open blocks with empty pages, until the
//! pair of each page with content is complete. That takes at most three pages of a block. A power
//! cut in between finds nothing that was waited for.
//!
//! A lower page that a cut destroys was then not waited for, nor was anything behind it in its
//! block. Recovery may stop there. Closing the block would do as well, and waste its rest.
//!
//! *Room.* Each block must have [`MOST`] invalid pages for padding on average, so that garbage
//! collection gains room. Other controllers copy lower pages elsewhere instead, before they program
//! the upper ones, or have a capacitor.

use super::blocks::State;
use super::flaw::Flaw;
use super::oob::{Content, Kept, Oob};
use super::{Ftl, FtlError};
use crate::nand::NandError;

/// Pages of padding that garbage collection reckons with for each block: two waits.
pub(super) const MOST: u32 = 8;
/// The fewest pages of a block.
pub(super) const LEAST_PAGES: u32 = 4 * MOST;

impl Ftl {
    /// Completes the pairs of all pages with content.
    pub(super) fn pad(&mut self) -> Result<(), FtlError> {
        if !self.nand.has_pairs() || self.leaves_out(Flaw::NoPadding) {
            return Ok(());
        }
        for open in 0..self.streams.most() {
            while let Some(ppn) = self.streams.incomplete(open, self.nand.geometry()) {
                let geometry = self.nand.geometry();
                let plane = geometry.plane_of(geometry.block_of(ppn));
                if plane > 0 && self.leaves_out(Flaw::OnePlanePadded) {
                    break;
                }
                self.pad_page(open, ppn)?;
            }
        }
        Ok(())
    }

    fn pad_page(&mut self, open: usize, ppn: crate::nand::Ppn) -> Result<(), FtlError> {
        let data = vec![0; self.page_bytes() as usize];
        let block = self.nand.geometry().block_of(ppn);
        let oob = Oob {
            content: Content::Padding,
            kept: Kept::Whole,
            sequence: self.next_sequence(),
            erases: self.blocks.erases(block),
            data_crc: crc32c::crc32c(&data),
        };
        let done = self.nand.program(ppn, data.into(), oob.encode());
        let closed = match done {
            Ok(()) => {
                self.statistics.padding_writes += 1;
                let die = self.nand.geometry().die_of(block);
                self.copying[die as usize] = false;
                let full = self.streams.advance_padded(open, self.nand.geometry());
                full.map(|full| (full, State::Closed))
            }
            // The block takes no more pages, so that its pairs cannot be lost.
            Err(NandError::ProgramFailed(_)) => self
                .streams
                .close_at(open)
                .map(|failed| (failed, State::Failing)),
            Err(error) => return Err(error.into()),
        };
        if let Some((block, state)) = closed {
            self.blocks.set_state(block, state);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::ftl::{Config, Ftl, Lpn, Tid};
    use crate::nand::timing::Timing;
    use crate::nand::{Geometry, Nand};
    use crate::random::Random;

    fn ftl() -> Ftl {
        let geometry = Geometry {
            page_bytes: 512,
            pages_per_block: 32,
            ..Geometry::openssd(64)
        };
        let config = Config {
            table_capacity: 20,
            pairs: true,
            ..Config::new(500)
        };
        let nand = Nand::new(
            geometry.with_channels(4, 1),
            Timing::built_in("openssd").unwrap(),
        );
        let nand = nand.and_then(Nand::with_pairs).unwrap();
        Ftl::open(nand, config).unwrap().0
    }

    /// While a commit waits for its root, garbage is collected ahead. If a copy fails, a block is
    /// opened for it, and pages are padded before. The power may go there, and the commit pads
    /// again before it knows.
    #[test]
    fn a_power_cut_in_padding_for_a_copy_is_a_power_cut() {
        let mut random = Random::new(1);
        let mut commit = |ftl: &mut Ftl| {
            let lpn = Lpn(random.below(500) as u32);
            ftl.write_in(Tid(1), lpn, &[1; 512])
                .and_then(|()| ftl.commit(Tid(1)))
        };
        let mut used = ftl();
        (0..2_000).for_each(|_| commit(&mut used).unwrap());
        assert!(used.statistics().gc_ahead > 0);
        used.nand_mut().faults.fail_one_in = 20;
        for cut in 0..4_000 {
            let mut ftl = used.clone();
            ftl.nand_mut().faults.random = Random::new(cut);
            ftl.nand_mut().faults.power_off_after = Some(cut % 100);
            let mut cuts = (0..100).filter_map(|_| commit(&mut ftl).err());
            let error = cuts.next().unwrap();
            assert!(error.is_power_off(), "cut {cut}: {error}");
        }
    }
}
