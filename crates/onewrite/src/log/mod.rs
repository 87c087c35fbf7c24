//! One open log, shared by all connections of this process to one database.
//!
//! A log is either our `-onewrite` file, with a header block ([`header`]) and a layout
//! ([`layout`]), or SQLite's own `-wal` file (journal mode `direct`). This module finds frames in
//! it, keeps its space ready, and knows whether it may still be trusted. `commit` decides who
//! writes what and when.
//!
//! State that connections share here is fixed while the log is open (file, geometry), atomic, or
//! under a mutex. State that *processes* must agree on is in the file or in SQLite's wal-index.
//! Nothing here is believed across processes without a look there.

pub mod arrivals;
pub mod header;
pub mod layout;
pub mod memory;
pub mod name;
pub mod open_block;
pub mod packed;
pub mod page_ring;
pub mod scan;
pub mod shared;

mod at_rest;
mod error;
pub mod forward;
mod open;
mod presence;
mod read;
mod space;

use std::sync::{OnceLock, PoisonError};
use std::time::Duration;

use crate::mode::{InitPolicy, JournalMode, SyncPolicy};
use crate::storage::pace::{KnownPace, Pace, Way};
use crate::storage::{
    AlignedBuf, Durability, Init, LockByte, LockKind, LogFile, Patience, Reserve, StorageError,
    try_within,
};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard};
use crate::waits::stall::{self, Phase};
use crate::wal::{self, FrameNo, History, Salts, WalHeader};

pub use error::{ErrorKind, LogError};
pub use header::{Batches, HeaderError, Locks, LogHeader, LogId};
pub use layout::Geometry;
use memory::FrameMemory;
pub use open::OpenLog;
use packed::Packed;
use shared::Shared;
pub use space::Covered;
use space::Space;

/// Why a log is poisoned if another process failed to write it.
const ELSEWHERE: &str = "another process could not write this log";

/// The last state that this process saw.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// The generation whose header this process read or wrote last.
    salts: Option<Salts>,
    /// The last frame of the last commit of this process.
    committed: Option<FrameNo>,
}

/// See the module.
pub struct Log {
    file: LogFile,
    mode: JournalMode,
    /// `None` in a `-wal` file.
    id: Option<LogId>,
    locks: Locks,
    batches: Batches,
    geometry: Geometry,
    init: InitPolicy,
    memory: FrameMemory,
    /// The positions of frames, if they are not fixed.
    packed: Option<Packed>,
    space: Space,
    known: Mutex<Known>,
    shared: Shared,
    pages: page_ring::Pages,
    poison: OnceLock<String>,
    guard_in_doubt: AtomicBool,
    /// The pace of durable writes, if it was timed.
    pace: Option<KnownPace>,
    /// Whether this process has made the log, durably empty, and has written no header since.
    untouched: AtomicBool,
    /// Where the next piece of the region begins, in bytes: see [`forward`].
    next_piece: AtomicU64,
    /// Whether this process has begun to make the region.
    region_begun: AtomicBool,
    /// The region in a file of its own, and whether a thread makes it.
    reserve: OnceLock<Reserve>,
    is_replenishing: AtomicBool,
}

impl Log {
    /// The pace of durable writes here; `None` if there is no choice.
    pub fn pace(&self) -> Option<Pace> {
        self.pace.map(|known| known.pace)
    }

    /// The policy with `auto` decided by the pace of the device.
    pub fn sync_policy(&self, policy: SyncPolicy) -> SyncPolicy {
        match (policy, self.pace().map(Pace::way)) {
            (SyncPolicy::Auto, Some(Way::WriteAndFlush)) => SyncPolicy::Full,
            (policy, _) => policy.resolved(),
        }
    }

    /// The state that the processes using the log share.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The file.
    pub fn file(&self) -> &LogFile {
        &self.file
    }

    /// The journal mode that the log serves.
    pub fn mode(&self) -> JournalMode {
        self.mode
    }

    /// The id that ties the log to its database; `None` for a `-wal` file.
    pub fn id(&self) -> Option<LogId> {
        self.id
    }

    /// How frames lie.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Whether the commits of a group may share blocks.
    pub fn batches_share_blocks(&self) -> bool {
        self.batches == Batches::ShareBlocks
    }

