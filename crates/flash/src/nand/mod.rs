//! NAND flash: pages that are programmed once and read, blocks that are erased.
//!
//! **The rules** are enforced. Breaking one is an error ([`Rule`]) that no caller may ignore. A
//! page is programmed once after its block was erased. The pages of a block are programmed in
//! order. A page is programmed whole. Bad blocks are not touched.
//!
//! **Faults** happen on demand ([`Faults`]): the power goes in the middle of the n-th operation.
//! This affects that operation, and the last one of every other die without a wait since. Each is
//! then done, half done (unreadable), or looks as if it had never begun. In the last case its cells
//! still need an erase before they are programmed. The age of the operation does not matter: only
//! waiting shows that it is done. A block with an interrupted erase must be erased again. Programs
//! and erases fail. A block that was erased more often than it endures cannot be erased any more.
//!
//! **Time** is virtual ([`clock`]); **bytes** are kept in memory, except of erased pages and of
//! pages that repeat one byte (`filled`).
//!
//! **Bit errors** are there by choice ([`BitErrors`]).
//!
//! **Paired pages** are there by choice (`pairs`): the lower page of a cell is lost with its upper
//! page when the power goes.
//!
//! The caller is [`crate::ftl`].

mod block;
pub mod clock;
mod decay;
mod error;
mod faults;
mod filled;
mod geometry;
pub(crate) mod pairs;
pub mod saved;
pub mod timing;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use block::{Block, Refusal};
pub use block::{OOB_BYTES, OobBytes, Page};
use clock::{Clock, Nanoseconds};
pub use decay::BitErrors;
pub use error::{NandError, Rule};
pub use faults::Faults;
use filled::Filled;
pub use geometry::{BlockNo, Geometry, Ppn};
use timing::{Timing, ns};

/// Operations done since the device was new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operations {
    /// Pages read, including those of which only the out-of-band area was read.
    pub reads: u64,
    /// Pages programmed.
    pub programs: u64,
    /// Blocks erased.
    pub erases: u64,
    /// Programs and erases that failed.
    pub failures: u64,
}

impl Operations {
    /// The work since an earlier state of the same device.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            reads: self.reads - before.reads,
            programs: self.programs - before.programs,
            erases: self.erases - before.erases,
            failures: self.failures - before.failures,
        }
    }
}

/// The last command of a die that the controller does not yet know to be done.
#[derive(Clone, Copy, Debug)]
enum Last {
    Nothing,
    Program(BlockNo),
    Erase(BlockNo),
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Nand {
    geometry: Geometry,
    timing: Timing,
    blocks: Vec<Block>,
    clock: Clock,
    /// By die.
    last: Vec<Last>,
    /// By die: the blocks on other planes that are programmed together with the last one.
    together: Vec<Vec<BlockNo>>,
    /// By die: the page in its page register, which the controller can fetch from there.
    loaded: Vec<Option<Ppn>>,
    bit_errors: Option<BitErrors>,
    has_pairs: bool,
    /// Of what error correction can repair: the part that the last read needed.
    corrected_percent: u32,
    /// The faults on demand.
    pub faults: Faults,
    operations: Operations,
    filled: Filled,
    is_on: bool,
}

impl Nand {
    /// A new device, everything erased.
    ///
    /// # Errors
    /// If the geometry is not possible: a message about the mistake.
    pub fn new(geometry: Geometry, timing: Timing) -> Result<Self, String> {
        geometry.check()?;
        let block = Block::new(geometry.pages_per_block);
        Ok(Self {
            geometry,
            timing,
            blocks: vec![block; geometry.blocks() as usize],
            clock: Clock::new(&geometry),
            last: vec![Last::Nothing; geometry.dies() as usize],
            together: vec![Vec::new(); geometry.dies() as usize],
            loaded: vec![None; geometry.dies() as usize],
            bit_errors: None,
            has_pairs: false,
            corrected_percent: 0,
            faults: Faults::default(),
            operations: Operations::default(),
            filled: Filled::default(),
            is_on: true,
        })
    }

