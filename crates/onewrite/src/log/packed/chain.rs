//! The positions of frames in a log of variable positions. A walk over the log, from batch to batch
//! or from record to record, finds them. They are remembered, eight bytes per frame.
//!
//! The walk goes only as far as necessary: to the last frame that SQLite's wal-index has published.
//! In recovery, when no other process has the log, it goes to the log's end. The bytes after the
//! published frames may be of a transaction that is under way, or was rolled back. They are
//! forgotten when the next transaction begins.
//!
//! In `compressed` a transaction begins where the one before ended, or at the next block. It is the
//! first of the two places that has a record of the generation. So the writer uses the next block
//! only if it finds no record in the first place ([`Chain::look_behind`]). A rolled-back
//! transaction may have left one.

use std::io;

use crate::log::packed::bases::Logged;
use crate::log::packed::batch::{self, Batch, Begin};
use crate::log::packed::record::{Form, Record, UnknownKind};
use crate::log::packed::window::{Windowed, with_window};
use crate::log::scan::LogBytes;
use crate::wal::{FrameNo, History, PageSize, Salts};

/// Where the first batch or record begins, after the log's header block.
const START: u64 = 4096;
/// The bytes that a device writes whole or not at all.
const SECTOR: u64 = 512;
/// A transaction has room for this many records without another allocation; most have fewer.
const RECORDS: usize = 8;
/// The most records that the walk covers at once.
const MOST_RECORDS: usize = 1024;
/// The first read of a batch; most batches have no more bytes.
const FIRST_READ_BYTES: usize = 2048;
/// The bytes of a batch that are read without a look whether the file is so long.
const BELIEVED_BYTES: usize = 64 << 10;
/// The most frames of others that the walk learns of before it is asked for them.
const MOST_LEARNED: usize = 4096;

/// A record's position: a byte offset of 47 bits, a length of 17.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position(u64);

impl Position {
    const LENGTH_BITS: u32 = 17;

    /// A record of `length` bytes at byte `offset`.
    pub fn at(offset: u64, length: usize) -> Position {
        Position(offset << Position::LENGTH_BITS | length as u64)
    }

    /// Where the record begins, in bytes.
    pub fn offset(self) -> u64 {
        self.0 >> Position::LENGTH_BITS
    }

    /// The position of the same record, so many bytes further.
    pub fn moved_by(self, bytes: u64) -> Position {
        Position::at(self.offset() + bytes, self.bytes())
    }

    /// Its length in bytes.
    pub fn bytes(self) -> usize {
        (self.0 & ((1 << Position::LENGTH_BITS) - 1)) as usize
    }
}

/// The end of the walk so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tail {
    /// Where the next batch or record goes, in bytes. A batch may also begin the next block.
    pub offset: u64,
    /// The last batch's sequence number.
    pub sequence: u32,
    /// The last batch's CRC-32C.
    pub crc: u32,
    /// The last frame.
    pub last: FrameNo,
    /// The last frame that ends a transaction.
    pub committed: FrameNo,
}

impl Tail {
    /// The end of a log without frames.
    pub fn origin(salts: Salts) -> Tail {
        Tail {
            offset: START,
            sequence: 0,
            crc: batch::origin(salts),
            last: FrameNo(0),
            committed: FrameNo(0),
        }
    }

    /// Whether the last transaction has ended, and no frames follow it.
    pub fn is_between_transactions(&self) -> bool {
        self.last == self.committed
    }
}

/// A step of the walk: consecutive records, with their frame numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// The number of the first record's frame.
    pub first: FrameNo,
    /// Their positions.
    pub positions: Vec<Position>,
    /// How they store their pages, if they were read from the log.
    pub records: Vec<Logged>,
    /// Whether the last one ends a transaction.
    pub ends_transaction: bool,
    /// Where the next record or batch goes, in bytes.
    pub offset: u64,
    /// As in [`Tail`].
    pub sequence: u32,
    /// As in [`Tail`].
    pub crc: u32,
}

impl Link {
    /// The last frame.
    pub fn last(&self) -> FrameNo {
        FrameNo(self.first.0 + self.positions.len() as u32 - 1)
    }
}

/// A record of `compressed`, with its position.
struct Standing {
    offset: u64,
    record: Record,
    /// Whether it is a commit, and finished.
    ends_transaction: bool,
}

