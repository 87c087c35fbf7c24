//! Programs, and what each of their descriptors is.
//!
//! Descriptors are looked up when an event names one that is not known, and once a second for a
//! program that writes. A descriptor that is gone keeps its last meaning. In `delete` mode the
//! rollback journal is open for a moment only, and always has the same number.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use onewrite_common::files::COMPANIONS;
use onewrite_common::mounts::{self, Mount, holding};
use onewrite_iotrace::device::BlockDevice;
use onewrite_iotrace::io::Kind;
use onewrite_iotrace::live;
use rustix::fs::{major, minor};

use super::databases::{Database, FileId, seen_by};
use super::ledger::FileOf;
use crate::inspect::lsmvbt;
use crate::regular::open_regular;

/// The descriptors of a program that writes are looked up again after this time.
const AGE: Duration = Duration::from_secs(1);

/// They are looked up no more often for a descriptor that is not found.
const REST: Duration = Duration::from_millis(100);

/// Directories whose files are no databases.
const NOT_DISKS: [&[u8]; 3] = [b"/dev/", b"/proc/", b"/sys/"];

/// The file of a descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Use {
    /// The device below it; 0 without one.
    pub device: u32,
    /// The database's number and the file's purpose.
    pub file: Option<(usize, Kind)>,
}

/// A program.
pub struct Process {
    /// Its name (`comm`).
    pub name: String,
    /// Its command line.
    pub command: String,
    files: HashMap<i32, (PathBuf, Use)>,
    looked: Option<Instant>,
    /// When it was last looked at its name, and again at files that were no databases.
    looked_anew: Option<Instant>,
}

/// The databases that were found.
#[derive(Default)]
pub struct Databases {
    /// By their number.
    pub all: Vec<Database>,
    /// Those of LS-MVBT, with their paths for this process. `top` knows nothing about their commits.
    pub lsmvbt: BTreeMap<PathBuf, PathBuf>,
    by_id: HashMap<FileId, usize>,
    by_path: HashMap<PathBuf, usize>,
    /// By the file that a writer locks.
    by_lock: HashMap<(u32, u64), usize>,
}

/// A device that was found below a database.
pub struct Found {
    /// The device.
    pub device: BlockDevice,
    /// The type of the file system on it.
    pub kind: String,
}

/// See the module.
#[derive(Default)]
pub struct Processes {
    /// By `getpid`.
    pub all: HashMap<u32, Process>,
    by_tid: HashMap<u32, u32>,
    devices: HashMap<u64, u32>,
    /// Those that a look at all has not come to yet.
    to_look: Vec<u32>,
    /// Devices that were found since the caller last took them.
    pub found: Vec<Found>,
}

impl Processes {
    /// The process of a thread. Once it has ended it is unknown, and the thread's number stands for
    /// it.
    pub fn of_thread(&mut self, tid: u32) -> u32 {
        *self.by_tid.entry(tid).or_insert_with(|| {
            let status = fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
            line.and_then(|pid| pid.trim().parse().ok()).unwrap_or(tid)
        })
    }

    /// What a descriptor of a process is; `None` if it was never seen open.
    pub fn descriptor(&mut self, pid: u32, fd: i32, databases: &mut Databases) -> Option<Use> {
        let process = self.all.entry(pid).or_insert_with(|| Process::new(pid));
        let known = process.files.contains_key(&fd);
        let age = if known { AGE } else { REST };
        if process.looked.is_none_or(|at| at.elapsed() > age) {
            self.look(pid, databases);
        }
        let process = self.all.get(&pid)?;
        process.files.get(&fd).map(|(_, found)| *found)
    }

    /// The only database in a rollback mode that a process has open.
    pub fn only_rollback(&self, pid: u32, databases: &Databases) -> Option<usize> {
        let process = self.all.get(&pid)?;
        let files = process.files.values().filter_map(|(_, found)| found.file);
        let is_rollback = |number: &usize| {
            let database = databases.all.get(*number);
            database.is_some_and(Database::is_rollback)
        };
        let mut found = files.map(|(number, _)| number).filter(is_rollback);
        let first = found.next()?;
        found.all(|other| other == first).then_some(first)
    }

