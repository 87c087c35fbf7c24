//! Makes a new device one that was in use.
//!
//! Blank pages are written with zeros until the device is as full as asked for. Then random pages
//! are rewritten in place, so that garbage is collected. Contents stay as they are.
//!
//! *[`Until::Programmed`]*: the blank pages are taken at random, and the end is when the NAND was
//! programmed one and a half times over, or as often as [`UseUp::programmed`] says.
//! *[`Until::Steady`]*: they are written in order, and the end is when write amplification is steady. Order and steady state are those of SNIA's Solid State
//! Storage Performance Test Specification. In a window of five rounds the values differ by at most a
//! fifth of their mean, and their trend by at most a tenth. A round has a write for each four pages.

use crate::ftl::{Ftl, FtlError, Lpn};
use crate::random::Random;

/// The end of the use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The NAND was programmed [`PROGRAMMED`] percent over.
    Programmed,
    /// Write amplification is steady, or has had [`MOST_ROUNDS`].
    Steady,
}

/// Percent of the NAND's pages that are programmed, unless the caller sets it.
pub const PROGRAMMED: u32 = 150;

/// Rounds that are compared.
const WINDOW: usize = 5;
/// The most rounds.
pub const MOST_ROUNDS: usize = 100;

/// See the module. Each step is one page, so that other requests may come in between.
pub struct UseUp {
    random: Random,
    /// Pages that were blank when it began, and are to be written.
    blank: Vec<Lpn>,
    held: Vec<Lpn>,
    until: Until,
    /// Percent of the NAND's pages.
    programmed: u32,
    rounds: Rounds,
}

/// The write amplification of each round.
#[derive(Default)]
struct Rounds {
    /// Steps to the end of this one.
    left: usize,
    /// The host's pages and the programs when it began.
    begin: Option<(u64, u64)>,
    amplifications: Vec<f64>,
}

impl Rounds {
    /// A step begins. Whether the rounds before it are enough.
    fn are_enough(&mut self, ftl: &Ftl) -> bool {
        if self.left > 0 {
            self.left -= 1;
            return false;
        }
        let now = (
            ftl.statistics().host_writes,
            ftl.nand().operations().programs,
        );
        if let Some((writes, programs)) = self.begin.replace(now) {
            let written = (now.0 - writes).max(1) as f64;
            self.amplifications
                .push((now.1 - programs) as f64 / written);
        }
        self.left = ftl.pages() as usize / 4;
        is_steady(&self.amplifications) || self.amplifications.len() >= MOST_ROUNDS
    }
}

/// Whether the last [`WINDOW`] values are steady.
fn is_steady(values: &[f64]) -> bool {
    let Some(first) = values.len().checked_sub(WINDOW) else {
        return false;
    };
    let window = &values[first..];
    let mean = window.iter().sum::<f64>() / WINDOW as f64;
    let (least, most) = window
        .iter()
        .fold((f64::MAX, f64::MIN), |(least, most), value| {
            (least.min(*value), most.max(*value))
        });
    // The slope of the best straight line, over the whole window.
    let middle = (WINDOW - 1) as f64 / 2.0;
    let at = |number: usize| number as f64 - middle;
    let both: f64 = (0..WINDOW).map(|n| at(n) * (window[n] - mean)).sum();
    let squares: f64 = (0..WINDOW).map(|n| at(n) * at(n)).sum();
    let trend = both / squares * (WINDOW - 1) as f64;
    most - least <= mean * 0.2 && trend.abs() <= mean * 0.1
}

impl UseUp {
    /// So that `percent` of the logical pages hold something.
    pub fn new(ftl: &Ftl, percent: u32, until: Until, seed: u64) -> Self {
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
        if until == Until::Steady {
            // The last one is written first.
            blank.sort_unstable_by_key(|lpn| std::cmp::Reverse(*lpn));
        }
        Self {
            random,
            blank,
            held,
            until,
            programmed: PROGRAMMED,
            rounds: Rounds::default(),
        }
    }

