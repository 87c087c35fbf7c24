//! The guard: keeps stock SQLite off a database whose newest transactions are in a log that stock
//! SQLite does not know. This file also decides a database's mode, whenever a connection goes from
//! no lock to SHARED.
//!
//! While one of our logs is in use, the database header on disk has [`GUARD_BYTE`] as read version
//! (byte 19). Bytes 72 to 79 hold the log's id. SQLite reads 2 and zeros through us. A stock
//! connection sees a version that it must not read, says "file is not a database" and touches
//! nothing. The interleavings: `docs/durability.md`, G14 to G34.

use std::ffi::c_int;
use std::fs;
use std::io;

use super::companion::{file_begins_with_content, open_companion};
use super::convert;
use super::database::{Database, Switch, shared_log};
use super::discard::{self, Discarded};
use super::ffi;
use super::header::{
    GUARD_BYTE, HEADER_BYTES, Header, ID_AT, READ_VERSION_AT, WAL_VERSION, clear, count_on,
    guarded_by, id_in, is_of_a_database, keep, page_size, stands_in, suits,
};
use super::host;
use super::inner::LockLevel;
use super::state::KeptOut;
use super::status;
use crate::commit::SharedLog;
use crate::log::shared::Shared;
use crate::log::{self, ErrorKind, Log, LogError, LogHeader, LogId, OpenLog};
use crate::mode::{JournalMode, Layout};
use crate::storage::Access;
use crate::waits::{DATABASE_LOCK, Try, try_times};
use crate::wal::FRAME_HEADER_BYTES;

/// The result of the first look under a SHARED lock.
pub(super) enum Look {
    /// The mode is decided, and the lock stays.
    Settled,
    /// Another connection has the database open, and EXCLUSIVE is needed.
    Refused,
    /// Stock SQLite must first recover its journal or log.
    StockFirst,
    /// The URI or the environment asks for a mode that the database does not have yet.
    Convert(JournalMode),
    /// The database must be guarded, and this connection is read-only.
    NeedsWriter,
}

impl Database {
    /// Whether [`hide`](super::header::hide) applies to these bytes, read from the database at `offset`.
    ///
    /// SQLite, or a VFS above ours, may read before the first lock, when we do not know of the
    /// guard yet. It must not see the guard then either. A connection that never takes a lock reads
    /// the file without its log, and must not take that for the database. Other bytes may look like
    /// a guard by chance, such as those of an encrypting VFS above ours. So only the header of a
    /// database is changed.
    pub fn hides(&self, bytes: &[u8], offset: u64) -> bool {
        if self.is_guarded() {
            return true;
        }
        if self.takes_no_lock || !stands_in(bytes, offset) {
            return false;
        }
        let header = match bytes.first_chunk() {
            Some(header) if offset == 0 => Some(*header),
            _ => self.read_header().ok().flatten(),
        };
        header.is_some_and(|header| is_of_a_database(&header))
    }

    /// `xLock(SHARED)` from no lock.
    pub fn lock_shared(&self) -> c_int {
        let mut code = ffi::SQLITE_BUSY;
        for _ in 0..DATABASE_LOCK.most {
            let closings = self.await_lingering();
            code = self.try_lock_shared_often();
            let is_busy = code & 0xff == ffi::SQLITE_BUSY;
            // If one of our own connections closed meanwhile, it had EXCLUSIVE.
            if !is_busy || closings == self.closings() {
                break;
            }
        }
        code
    }

    fn try_lock_shared_often(&self) -> c_int {
        if let Some(error) = self.uri_error() {
            return self.fail(&error);
        }
        // Two connections that both hold SHARED block each other from EXCLUSIVE. Each backs out, waits
        // a different time, and tries again. Then SQLite's busy handler takes over.
        let settled = try_times(&DATABASE_LOCK, |number| {
            self.first_lock
                .is_last_attempt
                .set(number + 1 == DATABASE_LOCK.most);
            self.try_lock_shared()
        });
        match settled {
            Ok(Some(())) => return ffi::SQLITE_OK,
            Ok(None) => {}
            Err(code) => return code,
        }
        host::log(
            ffi::SQLITE_BUSY,
            &format!(
                "{}: cannot be opened in its journal mode while another program has it open with \
                 stock SQLite",
                self.paths.database.display()
            ),
        );
        ffi::SQLITE_BUSY
    }