    /// The processes that have a database open.
    pub fn users_of(&self, number: usize) -> impl Iterator<Item = u32> + '_ {
        let uses = move |process: &Process| {
            let mut files = process.files.values();
            files.any(|(_, found)| matches!(found.file, Some((own, _)) if own == number))
        };
        self.all
            .iter()
            .filter(move |(_, process)| uses(process))
            .map(|(pid, _)| *pid)
    }

    /// The kernel's name of a thread of a process that has ended too early for a look.
    pub fn name(&mut self, pid: u32, name: [u8; 16]) {
        let process = self.all.get_mut(&pid);
        if let Some(process) = process.filter(|process| process.name.is_empty()) {
            let end = name
                .iter()
                .position(|byte| *byte == 0)
                .unwrap_or(name.len());
            let text = name.get(..end).unwrap_or_default();
            process.name = String::from_utf8_lossy(text).into_owned();
        }
    }

    /// Looks at the descriptors of every process.
    pub fn look_at_all(&mut self, databases: &mut Databases) {
        self.begin_look();
        while let Some(pid) = self.to_look.pop() {
            self.look(pid, databases);
        }
    }

    /// Lists every process, for [`Processes::look_until`].
    pub fn begin_look(&mut self) {
        let exists = |pid: &u32| Path::new("/proc").join(pid.to_string()).exists();
        self.by_tid.retain(|tid, _| exists(tid));
        // Those that have used a database keep their names.
        let has_used = |process: &Process| process.files.values().any(|(_, of)| of.file.is_some());
        self.all
            .retain(|pid, process| has_used(process) || exists(pid));
        self.to_look.clear();
        let own = std::process::id();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let name = entry.file_name();
            let pid: Option<u32> = name.to_str().and_then(|name| name.parse().ok());
            self.to_look.extend(pid.filter(|pid| *pid != own));
        }
    }

    /// Looks at the descriptors of the processes that are left, until this moment.
    pub fn look_until(&mut self, until: Instant, databases: &mut Databases) {
        while Instant::now() < until
            && let Some(pid) = self.to_look.pop()
        {
            self.look(pid, databases);
        }
    }

    /// Looks at the descriptors of a process.
    fn look(&mut self, pid: u32, databases: &mut Databases) {
        let process = self.all.remove(&pid);
        let mut process = process.unwrap_or_else(|| Process::new(pid));
        // Looks for a descriptor that is not found come more often than this.
        let is_old = process.looked_anew.is_none_or(|at| at.elapsed() > AGE);
        if is_old {
            process.looked_anew = Some(Instant::now());
            process.look_at_name(pid);
        }
        let dir = PathBuf::from(format!("/proc/{pid}/fd"));
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let fd = entry.file_name().to_str().and_then(|fd| fd.parse().ok());
            let (Some(fd), Ok(link)) = (fd, fs::read_link(entry.path())) else {
                continue;
            };
            if !is_on_disk(&link) {
                process.files.remove(&fd);
                continue;
            }
            let known = process.files.get(&fd);
            let known = known.filter(|(old, found)| {
                // A new database is empty at first, and no database yet.
                let is_database = found.file.is_some_and(|(of, _)| !databases.is_gone(of));
                *old == link && (is_database || !is_old)
            });
            if known.is_none() {
                let found = self.meaning(pid, &process, &link, databases);
                process.files.insert(fd, (link, found));
            }
        }
        process.looked = Some(Instant::now());
        self.all.insert(pid, process);
    }

    /// The purpose of a file that a process has open under this name.
    fn meaning(
        &mut self,
        pid: u32,
        process: &Process,
        link: &Path,
        databases: &mut Databases,
    ) -> Use {
        let here = seen_by(pid, link);
        let Ok(meta) = fs::metadata(&here) else {
            return of_removed(link, databases);
        };
        let device = self.device_of(pid, link, &here);
        if meta.is_dir() {
            // SQLite flushes the directory of a new rollback journal.
            let number = process.rollback_in(link, databases);
            let file = number.map(|number| (number, Kind::RollbackJournal));
            return Use { device, file };
        }
        if !meta.is_file() {
            return Use { device, file: None };
        }
        let mut candidates = candidates(link);
        let file = candidates.find_map(|(path, kind)| {
            let number = databases.find(pid, &path, device)?;
            databases.note(number, kind, FileId::of(&here)?);
            Some((number, kind))
        });
        if let Some((number, _)) = file {
            self.describe(pid, link, databases.all.get_mut(number));
        }
        Use { device, file }
    }

    /// The device below a file, by the device number of its file system.
    fn device_of(&mut self, pid: u32, link: &Path, here: &Path) -> u32 {
        let Some(id) = FileId::of(here) else { return 0 };
        if let Some(known) = self.devices.get(&id.device) {
            return *known;
        }
        let mounts = mounts_of(pid);
        let found = live::device_below(here, link, &mounts);
        let number = found.as_ref().map_or(0, BlockDevice::kernel_number);
        self.devices.insert(id.device, number);
        if let Some(device) = found {
            let kind = kind_on(number, &mounts);
            self.found.push(Found { device, kind });
        }
        number
    }

    fn describe(&self, pid: u32, link: &Path, database: Option<&mut Database>) {
        let Some(database) = database else { return };
        database.opened_by(pid);
        if database.file_system.is_empty() {
            let mounts = mounts_of(pid);
            let mount = holding(&mounts, link);
            database.file_system = mount.map_or_else(String::new, |m| m.filesystem.clone());
        }
    }
}