    /// How blocks are initialized.
    pub fn init(&self) -> Init {
        // A method that cannot be used was refused when the log was opened.
        let resolved = self.init.resolved(self.file.capabilities());
        match resolved.unwrap_or(Init::ZeroFill) {
            Init::WriteZeroes if self.may_zero_fill() => Init::ZeroFill,
            init => init,
        }
    }

    /// sysfs tells what the device takes. The file system tells only when it is asked: XFS of Linux
    /// 6.17 refuses.
    fn may_zero_fill(&self) -> bool {
        self.init == InitPolicy::Auto && self.file.refuses_write_zeroes()
    }

    /// Initializes blocks; a second time with zeros if the file system refuses the first method.
    fn initialized(
        &self,
        make: impl Fn(Init) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let init = self.init();
        match make(init) {
            Err(e) if e.is_unsupported() && self.init() != init => make(self.init()),
            other => other,
        }
    }

    /// The positions of the frames, where they are not fixed.
    pub fn packed(&self) -> Option<&Packed> {
        self.packed.as_ref()
    }

    /// The frames that this process remembers.
    pub fn memory(&self) -> &FrameMemory {
        &self.memory
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The generation whose header this process read or wrote last.
    pub fn header_salts(&self) -> Option<Salts> {
        self.known().salts
    }

    /// Whether every frame before `first` is known to be durable.
    pub fn durable_before(&self, first: FrameNo, history: impl Into<History>) -> bool {
        self.is_durable(history, FrameNo(first.0.saturating_sub(1)))
    }

    /// Whether everything up to this frame is known to be durable.
    pub fn is_durable(&self, history: impl Into<History>, last: FrameNo) -> bool {
        self.shared.durable(history) >= Some(last)
    }

    /// Notes that everything up to `last` is durable.
    pub fn set_durable(&self, last: FrameNo, history: impl Into<History>) {
        self.shared.set_durable(history, last);
    }

    /// Notes the last frame of a commit.
    pub fn set_committed(&self, last: FrameNo) {
        self.known().committed = Some(last);
    }

    /// The last frame that this process committed.
    pub fn committed(&self) -> Option<FrameNo> {
        self.known().committed
    }

    /// Marks the log as not trusted to hold committed frames. From now on, every connection of this
    /// process refuses it, and so does every process that checks before a flush.
    pub fn poison(&self, why: &str) {
        if self.poison.set(why.to_owned()).is_ok() {
            self.shared.poison();
            // A failed flush leaves pages in the cache that count as written. Recovery would find
            // frames there that the device does not have.
            self.file.drop_page_cache();
            self.file.lock_poison();
        }
    }

    /// Why the log is poisoned.
    pub fn poisoned(&self) -> Option<&str> {
        self.poison.get().map(String::as_str)
    }

    /// # Errors
    /// The log is poisoned.
    pub fn check_poison(&self) -> Result<(), LogError> {
        if self.shared.is_poisoned() && self.poisoned().is_none() {
            self.poison(ELSEWHERE);
        }
        match self.poisoned() {
            None => Ok(()),
            Some(why) => Err(self.error(ErrorKind::Poisoned, why)),
        }
    }

    /// Checks that no process has poisoned the log. Needed before a flush that must cover frames of
    /// others.
    ///
    /// # Errors
    /// A process has.
    pub fn check_poison_everywhere(&self) -> Result<(), LogError> {
        self.check_poison()?;
        if self
            .file
            .is_locked_by_other(LockByte::Poison, LockKind::Shared)?
        {
            self.poison(ELSEWHERE);
        }
        self.check_poison()
    }

    /// Notes whether the database may have lost the guard that leads to this log. The log is empty
    /// then, and no commit may go to it before the guard is on the device again.
    pub fn set_guard_in_doubt(&self, is_in_doubt: bool) {
        self.guard_in_doubt.store(is_in_doubt, Ordering::Release);
    }

    /// See [`Log::set_guard_in_doubt`].
    pub fn is_guard_in_doubt(&self) -> bool {
        self.guard_in_doubt.load(Ordering::Acquire)
    }

    /// Reads how much is ready: at the start of every write transaction.
    ///
    /// # Errors
    /// An I/O error.
    pub fn refresh(&self) -> Result<(), LogError> {
        let size = match self.id {
            Some(_) => self.file.size_while_linked()?,
            None => self.file.size()?,
        };
        self.space.refresh(size);
        Ok(())
    }

    /// Makes room for frames up to byte `end`, with initialized blocks if time allows.
    ///
    /// # Errors
    /// No space left; an I/O error; another process changes the log's size for longer than patience
    /// lasts. If a flush failed, the log is poisoned.
    pub fn make_room(
        &self,
        end: u64,
        covered: Covered,
        patience: &dyn Patience,
    ) -> Result<(), LogError> {
        if !self.lacks_room(end) {
            return Ok(());
        }
        let (space, file) = (&self.space, &self.file);
        // Others may commit into the blocks of a log of ours at once.
        let covered = match self.id {
            Some(_) => Covered::ByItself,
            None => covered,
        };
        let ensure = || {
            self.initialized(|init| {
                space.ensure(file, &self.geometry, init, patience, end, covered)
            })
        };
        let made = stall::measured(Phase::Growth, || self.rather_than_region(ensure));
        self.made_ready(made)
    }

    /// A flush of the whole file makes new blocks durable. If it fails, it may have lost commits
    /// that were published before, and a later flush would not report that.
    fn made_ready(&self, made: Result<(), StorageError>) -> Result<(), LogError> {
        let made = made.map_err(LogError::from);
        if let Err(e) = &made
            && e.kind() == ErrorKind::Flush
        {
            self.poison(&format!("a flush failed: {e}"));
        }
        made
    }

    /// Whether byte `end` lies beyond the blocks that are ready.
    pub fn lacks_room(&self, end: u64) -> bool {
        self.space.lacks(end)
    }

    /// Whether room for frames up to byte `end` can be made, as far as is known without trying.
    ///
    /// # Errors
    /// Another process changes the size, and has prevented others from doing so for some time.
    pub fn check_room(&self, end: u64, patience: &dyn Patience) -> Result<(), LogError> {
        if !self.lacks_room(end) || !self.space.is_stuck() {
            return Ok(());
        }
        let (byte, kind) = (LockByte::Extension, LockKind::Exclusive);
        let is_free = || Ok::<_, LogError>(!self.file.is_locked_by_other(byte, kind)?);
        match try_within(Duration::ZERO, patience, is_free)? {
            true => Ok(()),
            false => Err(self.file.busy(byte).into()),
        }
    }

    /// Whether it is time to prepare the next chunk in the background.
    pub fn is_running_low(&self, end: u64) -> bool {
        self.id.is_some() && self.space.is_running_low(&self.geometry, end)
    }

    /// Prepares the next chunk; for a separate thread.
    pub fn prepare_next_chunk(&self) {
        let space = &self.space;
        // The commit that needs the space meets a failure again and reports it, or finds the
        // poison.
        let _ = self.made_ready(space.prepare_next(&self.file, &self.geometry, self.init()));
    }

    /// Writes frames beyond the ready blocks. Excludes the preparation of the same blocks.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn write_beyond(
        &self,
        patience: &dyn Patience,
        write: impl Fn() -> Result<(), StorageError>,
    ) -> Result<(), LogError> {
        let beyond = || self.space.locked(&self.file, patience, &write);
        Ok(stall::measured(Phase::Growth, || {
            self.rather_than_region(beyond)
        })?)
    }

