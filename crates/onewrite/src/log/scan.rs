//! Reads a log from its first frame on, as SQLite's recovery would. It finds which frames follow
//! one another by salts and checksums, where that ends and why, and what comes after the end.
//!
//! For tools: SQLite itself recovers with its own code, through `commit::read`. A scan changes
//! nothing, takes no lock and holds one page at a time. So it may run on any file, damaged or
//! hostile, and on a log that others are writing. It ends: after the last valid frame it reads at
//! most [`MAX_BEHIND_BYTES`], because a sparse file may claim any size.
//!
//! [`Scan`] is the walk from frame to frame; [`Survey`] is the result of a whole walk.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::log::layout::{Geometry, Slot};
use crate::log::packed::{Form, Packed};
use crate::mode::Layout;
use crate::storage::LogFile;
use crate::waits::{FRAME, Try, try_times};
use crate::wal::{Checksum, FRAME_HEADER_BYTES, FrameHeader, FrameNo, PageNo, WalHeader};

mod survey;

pub use survey::{Behind, Commit, MAX_DISTINCT_PAGES, OpenedLog, Survey, survey_file};

/// How much of the file to read after the last valid frame, in bytes.
pub const MAX_BEHIND_BYTES: u64 = 1 << 30;

/// The source of a scan: a file, or bytes in memory.
pub trait LogBytes {
    /// The total size in bytes.
    ///
    /// # Errors
    /// An I/O error.
    fn size(&self) -> io::Result<u64>;

    /// Reads from `offset` on; fewer bytes than asked for only at the end.
    ///
    /// # Errors
    /// An I/O error.
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Passes the bytes from `offset` on to `look`, `most` of them; fewer only at the end.
    ///
    /// # Errors
    /// An I/O error.
    fn view<R>(&self, most: usize, offset: u64, look: impl FnOnce(&[u8]) -> R) -> io::Result<R> {
        let mut bytes = vec![0; most];
        let n = self.read_at(&mut bytes, offset)?;
        Ok(look(&bytes[..n]))
    }

    /// These bytes will be read soon.
    fn will_read(&self, _range: Range<u64>) {}
}

impl LogBytes for LogFile {
    fn size(&self) -> io::Result<u64> {
        LogFile::size(self).map_err(io::Error::other)
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        LogFile::read_at(self, out, offset).map_err(io::Error::other)
    }

    fn will_read(&self, range: Range<u64>) {
        LogFile::will_read(self, range);
    }
}

impl LogBytes for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut n = 0;
        while n < out.len() {
            match FileExt::read_at(self, &mut out[n..], offset + n as u64) {
                Ok(0) => break,
                Ok(read) => n += read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(n)
    }
}

impl LogBytes for [u8] {
    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        let from = usize::try_from(offset).map_or(self.len(), |at| at.min(self.len()));
        let n = out.len().min(self.len() - from);
        out[..n].copy_from_slice(&self[from..from + n]);
        Ok(n)
    }
}

/// The finding in a frame's slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The next frame of the log: recovery accepts it.
    Valid,
    /// Initialized blocks to which no frame was written.
    Zeros,
    /// A frame with other salts: from before the log restarted, or of no log at all.
    OtherGeneration,
    /// A frame with the log's salts that does not follow the frames before it: a torn write,
    /// damage, or a leftover of a rolled-back transaction.
    Mismatch,
    /// A frame with the log's salts whose displaced bytes are not in the side block.
    NoEntry,
    /// Not a frame: it has no page number.
    NoFrame,
    /// A record with the log's salts, of a kind that this version does not know.
    UnknownKind,
    /// The file ends inside the frame's slot.
    CutShort,
}

impl Verdict {
    /// The verdict as one word, for tables and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Valid => "valid",
            Verdict::Zeros => "zeros",
            Verdict::OtherGeneration => "other-generation",
            Verdict::Mismatch => "checksum-mismatch",
            Verdict::NoEntry => "no-side-entry",
            Verdict::NoFrame => "no-frame",
            Verdict::UnknownKind => "unknown-kind",
            Verdict::CutShort => "cut-short",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A frame's position, and what was found there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// Its number.
    pub frame: FrameNo,
    /// Where its slot begins, in bytes.
    pub offset: u64,
    /// Its length there, in bytes.
    pub bytes: u64,
    /// The frame's header, or the bytes in its place if there is no frame.
    pub header: FrameHeader,
    /// Whether its last 24 bytes were in the side block.
    pub is_escaped: bool,
    /// The verdict on it.
    pub verdict: Verdict,
    /// Whether it has the salts of the log's present generation.
    pub is_present: bool,
    /// Whether its page is in the database: an exchange moved it there (layout `gathered`).
    pub is_in_database: bool,
}

impl Found {
    /// Whether it is a frame of the present generation that ends a transaction. A frame that the
    /// file ends in ends none: SQLite writes the header first, and the page may find no space.
    pub fn is_present_commit(&self) -> bool {
        let is_frame = !matches!(
            self.verdict,
            Verdict::Zeros | Verdict::NoFrame | Verdict::CutShort
        );
        is_frame && self.is_present && self.header.commit_pages != 0
    }
}

