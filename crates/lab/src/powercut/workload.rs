//! The workloads that the worker runs during a recording. They mix the transactions of
//! `onewrite-torture` with other actions of an application. Every snapshot proves that it is the
//! result of whole transactions in one order.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use onewrite_torture::checks::{Patience, unexpected};
use onewrite_torture::failure::{Failure, Promise};
use onewrite_torture::ledger::{Event, Witness};
use onewrite_torture::model::{self, Commit, WriterId};
use onewrite_torture::random::Random;
use onewrite_torture::session::linked::Linked;
use onewrite_torture::session::{Session, SqlError, Value, integer};
use onewrite_torture::steps;
use onewrite_torture::transactions::{Shape, TransactionError, Writer};
use onewrite_workload::connection::Settings;
use onewrite_workload::mode::Journal;
use serde::{Deserialize, Serialize};

use super::protocol::{Broken, Channel, Note, Point, What, Work};
use super::trusted::Trusted;

/// A workload of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// One small row a transaction
    Inserts,
    /// Rows, indexes, BLOBs on overflow pages, savepoints and changes of the schema
    Multi,
    /// Transactions larger than the page cache
    Spill,
    /// Checkpoints in every mode, under readers
    Checkpoint,
    /// VACUUM in between
    Vacuum,
    /// Closing, reopening, and switching to stock journal modes and back
    Switch,
    /// A log that grows beyond its preallocated blocks
    Extend,
    /// Transactions over two databases
    Attach,
    /// Several connections at once
    Connections,
    /// Many connections at once that write little, and one that reads: groups of commits
    Group,
    /// Rows far apart, each changed alone in its transaction: late pages of LS-MVBT
    Steps,
}

impl Workload {
    /// All workloads.
    pub const ALL: [Self; 11] = [
        Self::Inserts,
        Self::Multi,
        Self::Spill,
        Self::Checkpoint,
        Self::Vacuum,
        Self::Switch,
        Self::Extend,
        Self::Attach,
        Self::Connections,
        Self::Group,
        Self::Steps,
    ];

    /// Whether a journal mode can run it. A database cannot leave LS-MVBT for another mode. The bounds of
    /// the other modes count pages that a step does not write.
    pub fn suits(self, journal: &Journal) -> bool {
        match self {
            Self::Switch => !journal.is_lsmvbt(),
            Self::Steps => journal.is_lsmvbt(),
            _ => true,
        }
    }

    fn shapes(self) -> &'static [(Shape, u64)] {
        use Shape::{Large, Medium, Savepoint, Schema, Small, Spilling, Step};
        match self {
            Self::Inserts | Self::Switch | Self::Attach | Self::Group => &[(Small, 1)],
            Self::Multi => &[
                (Small, 1),
                (Medium, 6),
                (Large, 2),
                (Savepoint, 3),
                (Schema, 1),
            ],
            Self::Spill => &[(Small, 2), (Spilling, 1), (Large, 1)],
            Self::Extend => &[(Spilling, 3), (Large, 1), (Small, 1)],
            Self::Steps => &[(Step, 40), (Small, 1), (Medium, 1)],
            Self::Checkpoint | Self::Vacuum | Self::Connections => {
                &[(Small, 6), (Medium, 3), (Savepoint, 1)]
            }
        }
    }

    /// How often the connection checkpoints by itself, in pages of log.
    fn autocheckpoint(self, random: &mut Random) -> u32 {
        match self {
            Self::Extend => 0,
            Self::Checkpoint => *random.choose(&[0, 1000]),
            _ => *random.choose(&[0, 15, 60, 1000]),
        }
    }
}

/// The number of writers in workloads with several connections.
const CONNECTIONS: u32 = 3;
const GROUP: u32 = 8;
/// The writer that goes on after a power cut.
const SECOND_LIFE: WriterId = WriterId(50);

/// The database's directory and the way it is opened.
pub struct Context<'a> {
    pub settings: Settings,
    pub directory: &'a Path,
    pub node: &'a Path,
    pub channel: Channel,
    pub broken: Option<Broken>,
    /// The device is treated as one with FUA.
    pub fua: bool,
}

/// The database's file in `directory`.
pub fn database(directory: &Path) -> std::path::PathBuf {
    directory.join("main.db")
}

/// The database that the workload `attach` attaches.
pub fn attached(directory: &Path) -> std::path::PathBuf {
    directory.join("attached.db")
}

