//! The log after its end, if frames have no fixed positions: batches or records of its generation that
//! recovery does not reach. Tools use it ([`crate::log::scan`]). It changes nothing.
//!
//! A rolled-back transaction and a power cut leave batches, too, and the log goes on over them. So a
//! batch counts only if it can come later in this log (`docs/durability.md`, N7). Its sequence number and
//! its place must leave room for the missing batches. The first whole batch that begins a block and
//! cannot come later ends the search, because the log ends before it. Records of `compressed` have no such numbers, so
//! each of them counts.

use std::io;

use super::Packed;
use super::batch::{self, ALIGN_BYTES, BLOCK_BYTES, Batch, Begin, LEAST_BYTES};
use super::chain::Tail;
use super::record::{Form, Record};
use super::window::{Window, Windowed};
use crate::log::scan::{LogBytes, MAX_BEHIND_BYTES};
use crate::wal::{FrameNo, PageSize, Salts, be32};

/// Bytes that are searched for records at once.
const PIECE_BYTES: usize = 32 << 10;
/// Offset of the salts in a record of `compressed`.
const SALTS_AT: usize = 8;

/// Frames of the log's generation after its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Remains {
    /// Frames in whole batches, or records.
    pub frames: u64,
    /// Commits among them, and damaged ones whose header can be read.
    pub commits: u64,
}

impl Packed {
    /// Searches the file after the end that [`Packed::survey`] has found, at most [`MAX_BEHIND_BYTES`].
    ///
    /// # Errors
    /// An I/O error.
    pub fn remains<B: LogBytes + ?Sized>(&self, log: &B, salts: Salts) -> io::Result<Remains> {
        let tail = self.chain().tail();
        let mut window = Window::default();
        let search = Search {
            end: log
                .size()?
                .min(tail.offset.saturating_add(MAX_BEHIND_BYTES)),
            log: &Windowed::new(log, &mut window),
            page: self.page,
            salts,
        };
        match self.form {
            Form::Packed => search.batches(tail),
            Form::Compressed => search.records(tail.offset),
        }
    }
}

struct Search<'a, B: ?Sized> {
    log: &'a Windowed<'a, B>,
    page: PageSize,
    salts: Salts,
    /// End of the search, in bytes.
    end: u64,
}

/// The last batch that is known to belong to the log.
#[derive(Clone, Copy)]
struct Last {
    /// Where it ends, in bytes.
    offset: u64,
    sequence: u32,
    crc: u32,
}

/// The findings so far.
#[derive(Clone, Copy)]
struct Found {
    last: Last,
    remains: Remains,
}

impl Last {
    /// Whether `batch` at offset `at` is the next one.
    fn is_followed_by(&self, batch: &Batch, at: u64) -> bool {
        at == batch.begin.after(self.offset)
            && batch.previous == self.crc
            && self.sequence.checked_add(1) == Some(batch.sequence)
    }

    /// Whether `batch` can come later, after missing batches. Each of these has some bytes.
    fn may_precede(&self, batch: &Batch, at: u64) -> bool {
        let missing = batch
            .sequence
            .saturating_sub(self.sequence)
            .saturating_sub(1);
        missing > 0 && u64::from(missing) <= at.saturating_sub(self.offset) / LEAST_BYTES
    }

    /// Whether `batch` at offset `at` belongs to the log after this one.
    fn is_before(&self, batch: &Batch, at: u64, committed: FrameNo) -> bool {
        let is_later = batch.first > committed && self.may_precede(batch, at);
        self.is_followed_by(batch, at) || is_later
    }
}