    /// One try. The error is SQLite's code.
    fn try_lock_shared(&self) -> Result<Try<()>, c_int> {
        match self.lock_and_look()?.map_err(|e| self.fail(&e))? {
            Look::Settled => return Ok(Try::Done(())),
            Look::NeedsWriter => {
                self.first_lock.writer_tried.set(true);
                let settled = || matches!(self.lock_and_look(), Ok(Ok(Look::Settled)));
                if convert::while_a_writer_is_open(self.host, &self.paths, settled) {
                    return Ok(Try::Done(()));
                }
            }
            Look::StockFirst => {
                convert::recover_with_stock(self.host, &self.paths).map_err(|e| e.code)?;
            }
            Look::Convert(mode) => {
                self.first_lock.conversion_tried.set(true);
                let settings = self.settings.get();
                if let Err(e) = convert::convert(self.host, &self.paths, mode, &settings) {
                    self.not_converted(mode, e.message);
                }
            }
            Look::Refused => return Ok(Try::Later),
        }
        Ok(Try::Again)
    }

    /// Takes SHARED and finds out the database's mode. Keeps the lock only if the mode is settled.
    /// The error is SQLite's code for a lock that could not be taken.
    fn lock_and_look(&self) -> Result<Result<Look, LogError>, c_int> {
        match self.inner.lock(LockLevel::SHARED) {
            ffi::SQLITE_OK => {}
            code => return Err(code),
        }
        let look = self.look();
        if matches!(look, Ok(Look::Settled)) {
            self.lock.set(LockLevel::SHARED);
        } else {
            self.log.replace(None);
            self.inner.unlock(LockLevel::NONE);
        }
        Ok(look)
    }

    /// SQLite opens its log under EXCLUSIVE (`locking_mode=EXCLUSIVE`), without passing through no
    /// lock. This is the last chance to guard.
    pub fn settle_exclusively(&self) -> Result<(), LogError> {
        if self.mode().is_some() || self.lock.get() != LockLevel::EXCLUSIVE {
            return Ok(());
        }
        if self.guard.kept_out.get().is_some() {
            // The stock connection may have left a log, which we would hide. Only a first lock
            // recovers it.
            return Ok(());
        }
        let Some(header) = self.read_header()? else {
            return Ok(());
        };
        match self.remembered_mode(&header)? {
            Some(mode) if !mode.is_guarded() => self.use_direct(&header, mode),
            Some(mode) if !self.read_only => self.guard(header, mode),
            _ => Ok(()),
        }
    }

    fn look(&self) -> Result<Look, LogError> {
        if let Some(served) = &self.served {
            return self.look_for(served);
        }
        if discard::is_wanted() {
            return self
                .discard()
                .inspect_err(|e| discard::failed(e.to_string()));
        }
        let header = self.read_header()?;
        if let Some(look) = self.set_orphan_aside(header.as_ref())? {
            return Ok(look);
        }
        let Some(header) = header else {
            return self.look_at_empty();
        };
        self.refuse_other_name(&header)?;
        match header[READ_VERSION_AT] {
            GUARD_BYTE => {
                let id = id_in(&header);
                if !is_of_a_database(&header) && self.present_log()?.is_none_or(|log| log.id != id)
                {
                    // Any bytes may be here and look like a guard. They may be of a torn write, which
                    // SQLite will roll back by its journal, or of a file that is not a database.
                    return self.refuse_leftover().map(|()| Look::Settled);
                }
                let log = self.open_guarded(&header, id)?;
                self.tell_of_mode(&log);
                self.log.replace(Some(log));
                Ok(Look::Settled)
            }
            // SQLite reports the error in such a header, or the header is encrypted.
            WAL_VERSION if !is_of_a_database(&header) => Ok(Look::Settled),
            WAL_VERSION => match self.remembered_mode(&header)? {
                None => Ok(Look::Settled),
                Some(mode) if !mode.is_guarded() => {
                    self.use_direct(&header, mode).map(|()| Look::Settled)
                }
                // A read-only connection cannot guard. Without a guard its SHARED lock would
                // exclude writers for as long as it is open. So a connection that can write guards
                // for it. If none can, there is no writer to exclude.
                Some(_) if self.read_only => {
                    match self.first_lock.writer_tried.get() || convert::is_converting() {
                        true => Ok(Look::Settled),
                        false => Ok(Look::NeedsWriter),
                    }
                }
                Some(mode) => self.guard_from_shared(mode),
            },
            _ => {
                self.refuse_leftover()?;
                match self.conversion_due() {
                    Some(mode) => Ok(Look::Convert(mode)),
                    None => Ok(Look::Settled),
                }
            }
        }
    }