    /// The log's header block as it is in the file now.
    ///
    /// # Errors
    /// The header is damaged, or cannot be read.
    pub fn read_header(&self) -> Result<LogHeader, LogError> {
        read_header(&self.file)
    }

    /// Writes SQLite's WAL header: the log restarts.
    ///
    /// # Errors
    /// An I/O error.
    pub fn write_wal_header(
        &self,
        bytes: &[u8; wal::HEADER_BYTES],
        durability: Durability,
    ) -> Result<(), LogError> {
        let Some(id) = self.id else {
            let mut block = AlignedBuf::new();
            // The rest of the block stays as it is. The old generation's frames are in the
            // database. But suppose that power fails with the old header still there, and some of
            // those frames gone. The frames before them would be read into the database again, over
            // newer pages.
            let load: layout::Load<'_> = &mut |offset, out| self.load_block(offset, out);
            layout::encode_stock(0, bytes, true, load, &mut block).map_err(|e| {
                LogError::io(ErrorKind::Write, self.file.path(), "build a header for", &e)
            })?;
            return Ok(self.file.write_at(block.as_slice(), 0, durability)?);
        };
        let empty = LogHeader::empty(
            self.mode,
            self.geometry.layout(),
            Some(self.geometry.page()),
            id,
        );
        self.write_header(
            &LogHeader {
                wal: *bytes,
                pace: self.pace,
                // A log of an older version stays so while it is in use: all processes must lock in
                // one file.
                locks: self.locks,
                batches: self.batches,
                ..empty
            },
            durability,
        )
    }