/// Whether others may be writing the log while it is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Writers {
    /// No process writes.
    None,
    /// A process may write: a frame that does not follow is read again before that is believed.
    Maybe,
}

/// A walk over the frames of a log; see the module. An iterator that ends with the file, with
/// [`MAX_BEHIND_BYTES`], or with an I/O error.
pub struct Scan<'a, B: ?Sized> {
    bytes: &'a B,
    size: u64,
    geometry: Geometry,
    wal: WalHeader,
    writers: Writers,
    next: FrameNo,
    /// The checksum from which the next frame continues.
    previous: Checksum,
    /// Where the first frame begins that does not follow, in bytes.
    ended_at: Option<u64>,
    is_done: bool,
    page: Vec<u8>,
    /// The database, where pages of the layout `gathered` may also be.
    database: Option<&'a File>,
    /// If frames have no fixed positions: their positions.
    packed: Option<Walked>,
}

impl<'a, B: LogBytes + ?Sized> Scan<'a, B> {
    /// A walk from frame 1 on, over a log whose WAL header is `wal`.
    ///
    /// # Errors
    /// The size cannot be read.
    pub fn new(
        bytes: &'a B,
        geometry: Geometry,
        wal: WalHeader,
        writers: Writers,
    ) -> io::Result<Scan<'a, B>> {
        Ok(Scan {
            size: bytes.size()?,
            bytes,
            previous: wal.checksum(),
            geometry,
            wal,
            writers,
            next: FrameNo(1),
            ended_at: None,
            is_done: false,
            page: vec![0; geometry.page().bytes()],
            database: None,
            packed: walked(bytes, geometry, &wal)?,
        })
    }

    /// The same walk over the log of `database`. An exchange may have moved pages there, and
    /// recovery looks for them there.
    #[must_use]
    pub fn with_database(mut self, database: Option<&'a File>) -> Self {
        self.database = database;
        self
    }

    /// The page of the last frame found, if that frame is valid.
    pub fn page(&self) -> &[u8] {
        &self.page
    }

    fn step(&mut self) -> io::Result<Option<Found>> {
        if self.packed.is_some() {
            return self.step_packed();
        }
        let offset = self.geometry.slot(self.next);
        let too_far = |end: u64| offset.saturating_sub(end) >= MAX_BEHIND_BYTES;
        if offset >= self.size || self.ended_at.is_some_and(too_far) {
            return Ok(None);
        }
        let mut found = self.look()?;
        if self.ended_at.is_none() && self.writers == Writers::Maybe {
            // A writer shows half a frame for a moment.
            try_times(&FRAME, |number| {
                if number > 0 {
                    found = self.look()?;
                }
                Ok::<_, io::Error>(match found.verdict {
                    Verdict::Valid | Verdict::Zeros => Try::Done(()),
                    _ => Try::Later,
                })
            })?;
        }
        match found.verdict {
            Verdict::Valid => self.previous = found.header.checksum,
            _ => self.ended_at = self.ended_at.or(Some(offset)),
        }
        // A log with so many frames has no next one.
        self.is_done = self.next.0 == u32::MAX;
        self.next = self.next.plus(1);
        Ok(Some(found))
    }

    /// The next frame of a log without fixed positions; then the bytes after the last.
    fn step_packed(&mut self) -> io::Result<Option<Found>> {
        let mut found = self.look_packed()?;
        match found.verdict {
            Verdict::Valid if self.ended_at.is_none() => self.previous = found.header.checksum,
            // No frame follows after one that does not.
            Verdict::Valid => found.verdict = Verdict::Mismatch,
            _ => self.ended_at = self.ended_at.or(Some(found.offset)),
        }
        let last = self
            .packed
            .as_ref()
            .map_or(FrameNo(0), |walked| walked.last);
        self.is_done = self.next > last || self.next.0 == u32::MAX;
        self.next = self.next.plus(1);
        Ok((found.offset < self.size).then_some(found))
    }

    fn look_packed(&mut self) -> io::Result<Found> {
        let Some(Walked {
            packed,
            last,
            unread,
        }) = &self.packed
        else {
            return Err(io::Error::other("frames have fixed positions"));
        };
        let mut header = [0; FRAME_HEADER_BYTES];
        let mut found = Found {
            frame: self.next,
            offset: packed.end(),
            bytes: 0,
            header: FrameHeader::parse(&header),
            is_escaped: false,
            verdict: Verdict::Mismatch,
            is_present: false,
            is_in_database: false,
        };
        if self.next > *last {
            (found.verdict, found.is_present) = match unread {
                Some(_) => (Verdict::UnknownKind, true),
                None => packed.behind(self.bytes, self.wal.salts)?,
            };
            return Ok(found);
        }
        let salts = self.wal.salts;
        let out = (&mut header, self.page.as_mut_slice());
        let read = packed.read(self.bytes, None, salts, self.next, None, out)?;
        if let Some(position) = packed.position(self.next) {
            (found.offset, found.bytes) = (position.offset(), position.bytes() as u64);
        }
        found.header = FrameHeader::parse(&header);
        found.is_present = found.header.salts == salts;
        let follows = || found.header.follows(&self.wal, self.previous, &self.page);
        if read == crate::log::packed::Found::Page && follows() {
            found.verdict = Verdict::Valid;
        }
        Ok(found)
    }

    /// Examines the slot of the next frame.
    fn look(&mut self) -> io::Result<Found> {
        let (frame, offset) = (self.next, self.geometry.slot(self.next));
        let (header, slot) = self.read_slot()?;
        let is_zero = header == [0; FRAME_HEADER_BYTES] && self.page.iter().all(|&b| b == 0);
        let header = FrameHeader::parse(&header);
        let is_present = header.salts == self.wal.salts;
        let mut is_in_database = false;
        let verdict = if is_zero {
            Verdict::Zeros
        } else if offset + self.geometry.slot_bytes() > self.size {
            Verdict::CutShort
        } else if header.page == PageNo(0) {
            Verdict::NoFrame
        } else if slot == Slot::Escaped && !self.restore(header)? {
            Verdict::NoEntry
        } else if !is_present {
            Verdict::OtherGeneration
        } else if self.ended_at.is_none() && header.follows(&self.wal, self.previous, &self.page) {
            Verdict::Valid
        } else if self.ended_at.is_none() && self.was_exchanged(&header)? {
            is_in_database = true;
            Verdict::Valid
        } else {
            Verdict::Mismatch
        };
        Ok(Found {
            frame,
            offset,
            bytes: self.geometry.slot_bytes(),
            header,
            is_escaped: slot == Slot::Escaped,
            verdict,
            is_present,
            is_in_database,
        })
    }

    /// Whether the frame's page is in the database; if so, it has been read.
    fn was_exchanged(&mut self, header: &FrameHeader) -> io::Result<bool> {
        let (Some(database), Layout::Gathered) = (self.database, self.geometry.layout()) else {
            return Ok(false);
        };
        let size = self.page.len();
        let at = u64::from(header.page.0.saturating_sub(1)) * size as u64;
        let mut page = vec![0; size];
        match database.read_exact_at(&mut page, at) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            Err(e) => return Err(e),
        }
        let follows = header.follows(&self.wal, self.previous, &page);
        if follows {
            self.page = page;
        }
        Ok(follows)
    }

    /// Reads header and page. Bytes beyond the end of the file are zeros.
    fn read_slot(&mut self) -> io::Result<([u8; FRAME_HEADER_BYTES], Slot)> {
        let frame = self.next;
        read_padded(self.bytes, &mut self.page, self.geometry.page_offset(frame))?;
        let mut header = [0; FRAME_HEADER_BYTES];
        if self.geometry.layout() == Layout::Embedded {
            let slot = Geometry::extract(&mut self.page, &mut header, &[self.wal.salts]);
            return Ok((header, slot));
        }
        read_padded(self.bytes, &mut header, self.geometry.header_offset(frame))?;
        Ok((header, Slot::Plain))
    }

    /// Restores the displaced bytes of an escaped page.
    fn restore(&mut self, header: FrameHeader) -> io::Result<bool> {
        let mut entry = [0; 32];
        let at = self.geometry.entry_offset(self.next);
        read_padded(self.bytes, &mut entry, at)?;
        Ok(Geometry::restore(
            &mut self.page,
            &header.to_bytes(),
            &entry,
        ))
    }
}