    fn look_at_empty(&self) -> Result<Look, LogError> {
        self.refuse_leftover()?;
        let settings = self.settings.get();
        let layout = JournalMode::Waldio.layout_for(settings.layout, settings.checkpoint, None);
        let reserves = layout == Layout::Embedded;
        if let Some(connection) = self.connection.get()
            && self.conversion_due() == Some(JournalMode::Waldio)
            && reserves
            && let Ok(Some(schema)) = connection.schema()
        {
            // The database will be converted once it has content. From the first page on, its pages
            // must have room for frame headers.
            connection.reserve_bytes(&schema, FRAME_HEADER_BYTES as c_int);
        }
        Ok(Look::Settled)
    }

    pub(super) fn conversion_due(&self) -> Option<JournalMode> {
        let idle = self.switch.get() == Switch::Idle && !self.read_only;
        self.requested.mode.filter(|_| {
            idle && !self.requested.mode_was_named.get() && !self.first_lock.conversion_tried.get()
        })
    }

    /// The header as it is on disk; `None` in an empty database.
    pub(super) fn read_header(&self) -> Result<Option<Header>, LogError> {
        let mut header = [0; HEADER_BYTES];
        match self.inner.read(&mut header, 0) {
            ffi::SQLITE_OK => Ok(Some(header)),
            ffi::SQLITE_IOERR_SHORT_READ => Ok(None),
            code => Err(self.inner_error("read the header of", code)),
        }
    }

    pub(super) fn inner_error(&self, doing: &str, code: c_int) -> LogError {
        let text = format!("cannot {doing} the database: SQLite's VFS says {code}");
        // To SQLite this code means SQLITE_CORRUPT, but a failed call is no corruption.
        let code = match code {
            ffi::SQLITE_IOERR_CORRUPTFS => ffi::SQLITE_IOERR_READ,
            code => code,
        };
        LogError::new(ErrorKind::Underneath(code), &self.paths.database, text)
    }

    /// A log with content next to an unguarded database belongs to another database that once had
    /// this name. It is never replayed into this one.
    fn refuse_leftover(&self) -> Result<(), LogError> {
        if self.first_lock.leftover_checked.get() {
            return Ok(());
        }
        if self.present_log()?.is_some_and(|header| !header.is_empty()) {
            return Err(self.leftover_error());
        }
        self.first_lock.leftover_checked.set(true);
        Ok(())
    }

    /// The header of the log file, if there is one.
    pub(super) fn present_log(&self) -> Result<Option<LogHeader>, LogError> {
        let path = &self.paths.log;
        let Some(file) = open_companion(path)? else {
            return Ok(None);
        };
        let header =
            log::header::of(&file).map_err(|e| LogError::io(ErrorKind::Read, path, "read", &e))?;
        header.transpose().map_err(|e| LogError::header(path, e))
    }