impl Link {
    /// Adds the next record.
    fn push(&mut self, found: Standing) {
        let bytes = found.record.bytes();
        self.positions.push(Position::at(found.offset, bytes));
        self.records.push(Logged::of(&found.record));
        self.ends_transaction = found.ends_transaction;
        self.offset = found.offset + bytes as u64;
    }
}

/// The records of a batch.
#[derive(Default)]
struct Records {
    positions: Vec<Position>,
    records: Vec<Logged>,
}

/// See the module.
#[derive(Debug)]
pub struct Chain {
    form: Form,
    page: PageSize,
    history: Option<History>,
    positions: Vec<Position>,
    tail: Tail,
    /// The tail after the last transaction that is known to be published.
    published: Tail,
    /// Whether a transaction of this process is under way: frames that are not published belong to
    /// it.
    pub writing: bool,
    /// Whether the place at the tail was checked and has no record of the generation.
    nothing_behind: bool,
    /// The frames that differences refer to, if that is of interest.
    pub bases: Option<Vec<FrameNo>>,
    /// Published frames that the walk has passed since [`Chain::take_learned`].
    learned: Vec<(FrameNo, Logged)>,
    /// The chain of readers, while a connection of this process recovers or writes and this one is its.
    pub aside: Option<Box<Chain>>,
}

impl Chain {
    /// An empty chain.
    pub fn new(form: Form, page: PageSize) -> Chain {
        let nothing = Tail::origin(Salts([0; 8]));
        Chain {
            form,
            page,
            history: None,
            positions: Vec::new(),
            tail: nothing,
            published: nothing,
            writing: false,
            nothing_behind: false,
            bases: None,
            learned: Vec::new(),
            aside: None,
        }
    }

    /// The chain for readers that may not change this one.
    pub fn aside(&mut self) -> &mut Chain {
        let (form, page) = (self.form, self.page);
        (self.aside).get_or_insert_with(|| Box::new(Chain::new(form, page)))
    }

    /// Leaves what it knows to readers. A recovery begins with an empty chain.
    pub fn set_aside(&mut self) {
        let new = Chain::new(self.form, self.page);
        let aside = self.aside.take();
        let known = std::mem::replace(self, new);
        self.aside = aside.or_else(|| Some(Box::new(known)));
    }

    /// Called when a transaction begins: checks whether there is a record at the tail, where the
    /// transaction would normally begin.
    ///
    /// # Errors
    /// An I/O error.
    pub fn look_behind<B: LogBytes + ?Sized>(&mut self, log: &B) -> io::Result<()> {
        self.nothing_behind = match (self.form, self.salts()) {
            (Form::Compressed, Some(salts)) => {
                self.record_at(log, salts, self.tail.offset)?.is_none()
            }
            _ => false,
        };
        Ok(())
    }

    /// Where to put this many bytes of records, of which frame `first` is the first. In `packed` they
    /// are a batch that begins as it says.
    pub fn begin_of(&self, begin: Begin, first: FrameNo, bytes: u64) -> u64 {
        if self.form == Form::Packed {
            return begin.after(self.tail.offset);
        }
        let here = self.tail.offset;
        let next = here.next_multiple_of(batch::BLOCK_BYTES);
        let blocks_from = |offset: u64| {
            let begin = offset / batch::BLOCK_BYTES;
            (offset + bytes).div_ceil(batch::BLOCK_BYTES) - begin
        };
        let may_skip = self.form == Form::Compressed
            && self.nothing_behind
            && self.tail.is_between_transactions()
            && first == self.tail.last.plus(1);
        match may_skip && blocks_from(next) < blocks_from(here) {
            true => next,
            false => here,
        }
    }

    /// Forgets everything: the log begins or began a generation, or is walked again.
    pub fn restart(&mut self, history: impl Into<History>) {
        let history = history.into();
        self.history = Some(history);
        self.positions.clear();
        self.tail = Tail::origin(history.salts);
        self.published = self.tail;
        self.nothing_behind = false;
        self.learned.clear();
    }

    /// Makes sure that the chain is of this history.
    pub fn turn_to(&mut self, history: History) {
        if self.history != Some(history) {
            self.restart(history);
        }
    }

    /// The history of its frames.
    pub fn history(&self) -> Option<History> {
        self.history
    }

