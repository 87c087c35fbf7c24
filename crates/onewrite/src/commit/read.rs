//! Reading SQLite's log back: from the collected frames, from the frame memory, from the file.

use crate::commit::Writer;
use crate::log::memory::Remembered;
use crate::log::packed::Packed;
use crate::log::{ErrorKind, LogError};
use crate::mode::Layout;
use crate::wal::{self, FRAME_HEADER_BYTES, FrameNo, History, IndexView, Salts, WalHeader, array};

/// SQLite's placeholder for the salts while it knows that it will write the header again.
const UNSEALED: Salts = Salts([0; 8]);

/// The generations that a frame may belong to. Readers use that of the wal-index, and recovery that
/// of the header. In a transaction that is under way there may be none yet.
struct Generations {
    salts: [Salts; 3],
    known: usize,
}

impl Generations {
    fn as_slice(&self) -> &[Salts] {
        &self.salts[..self.known]
    }
}

impl Writer {
    /// `xRead`: some bytes of SQLite's log.
    ///
    /// # Errors
    /// The log is poisoned or damaged; [`ErrorKind::ShortRead`] beyond its end, with the rest
    /// filled with zeros.
    pub fn read(
        &mut self,
        out: &mut [u8],
        offset: u64,
        index: Option<IndexView>,
    ) -> Result<(), LogError> {
        self.log.check_poison()?;
        if self.read_checksum(out, offset, index)? {
            return Ok(());
        }
        let header_end = wal::HEADER_BYTES as u64;
        let mut at = offset;
        let mut rest = out;
        if at < header_end {
            let n = rest.len().min((header_end - at) as usize);
            let (head, behind) = rest.split_at_mut(n);
            let header = self.header_to_read()?;
            head.copy_from_slice(&header[at as usize..at as usize + n]);
            (rest, at) = (behind, header_end);
        }
        let page = self.log.geometry().page();
        while !rest.is_empty() {
            let (frame, within) = page.locate(at).ok_or_else(|| self.short_read(at))?;
            let n = rest.len().min(page.frame_bytes() - within);
            let (piece, behind) = rest.split_at_mut(n);
            self.read_piece(frame, within, piece, index)?;
            (rest, at) = (behind, at + n as u64);
        }
        Ok(())
    }

    /// `xFileSize`.
    ///
    /// # Errors
    /// The log is poisoned or damaged; an I/O error.
    pub fn size(&self) -> Result<u64, LogError> {
        self.log.check_poison()?;
        let in_file = self.log.logical_size()?;
        let collected = match self.run.is_empty() || self.run_is_out {
            true => 0,
            false => self.log.geometry().page().frame_range(self.run.last()).end,
        };
        let header = self.header.map_or(0, |_| wal::HEADER_BYTES as u64);
        // SQLite recovers a log of more bytes than its header.
        let recovered = self.recovery.map_or(0, |_| wal::HEADER_BYTES as u64 + 1);
        Ok(in_file.max(collected).max(header).max(recovered))
    }

    /// Recovery begins. A log without frames is told to have this generation, which is of this recovery
    /// alone. Otherwise the header that SQLite publishes would be the one of every empty log, and a
    /// connection that had it before would keep its old pages (N18 of docs/durability.md).
    pub fn recovery_begins(&mut self, generation: Salts) {
        self.recovery = Some(generation);
        if let Some(packed) = self.log.packed() {
            packed.recovery_begins();
        }
    }

    /// Recovery has ended, and its locks are about to be released.
    pub fn recovered(&mut self, index: Option<IndexView>) {
        self.recovery = None;
        if let Some(packed) = self.log.packed() {
            packed.recovered(index.map(|index| (index.history(), index.last_frame)));
        }
    }

    fn short_read(&self, at: u64) -> LogError {
        self.log
            .error(ErrorKind::ShortRead, &format!("there is no byte {at}"))
    }

    /// The WAL header as SQLite gets it.
    fn header_to_read(&self) -> Result<[u8; wal::HEADER_BYTES], LogError> {
        let read = self.read_wal_header();
        let Some(generation) = self.recovery else {
            return read;
        };
        match read {
            Ok(header) if header != [0; wal::HEADER_BYTES] => Ok(header),
            Err(e) if e.kind() != ErrorKind::ShortRead => Err(e),
            _ => Ok(WalHeader::without_frames(
                self.log.geometry().page(),
                generation,
            )),
        }
    }

