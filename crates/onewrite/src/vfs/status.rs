//! `PRAGMA onewrite_status`: the settings in use and the reasons for them, as one JSON object.

use std::sync::Arc;

use serde::Serialize;

use super::database::Database;
use super::environment::{JOURNAL_MODE, UPGRADE_WAL};
use super::header::{READ_VERSION_AT, WAL_VERSION};
use super::inner::LockLevel;
use super::linger;
use super::locks::Held;
use super::settings::InUse;
use super::synchronous::name_of;
use super::tell::Reader;
use super::thunks;
use crate::checkpoint::{self, cost::Cost};
use crate::commit::SharedLog;
use crate::commit::group_commit::Counts;
use crate::commit::group_synch::Sizes;
use crate::log::memory::MAX_BYTES;
use crate::log::packed::Compressed;
use crate::log::page_ring::SharedPageCounts;
use crate::mode::{JournalMode, SyncPolicy};
use crate::storage::IoCounts;
use crate::storage::pace::{self, Pace};
use crate::wal::faults::Fault;

/// Why a database is not used in the mode that it remembers.
pub const KEPT_OUT: &str = "a program with stock SQLite has it open in wal; the mode takes effect when the \
                            database is next opened after that program has closed it";

/// The same, for a user that may read the log.
pub const MAY_NOT_WRITE_LOG: &str = "this user may neither write the log (-onewrite) nor replace it: give the log the owner of the \
     database, or let the user write its directory";

/// The same, for a user that may not: the mode is not known.
pub const MAY_NOT_READ_LOG: &str = "this user may not read the log (-onewrite), which remembers the mode: give the log the owner of \
     the database, or remove it while no connection has the database open";

#[derive(Serialize)]
struct Status<'a> {
    version: &'static str,
    /// The version of the SQLite that runs here, and its own faults in WAL mode.
    sqlite: Option<String>,
    sqlite_faults: Vec<String>,
    /// Our mode; null in SQLite's own modes.
    mode: Option<&'static str>,
    /// `PRAGMA synchronous` of this connection; null if it cannot be asked.
    synchronous: Option<&'static str>,
    /// Why that is not the connection's own level.
    synchronous_why: Option<String>,
    /// The mode that the database remembers but does not use now, and why.
    kept_out_of: Option<KeptOut>,
    /// The mode that the URI or the environment asks for.
    requested: Option<Asked>,
    /// What is asked for and means nothing.
    warnings: Vec<String>,
    /// The settings in use.
    #[serde(flatten)]
    settings: InUse<'a>,
    /// The decision for `auto`.
    sync_in_use: String,
    /// The reason for that decision.
    sync_why: Option<String>,
    guarded: bool,
    /// The new name of a removed database's log that this connection has set aside.
    set_aside: Option<&'a str>,
    /// How SQLite's locks on the database are held: `ofd` outlive a `close`, `posix` do not. Null before the
    /// first one.
    locks: Option<&'static str>,
    /// Why they are `posix`.
    locks_why_not: Option<String>,
    #[serde(flatten)]
    log: Option<LogStatus<'a>>,
    /// The databases that this process keeps open.
    #[serde(flatten)]
    lingering: linger::Counts,
    /// The last error on this connection.
    error: Option<&'a str>,
}

#[derive(Serialize)]
struct KeptOut {
    mode: Option<&'static str>,
    why: &'static str,
}

#[derive(Serialize)]
struct Asked {
    mode: &'static str,
    by: &'static str,
    /// Why the database is not in it.
    why_not: Option<String>,
}