    /// The generation.
    pub fn salts(&self) -> Option<Salts> {
        self.history.map(|history| history.salts)
    }

    /// Recovery has read the whole chain, and its frames belong to this history from now on.
    pub fn goes_on_in(&mut self, history: History) {
        self.history = Some(history);
    }

    /// The end of the log, where the next frames go.
    pub fn tail(&self) -> Tail {
        self.tail
    }

    /// A frame that is known to be published.
    pub fn published(&self, frame: FrameNo, history: History) -> Option<Position> {
        let known = self.history == Some(history) && frame <= self.published.last;
        self.position(frame).filter(|_| known)
    }

    /// A frame that is known to be published, here or in the chain aside.
    pub fn published_anywhere(&self, frame: FrameNo, history: History) -> Option<Position> {
        let aside = || self.aside.as_ref()?.published(frame, history);
        self.published(frame, history).or_else(aside)
    }

    /// Any frame that was walked or appended.
    pub fn position(&self, frame: FrameNo) -> Option<Position> {
        let index = usize::try_from(frame.0.checked_sub(1)?).ok()?;
        self.positions.get(index).copied()
    }

    /// Forgets frames that are not known to be published.
    pub fn rewind(&mut self) {
        self.tail = self.published;
        self.positions.truncate(self.published.last.0 as usize);
        self.learned
            .retain(|(frame, _)| *frame <= self.published.last);
    }

    /// Everything up to this frame is published.
    pub fn publish(&mut self, last: FrameNo) {
        if self.published.last < last && self.tail.committed == last {
            self.published = Tail { last, ..self.tail };
            // After a commit, the next frames are not known yet.
            self.positions.truncate(last.0 as usize);
            self.tail = self.published;
        }
    }

    /// Walks on until the published frame `last` is reached. `false` if the log does not have it.
    ///
    /// # Errors
    /// An I/O error.
    pub fn reach<B: LogBytes + ?Sized>(&mut self, log: &B, last: FrameNo) -> io::Result<bool> {
        if last > self.published.last {
            self.rewind();
        }
        // Published frames do not change. The bytes behind them may, and decide nothing (N11).
        let reached = self.tail.committed >= last
            || with_window(self.expected_end(last), |window| {
                self.walk_to(&Windowed::new(log, window), last)
            })?;
        if reached {
            self.publish(last);
        }
        Ok(reached)
    }

    /// Where the walk to frame `last` is likely to end, in bytes: its frames may be as long as those
    /// before. It includes the look at the next block. 0 if there were no frames before.
    fn expected_end(&self, last: FrameNo) -> u64 {
        let frames = u64::from(last.0.saturating_sub(self.tail.committed.0));
        let bytes = self.tail.offset.saturating_sub(START);
        let expected = bytes.saturating_mul(frames);
        match expected.checked_div(self.tail.last.0.into()) {
            Some(bytes) => (self.tail.offset)
                .saturating_add(bytes.saturating_add(bytes / 4))
                .saturating_add(batch::BLOCK_BYTES + FIRST_READ_BYTES as u64),
            None => 0,
        }
    }

