//! The first reading of a trace: its totals, and the files that its databases began with. It lays
//! them out in a directory as plain databases without logs.

use onewrite_common::files::{COMPANIONS, companion, open_named};
use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use onewrite_record::event::{Event, Part, Start};
use onewrite_record::file::{Ending, Reader};
use onewrite_record::sql;

use crate::sqlite::Connection;

/// The file that a database began with.
#[derive(Clone, Debug)]
pub struct Beginning {
    /// The database's path when it was recorded.
    pub path: Vec<u8>,
    /// Its state.
    pub start: Start,
    /// Its path now; there is a file if it was copied.
    pub file: PathBuf,
}

/// The content of a trace.
#[derive(Debug)]
pub struct Contents {
    /// Values were masked.
    pub masked: bool,
    /// It is cut: the recorder was killed or its disk full.
    pub cut: bool,
    /// Events.
    pub events: u64,
    /// Runs of statements and of scripts.
    pub runs: u64,
    /// Processes that were recorded.
    pub processes: u64,
    /// Connections that were opened.
    pub connections: u64,
    /// Files that databases began with, in order. A path comes again when its file was deleted and
    /// created again.
    pub beginnings: Vec<Beginning>,
    /// The content of databases at the end, by path.
    pub finals: HashMap<Vec<u8>, Result<u64, String>>,
    /// Functions, collations and modules of the program, with the number of connections that have
    /// them.
    pub taught: HashMap<String, u64>,
    /// Uses of SQLite that were not recorded, with their number.
    pub unrecorded: HashMap<String, u64>,
    /// Versions of SQLite that were recorded.
    pub versions: BTreeSet<String>,
    /// The program chooses a page size, an encoding or `auto_vacuum`. Such a choice must come
    /// before the journal mode makes the file.
    pub shapes_files: bool,
    /// First and last time, in nanoseconds since 1970.
    pub span: Option<(u64, u64)>,
    /// Bytes of the starting files.
    pub bytes: u64,
}

/// The file that a replay takes.
const EXPECTED: &str = "a trace; \"onewrite record -o FILE -- PROGRAM\" makes one";

/// Opens a trace at its beginning.
///
/// # Errors
/// With the file's name.
pub fn open(trace: &Path) -> Result<Reader<BufReader<File>>, String> {
    let say = |error: &dyn std::fmt::Display| format!("{}: {error}", trace.display());
    let file = open_named(trace, EXPECTED)?;
    Reader::new(BufReader::with_capacity(1 << 20, file)).map_err(|error| say(&error))
}

/// Reads a trace, and lays out its starting files in `dir`.
///
/// # Errors
/// With the file's name.
pub fn read(trace: &Path, dir: &Path) -> Result<Contents, String> {
    let mut reader = open(trace)?;
    let mut contents = Contents {
        masked: reader.header().masked,
        cut: false,
        events: 0,
        runs: 0,
        processes: 0,
        connections: 0,
        beginnings: Vec::new(),
        finals: HashMap::new(),
        taught: HashMap::new(),
        unrecorded: HashMap::new(),
        versions: BTreeSet::new(),
        shapes_files: false,
        span: None,
        bytes: 0,
    };
    let next = |reader: &mut Reader<_>| {
        reader
            .next_event()
            .map_err(|error| format!("{}: {error}", trace.display()))
    };
    while let Some(event) = next(&mut reader)? {
        contents.events += 1;
        contents
            .note(event, dir)
            .map_err(|error| format!("{}: {error}", dir.display()))?;
    }
    contents.cut = reader.ending() == Ending::Cut;
    for beginning in &contents.beginnings {
        if beginning.start == Start::Copied {
            plain(&beginning.file).map_err(|error| {
                let path = String::from_utf8_lossy(&beginning.path);
                format!("the content that {path} began with cannot be used: {error}")
            })?;
        }
    }
    Ok(contents)
}