#[derive(Serialize)]
struct LogStatus<'a> {
    /// How long a durable write of 4 KiB took in the two ways, if that was timed.
    #[serde(flatten)]
    pace: Option<Pace>,
    log: String,
    log_id: Option<String>,
    page_size: usize,
    /// Every write begins and ends on a multiple of this many bytes.
    block_bytes: u64,
    /// Bytes that one frame takes.
    frame_bytes: u64,
    /// The last frame in the wal-index, while it is mapped.
    frames: Option<u32>,
    /// The processes that read an older state, and so hold a checkpoint up.
    readers_behind: Vec<Reader>,
    log_bytes: Option<u64>,
    frame_memory_max_bytes: usize,
    #[serde(flatten)]
    io: IoCounts,
    /// Bytes of commits at `synchronous=NORMAL` that the kernel has yet to begin to write.
    not_begun_bytes: u64,
    groups: Sizes,
    /// Counters of shared work, and whether other processes can see it.
    group_commits: Counts,
    /// Counters of checkpoints by block remapping, in all connections of the process, and the model
    /// of their cost.
    remapped: checkpoint::Counts,
    remap_cost: Option<Cost>,
    /// The thread that checkpoints this log, in this process.
    background: checkpoint::BackgroundCounts,
    shared_memory: bool,
    /// Pages that processes share, in all connections of this process.
    shared_pages: SharedPageCounts,
    /// Counters of compression, in all connections of the process.
    compressed: Option<Compressed>,
    direct_io_why_not: Option<&'a str>,
    fua: bool,
    fua_why_not: Option<&'a str>,
    filesystem: &'a str,
    device: &'a str,
    poisoned: Option<&'a str>,
}

/// The status of a database. If it is not readable now, no statement waits for it once more.
pub fn json(database: &Database, is_readable: bool) -> String {
    let settings = database.settings.get();
    let log = database.log();
    let connection = database.connection.get();
    // Before anything is borrowed: a statement may fail, and notes its error.
    let sqlite =
        connection.and_then(|connection| connection.query("SELECT sqlite_version()").ok()?);
    let level = is_readable.then(|| database.synchronous()).flatten();
    let floor = settings.commit.floor;
    // A checkpoint at OFF flushes nothing, whatever the log does.
    let is_raised = |level: u8| database.mode().is_some() && (1..floor.level()).contains(&level);
    let error = database.last_error.borrow();
    let set_aside = database.guard.set_aside.borrow();
    let faults = Fault::of(sqlite.as_deref().unwrap_or_default());
    let is_locked = database.lock.get() > LockLevel::NONE;
    let held = thunks::locks_on(database.host, &database.paths.database, is_locked);
    let status = Status {
        version: env!("CARGO_PKG_VERSION"),
        sqlite,
        sqlite_faults: faults.iter().map(Fault::to_string).collect(),
        mode: database.mode().map(|mode| mode.name()),
        synchronous: level.and_then(|level| match is_raised(level) {
            true => name_of(floor.level()),
            false => name_of(level),
        }),
        synchronous_why: level.filter(|level| is_raised(*level)).map(|level| {
            let said = name_of(level).unwrap_or_default();
            format!("the connection is at {said}, and onewrite_synchronous={floor} raises it")
        }),
        kept_out_of: database.guard.kept_out.get().map(|kept_out| KeptOut {
            mode: kept_out.mode.map(|mode| mode.name()),
            why: kept_out.why,
        }),
        requested: requested(database, is_readable),
        warnings: database.requested.warnings.borrow().clone(),
        settings: InUse(database),
        sync_in_use: match log.as_deref() {
            Some(log) => log.sync_policy(settings.commit.sync),
            None => settings.commit.sync.resolved(),
        }
        .to_string(),
        sync_why: why_sync(log.as_deref(), settings.commit.sync),
        guarded: database.is_guarded(),
        set_aside: set_aside.as_deref(),
        locks: match held {
            Held::NotYet => None,
            Held::Ofd => Some("ofd"),
            Held::Posix(_) => Some("posix"),
        },
        locks_why_not: match held {
            Held::Posix(why) => Some(why.to_string()),
            _ => None,
        },
        log: log.as_ref().map(|log| log_status(database, log)),
        lingering: linger::counts(),
        error: error.as_deref(),
    };
    serde_json::to_string(&status).unwrap_or_else(|e| format!("{{\"error\":\"{e}\"}}"))
}

