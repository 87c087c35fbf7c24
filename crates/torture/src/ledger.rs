//! The writers' intents and SQLite's acknowledgments, kept in files that no kill can damage.
//!
//! Each writer appends 64-byte records to a file of its own next to the database. It appends the
//! intent before it calls COMMIT, and the acknowledgment after COMMIT has returned. Each record is
//! one `write(2)`, and the page cache keeps it whatever happens to the process. As 64 divides 4096,
//! a record never straddles two pages, so a kill cannot tear it. The file system and the power stay
//! on in these tests.
//!
//! ```text
//! kind u64 | seq i64 | tick i64 | chain i64 | nanoseconds u64 | 0 | 0 | digest of the above i64
//! ```
//! All fields are little-endian. Opening and closing a ledger touches no lock of SQLite, because it
//! is another file.

use crate::digest::Digest;
use crate::failure::{Failure, Promise};
use crate::model::{Commit, Seq, Tick, WriterId};
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const RECORD: usize = 64;

/// The statement of a record about a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// COMMIT is about to be called.
    Intent,
    /// COMMIT has returned.
    Acknowledged,
    /// COMMIT was refused (busy) and the transaction rolled back.
    Withdrawn,
    /// A check found the database at this tick while no writer lived. Intents beyond it are lost
    /// for good.
    Settled,
}

impl Event {
    const ALL: [(u64, Self); 4] = [
        (1, Self::Intent),
        (2, Self::Acknowledged),
        (3, Self::Withdrawn),
        (4, Self::Settled),
    ];

    fn code(self) -> u64 {
        Self::ALL
            .iter()
            .find(|(_, event)| *event == self)
            .map_or(0, |(code, _)| *code)
    }

    fn of_code(code: u64) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|(known, _)| *known == code)
            .map(|(_, event)| *event)
    }
}

/// One record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// The event.
    pub event: Event,
    /// The commit. Of a settlement only the tick counts.
    pub commit: Commit,
    /// `CLOCK_MONOTONIC` in nanoseconds, the same clock in every process.
    pub nanoseconds: u64,
}

/// Nanoseconds of the clock that all processes share.
pub fn now_nanoseconds() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Receives a writer's intents and SQLite's acknowledgments.
pub trait Witness {
    /// Takes a record. After this returns, no later event may change the record.
    ///
    /// # Errors
    /// The witness is gone.
    fn note(&mut self, event: Event, commit: &Commit) -> Result<(), Failure>;
}

/// A writer's ledger, open for appending.
pub struct Ledger {
    file: File,
    path: PathBuf,
}

fn path_of(directory: &Path, writer: WriterId) -> PathBuf {
    directory.join(format!("writer-{}.ledger", writer.0))
}

impl Ledger {
    /// Opens or creates the ledger of `writer` in `directory`.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn open(directory: &Path, writer: WriterId) -> Result<Self, Failure> {
        let path = path_of(directory, writer);
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .map(|file| Self {
                file,
                path: path.clone(),
            })
            .map_err(|error| Failure::io("open the ledger", &path, error))
    }

    /// Appends one record. It survives this process once this returns.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn append(&mut self, event: Event, commit: &Commit) -> Result<(), Failure> {
        self.note(event, commit)
    }
}

impl Witness for Ledger {
    fn note(&mut self, event: Event, commit: &Commit) -> Result<(), Failure> {
        let record = Record {
            event,
            commit: *commit,
            nanoseconds: now_nanoseconds(),
        };
        match self.file.write(&encode(&record)) {
            Ok(RECORD) => Ok(()),
            Ok(short) => Err(Failure::io("append all 64 bytes to", &self.path, short)),
            Err(error) => Err(Failure::io("append to", &self.path, error)),
        }
    }
}

fn encode(record: &Record) -> [u8; RECORD] {
    let mut words = [
        record.event.code() as i64,
        record.commit.seq.0,
        record.commit.tick.0,
        record.commit.chain,
        record.nanoseconds as i64,
        0,
        0,
        0,
    ];
    words[7] = words_digest(&words);
    let mut bytes = [0u8; RECORD];
    for (slot, word) in bytes.chunks_exact_mut(8).zip(words) {
        slot.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn decode(bytes: &[u8], writer: WriterId) -> Option<Record> {
    let mut words = [0i64; 8];
    for (word, slot) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = i64::from_le_bytes(slot.try_into().ok()?);
    }
    if words[7] != words_digest(&words) {
        return None;
    }
    Some(Record {
        event: Event::of_code(words[0] as u64)?,
        commit: Commit {
            writer,
            seq: Seq(words[1]),
            tick: Tick(words[2]),
            chain: words[3],
        },
        nanoseconds: words[4] as u64,
    })
}

fn words_digest(words: &[i64; 8]) -> i64 {
    words[..7]
        .iter()
        .fold(Digest::new(0x6C65_6467), |digest, word| {
            digest.number(*word)
        })
        .wide()
}

/// All records of `writer`, oldest first.
///
/// # Errors
/// Errors of the file system, or a damaged record.
pub fn read(directory: &Path, writer: WriterId) -> Result<Vec<Record>, Failure> {
    let path = path_of(directory, writer);
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(Failure::io("read", &path, error)),
    };
    let whole = bytes.chunks_exact(RECORD);
    // A record that is being appended may show its first bytes. It does not count yet.
    let records = whole
        .map(|record| decode(record, writer))
        .collect::<Option<Vec<_>>>();
    records.ok_or_else(|| Failure::io("decode", &path, "a record is damaged"))
}

