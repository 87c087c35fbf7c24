//! Opening a log: of a guarded database, of a database that is about to be guarded, or SQLite's own.

use std::path::Path;
use std::sync::OnceLock;

use super::header::{self, Batches, Locks, LogHeader, LogId};
use super::memory::FrameMemory;
use super::packed::{Form, Packed};
use super::shared::Shared;
use super::space::{Excludes, Space};
use super::{ErrorKind, Geometry, Log, LogError, read_header};
use crate::mode::{InitPolicy, JournalMode, Layout};
use crate::storage::pace::{self, KnownPace};
use crate::storage::{
    Access, Create, DirectIo, Durability, Init, LockByte, LogFile, NewFile, Patience,
};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::wal::PageSize;

/// How much of a new log is written to time durable writes.
const PACE_BYTES: u64 = 128 << 10;

/// Parameters for opening a log.
pub struct OpenLog<'a> {
    /// The log file.
    pub path: &'a Path,
    /// The file whose `-shm` and `-lock` the log's processes share: the `-onewrite` file, also for
    /// SQLite's own log, which has a `-shm` of its own.
    pub companions_of: &'a Path,
    /// The mode that it is opened for.
    pub mode: JournalMode,
    /// The database's page size.
    pub page: PageSize,
    /// Read-only if the database is.
    pub access: Access,
    /// Permissions of the database, for a file to create.
    pub new_file: NewFile,
    /// How blocks are initialized.
    pub init: InitPolicy,
    /// Whether direct I/O may be used.
    pub direct: DirectIo,
    /// How long to wait for other processes.
    pub patience: &'a dyn Patience,
}

#[cfg(all(test, not(any(shuttle, loom))))]
impl<'a> OpenLog<'a> {
    /// A small log of `onewrite`, through the page cache, for unit tests.
    pub(crate) fn for_test(path: &'a Path) -> OpenLog<'a> {
        OpenLog {
            path,
            companions_of: path,
            mode: JournalMode::Onewrite,
            page: PageSize::new(4096).expect("a page size"),
            access: Access::ReadWrite,
            new_file: NewFile {
                mode: 0o600,
                owner: None,
            },
            init: InitPolicy::Always(Init::ZeroFill),
            direct: DirectIo::Never,
            patience: &crate::storage::Short,
        }
    }
}

impl OpenLog<'_> {
    fn direct(&self) -> DirectIo {
        match self.mode.writes_directly() {
            true => self.direct,
            false => DirectIo::Never,
        }
    }
}

/// The properties that a `-onewrite` log keeps as long as it is in use.
#[derive(Clone, Copy)]
struct Ties {
    id: LogId,
    locks: Locks,
    batches: Batches,
}

impl Ties {
    fn of(header: &LogHeader) -> Ties {
        Ties {
            id: header.id,
            locks: header.locks,
            batches: header.batches,
        }
    }
}

impl Log {
    /// Opens the log of a guarded database; `id` is the one in the database's header.
    ///
    /// # Errors
    /// The log is missing, damaged, of a newer version, or belongs to another database.
    pub fn open_guarded(open: &OpenLog<'_>, id: LogId) -> Result<Log, LogError> {
        let file = LogFile::open(open.path, Create::Never, open.access, open.direct())
            .map_err(|e| LogError::missing(open.path, &e))?;
        let header = read_header(&file)?;
        if header.id != id {
            return Err(LogError::other_database(open.path, header.id, id));
        }
        let page = header.page_size.unwrap_or(open.page);
        let ties = Some(Ties::of(&header));
        let mut log = Log::assemble(file, open, header.layout, page, ties)?;
        log.pace = header.pace;
        log.known().salts = header.wal_header().map(|wal| wal.salts);
        log.join(open)?;
        Ok(log)
    }