impl<B: LogBytes + ?Sized> Iterator for Scan<'_, B> {
    type Item = io::Result<Found>;

    fn next(&mut self) -> Option<io::Result<Found>> {
        if self.is_done {
            return None;
        }
        let step = self.step();
        self.is_done |= !matches!(step, Ok(Some(_)));
        step.transpose()
    }
}

/// The walk over a log without fixed positions.
struct Walked {
    packed: Packed,
    /// The last frame.
    last: FrameNo,
    /// Why the record after it cannot be read: a newer version may have written it.
    unread: Option<String>,
}

fn walked<B: LogBytes + ?Sized>(
    bytes: &B,
    geometry: Geometry,
    wal: &WalHeader,
) -> io::Result<Option<Walked>> {
    let form = match geometry.layout() {
        Layout::Packed => Form::Packed,
        Layout::Compressed => Form::Compressed,
        _ => return Ok(None),
    };
    let packed = Packed::new(form, geometry.page());
    let unread = match packed.survey(bytes, wal.salts) {
        Ok(_) => None,
        Err(e) if e.kind() == io::ErrorKind::Unsupported => Some(e.to_string()),
        Err(e) => return Err(e),
    };
    let last = packed.last();
    Ok(Some(Walked {
        packed,
        last,
        unread,
    }))
}

fn read_padded<B: LogBytes + ?Sized>(bytes: &B, out: &mut [u8], at: u64) -> io::Result<()> {
    let n = bytes.read_at(out, at)?;
    out[n..].fill(0);
    Ok(())
}

#[cfg(test)]
mod tests;