    /// The same device with bit errors.
    #[must_use]
    pub fn with_bit_errors(self, errors: BitErrors) -> Self {
        Self {
            bit_errors: Some(errors),
            ..self
        }
    }

    /// Whether pages have bit errors.
    pub fn has_bit_errors(&self) -> bool {
        self.bit_errors.is_some()
    }

    /// The same device with paired pages.
    ///
    /// # Errors
    /// If its blocks have too few pages or an odd number.
    pub fn with_pairs(self) -> Result<Self, String> {
        let pages = self.geometry.pages_per_block;
        match pages >= pairs::LEAST_PAGES && pages.is_multiple_of(2) {
            true => Ok(Self {
                has_pairs: true,
                ..self
            }),
            false => Err(format!("blocks of {pages} pages have no pairs")),
        }
    }

    /// Whether pages are paired.
    pub fn has_pairs(&self) -> bool {
        self.has_pairs
    }

    /// Percent of what error correction can repair that the last read needed.
    pub fn corrected_percent(&self) -> u32 {
        self.corrected_percent
    }

    /// Its geometry.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Its times, and its endurance.
    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    /// Its time.
    pub fn now(&self) -> Nanoseconds {
        self.clock.now()
    }

    /// Time passes in which the device has nothing to do.
    pub fn pass(&mut self, nanoseconds: u64) {
        self.clock.pass(nanoseconds);
    }

    /// Another request begins at this moment, which may be before the last one's answer. See
    /// [`crate::queue`].
    pub fn continue_at(&mut self, moment: Nanoseconds) {
        self.clock.continue_at(moment);
    }

    /// The operations that it has done.
    pub fn operations(&self) -> Operations {
        self.operations
    }

    /// Times that a block was erased, for reports and tests: no controller can ask a chip.
    pub fn wear(&self, block: BlockNo) -> u32 {
        self.blocks[block.0 as usize].erases
    }

    /// Whether a block carries the marker of a bad one.
    pub fn is_bad(&self, block: BlockNo) -> bool {
        self.blocks[block.0 as usize].is_bad
    }

    /// Sets the marker of a bad block.
    ///
    /// # Errors
    /// If there is no such block, or the power is off or goes.
    pub fn mark_bad(&mut self, block: BlockNo) -> Result<(), NandError> {
        self.check_block(block)?;
        self.begin()?;
        self.blocks[block.0 as usize].is_bad = true;
        Ok(())
    }

    /// Lets a page's die read it, if the die is idle. A read of that page then waits only for the
    /// rest of it. Any other operation of the die discards the page.
    pub fn load(&mut self, ppn: Ppn) {
        let Ok((_, _, die)) = self.place(ppn) else {
            return;
        };
        let is_free = self.loaded[die as usize].is_none() && !self.is_busy(die);
        if self.is_on && is_free {
            self.clock.load(die, ns(self.timing.read_us));
            self.last[die as usize] = Last::Nothing;
            self.loaded[die as usize] = Some(ppn);
        }
    }

    /// Reads a page.
    ///
    /// # Errors
    /// If the page cannot be read or does not exist, or the power is off or goes.
    pub fn read(&mut self, ppn: Ppn) -> Result<Page, NandError> {
        self.read_bytes(ppn, u64::from(self.geometry.page_bytes))
    }

    /// Reads a page's out-of-band area; `None` if the page is erased.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_oob(&mut self, ppn: Ppn) -> Result<Option<OobBytes>, NandError> {
        match self.read_bytes(ppn, OOB_BYTES as u64)? {
            Page::Programmed { oob, .. } => Ok(Some(oob)),
            _ => Ok(None),
        }
    }