/// Sends a writer's events to the history.
struct Notes {
    channel: Channel,
    /// The device to flush before a commit counts as acknowledged, if that is the defect.
    device: Option<std::fs::File>,
    /// The file to write through before a commit counts as acknowledged, if that is the defect.
    trusted: Option<Trusted>,
}

impl Witness for Notes {
    fn note(&mut self, event: Event, commit: &Commit) -> Result<(), Failure> {
        if let Some(device) = self
            .device
            .as_ref()
            .filter(|_| event == Event::Acknowledged)
        {
            device.sync_all()?;
        }
        if let Some(trusted) = self
            .trusted
            .as_ref()
            .filter(|_| event == Event::Acknowledged)
        {
            trusted.write_through(&self.channel)?;
        }
        match Note::of(event, commit) {
            Some(note) => self.channel.note(note),
            None => Ok(()),
        }
    }
}

fn sql(error: SqlError) -> Failure {
    unexpected(&error)
}

impl Context<'_> {
    fn open(&self) -> Result<Linked, Failure> {
        self.open_at(&database(self.directory))
    }

    /// Opens a database as the application does.
    pub fn open_at(&self, path: &Path) -> Result<Linked, Failure> {
        let connection = self.settings.open(path);
        let vfs = self.settings.mode.journal().vfs.name();
        connection
            .map(|connection| Linked::of(connection, vfs))
            .map_err(|error| Failure::broken(Promise::NoOtherErrors, error.to_string()))
    }

    /// Whether this one of several connections is a stock one. A stock flush leaves no note, so
    /// nobody could tell what it covers on a device with FUA.
    fn is_stock(&self, number: u32) -> bool {
        self.settings.mode.journal().name == "direct" && !self.fua && number == 1
    }

    fn open_stock(&self) -> Result<Linked, Failure> {
        let patience = Duration::from_secs(60);
        let mut session = Linked::open_stock(&database(self.directory), patience).map_err(sql)?;
        for setting in [
            format!("synchronous={}", self.settings.synchronous().name()),
            format!("wal_autocheckpoint={}", self.settings.autocheckpoint),
        ] {
            session
                .rows(&format!("PRAGMA {setting}"), &[])
                .map_err(sql)?;
        }
        Ok(session)
    }

    fn notes(&self) -> Result<Notes, Failure> {
        let trusts = self.broken == Some(Broken::TrustsWriteThrough);
        Ok(Notes {
            channel: self.channel.clone(),
            device: self.device_to_flush()?,
            trusted: trusts.then(|| Trusted::open(self.directory)).transpose()?,
        })
    }

    /// The device, if commits are to flush it and nothing else.
    fn device_to_flush(&self) -> Result<Option<std::fs::File>, Failure> {
        match self.broken {
            Some(Broken::UnwrittenExtents | Broken::InitializedExtents) => {
                Ok(Some(std::fs::File::open(self.node)?))
            }
            _ => Ok(None),
        }
    }

    /// Whether a writer can commit while others read.
    fn readers_and_writers(&self) -> bool {
        self.settings.mode.journal().has_snapshots()
    }

    fn created(&self) -> Result<(), Failure> {
        if let Some(device) = self.device_to_flush()? {
            device.sync_all()?;
        }
        if self.broken == Some(Broken::TrustsWriteThrough) {
            // The defect is meant to lose the commits, not the tables.
            let directory = std::fs::File::open(self.directory)?;
            rustix::fs::syncfs(directory).map_err(std::io::Error::from)?;
        }
        self.channel.note(Note::Created)
    }

    /// Closes the last connection, which checkpoints.
    fn close(&self, session: Linked) -> Result<(), Failure> {
        self.channel.note(Note::CheckpointBegins)?;
        Box::new(session).close().map_err(sql)?;
        self.channel.note(Note::CheckpointDone)
    }

    /// Runs a workload on a database that does not exist yet.
    pub fn run(&mut self, work: Work) -> Result<(), Failure> {
        let mut random = Random::of_part(work.seed, 1);
        self.settings.autocheckpoint = match work.workload {
            // A checkpoint flushes without a note, so nobody could tell whose flush it is.
            Workload::Connections | Workload::Group if self.fua => 0,
            workload => workload.autocheckpoint(&mut random),
        };
        let mut session = self.open()?;
        create(&mut session, work.workload)?;
        if work.workload == Workload::Attach {
            attach(&mut session, self)?;
        }
        self.created()?;
        let session = match work.workload {
            Workload::Connections => {
                self.run_connections(work, CONNECTIONS)?;
                session
            }
            Workload::Group => {
                let done = AtomicBool::new(false);
                std::thread::scope(|scope| {
                    let reader = scope.spawn(|| self.read_until(&done));
                    let written = self.run_connections(work, GROUP);
                    done.store(true, Ordering::Relaxed);
                    written.and(joined(reader))
                })?;
                session
            }
            _ => self.run_one(work, session, &mut random)?,
        };
        self.close(session)
    }

    /// Continues with a database that a power cut left.
    pub fn go_on(&mut self, work: Work) -> Result<(), Failure> {
        let mut random = Random::of_part(work.seed, 1);
        self.settings.autocheckpoint = work.workload.autocheckpoint(&mut random);
        let mut session = self.open()?;
        create(&mut session, work.workload)?;
        self.created()?;
        let mut writer = Writer::new(SECOND_LIFE, random.next(), self.notes()?, None)
            .with_shapes(work.workload.shapes());
        for _ in 0..work.transactions {
            transaction(&mut writer, &mut session)?;
        }
        Box::new(session).close().map_err(sql)
    }

    fn run_one(
        &self,
        work: Work,
        mut session: Linked,
        random: &mut Random,
    ) -> Result<Linked, Failure> {
        let mut writer = Writer::new(WriterId(0), random.next(), self.notes()?, None)
            .with_shapes(work.workload.shapes());
        let mut reader: Option<Linked> = None;
        for _ in 0..work.transactions {
            transaction(&mut writer, &mut session)?;
            match work.workload {
                Workload::Checkpoint => self.checkpoint(&mut session, &mut reader, random)?,
                Workload::Vacuum if random.one_in(8) => {
                    session.run("VACUUM", &[]).map_err(sql)?;
                }
                Workload::Switch if random.one_in(6) => {
                    session = self.switch(session, random)?;
                }
                _ => {}
            }
        }
        if let Some(reader) = reader {
            Box::new(reader).close().map_err(sql)?;
        }
        drop(writer);
        Ok(session)
    }

    fn checkpoint(
        &self,
        session: &mut Linked,
        reader: &mut Option<Linked>,
        random: &mut Random,
    ) -> Result<(), Failure> {
        if random.one_in(5) {
            if let Some(reader) = reader.take() {
                Box::new(reader).close().map_err(sql)?;
            } else if self.broken.is_none() && self.readers_and_writers() {
                let mut new = self.open()?;
                new.run("BEGIN", &[]).map_err(sql)?;
                new.run("SELECT tick FROM clock", &[]).map_err(sql)?;
                *reader = Some(new);
            }
        }
        if !random.one_in(4) {
            return Ok(());
        }
        let mode = *random.choose(&["PASSIVE", "FULL", "RESTART", "TRUNCATE"]);
        if self.broken == Some(Broken::EarlyReuse) {
            // The checkpoint's writes stay in the page cache, and the next commit starts the log
            // again.
            session.run("PRAGMA synchronous=OFF", &[]).map_err(sql)?;
            session
                .rows("PRAGMA wal_checkpoint(RESTART)", &[])
                .map_err(sql)?;
            return session.run("PRAGMA synchronous=FULL", &[]).map_err(sql);
        }
        if reader.is_some() {
            // The checkpoint waits for the reader no longer than this.
            session.run("PRAGMA busy_timeout=1", &[]).map_err(sql)?;
        }
        self.channel.note(Note::CheckpointBegins)?;
        let rows = session
            .rows(&format!("PRAGMA wal_checkpoint({mode})"), &[])
            .map_err(sql)?;
        let complete = rows
            .first()
            .is_some_and(|row| integer(row, 0) == 0 && integer(row, 1) == integer(row, 2));
        if complete {
            self.channel.note(Note::CheckpointDone)?;
        }
        session.run("PRAGMA busy_timeout=60000", &[]).map_err(sql)
    }

    fn switch(&self, mut session: Linked, random: &mut Random) -> Result<Linked, Failure> {
        let ours = self.settings.mode.journal().name;
        let other = *random.choose(&[ours, "wal", "delete", "truncate", "persist"]);
        if other != ours {
            // The other modes must promise as much as ours. At FULL, a rollback journal's deletion
            // is not durable when COMMIT returns. If the journal comes back, it takes the commit
            // back.
            session.run("PRAGMA synchronous=EXTRA", &[]).map_err(sql)?;
            self.channel.note(Note::CheckpointBegins)?;
            let pragma = format!("PRAGMA journal_mode={other}");
            let rows = session.rows(&pragma, &[]).map_err(sql)?;
            if rows != [[Value::Text(other.to_owned())]] {
                let detail = format!("{pragma} was answered with {rows:?}");
                return Err(Failure::broken(Promise::ModeIsTrue, detail));
            }
            self.channel.note(Note::CheckpointDone)?;
        }
        if random.one_in(2) {
            return Ok(session);
        }
        self.close(session)?;
        self.open()
    }

    fn run_connections(&self, work: Work, connections: u32) -> Result<(), Failure> {
        let each = work.transactions / connections + 1;
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..connections)
                .map(|number| {
                    scope.spawn(move || {
                        let mut session = match self.is_stock(number) {
                            true => self.open_stock()?,
                            false => self.open()?,
                        };
                        let seed = Random::of_part(work.seed, u64::from(number) + 2).next();
                        let notes = self.notes()?;
                        let mut writer = Writer::new(WriterId(number), seed, notes, None)
                            .with_shapes(work.workload.shapes());
                        for _ in 0..each {
                            transaction(&mut writer, &mut session)?;
                        }
                        Box::new(session).close().map_err(sql)
                    })
                })
                .collect();
            threads.into_iter().try_for_each(joined)
        })
    }

    /// Reads the database's position again and again: no commit that was read may be lost.
    fn read_until(&self, done: &AtomicBool) -> Result<(), Failure> {
        let mut session = self.open()?;
        let mut last = 0;
        while !done.load(Ordering::Relaxed) {
            let read = session.rows("SELECT tick, chain FROM clock", &[]);
            let rows = read.map_err(sql)?;
            let point = rows.first().map(|row| Point {
                tick: integer(row, 0),
                chain: integer(row, 1),
            });
            if let Some(point) = point.filter(|point| point.tick > last) {
                last = point.tick;
                self.channel.note(Note::Commit {
                    what: What::Read,
                    writer: 0,
                    point,
                })?;
            }
            std::thread::sleep(Duration::from_micros(300));
        }
        Box::new(session).close().map_err(sql)
    }
}

