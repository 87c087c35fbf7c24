//! The input of `onewrite salvage`: a database, a log, and whether they belong together.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use onewrite::DATABASE_HEADER_BYTES;
use onewrite::log::scan::{OpenedLog, Survey, Writers};
use onewrite::log::{HeaderError, LogHeader, LogId};
use onewrite::storage::{LockByte, LockKind};
use onewrite::wal::PageSize;

use crate::given;
use crate::inspect::look::companion;
use crate::inspect::{DatabaseHeader, counted, log_of, lsmvbt, users};
use crate::verify::{is_hot_journal, set_aside};

/// Why a log is applied to a database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Belongs {
    /// The database is guarded for it.
    ById,
    /// It is SQLite's own, by its name.
    ByName,
    /// The user names it with --log.
    NotProven,
}

/// A log that is read.
pub struct Log {
    pub path: PathBuf,
    pub opened: OpenedLog,
    pub belongs: Belongs,
}

/// A database to which the log is applied.
pub struct Database {
    pub path: PathBuf,
    pub page_size: PageSize,
    pub guard: Option<LogId>,
    /// Its hot journal, which must be rolled back first.
    pub journal: Option<PathBuf>,
}

/// See the module.
pub struct Source {
    pub database: Option<Database>,
    pub log: Option<Log>,
    /// Notes for the reader.
    pub notes: Vec<String>,
    /// Something is known to be committed that is in none of these files.
    pub is_incomplete: bool,
    /// Each file, its size and the time of its last change.
    seen: Vec<(PathBuf, u64, SystemTime)>,
}

impl Source {
    /// Looks at the user's files: a database or a log, and another log.
    ///
    /// # Errors
    /// In words: the files cannot be used, or are in use.
    pub fn of(input: &Path, log: Option<&Path>) -> Result<Source, String> {
        let named = |path: &Path, e: &io::Error| {
            format!("{}: {}", path.display(), given::why_unread(path, e))
        };
        let input = fs::canonicalize(input).map_err(|e| named(input, &e))?;
        let log = match log {
            Some(log) => Some(fs::canonicalize(log).map_err(|e| named(log, &e))?),
            None => None,
        };
        let head = head_of(&input).map_err(|e| named(&input, &e))?;
        let mut source = Source {
            database: None,
            log: None,
            notes: Vec::new(),
            is_incomplete: false,
            seen: Vec::new(),
        };
        if let Some(refusal) = lsmvbt::refusal(&head) {
            return Err(format!("{}: {refusal}", input.display()));
        }
        match DatabaseHeader::parse(&head) {
            Some(header) => source.look_at_database(&input, &header, log.as_deref())?,
            None if log.is_some() => {
                return Err(format!(
                    "{}: not a database; --log needs a database",
                    input.display()
                ));
            }
            None => source.look_at_log(&input)?,
        }
        source.check_unused()?;
        source.seen = source.look().map_err(|e| e.to_string())?;
        Ok(source)
    }

    fn look_at_database(
        &mut self,
        path: &Path,
        header: &DatabaseHeader,
        log: Option<&Path>,
    ) -> Result<(), String> {
        let name = path.display();
        let page_size = header.page_size;
        let page_size =
            page_size.ok_or_else(|| format!("{name}: its header has an impossible page size"))?;
        let journal = companion(path, "-journal");
        let is_hot = is_hot_journal(&journal).map_err(|e| e.to_string())?;
        if is_hot && header.guard.is_some() {
            self.notes.push(format!(
                "{}: of another database, not used",
                journal.display()
            ));
        }
        self.database = Some(Database {
            path: path.to_owned(),
            page_size,
            guard: header.guard,
            journal: (is_hot && header.guard.is_none()).then_some(journal),
        });
        match log {
            Some(log) => self.with_log(log, header),
            None => self.own_log(path, header),
        }
    }

