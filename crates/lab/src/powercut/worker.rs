//! The worker: mounts the device, runs workloads on it, and checks the state after a cut.

use std::ffi::CStr;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use onewrite_iotrace::scratch::{FileSystem, Mounted, private_mounts};
use onewrite_torture::checks::unexpected;
use onewrite_torture::failure::{Failure, Promise};
use onewrite_torture::model::{SnapshotError, Verified, verify_snapshot};
use onewrite_torture::session::linked::Linked;
use onewrite_torture::session::{Session, SqlError, SqlErrorKind, Value, integer};
use onewrite_workload::connection::Settings;
use onewrite_workload::mode::{Mode, Synchronous};

use super::fua::Tell;
use super::protocol::{
    Channel, Check, FileSystemArg, Found, Note, Opening, Order, Point, Reply, Setup, Work,
};
use super::workload::{Context, attached, database};
use onewrite_cli::Outcome;

impl FileSystemArg {
    /// The kind of file system to make.
    pub fn kind(self) -> FileSystem {
        match self {
            Self::Ext4 | Self::Ext4DataJournal => FileSystem::Ext4,
            Self::Xfs => FileSystem::Xfs,
            Self::Btrfs => FileSystem::Btrfs,
        }
    }

    /// Options that make it small enough, but otherwise like a large file system.
    fn make_options(self) -> &'static [&'static str] {
        match self {
            Self::Ext4 | Self::Ext4DataJournal => &["-b", "4096", "-J", "size=8"],
            Self::Xfs | Self::Btrfs => &[],
        }
    }

    fn mount_options(self) -> Option<&'static CStr> {
        (self == Self::Ext4DataJournal).then_some(c"data=journal")
    }

    /// The size of a device that it fits on, in bytes.
    pub fn device_bytes(self) -> u64 {
        match self {
            Self::Ext4 | Self::Ext4DataJournal => 128 << 20,
            Self::Xfs => 320 << 20,
            Self::Btrfs => 256 << 20,
        }
    }
}