fn joined(thread: ScopedJoinHandle<'_, Result<(), Failure>>) -> Result<(), Failure> {
    let died = |_| Failure::Harness("a thread of the workload died".to_owned());
    thread.join().map_err(died)?
}

fn transaction(writer: &mut Writer<Notes>, session: &mut Linked) -> Result<(), Failure> {
    let mut patience = Patience::new();
    loop {
        match writer.transaction(session) {
            Ok(()) => return Ok(()),
            Err(TransactionError::Sql(error)) => patience.wait(&error)?,
            Err(TransactionError::Harness(failure)) => return Err(failure),
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Creates the tables that are not there yet.
fn create(session: &mut Linked, workload: Workload) -> Result<(), Failure> {
    model::create(session).map_err(sql)?;
    if workload == Workload::Steps {
        steps::create(session).map_err(sql)?;
        // A page that recovery reads in any case is never late.
        session.rows("PRAGMA lsmvbt_reclaim", &[]).map_err(sql)?;
    }
    Ok(())
}

/// Attaches the second database. A trigger writes every commit's position into it.
fn attach(session: &mut Linked, context: &Context<'_>) -> Result<(), Failure> {
    let path = Value::Text(attached(context.directory).display().to_string());
    session.run("ATTACH ?1 AS other", &[path]).map_err(sql)?;
    let mode = context.settings.mode.journal().name;
    for statement in [
        format!("PRAGMA other.journal_mode={mode}"),
        format!(
            "PRAGMA other.synchronous={}",
            context.settings.synchronous().name()
        ),
        "CREATE TABLE other.mirror(tick INTEGER PRIMARY KEY, chain INTEGER NOT NULL)".to_owned(),
        "CREATE TEMP TRIGGER mirroring AFTER INSERT ON main.commits BEGIN \
         INSERT INTO mirror VALUES(new.tick, new.chain); END"
            .to_owned(),
    ] {
        session.rows(&statement, &[]).map_err(sql)?;
    }
    Ok(())
}
