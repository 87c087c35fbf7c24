//! Reads frames back from the file: published ones for readers, any for recovery, and the blocks
//! that a write is about to change in part.
//!
//! A frame is checked only as far as its layout needs to find it; SQLite's checksums decide whether
//! it is valid. Called by `commit::read`, and by `commit::write_out` for blocks.

use std::io;

use super::layout::{self, Geometry, Slot};
use super::packed::{Found, Packed};
use super::{ErrorKind, Log, LogError};
use crate::mode::Layout;
use crate::wal::{FRAME_HEADER_BYTES, FrameHeader, FrameNo, History, PageNo, Salts};

impl Log {
    /// Reads one page from the file, from byte `at` of it on, of a frame of one of `generations`.
    /// `false` if the slot holds no such frame: the wal-index has one that was never written there.
    ///
    /// # Errors
    /// An I/O error.
    pub fn read_page(
        &self,
        frame: FrameNo,
        at: usize,
        out: &mut [u8],
        generations: &[Salts],
    ) -> Result<bool, LogError> {
        let mut header = [0; FRAME_HEADER_BYTES];
        if self.geometry.layout() != Layout::Embedded {
            self.read_header_and_page(frame, at, &mut header, out)?;
            return Ok(generations.contains(&FrameHeader::parse(&header).salts));
        }
        let slot = if out.len() == self.geometry.page().bytes() {
            self.read_slot(frame, out, &mut header, generations)?
        } else {
            let mut page = vec![0; self.geometry.page().bytes()];
            let slot = self.read_slot(frame, &mut page, &mut header, generations)?;
            out.copy_from_slice(&page[at..at + out.len()]);
            slot
        };
        Ok(slot != Slot::Foreign)
    }

    /// The header of a frame, and its page from byte `at` on, by one call if they are adjacent.
    fn read_header_and_page(
        &self,
        frame: FrameNo,
        at: usize,
        header: &mut [u8; FRAME_HEADER_BYTES],
        page: &mut [u8],
    ) -> Result<(), LogError> {
        let header_at = self.geometry.header_offset(frame);
        let page_at = self.geometry.page_offset(frame) + at as u64;
        if header_at + FRAME_HEADER_BYTES as u64 != page_at {
            self.read_exactly(header_at, header)?;
            return self.read_exactly(page_at, page);
        }
        let read = self.file.read_pair_at(header, page, header_at)?;
        match read == header.len() + page.len() {
            true => Ok(()),
            false => Err(self.ends_at(header_at + read as u64)),
        }
    }

    /// Reads a whole frame from the file as SQLite wrote it: header, then page. SQLite's checksums
    /// decide whether it is valid.
    ///
    /// # Errors
    /// An I/O error.
    pub fn read_frame(
        &self,
        frame: FrameNo,
        out: &mut [u8],
        generations: &[Salts],
    ) -> Result<(), LogError> {
        let (header, page) = out.split_at_mut(FRAME_HEADER_BYTES);
        if self.geometry.layout() == Layout::Embedded {
            let mut bytes = [0; FRAME_HEADER_BYTES];
            self.read_slot(frame, page, &mut bytes, generations)?;
            header.copy_from_slice(&bytes);
            return Ok(());
        }
        let (header_at, page_at) = (
            self.geometry.header_offset(frame),
            self.geometry.page_offset(frame),
        );
        if header_at + FRAME_HEADER_BYTES as u64 == page_at {
            return self.read_exactly(header_at, out);
        }
        self.read_exactly(header_at, header)?;
        self.read_exactly(page_at, page)
    }

    /// The header of a frame in layout `gathered`, as in the file.
    ///
    /// # Errors
    /// An I/O error.
    pub fn read_gathered_header(&self, frame: FrameNo) -> Result<FrameHeader, LogError> {
        let mut header = [0; FRAME_HEADER_BYTES];
        self.read_exactly(self.geometry.header_offset(frame), &mut header)?;
        Ok(FrameHeader::parse(&header))
    }

