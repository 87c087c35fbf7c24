//! A VFS over SQLite's own that records what reaches the files.

use super::record::{self, Event, Opener, Reach};
use super::shim::{self, Call, Watch};
use rusqlite::ffi::{
    SQLITE_OK, SQLITE_OPEN_CREATE, SQLITE_OPEN_MAIN_DB, SQLITE_OPEN_MAIN_JOURNAL, SQLITE_OPEN_WAL,
};
use std::ffi::{CStr, c_int};
use std::path::Path;

struct Recorder;

impl Watch for Recorder {
    const NAME: &CStr = c"recorder";
    const FILES: c_int = SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_WAL;

    fn open(path: &Path, flags: c_int, call: impl Call) -> c_int {
        if flags & SQLITE_OPEN_CREATE != 0 {
            record::add(path, |file| Some(Event::Open(file, Opener::Sqlite)));
        }
        call()
    }

    fn delete(path: &Path, durably: bool, call: impl Call) -> c_int {
        record::add(path, |file| Some(Event::Remove(file)));
        let code = call();
        if code == SQLITE_OK && durably {
            record::add(path, |_| Some(Event::SyncDirectory));
        }
        code
    }

    fn write(path: &Path, offset: u64, bytes: &[u8], call: impl Call) -> c_int {
        record::add(path, |file| {
            Some(Event::Write {
                file,
                offset,
                bytes: bytes.into(),
                reach: Reach::Buffered,
            })
        });
        call()
    }

    fn truncate(path: &Path, size: u64, call: impl Call) -> c_int {
        record::add(path, |file| Some(Event::Truncate(file, size)));
        call()
    }

    fn sync(path: &Path, call: impl Call) -> c_int {
        record::add(path, |file| Some(Event::Flush(file)));
        call()
    }
}

/// Registers the VFS `recorder` as the default one.
pub fn register() {
    shim::register::<Recorder>();
}