    fn read_bytes(&mut self, ppn: Ppn, bytes: u64) -> Result<Page, NandError> {
        let (block, page, die) = self.place(ppn)?;
        self.clock.wait_for(die);
        self.begin()?;
        self.operations.reads += 1;
        let (read, transfer) = (ns(self.timing.read_us), self.timing.transfer_ns(bytes));
        let channel = self.geometry.channel_of(die);
        match self.loaded[die as usize].take() == Some(ppn) {
            true => self.clock.transfer(die, channel, transfer),
            false => self.clock.read(die, channel, read, transfer),
        }
        self.last[die as usize] = Last::Nothing;
        self.corrected_percent = 0;
        let is_correctable = self.correct(block, page);
        match self.blocks[block.0 as usize].page(page) {
            Page::Unreadable => Err(NandError::Uncorrectable(ppn)),
            Page::Programmed { .. } if !is_correctable => Err(NandError::Uncorrectable(ppn)),
            page => Ok(page.clone()),
        }
    }

    /// A read of a page, which disturbs its block. Whether error correction can repair the page.
    fn correct(&mut self, block: BlockNo, page: u32) -> bool {
        let Some(errors) = &self.bit_errors else {
            return true;
        };
        let block = &mut self.blocks[block.0 as usize];
        block.reads = block.reads.saturating_add(1);
        let bits = errors.bits(page, block.stress(self.clock.now()));
        self.corrected_percent = (u64::from(bits) * 100 / u64::from(errors.corrects)) as u32;
        bits <= errors.corrects
    }

    /// Programs a page. When this returns, its die may still be working: see [`Self::wait`].
    ///
    /// # Errors
    /// If programming failed, and the page cannot be read; if a rule was broken; or if the power is
    /// off or goes.
    pub fn program(&mut self, ppn: Ppn, data: Arc<[u8]>, oob: OobBytes) -> Result<(), NandError> {
        self.check_power()?;
        let (block, page, die) = self.place(ppn)?;
        if data.len() != self.geometry.page_bytes as usize {
            let bytes = data.len();
            return Err(NandError::Rule(Rule::PartialProgram { page: ppn, bytes }));
        }
        self.check_usable(block)?;
        match self.blocks[block.0 as usize].allows(page) {
            Ok(()) => {}
            Err(Refusal::NotErased) => {
                return Err(NandError::Rule(Rule::ProgramWithoutErase(ppn)));
            }
            Err(Refusal::NotNext(next)) => {
                let next = self.geometry.ppn(block, next);
                return Err(NandError::Rule(Rule::OutOfOrder { page: ppn, next }));
            }
        }
        let transfer = self
            .timing
            .transfer_ns(data.len() as u64 + OOB_BYTES as u64);
        let joins = self.joins(ppn);
        if !joins {
            self.clock.wait_for(die);
        }
        let data = self.filled.share(data);
        let content = Page::Programmed { data, oob };
        if let Err(error) = self.begin() {
            if self.faults.power_off_after == Some(0) {
                self.blocks[block.0 as usize].program(content);
                self.interrupt_program(block);
                self.faults.power_off_after = None;
            }
            return Err(error);
        }
        self.operations.programs += 1;
        self.loaded[die as usize] = None;
        let channel = self.geometry.channel_of(die);
        let program = ns(self.timing.program_us);
        match joins {
            true => self
                .clock
                .program_with_last(die, channel, transfer, program),
            false => self.clock.program(die, channel, transfer, program),
        }
        if self.faults.fails() {
            self.operations.failures += 1;
            self.clock.wait_for(die);
            self.blocks[block.0 as usize].program(Page::Unreadable);
            return Err(NandError::ProgramFailed(ppn));
        }
        if page == 0 {
            self.blocks[block.0 as usize].programmed_ns = self.clock.now().0;
        }
        self.blocks[block.0 as usize].program(content);
        let last = std::mem::replace(&mut self.last[die as usize], Last::Program(block));
        let together = &mut self.together[die as usize];
        match last {
            Last::Program(last) if joins => together.push(last),
            _ => together.clear(),
        }
        Ok(())
    }