    /// The log that the user names.
    fn with_log(&mut self, path: &Path, header: &DatabaseHeader) -> Result<(), String> {
        let opened = self.open(path)?;
        let opened = opened.ok_or_else(|| format!("{}: this log is empty", path.display()))?;
        let belongs = match header.guard {
            Some(id) if id_of(path) == Some(id) => Belongs::ById,
            _ => Belongs::NotProven,
        };
        self.log = Some(Log {
            path: path.to_owned(),
            opened,
            belongs,
        });
        Ok(())
    }

    /// The log that belongs to the database, in any of its places.
    fn own_log(&mut self, path: &Path, header: &DatabaseHeader) -> Result<(), String> {
        let own = log_of(path);
        let Some(id) = header.guard else {
            self.tell_of_foreign(&own);
            return self.stock_log(path);
        };
        let aside = set_aside(path).unwrap_or_default();
        for candidate in [&own].into_iter().chain(&aside) {
            match self.open(candidate) {
                Ok(Some(opened)) if id_of(candidate) == Some(id) => {
                    self.log = Some(Log {
                        path: candidate.clone(),
                        opened,
                        belongs: Belongs::ById,
                    });
                    return Ok(());
                }
                // The database holds everything.
                Ok(None) if is_empty_log(candidate, id) => return Ok(()),
                Err(e) if candidate.exists() => self.notes.push(e),
                _ => {}
            }
        }
        self.is_incomplete = true;
        self.notes.push(format!(
            "the log {id} is not here, or has lost its header: everything committed since the last checkpoint is missing"
        ));
        Ok(())
    }

    /// A log next to a database that is not guarded for it is not applied.
    fn tell_of_foreign(&mut self, log: &Path) {
        let Ok(Some(opened)) = OpenedLog::at(log) else {
            return;
        };
        let survey = Survey::of(&opened.file, opened.geometry, opened.wal, Writers::None);
        let transactions = survey.map_or(0, |survey| survey.transactions);
        if transactions == 0 {
            return;
        }
        self.is_incomplete = true;
        let (held, name) = (counted(transactions, "transaction"), log.display());
        self.notes.push(format!(
            "{name} holds {held}, but this database is not guarded for it: not used. \"onewrite salvage {name} \
             -o OUT\" reads it alone, --log {name} tries it on a copy of this database"
        ));
    }

    fn stock_log(&mut self, path: &Path) -> Result<(), String> {
        let wal = companion(path, "-wal");
        if !fs::metadata(&wal).is_ok_and(|wal| wal.len() > 0) {
            return Ok(());
        }
        match OpenedLog::at(&wal) {
            Ok(Some(opened)) => {
                self.log = Some(Log {
                    path: wal,
                    opened,
                    belongs: Belongs::ByName,
                });
            }
            Ok(None) => {}
            Err(e) => {
                self.is_incomplete = true;
                self.notes.push(e.to_string());
            }
        }
        Ok(())
    }

    /// A log, and its database where that is next to it and names the log.
    fn look_at_log(&mut self, path: &Path) -> Result<(), String> {
        let name = path.display();
        let opened = self.open(path).map_err(|e| match given::owner(path) {
            _ if is_log(path) => e,
            Some(owner) => format!("{e}. Give {}", owner.display()),
            None => format!("{e}. Give a database or its log"),
        })?;
        let opened =
            opened.ok_or_else(|| {
                format!("{name}: neither a database nor a log with frames, or the log has lost its header: there is nothing to salvage in it")
            })?;
        let bytes = path.as_os_str().as_encoded_bytes();
        let owner = bytes.strip_suffix(b"-onewrite").map(|name| {
            use std::os::unix::ffi::OsStrExt;
            PathBuf::from(std::ffi::OsStr::from_bytes(name))
        });
        if let (Some(owner), Some(id)) = (owner, id_of(path)) {
            let head = head_of(&owner).unwrap_or_default();
            let header = DatabaseHeader::parse(&head);
            if let Some(header) = header.filter(|header| header.guard == Some(id)) {
                self.notes
                    .push(format!("{} is its database: also used", owner.display()));
                return self.look_at_database(&owner, &header, Some(path));
            }
        }
        self.log = Some(Log {
            path: path.to_owned(),
            opened,
            belongs: Belongs::NotProven,
        });
        Ok(())
    }