    fn write_header(&self, header: &LogHeader, durability: Durability) -> Result<(), LogError> {
        self.untouched.store(false, Ordering::Release);
        let mut block = AlignedBuf::new();
        block.resize_zeroed(header::BLOCK_BYTES);
        block.as_mut_slice()[..header::HEADER_BYTES].copy_from_slice(&header.to_bytes());
        Ok(self.file.write_at(block.as_slice(), 0, durability)?)
    }

    /// Notes the generation of a WAL header that this process read or wrote.
    pub fn note_wal_header(&self, bytes: &[u8; wal::HEADER_BYTES]) {
        let mut known = self.known();
        known.salts = WalHeader::parse(bytes).map(|header| header.salts);
    }

    /// The header noted last was never written.
    pub fn forget_wal_header(&self) {
        self.known().salts = None;
    }

    /// Makes the log empty, durably: the database holds everything.
    ///
    /// # Errors
    /// An I/O error.
    pub fn reset(&self) -> Result<(), LogError> {
        self.write_wal_header(&[0; wal::HEADER_BYTES], Durability::None)?;
        self.file.flush()?;
        *self.known() = Known::default();
        self.shared.forget_durable();
        Ok(())
    }

    /// Shrinks the file to the frames that SQLite's log would have in `size` bytes. The first chunk
    /// stays, so that the next commits need not wait for space.
    ///
    /// # Errors
    /// An I/O error.
    pub fn shrink(&self, size: u64, patience: &dyn Patience) -> Result<(), LogError> {
        let keep = match self.id {
            None => size,
            Some(_) => {
                let last = self.geometry.page().locate(size.saturating_sub(1));
                let end = match (last, &self.packed) {
                    (None, _) => 0,
                    (Some(_), Some(packed)) => packed.end().max(size),
                    (Some((frame, _)), None) => self.geometry.end_of(frame),
                };
                end.max(space::chunk_end(&self.geometry, 0))
            }
        };
        Ok(self.space.shrink(&self.file, patience, keep)?)
    }

    /// Whether SQLite would find a log here: one with a WAL header, even if it has no frames yet.
    ///
    /// # Errors
    /// The header is damaged; an I/O error.
    pub fn has_content(&self) -> Result<bool, LogError> {
        match self.id {
            None => Ok(self.file.size()? > 0),
            Some(_) => Ok(!self.read_header()?.is_empty()),
        }
    }

    /// The largest size that SQLite's own log would have, from the size of the file.
    ///
    /// # Errors
    /// The header is damaged; an I/O error.
    pub fn logical_size(&self) -> Result<u64, LogError> {
        let size = self.file.size()?;
        if self.id.is_none() {
            return Ok(size);
        }
        let header = self.read_header()?;
        if header.is_empty() {
            return Ok(0);
        }
        if let Some(packed) = &self.packed {
            // Recovery asks for it, when no other process has the log.
            let salts = header.wal_header().map_or(Salts([0; 8]), |wal| wal.salts);
            let last = self.reading(packed.survey(&self.file, salts))?;
            let frames = self.geometry.page().frame_range(last.plus(1)).start;
            // Compressed frames take fewer bytes in the file than here. An old generation may have
            // left a larger file than the present frames need, for `journal_size_limit` to shrink.
            return Ok(frames.max(size));
        }
        Ok(match self.geometry.capacity(size) {
            0 => wal::HEADER_BYTES as u64,
            frames => self.geometry.page().frame_range(FrameNo(frames)).end,
        })
    }

    /// An error about this log.
    pub fn error(&self, kind: ErrorKind, what: &str) -> LogError {
        LogError::new(kind, self.file.path(), what)
    }
}

/// Reads the header of a `-onewrite` log.
///
/// # Errors
/// It is damaged, of a newer version, or cannot be read.
pub fn read_header(file: &LogFile) -> Result<LogHeader, LogError> {
    let parsed = header::parse_whole(|| {
        let mut bytes = vec![0; header::HEADER_BYTES];
        let n = file.read_at(&mut bytes, 0)?;
        bytes.truncate(n);
        Ok::<_, StorageError>(bytes)
    })?;
    parsed.map_err(|e| LogError::header(file.path(), e))
}