    /// Our mode to use for a database in WAL mode.
    fn remembered_mode(&self, header: &Header) -> Result<Option<JournalMode>, LogError> {
        match self.switch.get() {
            Switch::To(mode) => return Ok(Some(mode)),
            Switch::ToStock => return Ok(None),
            Switch::Idle | Switch::Asks => {}
        }
        match self.refuse_leftover() {
            // If the log held something, the database would be guarded: see G35.
            Err(e) if e.kind() == ErrorKind::Denied => {
                self.keep_out(None, status::MAY_NOT_READ_LOG, &e.to_string());
                return Ok(None);
            }
            other => other?,
        }
        let Some(log) = self.present_log()? else {
            return Ok(None);
        };
        if let Err(why) = self.layout_of_new_log(header, log.mode, Some(&log)) {
            // Another database has taken this one's place since.
            self.tell_of_refusal(log.mode.name(), &why);
            return Ok(None);
        }
        Ok(Some(log.mode))
    }

    /// The layout of a new log for the database; `present` is the log that was there. The error
    /// says why it cannot carry this database's pages.
    pub(super) fn layout_of_new_log(
        &self,
        header: &Header,
        mode: JournalMode,
        present: Option<&LogHeader>,
    ) -> Result<Layout, String> {
        let remembered = present.filter(|log| log.mode == mode);
        let remembered = remembered.map(|log| log.layout);
        let settings = self.settings.get();
        let layout = mode.layout_for(
            settings.layout,
            settings.checkpoint,
            remembered.filter(|layout| suits(*layout, header).is_ok()),
        );
        suits(layout, header).map(|()| layout)
    }

    fn open_guarded(
        &self,
        header: &Header,
        id: LogId,
    ) -> Result<std::sync::Arc<SharedLog>, LogError> {
        let path = &self.paths.log;
        // The log knows its own mode; this one is only for a log without one.
        let present = self.present_log()?;
        let mode = present.map_or(JournalMode::Waldio, |log| log.mode);
        // If the header is damaged in the database, it may be whole in the log, where SQLite looks
        // first.
        let page = present.and_then(|log| log.page_size);
        let page = page.map_or_else(|| page_size(header), Ok)?;
        let fits = |log: &Log, open: &OpenLog<'_>| log.id() == Some(id) && is_at_path(log, open);
        as_permitted(self.open_log(path, mode, page)?, |open| {
            shared_log(
                open,
                |log| fits(log, open),
                || {
                    let log = Log::open_guarded(open, id)?;
                    if present.is_none_or(|log| log.is_empty()) && !self.read_only {
                        // The process that set the guard may have died before it was durable. It
                        // must be durable before the first frame. Otherwise, after a power cut,
                        // there would be a log with commits, and no guard leading to it.
                        self.write_guard_again(id)?;
                    }
                    Ok(log)
                },
            )
        })
    }

    /// A write whose flush failed may be lost although it can still be read, and a second flush
    /// would not write it. Under SHARED, no connection changes these bytes on a guarded database. A
    /// checkpoint that writes page 1 meanwhile writes the same bytes.
    fn write_guard_again(&self, id: LogId) -> Result<(), LogError> {
        for (bytes, at) in [(&[GUARD_BYTE][..], READ_VERSION_AT), (&id.0[..], ID_AT)] {
            match self.inner.write(bytes, at as i64) {
                ffi::SQLITE_OK => {}
                code => return Err(self.inner_error("write the header of", code)),
            }
        }
        self.flush_database()
    }

    /// SQLite opens a log, perhaps one that could not be given up a moment ago. The database's
    /// guard must lead to what it commits there.
    pub fn assure_guard(&self) -> Result<(), LogError> {
        let Some(log) = self.log().filter(|log| log.is_guard_in_doubt()) else {
            return Ok(());
        };
        if let Some(id) = log.id() {
            self.write_guard_again(id)?;
        }
        log.set_guard_in_doubt(false);
        Ok(())
    }

    pub(super) fn flush_database(&self) -> Result<(), LogError> {
        match self.inner.sync() {
            ffi::SQLITE_OK => Ok(()),
            code => Err(self.inner_error("flush", code)),
        }
    }