    /// Whether a page would be programmed together with the die's last one: on another plane, with
    /// the same number in its block, and sent right after it.
    pub fn joins(&self, ppn: Ppn) -> bool {
        let Ok((block, page, die)) = self.place(ppn) else {
            return false;
        };
        let Last::Program(last) = self.last[die as usize] else {
            return false;
        };
        let others = self.together[die as usize].iter().chain([&last]);
        let plane = self.geometry.plane_of(block);
        let mut planes = others.map(|block| self.geometry.plane_of(*block));
        self.geometry.planes_per_die > 1
            && self.blocks[last.0 as usize].next == page + 1
            && planes.all(|other| other != plane)
            && self.clock.has_just_sent(die)
    }

    /// Erases a block. When this returns, its die may still be working: see [`Self::wait`].
    ///
    /// # Errors
    /// If erasing failed, the block is a bad one, or the power is off or goes.
    pub fn erase(&mut self, block: BlockNo) -> Result<(), NandError> {
        self.check_power()?;
        self.check_block(block)?;
        self.check_usable(block)?;
        let die = self.geometry.die_of(block);
        self.clock.wait_for(die);
        if let Err(error) = self.begin() {
            if self.faults.power_off_after == Some(0) {
                let left = self.faults.interrupted();
                self.blocks[block.0 as usize].interrupt_erase(left);
                self.faults.power_off_after = None;
            }
            return Err(error);
        }
        self.operations.erases += 1;
        self.loaded[die as usize] = None;
        self.clock.erase(die, ns(self.timing.erase_us));
        let is_worn_out = self.blocks[block.0 as usize].erases >= self.timing.endurance;
        if is_worn_out || self.faults.fails() {
            self.operations.failures += 1;
            self.clock.wait_for(die);
            self.blocks[block.0 as usize].interrupt_erase(faults::Interrupted::Torn);
            return Err(NandError::EraseFailed(block));
        }
        self.blocks[block.0 as usize].erase();
        self.last[die as usize] = Last::Erase(block);
        Ok(())
    }

    /// Waits until every die has completed its operation. All programmed pages are then on the
    /// medium.
    pub fn wait(&mut self) {
        for die in 0..self.geometry.dies() {
            // Another request may have waited for it, at a later time.
            let is_changing = self.clock.is_changing(die);
            if is_changing || !matches!(self.last[die as usize], Last::Nothing) {
                self.wait_for(die);
            }
        }
    }

    /// Waits until a die has completed its operation.
    pub fn wait_for(&mut self, die: u32) {
        self.clock.wait_for(die);
        self.last[die as usize] = Last::Nothing;
    }

    /// Whether a page was programmed without a wait since.
    #[cfg(test)]
    pub(crate) fn is_in_flight(&self, ppn: Ppn) -> bool {
        let block = self.geometry.block_of(ppn);
        let die = self.geometry.die_of(block) as usize;
        let is_last = matches!(self.last[die], Last::Program(last) if last == block || self.together[die].contains(&block));
        is_last && self.blocks[block.0 as usize].next == self.geometry.page_in_block(ppn) + 1
    }

    /// The out-of-band areas of all programmed pages, whether or not they can be read.
    #[cfg(test)]
    pub(crate) fn programmed(&self) -> impl Iterator<Item = (Ppn, &OobBytes)> {
        let blocks = (0..).zip(&self.blocks);
        blocks.flat_map(move |(number, block)| {
            let pages = (0..).zip(&block.pages);
            pages.filter_map(move |(page, content)| match content {
                Page::Programmed { oob, .. } => {
                    Some((self.geometry.ppn(BlockNo(number), page), oob))
                }
                Page::Erased | Page::Unreadable => None,
            })
        })
    }

