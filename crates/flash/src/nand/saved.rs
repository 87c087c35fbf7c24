//! NAND in a file, with the content of every page. Big-endian.
//!
//! ```text
//! 24   geometry: page bytes, pages a block, blocks a plane, planes a die, dies a channel, channels (4 each)
//! 32   times: read, program, erase in us, transfer in MB/s (8 each, IEEE 754)
//!  4   endurance
//!      description and sources: number of texts (4), then each with its length (4) before it
//! 40   time in ns, reads, programs, erases, failures (8 each)
//!      of each block: erases (4), next page (4), bad (1), needs an erase (1), then of each page:
//!      0 erased | 1 programmed, out-of-band area, data | 2 unreadable |
//!      3 programmed, out-of-band area, the byte (1) that all bytes of the data are
//! ```
//!
//! Paired pages and bit errors follow on their own: whether there are any of each (1, 1). If there
//! are bit errors, then come the bits that are corrected (4), the rates for each erase, read and day
//! (8 each, IEEE 754), and of each block its reads (4) and the time of its first page in ns (8).

use std::io::{self, Write};
use std::sync::Arc;

use super::block::{Block, OOB_BYTES, Page};
use super::clock::Clock;
use super::filled::{Filled, uniform};
use super::timing::Timing;
use super::{BitErrors, Faults, Geometry, Last, Nand, Operations};

/// Longer texts in a file are invalid.
const MAX_TEXT: u32 = 64 << 10;
/// The most bytes that a device may have: memory holds it.
pub const MAX_BYTES: u64 = 64 << 30;

impl Nand {
    /// Writes all of it.
    ///
    /// # Errors
    /// That of `out`.
    pub fn encode(&self, out: &mut impl Write) -> io::Result<()> {
        let Geometry {
            page_bytes,
            pages_per_block,
            blocks_per_plane,
            planes_per_die,
            dies_per_channel,
            channels,
        } = self.geometry;
        let sizes = [
            page_bytes,
            pages_per_block,
            blocks_per_plane,
            planes_per_die,
            dies_per_channel,
            channels,
        ];
        for size in sizes {
            out.write_all(&size.to_be_bytes())?;
        }
        let timing = &self.timing;
        for time in [
            timing.read_us,
            timing.program_us,
            timing.erase_us,
            timing.transfer_mb_per_s,
        ] {
            out.write_all(&time.to_be_bytes())?;
        }
        out.write_all(&timing.endurance.to_be_bytes())?;
        let texts = [&timing.description].into_iter().chain(&timing.sources);
        out.write_all(&(1 + timing.sources.len() as u32).to_be_bytes())?;
        for text in texts {
            out.write_all(&(text.len() as u32).to_be_bytes())?;
            out.write_all(text.as_bytes())?;
        }
        let Operations {
            reads,
            programs,
            erases,
            failures,
        } = self.operations;
        for count in [self.clock.now().0, reads, programs, erases, failures] {
            out.write_all(&count.to_be_bytes())?;
        }
        self.blocks.iter().try_for_each(|block| block.encode(out))
    }

    /// Takes a NAND from the start of `bytes`; its dies are idle.
    ///
    /// # Errors
    /// A message about the mistake.
    pub fn decode(bytes: &mut &[u8]) -> Result<Self, String> {
        let geometry = Geometry {
            page_bytes: word(bytes)?,
            pages_per_block: word(bytes)?,
            blocks_per_plane: word(bytes)?,
            planes_per_die: word(bytes)?,
            dies_per_channel: word(bytes)?,
            channels: word(bytes)?,
        };
        geometry.check()?;
        if geometry.bytes() > MAX_BYTES {
            return Err(format!("{} bytes are too many", geometry.bytes()));
        }
        let times = [long(bytes)?, long(bytes)?, long(bytes)?, long(bytes)?].map(f64::from_bits);
        let endurance = word(bytes)?;
        let texts = word(bytes)?.min(1000);
        let mut texts = (0..texts)
            .map(|_| text(bytes))
            .collect::<Result<Vec<_>, _>>()?;
        if texts.is_empty() || times.iter().any(|time| !time.is_finite() || *time < 0.0) {
            return Err("the times of its NAND are none".to_owned());
        }
        let timing = Timing {
            description: texts.remove(0),
            sources: texts,
            read_us: times[0],
            program_us: times[1],
            erase_us: times[2],
            transfer_mb_per_s: times[3].max(0.001),
            endurance,
        };
        let mut clock = Clock::new(&geometry);
        clock.pass(long(bytes)?);
        let operations = Operations {
            reads: long(bytes)?,
            programs: long(bytes)?,
            erases: long(bytes)?,
            failures: long(bytes)?,
        };
        let (mut blocks, mut filled) = (Vec::new(), Filled::default());
        for _ in 0..geometry.blocks() {
            blocks.push(Block::decode(bytes, &geometry, &mut filled)?);
        }
        Ok(Self {
            geometry,
            timing,
            blocks,
            clock,
            last: vec![Last::Nothing; geometry.dies() as usize],
            together: vec![Vec::new(); geometry.dies() as usize],
            loaded: vec![None; geometry.dies() as usize],
            bit_errors: None,
            has_pairs: false,
            corrected_percent: 0,
            faults: Faults::default(),
            operations,
            filled,
            is_on: true,
        })
    }
}

