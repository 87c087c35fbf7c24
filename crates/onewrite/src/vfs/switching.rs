//! `PRAGMA journal_mode`, as far as it concerns our modes: from one mode to another, always through
//! DELETE, with SQLite's own statements.

use super::database::{Database, Switch};
use super::environment::UPGRADE_WAL;
use super::host::{Connection, SqlError};
use super::inner::LockLevel;
use super::pragma::{Answer, Failure};
use super::{convert, ffi, host};
use crate::log::Geometry;
use crate::log::name::longest_name;
use crate::mode::{JournalMode, Layout, UpgradeOfWal, is_stock_mode};
use crate::wal::{FRAME_HEADER_BYTES, PageSize};

/// How often a switch begins again because another connection has changed the mode.
const MOST_MEETINGS: usize = 4;

impl Database {
    pub(super) fn journal_mode(&self, value: Option<&str>) -> Answer {
        if self.switch.get() != Switch::Idle {
            // A statement of our own, on the way from one mode to another.
            return Answer::Pass;
        }
        let Some(word) = value.map(str::to_ascii_lowercase) else {
            if self.is_atomic() {
                return Answer::Text(super::atomic::NAME.to_owned());
            }
            self.enter_requested_if_new();
            if self.has_nothing_of_ours() && self.conversion_due().is_none() {
                return Answer::Pass;
            }
            return match self.settle() {
                Ok(()) => match self.mode() {
                    // SQLite sees its own WAL, and reports it.
                    Some(mode) if self.is_wal_to_the_application(mode) => Answer::Pass,
                    Some(mode) => Answer::Text(mode.to_string()),
                    None => Answer::Pass,
                },
                // It was looked at only for the requested mode.
                Err(_) if self.has_nothing_of_ours() => Answer::Pass,
                Err(e) => Answer::Fail(self.why(e)),
            };
        };
        if word != super::atomic::NAME && self.is_in_atomic_transaction() {
            // SQLite would keep its mode, and this one would be left halfway.
            return Answer::Fail("cannot change out of xftl mode from within a transaction".into());
        }
        if word == super::atomic::NAME {
            self.requested.mode_was_named.set(true);
            return self.switch_to_atomic();
        }
        if let Some(mode) = JournalMode::from_name(&word) {
            self.requested.mode_was_named.set(true);
            let answer = self.switch_to(mode);
            if let Answer::Fail(failure) = &answer {
                self.tell_of_refusal(mode.name(), &failure.message);
            }
            return answer;
        }
        if !is_stock_mode(&word) {
            // SQLite ignores such a word, and then answers with the mode; so do we.
            return self.journal_mode(None);
        }
        if word == "wal"
            && let Some(mode) = self.upgrade_of_wal()
            && let Some(answer) = self.upgrade_wal(self.kept_mode().unwrap_or(mode))
        {
            return answer;
        }
        self.requested.mode_was_named.set(true);
        let left = match self.is_atomic() {
            true => self.out_of_atomic(|| self.leave_atomic_for(&word)),
            false => self.leave_for(&word),
        };
        match left {
            Ok(()) => Answer::Pass,
            Err(failure) => Answer::Fail(failure),
        }
    }

    /// The application asks which mode a new, empty database has: it gets the requested one now, so that
    /// the answer is true. Its own connection changes it, so a page size that was chosen before holds.
    /// If that is not possible, the first statement after the first table tries again.
    pub(super) fn enter_requested_if_new(&self) {
        let Some(mode) = self.conversion_due() else {
            return;
        };
        let is_idle = |connection: Connection| connection.is_autocommit();
        // A question does not wait for a connection that is making the database.
        if self.takes_no_lock
            || self.inner.is_reserved()
            || !self.connection.get().is_some_and(is_idle)
            || !matches!(self.read_header(), Ok(None))
        {
            return;
        }
        if let Answer::Fail(failure) = self.switch_to(mode) {
            self.not_converted(mode, failure.message);
        }
    }

    /// Notes why the database is not in the requested mode.
    pub(super) fn not_converted(&self, mode: JournalMode, why: String) {
        self.tell_of_refusal(mode.name(), &why);
        self.first_lock.conversion_failure.replace(Some(why));
    }

    /// The mode that the URI or the environment substitutes for SQLite's own WAL: its name, or 1 for the
    /// one that `journal_mode=` or `ONEWRITE_JOURNAL_MODE` names. The URI counts more than the environment.
    pub(super) fn upgrade_of_wal(&self) -> Option<JournalMode> {
        if convert::is_converting() {
            return None;
        }
        let upgrade = match self.requested.upgrade_in_uri {
            Some(upgrade) => upgrade,
            // An unknown word was reported when the database was opened.
            None => UPGRADE_WAL.text()?.parse().ok()?,
        };
        match upgrade {
            UpgradeOfWal::To(mode) => Some(self.requested.mode_in_uri.unwrap_or(mode)),
            UpgradeOfWal::ToWanted => self.requested.mode,
            UpgradeOfWal::No => None,
        }
    }