    /// Whether a page has more wrong bits than can be corrected, after as many reads more.
    #[cfg(test)]
    pub(crate) fn is_lost(&self, ppn: Ppn, more: u32) -> bool {
        let page = self.geometry.page_in_block(ppn);
        let block = &self.blocks[self.geometry.block_of(ppn).0 as usize];
        let mut stress = block.stress(self.clock.now());
        stress.reads = stress.reads.saturating_add(more);
        let is_beyond = |errors: &BitErrors| errors.bits(page, stress) > errors.corrects;
        let is_programmed = matches!(block.page(page), Page::Programmed { .. });
        is_programmed && self.bit_errors.as_ref().is_some_and(is_beyond)
    }

    /// Whether a die is still working.
    pub fn is_busy(&self, die: u32) -> bool {
        self.busy_nanoseconds(die) > 0
    }

    /// How long it will still work.
    pub fn busy_nanoseconds(&self, die: u32) -> u64 {
        self.clock.busy(die)
    }

    /// The time to read a page from an idle die.
    pub fn read_nanoseconds(&self) -> u64 {
        let transfer = self.timing.transfer_ns(u64::from(self.geometry.page_bytes));
        ns(self.timing.read_us) + transfer
    }

    /// Cuts the power now.
    pub fn power_off(&mut self) {
        if !std::mem::replace(&mut self.is_on, false) {
            return;
        }
        for die in 0..self.last.len() {
            let last = std::mem::replace(&mut self.last[die], Last::Nothing);
            match last {
                Last::Nothing => {}
                Last::Program(block) => {
                    self.interrupt_program(block);
                    let together = std::mem::take(&mut self.together[die]);
                    together
                        .into_iter()
                        .for_each(|block| self.interrupt_program(block));
                }
                Last::Erase(block) => {
                    let left = self.faults.interrupted();
                    self.blocks[block.0 as usize].interrupt_erase(left);
                }
            }
        }
        self.loaded.fill(None);
        (0..self.geometry.dies()).for_each(|die| self.clock.wait_for(die));
    }

    /// The last program of a block is interrupted, and with it its lower page.
    fn interrupt_program(&mut self, block: BlockNo) {
        let left = self.faults.interrupted();
        let block = &mut self.blocks[block.0 as usize];
        block.interrupt_program(left);
        let upper = block.next.checked_sub(1).filter(|_| self.has_pairs);
        let lower = upper.and_then(|upper| pairs::lower_of(upper, block.count));
        if let Some(lower) = lower
            && left != faults::Interrupted::Done
            && self.faults.interrupted() == faults::Interrupted::Torn
        {
            block.destroy(lower);
        }
    }

    /// The power is back. It does not go again until the next request for it.
    pub fn power_on(&mut self) {
        self.is_on = true;
        self.faults.power_off_after = None;
    }

    /// Whether the power is on.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// An operation begins, and the power may go. If it goes, the operation itself was begun if
    /// `power_off_after` is still 0.
    fn begin(&mut self) -> Result<(), NandError> {
        self.check_power()?;
        if self.faults.power_goes() {
            self.power_off();
            return Err(NandError::PowerOff);
        }
        Ok(())
    }

    /// Without power a device obeys no command, so that none can break a rule.
    fn check_power(&self) -> Result<(), NandError> {
        match self.is_on {
            true => Ok(()),
            false => Err(NandError::PowerOff),
        }
    }

    fn place(&self, ppn: Ppn) -> Result<(BlockNo, u32, u32), NandError> {
        if ppn.0 >= self.geometry.pages() {
            return Err(NandError::Rule(Rule::Outside(ppn.0)));
        }
        let block = self.geometry.block_of(ppn);
        let page = self.geometry.page_in_block(ppn);
        Ok((block, page, self.geometry.die_of(block)))
    }

    fn check_block(&self, block: BlockNo) -> Result<(), NandError> {
        match block.0 < self.geometry.blocks() {
            true => Ok(()),
            false => Err(NandError::Rule(Rule::Outside(block.0))),
        }
    }

    fn check_usable(&self, block: BlockNo) -> Result<(), NandError> {
        match self.is_bad(block) {
            true => Err(NandError::Rule(Rule::BadBlock(block))),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