    /// SQLite's WAL header. Its reader is about to recover the log, or to restart it.
    pub(super) fn read_wal_header(&self) -> Result<[u8; wal::HEADER_BYTES], LogError> {
        if let Some(header) = self.header {
            return Ok(header);
        }
        let mut header = [0; wal::HEADER_BYTES];
        if self.log.id().is_some() {
            header = self.log.read_header()?.wal;
        } else if self.log.file().read_at(&mut header, 0)? < header.len() {
            return Err(self.short_read(0));
        }
        self.log.note_wal_header(&header);
        Ok(header)
    }

    fn read_piece(
        &self,
        frame: FrameNo,
        within: usize,
        out: &mut [u8],
        index: Option<IndexView>,
    ) -> Result<(), LogError> {
        if let Some(bytes) = self.collected(frame) {
            out.copy_from_slice(&bytes[within..within + out.len()]);
            return Ok(());
        }
        if within >= FRAME_HEADER_BYTES {
            return self.read_page(frame, within - FRAME_HEADER_BYTES, out, index);
        }
        if out.len() == self.log.geometry().page().frame_bytes() {
            // Recovery reads like this.
            return self.read_whole_frame(frame, out, index);
        }
        let mut whole = vec![0; self.log.geometry().page().frame_bytes()];
        self.read_whole_frame(frame, &mut whole, index)?;
        out.copy_from_slice(&whole[within..within + out.len()]);
        Ok(())
    }

    /// A frame of this transaction. Once it is over, others may have written the same frame again.
    fn collected(&self, frame: FrameNo) -> Option<&[u8]> {
        let run = self.run.frame(frame);
        run.filter(|_| self.transaction.is_under_way())
    }

    /// A page of a published frame, or of one that this transaction spilled.
    fn read_page(
        &self,
        frame: FrameNo,
        at: usize,
        out: &mut [u8],
        index: Option<IndexView>,
    ) -> Result<(), LogError> {
        let history = index
            .map(|index| index.history())
            .or_else(|| self.log.header_salts().map(History::from));
        let spilled = self.transaction.has_written(frame) && self.transaction.spilled;
        if let Some(history) = history.filter(|_| !spilled) {
            let remembered = self.log.memory().read(frame, history, at, out)
                || self
                    .log
                    .group_synch
                    .read(frame, history.salts, at + FRAME_HEADER_BYTES, out)
                || self.read_shared(frame, out, index);
            if remembered {
                return Ok(());
            }
        }
        match self.log.packed() {
            Some(packed) => self.read_packed_page(packed, frame, at, out, index),
            None => self.read_page_in_place(frame, at, out, index),
        }
    }

    /// A whole page that another process has published, and left for others.
    fn read_shared(&self, frame: FrameNo, out: &mut [u8], index: Option<IndexView>) -> bool {
        let is_whole = out.len() == self.log.geometry().page().bytes();
        let index = index.filter(|index| is_whole && frame <= index.last_frame);
        index.is_some_and(|index| {
            self.log
                .read_shared(frame, index.history(), out, self.company.committer)
        })
    }

    /// Leaves the pages of a commit for other processes, if one of them reads. It is published, and
    /// SQLite's write lock is still held.
    pub fn share_published(&self, index: Option<IndexView>) {
        let Some(index) = index.filter(|_| self.run_is_known && !self.run.is_empty()) else {
            return;
        };
        let is_published = self.has_published(&index) && index.last_frame >= self.run.last();
        if is_published && self.log.shares_pages(self.company.committer) {
            let pages = self.run.pages();
            self.log
                .share_pages(pages.map(|(frame, page, bytes)| Remembered {
                    frame,
                    history: index.history(),
                    page,
                    bytes,
                }));
        }
    }

