//! The trace file: a header, then compressed blocks of one stream of records.
//!
//! Each block stands alone: it is a zstd frame with its lengths and a CRC. So a reader can read all
//! blocks that were written before the writer was killed. A record may span several blocks. The
//! last block of a trace that was ended properly is empty.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};

use crate::event::Event;
use crate::wire::{Input, Malformed};

/// The first bytes of a trace.
pub const MAGIC: &[u8; 8] = b"onewrsql";

/// The version that this program writes, and the newest that it reads.
pub const VERSION: u32 = 1;

/// Bytes of a block before compression, at most. A writer begins the next block there.
pub const BLOCK_BYTES: usize = 256 << 10;

/// The largest block that a reader accepts.
const MOST_BLOCK_BYTES: u32 = 1 << 20;

/// The longest record that a reader accepts: SQLite's limit for a value, plus 1 MiB.
const MOST_RECORD_BYTES: u64 = (1 << 31) + (1 << 20);

/// Speed matters more than the last percent of size.
const LEVEL: i32 = 2;

/// Why a trace cannot be read or written.
#[derive(Debug)]
pub enum Error {
    /// The system's error.
    Io(io::Error),
    /// The first bytes are not those of a trace.
    NotATrace,
    /// A later version of this program wrote it.
    Newer(u32),
    /// A block differs from what was written, at this byte of the file.
    Damaged(u64, &'static str),
    /// A record is malformed.
    Malformed(Malformed),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(error) => error.fmt(f),
            Error::NotATrace => f.write_str(
                "this is not a trace: \"onewrite record -o FILE -- PROGRAM\" makes one, and \"onewrite import\" of SQL",
            ),
            Error::Newer(version) => write!(
                f,
                "the trace has format version {version}, and this onewrite reads up to {VERSION}: \
                 use a newer onewrite"
            ),
            Error::Damaged(offset, what) => {
                write!(f, "the trace is damaged at byte {offset}: {what}")
            }
            Error::Malformed(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(error) => Some(error),
            Error::Malformed(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Error::Io(error)
    }
}

impl From<Malformed> for Error {
    fn from(error: Malformed) -> Self {
        Error::Malformed(error)
    }
}

/// The properties in a trace's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// Values were masked.
    pub masked: bool,
}

impl Header {
    fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_be_bytes());
        bytes[12..].copy_from_slice(&u32::from(self.masked).to_be_bytes());
        bytes
    }

    fn parse(bytes: &[u8; 16]) -> Result<Self, Error> {
        if &bytes[..8] != MAGIC {
            return Err(Error::NotATrace);
        }
        match word(bytes, 8) {
            0 => Err(Error::Damaged(8, "there is no version 0")),
            version @ 1..=VERSION => {
                let _ = version;
                Ok(Self {
                    masked: word(bytes, 12) & 1 != 0,
                })
            }
            newer => Err(Error::Newer(newer)),
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes
        .iter()
        .skip(at)
        .take(4)
        .fold(0, |word, byte| word << 8 | u32::from(*byte))
}

/// Writes a trace.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    raw: Vec<u8>,
    /// Bytes in the file.
    written: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a trace.
    ///
    /// # Errors
    /// The system's.
    pub fn new(mut out: W, header: Header) -> io::Result<Self> {
        out.write_all(&header.bytes())?;
        Ok(Self {
            out,
            raw: Vec::new(),
            written: 16,
        })
    }

    /// Appends an event. It is in the file after [`Writer::flush`], or once a block is full.
    ///
    /// # Errors
    /// The system's.
    pub fn put(&mut self, event: &Event) -> io::Result<()> {
        event.put(&mut self.raw);
        if self.raw.len() >= BLOCK_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes the events that were added since the last time.
    ///
    /// # Errors
    /// The system's.
    pub fn flush(&mut self) -> io::Result<()> {
        let raw = std::mem::take(&mut self.raw);
        for piece in raw.chunks(BLOCK_BYTES) {
            self.block(piece)?;
        }
        self.raw = raw;
        self.raw.clear();
        self.out.flush()
    }

    /// Bytes of the file so far, without those that [`Writer::flush`] has not written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Ends the trace.
    ///
    /// # Errors
    /// The system's.
    pub fn finish(mut self) -> io::Result<W> {
        self.flush()?;
        self.write_block(0, &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn block(&mut self, raw: &[u8]) -> io::Result<()> {
        let mut stored = vec![0; zstd_safe::compress_bound(raw.len())];
        let length = zstd_safe::compress(&mut stored[..], raw, LEVEL)
            .map_err(|code| io::Error::other(zstd_safe::get_error_name(code)))?;
        stored.truncate(length);
        self.write_block(raw.len() as u32, &stored)
    }

    fn write_block(&mut self, raw: u32, stored: &[u8]) -> io::Result<()> {
        let mut block = Vec::with_capacity(12 + stored.len());
        block.extend_from_slice(&(stored.len() as u32).to_be_bytes());
        block.extend_from_slice(&raw.to_be_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(&block), stored);
        block.extend_from_slice(&crc.to_be_bytes());
        block.extend_from_slice(stored);
        // In one call: a kill leaves a whole block or a cut one, never a hole.
        self.out.write_all(&block)?;
        self.written += block.len() as u64;
        Ok(())
    }
}

/// How a trace ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The reader has not come that far.
    Unread,
    /// Complete: its writer ended it.
    Whole,
    /// In the middle: the recorder was killed, or the disk was full.
    Cut,
}

/// Reads a trace, one event after the other, in memory bounded by the longest record.
#[derive(Debug)]
pub struct Reader<R: Read> {
    input: R,
    header: Header,
    raw: Vec<u8>,
    at: usize,
    /// Bytes of the file that were read.
    offset: u64,
    ending: Ending,
}

impl<R: Read> Reader<R> {
    /// Begins to read.
    ///
    /// # Errors
    /// The file is not a trace, or is of a newer version.
    pub fn new(mut input: R) -> Result<Self, Error> {
        let mut header = [0; 16];
        input
            .read_exact(&mut header)
            .map_err(|error| match error.kind() {
                ErrorKind::UnexpectedEof => Error::NotATrace,
                _ => Error::Io(error),
            })?;
        let header = Header::parse(&header)?;
        Ok(Self {
            input,
            header,
            raw: Vec::new(),
            at: 0,
            offset: 16,
            ending: Ending::Unread,
        })
    }

    /// The trace's header.
    pub fn header(&self) -> Header {
        self.header
    }

    /// How it ended, once [`Reader::next_event`] has returned `None`.
    pub fn ending(&self) -> Ending {
        self.ending
    }

    /// Bytes of the file that were read, to show progress by.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next event; `None` at the end, and where the trace is cut.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged before its end.
    pub fn next_event(&mut self) -> Result<Option<Event>, Error> {
        loop {
            let Some(record) = self.record()? else {
                return Ok(None);
            };
            let event = Event::take(&self.raw[record.clone()])?;
            self.at = record.end;
            if event.is_some() {
                return Ok(event);
            }
        }
    }

    /// The range of the next record in `raw`, without its length.
    fn record(&mut self) -> Result<Option<std::ops::Range<usize>>, Error> {
        loop {
            let mut rest = Input(self.raw.get(self.at..).unwrap_or_default());
            let before = rest.0.len();
            match rest.number() {
                Ok(length) if length > MOST_RECORD_BYTES => {
                    return Err(Error::Damaged(
                        self.offset,
                        "a record is longer than any can be",
                    ));
                }
                Ok(length) if length <= rest.0.len() as u64 => {
                    let begin = self.at + (before - rest.0.len());
                    return Ok(Some(begin..begin + length as usize));
                }
                Err(why) if before >= 10 => return Err(why.into()),
                _ => {}
            }
            if !self.more()? {
                return Ok(None);
            }
        }
    }

    /// Reads a block. Returns false at the end.
    fn more(&mut self) -> Result<bool, Error> {
        if self.ending != Ending::Unread {
            return Ok(false);
        }
        self.raw.drain(..self.at);
        self.at = 0;
        let mut head = [0; 12];
        if !self.fill(&mut head)? {
            return Ok(false);
        }
        let (stored, raw) = (word(&head, 0), word(&head, 4));
        if stored > MOST_BLOCK_BYTES + (64 << 10) || raw > MOST_BLOCK_BYTES {
            return Err(Error::Damaged(
                self.offset,
                "a block is larger than any can be",
            ));
        }
        let mut bytes = vec![0; stored as usize];
        if !self.fill(&mut bytes)? {
            return Ok(false);
        }
        let crc = crc32c::crc32c_append(crc32c::crc32c(&head[..8]), &bytes);
        if crc != word(&head, 8) {
            return Err(Error::Damaged(
                self.offset,
                "a checksum does not fit its block",
            ));
        }
        self.offset += 12 + u64::from(stored);
        if raw == 0 {
            self.ending = match self.raw.is_empty() {
                true => Ending::Whole,
                false => return Err(Error::Damaged(self.offset, "it ends within a record")),
            };
            return Ok(false);
        }
        let mut block = vec![0; raw as usize];
        let length = zstd_safe::decompress(&mut block[..], &bytes)
            .map_err(|_| Error::Damaged(self.offset, "a block cannot be decompressed"))?;
        if length != raw as usize {
            return Err(Error::Damaged(
                self.offset,
                "a block has another length than it says",
            ));
        }
        self.raw.extend_from_slice(&block);
        Ok(true)
    }

    /// Fills `bytes`. Returns false, and marks the trace as cut, where the file has fewer bytes.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<bool, Error> {
        match self.input.read_exact(bytes) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                self.ending = Ending::Cut;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(bytes: usize) -> Event {
        let bytes = (0..bytes).map(|n| (n * n / 7) as u8).collect();
        let path = b"/a".to_vec();
        Event::Content {
            path,
            part: crate::event::Part::Database,
            offset: 0,
            bytes,
        }
    }

    fn trace(events: &[Event]) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new(), Header { masked: true }).unwrap();
        for event in events {
            writer.put(event).unwrap();
        }
        writer.finish().unwrap()
    }

    fn read(bytes: &[u8]) -> Result<(Vec<Event>, Ending), Error> {
        let mut reader = Reader::new(bytes)?;
        assert!(reader.header().masked);
        let mut events = Vec::new();
        while let Some(event) = reader.next_event()? {
            events.push(event);
        }
        Ok((events, reader.ending()))
    }

    #[test]
    fn what_is_written_is_read_over_any_number_of_blocks() {
        let events: Vec<_> = [0, 10, 3 << 20, 5, BLOCK_BYTES, 1].map(content).into();
        let (found, ending) = read(&trace(&events)).unwrap();
        assert!(found == events);
        assert_eq!(ending, Ending::Whole);
    }

    #[test]
    fn a_cut_trace_is_read_up_to_the_cut() {
        let mut writer = Writer::new(Vec::new(), Header { masked: true }).unwrap();
        let mut whole = vec![16];
        for number in 0..20 {
            writer.put(&Event::From(number)).unwrap();
            writer.flush().unwrap();
            whole.push(writer.written() as usize);
        }
        let bytes = writer.finish().unwrap();
        for length in 16..bytes.len() {
            let (events, ending) = read(&bytes[..length]).unwrap();
            let complete = whole.iter().filter(|end| **end <= length).count() - 1;
            assert_eq!(events.len(), complete, "{length}");
            assert_eq!(ending, Ending::Cut);
        }
    }

    #[test]
    fn damage_and_newer_versions_are_told() {
        let good = trace(&[content(1000)]);
        let mut newer = good.clone();
        newer[11] = 2;
        let message = read(&newer).unwrap_err().to_string();
        assert!(
            message.contains("version 2") && message.contains("newer onewrite"),
            "{message}"
        );
        assert!(matches!(
            read(b"SQLite format 3\0 and so on"),
            Err(Error::NotATrace)
        ));
        assert!(matches!(Reader::new(&b"one"[..]), Err(Error::NotATrace)));
        for at in 16..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            // A length that grew beyond the file looks like a cut. The reader never reads wrong
            // data.
            match read(&bad) {
                Ok((events, ending)) => {
                    let in_last = at >= good.len() - 12;
                    assert!(
                        events.len() == usize::from(in_last) && ending == Ending::Cut,
                        "{at}"
                    );
                }
                Err(Error::Damaged(..)) => {}
                Err(other) => panic!("{at}: {other}"),
            }
        }
    }
}