impl Nand {
    /// Writes the parts by choice.
    ///
    /// # Errors
    /// That of `out`.
    pub(crate) fn encode_choices(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&[
            u8::from(self.has_pairs),
            u8::from(self.bit_errors.is_some()),
        ])?;
        let Some(errors) = &self.bit_errors else {
            return Ok(());
        };
        out.write_all(&errors.corrects.to_be_bytes())?;
        for rate in [errors.per_erase, errors.per_read, errors.per_day] {
            out.write_all(&rate.to_be_bytes())?;
        }
        for block in &self.blocks {
            out.write_all(&block.reads.to_be_bytes())?;
            out.write_all(&block.programmed_ns.to_be_bytes())?;
        }
        Ok(())
    }

    /// Takes the parts by choice from the start of `bytes`.
    ///
    /// # Errors
    /// A message about the mistake.
    pub(crate) fn decode_choices(&mut self, bytes: &mut &[u8]) -> Result<(), String> {
        self.has_pairs = take(bytes, 1)?[0] != 0;
        if take(bytes, 1)?[0] == 0 {
            return Ok(());
        }
        let corrects = word(bytes)?;
        let rates = [long(bytes)?, long(bytes)?, long(bytes)?].map(f64::from_bits);
        let errors = BitErrors {
            corrects,
            per_erase: rates[0],
            per_read: rates[1],
            per_day: rates[2],
        };
        if !errors.is_possible() {
            return Err("its bit errors are none".to_owned());
        }
        self.bit_errors = Some(errors);
        for block in &mut self.blocks {
            block.reads = word(bytes)?;
            block.programmed_ns = long(bytes)?;
        }
        Ok(())
    }
}

impl Block {
    fn encode(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&self.erases.to_be_bytes())?;
        out.write_all(&self.next.to_be_bytes())?;
        out.write_all(&[u8::from(self.is_bad), u8::from(self.needs_erase)])?;
        for page in 0..self.count {
            match self.page(page) {
                Page::Erased => out.write_all(&[0])?,
                Page::Programmed { data, oob } => {
                    let uniform = uniform(data);
                    out.write_all(&[if uniform.is_some() { 3 } else { 1 }])?;
                    out.write_all(oob)?;
                    match uniform {
                        Some(byte) => out.write_all(&[byte])?,
                        None => out.write_all(data)?,
                    }
                }
                Page::Unreadable => out.write_all(&[2])?,
            }
        }
        Ok(())
    }

    fn decode(bytes: &mut &[u8], geometry: &Geometry, filled: &mut Filled) -> Result<Self, String> {
        let (erases, next) = (word(bytes)?, word(bytes)?);
        let flags = take(bytes, 2)?;
        if next > geometry.pages_per_block {
            return Err(format!("{next} pages of a block are programmed"));
        }
        let mut block = Self {
            pages: Vec::new(),
            count: geometry.pages_per_block,
            next,
            needs_erase: flags[1] != 0,
            is_bad: flags[0] != 0,
            erases,
            reads: 0,
            programmed_ns: 0,
        };
        for _ in 0..geometry.pages_per_block {
            let page = match take(bytes, 1)?[0] {
                0 => Page::Erased,
                kind @ (1 | 3) => {
                    let mut oob = [0; OOB_BYTES];
                    oob.copy_from_slice(take(bytes, OOB_BYTES)?);
                    let length = geometry.page_bytes as usize;
                    let data = match kind {
                        1 => Arc::from(take(bytes, length)?),
                        _ => filled.page(take(bytes, 1)?[0], length),
                    };
                    Page::Programmed { data, oob }
                }
                2 => Page::Unreadable,
                other => return Err(format!("a page is of kind {other}")),
            };
            block.pages.push(page);
        }
        let is_used = |page: &Page| !matches!(page, Page::Erased);
        let used = block.pages.iter().rposition(is_used);
        block.pages.truncate(used.map_or(0, |last| last + 1));
        block.pages.shrink_to_fit();
        Ok(block)
    }
}

/// The next `count` bytes.
pub(crate) fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8], String> {
    let (taken, rest) = bytes.split_at_checked(count).ok_or("it ends early")?;
    *bytes = rest;
    Ok(taken)
}

/// The next 32 bits.
pub(crate) fn word(bytes: &mut &[u8]) -> Result<u32, String> {
    take(bytes, 4).map(|taken| crate::ftl::oob::be32(taken, 0))
}

fn long(bytes: &mut &[u8]) -> Result<u64, String> {
    take(bytes, 8).map(|taken| crate::ftl::oob::be64(taken, 0))
}

fn text(bytes: &mut &[u8]) -> Result<String, String> {
    let length = word(bytes)?;
    if length > MAX_TEXT {
        return Err(format!("a text of {length} bytes"));
    }
    Ok(String::from_utf8_lossy(take(bytes, length as usize)?).into_owned())
}