impl<B: LogBytes + ?Sized> Search<'_, B> {
    fn batches(&self, tail: Tail) -> io::Result<Remains> {
        let mut found = Found {
            last: Last {
                offset: tail.offset,
                sequence: tail.sequence,
                crc: tail.crc,
            },
            remains: Remains::default(),
        };
        // A transaction may have died behind the last batch of a block. The next one begins a block
        // then, so that the log goes on from what was before it.
        let mut before = found;
        // Any place may look like a long batch: the limit for checksums that do not fit.
        let mut budget = MAX_BEHIND_BYTES;
        let mut at = tail.offset;
        while let Some((batch, place)) = self.next_header(at)? {
            at = place + ALIGN_BYTES;
            let follows = found.last.is_followed_by(&batch, place);
            let Some(commits) = self.commits_of(&batch, place, &mut budget)? else {
                // It was written at this place, and is torn or damaged.
                found.remains.commits += u64::from(follows && batch.ends_transaction);
                continue;
            };
            if batch.begin == Begin::Behind {
                before = found;
            }
            if !found.last.is_before(&batch, place, tail.committed) {
                match batch.begin {
                    Begin::Behind => continue,
                    Begin::Block if before.last.is_before(&batch, place, tail.committed) => {
                        found = before;
                    }
                    Begin::Block => break,
                }
            }
            found.remains.frames += u64::from(batch.frames);
            found.remains.commits += commits;
            at = batch.end_at(place);
            found.last = Last {
                offset: at,
                sequence: batch.sequence,
                crc: batch.crc,
            };
        }
        Ok(found.remains)
    }

    /// The next header of this generation, from `at` on, and its offset.
    fn next_header(&self, mut at: u64) -> io::Result<Option<(Batch, u64)>> {
        while at < self.end {
            let found = self.log.view(PIECE_BYTES, at, |bytes| {
                let places = (0..bytes.len()).step_by(ALIGN_BYTES as usize);
                let mut headers = places.filter_map(|place| {
                    let batch = self.header_at(&bytes[place..], at + place as u64)?;
                    Some((batch, at + place as u64))
                });
                headers.next().ok_or(bytes.len() as u64)
            })?;
            match found {
                Ok(found) => return Ok(Some(found)),
                Err(bytes) if bytes < PIECE_BYTES as u64 => break,
                // A header may lie across the end of the piece.
                Err(bytes) => at += bytes - BLOCK_BYTES,
            }
        }
        Ok(None)
    }

    fn header_at(&self, bytes: &[u8], at: u64) -> Option<Batch> {
        let batch = Batch::parse(bytes)?;
        let begins_block = at.is_multiple_of(BLOCK_BYTES);
        let is_here = begins_block == (batch.begin == Begin::Block);
        (is_here && batch.salts == self.salts && at < self.end).then_some(batch)
    }

    /// The number of transactions that end in a batch; `None` if it is not whole.
    fn commits_of(&self, batch: &Batch, at: u64, budget: &mut u64) -> io::Result<Option<u64>> {
        let bytes = batch.end() as u64;
        if at + bytes > self.end || bytes > *budget {
            return Ok(None);
        }
        let commits = self.log.view(batch.end(), at, |whole| {
            let is_whole = whole.len() == batch.end() && Batch::crc_of(whole) == batch.crc;
            is_whole.then(|| {
                self.commits_in(whole)
                    .max(u64::from(batch.ends_transaction))
            })
        })?;
        if commits.is_none() {
            *budget -= bytes;
        }
        Ok(commits)
    }

    fn commits_in(&self, whole: &[u8]) -> u64 {
        let mut rest = whole.get(batch::HEADER_BYTES..).unwrap_or_default();
        let mut commits = 0;
        while let Ok(Some(record)) = Record::parse(rest, Form::Packed, self.page, self.salts) {
            commits += u64::from(self.is_commit(&record));
            rest = rest.get(record.bytes()..).unwrap_or_default();
        }
        commits
    }

    fn is_commit(&self, record: &Record) -> bool {
        record.frame.commit_pages != 0 && record.frame.salts == self.salts
    }

    /// Finds records by their salts.
    fn records(&self, from: u64) -> io::Result<Remains> {
        let mut remains = Remains::default();
        let salts = self.salts.0;
        let mut at = from;
        while at < self.end {
            let found = self.log.view(PIECE_BYTES, at, |bytes| {
                let place = bytes.windows(salts.len()).position(|piece| piece == salts);
                place.ok_or(bytes.len())
            })?;
            let salts_at = match found {
                Ok(place) => at + place as u64,
                Err(0..SALTS_AT) => break,
                Err(bytes) => {
                    at += (bytes - (SALTS_AT - 1)) as u64;
                    continue;
                }
            };
            at = salts_at + 1;
            let begin = salts_at.checked_sub(SALTS_AT as u64);
            let Some(begin) = begin.filter(|begin| *begin >= from) else {
                continue;
            };
            match self.record_at(begin)? {
                Ok(record) => {
                    remains.frames += 1;
                    remains.commits += u64::from(self.is_commit(&record));
                    at = begin + record.bytes() as u64;
                }
                Err(is_commit) => remains.commits += u64::from(is_commit),
            }
        }
        Ok(remains)
    }

    /// The record at `at`. If its header is damaged: whether that says that it is a commit.
    fn record_at(&self, at: u64) -> io::Result<Result<Record, bool>> {
        let most = Form::Compressed.most_bytes(self.page);
        self.log.view(most, at, |bytes| {
            let record = Record::parse(bytes, Form::Compressed, self.page, self.salts);
            let record = record.ok().flatten();
            let record = record.filter(|record| record.bytes() <= bytes.len());
            record.ok_or_else(|| {
                bytes.len() >= SALTS_AT && be32(bytes, 0) != 0 && be32(bytes, 4) != 0
            })
        })
    }
}
