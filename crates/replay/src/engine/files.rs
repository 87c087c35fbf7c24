//! The databases of a replay: their places and their mode.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use onewrite_record::event::Start;
use onewrite_workload::mode::Vfs;

use super::{Options, lock};
use onewrite_common::files::{COMPANIONS, companion};

use crate::contents::{Beginning, Contents};
use crate::sqlite::{BUSY, Connection, Failure};
use crate::{clock, digest};

/// The name of the first database. Names of the others end with a number.
pub const FIRST: &str = "replay.db";

const READ_ONLY: u64 = 1;
const READ_WRITE: u64 = 2;
const CREATE: u64 = 4;
const URI: u64 = 0x40;
const MEMORY: u64 = 0x80;
const SHARED_CACHE: u64 = 0x2_0000;

/// See the module. All threads of a replay share it.
pub struct Files<'a> {
    options: Options<'a>,
    /// By the recorded path.
    known: Mutex<HashMap<Vec<u8>, PathBuf>>,
    beginnings: Mutex<Beginnings<'a>>,
    /// One thread at a time makes a database.
    making: Mutex<()>,
}

struct Beginnings<'a> {
    /// Beginnings still to come, in order.
    later: VecDeque<&'a Beginning>,
    /// Paths that have begun: the next time it is another file.
    began: HashSet<&'a [u8]>,
}

impl<'a> Files<'a> {
    /// Lays out the first beginning of every database.
    pub(super) fn lay_out(options: Options<'a>, contents: &'a Contents) -> Result<Self, String> {
        let beginnings = Beginnings {
            later: contents.beginnings.iter().collect(),
            began: HashSet::new(),
        };
        let files = Self {
            options,
            known: Mutex::default(),
            beginnings: Mutex::new(beginnings),
            making: Mutex::new(()),
        };
        for beginning in &contents.beginnings {
            let path = beginning.path.as_slice();
            if files.place_of(path).is_some() {
                continue;
            }
            let place = files.place_or_new(path);
            files.place(beginning, &place)?;
            if beginning.start == Start::Empty && !contents.shapes_files {
                files.put_in_mode(&place)?;
            }
        }
        Ok(files)
    }

    /// The program uses a database from here on. The first time, its file is already there.
    pub(super) fn begins(&self, path: &[u8]) -> Result<(), String> {
        let mut beginnings = lock(&self.beginnings);
        let later = &mut beginnings.later;
        let at = later.iter().position(|beginning| beginning.path == path);
        let Some(beginning) = at.and_then(|at| later.remove(at)) else {
            return Err(format!(
                "{}: begins out of order",
                String::from_utf8_lossy(path)
            ));
        };
        let is_first = beginnings.began.insert(beginning.path.as_slice());
        match self.place_of(path) {
            Some(place) if !is_first => self.place(beginning, &place),
            _ => Ok(()),
        }
    }

    /// Whether a database of this path is in use already.
    pub(super) fn has_begun(&self, path: &[u8]) -> bool {
        lock(&self.beginnings).began.contains(path)
    }

    fn place(&self, beginning: &Beginning, place: &Path) -> Result<(), String> {
        let say = |error: std::io::Error| format!("{}: {error}", place.display());
        for suffix in COMPANIONS.iter().chain(&[""]) {
            let file = companion(place, suffix);
            if file.exists() {
                fs::remove_file(&file).map_err(say)?;
            }
        }
        match beginning.start {
            Start::Empty => Ok(()),
            Start::Withheld => Err(format!(
                "{} was not empty when it was first opened, and its content is not in the trace",
                String::from_utf8_lossy(&beginning.path)
            )),
            Start::Copied => {
                fs::copy(&beginning.file, place).map_err(say)?;
                self.put_in_mode(place)
            }
        }
    }

    /// Puts a closed database into the mode, as far as the file stores the mode.
    fn put_in_mode(&self, place: &Path) -> Result<(), String> {
        let flags = (READ_WRITE | CREATE) as i32;
        let connection = Connection::open(place.as_os_str().as_bytes(), flags, self.vfs())
            .map_err(|error| error.to_string())?;
        self.make_room(&connection)
            .map_err(|error| format!("mode {}: {error}", self.options.mode))?;
        // A transaction of one page, so that every mode makes (and preallocates) its log here.
        let version = "PRAGMA user_version";
        self.try_enter(&connection)
            .and_then(|()| connection.ask(version))
            .and_then(|now| connection.ask(&format!("{version}={}", now.unwrap_or_default())))
            .map(drop)
            .map_err(|error| format!("mode {}: {error}", self.options.mode))
    }