    /// Opens a log, even if its header block is damaged around SQLite's header.
    fn open(&mut self, path: &Path) -> Result<Option<OpenedLog>, String> {
        let error = match OpenedLog::at(path) {
            Ok(opened) => return Ok(opened),
            Err(e) => e,
        };
        let is_newer = matches!(
            LogHeader::parse(&head_of(path).unwrap_or_default()),
            Err(HeaderError::Version(_))
        );
        match OpenedLog::without_header(path) {
            Ok(Some(opened)) if !is_newer => {
                self.notes.push(format!(
                    "{error}: read by SQLite's own header in it, in layout {}",
                    opened.geometry.layout()
                ));
                Ok(Some(opened))
            }
            _ => Err(error.to_string()),
        }
    }

    fn check_unused(&self) -> Result<(), String> {
        let in_use = |path: &Path| {
            format!(
                "{} is in use by another process: \"onewrite backup DB FILE\" copies a database in use",
                path.display()
            )
        };
        if let Some(database) = &self.database
            && users::has_users(&database.path).map_err(|e| e.to_string())?
        {
            return Err(in_use(&database.path));
        }
        let Some(log) = &self.log else { return Ok(()) };
        let file = &log.opened.file;
        let is_locked = file.is_locked_by_other(LockByte::Presence, LockKind::Exclusive);
        match is_locked.map_err(|e| e.to_string())? {
            true => Err(in_use(&log.path)),
            false => Ok(()),
        }
    }

    fn look(&self) -> io::Result<Vec<(PathBuf, u64, SystemTime)>> {
        let database = self.database.iter().map(|database| &database.path);
        let log = self.log.iter().map(|log| &log.path);
        let files = database.chain(log);
        files
            .map(|path| {
                let found = fs::metadata(path)?;
                Ok((path.clone(), found.len(), found.modified()?))
            })
            .collect()
    }

    /// Checks that no process has changed or opened the files meanwhile.
    ///
    /// # Errors
    /// A process has.
    pub fn check_unchanged(&self) -> Result<(), String> {
        self.check_unused()?;
        match self.look() {
            Ok(now) if now == self.seen => Ok(()),
            _ => Err("the files were changed meanwhile: run this again".to_owned()),
        }
    }

    /// The file whose permissions the result gets.
    pub fn like(&self) -> &Path {
        let database = self
            .database
            .as_ref()
            .map(|database| database.path.as_path());
        let log = self.log.as_ref().map(|log| log.path.as_path());
        database.or(log).unwrap_or(Path::new("/"))
    }
}

/// The id in a log of onewrite, even where the rest of its header is damaged.
fn id_of(path: &Path) -> Option<LogId> {
    const ID_AT: usize = 24;
    let head = head_of(path).ok()?;
    head.get(ID_AT..)?.first_chunk().map(|id| LogId(*id))
}

/// Whether a log of this id exists, and holds no frames.
fn is_empty_log(path: &Path, id: LogId) -> bool {
    let head = head_of(path).unwrap_or_default();
    let header = LogHeader::parse(&head);
    header.is_ok_and(|log| log.id == id && log.is_empty())
}

/// Whether a file is meant as a log, by its name or its first bytes.
fn is_log(path: &Path) -> bool {
    let name = path.as_os_str().as_encoded_bytes();
    let has_name = [&b"-onewrite"[..], b"-wal"]
        .iter()
        .any(|it| name.ends_with(it));
    has_name || head_of(path).is_ok_and(|head| head.starts_with(b"onewrite"))
}

/// The first bytes of a file.
fn head_of(path: &Path) -> io::Result<Vec<u8>> {
    const HEAD: usize = onewrite::log::header::HEADER_BYTES;
    const _: () = assert!(HEAD >= DATABASE_HEADER_BYTES);
    let found = fs::metadata(path)?;
    if found.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !found.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut head = Vec::new();
    File::open(path)?.take(HEAD as u64).read_to_end(&mut head)?;
    Ok(head)
}