    /// A page of a log with fixed positions. If the wal-index promises a frame that the log does
    /// not have, it is an error: SQLite would copy the bytes there into the database. Other frames
    /// may be read too, for example by a VFS that keeps a copy of the file. Their bytes belong to
    /// no page; only in `embedded` they are unknown.
    fn read_page_in_place(
        &self,
        frame: FrameNo,
        at: usize,
        out: &mut [u8],
        index: Option<IndexView>,
    ) -> Result<(), LogError> {
        let generations = self.generations(index);
        let is_there = self.log.read_page(frame, at, out, generations.as_slice())?;
        let is_promised = index.is_some_and(|index| frame <= index.last_frame);
        let is_embedded = self.log.geometry().layout() == Layout::Embedded;
        match is_there || !(is_promised || is_embedded) {
            true => Ok(()),
            false => Err(self.log.missing(frame)),
        }
    }

    /// A page of a log without fixed positions. A frame that is published, or of this transaction,
    /// must be there. Otherwise the bytes in its place would be read as its page, or copied into
    /// the database.
    fn read_packed_page(
        &self,
        packed: &Packed,
        frame: FrameNo,
        at: usize,
        out: &mut [u8],
        index: Option<IndexView>,
    ) -> Result<(), LogError> {
        let (history, published) = self.whose(frame, index);
        let mut header = [0; FRAME_HEADER_BYTES];
        let whole = self.log.geometry().page().bytes();
        let is_there = if out.len() == whole {
            let out = (&mut header, out);
            self.log
                .read_packed(packed, history, frame, published, out)?
        } else {
            let mut page = vec![0; whole];
            let all = (&mut header, page.as_mut_slice());
            let is_there = self
                .log
                .read_packed(packed, history, frame, published, all)?;
            out.copy_from_slice(&page[at..at + out.len()]);
            is_there
        };
        let is_own = self.transaction.has_written(frame);
        let is_promised = published.is_some() || index.is_none() || is_own;
        match is_there || !is_promised {
            true => Ok(()),
            false => Err(self.log.missing(frame)),
        }
    }

    /// The history of a frame, and the last published one if the frame is published, and not one
    /// of this transaction.
    fn whose(&self, frame: FrameNo, index: Option<IndexView>) -> (History, Option<FrameNo>) {
        let own = self.transaction.present_history();
        match (index.filter(|index| frame <= index.last_frame), own) {
            (Some(index), _) => (index.history(), Some(index.last_frame)),
            (None, Some(own)) => (own, None),
            (None, None) => {
                let salts = self.log.header_salts().unwrap_or(UNSEALED);
                (salts.into(), None)
            }
        }
    }

    /// A frame, header and page, as SQLite wrote it.
    pub(super) fn read_whole_frame(
        &self,
        frame: FrameNo,
        out: &mut [u8],
        index: Option<IndexView>,
    ) -> Result<(), LogError> {
        if let Some(bytes) = self.collected(frame) {
            out.copy_from_slice(bytes);
            return Ok(());
        }
        let generations = self.generations(index);
        for salts in generations.as_slice() {
            if self.log.group_synch.read(frame, *salts, 0, out) {
                return Ok(());
            }
        }
        let Some(packed) = self.log.packed() else {
            return self.log.read_frame(frame, out, generations.as_slice());
        };
        // Outside a transaction only recovery reads whole frames, and uses the log's own header.
        let history = self.transaction.present_history();
        let history = history.or_else(|| self.log.header_salts().map(History::from));
        let history = history.unwrap_or_else(|| UNSEALED.into());
        let (header, page) = out.split_at_mut(FRAME_HEADER_BYTES);
        let mut bytes = [0; FRAME_HEADER_BYTES];
        // If it is missing, SQLite's checksums refuse the zeros.
        self.log
            .read_packed(packed, history, frame, None, (&mut bytes, page))?;
        header.copy_from_slice(&bytes);
        Ok(())
    }

    fn generations(&self, index: Option<IndexView>) -> Generations {
        let header = match self.header {
            Some(header) => Some(Salts(array(&header[16..24]))),
            None => self.log.header_salts(),
        };
        let unsealed = self.transaction.is_under_way().then_some(UNSEALED);
        let mut known = 0;
        let mut salts = [UNSEALED; 3];
        let candidates = [index.map(|index| index.salts), header, unsealed];
        for generation in candidates.into_iter().flatten() {
            salts[known] = generation;
            known += 1;
        }
        Generations { salts, known }
    }
}