/// Serves orders until standard input ends.
pub fn run() -> Outcome {
    let text = |error: Failure| error.to_string();
    // The parent answers the device's requests, so this process must die with it.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|error| format!("cannot tie this process to its parent: {error}"))?;
    let channel = Channel::new();
    let Some(Order::Begin(setup)) = channel.order().map_err(text)? else {
        return Err("this is a part of `onewrite-lab powercut`".to_owned());
    };
    private_mounts().map_err(|error| error.to_string())?;
    if setup.fua {
        pretend_fua(&setup.node)?;
        if !onewrite::storage::observer::observe(Box::new(Tell(channel.clone()))) {
            return Err("the engine has an observer already".to_owned());
        }
    }
    while let Some(order) = channel.order().map_err(text)? {
        let reply = serve(&setup, &channel, order).unwrap_or_else(Reply::Failed);
        channel.reply(&reply).map_err(text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows a device with FUA to this process alone. A file of this process stands in place of the
/// kernel's.
fn pretend_fua(node: &Path) -> Result<(), String> {
    let name = node.file_name().unwrap_or_default();
    let attribute = Path::new("/sys/block").join(name).join("queue/fua");
    let attribute = fs::canonicalize(&attribute)
        .map_err(|error| format!("{}: {error}", attribute.display()))?;
    let one = tempfile::NamedTempFile::new()
        .and_then(|file| fs::write(file.path(), "1\n").map(|()| file))
        .map_err(|error| format!("cannot make a temporary file: {error}"))?;
    rustix::mount::mount_bind(one.path(), &attribute)
        .map_err(|error| format!("cannot mount over {}: {error}", attribute.display()))
}

fn serve(setup: &Setup, channel: &Channel, order: Order) -> Result<Reply, Failure> {
    match order {
        Order::Begin(_) => Err(Failure::Harness("begun twice".to_owned())),
        Order::Make => {
            let file_system = setup.file_system;
            let made = file_system
                .kind()
                .make(&setup.node, file_system.make_options());
            made.map(|()| Reply::Done)
                .map_err(|error| Failure::Harness(error.to_string()))
        }
        Order::Record(work) => {
            mounted(setup, || {
                context(setup, channel)?.run(work)?;
                channel.note(Note::Closed)
            })?;
            Ok(Reply::Done)
        }
        Order::Check(check) => {
            let found = mounted(setup, || examine(setup, channel, check))?;
            Ok(Reply::Found(found))
        }
    }
}

/// Runs `work` while the device is mounted.
fn mounted<T>(setup: &Setup, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let kind = setup.file_system.kind().name();
    let options = setup.file_system.mount_options();
    let mounted = Mounted::with_options(&setup.node, &setup.mount_point, kind, options)
        .map_err(|error| does_not_mount(kind, error))?;
    let result = work();
    // All connections are closed.
    onewrite::storage::close_kept_databases();
    let unmounted = mounted
        .unmount()
        .map_err(|error| Failure::Harness(error.to_string()));
    let value = result?;
    unmounted?;
    Ok(value)
}

/// Leaves the mount point out of the message, because it differs in every run.
fn does_not_mount(kind: &str, error: onewrite_iotrace::Error) -> Failure {
    let why = match error {
        onewrite_iotrace::Error::Io { source, .. } => source.to_string(),
        other => other.to_string(),
    };
    Failure::broken(Promise::Progress, format!("{kind} does not mount: {why}"))
}

fn context<'a>(setup: &'a Setup, channel: &Channel) -> Result<Context<'a>, Failure> {
    let mode = Mode::parse(&setup.mode).map_err(|error| Failure::Harness(error.to_string()))?;
    Ok(Context {
        settings: Settings {
            mode,
            synchronous: Synchronous::Full,
            autocheckpoint: 1000,
        },
        directory: &setup.mount_point,
        node: &setup.node,
        channel: channel.clone(),
        broken: setup.broken,
        fua: setup.fua,
    })
}

fn examine(setup: &Setup, channel: &Channel, check: Check) -> Result<Found, Failure> {
    let path = database(&setup.mount_point);
    let journal = context(setup, channel)?.settings.mode.journal();
    let guarded = !journal.is_lsmvbt() && is_guarded(&path)?;
    if guarded && check.show_to_stock {
        show_to_stock(&path)?;
    }
    let mut found = Found {
        tables: false,
        last: Point { tick: 0, chain: 0 },
        mirror: None,
        guarded,
    };
    if path.exists() {
        let mut context = context(setup, channel)?;
        let opening = match check.opening {
            // The cut interrupted the file's creation. It becomes a database only when the engine
            // opens it again.
            Opening::Stock if journal.is_lsmvbt() && has_no_magic(&path)? => Opening::AsApplication,
            opening => opening,
        };
        let mut session = open(&context, opening, &path)?;
        if has_table(&mut session, "clock")? {
            found.tables = true;
            found.last = verify(&mut session)?;
        }
        integrity(&mut session)?;
        let other = attached(&setup.mount_point);
        if other.exists() {
            let opening = match opening {
                Opening::Stock if journal.is_lsmvbt() => Opening::AsApplication,
                opening => opening,
            };
            found.mirror = mirror(&context, opening, &other)?;
        }
        let then = check.then.filter(|_| found.tables);
        go_on(&mut context, session, then)?;
    }
    Ok(found)
}

/// Closes the checking connection after going on with `then`. While it is open, the recovered log
/// stays in use. If the cut left the database in another journal mode, closes it first, because no
/// mode can be switched while others are connected.
fn go_on(
    context: &mut Context<'_>,
    mut session: Linked,
    then: Option<Work>,
) -> Result<(), Failure> {
    let close = |session: Linked| {
        Box::new(session)
            .close()
            .map_err(|error| unexpected(&error))
    };
    let Some(work) = then else {
        return close(session);
    };
    let mode = session
        .rows("PRAGMA journal_mode", &[])
        .map_err(|error| unexpected(&error))?;
    let ours = context.settings.mode.journal().name;
    if mode == [[Value::Text(ours.to_owned())]] {
        context.go_on(work)?;
        close(session)
    } else {
        close(session)?;
        context.go_on(work)
    }
}

fn open(context: &Context<'_>, opening: Opening, path: &Path) -> Result<Linked, Failure> {
    let patience = std::time::Duration::from_secs(20);
    match opening {
        Opening::Plain => Ok(Linked::open_ours(path, patience)?),
        Opening::Stock => Linked::open_stock(path, patience).map_err(|error| unexpected(&error)),
        Opening::AsApplication => context.open_at(path),
    }
}

fn has_table(session: &mut Linked, table: &str) -> Result<bool, Failure> {
    let sql = "SELECT count(*) FROM sqlite_schema WHERE name = ?1";
    let rows = session
        .rows(sql, &[Value::Text(table.to_owned())])
        .map_err(|error| unexpected(&error))?;
    Ok(rows.first().is_some_and(|row| integer(row, 0) > 0))
}

/// Checks the whole history and content against what every snapshot says of itself.
fn verify(session: &mut Linked) -> Result<Point, Failure> {
    let mut known = Verified::default();
    session
        .run("BEGIN", &[])
        .map_err(|error| unexpected(&error))?;
    verify_snapshot(session, &mut known).map_err(|error| match error {
        SnapshotError::Sql(error) => unexpected(&error),
        SnapshotError::Broken(failure) => failure,
    })?;
    session
        .run("COMMIT", &[])
        .map_err(|error| unexpected(&error))?;
    Ok(Point {
        tick: known.tick().0,
        chain: known.chain(),
    })
}

fn integrity(session: &mut Linked) -> Result<(), Failure> {
    let answer = session
        .rows("PRAGMA integrity_check", &[])
        .map_err(|error| unexpected(&error))?;
    if answer == [[Value::Text("ok".to_owned())]] {
        return Ok(());
    }
    Err(Failure::broken(
        Promise::IntegrityCheck,
        format!("{answer:?}"),
    ))
}

/// Checks the attached database: it holds a prefix of the commits without gaps.
fn mirror(context: &Context<'_>, opening: Opening, path: &Path) -> Result<Option<Point>, Failure> {
    let mut session = open(context, opening, path)?;
    let mut last = Point { tick: 0, chain: 0 };
    if has_table(&mut session, "mirror")? {
        let rows = session
            .rows("SELECT tick, chain FROM mirror ORDER BY tick", &[])
            .map_err(|error| unexpected(&error))?;
        for row in rows {
            let next = Point {
                tick: integer(&row, 0),
                chain: integer(&row, 1),
            };
            if next.tick != last.tick + 1 {
                let detail = format!("the attached database has {next:?} after {last:?}");
                return Err(Failure::broken(Promise::SnapshotsAreWhole, detail));
            }
            last = next;
        }
    }
    integrity(&mut session)?;
    Box::new(session)
        .close()
        .map_err(|error| unexpected(&error))?;
    Ok(Some(last))
}

/// Whether a file begins with zeros.
fn has_no_magic(path: &Path) -> Result<bool, Failure> {
    let bytes = fs::read(path)?;
    Ok(bytes.iter().take(16).all(|byte| *byte == 0))
}

/// Reads the header: guarded with the id of the log next to it, or stock.
fn is_guarded(path: &Path) -> Result<bool, Failure> {
    let header = match fs::read(path) {
        Ok(bytes) if bytes.len() >= onewrite::DATABASE_HEADER_BYTES => bytes,
        _ => return Ok(false),
    };
    match header[19] {
        0..=2 => Ok(false),
        onewrite::GUARD_BYTE => {
            let mut log = path.as_os_str().to_owned();
            log.push("-onewrite");
            let log = fs::read(&log).unwrap_or_default();
            let id = &header[72..80];
            // The id stands in the log's header. Only the engine knows the header's format.
            match log
                .get(..512)
                .is_some_and(|log| log.windows(8).any(|w| w == id))
            {
                true => Ok(true),
                false => Err(Failure::broken(
                    Promise::StockIsRefused,
                    "the database is guarded, and the log next to it has another id",
                )),
            }
        }
        version => {
            let detail = format!("the database's read version is {version}");
            Err(Failure::broken(Promise::StockIsRefused, detail))
        }
    }
}

/// Checks that stock SQLite refuses a guarded database and changes nothing.
fn show_to_stock(path: &Path) -> Result<(), Failure> {
    let before = fs::read(path)?;
    let patience = std::time::Duration::from_secs(1);
    let refused = Linked::open_stock(path, patience)
        .and_then(|mut session| session.rows("SELECT count(*) FROM sqlite_schema", &[]));
    match refused {
        Err(SqlError {
            kind: SqlErrorKind::NotADatabase,
            ..
        }) => {}
        other => {
            let detail = format!("stock SQLite said {other:?} of a guarded database");
            return Err(Failure::broken(Promise::StockIsRefused, detail));
        }
    }
    match fs::read(path)? == before {
        true => Ok(()),
        false => Err(Failure::broken(
            Promise::GuardedBytesStay,
            "stock SQLite changed a guarded database",
        )),
    }
}