    /// The page of each frame after `after`, up to `last`, in layout `gathered`; `None` if one of
    /// them is not of the generation `salts`.
    ///
    /// # Errors
    /// An I/O error.
    pub fn gathered_pages(
        &self,
        after: FrameNo,
        last: FrameNo,
        salts: Salts,
    ) -> Result<Option<Vec<(FrameNo, PageNo)>>, LogError> {
        let mut pages = Vec::with_capacity(last.0.saturating_sub(after.0) as usize);
        let mut block = vec![0; layout::SIDE_BYTES];
        let mut has = None;
        for no in (after.0.saturating_add(1)..=last.0).map(FrameNo) {
            let at = self.geometry.header_block(no);
            if has != at
                && let Some(at) = at
            {
                self.read_exactly(at, &mut block)?;
                has = Some(at);
            }
            let within = at.and_then(|at| self.geometry.header_offset(no).checked_sub(at));
            let entry = within.and_then(|at| block.get(at as usize..));
            let Some(header) = entry.and_then(|entry| entry.first_chunk()) else {
                return Ok(None);
            };
            let header = FrameHeader::parse(header);
            if header.salts != salts {
                return Ok(None);
            }
            pages.push((no, header.page));
        }
        Ok(Some(pages))
    }

    pub(super) fn reading<T>(&self, result: io::Result<T>) -> Result<T, LogError> {
        result.map_err(|e| match e.kind() {
            // The record is of a newer version.
            io::ErrorKind::Unsupported => self.error(ErrorKind::CantOpen, &e.to_string()),
            _ => LogError::io(ErrorKind::Read, self.file.path(), "read", &e),
        })
    }

    /// Prepares the log for a transaction after the published frame `last`.
    ///
    /// # Errors
    /// The log does not have that frame; an I/O error.
    pub fn begin(&self, history: impl Into<History>, last: FrameNo) -> Result<(), LogError> {
        let Some(packed) = &self.packed else {
            return Ok(());
        };
        match self.reading(packed.begin(&self.file, history, last))? {
            true => Ok(()),
            false => Err(self.missing(last)),
        }
    }

    /// The error for a published frame that is missing.
    pub fn missing(&self, frame: FrameNo) -> LogError {
        let what = format!("it does not hold frame {frame}, which the wal-index says is committed");
        self.error(ErrorKind::Corrupt, &what)
    }

    /// Reads a frame of a log without fixed positions; see [`Packed::read`]. `false`, and zeros, if
    /// it is missing or damaged.
    ///
    /// # Errors
    /// An I/O error.
    pub fn read_packed(
        &self,
        packed: &Packed,
        history: impl Into<History>,
        frame: FrameNo,
        published: Option<FrameNo>,
        out: (&mut [u8; FRAME_HEADER_BYTES], &mut [u8]),
    ) -> Result<bool, LogError> {
        let (header, page) = out;
        let read = packed.read(
            &self.file,
            Some(self.nearby()),
            history,
            frame,
            published,
            (header, page),
        );
        let is_there = self.reading(read)? == Found::Page;
        if !is_there {
            header.fill(0);
            page.fill(0);
        }
        Ok(is_there)
    }

    fn read_slot(
        &self,
        frame: FrameNo,
        page: &mut [u8],
        header: &mut [u8; FRAME_HEADER_BYTES],
        generations: &[Salts],
    ) -> Result<Slot, LogError> {
        self.read_exactly(self.geometry.slot(frame), page)?;
        let slot = Geometry::extract(page, header, generations);
        if slot != Slot::Escaped {
            return Ok(slot);
        }
        let mut entry = [0; 32];
        self.read_exactly(self.geometry.entry_offset(frame), &mut entry)?;
        match Geometry::restore(page, header, &entry) {
            true => Ok(Slot::Escaped),
            false => Ok(Slot::Foreign),
        }
    }

    fn read_exactly(&self, offset: u64, out: &mut [u8]) -> Result<(), LogError> {
        match self.file.read_at(out, offset)? {
            n if n == out.len() => Ok(()),
            n => {
                out[n..].fill(0);
                Err(self.ends_at(offset + n as u64))
            }
        }
    }

    fn ends_at(&self, byte: u64) -> LogError {
        self.error(ErrorKind::ShortRead, &format!("it ends at byte {byte}"))
    }

    /// The content of a block that is about to be changed in part; zeros beyond the end of the
    /// file.
    ///
    /// # Errors
    /// An I/O error.
    pub fn load_block(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let n = self.file.read_at(out, offset).map_err(io::Error::other)?;
        out[n..].fill(0);
        Ok(())
    }
}
