//! Reads a log from its first frame on, as SQLite's recovery would: which frames follow one
//! another by salts and checksums, where that ends and why, and what stands behind the end.
//!
//! For tools: SQLite itself recovers through `commit::read`, by its own code. A scan changes
//! nothing, takes no lock and holds one page at a time, so that it may be run on any file, damaged
//! or hostile, and on a log that others are writing. It ends: behind the last valid frame it looks
//! at [`MAX_BEHIND_BYTES`] at most, because a sparse file may claim to be of any size.
//!
//! [`Scan`] is the walk from frame to frame; [`Survey`] is what a whole walk comes to.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use crate::log::layout::{Geometry, Layout, Slot};
use crate::log::packed::{Form, Packed};
use crate::log::{ErrorKind, HeaderError, LogError, LogHeader, header};
use crate::storage::{Access, Create, DirectIo, LogFile};
use crate::wal::{Checksum, FRAME_HEADER_BYTES, FrameHeader, FrameNo, PageNo, WalHeader, array};

/// So much of the file is looked at behind the last valid frame, in bytes.
pub const MAX_BEHIND_BYTES: u64 = 1 << 30;
/// Pages are told apart up to so many; it bounds the memory of a [`Survey`].
pub const MAX_DISTINCT_PAGES: usize = 1 << 20;

/// A log that somebody writes shows half a frame for a moment: such a frame is read again so often,
/// with this pause between.
const REREADS: u32 = 4;
const REREAD_PAUSE: Duration = Duration::from_millis(2);

/// Where a scan reads: a file, or bytes in memory.
pub trait LogBytes {
    /// Bytes in all.
    ///
    /// # Errors
    /// An I/O error.
    fn size(&self) -> io::Result<u64>;

    /// Reads from `offset` on; fewer bytes than asked for only at the end.
    ///
    /// # Errors
    /// An I/O error.
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Shows `look` the bytes from `offset` on, `most` of them; fewer only at the end.
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

/// What stands where a frame belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The next frame of the log: recovery takes it.
    Valid,
    /// Initialized blocks that no frame was written to.
    Zeros,
    /// A frame with other salts: of before the log started again, or of no log at all.
    OtherGeneration,
    /// A frame with the log's salts that does not follow from the frames before it: a torn write,
    /// damage, or what is left of a transaction that was rolled back.
    Mismatch,
    /// A frame with the log's salts whose displaced bytes are not in the side block.
    NoEntry,
    /// No frame: it has no page number.
    NoFrame,
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
            Verdict::CutShort => "cut-short",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A frame's place, and what was found there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// Its number.
    pub frame: FrameNo,
    /// Where its slot begins, in bytes.
    pub offset: u64,
    /// How many bytes it takes there.
    pub bytes: u64,
    /// The frame's header; what a header would be where there is no frame.
    pub header: FrameHeader,
    /// Its last 24 bytes were in the side block.
    pub is_escaped: bool,
    /// What it is.
    pub verdict: Verdict,
    /// Whether it has the salts of the log's present generation.
    pub is_present: bool,
}

impl Found {
    /// Whether it is a frame of the present generation that ends a transaction.
    pub fn is_present_commit(&self) -> bool {
        let is_frame = !matches!(self.verdict, Verdict::Zeros | Verdict::NoFrame);
        is_frame && self.is_present && self.header.commit_pages != 0
    }
}

/// Whether others may be writing the log while it is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Writers {
    /// Nobody writes.
    None,
    /// Somebody may: a frame that does not follow is read again before that is believed.
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
    /// The checksum that the next frame goes on from.
    previous: Checksum,
    /// Where the first frame stands that does not follow, in bytes.
    ended_at: Option<u64>,
    is_done: bool,
    page: Vec<u8>,
    /// Where frames have no fixed positions: where they are, and the last that there is.
    packed: Option<(Packed, FrameNo)>,
}