impl Contents {
    fn note(&mut self, event: Event, dir: &Path) -> io::Result<()> {
        match event {
            Event::Process { .. } => self.processes += 1,
            Event::Open { at, version, .. } => {
                self.connections += 1;
                if !version.is_empty() {
                    let version = String::from_utf8_lossy(&version).into_owned();
                    self.versions.insert(version);
                }
                self.seen(at);
            }
            Event::Close { at, .. } => self.seen(at),
            Event::Prepare { at, sql, .. } => {
                self.shapes_files |= shapes_files(&sql);
                self.seen(at);
            }
            Event::Exec { when, sql, .. } => {
                self.runs += 1;
                self.shapes_files |= shapes_files(&sql);
                self.seen(when.at);
            }
            Event::Run { when, .. } => {
                self.runs += 1;
                self.seen(when.at);
            }
            Event::Database { path, start } => {
                let file = dir.join(format!("start-{}.db", self.beginnings.len()));
                self.beginnings.push(Beginning { path, start, file });
            }
            Event::Content {
                path,
                part,
                offset,
                bytes,
            } => {
                let last = self
                    .beginnings
                    .iter()
                    .rev()
                    .find(|known| known.path == path);
                if let Some(beginning) = last {
                    let file = companion(&beginning.file, part.suffix());
                    self.bytes += bytes.len() as u64;
                    let out = OpenOptions::new()
                        .create(true)
                        .truncate(false)
                        .write(true)
                        .open(file)?;
                    out.write_all_at(&bytes, offset)?;
                }
            }
            Event::Final { path, digest } => {
                let digest = digest.map_err(|why| String::from_utf8_lossy(&why).into_owned());
                self.finals.insert(path, digest);
            }
            Event::Taught { what, name, .. } => {
                let (what, name) = (
                    String::from_utf8_lossy(&what),
                    String::from_utf8_lossy(&name),
                );
                *self.taught.entry(format!("{what} {name}")).or_default() += 1;
            }
            Event::Unrecorded { name } => {
                let name = String::from_utf8_lossy(&name).into_owned();
                *self.unrecorded.entry(name).or_default() += 1;
            }
            _ => {}
        }
        Ok(())
    }

    fn seen(&mut self, at: u64) {
        let (first, last) = self.span.unwrap_or((at, at));
        self.span = Some((first.min(at), last.max(at)));
    }
}

fn shapes_files(text: &[u8]) -> bool {
    let names = ["page_size", "auto_vacuum", "encoding"];
    sql::first_call(text, &["pragma"]).is_some() && sql::first_call(text, &names).is_some()
}

/// Moves the content of logs and journals next to a copied database into it.
///
/// # Errors
/// Recovery fails, or the file cannot be written.
pub fn plain(file: &Path) -> Result<(), String> {
    if !file.exists() {
        return Ok(());
    }
    let ours = companion(file, Part::Log.suffix()).exists() || is_guarded(file);
    let vfs = match ours {
        true => "onewrite",
        false => crate::clock::VFS_NAME,
    };
    let name = std::os::unix::ffi::OsStrExt::as_bytes(file.as_os_str());
    let connection = Connection::open(name, 2, vfs).map_err(|error| error.to_string())?;
    let answer = connection
        .ask("PRAGMA journal_mode=delete")
        .map_err(|error| error.to_string())?;
    match answer.as_deref() {
        Some("delete") => {}
        other => {
            return Err(format!(
                "asked for journal_mode=delete, SQLite answered {other:?}"
            ));
        }
    }
    drop(connection);
    for suffix in COMPANIONS {
        let companion = companion(file, suffix);
        if companion.exists() {
            fs::remove_file(&companion).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

fn is_guarded(file: &Path) -> bool {
    let mut header = [0; onewrite::DATABASE_HEADER_BYTES];
    let read = File::open(file).and_then(|mut file| file.read_exact(&mut header));
    read.is_ok() && onewrite::guarded_by(&header).is_some()
}