    /// `waldio` keeps frame headers in reserved bytes of each page. A database without them is
    /// converted as the mode's own message says.
    fn make_room(&self, connection: &Connection) -> Result<(), Failure> {
        let mode = self.options.mode;
        let embeds = mode.journal().name == "waldio"
            && !mode
                .pragmas()
                .iter()
                .any(|pragma| pragma.name == "onewrite_layout");
        let pages = connection.ask("PRAGMA page_count")?;
        if !embeds || pages.as_deref() == Some("0") {
            return Ok(());
        }
        for sql in [
            "PRAGMA onewrite_reserve_bytes=24",
            "PRAGMA journal_mode=delete",
            "VACUUM",
        ] {
            connection.ask(sql)?;
        }
        Ok(())
    }

    /// Puts a connection into the mode. Returns false where another connection's lock prevents it.
    pub(super) fn enter(&self, connection: &Connection) -> Result<bool, Failure> {
        match self.try_enter(connection) {
            Ok(()) => Ok(true),
            Err(failure) if failure.code == BUSY => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    fn try_enter(&self, connection: &Connection) -> Result<(), Failure> {
        let mode = self.options.mode;
        // Another engine has its own pragmas, so it must be there first.
        let engine_first = mode.journal().is_lsmvbt();
        if engine_first {
            self.choose(connection)?;
        }
        for pragma in mode.pragmas() {
            connection.ask(&format!("PRAGMA {}={}", pragma.name, pragma.value))?;
        }
        if !engine_first {
            self.choose(connection)?;
        }
        if let Some(level) = mode.synchronous().or(self.options.synchronous) {
            connection.ask(&format!("PRAGMA synchronous={}", level.name()))?;
        }
        Ok(())
    }

    fn choose(&self, connection: &Connection) -> Result<(), Failure> {
        let asked = self.options.mode.journal().name;
        let got = connection.ask(&format!("PRAGMA journal_mode={asked}"))?;
        if got.as_deref() == Some(asked) {
            return Ok(());
        }
        let got = got.unwrap_or_default();
        let message = format!("asked for journal_mode={asked}, SQLite answered \"{got}\"");
        Err(Failure { code: 1, message })
    }

    fn vfs(&self) -> &'static str {
        match self.options.mode.journal().vfs {
            Vfs::Stock => clock::VFS_NAME,
            Vfs::Onewrite => "onewrite",
        }
    }

    /// The place of the database that had this path.
    fn place_of(&self, path: &[u8]) -> Option<PathBuf> {
        lock(&self.known).get(path).cloned()
    }

    /// The same, and an unknown path gets a place too.
    fn place_or_new(&self, path: &[u8]) -> PathBuf {
        let mut known = lock(&self.known);
        let next = match known.len() {
            0 => FIRST.to_owned(),
            others => format!("{FIRST}.{}", others + 1),
        };
        let place = known.entry(path.to_vec());
        place.or_insert_with(|| self.options.dir.join(next)).clone()
    }

    /// The place of a database that is about to be attached. A new one is put into the mode.
    pub(super) fn place_to_attach(&self, path: &[u8]) -> Result<PathBuf, String> {
        let place = self.place_or_new(path);
        let _one = lock(&self.making);
        if !place.exists() {
            self.put_in_mode(&place)?;
        }
        Ok(place)
    }

    /// Opens a connection as when it was recorded. Returns whether it may write.
    pub(super) fn open(
        &self,
        name: &[u8],
        path: &[u8],
        flags: u64,
    ) -> Result<(Connection, bool), Failure> {
        let kept = flags & (READ_ONLY | READ_WRITE | CREATE | URI | MEMORY | SHARED_CACHE);
        let Some(place) = self.place_of(path) else {
            let connection = Connection::open(name, kept as i32, clock::VFS_NAME)?;
            return Ok((connection, false));
        };
        let query = name
            .starts_with(b"file:")
            .then(|| String::from_utf8_lossy(name));
        let has = |word: &str| query.as_ref().is_some_and(|query| query.contains(word));
        let mut flags = kept & !(URI | MEMORY);
        if has("mode=ro") {
            flags = flags & !(READ_WRITE | CREATE) | READ_ONLY;
        }
        if has("cache=shared") {
            flags |= SHARED_CACHE;
        }
        let connection = Connection::open(place.as_os_str().as_bytes(), flags as i32, self.vfs())?;
        Ok((connection, flags & READ_ONLY == 0))
    }

    /// The content of every database, by its recorded path, as any other program finds it.
    pub fn digests(&self) -> Vec<(Vec<u8>, Result<u64, String>)> {
        let known = lock(&self.known).clone();
        let mut known: Vec<_> = known.into_iter().collect();
        known.sort_by(|a, b| a.1.cmp(&b.1));
        let digest = |(path, place): (Vec<u8>, PathBuf)| {
            let digest = match place.exists() {
                true => digest::of_file(&place),
                false => digest::of_file(Path::new(":memory:")),
            };
            (path, digest)
        };
        known.into_iter().map(digest).collect()
    }
}
