//! The recording of a database's files: every call that changes one, in order, from SQLite's own
//! VFS and from the log below ours.
//!
//! A recording belongs to a directory; files elsewhere are not recorded. So several recordings can
//! run at once in one process, and opening an image of a crash records nothing.

use onewrite::storage::observer::{Call, Observer, Route};
use onewrite::storage::{Capabilities, DirectAlign, Durability, WriteCache};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

/// The files of a database, except the wal-index, which a crash of the system removes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum File {
    Database,
    Journal,
    Wal,
    Log,
}

pub const DATABASE: &str = "db";

impl File {
    pub const ALL: [File; 4] = [File::Database, File::Journal, File::Wal, File::Log];

    pub fn name(self) -> &'static str {
        match self {
            File::Database => DATABASE,
            File::Journal => "db-journal",
            File::Wal => "db-wal",
            File::Log => "db-onewrite",
        }
    }

    fn at(path: &Path) -> Option<File> {
        let name = path.file_name()?.to_str()?;
        File::ALL.into_iter().find(|file| file.name() == name)
    }
}

/// The promise of a write when it returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// The bytes are in the page cache.
    Buffered,
    /// The device has the bytes, maybe in a volatile cache.
    Direct,
    /// They survive a power cut.
    Through,
}

/// The opener of a file. It decides what makes the file's name durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opener {
    /// SQLite's VFS: it syncs the directory together with a new file.
    Sqlite,
    /// The storage layer: it must sync the directory itself.
    Storage,
}

#[derive(Clone, Debug)]
pub enum Event {
    Open(File, Opener),
    Write {
        file: File,
        offset: u64,
        bytes: Arc<[u8]>,
        reach: Reach,
    },
    /// Zeros up to this size, beyond the old end.
    Extend(File, u64),
    Flush(File),
    /// The kernel writes the page cache back to the device.
    WriteBack(File),
    Truncate(File, u64),
    /// The name is gone; this is certain only after a sync of the directory.
    Remove(File),
    SyncDirectory,
    /// Transaction `n` begins.
    Begin(u32),
    /// Transaction `n` was acknowledged, with the promise that it is durable.
    Durable(u32),
}

/// Whether the device under the log has FUA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Device {
    /// A write-through write makes its own blocks durable, and nothing else.
    Fua,
    /// The kernel turns a write-through write into a write and a flush of the device's cache.
    NoFua,
    /// The device is not known (overlayfs, a hidden `/sys`), and it has FUA.
    UnknownFua,
}

impl Device {
    pub const ALL: [Device; 3] = [Device::Fua, Device::NoFua, Device::UnknownFua];

    /// Whether a write-through write also makes durable what the device received before.
    pub fn covers_all_before(self) -> bool {
        self == Device::NoFua
    }
}

struct Recording {
    device: Device,
    events: Option<Vec<Event>>,
}

/// One for each directory that tests use, whether or not its recording runs.
static RECORDINGS: Mutex<Option<HashMap<PathBuf, Recording>>> = Mutex::new(None);

fn recordings() -> MutexGuard<'static, Option<HashMap<PathBuf, Recording>>> {
    RECORDINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the device that the logs in `directory` believe they are on.
pub fn device(directory: &Path, device: Device) {
    let recording = Recording {
        device,
        events: None,
    };
    recordings()
        .get_or_insert_default()
        .insert(directory.to_owned(), recording);
}

pub fn start(directory: &Path) {
    if let Some(recording) = recordings().as_mut().and_then(|all| all.get_mut(directory)) {
        recording.events = Some(Vec::new());
    }
}

pub fn stop(directory: &Path) -> Vec<Event> {
    let mut all = recordings();
    let recording = all.as_mut().and_then(|all| all.get_mut(directory));
    recording
        .and_then(|recording| recording.events.take())
        .expect("a recording that was started")
}

/// Adds an event that is not a call on a file.
pub fn note(directory: &Path, event: Event) {
    add(&directory.join(DATABASE), |_| Some(event));
}

/// Adds an event about the file at `path`, if its directory is being recorded.
pub fn add(path: &Path, event: impl FnOnce(File) -> Option<Event>) {
    let (Some(file), Some(directory)) = (File::at(path), path.parent()) else {
        return;
    };
    let mut all = recordings();
    let recording = all.as_mut().and_then(|all| all.get_mut(directory));
    if let Some(events) = recording.and_then(|recording| recording.events.as_mut())
        && let Some(event) = event(file)
    {
        events.push(event);
    }
}

struct Recorder;

impl Observer for Recorder {
    fn before(&self, path: &Path, call: &Call<'_>) -> io::Result<()> {
        add(path, |file| {
            Some(match call {
                Call::Open => Event::Open(file, Opener::Storage),
                Call::Write {
                    offset,
                    bytes,
                    route,
                    durability,
                } => Event::Write {
                    file,
                    offset: *offset,
                    bytes: (*bytes).into(),
                    reach: match (route, durability) {
                        (Route::Buffered, _) => Reach::Buffered,
                        (Route::Direct, Durability::Cached | Durability::None) => Reach::Direct,
                        (Route::Direct, Durability::WriteThrough) => Reach::Through,
                    },
                },
                Call::Flush => Event::Flush(file),
                Call::WriteBack => Event::WriteBack(file),
                Call::Truncate { size } => Event::Truncate(file, *size),
                Call::Initialize { range } => Event::Extend(file, range.end),
                // No file system of these tests can remap.
                Call::Remap { .. } | Call::Remapped | Call::Forward => return None,
                Call::Remove => Event::Remove(file),
                Call::SyncDirectory => Event::SyncDirectory,
            })
        });
        Ok(())
    }

    /// The clock stands still, so that `auto` writes through.
    fn clock(&self) -> Option<Duration> {
        Some(Duration::ZERO)
    }

    fn capabilities(&self, path: &Path, found: &mut Capabilities) {
        let all = recordings();
        let directory = path.parent().and_then(|dir| all.as_ref()?.get(dir));
        let Some(recording) = directory else { return };
        found.direct = Ok(DirectAlign {
            memory: 512,
            offset: 512,
        });
        found.is_only_device = recording.device != Device::UnknownFua;
        found.write_cache = match recording.device {
            Device::UnknownFua => WriteCache::Unknown,
            Device::Fua | Device::NoFua => WriteCache::WriteBack,
        };
        found.fua = match recording.device {
            Device::Fua => Ok(()),
            Device::NoFua | Device::UnknownFua => Err("the test says so".to_owned()),
        };
    }
}

/// Installs the recorder under SQLite and under our log, and our VFS on top of it; once.
pub fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        super::vfs::register();
        assert!(onewrite::storage::observer::observe(Box::new(Recorder)));
        onewrite::register().expect("the VFS onewrite");
    });
}
