//! Writes the trace, and copies databases into it when they are first opened.
//!
//! A trace that can no longer be written (a full disk) ends the recording, not the program. The
//! user reads this at once and at the end.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use onewrite_record::event::{Event, Part, Start};
use onewrite_record::file::{Header, Writer};
use onewrite_record::mask::Mask;
use onewrite_replay::digest;
use tempfile::TempPath;

use crate::directory::{self, cannot_write};

/// The longest time until a program's data is in the file.
const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// Bytes of a database in one event.
const PIECE_BYTES: usize = 128 << 10;

/// The number of attempts to copy a database that changes meanwhile.
const TRIES: usize = 5;

/// A summary of the recording.
#[derive(Debug, Default)]
pub struct Summary {
    path: PathBuf,
    bytes: u64,
    processes: u64,
    /// Connections that were opened.
    pub connections: u64,
    databases: u64,
    runs: u64,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} statements of {} connections in {} processes, {} databases, {} bytes",
            self.path.display(),
            self.runs,
            self.connections,
            self.processes,
            self.databases,
            self.bytes
        )
    }
}

/// The file that becomes a trace, once there is something to record. Until then an existing trace
/// of that name stays as it is, and a new file is removed again.
pub struct Output {
    path: PathBuf,
    file: File,
    made: Option<TempPath>,
}

impl Output {
    /// Opens the file, or creates it.
    ///
    /// # Errors
    /// It is a file of another kind, which is not overwritten; or an I/O error.
    pub fn open(path: &Path) -> Result<Self, String> {
        directory::check_is_trace(path)?;
        let say = |error: io::Error| cannot_write(path, &error);
        let (file, made) = match File::create_new(path) {
            Ok(file) => (file, Some(TempPath::try_from_path(path).map_err(say)?)),
            // A path that is no regular file, such as a pipe, is not replaced.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let mut options = File::options();
                let options = options.write(true).create(true).truncate(false);
                (options.open(path).map_err(say)?, None)
            }
            Err(error) => return Err(say(error)),
        };
        Ok(Self {
            path: path.to_owned(),
            file,
            made,
        })
    }

    fn begin(self) -> io::Result<File> {
        if let Some(made) = self.made {
            made.keep().map_err(|error| error.error)?;
        }
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        Ok(self.file)
    }
}

/// The process of a stream.
#[derive(Default)]
pub struct Source(u64);

/// See the module.
pub struct Recorder {
    inner: Mutex<Inner>,
}

struct Inner {
    /// Until the first event.
    output: Option<(Output, Header)>,
    writer: Option<Writer<BufWriter<File>>>,
    /// Why the trace ends early.
    failure: Option<String>,
    flushed: Instant,
    source: u64,
    mask: Option<Mask>,
    processes: HashMap<u64, u64>,
    /// Databases; without an identity while there is only a name.
    files: HashMap<Vec<u8>, Option<Identity>>,
    unrecorded: BTreeMap<String, u64>,
    summary: Summary,
}

/// The identity of a file, which a new file of the same name does not share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Identity {
    device: u64,
    inode: u64,
    born: Option<SystemTime>,
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        let born = metadata.created().ok();
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            born,
        }
    }
}