fn requested(database: &Database, is_readable: bool) -> Option<Asked> {
    let asked = &database.requested;
    let (mode, by) = match (asked.mode_in_uri, asked.mode, database.upgrade_of_wal()) {
        (Some(mode), ..) => (mode, "URI"),
        (None, Some(mode), _) => (mode, JOURNAL_MODE.name),
        (None, None, Some(mode)) if asked.upgrade_in_uri.is_some() => (mode, "URI"),
        (None, None, Some(mode)) => (mode, UPGRADE_WAL.name),
        (None, None, None) => return None,
    };
    let is_in_it = database.mode() == Some(mode);
    Some(Asked {
        mode: mode.name(),
        by,
        why_not: (!is_in_it).then(|| why_not(database, is_readable, mode)),
    })
}

/// Why the database is not in the requested mode.
fn why_not(database: &Database, is_readable: bool, wanted: JournalMode) -> String {
    let asked = &database.requested;
    if database.takes_no_lock {
        return "immutable=1 and nolock=1 have no journal mode".to_owned();
    }
    if !is_readable {
        return "the database cannot be read now".to_owned();
    }
    if let Some(mode) = database.mode() {
        return format!("the database is in {mode}, which it remembers");
    }
    if let Some(kept_out) = database.guard.kept_out.get() {
        return kept_out.why.to_owned();
    }
    if asked.mode_was_named.get() {
        return "the program has named a journal mode itself".to_owned();
    }
    if let Some(failure) = database.first_lock.conversion_failure.borrow().as_ref() {
        return failure.clone();
    }
    if database.read_only {
        return "the connection is read-only".to_owned();
    }
    let connection = database.connection.get();
    match database.read_header() {
        _ if asked.mode.is_none() => "the program has not asked for WAL".to_owned(),
        _ if connection.is_some_and(|connection| !connection.is_autocommit()) => {
            "no mode changes within a transaction".to_owned()
        }
        Ok(None) => {
            "the database is new: PRAGMA journal_mode, or the first statement after its first table, changes it"
                .to_owned()
        }
        Ok(Some(header)) if header[READ_VERSION_AT] == WAL_VERSION => {
            format!("the database is in SQLite's wal: PRAGMA journal_mode={wanted} changes it")
        }
        _ => "no statement that could change it has run yet".to_owned(),
    }
}

fn why_sync(log: Option<&SharedLog>, policy: SyncPolicy) -> Option<String> {
    let log = log.filter(|_| policy == SyncPolicy::Auto)?;
    let file = log.file();
    let same = pace::why_the_same(file.capabilities(), file.direct().is_some());
    Some(match (log.pace(), same) {
        (Some(pace), _) => pace.to_string(),
        (None, Some(same)) => same.to_owned(),
        (None, None) => "the device was not timed when the log was made".to_owned(),
    })
}

fn log_status<'a>(database: &Database, log: &'a Arc<SharedLog>) -> LogStatus<'a> {
    let file = log.file();
    let capabilities = file.capabilities();
    LogStatus {
        pace: log.pace(),
        log: file.path().display().to_string(),
        log_id: log.id().map(|id| id.to_string()),
        page_size: log.geometry().page().bytes(),
        block_bytes: log.geometry().unit(),
        frame_bytes: log.geometry().slot_bytes(),
        frames: database.inner.index_view().map(|index| index.last_frame.0),
        readers_behind: database.readers_behind(),
        log_bytes: file.size().ok(),
        frame_memory_max_bytes: MAX_BYTES,
        io: file.counters().snapshot(),
        not_begun_bytes: log.write_back.not_begun_bytes(),
        groups: log.group_synch.sizes(),
        group_commits: log.group_commit.counts(),
        remapped: log.remapped.snapshot(),
        remap_cost: database.remaps_by(log).map(Cost::of),
        background: log.background.counts(),
        shared_memory: log.shared().is_shared(),
        shared_pages: log.shared_pages(),
        compressed: log.packed().map(|packed| packed.counters.snapshot()),
        direct_io_why_not: file.why_not_direct(),
        fua: capabilities.fua.is_ok(),
        fua_why_not: capabilities.fua.as_ref().err().map(String::as_str),
        filesystem: &capabilities.filesystem,
        device: &capabilities.device,
        poisoned: log.poisoned(),
    }
}