    fn walk_to<B: LogBytes + ?Sized>(&mut self, log: &B, last: FrameNo) -> io::Result<bool> {
        while self.tail.committed < last {
            match self.next_link(log)? {
                Some(link) => {
                    self.learn(&link);
                    self.append(&link);
                }
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Notes the frames of a whole transaction. One of several batches may replace its own frames, so
    /// that a difference may come in the place of a whole page.
    fn learn(&mut self, link: &Link) {
        let is_whole = link.ends_transaction && link.first == self.tail.committed.plus(1);
        if !is_whole {
            return;
        }
        if self.learned.len() + link.records.len() > MOST_LEARNED {
            self.learned.clear();
        }
        let frames = (link.first.0..).map(FrameNo);
        self.learned
            .extend(frames.zip(link.records.iter().copied()));
    }

    /// The frames that the walk has passed, if all of them are published.
    pub fn take_learned(&mut self) -> Vec<(FrameNo, Logged)> {
        match self.tail.last == self.published.last {
            true => std::mem::take(&mut self.learned),
            false => Vec::new(),
        }
    }

    /// Walks on to the log's end.
    ///
    /// # Errors
    /// An I/O error.
    pub fn reach_end<B: LogBytes + ?Sized>(&mut self, log: &B) -> io::Result<()> {
        while let Some(link) = self.next_link(log)? {
            self.append(&link);
        }
        Ok(())
    }

    /// Adds the link at the tail.
    pub fn append(&mut self, link: &Link) {
        let from = link.first.index() as usize;
        let kept = self.positions.len().min(from + link.positions.len());
        self.positions[from.min(kept)..kept]
            .copy_from_slice(&link.positions[..kept - from.min(kept)]);
        self.positions
            .extend_from_slice(&link.positions[kept - from.min(kept)..]);
        if let Some(bases) = &mut self.bases {
            bases.extend(link.records.iter().filter_map(|record| record.base));
        }
        if link.ends_transaction {
            // Frames after the commit were rolled back.
            self.positions.truncate(link.last().0 as usize);
        }
        let last = FrameNo(self.positions.len() as u32);
        self.tail = Tail {
            offset: link.offset,
            sequence: link.sequence,
            crc: link.crc,
            last,
            committed: match link.ends_transaction {
                true => last,
                false => self.tail.committed,
            },
        };
    }

    /// The next link at the tail, if it belongs to the log.
    ///
    /// # Errors
    /// An I/O error.
    pub fn next_link<B: LogBytes + ?Sized>(&self, log: &B) -> io::Result<Option<Link>> {
        let Some(salts) = self.salts() else {
            return Ok(None);
        };
        let link = match self.form {
            Form::Packed => self.next_batch(log, salts)?,
            Form::Compressed => self.next_record(log, salts)?,
        };
        // A transaction may replace only its own frames.
        Ok(link.filter(|link| {
            link.first > self.tail.committed && link.first.0 <= self.tail.last.0.saturating_add(1)
        }))
    }

    /// The batch after the tail. It is right behind it, or begins the next block.
    ///
    /// Both places may hold a batch that follows. Then a transaction died after it was written behind
    /// the tail. The next one began a block, because nobody may write into the old one again. No
    /// transaction begins behind a tail after another one has begun a block there. So the batch in the
    /// block is the live one, even if it is torn. The exception is a batch behind the tail that is
    /// whole, and reaches into that block: no later one was written there.
    fn next_batch<B: LogBytes + ?Sized>(&self, log: &B, salts: Salts) -> io::Result<Option<Link>> {
        let behind = Begin::Behind.after(self.tail.offset);
        let block = Begin::Block.after(self.tail.offset);
        if behind == block {
            return Ok(self.batch_at(log, block, salts)?.flatten());
        }
        let near = self.batch_at(log, behind, salts)?.flatten();
        if near.as_ref().is_some_and(|link| link.offset > block) {
            return Ok(near);
        }
        match self.batch_at(log, block, salts)? {
            Some(far) => Ok(far),
            None => Ok(near),
        }
    }

    /// The batch at byte `at` that follows the tail. The inner `None`: there is only its header.
    fn batch_at<B: LogBytes + ?Sized>(
        &self,
        log: &B,
        at: u64,
        salts: Salts,
    ) -> io::Result<Option<Option<Link>>> {
        let begin = match at.is_multiple_of(batch::BLOCK_BYTES) {
            true => Begin::Block,
            false => Begin::Behind,
        };
        let follows = |batch: &Batch| {
            batch.begin == begin
                && batch.salts == salts
                && batch.previous == self.tail.crc
                && Some(batch.sequence) == self.tail.sequence.checked_add(1)
        };
        let first = log.view(FIRST_READ_BYTES, at, |bytes| {
            let batch = Batch::parse(bytes).filter(follows)?;
            let whole = bytes.get(..batch.end());
            Some((
                batch,
                whole.map(|whole| self.link(&batch, at, whole, salts)),
            ))
        })?;
        let link = match first {
            None => return Ok(None),
            Some((_, Some(link))) => link?,
            // Reads no more than the file has: the length may be anything.
            Some((batch, None))
                if batch.end() > BELIEVED_BYTES && at + batch.end() as u64 > log.size()? =>
            {
                None
            }
            Some((batch, None)) => {
                log.view(batch.end(), at, |whole| self.link(&batch, at, whole, salts))??
            }
        };
        Ok(Some(link))
    }

    /// A batch whose bytes were read, as the next step of the walk.
    fn link(&self, batch: &Batch, at: u64, whole: &[u8], salts: Salts) -> io::Result<Option<Link>> {
        if whole.len() != batch.end() || Batch::crc_of(whole) != batch.crc {
            return Ok(None);
        }
        let records = self
            .records_in(whole, at, batch.frames, salts)
            .map_err(|kind| self.unknown(kind, at))?;
        Ok(records.map(|records| Link {
            first: batch.first,
            positions: records.positions,
            records: records.records,
            ends_transaction: batch.ends_transaction,
            offset: batch.end_at(at),
            sequence: batch.sequence,
            crc: batch.crc,
        }))
    }

    /// The positions of a batch's records, and the frames that they refer to; `None` if their number
    /// differs from the header's.
    fn records_in(
        &self,
        batch: &[u8],
        offset: u64,
        frames: u32,
        salts: Salts,
    ) -> Result<Option<Records>, UnknownKind> {
        let mut found = Records::default();
        let mut at = batch::HEADER_BYTES;
        while at < batch.len() {
            let Some(record) = Record::parse(&batch[at..], self.form, self.page, salts)? else {
                return Ok(None);
            };
            if at + record.bytes() > batch.len()
                || found.positions.len() as u64 == u64::from(frames)
            {
                return Ok(None);
            }
            found
                .positions
                .push(Position::at(offset + at as u64, record.bytes()));
            found.records.push(Logged::of(&record));
            at += record.bytes();
        }
        Ok((found.positions.len() as u64 == u64::from(frames)).then_some(found))
    }

    fn unknown(&self, kind: UnknownKind, offset: u64) -> io::Error {
        let or_damaged = match self.form {
            // Its CRC is right.
            Form::Packed => "",
            Form::Compressed => {
                ". If no newer one wrote the log, that byte is damaged: \"onewrite salvage\" takes the \
                 frames before it"
            }
        };
        let what = format!(
            "the log holds records of kind {} at byte {offset}, which this version does not know: use a \
             newer onewrite{or_damaged}",
            kind.0
        );
        io::Error::new(io::ErrorKind::Unsupported, what)
    }

    fn next_record<B: LogBytes + ?Sized>(&self, log: &B, salts: Salts) -> io::Result<Option<Link>> {
        let here = self.tail.offset;
        let next = here.next_multiple_of(batch::BLOCK_BYTES);
        let found = match self.record_at(log, salts, here)? {
            None if self.tail.is_between_transactions() && next != here => {
                self.record_at(log, salts, next)?
            }
            found => found,
        };
        let Some(found) = found else {
            return Ok(None);
        };
        let mut link = Link {
            first: found.record.supersedes.unwrap_or(self.tail.last.plus(1)),
            positions: Vec::with_capacity(RECORDS),
            records: Vec::new(),
            ends_transaction: false,
            offset: found.offset,
            sequence: 0,
            crc: self.tail.crc,
        };
        let mut goes_on = found.record.supersedes.is_none();
        link.push(found);
        // Also takes the transaction's next consecutive records.
        while goes_on && !link.ends_transaction && link.positions.len() < MOST_RECORDS {
            let found = self.record_at(log, salts, link.offset);
            let next = found
                .ok()
                .flatten()
                .filter(|found| found.record.supersedes.is_none());
            goes_on = next.is_some();
            next.into_iter().for_each(|next| link.push(next));
        }
        Ok(Some(link))
    }

    /// The record at a position.
    fn record_at<B: LogBytes + ?Sized>(
        &self,
        log: &B,
        salts: Salts,
        offset: u64,
    ) -> io::Result<Option<Standing>> {
        let parsed = log.view(self.form.most_bytes(self.page), offset, |bytes| {
            let record = Record::parse(bytes, self.form, self.page, salts)?;
            Ok(record.filter(|record| record.bytes() <= bytes.len()))
        })?;
        let record = match parsed {
            Ok(record) => record,
            // Only a header within one sector is certainly either whole or missing.
            Err(kind) if offset % SECTOR + self.form.header_bytes() as u64 <= SECTOR => {
                return Err(self.unknown(kind, offset));
            }
            Err(_) => None,
        };
        Ok(record.map(|record| Standing {
            offset,
            ends_transaction: record.frame.salts == salts && record.frame.commit_pages != 0,
            record,
        }))
    }
}