    /// The mode that an upgrade of WAL keeps: ours, which the database remembers. Somebody has
    /// chosen it, and the URI may name another.
    fn kept_mode(&self) -> Option<JournalMode> {
        if self.requested.mode_in_uri.is_some() || self.has_nothing_of_ours() {
            return None;
        }
        // If the database cannot be read now, the switch says why.
        self.settle().ok()?;
        self.mode()
    }

    /// Whether an application that knows none of our modes has the database in WAL.
    fn is_wal_to_the_application(&self, mode: JournalMode) -> bool {
        self.upgrade_of_wal()
            .is_some_and(|upgrade| upgrade == mode || !self.requested.mode_was_named.get())
    }

    /// Why the database is not in this mode, which it remembers.
    fn is_kept_out_of(&self, mode: JournalMode) -> Option<&'static str> {
        let kept_out = self.guard.kept_out.get();
        kept_out
            .filter(|kept_out| kept_out.mode == Some(mode))
            .map(|kept_out| kept_out.why)
    }

    /// The application asks for WAL, does not know us, and may compare the answer: so the answer is
    /// "wal". If the switch is not possible, the database gets WAL as requested, the reason goes to
    /// SQLite's log, and this returns `None`.
    fn upgrade_wal(&self, mode: JournalMode) -> Option<Answer> {
        match self.switch_to(mode) {
            // The database is in WAL, as requested, and still remembers the mode.
            Answer::Fail(_) if self.is_kept_out_of(mode).is_some() => Some(Answer::Pass),
            Answer::Fail(failure) if self.mode().is_none() && failure.is_no_fault() => {
                self.tell_of_refusal(mode.name(), &failure.message);
                None
            }
            // Without a schema name the pragma is for every attached database. SQLite continues
            // with those, and finds that this one is in WAL mode.
            Answer::Text(_) => Some(Answer::Pass),
            other => Some(other),
        }
    }

    /// The name of the mode for the application.
    fn known_name(&self, mode: JournalMode) -> &'static str {
        match self.upgrade_of_wal() {
            Some(upgrade) if upgrade == mode => "wal",
            _ => mode.name(),
        }
    }

    /// An application that does not know us gets a failure in SQLite's words, and SQLite's log gets
    /// it in ours.
    pub(super) fn in_known_words(&self, answer: Answer) -> Answer {
        match answer {
            Answer::Fail(failure)
                if self.upgrade_of_wal().is_some() && failure.code != ffi::SQLITE_ERROR =>
            {
                host::log(failure.code, &failure.message);
                Answer::Fail(Failure {
                    message: String::new(),
                    ..failure
                })
            }
            answer => answer,
        }
    }

    /// Why one of our statements failed: SQLite's code, and the most specific text.
    pub(super) fn why(&self, error: SqlError) -> Failure {
        Failure {
            code: error.code,
            message: self.last_error.take().unwrap_or(error.message),
        }
    }

    fn switch_to(&self, mode: JournalMode) -> Answer {
        self.last_error.replace(None);
        match self.out_of_atomic(|| self.try_switch_to(mode)) {
            Ok(()) => Answer::Text(mode.to_string()),
            Err(message) => Answer::Fail(message),
        }
    }

    fn try_switch_to(&self, mode: JournalMode) -> Result<(), Failure> {
        let (connection, schema) = self
            .connection_and_schema()
            .map_err(|e| self.why(e))?
            .ok_or("the connection is not known to the VFS")?;
        if self.takes_no_lock {
            // SQLite would only say that the database is locked.
            return Err(format!(
                "cannot change into {mode} mode: the URI says immutable=1 or nolock=1, and a connection \
                 that takes no lock has no journal mode: open the database without it"
            )
            .into());
        }
        self.settle().map_err(|e| self.why(e))?;
        if self.mode() == Some(mode) {
            return Ok(());
        }
        if let Some(why) = self.is_kept_out_of(mode) {
            // Not through DELETE, which would be refused when the mode is already forgotten.
            return Err(Failure::busy(format!(
                "cannot change into {mode} mode: {why}"
            )));
        }
        if !connection.is_autocommit() {
            return Err(format!("cannot change into {mode} mode from within a transaction").into());
        }
        if self.read_only {
            return Err(
                format!("cannot change into {mode} mode: the database is read-only").into(),
            );
        }
        self.check_suits(mode, connection, &schema)?;
        self.check_name(mode)?;
        let left = self.leave_for_delete(mode, connection, &schema);
        left.map_err(|failure| in_the_way(failure, mode))?;
        if self.mode() == Some(mode) {
            return Ok(());
        }
        let wal = || connection.query(&format!("PRAGMA {schema}.journal_mode=wal"));
        let entered = self.during(Switch::To(mode), || {
            self.expect_mode(wal(), "wal")
                .map_err(|failure| in_the_way(failure, mode))
                .and_then(|()| self.enter(mode, connection, &schema))
        });
        if entered.is_err() && self.mode().is_none() {
            // The database may be in WAL by now, and none of our logs was made. If it stays there, it
            // remembers the mode: others may be in it.
            let _ = self
                .delete(connection, &schema)
                .and_then(|()| Ok(self.forget_unused_mode()?));
        }
        entered
    }

    /// Runs statements of our own as a part of a switch.
    fn during<T>(&self, switch: Switch, work: impl FnOnce() -> T) -> T {
        self.switch.set(switch);
        let done = work();
        self.switch.set(Switch::Idle);
        done
    }

    fn delete(&self, connection: Connection, schema: &str) -> Result<(), Failure> {
        let delete = || connection.query(&format!("PRAGMA {schema}.journal_mode=delete"));
        let left = self.during(Switch::ToStock, delete);
        self.expect_mode(left, "delete")
    }

    /// From every mode to DELETE, so that the way in is always the same. Or to `mode` itself, if
    /// another connection enters it meanwhile.
    fn leave_for_delete(
        &self,
        mode: JournalMode,
        connection: Connection,
        schema: &str,
    ) -> Result<(), Failure> {
        let ask = || connection.query(&format!("PRAGMA {schema}.journal_mode"));
        for _ in 0..MOST_MEETINGS {
            self.leave_for(mode.name())?;
            if self.lock.get() != LockLevel::NONE {
                // This lock keeps others from changing the mode.
                return self.delete(connection, schema);
            }
            self.settle().map_err(|e| self.why(e))?;
            let asked = self.during(Switch::Asks, ask).map_err(|e| self.why(e))?;
            match asked.as_deref() {
                _ if self.mode() == Some(mode) => return Ok(()),
                Some("delete") => return Ok(()),
                // Another connection has entered it since the last look.
                Some("wal") => {}
                _ => return self.delete(connection, schema),
            }
        }
        Err(Failure::busy(
            "other connections are changing the journal mode".into(),
        ))
    }

    /// The database is in WAL mode on disk: the next look at it opens our log.
    fn enter(
        &self,
        mode: JournalMode,
        connection: Connection,
        schema: &str,
    ) -> Result<(), Failure> {
        let looked = connection.query(&format!("PRAGMA {schema}.schema_version"));
        looked.map_err(|e| self.why(e))?;
        if self.mode() != Some(mode) || self.writer.borrow().is_none() {
            return Err(Failure::busy(self.last_error.take().unwrap_or_else(|| {
                format!("cannot change into {mode} mode: another connection is using the database")
            })));
        }
        match mode.is_guarded() {
            true => Ok(()),
            false => Ok(self.assure_mark(mode)?),
        }
    }

    pub(super) fn expect_mode(
        &self,
        result: Result<Option<String>, SqlError>,
        word: &str,
    ) -> Result<(), Failure> {
        match result.map_err(|e| self.why(e))? {
            Some(found) if found == word => Ok(()),
            found => Err(Failure::busy(format!(
                "cannot change the journal mode: it stays {}: another connection may be using the \
                 database",
                found.as_deref().unwrap_or("unknown")
            ))),
        }
    }

    /// A mode must be able to carry the database's pages. An empty database is adapted to it.
    fn check_suits(
        &self,
        mode: JournalMode,
        connection: Connection,
        schema: &str,
    ) -> Result<(), Failure> {
        let settings = self.settings.get();
        settings.suit(mode)?;
        let layout = mode.layout_for(settings.layout, settings.checkpoint, None);
        if layout == Layout::Gathered {
            self.check_suits_gathered(connection, schema)?;
        }
        if mode != JournalMode::Waldio {
            return Ok(());
        }
        if layout != Layout::Embedded {
            return Ok(());
        }
        let needed = FRAME_HEADER_BYTES as u8;
        let mut header = [0; super::header::HEADER_BYTES];
        match self.inner.read(&mut header, 0) {
            ffi::SQLITE_OK if header[20] >= needed => Ok(()),
            ffi::SQLITE_OK => Err(format!(
                "journal mode waldio keeps each frame's header in {needed} reserved bytes of its \
                 page, and this database reserves {}: convert it with PRAGMA \
                 onewrite_reserve_bytes={needed}; PRAGMA journal_mode=delete; VACUUM; or use PRAGMA \
                 onewrite_layout=page4k first",
                header[20]
            )
            .into()),
            ffi::SQLITE_IOERR_SHORT_READ => {
                connection.reserve_bytes(schema, i32::from(needed));
                Ok(())
            }
            code => Err(Failure {
                code,
                message: format!("cannot read the database header: SQLite's VFS says {code}"),
            }),
        }
    }

    /// The names of all files of the mode must fit. Otherwise the database would be halfway when that
    /// shows.
    fn check_name(&self, mode: JournalMode) -> Result<(), Failure> {
        let suffix = match mode.is_guarded() {
            true => "-onewrite-lock",
            false => "-onewrite",
        };
        let (database, longest) = (&self.paths.database, longest_name(&self.paths.database));
        let most = longest.saturating_sub(suffix.len());
        let len = database.file_name().unwrap_or_default().len();
        if len <= most {
            return Ok(());
        }
        Err(Failure {
            code: ffi::SQLITE_CANTOPEN,
            message: format!(
                "cannot change into {mode} mode: file name too long: the database's name has {len} bytes, and may \
                 have at most {most}: another file's name is the same with \"{suffix}\" after it, and the file \
                 system allows {longest}"
            ),
        })
    }

    /// Pages must be whole blocks. If that showed only when the log is made, it would be an error
    /// there, and not a reason to stay in another mode.
    fn check_suits_gathered(&self, connection: Connection, schema: &str) -> Result<(), Failure> {
        let asked = connection.query(&format!("PRAGMA {schema}.page_size"));
        let bytes = asked.map_err(|e| self.why(e))?;
        let page = bytes.and_then(|bytes| PageSize::new(bytes.parse().ok()?));
        let suits = page.map(|page| Geometry::new(Layout::Gathered, page, 1));
        suits.transpose().map(drop).map_err(Failure::from)
    }

    /// Whether none of our modes is in use or remembered. Then SQLite's statement is left to
    /// SQLite: it may answer while another connection has the database locked, and its errors are
    /// its own.
    fn has_nothing_of_ours(&self) -> bool {
        self.mode().is_none() && !self.paths.log.exists()
    }

    /// Leaves one of our modes through DELETE, and forgets it. SQLite continues from there.
    pub(super) fn leave_for(&self, word: &str) -> Result<(), Failure> {
        if self.has_nothing_of_ours() {
            return Ok(());
        }
        self.settle().map_err(|e| self.why(e))?;
        let Some(mode) = self.mode() else {
            return match self.read_only || !self.paths.log.exists() {
                true => Ok(()),
                // A remembered mode that is not in use, because it could not be.
                false => self.forget_unused(word),
            };
        };
        let (connection, schema) = self
            .connection_and_schema()
            .map_err(|e| self.why(e))?
            .ok_or("the connection is not known to the VFS")?;
        if !connection.is_autocommit() {
            return Err(format!(
                "cannot change out of {} mode from within a transaction",
                self.known_name(mode)
            )
            .into());
        }
        self.switch.set(Switch::ToStock);
        self.guard.unguard_failure.replace(None);
        let left = connection.query(&format!("PRAGMA {schema}.journal_mode=delete"));
        self.switch.set(Switch::Idle);
        let left = self
            .expect_mode(left, "delete")
            .and_then(|()| self.check_unguarded());
        left.map_err(|e| Failure {
            message: format!("cannot change from {mode} to {word} mode: {}", e.message),
            ..e
        })?;
        match mode.is_guarded() {
            true => Ok(()),
            false => self.forget_unused(word),
        }
    }

    /// SQLite ignores an error of `xDelete`, and still answers "delete".
    fn check_unguarded(&self) -> Result<(), Failure> {
        let Some((code, message)) = self.guard.unguard_failure.take() else {
            return Ok(());
        };
        // With `locking_mode=EXCLUSIVE` there would be no first lock, which finds the guard again.
        // But if SQLite has read the header since, it has found WAL there and opened the log: it
        // must be able to checkpoint.
        let uses_log = self.writer.borrow().is_some();
        self.guard
            .must_look_again
            .set(self.is_guarded() && self.lock.get() != LockLevel::NONE && !uses_log);
        Err(Failure { code, message })
    }

    fn forget_unused(&self, word: &str) -> Result<(), Failure> {
        match self.forget_unused_mode()? {
            true => Ok(()),
            false => Err(Failure::busy(format!(
                "cannot change to {word} mode: another connection has changed the journal mode just \
                 now"
            ))),
        }
    }
}

/// SQLite only says that the database is locked.
fn in_the_way(failure: Failure, mode: JournalMode) -> Failure {
    match failure.code & 0xff {
        ffi::SQLITE_BUSY => Failure {
            message: format!(
                "cannot change into {mode} mode: another connection has the database open ({}): \
                 close it first",
                failure.message
            ),
            ..failure
        },
        _ => failure,
    }
}