/// The writers that have a ledger in `directory`.
///
/// # Errors
/// Errors of the file system.
pub fn writers(directory: &Path) -> Result<Vec<WriterId>, Failure> {
    let entries = std::fs::read_dir(directory)
        .map_err(|error| Failure::io("list the ledgers in", directory, error))?;
    let mut writers = BTreeSet::new();
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let number = name
            .strip_prefix("writer-")
            .and_then(|rest| rest.strip_suffix(".ledger"));
        if let Some(number) = number.and_then(|number| number.parse().ok()) {
            writers.insert(WriterId(number));
        }
    }
    Ok(writers.into_iter().collect())
}

/// The latest tick that any writer has seen acknowledged. A snapshot that begins now must show at
/// least this tick. Reads one or two records a ledger.
///
/// # Errors
/// Errors of the file system.
pub fn latest_acknowledged(directory: &Path) -> Result<Tick, Failure> {
    let mut latest = Tick(0);
    for writer in writers(directory)? {
        let path = path_of(directory, writer);
        let last = File::open(&path)
            .and_then(|file| last_acknowledged(&file, writer))
            .map_err(|error| Failure::io("read", &path, error))?;
        latest = latest.max(last);
    }
    Ok(latest)
}

fn last_acknowledged(file: &File, writer: WriterId) -> std::io::Result<Tick> {
    let mut index = file.metadata()?.len() / RECORD as u64;
    while index > 0 {
        index -= 1;
        let mut bytes = [0u8; RECORD];
        file.read_exact_at(&mut bytes, index * RECORD as u64)?;
        match decode(&bytes, writer) {
            Some(record) if record.event == Event::Acknowledged => return Ok(record.commit.tick),
            _ => {}
        }
    }
    Ok(Tick(0))
}

/// The combined records of all ledgers of a run.
#[derive(Debug, Default)]
pub struct Ledgers {
    acknowledged: Vec<Commit>,
    /// Every intent that may be in the database.
    possible: BTreeSet<Commit>,
    /// Every intent that must not be in the database.
    excluded: BTreeSet<Commit>,
}

impl Ledgers {
    /// Reads all ledgers.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn read(directory: &Path) -> Result<Self, Failure> {
        let mut all = Self::default();
        for writer in writers(directory)? {
            all.add(&read(directory, writer)?);
        }
        Ok(all)
    }

    fn add(&mut self, records: &[Record]) {
        let mut open = None;
        for Record { event, commit, .. } in records {
            match event {
                Event::Intent => {
                    // A writer that died left the intent before; its fate is in the database.
                    self.possible.extend(open.replace(*commit));
                }
                Event::Acknowledged => {
                    self.acknowledged.push(*commit);
                    self.possible.extend(open.take());
                    self.possible.insert(*commit);
                }
                Event::Withdrawn => self.excluded.extend(open.take()),
                Event::Settled => match open.take() {
                    Some(lost) if lost.tick > commit.tick => self.excluded.extend([lost]),
                    kept => self.possible.extend(kept),
                },
            }
        }
        self.possible.extend(open);
    }

    /// The number of acknowledged commits.
    pub fn acknowledged(&self) -> usize {
        self.acknowledged.len()
    }

    /// Requires every acknowledged commit among `found`.
    ///
    /// # Errors
    /// [`Promise::AcknowledgedCommitsSurvive`], with the first missing commit.
    pub fn expect_acknowledged(&self, found: &BTreeMap<Tick, Commit>) -> Result<(), Failure> {
        let lost = |commit: &&Commit| found.get(&commit.tick) != Some(*commit);
        let all: Vec<_> = self.acknowledged.iter().filter(lost).collect();
        let Some(first) = all.iter().min_by_key(|commit| commit.tick) else {
            return Ok(());
        };
        let detail = format!(
            "{} of {} acknowledged commits are gone, first {first}; the database ends at tick {}, \
             and holds there {:?}",
            all.len(),
            self.acknowledged.len(),
            found.keys().next_back().map_or(0, |tick| tick.0),
            found.get(&first.tick)
        );
        Err(Failure::broken(Promise::AcknowledgedCommitsSurvive, detail))
    }

    /// Requires that every one of `found` was meant, and none was rolled back or lost before.
    ///
    /// # Errors
    /// [`Promise::NothingElseAppears`], with the first wrong commit.
    pub fn expect_nothing_else(&self, found: &BTreeMap<Tick, Commit>) -> Result<(), Failure> {
        for commit in found.values() {
            if self.possible.contains(commit) {
                continue;
            }
            let history = if self.excluded.contains(commit) {
                "it was rolled back, or a recovery had found it lost"
            } else {
                "no writer ever meant to commit it"
            };
            let detail = format!("the database holds {commit}: {history}");
            return Err(Failure::broken(Promise::NothingElseAppears, detail));
        }
        Ok(())
    }

    /// The latest acknowledged tick.
    pub fn latest(&self) -> Tick {
        self.acknowledged
            .iter()
            .map(|commit| commit.tick)
            .max()
            .unwrap_or(Tick(0))
    }
}