impl<'a, B: LogBytes + ?Sized> Scan<'a, B> {
    /// A walk from frame 1 on over a log whose WAL header is `wal`.
    ///
    /// # Errors
    /// The size cannot be told.
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
            packed: walked(bytes, geometry, &wal)?,
        })
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
            for _ in 0..REREADS {
                if matches!(found.verdict, Verdict::Valid | Verdict::Zeros) {
                    break;
                }
                std::thread::sleep(REREAD_PAUSE);
                found = self.look()?;
            }
        }
        match found.verdict {
            Verdict::Valid => self.previous = found.header.checksum,
            _ => self.ended_at = self.ended_at.or(Some(offset)),
        }
        // A log of so many frames has no next one.
        self.is_done = self.next.0 == u32::MAX;
        self.next = self.next.plus(1);
        Ok(Some(found))
    }

    /// The next frame of a log without fixed positions; then what stands behind the last.
    fn step_packed(&mut self) -> io::Result<Option<Found>> {
        if self.ended_at.is_some() {
            return Ok(None);
        }
        let found = self.look_packed()?;
        match found.verdict {
            Verdict::Valid => self.previous = found.header.checksum,
            _ => self.ended_at = Some(found.offset),
        }
        self.is_done = self.next.0 == u32::MAX;
        self.next = self.next.plus(1);
        Ok((found.offset < self.size).then_some(found))
    }

    fn look_packed(&mut self) -> io::Result<Found> {
        let Some((packed, last)) = &self.packed else {
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
        };
        if self.next > *last {
            (found.verdict, found.is_present) = packed.behind(self.bytes, self.wal.salts)?;
            return Ok(found);
        }
        let salts = self.wal.salts;
        let out = (&mut header, self.page.as_mut_slice());
        let read = packed.read(self.bytes, None, salts, self.next, None, out)?;
        if let Some(place) = packed.place(self.next) {
            (found.offset, found.bytes) = (place.offset(), place.bytes() as u64);
        }
        found.header = FrameHeader::parse(&header);
        found.is_present = found.header.salts == salts;
        let follows = || found.header.follows(&self.wal, self.previous, &self.page);
        if read == crate::log::packed::Found::Page && follows() {
            found.verdict = Verdict::Valid;
        }
        Ok(found)
    }

    /// Looks at the place of the next frame.
    fn look(&mut self) -> io::Result<Found> {
        let (frame, offset) = (self.next, self.geometry.slot(self.next));
        let (header, slot) = self.read_slot()?;
        let is_zero = header == [0; FRAME_HEADER_BYTES] && self.page.iter().all(|&b| b == 0);
        let header = FrameHeader::parse(&header);
        let is_present = header.salts == self.wal.salts;
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
        })
    }

    /// Reads header and page; what the file does not have is zeros.
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

    /// Puts the displaced bytes of an escaped page back.
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

/// The positions in a log that has no fixed ones.
fn walked<B: LogBytes + ?Sized>(
    bytes: &B,
    geometry: Geometry,
    wal: &WalHeader,
) -> io::Result<Option<(Packed, FrameNo)>> {
    let form = match geometry.layout() {
        Layout::Packed => Form::Packed,
        Layout::Compressed => Form::Compressed,
        _ => return Ok(None),
    };
    let packed = Packed::new(form, geometry.page());
    let last = packed.survey(bytes, wal.salts)?;
    Ok(Some((packed, last)))
}

fn read_padded<B: LogBytes + ?Sized>(bytes: &B, out: &mut [u8], at: u64) -> io::Result<()> {
    let n = bytes.read_at(out, at)?;
    out[n..].fill(0);
    Ok(())
}

/// The last transaction that recovery finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Commit {
    /// Its last frame.
    pub frame: FrameNo,
    /// Pages of the database after it.
    pub pages: u32,
}

/// What stands behind the last valid frame: counts of places.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Behind {
    /// Never written.
    pub zeros: u64,
    /// Frames with other salts.
    pub other_generation: u64,
    /// Frames with the log's present salts.
    pub present: u64,
    /// Those of them that end a transaction.
    pub present_commits: u64,
    /// Anything else.
    pub other: u64,
}

/// What a whole walk comes to.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// The last frame that follows; 0 where not even frame 1 does.
    pub valid: u32,
    /// The last commit.
    pub committed: Option<Commit>,
    /// Commits among the valid frames.
    pub transactions: u64,
    /// Escaped frames among the valid ones.
    pub escaped: u64,
    /// What stands where the next frame would be; `None` at the end of the file.
    pub end: Option<Found>,
    /// What stands from there on.
    pub behind: Behind,
    /// Where the valid frames end, in bytes.
    pub used_bytes: u64,
    /// Bytes of the file.
    pub size: u64,
    /// Somebody appended frames meanwhile: what is said of the places behind is not to be relied on.
    pub grew: bool,
    /// Page to the first frame that holds it; `None` beyond [`MAX_DISTINCT_PAGES`].
    pages: Option<BTreeMap<u32, u32>>,
}