impl Process {
    fn new(pid: u32) -> Self {
        let mut process = Self {
            name: String::new(),
            command: String::new(),
            files: HashMap::new(),
            looked: None,
            looked_anew: None,
        };
        process.look_at_name(pid);
        process
    }

    /// A shell may have become another program meanwhile. One that has ended keeps its name.
    fn look_at_name(&mut self, pid: u32) {
        let text = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}"));
        if let (Ok(name), Ok(command)) = (text("comm"), text("cmdline")) {
            self.name = name.trim().to_owned();
            self.command = command.replace('\0', " ").trim_end().to_owned();
        }
    }

    /// Whether it has ended.
    pub fn has_ended(pid: u32) -> bool {
        !Path::new("/proc").join(pid.to_string()).exists()
    }

    /// The database in a rollback mode, in this directory, that it has open.
    fn rollback_in(&self, dir: &Path, databases: &Databases) -> Option<usize> {
        let is_inside = |number: &usize| {
            let database = databases.all.get(*number);
            database.is_some_and(|d| d.is_rollback() && d.path.parent() == Some(dir))
        };
        let mut open = self.files.values().filter_map(|(_, found)| found.file);
        open.find_map(|(number, _)| Some(number).filter(is_inside))
    }
}

impl Databases {
    /// The database at a path that a process has open, a new one if need be; `None` if the file is
    /// none.
    fn find(&mut self, pid: u32, path: &Path, device: u32) -> Option<usize> {
        let here = seen_by(pid, path);
        let id = FileId::of(&here)?;
        if let Some(number) = self.known(&id, path) {
            return Some(number);
        }
        match kind_of(&here)? {
            Engine::Sqlite => {}
            Engine::Lsmvbt => {
                self.lsmvbt.insert(path.to_owned(), here);
                return None;
            }
        }
        // A file that was removed and made again is the same database.
        let before = self.by_path.get(path).copied();
        let number = before.filter(|number| self.is_gone(*number));
        let number = number.unwrap_or_else(|| {
            self.all.push(Database::new(pid, path.to_owned()));
            self.all.len() - 1
        });
        let database = self.all.get_mut(number)?;
        database.is_gone = false;
        database.device = device;
        self.by_id.insert(id, number);
        self.by_path.insert(path.to_owned(), number);
        self.note(number, Kind::Database, id);
        Some(number)
    }

    /// The database with this identity, if it is still that file: a new one may have the inode number
    /// of one that was removed.
    fn known(&mut self, id: &FileId, path: &Path) -> Option<usize> {
        let number = *self.by_id.get(id)?;
        let database = self.all.get_mut(number)?;
        if database.path != path && FileId::of(&database.here()).as_ref() != Some(id) {
            return None;
        }
        database.is_gone = false;
        Some(number)
    }

    fn is_gone(&self, number: usize) -> bool {
        let database = self.all.get(number);
        database.is_none_or(|database| database.is_gone)
    }

    /// A database that was found on disk.
    pub fn add(&mut self, pid: u32, path: &Path) {
        self.find(pid, path, 0);
    }

    /// Remembers the files that writers lock.
    fn note(&mut self, number: usize, kind: Kind, id: FileId) {
        if matches!(kind, Kind::Database | Kind::WalIndex) {
            let device = major(id.device) << 20 | minor(id.device);
            self.by_lock.insert((device, id.inode), number);
        }
    }

    /// The database whose file a writer locked.
    pub fn locked(&self, device: u32, inode: u64) -> Option<usize> {
        self.by_lock.get(&(device, inode)).copied()
    }

    /// A file of a database, for the ledger.
    pub fn file(&self, number: usize, kind: Kind) -> FileOf {
        let database = self.all.get(number);
        FileOf {
            database: number,
            kind,
            is_rollback: database.is_some_and(Database::is_rollback),
        }
    }
}

/// Whether a descriptor's name can be a file on a disk.
fn is_on_disk(link: &Path) -> bool {
    let name = link.as_os_str().as_bytes();
    let is_other = || NOT_DISKS.iter().any(|dir| name.starts_with(dir));
    name.starts_with(b"/") && (name.starts_with(b"/dev/shm/") || !is_other())
}