    /// Makes the empty log of a database that is about to be guarded, under an EXCLUSIVE lock on
    /// the database. When this returns, the log, its first blocks and its directory entry are
    /// durable.
    ///
    /// # Errors
    /// The layout cannot carry the page size; no space; an I/O error.
    pub fn create(open: &OpenLog<'_>, layout: Layout) -> Result<Log, LogError> {
        let file = LogFile::open(
            open.path,
            Create::IfMissing(open.new_file),
            open.access,
            open.direct(),
        )?;
        // The log stays when a database is closed, and the database's permissions may have changed
        // since. SQLite makes a new log each time.
        file.give_permissions(open.new_file);
        // Even if the file existed before: its maker may have died before this step. Besides,
        // SQLite removes its journals and logs without a sync of the directory. One that came back
        // after a power cut would be read before the guard. This comes before the file of the
        // shared memory is made, which does not need it.
        file.sync_directory()?;
        let id = LogId::random()
            .map_err(|e| LogError::io(ErrorKind::CantOpen, open.path, "make an id for", &e))?;
        let remembers = read_header(&file).ok().and_then(|header| header.pace);
        let mut header = LogHeader::empty(open.mode, layout, Some(open.page), id);
        let ties = Some(Ties::of(&header));
        let mut log = Log::assemble(file, open, layout, open.page, ties)?;
        log.join(open)?;
        log.write_header(&header, Durability::None)?;
        // From here on the header block counts as ready; the rest of the first chunk follows.
        let first = |size| Space::first_end(&log.geometry, size);
        log.initialized(|init| log.space.extend(&log.file, init, open.patience, first))?;
        log.find_pace(remembers)?;
        if log.pace.is_some() {
            header.pace = log.pace;
            log.write_header(&header, Durability::None)?;
        }
        log.file.flush()?;
        log.untouched.store(true, Ordering::Release);
        Ok(log)
    }

    /// Times a new log, whose blocks are ready and empty. If they are unwritten, this would time
    /// the file system's journal.
    fn find_pace(&mut self, remembers: Option<KnownPace>) -> Result<(), LogError> {
        if self.init() != Init::Unwritten {
            let first = (header::BLOCK_BYTES as u64).next_multiple_of(self.geometry.unit());
            let end = self.file.size()?.min(first + PACE_BYTES);
            self.pace = pace::of_new_log(&self.file, remembers, first..end)?;
        }
        Ok(())
    }

    /// Opens SQLite's own `-wal` file, which stock connections may use at the same time.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open_stock(open: &OpenLog<'_>) -> Result<Log, LogError> {
        let create = match open.access {
            Access::ReadWrite => Create::IfMissing(open.new_file),
            Access::ReadOnly => Create::Never,
        };
        let file = LogFile::open(open.path, create, open.access, open.direct)?;
        if open.access == Access::ReadWrite && file.size()? == 0 {
            // Commits will be made durable in it without another look at the directory.
            file.sync_directory()?;
        }
        let mut log = Log::assemble(file, open, Layout::Stock, open.page, None)?;
        match log.join(open) {
            Err(e) if e.kind() == ErrorKind::Poisoned => return Err(e),
            // Alone with its own state, this process defers no commit, and flushes what it must
            // not take for durable. Stock SQLite needs none of this, and neither must `direct`.
            Err(_) => {
                log.shared = Shared::private();
                // It may have been exclusive, and others would wait for it. Where there are no such
                // locks, this fails, too.
                let _ = log.file.unlock(LockByte::Presence);
            }
            Ok(()) => {}
        }
        Ok(log)
    }

    fn assemble(
        file: LogFile,
        open: &OpenLog<'_>,
        layout: Layout,
        page: PageSize,
        ties: Option<Ties>,
    ) -> Result<Log, LogError> {
        let form = match layout {
            Layout::Packed => Some(Form::Packed),
            Layout::Compressed => Some(Form::Compressed),
            _ => None,
        };
        let align = file.direct().map_or(1, |align| align.offset);
        let geometry = Geometry::new(layout, page, align)
            .map_err(|why| LogError::new(ErrorKind::Unsuited, open.path, why))?;
        if open.init != InitPolicy::Auto {
            open.init
                .resolved(file.capabilities())
                .map_err(|why| LogError::new(ErrorKind::Unsuited, open.path, why))?;
        }
        // A writer of SQLite's own log, or a process that changes its size, holds SQLite's write
        // lock.
        let excludes = match ties {
            Some(_) => Excludes::Processes,
            None => Excludes::Threads,
        };
        let space = Space::new(file.size()?, excludes);
        Ok(Log {
            file,
            mode: open.mode,
            id: ties.map(|ties| ties.id),
            locks: ties.map_or(Locks::InAFileOfTheirOwn, |ties| ties.locks),
            batches: ties.map_or(Batches::OwnBlocks, |ties| ties.batches),
            geometry,
            init: open.init,
            memory: FrameMemory::new(page),
            packed: form.map(|form| Packed::new(form, page)),
            space,
            known: Mutex::default(),
            shared: Shared::private(),
            pages: Default::default(),
            poison: OnceLock::new(),
            guard_in_doubt: AtomicBool::new(false),
            pace: None,
            untouched: AtomicBool::new(false),
            next_piece: AtomicU64::new(0),
            region_begun: AtomicBool::new(false),
            reserve: OnceLock::new(),
            is_replenishing: AtomicBool::new(false),
        })
    }
}