impl Survey {
    /// Walks over a log.
    ///
    /// # Errors
    /// An I/O error.
    pub fn of<B: LogBytes + ?Sized>(
        bytes: &B,
        geometry: Geometry,
        wal: WalHeader,
        writers: Writers,
    ) -> io::Result<Survey> {
        let mut scan = Scan::new(bytes, geometry, wal, writers)?;
        let mut survey = Survey {
            size: scan.size,
            used_bytes: geometry.slot(FrameNo(1)).min(scan.size),
            pages: Some(BTreeMap::new()),
            ..Survey::default()
        };
        let mut resumes_from = None;
        for found in scan.by_ref() {
            let found = found?;
            match found.verdict {
                Verdict::Valid => survey.count_valid(&found, found.offset + found.bytes),
                _ => survey.count_behind(&found),
            }
            resumes_from = resumes_from.or(survey.end.map(|end| end.frame));
        }
        if let Some(end) = resumes_from.filter(|_| writers == Writers::Maybe) {
            (scan.next, scan.ended_at) = (end, None);
            survey.grew = match walked(bytes, geometry, &wal)? {
                Some((_, last)) => last >= end,
                None => scan.look()?.verdict == Verdict::Valid,
            };
        }
        Ok(survey)
    }

    fn count_valid(&mut self, found: &Found, ends_at: u64) {
        self.valid = found.frame.0;
        self.used_bytes = ends_at;
        self.escaped += u64::from(found.is_escaped);
        if let Some(pages) = &mut self.pages {
            pages.entry(found.header.page.0).or_insert(found.frame.0);
        }
        if self
            .pages
            .as_ref()
            .is_some_and(|p| p.len() > MAX_DISTINCT_PAGES)
        {
            self.pages = None;
        }
        if found.header.commit_pages != 0 {
            self.transactions += 1;
            self.committed = Some(Commit {
                frame: found.frame,
                pages: found.header.commit_pages,
            });
        }
    }

    fn count_behind(&mut self, found: &Found) {
        self.end.get_or_insert(*found);
        match found.verdict {
            Verdict::Zeros => self.behind.zeros += 1,
            Verdict::OtherGeneration => self.behind.other_generation += 1,
            Verdict::NoFrame => self.behind.other += 1,
            _ if found.is_present => self.behind.present += 1,
            _ => self.behind.other += 1,
        }
        self.behind.present_commits += u64::from(found.is_present_commit());
    }

    /// Bytes of the file behind the last valid frame.
    pub fn bytes_beyond(&self) -> u64 {
        self.size.saturating_sub(self.used_bytes)
    }

    /// Different pages in the valid frames; `None` where there are more than are told apart.
    pub fn distinct_pages(&self) -> Option<usize> {
        self.pages.as_ref().map(BTreeMap::len)
    }

    /// How many pages a checkpoint of everything that is committed writes; `None` as above.
    pub fn pages_to_checkpoint(&self) -> Option<usize> {
        let Some(last) = self.committed else {
            return Some(0);
        };
        let committed =
            |&(&page, &first): &(&u32, &u32)| page <= last.pages && first <= last.frame.0;
        Some(self.pages.as_ref()?.iter().filter(committed).count())
    }
}

/// Surveys the log at `path`: one of ours, or, without a header of ours, SQLite's own. `None` where
/// it is empty, or where its WAL header is none that SQLite would go by.
///
/// # Errors
/// It is missing, damaged, of a newer version, or cannot be read.
pub fn survey_file(path: &Path) -> Result<Option<Survey>, LogError> {
    let file = LogFile::open(path, Create::Never, Access::ReadOnly, DirectIo::Never)?;
    let mut head = [0; header::HEADER_BYTES];
    let n = LogFile::read_at(&file, &mut head, 0)?;
    if head[..n].iter().all(|&byte| byte == 0) {
        // Made, and never written.
        return Ok(None);
    }
    let ours = match LogHeader::parse(&head[..n]) {
        Ok(header) => Some(header),
        Err(HeaderError::Magic) if WalHeader::parse(&array(&head)).is_some() => None,
        Err(e) => return Err(LogError::new(ErrorKind::CantOpen, path, e.to_string())),
    };
    let (wal, layout) = match ours {
        Some(header) => (header.wal_header(), header.layout),
        None => (WalHeader::parse(&array(&head)), Layout::Stock),
    };
    let Some(wal) = wal else { return Ok(None) };
    let geometry = Geometry::new(layout, wal.page_size, 1)
        .map_err(|why| LogError::new(ErrorKind::Unsuited, path, why))?;
    Survey::of(&file, geometry, wal, Writers::Maybe)
        .map(Some)
        .map_err(|e| LogError::io(ErrorKind::Read, path, "read", &e))
}

#[cfg(test)]
mod tests;
