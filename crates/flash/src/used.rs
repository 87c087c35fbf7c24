//! Makes a new device one that was in use.
//!
//! Blank pages are written with zeros until the device is as full as asked for. Then random pages
//! are rewritten in place, until the NAND was programmed one and a half times over: from then on
//! garbage is collected. Contents stay as they are.

use crate::ftl::{Ftl, FtlError, Lpn};
use crate::random::Random;

/// See the module. Each step is one page, so that other requests may come in between.
pub struct UseUp {
    random: Random,
    /// Pages that were blank when it began, and are to be written.
    blank: Vec<Lpn>,
    held: Vec<Lpn>,
}

impl UseUp {
    /// So that `percent` of the logical pages hold something.
    pub fn new(ftl: &Ftl, percent: u32, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let pages = ftl.pages();
        let wanted = u64::from(pages) * u64::from(percent.min(100)) / 100;
        let mut order: Vec<Lpn> = (0..pages).map(Lpn).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, random.below(at + 1));
        }
        let (mut blank, held): (Vec<Lpn>, Vec<Lpn>) =
            order.into_iter().partition(|lpn| ftl.is_blank(*lpn));
        blank.truncate((wanted as usize).saturating_sub(held.len()));
        Self {
            random,
            blank,
            held,
        }
    }

    /// Writes a page. `false` if the device is a used one.
    ///
    /// # Errors
    /// As [`Ftl::write`].
    pub fn step(&mut self, ftl: &mut Ftl) -> Result<bool, FtlError> {
        if let Some(lpn) = self.blank.pop() {
            // A request may have written it since.
            if ftl.is_blank(lpn) {
                ftl.write(lpn, &vec![0; ftl.page_bytes() as usize])?;
            }
            self.held.push(lpn);
            return Ok(true);
        }
        let programs = ftl.nand().operations().programs;
        if self.held.is_empty() || programs >= u64::from(ftl.nand().geometry().pages()) * 3 / 2 {
            return Ok(false);
        }
        let lpn = self.held[self.random.below(self.held.len())];
        let page = ftl.read(lpn)?;
        ftl.write(lpn, &page)?;
        Ok(true)
    }
}