    fn use_direct(&self, header: &Header, mode: JournalMode) -> Result<(), LogError> {
        let path = &self.paths.wal;
        let open = self.open_log(path, mode, page_size(header)?)?;
        if self.read_only && !path.exists() {
            // There is nothing to read, and the next writer will make it.
            return Ok(());
        }
        let log = as_permitted(open, |open| {
            shared_log(open, |log| is_at_path(log, open), || Log::open_stock(open))
        })?;
        self.tell_of_mode(&log);
        self.log.replace(Some(log));
        Ok(())
    }

    /// Under SHARED, on an unguarded database: takes EXCLUSIVE, guards, goes back to SHARED.
    fn guard_from_shared(&self, mode: JournalMode) -> Result<Look, LogError> {
        match self.inner.lock(LockLevel::EXCLUSIVE) {
            ffi::SQLITE_OK => {}
            code if code & 0xff == ffi::SQLITE_BUSY => return self.stay_in_wal(mode),
            code => return Err(self.inner_error("lock", code)),
        }
        // Nothing can have changed between the look under SHARED and the EXCLUSIVE lock. The header
        // is only written under EXCLUSIVE, and SHARED was held throughout.
        let Some(header) = self.read_header()? else {
            return Ok(Look::Refused);
        };
        if self.stock_files_in_the_way()? {
            return Ok(Look::StockFirst);
        }
        match self.guard(header, mode) {
            // Nothing was written yet.
            Err(e) if e.kind() == ErrorKind::Denied && self.switch.get() == Switch::Idle => {
                let why = status::MAY_NOT_WRITE_LOG;
                self.keep_out(Some(mode), why, &format!("{why} ({e})"));
            }
            other => other?,
        }
        match self.inner.unlock(LockLevel::SHARED) {
            ffi::SQLITE_OK => Ok(Look::Settled),
            code => Err(self.inner_error("unlock", code)),
        }
    }

    /// The database is used in SQLite's WAL while this connection holds SHARED.
    fn keep_out(&self, mode: Option<JournalMode>, why: &'static str, words: &str) {
        self.guard.kept_out.set(Some(KeptOut { mode, why }));
        self.tell_of_refusal(mode.map_or("", JournalMode::name), words);
    }

    /// EXCLUSIVE was refused. This acts after some patience, and if a `-wal` file shows that a
    /// stock connection has the database open, maybe for days. Then the database is used as that
    /// one uses it, in SQLite's WAL. No connection can guard it while we hold SHARED. The next
    /// first lock tries again.
    fn stay_in_wal(&self, mode: JournalMode) -> Result<Look, LogError> {
        if !self.first_lock.is_last_attempt.get() || !self.paths.wal.exists() {
            return Ok(Look::Refused);
        }
        // After a refused EXCLUSIVE, the locks that SQLite keeps would exclude new readers.
        match self.inner.unlock(LockLevel::SHARED) {
            ffi::SQLITE_OK => {}
            code => return Err(self.inner_error("unlock", code)),
        }
        self.keep_out(Some(mode), status::KEPT_OUT, status::KEPT_OUT);
        Ok(Look::Settled)
    }

    /// Under SHARED: gives up the log, so that the database as it is becomes a stock one. First the
    /// guard goes, then the log's name. A crash in between leaves an unguarded database with a log
    /// that is never replayed.
    fn discard(&self) -> Result<Look, LogError> {
        // An environment that asks for one of our modes does not mean this connection.
        self.first_lock.conversion_tried.set(true);
        match self.inner.lock(LockLevel::EXCLUSIVE) {
            ffi::SQLITE_OK => {}
            code if code & 0xff == ffi::SQLITE_BUSY => return Ok(Look::Refused),
            code => return Err(self.inner_error("lock", code)),
        }
        let header = self.read_header()?;
        let guard = header.as_ref().and_then(|header| guarded_by(header));
        if let (Some(mut header), Some(_)) = (header, guard) {
            if self.stock_files_in_the_way()? {
                return Err(LogError::new(
                    ErrorKind::CantOpen,
                    &self.paths.database,
                    "a -journal or -wal file of another database is next to this one, and SQLite would \
                     apply it to this one: rename that file first",
                ));
            }
            clear(&mut header);
            self.write_header(&mut header)?;
        }
        let _ = Shared::remove(&self.paths.log);
        let kept_as = self.set_given_up_aside()?;
        crate::storage::sync_directory(&self.paths.log)?;
        discard::done(Discarded { guard, kept_as });
        match self.inner.unlock(LockLevel::SHARED) {
            ffi::SQLITE_OK => Ok(Look::Settled),
            code => Err(self.inner_error("unlock", code)),
        }
    }