    /// So that at least as many pages as `percent` of the NAND's are programmed, of all that there
    /// ever were. With 0 no page is rewritten.
    pub fn programmed(self, percent: u32) -> Self {
        Self {
            programmed: percent,
            ..self
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
        if self.held.is_empty() || self.is_enough(ftl) {
            return Ok(false);
        }
        let lpn = self.held[self.random.below(self.held.len())];
        let page = ftl.read(lpn)?;
        ftl.write(lpn, &page)?;
        Ok(true)
    }

    fn is_enough(&mut self, ftl: &Ftl) -> bool {
        let programs = ftl.nand().operations().programs;
        let pages = u64::from(ftl.nand().geometry().pages());
        let is_programmed = programs >= pages * u64::from(self.programmed) / 100;
        match self.until {
            Until::Programmed => is_programmed,
            // Before that, no garbage may have been collected.
            Until::Steady => is_programmed && self.rounds.are_enough(ftl),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ftl::Config;
    use crate::nand::timing::Timing;
    use crate::nand::{Geometry, Nand};

    #[test]
    fn steady_is_a_window_without_spread_and_without_trend() {
        assert!(!is_steady(&[2.0; 4]));
        assert!(is_steady(&[9.0, 2.0, 2.1, 1.95, 2.05, 2.0]));
        assert!(!is_steady(&[2.0, 2.5, 2.0, 2.5, 2.0]), "spread");
        assert!(!is_steady(&[1.85, 1.93, 2.0, 2.07, 2.15]), "trend");
    }

    fn small_device() -> Ftl {
        let geometry = Geometry {
            page_bytes: 512,
            pages_per_block: 16,
            ..Geometry::openssd(128)
        };
        let like = Config {
            table_capacity: 20,
            ..Config::new(0)
        };
        let config = Config::with_spare(&geometry, 20, like).unwrap();
        let nand = Nand::new(geometry, Timing::built_in("openssd").unwrap()).unwrap();
        Ftl::open(nand, config).unwrap().0
    }

    #[test]
    fn a_device_is_used_until_its_amplification_is_steady() {
        let mut ftl = small_device();
        let mut steps = UseUp::new(&ftl, 90, Until::Steady, 1);
        while steps.step(&mut ftl).unwrap() {}
        let rounds = &steps.rounds.amplifications;
        println!("{rounds:?}");
        assert!((WINDOW..MOST_ROUNDS).contains(&rounds.len()));
        assert!(rounds.last().is_some_and(|last| *last > 1.2), "{rounds:?}");
        // For the usual end it is long since used.
        let programs = ftl.nand().operations().programs;
        let mut usual = UseUp::new(&ftl, 90, Until::Programmed, 1);
        assert!(!usual.step(&mut ftl).unwrap());
        assert_eq!(ftl.nand().operations().programs, programs);
    }

    #[test]
    fn a_device_is_programmed_as_often_as_its_caller_says() {
        let programs = |percent| {
            let mut ftl = small_device();
            let steps = UseUp::new(&ftl, 50, Until::Programmed, 1);
            let mut steps = match percent {
                Some(percent) => steps.programmed(percent),
                None => steps,
            };
            while steps.step(&mut ftl).unwrap() {}
            let filled = u64::from(ftl.pages()) / 2;
            (ftl.nand().operations().programs, filled)
        };
        let pages = u64::from(small_device().nand().geometry().pages());
        // With 0 it is as full, and nothing was rewritten.
        let (none, filled) = programs(Some(0));
        assert!((filled..filled + filled / 10).contains(&none), "{none}");
        for (percent, expected) in [(None, pages * 3 / 2), (Some(300), pages * 3)] {
            let (programs, _) = programs(percent);
            assert!((expected..expected + 100).contains(&programs), "{programs}");
        }
    }
}