/// The databases that a file of this name can belong to, and its purpose there.
fn candidates(path: &Path) -> impl Iterator<Item = (PathBuf, Kind)> + use<> {
    let name = path.as_os_str().as_bytes().to_owned();
    let whole = (path.to_owned(), Kind::Database);
    let companions = COMPANIONS.iter().filter_map(move |suffix| {
        let base = name.strip_suffix(suffix.as_bytes())?;
        let kind = match *suffix {
            "-wal" | "-onewrite" => Kind::Log,
            "-journal" => Kind::RollbackJournal,
            _ => Kind::WalIndex,
        };
        Some((PathBuf::from(OsStr::from_bytes(base)), kind))
    });
    companions.chain(std::iter::once(whole))
}

/// Whether a file begins as databases of SQLite or of LS-MVBT do.
pub fn is_database(path: &Path) -> bool {
    kind_of(path).is_some()
}

/// The engine of a database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Engine {
    Sqlite,
    Lsmvbt,
}

/// The engine of the database in a file; `None` if it begins as none does.
fn kind_of(path: &Path) -> Option<Engine> {
    use std::io::Read;
    let mut head = [0; 16];
    let mut file = open_regular(path).ok()?;
    file.read_exact(&mut head).ok()?;
    match &head {
        b"SQLite format 3\0" => Some(Engine::Sqlite),
        head if lsmvbt::is_one(head) => Some(Engine::Lsmvbt),
        _ => None,
    }
}

/// A file that was removed meanwhile, as a rollback journal is.
fn of_removed(link: &Path, databases: &Databases) -> Use {
    let name = link.as_os_str().as_bytes();
    let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
    let mut of_name = candidates(Path::new(OsStr::from_bytes(name)));
    let file = of_name.find_map(|(path, kind)| {
        let known = |database: &Database| database.path == path;
        Some((databases.all.iter().position(known)?, kind))
    });
    let database = file.and_then(|(number, _)| databases.all.get(number));
    Use {
        device: database.map_or(0, |database| database.device),
        file,
    }
}

/// The mounts that a process sees.
fn mounts_of(pid: u32) -> Vec<Mount> {
    let of_process = mounts::read(format!("/proc/{pid}/mountinfo"));
    of_process.unwrap_or_default()
}

/// The type of the file system on a device.
fn kind_on(number: u32, of_process: &[Mount]) -> String {
    let own = mounts::read(mounts::OF_THIS_THREAD).unwrap_or_default();
    let is_it = |mount: &&Mount| mount.device.0 << 20 | mount.device.1 == number;
    let mount = of_process.iter().chain(&own).find(is_it);
    mount.map_or_else(String::new, |mount| mount.filesystem.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(path: &Path) {
        let db = rusqlite::Connection::open(path).unwrap();
        db.execute_batch("CREATE TABLE t(x)").unwrap();
    }

    #[test]
    fn what_is_gone_is_not_looked_at_until_it_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let [path, other] = ["a.db", "other.db"].map(|name| dir.path().join(name));
        let (mut databases, own) = (Databases::default(), std::process::id());
        make(&path);
        let number = databases.find(own, &path, 0).unwrap();
        let looked = |databases: &mut Databases| {
            databases.all[number].look(std::time::SystemTime::now());
            databases.is_gone(number)
        };
        assert!(!looked(&mut databases));
        // A new file may get its inode number. Another name for the file itself is no new database.
        fs::hard_link(&path, &other).unwrap();
        assert_eq!(databases.find(own, &other, 0), Some(number));
        fs::remove_file(&path).unwrap();
        assert!(looked(&mut databases));
        assert_ne!(databases.find(own, &other, 0), Some(number));
        make(&path);
        assert_eq!(databases.find(own, &path, 0), Some(number));
        assert!(!looked(&mut databases));
    }

    #[test]
    fn a_name_tells_which_database_a_file_can_belong_to() {
        let of = |name: &str| -> Vec<_> { candidates(Path::new(name)).collect() };
        let path = |name: &str| PathBuf::from(name);
        assert_eq!(of("/a.db"), [(path("/a.db"), Kind::Database)]);
        assert_eq!(
            of("/a.db-wal"),
            [
                (path("/a.db"), Kind::Log),
                (path("/a.db-wal"), Kind::Database)
            ]
        );
        let shared = of("/a.db-onewrite-shm");
        assert!(shared.contains(&(path("/a.db"), Kind::WalIndex)));
    }

    #[test]
    fn sockets_and_devices_are_not_on_a_disk() {
        for name in [
            "socket:[1]",
            "anon_inode:[eventfd]",
            "/dev/null",
            "/proc/1/stat",
        ] {
            assert!(!is_on_disk(Path::new(name)), "{name}");
        }
        for name in ["/device/a.db", "/dev/shm/a.db"] {
            assert!(is_on_disk(Path::new(name)), "{name}");
        }
    }
}