    /// Whether stock SQLite has left a hot journal or a log. It would read them before the header,
    /// and so before it sees the guard.
    fn stock_files_in_the_way(&self) -> Result<bool, LogError> {
        if file_begins_with_content(&self.paths.journal)? {
            return Ok(true);
        }
        match fs::metadata(&self.paths.wal) {
            Ok(wal) if wal.len() == 0 => {
                crate::storage::remove_file(&self.paths.wal)?;
                Ok(false)
            }
            Ok(_) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(LogError::io(
                ErrorKind::Read,
                &self.paths.wal,
                "look at",
                &e,
            )),
        }
    }

    /// Under EXCLUSIVE: makes an empty log, then guards the database with its id.
    fn guard(&self, mut header: Header, mode: JournalMode) -> Result<(), LogError> {
        let present = self.present_log()?;
        if present.is_some_and(|log| !log.at_rest) {
            // The process that cleared the last guard may have died before that was durable. Or it
            // saw the flush fail, and a flush alone does not write it then. It must be durable
            // before the log gets another id. Otherwise, after a power cut, the guard would ask for
            // the old one.
            match self.inner.write(&header[..], 0) {
                ffi::SQLITE_OK => self.flush_database()?,
                code => return Err(self.inner_error("write the header of", code)),
            }
        }
        self.part_from_strangers(present.as_ref())?;
        let path = &self.paths.log;
        let layout = self
            .layout_of_new_log(&header, mode, present.as_ref())
            .map_err(|why| LogError::new(ErrorKind::Unsuited, path, why))?;
        let open = self.open_log(path, mode, page_size(&header)?)?;
        let log = shared_log(
            &open,
            |_| false,
            || {
                // Nobody else has the database, and its guard is not written yet.
                Log::create(&open, layout).inspect_err(|_| self.remove_companions())
            },
        )?;
        let id = log.id().unwrap_or(LogId([0; 8]));
        keep(&mut header, id);
        self.write_header(&mut header)?;
        self.tell_of_mode(&log);
        self.log.replace(Some(log));
        Ok(())
    }

    /// Writes the header with a higher change counter, so that idle stock connections read it again
    /// before they trust their cache.
    pub(super) fn write_header(&self, header: &mut Header) -> Result<(), LogError> {
        self.move_counter_on(header)?;
        self.flush_database()
    }

    pub(super) fn move_counter_on(&self, header: &mut Header) -> Result<(), LogError> {
        count_on(header);
        match self.inner.write(&header[..], 0) {
            ffi::SQLITE_OK => Ok(()),
            code => Err(self.inner_error("write the header of", code)),
        }
    }
}

/// Whether an open log is the file at its path, with the access that is asked for.
fn is_at_path(log: &Log, open: &OpenLog<'_>) -> bool {
    let file = log.file();
    file.access() == open.access && file.same_as_path().unwrap_or(false)
}

/// Opens a log. For reading only, if this user may not write it: as in stock SQLite, such a
/// connection reads.
fn as_permitted<T>(
    mut open: OpenLog<'_>,
    try_open: impl Fn(&OpenLog<'_>) -> Result<T, LogError>,
) -> Result<T, LogError> {
    match try_open(&open) {
        Err(e) if e.kind() == ErrorKind::Denied && open.access == Access::ReadWrite => {
            open.access = Access::ReadOnly;
            try_open(&open)
        }
        other => other,
    }
}
