//! Writes the databases of this version. Each writer is a process: this program again.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::{env, fs, io, thread};

use onewrite::storage::observer::{Call, Observer, observe};
use onewrite_iotrace::scratch::{FileSystem, Options, Scratch};
use rusqlite::Connection;

use super::cases::{self, CASES, Case, ESCAPED, EXCHANGE, RESTARTS_AT, State, TRANSACTIONS};
use super::{left, opened, sql};

const ASKED_FOR: &str = "ONEWRITE_TEST_WRITE_DATABASES";
const DATABASE: &str = "ONEWRITE_TEST_DATABASE";
const CASE: &str = "ONEWRITE_TEST_CASE";
const STATE: &str = "ONEWRITE_TEST_STATE";

/// Writes the databases before any test reads them.
pub fn once_if_asked_for() {
    static WRITTEN: Once = Once::new();
    if env::var_os(ASKED_FOR).is_some() {
        WRITTEN.call_once(write_all);
    }
}

/// Writes every case in every state, in place of those of this version.
fn write_all() {
    let version = left::directory().join(env!("CARGO_PKG_VERSION"));
    let _ = fs::remove_dir_all(&version);
    fs::create_dir(&version).expect("a directory");
    let (temporary, stop) = (env::temp_dir(), AtomicBool::new(false));
    let xfs = Scratch::create(&Options {
        file_system: FileSystem::Xfs,
        bytes: 400 << 20,
        parent: &temporary,
        stop: &stop,
    });
    let xfs = xfs.unwrap_or_else(|e| panic!("an XFS, which needs root and xfsprogs: {e}"));
    for case in &CASES {
        for state in case.states() {
            let parent = match case.name == EXCHANGE {
                true => xfs.root(),
                false => &temporary,
            };
            let directory = tempfile::tempdir_in(parent).expect("a directory");
            start(&left::database(directory.path()), case, *state);
            left::pack(directory.path(), &version.join(case.file(*state)));
        }
    }
}

fn start(path: &Path, case: &Case, state: State) {
    let ended = Command::new(env::current_exe().expect("this program"))
        .args(["--exact", "write::writer", "--ignored", "--nocapture"])
        .env(DATABASE, path)
        .env(CASE, case.name)
        .env(STATE, state.word())
        .status()
        .expect("this program runs");
    match state {
        State::Closed => assert!(ended.success(), "{}: {ended}", case.name),
        _ => assert_eq!(ended.signal(), Some(9), "{}: {ended}", case.name),
    }
}

/// Leaves a database. The function above starts it.
#[test]
#[ignore = "a part of this_version_has_left_a_database_of_each_kind"]
fn writer() {
    let variable = |name| env::var(name).expect("a variable");
    let path = PathBuf::from(variable(DATABASE));
    let case = Case::named(&variable(CASE)).expect("a case");
    let state = State::ALL
        .into_iter()
        .find(|state| state.word() == variable(STATE));
    leave(&path, case, state.expect("a state"));
}

fn leave(path: &Path, case: &Case, state: State) {
    let mut db = opened(path, "onewrite");
    let prepare = |db: &Connection| case.before.iter().for_each(|pragma| drop(sql(db, pragma)));
    prepare(&db);
    cases::make_table(&db);
    if case.name == ESCAPED {
        drop(db);
        use_reserved_bytes(path);
        db = opened(path, "onewrite");
        prepare(&db);
    }
    let found = sql(&db, &format!("PRAGMA journal_mode={}", case.mode));
    assert_eq!(found, case.mode, "{}", case.name);
    sql(&db, "PRAGMA synchronous=FULL");
    for n in 1..=TRANSACTIONS {
        case.transaction(&db, n);
        if n == RESTARTS_AT {
            let done = sql(&db, "PRAGMA wal_checkpoint(RESTART)");
            assert!(done.starts_with("0|"), "{}: {done}", case.name);
        }
    }
    if case.name == EXCHANGE {
        let status = sql(&db, "PRAGMA onewrite_status");
        let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
        assert!(
            status["remapped"]["remapped_pages"].as_u64() > Some(0),
            "{status}"
        );
    }
    match state {
        State::Closed => drop(db),
        State::Killed => die(),
        State::Remapping => {
            observe(Box::new(Reaper(AtomicU32::new(3))));
            sql(&db, "PRAGMA wal_checkpoint");
            panic!("the checkpoint came to its end");
        }
    }
}

/// Fills the reserved bytes of each page, as a backup from a database with fewer of them would.
fn use_reserved_bytes(path: &Path) {
    let mut bytes = fs::read(path).expect("the database");
    for page in bytes.chunks_exact_mut(4096) {
        page[4096 - 24..].fill(0xc5);
    }
    fs::write(path, bytes).expect("the database");
}

fn die() -> ! {
    let own = rustix::process::getpid();
    let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
    loop {
        thread::park();
    }
}

/// Dies before the n-th exchange of blocks.
struct Reaper(AtomicU32);

impl Observer for Reaper {
    fn before(&self, _: &Path, call: &Call<'_>) -> io::Result<()> {
        if matches!(call, Call::Remap { .. }) && self.0.fetch_sub(1, Ordering::SeqCst) == 1 {
            die();
        }
        Ok(())
    }
}
