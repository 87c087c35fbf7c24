//! A history in a file, with its initial medium, so that a cut can be repeated later.
//!
//! ```text
//! "OWFLASH1" | medium's bytes | blocks | (number, 4096 bytes)... | events | event...
//! event: tag, microseconds, then
//!   1 write: offset, length, data      3 flush      5 mark: number
//!   2 zero:  offset, length            4 FUA flush: position
//! ```
//! Numbers are little-endian u64.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use crate::error::Error;
use crate::history::{Covers, Event, History, Position};
use crate::image::{BLOCK, Image};

const MAGIC: &[u8; 8] = b"OWFLASH1";

/// Writes `history` and its initial medium to `path`.
///
/// # Errors
/// Errors of the file system.
pub fn save(path: &Path, base: &Image, history: &History) -> Result<(), Error> {
    let file = File::create(path).map_err(Error::io("create", path))?;
    let mut out = BufWriter::new(file);
    write_all(&mut out, base, history)
        .and_then(|()| out.flush())
        .map_err(Error::io("write", path))
}

fn write_all(out: &mut impl Write, base: &Image, history: &History) -> std::io::Result<()> {
    let number = |out: &mut dyn Write, number: u64| out.write_all(&number.to_le_bytes());
    out.write_all(MAGIC)?;
    number(out, base.bytes())?;
    number(out, base.blocks().count() as u64)?;
    for (block, bytes) in base.blocks() {
        number(out, block)?;
        out.write_all(bytes)?;
    }
    number(out, history.events().len() as u64)?;
    for (index, event) in history.events().iter().enumerate() {
        let (tag, fields): (u64, Vec<u64>) = match event {
            Event::Write { offset, data } => (1, vec![*offset, data.len() as u64]),
            Event::Zero { offset, bytes } => (2, vec![*offset, *bytes]),
            Event::Flush(Covers::Everything) => (3, vec![]),
            Event::Flush(Covers::WritesSince(from)) => (4, vec![from.0 as u64]),
            Event::Mark(mark) => (5, vec![*mark]),
        };
        number(out, tag)?;
        number(out, history.microseconds(Position(index + 1)))?;
        for field in fields {
            number(out, field)?;
        }
        if let Event::Write { data, .. } = event {
            out.write_all(data)?;
        }
    }
    Ok(())
}

/// Reads a file of [`save`].
///
/// # Errors
/// Errors of the file system, and a file of another format.
pub fn load(path: &Path) -> Result<(Image, History), Error> {
    let bytes = fs::read(path).map_err(Error::io("read", path))?;
    parse(&bytes).map_err(|message| Error::Format {
        path: path.to_owned(),
        message,
    })
}

/// Parses a file of [`save`], from memory.
///
/// # Errors
/// A message about the part that does not fit.
pub fn parse(bytes: &[u8]) -> Result<(Image, History), String> {
    Input { bytes, at: 0 }.all()
}

struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Input<'_> {
    fn take(&mut self, length: u64) -> Result<&[u8], String> {
        let end = usize::try_from(length)
            .ok()
            .and_then(|length| self.at.checked_add(length));
        let taken = end.and_then(|end| self.bytes.get(self.at..end));
        let taken = taken.ok_or_else(|| format!("it ends before byte {} + {length}", self.at))?;
        self.at += taken.len();
        Ok(taken)
    }

    fn number(&mut self) -> Result<u64, String> {
        let at = self.at;
        let bytes = self.take(8)?;
        let bytes = bytes.try_into();
        bytes
            .map(u64::from_le_bytes)
            .map_err(|_| format!("no number at byte {at}"))
    }

    fn all(&mut self) -> Result<(Image, History), String> {
        if self.take(MAGIC.len() as u64)? != MAGIC {
            return Err("it does not begin with OWFLASH1".to_owned());
        }
        let medium = self.number()?;
        let mut image = Image::new(medium);
        for _ in 0..self.number()? {
            let offset = self.number()?.saturating_mul(BLOCK as u64);
            image.write(offset, self.take(BLOCK as u64)?);
        }
        let mut history = History::default();
        for _ in 0..self.number()? {
            let at = self.at;
            let (tag, microseconds) = (self.number()?, self.number()?);
            let event = match tag {
                1 => {
                    let (offset, length) = (self.number()?, self.number()?);
                    let data = self.take(length)?.into();
                    Event::Write { offset, data }
                }
                2 => Event::Zero {
                    offset: self.number()?,
                    bytes: self.number()?,
                },
                3 => Event::Flush(Covers::Everything),
                4 => Event::Flush(Covers::WritesSince(Position(self.number()? as usize))),
                5 => Event::Mark(self.number()?),
                tag => return Err(format!("an event has tag {tag} at byte {at}")),
            };
            if let Some((offset, bytes)) = event.range()
                && offset.checked_add(bytes).is_none_or(|end| end > medium)
            {
                return Err(format!(
                    "an event at byte {at} changes {bytes} bytes at {offset} of a medium of {medium}"
                ));
            }
            history.push(event, microseconds);
        }
        Ok((image, history))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_read_back_and_a_short_file_is_refused() {
        let mut image = Image::new(100_000);
        image.write(5000, &[7; 9000]);
        let mut history = History::default();
        let data = vec![1, 2, 3].into();
        history.push(Event::Write { offset: 9, data }, 10);
        let (offset, bytes) = (512, 1024);
        history.push(Event::Zero { offset, bytes }, 20);
        history.push(Event::Flush(Covers::Everything), 30);
        history.push(Event::Mark(42), 40);
        history.push(Event::Flush(Covers::WritesSince(Position(3))), 50);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history");
        save(&path, &image, &history).unwrap();
        let (image_read, history_read) = load(&path).unwrap();
        assert_eq!(format!("{history_read:?}"), format!("{history:?}"));
        let (mut a, mut b) = (vec![0; 100_000], vec![0; 100_000]);
        image.read(0, &mut a);
        image_read.read(0, &mut b);
        assert_eq!(a, b);
        let bytes = fs::read(&path).unwrap();
        // The write's offset: the last numbers before its three bytes.
        let offset = bytes
            .windows(11)
            .position(|w| w == [3, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3]);
        let offset = offset.unwrap() - 8;
        for far in [99_998, u64::MAX - 1] {
            let mut damaged = bytes.clone();
            damaged[offset..offset + 8].copy_from_slice(&far.to_le_bytes());
            let refused = parse(&damaged).map(drop).unwrap_err();
            assert!(refused.contains("of a medium of 100000"), "{refused}");
        }
        for length in (0..bytes.len()).step_by(97) {
            fs::write(&path, &bytes[..length]).unwrap();
            assert!(load(&path).is_err(), "{length} bytes");
        }
    }
}