impl Recorder {
    /// The trace begins with its first event.
    pub fn new(output: Output, mask: Option<Mask>) -> Self {
        let header = Header {
            masked: mask.is_some(),
        };
        let summary = Summary {
            path: output.path.clone(),
            ..Summary::default()
        };
        let inner = Inner {
            output: Some((output, header)),
            writer: None,
            failure: None,
            flushed: Instant::now(),
            source: 0,
            mask,
            processes: HashMap::new(),
            files: HashMap::new(),
            unrecorded: BTreeMap::new(),
            summary,
        };
        Self {
            inner: Mutex::new(inner),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the events of a stream.
    pub fn take(&self, source: &mut Source, events: Vec<Event>) {
        let mut inner = self.lock();
        for event in events {
            inner.take(source, event);
        }
    }

    /// Writes out buffered events.
    pub fn flush_now_and_then(&self) {
        let mut inner = self.lock();
        if inner.flushed.elapsed() >= FLUSH_EVERY {
            inner.flushed = Instant::now();
            inner.write(Writer::flush);
        }
    }

    /// Ends the trace, with the final content of every database.
    pub fn finish(&self) -> Result<Summary, String> {
        let mut inner = self.lock();
        let paths: Vec<_> = inner.files.keys().cloned().collect();
        for path in paths {
            let digest = digest_of_copy(Path::new(std::ffi::OsStr::from_bytes(&path)));
            let digest = digest.map_err(String::into_bytes);
            inner.put(Event::Final { path, digest });
        }
        // A new file that has no event is removed.
        inner.output = None;
        if let Some(writer) = inner.writer.take() {
            let ended = writer
                .finish()
                .and_then(|file| file.into_inner().map_err(|e| e.into_error()));
            match ended {
                Ok(file) => inner.summary.bytes = file.metadata().map_or(0, |found| found.len()),
                Err(error) => inner.fail(&error),
            }
        }
        if let Some(failure) = &inner.failure {
            return Err(failure.clone());
        }
        let mut summary = std::mem::take(&mut inner.summary);
        for (name, count) in &inner.unrecorded {
            summary.notes.push(format!(
                "{name} was used ({count} times) and is not recorded"
            ));
        }
        summary.databases = inner.files.len() as u64;
        summary.processes = inner.processes.len() as u64;
        Ok(summary)
    }
}

impl Inner {
    fn take(&mut self, source: &mut Source, event: Event) {
        match &event {
            Event::Process { number, .. } => {
                source.0 = *number;
                let next = self.processes.len() as u64 + 1;
                let is_new = !self.processes.contains_key(number);
                let known = *self.processes.entry(*number).or_insert(next);
                if let (true, Event::Process { pid, arguments, .. }) = (is_new, event) {
                    self.source = known;
                    self.put(Event::Process {
                        number: known,
                        pid,
                        arguments,
                    });
                }
                return;
            }
            Event::Opening { path } => {
                self.look_at(path);
                return;
            }
            Event::Sent { .. } => return,
            Event::Open { .. } => self.summary.connections += 1,
            Event::Run { .. } | Event::Exec { .. } => self.summary.runs += 1,
            Event::Unrecorded { name } => {
                let name = String::from_utf8_lossy(name).into_owned();
                *self.unrecorded.entry(name).or_default() += 1;
            }
            _ => {}
        }
        let process = self.processes.get(&source.0).copied().unwrap_or(0);
        if self.source != process {
            self.source = process;
            self.put(Event::From(process));
        }
        self.put(event);
    }

    fn put(&mut self, event: Event) {
        let event = match &mut self.mask {
            Some(mask) => mask.event(self.source, event),
            None => event,
        };
        self.begin();
        self.write(|writer| writer.put(&event));
    }

    /// Begins the trace. The program already runs, so a failure here is handled like a disk that is
    /// full later.
    fn begin(&mut self) {
        let Some((output, header)) = self.output.take() else {
            return;
        };
        let file = output.begin();
        match file.and_then(|file| Writer::new(BufWriter::new(file), header)) {
            Ok(writer) => self.writer = Some(writer),
            Err(error) => self.fail(&error),
        }
    }

    fn write(&mut self, work: impl FnOnce(&mut Writer<BufWriter<File>>) -> io::Result<()>) {
        if let Some(Err(error)) = self.writer.as_mut().map(work) {
            self.fail(&error);
        }
    }

    fn fail(&mut self, error: &io::Error) {
        // The part written so far can be read. Without this its last block would be incomplete.
        self.writer = None;
        let path = self.summary.path.display();
        let text = format!("the trace {path} ends early: {error}; the program was not disturbed");
        eprintln!("onewrite: {text}");
        self.failure = Some(text);
    }

    /// Copies a database that is used for the first time.
    fn look_at(&mut self, path: &[u8]) {
        let file = PathBuf::from(std::ffi::OsStr::from_bytes(path));
        let identity = fs::metadata(&file).ok().map(|found| Identity::of(&found));
        match self.files.insert(path.to_vec(), identity) {
            // Known, or created since.
            Some(known) if known == identity || known.is_none() => return,
            _ => {}
        }
        let parts = |suffix: &str| onewrite_common::files::companion(&file, suffix);
        let is_empty = Part::ALL
            .iter()
            .all(|part| fs::metadata(parts(part.suffix())).map_or(0, |found| found.len()) == 0);
        if is_empty {
            self.put(Event::Database {
                path: path.to_vec(),
                start: Start::Empty,
            });
            return;
        }
        if self.mask.is_some() {
            let name = file.display();
            self.summary.notes.push(format!(
                "{name} was not empty: a masked trace leaves out its content, but a replay needs it"
            ));
            self.put(Event::Database {
                path: path.to_vec(),
                start: Start::Withheld,
            });
            return;
        }
        for attempt in 1..=TRIES {
            let before = state_of(&file);
            self.put(Event::Database {
                path: path.to_vec(),
                start: Start::Copied,
            });
            let copied = self.copy(path, &file);
            if let Err(error) = copied {
                let name = file.display();
                self.summary
                    .notes
                    .push(format!("{name} could not be copied: {error}"));
                self.put(Event::Database {
                    path: path.to_vec(),
                    start: Start::Withheld,
                });
                return;
            }
            if before == state_of(&file) {
                return;
            }
            if attempt == TRIES {
                let name = file.display();
                self.summary.notes.push(format!(
                    "another program wrote {name} while it was copied: a replay may begin with a torn \
                     copy"
                ));
            }
        }
    }

    fn copy(&mut self, path: &[u8], file: &Path) -> io::Result<()> {
        for part in Part::ALL {
            let name = onewrite_common::files::companion(file, part.suffix());
            let mut input = match File::open(&name) {
                Ok(input) => input,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let mut offset = 0;
            loop {
                let mut bytes = Vec::with_capacity(PIECE_BYTES);
                input
                    .by_ref()
                    .take(PIECE_BYTES as u64)
                    .read_to_end(&mut bytes)?;
                if bytes.is_empty() {
                    break;
                }
                let length = bytes.len() as u64;
                let path = path.to_vec();
                // Holes and preallocated logs are not worth their zeros.
                if bytes.iter().any(|byte| *byte != 0) || part == Part::Database {
                    self.put(Event::Content {
                        path,
                        part,
                        offset,
                        bytes,
                    });
                }
                offset += length;
            }
        }
        Ok(())
    }
}

/// Lengths and modification times of a database and the files next to it.
fn state_of(file: &Path) -> Vec<Option<(u64, i64, i64)>> {
    Part::ALL
        .iter()
        .map(|part| {
            let found =
                fs::metadata(onewrite_common::files::companion(file, part.suffix())).ok()?;
            Some((found.len(), found.mtime(), found.mtime_nsec()))
        })
        .collect()
}

/// The digest of a database's content, from a copy: opening the original could change it.
fn digest_of_copy(file: &Path) -> Result<u64, String> {
    let say = |error: io::Error| error.to_string();
    let dir = tempfile::tempdir().map_err(say)?;
    let copy = dir.path().join("copy.db");
    let mut is_ours = false;
    for part in Part::ALL {
        let from = onewrite_common::files::companion(file, part.suffix());
        if from.exists() {
            is_ours |= part == Part::Log;
            let to = onewrite_common::files::companion(&copy, part.suffix());
            fs::copy(from, to).map_err(say)?;
        } else if part == Part::Database {
            return Err("it is gone".to_owned());
        }
    }
    if is_ours {
        onewrite_replay::contents::plain(&copy)?;
    }
    digest::of_file(&copy)
}
